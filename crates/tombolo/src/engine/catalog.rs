//! The keyspaces of an open database, as writes and reads find them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::RwLock;
use tombolo_format::key::{EntryKind, kind_name};
use tombolo_storage::{Error, ErrorKind, LogOffset, Result};

use super::dead_runs::DeadRuns;
use crate::filter::{Filters, NamedFilter};
use crate::operator::Operators;
use crate::options::{KeyspaceOptions, ttl_ms};
use crate::resolve::Judge;

/// What the names of keyspaces begin with that are the database's own.
pub(crate) const OWN_NAMES: &str = "tombolo.";

/// Whether a keyspace of this name is the database's own.
pub(crate) fn is_own_name(name: &str) -> bool {
    name.starts_with(OWN_NAMES)
}

/// A keyspace.
#[derive(Debug)]
pub(crate) struct KeyspaceInfo {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
    /// The stream that orders its writes.
    pub(crate) stream: u32,
    /// Where the main log ended with its creation, and that log's lane: of one that is of another
    /// stream, and that this process has made.
    created: OnceLock<(u32, LogOffset)>,
    options: ArcSwap<KeyspaceOptions>,
    /// That of `options`, for reads: one load.
    value_alignment: AtomicU16,
    /// Feature bits of the entries that may be written to it.
    features: AtomicU64,
    /// That of `options` in milliseconds, for writes; 0: none.
    ttl_ms: AtomicU64,
    dropped: AtomicBool,
    /// The catalog that it is in; not set before.
    catalog: OnceLock<Arc<Shared>>,
    /// That of `options`, once the catalog's operators are known.
    judge: ArcSwap<Judge>,
    /// An operator failed on it, which was said.
    merge_failed: AtomicBool,
    /// The compaction filter that `options` name, once the catalog's are known.
    filter: ArcSwapOption<NamedFilter>,
    /// The filter failed on it, or is not there, which was said.
    filter_failed: AtomicBool,
    /// It has had a filter that is there: jobs may go on that ask one which it names no more.
    was_filtered: AtomicBool,
    /// Its settings are about to let compaction have its last level.
    ends_behind: AtomicBool,
}

impl KeyspaceInfo {
    /// One of which the log or the manifest says these feature bits.
    pub(crate) fn new(id: u32, name: &str, options: KeyspaceOptions, features: u64) -> Arc<KeyspaceInfo> {
        Arc::new(KeyspaceInfo {
            id,
            name: name.into(),
            stream: options.stream,
            created: OnceLock::new(),
            value_alignment: AtomicU16::new(options.value_alignment),
            ttl_ms: AtomicU64::new(options.ttl.map_or(0, ttl_ms)),
            options: ArcSwap::from_pointee(options),
            features: AtomicU64::new(features),
            dropped: AtomicBool::new(false),
            catalog: OnceLock::new(),
            judge: ArcSwap::default(),
            merge_failed: AtomicBool::new(false),
            filter: ArcSwapOption::empty(),
            filter_failed: AtomicBool::new(false),
            was_filtered: AtomicBool::new(false),
            ends_behind: AtomicBool::new(false),
        })
    }

    /// In the commit section: its creation is in the main log, up to there.
    pub(crate) fn set_created(&self, lane: u32, end: LogOffset) {
        let _first = self.created.set((lane, end));
    }

    /// Where the main log must be durable before anybody may write to it; `None`: nowhere.
    pub(crate) fn created(&self) -> Option<(u32, LogOffset)> {
        self.created.get().copied()
    }

    /// What tables made from now on follow.
    pub(crate) fn options(&self) -> Arc<KeyspaceOptions> {
        self.options.load_full()
    }

    pub(crate) fn set_options(&self, options: KeyspaceOptions, features: u64) {
        self.ttl_ms.store(options.ttl.map_or(0, ttl_ms), Ordering::Relaxed);
        self.features.store(features, Ordering::Relaxed);
        self.value_alignment.store(options.value_alignment, Ordering::Relaxed);
        self.options.store(Arc::new(options));
        self.find_named();
    }

    /// Finds the operator and the filter that its options name.
    fn find_named(&self) {
        let Some(catalog) = self.catalog.get() else { return };
        let filter = self.options.load().compaction_filter.as_ref().map(|name| catalog.filters.named(name));
        if filter.as_ref().is_some_and(NamedFilter::is_there) {
            self.was_filtered.store(true, Ordering::Release);
        }
        self.filter.store(filter.map(Arc::new));
        let operator = self.options.load().operator.as_ref().map(|name| catalog.operators.named(name));
        self.judge.store(Arc::new(Judge { operator, ..Judge::default() }));
    }

    /// In the commit section: nothing is ingested behind it any more, or again.
    pub(crate) fn end_behind(&self, ends: bool) {
        self.ends_behind.store(ends, Ordering::Relaxed);
    }

    /// # Errors
    /// `Invalid` when nothing can be ingested behind what it holds.
    pub(crate) fn check_behind(&self) -> Result<()> {
        if self.options.load().ingest_behind && !self.ends_behind.load(Ordering::Relaxed) {
            return Ok(());
        }
        let message = format!("keyspace {:?} keeps no room behind what it holds", self.name);
        Err(Error::new(ErrorKind::Invalid, message)
            .advice("make the keyspace with the setting ingest_behind=true, or ingest over what it holds"))
    }

    /// What resolving its entries needs to know.
    pub(crate) fn judge(&self) -> Judge {
        Judge::clone(&self.judge.load())
    }

    /// # Errors
    /// `Invalid` when it names no operator, or one that cannot read `operand`; `Unsupported` when
    /// its operator is not there.
    pub(crate) fn check_operand(&self, operand: &[u8]) -> Result<()> {
        match &self.judge.load().operator {
            Some(operator) => operator.check(operand),
            None => Err(self.no_operator()),
        }
    }

    #[cold]
    fn no_operator(&self) -> Error {
        Error::new(ErrorKind::Invalid, format!("keyspace {:?} names no merge operator", self.name))
            .advice("set its operator: KeyspaceOptions::operator, or `tombolo db keyspace set`")
    }

    /// Where stretches of dead keys are known, if it is in a catalog.
    pub(crate) fn dead_runs(&self) -> Option<&DeadRuns> {
        self.catalog.get().map(|shared| &shared.dead_runs)
    }

    /// Notes that its operator failed in the background; says whether that is new.
    pub(crate) fn note_merge_failed(&self) -> bool {
        !self.merge_failed.swap(true, Ordering::Relaxed)
    }

    /// The compaction filter that it names.
    pub(crate) fn filter(&self) -> Option<Arc<NamedFilter>> {
        self.filter.load_full()
    }

    /// Whether compaction asks a filter of its entries.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter.load().as_ref().is_some_and(|filter| filter.is_there())
    }

    /// Whether a filter may have taken away what was read some time ago.
    pub(crate) fn was_filtered(&self) -> bool {
        self.was_filtered.load(Ordering::Acquire)
    }

    /// As [`KeyspaceInfo::note_merge_failed`], of its filter.
    pub(crate) fn note_filter_failed(&self) -> bool {
        !self.filter_failed.swap(true, Ordering::Relaxed)
    }

    /// Feature bits of the entries that may be written to it.
    pub(crate) fn features(&self) -> u64 {
        self.features.load(Ordering::Relaxed)
    }

    /// How long values live that are put without an end of their own, in milliseconds; 0: for ever.
    #[inline]
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl_ms.load(Ordering::Relaxed)
    }

    /// Where values that reads give begin.
    #[inline]
    pub(crate) fn value_alignment(&self) -> usize {
        self.value_alignment.load(Ordering::Relaxed).into()
    }

    /// # Errors
    /// `NotFound` when it was dropped.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) { self.gone() } else { Ok(()) }
    }

    /// Whether entries of a kind may be written to it.
    ///
    /// # Errors
    /// `Unsupported` when its settings do not say so: it was made by an older version.
    #[inline]
    pub(crate) fn check_kind(&self, kind: EntryKind) -> Result<()> {
        let feature = kind.feature();
        if feature & !self.features() == 0 { Ok(()) } else { self.is_older(kind) }
    }

    #[cold]
    fn is_older(&self, kind: EntryKind) -> Result<()> {
        let message = format!(
            "keyspace {:?} may hold no entries of kind {}: it was made by an older version",
            self.name,
            kind_name(kind as u8)
        );
        Err(Error::new(ErrorKind::Unsupported, message).advice(
            "change a setting of it, to what it is if need be (`tombolo db keyspace set`): versions that do not \
             know this kind refuse the keyspace from then on",
        ))
    }

    #[cold]
    fn gone(&self) -> Result<()> {
        Err(Error::new(ErrorKind::NotFound, format!("keyspace {:?} was dropped", self.name)))
    }
}

/// All keyspaces. Changed only in the commit section of the main stream, of a reader only by its
/// rounds; a change costs the same among ten and among ten thousand.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    all: RwLock<All>,
    /// Keyspaces dropped so far.
    drops: AtomicU64,
    shared: Arc<Shared>,
}

/// What the keyspaces of a catalog hold of it, and are known by.
#[derive(Debug, Default)]
struct Shared {
    operators: Operators,
    dead_runs: DeadRuns,
    filters: Filters,
}

/// Invariant: both hold the same keyspaces.
#[derive(Debug, Default)]
struct All {
    by_id: BTreeMap<u32, Arc<KeyspaceInfo>>,
    by_name: BTreeMap<Arc<str>, Arc<KeyspaceInfo>>,
}

impl Catalog {
    /// An empty one of a database that was opened with these.
    pub(crate) fn new(operators: Operators, filters: Filters) -> Catalog {
        let shared = Arc::new(Shared { operators, filters, dead_runs: DeadRuns::default() });
        Catalog { shared, ..Catalog::default() }
    }

    /// An empty one of a stream of the same database.
    pub(crate) fn of_stream(&self) -> Catalog {
        Catalog::new(self.shared.operators.clone(), self.shared.filters.clone())
    }

    /// The operators that the database was opened with.
    pub(crate) fn operators(&self) -> &Operators {
        &self.shared.operators
    }

    /// Stretches of keys without a value, of all keyspaces.
    #[inline]
    pub(crate) fn dead_runs(&self) -> &DeadRuns {
        &self.shared.dead_runs
    }

    /// Adds a keyspace. Of one that had its name before, the removal comes first.
    pub(crate) fn insert(&self, keyspace: &Arc<KeyspaceInfo>) {
        // A keyspace is of one catalog, that of its stream, which is told first.
        let _first = keyspace.catalog.set(Arc::clone(&self.shared));
        keyspace.find_named();
        let mut all = self.all.write();
        all.by_id.insert(keyspace.id, Arc::clone(keyspace));
        let before = all.by_name.insert(Arc::clone(&keyspace.name), Arc::clone(keyspace));
        debug_assert!(before.is_none_or(|before| before.id == keyspace.id), "two keyspaces of one name");
    }

    pub(crate) fn remove(&self, id: u32) {
        let mut all = self.all.write();
        if let Some(keyspace) = all.by_id.remove(&id) {
            all.by_name.remove(&keyspace.name);
            keyspace.dropped.store(true, Ordering::Release);
            self.drops.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many keyspaces were dropped: who keeps something for each looks whether it has changed.
    pub(crate) fn drops(&self) -> u64 {
        self.drops.load(Ordering::Acquire)
    }

    /// Whether a keyspace is of this catalog, dropped or not. No lock.
    pub(crate) fn knows(&self, keyspace: &KeyspaceInfo) -> bool {
        keyspace.catalog.get().is_some_and(|shared| Arc::ptr_eq(shared, &self.shared))
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<Arc<KeyspaceInfo>> {
        self.all.read().by_id.get(&id).cloned()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<KeyspaceInfo>> {
        self.all.read().by_name.get(name).cloned()
    }

    /// The numbers of all.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.all.read().by_id.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.read().by_id.len()
    }

    /// All, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<KeyspaceInfo>> {
        self.all.read().by_name.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
