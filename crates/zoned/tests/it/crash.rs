//! A process that ends, or a loss of power, at each operation of its device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use tombolo_env::simulated::{Action, Crash, Fault, Operation, OperationKind, Process};

use crate::harness::Case;

/// Steps of the history: metadata rolls twice, and log zones change.
const STEPS: u64 = 22;
/// Of the device: zone 0 begins after the states of all zones.
const ZONE_BYTES: u64 = 256 << 10;

/// Operations of the whole history.
fn operations() -> u64 {
    let case = Case::new(0);
    let process = case.world.process("writer");
    case.run(&process, STEPS);
    assert!(case.told.lock().errors.is_empty(), "{:?}", case.told.lock().errors);
    let operations = process.operations();
    drop(process);
    case.check();
    operations
}

/// Ends the history at each `every`th operation from `first` on, in a world of its own each.
pub fn crash_at_each(first: u64, every: u64, crash: Crash) {
    let all = operations();
    let mut number = 1 + first;
    while number <= all {
        let case = Case::new(number);
        let process = case.world.process("writer");
        process.crash_at(number, crash);
        case.run(&process, STEPS);
        if process.is_alive() {
            // Another seed, another history: this one had fewer operations.
            process.kill();
        }
        drop(process);
        case.check();
        number += every;
    }
}

/// Takes the power away at the sync after both generations of metadata were written to, without one
/// between: where one takes over from the other.
pub fn crash_while_metadata_rolls(seeds: u64) {
    for seed in 0..seeds {
        for skip in 0..2 {
            let case = Case::new(seed);
            let process = case.world.process("writer");
            // What was written last: 1 the next generation, 2 the old one right after that.
            let last = AtomicU8::new(0);
            let is_hit = move |operation: &Operation| {
                let zone = (operation.offset / ZONE_BYTES).wrapping_sub(1);
                let is = |kind: OperationKind| operation.kind == kind;
                match (last.load(Ordering::Relaxed), zone) {
                    (_, 1 | 2) if is(OperationKind::Write) => last.store(1, Ordering::Relaxed),
                    (1, 0) if is(OperationKind::Write) => last.store(2, Ordering::Relaxed),
                    (2, _) if is(OperationKind::Sync) => {
                        last.store(0, Ordering::Relaxed);
                        return true;
                    }
                    (1, _) if is(OperationKind::Sync) => last.store(0, Ordering::Relaxed),
                    _ => {}
                }
                false
            };
            case.world.inject(Fault::new(Action::Crash(Crash::PowerLoss), is_hit).after(skip));
            ended(&case, &process, STEPS);
        }
    }
}

/// Takes the power away at syncs of log that goes over several batches and zones.
pub fn crash_while_log_changes_zones(every: usize) {
    for seed in 0..6 {
        for skip in (8..24).step_by(every) {
            let mut case = Case::new(seed);
            case.entries = 150;
            let process = case.world.process("writer");
            let is_sync = |operation: &Operation| operation.kind == OperationKind::Sync;
            case.world.inject(Fault::new(Action::Crash(Crash::PowerLoss), is_sync).after(skip));
            ended(&case, &process, 5);
        }
    }
}

fn ended(case: &Case, process: &Process, steps: u64) {
    case.run(process, steps);
    case.world.clear_faults();
    process.kill();
    case.check();
}

#[test]
fn nothing_is_lost_while_metadata_rolls() {
    crash_while_metadata_rolls(6);
}

#[test]
fn nothing_is_lost_while_log_changes_zones() {
    crash_while_log_changes_zones(2);
}

#[test]
fn nothing_acknowledged_is_lost_with_the_power() {
    crash_at_each(0, 7, Crash::PowerLoss);
}

#[test]
fn nothing_acknowledged_is_lost_with_the_process() {
    crash_at_each(1, 16, Crash::Kill);
}

/// A sync fails while the next generation of metadata is made, and the process or the power ends
/// some operations later: a generation that was given up never counts more than what came after.
fn fail_and_crash(seeds: u64, every: usize) {
    for seed in 0..seeds {
        for nth in 0..6 {
            for (distance, crash) in
                (1..=16).step_by(every).flat_map(|at| [(at, Crash::Kill), (at, Crash::PowerLoss)])
            {
                let case = Case::new(seed);
                let process = case.world.process("writer");
                let failed_at = Arc::new(AtomicU64::new(0));
                let (is_after_roll, seen, fails) =
                    (AtomicBool::new(false), AtomicU64::new(0), Arc::clone(&failed_at));
                let is_hit = move |operation: &Operation| {
                    let zone = (operation.offset / ZONE_BYTES).wrapping_sub(1);
                    if operation.kind == OperationKind::Write && matches!(zone, 1 | 2) {
                        is_after_roll.store(true, Ordering::Relaxed);
                    }
                    let is = operation.kind == OperationKind::Sync
                        && is_after_roll.swap(false, Ordering::Relaxed)
                        && seen.fetch_add(1, Ordering::Relaxed) == nth;
                    if is {
                        fails.store(operation.number, Ordering::Relaxed);
                    }
                    is
                };
                case.world.inject(Fault::new(Action::Fail(std::io::ErrorKind::Other), is_hit));
                let is_later = move |operation: &Operation| {
                    let failed = failed_at.load(Ordering::Relaxed);
                    failed > 0 && operation.number == failed + distance
                };
                case.world.inject(Fault::new(Action::Crash(crash), is_later));
                ended(&case, &process, STEPS);
            }
        }
    }
}

#[test]
fn a_generation_that_was_given_up_takes_nothing_away() {
    fail_and_crash(1, 4);
}
