//! Several sorted sources as one, forward and backward.
//!
//! Read path and compaction alike: memtables, runs of level 0 and one run for each sorted level
//! become one walk over all versions of all keys. A move is plain synchronous code while blocks are
//! in memory: it answers [`Step::Blocked`] when one is not, and [`Merge::load`] then fetches what
//! all sources wait for, side by side.
//!
//! The sources that are not at their end form a heap, ordered by their keys' first 8 bytes as a
//! number and by whole keys where these tie. The heap's second is remembered, so that a source
//! which stays first costs one comparison of numbers; a single source costs none.
//!
//! Invariant: `heap` holds exactly the sources that stand at an entry, first the one that comes
//! first in the direction of the last move. While a move is pending, or after it failed, the merge
//! stands nowhere.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::BoxFuture;
use tombolo_format::key::{SequenceNumber, Trailer, head_of};
use tombolo_storage::{Purpose, Result};

use super::for_all;
use super::run::RunCursor;
use crate::engine::View;
use crate::memtable::MemtableCursor;
use crate::table::{KeyRange, Step, TableIterator};
use crate::version::{Apart, TableCursor};

/// One sorted source.
#[derive(Debug)]
pub(crate) enum Source {
    /// Writes to a keyspace in a memtable.
    Memtable(MemtableCursor),
    /// A run of level 0.
    Table(TableCursor),
    /// A sorted run of several tables.
    Run(RunCursor),
}

impl Source {
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        match self {
            Source::Memtable(cursor) => cursor.entry().map(|entry| (entry.key, entry.trailer)),
            Source::Table(cursor) => cursor.entry(),
            Source::Run(cursor) => cursor.entry(),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Source::Memtable(cursor) => cursor.entry().map_or(&[], |entry| entry.value),
            Source::Table(cursor) => cursor.value(),
            Source::Run(cursor) => cursor.value(),
        }
    }

    /// Where the entry lies, for errors.
    #[cold]
    pub(crate) fn place(&self) -> String {
        match self {
            Source::Memtable(_) => super::MEMTABLE.to_owned(),
            Source::Table(cursor) => cursor.object().to_string(),
            Source::Run(cursor) => cursor.object().map_or_else(String::new, ToString::to_string),
        }
    }

    /// What the entry refers to.
    ///
    /// # Errors
    /// `Corrupt`.
    #[cold]
    pub(crate) fn referred(&self) -> Result<Apart> {
        match self {
            Source::Memtable(_) => Err(super::misplaced()),
            Source::Table(cursor) => cursor.referred(),
            Source::Run(cursor) => cursor.referred(),
        }
    }

    /// The value, sharing the block it lies in; copied out of memtables.
    pub(crate) fn value_bytes(&self) -> Bytes {
        match self {
            Source::Memtable(cursor) => {
                cursor.entry().map_or_else(Bytes::new, |entry| Bytes::copy_from_slice(entry.value))
            }
            Source::Table(cursor) => cursor.value_bytes(),
            Source::Run(cursor) => cursor.value_bytes(),
        }
    }

    /// The first half of a seek, to the first entry at or after (`key`, `trailer`), or to the last
    /// one before it when it goes backward. What a memtable has is found in the second half.
    fn approach(&mut self, key: &[u8], trailer: Trailer, backward: bool) -> Result<()> {
        match self {
            Source::Memtable(_) => Ok(()),
            Source::Table(cursor) => cursor.approach(key, trailer, backward),
            Source::Run(cursor) => cursor.approach(key, trailer, backward),
        }
    }

    /// The second half of a seek to the same place.
    fn arrive(&mut self, key: &[u8], trailer: Trailer, backward: bool) -> Result<Step> {
        match self {
            Source::Memtable(cursor) => {
                if backward {
                    cursor.seek_before(key, trailer);
                } else {
                    cursor.seek(key, trailer);
                }
                Ok(Step::Done)
            }
            Source::Table(cursor) => cursor.arrive(),
            Source::Run(cursor) => cursor.arrive(),
        }
    }

    fn first(&mut self) -> Result<Step> {
        match self {
            Source::Memtable(cursor) => {
                cursor.first();
                Ok(Step::Done)
            }
            Source::Table(cursor) => cursor.first(),
            Source::Run(cursor) => cursor.first(),
        }
    }

    fn last(&mut self) -> Result<Step> {
        match self {
            Source::Memtable(cursor) => {
                cursor.last();
                Ok(Step::Done)
            }
            Source::Table(cursor) => cursor.last(),
            Source::Run(cursor) => cursor.last(),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Step> {
        match self {
            Source::Memtable(cursor) => {
                cursor.next();
                Ok(Step::Done)
            }
            Source::Table(cursor) => cursor.next(),
            Source::Run(cursor) => cursor.next(),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<Step> {
        match self {
            Source::Memtable(cursor) => {
                cursor.prev();
                Ok(Step::Done)
            }
            Source::Table(cursor) => cursor.prev(),
            Source::Run(cursor) => cursor.prev(),
        }
    }

    /// Where to go past keys that a range delete of `number` hides, up to `to`: see
    /// [`Merge::try_pass`]. `None` when something newer may lie at hand, or it is past them.
    fn target_past(&self, to: &[u8], number: SequenceNumber, backward: bool) -> Option<Bytes> {
        let (key, _) = self.entry()?;
        if if backward { key < to } else { key >= to } {
            return None;
        }
        match self {
            Source::Memtable(_) => None,
            Source::Table(cursor) => (cursor.last_sequence() < number).then(|| Bytes::copy_from_slice(to)),
            Source::Run(cursor) => cursor.target_past(to, number, backward),
        }
    }

    /// Completes a blocked move; `None` when none is.
    fn load(&mut self) -> Option<BoxFuture<'_, Result<()>>> {
        match self {
            Source::Memtable(_) => None,
            Source::Table(cursor) => cursor.is_blocked().then(|| cursor.load()),
            Source::Run(cursor) => cursor.is_blocked().then(|| cursor.load()),
        }
    }
}

/// A source that stands at an entry.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The first 8 bytes of its key as a number. Kept only while there is something to compare it
    /// with.
    prefix: u64,
    source: usize,
}

/// What a blocked move still has to do once its sources are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Nothing,
    /// The first source moved.
    First,
    /// Any source may have moved.
    All,
}

/// All versions of all keys of several sources, in the order of internal keys. See the module's
/// documentation.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    heap: Vec<Head>,
    /// Which of the first's two children comes first; 0: not known.
    second: usize,
    backward: bool,
    pending: Pending,
    /// Moves of single sources so far.
    #[cfg(test)]
    pub(crate) moves: usize,
}

impl Merge {
    /// Of `sources`, standing nowhere.
    pub(crate) fn new(sources: Vec<Source>) -> Merge {
        let heap = Vec::with_capacity(sources.len());
        Merge {
            sources,
            heap,
            second: 0,
            backward: false,
            pending: Pending::Nothing,
            #[cfg(test)]
            moves: 0,
        }
    }

    /// Of what a view holds of a keyspace within `range`; tables outside of it are left alone.
    pub(crate) fn of_view(
        view: &View,
        keyspace: u32,
        range: Option<&Arc<KeyRange>>,
        purpose: Purpose,
    ) -> Merge {
        let mut sources = Vec::with_capacity(4);
        sources.extend(
            view.memtables_of(keyspace)
                .filter_map(|memtable| memtable.list(keyspace))
                .map(|list| Source::Memtable(list.cursor())),
        );
        if let Some(levels) = view.version.levels(keyspace) {
            let runs = levels.over.iter().chain(&levels.runs);
            let runs = runs.filter(|table| range.is_none_or(|range| super::run::meets(table, range)));
            sources.extend(runs.map(|table| Source::Table(table.cursor_within(purpose, range.cloned()))));
            let sorted = levels.sorted.iter().filter_map(|(_, run)| RunCursor::new(run, range, purpose));
            sources.extend(sorted.map(Source::Run));
        }
        Merge::new(sources)
    }

    /// How many tables and sorted runs it reads.
    pub(crate) fn tables(&self) -> usize {
        self.sources.iter().filter(|source| !matches!(source, Source::Memtable(_))).count()
    }

    /// Whether the entry at which it stands is of a table.
    pub(crate) fn is_in_table(&self) -> bool {
        self.source().is_some_and(|source| !matches!(source, Source::Memtable(_)))
    }

    /// How many memtables it reads.
    pub(crate) fn memtables(&self) -> usize {
        self.sources.len() - self.tables()
    }

    /// When one table or run is all that is left, the table at whose entry the merge stands. Move
    /// it by one, the way the merge goes, and then either it stands at an entry, or
    /// [`Merge::finish_alone`] goes on.
    #[inline]
    pub(crate) fn alone(&mut self) -> Option<&mut TableIterator> {
        let [head] = &self.heap[..] else { return None };
        match &mut self.sources[head.source] {
            Source::Memtable(_) => None,
            Source::Table(cursor) => Some(cursor.iterator()),
            Source::Run(run) => run.table(),
        }
    }

    /// See [`Merge::alone`].
    pub(crate) fn finish_alone(&mut self, step: Result<Step>) -> Result<Step> {
        let Some(head) = self.heap.first() else { return step };
        let step = match (step, &mut self.sources[head.source]) {
            (Ok(step), Source::Run(run)) => run.settle(step),
            (step, _) => step,
        };
        self.moved(step)
    }

    /// The source whose entry it stands at.
    #[inline]
    pub(crate) fn source(&self) -> Option<&Source> {
        self.heap.first().map(|head| &self.sources[head.source])
    }

    /// The key at which it stands.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        self.source().and_then(Source::entry)
    }

    /// To the first entry at or after (`key`, `trailer`); goes forward from there.
    pub(crate) fn try_seek(&mut self, key: &[u8], trailer: Trailer) -> Result<Step> {
        self.enter_at(key, trailer, false)
    }

    /// To the first entry; goes forward from there.
    pub(crate) fn try_first(&mut self) -> Result<Step> {
        self.enter(false, Source::first)
    }

    /// To the last entry before (`key`, `trailer`); goes backward from there.
    pub(crate) fn try_seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<Step> {
        self.enter_at(key, trailer, true)
    }

    /// To the last entry; goes backward from there.
    pub(crate) fn try_last(&mut self) -> Result<Step> {
        self.enter(true, Source::last)
    }

    /// From an entry to the first one at or after (`key`, `trailer`), which lies ahead; only while
    /// going forward. Sources that are there already stay.
    pub(crate) fn try_skip_to(&mut self, key: &[u8], trailer: Trailer) -> Result<Step> {
        let is_before = |(at, version): (&[u8], Trailer)| at < key || at == key && version > trailer;
        self.enter(false, |source| {
            if !source.entry().is_some_and(is_before) {
                return Ok(Step::Done);
            }
            source.approach(key, trailer, false)?;
            source.arrive(key, trailer, false)
        })
    }

    /// From an entry that a range delete hides: sources older than `number` go to the end of the
    /// hidden keys, which is `to` going forward; going backward, they begin with it. Sources that
    /// hold something newer stay; if the first does, nothing moves, and this says `None`.
    pub(crate) fn try_pass(&mut self, to: &[u8], number: SequenceNumber) -> Option<Result<Step>> {
        let backward = self.backward;
        let first = &self.sources[self.heap.first()?.source];
        first.target_past(to, number, backward)?;
        Some(self.enter(backward, |source| match source.target_past(to, number, backward) {
            Some(target) => {
                source.approach(&target, Trailer::FIRST, backward)?;
                source.arrive(&target, Trailer::FIRST, backward)
            }
            None => Ok(Step::Done),
        }))
    }

    /// Nowhere: as at the end.
    pub(crate) fn end(&mut self) {
        self.heap.clear();
        self.pending = Pending::Nothing;
    }

    /// One on; only while going forward.
    #[inline]
    pub(crate) fn try_next(&mut self) -> Result<Step> {
        debug_assert!(!self.backward, "next() while going backward");
        let Some(head) = self.heap.first() else { return Ok(Step::Done) };
        let step = self.sources[head.source].next();
        self.moved(step)
    }

    /// One back; only while going backward.
    #[inline]
    pub(crate) fn try_prev(&mut self) -> Result<Step> {
        debug_assert!(self.backward, "prev() while going forward");
        let Some(head) = self.heap.first() else { return Ok(Step::Done) };
        let step = self.sources[head.source].prev();
        self.moved(step)
    }

    /// Completes a move that is blocked: the misses of all sources are fetched together. If the
    /// future is dropped or fails, the move stays pending.
    ///
    /// # Errors
    /// Those of the first source that fails.
    pub(crate) async fn load(&mut self) -> Result<()> {
        let mut loads: Vec<_> = self.sources.iter_mut().filter_map(Source::load).collect();
        if let [load] = &mut loads[..] {
            load.await?;
        } else {
            for_all(&mut loads, |()| ()).await?;
        }
        drop(loads);
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::First => self.settle(),
            Pending::All => self.rebuild(),
        }
        Ok(())
    }

    /// Moves all sources to the same place. They come near it one after the other and arrive
    /// together, so that what each of them waits for is on its way from memory at the same time.
    fn enter_at(&mut self, key: &[u8], trailer: Trailer, backward: bool) -> Result<Step> {
        self.end();
        for source in &mut self.sources {
            source.approach(key, trailer, backward)?;
        }
        self.enter(backward, |source| source.arrive(key, trailer, backward))
    }

    /// Moves all sources.
    fn enter(&mut self, backward: bool, mut each: impl FnMut(&mut Source) -> Result<Step>) -> Result<Step> {
        self.heap.clear();
        self.backward = backward;
        self.pending = Pending::Nothing;
        #[cfg(test)]
        {
            self.moves += self.sources.len();
        }
        let mut blocked = false;
        for source in &mut self.sources {
            blocked |= each(source)? == Step::Blocked;
        }
        if blocked {
            self.pending = Pending::All;
            return Ok(Step::Blocked);
        }
        self.rebuild();
        Ok(Step::Done)
    }

    /// The first source was moved.
    #[inline]
    fn moved(&mut self, step: Result<Step>) -> Result<Step> {
        #[cfg(test)]
        {
            self.moves += 1;
        }
        match step {
            Ok(Step::Done) => self.settle(),
            Ok(Step::Blocked) => self.pending = Pending::First,
            Err(_) => self.heap.clear(),
        }
        step
    }

    /// Makes the heap of all sources.
    fn rebuild(&mut self) {
        self.heap.clear();
        self.second = 0;
        for (index, source) in self.sources.iter().enumerate() {
            if let Some((key, _)) = source.entry() {
                self.heap.push(Head { prefix: head_of(key), source: index });
            }
        }
        for index in (0..self.heap.len() / 2).rev() {
            self.sift_down(index);
        }
    }

    /// Puts the first source, which moved, where it belongs.
    #[inline]
    fn settle(&mut self) {
        let Some(first) = self.heap.first().copied() else { return };
        let key = self.sources[first.source].entry().map(|(key, _)| key);
        match key {
            Some(_) if self.heap.len() == 1 => {}
            Some(key) => {
                self.heap[0].prefix = head_of(key);
                if self.second == 0 {
                    self.second = self.earlier_child(0);
                }
                if self.is_earlier(self.second, 0) {
                    self.sift_down(0);
                    self.second = 0;
                }
            }
            None => {
                self.heap.swap_remove(0);
                self.second = 0;
                self.sift_down(0);
            }
        }
    }

    /// The child of `parent` that comes first, which must have one.
    #[inline]
    fn earlier_child(&self, parent: usize) -> usize {
        let left = 2 * parent + 1;
        if left + 1 < self.heap.len() && self.is_earlier(left + 1, left) { left + 1 } else { left }
    }

    fn sift_down(&mut self, mut index: usize) {
        while 2 * index + 1 < self.heap.len() {
            let child = self.earlier_child(index);
            if !self.is_earlier(child, index) {
                break;
            }
            self.heap.swap(child, index);
            index = child;
        }
    }

    /// Whether the source at place `left` of the heap comes before that at `right`, in the merge's
    /// direction.
    #[inline]
    fn is_earlier(&self, left: usize, right: usize) -> bool {
        let (left, right) = (self.heap[left], self.heap[right]);
        let order = left.prefix.cmp(&right.prefix);
        let order = if order == Ordering::Equal { self.compare(left.source, right.source) } else { order };
        order == if self.backward { Ordering::Greater } else { Ordering::Less }
    }

    fn compare(&self, left: usize, right: usize) -> Ordering {
        match (self.sources[left].entry(), self.sources[right].entry()) {
            (Some(left), Some(right)) => left.0.cmp(right.0).then_with(|| right.1.cmp(&left.1)),
            // Only sources at an entry are in the heap.
            _ => Ordering::Equal,
        }
    }
}

#[cfg(test)]
mod tests;
