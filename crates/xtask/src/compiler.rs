//! This program in the place of the compiler of the workspace: clippy, and tests that are not
//! optimised.
//!
//! Some crates are optimised because others spend their time in them. Their own tests are not worth
//! it: those of `format` and `env` took 53 s of processors to compile and 11 to run, optimised, and
//! 12 and 15 as they are now. A profile cannot tell a crate from its tests.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Set for this program where it stands in for the compiler: clippy's.
const CLIPPY: &str = "XTASK_CLIPPY_DRIVER";

/// Has cargo call this program for each crate of the workspace. It gets no line numbers: they are a
/// sixth of the compilation, and a test that fails says its line without them.
pub fn stand_in(cargo: &mut Command) {
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
    let beside = Path::new(env!("CARGO")).with_file_name("clippy-driver");
    let clippy = if beside.exists() { beside } else { PathBuf::from("clippy-driver") };
    match std::env::current_exe() {
        Ok(own) => cargo.env("RUSTC_WORKSPACE_WRAPPER", own).env(CLIPPY, clippy),
        // Without it tests are optimised, and that is all.
        Err(_) => cargo.env("RUSTC_WORKSPACE_WRAPPER", clippy),
    };
}

/// Compiles what cargo asks for, if this program was started in the place of the compiler.
pub fn in_place_of_compiler() -> Option<ExitCode> {
    let clippy = std::env::var_os(CLIPPY)?;
    // Programs that a build or a test starts are no compilers.
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().map(Path::new).and_then(Path::file_stem) != Some(OsStr::new("rustc")) {
        return None;
    }
    let error = Command::new(&clippy).args(not_optimised_for_tests(arguments)).exec();
    eprintln!("cannot start {}: {error}", clippy.display());
    Some(ExitCode::FAILURE)
}

fn not_optimised_for_tests(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.iter().any(|word| word == "--test") {
        let levels = arguments.iter_mut().filter(|word| *word == "opt-level=1");
        levels.for_each(|level| *level = "opt-level=0".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_not_optimised_and_what_they_test_is() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let library = "/bin/rustc --crate-name a -C opt-level=1 --crate-type lib";
        assert_eq!(not_optimised_for_tests(words(library)), words(library));
        let tests = words("/bin/rustc --crate-name a -C opt-level=1 --test");
        assert_eq!(not_optimised_for_tests(tests), words("/bin/rustc --crate-name a -C opt-level=0 --test"));
    }
}
