//! Reads of files in batches: what the page cache holds at once, the rest many at a time without a
//! thread each.
//!
//! 1. A range of a buffered file is tried with `RWF_NOWAIT`: what the page cache holds is copied on
//!    the calling thread (about 1 µs for 4 KiB), without a hand-over.
//! 2. The rest goes to the engine of this process: an io_uring with one thread that reaps
//!    (`ring`), or, where the kernel does not let us, a bounded pool of threads that call `pread`
//!    (`pool`).
//! 3. A thread that waits with nothing else to do (`Env::block_on`) reads itself: the hand-over to
//!    another thread and back would cost a quarter of what the device takes. A single read is a
//!    `pread`; several go to an io_uring of its own (`own_ring`), with one system call that returns
//!    when all have ended. Who waits for a moment as well, as a caller with a deadline does, must
//!    be back for it and hands its reads over.
//!
//! Files opened past the page cache need aligned memory, offsets and lengths: a read is widened
//! here, and cut to the requested range.
//!
//! Invariants:
//! - A job owns its buffer and its file until the kernel is done with them, whatever became of the
//!   future that waits.
//! - At most `IN_FLIGHT_MAX` reads are with the kernel, and those that threads make themselves;
//!   more wait in a queue, in order.

mod job;
mod own_ring;
mod pool;
mod ring;

use std::cell::{Cell, RefCell};
use std::fs;
use std::future::Future;
use std::io;
use std::io::IoSliceMut;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::facts::{self, Alignment};
use crate::BoxFuture;
use job::{Batch, Job};

/// Reads with the kernel at once: devices of today take that many, and answer no faster with more.
const IN_FLIGHT_MAX: u32 = 256;

thread_local! {
    /// Depth of `Env::block_on` on this thread.
    static WAITING: Cell<u32> = const { Cell::new(0) };
    /// The innermost of them waits for a moment, too.
    static TIMED: Cell<bool> = const { Cell::new(false) };
    /// Reads that a waiting thread may make itself.
    static DEFERRED: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// Who reads what the page cache does not hold.
#[derive(Clone, Debug)]
pub(in crate::real) enum Engine {
    Ring(Arc<ring::Ring>),
    Pool(Arc<pool::Pool>),
}

/// How a world's reads are made; the engine itself starts with the first read that needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::real) enum Choice {
    /// io_uring where it works.
    Best,
    /// Threads, whatever works.
    Threads,
}

fn pool() -> Engine {
    static POOL: OnceLock<Arc<pool::Pool>> = OnceLock::new();
    Engine::Pool(Arc::clone(POOL.get_or_init(pool::Pool::start)))
}

/// The engine of this process, with the reason when it is not io_uring.
fn engine(choice: Choice) -> &'static (Engine, Result<(), String>) {
    static BEST: OnceLock<(Engine, Result<(), String>)> = OnceLock::new();
    static THREADS: OnceLock<(Engine, Result<(), String>)> = OnceLock::new();
    match choice {
        Choice::Best => {
            BEST.get_or_init(|| match facts::io_uring().and_then(|()| ring::Ring::start(IN_FLIGHT_MAX)) {
                Ok(ring) => (Engine::Ring(ring), Ok(())),
                Err(reason) => (pool(), Err(reason)),
            })
        }
        Choice::Threads => THREADS.get_or_init(|| (pool(), Err("threads were asked for".into()))),
    }
}

impl Choice {
    fn submit(self, jobs: Vec<Job>) {
        match &engine(self).0 {
            Engine::Ring(ring) => ring.submit(jobs),
            Engine::Pool(pool) => pool.submit(jobs),
        }
    }

    /// Whether reads go through io_uring, or why not. Starts it.
    pub(in crate::real) fn io_uring(self) -> Result<(), String> {
        engine(self).1.clone()
    }
}

/// While this lives on a waiting thread, reads are left for it to make.
pub(super) struct Waiting {
    /// What [`TIMED`] said of the wait around this one.
    outer_is_timed: bool,
}

impl Waiting {
    /// `is_timed`: the thread must be back at a moment.
    pub(super) fn enter(is_timed: bool) -> Waiting {
        WAITING.set(WAITING.get() + 1);
        Waiting { outer_is_timed: TIMED.replace(is_timed) }
    }

    /// The thread has nothing else to do: it makes the reads itself, unless it waits for a moment
    /// as well.
    pub(super) fn idle(&self) {
        let mut jobs = DEFERRED.take();
        match jobs.len() {
            0 => {}
            _ if TIMED.get() => hand_over(jobs),
            1 => jobs.remove(0).run(),
            _ => run_together(jobs),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.set(WAITING.get() - 1);
        TIMED.set(self.outer_is_timed);
        // Somebody else may wait for this read.
        hand_over(DEFERRED.take());
    }
}

/// Something that this thread waits for is a moment.
pub(super) fn waits_for_a_moment() {
    if WAITING.get() > 0 {
        TIMED.set(true);
    }
}

/// Makes reads on this thread, all at once, and hands over what it can't.
fn run_together(jobs: Vec<Job>) {
    let (best, threads) = by_choice(jobs);
    hand_over(threads);
    let left = if !best.is_empty() && Choice::Best.io_uring().is_ok() { own_ring::run(best) } else { best };
    hand_over(left);
}

/// Runs something on a thread that waits, that belongs to others who wait: nothing that it begins
/// is left to this thread.
pub(super) fn not_waiting(run: impl FnOnce()) {
    let depth = WAITING.replace(0);
    run();
    WAITING.set(depth);
}

/// Hands jobs over, those of one choice together.
fn hand_over(jobs: Vec<Job>) {
    let (best, threads) = by_choice(jobs);
    for (choice, jobs) in [(Choice::Best, best), (Choice::Threads, threads)] {
        if !jobs.is_empty() {
            choice.submit(jobs);
        }
    }
}

/// Those of [`Choice::Best`], and the others.
fn by_choice(jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    jobs.into_iter().partition(|job| job.choice == Choice::Best)
}

/// Fills a buffer by reads that do not wait, and says how much of it, which is less only at the end
/// of the file; `None` when not all came so.
///
/// A read that must not wait may answer with no bytes within the file as well (`preadv2(2)`, bugs):
/// then the file's length decides, asked for after the answer. A file that grows meanwhile is read
/// once more.
fn fill_cached(
    offset: u64,
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
    file_bytes: impl Fn() -> u64,
) -> Result<Option<usize>, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        let Some(position) = offset.checked_add(filled as u64) else { return Ok(None) };
        match read(&mut buffer[filled..], position) {
            Ok(0) if position < file_bytes() => return Ok(None),
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(filled))
}

thread_local! {
    /// What the page cache held last.
    static SHOWN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A thread keeps a buffer of at most so many bytes to show things in: a block, or a partition of
/// an index.
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// An open file as reads see it.
#[derive(Debug)]
pub(in crate::real) struct Readable {
    pub(in crate::real) file: fs::File,
    /// Set when the page cache is passed by.
    pub(in crate::real) direct: Option<Alignment>,
    pub(in crate::real) choice: Choice,
    /// The file system does not know `RWF_NOWAIT`.
    waits_always: AtomicBool,
}

impl Readable {
    pub(in crate::real) fn new(file: fs::File, direct: Option<Alignment>, choice: Choice) -> Arc<Readable> {
        Arc::new(Readable { file, direct, choice, waits_always: AtomicBool::new(false) })
    }

    /// Reads what the page cache holds, if it holds all of it.
    fn read_cached(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        if self.direct.is_some() {
            return None;
        }
        let mut buffer = vec![0; length];
        let filled = self.fill_cached(offset, &mut buffer)?;
        buffer.truncate(filled);
        Some(buffer)
    }

    /// Shows what the page cache holds of a range, if it holds all of it, in a buffer that the
    /// thread keeps.
    pub(in crate::real) fn with_held(&self, offset: u64, length: usize, show: &mut dyn FnMut(&[u8])) -> bool {
        if self.direct.is_some() {
            return false;
        }
        let mut buffer = SHOWN.take();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let filled = self.fill_cached(offset, &mut buffer[..length]).filter(|filled| *filled == length);
        if filled.is_some() {
            show(&buffer[..length]);
        }
        if buffer.len() <= SHOWN_BYTES_MAX {
            SHOWN.set(buffer);
        }
        filled.is_some()
    }

    /// Fills a buffer with what the page cache holds, if it holds all of it; how much that is.
    fn fill_cached(&self, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        if self.waits_always.load(Ordering::Relaxed) {
            return None;
        }
        let read = |rest: &mut [u8], position| {
            preadv2(&self.file, &mut [IoSliceMut::new(rest)], position, ReadWriteFlags::NOWAIT)
        };
        let file_bytes = || self.file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        match fill_cached(offset, buffer, read, file_bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.waits_always.store(true, Ordering::Relaxed);
                None
            }
            // Not in the cache, or an error that the read itself will tell.
            Err(_) => None,
            Ok(filled) => filled,
        }
    }

    /// Reads on the calling thread.
    pub(in crate::real) fn read_now(self: &Arc<Self>, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let (batch, mut jobs) =
            Batch::new(vec![None], |batch| vec![Job::new(self, batch, 0, offset, length)]);
        if let Some(job) = jobs.pop() {
            job.run();
        }
        let mut results = batch.take().unwrap_or_default();
        results.pop().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Reads ranges of (offset, length); each result is shorter than asked only at the end of the
    /// file.
    pub(in crate::real) fn read_many(
        self: Arc<Self>,
        ranges: &[(u64, usize)],
    ) -> BoxFuture<'static, Vec<io::Result<Vec<u8>>>> {
        let held: Vec<_> =
            ranges.iter().map(|(offset, length)| self.read_cached(*offset, *length).map(Ok)).collect();
        if held.iter().all(Option::is_some) {
            return Box::pin(std::future::ready(held.into_iter().flatten().collect()));
        }
        let missing: Vec<usize> = (0..held.len()).filter(|index| held[*index].is_none()).collect();
        let (batch, jobs) = Batch::new(held, |batch| {
            missing
                .iter()
                .map(|index| Job::new(&self, batch, *index, ranges[*index].0, ranges[*index].1))
                .collect()
        });
        Box::pin(Reading { batch, jobs })
    }
}

/// Waits for a batch; begins it when polled first.
struct Reading {
    batch: Arc<Batch>,
    /// Not begun yet.
    jobs: Vec<Job>,
}

impl Future for Reading {
    type Output = Vec<io::Result<Vec<u8>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Before the jobs begin: they may end before this returns.
        self.batch.listen(context.waker());
        let mut jobs = std::mem::take(&mut self.jobs);
        if !jobs.is_empty() && WAITING.get() > 0 {
            DEFERRED.with_borrow_mut(|deferred| deferred.append(&mut jobs));
        } else if !jobs.is_empty() {
            hand_over(jobs);
        }
        self.batch.take().map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests;
