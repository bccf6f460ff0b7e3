//! A log made of lanes that know nothing of each other. Which lane is meant, and what all of them
//! are asked, is decided here for every such store.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tombolo_env::{BoxFuture, Completion, Env, all, completion};

use crate::{Appended, Error, ErrorKind, Log, LogAppend, LogOffset, Pressure, Result};

/// Lanes that are closed at once.
const LANES_AT_ONCE: usize = 64;

/// One lane of this epoch's log. What each promises is said at [`Log`].
pub trait LogLane: Send + Sync + fmt::Debug {
    /// Appends one entry.
    ///
    /// # Errors
    /// As [`Log::append_parts`].
    fn append(&self, entry: &LogAppend<'_>) -> Result<Appended>;

    /// As [`Log::wants_gathered`].
    fn wants_gathered(&self) -> bool {
        false
    }

    /// Resolves when everything before `end` is durable.
    fn durable(&self, end: LogOffset) -> Completion<Result<()>>;

    /// As [`LogLane::durable`], on the calling thread.
    ///
    /// # Errors
    /// As what [`LogLane::durable`] resolves to.
    fn sync(&self, end: LogOffset) -> Result<()>;

    /// The offset up to which it is durable.
    fn durable_through(&self) -> LogOffset;

    /// Frees what lies before `before`.
    fn trim(&self, before: LogOffset);

    /// How full it is.
    fn pressure(&self) -> Pressure;

    /// Verifies that it is not fenced.
    fn confirm(&self) -> BoxFuture<'_, Result<()>>;

    /// Ends it, if it has not ended: as [`Log::give_up`].
    fn give_up(&self);

    /// Makes all durable, refuses appends from here on, and waits for its background.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// The result of an append or a sync, waited for on the calling thread.
///
/// # Errors
/// What it resolves to; `OutcomeUnknown` when the world ends before.
pub fn wait(env: &Env, mut waiting: Completion<Result<()>>) -> Result<()> {
    match waiting.try_take() {
        Some(result) => result,
        None => env.block_on(waiting).unwrap_or_else(|| Err(world_ended())),
    }
}

/// The error of those who wait for a log that will not answer any more.
pub fn world_ended() -> Error {
    Error::new(
        ErrorKind::OutcomeUnknown,
        "the world ended before the log could tell whether the entry is in place",
    )
}

/// The error of appends to a lane that was given up, and of those who wait for it.
pub fn given_up(place: impl fmt::Display) -> Error {
    Error::new(
        ErrorKind::OutcomeUnknown,
        "the log was given up; what was not durable may or may not be found again",
    )
    .object(place)
}

/// A log of such lanes.
#[derive(Debug)]
pub struct Lanes<L> {
    lanes: Vec<Numbered<L>>,
}

#[derive(Debug)]
struct Numbered<L> {
    lane: L,
    is_given_up: AtomicBool,
}

impl<L: LogLane> Lanes<L> {
    /// Of these, which are numbered in order.
    pub fn new(lanes: Vec<L>) -> Lanes<L> {
        Lanes {
            lanes: lanes
                .into_iter()
                .map(|lane| Numbered { lane, is_given_up: AtomicBool::new(false) })
                .collect(),
        }
    }

    fn lane(&self, lane: u32) -> Result<&L> {
        let none =
            || Error::new(ErrorKind::Invalid, format!("lane {lane} of a log of {} lanes", self.lanes.len()));
        self.lanes.get(lane as usize).map(|numbered| &numbered.lane).ok_or_else(none)
    }
}

impl<L: LogLane> Log for Lanes<L> {
    fn lanes(&self) -> u32 {
        u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)
    }

    fn append_parts(&self, lane: u32, entry: &LogAppend<'_>) -> Result<Appended> {
        self.lane(lane)?.append(entry)
    }

    fn wants_gathered(&self, lane: u32) -> bool {
        self.lane(lane).is_ok_and(LogLane::wants_gathered)
    }

    fn durable(&self, lane: u32, end: LogOffset) -> Completion<Result<()>> {
        match self.lane(lane) {
            Ok(lane) => lane.durable(end),
            Err(error) => {
                let (completer, waiting) = completion();
                completer.complete(Err(error));
                waiting
            }
        }
    }

    fn sync(&self, lane: u32, end: LogOffset) -> Result<()> {
        self.lane(lane)?.sync(end)
    }

    fn durable_through(&self, lane: u32) -> LogOffset {
        self.lane(lane).map_or(LogOffset::ZERO, LogLane::durable_through)
    }

    fn trim(&self, lane: u32, before: LogOffset) -> Result<()> {
        self.lane(lane)?.trim(before);
        Ok(())
    }

    fn pressure(&self, lane: u32) -> Pressure {
        self.lane(lane).map_or(Pressure { live_bytes: 0, wanted_bytes_max: 0 }, LogLane::pressure)
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for numbered in self.lanes.iter().filter(|numbered| !numbered.is_given_up.load(Ordering::Acquire))
            {
                numbered.lane.confirm().await?;
            }
            Ok(())
        })
    }

    fn give_up(&self, lane: u32) {
        if let Some(numbered) = self.lanes.get(lane as usize) {
            numbered.is_given_up.store(true, Ordering::Release);
            numbered.lane.give_up();
        }
    }

    /// Every lane is closed, however another one ended.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let closing = self.lanes.iter().map(|numbered| -> BoxFuture<'_, Result<()>> {
                Box::pin(async move {
                    let ended = numbered.lane.close().await;
                    if numbered.is_given_up.load(Ordering::Acquire) { Ok(()) } else { ended }
                })
            });
            // Side by side: each may wait for who does not answer.
            all(closing.collect(), LANES_AT_ONCE).await.into_iter().collect()
        })
    }
}
