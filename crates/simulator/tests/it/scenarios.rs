//! Every scenario by some seeds, and the same history for the same seed.
//!
//! A seed of a scenario of crashes has a history for each moment of the crash, a seed of
//! `metamorphic` one for each set of options, of which the check runs a sixth. In a deep run
//! (`cargo xtask campaign deep`) they are together 3,000 histories of the whole engine, and 2,000
//! of the protocol of segments.

use tombolo_simulator::Report;
use tombolo_simulator::scenario::{self, metamorphic};

/// Runs the first `few` seeds; in a deep run the first `many`. What all of them did.
fn passes(name: &str, few: u64, many: u64) -> Report {
    let Some(scenario) = scenario::by_name(name) else { panic!("there is no scenario {name}") };
    let mut all = Report::default();
    let seeds = 0..if std::env::var_os("TOMBOLO_DEEP").is_some() { many } else { few };
    for seed in seeds {
        match (scenario.run)(seed) {
            Ok(report) => all.add(&report),
            Err(failure) => panic!("{failure}"),
        }
    }
    all
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    passes("crash-everywhere", 1, 8);
}

#[test]
fn a_crash_at_any_operation_of_the_recovery_loses_nothing_acknowledged() {
    passes("crash-in-recovery", 1, 8);
}

#[test]
fn a_power_loss_at_any_write_boundary_loses_nothing_durable() {
    passes("power-loss-at-every-write-boundary", 1, 8);
}

#[test]
fn random_histories_with_faults_agree_with_the_oracle() {
    passes("random", 25, 420);
}

#[test]
fn of_several_writers_one_is_right() {
    passes("two-writers", 2, 16);
}

#[test]
fn readers() {
    passes("readers", 1, 8);
}

#[test]
fn databases_that_share_tables() {
    passes("clones", 1, 8);
}

#[test]
fn a_database_and_its_mirror() {
    passes("mirror", 1, 8);
}

#[test]
fn a_database_that_moves() {
    passes("move", 1, 8);
}

#[test]
fn streams_are_of_one_moment() {
    let report = passes("streams", 1, 16);
    assert!(report.verified > 0 && report.opened > 1, "{report}");
}

#[test]
fn workers_that_compact() {
    passes("compactors", 1, 8);
}

#[test]
fn old_data_in_a_second_store() {
    let report = passes("tiers", 1, 8);
    assert!(report.cold_tables > 0, "nothing went to the second store: {report}");
}

#[test]
fn standbys() {
    passes("standbys", 1, 8);
}

#[test]
fn what_a_stale_writer_still_appends_is_never_seen() {
    passes("stale-appender", 30, 600);
}

#[test]
fn one_history_under_many_option_sets_gives_one_result() {
    if std::env::var_os("TOMBOLO_DEEP").is_some() {
        passes("metamorphic", 6, 6);
        return;
    }
    // Three histories, each under other sets: a sixth of all.
    for seed in 0..3 {
        if let Err(failure) = metamorphic::run_some(seed, 18) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_near_compute_log_loses_nothing_acknowledged() {
    passes("near-log", 1, 48);
}

#[test]
fn replicated_segments_lose_nothing_acknowledged() {
    passes("segments", 500, 4000);
}

#[test]
fn zones_lose_nothing_durable() {
    passes("zones", 1, 16);
}

#[test]
fn damage_is_an_error_or_harmless() {
    passes("bit-rot", 2, 24);
}

#[test]
fn a_seed_gives_one_history() {
    for (name, seed) in [("random", 3), ("two-writers", 5)] {
        let Some(scenario) = scenario::by_name(name) else { panic!("there is no scenario {name}") };
        assert_eq!((scenario.run)(seed).unwrap(), (scenario.run)(seed).unwrap(), "{name} of seed {seed}");
    }
}
