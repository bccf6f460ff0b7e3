//! The range deletes of one keyspace in a memtable.
//!
//! Readers load an immutable state; the writer puts another one in its place, which shares all but
//! what changed. Ten thousand deletes that lie apart cost a writer a few microseconds each.
//!
//! The state has the newest delete over each key, which is the answer for nearly every reader. One
//! that looks from before that delete goes through all deletes, newest first.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tombolo_format::key::SequenceNumber;
use tombolo_format::ranges::{Covered, RangeSet, Stretch};

/// One range delete, behind the older ones.
#[derive(Debug)]
struct RangeDelete {
    number: SequenceNumber,
    /// The first key, and the key at which it ends, one after the other.
    keys: Box<[u8]>,
    from_bytes: usize,
    older: Option<Arc<RangeDelete>>,
}

impl Drop for RangeDelete {
    /// One after the other: they are too many for calls within calls.
    fn drop(&mut self) {
        let mut older = self.older.take();
        while let Some(mut next) = older.and_then(Arc::into_inner) {
            older = next.older.take();
        }
    }
}

impl RangeDelete {
    fn covered(&self) -> Covered<'_> {
        let (from, to) = self.keys.split_at(self.from_bytes);
        Covered { from, to, number: self.number }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Ranges(ArcSwapOption<MemtableRanges>);

impl Ranges {
    /// The deletes so far, if there are any.
    #[inline]
    pub(super) fn load(&self) -> Option<Arc<MemtableRanges>> {
        self.0.load_full()
    }

    /// [`MemtableRanges::covering`] of the deletes so far, without a count of references.
    #[inline]
    pub(super) fn covering(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        self.0.load().as_ref()?.covering(key, snapshot)
    }

    /// Adds one. One writer at a time. Gives the bytes that all take.
    pub(super) fn insert(&self, from: &[u8], to: &[u8], number: SequenceNumber) -> u64 {
        let mut ranges = self.0.load().as_deref().cloned().unwrap_or_default();
        ranges.insert(from, to, number);
        let bytes = ranges.bytes();
        self.0.store(Some(Arc::new(ranges)));
        bytes
    }
}

/// Some range deletes, which do not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemtableRanges {
    /// The newest over each key.
    newest: RangeSet,
    /// The one of the greatest number, and behind it all others.
    all: Option<Arc<RangeDelete>>,
    count: usize,
    /// Bytes of the keys in `all`.
    key_bytes: usize,
}

impl MemtableRanges {
    /// Adds one that is no older than all before.
    fn insert(&mut self, from: &[u8], to: &[u8], number: SequenceNumber) {
        self.newest.insert(from, to, number);
        let (keys, from_bytes) = ([from, to].concat().into(), from.len());
        self.all = Some(Arc::new(RangeDelete { number, keys, from_bytes, older: self.all.take() }));
        self.count += 1;
        self.key_bytes += from.len() + to.len();
    }

    /// The greatest number, at most `snapshot`, of a delete that covers `key`.
    #[inline]
    fn covering(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let newest = self.newest.covered(key)?.number;
        if newest <= snapshot { Some(newest) } else { self.covering_before(key, snapshot) }
    }

    #[cold]
    fn covering_before(&self, key: &[u8], snapshot: SequenceNumber) -> Option<SequenceNumber> {
        let seen = self.newest_first().skip_while(|covered| covered.number > snapshot);
        let mut covering = seen.filter(|covered| covered.from <= key && key < covered.to);
        covering.next().map(|covered| covered.number)
    }

    /// The answer for `key` as of `snapshot`, and the keys around it that have the same.
    pub(crate) fn stretch(&self, key: &[u8], snapshot: SequenceNumber) -> Stretch<'_> {
        let newest = self.newest.stretch(key);
        if newest.number.is_none_or(|number| number <= snapshot) {
            return newest;
        }
        let seen = self.newest_first().skip_while(|covered| covered.number > snapshot);
        seen.fold(Stretch { number: None, ..newest }, |stretch, Covered { from, to, number }| {
            stretch.with(match () {
                () if key < from => Stretch { to: Some(from), ..Stretch::default() },
                () if to <= key => Stretch { from: Some(to), ..Stretch::default() },
                () => Stretch { from: Some(from), to: Some(to), number: Some(number) },
            })
        })
    }

    /// All deletes, by descending number.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = Covered<'_>> {
        std::iter::successors(self.all.as_deref(), |delete| delete.older.as_deref()).map(RangeDelete::covered)
    }

    /// All deletes, by ascending number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Covered<'_>> {
        let mut all: Vec<_> = self.newest_first().collect();
        all.reverse();
        all.into_iter()
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> u64 {
        (self.newest.memory_bytes() + self.key_bytes + self.count * (size_of::<RangeDelete>() + 48)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_newest_delete_that_it_may_see() {
        let ranges = Ranges::default();
        assert!(ranges.load().is_none());
        for (from, to, number) in [("a", "z", 3), ("f", "k", 9), ("c", "g", 5)] {
            ranges.insert(from.as_bytes(), to.as_bytes(), SequenceNumber(number));
        }
        let covering = |key: &str, snapshot| {
            ranges.covering(key.as_bytes(), SequenceNumber(snapshot)).map(|number| number.0)
        };
        assert_eq!(covering("f", 10), Some(9));
        assert_eq!(covering("f", 8), Some(5));
        assert_eq!(covering("f", 4), Some(3));
        assert_eq!(covering("f", 2), None);
        assert_eq!(covering("k", 10), Some(3));
        assert_eq!(covering("z", 10), None);
        assert_eq!(ranges.load().expect("some").iter().count(), 3);
    }

    /// Each insert copies some ranges and not all.
    #[test]
    fn ten_thousand_are_put_in_and_found() {
        let ranges = Ranges::default();
        let key = |number: u64| format!("key-{number:010}");
        for number in 0..10_000 {
            let (from, to) = (key(number * 10), key(number * 10 + 4));
            ranges.insert(from.as_bytes(), to.as_bytes(), SequenceNumber(number + 1));
        }
        let found = ranges.covering(key(50_003).as_bytes(), SequenceNumber::MAX);
        assert_eq!(found, Some(SequenceNumber(5001)));
        assert_eq!(ranges.covering(key(50_004).as_bytes(), SequenceNumber::MAX), None);
        assert!(ranges.load().expect("some").bytes() < 4 << 20);
    }
}
