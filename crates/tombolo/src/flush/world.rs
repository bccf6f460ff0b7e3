//! The world of tables that are written: all that writing them can reach.

use std::sync::Arc;

use tombolo_format::manifest::TableName;
use tombolo_storage::Error;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::engine::{Background, Engine, Sealed};
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

    /// Takes note that a keyspace's operator failed, and that its operands were kept.
    fn merge_failed(&self, keyspace: u32, error: &Error);
}

impl FlushOutputs for Engine {
    fn judge(&self, keyspace: u32) -> Judge {
        self.catalog.by_id(keyspace).map(|keyspace| keyspace.judge()).unwrap_or_default()
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
    /// Bytes of all tables of the database, which the size of blocks goes by.
    pub(super) table_bytes: u64,
    /// All tables with data older than the memtable; `None`: some of that is in no table.
    older: Option<Arc<Version>>,
}

impl FlushWorld {
    /// That of a memtable that was sealed before this call.
    pub(super) fn now(engine: &Arc<Engine>, sealed: &Arc<Sealed>) -> FlushWorld {
        let view = engine.view_owned();
        let is_oldest = view.waiting.last().is_some_and(|oldest| Arc::ptr_eq(oldest, sealed));
        FlushWorld {
            outputs: Arc::<Engine>::clone(engine),
            state: engine.manifest.state(),
            moments: engine.moments(),
            table_bytes: engine.table_bytes(),
            older: (is_oldest || is_enabled(Mutant::FlushAheadTakenForBottom))
                .then(|| Arc::clone(&view.version)),
        }
    }

    /// Says of keys of a keyspace whether nothing older of them lies anywhere. Keys must ascend
    /// from call to call.
    pub(super) fn bottom(&self, keyspace: u32) -> Bottom {
        let levels = match &self.older {
            Some(version) if !version.is_over(keyspace) => version.levels(keyspace).cloned(),
            _ => return Bottom(None),
        };
        Bottom(Some(Below::of_levels(levels.as_deref())))
    }

    /// Waits until bytes that were just moved fit the rate.
    pub(super) async fn moved(&self, bytes: u64) {
        self.outputs.pace().take(&self.outputs.tables().env, bytes).await;
    }
}
