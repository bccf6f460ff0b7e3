//! One moment of all streams in tables: what a checkpoint is of.
//!
//! `seal all memtables at one moment, and hold back what comes after → flush → choose the state → let go`.
//!
//! Each stream is flushed by itself, with a record of its own. While nothing after the cut is
//! flushed, every state that has all of it is of the cut alone, so that one put of one such state
//! is durable for all streams.
//!
//! Invariant: a state is chosen only if no stream in it goes beyond the cut. Closing lets flushes
//! go at any time: then the checkpoint is not made.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::MAIN_STREAM;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::flushed;
use crate::engine::Engine;
use crate::manifest::State;
use crate::write;

/// See the module's documentation. Flushes go on when it is dropped.
pub(super) struct Cut {
    main: Arc<Engine>,
    /// Up to where each stream is in it.
    reached: Vec<(Arc<Engine>, SequenceNumber)>,
    /// Up to where streams had come that nobody writes to any more. One that begins again while
    /// flushes are held back goes on from there.
    before: BTreeMap<u32, SequenceNumber>,
    is_held: bool,
}

impl Cut {
    /// A cut of now. Without streams nothing is held back: any state is of one moment.
    pub(super) fn now(main: &Arc<Engine>) -> Cut {
        let mut held = main.streams.held.lock();
        let is_held = main.streams.is_any();
        *held = is_held;
        let engines = main.with_streams();
        let is_kept = is_held && !is_enabled(Mutant::CheckpointFlushesGoOn);
        let reached = write::seal_together(&engines, is_kept);
        let before = main.manifest.state().streams().clone();
        drop(held);
        let reached = engines.into_iter().zip(reached).collect();
        Cut { main: Arc::clone(main), reached, before, is_held }
    }

    /// Whether flushes are held back.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Waits until all of it is in tables.
    ///
    /// # Errors
    /// As a flush's.
    pub(super) async fn flushed(&self) -> Result<()> {
        for (stream, last) in &self.reached {
            flushed(stream, *last).await?;
        }
        Ok(())
    }

    /// Whether a state is of this cut alone; flushes go on from here on.
    ///
    /// # Errors
    /// `Retry` when the first stream was begun meanwhile; `Closed`.
    pub(super) fn chosen(&self, state: &State) -> Result<()> {
        self.main.let_flushes_go();
        let reached = |stream| {
            let of_it = |(engine, _): &&(Arc<Engine>, _)| engine.stream_id() == stream;
            let of_now = self.reached.iter().find(of_it).map(|(_, last)| *last);
            of_now.or_else(|| self.before.get(&stream).copied()).unwrap_or(SequenceNumber::ZERO)
        };
        let is_beyond = |(stream, last): (&u32, &SequenceNumber)| *last > reached(*stream);
        if !state.has_streams() || is_enabled(Mutant::CheckpointFlushesGoOn) {
            return Ok(());
        }
        if !self.is_held {
            // One that is about to begin has a log, and nothing in it.
            if state.keyspaces().all(|keyspace| keyspace.stream == MAIN_STREAM) {
                return Ok(());
            }
            return Err(Error::new(ErrorKind::Retry, "a stream was begun while a checkpoint was made"));
        }
        if state.streams().iter().any(is_beyond) {
            self.main.check_open()?;
            let message = "a state went beyond the cut that a checkpoint is of";
            return Err(Error::new(ErrorKind::Bug, message).advice("make the checkpoint again"));
        }
        Ok(())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.main.let_flushes_go();
    }
}
