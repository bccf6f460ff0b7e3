//! How far an engine that follows a writer may be behind, and is.
//!
//! Invariant: whatever a writer had acknowledged as durable before `confirmed` is visible.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::Instant;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::signal::Signal;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Following {
    /// Reads are refused when it is behind by more.
    lag_max: Duration,
    /// When the newest round that went well began, in nanoseconds of the world's clock.
    confirmed: AtomicU64,
    /// Rounds that somebody asked for.
    requested: AtomicU64,
    /// Those of them that have ended. Invariant: at most `requested`, or all that ever will be.
    served: AtomicU64,
    /// What the last round failed with.
    error: Mutex<Option<Error>>,
    /// Somebody asks for a round, or the reader ends.
    pub(crate) wanted: Signal,
    /// A round has ended, or there will be none.
    pub(crate) ended: Signal,
}

impl Following {
    /// One that has been brought up to date by a round that began at `confirmed`.
    pub(crate) fn new(lag_max: Duration, confirmed: Instant) -> Following {
        Following {
            lag_max,
            confirmed: AtomicU64::new(confirmed.as_nanos()),
            requested: AtomicU64::new(0),
            served: AtomicU64::new(0),
            error: Mutex::default(),
            wanted: Signal::default(),
            ended: Signal::default(),
        }
    }

    /// How long ago the state shown was proven to hold everything durable.
    pub(crate) fn lag(&self, now: Instant) -> Duration {
        now.since(Instant::from_nanos(self.confirmed.load(Ordering::Acquire)))
    }

    /// What the last round failed with, if it did.
    pub(crate) fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// # Errors
    /// `Retry` when it is too far behind.
    pub(crate) fn check(&self, now: Instant) -> Result<()> {
        let lag = self.lag(now);
        if lag <= self.lag_max {
            return Ok(());
        }
        let message = format!(
            "the reader last heard of the writer's state {lag:?} ago; {:?} are allowed",
            self.lag_max
        );
        let error =
            Error::new(ErrorKind::Retry, message).advice("read again; `Reader::error` says what holds it up");
        Err(match self.error() {
            Some(source) => error.source(source),
            None => error,
        })
    }

    /// Asks for a round that begins after this call; [`Following::is_served`] tells when it has
    /// ended.
    pub(crate) fn request(&self) -> u64 {
        let ticket = self.requested.fetch_add(1, Ordering::AcqRel) + 1;
        self.wanted.raise();
        ticket
    }

    /// Whether a round that was asked for has ended.
    pub(crate) fn is_served(&self, ticket: u64) -> bool {
        self.served.load(Ordering::Acquire) >= ticket
    }

    /// Whether a round is asked for; to be read before it begins, and given to
    /// [`Following::round_ended`].
    pub(crate) fn requested(&self) -> Option<u64> {
        let requested = self.requested.load(Ordering::Acquire);
        (requested > self.served.load(Ordering::Acquire)).then_some(requested)
    }

    /// A round that began at `began` has ended.
    pub(crate) fn round_ended(&self, began: Instant, requested: Option<u64>, result: Result<()>) {
        let error = result.err();
        if error.is_none() {
            self.confirmed.fetch_max(began.as_nanos(), Ordering::AcqRel);
        }
        *self.error.lock() = error;
        if let Some(requested) = requested {
            self.served.fetch_max(requested, Ordering::AcqRel);
        }
        self.ended.raise();
    }

    /// There will be no more rounds: callers that ask for one are told why.
    pub(crate) fn end(&self, error: Error) {
        *self.error.lock() = Some(error);
        self.served.store(u64::MAX, Ordering::Release);
        self.ended.raise();
    }
}
