//! Scenarios: each is a function of a seed, which runs worlds and says what it did, or what the
//! engine did wrong.
//!
//! A seed covers a part of what a scenario can do; the parts of consecutive seeds differ, and
//! together they cover the whole.

mod bit_rot;
mod cast;
mod chain;
mod clones;
mod compactors;
mod contest;
mod crash;
mod entries;
pub mod metamorphic;
mod mirror;
mod near_log;
mod neighbours;
mod random;
mod readers;
mod segments;
mod site;
mod stale_appender;
mod standbys;
mod streams;
mod tiers;
mod two_writers;
mod zones;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tombolo_env::simulated::tape::{self, Stream};
use tombolo_env::simulated::{Crash, Process, World};

use crate::client::{Client, Form, Setup, Step, Stop};
use crate::failure::{Failure, Report, Violation};
use crate::oracle::{Oracle, Shared};

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name at the prompt.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub purpose: &'static str,
    /// Seeds that make a bounded run of a few seconds.
    pub runs: u64,
    /// Seeds that cover all of it, where there is an all.
    pub runs_whole: Option<u64>,
    /// Runs one seed.
    pub run: fn(u64) -> Result<Report, Failure>,
}

impl Scenario {
    /// Whether its histories are of the whole engine; else of a protocol alone.
    pub fn is_whole_engine(&self) -> bool {
        self.name != segments::NAME
    }
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All scenarios.
pub const ALL: [Scenario; 19] = [
    Scenario {
        name: "crash-everywhere",
        purpose: "a scripted history, crashed at each disk operation in turn, recovered, continued, \
            recovered again",
        runs: 8,
        runs_whole: Some(crash::EVERYWHERE_SEEDS),
        run: crash::everywhere,
    },
    Scenario {
        name: "crash-in-recovery",
        purpose: "the same history crashed, and its recovery crashed at each disk operation in turn",
        runs: 8,
        runs_whole: Some(crash::RECOVERY_SEEDS),
        run: crash::in_recovery,
    },
    Scenario {
        name: "power-loss-at-every-write-boundary",
        purpose: "a history by seed, the power lost at each operation that changes the disk",
        runs: 8,
        runs_whole: None,
        run: crash::power_loss,
    },
    Scenario {
        name: "random",
        purpose: "random operations, crashes, disk errors, failed syncs, a full disk, reopening",
        runs: 40,
        runs_whole: None,
        run: random::run,
    },
    Scenario {
        name: "two-writers",
        purpose: "processes that take one database from each other, paused and killed anywhere",
        runs: 20,
        runs_whole: None,
        run: two_writers::run,
    },
    Scenario {
        name: "readers",
        purpose: "readers that follow writers who take one database from each other, all paused and killed \
            anywhere, clocks that jump",
        runs: 8,
        runs_whole: None,
        run: readers::run,
    },
    Scenario {
        name: "clones",
        purpose: "databases that share tables: cloned, compacted, destroyed, deleted by hand, swept, by \
            processes paused and killed anywhere",
        runs: 8,
        runs_whole: None,
        run: clones::run,
    },
    Scenario {
        name: "mirror",
        purpose: "a database and its mirror: written, mirrored, read, exchanged for each other, by \
            processes paused and killed anywhere",
        runs: 6,
        runs_whole: Some(10_000),
        run: mirror::mirrors,
    },
    Scenario {
        name: "move",
        purpose: "the same, with exchanges often: ended in between, gone on with, undone",
        runs: 6,
        runs_whole: Some(10_000),
        run: mirror::moves,
    },
    Scenario {
        name: "compactors",
        purpose: "writers who take a database from each other while workers compact it, all paused, killed \
            and cut off from each other anywhere",
        runs: 6,
        runs_whole: Some(10_000),
        run: compactors::run,
    },
    Scenario {
        name: "tiers",
        purpose: "a database whose old data goes to a second store, which fails, is slow and is away, while \
            its writers are paused and killed",
        runs: 6,
        runs_whole: Some(10_000),
        run: tiers::run,
    },
    Scenario {
        name: "standbys",
        purpose: "a writer and two who stand by: killed, paused, cut off from the store, handing over, \
            clocks that jump",
        runs: 8,
        runs_whole: None,
        run: standbys::run,
    },
    Scenario {
        name: "streams",
        purpose: "writers that take a database with streams from each other, readers that follow, and \
            checkpoints, all paused, killed and held up anywhere",
        runs: 6,
        runs_whole: Some(10_000),
        run: streams::run,
    },
    Scenario {
        name: "stale-appender",
        purpose: "an old writer still appending while a takeover crashes anywhere and others take over",
        runs: 40,
        runs_whole: None,
        run: stale_appender::run,
    },
    Scenario {
        name: "metamorphic",
        purpose: "one history under many option sets, with crashes and reopening between: one result, that \
            of an ordered map",
        runs: 20,
        runs_whole: None,
        run: metamorphic::run,
    },
    Scenario {
        name: "near-log",
        purpose: "the engine on a near-compute log: writers that take it from each other, nodes cut off, \
            restarted and without their memory",
        runs: 12,
        runs_whole: Some(20_000),
        run: near_log::run,
    },
    Scenario {
        name: "segments",
        purpose: "the protocol of replicated segments alone: lost and repeated messages, lost memory, stale \
            writers, overlapping takeovers",
        runs: 2000,
        runs_whole: Some(1_000_000),
        run: segments::run,
    },
    Scenario {
        name: "zones",
        purpose: "a history on a zoned device, ended or without power at each of its operations in turn, \
            recovered, continued, recovered again",
        runs: 8,
        runs_whole: Some(zones::SEEDS),
        run: zones::run,
    },
    Scenario {
        name: "bit-rot",
        purpose: "a byte of a small database changed, a file cut or gone: an error or all reads right",
        runs: 8,
        runs_whole: Some(bit_rot::SEEDS),
        run: bit_rot::run,
    },
];

/// The scenario of that name.
pub fn by_name(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}

/// One world with its oracle.
struct Run {
    world: World,
    oracle: Shared,
    /// Whether writes that were only accepted are lost with their process.
    loses_accepted: Cell<bool>,
}

/// Polls after which a world is taken to hang.
const STEPS_MAX: u64 = 3_000_000;

impl Run {
    fn new(seed: u64) -> Run {
        let world = World::new(seed);
        world.set_steps_max(STEPS_MAX);
        Run { world, oracle: Oracle::shared(), loses_accepted: Cell::new(false) }
    }

    /// Ends all of the host's processes.
    fn crash(&self, processes: &[Process], crash: Crash) {
        match crash {
            Crash::Kill => processes.iter().for_each(Process::kill),
            Crash::PowerLoss => self.world.host(0).power_loss(),
        }
        self.crashed(crash);
    }

    /// Tells the oracle of a crash that ended everything.
    fn crashed(&self, crash: Crash) {
        let mut oracle = self.oracle.lock();
        oracle.all_ended();
        if crash == Crash::PowerLoss || self.loses_accepted.get() {
            oracle.power_lost();
        }
    }

    fn report(&self) -> Report {
        let mut report = self.oracle.lock().report.clone();
        report.worlds = 1;
        report.operations = self.world.operations();
        report.digest = self.world.digest();
        report
    }

    /// Opens in a process of its own, does `steps`, reads everything, and perhaps closes. `None`
    /// when the process ended before.
    ///
    /// # Errors
    /// A violation; an error is one, as nothing is wrong with the disk.
    fn life(
        &self,
        process: &Process,
        setup: &Setup,
        steps: Vec<Step>,
        close: bool,
        place: &str,
    ) -> Result<Option<()>, Violation> {
        let (inside, setup, oracle) = (process.clone(), setup.clone(), self.oracle.clone());
        let life = async move {
            let mut client = Client::open(&inside, &setup, &oracle).await?;
            client.steps(&steps).await?;
            client.check_all().await?;
            if close { client.close().await } else { Ok::<(), Stop>(()) }
        };
        match process.run(life) {
            None => Ok(None),
            Some(Ok(())) => Ok(Some(())),
            Some(Err(stop)) => stop.unexpected_error(place).map(|()| None),
        }
    }

    /// Opens and lets the engine check every byte.
    fn verify(&self, setup: &Setup) -> Result<(), Violation> {
        let process = self.world.process("checker");
        let on_zones = setup.form == Form::Zoned;
        let (inside, setup, oracle) = (process.clone(), setup.clone(), self.oracle.clone());
        let outcome = process.run(async move {
            let client = Client::open(&inside, &setup, &oracle).await?;
            let report = client.db().verify().await.map_err(Stop::Error)?;
            if !report.damage.is_empty() {
                return Err(Stop::Violation(Violation::new(format!(
                    "verify finds damage where none is: {}",
                    report.damage.join("; ")
                ))));
            }
            client.close().await
        });
        process.kill();
        if let Some(Err(stop)) = outcome {
            return stop.unexpected_error("verifying");
        }
        if on_zones { zones::check(&self.world.process("device checker").env()) } else { Ok(()) }
    }
}

/// One of the worlds that a seed runs: a history that is shrunk leaves out those that are well.
fn guarded(
    scenario: &'static str,
    seed: u64,
    place: impl FnOnce() -> String,
    world_seed: u64,
    act: impl FnOnce(&Run) -> Result<(), Violation>,
) -> Result<Report, Failure> {
    if !Stream::open(world_seed, WORLDS).happens(true) {
        return Ok(Report::default());
    }
    needed(scenario, seed, place, world_seed, act)
}

/// What a world's stream of the tape is named by.
const WORLDS: u64 = 1 << 32;

/// Runs one world and turns violations, panics and hangs into a failure with its place.
fn needed(
    scenario: &'static str,
    seed: u64,
    place: impl FnOnce() -> String,
    world_seed: u64,
    act: impl FnOnce(&Run) -> Result<(), Violation>,
) -> Result<Report, Failure> {
    tape::note(|| format!("world of seed {world_seed:x}"));
    let run = Run::new(world_seed);
    let Err(what) = judged(|| act(&run)) else { return Ok(run.report()) };
    Err(Failure { trace: run.world.trace(), ..Failure::new(scenario, seed, place(), what) })
}

thread_local! {
    /// The first panic since a world began, with its place.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From here on a panic says nothing by itself: what it said, and where, is in the failure of its
/// history.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let words = words_of(panic.payload());
        let place = panic
            .location()
            .map(|place| format!(" at {}:{}", place.file(), place.line()))
            .unwrap_or_default();
        PANIC.with_borrow_mut(|first| {
            first.get_or_insert_with(|| format!("panic: {words}{place}"));
        });
    }));
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
    words.unwrap_or_else(|| "without words".to_owned())
}

/// Runs a history; what it did wrong, or what a panic says.
fn judged<T>(act: impl FnOnce() -> Result<T, Violation>) -> Result<T, String> {
    PANIC.with_borrow_mut(Option::take);
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(outcome) => outcome.map_err(|violation| violation.0),
        Err(panic) => {
            let first = PANIC.with_borrow_mut(Option::take);
            Err(first.unwrap_or_else(|| format!("panic: {}", words_of(panic.as_ref()))))
        }
    }
}

/// Mixes two numbers into a seed.
fn mix(left: u64, right: u64) -> u64 {
    crate::random::Random::fixed(left, right).next()
}

fn form_of(seed: u64) -> Form {
    Form::LOCAL[usize::from(!seed.is_multiple_of(2))]
}

/// As [`form_of`], with the log as objects for one seed in four.
fn log_of(seed: u64) -> Form {
    if seed % 4 == 3 { Form::Objects } else { form_of(seed) }
}

/// As [`log_of`], with the log on nodes for two seeds in eight.
fn log_beside(seed: u64) -> Form {
    match seed % 8 {
        4 => Form::Near,
        6 => Form::NearShared,
        _ => log_of(seed),
    }
}

fn crash_of(seed: u64) -> Crash {
    if seed.is_multiple_of(2) { Crash::Kill } else { Crash::PowerLoss }
}

/// Virtual time in which everything that heals by itself has healed.
const HEALING: Duration = Duration::from_secs(10);
