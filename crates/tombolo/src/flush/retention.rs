//! Which versions of a key somebody can still see.

use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};

/// Decides for entries that come in the order of internal keys.
///
/// The sequence numbers that snapshots look from cut all numbers into stripes; of a key, only the
/// newest version of each stripe is seen.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Ascending.
    snapshots: Vec<SequenceNumber>,
    key: Vec<u8>,
    /// The stripe of the last version kept of `key`; `None` before the first.
    stripe: Option<usize>,
}

impl Retention {
    /// For readers that look from `snapshots`, ascending, and from now on.
    pub(crate) fn new(snapshots: Vec<SequenceNumber>) -> Retention {
        Retention { snapshots, key: Vec::new(), stripe: None }
    }

    /// Whether `key` is another than that of the entry before.
    pub(crate) fn is_new(&self, key: &[u8]) -> bool {
        self.stripe.is_none() || self.key != key
    }

    /// Whether the next entry is kept. `is_bottom` is asked of deletes that all see: whether
    /// nothing older of the key lies anywhere else.
    #[inline]
    pub(crate) fn keeps(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        if self.is_new(key) {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.stripe = None;
        }
        let stripe = match self.snapshots.len() {
            0 => 0,
            _ => self.snapshots.partition_point(|snapshot| *snapshot < trailer.sequence()),
        };
        if self.stripe == Some(stripe) {
            return false;
        }
        self.stripe = Some(stripe);
        // In the oldest stripe, a delete says what absence says as well.
        !(stripe == 0 && trailer.kind() == Some(EntryKind::Delete) && is_bottom(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(snapshots: &[u64], bottom: bool, entries: &[(&str, u64, EntryKind)]) -> Vec<(String, u64)> {
        let snapshots = snapshots.iter().map(|sequence| SequenceNumber(*sequence)).collect();
        let mut retention = Retention::new(snapshots);
        let keep = |(key, sequence, kind): &&(&str, u64, EntryKind)| {
            retention.keeps(key.as_bytes(), Trailer::new(SequenceNumber(*sequence), *kind), |_| bottom)
        };
        let mut keep = keep;
        entries
            .iter()
            .filter(|entry| keep(entry))
            .map(|(key, sequence, _)| ((*key).to_owned(), *sequence))
            .collect()
    }

    #[test]
    fn each_stripe_keeps_its_newest() {
        use EntryKind::{Delete, Put};
        let entries =
            [("a", 9, Put), ("a", 7, Put), ("a", 5, Delete), ("a", 3, Put), ("b", 2, Put), ("b", 1, Put)];
        let pairs = |list: &[(&str, u64)]| {
            list.iter().map(|(key, sequence)| ((*key).to_owned(), *sequence)).collect::<Vec<_>>()
        };
        assert_eq!(kept(&[], false, &entries), pairs(&[("a", 9), ("b", 2)]));
        assert_eq!(kept(&[7], false, &entries), pairs(&[("a", 9), ("a", 7), ("b", 2)]));
        assert_eq!(kept(&[5, 6, 8], false, &entries), pairs(&[("a", 9), ("a", 7), ("a", 5), ("b", 2)]));
        assert_eq!(kept(&[1, 3], false, &entries), pairs(&[("a", 9), ("a", 3), ("b", 2), ("b", 1)]));
    }

    #[test]
    fn at_the_bottom_a_delete_that_all_see_goes() {
        use EntryKind::{Delete, Put};
        assert_eq!(kept(&[], true, &[("a", 5, Delete), ("a", 3, Put)]), []);
        assert_eq!(
            kept(&[4], true, &[("a", 5, Delete), ("a", 3, Put)]),
            [("a".to_owned(), 5), ("a".to_owned(), 3)]
        );
        assert_eq!(kept(&[5], true, &[("a", 5, Delete), ("a", 3, Put)]), []);
    }
}
