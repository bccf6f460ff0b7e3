//! Memtables of a reader become tables of another database, which a mirror publishes.

use std::sync::Arc;

use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::{Error, Result};

use super::tables::write_tables;
use super::world::{FlushOutputs, FlushWorld, OutputWorld};
use crate::engine::{Background, Engine, Sealed};
use crate::filter::{Filtered, NamedFilter};
use crate::manifest::{Manifest, State};
use crate::pace::Paces;
use crate::resolve::Judge;
use crate::version::{LeftBehind, Tables};

/// Where tables go that are not the reader's, and by which rules they are written.
pub(crate) struct Elsewhere {
    /// Reads what the memtables hold.
    pub(crate) engine: Arc<Engine>,
    /// The other database's tables.
    pub(crate) tables: Tables,
    pub(crate) manifest: Manifest,
    pub(crate) pace: Arc<Paces>,
}

impl OutputWorld for Elsewhere {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn fresh_name(&self) -> TableName {
        self.manifest.fresh_table_name()
    }

    fn pace(&self) -> &Paces {
        &self.pace
    }

    fn left_behind(&self) -> &LeftBehind {
        &self.tables.left_behind
    }
}

impl FlushOutputs for Elsewhere {
    fn judge(&self, keyspace: u32) -> Judge {
        FlushOutputs::judge(&*self.engine, keyspace)
    }

    // What its filter drops the other database's writer drops once it has flushed it.
    fn filter(&self, _keyspace: u32) -> Option<Arc<NamedFilter>> {
        None
    }

    fn filtered(&self, _keyspace: u32, _filtered: &Filtered) {}

    fn misused(&self, _keyspace: u32, _single_deletes: u64) {}

    fn merge_failed(&self, keyspace: u32, error: &Error) {
        Background::merge_failed(&self.engine, keyspace, error);
    }
}

/// Writes the tables of a memtable that the reader shows, beside those of a state. Those that are
/// complete are in `written`, also when it fails.
///
/// # Errors
/// Those of the store.
pub(crate) async fn write_elsewhere(
    elsewhere: &Arc<Elsewhere>,
    state: &Arc<State>,
    sealed: &Sealed,
    written: &mut Vec<TableDescription>,
) -> Result<()> {
    let engine = &elsewhere.engine;
    let mut moments = engine.moments();
    let view = engine.view_owned();
    let others = view.memtables().filter(|memtable| !Arc::ptr_eq(memtable, &sealed.memtable));
    let tables = view.version.keyspaces().flat_map(|(_, levels)| levels.tables());
    let ends = tables.map(|table| table.description().expiry());
    moments.spare_operands(ends.chain(others.map(|memtable| memtable.ends())));
    let outputs: Arc<dyn FlushOutputs> = Arc::<Elsewhere>::clone(elsewhere);
    let world = FlushWorld::over_others(outputs, Arc::clone(state), moments, engine);
    write_tables(world, sealed, written).await
}
