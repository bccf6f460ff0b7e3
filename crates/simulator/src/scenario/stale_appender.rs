//! An old writer that is still appending while others take over and crash.
//!
//! 1. The first writes without end, and stalls in the middle of an append.
//! 2. The second takes over meanwhile, and is killed anywhere: before the fence, between the fence
//!    and its record, or after it has served and written. The first wakes up somewhere in between,
//!    and its append lands in a log that is sealed, or is about to be.
//! 3. The third takes over, and a fourth. Each must find what the one before found and
//!    acknowledged, and nothing that was not there then.
//!
//! Small data stays in the logs, so that every takeover replays all of them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::Durability;
use tombolo::ErrorKind;
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Crash, Process};

use super::{guarded, log_of, mix};
use crate::client::{Client, Entry, Setup, Step, Stop, key};
use crate::failure::{Failure, Report, Violation};
use crate::oracle::Shared;
use crate::random::Random;

const NAME: &str = "stale-appender";

/// Takes the database over and writes until it is fenced, or ended.
async fn append(
    process: Process,
    setup: Setup,
    oracle: Shared,
    mut random: Random,
    violation: Arc<Mutex<Option<Violation>>>,
) {
    let outcome = async {
        let mut client = Client::open(&process, &setup, &oracle).await?;
        loop {
            client.step(&write(&mut random)).await?;
            if random.percent(20) {
                process.sleep(Duration::from_micros(random.below(300))).await;
            }
        }
    };
    let outcome: Result<(), Stop> = outcome.await;
    match outcome {
        Ok(()) | Err(Stop::Ended) => {}
        Err(Stop::Violation(found)) => {
            violation.lock().get_or_insert(found.at(process.name()));
        }
        Err(Stop::Error(error)) => match error.kind() {
            ErrorKind::Fenced | ErrorKind::Closed | ErrorKind::OutcomeUnknown | ErrorKind::Retry => {}
            _ => {
                violation.lock().get_or_insert(Violation::new(format!("{}: {error}", process.name())));
            }
        },
    }
}

fn write(random: &mut Random) -> Step {
    let entries: Vec<Entry> =
        (0..=random.below(2)).map(|_| Entry::Put("default".into(), key(random), random.index(80))).collect();
    let durability = if random.percent(70) { Durability::Accepted } else { Durability::Durable };
    match random.percent(50) {
        true => Step::Begin(entries, durability),
        false => Step::Write(entries, durability),
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    guarded(
        NAME,
        seed,
        || format!("log {}", log_of(seed).name()),
        mix(seed, 0),
        |run| {
            let mut random = Random::new(seed, 4);
            run.world.set_preemption_probability([0.05, 0.3][random.index(2)]);
            let setup =
                Setup { memtable_bytes: 64 << 10, automatic_compaction: false, ..Setup::small(log_of(seed)) };
            let violation = Arc::new(Mutex::new(None));
            let start = |name: &str, random: &mut Random| {
                let process = run.world.process(name);
                let chance = Random::new(random.next(), 5);
                let task = append(
                    process.clone(),
                    setup.clone(),
                    run.oracle.clone(),
                    chance,
                    Arc::clone(&violation),
                );
                process.spawn(TaskClass::Foreground, "append", task).detach();
                process
            };
            let first = start("first", &mut random);
            run.world.run_for(Duration::from_millis(5 + random.below(20)));
            first.stall_at(
                first.operations() + 1 + random.below(12),
                Duration::from_micros(200 + random.below(20_000)),
            );
            run.world.run_for(Duration::from_micros(random.below(300)));
            let second = start("second", &mut random);
            second.crash_at(second.operations() + 1 + random.below(220), Crash::Kill);
            run.world.run_for(Duration::from_millis(1 + random.below(30)));
            second.kill();
            run.world.run_for(Duration::from_micros(random.below(25_000)));
            for name in ["third", "fourth"] {
                let steps = (0..random.below(6)).map(|_| write(&mut random)).chain([Step::Settle]).collect();
                run.life(&run.world.process(name), &setup, steps, random.percent(50), name)?;
            }
            if let Some(violation) = violation.lock().take() {
                return Err(violation);
            }
            run.crash(&[first, second], Crash::Kill);
            run.verify(&setup)
        },
    )
}
