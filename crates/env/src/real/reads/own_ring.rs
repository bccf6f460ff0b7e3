//! Small io_urings for threads that wait for several reads at once: one system call hands them over
//! and waits for them, and no other thread has to run in between. Taken from a list when needed,
//! and put back.
//!
//! Invariants:
//! 1. A job lies in `jobs` from before its entry is pushed until after its answer was taken from
//!    the completion queue: the kernel's pointer into its buffer is valid all that time, and
//!    nothing else touches the buffer.
//! 2. A ring is never dropped: a read that is with the kernel when its thread ends by a panic keeps
//!    its memory.
//! 3. At most `ENTRIES` jobs are with the kernel: neither queue of the ring is ever full.

use std::collections::VecDeque;
use std::io;

use io_uring::IoUring;
use parking_lot::Mutex;

use super::job::{Job, Next};

/// Reads of one ring with the kernel at once: a multi-get of some dozens, and what a device answers
/// side by side.
const ENTRIES: u32 = 64;

/// Rings at most; each takes a descriptor and some 10 kB of the kernel's. Threads beyond them use
/// the ring that all share.
const RINGS_MAX: usize = 64;

static RINGS: Mutex<Rings> = Mutex::new(Rings { free: Vec::new(), made: 0 });

struct Rings {
    free: Vec<&'static mut OwnRing>,
    /// Invariant: free.len() <= made <= RINGS_MAX.
    made: usize,
}

struct OwnRing {
    ring: IoUring,
    jobs: Vec<Option<Job>>,
    /// Places in `jobs` without one.
    free: Vec<usize>,
}

/// Makes all reads and returns when they have ended; gives them back when no ring can be had.
pub(super) fn run(jobs: Vec<Job>) -> Vec<Job> {
    let Some(ring) = take() else { return jobs };
    ring.run(jobs.into());
    RINGS.lock().free.push(ring);
    Vec::new()
}

/// A ring that nobody uses.
fn take() -> Option<&'static mut OwnRing> {
    {
        let mut rings = RINGS.lock();
        if let Some(ring) = rings.free.pop() {
            return Some(ring);
        }
        if rings.made == RINGS_MAX {
            return None;
        }
        rings.made += 1;
    }
    // Answers are wanted when the thread asks for them: nothing needs to interrupt it (not every
    // kernel knows that).
    let Ok(ring) = IoUring::builder().setup_coop_taskrun().build(ENTRIES).or_else(|_| IoUring::new(ENTRIES))
    else {
        // No descriptors, or no memory, just now.
        RINGS.lock().made -= 1;
        return None;
    };
    let places = ENTRIES as usize;
    Some(Box::leak(Box::new(OwnRing {
        ring,
        jobs: (0..places).map(|_| None).collect(),
        free: (0..places).rev().collect(),
    })))
}

impl OwnRing {
    fn run(&mut self, mut queue: VecDeque<Job>) {
        loop {
            self.push(&mut queue);
            let in_flight = self.jobs.len() - self.free.len();
            if in_flight == 0 {
                return;
            }
            // What waits for a place goes to the kernel as soon as there is one.
            let wanted = if queue.is_empty() { in_flight } else { 1 };
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => {}
                // Interrupted, or the kernel is short of memory: the rest is handed over
                // again.
                Err(error) if matches!(error.raw_os_error(), Some(4 | 11 | 16)) => std::thread::yield_now(),
                Err(error) => panic!("io_uring did not take {in_flight} reads: {error}"),
            }
            self.take_answers(&mut queue);
        }
    }

    /// Takes the answers that are there; what has to be read on is queued.
    fn take_answers(&mut self, queue: &mut VecDeque<Job>) {
        let OwnRing { ring, jobs, free } = self;
        for answer in ring.completion() {
            let place = usize::try_from(answer.user_data()).unwrap_or(usize::MAX);
            let Some(job) = jobs.get_mut(place).and_then(Option::take) else { continue };
            free.push(place);
            let result = answer.result();
            let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            if let Next::Again(job) = job.answer(result) {
                queue.push_back(job);
            }
        }
    }

    /// Puts jobs where there is a place, and their entries into the submission queue.
    fn push(&mut self, queue: &mut VecDeque<Job>) {
        let mut submission = self.ring.submission();
        while let Some(place) = self.free.pop() {
            let Some(job) = queue.pop_front() else {
                self.free.push(place);
                return;
            };
            let job = self.jobs[place].insert(job);
            let entry = job.entry().user_data(place as u64);
            // SAFETY: the job in `place` owns its buffer and keeps its file open until its answer
            // was taken (invariants 1 and 2).
            let pushed = unsafe { submission.push(&entry) };
            assert!(pushed.is_ok(), "the submission queue has as many entries as there are places");
        }
    }
}
