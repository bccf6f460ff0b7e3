//! Tables in other stores, and what has gone cold.

use std::sync::Arc;

use tombolo_format::cold::{Aged, ColdStore};

use super::super::ages;
use super::{EditError, State, refuse};

impl State {
    /// The cold stores in which tables may lie.
    pub fn cold_stores(&self) -> impl Iterator<Item = &ColdStore> {
        self.cold.values()
    }

    /// The cold store into which this database writes.
    pub fn own_cold_store(&self) -> Option<&ColdStore> {
        self.cold.values().find(|cold| cold.is_own)
    }

    /// By when everything of a stream up to a number was written; both ascend.
    pub fn ages(&self, stream: u32) -> &[Aged] {
        self.ages.get(&stream).map_or(&[], Vec::as_slice)
    }

    pub(super) fn name_cold_store(&mut self, cold: &ColdStore) -> Result<(), EditError> {
        let stores = Arc::make_mut(&mut self.cold);
        if cold.is_own {
            stores.values_mut().for_each(|other| other.is_own = false);
        }
        stores.insert(cold.id, cold.clone());
        Ok(())
    }

    pub(super) fn add_age(&mut self, stream: u32, aged: Aged) -> Result<(), EditError> {
        let samples = Arc::make_mut(&mut self.ages).entry(stream).or_default();
        let is_after = |last: &Aged| last.sequence < aged.sequence && last.unix_seconds <= aged.unix_seconds;
        if !samples.last().is_none_or(is_after) {
            return refuse(format!("{aged:?} comes after {:?}", samples.last()));
        }
        ages::add(samples, aged);
        Ok(())
    }
}
