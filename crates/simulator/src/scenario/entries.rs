//! What all know of an application's log, whose entries say which they are: those of an epoch are a
//! run without gaps, which holds all that was acknowledged as durable but not trimmed, until
//! they are released.

use std::collections::BTreeMap;

use crate::random::Random;

/// An epoch's entries, numbered from 1.
#[derive(Debug, Default)]
struct Entries {
    /// Appends that were begun: none has a higher number.
    begun: u64,
    durable: u64,
    /// Trims that were begun, and those that came to their end. Invariant: trimmed <= trimming <=
    /// durable.
    trimming: u64,
    trimmed: u64,
    /// The last entry that a later epoch has found.
    found: Option<u64>,
}

/// All epochs' entries.
#[derive(Debug, Default)]
pub(super) struct Log {
    epochs: BTreeMap<u64, Entries>,
    /// The newest epoch that has begun to release what those before it left.
    releasing: u64,
}

impl Log {
    /// What an entry holds.
    pub(super) fn payload(epoch: u64, number: u64, random: &mut Random) -> Vec<u8> {
        let mut payload = [epoch.to_be_bytes(), number.to_be_bytes()].concat();
        payload.resize(16 + random.index(600), 5);
        payload
    }

    /// Begins an append; the number that it gets.
    pub(super) fn begin(&mut self, epoch: u64) -> u64 {
        let entries = self.epochs.entry(epoch).or_default();
        entries.begun += 1;
        entries.begun
    }

    /// An entry was acknowledged as durable, however late.
    pub(super) fn acknowledged(&mut self, epoch: u64, number: u64) -> Result<(), String> {
        let entries = self.epochs.entry(epoch).or_default();
        entries.durable = number.max(entries.durable);
        match entries.found {
            Some(found) if found < number => Err(format!(
                "entry {number} of epoch {epoch} is acknowledged, and its successor found {found} entries"
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn trims(&mut self, epoch: u64, number: u64) {
        self.epochs.entry(epoch).or_default().trimming = number;
    }

    pub(super) fn trimmed(&mut self, epoch: u64, number: u64) {
        self.epochs.entry(epoch).or_default().trimmed = number;
    }

    /// An epoch begins to release the entries before it.
    pub(super) fn releases(&mut self, epoch: u64) {
        self.releasing = epoch.max(self.releasing);
    }

    /// Whether a later epoch may be releasing what `epoch` reads.
    pub(super) fn may_be_gone(&self, epoch: u64) -> bool {
        self.releasing > epoch
    }

    /// An epoch has read what those before it left: epoch, number and payload of each entry, in
    /// their order.
    pub(super) fn found(&mut self, reader: u64, entries: &[(u64, u64, Vec<u8>)]) -> Result<(), String> {
        for (epoch, number, payload) in entries {
            let says = [epoch.to_be_bytes(), number.to_be_bytes()].concat();
            if !payload.starts_with(&says) {
                return Err(format!(
                    "epoch {reader} found entry {number} of epoch {epoch}, which says otherwise"
                ));
            }
        }
        if !entries.is_sorted_by_key(|(epoch, number, _)| (*epoch, *number)) {
            return Err(format!("epoch {reader} found entries out of their order"));
        }
        let releasing = self.releasing;
        for (epoch, known) in self.epochs.range_mut(..reader) {
            let numbers: Vec<u64> =
                entries.iter().filter(|(of, ..)| of == epoch).map(|(_, number, _)| *number).collect();
            let (first, last) = (numbers.first().copied(), numbers.last().copied());
            // Released, or about to be.
            if *epoch < releasing && numbers.is_empty() {
                continue;
            }
            let first = first.unwrap_or(known.trimming + 1);
            let last = last.unwrap_or(known.trimming);
            let has_gaps = last + 1 - first != numbers.len() as u64;
            let is_right = !has_gaps
                && (known.trimmed + 1..=known.trimming + 1).contains(&first)
                && (known.durable..=known.begun).contains(&last);
            let is_same = known.found.is_none_or(|before| before == last);
            if !is_right || !is_same {
                return Err(format!(
                    "epoch {reader} found entries {first} to {last} of epoch {epoch}, {} of them: {known:?}",
                    numbers.len()
                ));
            }
            known.found = Some(last);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Log {
        let mut log = Log::default();
        for number in 1..=3 {
            assert_eq!(log.begin(4), number);
        }
        log.acknowledged(4, 2).unwrap();
        log
    }

    fn entries(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, u64, Vec<u8>)> {
        numbers.map(|number| (4, number, Log::payload(4, number, &mut Random::fixed(number, 1)))).collect()
    }

    #[test]
    fn entries_are_a_run_that_holds_all_durable_ones() {
        assert_eq!(told().found(9, &entries(1..=2)), Ok(()));
        assert_eq!(told().found(9, &entries(1..=3)), Ok(()));
        for wrong in [1..=1, 2..=3, 1..=4] {
            assert!(told().found(9, &entries(wrong.clone())).is_err(), "{wrong:?}");
        }
        let gap = [entries(1..=1), entries(3..=3)].concat();
        assert!(told().found(9, &gap).is_err());
        let mut log = told();
        log.found(9, &entries(1..=2)).unwrap();
        assert!(log.acknowledged(4, 3).is_err(), "too late");
        assert!(log.found(10, &entries(1..=3)).is_err(), "another length");
        let mut log = Log::default();
        (1..=3).for_each(|number| assert_eq!(log.begin(4), number));
        log.found(9, &entries(1..=3)).unwrap();
        assert!(log.found(10, &[]).is_err(), "none of what was there");
    }

    #[test]
    fn what_is_trimmed_or_released_may_be_gone() {
        let mut log = told();
        log.trims(4, 2);
        for there in [entries(1..=2), entries(2..=2), Vec::new()] {
            assert_eq!(log.found(9, &there), Ok(()));
        }
        log.trimmed(4, 2);
        assert!(log.found(9, &entries(1..=2)).is_err());
        assert!(told().found(9, &[]).is_err());
        let mut log = told();
        log.releases(9);
        assert_eq!(log.found(10, &[]), Ok(()));
    }
}
