//! Rules taken out one at a time, and the scenario that notices.

use tombolo_storage::mutant::{self, Mutant};

use crate::failure::Failure;
use crate::scenario;

/// The hunt for one mutant.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// The rule that is taken out.
    pub mutant: Mutant,
    /// The scenario that notices.
    pub scenario: &'static str,
    /// Seeds within which it does.
    pub seeds: u64,
}

const fn hunt(mutant: Mutant, scenario: &'static str, seeds: u64) -> Hunt {
    Hunt { mutant, scenario, seeds }
}

/// All hunts of the whole engine. What a unit or model test of the owner's crate notices more directly is not repeated.
pub const ALL: &[Hunt] = &[
    hunt(Mutant::LogBadFrameIsAlwaysTail, "bit-rot", 32),
    hunt(Mutant::LogDurableWithoutSync, "crash-everywhere", 64),
    hunt(Mutant::ObjectNamedBeforeSync, "crash-everywhere", 64),
    hunt(Mutant::ObjectCreatedBeforeDirectorySync, "crash-everywhere", 64),
    hunt(Mutant::CollectCurrentEpoch, "two-writers", 128),
    hunt(Mutant::LogFenceWordUnchecked, "two-writers", 128),
    hunt(Mutant::LogFenceWordCheckedBeforeStore, "two-writers", 128),
    hunt(Mutant::LogFenceReadsBeforeWord, "two-writers", 128),
    hunt(Mutant::LogSyncErrorIgnored, "random", 400),
    hunt(Mutant::PutUnknownTakenAsFailed, "random", 400),
];

impl Hunt {
    /// Runs seeds with the rule taken out until one fails; says after how many, and how.
    pub fn run(&self) -> Option<(u64, Failure)> {
        let scenario = scenario::by_name(self.scenario)?;
        let _guard = mutant::enable(self.mutant);
        (0..self.seeds).find_map(|seed| (scenario.run)(seed).err().map(|failure| (seed + 1, failure)))
    }
}
