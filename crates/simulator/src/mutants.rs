//! Rules taken out one at a time, and the scenario that notices.

use tombolo_storage::mutant::{self, Mutant};

use crate::failure::Failure;
use crate::scenario;

/// The hunt for one mutant.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// The rule that is taken out.
    pub mutant: Mutant,
    /// A second one that is taken out with it, where each stands in for the other.
    pub with: Option<Mutant>,
    /// The scenario that notices.
    pub scenario: &'static str,
    /// Seeds within which it does.
    pub seeds: u64,
    /// The one to begin with: that of a history that noticed. It costs time only, if the engine has
    /// changed since and another one does now.
    pub first: u64,
}

const fn hunt(mutant: Mutant, scenario: &'static str, seeds: u64) -> Hunt {
    Hunt { mutant, with: None, scenario, seeds, first: 0 }
}

impl Hunt {
    const fn with(mut self, mutant: Mutant) -> Hunt {
        self.with = Some(mutant);
        self
    }

    const fn from(mut self, first: u64) -> Hunt {
        self.first = first;
        self
    }
}

/// All hunts of the whole engine. What a unit or model test of the owner's crate notices more
/// directly is not repeated.
pub const ALL: &[Hunt] = &[
    hunt(Mutant::LogBadFrameIsAlwaysTail, "bit-rot", 32),
    hunt(Mutant::TableBlockUnchecked, "bit-rot", 32),
    hunt(Mutant::LogDurableWithoutSync, "crash-everywhere", 64),
    hunt(Mutant::ObjectNamedBeforeSync, "crash-everywhere", 64),
    hunt(Mutant::ObjectCreatedBeforeDirectorySync, "crash-everywhere", 64),
    hunt(Mutant::CollectCurrentEpoch, "two-writers", 128),
    hunt(Mutant::LogFenceWordUnchecked, "two-writers", 128),
    hunt(Mutant::LogFenceWordCheckedBeforeStore, "two-writers", 128).from(5),
    hunt(Mutant::LogFenceReadsBeforeWord, "two-writers", 128).from(1),
    // The local log keeps its sealed length itself, on the lane's control page: so the manifest's
    // record of it is a second one there, and the loss shows when both are taken out. A log without
    // such a page has the record alone.
    hunt(Mutant::LogReplayBeforeSealRecorded, "stale-appender", 64).with(Mutant::LogFenceForgetsSeal),
    hunt(Mutant::LogIgnoreRecordedSeal, "stale-appender", 64).with(Mutant::LogFenceForgetsSeal),
    hunt(Mutant::TableNameReused, "random", 64),
    hunt(Mutant::StaleJobInstalled, "two-writers", 128),
    hunt(Mutant::LogSyncErrorIgnored, "random", 400).from(10),
    hunt(Mutant::PutUnknownTakenAsFailed, "random", 400).from(41),
    hunt(Mutant::ReaderTakesTrimForDamage, "readers", 32).from(3),
    hunt(Mutant::CloneDeletesTablesOfSource, "clones", 64),
    hunt(Mutant::CloneReleasedBeforeRecorded, "clones", 64),
    hunt(Mutant::CloneReleasedBeforeUnnamed, "clones", 64),
    hunt(Mutant::CloneReleasedUnlessFound, "clones", 64).from(2),
    hunt(Mutant::MoveUnmarked, "move", 8),
    hunt(Mutant::MarkIgnored, "mirror", 8),
    hunt(Mutant::StreamLanesNotReplayed, "streams", 8),
    hunt(Mutant::CutFixedTwice, "streams", 8),
    hunt(Mutant::RemoteJobForgetsSnapshots, "compactors", 16),
    hunt(Mutant::CompactionForgetsSnapshots, "tiers", 16),
    hunt(Mutant::ColdTableUnsaid, "tiers", 16),
    hunt(Mutant::RegionAppendsAfterSeal, "segments", 20_000),
    hunt(Mutant::RegionIgnoresIncarnation, "segments", 20_000),
    hunt(Mutant::SegmentAcknowledgesWithFewer, "segments", 20_000),
    hunt(Mutant::SegmentSendsOtherBytes, "segments", 20_000).from(281),
    hunt(Mutant::SegmentChangeCountsOldOnly, "segments", 20_000).from(3432),
    hunt(Mutant::SegmentChangeCountsNewOnly, "segments", 20_000).from(303),
    hunt(Mutant::SegmentPublishedBeforeCaughtUp, "segments", 20_000),
    hunt(Mutant::SegmentForeignRecordIgnored, "segments", 20_000),
    hunt(Mutant::SegmentUnknownTakenAsFailed, "segments", 20_000),
    hunt(Mutant::SegmentFreedBeforePublished, "segments", 20_000),
    hunt(Mutant::SegmentSealsTooFew, "segments", 20_000),
    hunt(Mutant::SegmentTakesShortest, "segments", 20_000),
    hunt(Mutant::SegmentLossTakenForAnswer, "segments", 20_000),
    hunt(Mutant::SegmentChoosesTooShort, "segments", 20_000).from(2259),
    hunt(Mutant::SegmentServedBeforePublished, "segments", 20_000),
    hunt(Mutant::SegmentOldFreedBeforePublished, "segments", 20_000),
    // Who holds something else is found out when it is asked again before the publish as well.
    hunt(Mutant::SegmentKeepsOthers, "segments", 20_000).with(Mutant::SegmentHoldersNotAskedAgain),
    hunt(Mutant::SegmentHoldersNotAskedAgain, "segments", 20_000),
    hunt(Mutant::SegmentNeedsAllAnswers, "segments", 20_000),
    hunt(Mutant::SegmentSettledIgnored, "segments", 20_000).from(107),
    hunt(Mutant::SegmentCountsUnsealed, "segments", 20_000),
    hunt(Mutant::SegmentListsBeforeClaim, "segments", 20_000),
    hunt(Mutant::SegmentSealsBeforeClaim, "segments", 20_000),
    hunt(Mutant::SegmentAppendsToOld, "segments", 20_000),
    hunt(Mutant::SegmentRegionNamesRepeated, "segments", 20_000),
    hunt(Mutant::RegionSealEpochFalls, "segments", 20_000),
    hunt(Mutant::RegionCheckedApart, "segments", 20_000).from(380),
    hunt(Mutant::SegmentFollowerShowsUncommitted, "segments", 20_000),
    hunt(Mutant::DestagedFreedBeforeNamed, "near-log", 400).from(1),
    hunt(Mutant::NearTakeoverFreesBeforePublished, "near-log", 400),
    hunt(Mutant::OldLogNotMoved, "near-log", 64).from(5),
    hunt(Mutant::CompactionForgetsSnapshots, "random", 64),
];

/// Hunts for rules of what operations mean, by long histories: for a campaign. The owner's crate
/// has a test for each. That these notice too says what histories reach.
pub const SEMANTIC: &[Hunt] = &[
    hunt(Mutant::DeleteDroppedOverOlder, "metamorphic", 4),
    hunt(Mutant::MergeAnswersAlone, "metamorphic", 4),
    hunt(Mutant::MergeFoldedWithoutProof, "metamorphic", 4),
    hunt(Mutant::PartForgetsWhatItHolds, "metamorphic", 4),
];

/// A rule that is out while this lives.
#[derive(Debug)]
pub struct TakenOut {
    _guards: (mutant::Guard, Option<mutant::Guard>),
}

impl Hunt {
    /// Takes the rule out on this thread, until what it gives is dropped.
    pub fn take_out(&self) -> TakenOut {
        TakenOut { _guards: (mutant::enable(self.mutant), self.with.map(mutant::enable)) }
    }

    /// Runs the seeds that it takes at most, with the rule taken out, until one fails; says after
    /// how many, and how.
    pub fn run(&self) -> Option<(u64, Failure)> {
        self.run_from(self.first, self.seeds)
    }

    /// As [`Hunt::run`], of so many seeds from `first` on.
    pub fn run_from(&self, first: u64, seeds: u64) -> Option<(u64, Failure)> {
        let scenario = scenario::by_name(self.scenario)?;
        let _out = self.take_out();
        let failure = (0..seeds).find_map(|nth| {
            (scenario.run)(first.saturating_add(nth)).err().map(|failure| (nth + 1, failure))
        });
        let mutant = Some(format!("{:?}", self.mutant));
        failure.map(|(seeds, failure)| (seeds, Failure { mutant, ..failure }))
    }
}
