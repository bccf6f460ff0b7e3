//! Each rule that can be taken out is taken out by some code, and a test is meant to notice.
//!
//! The tests themselves show that they notice: they fail when the mutant survives. This step shows
//! that no mutant is without one.

use super::{Context, Outcome, verdict};
use crate::source::{Source, words};

/// Where the mutants are listed.
const LIST: &str = "crates/storage/src/mutant.rs";

/// Compares the list with the code and the tests.
pub fn check(context: &Context<'_>) -> Outcome {
    let Some(list) = context.sources.iter().find(|source| source.path == LIST) else {
        return Err(format!("   {LIST} is not there"));
    };
    let mutants = listed(&list.code);
    let may_name = |source: &&Source| source.path != LIST && source.text.contains("utant");
    let sources: Vec<&Source> = context.sources.iter().filter(may_name).collect();
    let mut failures = Vec::new();
    let mut places = 0;
    for mutant in &mutants {
        let (asked, noticed) = uses(mutant, &sources);
        places += noticed;
        if asked == 0 {
            failures.push(format!("{LIST}: no code asks whether {mutant} is on: remove it"));
        }
        if noticed == 0 {
            failures.push(format!("{LIST}: no test and no hunt names {mutant}: write the one that notices"));
        }
    }
    if mutants.is_empty() {
        failures.push(format!("{LIST} has no `pub enum Mutant`"));
    }
    verdict(failures, format!("{} mutants, named by tests and hunts in {places} places", mutants.len()))
}

/// Variants of the enum.
fn listed(code: &str) -> Vec<String> {
    let body = code.split_once("pub enum Mutant {").and_then(|(_, rest)| rest.split_once('}'));
    let names = body.map_or("", |(body, _)| body).split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// In how many places code asks for the mutant, and in how many others, which are tests and hunts,
/// it is named.
fn uses(mutant: &str, sources: &[&Source]) -> (usize, usize) {
    let (mut asked, mut noticed) = (0, 0);
    for source in sources {
        for at in words(&source.code, mutant) {
            // As in `is_enabled(Mutant::Name)`, which rustfmt may have put on two lines.
            let before = source.code[..at].trim_end_matches("Mutant::").trim_end_matches("mutant::");
            if before.trim_end().ends_with("is_enabled(") {
                asked += 1;
            } else {
                noticed += 1;
            }
        }
    }
    (asked, noticed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_tests_of_a_mutant_are_told_apart() {
        let list = "pub enum Mutant {\n    // Rule 1\n    First,\n    Second,\n}\n";
        let source = |path: &str, text: &str| Source::new(path, text.to_owned());
        let asks =
            source("crates/storage/src/a.rs", "if is_enabled(Mutant::First) || is_enabled(\n  First) {}");
        let hunts = source("crates/simulator/src/mutants.rs", "hunt(Mutant::Second, 1).with(Mutant::First)");
        let test = source("crates/tombolo/src/b/tests.rs", "caught! { test: First in world } // Second");
        let sources = [&asks, &hunts, &test];
        assert_eq!(listed(&source(LIST, list).code), ["First", "Second"]);
        assert_eq!(uses("First", &sources), (2, 2));
        assert_eq!(uses("Second", &sources), (0, 1));
    }
}
