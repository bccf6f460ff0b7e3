//! Real servers: what the project's own test server cannot show.
//!
//! `build once → start on free ports, on a temporary directory → conformance of both interfaces → bad input → checkpoints and clones → looks beside a writer → commands beside a writer → random operations against an ordered map, and under many sets of options → demo → kill -9 in a loop → two writers and a standby that fight, behind bad connections → stop`.

mod broken;
mod clones;
mod etcd;
mod hdfs;
mod live;
mod looks;
mod misuse;
pub mod servers;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::built::Built;
use crate::log::{self, Log};
use servers::{Kind, Server};

/// Options of `real`.
#[derive(Args)]
pub struct Arguments {
    /// Which servers; all when not given. May be given several times.
    #[arg(long = "server", value_enum)]
    servers: Vec<Kind>,
    /// Rounds of the crash test on each.
    #[arg(long, default_value_t = 30)]
    rounds: u32,
    /// About how long the demo writes on each, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// How long random operations are compared with an ordered map on each, in seconds: once with
    /// the model test, once under many sets of options.
    #[arg(long, default_value_t = 60)]
    model_seconds: u32,
    /// How long two writers fight on each, in seconds.
    #[arg(long, default_value_t = 120)]
    fight_seconds: u32,
    /// How cargo builds the command: `release`, or `test`, which takes a part of the time and
    /// shares what tests have built.
    #[arg(long, default_value = "release", value_parser = ["release", "test"])]
    profile: String,
    /// Only servers that are built already: what CI does.
    #[arg(long)]
    cached: bool,
    /// Only the conformance suites.
    #[arg(long, conflicts_with = "stages")]
    quick: bool,
    /// Only these stages; all when not given. May be given several times.
    #[arg(long = "stage", value_enum)]
    stages: Vec<Stage>,
}

/// The steps on each server, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// The suites of both interfaces.
    Conformance,
    /// What `tombolo doctor` says.
    Doctor,
    /// Bad input at the prompt.
    Misuse,
    /// Checkpoints, clones that share tables, and how they are given back.
    Clones,
    /// Every command beside a process that writes.
    Looks,
    /// What commands have a process do that has the database open, and how it is taken from it.
    Live,
    /// The engine's model test: random operations against an ordered map.
    Model,
    /// Histories under many sets of options, each with one result.
    Metamorphic,
    /// `tombolo demo`.
    Demo,
    /// `kill -9` in a loop.
    Crash,
    /// Two writers that fight for one database, and a standby that steps in when both are dead.
    Fight,
    /// On etcd, and on nothing else: nodes that announce themselves, and one that dies.
    Registry,
    /// For kafka-streams, and nothing else: what `cargo xtask java` does.
    Java,
    /// On s3s-fs, and on nothing else: a store whose conditional put is broken gets no database.
    Broken,
}

impl Arguments {
    fn wants(&self, stage: Stage) -> bool {
        if self.quick {
            stage == Stage::Conformance
        } else {
            self.stages.is_empty() || self.stages.contains(&stage)
        }
    }
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let kinds = if arguments.servers.is_empty() { Kind::ALL.to_vec() } else { arguments.servers.clone() };
    let (mut passed, mut skipped, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for kind in kinds {
        if kind == Kind::Etcd {
            if arguments.wants(Stage::Registry) {
                match etcd::run(root, arguments.cached, &arguments.profile) {
                    Ok(()) => passed.push(kind.to_string()),
                    Err(etcd::Trouble::Skipped(why)) => {
                        eprintln!("{kind} is skipped: {why}");
                        skipped.push(format!("{kind} ({why})"));
                    }
                    Err(etcd::Trouble::Failed(error)) => failed.push(format!("{kind}: {error}")),
                }
            }
            continue;
        }
        if kind == Kind::KafkaStreams {
            match crate::java::tools() {
                _ if arguments.cached || !arguments.wants(Stage::Java) => {}
                Err(why) => {
                    eprintln!("{kind} is skipped: {why}");
                    skipped.push(format!("{kind} ({why})"));
                }
                Ok(_) => match crate::java::run(root, &crate::java::Arguments::default()) {
                    Ok(()) => passed.push(kind.to_string()),
                    Err(error) => failed.push(format!("{kind}: {error}")),
                },
            }
            continue;
        }
        if kind == Kind::S3sFs && !arguments.wants(Stage::Broken) {
            continue;
        }
        let server = match Server::start(kind, arguments.cached) {
            Ok(server) => server,
            Err(why) => {
                eprintln!("{kind} is skipped: {why}");
                skipped.push(format!("{kind} ({why})"));
                continue;
            }
        };
        eprintln!("{kind} serves at {}", server.address());
        let tried = if kind == Kind::S3sFs {
            broken::run(root, &server, &arguments.profile)
        } else {
            try_out(root, &server, arguments)
        };
        match tried {
            Ok(()) => passed.push(kind.to_string()),
            Err(error) => failed.push(format!("{kind}: {error}")),
        }
    }
    println!("passed: {}; skipped: {}", list(&passed), list(&skipped));
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// How long CI compares histories on one server, in seconds.
const CI_SECONDS: u32 = 15;

/// The suites of both interfaces on each store whose server is built here already, side by side,
/// and on the first of them histories of the engine: as much as CI can afford. Says on which.
pub fn bounded_where_built(built: &Built, log: &Log) -> Result<String, String> {
    // HDFS takes minutes for it, and Java.
    let mut kinds = vec![Kind::Versitygw, Kind::Minio, Kind::Azurite];
    kinds.retain(|kind| kind.program(true).is_ok());
    let (conformance, simulator) = (built.program("conformance")?, built.program("tombolo-simulator")?);
    let try_out = |kind: Kind, with_histories: bool| {
        let server = Server::start(kind, true)?;
        let mut suites = Command::new(conformance);
        log::run(suites.arg(server.uri("conformance")).envs(server.credentials()), log)?;
        if with_histories {
            let (seconds, seed) = (CI_SECONDS.to_string(), std::process::id().to_string());
            let mut histories = Command::new(simulator);
            histories.args(["--seconds", &seconds, "--seed", &seed, "--store"]);
            let histories = histories.arg(server.uri("metamorphic")).envs(server.credentials());
            log::run(histories, log)?;
        }
        Ok::<_, String>(())
    };
    let tried: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = kinds
            .iter()
            .enumerate()
            .map(|(nth, kind)| scope.spawn(move || try_out(*kind, nth == 0)))
            .collect();
        // A panic of one goes on here.
        let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let failures: Vec<String> = kinds
        .iter()
        .zip(tried)
        .filter_map(|(kind, tried)| tried.err().map(|error| format!("   {kind}: {error}")))
        .collect();
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    if kinds.is_empty() {
        return Ok("skipped: no server is built here; `cargo xtask real` builds them".to_owned());
    }
    Ok(list(&kinds.iter().map(Kind::to_string).collect::<Vec<_>>()))
}

/// Builds the suites of both interfaces.
fn build_conformance(root: &Path, server: &Server) -> Result<(), String> {
    let build = format!(
        "build --quiet --profile test --package tombolo-storage --features {} --example conformance",
        server.feature()
    );
    cargo(root, server, &build, &[])
}

fn conformance(root: &Path, server: &Server) -> Result<(), String> {
    // As tests are built: most of it is there already when they have run.
    let conformance = format!(
        "run --quiet --profile test --package tombolo-storage --features {} --example conformance --",
        server.feature()
    );
    cargo(root, server, &conformance, &[server.uri("conformance").into()])
}

/// The engine's model test, on databases of its own.
fn model(root: &Path, server: &Server, seconds: u32) -> Result<(), String> {
    let test = format!(
        "test --quiet --package tombolo --features {} --test it -- --nocapture --exact",
        server.feature()
    );
    let (store, seconds) = (server.uri("model"), seconds.to_string());
    let environment = [("TOMBOLO_TEST_STORE", store.as_str()), ("TOMBOLO_TEST_SECONDS", &seconds)];
    cargo_with(
        root,
        server,
        &test,
        &["model::a_database_on_the_store_that_is_named_is_an_ordered_map".into()],
        &environment,
    )
}

/// Histories of the simulator's scenario, under many sets of options.
fn metamorphic(root: &Path, server: &Server, seconds: u32) -> Result<(), String> {
    let command = format!(
        "run --quiet --profile test --package tombolo-simulator --features {} -- --seconds {seconds} --seed \
        {} --store",
        server.feature(),
        std::process::id()
    );
    cargo(root, server, &command, &[server.uri("metamorphic").into()])
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn try_out(root: &Path, server: &Server, arguments: &Arguments) -> Result<(), String> {
    if arguments.wants(Stage::Conformance) {
        if server.kind() == Kind::Hdfs {
            // What needs no cluster: CI builds neither the feature nor its tests, which would take
            // it more than a minute.
            cargo(
                root,
                server,
                "test --quiet --package tombolo-storage --features hdfs --lib backend::hdfs",
                &[],
            )?;
        }
        conformance(root, server)?;
    }
    let tombolo = |words: &[&str], store: &str| {
        let command = format!(
            "run --quiet --profile {} --package tombolo-cli --features {} --",
            arguments.profile,
            server.feature()
        );
        let rest: Vec<OsString> =
            words.iter().map(OsString::from).chain([server.uri(store).into()]).collect();
        cargo(root, server, &command, &rest)
    };
    if arguments.wants(Stage::Doctor) {
        tombolo(&["doctor"], "doctor")?;
    }
    if arguments.wants(Stage::Misuse) {
        misuse::run(root, server, &arguments.profile)?;
    }
    if arguments.wants(Stage::Clones) {
        clones::run(root, server, &arguments.profile)?;
    }
    if arguments.wants(Stage::Looks) {
        looks::run(root, server, &arguments.profile)?;
    }
    if arguments.wants(Stage::Live) {
        live::run(root, server, &arguments.profile)?;
    }
    if arguments.wants(Stage::Model) {
        model(root, server, arguments.model_seconds)?;
    }
    if arguments.wants(Stage::Metamorphic) {
        metamorphic(root, server, arguments.model_seconds)?;
    }
    if arguments.wants(Stage::Demo) {
        tombolo(&["demo", "--seconds", &arguments.seconds.to_string(), "--store"], "demo")?;
    }
    if arguments.wants(Stage::Crash) {
        tombolo(
            &["crash", "--life-ms", "1500", "--rounds", &arguments.rounds.to_string(), "--store"],
            "crash",
        )?;
    }
    if arguments.wants(Stage::Fight) {
        tombolo(&["fight", "--seconds", &arguments.fight_seconds.to_string(), "--store"], "fight")?;
    }
    Ok(())
}

fn cargo(root: &Path, server: &Server, line: &str, rest: &[OsString]) -> Result<(), String> {
    cargo_with(root, server, line, rest, &[])
}

fn cargo_with(
    root: &Path,
    server: &Server,
    line: &str,
    rest: &[OsString],
    environment: &[(&str, &str)],
) -> Result<(), String> {
    let shown: Vec<_> = rest.iter().map(|argument| argument.to_string_lossy()).collect();
    let set: String = environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    eprintln!("$ {set}cargo {line} {}", shown.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(line.split_whitespace())
        .args(rest)
        .envs(server.credentials())
        .envs(environment.iter().copied())
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", shown.join(" "))) }
}
