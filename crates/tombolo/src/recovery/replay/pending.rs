//! Entries that were read from a log and are not in a memtable yet.
//!
//! A log holds keys as they came; put into a memtable in that order, each costs a search through lines of memory that nobody has touched lately, which
//! was most of a replay. So they wait here, and go in by key: then one finds its place where the one before it was.
//!
//! Invariant: an entry borrows nothing: it says where in which memory it lies, and that is kept as long as it waits.

use std::ops::Range;

use bytes::Bytes;
use tombolo_format::key::Trailer;
use tombolo_format::prefetch::{prefetch_line, prefetch_value};
use tombolo_storage::Result;

use crate::memtable::MemtableWriter;

/// How far ahead of the insert a record is asked for from memory; and, as far ahead of that, what says where that lies.
const AHEAD: usize = 8;
/// Versions for which memory is reserved at once: few enough that the dearest insert of each has room.
const RESERVED_TOGETHER: usize = 256;

/// One version of a key.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// The eight bytes behind what all keys of its keyspace have in common.
    head: u64,
    trailer: Trailer,
    keyspace: u32,
    memory: u32,
    key: Span,
    value: Span,
}

impl Item {
    fn entry_bytes(&self) -> usize {
        MemtableWriter::entry_bytes(self.key.bytes as usize, self.value.bytes as usize)
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
        let narrow = |bytes: usize| u32::try_from(bytes).unwrap_or_else(|_| unreachable!("a log entry is shorter than 4 GiB"));
        Span { from: narrow(from), bytes: narrow(part.len()) }
    }

    #[inline]
    fn in_memory(self, memory: &Bytes) -> &[u8] {
        &memory[self.from as usize..self.from as usize + self.bytes as usize]
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Pending {
    memories: Vec<Bytes>,
    items: Vec<Item>,
    bytes: usize,
}

/// How much was waiting at some time: what came later can be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    memories: usize,
    items: usize,
    bytes: usize,
}

impl Pending {
    /// Bytes that what waits will take in a memtable, as a rule.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { memories: self.memories.len(), items: self.items.len(), bytes: self.bytes }
    }

    /// Forgets what came after `mark`.
    pub(super) fn take_back(&mut self, mark: Mark) {
        self.memories.truncate(mark.memories);
        self.items.truncate(mark.items);
        self.bytes = mark.bytes;
    }

    /// The memory that the versions to come lie in.
    pub(super) fn begin(&mut self, memory: &Bytes) {
        let is_same = |last: &Bytes| last.as_ptr() == memory.as_ptr() && last.len() == memory.len();
        if !self.memories.last().is_some_and(is_same) {
            self.memories.push(memory.clone());
        }
    }

    /// Ends the memory that was begun at `mark`: one that nothing waits in is not kept, and with it what it is a slice of.
    pub(super) fn end(&mut self, mark: Mark) {
        if self.items.len() == mark.items {
            self.memories.truncate(mark.memories);
        }
    }

    /// Adds a version, whose key and value are slices of the memory that was begun last.
    pub(super) fn push(&mut self, keyspace: u32, key: &[u8], trailer: Trailer, value: &[u8]) {
        let Some(memory) = self.memories.last() else { unreachable!("a memory was begun") };
        let (key, value) = (Span::of(key, memory), Span::of(value, memory));
        let number = u32::try_from(self.memories.len() - 1).unwrap_or_else(|_| unreachable!("fewer memories than bytes of a memtable"));
        let item = Item { head: 0, trailer, keyspace, memory: number, key, value };
        self.bytes += item.entry_bytes();
        self.items.push(item);
    }

    /// Puts all of it into a memtable, in order. On an error the rest still waits.
    ///
    /// # Errors
    /// `Busy` when the system has no memory.
    pub(super) fn settle(&mut self, writer: &mut MemtableWriter) -> Result<()> {
        self.sort();
        let mut settled = 0;
        let mut outcome = Ok(());
        while settled < self.items.len() && outcome.is_ok() {
            let some = settled..self.items.len().min(settled + RESERVED_TOGETHER);
            let bytes = self.items[some.clone()].iter().map(Item::entry_bytes).sum();
            outcome = writer.reserve(bytes, some.len());
            if outcome.is_ok() {
                settled = some.end;
                self.bytes -= bytes;
                self.insert(some, writer);
            }
        }
        self.items.drain(..settled);
        if self.items.is_empty() {
            self.memories.clear();
        }
        outcome
    }

    fn insert(&self, some: Range<usize>, writer: &mut MemtableWriter) {
        let part = |item: &Item, span: Span| span.in_memory(&self.memories[item.memory as usize]);
        for at in some {
            if let Some(later) = self.items.get(at + 2 * AHEAD) {
                prefetch_value(&self.memories[later.memory as usize]);
            }
            if let Some(later) = self.items.get(at + AHEAD) {
                prefetch_line(part(later, later.key));
                prefetch_line(part(later, later.value));
            }
            let item = &self.items[at];
            writer.insert(item.keyspace, part(item, item.key), item.trailer, part(item, item.value));
        }
    }

    /// By keyspace, key, and newest first: the order of a memtable's lists.
    fn sort(&mut self) {
        // As a rule they are of one keyspace.
        if !self.items.is_sorted_by_key(|item| item.keyspace) {
            self.items.sort_by_key(|item| item.keyspace);
        }
        let memories = &self.memories;
        let key = |item: &Item| item.key.in_memory(&memories[item.memory as usize]);
        for items in self.items.chunk_by_mut(|one, other| one.keyspace == other.keyspace) {
            let first = key(&items[0]);
            let shared = items
                .iter()
                .fold(first.len(), |shared, item| first[..shared].iter().zip(key(item)).take_while(|(one, other)| one == other).count());
            for item in items.iter_mut() {
                item.head = head(&key(item)[shared..]);
            }
            items.sort_unstable_by(|one, other| {
                let by_key = || key(one)[shared..].cmp(&key(other)[shared..]);
                one.head.cmp(&other.head).then_with(by_key).then(other.trailer.cmp(&one.trailer))
            });
        }
    }
}

/// The first eight bytes, with zeros for what is not there: where two of these differ, they compare as the keys do.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
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

    proptest! {
        /// Whatever came, in whatever pieces it was settled: the memtable holds it, in its order, with its values.
        #[test]
        fn what_waited_is_in_the_memtable_in_its_order(
            versions in prop::collection::vec((0..3_u32, prop::collection::vec(prop::sample::select(&b"\x00ab"[..]), 0..12), 0..40_usize), 1..200),
            settle_every in 1..80_usize,
        ) {
            let budget = MemoryBudget::new(64 << 20).expect("a budget");
            let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
            let mut pending = Pending::default();
            let mut expected = Vec::new();
            for (number, (keyspace, key, value_bytes)) in versions.iter().enumerate() {
                let sequence = number as u64 + 1;
                let value = vec![number.to_le_bytes()[0]; *value_bytes];
                let payload = Bytes::from([&b"head"[..], key, &value].concat());
                pending.begin(&payload);
                let (key_part, value_part) = payload[4..].split_at(key.len());
                pending.push(*keyspace, key_part, Trailer::new(SequenceNumber(sequence), EntryKind::Put), value_part);
                expected.push((*keyspace, key.clone(), sequence, value));
                if sequence.is_multiple_of(settle_every as u64) {
                    pending.settle(&mut writer).expect("memory");
                    prop_assert_eq!(pending.bytes(), 0);
                }
            }
            pending.settle(&mut writer).expect("memory");
            expected.sort_by(|one, other| (one.0, &one.1, other.2).cmp(&(other.0, &other.1, one.2)));
            prop_assert_eq!(listed(&memtable), expected);
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
            pending.push(0, &payload[..3], Trailer::new(SequenceNumber(sequence), EntryKind::Put), &payload[3..]);
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
            pending.push(0, &payload[..3], Trailer::new(SequenceNumber(sequence), EntryKind::Put), &payload[3..]);
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
