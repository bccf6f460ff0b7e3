//! Rustdoc's two passes over every library: its pages, whose links must lead somewhere, and its
//! examples, which must run.
//!
//! Cargo has libraries compiled anew for pages, and examples use those that tests use. So pages are
//! made where cargo asks for examples: this program stands in for rustdoc, and calls it twice.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::changed::Scope;
use super::tests_run::Counts;
use super::{Context, Outcome};
use crate::built::{self, FEATURES};
use crate::log::{self, Log};

/// Set for this program where it stands in for rustdoc: the folder of the pages.
const PAGES: &str = "XTASK_RUSTDOC_PAGES";
/// Set with it where a run is about some packages only: their names, with a comma between them.
const PACKAGES: &str = "XTASK_RUSTDOC_PACKAGES";

/// Pages and examples of all libraries. A crate may mark an example `ignore` only where it cannot
/// run at all, so ignored ones fail too.
pub fn check(context: &Context<'_>, log: &Log) -> Outcome {
    let own = std::env::current_exe().map_err(|error| format!("   finding this program: {error}"))?;
    let mut cargo = built::cargo(context.root);
    cargo.env("RUSTDOC", own).env(PAGES, log::target(context.root).join("check/doc"));
    if let Scope::Changed(changed) = &context.scope {
        cargo.env(PACKAGES, changed.packages.iter().map(String::as_str).collect::<Vec<_>>().join(","));
    }
    cargo.args(["test", "--workspace", "--doc", "--no-fail-fast", "--features", FEATURES]);
    let outcome = log::run(&mut cargo, log);
    let mut counts = Counts::default();
    std::fs::read_to_string(log.path()).unwrap_or_default().lines().for_each(|line| counts.add(line));
    outcome.map_err(|message| format!("   {}\n{message}", counts.words()))?;
    counts.verdict(!context.scope.is_all())
}

/// What rustdoc would do for cargo, and the pages before it, if this program was started in its
/// place.
pub fn in_place_of_rustdoc() -> Option<ExitCode> {
    let pages = std::env::var_os(PAGES)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Cargo chooses features by packages that it is given, so that it is given all.
    if std::env::var(PACKAGES).is_ok_and(|packages| !is_about(&arguments, &packages)) {
        return Some(ExitCode::SUCCESS);
    }
    let made = match arguments_of_pages(&arguments, Path::new(&pages)) {
        Some(arguments) => rustdoc(&arguments),
        None => true,
    };
    let passed = rustdoc(&arguments);
    Some(if made && passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether cargo asks for the crate of one of the packages, or for none.
fn is_about(arguments: &[OsString], packages: &str) -> bool {
    let name = arguments.iter().skip_while(|word| *word != "--crate-name").nth(1);
    name.is_none_or(|name| packages.split(',').any(|package| *name == *package.replace('-', "_")))
}

/// From what cargo says for examples, what it would say for pages; `None` when it does not ask for
/// examples.
fn arguments_of_pages(examples: &[OsString], pages: &Path) -> Option<Vec<OsString>> {
    let mut words = Vec::with_capacity(examples.len());
    let (mut of_examples, mut rest) = (false, examples.iter());
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("--test") => of_examples = true,
            Some("--test-run-directory" | "--test-args") => {
                rest.next();
            }
            _ => words.push(word.clone()),
        }
    }
    words.extend(["-D", "warnings", "--out-dir"].map(OsString::from));
    words.push(pages.into());
    of_examples.then_some(words)
}

/// Runs it; what fails says so itself.
fn rustdoc(arguments: &[OsString]) -> bool {
    let beside = Path::new(env!("CARGO")).with_file_name("rustdoc");
    let program = if beside.exists() { beside } else { "rustdoc".into() };
    match Command::new(&program).args(arguments).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot start {}: {error}", program.display());
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_made_of_what_cargo_says_for_examples() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let examples = words(
            "--crate-name a --test src/lib.rs --test-run-directory /a --extern b=/b.rlib --test-args -q",
        );
        let pages = words("--crate-name a src/lib.rs --extern b=/b.rlib -D warnings --out-dir /pages");
        assert_eq!(arguments_of_pages(&examples, Path::new("/pages")), Some(pages));
        assert_eq!(arguments_of_pages(&words("-vV"), Path::new("/pages")), None);
    }

    #[test]
    fn crates_that_a_change_does_not_concern_are_left_out() {
        let of = |name: &str| ["--crate-name", name].map(OsString::from);
        assert!(is_about(&of("t_env"), "t-cli,t-env"));
        assert!(!is_about(&of("t_env"), "t-environment,t"));
        assert!(is_about(&["-vV".into()], ""));
    }
}
