//! Runs the machines of deletion and pins against an object store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Env, Instant, all};
use tombolo_format::manifest::{Edit, TableDescription, TableName, TableSource};
use tombolo_format::pin::{PIN_BYTES_MAX, Pin, PinKind, PinnedFor, decode_pin};
use tombolo_storage::backoff::Backoff;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{
    Epoch, Error, ErrorKind, Incarnation, Life, ObjectKind, ObjectName, ObjectStore, Purpose, Result,
};

use super::lease::{Lease, LeaseWatch, Seen};
use super::machine::{Answer, Collect, Effect, ListedPin, Machine, PinOutcome, PutPin, Step, free_orphans};
use crate::manifest::chain::{PutAnswer, Tip, undecodable};
use crate::manifest::cold::ColdObjects;
use crate::manifest::driver::io::{Io, RetryLimit};
use crate::manifest::state::{State, TableStatus};
use crate::manifest::{Manifest, Place, load, names};

/// Tables of one pass; the rest waits for the next.
const TABLES_PER_PASS_MAX: usize = 1024;
/// Pins that are read at once: each reader has new ones after each flush.
const PINS_READ_AT_ONCE: usize = 32;
/// How far the rates of two hosts' clocks may differ over a lease.
pub(super) const LEASE_MARGIN: Duration = Duration::from_secs(10);
/// How often a pinner chooses anew because a table was condemned meanwhile.
const PIN_ATTEMPTS_MAX: u32 = 16;

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Tables whose objects were deleted.
    pub deleted: Vec<TableName>,
    /// Tables that pins keep.
    pub kept: Vec<TableName>,
}

#[derive(Default)]
struct Memory {
    leases: LeaseWatch,
    /// Pins never change: each is read once.
    pins: BTreeMap<u128, Arc<Pin>>,
    /// The last pass found pinned tables, or there was none: the next one looks at the pins before
    /// it condemns anything.
    pinned: bool,
    /// Named no more, but their deletion failed: tried again by the next pass.
    undeleted: Vec<(TableName, Error)>,
    /// Tables of this pass whose objects lie under a source: they are the source's to delete.
    foreign: BTreeMap<TableName, TableSource>,
    /// Tables whose objects lie in a cold store, until they are deleted.
    cold: BTreeMap<TableName, u64>,
    /// The cold stores, once they were asked.
    cold_stores: BTreeMap<u64, Arc<dyn ObjectStore>>,
    /// What a cold store has failed with in this pass: the rest waits for the next.
    cold_failed: Option<Error>,
    running: bool,
}

/// Deletes what the database needs no more. The writer runs one; passes do not overlap.
pub struct Collector {
    manifest: Manifest,
    io: Io,
    memory: Mutex<Memory>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Collector").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}

/// Clears `running` however a pass ends.
struct Running<'a>(&'a Mutex<Memory>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running = false;
    }
}

impl Collector {
    /// A collector for an open manifest.
    pub fn new(manifest: Manifest) -> Collector {
        let io = Io { purpose: Purpose::Collection, ..manifest.io().clone() };
        Collector { manifest, io, memory: Mutex::new(Memory { pinned: true, ..Memory::default() }) }
    }

    /// One pass over the tables that left the version: deletes those that neither this process nor
    /// a pin uses.
    ///
    /// `used` says whether an iterator, snapshot or version of this process still reads a table.
    /// Costs two manifest records, one list of the pins and one delete per table, and one list more
    /// in the first pass and after one in which pins kept something; one list while pins keep what
    /// there is; nothing when there is nothing to delete.
    ///
    /// # Errors
    /// `Fenced` and `OutcomeUnknown` of the manifest: condemned tables are the next epoch's to
    /// finish. `Busy` when a pass is running.
    pub async fn collect(&self, used: impl Fn(TableName) -> bool) -> Result<Collected> {
        let _running = self.begin()?;
        self.delete_leftovers().await;
        let state = self.manifest.state();
        if state.unneeded().next().is_none() {
            return Ok(Collected::default());
        }
        let pinned = self.pinned_before().await?;
        let of = |status: TableStatus| {
            let tables = state.unneeded().filter(move |table| table.status == status);
            tables.map(|table| table.description.name)
        };
        let (mut kept, free): (Vec<TableName>, Vec<TableName>) =
            of(TableStatus::Obsolete).partition(|name| pinned.contains(name));
        let obsolete = free.into_iter().filter(|name| !used(*name)).take(TABLES_PER_PASS_MAX).collect();
        let condemned = of(TableStatus::Condemned).take(TABLES_PER_PASS_MAX).collect();
        let foreign =
            state.unneeded().filter_map(|table| Some((table.description.name, table.description.source?)));
        let cold = state.unneeded().filter(|table| table.description.source.is_none());
        let cold = cold.filter_map(|table| Some((table.description.name, table.description.cold()?)));
        {
            let mut memory = self.memory.lock();
            memory.foreign = foreign.collect();
            memory.cold.extend(cold);
        }
        let pass = self.run(&mut Collect::new(obsolete, condemned)).await.flatten()?;
        for id in pass.expired {
            self.delete_pin(id).await?;
        }
        kept.extend(pass.kept);
        self.memory.lock().pinned = !kept.is_empty();
        Ok(Collected { deleted: pass.deleted, kept })
    }

    /// Gives back the pins at sources of which the manifest names no table any more, and then
    /// un-names the sources. That no table is named was committed before, and is final: so no state
    /// to come, of whatever epoch, names one, and no pin under this database keeps one. A process
    /// that ends in between leaves a source that is named without tables: the next epoch deletes
    /// the pin once more, whose name never comes back.
    ///
    /// # Errors
    /// Of the manifest, and of the sources' stores.
    pub async fn release_sources(&self) -> Result<()> {
        let state = self.manifest.state();
        let sources: Vec<_> = match is_enabled(Mutant::CloneReleasedBeforeUnnamed) {
            // What left the version is named still: for readers and checkpoints.
            true => state.sources().filter(|source| !has_live_tables(&state, source.number)).collect(),
            false => state.unneeded_sources().collect(),
        };
        for source in sources {
            let place = Place::of(&self.io.store, source)?;
            release_source(&self.io, &place).await?;
            if state.unneeded_sources().any(|unneeded| unneeded.number == source.number) {
                self.manifest.committed(vec![Edit::SourceUnnamed { number: source.number }]).await?;
            }
        }
        Ok(())
    }

    /// Tables that need not be condemned, because a pin keeps them. Proves nothing, and spares two
    /// records for each pass while a pin lasts, in the first pass of an epoch too: were it to end
    /// between the two, what a pin keeps would stay condemned until somebody opens the database,
    /// and its reader is told that its pin is lost.
    async fn pinned_before(&self) -> Result<BTreeSet<TableName>> {
        if !self.memory.lock().pinned {
            return Ok(BTreeSet::new());
        }
        let pins = self.list_pins().await?;
        Ok(pins.into_iter().filter(|pin| !pin.expired).flat_map(|pin| pin.tables).collect())
    }

    /// Deletes the objects of tables that earlier epochs wrote and no epoch's manifest names:
    /// attempts that failed, and what a stale writer left. Sweeps what dead processes were still
    /// writing, too. One list of all tables: once after opening is enough.
    ///
    /// # Errors
    /// Of the store.
    pub async fn collect_orphans(&self) -> Result<Vec<TableName>> {
        let _running = self.begin()?;
        let incarnation = self.manifest.incarnation();
        // The claim was effective, and since then only this process has added records: a proven
        // state of this epoch.
        let state = self.manifest.state();
        let objects = self.io.list_all(&names::table_prefix(incarnation)).await?;
        let tables = objects.iter().filter_map(|name| names::parse_table(incarnation, name));
        let doomed: Vec<TableName> = free_orphans(&state, tables).collect();
        for name in &doomed {
            self.io.delete(&names::table(incarnation, *name)).await?;
        }
        self.io.store.sweep(self.io.request()).await?;
        Ok(doomed)
    }

    /// Deletes the object of an attempt of this epoch that was never handed to the manifest.
    ///
    /// # Errors
    /// `Bug` when it is named, or another epoch's. Of the store.
    pub async fn discard(&self, name: TableName) -> Result<()> {
        if name.epoch != self.manifest.epoch().0 || self.manifest.state().table(name).is_some() {
            return Err(Error::new(
                ErrorKind::Bug,
                format!("table {name:?} is not this process's to discard"),
            ));
        }
        self.io.delete(&names::table(self.manifest.incarnation(), name)).await
    }

    /// Whether tables are named no more and could not be deleted: the next pass tries again.
    pub fn has_undeleted(&self) -> bool {
        !self.memory.lock().undeleted.is_empty()
    }

    /// Whether a table is named no more, and its deletion failed or is not its database's to make.
    pub fn is_undeleted(&self, name: TableName) -> bool {
        let memory = self.memory.lock();
        memory.foreign.contains_key(&name) || memory.undeleted.iter().any(|(undeleted, _)| *undeleted == name)
    }

    /// # Errors
    /// What the deletion of a table failed with in the last pass.
    pub fn check_deleted(&self) -> Result<()> {
        self.memory.lock().undeleted.first().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    fn begin(&self) -> Result<Running<'_>> {
        let mut memory = self.memory.lock();
        if memory.running {
            return Err(Error::new(ErrorKind::Busy, "a collection is running").advice("wait for it"));
        }
        memory.running = true;
        Ok(Running(&self.memory))
    }

    async fn delete_leftovers(&self) {
        self.memory.lock().cold_failed = None;
        let leftovers = std::mem::take(&mut self.memory.lock().undeleted);
        for (name, _) in leftovers {
            self.delete_table(name).await;
        }
    }

    async fn delete_table(&self, name: TableName) {
        let foreign = self.memory.lock().foreign.get(&name).copied();
        if let Some(foreign) = foreign {
            if is_enabled(Mutant::CloneDeletesTablesOfSource) {
                self.delete_foreign(foreign).await;
            }
            return;
        }
        let object = names::table(self.manifest.incarnation(), name);
        let cold = self.memory.lock().cold.get(&name).copied();
        let deleted = match cold.filter(|_| !is_enabled(Mutant::ColdTablesLeft)) {
            None => self.io.delete(&object).await,
            Some(id) => self.delete_cold(id, &object).await,
        };
        if deleted.is_ok() {
            self.memory.lock().cold.remove(&name);
        }
        if let Err(error) = deleted {
            tracing::warn!(%error, %object, "an unneeded table could not be deleted; it is tried again");
            self.memory.lock().undeleted.push((name, error));
        }
    }

    /// Deletes an object of a cold store. One that is out of reach is asked once in a pass.
    async fn delete_cold(&self, id: u64, object: &ObjectName) -> Result<()> {
        let failed = self.memory.lock().cold_failed.clone();
        failed.map_or(Ok(()), Err)?;
        let deleted = match self.cold_store(id) {
            Ok(store) => Io { store, ..self.io.clone() }.delete(object).await,
            Err(error) => Err(error),
        };
        deleted.inspect_err(|error| self.memory.lock().cold_failed = Some(error.clone()))
    }

    fn cold_store(&self, id: u64) -> Result<Arc<dyn ObjectStore>> {
        let state = self.manifest.state();
        let cold = state.cold_stores().find(|cold| cold.id == id);
        let cold =
            cold.ok_or_else(|| Error::new(ErrorKind::Bug, format!("cold store {id:016x} is not named")))?;
        let mut memory = self.memory.lock();
        let store = memory.cold_stores.entry(id);
        Ok(Arc::clone(store.or_insert_with(|| Arc::new(ColdObjects::new(&self.io.store, cold)))))
    }

    /// As [`Collector::collect_orphans`] and [`Collector::discard`], of the database's cold store:
    /// what earlier epochs left there, once, and `left` of this one.
    ///
    /// # Errors
    /// Of the cold store.
    pub(crate) async fn collect_cold_orphans(&self, left: &[TableName], is_first: bool) -> Result<()> {
        let state = self.manifest.state();
        let Some(cold) = state.own_cold_store().filter(|_| is_first || !left.is_empty()) else {
            return Ok(());
        };
        let io = Io { store: self.cold_store(cold.id)?, ..self.io.clone() };
        let incarnation = self.manifest.incarnation();
        let mut doomed: Vec<_> = left.iter().filter(|name| state.table(**name).is_none()).copied().collect();
        if is_first {
            let objects = io.list_all(&names::table_prefix(incarnation)).await?;
            let tables = objects.iter().filter_map(|name| names::parse_table(incarnation, name));
            doomed.extend(free_orphans(&state, tables));
        }
        for name in doomed {
            io.delete(&names::table(incarnation, name)).await?;
        }
        if is_first {
            io.store.sweep(io.request()).await?;
        }
        Ok(())
    }

    /// What no clone does.
    async fn delete_foreign(&self, foreign: TableSource) {
        let state = self.manifest.state();
        let Some(source) = state.sources().find(|source| source.number == foreign.source) else { return };
        let Ok(place) = Place::of(&self.io.store, source) else { return };
        let io = Io { store: place.store, ..self.io.clone() };
        let _deleted = io.delete(&names::table(Incarnation(source.incarnation), foreign.name)).await;
    }

    async fn delete_pin(&self, id: u128) -> Result<()> {
        delete_pin(&self.io, self.manifest.incarnation(), id).await?;
        self.memory.lock().pins.remove(&id);
        Ok(())
    }

    async fn run<M: Machine>(&self, machine: &mut M) -> Result<M::Output> {
        let mut step = machine.begin();
        loop {
            let effect = match step {
                Step::Done(output) => return Ok(output),
                Step::Do(effect) => effect,
            };
            let answer = match effect {
                Effect::Commit(edits) => {
                    let edits: Vec<Edit> = edits.into_iter().map(Edit::from).collect();
                    Answer::Committed(self.manifest.committed(edits).await.map(|_slot| ()))
                }
                Effect::ListPins => Answer::Pins(self.list_pins().await?),
                Effect::DeleteTable(name) => {
                    self.delete_table(name).await;
                    Answer::Deleted
                }
                other => perform(&self.io, self.manifest.incarnation(), other).await?,
            };
            step = machine.step(answer);
        }
    }

    /// All pins, with the leases judged by this process's clock.
    async fn list_pins(&self) -> Result<Vec<ListedPin>> {
        let incarnation = self.manifest.incarnation();
        let began = self.io.env.now();
        let listed = self.io.list_all(&names::pin_prefix(incarnation)).await?;
        let mut beats: BTreeMap<u128, u64> = BTreeMap::new();
        let mut ids: BTreeSet<u128> = BTreeSet::new();
        for (id, beat) in listed.iter().filter_map(|name| names::parse_pin(incarnation, name)) {
            match beat {
                Some(beat) => {
                    let newest = beats.entry(id).or_insert(beat);
                    *newest = beat.max(*newest);
                }
                None => {
                    ids.insert(id);
                }
            }
        }
        let ended = self.io.env.now();
        self.memory.lock().pins.retain(|id, _| ids.contains(id));
        let reads = ids
            .into_iter()
            .map(|id| -> BoxFuture<'_, Result<Option<Arc<Pin>>>> { Box::pin(self.read_pin(id)) });
        let read = all(reads.collect(), PINS_READ_AT_ONCE).await.into_iter().collect::<Result<Vec<_>>>()?;
        let pins: Vec<Arc<Pin>> = read.into_iter().flatten().collect();
        let seen: Vec<Seen> = pins
            .iter()
            .map(|pin| Seen {
                id: pin.id,
                lease: (pin.lease_ms > 0).then(|| Duration::from_millis(pin.lease_ms)),
                beat: beats.get(&pin.id).copied().unwrap_or(0),
            })
            .collect();
        let expired: BTreeSet<u128> =
            self.memory.lock().leases.observe(began, ended, LEASE_MARGIN, &seen).into_iter().collect();
        let state = self.manifest.state();
        let listed = |pin: Arc<Pin>| ListedPin {
            id: pin.id,
            tables: pin.tables.clone(),
            expired: expired.contains(&pin.id),
            are_all_named: pin.tables.iter().all(|name| state.table(*name).is_some()),
        };
        Ok(pins.into_iter().map(listed).collect())
    }

    /// A pin; `None` when its owner has released it meanwhile.
    async fn read_pin(&self, id: u128) -> Result<Option<Arc<Pin>>> {
        if let Some(pin) = self.memory.lock().pins.get(&id) {
            return Ok(Some(Arc::clone(pin)));
        }
        let object = names::pin(self.manifest.incarnation(), id);
        let Some(bytes) = self.io.read_whole(&object, PIN_BYTES_MAX as u64, RetryLimit::Bounded).await?
        else {
            return Ok(None);
        };
        let pin = Arc::new(decode_pin(&bytes).map_err(|error| undecodable(&object, error))?);
        if pin.id != id || pin.incarnation != self.manifest.incarnation().0 {
            return Err(Error::corrupt(object, 32, format!("pin {id:032x}"), format!("pin {:032x}", pin.id)));
        }
        self.memory.lock().pins.insert(id, Arc::clone(&pin));
        Ok(Some(pin))
    }
}

fn has_live_tables(state: &State, source: u32) -> bool {
    let of_source = |table: &Arc<TableDescription>| table.source.is_some_and(|of| of.source == source);
    state.keyspaces().any(|keyspace| keyspace.objects().any(of_source))
}

/// Gives back a clone's pin at a source. To be called again is harmless.
///
/// # Errors
/// Of the source's store.
pub(crate) async fn release_source(io: &Io, place: &Place) -> Result<()> {
    let io = Io { store: Arc::clone(&place.store), ..io.clone() };
    delete_pin(&io, Incarnation(place.source.incarnation), place.source.pin).await
}

/// What the mutant does: gives back the pins at sources of which nothing is live but `replaced`,
/// before the record that replaces them.
pub(crate) async fn release_before_recorded(manifest: &Manifest, replaced: &BTreeSet<TableName>) {
    let state = manifest.state();
    for source in state.sources() {
        let of_source =
            |table: &&Arc<TableDescription>| table.source.is_some_and(|of| of.source == source.number);
        let mut live = state.keyspaces().flat_map(|keyspace| keyspace.objects()).filter(of_source);
        if live.all(|table| replaced.contains(&table.name))
            && let Ok(place) = Place::of(&manifest.io().store, source)
        {
            let _released = release_source(manifest.io(), &place).await;
        }
    }
}

/// Effects that need no manifest.
async fn perform(io: &Io, incarnation: Incarnation, effect: Effect) -> Result<Answer> {
    Ok(match effect {
        Effect::Chain(effect) => Answer::Chain(io.perform(effect, RetryLimit::Bounded).await?),
        Effect::PutPin(id, bytes) => {
            Answer::Put(io.put(&names::pin(incarnation, id), ObjectKind::Pin, Life::Medium, bytes).await)
        }
        Effect::ReadPin(id) => Answer::Bytes(
            io.read_whole(&names::pin(incarnation, id), PIN_BYTES_MAX as u64, RetryLimit::Bounded).await?,
        ),
        Effect::DeletePin(id) => {
            delete_pin(io, incarnation, id).await?;
            Answer::Deleted
        }
        #[cfg(test)]
        Effect::ListTables(incarnation) => {
            let objects = io.list_all(&names::table_prefix(incarnation)).await?;
            Answer::Tables(objects.iter().filter_map(|name| names::parse_table(incarnation, name)).collect())
        }
        Effect::DeleteTable(name) => {
            io.delete(&names::table(incarnation, name)).await?;
            Answer::Deleted
        }
        Effect::Commit(_) | Effect::ListPins => {
            return Err(Error::new(ErrorKind::Bug, "only the writer's collector does that"));
        }
    })
}

/// Deletes a pin, then its heartbeats: one that stays without them would look, to those who saw
/// them, like one whose heartbeats a list misses.
pub(crate) async fn delete_pin(io: &Io, incarnation: Incarnation, id: u128) -> Result<()> {
    let pin = names::pin(incarnation, id);
    io.delete_surely(&pin).await?;
    for heartbeat in io.list_all(&format!("{pin}.")).await? {
        io.delete(&heartbeat).await?;
    }
    Ok(())
}

/// What a pin is for, and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinOptions {
    /// What it is for.
    pub kind: PinKind,
    /// For readers, and only for them: how long a heartbeat holds.
    pub lease: Option<Duration>,
}

/// The heartbeats of a pin by their numbers, from 1 on.
#[derive(Clone, Copy, Debug, Default)]
struct Beats {
    /// The number of the newest one that was begun; 0 before the first.
    newest: u64,
    /// Those with lower numbers were deleted.
    left_from: u64,
}

/// Tables that stay while this lives and is renewed, or until it is released.
#[derive(Debug)]
pub struct Pinned {
    io: Io,
    incarnation: Incarnation,
    pin: Pin,
    /// The tip that made it effective.
    proven: Tip,
    lease: Option<Mutex<Lease>>,
    beats: Mutex<Beats>,
    /// It was seen that the tables are kept no more.
    lost: AtomicBool,
}

/// Pins the tables that `choose` picks of the newest state.
///
/// Costs a load of the manifest, a put, and another load that proves the pin.
///
/// # Errors
/// `NotFound` without a database. `Invalid` when a lasting kind asks for a lease, or a reader for
/// none. `Busy` when collection was faster each time. `PinLost` when pinning took longer than the
/// lease.
pub async fn pin(
    env: &Env,
    store: &Arc<dyn ObjectStore>,
    options: PinOptions,
    choose: impl Fn(&State) -> Vec<TableName>,
) -> Result<Pinned> {
    if options.lease.is_some() != (options.kind == PinKind::Reader) {
        return Err(Error::new(ErrorKind::Invalid, "readers' pins are leased, and no others")
            .advice("give a lease to a reader's pin only"));
    }
    let io = Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Open };
    for _ in 0..PIN_ATTEMPTS_MAX {
        let loaded = load(env, store).await?;
        let tables = choose(&loaded.state);
        if let Some(pinned) = put_pin(&io, loaded.incarnation, options, tables, None, None).await? {
            return Ok(pinned);
        }
    }
    Err(Error::new(ErrorKind::Busy, "the tables were deleted faster than they could be pinned")
        .advice("try again"))
}

/// Pins tables of a proven tip for a reader; `None` when one of them is condemned meanwhile: follow
/// the chain, and choose anew. One put, and what following the chain once costs.
///
/// # Errors
/// As [`pin()`].
pub(crate) async fn pin_for_reader(
    io: &Io,
    tip: &Tip,
    lease: Duration,
    tables: Vec<TableName>,
) -> Result<Option<Pinned>> {
    let options = PinOptions { kind: PinKind::Reader, lease: Some(lease) };
    put_pin(io, tip.incarnation, options, tables, None, Some(tip.clone())).await
}

/// Pins tables of the life `incarnation` of the database in `io`'s store for a clone; `None` when
/// one of them is condemned meanwhile or named no more, or the life has ended: choose anew. Costs a
/// put, and the load that proves it.
///
/// # Errors
/// As [`pin()`].
pub(crate) async fn pin_for_clone(
    io: &Io,
    incarnation: Incarnation,
    tables: Vec<TableName>,
    clone: PinnedFor,
) -> Result<Option<Pinned>> {
    put_pin(io, incarnation, PinOptions { kind: PinKind::Clone, lease: None }, tables, Some(clone), None)
        .await
}

async fn put_pin(
    io: &Io,
    incarnation: Incarnation,
    options: PinOptions,
    tables: Vec<TableName>,
    clone: Option<PinnedFor>,
    known: Option<Tip>,
) -> Result<Option<Pinned>> {
    let lease_ms =
        options.lease.map_or(0, |lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1));
    let created_unix_seconds = io.env.unix_time().as_secs();
    let pin = Pin {
        incarnation: incarnation.0,
        id: io.random_u128(),
        kind: options.kind,
        lease_ms,
        created_unix_seconds,
        tables,
        clone,
    };
    let began = io.env.now();
    let id = pin.id;
    let proven = async {
        let mut machine = PutPin::new(pin.clone())?;
        if let Some(known) = known {
            machine = machine.proven_on(known);
        }
        let proven = match prove_pin(io, incarnation, machine).await? {
            PinOutcome::Effective(proven) => proven,
            // Nothing is there to delete, and who may not put may not delete either.
            PinOutcome::Refused(error) => return Ok(Err(error)),
            PinOutcome::Void | PinOutcome::Undecided => return Ok(Ok(None)),
        };
        let lease = options.lease.map(|duration| Mutex::new(Lease::new(duration, began)));
        let (beats, lost) = (Mutex::default(), AtomicBool::new(false));
        let pinned = Pinned { io: io.clone(), incarnation, pin, proven, lease, beats, lost };
        pinned.check()?;
        Ok(Ok(Some(pinned)))
    };
    let proven: Result<Result<Option<Pinned>>> = proven.await;
    if proven.is_err()
        && let Err(error) = delete_pin(io, incarnation, id).await
    {
        tracing::warn!(%error, id = format!("{id:032x}"), "a pin that could not be proven may be left, and \
            keep tables");
    }
    proven.flatten()
}

/// Puts a pin and proves it, or proves it again.
async fn prove_pin(io: &Io, incarnation: Incarnation, mut machine: PutPin) -> Result<PinOutcome> {
    let mut step = machine.begin();
    let mut unknown = Backoff::new();
    let mut is_unknown = false;
    loop {
        let effect = match step {
            Step::Done(outcome) => return outcome,
            Step::Do(effect) => effect,
        };
        let answer = perform(io, incarnation, effect).await?;
        // From the first unknown outcome on the same put is made again whatever the answer, so a
        // refusal needs a pause as well.
        is_unknown |= matches!(answer, Answer::Put(PutAnswer::Unknown));
        if is_unknown && matches!(answer, Answer::Put(PutAnswer::Unknown | PutAnswer::Refused(_))) {
            unknown.pause(&io.env).await;
        }
        step = machine.step(answer);
    }
}

fn pin_lost() -> Error {
    Error::new(ErrorKind::PinLost, "the lease ran out, and the pinned tables may be gone")
        .advice("open the reader again")
}

impl Pinned {
    /// A proven state in which every pinned table is named.
    pub fn state(&self) -> &Arc<State> {
        &self.proven.state
    }

    /// The pinned tables.
    pub fn tables(&self) -> &[TableName] {
        &self.pin.tables
    }

    /// The pin's id, by which another process can find it.
    pub fn id(&self) -> u128 {
        self.pin.id
    }

    /// Whether the pinned tables may still be read: to be asked after each read of them.
    ///
    /// # Errors
    /// `PinLost` once the lease has run out, or a heartbeat has seen that the tables are kept no
    /// more.
    pub fn check(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            return Err(pin_lost());
        }
        match &self.lease {
            Some(lease) if !lease.lock().is_valid(self.io.env.now()) => Err(pin_lost()),
            _ => Ok(()),
        }
    }

    /// As [`Pinned::check`], but asks the chain: a clock may have stood still while the lease ran
    /// out by the deleter's, as that of a virtual machine does that is stopped. What following the
    /// chain once costs.
    ///
    /// # Errors
    /// `PinLost`; `Retry` while somebody decides about a table; those of the store.
    pub(crate) async fn confirm(&self) -> Result<()> {
        self.check()?;
        if self.lease.is_some() { self.prove(&self.proven).await } else { Ok(()) }
    }

    /// Proves on from a tip that was proven before that the tables are kept.
    async fn prove(&self, known: &Tip) -> Result<()> {
        if is_enabled(Mutant::LeaseRenewedUnproven) {
            return Ok(());
        }
        let machine = PutPin::renewed(self.pin.clone())?.proven_on(known.clone());
        match prove_pin(&self.io, self.incarnation, machine).await? {
            PinOutcome::Effective(_) => Ok(()),
            PinOutcome::Refused(error) => Err(error),
            PinOutcome::Void => {
                self.lost.store(true, Ordering::Release);
                Err(pin_lost())
            }
            PinOutcome::Undecided => {
                Err(Error::new(ErrorKind::Retry, "whether the pinned tables are kept is being decided"))
            }
        }
    }

    /// When the next heartbeat should begin; `None` of a lasting pin.
    pub fn next_heartbeat(&self) -> Option<Instant> {
        self.lease.as_ref().map(|lease| lease.lock().next_beat())
    }

    /// Puts a heartbeat, and proves that nobody has taken the lease for expired before it came: one
    /// put and one delete, and what following the chain from the pin on costs.
    ///
    /// # Errors
    /// `PinLost` when it came too late. Of the store, and `Retry` while somebody decides about a
    /// table: then the rest of the lease still holds.
    pub async fn heartbeat(&self) -> Result<()> {
        self.heartbeat_on(&self.proven).await
    }

    /// As [`Pinned::heartbeat`], from a tip that was proven later.
    ///
    /// # Errors
    /// As [`Pinned::heartbeat`].
    pub(crate) async fn heartbeat_on(&self, known: &Tip) -> Result<()> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let beat = {
            let mut beats = self.beats.lock();
            beats.newest += 1;
            beats.newest
        };
        let began = self.io.env.now();
        let name = names::heartbeat(self.incarnation, self.pin.id, beat);
        match self.io.put(&name, ObjectKind::Pin, Life::Short, Bytes::new()).await {
            PutAnswer::Created | PutAnswer::Exists => {}
            PutAnswer::Unknown => return Err(Error::new(ErrorKind::Retry, "a heartbeat of unknown outcome")),
            PutAnswer::Refused(error) => return Err(error),
        }
        self.prove(known).await?;
        if !lease.lock().renewed(began, self.io.env.now()) {
            return Err(pin_lost());
        }
        self.delete_beats(beat).await
    }

    /// Deletes the heartbeats that are left with numbers below `end`.
    async fn delete_beats(&self, end: u64) -> Result<()> {
        loop {
            let beat = self.beats.lock().left_from.max(1);
            if beat >= end {
                return Ok(());
            }
            self.io.delete(&names::heartbeat(self.incarnation, self.pin.id, beat)).await?;
            let mut beats = self.beats.lock();
            beats.left_from = beats.left_from.max(beat + 1);
        }
    }

    /// Pins the same tables once more, for another purpose. This pin must stay until the new one is
    /// returned, and does: it is borrowed.
    ///
    /// # Errors
    /// As [`pin()`]; `PinLost` when this one's lease has run out.
    pub async fn derive(&self, options: PinOptions) -> Result<Pinned> {
        if is_enabled(Mutant::PinDerivedReleasesSource) {
            self.release().await?;
        }
        let pinned = put_pin(
            &self.io,
            self.incarnation,
            options,
            self.pin.tables.clone(),
            self.pin.clone.clone(),
            None,
        )
        .await?;
        self.check()?;
        pinned.ok_or_else(pin_lost)
    }

    /// Lets the tables go. One deletion, and one of its newest heartbeat if there is any: its owner
    /// need not list them.
    ///
    /// # Errors
    /// Of the store; the pin may be left then.
    pub async fn release(&self) -> Result<()> {
        self.io.delete_surely(&names::pin(self.incarnation, self.pin.id)).await?;
        let newest = self.beats.lock().newest;
        self.delete_beats(newest + 1).await
    }
}

#[cfg(test)]
mod tests;
