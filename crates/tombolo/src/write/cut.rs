//! Cuts in the main log: what the streams beside the main one had come to, at one moment, when that
//! had come to the entry. Who follows the logs shows all of them up to there.
//!
//! Nothing waits for a cut, and nothing is changed by one. A cut is written only where something
//! was committed since the one before.

use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_storage::{Error, ErrorKind, Result};

use super::{Content, Prepared, acknowledge, check_line, commit_locked, finish_commit, rotate};
use crate::engine::Engine;
use crate::op::Op;
use crate::options::Durability;

/// Bytes of log that hold nothing but cuts, from which on they are let go.
const CUTS_BYTES_MAX: u64 = 1 << 20;

/// What a cut has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    main: u64,
    others: Vec<(u32, SequenceNumber)>,
}

impl Reached {
    /// The numbers that are visible now.
    pub(crate) fn now(engine: &Engine) -> Reached {
        let streams = engine.streams.all();
        let of_it = |stream: &Arc<Engine>| (stream.stream_id(), stream.stream.visible());
        Reached { main: engine.stream.visible().0, others: streams.iter().map(of_it).collect() }
    }
}

/// Writes a cut unless nothing was committed since `last`; resolves once it is durable.
///
/// # Errors
/// `Busy` while writes wait for room; those of the log.
pub(crate) fn mark_cut(engine: &Arc<Engine>, last: &mut Reached) -> Result<Option<Op<()>>> {
    if *last == Reached::now(engine) {
        return Ok(None);
    }
    let (cut, rotates, committed) = {
        let mut commit = engine.stream.commit.lock();
        check_line(&commit)?;
        let cut = engine.streams.cuts.raise(engine.judged_ms());
        let of_cut = |stream: &Arc<Engine>| {
            let fixed = stream.snapshots.cuts().and_then(|cuts| cuts.at(cut));
            (stream.stream_id(), fixed.map_or(SequenceNumber::ZERO, |fixed| fixed.sequence))
        };
        // Here, as what the main stream's number implies may be of one that has begun since.
        let others: Vec<_> = engine.streams.all().iter().map(of_cut).collect();
        let mut prepared = Prepared::default();
        let pushed = prepared.batch.push_cut(&others);
        let pushed = pushed.map_err(|error| Error::new(ErrorKind::Bug, error.to_string()));
        let committed = pushed.and_then(|()| {
            commit_locked(engine, &mut commit, Content::Batch(&prepared), Durability::Durable)
        });
        // A memtable that holds nothing is not flushed by itself, and its log is not trimmed.
        let rotates = commit.memtable.is_empty()
            && commit.log_bytes > CUTS_BYTES_MAX
            && engine.view().waiting.is_empty()
            && commit.log.ended().is_none();
        if rotates {
            rotate(engine, &mut commit, None);
        }
        if committed.is_ok() {
            *last = Reached { main: commit.last, others };
        }
        (cut, rotates, committed)
    };
    engine.streams.close_cut(cut);
    if rotates {
        engine.work.raise();
    }
    let committed = finish_commit(engine, committed)?;
    Ok(Some(acknowledge(engine, committed, Durability::Durable)))
}
