//! A clone that shares tables:
//! `claim the target → pin the tables at each place where they lie → prove the pins → one commit names all`.
//!
//! Nothing is copied: the cost depends on the number of tables, and not on their size.
//!
//! Invariants:
//! 1. The commit comes after the proof of every pin (rule 12): a collection that condemns one of
//!    the tables from then on lists the pin.
//! 2. Each table is pinned where it lies. Of a clone's own sources that is not the clone, whose
//!    pins may be given back at any time.
//! 3. A pin whose commit did not take effect is given back; of a commit of unknown outcome it
//!    stays. It names the target and its epoch, so that a process that finds it later can tell (see
//!    [`crate::clones`]).
//! 4. The target is empty until that commit, as that of a restore is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Env;
use tombolo_format::cold::ColdStore;
use tombolo_format::manifest::{Edit, Source, TableDescription, TableName, TableSource};
use tombolo_format::pin::PinnedFor;
use tombolo_storage::location::location_of;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, Incarnation, LogStore, ObjectStore, Purpose, Result};

use super::claim_empty;
use crate::checkpoint::{Checkpoints, edits};
use crate::clones::seen_from;
use crate::collection::{Pinned, pin_for_clone};
use crate::manifest::driver::io::Io;
use crate::manifest::{self, Manifest, Places, State};

/// How often a state is chosen anew because a table was condemned meanwhile.
const ATTEMPTS_MAX: u32 = 16;
/// Before that: collection decides about what it has condemned in a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// What to clone, and where.
pub(crate) struct CloneRequest {
    pub(crate) env: Env,
    pub(crate) source: Arc<dyn ObjectStore>,
    /// `None`: the newest state that the manifest names.
    pub(crate) checkpoint: Option<String>,
    pub(crate) target: Arc<dyn ObjectStore>,
    pub(crate) log_store: Arc<dyn LogStore>,
}

/// Makes a database that names the tables of another where they lie.
pub(crate) async fn share(request: CloneRequest) -> Result<()> {
    // Errors of the request are told before anything is claimed.
    location_of(&*request.source)?.place_anywhere(location_of(&*request.target)?)?;
    request.choose().await?;
    let manifest = claim_empty(&request.env, &request.target, &*request.log_store).await?;
    let made = request.make(&manifest).await;
    manifest.leave().await;
    made.map_err(|error| error.context("naming the source's tables"))
}

/// The tables of a state that lie in one place.
struct Group {
    store: Arc<dyn ObjectStore>,
    incarnation: Incarnation,
    /// The random number of that life; 0 where only the source's own manifest knows it.
    database: u64,
    tables: Vec<TableName>,
}

impl CloneRequest {
    /// The state to clone, and the life that it is of.
    async fn choose(&self) -> Result<(Incarnation, Arc<State>)> {
        let loaded = manifest::load(&self.env, &self.source).await?;
        let Some(checkpoint) = &self.checkpoint else {
            check_one_moment(&loaded.state)?;
            return Ok((loaded.incarnation, loaded.state));
        };
        let checkpoints = Checkpoints::new(&self.env, &self.source, loaded.incarnation, Epoch::NONE);
        let header = checkpoints.find(checkpoint).await?;
        Ok((loaded.incarnation, Arc::new(checkpoints.load(&header).await?)))
    }

    async fn make(&self, manifest: &Manifest) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let (life, state) = self.choose().await?;
            let groups = self.groups(life, &state)?;
            let mut pins = Vec::new();
            match self.pin(manifest, &groups, &mut pins).await {
                Ok(Some(sources)) => return self.commit(manifest, &state, sources, &pins).await,
                Ok(None) => release(&pins).await,
                Err(error) => {
                    release(&pins).await;
                    return Err(error);
                }
            }
            self.env.sleep(PAUSE).await;
        }
        Err(Error::new(ErrorKind::Busy, "the tables were deleted faster than they could be pinned")
            .advice("try again"))
    }

    /// The live tables by where they lie: at the source itself, number 0, and at its own sources.
    fn groups(&self, life: Incarnation, state: &State) -> Result<BTreeMap<Option<u32>, Group>> {
        let places = Places::of(&self.source, life, state)?;
        let database = state.database().map_or(0, |database| database.id);
        let own = Group { store: Arc::clone(&self.source), incarnation: life, database, tables: Vec::new() };
        let mut groups = BTreeMap::from([(None, own)]);
        groups.extend(places.sources().map(|place| {
            let (store, incarnation) = (Arc::clone(&place.store), Incarnation(place.source.incarnation));
            (
                Some(place.source.number),
                Group { store, incarnation, database: place.source.database, tables: Vec::new() },
            )
        }));
        for table in state.keyspaces().flat_map(|keyspace| keyspace.objects()) {
            if table.is_values() && is_enabled(Mutant::ValuesNotCloned) {
                continue;
            }
            let (group, name) = match table.source {
                None => (None, table.name),
                Some(TableSource { source, name }) => (Some(source), name),
            };
            if let Some(group) = groups.get_mut(&group) {
                group.tables.push(name);
            }
        }
        groups.retain(|_, group| !group.tables.is_empty());
        Ok(groups)
    }

    /// Pins each group where it lies; `None` when a table is condemned or gone. What was pinned is
    /// in `pins`, however it ends.
    async fn pin(
        &self,
        manifest: &Manifest,
        groups: &BTreeMap<Option<u32>, Group>,
        pins: &mut Vec<Pinned>,
    ) -> Result<Option<BTreeMap<Option<u32>, Source>>> {
        let target = location_of(&*self.target)?;
        let database = manifest.state().database().map_or(0, |database| database.id);
        let mut sources = BTreeMap::new();
        for (number, (key, group)) in groups.iter().enumerate() {
            let there = location_of(&*group.store)?;
            let clone = PinnedFor {
                place: there.place_anywhere(target)?,
                incarnation: manifest.incarnation().0,
                database,
                epoch: manifest.epoch().0,
                seen_from: seen_from(there),
            };
            let io = Io {
                env: self.env.clone(),
                store: Arc::clone(&group.store),
                epoch: Epoch::NONE,
                purpose: Purpose::Open,
            };
            let pin = match pin_for_clone(&io, group.incarnation, group.tables.clone(), clone).await? {
                Some(pinned) => {
                    let id = pinned.id();
                    pins.push(pinned);
                    id
                }
                None if is_enabled(Mutant::CloneNamesUnprovenPin) => io.random_u128(),
                None => return Ok(None),
            };
            let source = Source {
                number: u32::try_from(number).unwrap_or(u32::MAX),
                place: target.place_anywhere(there)?,
                incarnation: group.incarnation.0,
                database: group.database,
                pin,
            };
            sources.insert(*key, source);
        }
        Ok(Some(sources))
    }

    /// Names the tables under fresh names, by which the clone's own pins, caches and collection
    /// know them.
    async fn commit(
        &self,
        manifest: &Manifest,
        state: &State,
        sources: BTreeMap<Option<u32>, Source>,
        pins: &[Pinned],
    ) -> Result<()> {
        let mut named: Vec<Edit> = sources.values().cloned().map(Edit::SourceNamed).collect();
        for edit in edits(state) {
            match edit {
                Edit::DatabaseCreated { .. } | Edit::SourceNamed(_) => {}
                Edit::TableAdded(table) => {
                    let (key, there) =
                        table.source.map_or((None, table.name), |of| (Some(of.source), of.name));
                    let Some(source) = sources.get(&key) else {
                        return Err(Error::new(
                            ErrorKind::Bug,
                            format!("table {:?} lies nowhere", table.name),
                        ));
                    };
                    let of = Some(TableSource { source: source.number, name: there });
                    named.push(Edit::TableAdded(TableDescription {
                        name: manifest.fresh_table_name(),
                        source: of,
                        ..table
                    }));
                }
                // It is that of the source, and stays so.
                Edit::ColdStoreNamed(cold) => {
                    let is_own = is_enabled(Mutant::CloneWritesToColdStoreOfSource);
                    named.push(Edit::ColdStoreNamed(ColdStore { is_own, ..cold }));
                }
                other => named.push(other),
            }
        }
        match manifest.committed_in_time(named).await {
            Ok(_) => Ok(()),
            // It may have taken effect, or may yet.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::OutcomeUnknown | ErrorKind::Fenced | ErrorKind::Closed
                ) =>
            {
                Err(error)
            }
            Err(error) => {
                release(pins).await;
                Err(error)
            }
        }
    }
}

/// # Errors
/// `Unsupported` with streams: each is flushed when it wants, so that their tables are of no one
/// moment.
fn check_one_moment(state: &State) -> Result<()> {
    if !state.has_streams() {
        return Ok(());
    }
    let message = "the database has streams, and what their tables hold is of no one moment";
    Err(Error::new(ErrorKind::Unsupported, message).advice("make a checkpoint, and clone that"))
}

/// Gives pins back that nothing names.
async fn release(pins: &[Pinned]) {
    for pin in pins {
        if let Err(error) = pin.release().await {
            tracing::warn!(%error, "a pin of a clone that was not made is left; `tombolo gc` tells of it \
                and gives it back");
        }
    }
}
