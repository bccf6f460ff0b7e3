//! Runs tests, passes their output through, and counts them: a step that runs no test is a failure,
//! and so is an ignored one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Context, Outcome};

/// The packages that have the feature, and the feature. The stores of the cloud are built and
/// tested along with it, and RDMA, whose tests skip themselves where no card is named: this is the
/// build that has every feature.
pub const MUTANT_PACKAGES: [&str; 14] = [
    "--package",
    "tombolo-storage",
    "--package",
    "tombolo",
    "--package",
    "tombolo-segment",
    "--package",
    "tombolo-near-compute-log",
    "--package",
    "tombolo-preload",
    "--package",
    "tombolo-simulator",
    "--features",
    "tombolo-storage/mutants,tombolo-storage/cloud,tombolo/mutants,tombolo-segment/mutants,tombolo-segment/rdma,tombolo-near-compute-log/mutants,tombolo-preload/mutants,tombolo-simulator/mutants",
];

#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    binaries: u64,
}

impl Counts {
    /// Adds a line such as
    /// `test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    fn add(&mut self, line: &str) {
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
}

/// Everything but documentation.
pub fn plain(context: &Context<'_>) -> Outcome {
    tests(context.root, &["test", "--workspace", "--lib", "--bins", "--tests"], false)
}

/// With the feature `mutants`.
pub fn mutants(context: &Context<'_>) -> Outcome {
    let mut arguments = vec!["test", "--lib", "--tests"];
    arguments.extend(MUTANT_PACKAGES);
    tests(context.root, &arguments, false)
}

/// Examples of the documentation. A crate may mark an example `ignore` only where it cannot run at
/// all, so ignored ones fail too.
pub fn documentation(context: &Context<'_>) -> Outcome {
    tests(context.root, &["test", "--workspace", "--doc"], true)
}

fn tests(root: &Path, arguments: &[&str], may_be_empty: bool) -> Outcome {
    let mut child = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--no-fail-fast"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("   cannot start cargo: {error}"))?;
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| format!("   cannot read what cargo prints: {error}"))?;
            counts.add(&line);
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|error| format!("   cannot wait for cargo: {error}"))?;
    let Counts { passed, failed, ignored, binaries } = counts;
    let words = format!("{passed} tests passed, {failed} failed, {ignored} ignored, in {binaries} binaries");
    if !status.success() || failed > 0 {
        return Err(format!("   {words}; `cargo {}` ended with {status}", arguments.join(" ")));
    }
    if ignored > 0 {
        return Err(format!("   {words}: an ignored test shows nothing; make it run or remove it"));
    }
    if passed == 0 && !may_be_empty {
        return Err(format!("   {words}: a step without tests shows nothing"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Counts, MUTANT_PACKAGES};

    #[test]
    fn every_crate_with_the_feature_is_tested_with_it() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = 0;
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
            assert!(MUTANT_PACKAGES.contains(&package), "{package} is left out");
            let features = MUTANT_PACKAGES.last().expect("the features").split(',');
            assert!(
                features.into_iter().any(|feature| feature == format!("{package}/mutants")),
                "{package} is built without it"
            );
            found += 1;
        }
        assert_eq!(found, MUTANT_PACKAGES.iter().filter(|argument| **argument == "--package").count());
    }

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
}
