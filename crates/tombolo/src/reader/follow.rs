//! One round of a reader: changes of the chain and of the log become visible, all at once.
//!
//! The order in which a round shows things matters. Reads load the view first and the visible
//! number after. So the number is raised before the view is replaced: who sees the new view, whose
//! tables may lack versions that compaction dropped, looks at a number that needs none of them; who
//! sees the old one with the new number sees all of the old one, which is a cut as well. Keyspaces
//! that were dropped leave the catalog before that, and new ones come after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_format::manifest::mark::MarkKind;
use tombolo_format::manifest::{LogRole, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, LogContext, LogId, LogOffset, LogRecord, LogStore, Result};

use crate::collection::{Pinned, pin_for_reader};
use crate::engine::{Background, Engine, KeyspaceInfo, Sealed, View, ingested_of};
use crate::manifest::State;
use crate::manifest::chain::Tip;
use crate::manifest::chain::open::marked;
use crate::manifest::driver::follow::ChainFollower;
use crate::options::KeyspaceOptions;
use crate::recovery::Replay;

/// How often a round begins again because the writer went on meanwhile.
const ATTEMPTS_MAX: u32 = 16;

/// A proven state, and the pin of all its tables; none where it could not be put.
pub(super) struct Kept {
    pub(super) state: Arc<State>,
    pub(super) pin: Option<Arc<Pinned>>,
}

/// What is done where no pin can be put: because the store may only be read, or is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pinning {
    /// That is an error.
    Needed,
    /// It goes on without one: a table that is deleted meanwhile is told of by the read of it.
    WherePossible,
}

/// The tables and value objects that a state shows, or that a log may show with it.
fn tables_of(state: &State) -> BTreeSet<TableName> {
    // The log may show staged tables, before the next state is looked at.
    state.live_names().chain(state.staged().map(|table| table.description.name)).collect()
}

/// Pins the tables of the newest state.
///
/// # Errors
/// `Busy` when they were condemned each time; `PinLost` when pinning took longer than the lease;
/// those of the store.
pub(super) async fn pin_newest(chain: &mut ChainFollower, lease: Duration, pinning: Pinning) -> Result<Kept> {
    for _ in 0..ATTEMPTS_MAX {
        let tip = chain.tip().clone();
        let tables = tables_of(&tip.state).into_iter().collect();
        match pin_for_reader(chain.io(), &tip, lease, tables).await {
            Ok(Some(pin)) => return Ok(Kept { state: tip.state, pin: Some(Arc::new(pin)) }),
            Ok(None) => chain.advance().await?,
            Err(error)
                if pinning == Pinning::WherePossible
                    && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::OutOfSpace) =>
            {
                tracing::debug!(%error, "the tables are looked at without a pin");
                return Ok(Kept { state: tip.state, pin: None });
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::Busy, "the tables were deleted faster than they could be pinned")
        .advice("it is tried again"))
}

/// The pins of a reader: the newest, and those that something still looks at.
#[derive(Debug)]
pub(super) struct Pins {
    pins: Mutex<Vec<Arc<Pinned>>>,
    /// The newest that a round has proven: what is to be proven of a pin goes on from there.
    tip: Mutex<Tip>,
}

impl Pins {
    /// The first pin, if there is one.
    pub(super) fn new(tip: Tip, first: Option<&Arc<Pinned>>) -> Pins {
        Pins { pins: Mutex::new(first.into_iter().cloned().collect()), tip: Mutex::new(tip) }
    }

    fn add(&self, pin: &Arc<Pinned>) {
        self.pins.lock().push(Arc::clone(pin));
    }

    /// A tip that was proven.
    pub(super) fn tip(&self) -> Tip {
        self.tip.lock().clone()
    }

    /// Takes out those that nothing looks at any more.
    pub(super) fn take_unused(&self) -> Vec<Arc<Pinned>> {
        let mut pins = self.pins.lock();
        // Nobody can come by another reference to one that only this list holds.
        let (unused, used) = std::mem::take(&mut *pins)
            .into_iter()
            .partition(|pin| Arc::strong_count(pin) == 1 || is_enabled(Mutant::ReaderPinReleasedInUse));
        *pins = used;
        unused
    }

    /// All that are left.
    pub(super) fn all(&self) -> Vec<Arc<Pinned>> {
        self.pins.lock().clone()
    }

    /// Forgets one whose lease has run out: the deleter ignores it, and deletes it.
    pub(super) fn forget(&self, lost: &Arc<Pinned>) {
        self.pins.lock().retain(|pin| !Arc::ptr_eq(pin, lost));
    }
}

/// Releases pins, as far as that goes: what is left expires.
pub(super) async fn release(pins: Vec<Arc<Pinned>>) {
    for pin in pins {
        if let Err(error) = pin.release().await {
            tracing::warn!(%error, "a reader's pin is left until its lease has run out");
        }
    }
}

/// See the module's documentation.
pub(super) struct Follower {
    engine: Arc<Engine>,
    /// Without it only what tables hold is shown.
    log_store: Option<Arc<dyn LogStore>>,
    context: LogContext,
    chain: ChainFollower,
    lease: Duration,
    pinning: Pinning,
    pub(super) pins: Arc<Pins>,
    pin: Option<Arc<Pinned>>,
    /// What the next view shows. Invariant: all its tables are pinned by `pin`, if there is one.
    state: Arc<State>,
    /// What the logs hold beyond it.
    replay: Replay,
    /// Full memtables, oldest first.
    full: Vec<Arc<Sealed>>,
    /// How far each log was read.
    logs: BTreeMap<LogId, LogOffset>,
    /// The log that was read last.
    reading: Option<LogId>,
    /// The view that is shown lacks something.
    is_behind: bool,
    /// What a log held could not be replayed: nothing heals that.
    broken: Option<Error>,
}

impl Follower {
    pub(super) fn new(
        engine: &Arc<Engine>,
        log_store: Option<Arc<dyn LogStore>>,
        context: LogContext,
        chain: ChainFollower,
        (lease, pinning): (Duration, Pinning),
        kept: Kept,
        memtable_bytes: u64,
    ) -> Result<Follower> {
        let Kept { state, pin } = kept;
        let pins = Arc::new(Pins::new(chain.tip().clone(), pin.as_ref()));
        let replay = Replay::new(&state, engine.budget(), memtable_bytes)?;
        Ok(Follower {
            engine: Arc::clone(engine),
            log_store,
            context,
            chain,
            lease,
            pinning,
            pins,
            pin,
            state,
            replay,
            full: Vec::new(),
            logs: BTreeMap::new(),
            reading: None,
            is_behind: true,
            broken: None,
        })
    }

    /// Brings what is shown up to date.
    ///
    /// # Errors
    /// `NotFound` once the database is destroyed; `Corrupt`; those of the stores: what was shown
    /// stays, and the next round goes on. What a log lacks ([`tombolo_storage::LogReader::lacks`]):
    /// all else is shown.
    pub(super) async fn round(&mut self) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(error) = &self.broken {
                return Err(error.clone());
            }
            self.advance().await?;
            if let Some(moved) = self.chain.tip().state.mark_of(MarkKind::Moved)
                && self.pinning == Pinning::Needed
            {
                return Err(marked(moved));
            }
            self.keep().await?;
            let slot = self.chain.tip().slot;
            match self.read_logs().await {
                Ok(lacks) => {
                    self.show()?;
                    return lacks.map_or(Ok(()), Err);
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
                        && self.broken.is_none() =>
                {
                    // Trimmed or freed meanwhile? The record that allows it is in the chain before
                    // that.
                    self.advance().await?;
                    if self.chain.tip().slot == slot || is_enabled(Mutant::ReaderTakesTrimForDamage) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Busy, "the writer went on faster than its log could be read")
            .advice("it is tried again"))
    }

    async fn advance(&mut self) -> Result<()> {
        self.chain.advance().await?;
        *self.pins.tip.lock() = self.chain.tip().clone();
        Ok(())
    }

    /// Goes over to the newest state, its tables pinned.
    async fn keep(&mut self) -> Result<()> {
        let newest = &self.chain.tip().state;
        let holds = self.pin.as_ref().is_none_or(|pin| pin.check().is_ok());
        if holds && Arc::ptr_eq(newest, &self.state) {
            return Ok(());
        }
        // What could not be pinned once is not tried again.
        let keeps_all = self.pin.as_ref().is_none_or(|pin| tables_of(newest).iter().eq(pin.tables()))
            || is_enabled(Mutant::ReaderViewNotPinned);
        let kept = if holds && keeps_all {
            Kept { state: Arc::clone(newest), pin: self.pin.clone() }
        } else {
            let kept = pin_newest(&mut self.chain, self.lease, self.pinning).await?;
            kept.pin.iter().for_each(|pin| self.pins.add(pin));
            kept
        };
        kept.state.check_no_streams("a reader")?;
        let flushed = |state: &State| {
            state.keyspaces().map(|keyspace| (keyspace.id, keyspace.flushed)).collect::<Vec<_>>()
        };
        if flushed(&kept.state) != flushed(&self.state)
            || kept.state.next_keyspace_id() != self.state.next_keyspace_id()
        {
            self.replay.memtable()?;
            self.full.extend(self.replay.take_full());
            self.replay = self.replay.carry(&kept.state, &self.full)?;
            self.full.clear();
        } else {
            self.replay.take_settings(&kept.state);
        }
        // It became a clone since it was followed.
        self.engine.versions.learn(&kept.state)?;
        self.engine.time.follow(kept.state.times());
        (self.state, self.pin, self.is_behind) = (kept.state, kept.pin, true);
        Ok(())
    }

    /// Reads on in all logs that the state names, oldest first; what the last one lacks.
    async fn read_logs(&mut self) -> Result<Option<Error>> {
        let mut lacks = None;
        let Some(log_store) = self.log_store.clone() else { return Ok(None) };
        let state = Arc::clone(&self.state);
        self.logs.retain(|id, _| state.logs().contains_key(id));
        for (id, log) in state.logs().iter().filter(|(_, log)| log.role == LogRole::Main) {
            let known = self.logs.get(id).copied();
            let from = known.map_or(log.replay_point, |known| known.max(log.replay_point));
            if log.sealed.is_some_and(|sealed| sealed <= from) {
                continue;
            }
            if self.reading != Some(*id) || known.is_none_or(|known| known < log.replay_point) {
                self.replay.begin_log();
                self.reading = Some(*id);
            }
            let record = LogRecord { id: *id, configuration: log.configuration.clone() };
            let mut reader = match log.sealed {
                Some(sealed) => log_store.read(&self.context, &record, from, sealed).await?,
                None => log_store.tail(&self.context, &record, from).await?,
            };
            while let Some((entry, end)) = reader.next().await? {
                if let Err(error) = self.replay.entry(&entry) {
                    let error = error.context(format!("replaying the log of epoch {} up to {end}", id.epoch));
                    // Without memory nothing of it was replayed, nor without the state that names
                    // its tables: the next round does.
                    if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::NotFound) {
                        self.broken = Some(error.clone());
                    }
                    return Err(error);
                }
                self.logs.insert(*id, end);
            }
            lacks = reader.lacks();
            if lacks.is_some() {
                // What follows may build on what is lacking.
                break;
            }
        }
        Ok(lacks)
    }

    /// Shows what the round has found.
    fn show(&mut self) -> Result<()> {
        let engine = &self.engine;
        let active = Arc::clone(self.replay.memtable()?);
        let more = self.replay.take_full();
        self.is_behind |= !more.is_empty();
        self.full.extend(more);
        let keyspaces = self.replay.keyspaces()?;
        hide_keyspaces(engine, &keyspaces);
        engine.stream.visible.fetch_max(self.replay.last_sequence(&self.state).0, Ordering::AcqRel);
        if std::mem::take(&mut self.is_behind) {
            engine.manifest.show(Arc::clone(&self.state));
            let waiting: Vec<_> = self.full.iter().rev().cloned().collect();
            let kept_by = self.pin.clone();
            engine.change_view(|old| {
                let version = engine.versions.build(&self.state, &old.version, &ingested_of(&waiting));
                View { active, waiting, version, kept_by, generation: old.generation + 1 }
            });
        }
        show_keyspaces(engine, &keyspaces);
        Ok(())
    }

    /// Bytes of the entries that logs hold beyond what tables do.
    pub(super) fn replayed_bytes(&self) -> u64 {
        self.replay.bytes()
    }

    /// The state whose tables are shown.
    pub(super) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Whether logs are read.
    pub(super) fn reads_logs(&self) -> bool {
        self.log_store.is_some()
    }

    /// Reads no logs from here on.
    pub(super) fn without_logs(&mut self) {
        self.log_store = None;
    }

    /// The newest that a round has seen of the chain.
    pub(super) fn tip(&self) -> &Tip {
        self.chain.tip()
    }

    /// Whether logs create or drop keyspaces of which the state says nothing.
    pub(super) fn changes_keyspaces(&self) -> Result<bool> {
        let shown: BTreeSet<u32> = self.replay.keyspaces()?.iter().map(|keyspace| keyspace.id).collect();
        Ok(shown != self.state.keyspaces().map(|keyspace| keyspace.id).collect())
    }

    /// Gives everything back.
    pub(super) async fn release_all(&self) {
        release(self.pins.all()).await;
    }
}

/// Takes out of the catalog what is not among these keyspaces. Before their view is shown: in that,
/// what was dropped is merely empty. And before others are added, which may have the names of what
/// was dropped.
fn hide_keyspaces(engine: &Background, keyspaces: &[Arc<KeyspaceInfo>]) {
    let living: BTreeSet<u32> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
    for gone in engine.catalog.ids().into_iter().filter(|id| !living.contains(id)) {
        engine.catalog.remove(gone);
    }
}

/// Makes the catalog show these keyspaces, which the view has already.
fn show_keyspaces(engine: &Background, keyspaces: &[Arc<KeyspaceInfo>]) {
    for keyspace in keyspaces {
        match engine.catalog.by_id(keyspace.id) {
            Some(known) if known.options() == keyspace.options() => {}
            Some(known) => {
                known.set_options(KeyspaceOptions::clone(&keyspace.options()), keyspace.features());
            }
            None => engine.catalog.insert(keyspace),
        }
    }
}
