//! Thin wrappers: each runs a program of the workspace with the arguments that people keep
//! forgetting.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use clap::Args;

/// Runs `cargo` in the workspace with the caller's terminal; says what it runs.
pub fn cargo(root: &Path, arguments: &[OsString], variables: &[(&str, String)]) -> Result<(), String> {
    let shown: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let settings: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    eprintln!("$ {settings}cargo {}", shown.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} ended with {status}", shown.join(" "))) }
}

pub fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

/// Options of `crash`.
#[derive(Args)]
pub struct Crash {
    /// How many times to kill.
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Form of the local log; both in turn when not given.
    #[arg(long, value_parser = ["mapped", "written"])]
    form: Option<String>,
    /// Seed of keys, values and moments; printed by every run.
    #[arg(long)]
    seed: Option<u64>,
    /// Where to keep the database; a temporary directory when not given.
    #[arg(long)]
    directory: Option<std::path::PathBuf>,
}

/// Kills a real process in a loop.
pub fn crash(root: &Path, arguments: &Crash) -> Result<(), String> {
    let forms = match &arguments.form {
        Some(form) => vec![form.as_str()],
        None => vec!["mapped", "written"],
    };
    for form in forms {
        let mut command = words("run --quiet --release --package tombolo-cli -- crash --form");
        command.push(form.into());
        command.extend(["--rounds".into(), arguments.rounds.to_string().into()]);
        if let Some(seed) = arguments.seed {
            command.extend(["--seed".into(), seed.to_string().into()]);
        }
        if let Some(directory) = &arguments.directory {
            command.extend(["--directory".into(), directory.join(form).into()]);
        }
        cargo(root, &command, &[])?;
    }
    Ok(())
}

/// Options of `model`.
#[derive(Args)]
pub struct Model {
    /// Different worlds of one scenario, at most; each takes a few kilobytes.
    #[arg(long, default_value_t = 3_000_000)]
    worlds: u64,
    /// Simulated histories of processes that fight for a database.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
}

/// Searches the models of the manifest chain and of deletion deeper than CI does, and runs more
/// simulated histories.
pub fn model(root: &Path, arguments: &Model) -> Result<(), String> {
    let filter =
        "test --package tombolo --features mutants --lib -- collection::tests --nocapture --test-threads 1";
    let variables = [
        ("TOMBOLO_MODEL_WORLDS", arguments.worlds.to_string()),
        ("TOMBOLO_SEEDS", arguments.seeds.to_string()),
    ];
    cargo(root, &words(filter), &variables)
}

/// Options of `demo`.
#[derive(Args)]
pub struct Demo {
    /// Handed to `tombolo demo`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Runs the demo.
pub fn demo(root: &Path, arguments: &Demo) -> Result<(), String> {
    let mut command = words("run --release --package tombolo-cli -- demo");
    command.extend(arguments.rest.iter().cloned());
    cargo(root, &command, &[])
}

/// Options of `fuzz`.
#[derive(Args)]
pub struct Fuzz {
    /// The target, a file of fuzz/fuzz_targets; all of them when not given.
    #[arg(default_value = "all")]
    target: String,
    /// How long for each target, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// Runs fuzz targets.
pub fn fuzz(root: &Path, arguments: &Fuzz) -> Result<(), String> {
    let script = root.join("fuzz/run");
    let status = Command::new(&script)
        .arg(&arguments.target)
        .arg(arguments.seconds.to_string())
        .status()
        .map_err(|error| format!("cannot start {}: {error}", script.display()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "fuzzing {} ended with {status}; inputs that fail are in fuzz/artifacts",
            arguments.target
        ))
    }
}

/// Options of `simulate`.
#[derive(Args)]
pub struct Simulate {
    /// Handed to the simulator: `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Runs scenarios of the simulator in release.
pub fn simulate(root: &Path, arguments: &Simulate) -> Result<(), String> {
    let mut command = words("run --quiet --release --package tombolo-simulator");
    if arguments.rest.iter().any(|argument| argument.to_string_lossy().starts_with("--mutant")) {
        command.extend(words("--features mutants"));
    }
    command.push("--".into());
    command.extend(arguments.rest.iter().cloned());
    cargo(root, &command, &[])
}

/// Options of `metamorphic`.
#[derive(Args)]
pub struct Metamorphic {
    /// How many histories, each under every option set.
    #[arg(long, default_value_t = 50)]
    seeds: u64,
    /// The first one's seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Runs the simulator's scenario of that name in release.
pub fn metamorphic(root: &Path, arguments: &Metamorphic) -> Result<(), String> {
    let Metamorphic { seeds, seed } = arguments;
    let line = format!(
        "run --quiet --release --package tombolo-simulator -- --scenario metamorphic --seed {seed} --runs \
        {seeds}"
    );
    cargo(root, &words(&line), &[])
}

/// Options of `soak`.
#[derive(Args)]
pub struct Soak {
    /// How long, in minutes.
    #[arg(long, default_value = "60")]
    minutes: String,
    /// Form of the local log.
    #[arg(long, value_parser = ["mapped", "written"], default_value = "mapped")]
    form: String,
    /// Seed of keys, values, faults and moments; printed by every run.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs a real database under load, faults and kills.
pub fn soak(root: &Path, arguments: &Soak) -> Result<(), String> {
    let Soak { minutes, form, seed } = arguments;
    let mut command = words(&format!(
        "run --quiet --release --package tombolo-cli -- soak --minutes {minutes} --form {form}"
    ));
    if let Some(seed) = seed {
        command.extend(["--seed".into(), seed.to_string().into()]);
    }
    cargo(root, &command, &[])
}

/// Options of `fight`.
#[derive(Args)]
pub struct Fight {
    /// How long, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// The store, as a URI; a temporary directory when not given.
    #[arg(long, value_name = "URI")]
    store: Option<String>,
    /// Seed of keys, values and moments; printed by every run.
    #[arg(long)]
    seed: Option<u64>,
}

/// Lets two writers fight for a database.
pub fn fight(root: &Path, arguments: &Fight) -> Result<(), String> {
    let Fight { seconds, store, seed } = arguments;
    let features = match store {
        Some(store) if store.starts_with("hdfs:") => "--features hdfs ",
        Some(_) => "--features cloud ",
        None => "",
    };
    let mut command =
        words(&format!("run --quiet --release --package tombolo-cli {features}-- fight --seconds {seconds}"));
    if let Some(store) = store {
        command.extend(["--store".into(), store.into()]);
    }
    if let Some(seed) = seed {
        command.extend(["--seed".into(), seed.to_string().into()]);
    }
    cargo(root, &command, &[])
}
