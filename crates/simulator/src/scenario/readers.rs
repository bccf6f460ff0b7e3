//! Writers that take one database from each other, and readers that follow whoever writes, all paused, resumed and killed anywhere.
//!
//! Every write is one batch over two keyspaces: its own number, and the value of one key. So a state says which write it ends with, and the
//! chain of writes before that one says all that the state must hold. Checked of each thing that a reader shows:
//!
//! 1. It is one cut: in both keyspaces exactly what the chain of its last write says, now and, of a snapshot, later.
//! 2. It holds what was acknowledged as durable before the round that brought it began.
//! 3. Nothing of it is taken back: whoever opens the database afterwards finds it, and so does the next look.
//! 4. A reader is told `PinLost` only when it stood still, and `Corrupt` or `NotFound` never.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Batch, Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, OpenMode, Reader, ReaderOptions, Snapshot};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process};

use super::{Run, guarded, log_of, mix};
use crate::client::Setup;
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "readers";
/// The key of the last write's number.
const LAST: &[u8] = b"last";
/// Keys beside it.
const KEYS: u64 = 24;
/// The keyspace beside `default`.
const OTHER: &str = "other";

/// A write, by its writer's epoch and its number in it.
type WriteId = (u64, u64);

/// What all know of what happened.
#[derive(Debug, Default)]
struct History {
    /// The write before each, and the key that it wrote.
    writes: BTreeMap<WriteId, (Option<WriteId>, u64)>,
    /// The newest write that was acknowledged as durable.
    durable: Option<WriteId>,
    /// The newest write that a reader has shown.
    shown: Option<WriteId>,
    report: Report,
}

impl History {
    /// Whether `earlier` is `later`, or is in the chain before it.
    fn precedes(&self, earlier: Option<WriteId>, later: Option<WriteId>) -> bool {
        let Some(earlier) = earlier else { return true };
        let mut at = later;
        while let Some(id) = at {
            if id == earlier {
                return true;
            }
            at = self.writes.get(&id).and_then(|(before, _)| *before);
        }
        false
    }

    /// The newest write in the chain up to `last` that is of an epoch before `epoch`: the takeover of that epoch finds it. What later epochs
    /// wrote, it need not know of.
    fn before(&self, epoch: u64, last: Option<WriteId>) -> Option<WriteId> {
        let mut at = last;
        while let Some(id) = at.filter(|id| id.0 >= epoch) {
            at = self.writes.get(&id).and_then(|(before, _)| *before);
        }
        at
    }

    /// All that a state which ends with `last` holds.
    fn state(&self, last: Option<WriteId>) -> BTreeMap<u64, WriteId> {
        let mut state = BTreeMap::new();
        let mut at = last;
        while let Some(id) = at {
            let Some((before, key)) = self.writes.get(&id) else { break };
            state.entry(*key).or_insert(id);
            at = *before;
        }
        state
    }
}

/// What all processes of a world share.
#[derive(Clone)]
struct Contest {
    setup: Setup,
    history: Arc<Mutex<History>>,
    violation: Arc<Mutex<Option<Violation>>>,
    over: Arc<Mutex<bool>>,
}

/// Why a process stops what it is at.
enum Stop {
    Violation(String),
    Error(Error),
    Ended,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

impl Contest {
    fn is_over(&self) -> bool {
        *self.over.lock() || self.violation.lock().is_some()
    }

    /// Whether a process goes on after this.
    fn goes_on(&self, process: &Process, outcome: Result<(), Stop>, expected: &[ErrorKind]) -> bool {
        let violation = match outcome {
            _ if !process.is_alive() => return false,
            Ok(()) => return true,
            Err(Stop::Ended) => return false,
            Err(Stop::Error(error)) if expected.contains(&error.kind()) => return true,
            Err(Stop::Error(error)) => error.to_string(),
            Err(Stop::Violation(what)) => what,
        };
        self.violation.lock().get_or_insert(Violation::new(violation).at(process.name()));
        false
    }
}

fn encode(id: WriteId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.0.to_be_bytes());
    bytes[8..].copy_from_slice(&id.1.to_be_bytes());
    bytes
}

fn decode(value: &[u8]) -> Option<WriteId> {
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    Some((number(value)?, number(value.get(8..)?)?))
}

/// A value of some size that says which write it is of.
fn value(id: WriteId) -> Vec<u8> {
    let mut value = encode(id).to_vec();
    value.resize(200, 7);
    value
}

/// A writer's life: open, write, be fenced, again.
async fn compete(process: Process, contest: Contest, mut random: Random) {
    while !contest.is_over() {
        let outcome = write(&process, &contest, &mut random).await;
        let expected = [
            ErrorKind::Fenced,
            ErrorKind::Closed,
            ErrorKind::OutcomeUnknown,
            ErrorKind::Retry,
            ErrorKind::Busy,
            ErrorKind::DeadlineExceeded,
        ];
        if !contest.goes_on(&process, outcome, &expected) {
            return;
        }
        process.sleep(Duration::from_millis(random.below(4000))).await;
    }
}

async fn write(process: &Process, contest: &Contest, random: &mut Random) -> Result<(), Stop> {
    let db = contest.setup.builder(process).mode(OpenMode::CreateOrOpen).open().await?;
    let alive = || if process.is_alive() { Ok(()) } else { Err(Stop::Ended) };
    let keys = db.default_keyspace();
    let other = match db.keyspace(OTHER) {
        Ok(other) => other,
        Err(_) => db.create_keyspace(OTHER, KeyspaceOptions::default()).await?,
    };
    let epoch = db.epoch().0;
    let mut last = keys.get(LAST).await?.as_ref().and_then(|value| decode(value));
    alive()?;
    {
        let mut history = contest.history.lock();
        for (what, newest) in [("acknowledged as durable", history.durable), ("shown by a reader", history.shown)] {
            let before = history.before(epoch, newest);
            if !history.precedes(before, last) {
                return Err(Stop::Violation(format!("epoch {epoch} found {last:?} and lost {before:?}, {what}")));
            }
        }
        history.report.opened += 1;
    }
    for number in 0..1 + random.below(80) {
        if contest.is_over() {
            break;
        }
        let (id, key) = ((epoch, number), random.below(KEYS));
        contest.history.lock().writes.insert(id, (last, key));
        let durability = if random.percent(50) { Durability::Durable } else { Durability::Accepted };
        let mut batch = Batch::new();
        batch.put(&keys, LAST, encode(id));
        batch.put(&keys, key.to_be_bytes(), value(id));
        batch.put(&other, key.to_be_bytes(), value(id));
        db.write_with(batch, durability).await?;
        alive()?;
        last = Some(id);
        {
            let mut history = contest.history.lock();
            history.report.writes += 1;
            if durability == Durability::Durable {
                history.report.durable += 1;
                // A fenced writer may be told late of what its successor has found already.
                if history.precedes(history.durable, Some(id)) {
                    history.durable = Some(id);
                } else if !history.precedes(Some(id), history.durable) {
                    let newest = history.durable;
                    return Err(Stop::Violation(format!("{id:?} is acknowledged, and its successors wrote {newest:?} without it")));
                }
            }
        }
        match random.below(30) {
            0 => db.compact().await?,
            1 => db.flush().await?,
            2..=8 => process.sleep(Duration::from_millis(random.below(1000))).await,
            _ => {}
        }
    }
    if random.percent(30) {
        db.close().await?;
    }
    Ok(())
}

/// A reader's life: open, look again and again, be closed or killed, again.
async fn follow(process: Process, contest: Contest, mut random: Random) {
    while !contest.is_over() {
        let outcome = read(&process, &contest, &mut random).await;
        // `NotFound`: before the first writer has made the database.
        let empty = contest.history.lock().report.opened == 0;
        let expected = [ErrorKind::Retry, ErrorKind::Busy, ErrorKind::PinLost, if empty { ErrorKind::NotFound } else { ErrorKind::Retry }];
        if !contest.goes_on(&process, outcome, &expected) {
            return;
        }
        process.sleep(Duration::from_millis(random.below(500))).await;
    }
}

async fn read(process: &Process, contest: &Contest, random: &mut Random) -> Result<(), Stop> {
    let options = ReaderOptions { lag: Duration::from_secs(1), lag_max: Duration::from_secs(10), lease: Duration::from_secs(3) };
    let durable = contest.history.lock().durable;
    let reader = contest.setup.builder(process).open_reader(options).await?;
    let mut kept = vec![look(process, contest, &reader, durable).await?];
    for _ in 0..1 + random.below(40) {
        if contest.is_over() {
            break;
        }
        if random.percent(60) {
            process.sleep(Duration::from_millis(random.below(3000))).await;
        }
        let durable = contest.history.lock().durable;
        reader.refresh().await?;
        kept.push(look(process, contest, &reader, durable).await?);
        // Snapshots stay as they were.
        let (snapshot, last) = &kept[random.index(kept.len())];
        check(process, contest, reader.db(), snapshot, *last).await?;
        if kept.len() > 3 {
            kept.remove(random.index(kept.len()));
        }
    }
    drop(kept);
    if random.percent(50) {
        reader.close().await?;
    }
    Ok(())
}

/// Looks at what is shown now, which must hold `durable`.
async fn look(
    process: &Process,
    contest: &Contest,
    reader: &Reader,
    durable: Option<WriteId>,
) -> Result<(Snapshot, Option<WriteId>), Stop> {
    let snapshot = reader.snapshot();
    let last = snapshot.get(&reader.default_keyspace(), LAST).await?.as_ref().and_then(|value| decode(value));
    if !process.is_alive() {
        return Err(Stop::Ended);
    }
    {
        let mut history = contest.history.lock();
        if !history.precedes(durable, last) {
            return Err(Stop::Violation(format!("a reader shows {last:?} and lacks {durable:?}, acknowledged before it looked")));
        }
        if history.precedes(history.shown, last) {
            history.shown = last;
        } else if !history.precedes(last, history.shown) {
            return Err(Stop::Violation(format!("a reader shows {last:?}, and {:?} was shown before", history.shown)));
        }
    }
    check(process, contest, reader.db(), &snapshot, last).await?;
    contest.history.lock().report.verified += 1;
    Ok((snapshot, last))
}

/// Whether a snapshot holds exactly what the chain of `last` says.
async fn check(process: &Process, contest: &Contest, db: &Db, snapshot: &Snapshot, last: Option<WriteId>) -> Result<(), Stop> {
    let expected = contest.history.lock().state(last);
    let mut keyspaces: Vec<Keyspace> = vec![db.default_keyspace()];
    keyspaces.extend(db.keyspace(OTHER).ok());
    for keyspace in keyspaces {
        let mut found = BTreeMap::new();
        let mut scan = snapshot.scan::<&[u8]>(&keyspace, ..);
        while let Some((key, value)) = scan.next_async().await? {
            if key != LAST
                && let (Some(key), Some(id)) = (key.first_chunk().map(|key| u64::from_be_bytes(*key)), decode(&value))
            {
                found.insert(key, id);
            }
        }
        if !process.is_alive() {
            return Err(Stop::Ended);
        }
        if found != expected {
            let what = format!("a reader shows {found:?} in {:?}, and {expected:?} was written up to {last:?}", keyspace.name());
            return Err(Stop::Violation(what));
        }
    }
    Ok(())
}

struct Cast {
    processes: Vec<Process>,
    started: u64,
}

impl Cast {
    /// Starts a writer or reader.
    fn start(&mut self, run: &Run, contest: &Contest, nth: usize, random: &mut Random) {
        let (writes, number) = (nth < 2, self.started);
        let process = run.world.process(&format!("{} {number}", if writes { "writer" } else { "reader" }));
        let chance = Random::new(random.next(), 5);
        if writes {
            process.spawn(TaskClass::Foreground, "compete", compete(process.clone(), contest.clone(), chance)).detach();
        } else {
            process.spawn(TaskClass::Foreground, "follow", follow(process.clone(), contest.clone(), chance)).detach();
        }
        self.started += 1;
        match self.processes.get_mut(nth) {
            Some(place) => *place = process,
            None => self.processes.push(process),
        }
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let contest = Contest {
        setup: Setup::small(log_of(seed)),
        history: Arc::default(),
        violation: Arc::new(Mutex::new(None)),
        over: Arc::new(Mutex::new(false)),
    };
    let history = Arc::clone(&contest.history);
    let place = || format!("log {}", log_of(seed).name());
    let mut report = guarded(NAME, seed, place, mix(seed, 7), |run| act(run, seed, &contest))?;
    let seen = history.lock().report.clone();
    (report.writes, report.durable, report.opened, report.verified) = (seen.writes, seen.durable, seen.opened, seen.verified);
    Ok(report)
}

fn act(run: &Run, seed: u64, contest: &Contest) -> Result<(), Violation> {
    let mut random = Random::new(seed, 6);
    run.world.set_preemption_probability([0.0, 0.01, 0.1][random.index(3)]);
    let mut cast = Cast { processes: Vec::new(), started: 0 };
    (0..4).for_each(|nth| cast.start(run, contest, nth, &mut random));
    for _ in 0..24 {
        run.world.run_for(Duration::from_millis(random.below(4_000)));
        if contest.violation.lock().is_some() {
            break;
        }
        let nth = random.index(cast.processes.len());
        match random.below(20) {
            0..=4 => cast.processes[nth].pause(),
            // Long enough for a lease and its margin.
            5..=6 => {
                cast.processes[2 + random.index(2)].pause();
                run.world.run_for(Duration::from_secs(16));
            }
            7..=12 => cast.processes.iter().for_each(Process::resume),
            13..=15 => {
                let number = cast.processes[nth].operations() + 1 + random.below(60);
                cast.processes[nth].stall_at(number, Duration::from_millis(1 + random.below(15_000)));
            }
            16..=17 => {
                cast.processes[nth].kill();
                cast.start(run, contest, nth, &mut random);
            }
            18 => {
                run.crash(&cast.processes, Crash::PowerLoss);
                (0..4).for_each(|nth| cast.start(run, contest, nth, &mut random));
            }
            _ => {}
        }
    }
    cast.processes.iter().for_each(Process::resume);
    run.world.run_for(Duration::from_secs(5));
    *contest.over.lock() = true;
    run.world.run_for(Duration::from_secs(10));
    if let Some(violation) = contest.violation.lock().take() {
        return Err(violation);
    }
    run.crash(&cast.processes, Crash::Kill);
    *contest.over.lock() = false;
    // Whoever comes last finds everything.
    let last = run.world.process("last");
    let (inside, contest) = (last.clone(), contest.clone());
    let found = last.run(async move { write(&inside, &contest, &mut Random::new(1, 1)).await });
    match found {
        Some(Err(Stop::Violation(what))) => Err(Violation::new(what).at("opening after the contest")),
        Some(Err(Stop::Error(error))) => Err(Violation::new(format!("opening after the contest: {error}"))),
        _ => Ok(()),
    }
}
