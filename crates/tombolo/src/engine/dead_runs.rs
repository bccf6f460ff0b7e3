//! Stretches of keys without a value, which cursors have walked over: the next one goes past them.
//!
//! A cursor that steps over many dead keys in a row tells here from which key to which there is
//! nothing (*learns* a run). It does not matter where the entries lie, in memtables or tables, nor
//! whether deletes, range deletes or the time have ended them: a run says that a read finds nothing
//! there. A run deletes nothing either: it only lets cursors seek past it.
//!
//! For whom a run holds:
//! 1. The cursor looked from a number, `known`. For reads from `since`, the newest number that it
//!    met in the run, up to `known`, it holds as it is.
//! 2. For later reads it holds while no commit has put anything into it. The commit section takes
//!    note of a run before it gives out the next number. If none was given out since `known`, the
//!    run is *open* from then on: it holds for all later reads, and a commit that puts a key into
//!    it cuts it there before the key is visible. If some were, the commit section *watches* the
//!    run from then on in the same way, and a cursor that walks over it once more, from a later
//!    number, opens it. A walk that was announced there ([`DeadRuns::watch`]) opens at once what it
//!    has passed.
//! 3. A view may be older than the number that is read at: then it lacks the memtable that holds
//!    the newest writes, or tables that were ingested. So each view has a *generation*, and a run
//!    holds for views of its own. A memtable that takes the place of another takes the runs along,
//!    from within the commit section; anything else that changes what a view holds does not.
//! 4. It holds for those who judge by no earlier time than the cursor did what has expired. Tables
//!    out of which that is gone already are of the same generation: a cursor meets nothing there
//!    that would say so.
//!
//! Flush and compaction change nothing here: what they drop, nobody saw. Only what a compaction
//! filter takes away somebody may see, who holds a view of before: the view that shows it has
//! another generation, and takes the runs along.
//!
//! Thread safety: reads load one pointer. A commit loads one flag while there are no runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_format::key::SequenceNumber;
use tombolo_storage::mutant::{Mutant, is_enabled};

/// Runs of all keyspaces. Of more, those that skip least go.
const RUNS_MAX: usize = 16;
/// Runs do not begin or end with longer keys: what they take is bounded.
const KEY_BYTES_MAX: usize = 4096;
/// A run of so many keys may be cut once: a cut costs as much as walking over a dozen dead keys.
const KEYS_PER_CUT: u64 = 16;
/// A run is cut at most so often before it goes: keys come back there.
const CUTS_MAX: u64 = 256;

/// From where a read looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LooksFrom {
    pub(crate) sequence: SequenceNumber,
    pub(crate) judged_ms: u64,
    /// Of its view.
    pub(crate) generation: u64,
}

/// Keys without a value.
#[derive(Clone, Debug)]
pub(crate) struct DeadRun {
    pub(crate) keyspace: u32,
    /// The first key.
    pub(crate) first: Bytes,
    /// The key before which it ends; `None`: there is none.
    pub(crate) end: Option<Bytes>,
    /// The newest number that was met.
    pub(crate) since: u64,
    /// The number that was looked from; `u64::MAX` once it is open.
    pub(crate) known: u64,
    /// Reads hold by it that judge by this time or later.
    pub(crate) judged_ms: u64,
    /// Of the view that was looked at.
    pub(crate) generation: u64,
    /// Keys that were walked over, about.
    pub(crate) keys: u64,
    /// From which number on commits cut it. `None` until the commit section has taken note of it.
    watched: Option<u64>,
    cuts: u64,
}

impl DeadRun {
    /// One that a cursor has walked over: from `first` up to `end`, over so many keys, the newest
    /// of which had the number `since`.
    pub(crate) fn walked(
        keyspace: u32,
        (first, end): (Bytes, Option<Bytes>),
        (keys, since): (u64, SequenceNumber),
        from: LooksFrom,
    ) -> DeadRun {
        DeadRun {
            keyspace,
            first,
            end,
            since: since.0,
            known: from.sequence.0,
            judged_ms: from.judged_ms,
            generation: from.generation,
            keys,
            watched: None,
            cuts: 0,
        }
    }

    fn has_long_keys(&self) -> bool {
        self.first.len().max(self.end.as_ref().map_or(0, Bytes::len)) > KEY_BYTES_MAX
    }

    fn is_open(&self) -> bool {
        self.known == u64::MAX
    }

    fn contains(&self, keyspace: u32, key: &[u8]) -> bool {
        self.keyspace == keyspace && *self.first <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    fn holds_for(&self, from: LooksFrom) -> bool {
        (self.generation == from.generation || is_enabled(Mutant::DeadRunOfAnotherView))
            && (self.since <= from.sequence.0 || is_enabled(Mutant::DeadRunHidesFromOlder))
            && from.sequence.0 <= self.known
            && (self.judged_ms <= from.judged_ms || is_enabled(Mutant::DeadRunByAnotherTime))
    }

    /// Whether two lie so that one could say both.
    fn touches(&self, other: &DeadRun) -> bool {
        let reaches = |one: &DeadRun, first: &Bytes| one.end.as_ref().is_none_or(|end| *first <= *end);
        self.keyspace == other.keyspace
            && self.generation == other.generation
            && reaches(self, &other.first)
            && reaches(other, &self.first)
    }

    /// One that says both of two open ones that touch each other.
    fn with(&self, other: &DeadRun) -> DeadRun {
        let end = match (&self.end, &other.end) {
            (Some(one), Some(other)) => Some(one.max(other).clone()),
            _ => None,
        };
        DeadRun {
            first: (&self.first).min(&other.first).clone(),
            end,
            since: self.since.max(other.since),
            judged_ms: self.judged_ms.max(other.judged_ms),
            keys: self.keys.max(other.keys),
            cuts: self.cuts.min(other.cuts),
            ..self.clone()
        }
    }

    /// What two have in common that overlap.
    fn within(&self, other: &DeadRun) -> Option<DeadRun> {
        let first = (&self.first).max(&other.first).clone();
        let end = match (&self.end, &other.end) {
            (Some(one), Some(other)) => Some(one.min(other).clone()),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let is_empty = end.as_ref().is_some_and(|end| *end <= first);
        (!is_empty && self.touches(other)).then(|| DeadRun { first, end, ..self.clone() })
    }

    /// What of it lies on both sides of a part of it.
    fn beside(&self, part: &DeadRun) -> impl Iterator<Item = DeadRun> {
        let left =
            (*self.first < *part.first).then(|| DeadRun { end: Some(part.first.clone()), ..self.clone() });
        let ends_later = |end: &&Bytes| self.end.as_ref().is_none_or(|own| **end < *own);
        let right = part.end.as_ref().filter(ends_later);
        let right = right.map(|end| DeadRun { first: end.clone(), ..self.clone() });
        left.into_iter().chain(right)
    }

    /// Whether nothing is known of it but that somebody is about to walk over it.
    fn is_claim(&self) -> bool {
        (self.since, self.known) == (u64::MAX, 0)
    }

    /// The rest of it on both sides of a key.
    fn cut_at(&self, key: &[u8]) -> impl Iterator<Item = DeadRun> {
        let cuts = self.cuts + 1;
        let allowed = (self.keys / KEYS_PER_CUT).min(CUTS_MAX);
        let after = Bytes::from([key, b"\0"].concat());
        let has_left = *self.first < *key;
        // Beyond the last key of all there are few dead ones.
        let has_right = self.end.as_ref().map_or(!has_left, |end| after < *end);
        let keys = if has_left && has_right { self.keys / 2 } else { self.keys };
        let left =
            has_left.then(|| DeadRun { end: Some(Bytes::copy_from_slice(key)), keys, cuts, ..self.clone() });
        let right = has_right.then(|| DeadRun { first: after, keys, cuts, ..self.clone() });
        left.into_iter().chain(right).filter(move |_| cuts <= allowed)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct DeadRuns {
    runs: ArcSwap<Vec<DeadRun>>,
    /// Whether there are runs: set before others can see them.
    is_any: AtomicBool,
    /// For those who change them.
    changing: Mutex<()>,
}

impl DeadRuns {
    /// A run around `key` that holds for a read: where it begins, where it ends, and what else a
    /// cursor has to know of it to say more.
    pub(crate) fn around(&self, keyspace: u32, key: &[u8], from: LooksFrom) -> Option<DeadRun> {
        let runs = self.runs.load();
        runs.iter().find(|run| run.contains(keyspace, key) && run.holds_for(from)).cloned()
    }

    fn put(&self, runs: Vec<DeadRun>) {
        self.is_any.store(!runs.is_empty(), Ordering::Release);
        self.runs.store(Arc::new(runs));
    }

    /// Takes note of a run that a cursor has walked over.
    pub(crate) fn learn(&self, run: DeadRun) {
        let is_empty = run.end.as_ref().is_some_and(|end| *end <= run.first);
        if is_empty || run.has_long_keys() {
            return;
        }
        let _changing = self.changing.lock();
        let mut runs = Vec::clone(&self.runs.load());
        let newest = runs.iter().map(|run| run.generation).max().unwrap_or(0);
        if run.generation < newest {
            return;
        }
        // Of older views, no commit section will take them along.
        runs.retain(|known| known.generation == run.generation);
        // Watched since before this walk: what of it was walked over is open. The rest stays
        // watched.
        let mut rest = Vec::new();
        let is_before = |watched| watched <= run.known || is_enabled(Mutant::DeadRunOpenedByAnOlderWalk);
        for known in &mut runs {
            if known.watched.is_some_and(is_before)
                && !known.is_open()
                && let Some(common) = run.within(known)
            {
                rest.extend(known.beside(&common));
                *known = DeadRun { known: u64::MAX, watched: known.watched, cuts: known.cuts, ..common };
            }
        }
        runs.append(&mut rest);
        // What says less than this one does.
        runs.retain(|known| known.watched.is_some() || !run.says_all_of(known));
        if !runs.iter().any(|known| known.says_all_of(&run)) {
            runs.push(run);
        }
        join_open(&mut runs);
        bound(&mut runs);
        self.put(runs);
    }

    /// Whether a commit has something to do here before it gives out numbers.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// In the commit section: numbers up to `last` were given out, and the view has this
    /// generation. From here on commits cut what was learned by now.
    pub(crate) fn take_note(&self, last: u64, generation: u64) {
        if self.runs.load().iter().all(|run| run.watched.is_some() && run.generation == generation) {
            return;
        }
        let _changing = self.changing.lock();
        let mut runs = Vec::clone(&self.runs.load());
        runs.retain(|run| run.generation == generation);
        for run in runs.iter_mut().filter(|run| run.watched.is_none()) {
            run.watched = Some(last);
            if run.known >= last || is_enabled(Mutant::DeadRunOpenedLate) {
                run.known = u64::MAX;
            }
        }
        join_open(&mut runs);
        bound(&mut runs);
        self.put(runs);
    }

    /// In the commit section: somebody is about to walk over the keys from `first` up to `end`, of
    /// which about so many are dead. Numbers up to `last` were given out, and the view has this
    /// generation. A walk from that number on opens at once what it has passed, also beside
    /// commits.
    pub(crate) fn watch(
        &self,
        keyspace: u32,
        within: (Bytes, Option<Bytes>),
        keys: u64,
        (last, generation): (u64, u64),
    ) {
        let from = LooksFrom { sequence: SequenceNumber(0), judged_ms: 0, generation };
        let claim = DeadRun::walked(keyspace, within, (keys, SequenceNumber(u64::MAX)), from);
        if claim.has_long_keys() {
            return;
        }
        self.take_note(last, generation);
        let _changing = self.changing.lock();
        let mut runs = Vec::clone(&self.runs.load());
        runs.push(DeadRun { watched: Some(last), ..claim });
        bound(&mut runs);
        self.put(runs);
    }

    /// The walk over keys of a keyspace has ended.
    pub(crate) fn end_watch(&self, keyspace: u32) {
        let is_left = |run: &DeadRun| run.keyspace == keyspace && run.is_claim();
        if self.runs.load().iter().any(is_left) {
            let _changing = self.changing.lock();
            let mut runs = Vec::clone(&self.runs.load());
            runs.retain(|run| !is_left(run));
            self.put(runs);
        }
    }

    /// In the commit section: a key gets something that is no delete.
    pub(crate) fn cut(&self, keyspace: u32, key: &[u8]) {
        if !self.runs.load().iter().any(|run| run.contains(keyspace, key))
            || is_enabled(Mutant::DeadRunKeptOverPut)
        {
            return;
        }
        let _changing = self.changing.lock();
        let mut runs = Vec::clone(&self.runs.load());
        let hit: Vec<_> =
            runs.extract_if(.., |run| run.watched.is_some() && run.contains(keyspace, key)).collect();
        runs.extend(hit.iter().flat_map(|run| run.cut_at(key)));
        bound(&mut runs);
        self.put(runs);
    }

    /// In the commit section: a memtable takes the place of another, and the view's generation
    /// changes. Numbers up to `last` were given out.
    pub(crate) fn take_along(&self, last: u64, (before, after): (u64, u64)) {
        if !self.is_any() {
            return;
        }
        let _changing = self.changing.lock();
        let mut runs = Vec::clone(&self.runs.load());
        runs.retain(|run| run.generation == before && (run.watched.is_some() || run.known <= last));
        runs.iter_mut().for_each(|run| run.generation = after);
        self.put(runs);
    }

    /// In the commit section: the view gets what no commit has put into a memtable, with the number
    /// `last`, and another generation.
    pub(crate) fn forget(&self, last: u64, generations: (u64, u64)) {
        if is_enabled(Mutant::DeadRunKeptOverIngest) {
            return self.take_along(last, generations);
        }
        if self.is_any() {
            let _changing = self.changing.lock();
            self.put(Vec::new());
        }
    }
}

impl DeadRun {
    /// Whether each read for which another holds is told as much by this one.
    fn says_all_of(&self, other: &DeadRun) -> bool {
        self.keyspace == other.keyspace
            && self.generation == other.generation
            && self.first <= other.first
            && self.end.as_ref().is_none_or(|end| other.end.as_ref().is_some_and(|other| other <= end))
            && self.since <= other.since
            && self.known >= other.known
            && self.judged_ms <= other.judged_ms
    }
}

/// Makes one of open ones that touch each other.
fn join_open(runs: &mut Vec<DeadRun>) {
    let mut at = 0;
    while at < runs.len() {
        let joins = |other: usize| {
            other != at && runs[at].is_open() && runs[other].is_open() && runs[at].touches(&runs[other])
        };
        match (0..runs.len()).find(|other| joins(*other)) {
            Some(other) => {
                runs[at] = runs[at].with(&runs[other]);
                runs.swap_remove(other);
                at = 0;
            }
            None => at += 1,
        }
    }
}

/// Lets those go that skip least, of too many: those first that hold for one number alone.
fn bound(runs: &mut Vec<DeadRun>) {
    while runs.len() > RUNS_MAX {
        let least = runs.iter().enumerate().min_by_key(|(_, run)| (run.is_open(), run.keys));
        let Some((least, _)) = least else { return };
        runs.swap_remove(least);
    }
}

#[cfg(test)]
mod tests;
