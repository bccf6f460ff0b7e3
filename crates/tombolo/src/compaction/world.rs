//! The world of a job: all that running one can reach.
//!
//! A job runs wherever its inputs can be read and its outputs written, with no database at hand. It
//! can name nothing in a manifest, install nothing and delete nothing: that is left to the writer
//! that picked it.

use std::sync::Arc;

use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::TableName;
use tombolo_storage::mutant::{Mutant, is_enabled};

use crate::engine::{Engine, KeyspaceInfo};
use crate::options::KeyspaceOptions;
use crate::pace::Paces;
use crate::version::{LeftBehind, Tables};

/// See the module's documentation.
pub(super) trait JobWorld: Send + Sync + 'static {
    /// The place of inputs and outputs, with the environment, the cache and the memory budget.
    fn tables(&self) -> &Tables;

    /// A name that no other table has or had.
    fn fresh_name(&self) -> TableName;

    /// Whether nobody wants the job any more.
    fn is_stopping(&self) -> bool;

    /// The bound on bytes that are moved.
    fn pace(&self) -> &Paces;

    /// Takes note of outputs that may be there and that nothing will name.
    fn left_behind(&self) -> &LeftBehind;
}

/// The facts of a database that a job goes by, as of its beginning: they stay for all of its parts.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// The numbers that snapshots look from, ascending, listed after the inputs were chosen.
    pub(super) snapshots: Vec<SequenceNumber>,
    /// The settings of the keyspace.
    pub(super) options: Arc<KeyspaceOptions>,
    /// Bytes of all tables of the database, which the size of blocks goes by.
    pub(super) table_bytes: u64,
}

impl Terms {
    /// Those of a job on `keyspace` that was just picked.
    pub(super) fn now(engine: &Engine, keyspace: &KeyspaceInfo) -> Terms {
        let forgets = is_enabled(Mutant::CompactionForgetsSnapshots);
        Terms {
            snapshots: if forgets { Vec::new() } else { engine.snapshots.list() },
            options: keyspace.options(),
            table_bytes: engine.table_bytes(),
        }
    }
}

impl JobWorld for Engine {
    fn tables(&self) -> &Tables {
        self.versions.tables()
    }

    fn fresh_name(&self) -> TableName {
        self.manifest.fresh_table_name()
    }

    fn is_stopping(&self) -> bool {
        Engine::is_stopping(self)
    }

    fn pace(&self) -> &Paces {
        &self.pace
    }

    fn left_behind(&self) -> &LeftBehind {
        &self.left_behind
    }
}
