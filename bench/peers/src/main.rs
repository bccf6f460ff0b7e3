//! One engine, in a process of its own, through a script of steps. `cargo xtask peers` runs many of
//! these and compares them; by hand it is for profiles of one row:
//!
//! ```console
//! $ tombolo-peers tombolo DIRECTORY num=2000000 -- 'open' 'run fillrandom' 'compact' 'warm' 'run readrandom seconds=10'
//! ```

mod delay;
mod engine;
mod flash;
mod measure;
mod runner;
mod script;

use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};
use tombolo_storage::layer::throttle::Latency;
use tombolo_workload::bench::Plan;

use self::runner::Job;
use self::script::Step;

const USAGE: &str = "\
usage: tombolo-peers ENGINE DIRECTORY [num=N] [key=BYTES] [value=BYTES] [seed=N] [bucket=URI counter=ADDRESS] [latency=LATENCY] -- STEP...
       tombolo-peers engines
       tombolo-peers delay SERVER LATENCY
       tombolo-peers flash DIRECTORY ROUNDS [LATENCY]

A step is one argument: 'open', 'run fillrandom threads=2 settle=1', 'settle', 'compact', 'warm', 'run readrandom seconds=5'; src/script.rs has
them all. The directory must not exist, and is not removed. Each step prints lines of JSON. With a bucket, s3://bucket/prefix?endpoint=http://HOST:PORT,
the database lies there; with a latency, SlateDB's directory is as slow as that says, as Tombolo's is with ?latency=. `delay` serves between engines and a server: each request takes as long as LATENCY (s3, cluster, p50_us:740,…) says. `flash` compares
flash caches in a directory that it makes and removes, on a store whose requests take 2 ms, or as LATENCY says.";

/// The engines that were built in.
const ENGINES: &[&str] = &[
    "tombolo",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "rocksdb")]
    "rocksdb-tuned",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "slatedb")]
    "slatedb",
    #[cfg(feature = "slatedb")]
    "slatedb-tuned",
    #[cfg(feature = "redb")]
    "redb",
    #[cfg(feature = "lmdb")]
    "lmdb",
];

fn job(directory: &str, arguments: &[String]) -> Result<(Job, Vec<Step>), String> {
    let mut plan = Plan { key_bytes: 20, ..Plan::default() };
    let (mut bucket, mut counter, mut latency) = (None, None, None);
    let split = arguments.iter().position(|argument| argument == "--").ok_or("steps follow --")?;
    for argument in &arguments[..split] {
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| format!("{argument}: a number is expected"));
        match argument.split_once('=') {
            Some(("num", text)) => plan.num = number(text)?,
            Some(("key", text)) => {
                plan.key_bytes = usize::try_from(number(text)?).map_err(|error| error.to_string())?
            }
            Some(("value", text)) => {
                plan.value_bytes = usize::try_from(number(text)?).map_err(|error| error.to_string())?
            }
            Some(("seed", text)) => plan.seed = number(text)?,
            Some(("bucket", text)) => bucket = Some(text.to_owned()),
            Some(("counter", text)) => counter = Some(text.to_owned()),
            Some(("latency", text)) => {
                latency = Some(Latency::parse(text).map_err(|error| error.to_string())?)
            }
            _ => {
                return Err(format!(
                    "{argument}: num=, key=, value=, seed=, bucket=, counter= or latency= is expected"
                ));
            }
        }
    }
    plan.check().map_err(|error| error.to_string())?;
    let steps = arguments[split + 1..].iter().map(|step| step.parse()).collect::<Result<Vec<Step>, _>>()?;
    let directory =
        std::path::absolute(PathBuf::from(directory)).map_err(|error| format!("{directory}: {error}"))?;
    if directory.exists() {
        return Err(format!("{} exists: name a directory that does not", directory.display()));
    }
    Ok((Job { directory, bucket: bucket.zip(counter), latency, plan }, steps))
}

fn run(arguments: &[String]) -> Result<(), String> {
    if let [verb, server, latency] = arguments
        && verb == "delay"
    {
        return delay::serve(server, latency);
    }
    match arguments {
        [verb, directory, rounds, latency @ ..] if verb == "flash" && latency.len() < 2 => {
            let rounds = rounds
                .parse::<usize>()
                .ok()
                .filter(|rounds| (1..=100).contains(rounds))
                .ok_or("rounds: 1 to 100")?;
            return flash::compare(
                &std::path::absolute(directory).map_err(|error| error.to_string())?,
                rounds,
                latency.first().map_or(flash::LATENCY, String::as_str),
            );
        }
        [verb, cache, directory, latency] if verb == "flash-cache" => {
            return flash::one(cache, std::path::Path::new(directory), latency);
        }
        _ => {}
    }
    let [engine, directory, rest @ ..] = arguments else { return Err(USAGE.to_owned()) };
    let (job, steps) = job(directory, rest)?;
    if job.latency.is_some() && !engine.starts_with("slatedb") {
        return Err(format!("latency= is for SlateDB; {engine} would measure this disk"));
    }
    match engine.as_str() {
        "tombolo" => runner::script::<engine::tombolo::Tombolo>(&job, &steps),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => runner::script::<engine::rocksdb::Rocks<engine::rocksdb::Plain>>(&job, &steps),
        #[cfg(feature = "rocksdb")]
        "rocksdb-tuned" => runner::script::<engine::rocksdb::Rocks<engine::rocksdb::Tuned>>(&job, &steps),
        #[cfg(feature = "fjall")]
        "fjall" => runner::script::<engine::fjall::Fjall>(&job, &steps),
        #[cfg(feature = "slatedb")]
        "slatedb" => runner::script::<engine::slatedb::Slate<engine::slatedb::Plain>>(&job, &steps),
        #[cfg(feature = "slatedb")]
        "slatedb-tuned" => runner::script::<engine::slatedb::Slate<engine::slatedb::Tuned>>(&job, &steps),
        #[cfg(feature = "redb")]
        "redb" => runner::script::<engine::redb::Redb>(&job, &steps),
        #[cfg(feature = "lmdb")]
        "lmdb" => runner::script::<engine::lmdb::Lmdb>(&job, &steps),
        other => Err(format!("there is no engine {other}; there are {}", ENGINES.join(", "))),
    }
}

fn main() -> ExitCode {
    // Who is measured ends with who measures: no run goes on unseen.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "engines") {
        println!("{}", ENGINES.join("\n"));
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
