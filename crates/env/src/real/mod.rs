//! The real world: threads, the kernel's clock, files through system calls, TCP.
//!
//! Thread safety: everything here may be used from any thread. Waiting inside a task panics,
//! because a pool whose threads all wait for tasks of the same pool would stand still.

mod bell;
mod executor;
mod facts;
mod files;
mod in_task;
mod mapping;
mod network;
mod network_pool;
mod parker;
mod reactor;
mod reads;
mod threads;
mod timer;
#[cfg(feature = "rdma")]
pub mod verbs;
mod words;
mod write_out;
mod zones;

use std::cell::RefCell;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::RngCore;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    BoxFuture, Completion, Env, FileSystem, HostFacts, Instant, Network, Platform, ProcessFacts, Task,
    TaskClass,
};

pub(crate) fn env(io_uring: bool) -> Env {
    let reads = if io_uring { reads::Choice::Best } else { reads::Choice::Threads };
    let files = files::RealFiles { reads };
    let executor = executor::Executor::new();
    let network = network::RealNetwork(Arc::clone(executor.network()));
    Env::new(Arc::new(RealPlatform { executor, timer: timer::Timer::default(), files, network }))
}

/// Since the host was started, the time in which it was suspended included: a lease, or the age of
/// what a reader shows, does not stand still while the host does.
fn since_boot() -> Duration {
    if cfg!(miri) {
        // It knows no such clock.
        static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
        return ORIGIN.get_or_init(std::time::Instant::now).elapsed();
    }
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Moments are counted from here, so that those of all real worlds of one process compare.
fn origin() -> Duration {
    static ORIGIN: OnceLock<Duration> = OnceLock::new();
    *ORIGIN.get_or_init(since_boot)
}

fn now() -> Instant {
    let origin = origin();
    Instant::from_nanos(u64::try_from(since_boot().saturating_sub(origin).as_nanos()).unwrap_or(u64::MAX))
}

/// A moment as threads wait for it, whose clock stands still with the host: a thread that waits
/// when it is suspended waits that much longer. `None`: never.
fn moment(deadline: Instant) -> Option<std::time::Instant> {
    std::time::Instant::now().checked_add(deadline.since(now()))
}

#[derive(Debug)]
struct RealPlatform {
    executor: executor::Executor,
    timer: timer::Timer,
    files: files::RealFiles,
    network: network::RealNetwork,
}

impl Platform for RealPlatform {
    fn now(&self) -> Instant {
        now()
    }

    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random_u64(&self) -> u64 {
        thread_local! {
            static GENERATOR: RefCell<Xoshiro256PlusPlus> = RefCell::new(
                Xoshiro256PlusPlus::from_seed(fresh_seed())
            );
        }
        GENERATOR.with_borrow_mut(RngCore::next_u64)
    }

    fn boot_id(&self) -> u128 {
        static BOOT_ID: OnceLock<u128> = OnceLock::new();
        *BOOT_ID.get_or_init(|| {
            let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
            // A host that does not tell gets an identity that no later process shares: its page
            // cache is then taken for lost.
            u128::from_str_radix(&digits, 16)
                .unwrap_or_else(|_| u128::from(self.random_u64()) << 64 | u128::from(self.random_u64()))
        })
    }

    fn host_facts(&self) -> HostFacts {
        facts::host()
    }

    fn process_facts(&self) -> ProcessFacts {
        facts::process()
    }

    fn process_lives(&self, process: u32, start: u64) -> Option<bool> {
        facts::lives(process, start)
    }

    fn process_token(&self) -> u64 {
        // A child that was forked has what its parent had open in its memory, and not open.
        u64::from(std::process::id())
    }

    fn rung(&self, key: u128) -> Completion<()> {
        bell::wait(key)
    }

    fn ring(&self, process: u32, start: u64, key: u128) -> std::io::Result<()> {
        bell::ring(process, start, key)
    }

    fn spawn(&self, class: TaskClass, _name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        self.executor.spawn(class, future)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        match moment(deadline) {
            Some(moment) => Box::pin(self.timer.sleep_until(moment)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn yield_now(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn drive(&self, future: Pin<&mut (dyn Future<Output = ()> + Send)>, deadline: Option<Instant>) -> bool {
        let deadline = deadline.and_then(moment);
        executor::drive(self.executor.network(), future, deadline)
    }

    fn preemption_point(&self) {}

    fn is_simulated(&self) -> bool {
        false
    }

    fn files(&self) -> &dyn FileSystem {
        &self.files
    }

    fn network(&self) -> &dyn Network {
        &self.network
    }
}

/// A seed that no other thread or process has: the standard library keys its hashers from the
/// kernel's generator.
fn fresh_seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for (index, word) in seed.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&RandomState::new().hash_one((index, std::process::id())).to_le_bytes());
    }
    seed
}

#[cfg(test)]
mod tests;
