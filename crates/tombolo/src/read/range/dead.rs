//! Stepping over many dead keys in a row: once, and for all who come after.
//!
//! After a few dead keys a cursor asks whether a run of them is known around where it is
//! ([`DeadRun`]), and goes past it in one seek. What it then has to step over itself, it tells of,
//! so that the next cursor need not. A walk over living keys asks nothing.

use bytes::Bytes;
use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Bound, Place, RangeCursor, Step};
use crate::engine::{DeadRun, LooksFrom};

/// Dead keys in a row after which a cursor asks: a seek costs as much as some 20 steps.
const ASKED_AFTER: u32 = 12;
/// After so many more it asks again, if nothing was known.
const ASKED_EVERY: u32 = 64;
/// Dead keys that are worth being told of.
const TOLD_FROM: u32 = 32;
/// Dead keys after which a walk that goes on tells what it knows so far.
const TOLD_EVERY: u32 = 8192;

/// Dead keys in a row of a move.
#[derive(Debug, Default)]
pub(super) struct DeadKeys {
    count: u32,
    /// At how many it asks next.
    asked_at: u32,
    /// How many were told of, or passed before the last run that was known.
    told: u32,
    /// The newest number met, of entries, range deletes and runs.
    since: u64,
    /// Where they begin, in the direction of the move: the first key, or the end. Known from the
    /// first time that it asks.
    edge: Option<Bytes>,
}

impl DeadKeys {
    /// A move begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        (self.count, self.asked_at) = (0, ASKED_AFTER);
    }

    #[inline]
    fn add(&mut self, SequenceNumber(since): SequenceNumber) -> bool {
        if self.count == 0 {
            (self.since, self.told, self.edge) = (since, 0, None);
        }
        self.count = self.count.saturating_add(1);
        self.since = self.since.max(since);
        self.count >= self.asked_at
    }

    /// Many keys are passed at once that a range delete hides which that number sees.
    pub(super) fn pass(&mut self, SequenceNumber(sequence): SequenceNumber) {
        if !is_enabled(Mutant::DeadRunForgetsWhatHides) {
            self.since = self.since.max(sequence);
        }
    }
}

/// The least key after one.
fn after(key: &[u8]) -> Bytes {
    Bytes::from([key, b"\0"].concat())
}

impl RangeCursor {
    fn looks_from(&self) -> LooksFrom {
        let generation = self.view.generation;
        LooksFrom { sequence: self.sequence, judged_ms: self.judged_ms, generation }
    }

    /// The key in `anchor` is dead, going forward, by an entry of that number. If the merge goes
    /// past others, how that went.
    #[inline]
    pub(super) fn pass_dead(&mut self, since: SequenceNumber) -> Option<Result<Step>> {
        if self.dead.add(since) { self.ask_forward() } else { None }
    }

    /// The same, of a key whose entries came to nothing together, maybe as they have expired.
    #[cold]
    pub(super) fn pass_folded(&mut self) -> Option<Result<Step>> {
        if self.dead.add(self.sequence) { self.ask_forward() } else { None }
    }

    #[cold]
    fn ask_forward(&mut self) -> Option<Result<Step>> {
        if self.dead.edge.is_none() {
            self.dead.edge = Some(Bytes::copy_from_slice(&self.anchor));
        }
        let Some(run) = self.known_run() else {
            if self.dead.count - self.dead.told >= TOLD_EVERY {
                self.tell_of_dead(None, Some(after(&self.anchor)));
            }
            return None;
        };
        match run.end {
            None => {
                self.merge.end();
                Some(Ok(Step::Done))
            }
            Some(end) => {
                self.anchor.clear();
                self.anchor.extend_from_slice(&end);
                self.place = Place::Before;
                Some(self.merge.try_skip_to(&end, Trailer::FIRST))
            }
        }
    }

    /// The key in `anchor` is dead, going backward. If the merge goes past others, how that went.
    pub(super) fn pass_dead_back(&mut self) -> Option<Result<Step>> {
        if self.dead.add(self.sequence) { self.ask_backward() } else { None }
    }

    #[cold]
    fn ask_backward(&mut self) -> Option<Result<Step>> {
        if self.dead.edge.is_none() {
            self.dead.edge = Some(after(&self.anchor));
        }
        let Some(run) = self.known_run() else {
            if self.dead.count - self.dead.told >= TOLD_EVERY {
                self.tell_of_dead(Some(Bytes::copy_from_slice(&self.anchor)), None);
            }
            return None;
        };
        self.anchor.clear();
        self.anchor.extend_from_slice(&run.first);
        self.place = Place::Before;
        Some(self.merge.try_seek_before(&run.first, Trailer::FIRST))
    }

    /// The run around the key in `anchor`, if one is known that holds for this cursor.
    fn known_run(&mut self) -> Option<DeadRun> {
        self.owed.passed_dead(self.dead.count - self.dead.told, self.merge.is_in_table());
        let runs = self.keyspace.dead_runs()?;
        let run = runs.around(self.keyspace.id, &self.anchor, self.looks_from());
        self.dead.asked_at = self.dead.count + if run.is_some() { ASKED_AFTER } else { ASKED_EVERY };
        if let Some(run) = &run {
            self.dead.told = self.dead.count;
            self.dead.since = self.dead.since.max(run.since);
        }
        run
    }

    /// A move forward has come to a key, or to the end.
    #[inline]
    pub(super) fn end_of_dead(&mut self) {
        if self.dead.count - self.dead.told.min(self.dead.count) >= TOLD_FROM {
            self.tell_up_to_here();
        }
    }

    #[cold]
    fn tell_up_to_here(&mut self) {
        let upper = self.range.as_ref().map(|range| &range.upper);
        let end = match (self.place, upper) {
            (Place::End, None | Some(Bound::Unbounded)) => None,
            (Place::End, Some(Bound::Excluded(bound))) => Some(Bytes::copy_from_slice(bound)),
            (Place::End, Some(Bound::Included(bound))) => Some(after(bound)),
            _ => Some(Bytes::copy_from_slice(self.key())),
        };
        self.tell_of_dead(None, end);
    }

    /// A move backward has come to a key, which is in `anchor`, or to the start.
    #[inline]
    pub(super) fn end_of_dead_back(&mut self) {
        if self.dead.count - self.dead.told.min(self.dead.count) >= TOLD_FROM {
            self.tell_down_to_here();
        }
    }

    #[cold]
    fn tell_down_to_here(&mut self) {
        let lower = self.range.as_ref().map(|range| &range.lower);
        let first = match (self.place, lower) {
            (Place::Start, None | Some(Bound::Unbounded)) => Bytes::new(),
            (Place::Start, Some(Bound::Included(bound))) => Bytes::copy_from_slice(bound),
            (Place::Start, Some(Bound::Excluded(bound))) => after(bound),
            _ => after(&self.anchor),
        };
        self.tell_of_dead(Some(first), None);
    }

    /// Tells of the dead keys from the edge on, of which one side is given.
    fn tell_of_dead(&mut self, first: Option<Bytes>, end: Option<Bytes>) {
        let Some(edge) = self.dead.edge.clone() else { return };
        let within = match first {
            Some(first) => (first, Some(edge)),
            None => (edge, end),
        };
        self.dead.told = self.dead.count;
        let walked = (u64::from(self.dead.count), SequenceNumber(self.dead.since));
        if let Some(runs) = self.keyspace.dead_runs() {
            runs.learn(DeadRun::walked(self.keyspace.id, within, walked, self.looks_from()));
        }
    }
}
