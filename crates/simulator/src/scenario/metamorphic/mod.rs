//! One history of operations under many option sets gives one result: that of an ordered map.
//!
//! ```text
//! seed ──▶ history ──▶ map            (what each operation must answer)
//!             └──────▶ engine × sets  (what it answers)
//! ```
//!
//! - `history` draws the operations.
//! - `model` says what an ordered map answers.
//! - `elsewhere` reads by readers, looks, checkpoints and clones, and gives tables out and in.
//! - `sets` has the option sets: memory, blocks, compression, filters, forms of the log, stores.
//! - `filter` is asked by compaction, and leaves answers as they are, or drops what it is told to.
//! - `operator` has the merge operators.
//! - `real` runs histories on a real store, in real time.
//!
//! So that the answers are the same under every set, what a crash may or may not keep is settled
//! before it: unlogged writes are flushed, and a durable write ends the time of merely accepted
//! ones. The other scenarios crash anywhere.

mod elsewhere;
mod filter;
mod history;
mod model;
mod operator;
mod real;
mod sets;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Batch, Builder, Condition, Db, Durability, Error, Keyspace, KeyspaceOptions, Op, OpenMode, Options,
    Reader, Registry, Snapshot, TakeOver, Transaction, TransactionOptions, Uri,
};
use tombolo_env::Env;
use tombolo_env::simulated::Crash;

use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::oracle::show;
use filter::Same;
use history::{Action, Answer, Asks, Does, Way, Write, history, value};
use model::Model;
use sets::{OptionSet, SETS};

pub use real::{Ran, Real, on_store};

const NAME: &str = "metamorphic";

/// Operations of a history.
const ACTIONS: usize = 160;

/// Writes called and not waited for, at most.
const PIPELINED_MAX: usize = 12;

/// A step of time: what ends does so in its middle. Half of it is longer than a history takes, and
/// than the database's time may run ahead; what has ended is destroyed within the next one.
const STEP: Duration = Duration::from_secs(3 * 3600);

/// Runs a seed: its history under every set.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    run_some(seed, 1)
}

/// Runs a seed: its history under every so manieth set, another one of them for each seed.
///
/// # Errors
/// The first answer that is not that of an ordered map, or an error.
pub fn run_some(seed: u64, every: usize) -> Result<Report, Failure> {
    let actions = Arc::new(history(seed, ACTIONS));
    let mut report = Report::default();
    let first = usize::try_from(seed).map_or(0, |seed| seed % every.max(1));
    for set in SETS.iter().skip(first).step_by(every.max(1)) {
        let place = || format!("option set {:?}", set.name);
        // The same world for every set: what differs is the set alone.
        report.add(&guarded(NAME, seed, place, mix(seed, 6), |run| run_set(run, set, &actions))?);
    }
    Ok(report)
}

/// What the lives of a history share.
#[derive(Clone)]
struct Shared {
    set: &'static OptionSet,
    /// URI of the store, and of the log where it is not the store's own.
    stores: (String, Option<String>),
    options: Options,
    registry: Registry,
    actions: Arc<Vec<Action>>,
    model: Arc<Mutex<Model>>,
    filter: Same,
    /// By the host's clock, when the history began.
    began: Duration,
}

impl Shared {
    fn new(
        set: &'static OptionSet,
        stores: (String, Option<String>),
        options: Options,
        actions: &Arc<Vec<Action>>,
        began: Duration,
    ) -> Shared {
        let (mut registry, model) = (Registry::with_defaults(), Arc::new(Mutex::new(Model::default())));
        tombolo_zoned::register(&mut registry);
        let (actions, filter) = (Arc::clone(actions), Same::default());
        Shared { set, stores, options, registry, actions, model, filter, began }
    }

    /// The middle of a step, in milliseconds: a value ends then that no later step has.
    fn end_ms(&self, step: u64) -> u64 {
        let end = self.began + STEP * u32::try_from(step).unwrap_or(u32::MAX) + STEP / 2;
        u64::try_from(end.as_millis()).unwrap_or(u64::MAX)
    }
}

/// How a life ended: the next operation, and the crash that comes between.
struct Ended {
    next: usize,
    crash: Option<Crash>,
}

fn run_set(run: &Run, set: &'static OptionSet, actions: &Arc<Vec<Action>>) -> Result<(), Violation> {
    let stores = (set.stores.0.to_owned(), Some(set.stores.1.to_owned()));
    let options =
        Options::parse(set.options.iter().copied()).map_err(|error| unexpected("the set", &error))?;
    let shared = Shared::new(set, stores, options, actions, run.world.process("clock").env().unix_time());
    let mut next = 0;
    loop {
        let process = run.world.process("user");
        let life = live(process.env(), shared.clone(), next);
        let ended = match process.run(life) {
            None => {
                return Err(Violation::new(format!("the process ended by itself after operation {next}")));
            }
            Some(ended) => ended?,
        };
        let mut oracle = run.oracle.lock();
        oracle.report.opened += 1;
        oracle.report.writes +=
            actions[next..ended.next].iter().filter(|action| matches!(action, Action::Write(..))).count()
                as u64;
        oracle.report.verified += (ended.next - next) as u64;
        next = ended.next;
        match ended.crash {
            None => return Ok(()),
            Some(Crash::Kill) => process.kill(),
            // Stores in memory do not know the power; the process ends.
            Some(Crash::PowerLoss) => run.world.host(0).power_loss(),
        }
        oracle.report.crashes += 1;
    }
}

/// One life of the database, from operation `first` to a crash or the end.
async fn live(env: Env, shared: Shared, first: usize) -> Result<Ended, Violation> {
    let mut life = Life {
        db: open(&env, &shared).await.map_err(|error| unexpected("opening", &error))?,
        env,
        shared,
        pending: Vec::new(),
        snapshots: Vec::new(),
        reader: None,
        unlogged: false,
    };
    life.check_all()
        .await
        .map_err(|violation| violation.at(format!("after opening, before operation {first}")))?;
    for number in first..life.shared.actions.len() {
        let action = life.shared.actions[number].clone();
        if let Action::Crash(crash) = action {
            life.settle_for(crash).await.map_err(|error| unexpected("before a crash", &error))?;
            life.shared.model.lock().snapshots.clear();
            return Ok(Ended { next: number + 1, crash: Some(crash) });
        }
        let expected = life.shared.model.lock().apply(&action, number);
        let answered = life
            .act(&action, number)
            .await
            .map_err(|error| unexpected(&format!("operation {number}, {action:?}"), &error))?;
        if answered != expected {
            return Err(Violation::new(format!(
                "operation {number}, {action:?}: answered {}, expected {}",
                answered.show(),
                expected.show()
            )));
        }
    }
    life.settle().await.map_err(|error| unexpected("the end", &error))?;
    life.check_all().await.map_err(|violation| violation.at("the end"))?;
    let report = life.db.verify().await.map_err(|error| unexpected("verifying", &error))?;
    if !report.damage.is_empty() {
        return Err(Violation::new(format!(
            "verify finds damage where none is: {}",
            report.damage.join("; ")
        )));
    }
    life.let_go();
    life.db.close().await.map_err(|error| unexpected("closing", &error))?;
    Ok(Ended { next: life.shared.actions.len(), crash: None })
}

fn unexpected(place: &str, error: &Error) -> Violation {
    Violation::new(format!("{place}: {error}"))
}

impl Shared {
    /// Of a database on these stores.
    fn builder(&self, env: &Env, (store, log): &(String, Option<String>)) -> Result<Builder, Error> {
        let builder = Db::builder(store).env(env.clone()).registry(self.registry.clone());
        let builder = builder.compaction_filter(Same::name()?, self.filter.clone());
        let (name, operator) = operator::own()?;
        let builder = builder.operator(name, operator).take_over(TakeOver::Always);
        let is_aged = self.set.keyspace.iter().any(|setting| setting.starts_with("cold_after"));
        // A clone finds the cold store of its source by itself.
        let builder = if is_aged && *store == self.stores.0 {
            let mut cold = Uri::parse(store)?;
            cold.rest.push_str("-cold");
            builder.cold_store(cold.to_string())
        } else {
            builder
        };
        Ok(match log {
            Some(log) => builder.log(log),
            None => builder,
        })
    }
}

async fn open(env: &Env, shared: &Shared) -> Result<Db, Error> {
    let builder = shared.builder(env, &shared.stores)?;
    builder.options(shared.options.clone()).mode(OpenMode::CreateOrOpen).open().await
}

/// An open database and the calls made on it.
struct Life {
    env: Env,
    shared: Shared,
    db: Db,
    pending: Vec<Op<()>>,
    /// As many as the model has, in its order.
    snapshots: Vec<Snapshot>,
    reader: Option<Reader>,
    /// Whether there are writes that a crash would lose.
    unlogged: bool,
}

impl Life {
    async fn settle(&mut self) -> Result<(), Error> {
        for op in std::mem::take(&mut self.pending) {
            op.await?;
        }
        Ok(())
    }

    /// Makes sure of what a crash may or may not keep.
    async fn settle_for(&mut self, crash: Crash) -> Result<(), Error> {
        if crash == Crash::PowerLoss || !self.shared.set.keeps_accepted() {
            self.make_durable().await?;
        } else {
            self.settle().await?;
            self.flush_unlogged().await?;
        }
        self.let_go();
        Ok(())
    }

    async fn flush_unlogged(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.unlogged) { self.db.flush().await } else { Ok(()) }
    }

    async fn make_durable(&mut self) -> Result<(), Error> {
        self.settle().await?;
        self.flush_unlogged().await?;
        // A delete of nothing, durable with all before it.
        self.db.default_keyspace().delete_with(b"\xffnever", Durability::Durable).await
    }

    /// What outlives no handle.
    fn let_go(&mut self) {
        self.snapshots.clear();
        self.reader = None;
    }

    async fn act(&mut self, action: &Action, number: usize) -> Result<Answer, Error> {
        if let Action::Write(writes, durability, waits) = action {
            self.write(writes, *durability, number)?;
            if *waits || self.pending.len() > PIPELINED_MAX {
                self.settle().await?;
            }
            return Ok(Answer::Done);
        }
        // A write that found no room in memory is not to be seen before it has ended.
        self.settle().await?;
        match action {
            Action::Write(..) | Action::Crash(_) => {}
            Action::Create(name) => {
                let mut options = KeyspaceOptions::default();
                for setting in self.shared.set.keyspace {
                    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
                    options.set(name, value)?;
                }
                options.set("operator", operator::of(name))?;
                if self.db.keyspace(name).is_err() {
                    self.db.create_keyspace(name, options).await?;
                }
            }
            Action::Drop(name) => {
                if self.db.keyspace(name).is_ok() {
                    self.db.drop_keyspace(name).await?;
                }
            }
            Action::Flush => {
                self.db.flush().await?;
                self.unlogged = false;
            }
            Action::Compact => {
                self.db.compact().await?;
                self.unlogged = false;
            }
            Action::PutIf(keyspace, key, bytes, asks) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                let condition = condition(&keyspace, key, *asks).await?;
                let decision = keyspace.put_if(key, value(number, *bytes), condition).await?;
                return Ok(Answer::Met(decision.is_met()));
            }
            Action::DeleteIf(keyspace, key, asks) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                let condition = condition(&keyspace, key, *asks).await?;
                return Ok(Answer::Met(keyspace.delete_if(key, condition).await?.is_met()));
            }
            Action::Require(asked, writes) => {
                let mut batch = self.batch(writes, number);
                for (keyspace, key, asks) in asked {
                    let Some(keyspace) = self.keyspace(keyspace) else { continue };
                    batch.require(&keyspace, key, condition(&keyspace, key, *asks).await?);
                }
                return Ok(Answer::Met(self.db.write_if(batch).await?.is_met()));
            }
            Action::Transact(writes, way, pessimistic) => {
                return self.transact(writes, *way, *pessimistic, number).await;
            }
            Action::DeleteFiles(keyspace, from, to) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                keyspace.delete_files_in_range(from, to).await?;
            }
            Action::Filter(keyspace, from, to) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                return self.filter(&keyspace, from, to).await;
            }
            Action::Ingest(..) | Action::Exchange(..) | Action::Behind(..) | Action::Export(_) => {
                return self.take_tables(action, number).await;
            }
            Action::Beside(beside) => return self.beside(*beside, number).await,
            Action::Pass => {
                // It would look every second.
                self.reader = None;
                let step = u32::try_from(self.shared.model.lock().step).unwrap_or(u32::MAX);
                let at = self.shared.began + STEP * step;
                self.env.sleep(at.saturating_sub(self.env.unix_time())).await;
            }
            Action::Snapshot => self.snapshots.push(self.db.snapshot()),
            Action::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(0);
                }
            }
            Action::Reopen => {
                self.reopen().await?;
            }
            Action::TakeOver => {
                self.settle_for(Crash::Kill).await?;
                let successor = open(&self.env, &self.shared).await?;
                let stale = std::mem::replace(&mut self.db, successor);
                let refused = stale.default_keyspace().put(b"stale", b"never").await;
                return Ok(Answer::Fenced(
                    refused.is_err_and(|error| error.kind() == tombolo::ErrorKind::Fenced),
                ));
            }
            Action::Get(keyspace, key) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                let value = keyspace.get(key).await?;
                let with = keyspace.get_with(key, <[u8]>::to_vec).await?;
                return Ok(if value.as_deref() == with.as_deref() {
                    Answer::Value(with)
                } else {
                    Answer::Disagree
                });
            }
            Action::MultiGet(keyspace, keys) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                let values = keyspace.multi_get(keys).await?;
                return Ok(Answer::Values(
                    values.into_iter().map(|value| value.map(|value| value.to_vec())).collect(),
                ));
            }
            Action::Scan(keyspace, from, to, forward) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                return entries(keyspace.scan(from.clone()..to.clone()), *forward).await;
            }
            Action::Prefix(keyspace, prefix, forward) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                return entries(keyspace.prefix(prefix), *forward).await;
            }
            Action::Walk(keyspace, key) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                return walk(&keyspace, key).await;
            }
            Action::ReadSnapshot(keyspace, nth) => {
                let (Some(keyspace), Some(snapshot)) = (self.keyspace(keyspace), self.snapshots.get(*nth))
                else {
                    return Ok(Answer::None);
                };
                return entries(snapshot.scan::<&[u8]>(&keyspace, ..), nth % 2 == 0).await;
            }
        }
        Ok(Answer::Done)
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        self.let_go();
        self.db.close().await?;
        self.db = open(&self.env, &self.shared).await?;
        self.unlogged = false;
        Ok(())
    }

    /// Writes in a transaction, reads the first key in it, and ends it.
    async fn transact(
        &mut self,
        writes: &[Write],
        way: Way,
        pessimistic: bool,
        number: usize,
    ) -> Result<Answer, Error> {
        let options =
            if pessimistic { TransactionOptions::pessimistic() } else { TransactionOptions::serializable() };
        let transaction = self.db.transaction_with(options);
        let mut first = None;
        for write in writes {
            let Some(keyspace) = self.keyspace(&write.keyspace) else { continue };
            self.write_in(&transaction, &keyspace, write, number).await?;
            first.get_or_insert((keyspace, &write.key));
        }
        let Some((keyspace, key)) = first else { return Ok(Answer::None) };
        let read = transaction.get(&keyspace, key).await?;
        let id = format!("transaction {number}");
        match way {
            Way::RollBack => transaction.roll_back(),
            Way::Commit => drop(transaction.commit().await?),
            Way::Prepare { commits } => {
                let prepared = transaction.prepare(&id).await?;
                if commits { prepared.commit().await? } else { prepared.roll_back().await? }
            }
            Way::PrepareReopen { commits } => {
                drop(transaction.prepare(&id).await?);
                // The handle of the keyspace is of the one that closes.
                drop(keyspace);
                self.reopen().await?;
                self.db.decide(&id, commits).await?;
            }
        }
        Ok(Answer::Value(read.map(|value| value.to_vec())))
    }

    fn write_in(
        &self,
        transaction: &Transaction,
        keyspace: &Keyspace,
        Write { key, does, .. }: &Write,
        number: usize,
    ) -> Op<()> {
        let end = |steps: u64| self.end_ms(steps);
        match does {
            Does::Put(bytes) => transaction.put(keyspace, key, value(number, *bytes)),
            Does::PutUntil(bytes, steps) => {
                transaction.put_until(keyspace, key, value(number, *bytes), end(*steps))
            }
            Does::Merge(bytes) => transaction.merge(keyspace, key, value(number, *bytes)),
            Does::MergeUntil(bytes, steps) => {
                transaction.merge_until(keyspace, key, value(number, *bytes), end(*steps))
            }
            Does::Delete => transaction.delete(keyspace, key),
            Does::SingleDelete => transaction.single_delete(keyspace, key),
            Does::DeleteRange(to) => transaction.delete_range(keyspace, key, to),
        }
    }

    /// When that ends which is there for so many steps after this one.
    fn end_ms(&self, steps: u64) -> u64 {
        self.shared.end_ms(self.shared.model.lock().step + steps)
    }

    fn keyspace(&self, name: &str) -> Option<Keyspace> {
        self.db.keyspace(name).ok()
    }

    /// Calls a write, without waiting for its end.
    fn write(&mut self, writes: &[Write], durability: Durability, number: usize) -> Result<(), Error> {
        let known: Vec<(Keyspace, &Write)> = writes
            .iter()
            .filter_map(|write| self.keyspace(&write.keyspace).map(|keyspace| (keyspace, write)))
            .collect();
        self.unlogged |= durability == Durability::Unlogged && !known.is_empty();
        let op = match &known[..] {
            [] => return Ok(()),
            [(keyspace, Write { key, does, .. })] => match does {
                Does::Put(bytes) => keyspace.put_with(key, value(number, *bytes), durability),
                Does::PutUntil(bytes, steps) => {
                    keyspace.put_until_with(key, value(number, *bytes), self.end_ms(*steps), durability)
                }
                Does::Merge(bytes) => keyspace.merge_with(key, value(number, *bytes), durability),
                Does::MergeUntil(bytes, steps) => {
                    keyspace.merge_until_with(key, value(number, *bytes), self.end_ms(*steps), durability)
                }
                Does::Delete => keyspace.delete_with(key, durability),
                Does::SingleDelete => keyspace.single_delete_with(key, durability),
                Does::DeleteRange(to) => keyspace.delete_range_with(key, to, durability),
            },
            _ => self.db.write_with(self.batch(writes, number), durability),
        };
        self.pending.push(op);
        Ok(())
    }

    /// The writes of keyspaces that are there.
    fn batch(&self, writes: &[Write], number: usize) -> Batch {
        let mut batch = Batch::new();
        for Write { keyspace, key, does } in writes {
            let Some(keyspace) = self.keyspace(keyspace) else { continue };
            match does {
                Does::Put(bytes) => batch.put(&keyspace, key, value(number, *bytes)),
                Does::PutUntil(bytes, steps) => {
                    batch.put_until(&keyspace, key, value(number, *bytes), self.end_ms(*steps))
                }
                Does::Merge(bytes) => batch.merge(&keyspace, key, value(number, *bytes)),
                Does::MergeUntil(bytes, steps) => {
                    batch.merge_until(&keyspace, key, value(number, *bytes), self.end_ms(*steps))
                }
                Does::Delete => batch.delete(&keyspace, key),
                Does::SingleDelete => batch.single_delete(&keyspace, key),
                Does::DeleteRange(to) => batch.delete_range(&keyspace, key, to),
            };
        }
        batch
    }

    /// Drops a part of a keyspace by its compaction filter. What that leaves, or all where the
    /// keyspace has none, or a snapshot may see it, a range delete takes.
    async fn filter(&mut self, keyspace: &Keyspace, from: &[u8], to: &[u8]) -> Result<Answer, Error> {
        let before = entries(keyspace.scan(from..to), true).await?;
        if keyspace.options().compaction_filter == Some(Same::name()?) && self.snapshots.is_empty() {
            *self.shared.filter.drops.lock() = Some((keyspace.id(), from.to_vec(), to.to_vec()));
            let compacted = keyspace.compact_range(from..to).await;
            *self.shared.filter.drops.lock() = None;
            compacted?;
        }
        let after = entries(keyspace.scan(from..to), true).await?;
        keyspace.delete_range(from, to).await?;
        let (Answer::Entries(before), Answer::Entries(after)) = (before, after) else {
            return Ok(Answer::Disagree);
        };
        // Of a value under operands these are left, over nothing.
        let merged = self.shared.model.lock().merged(keyspace.name());
        let another = after.into_iter().find(|entry| !merged.contains(&entry.0) && !before.contains(entry));
        Ok(another.map_or(Answer::Done, |(key, value)| {
            Answer::Differs(format!(
                "after its filter a key has another value: {}={}",
                show(&key),
                show(&value)
            ))
        }))
    }

    /// Reads everything, both ways.
    async fn check_all(&mut self) -> Result<(), Violation> {
        self.shared.check(&self.db).await
    }
}

impl Shared {
    /// Reads everything of a handle, both ways.
    async fn check(&self, db: &Db) -> Result<(), Violation> {
        let (content, step) = {
            let model = self.model.lock();
            (model.content.clone(), model.step)
        };
        let names: Vec<String> = db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
        if !names.iter().eq(content.keys()) {
            return Err(Violation::new(format!("keyspaces are {names:?}, expected {:?}", content.keys())));
        }
        for keyspace in db.keyspaces() {
            let shown = content[keyspace.name()].shown(step);
            for forward in [true, false] {
                let found = entries(keyspace.scan::<&[u8]>(..), forward)
                    .await
                    .map_err(|error| unexpected("reading all", &error))?;
                let expected = Answer::entries(shown.iter(), forward);
                if found != expected {
                    return Err(Violation::new(format!(
                        "keyspace {} holds {}, expected {}",
                        keyspace.name(),
                        found.show(),
                        expected.show()
                    )));
                }
            }
        }
        Ok(())
    }
}

async fn entries(mut scan: tombolo::Scan, forward: bool) -> Result<Answer, Error> {
    let mut found = Vec::new();
    if !forward {
        scan.seek_to_last();
    }
    while let Some((key, value)) = if forward { scan.next_async().await? } else { scan.prev_async().await? } {
        found.push((key.to_vec(), value.to_vec()));
    }
    Ok(Answer::Entries(found))
}

/// The condition on a key, which is read for it.
async fn condition(keyspace: &Keyspace, key: &[u8], asks: Asks) -> Result<Condition, Error> {
    let found = keyspace.get_versioned(key).await?;
    Ok(match asks {
        Asks::Absent => Condition::Absent,
        Asks::Present => Condition::Present,
        Asks::Equal { right } => {
            let mut value = found.map(|found| found.value.to_vec()).unwrap_or_default();
            if !right {
                value.push(b'!');
            }
            Condition::Equal(value)
        }
        Asks::Unchanged { right: true } => Condition::unchanged(found.as_ref()),
        // The number before it is another version's.
        Asks::Unchanged { right: false } => {
            Condition::Unchanged(Some(found.map_or(1, |found| found.sequence - 1)))
        }
    })
}

/// Some entries from `key` on, then some before it.
async fn walk(keyspace: &Keyspace, key: &[u8]) -> Result<Answer, Error> {
    let mut cursor = keyspace.cursor::<&[u8]>(..);
    let mut found = Vec::new();
    for forward in [true, false] {
        let mut valid =
            if forward { cursor.seek_async(key).await? } else { cursor.seek_for_prev_async(key).await? };
        for _ in 0..history::WALK_ENTRIES {
            if !valid {
                break;
            }
            found.push((cursor.key().to_vec(), cursor.value().to_vec()));
            valid = if forward { cursor.next_async().await? } else { cursor.prev_async().await? };
        }
    }
    Ok(Answer::Entries(found))
}

impl Answer {
    fn show(&self) -> String {
        match self {
            Answer::Value(value) => format!("{:?}", value.as_deref().map(show)),
            Answer::Values(values) => {
                format!("{:?}", values.iter().map(|value| value.as_deref().map(show)).collect::<Vec<_>>())
            }
            Answer::Entries(entries) => {
                format!(
                    "{:?}",
                    entries
                        .iter()
                        .map(|(key, value)| format!("{}={}", show(key), show(value)))
                        .collect::<Vec<_>>()
                )
            }
            other => format!("{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests;
