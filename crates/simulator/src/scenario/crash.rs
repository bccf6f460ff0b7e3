//! A history that is crashed at each of its disk operations in turn: recovered, continued,
//! recovered again.

use std::time::Duration;

use tombolo::Durability::{Accepted, Durable, Unlogged};
use tombolo_env::simulated::{Crash, Process};

use super::{Run, crash_of, form_of, guarded, mix, needed};
use crate::client::{Entry, Setup, Step, random_steps, richer};
use crate::failure::{Failure, Report, Violation};
use crate::random::Random;

/// Each seed takes every so manieth operation.
const STRIDE: u64 = 16;
/// Seeds that crash at every operation, in both forms, by kill and by power loss.
pub(super) const EVERYWHERE_SEEDS: u64 = 4 * STRIDE;
/// The same for crashes in the recovery.
pub(super) const RECOVERY_SEEDS: u64 = 4 * STRIDE;

fn put(key: &str, length: usize) -> Entry {
    Entry::Put("default".into(), key.into(), length)
}

fn order(key: &str, length: usize) -> Entry {
    Entry::Put("orders".into(), key.into(), length)
}

fn delete(key: &str) -> Entry {
    Entry::Delete("default".into(), key.into())
}

/// The first part of the history: everything that a database does, once.
fn first_part() -> Vec<Step> {
    vec![
        Step::Write(vec![put("a", 10)], Durable),
        Step::Create("orders".into()),
        Step::Write(vec![order("1", 20)], Accepted),
        Step::Write(vec![put("b", 10), order("2", 30), put("c", 900)], Durable),
        Step::Begin(vec![put("d", 10)], Durable),
        Step::Begin(vec![delete("a")], Accepted),
        Step::Begin(vec![put("e", 300), order("3", 10)], Durable),
        Step::Settle,
        Step::Write(vec![put("u1", 10)], Unlogged),
        Step::Snapshot,
        Step::Flush,
        Step::Write(vec![put("d", 700)], Accepted),
        Step::Write(vec![delete("b"), order("1", 40)], Durable),
        Step::Write(vec![put("u2", 10)], Unlogged),
        Step::CheckSnapshots,
        Step::Compact,
        Step::CheckSnapshots,
        Step::Write(vec![put("f", 10)], Durable),
        Step::Write(vec![put("g", 10)], Accepted),
    ]
}

/// The part after reopening: overwrites, a keyspace that goes, automatic flushes.
fn second_part() -> Vec<Step> {
    vec![
        Step::Write(vec![put("a", 15)], Durable),
        Step::Drop("orders".into()),
        Step::Write(vec![put("h", 2500)], Accepted),
        Step::Write(vec![put("i", 2500), delete("d")], Durable),
        Step::Create("orders".into()),
        Step::Write(vec![put("j", 2500), order("9", 100)], Accepted),
        Step::Sleep(Duration::from_millis(50)),
        Step::Write(vec![order("8", 10)], Durable),
        Step::Compact,
        Step::Write(vec![put("k", 10)], Accepted),
    ]
}

/// What the process does that goes on after a crash.
fn continued(seed: u64) -> Vec<Step> {
    let mut steps = vec![
        Step::Write(vec![put("x", 10), put("a", 12)], Durable),
        Step::Create("later".into()),
        Step::Write(vec![put("y", 600)], Accepted),
    ];
    if seed.is_multiple_of(3) {
        steps.push(Step::Flush);
    }
    if seed.is_multiple_of(5) {
        steps.push(Step::Compact);
    }
    steps.push(Step::Write(vec![put("z", 10)], Durable));
    steps.push(Step::Write(vec![delete("y")], Accepted));
    steps
}

/// The history in one process: both parts, with a clean reopening between. `None` when the process
/// ended before.
fn history(
    run: &Run,
    process: &Process,
    setup: &Setup,
    first: Vec<Step>,
    second: Vec<Step>,
) -> Result<Option<()>, Violation> {
    match run.life(process, setup, first, true, "the first session")? {
        None => Ok(None),
        Some(()) => run.life(process, setup, second, false, "the second session"),
    }
}

/// Opens after a crash, goes on, crashes without a word, opens again, closes, opens a last time.
fn recover(run: &Run, setup: &Setup, seed: u64) -> Result<(), Violation> {
    let process = run.world.process("recoverer");
    run.life(&process, setup, continued(seed), false, "recovery")?;
    run.crash(&[process], crash_of(seed / 2));
    let process = run.world.process("second recoverer");
    run.life(
        &process,
        setup,
        vec![Step::Write(vec![put("last", 10)], Durable)],
        true,
        "the second recovery",
    )?;
    process.kill();
    run.crashed(Crash::Kill);
    let process = run.world.process("verifier");
    run.life(&process, setup, Vec::new(), true, "opening after a clean close")?;
    process.kill();
    run.verify(setup)
}

/// Which operations of a process crash it: all, or those that change the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Points {
    Operations,
    Mutations,
}

fn arm(process: &Process, points: Points, number: u64, crash: Crash) {
    match points {
        Points::Operations => process.crash_at(number, crash),
        Points::Mutations => process.crash_at_mutation(number, crash),
    }
}

/// Number of crash points of a history without a crash. Crashed worlds have other seeds, so they
/// may have a few more: harmless.
fn count(setup: &Setup, points: Points, first: &[Step], second: &[Step]) -> Result<u64, Violation> {
    let run = Run::new(1);
    let process = run.world.process("writer");
    history(&run, &process, setup, first.to_vec(), second.to_vec())?;
    Ok(match points {
        Points::Operations => process.operations(),
        Points::Mutations => process.mutations(),
    })
}

fn counted(
    scenario: &'static str,
    seed: u64,
    counting: impl FnOnce() -> Result<u64, Violation>,
) -> Result<u64, Failure> {
    let mut count = 0;
    needed(
        scenario,
        seed,
        || "counting its crash points".to_owned(),
        1,
        |_| {
            count = counting()?;
            Ok(())
        },
    )?;
    Ok(count)
}

/// A history, and the operations at each of which it is crashed, in a world of its own each.
pub(super) struct Plan {
    pub(super) scenario: &'static str,
    pub(super) seed: u64,
    pub(super) setup: Setup,
    pub(super) points: Points,
    pub(super) crash: Crash,
    /// The first and second part of the history.
    pub(super) parts: (Vec<Step>, Vec<Step>),
    /// Operations between one crash and the next, and the first of them.
    pub(super) stride: u64,
    pub(super) offset: u64,
}

impl Plan {
    pub(super) fn run(&self) -> Result<Report, Failure> {
        let Plan { scenario, seed, setup, points, crash, parts: (first, second), stride, offset } = self;
        let (points, crash, form) = (*points, *crash, setup.form);
        let count = counted(scenario, *seed, || count(setup, points, first, second))?;
        let mut report = Report::default();
        for number in (offset + 1..=count).step_by(to_usize(*stride)) {
            let what = if points == Points::Mutations { "mutation" } else { "operation" };
            let place = || format!("{crash:?} at {what} {number} of {count}, log {}", form.name());
            report.add(&guarded(scenario, *seed, place, mix(*seed, number), |run| {
                run.loses_accepted.set(!form.keeps_accepted());
                let process = run.world.process("writer");
                arm(&process, points, number, crash);
                history(run, &process, setup, first.clone(), second.clone())?;
                end(run, &process, crash);
                recover(run, setup, mix(*seed, number) >> 8)
            })?);
        }
        Ok(report)
    }
}

/// Crashes the scripted history at every `STRIDE`th operation; the seed says from which on, in
/// which form and how.
pub(super) fn everywhere(seed: u64) -> Result<Report, Failure> {
    let plan = Plan {
        scenario: "crash-everywhere",
        seed,
        setup: Setup::small(form_of(seed)),
        points: Points::Operations,
        crash: crash_of(seed / 2),
        parts: scripted(),
        stride: STRIDE,
        offset: seed / 4 % STRIDE,
    };
    plan.run()
}

/// Ends a process that was to crash and perhaps did not.
fn end(run: &Run, process: &Process, crash: Crash) {
    if process.is_alive() {
        process.kill();
        run.crashed(Crash::Kill);
    } else {
        run.crashed(crash);
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Crashes the scripted history somewhere, then its recovery at every `STRIDE`th operation, then
/// recovers.
pub(super) fn in_recovery(seed: u64) -> Result<Report, Failure> {
    const NAME: &str = "crash-in-recovery";
    let (form, crash, offset) = (form_of(seed), crash_of(seed / 2), seed / 4 % STRIDE);
    let setup = Setup::small(form);
    let history_count =
        counted(NAME, seed, || count(&setup, Points::Operations, &first_part(), &second_part()))?;
    let mut report = Report::default();
    let mut number = offset + 1;
    loop {
        // Where the history crashes varies with the operation of the recovery that crashes.
        let world_seed = mix(seed, number);
        let at = history_count / 3 + Random::new(world_seed, 9).below(history_count * 2 / 3) + 1;
        let place = || {
            format!(
                "{crash:?} at operation {number} of the recovery, after a crash at {at} of {history_count}, \
                log {}",
                form.name()
            )
        };
        // A world that is left out says nothing.
        let mut reached = true;
        report.add(&guarded(NAME, seed, place, world_seed, |run| {
            reached = false;
            let process = run.world.process("writer");
            process.crash_at(at, crash);
            history(run, &process, &setup, first_part(), second_part())?;
            end(run, &process, crash);
            let process = run.world.process("crashed recoverer");
            process.crash_at(number, crash);
            run.life(
                &process,
                &setup,
                vec![Step::Write(vec![put("x", 10)], Durable)],
                false,
                "the crashed recovery",
            )?;
            reached = !process.is_alive();
            end(run, &process, crash);
            recover(run, &setup, world_seed >> 8)
        })?);
        if !reached {
            return Ok(report);
        }
        number += STRIDE;
    }
}

/// The power is lost at every `STRIDE`th operation that changes the disk, in a history by seed.
pub(super) fn power_loss(seed: u64) -> Result<Report, Failure> {
    let plan = Plan {
        scenario: "power-loss-at-every-write-boundary",
        seed,
        setup: Setup::small(form_of(seed)),
        points: Points::Mutations,
        crash: Crash::PowerLoss,
        // Each history is met with every offset and in both forms.
        parts: drawn(seed / (2 * STRIDE)),
        stride: STRIDE,
        offset: seed / 2 % STRIDE,
    };
    plan.run()
}

/// The scripted history.
pub(super) fn scripted() -> (Vec<Step>, Vec<Step>) {
    (first_part(), second_part())
}

/// A history by seed, which begins as the scripted one does.
pub(super) fn drawn(seed: u64) -> (Vec<Step>, Vec<Step>) {
    let mut random = Random::new(seed, 11);
    let mut first = first_part();
    let mut kinds = Random::new(seed, 12);
    first.extend(richer(random_steps(&mut random, 25), &mut kinds));
    let second = richer(random_steps(&mut random, 40), &mut kinds);
    (first, second)
}
