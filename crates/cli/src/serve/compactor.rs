//! `tombolo serve compactor`: runs compactions of databases that others have open.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use tombolo::{CompactionWorker, MemoryBudget, Registry};
use tombolo_compactor::{Compactor, CompactorOptions};
use tombolo_env::Env;
use tombolo_format::compaction::WorkerStatus;
use tombolo_segment::announce::{Announcer, Place};

use super::node::{announced_at, is_loopback};
use super::{SECRET_VARIABLE, Showing};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::note::note;
use crate::output::Output;
use crate::text::size;

/// Arguments of `serve compactor`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo serve compactor                                              for writers on this host, without a secret
  openssl rand -hex 32 > secret; chmod 600 secret
  tombolo serve compactor --listen 10.0.0.9:7430 --memory 1GiB --jobs 4 --secret-file secret
  tombolo serve compactor --announce s3://bucket/registry              writers look for it there
  tombolo serve compactor --announce etcd://10.0.0.1:2379              or there

A writer opens its database with the addresses of workers and the setting compaction=remote_or_local or remote, and its compactions run here: the worker
reads a job's tables from the store, merges them, writes the outputs there, and answers. It opens the store by the URI that the job says, with the rights
that it has here: those to read and to create suffice. It deletes nothing, and keeps nothing: it may be ended at any time.

It has the merge operators that every database has. For operators, compaction filters and collectors of your own, link them into a program that calls
tombolo_compactor::Compactor::start.")]
pub struct Arguments {
    /// Where to listen, host:port; an address that others reach needs a secret or certificates.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7430")]
    listen: String,
    /// Memory for all jobs: 512MiB, 8GiB, or a number of bytes.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "256MiB")]
    memory: u64,
    /// Jobs at once.
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Connections at once.
    #[arg(long, value_name = "N", default_value_t = 256)]
    connections_max: usize,
    #[command(flatten)]
    showing: Showing,
    /// A store, or an etcd (etcd://host:2379), to announce the worker in, so that writers find it.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    announce: Option<String>,
    /// The name of the registry within it.
    #[arg(long, value_name = "NAME", default_value = "compactors", requires = "announce")]
    registry: String,
    /// Where writers reach the worker, host:port, when that is not where it listens.
    #[arg(long, value_name = "ADDRESS", requires = "announce")]
    advertise: Option<String>,
    /// Print figures every so many seconds; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    report_seconds: u64,
}

/// How often it looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// How long the place may take to forget a worker that ends.
const WITHDRAW_MAX: Duration = Duration::from_secs(5);

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let credentials = arguments.showing.credentials()?;
    if credentials.is_none() && !is_loopback(&arguments.listen) {
        let listen = &arguments.listen;
        return Err(Failure::Usage(format!(
            "{listen} can be reached from other hosts: give --secret-file FILE or {SECRET_VARIABLE} (make \
            one: openssl rand -hex 32), or --tls DIRECTORY"
        )));
    }
    let interrupted = interrupt::listen()?;
    let env = Env::real();
    let budget = MemoryBudget::new(arguments.memory)?;
    let worker = CompactionWorker::new(&env, Registry::with_defaults(), &budget);
    let options = CompactorOptions {
        listen: arguments.listen.clone(),
        credentials,
        jobs_max: arguments.jobs.into(),
        connections_max: arguments.connections_max,
    };
    // A wrong command line is told of before anybody offers something here.
    let announce = arguments.announce.as_deref();
    let place = announce.map(|uri| Place::open(&env, &Registry::with_defaults(), uri)).transpose()?;
    let mut compactor = env.block_on(Compactor::start(&env, worker, options))?;
    if let Some(place) = place {
        let address = announced_at(arguments.advertise.as_deref(), compactor.address())?.to_owned();
        compactor.announce(Announcer::new(&env, place, &arguments.registry, &address)?);
    }
    output.result(
        || json!({ "listening": compactor.address(), "worker": as_json(&compactor.status()) }),
        || format!("listening on {}; {}", compactor.address(), as_text(&compactor.status())),
    )?;
    output.finish()?;
    let mut reported = Instant::now();
    let period = Duration::from_secs(arguments.report_seconds);
    while !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if !period.is_zero() && reported.elapsed() >= period {
            reported = Instant::now();
            let status = compactor.status();
            output.result(|| as_json(&status), || as_text(&status))?;
            output.finish()?;
        }
    }
    let limit = env.now() + WITHDRAW_MAX;
    if let Some(Err(error)) = env.block_on_until(compactor.withdraw(), limit) {
        note(format_args!("the worker's announcement stays until writers take it for gone: {error}"));
    }
    Ok(())
}

/// A worker's status for programs.
pub fn as_json(status: &WorkerStatus) -> Value {
    json!({
        "jobs_max": status.jobs_max,
        "running": status.running,
        "waiting": status.waiting,
        "done": status.done,
        "failed": status.failed,
        "abilities": status.abilities,
    })
}

/// A worker's status for people.
pub fn as_text(status: &WorkerStatus) -> String {
    let WorkerStatus { jobs_max, running, waiting, done, failed, .. } = status;
    format!("{running} of {jobs_max} jobs run, {waiting} wait; {done} were done, {failed} failed")
}
