//! Which entries range deletes take away, and which range deletes somebody still needs.
//!
//! Snapshots cut all numbers into stripes ([`super::Retention`]). A reader that sees an entry sees
//! the newest of its stripe, and so a range delete of the stripe: the newest one over the key
//! decides.
//!
//! Invariants:
//! 1. An entry goes only by a range delete of its own stripe that is newer than it.
//! 2. Of a stripe, each key keeps the newest range delete over it; in the oldest stripe it goes
//!    where nothing at all lies below its range.

use tombolo_format::key::{SequenceNumber, Trailer};
use tombolo_format::manifest::TableDescription;
use tombolo_format::ranges::{Covered, RangeLayers, RangeSet};

/// The range deletes of a merge.
#[derive(Clone, Debug)]
pub(crate) struct Hiding {
    /// Ascending.
    snapshots: Vec<SequenceNumber>,
    /// By stripe, oldest first; as many as are needed.
    stripes: Vec<Stripe>,
}

#[derive(Clone, Debug, Default)]
struct Stripe {
    ranges: RangeSet,
    /// Before this key the last answer holds; `None`: there is no last answer.
    until: Option<Option<Vec<u8>>>,
    number: Option<SequenceNumber>,
}

impl Hiding {
    /// Of none so far, for who looks from `snapshots`, ascending, and from now on.
    pub(crate) fn new(snapshots: Vec<SequenceNumber>) -> Hiding {
        Hiding { snapshots, stripes: Vec::new() }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stripes.is_empty()
    }

    fn stripe_of(&self, number: SequenceNumber) -> usize {
        self.snapshots.partition_point(|snapshot| *snapshot < number)
    }

    /// Adds one.
    pub(crate) fn add(&mut self, range: Covered<'_>) {
        let stripe = self.stripe_of(range.number);
        if stripe >= self.stripes.len() {
            self.stripes.resize_with(stripe + 1, Stripe::default);
        }
        self.stripes[stripe].ranges.insert(range.from, range.to, range.number);
    }

    /// Whether nobody sees an entry for a range delete. Keys ascend from call to call.
    #[inline]
    pub(crate) fn hides(&mut self, key: &[u8], trailer: Trailer) -> bool {
        if self.is_empty() {
            return false;
        }
        let of = self.stripe_of(trailer.sequence());
        let Some(stripe) = self.stripes.get_mut(of) else { return false };
        let holds =
            stripe.until.as_ref().is_some_and(|until| until.as_deref().is_none_or(|until| key < until));
        if !holds {
            let stretch = stripe.ranges.stretch(key);
            stripe.until = Some(stretch.to.map(<[u8]>::to_vec));
            stripe.number = stretch.number;
        }
        stripe.number.is_some_and(|number| trailer.sequence() < number)
    }

    /// Whether nobody sees anything of a table for one range delete: it need not be read.
    pub(crate) fn hides_all(&self, table: &TableDescription) -> bool {
        let of = self.stripe_of(table.last_sequence);
        let Some(stripe) = self.stripes.get(of).filter(|_| self.stripe_of(table.first_sequence) == of) else {
            return false;
        };
        let covered = stripe.ranges.covered(&table.first_key);
        covered.is_some_and(|range| table.last_sequence < range.number && table.ends_before(range.to))
    }

    /// Those that are kept from `from` on and before `to`; `None` without bound. `is_bottom` is
    /// asked of ranges of the oldest stripe: whether nothing older lies anywhere else between two
    /// keys.
    pub(crate) fn kept(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        is_bottom: impl Fn(&[u8], &[u8]) -> bool,
    ) -> RangeLayers {
        let within = self.stripes.iter().map(|stripe| stripe.ranges.within(from, to));
        let mut sets: Vec<RangeSet> = within.collect();
        if let Some(oldest) = sets.first_mut() {
            let needed: Vec<_> = oldest.iter().filter(|range| !is_bottom(range.from, range.to)).collect();
            *oldest = RangeSet::of_ascending(&needed);
        }
        RangeLayers::of_stripes(sets)
    }
}

#[cfg(test)]
mod tests {
    use tombolo_format::key::EntryKind;

    use super::*;

    fn hiding(snapshots: &[u64], ranges: &[(&str, &str, u64)]) -> Hiding {
        let mut hiding = Hiding::new(snapshots.iter().map(|number| SequenceNumber(*number)).collect());
        for (from, to, number) in ranges {
            let number = SequenceNumber(*number);
            hiding.add(Covered { from: from.as_bytes(), to: to.as_bytes(), number });
        }
        hiding
    }

    fn put(number: u64) -> Trailer {
        Trailer::new(SequenceNumber(number), EntryKind::Put)
    }

    fn listed(ranges: &RangeLayers) -> Vec<(String, String, u64)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        ranges.iter().map(|range| (text(range.from), text(range.to), range.number.0)).collect()
    }

    #[test]
    fn an_entry_goes_by_a_newer_range_delete_of_its_stripe_alone() {
        let mut hiding = hiding(&[5], &[("a", "m", 4), ("c", "z", 9)]);
        assert!(hiding.hides(b"a", put(3)));
        assert!(!hiding.hides(b"a", put(4)), "strictly older ones only");
        assert!(!hiding.hides(b"a", put(6)), "not covered in its stripe");
        assert!(hiding.hides(b"c", put(8)));
        assert!(!hiding.hides(b"c", put(10)));
        assert!(!hiding.hides(b"m", put(3)), "a snapshot at 5 sees it");
        assert!(hiding.hides(b"m", put(6)));
        assert!(!hiding.hides(b"z", put(6)));
    }

    #[test]
    fn of_each_stripe_the_newest_is_kept_and_at_the_bottom_the_oldest_goes() {
        let hiding = hiding(&[5], &[("a", "m", 4), ("b", "c", 3), ("c", "z", 9)]);
        let (a, c) = (("a".to_owned(), "m".to_owned(), 4), ("c".to_owned(), "z".to_owned(), 9));
        assert_eq!(listed(&hiding.kept(None, None, |_, _| false)), [c.clone(), a]);
        assert_eq!(listed(&hiding.kept(None, None, |_, _| true)), [c]);
        let part = hiding.kept(Some(b"d"), Some(b"f"), |_, _| false);
        let expected =
            [("d", "f", 9), ("d", "f", 4)].map(|(from, to, n)| (from.to_owned(), to.to_owned(), n));
        assert_eq!(listed(&part), expected);
    }
}
