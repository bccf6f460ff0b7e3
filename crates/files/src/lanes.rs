//! A lane of the log: which files need it, and from where on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tombolo::{ApplicationLog, Durability, LogPosition, Op, Result};
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::rows::Entry;

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) log: ApplicationLog,
    pub(crate) state: Mutex<LaneState>,
    /// Held while it is trimmed.
    trimming: AtomicBool,
}

/// A place in the lane.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The last entry that was accepted before it.
    position: Option<LogPosition>,
    /// Bytes appended before it.
    bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LaneState {
    /// What was accepted last.
    last: Mark,
    appended_bytes: u64,
    trimmed_bytes: u64,
    next_place: u64,
    /// Where the files that need this epoch's entries begin. Invariant: ordered as their marks are.
    live: BTreeMap<u64, Mark>,
    /// How many files need what earlier epochs left.
    pub(crate) earlier_files: u64,
    /// Whether earlier epochs left something.
    pub(crate) has_earlier: bool,
}

/// A part of a lane that may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// All that earlier epochs left.
    Earlier,
    /// This epoch's entries up to this one; so many bytes of it are trimmed then.
    To(LogPosition, u64),
}

impl Lane {
    pub(crate) fn new(log: ApplicationLog) -> Lane {
        Lane { log, state: Mutex::default(), trimming: AtomicBool::new(false) }
    }

    /// Appends an entry of a file. `place` is that of the file among those that need the lane.
    ///
    /// # Errors
    /// Those of the log, at once; later ones tell the operation.
    pub(crate) fn append(
        &self,
        entry: &Entry<'_>,
        place: &mut Option<u64>,
    ) -> Result<Option<Op<LogPosition>>> {
        let encoded = entry.encode();
        let mut state = self.state.lock();
        let op = match self.log.append_with(&encoded, Durability::Accepted).try_take() {
            Ok(ended) => {
                let position = ended?;
                state.appended_bytes += encoded.len() as u64;
                state.enter(place);
                state.accept(position);
                return Ok(None);
            }
            Err(op) => op,
        };
        state.appended_bytes += encoded.len() as u64;
        state.enter(place);
        Ok(Some(op))
    }

    /// An entry was accepted later.
    pub(crate) fn accepted(&self, position: LogPosition) {
        self.state.lock().accept(position);
    }

    /// A file needs the lane no more.
    pub(crate) fn leave(&self, place: &mut Option<u64>, is_of_earlier: &mut bool) {
        let mut state = self.state.lock();
        if let Some(place) = place.take() {
            state.live.remove(&place);
        }
        if std::mem::take(is_of_earlier) {
            state.earlier_files -= 1;
        }
    }

    /// What no file needs any more, if it is worth a record of the manifest; nobody else is told
    /// until [`Lane::gave_up`].
    pub(crate) fn to_give_up(&self, bytes_min: u64) -> Option<GiveUp> {
        if self.trimming.swap(true, Ordering::Acquire) {
            return None;
        }
        let found = self.state.lock().needless(bytes_min);
        if found.is_none() {
            self.trimming.store(false, Ordering::Release);
        }
        found
    }

    /// It was given up, or could not be.
    pub(crate) fn gave_up(&self, what: GiveUp, is_done: bool) {
        let mut state = self.state.lock();
        match what {
            _ if !is_done => {}
            GiveUp::Earlier => state.has_earlier = false,
            GiveUp::To(_, bytes) => state.trimmed_bytes = bytes,
        }
        drop(state);
        self.trimming.store(false, Ordering::Release);
    }
}

impl LaneState {
    fn enter(&mut self, place: &mut Option<u64>) {
        if place.is_none() {
            self.live.insert(self.next_place, self.last);
            *place = Some(self.next_place);
            self.next_place += 1;
        }
    }

    fn accept(&mut self, position: LogPosition) {
        if self.last.position.is_none_or(|last| last < position) {
            self.last = Mark { position: Some(position), bytes: self.appended_bytes };
        }
    }

    fn needless(&self, bytes_min: u64) -> Option<GiveUp> {
        let is_needed = self.earlier_files > 0 && !is_enabled(Mutant::FilesEarlierLaneForgotten);
        if self.has_earlier && !is_needed {
            return Some(GiveUp::Earlier);
        }
        let first =
            if is_enabled(Mutant::FilesLaneTrimmedUnderFiles) { None } else { self.live.values().next() };
        let Mark { position, bytes } = first.copied().unwrap_or(self.last);
        let is_worth_it = bytes >= self.trimmed_bytes + bytes_min;
        position.filter(|_| is_worth_it).map(|position| GiveUp::To(position, bytes))
    }
}
