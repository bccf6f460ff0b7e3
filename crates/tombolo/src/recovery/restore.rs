//! A checkpoint becomes a database of its own:
//! `read checkpoint → claim the target → copy its tables by reference → one commit names all`.
//!
//! Invariants:
//! 1. The target is empty until that commit: a restore that ends early leaves an empty database,
//!    into which it can be made again, and objects that the next opening collects.
//! 2. Whatever the target holds is looked at before it is claimed: refusing disturbs nobody.
//! 3. Tables get fresh names of the target's epoch (rule 6); their bytes, and the identity in them,
//!    stay as they are.

use std::sync::Arc;

use tombolo_env::{BoxFuture, Env, all};
use tombolo_format::cold::PROPERTY_COLD;
use tombolo_format::manifest::{Edit, TableDescription, TableName};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Life, LogStore, ObjectKind, ObjectName, ObjectStore, Placement, Purpose,
    PutOutcome, Request, Result, probe,
};

use crate::checkpoint::Checkpoints;
use crate::manifest::{self, Manifest, ManifestOptions, Places, State, names};

/// Bytes copied by one request, where the target cannot take the source's object by reference.
const COPY_BYTES: u64 = 4 << 20;
/// Tables copied at once.
pub(super) const COPIES_IN_FLIGHT_MAX: usize = 8;

/// What to restore, and where.
pub(crate) struct RestoreRequest {
    pub(crate) env: Env,
    pub(crate) source: Arc<dyn ObjectStore>,
    pub(crate) checkpoint: String,
    pub(crate) target: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
}

/// Makes a database of a checkpoint.
pub(crate) async fn restore(request: RestoreRequest) -> Result<()> {
    let RestoreRequest { env, source, checkpoint, target, log_store } = request;
    let loaded = manifest::load(&env, &source).await?;
    let checkpoints = Checkpoints::new(&env, &source, loaded.incarnation, Epoch::NONE);
    let header = checkpoints.find(&checkpoint).await?;
    let state = checkpoints.load(&header).await?;
    let manifest = claim_empty(&env, &target, &*log_store).await?;
    let copied = match Places::of(&source, loaded.incarnation, &state) {
        Ok(places) => copy_tables(&places, state.edits(), &manifest, &target, &|_| false).await,
        Err(error) => Err(error),
    };
    let edits = match copied {
        Ok(edits) => edits,
        Err(error) => {
            manifest.leave().await;
            // Deleted while it was copied.
            // What it failed with is what counts, if nobody can say.
            let kept = checkpoints.is_kept(header.id).await.unwrap_or(true);
            return Err(if kept {
                error
            } else {
                error.context(format!("checkpoint {checkpoint:?} was deleted while it was restored"))
            });
        }
    };
    let committed = manifest.committed_in_time(edits).await;
    manifest.leave().await;
    committed.map(drop).map_err(|error| error.context("naming the restored tables"))
}

/// Claims a database that holds nothing, or makes one.
///
/// # Errors
/// `AlreadyExists`; those of the store.
pub(crate) async fn claim_empty(
    env: &Env,
    target: &Arc<dyn ObjectStore>,
    log_store: &dyn LogStore,
) -> Result<Manifest> {
    probe::exclusive::prove(env, target).await?;
    // Looked at before it is claimed: a claim would take a live database from its writer.
    match manifest::load(env, target).await {
        Ok(there) => check_empty(&there.state, target)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.context(format!("looking whether {} is empty", target.describe()))),
    }
    let options =
        ManifestOptions { mode: manifest::OpenMode::CreateOrOpen, log_identity: log_store.identity() };
    let (manifest, state) = Manifest::open(env, Arc::clone(target), options).await?;
    check_empty(&state, target)?;
    Ok(manifest)
}

/// Copies the tables that edits name, wherever they lie, and gives the edits with which a new
/// database names its own. Of those that `is_damaged` is true of, so much as there is.
///
/// # Errors
/// Those of both stores.
pub(crate) async fn copy_tables(
    places: &Places,
    named: Vec<Edit>,
    manifest: &Manifest,
    target: &Arc<dyn ObjectStore>,
    is_damaged: &(dyn Fn(TableName) -> bool + Sync),
) -> Result<Vec<Edit>> {
    let mut edits = Vec::new();
    let mut copies: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
    for edit in named {
        match edit {
            Edit::DatabaseCreated { .. } | Edit::SourceNamed(_) | Edit::ColdStoreNamed(_) => {}
            Edit::TableAdded(table) => {
                let name = manifest.fresh_table_name();
                let (source, from) = places.locate(&table);
                let to = names::table(manifest.incarnation(), name);
                let is_damaged = is_damaged(table.name);
                let whole = table.offset.saturating_add(table.length);
                let copy = Copy {
                    source,
                    target,
                    epoch: manifest.epoch(),
                    level: table.level,
                    bytes: if is_damaged { 0 } else { whole },
                    how: HowToCopy::ByReference,
                };
                copies.push(Box::pin(async move {
                    match copy.run(&from, &to).await {
                        // Nothing of it is there.
                        Err(error) if is_damaged && error.kind() == ErrorKind::NotFound => Ok(()),
                        copied => copied,
                    }
                }));
                let properties = table.properties.without(PROPERTY_COLD);
                edits.push(Edit::TableAdded(TableDescription { name, source: None, properties, ..table }));
            }
            other => edits.push(other),
        }
    }
    let copied: Result<Vec<()>> = all(copies, COPIES_IN_FLIGHT_MAX).await.into_iter().collect();
    copied.map(|_| edits)
}

/// # Errors
/// `AlreadyExists` when a database that was opened once is there.
fn check_empty(state: &State, target: &Arc<dyn ObjectStore>) -> Result<()> {
    if state.next_keyspace_id() == 0 {
        return Ok(());
    }
    let message = format!("{} holds a database already", target.describe());
    Err(Error::new(ErrorKind::AlreadyExists, message)
        .advice("restore to another place, or destroy that database first"))
}

/// How an object is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowToCopy {
    /// By reference where the target can, else byte by byte.
    ByReference,
    /// Byte by byte.
    Bytes,
}

/// An object of one store gets a fresh name in another.
pub(crate) struct Copy<'a> {
    pub(crate) source: Arc<dyn ObjectStore>,
    pub(crate) target: &'a Arc<dyn ObjectStore>,
    pub(crate) epoch: Epoch,
    pub(crate) level: u8,
    /// Bytes that it is known to have, at least.
    pub(crate) bytes: u64,
    pub(crate) how: HowToCopy,
}

impl Copy<'_> {
    /// # Errors
    /// `Corrupt` when it is shorter; those of both stores.
    pub(crate) async fn run(&self, from: &ObjectName, to: &ObjectName) -> Result<()> {
        let request = Request::new(Purpose::Compaction, self.epoch);
        let length = self.source.length(request, from).await?;
        if length < self.bytes {
            return Err(Error::corrupt(
                from,
                length,
                format!("{} bytes", self.bytes),
                "the end of the object",
            ));
        }
        if self.how == HowToCopy::ByReference
            && let Some(place) = self.source.place(from)
        {
            match self.target.adopt(request, &place, to).await? {
                Some(PutOutcome::Created) => return Ok(()),
                Some(PutOutcome::Exists) => {
                    return Err(Error::new(ErrorKind::Bug, "a fresh name was taken").object(to));
                }
                None => {}
            }
        }
        let mut placement = Placement::new(ObjectKind::Table, Life::Long);
        placement.level = self.level;
        let mut writer = self.target.create(request, to, placement).await?;
        let mut at = 0;
        while at < length {
            let piece = self.source.read(request, from, at..length.min(at + COPY_BYTES)).await?;
            if piece.is_empty() {
                return Err(Error::corrupt(from, at, format!("{length} bytes"), "the end of the object"));
            }
            at += piece.len() as u64;
            writer.append(piece).await?;
        }
        writer.finish().await.map(drop)
    }
}
