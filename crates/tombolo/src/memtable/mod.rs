//! Write path, step 3: the newest writes, sorted, in memory, until a flush has made tables of them.
//!
//! A memtable belongs to a stream. It holds one sorted list for each keyspace that was written to,
//! all in one arena, the range deletes of each ([`ranges`]), and what its flush must tell the
//! manifest: the sequence numbers that it ends at, the log's end, and the keyspaces created and
//! dropped.
//!
//! Invariants:
//! 1. One [`MemtableWriter`] exists for a memtable; readers take no lock that others contend for.
//! 2. A batch lies in one memtable.
//! 3. What a reader has seen stays where it is until the last handle is gone.

mod arena;
mod filter;
mod forks;
mod joined;
mod leaf;
mod list;
mod ranges;
mod record;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tombolo_format::checksum::key_hash;
use tombolo_format::expiry::Expiry;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::budget::{Category, Charge, MemoryBudget, Room};
use crate::chunked::ChunkedMap;
pub(crate) use arena::ReadyChunks;
#[cfg(test)]
pub(crate) use arena::refusing;
use arena::{Arena, Bump};
use filter::KeyFilter;
pub(crate) use joined::Joined;
use joined::JoinedOperands;
use list::{Found, Place, STRUCTURE_BYTES_MAX, SortedList};
pub(crate) use ranges::MemtableRanges;
use ranges::Ranges;
pub(crate) use record::Entry;
use record::Record;

/// What an entry takes beside its record, as found with random keys: its share of leaves, those
/// left behind by splits included, and of forks.
const STRUCTURE_BYTES: usize = 56;

/// What a range delete takes beside its keys.
const RANGE_BYTES: u64 = 160;

/// Inserts whose places are found together.
const GROUP: usize = 16;

/// Inserts of a batch for which the most that one can take is reserved.
const DEAREST_MAX: usize = 4096;

/// The readers' side.
#[derive(Debug)]
pub(crate) struct Memtable {
    /// By keyspace number.
    lists: ArcSwap<ChunkedMap<u32, List>>,
    arena: Arc<Arena>,
    /// Bytes of the arena in use.
    used: AtomicU64,
    /// That it is to take.
    bytes: u64,
    /// Made by the first write, with its charge.
    filter: OnceLock<(KeyFilter, Charge)>,
    /// Some keyspace has range deletes in it. Set before the first of them is put in.
    has_ranges: AtomicBool,
    /// When entries of it end, if any do.
    ends: Mutex<Option<Expiry>>,
    joined: JoinedOperands,
    /// Entries given to walks over versions.
    #[cfg(test)]
    pub(crate) walked: AtomicU64,
}

/// What filters know a key of a keyspace by, given the key's hash.
#[inline]
fn filter_hash(keyspace: u32, hash: u64) -> u64 {
    hash ^ u64::from(keyspace).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The writes to one keyspace.
#[derive(Clone, Debug)]
pub(crate) struct List(Arc<Writes>);

#[derive(Debug)]
struct Writes {
    entries: SortedList,
    ranges: Ranges,
}

/// What range deletes of one memtable weigh, in keys: a memtable is full once it has so many, and
/// so has the table that is made of it.
const RANGE_KEY_BYTES_MAX: u64 = 4 << 20;

/// The writer's side.
#[derive(Debug)]
pub(crate) struct MemtableWriter {
    memtable: Arc<Memtable>,
    bump: Bump,
    /// The list of the last write, which most often is that of the next.
    recent: Option<(u32, List)>,
    /// Bytes that range deletes take, by keyspace, and the charge for all.
    ranges: Option<(BTreeMap<u32, u64>, Charge)>,
    /// What they count in the memtable's use.
    ranges_weight: u64,
}

impl Memtable {
    /// An empty memtable that is to take `bytes`, and its writer. What it takes is charged to
    /// `budget`.
    pub(crate) fn create(budget: &Arc<MemoryBudget>, bytes: u64) -> (Arc<Memtable>, MemtableWriter) {
        let bump = Bump::new(budget, bytes);
        let memtable = Arc::new(Memtable {
            lists: ArcSwap::default(),
            arena: Arc::clone(bump.arena()),
            used: AtomicU64::new(0),
            bytes,
            filter: OnceLock::new(),
            has_ranges: AtomicBool::new(false),
            ends: Mutex::default(),
            joined: JoinedOperands::default(),
            #[cfg(test)]
            walked: AtomicU64::new(0),
        });
        let writer = MemtableWriter {
            memtable: Arc::clone(&memtable),
            bump,
            recent: None,
            ranges: None,
            ranges_weight: 0,
        };
        (memtable, writer)
    }

    /// Whether there are range deletes, of whatever keyspace. Readers ask this first: as a rule
    /// there are none.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_ranges.load(Ordering::Acquire)
    }

    /// The greatest number, at most `sequence`, of a range delete over `key`.
    #[inline]
    pub(crate) fn covering(
        &self,
        keyspace: u32,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<SequenceNumber> {
        if self.has_ranges() { self.look_covering(keyspace, key, sequence) } else { None }
    }

    #[inline(never)]
    fn look_covering(&self, keyspace: u32, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        self.lists.load().get(&keyspace)?.0.ranges.covering(key, sequence)
    }

    /// The writes to a keyspace, if there are any.
    #[inline]
    pub(crate) fn list(&self, keyspace: u32) -> Option<List> {
        self.lists.load().get(&keyspace).cloned()
    }

    /// Whether there are writes to a keyspace.
    pub(crate) fn has_list(&self, keyspace: u32) -> bool {
        self.lists.load().get(&keyspace).is_some()
    }

    /// Gives the newest version of `key`, whose hash is `hash`, visible at `sequence` to `read`.
    #[inline]
    pub(crate) fn get<R>(
        &self,
        keyspace: u32,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
        read: impl FnOnce(Entry<'_>) -> R,
    ) -> Option<R> {
        if !self.may_contain(keyspace, hash) {
            return None;
        }
        self.lists.load().get(&keyspace)?.get(key, sequence).map(read)
    }

    /// Gives the versions of `key` that `sequence` sees to `each`, newest first, until it says
    /// `true`. Says whether it did.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) fn versions<E>(
        &self,
        keyspace: u32,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
        mut each: impl FnMut(Entry<'_>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        if !self.may_contain(keyspace, hash) {
            return Ok(false);
        }
        let lists = self.lists.load();
        let Some(List(list)) = lists.get(&keyspace) else { return Ok(false) };
        let mut next = list.entries.seek(key, Trailer::seek(sequence));
        while let Some(place) = next {
            // SAFETY: the place is of this list.
            let entry = unsafe { list.entries.entry(place) };
            if entry.key != key {
                break;
            }
            #[cfg(test)]
            self.walked.fetch_add(1, Ordering::Relaxed);
            if each(entry)? {
                return Ok(true);
            }
            next = list.entries.next(place);
        }
        Ok(false)
    }

    /// What a reader has joined of a key's operands here.
    pub(crate) fn joined(&self, keyspace: u32, key: &[u8], hash: u64) -> Option<Joined> {
        self.joined.get(keyspace, key, hash)
    }

    /// Keeps what operands of a key come to, for who reads it next.
    pub(crate) fn keep_joined(&self, keyspace: u32, key: &[u8], hash: u64, joined: Joined) {
        self.joined.keep((keyspace, key, hash), joined, self.arena.budget(), self.bytes);
    }

    #[inline]
    fn may_contain(&self, keyspace: u32, hash: u64) -> bool {
        self.filter.get().is_some_and(|(filter, _)| filter.may_contain(filter_hash(keyspace, hash)))
    }

    /// The keyspaces written to, by number.
    pub(crate) fn lists(&self) -> Vec<(u32, List)> {
        self.lists.load().iter().map(|(id, list)| (*id, list.clone())).collect()
    }

    /// When entries of it end, if any do.
    pub(crate) fn ends(&self) -> Option<Expiry> {
        *self.ends.lock()
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.used.load(Ordering::Relaxed) == 0
    }

    /// Whether the budget has promised what it takes, beside what it promised to the database.
    pub(crate) fn has_room(&self) -> bool {
        self.arena.has_room()
    }

    /// Keeps such a promise as long as the memory.
    pub(crate) fn keep_room(&self, room: Room) {
        self.arena.keep_room(room);
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let ranges = if self.has_ranges() { self.ranges_bytes() } else { 0 };
        ranges + self.arena.bytes() + self.filter.get().map_or(0, |(filter, _)| filter.bytes())
    }
}

impl Memtable {
    fn ranges_bytes(&self) -> u64 {
        self.lists().iter().filter_map(|(_, list)| list.ranges()).map(|ranges| ranges.bytes()).sum()
    }
}

impl MemtableWriter {
    /// Bytes that an entry takes, as a rule.
    #[inline]
    pub(crate) fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        Record::bytes(key_bytes, value_bytes) + STRUCTURE_BYTES
    }

    /// Makes sure that so many inserts of `bytes` in all (see [`MemtableWriter::entry_bytes`])
    /// cannot fail. Of a batch of very many, not each is given what the dearest would take: they
    /// share what the usual one takes, and some thousands of the dearest beside it.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    #[inline]
    pub(crate) fn reserve(&mut self, bytes: usize, entries: usize) -> Result<()> {
        let bytes = bytes + entries.min(DEAREST_MAX) * STRUCTURE_BYTES_MAX;
        self.bump.reserve(bytes, entries > DEAREST_MAX).map_err(|error| {
            Error::new(ErrorKind::Busy, format!("no memory for {bytes} bytes of memtable: {error}"))
                .source(error)
        })
    }

    /// Where somebody else should make a chunk ready, if one will be needed: to be asked after
    /// inserts. Says so once for each chunk.
    #[inline]
    pub(crate) fn wants_chunk(&mut self) -> Option<ReadyChunks> {
        if self.bump.wants_ready() { self.ask_for_chunk() } else { None }
    }

    #[cold]
    fn ask_for_chunk(&self) -> Option<ReadyChunks> {
        let ready = self.bump.ready();
        ready.ask(1).then(|| ready.clone())
    }

    /// Where memory for this memtable can be made ready by others.
    pub(crate) fn ready_chunks(&self) -> &ReadyChunks {
        self.bump.ready()
    }

    /// Adds a version: key and sequence number are not in it yet.
    ///
    /// # Panics
    /// When its bytes were not reserved: a bug; or, in a very large batch, when the system has no
    /// memory.
    pub(crate) fn insert(&mut self, keyspace: u32, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.expect([(keyspace, key_hash(key))].into_iter());
        self.insert_expected(keyspace, key, trailer, value);
    }

    /// Tells of keys to come, each by its keyspace and hash, in any order and more often than once.
    /// Of many at once each costs little: the processor has several lines of the filter on their
    /// way, where between two inserts it waits for one.
    pub(crate) fn expect(&mut self, keys: impl Iterator<Item = (u32, u64)>) {
        let (filter, _) = self.memtable.filter.get_or_init(|| {
            let filter = KeyFilter::new(self.memtable.bytes);
            let charge = self.bump.arena().budget().charge(Category::Memtables, filter.bytes());
            (filter, charge)
        });
        if !filter.is_none() {
            keys.for_each(|(keyspace, hash)| filter.insert(filter_hash(keyspace, hash)));
        }
    }

    /// As [`MemtableWriter::insert`], of a key that [`MemtableWriter::expect`] was told of.
    ///
    /// # Panics
    /// As [`MemtableWriter::insert`].
    pub(crate) fn insert_expected(&mut self, keyspace: u32, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.insert_found(keyspace, Entry { key, trailer, value }, None);
    }

    /// Adds several versions, as [`MemtableWriter::insert`] does. Of many at once each costs less:
    /// what they need of filter and leaves is on its way from memory for all of them together.
    ///
    /// # Panics
    /// As [`MemtableWriter::insert`].
    pub(crate) fn insert_several(&mut self, several: &[(u32, Entry<'_>)]) {
        for group in several.chunks(GROUP) {
            self.expect(group.iter().map(|(keyspace, entry)| (*keyspace, key_hash(entry.key))));
            let mut found = [None; GROUP];
            let first = group[0].0;
            if let Some((_, list)) = self.recent.as_ref().filter(|(id, _)| *id == first) {
                let same = group.iter().take_while(|(keyspace, _)| *keyspace == first);
                let mut places = found.iter_mut();
                // SAFETY: `&mut self` excludes an insert meanwhile, as below.
                unsafe {
                    list.0.entries.find(same.map(|(_, entry)| (entry.key, entry.trailer)), |place| {
                        if let Some(into) = places.next() {
                            *into = place;
                        }
                    });
                }
            }
            for ((keyspace, entry), found) in group.iter().zip(found) {
                self.insert_found(*keyspace, *entry, found);
            }
        }
    }

    #[inline]
    fn insert_found(&mut self, keyspace: u32, entry: Entry<'_>, found: Option<Found>) {
        let Entry { key, trailer, value } = entry;
        debug_assert!(self.memtable.may_contain(keyspace, key_hash(key)), "a key that was not expected");
        if trailer.kind_byte() == EntryKind::RangeDelete as u8 {
            self.insert_range(keyspace, key, trailer.sequence(), value);
            return;
        }
        let list = match &self.recent {
            Some((id, list)) if *id == keyspace => list,
            _ => {
                let list = self.list(keyspace);
                &self.recent.insert((keyspace, list)).1
            }
        };
        // Kinds below that of expiring puts do not end.
        if trailer.kind_byte() >= EntryKind::ExpiringPut as u8
            && let Some(kind) = trailer.kind()
            && let Ok(Some(one)) = Expiry::of_entry(kind, value)
        {
            let mut ends = self.memtable.ends.lock();
            *ends = Some(ends.map_or(one, |all| all.with(one)));
        }
        // SAFETY: `&mut self` excludes a second call on any list of this memtable, and lists of one
        // memtable share this one's arena.
        unsafe { list.0.entries.insert(&mut self.bump, key, trailer, value, found) };
        self.memtable.used.store(self.bump.used() + self.ranges_weight, Ordering::Relaxed);
    }

    /// Puts in a range delete, from a key up to the one in its value.
    #[cold]
    fn insert_range(&mut self, keyspace: u32, from: &[u8], number: SequenceNumber, to: &[u8]) {
        self.memtable.has_ranges.store(true, Ordering::Release);
        let bytes = self.list(keyspace).0.ranges.insert(from, to, number);
        let budget = self.bump.arena().budget();
        let (by_keyspace, charge) =
            self.ranges.get_or_insert_with(|| (BTreeMap::new(), budget.charge(Category::Memtables, 0)));
        by_keyspace.insert(keyspace, bytes);
        charge.set(by_keyspace.values().sum());
        // The keys of many fill a memtable before a table of them is too large.
        let keys = (from.len() + to.len()) as u64;
        let per_byte = (self.memtable.bytes / RANGE_KEY_BYTES_MAX).max(1);
        self.ranges_weight += RANGE_BYTES + keys * per_byte;
        self.memtable.used.store(self.bump.used() + self.ranges_weight, Ordering::Relaxed);
    }

    fn list(&self, keyspace: u32) -> List {
        let lists = self.memtable.lists.load();
        if let Some(list) = lists.get(&keyspace) {
            return list.clone();
        }
        let entries = SortedList::new(Arc::clone(self.bump.arena()));
        let list = List(Arc::new(Writes { entries, ranges: Ranges::default() }));
        let mut more = (**lists).clone();
        more.insert(keyspace, list.clone());
        self.memtable.lists.store(Arc::new(more));
        list
    }
}

impl List {
    /// The newest version of `key` visible at `sequence`.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], sequence: SequenceNumber) -> Option<Entry<'_>> {
        let place = self.0.entries.seek(key, Trailer::seek(sequence))?;
        // SAFETY: the place is of this list.
        let entry = unsafe { self.0.entries.entry(place) };
        (entry.key == key).then_some(entry)
    }

    /// The range deletes, if there are any.
    #[inline]
    pub(crate) fn ranges(&self) -> Option<Arc<MemtableRanges>> {
        self.0.ranges.load()
    }

    /// A cursor that stands nowhere.
    pub(crate) fn cursor(&self) -> MemtableCursor {
        MemtableCursor { list: self.clone(), place: None }
    }
}

/// Walks the versions of a list both ways.
#[derive(Clone, Debug)]
pub(crate) struct MemtableCursor {
    list: List,
    /// Invariant: of `list`.
    place: Option<Place>,
}

impl MemtableCursor {
    /// Where it stands.
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry<'_>> {
        // SAFETY: the place is of this cursor's list, which the entry borrows.
        self.place.map(|place| unsafe { self.list.0.entries.entry(place) })
    }

    /// To the first version at or after (`key`, `trailer`).
    pub(crate) fn seek(&mut self, key: &[u8], trailer: Trailer) {
        self.place =
            self.list.0.entries.seek(key, trailer).inspect(|place| self.list.0.entries.prefetch_from(*place));
    }

    /// To the last version before (`key`, `trailer`).
    pub(crate) fn seek_before(&mut self, key: &[u8], trailer: Trailer) {
        self.place = self.list.0.entries.seek_before(key, trailer);
    }

    /// To the first version.
    pub(crate) fn first(&mut self) {
        self.place = self.list.0.entries.first().inspect(|place| self.list.0.entries.prefetch_from(*place));
    }

    /// To the last version.
    pub(crate) fn last(&mut self) {
        self.place = self.list.0.entries.last();
    }

    /// One version on; nowhere stays nowhere.
    #[inline]
    pub(crate) fn next(&mut self) {
        self.place = self.place.and_then(|place| self.list.0.entries.next(place));
    }

    /// One version back; nowhere stays nowhere.
    pub(crate) fn prev(&mut self) {
        self.place = self.place.and_then(|place| self.list.0.entries.prev(place));
    }
}

// SAFETY: a place leads to memory that the list keeps alive and that no reader changes.
unsafe impl Send for MemtableCursor {}
// SAFETY: as above.
unsafe impl Sync for MemtableCursor {}

#[cfg(test)]
mod tests;
