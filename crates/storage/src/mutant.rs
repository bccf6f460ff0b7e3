//! Switches that take a rule out, so that a test can show that it notices.
//!
//! Without the cargo feature `mutants` every switch is the constant `false` and costs nothing. With
//! it, a switch is on for the thread that holds the guard of `enable`; simulations run on one
//! thread.

/// A rule that can be taken out. Each is caught by a test that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each name says the mistake; the rule is in the design")]
pub enum Mutant {
    // The primitive of rule 1, and the promises of an object store
    ObjectNamedBeforeSync,
    ObjectPutReplaces,
    ObjectCreatedBeforeDirectorySync,
    ObjectExistsBeforeDirectorySync,
    ObjectListedBeforeDirectorySync,
    ObjectDeletedWithoutDirectorySync,
    ObjectSweepIgnoresLocks,
    // Rule 1
    ManifestSeveralPutsOutstanding,
    ManifestIgnoreIncarnation,
    ManifestIgnoreHash,
    IncarnationReused,
    // Rule 2
    ManifestDeleteClaims,
    ManifestDeleteDescending,
    ManifestTruncatesBeforeNamed,
    // Rule 3
    ManifestBelieveWithoutList,
    ManifestNewestFirstScan,
    ManifestTruncatesUnderWalks,
    ManifestBelievesLongWalks,
    FollowNeverConfirms,
    // Rule 4
    ClaimWithoutConfirmingList,
    ClaimContinueForeignEpoch,
    ClaimSucceedsAnotherLife,
    // Rule 5
    PutUnknownTakenAsFailed,
    PutForeignRecordRetriedNext,
    UnknownEditTablesDeleted,
    FencedHandleGoesOn,
    // Rule 6
    TableNameReused,
    StaleJobInstalled,
    DeadInputsReplaced,
    // How long a store may be silent of a table
    TableSilenceUnbounded,
    TableSilenceNeverLonger,
    TableSilenceIgnoresBytes,
    TableSilenceStaysLong,
    // Invariant 4 of the design's section 5
    CompactionForgetsSnapshots,
    // Tiers by age
    ColdStoreUnmarked,
    ColdTableUnsaid,
    ColdTablesLeft,
    ColdKeysMoveUp,
    ColdJobForAgeAlone,
    // Streams
    StreamServedBeforeCreation,
    StreamLanesNotReplayed,
    ForeignEntryReplayed,
    CutFixedTwice,
    CheckpointFlushesGoOn,
    /// An ingest into a stream knows of those snapshots alone that the stream has met already.
    IngestMissesCuts,
    /// Staged tables that the lane of a stream shows are given up when the database is opened.
    StreamsStagedGivenUp,
    ReaderIgnoresCuts,
    /// A reader holds all that it reads of a stream beyond what it may show.
    ReaderHoldsAll,
    /// What a reader has passed over, as it held enough, is not read again.
    ReaderForgetsPassed,
    ReaderMeetsCutsLate,
    ReaderOfStreamsMissesLogs,
    StreamNeverBegun,
    HotGoesCold,
    UnknownAgeIsCold,
    CloneWritesToColdStoreOfSource,
    // Mirrors, copies that serve, and moves
    MarkIgnored,
    MirrorPrivateKept,
    MirrorGoesBack,
    MirrorStagedSwept,
    MirrorOfAnother,
    MirrorTwice,
    MirrorDigestBySize,
    PromotedUnmade,
    MoveUnmarked,
    MoveBehind,
    MoveBackAfterwards,
    MoveBackLate,
    MoveEndsBehind,
    PromotedUnasked,
    PromotedBeforeMove,
    CopyUnread,
    // Compaction on other machines
    RemoteJobForgetsSnapshots,
    RemoteJobForgetsBelow,
    WorkerIgnoresNeeds,
    AnswerOfAnyAttempt,
    VoidAttemptsKept,
    RemoteNamesUnchecked,
    RemoteBoundsUnchecked,
    RemoteCountsUnchecked,
    RemoteSumsUnchecked,
    OneEachUnchecked,
    RemoteRangeUnchecked,
    FifoDropsNewest,
    FifoForgetsSnapshots,
    UnknownKindTakenForPut,
    DeleteDroppedOverOlder,
    MergeFoldedWithoutProof,
    MergeFoldedAcrossSnapshots,
    MergeAnswersAlone,
    MergeLostOnMiss,
    MergeOrderReversed,
    OutputCutWithinKey,
    PartForgetsWhatItHolds,
    JoinedOperandsSeenBefore,
    OlderVersionsEndWithTheBlock,
    ViewKeepsFlushedMemtables,
    UnknownSettingsForgotten,
    // Writes with conditions
    ConditionCheckedAtTheReadAlone,
    ConditionCheckedBeforeItsGroup,
    ConditionIgnoresNewerTables,
    ConditionTakesMissForNothing,
    ConditionForgetsItsSnapshot,
    ConditionUnmetBeforeDurable,
    ConditionExpiresAtTheRead,
    ConditionIgnoresResets,
    ConditionIgnoresFilters,
    // Typed keyspaces and what they need of cursors
    AdvanceGoesBack,
    TypesChange,
    // Counts of keys
    CountIgnoresMemtables,
    CountIgnoresOtherTables,
    CountIgnoresMoment,
    // Sorted batches
    SortedBatchInPieces,
    // Restores of ranges
    PartReachesBeyond,
    // Differences of two moments
    DifferenceIgnoresMemtables,
    DifferenceIgnoresGone,
    // Transactions
    TransactionUnchecked,
    TransactionCheckedOutside,
    TransactionIgnoresTables,
    TransactionIgnoresRanges,
    TransactionTakesUnknownForNothing,
    TransactionMovesWithoutReads,
    TransactionCursorUnnoted,
    SerializableForgetsReads,
    LockPassesWaiters,
    LockIgnoresCircles,
    WriteIgnoresPrepared,
    PrepareKeepsNoLocks,
    PreparedNotHeldAgain,
    DecideLeavesPrepared,
    CloneCommitsPrepared,
    OutcomeIdUnchecked,
    DecidedOperandKeepsItsTime,
    LateLockEndsPrepared,
    TransactionFoldsWhatHasEnded,
    // Changes that are followed
    ChangesOfUnloggedWrites,
    ChangesGoUntold,
    ChangesToldEarly,
    FollowedForgotten,
    BeforeImageAcrossGap,
    ChangesGoneMarkFalls,
    PlaceGoesBack,
    // Backups
    BackupChecksumIgnored,
    BackupsUnlocked,
    PruneDeletesNamed,
    RestoreAcrossGap,
    RestoreAppliesTwice,
    BackupDeletesUncompared,
    PruneDeletesUnread,
    RestoreEndsOperands,
    RestoreHoldsPrepared,
    RestoreFollows,
    RestorePassesDamagedBackup,
    // Compaction filters
    FilterIgnoresSnapshots,
    FilterDropsOverOlder,
    FilterForgetsNewSnapshots,
    FilterShownByOthers,
    // Range deletes
    RangeDeleteCoversEqualNumber,
    ReplaySortsRangeDeletes,
    FilterHidesRangeDelete,
    RowsIgnoreRangeDeletes,
    RangeDeleteUncut,
    RangeDeletesUnbounded,
    RangeDeleteDroppedByKey,
    RangeDeleteMovedBelow,
    RangeDeleteLostInReplay,
    SingleDeleteRevives,
    DroppedFilesForgetSnapshots,
    DroppedFilesUncovered,
    // Tables that are ingested behind
    BehindDeletesDropped,
    BehindLiesOver,
    BehindMeetsBehind,
    BehindUnderSnapshots,
    ExpiredGoesOverBehind,
    IngestIgnoresOperator,
    // Stretches of dead keys that cursors go past
    DeadRunKeptOverPut,
    DeadRunKeptOverIngest,
    DeadRunHidesFromOlder,
    DeadRunOfAnotherView,
    DeadRunOpenedLate,
    DeadRunByAnotherTime,
    DeadRunForgetsWhatHides,
    DeadRunOpenedByAnOlderWalk,
    // What a flush lets go
    FlushAheadTakenForBottom,
    FlushToNothingUnsaid,
    // The database's time, and what has expired
    TimeBeginsAtHostClock,
    TimeJudgedUnbounded,
    ExpiredDestroyedAtOnce,
    ExpiredDroppedOverOlder,
    ExpiredTableDroppedOverOlder,
    ExpiryOfTableTooEarly,
    OperandJudgedAtTheRead,
    TrustedEndsUnread,
    ExpiredForgetsOperandsAbove,
    SnapshotJudgesByNow,
    TtlByHostClock,
    ReaderJudgesByHostClock,
    ReadersNotToldOfEnds,
    // Invariant 5 of the same
    TableBlockUnchecked,
    // Separated values
    ValuesObsoleteWhileReferred,
    ValuesUnpinned,
    ValuesNotCloned,
    ValueReferenceUnchecked,
    UnreadableValueDropped,
    MovedReferencesUncounted,
    SalvageForgetsDamagedValues,
    // Rule 7
    LogReplayBeforeSealRecorded,
    LogIgnoreRecordedSeal,
    LogFenceForgetsSeal,
    LogServeBeforeNamed,
    LogFreeBeforeReplayPointDurable,
    FlushNamesBeforeLogDurable,
    FlushAheadOfKeyspaceChanges,
    // Tables from outside
    OverrideIgnored,
    IngestWithoutSeal,
    IngestAcknowledgedEarly,
    IngestShowsStaged,
    IngestGivenUpWithEntry,
    // A log that ends while the database goes on
    EndedLogUnnamedBeforeTables,
    EndedLogStaysNamed,
    EndedLogAcknowledges,
    RenewedLogServedBeforeNamed,
    // Rule 8
    LogFenceWordUnchecked,
    LogFenceWordCheckedBeforeStore,
    LogFenceReadsBeforeWord,
    LogFenceWithoutSync,
    LogFenceTrustsCleanPages,
    LogRestDeletesWithoutFenceWord,
    LogAcceptsWithoutFullFence,
    // Rule 9
    LogBadFrameIsAlwaysTail,
    LogAcceptsForeignFrames,
    LogDurableWithoutSync,
    LogRollsWithoutSync,
    LogSyncErrorIgnored,
    LogCloseTellsNothing,
    // What a follower may see of a log
    LogTailShowsAccepted,
    LogTailBelievesWordOfLostHost,
    // Rule 10
    LogObjectNotSealed,
    LogObjectSealNotReadAgain,
    LogObjectReadsPastSeal,
    LogObjectSealDeleted,
    LogObjectExistsTakenAsHeld,
    LogObjectUnknownTakenAsHeld,
    LogObjectAcknowledgesOutOfOrder,
    LogObjectGapIsAlwaysEnd,
    LogObjectConfirmStopsAtGap,
    LogObjectTrimTakenForEnd,
    // Rule 11
    DeleteWithoutCondemning,
    DeleteListsPinsBeforeCondemning,
    DeleteBeforeUnnamed,
    DeleteIgnoresOwnReaders,
    // Rule 12
    PinWithoutProvingTip,
    PinAcceptsCondemned,
    PinUnknownTakenAsLanded,
    PinDerivedReleasesSource,
    // Rule 13
    LeaseByWallClock,
    LeaseExpiresLastingPins,
    LeaseRenewedLate,
    LeaseNeverRunsOut,
    LeaseCountedFromLanding,
    LeaseCountedFromListBegin,
    LeaseTakesMissedBeat,
    LeaseWithoutMargin,
    LeaseRenewedUnproven,
    LeasePinDeletedUnlost,
    // A reader's cut, and what keeps it
    ReaderKeepsFlushedEntries,
    ReaderViewNotPinned,
    ReaderPinReleasedInUse,
    ReaderTakesTrimForDamage,
    // Who stands by
    StandbyReplacesWhoever,
    StandbyForgottenTakesSilenceForDeath,
    // Rule 14
    CollectCurrentEpoch,
    CollectUnprovenState,
    // The same, by a process without a claim
    SweepIgnoresPins,
    SweepIgnoresPinnedLives,
    SweepIgnoresNewestSnapshot,
    SweepTakesForeign,
    SweepTakesLogs,
    // Clones that name their sources' tables
    CloneNamesUnprovenPin,
    CloneDeletesTablesOfSource,
    CloneReleasedBeforeRecorded,
    CloneReleasedBeforeUnnamed,
    CloneReleasedUnlessFound,
    CloneReleasedByItsOwnEpoch,
    CloneReleasedDespiteReaders,
    CloneReleasedFromElsewhere,
    // The application's own logs and objects
    ApplicationLogEndedByOpening,
    ApplicationLogTrimmedByPlace,
    CollectApplicationObjects,
    // What a salvage takes of a damaged database
    SalvageTakesDamagedState,
    SalvageReadsPastDamage,
    // What a slow or refusing store is asked for
    HedgeShareUnbounded,
    HedgeSlowStore,
    HedgeLosing,
    HedgeErrorEndsRead,
    HedgeForgetsUnknownPut,
    FlowIgnoresRefusals,
    // The flash cache
    FlashIgnoresKey,
    FlashIgnoresRate,
    FlashTakesFirstMiss,
    FlashForgetsUsed,
    FlashIgnoresHeat,
    // Files of unmodified programs
    FilesRenameInTwoBatches,
    FilesOverwriteLosesRest,
    FilesTruncateLosesRest,
    FilesUnlinkKeepsRows,
    FilesShowRefused,
    // Named files over rows, lanes and objects
    FilesObjectNamedUnfinished,
    FilesObjectDeletedWhileNamed,
    FilesSyncForgetsNames,
    FilesMovedInSteps,
    FilesLaneTrimmedUnderFiles,
    FilesEarlierLaneForgotten,
    FilesSpilledTagKept,
    FilesSweepForgetsNames,
    FilesWindowOutlivesCut,
    // What a node checks of its regions (rules 2 and 4 of replicated segments)
    RegionIgnoresHeldBytes,
    RegionIgnoresPredecessor,
    RegionAppendsAfterSeal,
    RegionForgetsUnknown,
    RegionFreedByStaleEpoch,
    RegionIgnoresIncarnation,
    RegionIgnoresEpoch,
    RegionSealEpochFalls,
    RegionCheckedApart,
    // Whom a node listens to
    NodeKeepsEarlierConnection,
    NodeForgetsProof,
    // What a node's disk must hold before it answers, and what it may say after damage
    NodeAnswersBeforeSync,
    NodeTrustsDamagedDisk,
    NodeTrustsUncleanCopy,
    // The fence of shared memory (rule 8)
    SharedWordCheckedBeforeStore,
    SharedReadsBeforeWord,
    SharedStoredWithoutFence,
    // Writes by a card: how they are ended before a node answers, and when they are held
    RdmaReadBeforeFence,
    RdmaHeldOncePosted,
    // What a writer of a segment counts, and when (rules 3 and 6)
    SegmentAcknowledgesWithFewer,
    SegmentSendsOtherBytes,
    SegmentChangeCountsOldOnly,
    SegmentChangeCountsNewOnly,
    SegmentPublishedBeforeCaughtUp,
    SegmentForeignRecordIgnored,
    SegmentUnknownTakenAsFailed,
    SegmentFreedBeforePublished,
    // What a takeover takes for an answer, and what it chooses (rules 4 and 5)
    SegmentSealsTooFew,
    SegmentTakesShortest,
    SegmentLossTakenForAnswer,
    SegmentChoosesTooShort,
    SegmentServedBeforePublished,
    SegmentOldFreedBeforePublished,
    SegmentKeepsOthers,
    SegmentHoldersNotAskedAgain,
    SegmentNeedsAllAnswers,
    SegmentSettledIgnored,
    SegmentCountsUnsealed,
    SegmentListsBeforeClaim,
    SegmentSealsBeforeClaim,
    SegmentRegionNamesRepeated,
    SegmentAppendsToOld,
    NearSealsLastOnly,
    // When the regions of a segment that became an object are freed (rule 6)
    DestagedFreedBeforePut,
    DestagedFreedBeforeNamed,
    // What a follower shows (rule 6)
    SegmentFollowerShowsUncommitted,
    // When a takeover of a whole lane frees what was there before (rule 5)
    NearTakeoverFreesBeforePublished,
    NearCollectsNamed,
    // Answers to a node that wants memory back, or is slow
    NearReclaimNotDestaged,
    SegmentKeepsSlow,
    // What those are told whose entries are on their way (rule 3)
    NearInFlightTakenAsFailed,
    // What becomes of a log that was taken over while its new writer lives (rules 1 and 6)
    OldLogNotMoved,
    OldLogFreedBeforeNamed,
    // Zones: what must be durable before what (rules of the crate for zoned devices)
    ZonedRecordUnsynced,
    ZonedResetBeforeRecord,
    ZonedRollWithoutSpare,
    ZonedRollEndsOldFirst,
    ZonedRollForgetsChanges,
    ZonedPointerTrusted,
    ZonedForeignUnitAccepted,
    ZonedBadUnitIsAlwaysTail,
    ZonedResetsInFlight,
    ZonedResetsRead,
    ZonedIgnoresLife,
    ZonedLogZoneEndsUnsynced,
    ZonedLogGoesOnAfterFailure,
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::RefCell;

    thread_local! {
        static ENABLED: RefCell<Vec<Mutant>> = const { RefCell::new(Vec::new()) };
    }

    /// Keeps a mutant on while it lives.
    #[derive(Debug)]
    pub struct Guard(Mutant);

    impl Drop for Guard {
        fn drop(&mut self) {
            ENABLED.with_borrow_mut(|enabled| enabled.retain(|mutant| *mutant != self.0));
        }
    }

    /// Turns `mutant` on for this thread until the guard is dropped.
    pub fn enable(mutant: Mutant) -> Guard {
        ENABLED.with_borrow_mut(|enabled| enabled.push(mutant));
        Guard(mutant)
    }

    /// Runs a test with `mutant` on, on this thread.
    ///
    /// # Panics
    /// When the test passes: it does not notice.
    pub fn notices(mutant: Mutant, test: fn()) {
        let _out = enable(mutant);
        assert!(std::panic::catch_unwind(test).is_err(), "{mutant:?} survived");
    }

    /// Whether `mutant` is on.
    pub fn is_enabled(mutant: Mutant) -> bool {
        ENABLED.with_borrow(|enabled| enabled.contains(&mutant))
    }
}

#[cfg(feature = "mutants")]
pub use switch::{Guard, enable, is_enabled, notices};

/// Does something with `mutant` on: what another mutant stands for. Without the feature it is just
/// done.
pub fn with<T>(mutant: Mutant, act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "mutants")]
    let _out = enable(mutant);
    let _ = mutant;
    act()
}

/// Whether `mutant` is on: never, without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_enabled(_mutant: Mutant) -> bool {
    false
}
