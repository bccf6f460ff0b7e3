//! `tombolo bench store`: what a store itself can do, below the engine.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo::{Env, Error, ErrorKind};
use tombolo_storage::probe::{self, Measured, ProbePlan};
use tombolo_storage::{LogStore, ObjectStore, Uri};

use super::results::Results;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::machine::Machine;
use crate::output::Output;
use crate::text;

/// Arguments of `bench store`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo bench store file:///data/probe
  tombolo bench store file:///data/probe --sizes 4096 --depths 1,32 --seconds 5 --json probe.json
  tombolo bench store 'file:///data/probe?io=direct'     the device, past the cache of the host

Everything goes through the interfaces that the engine uses: what is printed is what the engine can get there. Objects are made under a
fresh prefix, and the log is of a database's life of its own: what lies there is neither read nor changed, and all is removed at the end.
append is a log entry that is accepted, sync one that is durable; put is put-if-absent, write a table written in pieces.")]
pub struct Arguments {
    /// The store, as a URI.
    #[arg(value_name = "URI", value_parser = crate::place::place)]
    store: String,
    /// The log store, as a URI; the store's own log when not given.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    log: Option<String>,
    /// Bytes of a request, separated by commas.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "512,4096,65536")]
    sizes: Vec<usize>,
    /// Requests at once, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,8,32")]
    depths: Vec<usize>,
    /// Time of each measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Bytes that are written, and then read at random.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20)]
    data_size: u64,
    /// Writes the results as a list of objects to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: &Arguments, json: bool, output: &Output) -> Result<()> {
    if !(arguments.seconds > 0.0 && arguments.seconds <= 3600.0) {
        return Err(Failure::Usage(format!(
            "seconds is {}: it must be above 0 and at most 3600",
            arguments.seconds
        )));
    }
    let (env, registry) = (Env::real(), crate::database::registry());
    let store = Uri::parse(&arguments.store)?;
    let log = arguments.log.as_deref().map(Uri::parse).transpose()?;
    let mut results = Results::open(arguments.json.as_deref(), json)?;
    let objects = registry.open_object_store(&env, &store)?;
    let logs = registry.open_log_store(&env, &store, log.as_ref(), &objects)?;
    let plan = ProbePlan {
        sizes: arguments.sizes.clone(),
        depths: arguments.depths.clone(),
        duration: Duration::from_secs_f64(arguments.seconds),
        data_bytes: arguments.data_size,
    };
    let interrupted = interrupt::listen()?;
    if !results.is_standard_output() {
        let machine = Machine::look();
        output.line(format!("store  {store}: {}", objects.describe()))?;
        output.line(format!("log    {}: {}", log.as_ref().unwrap_or(&store), logs.survival().store))?;
        output.line(format!(
            "machine  {} × {}, {}, load {:.2}\n",
            machine.cores, machine.processor, machine.system, machine.load
        ))?;
        output.line(format!(
            "{:<8} {:>9} {:>6} {:>11} {:>10} {:>10} {:>10} {:>10}",
            "request", "bytes", "depth", "per second", "MB/s", "p50 µs", "p99 µs", "max µs"
        ))?;
        output.finish()?;
    }
    // Each measurement is told as it comes, and after Ctrl-C nothing more is measured: the probe
    // cleans up after itself.
    let unwritten = OnceLock::new();
    let told = |measured: &Measured| {
        if !results.is_standard_output()
            && let Err(error) = writeln!(std::io::stdout(), "{}", to_text(measured))
        {
            let _ = unwritten.set(error);
        }
        if unwritten.get().is_some() || interrupted.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the measuring was interrupted"));
        }
        Ok(())
    };
    let measured = env.block_on(measure(&env, &objects, &logs, &plan, &told));
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if let Some(error) = unwritten.into_inner() {
        return Err(error.into());
    }
    let measured: Vec<_> = measured?.iter().map(to_json).collect();
    results.write(output, &measured)
}

async fn measure(
    env: &Env,
    objects: &Arc<dyn ObjectStore>,
    logs: &Arc<dyn LogStore>,
    plan: &ProbePlan,
    told: &(dyn Fn(&Measured) -> tombolo::Result<()> + Send + Sync),
) -> tombolo::Result<Vec<Measured>> {
    let mut measured = probe::objects(env, objects, plan, told).await?;
    measured.extend(probe::log(env, logs, objects, plan, told).await?);
    Ok(measured)
}

fn to_text(measured: &Measured) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people")]
    let rate = text::count(measured.operations_per_second.round() as u64);
    format!(
        "{:<8} {:>9} {:>6} {rate:>11} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
        measured.operation,
        measured.bytes,
        measured.depth,
        measured.bytes_per_second / 1e6,
        measured.micros_p50,
        measured.micros_p99,
        measured.micros_max
    )
}

fn to_json(measured: &Measured) -> Value {
    json!({
        "request": measured.operation,
        "bytes": measured.bytes,
        "depth": measured.depth,
        "operations": measured.operations,
        "seconds": measured.seconds,
        "operations_per_second": measured.operations_per_second,
        "bytes_per_second": measured.bytes_per_second,
        "micros_p50": measured.micros_p50,
        "micros_p99": measured.micros_p99,
        "micros_max": measured.micros_max,
    })
}
