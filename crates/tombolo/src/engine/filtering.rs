//! Jobs that ask a compaction filter.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Background, Engine};
use crate::event::Event;
use crate::filter::Filtered;
use crate::resolve::Moments;

/// A job that takes away what a filter says, until what it made is seen: see
/// [`super::Snapshots::begin_filtering`].
pub(crate) struct FilteringJob(Arc<Engine>);

impl fmt::Debug for FilteringJob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FilteringJob")
    }
}

impl FilteringJob {
    /// Begins with one: with what [`Background::moments`] says.
    pub(crate) fn begin(engine: &Arc<Engine>) -> (Moments, Arc<FilteringJob>) {
        let settled_ms = engine.time.settled();
        let snapshots = engine.snapshots.begin_filtering();
        (Moments { snapshots, settled_ms }, Arc::new(FilteringJob(Arc::clone(engine))))
    }
}

impl Drop for FilteringJob {
    fn drop(&mut self) {
        self.0.snapshots.end_filtering();
    }
}

impl Background {
    /// Counts what a filter did at a job on a keyspace. That it failed is said once.
    pub(crate) fn note_filtered(&self, keyspace: u32, filtered: &Filtered) {
        let counters = &self.counters;
        counters.filter_dropped.fetch_add(filtered.dropped, Ordering::Relaxed);
        counters.filter_replaced.fetch_add(filtered.replaced, Ordering::Relaxed);
        counters.filter_failed.fetch_add(filtered.failed, Ordering::Relaxed);
        if let Some(error) = &filtered.trouble {
            self.filter_failed(keyspace, error);
        }
    }

    /// A job begins on a keyspace. Whether its filter is missing is said once.
    pub(crate) fn note_missing_filter(&self, keyspace: u32) {
        let filter = self.catalog.by_id(keyspace).and_then(|keyspace| keyspace.filter());
        if let Some(filter) = filter.filter(|filter| !filter.is_there()) {
            self.counters.filter_missing.fetch_add(1, Ordering::Relaxed);
            self.filter_failed(keyspace, &filter.missing());
        }
    }

    #[cold]
    fn filter_failed(&self, keyspace: u32, error: &tombolo_storage::Error) {
        if self.catalog.by_id(keyspace).is_some_and(|keyspace| keyspace.note_filter_failed()) {
            tracing::warn!(keyspace, %error, "entries that a compaction filter did not decide of are kept");
            self.events.tell(|| Event::FilterFailed { keyspace, error: error.clone() });
        }
    }
}
