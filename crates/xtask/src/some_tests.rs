//! Some tests of the check again, alone.
//!
//! They come from the check's own build: what it compiled is not compiled again, and the features
//! are the same. A plain `cargo test` has a graph of its own.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::built::{self, TestProgram};
use crate::log::Log;

/// Options of `test`.
#[derive(Args)]
pub struct Arguments {
    /// Only tests of this package; `storage` stands for `tombolo-storage`.
    #[arg(long, short, value_name = "PACKAGE")]
    package: Option<String>,
    /// Only programs of this kind: `lib`, `bin`, or `it` for integration tests.
    #[arg(long, value_name = "KIND")]
    target: Option<String>,
    /// What the programs are given: a part of a test's name, and options such as `--nocapture`.
    #[arg(value_name = "FILTER", trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Arguments {
    fn wants(&self, program: &TestProgram) -> bool {
        let is_package = |name: &String| {
            *name == program.package || program.package.strip_prefix("tombolo-") == Some(name)
        };
        self.package.as_ref().is_none_or(is_package)
            && self.target.as_ref().is_none_or(|target| *target == program.target)
    }
}

/// Builds all tests as the check does, and runs those that are named.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let log = Log::create(root, "test")?;
    let built = built::build(root, &log).map_err(|error| format!("{}{error}", log.end()))?;
    let wanted: Vec<&TestProgram> = built.tests.iter().filter(|program| arguments.wants(program)).collect();
    if wanted.is_empty() {
        let names: Vec<String> =
            built.tests.iter().map(|test| format!("-p {} --target {}", test.package, test.target)).collect();
        return Err(format!("no tests are named so; there are:\n{}", names.join("\n")));
    }
    let mut failed = Vec::new();
    for program in wanted {
        println!("── {} {}", program.package, program.target);
        let status = command(program).args(&arguments.rest).status();
        let status =
            status.map_err(|error| format!("cannot start {}: {error}", program.executable.display()))?;
        if !status.success() {
            failed.push(format!("{} {} ended with {status}", program.package, program.target));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join(", ")) }
}

/// A program of tests, as cargo would start it.
pub fn command(test: &TestProgram) -> Command {
    let mut command = Command::new(&test.executable);
    command
        .env("CARGO_MANIFEST_DIR", &test.folder)
        .env("CARGO_PKG_NAME", &test.package)
        .current_dir(&test.folder);
    command
}

/// How to run again, alone, the tests that failed in what a program said.
pub fn again(test: &TestProgram, said: &str) -> String {
    let failed: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
    let names = if failed.is_empty() { String::new() } else { format!(" -- --exact {}", failed.join(" ")) };
    format!("cargo xtask test -p {} --target {}{names}", test.package, test.target)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn program(package: &str, target: &str) -> TestProgram {
        let (package, target) = (package.to_owned(), target.to_owned());
        TestProgram { package, target, executable: PathBuf::new(), folder: PathBuf::new() }
    }

    #[test]
    fn packages_are_named_by_their_folders_too() {
        let arguments = |package: Option<&str>, target: Option<&str>| Arguments {
            package: package.map(str::to_owned),
            target: target.map(str::to_owned),
            rest: Vec::new(),
        };
        assert!(arguments(None, None).wants(&program("tombolo", "it")));
        assert!(arguments(Some("storage"), None).wants(&program("tombolo-storage", "lib")));
        assert!(arguments(Some("tombolo-storage"), Some("it")).wants(&program("tombolo-storage", "it")));
        assert!(!arguments(Some("storage"), Some("it")).wants(&program("tombolo-storage", "lib")));
        assert!(!arguments(Some("tombolo"), None).wants(&program("tombolo-storage", "lib")));
    }

    #[test]
    fn failed_tests_are_named_for_the_next_run() {
        let said = "test a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n    a::c\ntest d ... FAILED\n";
        let test = program("tombolo-env", "lib");
        assert_eq!(again(&test, said), "cargo xtask test -p tombolo-env --target lib -- --exact a::c d");
        assert_eq!(again(&test, "killed"), "cargo xtask test -p tombolo-env --target lib");
    }
}
