//! One read: its file, its memory, and whom to tell.

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::Waker;

use io_uring::{opcode, squeue, types};
use parking_lot::Mutex;

use super::{Choice, Readable};

/// The results of a batch, and who waits for them.
#[derive(Debug)]
pub(super) struct Batch(Mutex<State>);

#[derive(Debug)]
struct State {
    results: Vec<Option<io::Result<Vec<u8>>>>,
    /// Invariant: how many of `results` are missing.
    missing: usize,
    waker: Option<Waker>,
}

impl Batch {
    /// A batch of which some results are there, and the jobs for the rest.
    pub(super) fn new(
        held: Vec<Option<io::Result<Vec<u8>>>>,
        jobs: impl FnOnce(&Arc<Batch>) -> Vec<Job>,
    ) -> (Arc<Batch>, Vec<Job>) {
        let missing = held.iter().filter(|held| held.is_none()).count();
        let batch = Arc::new(Batch(Mutex::new(State { results: held, missing, waker: None })));
        let jobs = jobs(&batch);
        (batch, jobs)
    }

    fn tell(&self, index: usize, result: io::Result<Vec<u8>>) {
        let waker = {
            let mut state = self.0.lock();
            state.results[index] = Some(result);
            state.missing -= 1;
            if state.missing == 0 { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn listen(&self, waker: &Waker) {
        let before = self.0.lock().waker.replace(waker.clone());
        // Outside the lock: dropping a waker may end a task.
        drop(before);
    }

    /// All results, once all are there.
    pub(super) fn take(&self) -> Option<Vec<io::Result<Vec<u8>>>> {
        let mut state = self.0.lock();
        (state.missing == 0).then(|| std::mem::take(&mut state.results).into_iter().flatten().collect())
    }
}

thread_local! {
    /// The buffer of a read that has ended here, for the next one: clearing one takes as long as
    /// copying a block out of it.
    static ASIDE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A thread keeps a buffer of at most so many bytes.
const ASIDE_BYTES_MAX: usize = 64 << 10;

/// At least so many bytes, which are anything.
fn aside(bytes: usize) -> Vec<u8> {
    let mut buffer = ASIDE.take();
    if buffer.len() < bytes {
        buffer.clear();
        buffer.resize(bytes, 0);
    }
    buffer
}

fn keep_aside(buffer: Vec<u8>) {
    if buffer.len() <= ASIDE_BYTES_MAX {
        ASIDE.set(buffer);
    }
}

/// A read on its way.
#[derive(Debug)]
pub(super) struct Job {
    file: Arc<Readable>,
    /// Invariant: never grows or shrinks before the end: the kernel may be writing to it.
    buffer: Vec<u8>,
    /// Where in `buffer` the bytes go.
    start: usize,
    /// Where in the file they come from.
    offset: u64,
    /// Bytes to read.
    /// Invariant: start + wanted <= buffer.len(), and filled <= wanted.
    wanted: usize,
    filled: usize,
    /// The requested range, within the range that is read.
    ask_start: usize,
    ask_length: usize,
    batch: Arc<Batch>,
    index: usize,
    pub(super) choice: Choice,
}

/// What to do with a job after the kernel answered.
pub(super) enum Next {
    /// It has ended.
    Done,
    /// There is more to read.
    Again(Job),
}

impl Job {
    pub(super) fn new(
        file: &Arc<Readable>,
        batch: &Arc<Batch>,
        index: usize,
        offset: u64,
        length: usize,
    ) -> Job {
        let align = file.direct.map_or(1, |alignment| alignment.read);
        let before = usize::try_from(offset % align as u64).unwrap_or(0);
        let wanted = if length == 0 { 0 } else { (before + length).next_multiple_of(align) };
        let buffer = if file.direct.is_some() { aside(wanted + align - 1) } else { vec![0_u8; wanted] };
        let start = if wanted == 0 { 0 } else { buffer.as_ptr().align_offset(align).min(align - 1) };
        Job {
            file: Arc::clone(file),
            buffer,
            start,
            offset: offset - before as u64,
            wanted,
            filled: 0,
            ask_start: before,
            ask_length: length,
            batch: Arc::clone(batch),
            index,
            choice: file.choice,
        }
    }

    /// What asks an io_uring for the next bytes: it holds only as long as this job is kept.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        let descriptor = types::Fd(self.file.file.as_raw_fd());
        let position = self.position();
        let rest = self.rest();
        // What one entry can ask for; the rest of a longer read is asked for again.
        let length = u32::try_from(rest.len()).unwrap_or(1 << 30);
        opcode::Read::new(descriptor, rest.as_mut_ptr(), length).offset(position).build()
    }

    /// Where the next bytes go.
    pub(super) fn rest(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start + self.filled..self.start + self.wanted]
    }

    /// Where the next bytes come from.
    pub(super) fn position(&self) -> u64 {
        self.offset.saturating_add(self.filled as u64)
    }

    /// Takes an answer of the kernel.
    pub(super) fn answer(mut self, answer: io::Result<usize>) -> Next {
        match answer {
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                return Next::Again(self);
            }
            Err(error) => {
                self.end(Err(error));
                return Next::Done;
            }
            Ok(count) => {
                self.filled = (self.filled + count).min(self.wanted);
                // Past the page cache only the end of the file comes in a piece that is not
                // aligned.
                let whole = self.file.direct.is_none_or(|alignment| count.is_multiple_of(alignment.read));
                if count > 0 && self.filled < self.wanted && whole {
                    return Next::Again(self);
                }
            }
        }
        let from = (self.start + self.ask_start).min(self.start + self.filled);
        let to = (from + self.ask_length).min(self.start + self.filled);
        let bytes = if from == 0 && self.file.direct.is_none() {
            let mut bytes = std::mem::take(&mut self.buffer);
            bytes.truncate(to);
            bytes
        } else {
            // A copy of its own size: the widened buffer would stay in a cache.
            let bytes = self.buffer[from..to].to_vec();
            keep_aside(std::mem::take(&mut self.buffer));
            bytes
        };
        self.end(Ok(bytes));
        Next::Done
    }

    fn end(self, result: io::Result<Vec<u8>>) {
        let Job { file, batch, index, .. } = self;
        // The file is closed before its reader goes on, if it was the last to use it.
        drop(file);
        batch.tell(index, result);
    }

    /// Reads on this thread.
    pub(super) fn run(mut self) {
        loop {
            let position = self.position();
            let file = Arc::clone(&self.file);
            let rest = self.rest();
            let answer = if rest.is_empty() { Ok(0) } else { file.file.read_at(rest, position) };
            drop(file);
            match self.answer(answer) {
                Next::Done => return,
                Next::Again(job) => self = job,
            }
        }
    }

    /// Ends without having been read.
    pub(super) fn fail(self, error: io::Error) {
        self.end(Err(error));
    }
}
