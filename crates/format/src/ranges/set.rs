//! Ranges that do not meet, each with a number: found in a few steps, changed by copying a few.
//!
//! Chunks of ranges are shared between clones. A chunk holds the keys at which something changes,
//! and for each the number from there on; searches compare the first 8 bytes behind what all keys
//! of a chunk share, as numbers.
//!
//! Invariant: chunks are not empty, ascend and do not meet; no number of a range is zero.

use std::sync::Arc;

use crate::key::{SequenceNumber, head_of};

/// Ranges of a chunk before it splits: what an insert copies.
const CHUNK_RANGES_MAX: usize = 128;

/// A range, and the number of the delete that covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered<'a> {
    /// Its first key.
    pub from: &'a [u8],
    /// The key at which it ends, and which it does not hold.
    pub to: &'a [u8],
    /// The number of the delete.
    pub number: SequenceNumber,
}

/// Keys around one of which the same is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch<'a> {
    /// Its first key; `None` without bound.
    pub from: Option<&'a [u8]>,
    /// The key at which it ends, and which it does not hold; `None` without bound.
    pub to: Option<&'a [u8]>,
    /// The greatest number of a delete that covers it, if one does.
    pub number: Option<SequenceNumber>,
}

impl<'a> Stretch<'a> {
    /// What two say together of the keys of both.
    #[must_use]
    pub fn with(self, other: Stretch<'a>) -> Stretch<'a> {
        let to = match (self.to, other.to) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // No key is less than no bound.
        Stretch { from: self.from.max(other.from), to, number: self.number.max(other.number) }
    }
}

/// Keys in order.
#[derive(Clone, Debug, Default)]
struct Keys {
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
    /// Of each key, behind what all share.
    heads: Box<[u64]>,
    /// Bytes that all share.
    shared: usize,
}

fn shared_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl Keys {
    fn new(keys: &[&[u8]]) -> Keys {
        let shared = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => shared_bytes(first, last),
            _ => 0,
        };
        let mut bytes = Vec::with_capacity(keys.iter().map(|key| key.len()).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for key in keys {
            bytes.extend_from_slice(key);
            ends.push(bytes.len() as u32);
        }
        let heads = keys.iter().map(|key| head_of(&key[shared..])).collect();
        Keys { bytes: bytes.into(), ends: ends.into(), heads, shared }
    }

    /// These, with others in the place of those from `low` on and before `high`. What stays is
    /// copied as a whole.
    fn splice(&self, low: usize, high: usize, others: &[&[u8]]) -> Keys {
        let (count, start) = (self.ends.len(), |at: usize| at.checked_sub(1).map_or(0, |at| self.ends[at]));
        let (kept, rest) = (start(low) as usize, start(high) as usize);
        let others_bytes: usize = others.iter().map(|key| key.len()).sum();
        let mut bytes = Vec::with_capacity(kept + others_bytes + self.bytes.len() - rest);
        let mut ends = Vec::with_capacity(low + others.len() + count - high);
        bytes.extend_from_slice(&self.bytes[..kept]);
        ends.extend_from_slice(&self.ends[..low]);
        for key in others {
            bytes.extend_from_slice(key);
            ends.push(bytes.len() as u32);
        }
        let moved = bytes.len() as u32;
        bytes.extend_from_slice(&self.bytes[rest..]);
        ends.extend(self.ends[high..].iter().map(|end| end - rest as u32 + moved));
        let mut keys = Keys { bytes: bytes.into(), ends: ends.into(), heads: Box::default(), shared: 0 };
        let count = keys.ends.len();
        keys.shared = if count == 0 { 0 } else { shared_bytes(keys.get(0), keys.get(count - 1)) };
        keys.heads = if keys.shared == self.shared {
            let new = others.iter().map(|key| head_of(&key[keys.shared..]));
            let heads = self.heads[..low].iter().copied().chain(new);
            heads.chain(self.heads[high..].iter().copied()).collect()
        } else {
            (0..count).map(|at| head_of(&keys.get(at)[keys.shared..])).collect()
        };
        keys
    }

    #[inline]
    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    /// How many come before `key`, with it itself if `or_at`.
    #[inline]
    fn rank(&self, key: &[u8], or_at: bool) -> usize {
        let common = &self.bytes[..self.shared];
        let Some(rest) = key.strip_prefix(common) else {
            return if key < common { 0 } else { self.heads.len() };
        };
        let head = head_of(rest);
        let from = self.heads.partition_point(|other| *other < head);
        let mut rank = from;
        // Most often one is equal, or none.
        while rank < self.heads.len() && self.heads[rank] == head {
            let other = self.get(rank);
            if other > key || (other == key && !or_at) {
                break;
            }
            rank += 1;
        }
        rank
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + 12 * self.ends.len()
    }
}

/// Some ranges that follow each other.
#[derive(Debug)]
struct Chunk {
    /// Where something changes.
    keys: Keys,
    /// From each of the keys on; zero where no range is, as after the last key.
    numbers: Box<[u64]>,
    ranges: usize,
}

impl Chunk {
    /// Of ranges in order, of which there is at least one.
    fn new(ranges: &[Covered<'_>]) -> Chunk {
        let mut keys: Vec<&[u8]> = Vec::with_capacity(2 * ranges.len());
        let mut numbers = Vec::with_capacity(2 * ranges.len());
        for range in ranges {
            if keys.last() == Some(&range.from) {
                numbers.pop();
            } else {
                keys.push(range.from);
            }
            numbers.push(range.number.0);
            keys.push(range.to);
            numbers.push(0);
        }
        Chunk { keys: Keys::new(&keys), numbers: numbers.into(), ranges: ranges.len() }
    }

    /// With `from` up to `to` covered, where no greater number does.
    fn with(&self, from: &[u8], to: &[u8], number: u64) -> Chunk {
        let (low, high) = (self.keys.rank(from, false), self.keys.rank(to, true));
        // The number before `from`, that of the old ranges, and that of the new ones.
        let before = low.checked_sub(1).map_or(0, |at| self.numbers[at]);
        let (mut old, mut last) = (before, before);
        let (mut keys, mut numbers) = (Vec::with_capacity(2), Vec::with_capacity(2));
        let mut change = |key, number| {
            if number != last {
                keys.push(key);
                numbers.push(number);
                last = number;
            }
        };
        let mut at = low;
        if at < high && self.keys.get(at) == from {
            old = self.numbers[at];
            at += 1;
        }
        change(from, old.max(number));
        while at < high {
            old = self.numbers[at];
            if self.keys.get(at) != to {
                change(self.keys.get(at), old.max(number));
            }
            at += 1;
        }
        change(to, old);
        let kept = [&self.numbers[..low], &numbers, &self.numbers[high..]].concat();
        let ranges = kept.iter().filter(|number| **number > 0).count();
        Chunk { keys: self.keys.splice(low, high, &keys), numbers: kept.into(), ranges }
    }

    #[inline]
    fn range(&self, at: usize) -> Option<Covered<'_>> {
        let number = *self.numbers.get(at)?;
        (number > 0).then(|| Covered {
            from: self.keys.get(at),
            to: self.keys.get(at + 1),
            number: SequenceNumber(number),
        })
    }

    #[inline]
    fn covered(&self, key: &[u8]) -> Option<Covered<'_>> {
        self.range(self.keys.rank(key, true).checked_sub(1)?)
    }

    fn iter(&self) -> impl Iterator<Item = Covered<'_>> {
        (0..self.numbers.len()).filter_map(|at| self.range(at))
    }

    fn first(&self) -> &[u8] {
        self.keys.get(0)
    }

    fn end(&self) -> &[u8] {
        self.keys.get(self.numbers.len() - 1)
    }

    fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + 8 * self.numbers.len() + size_of::<Chunk>()
    }
}

/// See the module's documentation. Clones share what did not change.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// Where the chunks begin.
    starts: Arc<Keys>,
    chunks: Vec<Arc<Chunk>>,
    ranges: usize,
    memory_bytes: usize,
}

impl PartialEq for RangeSet {
    fn eq(&self, other: &RangeSet) -> bool {
        self.ranges == other.ranges && self.iter().eq(other.iter())
    }
}

impl Eq for RangeSet {}

/// Ranges in order; what follows with the same number joins the one before.
#[derive(Default)]
struct Joined<'a>(Vec<Covered<'a>>);

impl<'a> Joined<'a> {
    fn push(&mut self, from: &'a [u8], to: &'a [u8], number: SequenceNumber) {
        if from >= to {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.number == number && last.to == from => last.to = to,
            _ => self.0.push(Covered { from, to, number }),
        }
    }
}

impl RangeSet {
    /// Of ranges that ascend and do not meet.
    pub fn of_ascending(ranges: &[Covered<'_>]) -> RangeSet {
        debug_assert!(ranges.iter().all(|range| range.from < range.to && range.number.0 > 0));
        debug_assert!(ranges.is_sorted_by(|one, next| one.to <= next.from));
        RangeSet::of_chunks(chunks_of(ranges).collect())
    }

    fn of_chunks(chunks: Vec<Arc<Chunk>>) -> RangeSet {
        let starts: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.first()).collect();
        let starts = Arc::new(Keys::new(&starts));
        let ranges = chunks.iter().map(|chunk| chunk.ranges).sum();
        let memory_bytes =
            starts.memory_bytes() + chunks.iter().map(|chunk| 8 + chunk.memory_bytes()).sum::<usize>();
        RangeSet { starts, chunks, ranges, memory_bytes }
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges
    }

    /// Whether there is no range.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    /// The range that covers `key`, if one does.
    #[inline]
    pub fn covered(&self, key: &[u8]) -> Option<Covered<'_>> {
        let chunk = self.starts.rank(key, true).checked_sub(1)?;
        self.chunks[chunk].covered(key)
    }

    /// The answer for `key`, and the keys around it that have the same.
    pub fn stretch(&self, key: &[u8]) -> Stretch<'_> {
        let next = self.starts.rank(key, true);
        let to = self.chunks.get(next).map(|chunk| chunk.first());
        let Some(chunk) = next.checked_sub(1).map(|at| &self.chunks[at]) else {
            return Stretch { from: None, to, number: None };
        };
        let at = chunk.keys.rank(key, true) - 1;
        let from = Some(chunk.keys.get(at));
        match chunk.numbers[at] {
            _ if at + 1 == chunk.numbers.len() => Stretch { from, to, number: None },
            0 => Stretch { from, to: Some(chunk.keys.get(at + 1)), number: None },
            number => {
                Stretch { from, to: Some(chunk.keys.get(at + 1)), number: Some(SequenceNumber(number)) }
            }
        }
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Covered<'_>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The first key that is covered, and the one at which the last range ends.
    pub fn bounds(&self) -> Option<(&[u8], &[u8])> {
        Some((self.chunks.first()?.first(), self.chunks.last()?.end()))
    }

    /// Smallest and greatest number; of an empty set the greatest and the smallest there are.
    pub fn numbers(&self) -> (SequenceNumber, SequenceNumber) {
        self.iter().fold((SequenceNumber::MAX, SequenceNumber::ZERO), |(least, most), range| {
            (least.min(range.number), most.max(range.number))
        })
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Covers `from` up to `to`, where no greater number does.
    ///
    /// # Panics
    /// When that is no range, or the number is zero.
    pub fn insert(&mut self, from: &[u8], to: &[u8], number: SequenceNumber) {
        assert!(from < to && number > SequenceNumber::ZERO, "no range: {from:?} to {to:?}, {number:?}");
        let first = self.starts.rank(from, true).saturating_sub(1);
        let end = self.starts.rank(to, false).max((first + 1).min(self.chunks.len()));
        // Most often one chunk changes, and is no more than full.
        if end == first + 1 && self.chunks[first].ranges + 2 <= CHUNK_RANGES_MAX {
            let old = &self.chunks[first];
            let new = old.with(from, to, number.0);
            let begins_there = new.first() == old.first();
            self.ranges = self.ranges - old.ranges + new.ranges;
            self.memory_bytes = self.memory_bytes - old.memory_bytes() + new.memory_bytes();
            self.chunks[first] = Arc::new(new);
            if !begins_there {
                let before = self.starts.memory_bytes();
                let starts: Vec<&[u8]> = self.chunks.iter().map(|chunk| chunk.first()).collect();
                self.starts = Arc::new(Keys::new(&starts));
                self.memory_bytes = self.memory_bytes - before + self.starts.memory_bytes();
            }
            return;
        }
        let mut joined = Joined::default();
        let mut reached = from;
        for old in self.chunks[first..end].iter().flat_map(|chunk| chunk.iter()) {
            if old.to <= from {
                joined.push(old.from, old.to, old.number);
                continue;
            }
            joined.push(old.from, old.to.min(from), old.number);
            joined.push(reached, old.from.clamp(reached, to), number);
            let (low, high) = (old.from.max(from), old.to.min(to));
            if low < high {
                joined.push(low, high, old.number.max(number));
                reached = high;
            } else {
                reached = reached.max(to.min(old.from));
            }
            joined.push(old.from.max(to), old.to, old.number);
        }
        joined.push(reached, to, number);
        let chunks = self.chunks[..first]
            .iter()
            .cloned()
            .chain(chunks_of(&joined.0))
            .chain(self.chunks[end..].iter().cloned());
        *self = RangeSet::of_chunks(chunks.collect());
    }

    /// What of it lies from `from` on and before `to`; `None` without bound.
    pub fn within(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> RangeSet {
        let mut joined = Joined::default();
        for range in self.iter() {
            let first = from.map_or(range.from, |from| range.from.max(from));
            let last = to.map_or(range.to, |to| range.to.min(to));
            joined.push(first, last, range.number);
        }
        RangeSet::of_ascending(&joined.0)
    }
}

/// Chunks of about equal size.
fn chunks_of<'a>(ranges: &'a [Covered<'a>]) -> impl Iterator<Item = Arc<Chunk>> + 'a {
    let count = ranges.len().div_ceil(CHUNK_RANGES_MAX).max(1);
    ranges.chunks(ranges.len().div_ceil(count).max(1)).map(|ranges| Arc::new(Chunk::new(ranges)))
}
