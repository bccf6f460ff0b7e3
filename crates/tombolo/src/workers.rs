//! Compaction on other machines, as a database sees it: somebody who takes jobs as bytes and gives
//! answers as bytes.
//!
//! A job goes out in attempts, of which each has names of its own for what it writes. The writer
//! believes one answer, after it has checked it; the other attempts come to nothing.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Instant};
pub use tombolo_format::compaction::Urgency;
use tombolo_format::compaction::{Attempt, with_attempt};
use tombolo_storage::{Error, ErrorKind, Result};

/// Most attempts at one job.
const ATTEMPTS_MAX: usize = 64;

/// Who runs compactions elsewhere: `tombolo-compactor` has one that reaches workers over a network.
///
/// What comes back is checked before it counts: a worker can do no harm.
pub trait CompactionWorkers: Send + Sync + 'static {
    /// Has a job run: begins an attempt ([`CompactionOffer::begin`]) for each worker that it is
    /// given to, and gives the first answer. Dropped, it is given up: nobody waits for it.
    fn run(&self, offer: CompactionOffer) -> BoxFuture<'static, Result<Bytes>>;

    /// The URI by which workers open the database's store. `None`: as the writer does, unless its
    /// URI holds a secret.
    fn place(&self) -> Option<String> {
        None
    }

    /// An answer was refused: the worker that gave it is not to be asked for a while.
    fn refused(&self, attempt: u128, error: &Error) {
        let _ = (attempt, error);
    }
}

/// Attempts at a job, and how many names each may have taken.
#[derive(Debug)]
pub(crate) struct Attempts {
    pub(crate) all: Vec<Attempt>,
    pub(crate) names_max: u32,
}

impl Attempts {
    /// Those beside one.
    pub(crate) fn beside(mut self, accepted: &Attempt) -> Attempts {
        self.all.retain(|attempt| attempt != accepted);
        self
    }
}

/// Attempts that came to nothing, and when to look for what they have left.
#[derive(Debug)]
pub(crate) struct Void {
    pub(crate) due: Instant,
    /// How often it was looked.
    pub(crate) looks: usize,
    pub(crate) attempts: Attempts,
}

/// A job that somebody may run.
#[derive(Clone)]
pub struct CompactionOffer {
    env: Env,
    job: Bytes,
    needs: Arc<[String]>,
    attempts: Arc<Mutex<Vec<Attempt>>>,
    urgency: Urgency,
}

impl fmt::Debug for CompactionOffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CompactionOffer").field("urgency", &self.urgency).finish_non_exhaustive()
    }
}

impl CompactionOffer {
    pub(crate) fn new(env: &Env, job: Vec<u8>, needs: Vec<String>, urgency: Urgency) -> CompactionOffer {
        let (job, needs) = (job.into(), needs.into());
        CompactionOffer { env: env.clone(), job, needs, attempts: Arc::default(), urgency }
    }

    /// What a worker must have.
    pub fn needs(&self) -> &[String] {
        &self.needs
    }

    /// How urgent it is.
    pub fn urgency(&self) -> Urgency {
        self.urgency
    }

    /// Begins another attempt: its random number, and the bytes to give to a worker, once.
    ///
    /// # Errors
    /// `Busy` after too many attempts at the same job.
    pub fn begin(&self) -> Result<(u128, Bytes)> {
        let mut attempts = self.attempts.lock();
        if attempts.len() >= ATTEMPTS_MAX {
            let message = format!("{ATTEMPTS_MAX} attempts at one compaction have come to nothing");
            return Err(Error::new(ErrorKind::Busy, message).advice("see what the workers say"));
        }
        let random = u128::from(self.env.random_u64()) << 64 | u128::from(self.env.random_u64());
        let begun = with_attempt(&self.job, random);
        let (attempt, bytes) =
            begun.map_err(|error| Error::new(ErrorKind::Bug, format!("a job that is none: {error}")))?;
        attempts.push(attempt);
        Ok((random, bytes.into()))
    }

    /// The attempts that were begun.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().clone()
    }
}
