//! What reads pay for runs that are not merged, held against what merging them would cost.
//!
//! `reads → read cost of the levels they looked into → the price is paid → compaction merges level 0`.
//! Many writes have level 0 merged by the number of its runs. Up to three runs are left when writes
//! rest, and every read pays for them: a get with a filter looked into, a seek with a search, each
//! step with a comparison. Nobody knows how many reads will come. Merging once they have cost as
//! much as the merge will takes at most twice the processor's time of the best choice, whichever
//! that turns out to be (the ski rental problem: Karlin et al., "Competitive snoopy caching",
//! 1988); LevelDB bounds seeks of a table by the same thought.
//!
//! Invariant: a read cost belongs to one set of tables. Whatever changes them, a flush too, begins
//! another one: where writes go on, they decide.
//!
//! Thread safety: reads add to it rarely, by samples, so that its cache line is not theirs to fight
//! for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tombolo_format::checksum::key_hash;

use super::Levels;
use crate::signal::Signal;

/// Nanoseconds of a filter that is looked into beyond the first: 2 million keys in three runs and
/// in one, `readmissing` by one thread, 0.26 and 0.14 µs.
const PROBE_NANOS: u64 = 60;
/// Nanoseconds of a search in a run beyond the first: the same, `seekrandom`, 4.3 and 2.0 µs.
const SEARCH_NANOS: u64 = 1000;
/// Nanoseconds that a step of a walk takes longer where several runs are walked as one: `readseq`.
const STEP_NANOS: u64 = 15;
/// Nanoseconds that a dead key takes which is stepped over: 3 million of them, each a delete over a
/// put, in 143 ms.
const DEAD_KEY_NANOS: u64 = 40;
/// Nanoseconds that merging a byte of a table takes, its decompression and compression included:
/// 147 MB of the same keys in 0.98 s, of which the processor worked half.
const MERGE_BYTE_NANOS: u64 = 5;
/// One in this many short reads is counted, as so many.
const SAMPLED_ONE_IN: u64 = 32;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ReadCost {
    /// What merging costs, in nanoseconds.
    price: u64,
    /// How many runs fewer a read looks into once they are merged; 0 when there is nothing to
    /// merge.
    saved: u64,
    /// Which keys are sampled: others in each set of tables, so that none is for long.
    salt: u64,
    paid: AtomicU64,
    /// Raised when the price is paid.
    work: Option<Arc<Signal>>,
}

impl ReadCost {
    /// Of levels that are complete otherwise.
    pub(super) fn new(levels: &Levels, work: &Arc<Signal>) -> ReadCost {
        let saved = levels.runs.len() - usize::from(levels.sorted.is_empty() && !levels.runs.is_empty());
        let Some(newest) = levels.runs.first().filter(|_| saved > 0) else { return ReadCost::default() };
        let entered: u64 = levels.runs.iter().map(|table| table.description().length).sum();
        let met = levels.sorted.first().map_or(0, |(_, run)| run.bytes());
        let price = entered.saturating_add(met).saturating_mul(MERGE_BYTE_NANOS).max(1);
        let salt = newest.description().name.random;
        ReadCost { price, saved: saved as u64, salt, paid: AtomicU64::new(0), work: Some(Arc::clone(work)) }
    }

    /// The same for levels of which some do not count: as much has been paid. Reads pay the other.
    pub(super) fn as_paid(&self) -> ReadCost {
        let paid = AtomicU64::new(self.paid.load(Ordering::Relaxed));
        ReadCost { price: self.price, saved: self.saved, salt: self.salt, paid, work: None }
    }

    /// Whether reads have paid what merging costs.
    pub(crate) fn is_paid(&self) -> bool {
        self.saved > 0 && self.paid.load(Ordering::Relaxed) >= self.price
    }

    /// Of the runs that a read looked into, those that it would not have looked into after the
    /// merge.
    #[inline]
    pub(crate) fn extra(&self, runs: u64) -> u64 {
        runs.saturating_sub(1).min(self.saved)
    }

    /// The key with this hash was looked for in so many runs.
    #[inline]
    pub(crate) fn looked_up(&self, hash: u64, runs: u64) {
        if (hash ^ self.salt).is_multiple_of(SAMPLED_ONE_IN) {
            self.pay(self.extra(runs) * PROBE_NANOS * SAMPLED_ONE_IN);
        }
    }

    /// Reads took `nanos` longer than after the merge.
    #[cold]
    pub(crate) fn pay(&self, nanos: u64) {
        let Some(work) = &self.work else { return };
        let before = self.paid.fetch_add(nanos, Ordering::Relaxed);
        if before < self.price && before.saturating_add(nanos) >= self.price {
            work.raise();
        }
    }
}

/// What one cursor has to pay, which it pays now and then.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// For runs that are not merged.
    runs: u64,
    /// For dead keys.
    dead: u64,
}

impl Owed {
    /// Paid as it is, in nanoseconds: far more than paying takes.
    const PAID_FROM: u64 = 8_000;

    /// A seek looked into `extra` runs more than after the merge.
    #[inline]
    pub(crate) fn searched(&mut self, extra: u64) {
        self.runs += extra * SEARCH_NANOS;
    }

    /// A step went over several runs.
    #[inline]
    pub(crate) fn stepped(&mut self) {
        self.runs += STEP_NANOS;
    }

    /// It stepped over so many dead keys. Those in memtables no merge takes away.
    pub(crate) fn passed_dead(&mut self, keys: u32, in_table: bool) {
        self.dead += if in_table { u64::from(keys) * DEAD_KEY_NANOS } else { 0 };
    }

    /// Whether something is to be paid; for the number of runs only if a read looks into more of
    /// them than after a merge.
    pub(crate) fn owes(&mut self, has_extra: bool) -> bool {
        self.runs = if has_extra { self.runs } else { 0 };
        self.runs + self.dead > 0
    }

    /// Whether it is time to pay.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.runs + self.dead >= Owed::PAID_FROM
    }

    /// Pays to `read_cost`. A cursor that ends with little pays a multiple or nothing, by the key
    /// at which it stands.
    pub(crate) fn settle(&mut self, read_cost: &ReadCost, key: &[u8]) {
        let Owed { runs, dead } = std::mem::take(self);
        let nanos = runs + dead;
        if nanos >= Owed::PAID_FROM {
            read_cost.pay(nanos);
        } else if nanos > 0 && (key_hash(key) ^ read_cost.salt).is_multiple_of(SAMPLED_ONE_IN) {
            read_cost.pay(nanos * SAMPLED_ONE_IN);
        }
    }
}

#[cfg(test)]
mod tests;
