//! A compaction filter that decides much and changes nothing.

use tombolo::{CompactionFilter, FilterDecision, FilterEntry, FilterJob, FilterName, JobFilter};

/// Its name in settings is `same@1`.
const NAME: &str = "same";

/// Puts every value in its own place, those that lie apart too, and at flushes as well.
pub(super) struct Same;

impl Same {
    pub(super) fn name() -> tombolo::Result<FilterName> {
        FilterName::new(NAME, 1)
    }
}

impl CompactionFilter for Same {
    fn begin(&self, _job: &FilterJob) -> Option<Box<dyn JobFilter>> {
        Some(Box::new(|entry: &FilterEntry<'_>| {
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
