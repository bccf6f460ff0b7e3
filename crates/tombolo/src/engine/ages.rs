//! What has gone cold: the sequence numbers up to which everything was written before an age.
//!
//! Samples of a number and a time are part of the records of flushes, where some keyspace asks for
//! them. The clock that they are compared with goes on at the pace of the one that does not jump,
//! from where the host's clock stood when the database was opened: a clock that jumps meanwhile
//! changes nothing, and one that was wrong then costs money, and no answer.

use std::time::Duration;

use tombolo_format::cold::Aged;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::Edit;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::{Background, KeyspaceInfo, steady_ms};
use crate::manifest::written_by;

/// An age is told to one in so many parts of it.
const PARTS: u32 = 32;

/// How far samples lie apart, in seconds.
fn step(shortest: Duration) -> u64 {
    (shortest / PARTS).as_secs().max(1)
}

impl Background {
    /// Whether what has gone cold of a keyspace goes into a cold store.
    pub(crate) fn is_cold(&self, keyspace: &KeyspaceInfo) -> bool {
        keyspace.options().cold_after.is_some() && self.manifest.state().own_cold_store().is_some()
    }

    /// Seconds since the Unix epoch, by a clock that does not jump while the database is open.
    fn aging_now(&self) -> u64 {
        let (host_ms, steady) = self.opened_at;
        (host_ms + steady_ms(&self.env).saturating_sub(steady)) / 1000
    }

    /// The number up to which everything of a keyspace has gone cold; 0 where nothing has.
    pub(crate) fn cold_up_to(&self, keyspace: &KeyspaceInfo) -> SequenceNumber {
        let Some(age) = keyspace.options().cold_after else { return SequenceNumber::ZERO };
        let state = self.manifest.state();
        let before = self.aging_now().checked_sub(age.as_secs());
        let recorded = before.and_then(|before| written_by(state.ages(self.stream_id()), before));
        let last = self.last_aged().filter(|last| before.is_some_and(|before| last.unix_seconds <= before));
        let cold = recorded.max(last.map(|last| last.sequence));
        let unknown = if is_enabled(Mutant::UnknownAgeIsCold) { SequenceNumber::MAX.0 } else { 0 };
        SequenceNumber(cold.unwrap_or(unknown))
    }

    /// The ages at which something goes cold.
    fn cold_ages(&self) -> Vec<Duration> {
        if self.manifest.state().own_cold_store().is_none() {
            return Vec::new();
        }
        self.catalog.all().iter().filter_map(|keyspace| keyspace.options().cold_after).collect()
    }

    /// What the record of a flush is to say, if some keyspace has an age: everything up to
    /// `sequence` is written by now. Samples lie some time apart. The last one that was passed over
    /// is said with the next: so what comes after a pause is told from what came before.
    pub(crate) fn age_samples(&self, sequence: SequenceNumber) -> Vec<Edit> {
        let Some(shortest) = self.cold_ages().into_iter().min() else { return Vec::new() };
        let mut last = self.manifest.state().ages(self.stream_id()).last().copied();
        let now = Aged { sequence: sequence.0, unix_seconds: self.aging_now() };
        let before = self.last_aged.lock().replace(now).or_else(|| self.aged_at_opening());
        let mut edits = Vec::new();
        for mut aged in before.into_iter().chain([now]) {
            aged.unix_seconds = aged.unix_seconds.max(last.map_or(0, |last| last.unix_seconds));
            let is_pause =
                aged == now || aged.unix_seconds.saturating_add(step(shortest)) <= now.unix_seconds;
            let is_due = last.is_none_or(|last| {
                last.sequence < aged.sequence
                    && (aged != now || last.unix_seconds.saturating_add(step(shortest)) <= aged.unix_seconds)
            });
            if is_pause && is_due && aged.sequence > 0 {
                edits.push(Edit::Aged { stream: self.stream_id(), aged });
                last = Some(aged);
            }
        }
        edits
    }

    /// What was in tables when the database was opened, which was written by then.
    fn aged_at_opening(&self) -> Option<Aged> {
        let (unix_ms, _) = self.opened_at;
        (self.opened_with > 0).then_some(Aged { sequence: self.opened_with, unix_seconds: unix_ms / 1000 })
    }

    /// The last that was flushed, and by when, whether or not a record says it.
    fn last_aged(&self) -> Option<Aged> {
        let last = *self.last_aged.lock();
        last.or_else(|| self.aged_at_opening())
    }

    /// When to look again whether something has gone cold; `None` where nothing is hot.
    pub(crate) fn cold_again(&self) -> Option<Duration> {
        let ages = self.cold_ages();
        let (shortest, longest) = (ages.iter().min()?, ages.iter().max()?);
        let newest = self.last_aged()?.unix_seconds;
        let is_all_cold = newest.saturating_add(longest.as_secs()) < self.aging_now();
        (!is_all_cold).then(|| Duration::from_secs(step(*shortest)))
    }
}
