//! An io_uring shared by all threads: readers submit, one thread reaps.
//!
//! Invariants:
//! 1. A job lies in `jobs` from before its entry is pushed until after its answer was taken from
//!    the completion queue: the kernel's pointer into its buffer is valid all that time, and
//!    nothing else touches the buffer.
//! 2. Entries are pushed, and submitted, under the lock `submission` only; answers are taken by the
//!    reaping thread only.
//! 3. At most as many jobs are with the kernel as the completion queue has room for: none is lost.
//! 4. After it has taken an answer's job out of its slot the reaping thread hands the queue over.
//!    So a job that is queued while a slot is taken waits for no one else.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_uring::IoUring;
use parking_lot::Mutex;

use super::super::threads;
use super::job::{Job, Next};

/// Wait for at least one answer (`IORING_ENTER_GETEVENTS`, linux/io_uring.h).
const ENTER_GETEVENTS: u32 = 1;

/// While so many reads are with the kernel, further ones are left to the reaping thread: answers
/// come every few microseconds, and it hands over all that has come meanwhile in one system call.
/// The device has enough to do until then.
const LEFT_FROM: usize = 32;

/// Pause before looking again when waiting itself failed.
const WAIT_FAILED: Duration = Duration::from_millis(1);

/// The ring of this process.
pub(in crate::real) struct Ring {
    ring: IoUring,
    submission: Mutex<()>,
    jobs: Mutex<Jobs>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ring")
    }
}

struct Jobs {
    slots: Vec<Option<Job>>,
    /// Slots without a job.
    free: Vec<usize>,
    /// Jobs without a slot, in order.
    queue: VecDeque<Job>,
}

impl Ring {
    /// Starts a ring with room for `entries` reads, and its thread.
    pub(super) fn start(entries: u32) -> Result<Arc<Ring>, String> {
        let ring = IoUring::new(entries).map_err(|error| format!("it does not start: {error}"))?;
        let slots = entries as usize;
        let jobs = Jobs {
            slots: (0..slots).map(|_| None).collect(),
            free: (0..slots).rev().collect(),
            queue: VecDeque::new(),
        };
        let ring = Arc::new(Ring { ring, submission: Mutex::new(()), jobs: Mutex::new(jobs) });
        let reaper = Arc::clone(&ring);
        let started = threads::start("tombolo-reads", move || reaper.reap());
        started.map_err(|error| format!("no thread to take its answers: {error}"))?;
        Ok(ring)
    }

    pub(super) fn submit(&self, jobs: Vec<Job>) {
        let is_left = {
            let mut state = self.jobs.lock();
            state.queue.extend(jobs);
            state.slots.len() - state.free.len() >= LEFT_FROM
        };
        if !is_left {
            self.push();
        }
    }

    /// Hands as many queued jobs to the kernel as there is room for.
    fn push(&self) {
        // Held over all of it, so that slots are filled and entries pushed in one order.
        let submission = self.submission.lock();
        let mut entries = Vec::new();
        {
            let mut jobs = self.jobs.lock();
            while let Some(slot) = jobs.free.pop() {
                let Some(mut job) = jobs.queue.pop_front() else {
                    jobs.free.push(slot);
                    break;
                };
                entries.push(job.entry().user_data(slot as u64));
                jobs.slots[slot] = Some(job);
            }
        }
        if entries.is_empty() {
            return;
        }
        {
            // SAFETY: the submission queue is used under the lock `submission` alone, which is
            // held.
            let mut queue = unsafe { self.ring.submission_shared() };
            for entry in &entries {
                // SAFETY: the job in the entry's slot owns its buffer and keeps its file open until
                // its answer was taken (invariant 1).
                let pushed = unsafe { queue.push(entry) };
                assert!(
                    pushed.is_ok(),
                    "the submission queue has as many entries as there are slots, and each submission \
                    empties it"
                );
            }
        }
        let mut submitted = 0;
        while submitted < entries.len() {
            match self.ring.submit() {
                Ok(count) => submitted += count,
                // The kernel is short of memory, or its completion queue is full: the reaping
                // thread makes room.
                Err(error) if matches!(error.raw_os_error(), Some(4 | 11 | 16)) => std::thread::yield_now(),
                Err(error) => {
                    panic!("io_uring took {submitted} of {} reads and then no more: {error}", entries.len())
                }
            }
        }
        drop(submission);
    }

    /// The reaping thread's life: it ends with the process.
    fn reap(&self) {
        let mut answers = Vec::new();
        loop {
            // SAFETY: nothing to submit and no argument: the call only waits for an answer.
            let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, ENTER_GETEVENTS, None) };
            if waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                // Answers are in memory that is shared with the kernel: they are seen without
                // waiting too.
                std::thread::sleep(WAIT_FAILED);
            }
            {
                // SAFETY: only this thread uses the completion queue.
                let queue = unsafe { self.ring.completion_shared() };
                answers.extend(queue.map(|answer| (answer.user_data(), answer.result())));
            }
            if answers.is_empty() {
                continue;
            }
            let done: Vec<(Job, i32)> = {
                let mut jobs = self.jobs.lock();
                let slots = answers
                    .drain(..)
                    .filter_map(|(slot, result)| usize::try_from(slot).ok().map(|slot| (slot, result)));
                let mut done = Vec::new();
                for (slot, result) in slots {
                    if let Some(job) = jobs.slots.get_mut(slot).and_then(Option::take) {
                        jobs.free.push(slot);
                        done.push((job, result));
                    }
                }
                done
            };
            // Before the answers are worked on: the device has room.
            self.push();
            let mut again = Vec::new();
            for (job, result) in done {
                let answer = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                if let Next::Again(job) = job.answer(answer) {
                    again.push(job);
                }
            }
            if !again.is_empty() {
                self.submit(again);
            }
        }
    }
}
