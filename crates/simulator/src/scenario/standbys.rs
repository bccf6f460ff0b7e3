//! A writer, and two who stand by for it and then for each other: killed, paused for longer than
//! anybody waits, cut off from the store, asked to hand over, on hosts whose wall clocks jump. Two
//! seeds in eight have a near-compute log, whose nodes have troubles of their own.
//!
//! Checked:
//!
//! 1. A successor finds all that the writers before it acknowledged as durable.
//! 2. What a writer that was replaced is told late is what its successor has found.
//! 3. A confirmed read lacks nothing that was acknowledged before it, by any writer.
//! 4. When all is well again one of them writes, and is not replaced while it lives.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, ErrorKind, OpenMode, StandbyOptions};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process};
use tombolo_storage::ObjectStore;
use tombolo_storage::layer::fault::{Chances, Fault, FaultObjectStore, FaultPlan, Rule};
use tombolo_storage::registry::ObjectStoreFactory;

use super::contest::{Contest, Stop, TROUBLES, Writer};
use super::site::Site;
use super::{Run, guarded, log_beside, mix};
use crate::client::Setup;
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "standbys";
/// How many take part.
const PARTS: usize = 3;
const SILENCE_MAX: Duration = Duration::from_millis(800);
/// A writer that nobody has seen yet is given 75 s; what it then takes to open, and for others to
/// learn of it.
const SETTLING: Duration = Duration::from_secs(120);
const CALM: Duration = Duration::from_secs(30);

/// What the one at the switches tells those who take part.
#[derive(Clone, Default)]
struct Wishes(Arc<Mutex<Wish>>);

#[derive(Default)]
struct Wish {
    /// The writer hands over.
    hand_over: bool,
    /// Nobody does anything that gives others a reason to take over.
    calm: bool,
}

/// One who takes part.
struct Part {
    process: Process,
    /// What goes wrong between it and the store.
    plan: FaultPlan,
}

fn builder(process: &Process, contest: &Contest, plan: &FaultPlan) -> Builder {
    let (plain, plan) = (contest.setup.registry(), plan.clone());
    let mut registry = plain.clone();
    let open = move |env: &tombolo_env::Env, uri: &tombolo_storage::Uri| {
        let store = FaultObjectStore::new(env, plain.open_object_store(env, uri)?, plan.clone());
        Ok(Arc::new(store) as Arc<dyn ObjectStore>)
    };
    let open: ObjectStoreFactory = Arc::new(open);
    registry.register_object_store("file", Arc::clone(&open));
    registry.register_object_store("mem", open);
    contest.setup.builder(process).registry(registry)
}

/// A life: stand by or open, write until that ends, again.
async fn live(
    process: Process,
    contest: Contest,
    wishes: Wishes,
    plan: FaultPlan,
    mut random: Random,
    mut stands_by: bool,
) {
    while !contest.is_over() {
        let outcome = session(&process, &contest, &wishes, &plan, &mut random, stands_by).await;
        // `NotFound`: before the first writer has made the database.
        let is_new = contest.history.lock().report.opened == 0;
        stands_by = !is_new;
        let missing =
            matches!(&outcome, Err(Stop::Error(error)) if is_new && error.kind() == ErrorKind::NotFound);
        if !missing && !contest.goes_on(&process, outcome, &TROUBLES) {
            return;
        }
        process.sleep(Duration::from_millis(random.below(500))).await;
    }
}

async fn session(
    process: &Process,
    contest: &Contest,
    wishes: &Wishes,
    plan: &FaultPlan,
    random: &mut Random,
    stands_by: bool,
) -> Result<(), Stop> {
    let db = if stands_by {
        builder(process, contest, plan)
            .stand_by(StandbyOptions { silence_max: SILENCE_MAX })
            .await?
            .take_over()
            .await?
    } else {
        builder(process, contest, plan).mode(OpenMode::CreateOrOpen).open().await?
    };
    let mut writer = Writer::begin(process, contest, db).await?;
    while !contest.is_over() {
        writer.write(random).await?;
        if std::mem::take(&mut wishes.0.lock().hand_over) {
            match writer.db.hand_over().await {
                // Nobody stands by: it goes on.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                handed => return Ok(handed?),
            }
        }
        match random.below(40) {
            0 => writer.db.compact().await?,
            1 => writer.db.flush().await?,
            2..=3 => writer.confirm().await?,
            4 if !wishes.0.lock().calm && random.percent(10) => return Ok(writer.db.close().await?),
            5..=9 => process.sleep(Duration::from_millis(random.below(2_000))).await,
            _ => process.sleep(Duration::from_millis(random.below(100))).await,
        }
    }
    Ok(())
}

struct Cast<'a> {
    site: Site<'a>,
    contest: &'a Contest,
    wishes: Wishes,
    chances: Chances,
    parts: Vec<Part>,
    started: u64,
}

impl Cast<'_> {
    /// Starts one, in the place of another or beside them.
    fn start(&mut self, nth: usize, random: &mut Random, stands_by: bool) {
        let process = self.site.host().process(&format!("part {}", self.started));
        let plan = FaultPlan::random(random.next(), self.chances);
        let chance = Random::new(random.next(), 9);
        let life =
            live(process.clone(), self.contest.clone(), self.wishes.clone(), plan.clone(), chance, stands_by);
        process.spawn(TaskClass::Foreground, "live", life).detach();
        self.started += 1;
        let part = Part { process, plan };
        match self.parts.get_mut(nth) {
            Some(place) => *place = part,
            None => self.parts.push(part),
        }
    }

    fn processes(&self) -> Vec<Process> {
        self.parts.iter().map(|part| part.process.clone()).collect()
    }

    fn all_is_well(&mut self) {
        for part in &self.parts {
            part.plan.clear();
            part.process.resume();
        }
    }

    /// One thing that goes wrong, or well again.
    fn disturb(&mut self, run: &Run, random: &mut Random) {
        self.site.trouble();
        let nth = random.index(self.parts.len());
        let Part { process, plan } = &self.parts[nth];
        match random.below(20) {
            0..=3 => process.pause(),
            4 => {
                process.pause();
                run.world.run_for(Duration::from_secs(20 + random.below(60)));
                process.resume();
            }
            5..=8 => self.all_is_well(),
            9..=10 => {
                process.kill();
                self.start(nth, random, true);
            }
            11 => {
                process.kill();
                self.start(nth, random, false);
            }
            12..=13 => plan.inject(Rule::new(|_| true, Fault::Error(ErrorKind::Retry))),
            14..=15 => process.stall_at(
                process.operations() + 1 + random.below(60),
                Duration::from_millis(1 + random.below(5_000)),
            ),
            16 => self.site.host().jump_unix_time(i64::from(random.percent(50)) * 200_000 - 100_000),
            17..=18 => self.wishes.0.lock().hand_over = true,
            _ if random.percent(50) => {
                self.site.power_loss(&self.processes());
                (0..PARTS).for_each(|nth| self.start(nth, random, nth > 0));
            }
            _ => {}
        }
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let contest = Contest::new(Setup::small(log_beside(seed)));
    let history = Arc::clone(&contest.history);
    let place = || format!("log {}", log_beside(seed).name());
    let mut report = guarded(NAME, seed, place, mix(seed, 11), |run| act(run, seed, &contest))?;
    let seen = history.lock().report.clone();
    (report.writes, report.durable, report.opened, report.verified) =
        (seen.writes, seen.durable, seen.opened, seen.verified);
    Ok(report)
}

fn act(run: &Run, seed: u64, contest: &Contest) -> Result<(), Violation> {
    let mut random = Random::new(seed, 10);
    run.world.set_preemption_probability([0.0, 0.01, 0.1][random.index(3)]);
    let chances = if random.percent(30) {
        Chances { lateness_max: Duration::from_secs(2), ..Chances::ROUGH }
    } else {
        Chances::NONE
    };
    let site = Site::new(run, contest.setup.form, seed);
    let contest = &contest.at(&site);
    let mut cast = Cast { site, contest, wishes: Wishes::default(), chances, parts: Vec::new(), started: 0 };
    (0..PARTS).for_each(|nth| cast.start(nth, &mut random, nth > 0));
    for _ in 0..24 {
        run.world.run_for(Duration::from_millis(random.below(5_000)));
        if contest.violation.lock().is_some() {
            break;
        }
        cast.disturb(run, &mut random);
    }
    cast.all_is_well();
    cast.site.heal();
    cast.parts.iter().for_each(|part| part.plan.set_chances(Chances::NONE));
    *cast.wishes.0.lock() = Wish { hand_over: false, calm: true };
    run.world.run_for(SETTLING);
    let known = || contest.history.lock().report.clone();
    let before = known();
    run.world.run_for(CALM);
    let after = known();
    if let Some(violation) = contest.violation.lock().take() {
        return Err(violation);
    }
    if after.durable == before.durable {
        return Err(Violation::new("all is well, and nobody writes"));
    }
    if after.opened != before.opened {
        return Err(Violation::new(format!(
            "{} took the place of a writer that lives",
            after.opened - before.opened
        )));
    }
    run.crash(&cast.processes(), Crash::Kill);
    // The last opener finds everything.
    let last = run.world.process("last");
    let (inside, contest) = (last.clone(), contest.clone());
    let found = last.run(async move {
        let db = contest.setup.builder(&inside).open().await?;
        Writer::begin(&inside, &contest, db).await.map(drop)
    });
    match found {
        Some(Err(Stop::Violation(what))) => Err(Violation::new(what).at("opening after the contest")),
        Some(Err(Stop::Error(error))) => Err(Violation::new(format!("opening after the contest: {error}"))),
        _ => Ok(()),
    }
}
