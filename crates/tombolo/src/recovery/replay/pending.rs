//! Entries that were read from a log and are not in a memtable yet.
//!
//! A log holds keys as they came; put into a memtable in that order, each costs a search through
//! lines of memory that nobody has touched lately, which was most of a replay. So they wait here,
//! and go in by key: then one finds its place where the one before it was. What that order needs of
//! a key is noted as it comes, while its bytes are in the processor's cache; to look at all of them
//! again took as long as sorting.
//!
//! Invariants:
//! 1. An entry borrows nothing: it says where in which memory it lies, and that is kept as long as
//!    it waits.
//! 2. All keys that wait have their first `skip` bytes in common. The heads of those from `stale`
//!    on are the bytes behind these.
//! 3. Range deletes go in as they came: readers of a memtable take the first of them that they see,
//!    newest first, for the newest.

use std::ops::Range;

use bytes::Bytes;
use tombolo_format::checksum::key_hash;
use tombolo_format::key::{EntryKind, Trailer, head_of};
use tombolo_format::prefetch::{prefetch, prefetch_line, prefetch_value};
use tombolo_storage::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::memtable::MemtableWriter;

/// How far ahead of the insert a record is asked for from memory; twice as far the memory that it
/// lies in, and three times the item that names both.
const AHEAD: usize = 8;
/// Bytes of a value that are asked for.
const VALUE_BYTES_AHEAD: usize = 256;
/// Versions for which memory is reserved at once: few enough that the dearest insert of each has
/// room.
const RESERVED_TOGETHER: usize = 256;
/// So many with one head are worth another one, behind what they have in common.
const SAME_HEADS_MAX: usize = 32;

/// One version of a key.
#[derive(Clone, Copy, Debug)]
struct Item {
    trailer: Trailer,
    /// The key's, as filters know it.
    hash: u64,
    keyspace: u32,
    memory: u32,
    key: Span,
    value: Span,
}

impl Item {
    fn entry_bytes(&self) -> usize {
        MemtableWriter::entry_bytes(self.key.bytes as usize, self.value.bytes as usize)
    }

    #[inline]
    fn key_in<'a>(&self, memories: &'a [Bytes]) -> &'a [u8] {
        self.key.in_memory(&memories[self.memory as usize])
    }
}

/// A part of a memory.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u32,
    bytes: u32,
}

impl Span {
    /// Where `part` lies in `whole`, of which it is a slice, or empty.
    fn of(part: &[u8], whole: &[u8]) -> Span {
        let from = if part.is_empty() { 0 } else { part.as_ptr().addr() - whole.as_ptr().addr() };
        Span { from: narrow(from), bytes: narrow(part.len()) }
    }

    #[inline]
    fn in_memory(self, memory: &Bytes) -> &[u8] {
        &memory[self.from as usize..self.from as usize + self.bytes as usize]
    }
}

/// Where an item belongs, as one number to sort by: its keyspace in the upper 32 bits, then 64 bits
/// of its key's head, then its own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u128);

impl Place {
    /// Of item `number`, whose key goes on with `rest` behind what all have in common.
    #[inline]
    fn new(keyspace: u32, rest: &[u8], number: u32) -> Place {
        Place(u128::from(keyspace) << 96 | u128::from(head_of(rest)) << 32 | u128::from(number))
    }

    #[inline]
    fn number(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the lowest 32 bits are meant")]
        let number = self.0 as u32;
        number
    }

    /// Keyspace and head.
    #[inline]
    fn rank(self) -> u128 {
        self.0 >> 32
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Pending {
    memories: Vec<Bytes>,
    /// In the order in which they came. Those that are in no place any more are in the memtable.
    items: Vec<Item>,
    places: Vec<Place>,
    /// Items that are range deletes, and in no place.
    ranges: Vec<u32>,
    /// Whether the places are in their order.
    is_sorted: bool,
    bytes: usize,
    /// As a rule what the keys of an earlier part had in common, until one comes that has less;
    /// `None`: of no part yet.
    skip: Option<usize>,
    /// Items before this one have heads from when more was in common. See invariant 2.
    stale: usize,
}

/// How much was waiting at some time: what came later can be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    memories: usize,
    items: usize,
    places: usize,
    ranges: usize,
    bytes: usize,
}

impl Pending {
    /// Bytes that what waits will take in a memtable, as a rule.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            memories: self.memories.len(),
            items: self.items.len(),
            places: self.places.len(),
            ranges: self.ranges.len(),
            bytes: self.bytes,
        }
    }

    /// Forgets what came after `mark`.
    pub(super) fn take_back(&mut self, mark: Mark) {
        self.memories.truncate(mark.memories);
        self.items.truncate(mark.items);
        self.places.truncate(mark.places);
        self.ranges.truncate(mark.ranges);
        self.bytes = mark.bytes;
    }

    /// The memory that the versions to come lie in.
    pub(super) fn begin(&mut self, memory: &Bytes) {
        let is_same = |last: &Bytes| last.as_ptr() == memory.as_ptr() && last.len() == memory.len();
        if !self.memories.last().is_some_and(is_same) {
            self.memories.push(memory.clone());
        }
    }

    /// Ends the memory that was begun at `mark`: one that nothing waits in is not kept, and with it
    /// what it is a slice of.
    pub(super) fn end(&mut self, mark: Mark) {
        if self.items.len() == mark.items {
            self.memories.truncate(mark.memories);
        }
    }

    /// Adds a version, whose key and value are slices of the memory that was begun last.
    pub(super) fn push(&mut self, keyspace: u32, key: &[u8], trailer: Trailer, value: &[u8]) {
        let Some(memory) = self.memories.last() else { unreachable!("a memory was begun") };
        let (key_span, value) = (Span::of(key, memory), Span::of(value, memory));
        let (number, memory) = (narrow(self.items.len()), narrow(self.memories.len() - 1));
        let skip = self.skip_with(key);
        let item = Item { trailer, hash: key_hash(key), keyspace, memory, key: key_span, value };
        self.bytes += item.entry_bytes();
        self.items.push(item);
        if trailer.kind_byte() == EntryKind::RangeDelete as u8 && !is_enabled(Mutant::ReplaySortsRangeDeletes)
        {
            self.ranges.push(number);
            return;
        }
        self.places.push(Place::new(keyspace, &key[skip..], number));
        self.is_sorted = false;
    }

    /// What all keys have in common, with this one.
    #[inline]
    fn skip_with(&mut self, key: &[u8]) -> usize {
        let most = self.skip.unwrap_or(usize::MAX);
        let skip = match self.items.first() {
            Some(first) => {
                let first = first.key_in(&self.memories);
                first.iter().zip(key).take(most).take_while(|(one, other)| one == other).count()
            }
            None => most.min(key.len()),
        };
        if skip < most {
            (self.skip, self.stale) = (Some(skip), self.items.len());
        }
        skip
    }

    /// Puts all of it into a memtable, in order. On an error the rest still waits.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(super) fn settle(&mut self, writer: &mut MemtableWriter) -> Result<()> {
        if self.places.is_empty() && self.ranges.is_empty() {
            return Ok(());
        }
        self.sort();
        writer.expect(self.items.iter().map(|item| (item.keyspace, item.hash)));
        for number in std::mem::take(&mut self.ranges) {
            let item = &self.items[number as usize];
            self.bytes -= item.entry_bytes();
            let part = |span: Span| span.in_memory(&self.memories[item.memory as usize]);
            writer.insert_expected(item.keyspace, part(item.key), item.trailer, part(item.value));
        }
        let mut settled = 0;
        let mut outcome = Ok(());
        while settled < self.places.len() && outcome.is_ok() {
            let some = settled..self.places.len().min(settled + RESERVED_TOGETHER);
            let bytes = self.places[some.clone()].iter().map(|place| self.item(*place).entry_bytes()).sum();
            outcome = writer.reserve(bytes, some.len());
            if outcome.is_ok() {
                settled = some.end;
                self.bytes -= bytes;
                self.insert(some, writer);
            }
        }
        self.places.drain(..settled);
        if self.places.is_empty() {
            self.items.clear();
            self.memories.clear();
            self.stale = 0;
        }
        outcome
    }

    #[inline]
    fn item(&self, place: Place) -> &Item {
        &self.items[place.number() as usize]
    }

    fn insert(&self, some: Range<usize>, writer: &mut MemtableWriter) {
        let part = |item: &Item, span: Span| span.in_memory(&self.memories[item.memory as usize]);
        let later = |at: usize| self.places.get(at).map(|place| self.item(*place));
        for at in some {
            if let Some(later) = later(at + 3 * AHEAD) {
                prefetch_value(later);
            }
            if let Some(later) = later(at + 2 * AHEAD) {
                prefetch_value(&self.memories[later.memory as usize]);
            }
            if let Some(later) = later(at + AHEAD) {
                prefetch_line(part(later, later.key));
                let value = part(later, later.value);
                prefetch(&value[..value.len().min(VALUE_BYTES_AHEAD)]);
            }
            let item = self.item(self.places[at]);
            writer.insert_expected(item.keyspace, part(item, item.key), item.trailer, part(item, item.value));
        }
    }

    /// By keyspace, key, and newest first: the order of a memtable's lists. It need not be called
    /// before waiting entries are settled; it may run on another thread than the one that settles.
    pub(super) fn sort(&mut self) {
        if std::mem::replace(&mut self.is_sorted, true) {
            return;
        }
        let Pending { memories, items, places, skip, stale, .. } = self;
        let skip = skip.unwrap_or(0);
        if *stale > 0 {
            for place in places.iter_mut().filter(|place| (place.number() as usize) < *stale) {
                let item = &items[place.number() as usize];
                *place = Place::new(item.keyspace, &item.key_in(memories)[skip..], place.number());
            }
            *stale = 0;
        }
        places.sort_unstable();
        for same in places.chunk_by_mut(|one, other| one.rank() == other.rank()).filter(|same| same.len() > 1)
        {
            sort_same(same, items, memories, skip);
        }
    }
}

/// Sorts places with one rank, whose keys have at least `skip` bytes in common.
fn sort_same(same: &mut [Place], items: &[Item], memories: &[Bytes], skip: usize) {
    let item = |place: Place| &items[place.number() as usize];
    let key = |place: Place| item(place).key_in(memories);
    let rank = same[0].rank();
    let mut shared = skip;
    if same.len() > SAME_HEADS_MAX {
        let first = key(same[0]);
        let common = |shared: usize, place: &Place| {
            first[..shared].iter().zip(key(*place)).take_while(|(one, other)| one == other).count()
        };
        shared = same.iter().fold(first.len(), common);
        for place in same.iter_mut() {
            *place = Place::new(item(*place).keyspace, &key(*place)[shared..], place.number());
        }
    }
    same.sort_unstable_by(|one, other| {
        let by_key = || key(*one)[shared..].cmp(&key(*other)[shared..]);
        let newest_first = || item(*other).trailer.cmp(&item(*one).trailer);
        one.rank().cmp(&other.rank()).then_with(by_key).then_with(newest_first)
    });
    // What comes later is sorted among them by the heads of all.
    same.iter_mut().for_each(|place| *place = Place(rank << 32 | u128::from(place.number())));
}

/// A place in a memory, or a number of what waits: at most the bytes of one memtable, or of one
/// entry that is larger than that.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or_else(|_| unreachable!("a log entry is shorter than 4 GiB"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tombolo_format::key::{EntryKind, SequenceNumber};
    use tombolo_storage::ErrorKind;

    use super::*;
    use crate::budget::MemoryBudget;
    use crate::memtable::Memtable;
    use crate::memtable::refusing::REFUSED;

    /// (keyspace, key, sequence number) as the memtable lists them.
    fn listed(memtable: &Memtable) -> Vec<(u32, Vec<u8>, u64, Vec<u8>)> {
        let mut all = Vec::new();
        for (keyspace, list) in memtable.lists() {
            let mut cursor = list.cursor();
            cursor.first();
            while let Some(entry) = cursor.entry() {
                all.push((keyspace, entry.key.to_vec(), entry.trailer.sequence().0, entry.value.to_vec()));
                cursor.next();
            }
        }
        all
    }

    /// Whether what waits goes in by keyspace, key, and newest first. A memtable is right either
    /// way, and takes longer.
    fn is_in_order(pending: &Pending) -> bool {
        let rank = |place: &Place| {
            let item = pending.item(*place);
            (item.keyspace, item.key_in(&pending.memories), std::cmp::Reverse(item.trailer))
        };
        pending.places.iter().is_sorted_by_key(rank)
    }

    proptest! {
        /// Whatever came, in whatever pieces it was settled: the memtable holds it, in its order,
        /// with its values, and finds it.
        #[test]
        fn what_waited_is_in_the_memtable_in_its_order(
            versions in prop::collection::vec((0..3_u32, key(), 0..40_usize), 1..400),
            settle_every in 1..300_usize,
        ) {
            let budget = MemoryBudget::new(64 << 20).expect("a budget");
            let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
            let mut pending = Pending::default();
            let mut expected = Vec::new();
            for (number, (keyspace, key, value_bytes)) in versions.iter().enumerate() {
                let sequence = number as u64 + 1;
                let value = vec![number.to_le_bytes()[0]; *value_bytes];
                let payload = Bytes::from([&b"head"[..], key, &value].concat());
                let mark = pending.mark();
                for attempt in 0..1 + number % 2 {
                    pending.begin(&payload);
                    let (key_part, value_part) = payload[4..].split_at(key.len());
                    pending.push(
                        *keyspace, key_part, Trailer::new(SequenceNumber(sequence), EntryKind::Put),
                        value_part
                    );
                    // The first of two attempts is given up.
                    if attempt < number % 2 {
                        pending.take_back(mark);
                    }
                }
                expected.push((*keyspace, key.clone(), sequence, value));
                if sequence.is_multiple_of(settle_every as u64) {
                    pending.sort();
                    prop_assert!(is_in_order(&pending));
                    pending.settle(&mut writer).expect("memory");
                    prop_assert_eq!(pending.bytes(), 0);
                } else if sequence.is_multiple_of(50) {
                    pending.sort();
                }
            }
            pending.sort();
            prop_assert!(is_in_order(&pending));
            pending.settle(&mut writer).expect("memory");
            for (keyspace, key, sequence, _) in &expected {
                let found = memtable.get(
                    *keyspace, key, key_hash(key), SequenceNumber(*sequence),
                    |entry| entry.trailer.sequence().0
                );
                prop_assert_eq!(found, Some(*sequence));
            }
            expected.sort_by(|one, other| (one.0, &one.1, other.2).cmp(&(other.0, &other.1, one.2)));
            prop_assert_eq!(listed(&memtable), expected);
        }
    }

    /// Keys of which many have the same first bytes, more or fewer than a head has room for.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let begin = prop::sample::select(vec![
            &b""[..],
            b"ab",
            b"abababab",
            b"a long beginning",
            b"a long beginning",
        ]);
        let rest = prop::collection::vec(prop::sample::select(&b"\x00ab"[..]), 0..12);
        (begin, rest).prop_map(|(begin, rest)| [begin, &rest].concat())
    }

    /// What all keys have in common is found to be less and less.
    #[test]
    fn keys_are_in_order_though_each_has_less_in_common_with_those_before() {
        let budget = MemoryBudget::new(64 << 20).expect("a budget");
        let mut pending = Pending::default();
        for part in 0..3 {
            let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
            let mut expected = Vec::new();
            for sequence in 1..=20_u64 {
                let same = 20 - usize::try_from(sequence).expect("small");
                // The rest orders them otherwise than the order in which they come.
                let key = [
                    vec![b'm'; same],
                    vec![if sequence % 3 == 0 { b'z' } else { b'a' }, sequence.to_le_bytes()[0] ^ 0x15],
                ]
                .concat();
                let payload = Bytes::from(key.clone());
                pending.begin(&payload);
                pending.push(0, &payload, Trailer::new(SequenceNumber(sequence), EntryKind::Put), &[]);
                expected.push(key);
            }
            assert_eq!(pending.skip, Some(0));
            pending.sort();
            assert!(is_in_order(&pending), "part {part}");
            pending.settle(&mut writer).expect("memory");
            expected.sort();
            let keys: Vec<_> = listed(&memtable).into_iter().map(|(_, key, ..)| key).collect();
            assert_eq!(keys, expected, "part {part}");
        }
    }

    #[test]
    fn a_payload_in_which_nothing_waits_is_not_kept() {
        let mut pending = Pending::default();
        let payload = Bytes::from(b"keyvalue".to_vec());
        let mark = pending.mark();
        pending.begin(&payload);
        pending.end(mark);
        assert!(payload.is_unique() && pending.memories.is_empty());
        let mark = pending.mark();
        pending.begin(&payload);
        pending.push(0, &payload[..3], Trailer::new(SequenceNumber(1), EntryKind::Put), &payload[3..]);
        pending.end(mark);
        assert!(!payload.is_unique());
    }

    #[test]
    fn what_is_taken_back_is_not_settled() {
        let budget = MemoryBudget::new(64 << 20).expect("a budget");
        let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
        let mut pending = Pending::default();
        let add = |pending: &mut Pending, sequence: u64| {
            let payload = Bytes::from_static(b"keyvalue");
            pending.begin(&payload);
            pending.push(
                0,
                &payload[..3],
                Trailer::new(SequenceNumber(sequence), EntryKind::Put),
                &payload[3..],
            );
        };
        add(&mut pending, 1);
        let mark = pending.mark();
        add(&mut pending, 2);
        pending.take_back(mark);
        pending.settle(&mut writer).expect("memory");
        assert_eq!(listed(&memtable), [(0, b"key".to_vec(), 1, b"value".to_vec())]);
    }

    #[test]
    fn without_memory_the_rest_waits_and_nothing_goes_in_twice() {
        let budget = MemoryBudget::new(64 << 20).expect("a budget");
        let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
        let mut pending = Pending::default();
        let payload = Bytes::from(vec![7; 4000]);
        for sequence in 1..=3000 {
            pending.begin(&payload);
            pending.push(
                0,
                &payload[..3],
                Trailer::new(SequenceNumber(sequence), EntryKind::Put),
                &payload[3..],
            );
        }
        let bytes = pending.bytes();
        REFUSED.set(true);
        assert_eq!(pending.settle(&mut writer).expect_err("no memory").kind(), ErrorKind::Busy);
        assert!(pending.bytes() <= bytes && pending.bytes() > 0);
        let held = listed(&memtable).len();
        assert!(held < 3000);
        REFUSED.set(false);
        pending.settle(&mut writer).expect("memory");
        assert_eq!((listed(&memtable).len(), pending.bytes()), (3000, 0));
    }
}
