//! Compaction filters: code of the program that says which entries compaction keeps.
//!
//! A keyspace names its filter in its settings, with a version
//! ([`crate::KeyspaceOptions::compaction_filter`]); a database is opened with filters by name and
//! version ([`crate::Builder::compaction_filter`]).
//!
//! Invariants:
//! 1. A filter that panics, fails or is not there takes nothing away: entries are kept, which is
//!    said once.
//! 2. It is asked of an entry that no snapshot sees, and of the newest of its key in the job alone.

mod name;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::expiry::{EXPIRY_BYTES, join_expiring, split_expiring};
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer, VALUE_BYTES_MAX};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind};

pub use name::FilterName;

/// Why a filter cannot decide: the entry is kept.
pub type FilterError = Box<dyn std::error::Error + Send + Sync>;

/// What a compaction filter begins with: a compaction, one of the parts of a large one, or a flush.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FilterJob {
    /// The keyspace's number ([`crate::Keyspace::id`]).
    pub keyspace: u32,
    /// The level that is written to; 0 of a flush.
    pub level: u8,
    /// It is a flush: entries come out of memory.
    pub is_flush: bool,
    /// Somebody asked for it ([`crate::Keyspace::compact_range`], [`crate::Db::compact`]).
    pub is_asked: bool,
    /// When the oldest of the data was written, in seconds since the Unix epoch; `None` of a flush.
    pub oldest_unix_seconds: Option<u64>,
    /// The database's time at its beginning ([`crate::Db::time_ms`]). A clock that ran ahead can
    /// be in it, which the database's own expiry waits out: a filter that drops by time leaves a
    /// margin, as what it drops is gone.
    pub time_ms: u64,
}

/// An entry that a compaction filter decides of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FilterEntry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value; `None` where that lies apart ([`crate::KeyspaceOptions::separate_bytes`]) and was
    /// not asked for yet: [`FilterDecision::NeedsValue`].
    pub value: Option<&'a [u8]>,
    /// The number of the write that made it.
    pub sequence: u64,
    /// When it expires, in milliseconds of the database's time. It has not yet, or not for long.
    pub expires_ms: Option<u64>,
}

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// It stays.
    Keep,
    /// The key has no value from now on. Older versions of it never come back.
    Drop,
    /// It has this value from now on, under the number and with the end that it had.
    Replace(Vec<u8>),
    /// The value lies apart, and the decision needs it: the filter is asked again, with it. One
    /// request, which no decision by the key costs.
    NeedsValue,
}

/// A compaction filter: makes a [`JobFilter`] for each job, of which several run at once.
///
/// What it decides must hold whenever it is asked, as often as it is, or never: compaction comes to
/// an entry some day, on no schedule, and a job that failed comes to it again. Where that must be
/// soon, [`crate::Keyspace::compact_range`] offers every entry of a range.
///
/// A filter sees values as they are written: neither deletes, nor merge operands that are not
/// folded yet, nor what some snapshot sees. It may be given a value that is overwritten, or under
/// operands, in tables or memory that the job does not take.
pub trait CompactionFilter: Send + Sync + 'static {
    /// Begins with a job. `None`: nothing of it is filtered.
    fn begin(&self, job: &FilterJob) -> Option<Box<dyn JobFilter>>;

    /// Whether flushes are filtered, too. By default they are not: a flush should be fast, and most
    /// of what it writes is young.
    fn filters_flushes(&self) -> bool {
        false
    }
}

/// A compaction filter at one job: its entries come in the order of their keys. Any closure that is
/// given an entry and answers is one.
pub trait JobFilter: Send {
    /// Decides of the next entry.
    ///
    /// # Errors
    /// Why it cannot: the entry is kept, and the job goes on.
    fn decide(&mut self, entry: &FilterEntry<'_>) -> Result<FilterDecision, FilterError>;
}

impl<F> JobFilter for F
where
    F: FnMut(&FilterEntry<'_>) -> Result<FilterDecision, FilterError> + Send,
{
    fn decide(&mut self, entry: &FilterEntry<'_>) -> Result<FilterDecision, FilterError> {
        self(entry)
    }
}

/// The compaction filters that a database was opened with.
#[derive(Clone, Default)]
pub(crate) struct Filters(BTreeMap<FilterName, Arc<dyn CompactionFilter>>);

impl fmt::Debug for Filters {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Filters {
    /// Adds one, or puts it in the place of another.
    pub(crate) fn insert(&mut self, name: FilterName, filter: Arc<dyn CompactionFilter>) {
        self.0.insert(name, filter);
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &FilterName> {
        self.0.keys()
    }

    /// The filter of a keyspace, as far as it is there.
    pub(crate) fn named(&self, name: &FilterName) -> NamedFilter {
        let filter = self.0.get(name).cloned();
        let others = || self.0.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let others = if filter.is_none() { others() } else { String::new() };
        NamedFilter { name: name.clone(), filter, others }
    }
}

/// The filter that a keyspace names.
#[derive(Clone)]
pub(crate) struct NamedFilter {
    name: FilterName,
    filter: Option<Arc<dyn CompactionFilter>>,
    /// Those that are there where it is not.
    others: String,
}

impl fmt::Debug for NamedFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.name)
    }
}

impl NamedFilter {
    /// Whether the database was opened with it.
    pub(crate) fn is_there(&self) -> bool {
        self.filter.is_some()
    }

    /// Why nothing is filtered.
    #[cold]
    pub(crate) fn missing(&self) -> Error {
        let message = format!("compaction filter {} is not there: nothing is filtered", self.name);
        Error::new(ErrorKind::Unsupported, message)
            .found(if self.others.is_empty() { "no filter" } else { &self.others })
            .advice("open the database with Builder::compaction_filter, with that name and version")
    }

    /// Whether it is there, and filters flushes.
    pub(crate) fn filters_flushes(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| {
            catch_unwind(AssertUnwindSafe(|| filter.filters_flushes())).unwrap_or(false)
        })
    }

    /// Begins with a job, for who sees nothing newer than `newest_snapshot`.
    pub(crate) fn begin(&self, job: &FilterJob, newest_snapshot: Option<SequenceNumber>) -> Filtering {
        let begun = self.filter.as_ref().map(|filter| catch_unwind(AssertUnwindSafe(|| filter.begin(job))));
        let mut filtering =
            Filtering { name: self.name.clone(), newest_snapshot, one: None, filtered: Filtered::default() };
        match begun {
            None => {}
            Some(Ok(one)) => filtering.one = one,
            Some(Err(_)) => filtering.panicked(),
        }
        filtering
    }
}

/// What a filter did at one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filtered {
    pub(crate) dropped: u64,
    pub(crate) replaced: u64,
    /// Entries that were kept as the filter did not decide.
    pub(crate) failed: u64,
    /// What it failed with first.
    pub(crate) trouble: Option<Error>,
}

impl Filtered {
    /// Adds what another part of the job did.
    pub(crate) fn add(&mut self, other: Filtered) {
        self.dropped += other.dropped;
        self.replaced += other.replaced;
        self.failed += other.failed;
        self.trouble = self.trouble.take().or(other.trouble);
    }
}

/// What becomes of an entry that was offered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It is kept as it is.
    Kept,
    /// Nothing of it stays.
    Dropped,
    /// Another takes its place.
    Changed(Trailer, Bytes),
    /// Its value lies apart, and is to be offered with it.
    NeedsValue,
}

/// A filter at one job, or none.
pub(crate) struct Filtering {
    name: FilterName,
    newest_snapshot: Option<SequenceNumber>,
    /// `None`: it filters nothing of this job, or no more after a panic.
    one: Option<Box<dyn JobFilter>>,
    filtered: Filtered,
}

impl Filtering {
    /// What it did, once the job has ended.
    pub(crate) fn finish(self) -> Filtered {
        self.filtered
    }

    /// Takes note of why an entry is kept that it did not decide of.
    #[cold]
    pub(crate) fn failed(&mut self, error: Error) {
        self.filtered.failed += 1;
        self.filtered.trouble.get_or_insert(error);
    }

    fn failure(&self, why: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Unsupported, format!("compaction filter {} {why}", self.name))
            .advice("mend the filter: what it does not decide of is kept")
    }

    /// What its state is now nobody knows: it is not asked again in this job.
    #[cold]
    fn panicked(&mut self) {
        self.one = None;
        let error = self.failure("panicked");
        self.failed(error);
    }

    /// Offers the newest entry of a key in this job. `fetched` is the value of one that lies apart,
    /// once it was asked for; `is_bottom` says whether nothing older of the key lies anywhere else.
    pub(crate) fn offer(
        &mut self,
        entry: InternalKey<'_>,
        value: &[u8],
        fetched: Option<&[u8]>,
        is_bottom: impl FnOnce(&[u8]) -> bool,
    ) -> Offered {
        let InternalKey { user_key: key, trailer } = entry;
        let is_seen = self.newest_snapshot.is_some_and(|snapshot| trailer.sequence() <= snapshot)
            && !is_enabled(Mutant::FilterIgnoresSnapshots);
        if is_seen {
            return Offered::Kept;
        }
        let (value, expires_ms) = match trailer.kind() {
            Some(EntryKind::Put) => (Some(value), None),
            Some(EntryKind::SeparatedPut) => (fetched, None),
            Some(EntryKind::ExpiringPut) => match split_expiring(value) {
                Ok((value, expires_ms)) => (Some(value), Some(expires_ms)),
                Err(_) => return Offered::Kept,
            },
            Some(EntryKind::SeparatedExpiringPut) => match split_expiring(value) {
                Ok((_, expires_ms)) => (fetched, Some(expires_ms)),
                Err(_) => return Offered::Kept,
            },
            _ => return Offered::Kept,
        };
        match self.decide(&FilterEntry { key, value, sequence: trailer.sequence().0, expires_ms }) {
            FilterDecision::Keep => Offered::Kept,
            FilterDecision::NeedsValue => Offered::NeedsValue,
            FilterDecision::Drop => {
                self.filtered.dropped += 1;
                // What snapshots see of the key is older, and stays below.
                let is_last = self.newest_snapshot.is_none() && is_bottom(key);
                if is_last || is_enabled(Mutant::FilterDropsOverOlder) {
                    return Offered::Dropped;
                }
                Offered::Changed(Trailer::new(trailer.sequence(), EntryKind::Delete), Bytes::new())
            }
            FilterDecision::Replace(value) => {
                self.filtered.replaced += 1;
                let (kind, value) = match expires_ms {
                    Some(expires_ms) => (EntryKind::ExpiringPut, join_expiring(&value, expires_ms)),
                    None => (EntryKind::Put, value),
                };
                Offered::Changed(Trailer::new(trailer.sequence(), kind), value.into())
            }
        }
    }

    /// Asks the filter. What it cannot decide of is kept.
    fn decide(&mut self, entry: &FilterEntry<'_>) -> FilterDecision {
        let Some(one) = &mut self.one else { return FilterDecision::Keep };
        let bytes_max = VALUE_BYTES_MAX - entry.expires_ms.map_or(0, |_| EXPIRY_BYTES);
        let why = match catch_unwind(AssertUnwindSafe(|| one.decide(entry))) {
            Ok(Ok(FilterDecision::NeedsValue)) if entry.value.is_some() => {
                "asks for a value that it has".to_owned()
            }
            Ok(Ok(FilterDecision::Replace(value))) if value.len() > bytes_max => {
                format!("makes a value of {} bytes; at most {bytes_max}", value.len())
            }
            Ok(Ok(decision)) => return decision,
            Ok(Err(error)) => format!("cannot decide: {error}"),
            Err(_) => {
                self.panicked();
                return FilterDecision::Keep;
            }
        };
        let error = self.failure(why);
        self.failed(error);
        FilterDecision::Keep
    }
}

#[cfg(test)]
mod tests;
