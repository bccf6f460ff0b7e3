//! Runs the chain's state machines against an object store.
//!
//! Manifest, step 3 of 3. One task per open manifest puts records, one at a time; edits queued meanwhile share the next record.

use std::fmt;
use std::sync::Arc;

use tombolo_env::{BoxFuture, Completion, Env, Instant};
use tombolo_format::manifest::{Edit, TableName};
use tombolo_storage::{ConfigurationChain, Epoch, Error, ErrorKind, Incarnation, LogRecord, ObjectStore, Result};

use super::state::State;

/// What opening may find and do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create a database: `AlreadyExists` when there is one.
    Create,
    /// Open a database: `NotFound` when there is none.
    Open,
    /// Open it, or create it when there is none.
    CreateOrOpen,
}

/// How a manifest is opened for writing.
#[derive(Clone, Debug)]
pub struct ManifestOptions {
    /// What opening may find and do.
    pub mode: OpenMode,
    /// `LogStore::identity` of the log store given: that of an existing database must be equal.
    pub log_identity: String,
}

/// A state that was proven to be the newest at a moment after the load began.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The database's life.
    pub incarnation: Incarnation,
    /// The state.
    pub state: Arc<State>,
}

/// The manifest of a database that this process has claimed. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Manifest(Arc<Inner>);

struct Inner {
    incarnation: Incarnation,
    epoch: Epoch,
}

impl fmt::Debug for Manifest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Manifest").field("incarnation", &self.0.incarnation).field("epoch", &self.0.epoch).finish()
    }
}

fn not_built() -> Error {
    Error::new(ErrorKind::Unsupported, "the manifest chain is not built yet")
}

impl Manifest {
    /// Opens the database under the store's root and claims it: on return the claim is effective, and the state is that of the claim.
    /// An older writer's logs are not fenced yet.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` by `mode`; `Invalid` when the database uses another log; `Unsupported` when a newer Tombolo wrote it.
    pub async fn open(_env: &Env, _store: Arc<dyn ObjectStore>, _options: ManifestOptions) -> Result<(Manifest, Arc<State>)> {
        Err(not_built())
    }

    /// Queues edits; resolves with the slot that holds them once they are durable in the chain. All of one call share one record.
    ///
    /// # Errors
    /// `Fenced`: another process has claimed the database, outcome unknown: delete nothing that the edits named. `Bug`: an edit does not
    /// fit the state, nothing was written. Errors of the store that say that nothing took effect.
    pub fn commit(&self, _edits: Vec<Edit>) -> Completion<Result<u64>> {
        let (completer, completion) = tombolo_env::completion();
        completer.complete(Err(not_built()));
        completion
    }

    /// As [`Manifest::commit`], but ends as `OutcomeUnknown` at `deadline`; the edits may take effect later.
    pub async fn commit_until(&self, edits: Vec<Edit>, _deadline: Option<Instant>) -> Result<u64> {
        self.commit(edits).await.unwrap_or_else(|| Err(not_built()))
    }

    /// The state with everything in it that this process knows to be committed.
    pub fn state(&self) -> Arc<State> {
        Arc::default()
    }

    /// The epoch that this process has claimed.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// The database's life.
    pub fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    /// A name for a new attempt at a table: never used before, never used again.
    pub fn fresh_table_name(&self) -> TableName {
        TableName { epoch: self.0.epoch.0, random: 0 }
    }

    /// Whether another process is known to have taken the database over.
    pub fn is_fenced(&self) -> bool {
        false
    }

    /// Calls `callback` once, when it becomes known that another process has taken the database over (at once when it is known).
    pub fn on_fenced(&self, _callback: impl FnOnce() + Send + 'static) {}

    /// Tells the manifest that another process has taken the database over: commits fail from here on.
    pub fn fence(&self) {}

    /// Waits for what is queued, then ends the tasks. Commits fail with `Closed` from here on.
    pub async fn close(&self) {}
}

impl ConfigurationChain for Manifest {
    fn publish(&self, _record: LogRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Err(not_built()) })
    }

    fn named(&self) -> Vec<LogRecord> {
        self.state().log_records()
    }
}

/// Loads the newest state without claiming: for readers and inspection. Proven to be the newest at a moment after the call began.
///
/// # Errors
/// `NotFound` when there is no database.
pub async fn load(_env: &Env, _store: &dyn ObjectStore) -> Result<Loaded> {
    Err(not_built())
}

/// Claims the database and ends its incarnation: nothing opens it any more. Its objects are deleted as far as that goes.
///
/// # Errors
/// `NotFound` when there is no database.
pub async fn destroy(_env: &Env, _store: Arc<dyn ObjectStore>) -> Result<()> {
    Err(not_built())
}
