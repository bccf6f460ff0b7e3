//! All tests as one build, what clippy says of it, and the programs that it gives.
//!
//! With the feature `mutants` every rule is in place until a test takes one out, so one build
//! serves plain tests and mutants. `cargo xtask campaign plain` runs tests as they are without
//! features.
//!
//! clippy is the compiler with more lints. Here it compiles the crates of the workspace, so that no
//! second graph is needed for its warnings. Cargo keeps what a wrapped compiler made apart: a plain
//! `cargo test` shares the dependencies with this build, and compiles the workspace for itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::compiler;
use crate::log::{self, Log};

/// Every feature of every crate but `hdfs` and `etcd`, which `cargo xtask real` tests, and
/// `parquet`, which the campaign `plain` does: their crates would take a minute more to compile,
/// and `etcd` needs protoc. Tests of RDMA skip themselves where no card is named.
pub const FEATURES: &str = "tombolo-storage/mutants,tombolo-storage/cloud,tombolo/mutants,\
    tombolo-segment/mutants,tombolo-segment/rdma,tombolo-near-compute-log/mutants,\
    tombolo-compactor/mutants,tombolo-preload/mutants,tombolo-files/mutants,\
    tombolo-simulator/mutants,tombolo-zoned/mutants,tombolo-typed/rkyv,\
    tombolo-typed/zerocopy";

/// What the build of the tests made.
#[derive(Debug, Default)]
pub struct Built {
    /// Programs that hold tests.
    pub tests: Vec<TestProgram>,
    /// Other programs, by name: commands and examples.
    pub programs: Vec<(String, PathBuf)>,
    /// Warnings of the compiler and of clippy in the workspace, as they are shown. Cargo repeats
    /// those of crates that it found compiled.
    pub warnings: Vec<String>,
}

impl Built {
    /// The command or example of this name.
    pub fn program(&self, name: &str) -> Result<&Path, String> {
        let found = self.programs.iter().find(|(found, _)| found == name);
        found.map(|(_, path)| path.as_path()).ok_or_else(|| format!("   the build made no program {name}"))
    }
}

/// A program that holds tests.
#[derive(Debug)]
pub struct TestProgram {
    /// The package whose tests it holds.
    pub package: String,
    /// Its kind: `lib`, `bin` or `it`.
    pub target: String,
    /// The program.
    pub executable: PathBuf,
    /// The package's folder, in which its tests run.
    pub folder: PathBuf,
}

/// Cargo whose compiler for the workspace is clippy: see the head of this module.
pub fn cargo(root: &Path) -> Command {
    let mut command = log::cargo_command(root);
    compiler::stand_in(&mut command);
    command
}

/// Compiles all tests, and the programs that they and the servers' step run.
pub fn build(root: &Path, log: &Log) -> Result<Built, String> {
    // Without a choice of targets examples are compiled too, as the programs that they are.
    let arguments = ["--workspace", "--features", FEATURES];
    let mut command = cargo(root);
    command.args(["test", "--no-run", "--message-format", "json"]).args(arguments);
    log.line(&format!("$ cargo test --no-run {}", arguments.join(" ")));
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.stdio()?)
        .output()
        .map_err(|error| format!("   cannot start cargo: {error}"))?;
    let mut built = Built::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        add_message(line, &mut built, log)?;
    }
    if output.status.success() {
        Ok(built)
    } else {
        Err(format!(
            "   the tests do not compile: cargo ended with {} (no clippy: `rustup component add clippy`)",
            output.status
        ))
    }
}

/// Takes a line of cargo's: a message of the compiler, or something that it has made.
fn add_message(line: &str, built: &mut Built, log: &Log) -> Result<(), String> {
    let said: Value = serde_json::from_str(line).map_err(|error| format!("   cargo said {line}: {error}"))?;
    match said["reason"].as_str() {
        Some("compiler-message") => add_warning(&said["message"], built, log),
        Some("compiler-artifact") => add_artifact(&said, built)?,
        _ => {}
    }
    Ok(())
}

/// Takes what the compiler says. A library and its tests share most of it: it is taken once.
fn add_warning(message: &Value, built: &mut Built, log: &Log) {
    let rendered = message["rendered"].as_str().unwrap_or_default().trim_end();
    // Behind its warnings the compiler says how many there were, at no place.
    let has_place = message["spans"].as_array().is_some_and(|spans| !spans.is_empty());
    let is_counted = message["level"] == "warning" && (has_place || message["code"].is_object());
    if message["level"] != "warning" {
        log.line(rendered);
    } else if is_counted && !built.warnings.iter().any(|known| known == rendered) {
        log.line(rendered);
        built.warnings.push(rendered.to_owned());
    }
}

/// Takes a program that was made.
fn add_artifact(said: &Value, built: &mut Built) -> Result<(), String> {
    let Some(executable) = said["executable"].as_str() else { return Ok(()) };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, kind) = (text(&said["target"]["name"]), text(&said["target"]["kind"][0]));
    let executable = PathBuf::from(executable);
    if said["profile"]["test"] != true {
        built.programs.push((name, executable));
        return Ok(());
    }
    let manifest = PathBuf::from(text(&said["manifest_path"]));
    let folder = manifest.parent().map(Path::to_path_buf).unwrap_or_default();
    let package = package_name(&manifest)?;
    let target = if kind == "test" { name } else { kind };
    built.tests.push(TestProgram { package, target, executable, folder });
    Ok(())
}

/// The name that a manifest gives its package.
fn package_name(manifest: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(manifest)
        .map_err(|error| format!("   cannot read {}: {error}", manifest.display()))?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = ")).unwrap_or_default();
    Ok(name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Built, FEATURES, add_message};
    use crate::log::Log;

    #[test]
    fn every_crate_with_the_feature_is_tested_with_it() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for folder in
            fs::read_dir(&crates).expect("the crates").map(|entry| entry.expect("one of them").path())
        {
            let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            if !manifest.lines().any(|line| line.starts_with("mutants = ")) {
                continue;
            }
            let package = manifest
                .lines()
                .find_map(|line| line.strip_prefix("name = "))
                .expect("a name")
                .trim_matches('"');
            assert!(
                FEATURES.split(',').any(|feature| feature == format!("{package}/mutants")),
                "{package} is built without it"
            );
        }
    }

    #[test]
    fn programs_are_taken_from_what_cargo_says() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let line = |kind: &str, name: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{}","target":{{"kind":["{kind}"],"name":"{name}"}},
                "profile":{{"test":{test}}},"executable":{executable}}}"#,
                manifest.display()
            )
        };
        let (mut built, log) = (Built::default(), Log::for_tests("built"));
        for line in [
            line("lib", "xtask", true, r#""/t/xtask-1""#),
            line("test", "it", true, r#""/t/it-2""#),
            line("example", "conformance", false, r#""/t/conformance""#),
            line("lib", "xtask", false, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ] {
            add_message(&line, &mut built, &log).expect("it is understood");
        }
        let names: Vec<_> =
            built.tests.iter().map(|test| (test.package.as_str(), test.target.as_str())).collect();
        assert_eq!(names, [("xtask", "lib"), ("xtask", "it")]);
        assert_eq!(built.program("conformance"), Ok(Path::new("/t/conformance")));
        assert!(built.program("xtask").is_err());
        fs::remove_file(log.path()).expect("removed");
    }

    #[test]
    fn a_warning_is_taken_once_and_its_number_never() {
        let line = |level: &str, text: &str, spans: &str| {
            format!(
                r#"{{"reason":"compiler-message","message":{{"level":"{level}","rendered":"{text}","code":null,
                "spans":{spans}}}}}"#
            )
        };
        let (mut built, log) = (Built::default(), Log::for_tests("warnings"));
        for line in [
            line("warning", "unused", "[{}]"),
            line("warning", "unused", "[{}]"),
            line("warning", "1 warning emitted", "[]"),
            line("note", "by the way", "[{}]"),
            line("error", "no such thing", "[{}]"),
        ] {
            add_message(&line, &mut built, &log).expect("it is understood");
        }
        assert_eq!(built.warnings, ["unused"]);
        assert_eq!(log.end(), "unused\nby the way\nno such thing\n");
        fs::remove_file(log.path()).expect("removed");
    }
}
