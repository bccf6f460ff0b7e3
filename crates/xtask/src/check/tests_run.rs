//! Runs the tests that the build made; counts them: a step that runs no test is a failure, and so
//! is an ignored one.

use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Context, Outcome, seconds};
use crate::built::TestProgram;
use crate::log::Log;
use crate::some_tests;

/// What runs of tests come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    binaries: u64,
}

impl Counts {
    /// Adds a line such as
    /// `test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    pub fn add(&mut self, line: &str) {
        let Some(rest) = line.trim().strip_prefix("test result:") else { return };
        self.binaries += 1;
        let words: Vec<&str> = rest.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    /// In words.
    pub fn words(self) -> String {
        let Counts { passed, failed, ignored, binaries } = self;
        format!("{passed} tests passed, {failed} failed, {ignored} ignored, in {binaries} binaries")
    }

    /// How the step ends.
    pub fn verdict(self, may_be_empty: bool) -> Outcome {
        let words = self.words();
        if self.failed > 0 {
            return Err(format!("   {words}"));
        }
        if self.ignored > 0 {
            return Err(format!("   {words}: an ignored test shows nothing; make it run or remove it"));
        }
        if self.passed == 0 && !may_be_empty {
            return Err(format!("   {words}: a step without tests shows nothing"));
        }
        Ok(words)
    }
}

/// The programs of tests that take longest, longest first; the others go by their size.
const LONGEST: [(&str, &str); 7] = [
    ("tombolo", "it"),
    ("tombolo-simulator", "it"),
    ("tombolo-storage", "lib"),
    ("tombolo-cli", "it"),
    ("tombolo", "lib"),
    ("tombolo-simulator", "lib"),
    ("tombolo-zoned", "it"),
];

/// Compiles them, as a step.
pub fn compile(context: &Context<'_>, log: &Log) -> Outcome {
    let built = context.built(log)?;
    Ok(format!("{} test binaries, {} other programs", built.tests.len(), built.programs.len()))
}

/// Runs all tests of the packages that the run is about.
pub fn run(context: &Context<'_>, log: &Log) -> Outcome {
    let built = context.built(log)?;
    let mut wanted: Vec<&TestProgram> =
        built.tests.iter().filter(|test| context.scope.has(&test.package)).collect();
    // Those that take longest first: so none of them is left alone at the end.
    let place = |test: &TestProgram| {
        let is_it = |(package, target): &(&str, &str)| test.package == *package && test.target == *target;
        LONGEST.iter().position(is_it).unwrap_or(LONGEST.len())
    };
    let bytes = |test: &TestProgram| std::fs::metadata(&test.executable).map_or(0, |it| it.len());
    wanted.sort_by_key(|test| (place(test), std::cmp::Reverse(bytes(test))));
    let (next, counts, failures) =
        (AtomicUsize::new(0), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(test) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (said, failure) = run_one(test);
            let mut counts = counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            log.line(&said);
            said.lines().for_each(|line| counts.add(line));
            if let Some(failure) = failure {
                println!("   FAILED: {failure}\n{said}");
                failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(failure);
            }
        }
    };
    // Two at a time: while one waits for its longest test, the other has work for the second core.
    std::thread::scope(|scope| {
        let beside = scope.spawn(work);
        work();
        // A panic of the other goes on here.
        beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let counts = counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !failures.is_empty() {
        return Err(format!("   {}\n   {}", counts.words(), failures.join("\n   ")));
    }
    counts.verdict(!context.scope.is_all())
}

/// Runs the tests of one program; gives its output, and how it failed if it did.
fn run_one(test: &TestProgram) -> (String, Option<String>) {
    let TestProgram { package, target, .. } = test;
    let begun = Instant::now();
    let output = match some_tests::command(test).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return (String::new(), Some(format!("{package} {target} cannot be started: {error}"))),
    };
    let said = format!(
        "── {package} {target}, {}\n{}{}",
        seconds(begun.elapsed()),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let failure = (!output.status.success()).then(|| {
        let again = some_tests::again(test, &said);
        format!("{package} {target} ended with {}; again alone: {again}", output.status)
    });
    (said, failure)
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn counts_are_summed_over_binaries() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        counts.add(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; \
            finished in 4.00s",
        );
        counts.add("test read::tests::finds_nothing ... ok");
        assert_eq!((counts.passed, counts.failed, counts.ignored, counts.binaries), (15, 2, 1, 2));
    }

    #[test]
    fn ignored_and_missing_tests_are_failures() {
        let counts = |passed, failed, ignored| Counts { passed, failed, ignored, binaries: 1 };
        assert!(counts(1, 0, 0).verdict(false).is_ok());
        assert!(counts(1, 0, 1).verdict(false).is_err());
        assert!(counts(1, 1, 0).verdict(false).is_err());
        assert!(counts(0, 0, 0).verdict(false).is_err());
        assert!(counts(0, 0, 0).verdict(true).is_ok());
    }
}
