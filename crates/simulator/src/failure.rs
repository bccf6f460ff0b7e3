//! How a scenario ends.

use std::fmt;

use tombolo_env::simulated::tape::Tape;

/// Something that the engine must never do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl Violation {
    /// A violation in words.
    pub fn new(what: impl Into<String>) -> Violation {
        Violation(what.into())
    }

    /// The same, with where it was seen before it.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Violation {
        Violation(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// What a scenario did. Two runs of one seed give equal reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Worlds that were run.
    pub worlds: u64,
    /// Writes called.
    pub writes: u64,
    /// Writes acknowledged as durable.
    pub durable: u64,
    /// Times that a database was opened with success.
    pub opened: u64,
    /// Times that all was read and compared.
    pub verified: u64,
    /// Crashes, kills and power losses.
    pub crashes: u64,
    /// Answers that were errors, crashes excepted.
    pub errors: u64,
    /// Disk operations of all processes.
    pub operations: u64,
    /// Regions of near-compute logs that takeovers kept as they were, and that they copied to.
    pub regions_kept: u64,
    /// See `regions_kept`.
    pub regions_copied: u64,
    /// Tables that went to a store for old data.
    pub cold_tables: u64,
    /// Mixes the histories of all worlds: differs when one of them differs.
    pub digest: u64,
}

impl Report {
    /// Adds what another part did.
    pub fn add(&mut self, other: &Report) {
        self.worlds += other.worlds;
        self.writes += other.writes;
        self.durable += other.durable;
        self.opened += other.opened;
        self.verified += other.verified;
        self.crashes += other.crashes;
        self.errors += other.errors;
        self.operations += other.operations;
        self.regions_kept += other.regions_kept;
        self.regions_copied += other.regions_copied;
        self.cold_tables += other.cold_tables;
        self.digest = self.digest.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ other.digest;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            worlds,
            writes,
            durable,
            opened,
            verified,
            crashes,
            errors,
            operations,
            regions_kept,
            regions_copied,
            cold_tables,
            digest,
        } = self;
        write!(
            formatter,
            "{worlds} worlds, {opened} opens, {crashes} crashes, {writes} writes ({durable} durable), \
            {verified} verifications, \
             {errors} errors answered, {operations} disk operations, "
        )?;
        if regions_kept + regions_copied > 0 {
            write!(formatter, "{regions_kept} regions kept by takeovers and {regions_copied} copied to, ")?;
        }
        if *cold_tables > 0 {
            write!(formatter, "{cold_tables} tables for the store of old data, ")?;
        }
        write!(formatter, "digest {digest:016x}")
    }
}

/// A scenario that found a violation, a panic or a hang.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which scenario.
    pub scenario: &'static str,
    /// Its seed.
    pub seed: u64,
    /// Where in the scenario: the crash point, the form of the log, the byte flipped.
    pub place: String,
    /// What happened.
    pub what: String,
    /// The steps of the history, when it was played from a tape or for one.
    pub steps: Vec<String>,
    /// The last events of the world.
    pub trace: Vec<String>,
    /// The tape that it was played from; `None`: the seed alone says it.
    pub tape: Option<Tape>,
    /// The rule that is taken out in it, by its mutant's name.
    pub mutant: Option<String>,
}

/// Words that say how a history failed.
const CLASS_WORDS: usize = 8;
/// Steps and events that are shown.
const STEPS_SHOWN: usize = 400;
const EVENTS_SHOWN: usize = 60;
const EVENTS_SHOWN_BESIDE_STEPS: usize = 12;
/// Bytes of a tape within a command; a longer one is shown below it.
const TAPE_BYTES_IN_LINE: usize = 8 << 10;

impl Failure {
    pub(crate) fn new(scenario: &'static str, seed: u64, place: String, what: String) -> Failure {
        Failure {
            scenario,
            seed,
            place,
            what,
            steps: Vec::new(),
            trace: Vec::new(),
            tape: None,
            mutant: None,
        }
    }

    /// How it failed, without keys, numbers and names: two failures of one class have one cause,
    /// most likely.
    pub fn class(&self) -> String {
        let is_word = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let words = self.what.split([' ', ',', ':', ';', '.']).filter(is_word);
        words.take(CLASS_WORDS).collect::<Vec<_>>().join(" ")
    }

    /// The command that runs the same history again.
    pub fn replay(&self) -> String {
        let Failure { scenario, seed, .. } = self;
        let mutant = self.mutant.as_ref().map(|mutant| format!(" --mutant {mutant}")).unwrap_or_default();
        let command = format!("cargo xtask simulate --scenario {scenario} --seed {seed}{mutant}");
        match self.tape.as_ref().map(Tape::to_string) {
            None => format!("{command} --runs 1"),
            Some(tape) if tape.len() <= TAPE_BYTES_IN_LINE => format!("{command} --tape '{tape}'"),
            Some(tape) => format!("{command} --tape FILE, where FILE holds the next line\n{tape}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "scenario {} of seed {} failed at {}: {}",
            self.scenario, self.seed, self.place, self.what
        )?;
        let last = |lines: &[String], count: usize| lines[lines.len().saturating_sub(count)..].to_vec();
        let events = if self.steps.is_empty() { EVENTS_SHOWN } else { EVENTS_SHOWN_BESIDE_STEPS };
        if self.steps.len() > STEPS_SHOWN {
            writeln!(formatter, "    the last {STEPS_SHOWN} of {} steps:", self.steps.len())?;
        }
        for line in last(&self.steps, STEPS_SHOWN) {
            writeln!(formatter, "    {line}")?;
        }
        if !self.steps.is_empty() && !self.trace.is_empty() {
            writeln!(formatter, "    the last operations:")?;
        }
        for line in last(&self.trace, events) {
            writeln!(formatter, "    {line}")?;
        }
        write!(formatter, "replay: {}", self.replay())
    }
}

impl std::error::Error for Failure {}
