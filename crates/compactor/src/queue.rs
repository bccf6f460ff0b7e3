//! Whose job runs next: pure.
//!
//! Databases whose writers are slowed come first. Among those, and among the others, the one that
//! was served the fewest bytes so far comes first, so that a database with much to compact does not
//! hold up the others. Of one database, the most urgent job comes first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tombolo::Urgency;

/// From here on writers are slowed.
const STALLED_PERCENT: u32 = 100;
/// Databases that are remembered.
const DATABASES_MAX: usize = 4096;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// By number, which rises.
    waiting: BTreeMap<u64, Urgency>,
    next: u64,
    running: usize,
    /// Bytes that each database was served.
    served: BTreeMap<u64, u64>,
}

impl Queue {
    /// Takes an offer; its number.
    pub(crate) fn offer(&mut self, urgency: Urgency) -> u64 {
        // One that comes, or comes back, begins where the others are: it has nothing saved up.
        let active = self.waiting.values().map(|other| other.database);
        let least = active.filter_map(|database| self.served.get(&database)).min().copied();
        let least = least.unwrap_or_else(|| self.served.values().max().copied().unwrap_or(0));
        if self.served.len() >= DATABASES_MAX && !self.served.contains_key(&urgency.database) {
            let waiting = &self.waiting;
            self.served.retain(|database, _| waiting.values().any(|other| other.database == *database));
        }
        let is_waiting = self.waiting.values().any(|other| other.database == urgency.database);
        let served = self.served.entry(urgency.database).or_insert(least);
        if !is_waiting {
            *served = (*served).max(least);
        }
        self.next += 1;
        self.waiting.insert(self.next, urgency);
        self.next
    }

    /// Takes an offer back.
    pub(crate) fn withdraw(&mut self, number: u64) {
        self.waiting.remove(&number);
    }

    /// A job has ended.
    pub(crate) fn ended(&mut self) {
        self.running -= 1;
    }

    /// The offer to permit next, if fewer than `jobs_max` jobs run: it runs from here on.
    pub(crate) fn permit(&mut self, jobs_max: usize) -> Option<u64> {
        if self.running >= jobs_max {
            return None;
        }
        let rank = |number: u64, urgency: &Urgency| {
            let served = self.served.get(&urgency.database).copied().unwrap_or(0);
            let is_stalled = urgency.stall_percent >= STALLED_PERCENT;
            (!is_stalled, served, Reverse((urgency.stall_percent, urgency.debt_bytes)), number)
        };
        let (number, urgency) =
            self.waiting.iter().min_by_key(|(number, urgency)| rank(**number, urgency))?;
        let (number, urgency) = (*number, *urgency);
        self.waiting.remove(&number);
        *self.served.entry(urgency.database).or_default() += urgency.bytes.max(1);
        self.running += 1;
        Some(number)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }
}

#[cfg(test)]
mod tests;
