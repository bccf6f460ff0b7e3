//! Two or three processes of one host that take one database from each other, while they are
//! paused, resumed and killed anywhere.
//!
//! Each process opens, does random steps until it learns that it is fenced, waits a little, and
//! opens again. The oracle judges every acknowledgement: what a fenced process was told too late
//! must have been found by its successor.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::ErrorKind;
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Host, Process};

use super::{Run, guarded, log_of, mix};
use crate::client::{Client, Setup, Step, Stop, large_write, random_step};
use crate::failure::{Failure, Report, Violation};
use crate::oracle::Shared;
use crate::random::Random;

const NAME: &str = "two-writers";

/// What all writers of a world share.
#[derive(Clone)]
pub(super) struct Contest {
    pub(super) setup: Setup,
    oracle: Shared,
    pub(super) violation: Arc<Mutex<Option<Violation>>>,
    pub(super) over: Arc<Mutex<bool>>,
    /// How many steps of a hundred are large writes.
    pub(super) large_percent: u64,
    /// Writers that have begun, and have neither ended by themselves nor with their process.
    running: Arc<Mutex<Vec<Process>>>,
}

impl Contest {
    pub(super) fn new(run: &Run, setup: Setup) -> Contest {
        let (violation, over) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(false)));
        Contest {
            setup,
            oracle: run.oracle.clone(),
            violation,
            over,
            large_percent: 0,
            running: Arc::default(),
        }
    }

    fn violated(&self, violation: Violation) {
        self.violation.lock().get_or_insert(violation);
    }

    /// Whether a writer has not come to its end.
    pub(super) fn is_running(&self) -> bool {
        self.running.lock().iter().any(Process::is_alive)
    }

    /// A writer that has not.
    pub(super) fn who_runs(&self) -> String {
        self.running
            .lock()
            .iter()
            .find(|process| process.is_alive())
            .map_or_else(|| "nobody".to_owned(), tombolo_env::simulated::Process::name)
    }

    fn ends(&self, process: &Process) {
        self.running.lock().retain(|other| other.id() != process.id());
    }

    fn is_over(&self) -> bool {
        *self.over.lock() || self.violation.lock().is_some()
    }
}

/// A writer's life: open, write, be fenced, again.
async fn compete(process: Process, contest: Contest, mut random: Random) {
    contest.running.lock().push(process.clone());
    write_again_and_again(&process, &contest, &mut random).await;
    contest.ends(&process);
}

async fn write_again_and_again(process: &Process, contest: &Contest, random: &mut Random) {
    while !contest.is_over() {
        match session(process, contest, random).await {
            Ok(()) => {}
            Err(Stop::Ended) => return,
            Err(Stop::Violation(violation)) => return contest.violated(violation.at(process.name())),
            Err(Stop::Error(error)) => match error.kind() {
                // What a process that has lost the database may be told; never `Corrupt` nor
                // `NotFound`, though its successor deletes what it still reads.
                ErrorKind::Fenced
                | ErrorKind::Closed
                | ErrorKind::OutcomeUnknown
                | ErrorKind::Retry
                | ErrorKind::Busy => {}
                _ => return contest.violated(Violation::new(format!("{}: {error}", process.name()))),
            },
        }
        process.sleep(Duration::from_micros(random.below(30_000))).await;
    }
}

async fn session(process: &Process, contest: &Contest, random: &mut Random) -> Result<(), Stop> {
    let mut client = Client::open(process, &contest.setup, &contest.oracle).await?;
    let steps = 1 + random.below(120);
    for _ in 0..steps {
        if contest.is_over() {
            break;
        }
        // Keyspaces that come and go would hide the fault sought here.
        let is_large = contest.large_percent > 0 && random.percent(contest.large_percent);
        match if is_large { large_write(random) } else { random_step(random) } {
            Step::Drop(_) => {}
            step => client.step(&step).await?,
        }
        if random.percent(10) {
            process.sleep(Duration::from_micros(random.below(3_000))).await;
        }
    }
    client.check_snapshots().await?;
    client.check_all().await?;
    if random.percent(50) { client.close().await } else { Ok(()) }
}

pub(super) fn start(host: &Host, contest: &Contest, number: u64, random: &mut Random) -> Process {
    let process = host.process(&format!("writer {number}"));
    let chance = Random::new(random.next(), 3);
    process
        .spawn(TaskClass::Foreground, "compete", compete(process.clone(), contest.clone(), chance))
        .detach();
    process
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    guarded(
        NAME,
        seed,
        || format!("log {}", log_of(seed).name()),
        mix(seed, 0),
        |run| {
            let mut random = Random::new(seed, 2);
            run.world.set_preemption_probability([0.01, 0.05, 0.3][random.index(3)]);
            let contest = Contest::new(run, Setup::small(log_of(seed)));
            let mut started = 2 + random.below(2);
            let mut processes: Vec<Process> =
                (0..started).map(|number| start(&run.world.host(0), &contest, number, &mut random)).collect();
            for _ in 0..40 {
                run.world.run_for(Duration::from_micros(random.below(20_000)));
                if contest.violation.lock().is_some() {
                    break;
                }
                let nth = random.index(processes.len());
                match random.below(20) {
                    0..=6 => processes.iter().for_each(Process::resume),
                    7..=13 => processes[nth].pause(),
                    14..=15 => stall(&processes[nth], &mut random),
                    16..=17 => {
                        processes[nth].kill();
                        processes[nth] = start(&run.world.host(0), &contest, started, &mut random);
                        started += 1;
                    }
                    18 if random.percent(30) => {
                        run.crash(&processes, Crash::PowerLoss);
                        for process in &mut processes {
                            *process = start(&run.world.host(0), &contest, started, &mut random);
                            started += 1;
                        }
                    }
                    _ => {}
                }
            }
            processes.iter().for_each(Process::resume);
            run.world.run_for(Duration::from_millis(200));
            *contest.over.lock() = true;
            run.world.run_for(Duration::from_secs(5));
            if let Some(violation) = contest.violation.lock().take() {
                return Err(violation);
            }
            run.crash(&processes, Crash::Kill);
            run.life(
                &run.world.process("last"),
                &contest.setup,
                Vec::new(),
                true,
                "opening after the contest",
            )?;
            run.verify(&contest.setup)
        },
    )
}

/// Lets a process stand still in the middle of one of its next operations, while the others go on.
pub(super) fn stall(process: &Process, random: &mut Random) {
    let number = process.operations() + 1 + random.below(60);
    process.stall_at(number, Duration::from_micros(1 + random.below(30_000)));
}
