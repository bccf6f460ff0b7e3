//! Random operations in several lives of one database: closed, dropped, killed, without power; with
//! a disk that fails, is full for a while, or cannot sync; with a log that ends for good.

use std::io::ErrorKind as IoErrorKind;
use std::time::Duration;

use tombolo::Durability;
use tombolo_env::simulated::{Action, Crash, Fault, Operation, OperationKind, Process};

use super::{HEALING, Run, form_of, guarded, mix};
use crate::client::{Client, Entry, Setup, Step, Stop, random_steps, richer, richest};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

const NAME: &str = "random";

/// What befalls a life of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Close,
    /// The handle is dropped without a close, the process goes on and opens again.
    Drop,
    Crash(Crash),
    /// A few operations of any kind fail.
    Errors(IoErrorKind),
    /// Some syncs fail.
    SyncErrors,
    /// The disk is full for a while.
    Full,
    /// No sync of the log's first lane succeeds any more, nor one of the second if so chosen.
    LogEnds {
        both: bool,
    },
}

fn fate(random: &mut Random) -> Fate {
    match random.below(12) {
        0..=1 => Fate::Close,
        2 => Fate::Drop,
        3..=4 => Fate::Crash(Crash::Kill),
        5..=6 => Fate::Crash(Crash::PowerLoss),
        7 => Fate::Errors(IoErrorKind::Other),
        8 => Fate::Errors(IoErrorKind::Interrupted),
        9 => Fate::SyncErrors,
        _ => Fate::Full,
    }
}

/// Some lives are chosen for the end of their log, by a chance of their own: those of the others
/// stay as they are.
fn ends_log(seed: u64, life: u64) -> Option<Fate> {
    let mut random = Random::new(seed, 1000 + life);
    random.percent(8).then(|| Fate::LogEnds { both: random.percent(30) })
}

impl Fate {
    fn is_faulty(self) -> bool {
        matches!(self, Fate::Errors(_) | Fate::SyncErrors | Fate::Full | Fate::LogEnds { .. })
    }

    /// Whether writes must succeed once the cause is gone, or another log stands.
    fn must_heal(self) -> bool {
        matches!(self, Fate::Full | Fate::LogEnds { .. })
    }
}

/// A sync of files of the main stream's first lane, or its second.
fn syncs_lane(operation: &Operation, both: bool) -> bool {
    let path = operation.path.to_string_lossy();
    let is_lane = path.contains("-0000/") || both && path.contains("-10000/");
    matches!(operation.kind, OperationKind::Sync | OperationKind::SyncDirectory) && is_lane
}

/// Mapped operations have no errors: a failing device kills the process there, which other fates
/// do.
fn may_fail(operation: &Operation) -> bool {
    !operation.kind.is_mapped()
}

fn arm(run: &Run, process: &Process, fate: Fate, random: &mut Random) {
    // Opening takes some hundred operations; later ones are met as well.
    let bound = if random.percent(30) { 200 } else { 2500 };
    let after = random.below(bound);
    match fate {
        Fate::Close | Fate::Drop => {}
        Fate::Crash(crash) => process.crash_at(after + 1, crash),
        Fate::Errors(kind) => {
            run.world
                .inject(Fault::new(Action::Fail(kind), may_fail).after(after).times(1 + random.below(4)));
        }
        Fate::SyncErrors => {
            let sync = |operation: &Operation| {
                matches!(operation.kind, OperationKind::Sync | OperationKind::SyncDirectory)
            };
            run.world.inject(
                Fault::new(Action::Fail(IoErrorKind::Other), sync)
                    .after(random.below(40))
                    .times(1 + random.below(3)),
            );
        }
        Fate::LogEnds { both } => {
            // Opening takes some; the world forgets the fault when the life is over.
            let fails =
                Fault::new(Action::Fail(IoErrorKind::Other), move |operation| syncs_lane(operation, both));
            run.world.inject(fails.after(4 + after % 16).always());
        }
        Fate::Full => {
            let host = run.world.host(0);
            host.set_capacity(Some(host.used() + random.below(200_000)));
        }
    }
}

fn disarm(run: &Run) {
    run.world.clear_faults();
    run.world.host(0).set_capacity(None);
}

/// Opens, does random steps, and meets the fate. `None` when the process ended before.
fn life(
    run: &Run,
    process: &Process,
    setup: &Setup,
    fate: Fate,
    random: &mut Random,
    kinds: &mut Random,
) -> Result<(), Violation> {
    let count = 20 + random.index(80);
    let steps = richest(richer(random_steps(random, count), kinds), kinds);
    let (inside, setup, oracle, world) =
        (process.clone(), setup.clone(), run.oracle.clone(), run.world.clone());
    let abandoned = random.percent(50);
    let healing = [
        Step::Sleep(HEALING),
        Step::Write(vec![Entry::Put("default".into(), b"healed".to_vec(), 20)], Durability::Durable),
    ];
    let outcome = process.run(async move {
        let mut client = Client::open(&inside, &setup, &oracle).await?;
        client.set_tolerant(fate.is_faulty());
        client.steps(&steps).await?;
        if fate.is_faulty() {
            world.clear_faults();
            inside.host().set_capacity(None);
            client.step(&healing[0]).await?;
            // Calls made before the faults ended may report them only now.
            client.settle().await?;
            // Errors may still be answered, a second time for the same cause; what a full disk
            // refused must work again.
            client.set_tolerant(!fate.must_heal());
            client.step(&healing[1]).await.map_err(|stop| match stop {
                Stop::Error(error) if matches!(fate, Fate::LogEnds { .. }) => Stop::Violation(
                    Violation::new(format!("no other log took the place of one that ended: {error}")),
                ),
                stop => stop,
            })?;
            client.set_tolerant(!fate.must_heal());
        }
        client.check_snapshots().await?;
        client.check_all().await?;
        if fate == Fate::Drop || (fate == Fate::SyncErrors && abandoned) {
            Ok(())
        } else {
            client.close().await
        }
    });
    disarm(run);
    match outcome {
        Some(Err(stop)) if fate.is_faulty() && fate != Fate::Full => {
            stop.expected_error("a life with faults")
        }
        Some(Err(Stop::Error(error))) if fate == Fate::Full => full(&error),
        Some(Err(stop)) => stop.unexpected_error("a life without faults"),
        _ => Ok(()),
    }
}

/// A full disk ends a session only while it is opened.
fn full(error: &tombolo::Error) -> Result<(), Violation> {
    match error.kind() {
        tombolo::ErrorKind::OutOfSpace => Ok(()),
        _ => Err(Violation::new(format!("a disk that was full for a while: {error}"))),
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let mut fates = Vec::new();
    let result = guarded(NAME, seed, String::new, mix(seed, 0), |run| {
        let mut random = Random::new(seed, 1);
        let mut setup = Setup::small(form_of(seed));
        setup.automatic_compaction = random.percent(70);
        if random.percent(20) {
            setup.memtable_bytes = 64 << 10;
        }
        if Random::new(seed, 2000).percent(40) {
            setup.separate_bytes = 512;
        }
        setup.ingest_behind = Random::new(seed, 3000).percent(30);
        let mut process = run.world.process("life 0");
        for number in 1..3 + random.below(6) {
            // The form may change from one open to the next.
            if random.percent(20) {
                setup.form = form_of(random.next());
            }
            let fate = fate(&mut random);
            let fate = ends_log(seed, number).unwrap_or(fate);
            fates.push(fate);
            run.world.note(&format!("life {number}: {fate:?}"));
            arm(run, &process, fate, &mut random);
            let kinds = &mut Random::new(seed, 2000 + number);
            life(run, &process, &setup, fate, &mut random, kinds)?;
            let crashed = !process.is_alive();
            if fate == Fate::Drop && !crashed {
                continue;
            }
            match fate {
                Fate::Crash(crash) if crashed => run.crashed(crash),
                // What a failed sync gave up is missed only when the power goes.
                Fate::SyncErrors | Fate::Errors(_) | Fate::LogEnds { .. } if random.percent(60) => {
                    run.crash(std::slice::from_ref(&process), Crash::PowerLoss);
                }
                _ => run.crash(std::slice::from_ref(&process), Crash::Kill),
            }
            process = run.world.process(&format!("life {number}"));
        }
        process.kill();
        run.crashed(Crash::Kill);
        run.life(
            &run.world.process("last life"),
            &setup,
            vec![Step::Sleep(Duration::from_millis(10))],
            true,
            "the last life",
        )?;
        run.verify(&setup)
    });
    result.map_err(|failure| Failure { place: format!("fates {fates:?}"), ..failure })
}
