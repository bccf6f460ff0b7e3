//! What a transaction holds in memory: its own writes, by key, and what it has read.
//!
//! Own writes are kept twice: in their order, which is that of the batch, and by key, so that reads
//! and cursors find them. Both share the bytes. By key a map is shared with cursors and savepoints,
//! which copy nothing but what changes afterwards.
//!
//! A key of its own writes comes to what its newest put or delete says, with the operands since. Of
//! operands alone the value below is asked, unless a range delete of the transaction lies between.
//!
//! Invariants:
//! 1. Of one keyspace, ranges that were deleted do not meet.
//! 2. Every write of a key in a deleted range is newer than the range delete: those before it were
//!    taken out when it came.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::expiry::split_operand;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::chunked::ChunkedMap;
use crate::engine::KeyspaceInfo;
use crate::read::{Reach, Touched};
use crate::resolve::{Answer, Fold, Judge};
use crate::table::KeyRange;
use crate::write::{Cost, Prepared};

/// What an operation of a transaction takes beside its bytes, about.
const OPERATION_BYTES: usize = 200;
/// What a read takes beside its bytes, about.
const READ_BYTES: usize = 100;

/// One write of a key.
pub(crate) type Written = (EntryKind, Bytes);

/// Whether a write adds to the value below it.
fn is_operand(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::Merge | EntryKind::ExpiringMerge)
}

/// A key of a keyspace.
type Place = (u32, Bytes);

fn before((keyspace, key): &Place, other: (u32, &[u8])) -> bool {
    (*keyspace, &key[..]) < other
}

/// Own writes by key. A clone costs two counts of references.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Of each key its newest put or delete, then the operands since.
    keys: ChunkedMap<Place, Arc<Vec<Written>>>,
    /// Deleted ranges: where each begins, and where it ends.
    ranges: ChunkedMap<Place, Bytes>,
}

/// What own writes say of a key.
#[derive(Clone, Debug)]
pub(crate) enum Own {
    /// Nothing: the value below is the answer.
    Nothing,
    /// The key has no value.
    Absent,
    /// The writes, oldest first. The flag says whether the value below them counts.
    Written(Arc<Vec<Written>>, bool),
}

impl Index {
    /// Whether there is nothing of a keyspace.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }

    /// The deleted range around a key: where it begins, and ends.
    pub(crate) fn range_around(&self, keyspace: u32, key: &[u8]) -> Option<(&Bytes, &Bytes)> {
        // Begins at the key or before.
        let (place, to) = self.ranges.last_before(|(id, from)| (*id, &from[..]) <= (keyspace, key))?;
        (place.0 == keyspace && key < &to[..]).then_some((&place.1, to))
    }

    /// What own writes say of a key.
    pub(crate) fn of(&self, keyspace: u32, key: &[u8]) -> Own {
        let found = self.keys.first_from(|place| before(place, (keyspace, key)));
        match found.filter(|((id, own), _)| *id == keyspace && own == key) {
            Some((_, written)) => self.written(keyspace, key, written),
            None if !self.ranges.is_empty() && self.range_around(keyspace, key).is_some() => Own::Absent,
            None => Own::Nothing,
        }
    }

    fn written(&self, keyspace: u32, key: &[u8], written: &Arc<Vec<Written>>) -> Own {
        let alone = written.first().is_some_and(|(kind, _)| !is_operand(*kind));
        let shows_below = !alone && (self.ranges.is_empty() || self.range_around(keyspace, key).is_none());
        Own::Written(Arc::clone(written), shows_below)
    }

    /// The first key of own writes at or after `key`, or after it.
    pub(crate) fn next(&self, keyspace: u32, key: &[u8], is_after: bool) -> Option<(Bytes, Own)> {
        let found = self.keys.first_from(|place| match before(place, (keyspace, key)) {
            true => true,
            false => is_after && place.0 == keyspace && place.1 == key,
        });
        let ((_, own), written) = found.filter(|((id, _), _)| *id == keyspace)?;
        Some((own.clone(), self.written(keyspace, own, written)))
    }

    /// The last key of own writes at or before `key`, or before it; `None`: before the end of the
    /// keyspace.
    pub(crate) fn prev(&self, keyspace: u32, key: Option<&[u8]>, is_before: bool) -> Option<(Bytes, Own)> {
        let found = self.keys.last_before(|(id, own)| match id.cmp(&keyspace) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => key.is_none_or(|key| &own[..] < key || !is_before && own == key),
        });
        let ((_, own), written) = found.filter(|((id, _), _)| *id == keyspace)?;
        Some((own.clone(), self.written(keyspace, own, written)))
    }

    fn write(&mut self, keyspace: u32, kind: EntryKind, key: &Bytes, value: &Bytes) {
        let place = (keyspace, key.clone());
        if is_operand(kind)
            && let Some(written) = self.keys.get_mut(&place)
        {
            Arc::make_mut(written).push((kind, value.clone()));
            return;
        }
        self.keys.insert(place, Arc::new(vec![(kind, value.clone())]));
    }

    fn delete_range(&mut self, keyspace: u32, from: &Bytes, to: &Bytes) {
        while let Some((key, _)) = self.next(keyspace, from, false).filter(|(key, _)| key < to) {
            self.keys.remove(&(keyspace, key));
        }
        let (mut from, mut to) = (from.clone(), to.clone());
        // Ranges that meet it become one with it.
        while let Some((place, end)) = self.ranges.last_before(|(id, begin)| (*id, begin) <= (keyspace, &to))
            && place.0 == keyspace
            && *end >= from
        {
            let place = place.clone();
            from = from.min(place.1.clone());
            to = to.max(end.clone());
            self.ranges.remove(&place);
        }
        self.ranges.insert((keyspace, from), to);
    }
}

/// The time by which it is judged what has ended below own writes, if not by the reader's: when the
/// oldest of them was written that adds to it and ends.
pub(crate) fn below_ms(written: &[Written]) -> Option<u64> {
    let ends = written.iter().find(|(kind, _)| *kind == EntryKind::ExpiringMerge);
    let (_, stored) = ends.filter(|_| !is_enabled(Mutant::TransactionFoldsWhatHasEnded))?;
    split_operand(stored).ok().map(|(_, times)| times.written_ms)
}

/// The value that own writes come to, over the value below them, judged by [`below_ms`].
///
/// # Errors
/// Those of the keyspace's operator.
pub(crate) fn value_of(
    keyspace: &KeyspaceInfo,
    key: &[u8],
    written: &[Written],
    below: Option<Bytes>,
) -> Result<Option<Bytes>> {
    if let [(kind, value)] = written {
        match kind {
            EntryKind::Put => return Ok(Some(value.clone())),
            EntryKind::Delete | EntryKind::SingleDelete => return Ok(None),
            _ => {}
        }
    }
    // By the time of no moment at all: what the transaction has put has not expired in it.
    let judge = Judge { judged_ms: 0, ..keyspace.judge() };
    let mut fold = Fold::default();
    let place = || "a transaction".to_owned();
    let mut number = written.len() as u64 + 1;
    for (kind, value) in written.iter().rev() {
        let trailer = Trailer::new(SequenceNumber(number), *kind);
        number -= 1;
        let answer = fold.feed(&judge, key, trailer, value, || value.clone(), place)?;
        if !matches!(answer, Answer::More | Answer::Fold) {
            return fold.finish(&judge, key);
        }
    }
    if let Some(below) = below {
        let trailer = Trailer::new(SequenceNumber(1), EntryKind::Put);
        fold.feed(&judge, key, trailer, &below, || below.clone(), place)?;
    }
    fold.finish(&judge, key)
}

/// One write, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) keyspace: Arc<KeyspaceInfo>,
    pub(crate) kind: EntryKind,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

impl Operation {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + OPERATION_BYTES
    }

    /// What it writes.
    pub(crate) fn touched(&self) -> Touched {
        let what = match self.kind {
            EntryKind::RangeDelete => Reach::Range(Arc::new(KeyRange {
                lower: Bound::Included(self.key.to_vec()),
                upper: Bound::Excluded(self.value.to_vec()),
            })),
            _ => Reach::Key(self.key.clone()),
        };
        Touched { keyspace: Arc::clone(&self.keyspace), what }
    }
}

/// The writes of a transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    pub(crate) index: Index,
    pub(crate) operations: Vec<Operation>,
    cost: Cost,
}

/// A place in the writes to go back to.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    index: Index,
    operations: usize,
    cost: Cost,
}

impl Writes {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.cost.bytes() + self.operations.len() * OPERATION_BYTES
    }

    /// Takes a write.
    ///
    /// # Errors
    /// `Invalid` when a batch could not hold them all, or the write is beyond a limit;
    /// `Unsupported` when the keyspace may hold no such entries.
    pub(crate) fn push(&mut self, operation: Operation) -> Result<()> {
        let Operation { keyspace, kind, key, value } = &operation;
        let cost = self.cost.with(Cost::of(keyspace, *kind, key, value)?);
        if !cost.fits() {
            let message =
                format!("a transaction of {} writes is larger than a batch", self.operations.len() + 1);
            return Err(Error::new(ErrorKind::Invalid, message).advice("write smaller transactions"));
        }
        self.cost = cost;
        match kind {
            EntryKind::RangeDelete => self.index.delete_range(keyspace.id, key, value),
            _ => self.index.write(keyspace.id, *kind, key, value),
        }
        self.operations.push(operation);
        Ok(())
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { index: self.index.clone(), operations: self.operations.len(), cost: self.cost }
    }

    pub(crate) fn go_back(&mut self, mark: &Mark) {
        self.index = mark.index.clone();
        self.operations.truncate(mark.operations);
        self.cost = mark.cost;
    }

    /// What they write, each key once as a rule.
    pub(crate) fn touched(&self) -> Vec<Touched> {
        let mut seen = BTreeSet::new();
        let mut touched = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            let is_range = operation.kind == EntryKind::RangeDelete;
            if is_range || seen.insert((operation.keyspace.id, &operation.key[..])) {
                touched.push(operation.touched());
            }
        }
        touched
    }

    /// The batch.
    pub(crate) fn to_prepared(&self) -> Prepared {
        let mut prepared = Prepared::default();
        for Operation { keyspace, kind, key, value } in &self.operations {
            prepared.push(keyspace, *kind, key, value);
        }
        prepared
    }
}

/// A stretch of keys that somebody went over.
#[derive(Clone, Debug)]
struct Stretch {
    keyspace: Arc<KeyspaceInfo>,
    range: KeyRange,
}

/// What a transaction rests on: keys and ranges that must be as they were at its snapshot.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    keys: BTreeMap<Place, Arc<KeyspaceInfo>>,
    stretches: Vec<Stretch>,
    bytes: usize,
    /// Grows with each of them.
    pub(crate) changes: u64,
}

impl Reads {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn add_key(&mut self, keyspace: &Arc<KeyspaceInfo>, key: &Bytes) {
        if self.keys.insert((keyspace.id, key.clone()), Arc::clone(keyspace)).is_none() {
            self.bytes += key.len() + READ_BYTES;
        }
        self.changes += 1;
    }

    fn bytes_of(range: &KeyRange) -> usize {
        let bytes = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        READ_BYTES + bytes(&range.lower) + bytes(&range.upper)
    }

    /// Adds a stretch; gives its number.
    pub(crate) fn add_range(&mut self, keyspace: &Arc<KeyspaceInfo>, range: KeyRange) -> usize {
        self.bytes += Reads::bytes_of(&range);
        self.changes += 1;
        self.stretches.push(Stretch { keyspace: Arc::clone(keyspace), range });
        self.stretches.len() - 1
    }

    /// Makes a stretch longer.
    pub(crate) fn extend(&mut self, number: usize, range: KeyRange) {
        if let Some(stretch) = self.stretches.get_mut(number) {
            self.bytes += Reads::bytes_of(&range);
            self.bytes -= Reads::bytes_of(&stretch.range);
            stretch.range = range;
        }
        self.changes += 1;
    }

    /// All of it.
    pub(crate) fn touched(&self) -> Vec<Touched> {
        let keys = self.keys.iter().map(|((_, key), keyspace)| Touched {
            keyspace: Arc::clone(keyspace),
            what: Reach::Key(key.clone()),
        });
        let stretches = self.stretches.iter().map(|stretch| Touched {
            keyspace: Arc::clone(&stretch.keyspace),
            what: Reach::Range(Arc::new(stretch.range.clone())),
        });
        keys.chain(stretches).collect()
    }
}

#[cfg(test)]
mod tests;
