//! Runs the unit tests of modules with `unsafe`, or without locks, under miri, which sees memory
//! used after it was freed, out of bounds or uninitialised, and data races.
//!
//! The tests take less work there (`cfg!(miri)`): miri is a thousand times slower.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;

use crate::check::unsafe_paths;

/// A package, the tests whose names begin so, the sources that they cover, and features.
const RUNS: &[(&str, &str, &str, &str)] = &[
    ("tombolo", "memtable::", "crates/tombolo/src/memtable/", ""),
    ("tombolo", "cache::frames::", "crates/tombolo/src/cache/frames/", ""),
    ("tombolo", "cache::hazard::", "crates/tombolo/src/cache/hazard/", ""),
    ("tombolo", "engine::commit_queue::", "crates/tombolo/src/engine/commit_queue", ""),
    ("tombolo-typed", "value::", "crates/typed/src/value/", "rkyv,zerocopy"),
];

/// Modules with `unsafe` that miri cannot run.
const CALLS_OUT: &[&str] = &[
    "crates/capi/src/",
    "crates/env/src/real/",
    "crates/env/src/memory",
    "crates/format/src/compression/prefix.rs",
    "crates/preload/src/symbols/",
    "crates/preload/tests/it/streams",
    "crates/migrate/src/library.rs",
    "crates/rocksdb_plugin/src/",
    "crates/python/src/buffer.rs",
    "crates/rocksdb_c/src/",
];

/// Modules with `unsafe` that only hand calls on, or hints: there is nothing to check in them.
const HANDED_ON: &[&str] = &[
    "crates/format/src/prefetch.rs",
    "crates/tombolo/tests/it/allocator",
    "crates/typed/tests/it/allocator",
];

/// Options of `miri`.
#[derive(Args)]
pub struct Arguments {
    /// Runs only tests that have this in their name.
    #[arg(long)]
    only: Option<String>,
    /// The seed of the order in which threads run.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Runs them, or says which tools are missing.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if let Some(path) = unsafe_paths().find(|path| !is_told_of(path)) {
        return Err(format!(
            "{path} may hold unsafe code: say in crates/xtask/src/miri.rs which tests run it, or that miri \
            cannot"
        ));
    }
    if !installed() {
        println!(
            "nothing checked: miri is not installed (rustup component add miri rust-src --toolchain nightly)"
        );
        return Ok(());
    }
    for path in CALLS_OUT {
        println!("not under miri, which knows neither such system calls nor C: {path}");
    }
    for (package, tests, _, features) in RUNS {
        let filter = match &arguments.only {
            Some(only) if !tests.starts_with(only.as_str()) && !only.starts_with(tests) => continue,
            Some(only) if only.len() > tests.len() => only,
            _ => *tests,
        };
        let status = Command::new("rustup")
            .args([
                "run",
                "nightly",
                "cargo",
                "miri",
                "test",
                "--quiet",
                "--package",
                package,
                "--features",
                features,
                "--lib",
                "--",
                filter,
            ])
            .env(
                "MIRIFLAGS",
                format!(
                    "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-seed={}",
                    arguments.seed
                ),
            )
            // Apart from what other toolchains build.
            .env("CARGO_TARGET_DIR", root.join("target/miri"))
            .current_dir(root)
            .status()
            .map_err(|error| format!("cannot start miri: {error}"))?;
        if !status.success() {
            return Err(format!("{package} {filter}: miri ended with {status}"));
        }
    }
    Ok(())
}

fn is_told_of(path: &str) -> bool {
    CALLS_OUT.contains(&path)
        || HANDED_ON.contains(&path)
        || RUNS.iter().any(|(_, _, covered, _)| path.starts_with(covered))
}

fn installed() -> bool {
    let answers = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        command
            .output()
            .ok()
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let has_sources = || {
        let root = answers(&["rustc", "--print", "sysroot"])?;
        Some(Path::new(root.trim()).join("lib/rustlib/src/rust/library/std").is_dir())
    };
    answers(&["cargo", "miri", "--version"]).is_some() && has_sources() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_with_unsafe_runs_under_miri_or_is_excused() {
        assert_eq!(unsafe_paths().find(|path| !is_told_of(path)), None);
    }
}
