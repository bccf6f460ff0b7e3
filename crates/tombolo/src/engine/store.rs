//! The place of a database: its stores, its manifest and its tables. Says nothing of how it fares.

use std::sync::Arc;

use tombolo_env::Env;
use tombolo_format::manifest::{LogRole, MAIN_STREAM, TableDescription};
use tombolo_storage::{Error, ErrorKind, LogContext, LogStore, ObjectStore, Request};

use super::LaneNumbers;
use crate::checkpoint::Checkpoints;
use crate::manifest::{self, Manifest};
use crate::version::{LeftBehind, Versions};

/// See the module's documentation.
pub(crate) struct Store {
    pub(crate) env: Env,
    /// The database, as a person would name it.
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
    pub(crate) context: LogContext,
    pub(crate) manifest: Manifest,
    pub(crate) versions: Versions,
    /// Tables of this epoch that nothing names, and that could not be deleted yet.
    pub(crate) left_behind: Arc<LeftBehind>,
    /// Those of this epoch.
    pub(crate) lanes: Arc<LaneNumbers>,
}

impl Store {
    /// The stream whose order of writes this is.
    #[inline]
    pub(crate) fn stream_id(&self) -> u32 {
        self.versions.stream()
    }

    /// What its lanes are for.
    pub(crate) fn log_role(&self) -> LogRole {
        match self.stream_id() {
            MAIN_STREAM => LogRole::Main,
            stream => LogRole::Stream(stream),
        }
    }

    /// A request of this epoch.
    pub(crate) fn request(&self, purpose: tombolo_storage::Purpose) -> Request {
        Request::new(purpose, self.context.epoch)
    }

    /// Whether requests take no longer than what another thread's help would cost.
    pub(crate) fn is_near(&self) -> bool {
        self.objects.performance().is_none()
    }

    /// The database's checkpoints.
    pub(crate) fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(&self.env, &self.objects, self.context.incarnation, self.context.epoch)
    }

    /// Whether the table whose object an error is about is named no more: only then was it deleted.
    pub(super) async fn is_unnamed_by_now(&self, error: &Error) -> bool {
        let tables = self.versions.tables();
        let state = self.manifest.state();
        let shown = |table: &TableDescription| tables.locate(table).1.to_string();
        let table = state
            .keyspaces()
            .flat_map(|keyspace| keyspace.objects())
            .find(|table| error.object_name().is_some_and(|name| name.ends_with(&shown(table))));
        let Some(table) = table else { return false };
        match manifest::load(&self.env, &self.objects).await {
            Ok(newest) => newest.state.table(table.name).is_none(),
            // The database was destroyed.
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}
