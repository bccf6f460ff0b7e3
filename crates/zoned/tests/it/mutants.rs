//! Each rule, taken out, is noticed.
#![cfg(feature = "mutants")]

use tombolo_env::simulated::Crash;
use tombolo_storage::mutant::{Mutant, notices};

use crate::bad_input::{damaged_units, stale_units};
use crate::crash::{crash_at_each, crash_while_log_changes_zones, crash_while_metadata_rolls};
use crate::faults::{deletes_beside_a_writer, failed_syncs_of_the_log, reads_and_resets_together};
use crate::full::{crash_while_zones_are_moved, what_lives_longer_lies_apart};

fn with_the_power() {
    for first in 0..7 {
        crash_at_each(first, 7, Crash::PowerLoss);
    }
}

fn while_zones_are_moved() {
    crash_while_zones_are_moved(2);
}

fn while_metadata_rolls() {
    crash_while_metadata_rolls(100);
}

fn while_log_changes_zones() {
    crash_while_log_changes_zones(1);
}

macro_rules! caught {
    ($($test:ident: $mutant:ident by $by:expr;)*) => {$(
        #[test]
        fn $test() {
            notices(Mutant::$mutant, $by);
        }
    )*};
}

caught! {
    a_record_that_is_not_durable_is_noticed: ZonedRecordUnsynced by with_the_power;
    a_reset_before_its_record_is_noticed: ZonedResetBeforeRecord by with_the_power;
    a_reset_before_its_body_has_moved_is_noticed: ZonedResetBeforeRecord by while_zones_are_moved;
    lives_that_are_ignored_have_bytes_moved: ZonedIgnoresLife by what_lives_longer_lies_apart;
    a_roll_without_a_spare_is_noticed: ZonedRollWithoutSpare by with_the_power;
    a_generation_that_ends_too_early_is_noticed: ZonedRollEndsOldFirst by while_metadata_rolls;
    changes_that_a_roll_forgets_are_noticed: ZonedRollForgetsChanges by while_metadata_rolls;
    a_pointer_that_is_trusted_is_noticed: ZonedPointerTrusted by with_the_power;
    a_unit_of_an_earlier_life_is_noticed: ZonedForeignUnitAccepted by stale_units;
    damage_that_is_taken_for_an_end_is_noticed: ZonedBadUnitIsAlwaysTail by damaged_units;
    a_reset_under_a_writer_is_noticed: ZonedResetsInFlight by deletes_beside_a_writer;
    a_reset_under_a_reader_is_noticed: ZonedResetsRead by reads_and_resets_together;
    a_log_zone_that_ends_too_early_is_noticed: ZonedLogZoneEndsUnsynced by while_log_changes_zones;
    a_log_that_goes_on_after_a_failure_is_noticed: ZonedLogGoesOnAfterFailure by failed_syncs_of_the_log;
}
