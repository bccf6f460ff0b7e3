//! The world of tables that are written: all that writing them can reach.

use std::sync::Arc;

use tombolo_format::manifest::TableName;
use tombolo_storage::Error;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::engine::{Background, Engine, FilteringJob, Sealed};
use crate::filter::{FilterJob, Filtered, Filtering, NamedFilter};
use crate::manifest::State;
use crate::pace::Paces;
use crate::resolve::{Judge, Moments};
use crate::version::{Below, LeftBehind, Tables, Version};

/// See the module's documentation.
pub(crate) trait OutputWorld: Send + Sync + 'static {
    /// The place of tables, with the environment, the cache and the memory budget.
    fn tables(&self) -> &Tables;

    /// A name that no other table has or had.
    fn fresh_name(&self) -> TableName;

    /// The bound on bytes that are moved.
    fn pace(&self) -> &Paces;

    /// Takes note of tables that may be there and that nothing will name.
    fn left_behind(&self) -> &LeftBehind;

    /// Takes note of bytes that were written, for who looks on.
    fn note_moved(&self, bytes: u64) {
        let _ = bytes;
    }
}

impl OutputWorld for Engine {
    fn tables(&self) -> &Tables {
        self.versions.tables()
    }

    fn fresh_name(&self) -> TableName {
        self.manifest.fresh_table_name()
    }

    fn pace(&self) -> &Paces {
        &self.pace
    }

    fn left_behind(&self) -> &LeftBehind {
        &self.left_behind
    }
}

/// The world of a flush.
pub(super) trait FlushOutputs: OutputWorld {
    /// The rules that resolve a keyspace's entries.
    fn judge(&self, keyspace: u32) -> Judge;

    /// The compaction filter of a keyspace, if it filters flushes.
    fn filter(&self, keyspace: u32) -> Option<Arc<NamedFilter>>;

    /// Takes note of what a keyspace's filter did.
    fn filtered(&self, keyspace: u32, filtered: &Filtered);

    /// Takes note of single deletes that met anything but one put.
    fn misused(&self, keyspace: u32, single_deletes: u64);

    /// Takes note that a keyspace's operator failed, and that its operands were kept.
    fn merge_failed(&self, keyspace: u32, error: &Error);
}

impl FlushOutputs for Engine {
    fn judge(&self, keyspace: u32) -> Judge {
        self.catalog.by_id(keyspace).map(|keyspace| keyspace.judge()).unwrap_or_default()
    }

    fn filter(&self, keyspace: u32) -> Option<Arc<NamedFilter>> {
        let filter = self.catalog.by_id(keyspace).and_then(|keyspace| keyspace.filter());
        filter.filter(|filter| filter.filters_flushes())
    }

    fn filtered(&self, keyspace: u32, filtered: &Filtered) {
        self.note_filtered(keyspace, filtered);
    }

    fn misused(&self, keyspace: u32, single_deletes: u64) {
        self.note_misused(keyspace, single_deletes);
    }

    fn merge_failed(&self, keyspace: u32, error: &Error) {
        Background::merge_failed(self, keyspace, error);
    }
}

/// See [`FlushWorld::bottom`].
pub(super) struct Bottom(Option<Below>);

impl Bottom {
    /// Whether nothing older of `key` lies in any table.
    #[inline]
    pub(super) fn is_at(&mut self, key: &[u8]) -> bool {
        self.0.as_mut().is_some_and(|below| !below.may_hold(key))
    }
}

/// The world of a flush, and the facts that it goes by as of its beginning.
pub(super) struct FlushWorld {
    pub(super) outputs: Arc<dyn FlushOutputs>,
    /// The keyspaces that live before it.
    pub(super) state: Arc<State>,
    /// Whence somebody looks, listed after the memtable was sealed.
    pub(super) moments: Moments,
    /// Some keyspace's filter filters flushes: until what it made is seen, or never will be.
    pub(super) filtering: Option<Arc<FilteringJob>>,
    /// The database's time.
    pub(super) time_ms: u64,
    /// Bytes of all tables of the database, which the size of blocks goes by.
    pub(super) table_bytes: u64,
    /// All tables with data older than the memtable; `None`: some of that is in no table.
    older: Option<Arc<Version>>,
}

impl FlushWorld {
    /// That of a memtable that was sealed before this call.
    pub(super) fn now(engine: &Arc<Engine>, sealed: &Arc<Sealed>) -> FlushWorld {
        let mut keyspaces = sealed.memtable.lists().into_iter().map(|(keyspace, _)| keyspace);
        let (mut moments, filtering) = if keyspaces.any(|keyspace| engine.filter(keyspace).is_some()) {
            let (moments, filtering) = FilteringJob::begin(engine);
            (moments, Some(filtering))
        } else {
            (engine.moments(), None)
        };
        // Before the view: where a keyspace keeps no room behind any more, what was ingested there
        // until then is in the view.
        let state = engine.manifest.state();
        let view = engine.view_owned();
        // Looked at after the settled time: operands that come later were written later.
        let others = view.memtables().filter(|memtable| !Arc::ptr_eq(memtable, &sealed.memtable));
        let tables = view.version.keyspaces().flat_map(|(_, levels)| levels.tables());
        let ends = tables.map(|table| table.description().expiry());
        moments.spare_operands(ends.chain(others.map(|memtable| memtable.ends())));
        let is_oldest = view.waiting.last().is_some_and(|oldest| Arc::ptr_eq(oldest, sealed));
        FlushWorld {
            outputs: Arc::<Engine>::clone(engine),
            state,
            moments,
            filtering,
            time_ms: engine.now_ms(),
            table_bytes: engine.table_bytes(),
            older: (is_oldest || is_enabled(Mutant::FlushAheadTakenForBottom))
                .then(|| Arc::clone(&view.version)),
        }
    }

    /// That of a memtable under which tables lie that are not looked at.
    pub(super) fn over_others(
        outputs: Arc<dyn FlushOutputs>,
        state: Arc<State>,
        moments: Moments,
        engine: &Engine,
    ) -> FlushWorld {
        let (time_ms, table_bytes) = (engine.now_ms(), engine.table_bytes());
        FlushWorld { outputs, state, moments, filtering: None, time_ms, table_bytes, older: None }
    }

    /// Says of keys of a keyspace whether nothing older of them lies anywhere, nor, with
    /// `keeps_last`, may come to lie. Keys must ascend from call to call.
    pub(super) fn bottom(&self, keyspace: u32, keeps_last: bool) -> Bottom {
        let levels = match &self.older {
            Some(version) if !version.is_over(keyspace) => version.levels(keyspace).cloned(),
            _ => return Bottom(None),
        };
        let keeps_last = keeps_last || levels.as_ref().is_some_and(|levels| levels.keeps_last);
        Bottom(Some(Below::of_levels(levels.as_deref()).kept(keeps_last)))
    }

    /// The filter of a keyspace, if flushes are filtered.
    pub(super) fn begin_filtering(&self, keyspace: u32) -> Option<Filtering> {
        self.filtering.as_ref()?;
        let job = FilterJob {
            keyspace,
            level: 0,
            is_flush: true,
            is_asked: false,
            oldest_unix_seconds: None,
            time_ms: self.time_ms,
        };
        let newest = self.moments.snapshots.last().map(|(number, _)| *number);
        self.outputs.filter(keyspace).map(|filter| filter.begin(&job, newest))
    }

    /// Waits until bytes that were just moved fit the rate.
    pub(super) async fn moved(&self, bytes: u64) {
        self.outputs.pace().take(&self.outputs.tables().env, bytes).await;
    }
}
