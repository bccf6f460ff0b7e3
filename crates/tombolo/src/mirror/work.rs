//! One round of a mirror, and all that it keeps for the next.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Completion, Env, Instant, all};
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::mark::{Mark, MarkKind};
use tombolo_format::manifest::{Edit, MAIN_STREAM, TableDescription, TableName};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, ObjectStore, Result, Uri};

use super::copy::Copier;
use super::plan::{self, Copies, Placed};
use super::{MirrorOptions, MirrorStatus};
use crate::budget::{Membership, MemoryBudget};
use crate::cache::BlockCache;
use crate::checkpoint::last_sequence;
use crate::collection::driver::Collector;
use crate::db::{Builder, memory_of, stores};
use crate::engine::{Sealed, unix_ms};
use crate::flash::FlashUse;
use crate::flush::{Elsewhere, never_named, write_elsewhere};
use crate::manifest::{self, Manifest, Places, State};
use crate::memtable::Memtable;
use crate::options::{Options, TakeOver};
use crate::pace::Paces;
use crate::reader::{Driven, FollowRequest, How, ReaderOptions};
use crate::recovery::Claiming;
use crate::version::{Naming, Tables};

/// Tables that are copied between two records that name them, and their bytes: what an end in
/// between costs.
const BATCH_TABLES: usize = 16;
const BATCH_BYTES: u64 = 256 << 20;
/// Tables copied at once.
const COPIES_IN_FLIGHT_MAX: usize = 4;
/// The memtable of a look at the mirror, to which nobody writes.
const LOOK_MEMTABLE_BYTES: u64 = 64 << 10;
/// How often a mirror that has nothing to do puts a record, as a sign that it lives.
const SIGN: Duration = Duration::from_secs(20);

/// Tables that hold what a memtable of the source did when its newest write was this one.
struct Private {
    memtable: Arc<Memtable>,
    last: SequenceNumber,
    tables: Vec<TableDescription>,
}

impl Private {
    /// Whether both are of the same memtable, as far as it goes.
    fn is(&self, other: &Private) -> bool {
        Arc::ptr_eq(&self.memtable, &other.memtable) && self.last == other.last
    }
}

/// Where verification goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    pub(super) keyspace: u32,
    pub(super) after: Option<Vec<u8>>,
}

/// What a round has looked at.
pub(super) struct Cut {
    pub(super) state: Arc<State>,
    /// Writes up to here are in it.
    pub(super) reached: SequenceNumber,
    /// Memtables count.
    pub(super) has_memory: bool,
}

/// See the module's documentation.
pub(super) struct Work {
    pub(super) env: Env,
    pub(super) options: MirrorOptions,
    pub(super) status: Arc<Mutex<MirrorStatus>>,
    pub(super) source: Builder,
    pub(super) driven: Driven,
    pub(super) source_objects: Arc<dyn ObjectStore>,
    pub(super) target: Builder,
    pub(super) target_objects: Arc<dyn ObjectStore>,
    pub(super) manifest: Manifest,
    collector: Collector,
    tables: Tables,
    pace: Arc<Paces>,
    private: Vec<Private>,
    /// Tables that lie in the mirror whole, and that no record is known to name: what a round has
    /// made that did not end.
    unnamed: Vec<TableDescription>,
    /// Objects that no record will name, whose deletion has failed.
    left: Vec<TableName>,
    /// A record of which it is not known yet whether it is in place.
    on_its_way: Option<Completion<Result<u64>>>,
    signed: Instant,
    /// The memory of both sides.
    pub(super) budget: Arc<MemoryBudget>,
    /// Where continuous verification goes on.
    pub(super) position: Position,
}

fn id_of(state: &State) -> u64 {
    state.database().map_or(0, |database| database.id)
}

/// Settings and memory of a look at the mirror beside its source: one memory budget for both.
///
/// # Errors
/// `Invalid` when there is no room for it.
pub(super) fn look_options(settings: &Options, budget: &Arc<MemoryBudget>) -> Result<(Options, Membership)> {
    let memtable_bytes = settings.memtable_bytes().min(LOOK_MEMTABLE_BYTES);
    let membership = budget.join(memtable_bytes);
    let membership = membership.map_err(|error| error.context("making room to compare a mirror's keys"))?;
    Ok((Options { memtable_bytes: Some(memtable_bytes), ..settings.clone() }, membership))
}

/// A URI as it is written down and shown.
pub(super) fn shown(uri: &str) -> String {
    Uri::parse(uri).map_or_else(|_| uri.to_owned(), |uri| uri.shown())
}

/// Whether a database may become, or is, a mirror of the one with this number.
fn check_target(state: &State, database: u64, at: &str) -> Result<()> {
    if id_of(state) == database {
        return Err(Error::new(ErrorKind::Invalid, "a database cannot be its own mirror"));
    }
    match state.mark() {
        None if state.next_keyspace_id() == 0 => Ok(()),
        None => {
            let error = Error::new(ErrorKind::AlreadyExists, format!("{at} holds a database already"));
            Err(error.advice("mirror to another place, or destroy that database first"))
        }
        Some(mark) if mark.database == database && mark.kind != MarkKind::Moving => Ok(()),
        Some(_) if is_enabled(Mutant::MirrorOfAnother) => Ok(()),
        Some(mark) => {
            let what = match mark.kind {
                MarkKind::Mirror => "a mirror of",
                MarkKind::Moving => "about to move to",
                MarkKind::Moved => "a database that has moved to",
            };
            let error = Error::new(ErrorKind::Invalid, format!("{at} is {what} another database"));
            Err(error
                .expected(format!("database {database:016x}"))
                .found(format!("database {:016x} at {}", mark.database, mark.place))
                .advice("mirror to another place, or destroy that database first"))
        }
    }
}

impl Work {
    pub(super) async fn begin(
        env: &Env,
        source: Builder,
        target: Builder,
        options: MirrorOptions,
        status: Arc<Mutex<MirrorStatus>>,
    ) -> Result<Work> {
        let (source_objects, source_log) = stores(&source, env)?;
        let (target_objects, target_log) = stores(&target, env)?;
        let (settings, budget) = memory_of(&source)?;
        let driven = Driven::open(FollowRequest {
            env: env.clone(),
            place: source.uri.clone(),
            objects: Arc::clone(&source_objects),
            log_store: Some(source_log),
            options: settings.clone(),
            budget: Arc::clone(&budget),
            flash: None,
            operators: source.operators.clone(),
            how: How::Follow(ReaderOptions::default()),
        })
        .await?;
        let database = id_of(driven.state());
        // Asked for before anything is claimed.
        let room = if options.verify { look_options(&settings, &budget).map(drop) } else { Ok(()) };
        if let Err(error) = room {
            driven.close().await;
            return Err(error);
        }
        let manifest = Self::claim(env, &target, (&target_objects, &*target_log), database).await;
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) => {
                driven.close().await;
                return Err(error);
            }
        };
        let places = Places::own(&target_objects, manifest.incarnation());
        let tables = Tables {
            env: env.clone(),
            objects: Arc::clone(&target_objects),
            cache: BlockCache::of(&budget),
            flash: FlashUse::None,
            incarnation: manifest.incarnation(),
            epoch: manifest.epoch(),
            places: Arc::new(Mutex::new(places)),
            silence: Arc::default(),
            left_behind: Arc::default(),
            collectors: Arc::default(),
            naming: Naming::Fresh,
            cold: None,
        };
        let pace = Arc::new(Paces::new(options.bytes_per_second_max, source.rate.clone()));
        let (collector, signed) = (Collector::new(manifest.clone()), env.now());
        let work = Work {
            env: env.clone(),
            options,
            status,
            source,
            driven,
            source_objects,
            target,
            target_objects,
            manifest,
            collector,
            tables,
            pace,
            private: Vec::new(),
            unnamed: Vec::new(),
            left: Vec::new(),
            on_its_way: None,
            signed,
            budget,
            position: Position::default(),
        };
        match work.mark_target().await {
            Ok(()) => Ok(work),
            Err(error) => {
                work.close().await;
                Err(error)
            }
        }
    }

    async fn claim(
        env: &Env,
        target: &Builder,
        (objects, log_store): (&Arc<dyn ObjectStore>, &dyn tombolo_storage::LogStore),
        database: u64,
    ) -> Result<Manifest> {
        let at = objects.describe();
        let mode = match manifest::load(env, objects).await {
            Ok(loaded) => {
                check_target(&loaded.state, database, &at)?;
                manifest::OpenMode::OpenMarked
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tombolo_storage::probe::exclusive::prove(env, objects).await?;
                manifest::OpenMode::CreateOrOpen
            }
            Err(error) => return Err(error.context(format!("looking whether {at} is a mirror"))),
        };
        let is_forced = target.take_over == TakeOver::Always || is_enabled(Mutant::MirrorTwice);
        let take_over = if is_forced { TakeOver::Always } else { TakeOver::Never };
        let claiming = Claiming { env, objects, log_store, mode, take_over };
        let manifest = claiming.claim(None, &mut None).await?;
        if let Err(error) = check_target(&manifest.state(), database, &at) {
            manifest.leave().await;
            return Err(error);
        }
        Ok(manifest)
    }

    /// Marks the target, so that nobody claims it by mistake, and deletes what mirrors before have
    /// left there.
    async fn mark_target(&self) -> Result<()> {
        let state = self.manifest.state();
        let (source, tip) = (self.driven.state(), self.driven.tip());
        let place = shown(&self.source.uri);
        let known = state.mark().cloned();
        let mark = match &known {
            Some(mark) if mark.kind == MarkKind::Mirror && mark.place == place => None,
            // It shows what both held when the roles were exchanged: any state of the other one.
            Some(mark) => {
                Some(Mark { kind: MarkKind::Mirror, slot: mark.slot.max(1), place, ..mark.clone() })
            }
            None => Some(Mark {
                kind: MarkKind::Mirror,
                place,
                database: id_of(source),
                incarnation: tip.incarnation.0,
                epoch: 0,
                slot: 0,
                sequence: SequenceNumber::ZERO,
                unix_ms: 0,
            }),
        };
        if mark.is_some() {
            self.manifest.committed_in_time(vec![Edit::Marked(mark)]).await?;
        }
        let state = self.manifest.state();
        if let Some(mark) = state.mark() {
            let mut status = self.status.lock();
            (status.sequence, status.unix_ms) = (mark.sequence.0, mark.unix_ms);
        }
        if is_enabled(Mutant::MirrorStagedSwept) {
            let staged = state.staged().map(|table| Edit::TableObsolete { name: table.description.name });
            self.manifest.committed_in_time(staged.collect()).await?;
        }
        self.collector.collect_orphans().await.map(drop)
    }

    /// Publishes the newest state of the source, and compares a part of both.
    pub(super) async fn round(&mut self) -> Result<()> {
        let cut = self.publish().await?;
        self.collect().await?;
        if self.options.verify && cut.has_memory {
            self.verify_some(&cut).await?;
        }
        Ok(())
    }

    /// Publishes the newest state of the source.
    pub(super) async fn publish(&mut self) -> Result<Cut> {
        self.settle().await?;
        let unix_ms = unix_ms(&self.env);
        self.driven.round().await?;
        let state = Arc::clone(self.driven.state());
        self.check_source(&state)?;
        let newest = SequenceNumber(self.driven.engine().stream.visible().0);
        let has_memory = self.driven.shows_entries_alone()?;
        let reached = if has_memory { newest } else { last_sequence(&state) };
        self.status.lock().source_sequence = newest.0;
        let cut = Cut { state, reached, has_memory };
        let shown = self.manifest.state().mark().cloned();
        let Some(shown) = shown else {
            return Err(Error::new(ErrorKind::Fenced, "the mirror has lost its mark"));
        };
        // What came by tables from outside is in none yet, and the mirror shows more already.
        if cut.reached < shown.sequence && !is_enabled(Mutant::MirrorGoesBack) {
            return Ok(Cut { has_memory: false, ..cut });
        }
        let is_same = (shown.epoch, shown.slot) == (cut.state.epoch().0, cut.state.slot())
            && shown.sequence == cut.reached;
        let mark = Mark {
            epoch: cut.state.epoch().0,
            slot: cut.state.slot(),
            sequence: cut.reached,
            unix_ms,
            ..shown
        };
        self.forget(&cut).await;
        if !is_same {
            let copies = self.copy_missing(&cut.state).await?;
            let private = match cut.has_memory {
                true => self.write_private(&cut).await?,
                false => {
                    self.private.clear();
                    Vec::new()
                }
            };
            let edits = plan::edits(&self.manifest.state(), &cut.state, &copies, &private, cut.reached, mark);
            self.commit(edits).await?;
            self.status.lock().published += 1;
        } else if self.env.now().since(self.signed) >= SIGN {
            self.commit(vec![Edit::Marked(Some(mark))]).await?;
        }
        let mut status = self.status.lock();
        (status.sequence, status.unix_ms) = (cut.reached.0, unix_ms);
        Ok(cut)
    }

    /// # Errors
    /// `OutcomeUnknown` while the store does not say what became of it: see [`Work::settle`].
    async fn commit(&mut self, edits: Vec<Edit>) -> Result<()> {
        self.on_its_way = Some(self.manifest.commit(edits));
        self.settle_last().await?;
        self.signed = self.env.now();
        Ok(())
    }

    /// Waits for the record that is on its way, and what it came to.
    async fn settle_last(&mut self) -> Result<()> {
        let Some(done) = &mut self.on_its_way else { return Ok(()) };
        let ended = self.manifest.in_time(done).await?;
        self.on_its_way = None;
        // At once: what it names may be un-named, and deleted, before the next round.
        let state = self.manifest.state();
        self.unnamed.retain(|table| state.table(table.name).is_none());
        let why = || Error::new(ErrorKind::OutcomeUnknown, "the manifest's task ended");
        ended.unwrap_or_else(|| Err(why().advice("mirror again to see what holds"))).map(drop)
    }

    /// Waits for the record that an earlier round has left on its way: what it names is known then.
    ///
    /// # Errors
    /// `OutcomeUnknown` while that is not known; `Fenced`, `Closed`.
    async fn settle(&mut self) -> Result<()> {
        match self.settle_last().await {
            Err(error)
                if self.on_its_way.is_some()
                    || matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed) =>
            {
                Err(error)
            }
            // Its round was told.
            _ => Ok(()),
        }
    }

    /// Deletes what earlier rounds have made, no record names, and this one has no use for.
    async fn forget(&mut self, cut: &Cut) {
        let database = id_of(&cut.state);
        let view = self.driven.engine().view_owned();
        let is_there = |private: &Private| {
            let is_active = Arc::ptr_eq(&view.active, &private.memtable) && private.last == cut.reached;
            let is = |sealed: &Arc<Sealed>| {
                Arc::ptr_eq(&sealed.memtable, &private.memtable) && private.last == sealed.last_sequence
            };
            is_active || view.waiting.iter().any(is)
        };
        // It keeps memtables that are needed no more.
        self.private.retain(is_there);
        let is_private = |name: TableName| {
            let of = self.private.iter().find(|of| of.tables.iter().any(|table| table.name == name));
            of.is_some_and(|of| cut.has_memory && is_there(of))
        };
        let is_of_use = |table: &TableDescription| match table.copy_of() {
            Some(copy) if copy.database == database => cut.state.table(copy.name).is_some(),
            Some(_) => false,
            None => is_private(table.name),
        };
        let (stays, goes): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unnamed).into_iter().partition(is_of_use);
        self.unnamed = stays;
        let goes = goes.into_iter().map(|table| table.name);
        let goes: Vec<_> = std::mem::take(&mut self.left).into_iter().chain(goes).collect();
        for name in goes {
            self.discard(name).await;
        }
    }

    /// Deletes an object that no record will name.
    async fn discard(&mut self, name: TableName) {
        if let Err(error) = self.collector.discard(name).await {
            tracing::debug!(%error, "what is of no use could not be deleted; it is tried again");
            self.left.push(name);
        }
    }

    /// # Errors
    /// `Invalid` when the source is another database than it was, or has moved.
    fn check_source(&self, state: &State) -> Result<()> {
        match state.mark() {
            Some(mark) if mark.kind == MarkKind::Moved => {
                Err(Error::new(ErrorKind::Invalid, format!("the source has moved to {}", mark.place))
                    .advice("mirror it from there"))
            }
            _ => Ok(()),
        }
    }

    /// Copies the tables that the mirror lacks. Those of a round that ends early are named, so that
    /// the next one need not copy them again.
    async fn copy_missing(&mut self, source: &Arc<State>) -> Result<Copies> {
        let mut copies = plan::copies(&self.manifest.state(), source);
        for copy in &self.unnamed {
            if let Some(of) = copy.copy_of().filter(|of| of.database == id_of(source)) {
                copies.entry(of.name).or_insert_with(|| Placed::New(copy.clone()));
            }
        }
        let missing = plan::missing(source, &copies);
        let bytes = |tables: &[Arc<TableDescription>]| tables.iter().map(|table| table.length).sum::<u64>();
        self.left(missing.len(), bytes(&missing));
        if missing.is_empty() {
            return Ok(copies);
        }
        // Before the first state is shown nobody is misled by keyspaces that are empty.
        if self.manifest.state().mark().is_some_and(|mark| mark.slot == 0) {
            let edits = plan::keyspaces(&self.manifest.state(), source);
            self.commit(edits).await?;
        }
        let copier = Copier {
            tables: self.tables.clone(),
            places: Places::of(&self.source_objects, self.driven.tip().incarnation, source)?,
            database: id_of(source),
            pace: Arc::clone(&self.pace),
        };
        let mut left = &missing[..];
        while !left.is_empty() {
            let mut count = 0;
            let mut batch_bytes = 0;
            while count < left.len().min(BATCH_TABLES) && (count == 0 || batch_bytes < BATCH_BYTES) {
                batch_bytes += left[count].length;
                count += 1;
            }
            let (batch, rest) = left.split_at(count);
            let copied = self.copy_batch(&copier, batch).await?;
            copies.extend(copied);
            left = rest;
            self.left(left.len(), bytes(left));
        }
        Ok(copies)
    }

    fn left(&self, tables: usize, bytes: u64) {
        let mut status = self.status.lock();
        (status.tables_left, status.bytes_left) = (tables as u64, bytes);
    }

    async fn copy_batch(&mut self, copier: &Copier, batch: &[Arc<TableDescription>]) -> Result<Copies> {
        let copying = batch.iter().map(|table| -> BoxFuture<'_, _> {
            let name = self.manifest.fresh_table_name();
            Box::pin(async move { (name, copier.copy(table, name).await) })
        });
        let ended = all(copying.collect(), COPIES_IN_FLIGHT_MAX).await;
        let (mut copies, mut staged, mut failed) = (Copies::new(), Vec::new(), None);
        let state = self.manifest.state();
        for (table, (name, ended)) in batch.iter().zip(ended) {
            match ended {
                Ok(copy) => {
                    let mut status = self.status.lock();
                    status.tables_copied += 1;
                    status.bytes_copied += copy.length;
                    self.unnamed.push(copy.clone());
                    // What lies in a keyspace that the mirror does not have yet is named with it.
                    if state.keyspace(copy.keyspace).is_some() {
                        copies.insert(table.name, Placed::Staged(name));
                        staged.push(Edit::TableStaged(copy));
                    } else {
                        copies.insert(table.name, Placed::New(copy));
                    }
                }
                Err(error) => {
                    self.discard(name).await;
                    failed.get_or_insert(never_named(error));
                }
            }
        }
        if !staged.is_empty() {
            self.commit(staged).await?;
        }
        match failed {
            None => Ok(copies),
            Some(error) => Err(self.judge(error).await),
        }
    }

    /// What an error of reading the source means: of tables that are gone because the lease ran
    /// out, the next round looks at newer ones.
    async fn judge(&self, error: Error) -> Error {
        let view = self.driven.engine().view_owned();
        if let Some(pin) = &view.kept_by
            && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt)
            && let Err(lost) = pin.confirm().await
            && lost.kind() == ErrorKind::PinLost
        {
            return lost.source(error);
        }
        error
    }

    /// What an error of reading the mirror means: a process that has claimed it since sweeps what
    /// this one has written.
    pub(super) async fn judge_claim(&self, error: Error) -> Error {
        let may_be = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt);
        if !may_be || self.on_its_way.is_some() {
            return error;
        }
        let mark = self.manifest.state().mark().cloned();
        match self.manifest.committed_in_time(vec![Edit::Marked(mark)]).await {
            Err(fenced) if fenced.kind() == ErrorKind::Fenced => fenced.source(error),
            _ => error,
        }
    }

    /// Writes what the source has in memory into tables of the mirror. What has not changed since
    /// the last round lies there.
    async fn write_private(&mut self, cut: &Cut) -> Result<Vec<TableDescription>> {
        let engine = Arc::clone(self.driven.engine());
        let view = engine.view_owned();
        let mut memtables: Vec<_> = view
            .waiting
            .iter()
            .rev()
            .map(|sealed| (Arc::clone(&sealed.memtable), sealed.last_sequence))
            .collect();
        memtables.push((Arc::clone(&view.active), cut.reached));
        memtables.retain(|(memtable, _)| !memtable.is_empty());
        let elsewhere = Arc::new(Elsewhere {
            engine: Arc::clone(&engine),
            tables: self.tables.clone(),
            manifest: self.manifest.clone(),
            pace: Arc::clone(&self.pace),
        });
        let mut written: Vec<Private> = Vec::new();
        for (memtable, last) in memtables {
            let known = self
                .private
                .iter()
                .find(|known| Arc::ptr_eq(&known.memtable, &memtable) && known.last == last);
            if let Some(known) = known {
                written.push(Private { memtable, last, tables: known.tables.clone() });
                continue;
            }
            let sealed = Sealed {
                memtable: Arc::clone(&memtable),
                last_sequence: last,
                log_end: None,
                keyspace_edits: Vec::new(),
                ingested: None,
                old_logs: Vec::new(),
                buried: Mutex::default(),
            };
            let mut tables = Vec::new();
            let wrote = write_elsewhere(&elsewhere, &cut.state, &sealed, &mut tables).await;
            if let Err(error) = wrote {
                for table in tables {
                    self.discard(table.name).await;
                }
                let is_known = |new: &Private| self.private.iter().any(|known| known.is(new));
                let unknown: Vec<_> = written.into_iter().filter(|new| !is_known(new)).collect();
                self.private.extend(unknown);
                return Err(never_named(error));
            }
            self.unnamed.extend(tables.iter().cloned());
            written.push(Private { memtable, last, tables });
        }
        let tables = written.iter().flat_map(|private| private.tables.iter().cloned()).collect();
        self.private = written;
        Ok(tables)
    }

    /// Deletes what the mirror needs no more.
    async fn collect(&self) -> Result<()> {
        self.collector.collect(|_| false).await?;
        self.collector.check_deleted()
    }

    /// Gives everything back; the mirror stays as it is.
    pub(super) async fn close(self) {
        self.driven.close().await;
        self.manifest.leave().await;
    }
}

/// The number of the main stream of a state.
pub(super) fn reached(state: &State) -> SequenceNumber {
    let stream = state.streams().get(&MAIN_STREAM).copied().unwrap_or(SequenceNumber::ZERO);
    stream.max(last_sequence(state))
}

#[cfg(test)]
mod tests;
