//! Runs a database under load and faults for as long as asked: its answers stay right, nothing
//! acknowledged is lost, its memory stays within the budget. `cargo xtask soak`.
//!
//! A worker process (`worker`) writes and reads through stores that fail, dawdle, answer short and
//! are full for a while, and checks every answer. It is killed at random moments; after each kill
//! the database is opened without faults and compared with the oracle of `crash`.

pub mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::crash::{self, Test};
use crate::database::HowArguments;
use crate::failure::{Failure, Result};
use crate::note::note;
use crate::output::Output;
use crate::text;

/// Keys of a thread in each keyspace: with their values, some 18 MiB in all, more than twice the
/// memory budget.
pub const KEYS: u32 = 8_000;
/// The workers' memory budget.
const BUDGET_BYTES: u64 = 8 << 20;
/// What may be charged above the budget for a moment: memory that is in use already when it is
/// charged, such as a batch that was read.
const ABOVE_BYTES: u64 = BUDGET_BYTES / 8;
/// What a worker may hold beside the budget: its oracle of some 7 MiB, rings, pools of threads,
/// requests in flight.
const BESIDE_BYTES: u64 = 16 << 20;
/// What the allocator may keep of freed blocks, which no budget governs: it has an arena for every
/// thread or two, and each keeps what was in use in it at once. With one arena for all
/// (`MALLOC_ARENA_MAX=1`) a worker that has 60 MiB resident has 23. The bound is there for memory
/// that is held and not counted.
const FREED_BYTES: u64 = 96 << 20;

/// Arguments of `soak`.
#[derive(Args)]
pub struct Arguments {
    /// How long, in minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Form of the local log.
    #[arg(long, value_parser = ["mapped", "written"])]
    form: Option<String>,
    /// Seed of keys, values, faults and moments.
    #[arg(long)]
    seed: Option<u64>,
    /// Longest life of a worker, in milliseconds.
    #[arg(long, default_value_t = 12_000)]
    life_ms: u64,
    /// Where to keep the database; it must not exist, and is kept. A temporary directory when not
    /// given.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| tombolo::Env::real().random_u64());
    let temporary = arguments.directory.is_none();
    let folder = arguments
        .directory
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("tombolo-soak-{}", std::process::id())));
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::io(error, format!("making {}", folder.display())))?;
    let folder =
        folder.canonicalize().map_err(|error| Failure::io(error, format!("finding {}", folder.display())))?;
    let path = folder.to_str().ok_or_else(|| Failure::Usage(format!("{} is no UTF-8", folder.display())))?;
    let store = format!("file://{path}");
    let log = arguments.form.as_ref().map(|form| format!("{store}?form={form}"));
    let how = HowArguments {
        log,
        settings: vec![format!("memory_bytes={BUDGET_BYTES}"), "memtable_bytes=1048576".to_owned()],
        cold_store: None,
    };
    crash::check_new(&store, &how)?;
    let shortest = arguments.life_ms / 6;
    let mut test =
        Test::new(store, how, seed, "soak-worker", KEYS, shortest..=arguments.life_ms.max(shortest));
    let (begun, wanted) = (Instant::now(), Duration::from_secs_f64(arguments.minutes.max(0.0) * 60.0));
    let mut round = 0;
    while begun.elapsed() < wanted || round == 0 {
        round += 1;
        test.round(round).and_then(|()| within(&test)).map_err(|failure| {
            Failure::Check(format!(
                "round {round} of seed {seed}: {failure}\n  the database is kept: {}\n  again: cargo xtask \
                soak --seed {seed}",
                folder.display()
            ))
        })?;
        if !output.is_json() {
            let (minutes, memory) = (begun.elapsed().as_secs_f64() / 60.0, &test.memory);
            note(format_args!(
                "{minutes:5.1} min: {round} kills, {} batches acknowledged, {} faults, {} handles opened \
                again; peak {} held, {} resident, {} of the \
                 budget of {}",
                text::count(test.acknowledged),
                text::count(memory.faults),
                memory.reopened,
                text::bytes(memory.held_peak_bytes),
                text::bytes(memory.own_peak_bytes),
                text::bytes(memory.budget_peak_bytes),
                text::bytes(BUDGET_BYTES),
            ));
        }
    }
    if temporary {
        crash::remove(&folder)?;
    }
    test.tested()?;
    let memory = test.memory;
    output.result(
        || {
            json!({
                "seed": seed, "kills": round, "batches_acknowledged": test.acknowledged,
                "faults": memory.faults, "reopened": memory.reopened,
                "held_peak_bytes": memory.held_peak_bytes, "own_peak_bytes": memory.own_peak_bytes,
                "budget_peak_bytes": memory.budget_peak_bytes, "budget_bytes": BUDGET_BYTES,
            })
        },
        || {
            format!(
                "{round} kills, seed {seed}: {} batches acknowledged under {} faults, 0 lost, 0 wrong \
                answers; peak {} held, {} resident, {} of \
                 the budget of {}",
                text::count(test.acknowledged),
                text::count(memory.faults),
                text::bytes(memory.held_peak_bytes),
                text::bytes(memory.own_peak_bytes),
                text::bytes(memory.budget_peak_bytes),
                text::bytes(BUDGET_BYTES),
            )
        },
    )
}

/// Whether the workers stayed within their memory.
fn within(test: &Test) -> Result<()> {
    let memory = test.memory;
    if memory.budget_peak_bytes > BUDGET_BYTES + ABOVE_BYTES {
        return Err(Failure::Check(format!(
            "{} were charged to a memory budget of {}",
            text::bytes(memory.budget_peak_bytes),
            text::bytes(BUDGET_BYTES)
        )));
    }
    let (held, own) = (memory.held_peak_bytes, memory.own_peak_bytes);
    if held > BUDGET_BYTES + ABOVE_BYTES + BESIDE_BYTES || own > held + FREED_BYTES {
        return Err(Failure::Check(format!(
            "a worker with a memory budget of {} held {}, and had {} resident",
            text::bytes(BUDGET_BYTES),
            text::bytes(held),
            text::bytes(own)
        )));
    }
    Ok(())
}
