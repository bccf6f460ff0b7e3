//! Makes a history that fails small enough to be read: fewer steps, faults, processes and nodes,
//! shorter pauses, less that runs beside each other.
//!
//! All that a history is follows from its choices, and those are on a [`Tape`]. So one shrinker
//! serves all scenarios, and knows none:
//!
//! 1. The seed is played, and its choices are noted.
//! 2. Something is left out of the tape, set to zero, which says that the least happens, or
//!    lowered; the scenario runs from that tape.
//! 3. When it fails in the same way ([`Failure::class`]), what it chose is the new tape; else the
//!    old one stays.
//! 4. Until nothing helps any more, or the bounds are reached. Neither asks the clock: the same
//!    failure shrinks to the same history.
//!
//! Invariant: each tape that is kept is smaller than the one before, by `size`.

#[cfg(test)]
mod tests;

use std::panic::catch_unwind;

use tombolo_env::simulated::tape::{Entry, Name, Played, Tape, play};

use crate::failure::{Failure, Report};
use crate::scenario::Scenario;

/// How far shrinking goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Times that the scenario runs.
    pub runs: u64,
    /// Choices that all of these make together: what they cost.
    pub choices: u64,
}

impl Default for Bounds {
    /// Under a minute in release: a whole engine makes some hundred thousand choices in a second.
    fn default() -> Bounds {
        Bounds { runs: 20_000, choices: 40_000_000 }
    }
}

/// A history that was shrunk.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// How it fails, with its tape, and what happens in it.
    pub failure: Failure,
    /// Times that the scenario ran.
    pub runs: u64,
    /// Choices by which something else than the least happened: in the history that was found.
    pub choices_found: usize,
    /// The same, of this one.
    pub choices: usize,
}

/// Shrinks a history of which the seed is known to fail. `None` when it does not fail any more.
pub fn shrink(scenario: &Scenario, seed: u64, bounds: Bounds) -> Option<Shrunk> {
    let found = run(scenario, seed, None, u64::MAX);
    let failure = found.outcome.err()?;
    let tape = found.tape.trimmed();
    let choices_found = tape.choices();
    let mut search = Search {
        scenario,
        seed,
        class: failure.class(),
        choices_max: 2 * tape.entries() as u64 + 10_000,
        tape,
        failure,
        runs: 1,
        left: bounds,
    };
    search.all();
    let Search { failure, tape, runs, .. } = search;
    let choices = tape.choices();
    Some(Shrunk { failure: Failure { tape: Some(tape), ..failure }, runs, choices_found, choices })
}

/// Runs a scenario from a tape. A failure says the steps of its history.
///
/// # Errors
/// The failure.
pub fn replay(scenario: &Scenario, seed: u64, tape: &Tape) -> Result<Report, Failure> {
    let played = run(scenario, seed, Some(tape), u64::MAX);
    played.outcome.map_err(|failure| Failure { tape: Some(tape.clone()), ..failure })
}

fn run(
    scenario: &Scenario,
    seed: u64,
    tape: Option<&Tape>,
    choices_max: u64,
) -> Played<Result<Report, Failure>> {
    let mut played = play(tape, choices_max, || {
        // Also what happens outside of a world, where nobody else catches it.
        let outcome = catch_unwind(|| (scenario.run)(seed));
        outcome.unwrap_or_else(|_| {
            Err(Failure::new(
                scenario.name,
                seed,
                "the scenario".to_owned(),
                "a panic outside of a world".to_owned(),
            ))
        })
    });
    if let Err(failure) = &mut played.outcome {
        failure.steps = std::mem::take(&mut played.notes);
    }
    played
}

/// Smaller is better: fewer choices by which something happens, fewer entries, lower
/// numbers.
fn size(tape: &Tape) -> (usize, usize, u128) {
    let values = tape.0.values().flatten().filter(|entry| matches!(entry, Entry::Value(_))).count();
    let total = tape
        .0
        .values()
        .flatten()
        .map(|entry| if let Entry::Choice(number) = entry { u128::from(*number) } else { 0 })
        .sum();
    (tape.choices() + values, tape.entries(), total)
}

/// Streams longer than this are those of a world: there, entries are set to zero and none is taken
/// out.
const CUT_ENTRIES_MAX: usize = 4096;

struct Search<'a> {
    scenario: &'a Scenario,
    seed: u64,
    class: String,
    choices_max: u64,
    tape: Tape,
    failure: Failure,
    runs: u64,
    left: Bounds,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.left.runs == 0 || self.left.choices == 0
    }

    fn all(&mut self) {
        loop {
            let before = size(&self.tape);
            self.empty_streams();
            self.cut_ends();
            self.blocks(false);
            self.blocks(true);
            self.lower();
            if self.is_over() || size(&self.tape) == before {
                return;
            }
        }
    }

    /// Keeps a tape if its history fails in the same way and it is smaller.
    fn takes(&mut self, tape: &Tape) -> bool {
        if self.is_over() {
            return false;
        }
        let played = run(self.scenario, self.seed, Some(tape), self.choices_max);
        self.runs += 1;
        self.left.runs -= 1;
        self.left.choices = self.left.choices.saturating_sub(played.tape.entries() as u64 + 1);
        let Err(failure) = played.outcome else { return false };
        let made = played.tape.trimmed();
        if played.overran || failure.class() != self.class || size(&made) >= size(&self.tape) {
            return false;
        }
        (self.tape, self.failure) = (made, failure);
        true
    }

    /// The streams, longest first or last.
    fn names(&self, longest_first: bool) -> Vec<Name> {
        let mut names: Vec<Name> = self.tape.0.keys().copied().collect();
        names.sort_by_key(|name| self.length(*name));
        if longest_first {
            names.reverse();
        }
        names
    }

    fn length(&self, name: Name) -> usize {
        self.tape.0.get(&name).map_or(0, Vec::len)
    }

    /// A tape in which a stream is altered.
    fn altered(&self, name: Name, alter: impl FnOnce(&mut Vec<Entry>)) -> Tape {
        let mut tape = self.tape.clone();
        if let Some(entries) = tape.0.get_mut(&name) {
            alter(entries);
        }
        tape
    }

    fn empty_streams(&mut self) {
        for name in self.names(true) {
            self.takes(&self.altered(name, Vec::clear));
        }
    }

    /// Finds how short a stream may be, by halves.
    fn cut_ends(&mut self) {
        for name in self.names(true) {
            let mut kept = 0;
            while kept + 1 < self.length(name) {
                let middle = kept.midpoint(self.length(name));
                let tape = self.altered(name, |entries| entries.truncate(middle));
                if !self.takes(&tape) {
                    kept = middle;
                }
                if self.is_over() {
                    return;
                }
            }
        }
    }

    /// Takes blocks out, or sets them to zero: large ones first, the last first.
    fn blocks(&mut self, cuts: bool) {
        for name in self.names(false) {
            if cuts && self.length(name) > CUT_ENTRIES_MAX {
                continue;
            }
            let mut size = self.length(name).next_power_of_two();
            while size > 0 {
                let mut end = self.length(name);
                while end > 0 && !self.is_over() {
                    let start = end.saturating_sub(size);
                    self.block(name, start, end, cuts);
                    end = start.min(self.length(name));
                }
                size /= 2;
            }
        }
    }

    fn block(&mut self, name: Name, start: usize, end: usize, cuts: bool) {
        let Some(block) = self.tape.0.get(&name).and_then(|entries| entries.get(start..end)) else { return };
        if cuts {
            let tape = self.altered(name, |entries| drop(entries.drain(start..end)));
            self.takes(&tape);
        } else if block.iter().any(|entry| matches!(entry, Entry::Choice(1..))) {
            let zero = |entry: &mut Entry| {
                if matches!(entry, Entry::Choice(_)) {
                    *entry = Entry::Choice(0);
                }
            };
            let tape = self.altered(name, |entries| entries[start..end].iter_mut().for_each(zero));
            self.takes(&tape);
        }
    }

    /// Lowers each number as far as halving finds.
    fn lower(&mut self) {
        for name in self.names(false) {
            for at in (0..self.length(name)).rev() {
                // Whatever is at most this did not fail.
                let mut too_low = 0;
                while let Some(Entry::Choice(number)) =
                    self.tape.0.get(&name).and_then(|entries| entries.get(at)).copied()
                    && too_low + 1 < number
                    && !self.is_over()
                {
                    let middle = too_low.midpoint(number);
                    let tape = self.altered(name, |entries| entries[at] = Entry::Choice(middle));
                    if !self.takes(&tape) {
                        too_low = middle;
                    }
                }
            }
        }
    }
}
