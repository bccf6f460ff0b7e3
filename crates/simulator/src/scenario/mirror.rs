//! A database, and a mirror of it: written, mirrored, read, and exchanged for each other, by
//! processes that are paused, resumed and killed anywhere. With exchanges often: the scenario
//! `move`.
//!
//! Every write is a batch of its own number and the value of one key, and knows the write before
//! it. So a state says which write it ends with, and the chain of writes before that one says all
//! that the state must hold.
//!
//! Checked:
//!
//! 1. Who opens either place for writing finds all that was acknowledged as durable before. In the
//!    end all of it is in one chain, in the one place that may be opened.
//! 2. What a place shows is one state, also in the midst of mirroring, and never an earlier one
//!    than it has shown.
//! 3. In the end the other place becomes a mirror that is equal.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, Db, ErrorKind, KeyspaceOptions, Mirror, MirrorOptions, OpenMode, Options, TakeOver};
use tombolo_env::simulated::Process;

use super::cast::Cast;
use super::chain::{Ledger, Next, OTHER, contents, told};
use super::contest::{Stop, TROUBLES};
use super::{Run, guarded, mix};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const PLACES: [&str; 2] = ["file:///data/one", "file:///data/two"];
const PROCESSES: usize = 4;

#[derive(Clone)]
struct Shared {
    ledger: Arc<Mutex<Ledger>>,
    /// The newest write that each place has shown.
    shown: Arc<Mutex<[Option<u64>; 2]>>,
    violation: Arc<Mutex<Option<Violation>>>,
    over: Arc<Mutex<bool>>,
    /// Of a hundred rounds of mirroring, how many end with an exchange.
    exchanges: u64,
}

impl Shared {
    fn is_over(&self) -> bool {
        *self.over.lock() || self.violation.lock().is_some()
    }
}

struct Actor {
    process: Process,
    shared: Shared,
    random: Random,
}

impl Actor {
    fn builder(&self, place: usize) -> Builder {
        let options = Options { memory_bytes: 1 << 20, memtable_bytes: Some(4 << 10), ..Options::default() };
        Db::builder(PLACES[place])
            .env(self.process.env())
            .options(options)
            .mode(OpenMode::Open)
            .take_over(TakeOver::Always)
    }

    fn alive(&self) -> Result<(), Stop> {
        if self.process.is_alive() { Ok(()) } else { Err(Stop::Ended) }
    }

    async fn pause(&mut self, ms_max: u64) {
        self.process.sleep(Duration::from_millis(self.random.below(ms_max))).await;
    }

    fn goes_on(&self, outcome: Result<(), Stop>) -> bool {
        let violation = match outcome {
            _ if !self.process.is_alive() => return false,
            Ok(()) => return true,
            Err(Stop::Ended) => return false,
            Err(Stop::Violation(what)) => what,
            // A place that is none yet, is marked, or is somebody's.
            Err(Stop::Error(error))
                if TROUBLES.contains(&error.kind())
                    || matches!(
                        error.kind(),
                        ErrorKind::NotFound
                            | ErrorKind::Invalid
                            | ErrorKind::AlreadyExists
                            | ErrorKind::InUse
                            | ErrorKind::PinLost
                            | ErrorKind::Closed
                    ) =>
            {
                return true;
            }
            Err(Stop::Error(error)) => error.to_string(),
        };
        self.shared.violation.lock().get_or_insert(Violation::new(violation).at(self.process.name()));
        false
    }

    async fn live(mut self) {
        while !self.shared.is_over() {
            let outcome = match self.random.below(10) {
                0..=3 => self.write().await,
                4..=7 => self.mirror().await,
                _ => self.look().await,
            };
            if !self.goes_on(outcome) {
                return;
            }
            self.pause(400).await;
        }
    }

    /// Opens the place that may be opened, looks, writes.
    async fn write(&mut self) -> Result<(), Stop> {
        let before = self.shared.ledger.lock().durable.clone();
        let (place, db) = match self.builder(0).open().await {
            Ok(db) => (0, db),
            Err(error) if error.kind() == ErrorKind::Invalid => (1, self.builder(1).open().await?),
            Err(error) => return Err(error.into()),
        };
        let found = contents(&db).await?;
        self.alive()?;
        {
            let mut ledger = self.shared.ledger.lock();
            ledger.holds(PLACES[place], &found, &before)?;
            ledger.report.opened += 1;
        }
        let mut last = found.last;
        for _ in 0..1 + self.random.below(30) {
            if self.shared.is_over() {
                break;
            }
            last = Some(self.put(&db, last).await?);
            match self.random.below(30) {
                0 => db.flush().await?,
                1 => db.compact().await?,
                2..=3 => self.pause(1500).await,
                _ => {}
            }
        }
        if self.random.percent(30) {
            db.close().await?;
        }
        Ok(())
    }

    async fn put(&mut self, db: &Db, before: Option<u64>) -> Result<u64, Stop> {
        let Next { id, batch, durability } = Next::new(&self.shared.ledger, &mut self.random, db, before)?;
        db.write_with(batch, durability).await?;
        self.alive()?;
        self.shared.ledger.lock().acknowledged(id, durability);
        Ok(id)
    }

    /// Mirrors the one place to the other, a while; perhaps they are exchanged.
    async fn mirror(&mut self) -> Result<(), Stop> {
        let mut from = 0;
        if let Some(state) = Mirror::state(self.builder(0)).await? {
            if state.is_moving {
                let (source, target) = (self.builder(0), self.builder(1));
                if self.random.percent(50) {
                    return Ok(Mirror::undo_move(source, target).await?);
                }
                if Mirror::finish_move(source, target).await?.is_some() {
                    return Ok(());
                }
            } else {
                from = 1;
            }
        }
        if from == 1
            && let Some(state) = Mirror::state(self.builder(1)).await?
            && state.is_moving
        {
            let (source, target) = (self.builder(1), self.builder(0));
            if self.random.percent(50) {
                return Ok(Mirror::undo_move(source, target).await?);
            }
            if Mirror::finish_move(source, target).await?.is_some() {
                return Ok(());
            }
        }
        let options = MirrorOptions { verify: self.random.percent(50), ..MirrorOptions::default() };
        let mirror = Mirror::begin(self.builder(from), self.builder(1 - from), options).await?;
        for _ in 0..1 + self.random.below(5) {
            mirror.refresh().await?;
            self.pause(800).await;
            if self.shared.is_over() {
                break;
            }
        }
        if self.random.below(100) < self.shared.exchanges {
            mirror.hand_over().await?;
            self.alive()?;
            self.shared.ledger.lock().report.verified += 1;
            return Ok(());
        }
        if self.random.percent(50) {
            mirror.close().await?;
        }
        Ok(())
    }

    /// Looks at a place: it shows one state, and none before what it has shown.
    async fn look(&mut self) -> Result<(), Stop> {
        let place = self.random.index(2);
        let before = self.shared.shown.lock()[place];
        let db = self.builder(place).open_read_only().await?;
        let found = contents(&db).await?;
        db.close().await?;
        self.alive()?;
        let ledger = self.shared.ledger.lock();
        // A mirror that has published nothing yet holds nothing.
        if found.last.is_none() && found.keys.is_empty() && before.is_none() {
            return Ok(());
        }
        ledger.check(PLACES[place], &found)?;
        let chain = ledger.chain(found.last);
        if let Some(before) = before.filter(|before| !chain.contains(before)) {
            return Err(Stop::Violation(format!(
                "{} shows write {:?}, and has shown {before}",
                PLACES[place], found.last
            )));
        }
        // Looks that began at the same time may end in any order.
        let mut shown = self.shared.shown.lock();
        if before == shown[place] {
            shown[place] = found.last;
        }
        Ok(())
    }
}

/// Runs a seed of `mirror`.
pub(super) fn mirrors(seed: u64) -> Result<Report, Failure> {
    run("mirror", seed, 8)
}

/// Runs a seed of `move`.
pub(super) fn moves(seed: u64) -> Result<Report, Failure> {
    run("move", seed, 60)
}

fn run(name: &'static str, seed: u64, exchanges: u64) -> Result<Report, Failure> {
    let shared = Shared {
        ledger: Arc::default(),
        shown: Arc::default(),
        violation: Arc::default(),
        over: Arc::default(),
        exchanges,
    };
    let ledger = Arc::clone(&shared.ledger);
    let mut report = guarded(name, seed, String::new, mix(seed, exchanges), |run| act(run, seed, &shared))?;
    let seen = ledger.lock().report.clone();
    (report.writes, report.durable, report.opened, report.verified) =
        (seen.writes, seen.durable, seen.opened, seen.verified);
    Ok(report)
}

fn act(run: &Run, seed: u64, shared: &Shared) -> Result<(), Violation> {
    let mut random = Random::new(seed, 7);
    run.world.set_preemption_probability([0.0, 0.01, 0.05][random.index(3)]);
    let process = run.world.process("first");
    let mut first = Actor { process: process.clone(), shared: shared.clone(), random: Random::new(1, 1) };
    let made = process.run(async move {
        let db = first.builder(0).mode(OpenMode::Create).open().await?;
        db.create_keyspace(OTHER, KeyspaceOptions::default()).await?;
        let mut last = None;
        for _ in 0..30 {
            last = Some(first.put(&db, last).await?);
        }
        db.close().await?;
        Ok::<_, Stop>(())
    });
    told(made, "beginning")?;
    let live = |process: Process, random: Random| Actor { process, shared: shared.clone(), random }.live();
    let mut cast = Cast::new(run, &mut random, PROCESSES, live);
    // Longer than a lease and its margin. One alone stalls: the others go on upon its stack, and
    // another stall upon theirs.
    let (lease, stalled) = (Duration::from_secs(80), Some(0));
    // Short histories among the long ones: those of the check.
    let steps = if seed.is_multiple_of(4) { 4 } else { 20 };
    for _ in 0..steps {
        run.world.run_for(Duration::from_millis(random.below(4_000)));
        if shared.violation.lock().is_some() {
            break;
        }
        cast.befall(&mut random, lease, stalled);
    }
    cast.end(&shared.over, &shared.violation)?;
    finish(run, shared)
}

/// A move that did not end is ended; then one place holds all, and the other one becomes a mirror.
fn finish(run: &Run, shared: &Shared) -> Result<(), Violation> {
    let process = run.world.process("last");
    let actor = Actor { process: process.clone(), shared: shared.clone(), random: Random::new(1, 1) };
    let outcome = process.run(async move {
        let both = || (actor.builder(0), actor.builder(1));
        for (source, target) in [both(), (actor.builder(1), actor.builder(0))] {
            let state = Mirror::state(source.clone()).await;
            if let Ok(Some(state)) = state
                && state.is_moving
                && Mirror::finish_move(source.clone(), target.clone()).await?.is_none()
            {
                Mirror::begin(source, target, MirrorOptions::default()).await?.hand_over().await?;
                break;
            }
        }
        let mut holds = Vec::new();
        for (place, name) in PLACES.into_iter().enumerate() {
            match actor.builder(place).open().await {
                Ok(db) => {
                    let found = contents(&db).await?;
                    let report = db.verify().await?;
                    if !report.damage.is_empty() {
                        let damage = report.damage.join("; ");
                        return Err(Stop::Violation(format!("{name} is damaged: {damage}")));
                    }
                    db.close().await?;
                    holds.push((place, found));
                }
                Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let [(place, found)] = &holds[..] else {
            return Err(Stop::Violation(format!("{} of both places may be opened", holds.len())));
        };
        {
            let ledger = actor.shared.ledger.lock();
            ledger.holds(PLACES[*place], found, &ledger.durable)?;
        }
        let mirror =
            Mirror::begin(actor.builder(*place), actor.builder(1 - place), MirrorOptions::default()).await?;
        let verified = mirror.verify().await?;
        if let Some(difference) = verified.differences.first() {
            return Err(Stop::Violation(format!("both differ: {difference:?}")));
        }
        mirror.close().await?;
        let look = actor.builder(1 - place).open_read_only().await?;
        let mirrored = contents(&look).await?;
        look.close().await?;
        if mirrored != *found {
            return Err(Stop::Violation(format!("the mirror shows {mirrored:?}, its source {found:?}")));
        }
        Ok(())
    });
    process.kill();
    told(outcome, "at the end")
}
