//! The world of a job: all that running one can reach.
//!
//! A job runs wherever its inputs can be read and its outputs written, with no database at hand. It
//! can name nothing in a manifest, install nothing and delete nothing: that is left to the writer
//! that picked it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tombolo_storage::mutant::{Mutant, is_enabled};

use super::pick::Job;
use crate::engine::{Engine, FilteringJob, KeyspaceInfo};
use crate::filter::NamedFilter;
use crate::flush::OutputWorld;
use crate::options::KeyspaceOptions;
use crate::resolve::{Judge, Moments};
use crate::version::TableHandle;

/// See the module's documentation. [`OutputWorld::tables`] is the place of the inputs, too.
pub(super) trait JobWorld: OutputWorld {
    /// Whether nobody wants the job any more.
    fn is_given_up(&self) -> bool;
}

impl JobWorld for Engine {
    fn is_given_up(&self) -> bool {
        self.is_stopping()
    }
}

/// The facts of a database that a job goes by, as of its beginning: they stay for all of its parts.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    /// Whence somebody looks, listed after the inputs were chosen.
    pub(super) moments: Moments,
    /// What resolving the keyspace's entries needs to know.
    pub(super) judge: Judge,
    /// The compaction filter of the keyspace, if it is there.
    pub(super) filter: Option<Arc<NamedFilter>>,
    /// The database's time.
    pub(super) time_ms: u64,
    /// The settings of the keyspace.
    pub(super) options: Arc<KeyspaceOptions>,
    /// Bytes of all tables of the database, which the size of blocks goes by.
    pub(super) table_bytes: u64,
    /// The value objects that are collected: what passes of them moves.
    pub(super) collected: BTreeSet<u64>,
}

impl Terms {
    /// Those of a job on `keyspace` that was just picked. One that asks a filter holds the second
    /// until it is installed.
    pub(super) fn now(
        engine: &Arc<Engine>,
        keyspace: &KeyspaceInfo,
        job: &Job,
    ) -> (Terms, Option<Arc<FilteringJob>>) {
        let filter = keyspace.filter().filter(|filter| filter.is_there());
        let (mut moments, filtering) = if filter.is_some() {
            let (moments, filtering) = FilteringJob::begin(engine);
            (moments, Some(filtering))
        } else {
            engine.note_missing_filter(keyspace.id);
            (engine.moments(), None)
        };
        // Looked at after the settled time: operands that come later were written later.
        let view = engine.view_owned();
        let is_input = |table: &TableHandle| job.inputs().any(|input| std::ptr::eq(&**input, table));
        let others = view.version.levels(keyspace.id).map(|levels| levels.tables());
        let others = others.into_iter().flatten().filter(|table| !is_input(table));
        let ends = others.map(|table| table.description().expiry());
        moments.spare_operands(ends.chain(view.memtables().map(|memtable| memtable.ends())));
        let forgets = is_enabled(Mutant::CompactionForgetsSnapshots);
        let terms = Terms {
            moments: if forgets { Moments::default() } else { moments },
            judge: keyspace.judge(),
            filter,
            time_ms: engine.now_ms(),
            options: keyspace.options(),
            table_bytes: engine.table_bytes(),
            collected: super::collected(engine, keyspace.id)
                .objects
                .into_iter()
                .map(|(object, _)| object)
                .collect(),
        };
        (terms, filtering)
    }
}
