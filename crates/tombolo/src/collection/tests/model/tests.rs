//! The scenarios. `TOMBOLO_MODEL_WORLDS` raises their bounds (`cargo xtask model`).

use tombolo_format::manifest::TableName;

use super::*;

/// Worlds that are searched without a mutant, unless the environment says otherwise: more than
/// twice as many as the mutants of a scenario take to be noticed, or all that it has.
const FEW: usize = 20_000;
const MORE: usize = 60_000;

/// Worlds that are searched for the history that notices a mutant.
#[cfg(feature = "mutants")]
const HUNT: usize = 1_500_000;

const DEPTH: usize = 200;

fn worlds_max(usual: usize) -> usize {
    // A test's bound, not the engine's: the only place where this crate reads the environment.
    std::env::var("TOMBOLO_MODEL_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn clean(name: &str, world: World, usual: usize) {
    let found = search(world, DEPTH, worlds_max(usual));
    if let Some((violation, history)) = &found.violation {
        panic!("{name}: {violation:?} after\n  {}", history.join("\n  "));
    }
    println!(
        "{name}: {} worlds, {} steps deep, {}",
        found.worlds,
        found.depth,
        if found.complete { "complete" } else { "bounded" }
    );
    assert!(found.depth >= 8, "{name}: only {} steps deep", found.depth);
}

const FIRST: TableName = TableName { epoch: 1, random: 0 };
const SECOND: TableName = TableName { epoch: 1, random: 1 };

/// A writer under way, and two processes that take over.
fn takeover() -> World {
    let writer = Process::new(&[Task::Open, Task::Edit, Task::Edit]);
    let successor = || Process::new(&[Task::Open, Task::Edit]);
    World::new(vec![writer, successor(), successor()], 1)
}

/// A writer that truncates twice, a process that takes over, and a reader.
fn truncation() -> World {
    let writer = Process::new(&[Task::Open, Task::Edit, Task::Snapshot, Task::Snapshot]);
    World::new(vec![writer, Process::new(&[Task::Open, Task::Edit]), Process::new(&[Task::Load])], 1)
}

/// A successor that truncates while the writer has an edit on its way.
fn truncating_successor() -> World {
    let writer = Process::new(&[Task::Open, Task::Edit]);
    World::new(vec![writer, Process::new(&[Task::Open, Task::Edit, Task::Snapshot])], 1)
}

/// A reader that follows a writer that truncates, and a stale claim.
fn following() -> World {
    let writer = Process::new(&[Task::Open, Task::Edit, Task::Snapshot]);
    let reader = Process::new(&[Task::Load, Task::Follow, Task::Follow]);
    World::new(vec![writer, reader, Process::new(&[Task::Open])], 1)
}

/// Two writers on a store that refuses puts now and then.
fn refusals() -> World {
    let writer = Process::new(&[Task::Open, Task::Edit, Task::Edit]);
    World::new(vec![writer, Process::new(&[Task::Open, Task::Edit])], 1).with_refusals()
}

/// A writer that deletes a table, and a pinner of it.
fn pinning() -> World {
    let writer =
        Process::new(&[Task::Open, Task::Table(0), Task::Obsolete(FIRST), Task::Collect, Task::Table(1)]);
    World::new(vec![writer, Process::new(&[Task::Pin(FIRST)])], 3)
}

/// As before, and a process takes over in the middle of the deletion.
fn pinning_and_takeover() -> World {
    let writer = Process::new(&[Task::Open, Task::Table(0), Task::Obsolete(FIRST), Task::Collect]);
    let successor = Process::new(&[Task::Open, Task::Collect]);
    World::new(vec![writer, successor, Process::new(&[Task::Pin(FIRST)])], 3)
}

/// A writer that deletes one table after the other, and a reader that renews its lease of the other
/// one when it has run out.
fn leasing() -> World {
    let collects = [Task::Obsolete(SECOND), Task::Collect, Task::Obsolete(FIRST), Task::Collect];
    let writer = Process::new(&[&[Task::Open, Task::Table(0), Task::Table(1)][..], &collects].concat());
    World::new(vec![writer, Process::new(&[Task::Lease(FIRST), Task::Renew])], 4)
}

/// A writer that makes tables, a process that takes over, a job's output, and a collector of
/// orphans.
fn orphans() -> World {
    let writer = Process::new(&[Task::Open, Task::Table(0), Task::Output(5), Task::Table(1)]);
    let job = TableName { epoch: 1, random: 5 };
    let successor = Process::new(&[Task::Open, Task::Install(job), Task::Table(0)]);
    World::new(vec![writer, successor, Process::new(&[Task::Orphans])], 2)
}

/// A collector of orphans beside a truncation and a stale claim.
fn orphans_and_truncation() -> World {
    let writer = Process::new(&[Task::Open, Task::Table(0), Task::Snapshot]);
    World::new(vec![writer, Process::new(&[Task::Open]), Process::new(&[Task::Orphans])], 1)
}

#[test]
fn takeovers_lose_nothing() {
    clean("takeover", takeover(), FEW);
    clean("refusals", refusals(), FEW);
}

#[test]
fn truncations_lose_nothing() {
    clean("truncation", truncation(), MORE);
    clean("truncating successor", truncating_successor(), FEW);
    clean("following", following(), MORE);
}

#[test]
fn deletion_spares_what_is_pinned() {
    clean("pinning", pinning(), FEW);
    clean("pinning and takeover", pinning_and_takeover(), FEW);
    clean("leasing", leasing(), FEW);
}

#[test]
fn collection_spares_what_is_named() {
    clean("orphans", orphans(), MORE);
    clean("orphans and truncation", orphans_and_truncation(), MORE);
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use tombolo_storage::mutant::{Mutant, enable};

    fn caught(mutant: Mutant, scenario: fn() -> World) {
        let _guard = enable(mutant);
        let found = search(scenario(), DEPTH, worlds_max(HUNT));
        match &found.violation {
            Some((violation, history)) => {
                println!(
                    "{mutant:?}: {} after {} steps ({} worlds)",
                    violation.0,
                    history.len(),
                    found.worlds
                );
                for step in history {
                    println!("    {step}");
                }
            }
            None => {
                panic!("{mutant:?} was not caught in {} worlds, {} steps deep", found.worlds, found.depth)
            }
        }
    }

    macro_rules! caught {
        ($($test:ident: $mutant:ident in $scenario:ident,)*) => {$(
            #[test]
            fn $test() {
                caught(Mutant::$mutant, $scenario);
            }
        )*};
    }

    caught! {
        rule_1_several_puts_outstanding: ManifestSeveralPutsOutstanding in takeover,
        rule_2_claims_deleted: ManifestDeleteClaims in truncating_successor,
        rule_3_believed_without_a_list: ManifestBelieveWithoutList in truncation,
        rule_3_followed_without_a_list: ManifestBelieveWithoutList in following,
        rule_3_newest_first_scan: ManifestNewestFirstScan in truncation,
        rule_4_claim_without_a_confirming_list: ClaimWithoutConfirmingList in truncation,
        rule_4_foreign_epoch_continued: ClaimContinueForeignEpoch in truncating_successor,
        rule_5_unknown_taken_as_failed: PutUnknownTakenAsFailed in takeover,
        rule_5_unknown_then_refused_taken_as_failed: PutUnknownTakenAsFailed in refusals,
        rule_5_foreign_record_retried_next: PutForeignRecordRetriedNext in takeover,
        rule_6_table_name_reused: TableNameReused in pinning,
        rule_6_stale_job_installed: StaleJobInstalled in orphans,
        rule_11_deleted_without_condemning: DeleteWithoutCondemning in pinning,
        rule_11_pins_listed_before_condemning: DeleteListsPinsBeforeCondemning in pinning,
        rule_11_deleted_before_unnamed: DeleteBeforeUnnamed in pinning,
        rule_12_pin_without_proof: PinWithoutProvingTip in pinning,
        rule_12_unknown_taken_as_landed: PinUnknownTakenAsLanded in pinning,
        rule_12_condemned_table_pinned: PinAcceptsCondemned in pinning,
        rule_13_pin_deleted_before_its_tables: LeasePinDeletedUnlost in leasing,
        rule_14_current_epoch_collected: CollectCurrentEpoch in orphans,
        rule_14_unproven_state_collected: CollectUnprovenState in orphans_and_truncation,
    }
}
