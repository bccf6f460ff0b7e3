//! A compaction filter that decides much and changes nothing, but what it is told to drop.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{CompactionFilter, FilterDecision, FilterEntry, FilterJob, FilterName, JobFilter};

/// Its name in settings is `same@1`.
const NAME: &str = "same";

/// A keyspace's number, and from which key to which its entries go.
type Part = (u32, Vec<u8>, Vec<u8>);

/// Puts every value in its own place, those that lie apart too, and at flushes as well.
#[derive(Clone, Default)]
pub(super) struct Same {
    /// What it drops now.
    pub(super) drops: Arc<Mutex<Option<Part>>>,
}

impl Same {
    pub(super) fn name() -> tombolo::Result<FilterName> {
        FilterName::new(NAME, 1)
    }
}

impl CompactionFilter for Same {
    fn begin(&self, job: &FilterJob) -> Option<Box<dyn JobFilter>> {
        let drops = self.drops.lock().clone().filter(|(keyspace, ..)| *keyspace == job.keyspace);
        Some(Box::new(move |entry: &FilterEntry<'_>| {
            let is_in = |(_, from, to): &Part| from[..] <= *entry.key && *entry.key < to[..];
            if drops.as_ref().is_some_and(is_in) {
                return Ok(FilterDecision::Drop);
            }
            Ok(match entry.value {
                Some(value) => FilterDecision::Replace(value.to_vec()),
                None => FilterDecision::NeedsValue,
            })
        }))
    }

    fn filters_flushes(&self) -> bool {
        true
    }
}
