//! One round of a reader: changes of the chain and of the log become visible, all at once.
//!
//! The order in which a round shows things matters. Reads load the view first and the visible
//! number after. So the number is raised before the view is replaced: who sees the new view, whose
//! tables may lack versions that compaction dropped, looks at a number that needs none of them; who
//! sees the old one with the new number sees all of the old one, which is a cut as well. Keyspaces
//! that were dropped leave the catalog before that, and new ones come after it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::mark::MarkKind;
use tombolo_format::manifest::{MAIN_STREAM, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Epoch, Error, ErrorKind, LogContext, LogEntry, LogId, LogStore, Result};

use super::order::{Looked, Order};
use crate::collection::{Pinned, pin_for_reader};
use crate::engine::{Engine, KeyspaceInfo};
use crate::manifest::State;
use crate::manifest::chain::Tip;
use crate::manifest::chain::open::marked;
use crate::manifest::driver::follow::ChainFollower;
use crate::options::KeyspaceOptions;
use crate::recovery::{Replay, refused, show_another_stream};

/// How often a round begins again because the writer went on meanwhile.
const ATTEMPTS_MAX: u32 = 16;
/// How often the logs of several streams are looked at until a cut has all that is wanted, and the
/// first pause between: four seconds in all.
const LOOKS_MAX: u32 = 30;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// A proven state, and the pin of all its tables; none where it could not be put.
pub(super) struct Kept {
    pub(super) state: Arc<State>,
    pub(super) pin: Option<Arc<Pinned>>,
}

/// What to do where no pin can be put: because the store may only be read, or is full.
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
    /// The newest that a round has proven: the proof of a pin goes on from there.
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

/// Releases pins, as far as that goes: the others expire.
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
    /// The database's own stream.
    main: Order,
    /// The others.
    others: BTreeMap<u32, Order>,
    /// The newest cut that the main log holds.
    cut: Cut,
    /// Streams beside the main one are refused, by this name of it.
    refuses_streams: Option<&'static str>,
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
        let order = |stream: Arc<Engine>| {
            let replay = replay.of_stream(stream.stream_id(), stream.options.memtable_bytes());
            (stream.stream_id(), Order::new(stream, replay))
        };
        let others = engine.streams.all().into_iter().map(order).collect();
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
            main: Order::new(Arc::clone(engine), replay),
            others,
            cut: Cut::none(Epoch::NONE),
            refuses_streams: None,
            broken: None,
        })
    }

    /// Brings the view up to date.
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
                Ok(Seen::All(lacks)) => {
                    self.show()?;
                    return lacks.map_or(Ok(()), Err);
                }
                // What was written to a log that was not read may come before what was read.
                Ok(Seen::OtherLogs) => {}
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
        if let Some(what) = self.refuses_streams {
            kept.state.check_no_streams(what)?;
        }
        let changed = |stream| flushed_of(&kept.state, stream) != flushed_of(&self.state, stream);
        // A drop whose log was trimmed since the round before is in the state alone.
        let ids = |state: &State| state.keyspaces().map(|keyspace| keyspace.id).collect::<Vec<_>>();
        let is_new = kept.state.next_keyspace_id() != self.state.next_keyspace_id()
            || ids(&kept.state) != ids(&self.state);
        if changed(MAIN_STREAM) || is_new {
            self.main.carry(|replay, full| replay.carry(&kept.state, full))?;
        } else {
            self.main.replay.take_settings(&kept.state);
        }
        for (stream, order) in &mut self.others {
            if changed(*stream) {
                order.carry(|replay, full| replay.carry_of_stream(&self.main.replay, full))?;
            } else {
                order.replay.follow_keyspaces(&self.main.replay);
            }
            order.is_behind = true;
        }
        // It became a clone since it was followed.
        self.engine.versions.learn(&kept.state)?;
        self.engine.time.follow(kept.state.times());
        (self.state, self.pin, self.main.is_behind) = (kept.state, kept.pin, true);
        Ok(())
    }

    /// Reads on in all logs that the state names, up to where all that was read can be shown.
    async fn read_logs(&mut self) -> Result<Seen> {
        let state = Arc::clone(&self.state);
        let Some(log_store) = self.log_store.clone() else {
            return check_one_moment(&state).map(|()| Seen::All(None));
        };
        let mut looked = Looked::default();
        let read = self.read_orders(&*log_store, &state, &mut looked).await;
        if let Err(error) = &read
            && looked.is_broken
        {
            self.broken = Some(error.clone());
        }
        let is_alone = read?;
        if is_alone {
            return Ok(Seen::All(looked.lacks));
        }
        // A log that has been named since may hold what comes before something that was read.
        self.advance().await?;
        let newest = &self.chain.tip().state;
        let is_same =
            newest.logs().keys().eq(state.logs().keys()) || is_enabled(Mutant::ReaderOfStreamsMissesLogs);
        Ok(if is_same { Seen::All(None) } else { Seen::OtherLogs })
    }

    /// Whether there is but the main stream. Of several, each was replayed up to what the round
    /// shows: all that was read, if a look at all of them finds nothing new; or else the newest cut
    /// in the main log, if it has all that the first look has found.
    async fn read_orders(
        &mut self,
        log_store: &dyn LogStore,
        state: &State,
        looked: &mut Looked,
    ) -> Result<bool> {
        if !state.has_streams() && self.main.replay.streams().is_empty() {
            // One that begins while it is read has its log in a later state.
            let context = &self.context;
            self.main.read((log_store, context), state, looked, |_| u64::MAX).await?;
            if self.main.replay.streams().is_empty() {
                self.meet_streams()?;
                return Ok(true);
            }
        }
        self.look(log_store, state, looked).await?;
        let mut wanted = self.wanted(state);
        for look in 0..LOOKS_MAX {
            looked.news = 0;
            self.look(log_store, state, looked).await?;
            if looked.news == 0 {
                self.main.apply(state, u64::MAX, looked)?;
                self.meet_streams()?;
            }
            if !self.main.replay.streams().iter().all(|stream| wanted.contains_key(stream)) {
                // One that the main log has begun: its own log was not looked at before.
                self.look(log_store, state, looked).await?;
                wanted = self.wanted(state);
                continue;
            }
            if looked.news == 0 {
                let logs = (log_store, &self.context);
                for order in self.others.values_mut() {
                    order.apply_all(logs, state, looked).await?;
                    if let Some(lacks) = looked.lacks.take() {
                        return Err(lacks);
                    }
                }
                return Ok(false);
            }
            let is_in = |(stream, last): (&u32, &u64)| *last <= self.cut.of(*stream);
            if wanted.iter().all(is_in) || is_enabled(Mutant::ReaderIgnoresCuts) {
                return Ok(false);
            }
            self.engine.env.sleep(LOOK_PAUSE * (1 << look.min(4))).await;
        }
        Err(Error::new(ErrorKind::Busy, "the writer has written no cut of its streams")
            .advice("it is tried again; a writer writes one each quarter of a second"))
    }

    /// Reads on in the logs of all streams, the main one first: what a cut in it holds is durable
    /// then, or never was acknowledged. All up to the cut is replayed.
    async fn look(&mut self, log_store: &dyn LogStore, state: &State, looked: &mut Looked) -> Result<()> {
        let cut = &mut self.cut;
        let logs = (log_store, &self.context);
        self.main.read(logs, state, looked, |entry| cut.meet(entry)).await?;
        self.cut.end_before(state.logs().keys().map(|id| id.epoch).max());
        self.meet_streams()?;
        for (stream, order) in &mut self.others {
            if let Some(lacks) = looked.lacks.take() {
                return Err(lacks);
            }
            let limit = self.cut.of(*stream);
            order.read((log_store, &self.context), state, looked, |_| limit).await?;
        }
        looked.lacks.take().map_or(Ok(()), Err)
    }

    /// Streams that the main log has begun, and the keyspaces that it has made and dropped.
    fn meet_streams(&mut self) -> Result<()> {
        for stream in self.main.replay.streams() {
            if let Entry::Vacant(vacant) = self.others.entry(stream) {
                let engine = match self.engine.streams.get(stream) {
                    Some(engine) => engine,
                    None => show_another_stream(&self.engine, stream)?,
                };
                if let Some(reads) = self.engine.reads() {
                    engine.set_read_only(reads.clone(), &refused());
                }
                let replay = self.main.replay.of_stream(stream, engine.options.memtable_bytes());
                vacant.insert(Order::new(engine, replay));
            }
        }
        self.others.values_mut().for_each(|order| order.replay.follow_keyspaces(&self.main.replay));
        Ok(())
    }

    /// How far each stream that has keyspaces was read, or is in tables. Cuts may lack the others,
    /// to which nobody writes any more.
    fn wanted(&self, state: &State) -> BTreeMap<u32, u64> {
        let living = self.main.replay.streams();
        let others = self.others.iter().filter(|(stream, _)| living.contains(stream));
        let others = others.map(|(stream, order)| (*stream, order.known(state)));
        others.chain([(MAIN_STREAM, self.main.known(state))]).collect()
    }

    /// Shows what the round has found.
    fn show(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let active = self.main.settled()?;
        let keyspaces = self.main.replay.keyspaces()?;
        let others: Result<Vec<_>> = self.others.values_mut().map(Order::settled).collect();
        let (others, state) = (others?, Arc::clone(&self.state));
        let _showing = engine.streams.showing.lock();
        hide_keyspaces(&engine, &keyspaces);
        if self.main.is_behind {
            engine.manifest.show(Arc::clone(&state));
        }
        for (order, active) in self.others.values_mut().zip(others) {
            order.show(&state, active, self.pin.clone());
        }
        self.main.show(&state, active, self.pin.clone());
        show_keyspaces(&engine, &keyspaces);
        Ok(())
    }

    /// Streams beside the main one are refused from here on, by this name.
    pub(super) fn refuse_streams(&mut self, what: &'static str) -> Result<()> {
        self.refuses_streams = Some(what);
        self.state.check_no_streams(what)
    }

    /// Bytes of the entries that logs hold beyond what tables do.
    pub(super) fn replayed_bytes(&self) -> u64 {
        self.main.replay.bytes()
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
        let shown: BTreeSet<u32> = self.main.replay.keyspaces()?.iter().map(|keyspace| keyspace.id).collect();
        Ok(shown != self.state.keyspaces().map(|keyspace| keyspace.id).collect())
    }

    /// Gives everything back.
    pub(super) async fn release_all(&self) {
        release(self.pins.all()).await;
    }
}

/// What a round has read of the logs.
enum Seen {
    /// All that it needs; what the last log lacks.
    All(Option<Error>),
    /// By now the manifest names others.
    OtherLogs,
}

/// One moment of all streams, as the main log says it.
///
/// Numbers in it may have been accepted, and lost with their writer: the next one gives them out
/// again, and nothing of that is in the cut. So it ends with the epoch of the log that holds it.
#[derive(Debug)]
struct Cut {
    epoch: Epoch,
    main: u64,
    others: BTreeMap<u32, u64>,
}

impl Cut {
    fn none(epoch: Epoch) -> Cut {
        Cut { epoch, main: 0, others: BTreeMap::new() }
    }

    /// What it has of a stream.
    fn of(&self, stream: u32) -> u64 {
        if is_enabled(Mutant::ReaderIgnoresCuts) {
            return u64::MAX;
        }
        if stream == MAIN_STREAM { self.main } else { self.others.get(&stream).copied().unwrap_or(0) }
    }

    /// Takes a newer one from an entry of the main log, if that is one; what it has of that stream.
    fn meet(&mut self, entry: Option<(LogId, &LogEntry)>) -> u64 {
        self.end_before(entry.map(|(log, _)| log.epoch));
        if let Some((_, entry)) = entry.filter(|(log, _)| log.epoch >= self.epoch)
            && let Ok(mut operations) = Operations::new(&entry.payload)
            && let Some(Ok(Operation::Cut { reached })) = operations.next()
        {
            self.main = entry.first_sequence.saturating_add(u64::from(entry.count)).saturating_sub(1);
            self.others = reached.into_iter().map(|(stream, sequence)| (stream, sequence.0)).collect();
        }
        self.of(MAIN_STREAM)
    }

    /// There are logs of this epoch: a cut of one before ends.
    fn end_before(&mut self, epoch: Option<Epoch>) {
        if let Some(epoch) = epoch.filter(|epoch| *epoch > self.epoch) {
            *self = Cut::none(epoch);
        }
    }
}

/// # Errors
/// `Unsupported` with streams, each of which is flushed when it wants.
pub(super) fn check_one_moment(state: &State) -> Result<()> {
    if !state.has_streams() {
        return Ok(());
    }
    let message = "the database has streams, and what their tables hold is of no one moment";
    Err(Error::new(ErrorKind::Unsupported, message)
        .advice("look with its log (`--log` at the prompt), or make a checkpoint and look at that"))
}

/// Up to where each keyspace of a stream is in tables.
fn flushed_of(state: &State, stream: u32) -> Vec<(u32, SequenceNumber)> {
    let of_it = state.keyspaces().filter(|keyspace| keyspace.stream == stream);
    of_it.map(|keyspace| (keyspace.id, keyspace.flushed)).collect()
}

/// Takes all keyspaces but these out of the catalog. Before their view is shown: in that,
/// what was dropped is merely empty. And before others are added, which may have the names of what
/// was dropped.
fn hide_keyspaces(engine: &Engine, keyspaces: &[Arc<KeyspaceInfo>]) {
    let living: BTreeSet<u32> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
    for gone in engine.catalog.ids().into_iter().filter(|id| !living.contains(id)) {
        engine.streams.all().iter().for_each(|stream| stream.catalog.remove(gone));
        engine.catalog.remove(gone);
    }
}

/// Makes the catalog show these keyspaces, which the view has already.
fn show_keyspaces(engine: &Engine, keyspaces: &[Arc<KeyspaceInfo>]) {
    for keyspace in keyspaces {
        match engine.catalog.by_id(keyspace.id) {
            Some(known) if known.options() == keyspace.options() => {}
            Some(known) => {
                known.set_options(KeyspaceOptions::clone(&keyspace.options()), keyspace.features());
            }
            None => {
                if let Some(stream) = engine.streams.get(keyspace.stream) {
                    stream.catalog.insert(keyspace);
                }
                engine.catalog.insert(keyspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tombolo_format::batch::BatchBuilder;
    use tombolo_format::key::EntryKind;

    use super::*;

    fn log(epoch: u64) -> LogId {
        LogId { epoch: Epoch(epoch), lane: 0 }
    }

    /// An entry of the main log, which ends at a number.
    fn entry(last: u64, reached: Option<&[(u32, SequenceNumber)]>) -> LogEntry {
        let mut batch = BatchBuilder::default();
        match reached {
            Some(reached) => batch.push_cut(reached).expect("there is room"),
            None => batch.push(EntryKind::Delete, 1, b"k", b"").expect("there is room"),
        }
        LogEntry { stream: MAIN_STREAM, first_sequence: last, count: 1, payload: Bytes::from(batch.finish()) }
    }

    /// What a writer accepted may be lost with it, and its numbers are given out again.
    #[test]
    fn a_cut_ends_with_the_epoch_of_its_log() {
        let mut cut = Cut::none(Epoch::NONE);
        let reached = [(1, SequenceNumber(100))];
        assert_eq!(cut.meet(Some((log(3), &entry(50, Some(&reached))))), 50);
        assert_eq!(cut.meet(Some((log(3), &entry(51, None)))), 50);
        assert_eq!((cut.of(1), cut.of(2)), (100, 0));
        // An entry of the next writer, before that has written a cut.
        assert_eq!(cut.meet(Some((log(4), &entry(51, None)))), 0);
        assert_eq!(cut.of(1), 0);
        // The rest of the old log serves nobody any more.
        assert_eq!(cut.meet(Some((log(3), &entry(52, Some(&reached))))), 0);
        assert_eq!(cut.meet(Some((log(4), &entry(53, Some(&[(1, SequenceNumber(91))]))))), 53);
        assert_eq!(cut.of(1), 91);
        // The manifest names a newer log before anything of it was read.
        cut.end_before(Some(Epoch(4)));
        assert_eq!(cut.of(1), 91);
        cut.end_before(Some(Epoch(5)));
        assert_eq!((cut.of(MAIN_STREAM), cut.of(1)), (0, 0));
    }
}
