//! One history of operations under many option sets gives one result: that of an ordered map.
//!
//! ```text
//! seed ──▶ history ──▶ map            (what each operation must answer)
//!             └──────▶ engine × sets  (what it answers)
//! ```
//!
//! - `history` draws the operations, and says what an ordered map answers.
//! - `sets` has the option sets: memory, blocks, compression, filters, forms of the log, stores.
//! - `filter` is asked by compaction, and leaves answers as they are.
//! - `real` runs histories on a real store, in real time.
//!
//! So that the answers are the same under every set, what a crash may or may not keep is settled
//! before it: unlogged writes are flushed, and a durable write ends the time of merely accepted
//! ones. The other scenarios crash anywhere.

mod filter;
mod history;
mod real;
mod sets;

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo::{
    Batch, Condition, Db, Durability, Error, Keyspace, KeyspaceOptions, Op, OpenMode, Options, Registry,
    Snapshot, TableFileBuilder, TakeOver, Uri,
};
use tombolo_env::Env;
use tombolo_env::simulated::Crash;

use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::oracle::show;
use filter::Same;
use history::{Action, Answer, Does, Model, OPERATOR, Write, history, value};
use sets::{OptionSet, SETS};

pub use real::{Ran, Real, on_store};

const NAME: &str = "metamorphic";

/// Operations of a history.
const ACTIONS: usize = 160;

/// Writes called and not waited for, at most.
const PIPELINED_MAX: usize = 12;

/// Runs a seed: its history under every set.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let actions = Arc::new(history(seed, ACTIONS));
    let mut report = Report::default();
    for set in SETS {
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
}

impl Shared {
    fn new(
        set: &'static OptionSet,
        stores: (String, Option<String>),
        options: Options,
        actions: &Arc<Vec<Action>>,
    ) -> Shared {
        let (mut registry, model) = (Registry::with_defaults(), Arc::new(Mutex::new(Model::default())));
        tombolo_zoned::register(&mut registry);
        Shared { set, stores, options, registry, actions: Arc::clone(actions), model }
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
    let shared = Shared::new(set, stores, options, actions);
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
    life.snapshots.clear();
    life.db.close().await.map_err(|error| unexpected("closing", &error))?;
    Ok(Ended { next: life.shared.actions.len(), crash: None })
}

fn unexpected(place: &str, error: &Error) -> Violation {
    Violation::new(format!("{place}: {error}"))
}

async fn open(env: &Env, shared: &Shared) -> Result<Db, Error> {
    let (store, log) = &shared.stores;
    let builder = Db::builder(store).env(env.clone()).registry(shared.registry.clone());
    let builder = builder.compaction_filter(Same::name()?, Same);
    let builder = if shared.set.keyspace.iter().any(|setting| setting.starts_with("cold_after")) {
        let mut cold = Uri::parse(store)?;
        cold.rest.push_str("-cold");
        builder.cold_store(cold.to_string())
    } else {
        builder
    };
    let builder =
        builder.options(shared.options.clone()).mode(OpenMode::CreateOrOpen).take_over(TakeOver::Always);
    match log {
        Some(log) => builder.log(log).open().await,
        None => builder.open().await,
    }
}

/// An open database and the calls made on it.
struct Life {
    env: Env,
    shared: Shared,
    db: Db,
    pending: Vec<Op<()>>,
    /// As many as the model has, in its order.
    snapshots: Vec<Snapshot>,
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
        self.settle().await?;
        if std::mem::take(&mut self.unlogged) {
            self.db.flush().await?;
        }
        if crash == Crash::PowerLoss || !self.shared.set.keeps_accepted() {
            // A delete of nothing, durable with all before it.
            self.db.default_keyspace().delete_with(b"\xffnever", Durability::Durable).await?;
        }
        self.snapshots.clear();
        Ok(())
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
                options.set("operator", OPERATOR)?;
                for setting in self.shared.set.keyspace {
                    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
                    options.set(name, value)?;
                }
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
            Action::PutIf(keyspace, key, bytes, absent) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                let condition = if *absent { Condition::Absent } else { Condition::Present };
                let decision = keyspace.put_if(key, value(number, *bytes), condition).await?;
                return Ok(Answer::Met(decision.sequence.is_some()));
            }
            Action::Ingest(keyspace, keys, bytes) => {
                let Some(keyspace) = self.keyspace(keyspace) else { return Ok(Answer::None) };
                let world = (self.env.clone(), self.shared.registry.clone());
                return ingest(world, &keyspace, keys, &value(number, *bytes), number).await;
            }
            Action::Snapshot => self.snapshots.push(self.db.snapshot()),
            Action::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(0);
                }
            }
            Action::Reopen => {
                self.snapshots.clear();
                self.db.close().await?;
                self.db = open(&self.env, &self.shared).await?;
                self.unlogged = false;
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
                Does::Merge(bytes) => keyspace.merge_with(key, value(number, *bytes), durability),
                Does::Delete => keyspace.delete_with(key, durability),
                Does::SingleDelete => keyspace.single_delete_with(key, durability),
                Does::DeleteRange(to) => keyspace.delete_range_with(key, to, durability),
            },
            many => {
                let mut batch = Batch::new();
                for (keyspace, Write { key, does, .. }) in many {
                    match does {
                        Does::Put(bytes) => batch.put(keyspace, key, value(number, *bytes)),
                        Does::Merge(bytes) => batch.merge(keyspace, key, value(number, *bytes)),
                        Does::Delete => batch.delete(keyspace, key),
                        Does::SingleDelete => batch.single_delete(keyspace, key),
                        Does::DeleteRange(to) => batch.delete_range(keyspace, key, to),
                    };
                }
                self.db.write_with(batch, durability)
            }
        };
        self.pending.push(op);
        Ok(())
    }

    /// Reads everything, both ways.
    async fn check_all(&mut self) -> Result<(), Violation> {
        let content = self.shared.model.lock().content.clone();
        let names: Vec<String> =
            self.db.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
        if !names.iter().eq(content.keys()) {
            return Err(Violation::new(format!("keyspaces are {names:?}, expected {:?}", content.keys())));
        }
        for keyspace in self.db.keyspaces() {
            for forward in [true, false] {
                let found = entries(keyspace.scan::<&[u8]>(..), forward)
                    .await
                    .map_err(|error| unexpected("reading all", &error))?;
                let expected = Answer::entries(content[keyspace.name()].iter(), forward);
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

/// Makes a table elsewhere, and takes it in.
async fn ingest(
    (env, registry): (Env, Registry),
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    value: &[u8],
    number: usize,
) -> Result<Answer, Error> {
    let place = format!("mem://outside/{number}.table");
    let options = KeyspaceOptions::clone(&keyspace.options());
    let mut table = TableFileBuilder::create_with(env, registry, &place[..], options).await?;
    for key in keys {
        table.put(key, value).await?;
    }
    table.finish().await?;
    keyspace.ingest([&place[..]]).await?;
    Ok(Answer::Done)
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
