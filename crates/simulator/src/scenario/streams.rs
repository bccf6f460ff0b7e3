//! A database whose keyspaces are of several streams: writers that take it from each other,
//! readers that follow them, looks and checkpoints, all paused, held up and killed anywhere.
//!
//! A writer makes one durable write after another, each of them in some stream. So all that is of
//! one moment ends with some write, and has exactly what the chain of writes up to it says, in
//! every stream.
//!
//! Checked, of the writer's own view and its snapshots, of readers, looks and checkpoints: it is of
//! one moment, stays so, and holds what was acknowledged before it was asked for. In the end
//! nothing is damaged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, Db, Env, ErrorKind, KeyspaceOptions, OpenMode, Options, ReaderOptions, Registry};
use tombolo::{TakeOver, Uri};
use tombolo_env::simulated::Process;
use tombolo_storage::ObjectStore;
use tombolo_storage::layer::fault::{Fault, FaultObjectStore, FaultPlan, Rule};

use super::cast::Cast;
use super::chain::{Found, Ledger, Next, OF_STREAMS, close_sound, contents, contents_at, told};
use super::contest::{Stop, TROUBLES};
use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "streams";
const PLACE: &str = "file:///db";
const PROCESSES: usize = 4;
/// A reader's lease, and a while more.
const LEASE: Duration = Duration::from_secs(16);

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let mut report = Report::default();
    let out = &mut report;
    let form = if seed.is_multiple_of(2) { "mapped" } else { "written" };
    let place = || format!("log {form}");
    let told = guarded(NAME, seed, place, mix(seed, 41), |run| act(run, seed, form, out))?;
    let Report { writes, durable, opened, verified, .. } = report;
    Ok(Report { writes, durable, opened, verified, ..told })
}

/// What all share.
#[derive(Clone)]
struct Shared {
    ledger: Arc<Mutex<Ledger>>,
    violation: Arc<Mutex<Option<Violation>>>,
    over: Arc<Mutex<bool>>,
    registry: Registry,
    form: &'static str,
}

/// A registry whose object stores have these faults.
fn registry(plan: &FaultPlan) -> Registry {
    let (whole, plan) = (Registry::with_defaults(), plan.clone());
    let mut registry = whole.clone();
    let factory = move |env: &Env, uri: &Uri| {
        let store = whole.open_object_store(env, uri)?;
        Ok(Arc::new(FaultObjectStore::new(env, store, plan.clone())) as Arc<dyn ObjectStore>)
    };
    registry.register_object_store("file", Arc::new(factory));
    registry
}

impl Shared {
    fn builder(&self, process: &Process) -> Builder {
        let options = Options { memory_bytes: 1 << 20, memtable_bytes: Some(4 << 10), ..Options::default() };
        Db::builder(PLACE)
            .log(format!("{PLACE}?form={}", self.form))
            .registry(self.registry.clone())
            .env(process.env())
            .options(options)
            .take_over(TakeOver::Always)
    }

    fn is_over(&self) -> bool {
        *self.over.lock() || self.violation.lock().is_some()
    }

    fn durable(&self) -> BTreeSet<u64> {
        self.ledger.lock().durable.clone()
    }

    /// What was found is of one moment, and holds these writes.
    fn holds(&self, place: &str, found: &Found, writes: &BTreeSet<u64>) -> Result<(), Stop> {
        let mut ledger = self.ledger.lock();
        ledger.report.verified += 1;
        ledger.holds(place, found, writes)
    }
}

/// The database is made, with all its keyspaces.
fn make(shared: &Shared, process: &Process) -> Result<(), Violation> {
    let (shared, inside) = (shared.clone(), process.clone());
    let made = process.run(async move {
        let db = shared.builder(&inside).mode(OpenMode::Create).open().await?;
        for (name, stream) in OF_STREAMS.into_iter().skip(1) {
            db.create_keyspace(name, KeyspaceOptions { stream, ..KeyspaceOptions::default() }).await?;
        }
        db.close().await?;
        Ok(())
    });
    told(made, "beginning")
}

/// A process's life: it writes, or it follows, again and again.
async fn live(process: Process, shared: Shared, mut random: Random) {
    while !shared.is_over() {
        let outcome = match random.below(5) {
            0..=1 => follow(&process, &shared, &mut random).await,
            _ => write(&process, &shared, &mut random).await,
        };
        let what = match outcome {
            _ if !process.is_alive() => return,
            Ok(()) => None,
            Err(Stop::Ended) => return,
            Err(Stop::Error(error)) if TROUBLES.contains(&error.kind()) => None,
            Err(Stop::Error(error)) if error.kind() == ErrorKind::PinLost => None,
            Err(Stop::Error(error)) => Some(error.to_string()),
            Err(Stop::Violation(what)) => Some(what),
        };
        if let Some(what) = what {
            shared.violation.lock().get_or_insert(Violation::new(what).at(process.name()));
            return;
        }
        process.sleep(Duration::from_millis(random.below(2000))).await;
    }
}

async fn write(process: &Process, shared: &Shared, random: &mut Random) -> Result<(), Stop> {
    let before = shared.durable();
    let db = shared.builder(process).open().await?;
    let found = contents(&db).await?;
    if !process.is_alive() {
        return Err(Stop::Ended);
    }
    shared.holds("the database", &found, &before)?;
    shared.ledger.lock().report.opened += 1;
    let mut last = found.last;
    // What they see of a stream is fixed when somebody meets it.
    let mut snapshots = Vec::new();
    for _ in 0..1 + random.below(50) {
        if shared.is_over() {
            break;
        }
        last = Some(put(process, shared, random, &db, last).await?);
        match random.below(24) {
            0 => db.flush().await?,
            1 => db.compact().await?,
            2 => process.sleep(Duration::from_millis(random.below(1000))).await,
            3..=5 => snapshots.push((db.snapshot(), last)),
            6..=7 => last = checkpoint(process, shared, random, &db, last).await?,
            _ => {}
        }
    }
    for (snapshot, then) in snapshots {
        let found = contents_at(&db, &snapshot).await?;
        if !process.is_alive() {
            return Err(Stop::Ended);
        }
        let wanted = shared.ledger.lock().state(then);
        if found.keys != wanted {
            return Err(Stop::Violation(format!(
                "a snapshot after write {then:?} shows {:?}, and {wanted:?} was there",
                found.keys
            )));
        }
    }
    if random.percent(30) {
        db.close().await?;
    }
    Ok(())
}

async fn put(
    process: &Process,
    shared: &Shared,
    random: &mut Random,
    db: &Db,
    before: Option<u64>,
) -> Result<u64, Stop> {
    let Next { id, batch, durability } = Next::of_streams(&shared.ledger, random, db, before)?;
    db.write_with(batch, durability).await?;
    if !process.is_alive() {
        return Err(Stop::Ended);
    }
    shared.ledger.lock().acknowledged(id, durability);
    Ok(id)
}

/// Makes a checkpoint while it writes on, looks at it, and deletes it; the last write.
async fn checkpoint(
    process: &Process,
    shared: &Shared,
    random: &mut Random,
    db: &Db,
    before: Option<u64>,
) -> Result<Option<u64>, Stop> {
    let name = format!("after {} by {}", before.unwrap_or_default(), process.name());
    let durable = shared.durable();
    let (making, mut last) = (db.checkpoint(&name), before);
    for _ in 0..random.below(40) {
        last = Some(put(process, shared, random, db, last).await?);
    }
    making.await?;
    let then = shared.builder(process).at_checkpoint(&name).open_read_only().await?;
    let found = contents(&then).await?;
    if !process.is_alive() {
        return Err(Stop::Ended);
    }
    shared.holds("a checkpoint", &found, &durable)?;
    then.close().await?;
    db.delete_checkpoint(&name).await?;
    Ok(last)
}

/// Follows the writer, or looks once: each answer is of one moment and holds all that was durable
/// before, and snapshots stay.
async fn follow(process: &Process, shared: &Shared, random: &mut Random) -> Result<(), Stop> {
    let before = shared.durable();
    if random.percent(30) {
        let look = shared.builder(process).open_read_only().await?;
        let found = contents(&look).await?;
        if !process.is_alive() {
            return Err(Stop::Ended);
        }
        shared.holds("a look", &found, &before)?;
        look.close().await?;
        return Ok(());
    }
    let options = ReaderOptions {
        lag: Duration::from_secs(1),
        lag_max: Duration::from_secs(10),
        lease: Duration::from_secs(3),
    };
    let reader = shared.builder(process).open_reader(options).await?;
    let mut before = before;
    for _ in 0..1 + random.below(12) {
        let snapshot = reader.db().snapshot();
        let found = contents_at(reader.db(), &snapshot).await?;
        if !process.is_alive() {
            return Err(Stop::Ended);
        }
        shared.holds("a reader", &found, &before)?;
        if shared.is_over() {
            break;
        }
        process.sleep(Duration::from_millis(random.below(1500))).await;
        before = shared.durable();
        reader.refresh().await?;
        let again = contents_at(reader.db(), &snapshot).await?;
        if again != found && process.is_alive() {
            return Err(Stop::Violation(format!("a reader's snapshot shows {again:?} after {found:?}")));
        }
    }
    if random.percent(50) {
        reader.close().await?;
    }
    Ok(())
}

fn act(run: &Run, seed: u64, form: &'static str, report: &mut Report) -> Result<(), Violation> {
    let mut random = Random::new(seed, 41);
    run.world.set_preemption_probability([0.0, 0.01][random.index(2)]);
    let plan = FaultPlan::scripted();
    let (ledger, violation, over) = Default::default();
    let shared = Shared { ledger, violation, over, registry: registry(&plan), form };
    make(&shared, &run.world.process("first"))?;
    let each = shared.clone();
    let mut cast =
        Cast::new(run, &mut random, PROCESSES, |process, random| live(process, each.clone(), random));
    for _ in 0..16 {
        run.world.run_for(Duration::from_millis(random.below(4000)));
        if shared.is_over() {
            break;
        }
        match random.below(8) {
            0 => plan.inject(Rule::new(|_| true, Fault::Delay(Duration::from_millis(300))).times(40)),
            1 => plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry)).times(5)),
            2 => plan.clear(),
            _ => cast.befall(&mut random, LEASE, None),
        }
    }
    plan.clear();
    let ended = cast.end(&shared.over, &shared.violation);
    *report = shared.ledger.lock().report.clone();
    ended?;
    finish(&shared, &run.world.process("last"))
}

/// The last opener finds all that was acknowledged, sound.
fn finish(shared: &Shared, last: &Process) -> Result<(), Violation> {
    let (shared, inside) = (shared.clone(), last.clone());
    let outcome = last.run(async move {
        let db = shared.builder(&inside).open().await?;
        let found = contents(&db).await?;
        shared.holds("the database", &found, &shared.durable())?;
        close_sound(db, &found).await
    });
    told(outcome, "at the end")
}
