//! Threads that take none of the process's signals: those belong to the program that the engine is
//! part of, whose handlers expect to run on its own threads, and whose waits expect to be
//! interrupted by them.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread in which every signal is blocked that can be, those of faults excepted. Threads
/// that it starts inherit that.
pub(super) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let before = block_signals();
    let started = Builder::new().name(name.to_owned()).spawn(work);
    if let Some(before) = before {
        restore_signals(&before);
    }
    started
}

/// What the calling thread blocked until now; `None` where signals cannot be blocked.
#[cfg(not(miri))]
fn block_signals() -> Option<libc::sigset_t> {
    let mut blocked = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set that it is given, and the rest are given that;
    // faults are taken out of it because a blocked fault is undefined. `pthread_sigmask` writes
    // `before` whenever it returns 0, the only case in which that is read.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for fault in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGABRT,
            libc::SIGTRAP,
            libc::SIGSYS,
        ] {
            libc::sigdelset(blocked.as_mut_ptr(), fault);
        }
        (libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr()) == 0)
            .then(|| before.assume_init())
    }
}

#[cfg(not(miri))]
fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set is one that `pthread_sigmask` wrote; where the old one would go may be null.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut());
    }
}

#[cfg(miri)]
fn block_signals() -> Option<libc::sigset_t> {
    None
}

#[cfg(miri)]
fn restore_signals(_before: &libc::sigset_t) {}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    /// The signals that the calling thread blocks, as the kernel says.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_takes_no_signals_and_its_starter_goes_on_to() {
        let before = blocked();
        let inside = super::start("signals", blocked).unwrap().join().unwrap();
        let bit = |signal: i32| 1_u64 << (signal - 1);
        assert_eq!(inside & bit(libc::SIGTERM), bit(libc::SIGTERM));
        assert_eq!(inside & bit(libc::SIGALRM), bit(libc::SIGALRM));
        assert_eq!(inside & bit(libc::SIGSEGV), 0);
        assert_eq!(blocked(), before);
    }
}
