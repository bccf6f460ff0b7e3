//! Every scenario by some seeds, and the same history for the same seed.
//!
//! Together they are 2,000 histories of the whole engine, and 3,000 with those of bit rot: a seed
//! of a scenario of crashes has one for each moment of the crash, a seed of `metamorphic` one for
//! each set of options. The protocol of segments alone adds 2,000.

use tombolo_simulator::scenario;

fn passes(name: &str, seeds: std::ops::Range<u64>) {
    let Some(scenario) = scenario::by_name(name) else { panic!("there is no scenario {name}") };
    for seed in seeds {
        if let Err(failure) = (scenario.run)(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    passes("crash-everywhere", 0..8);
}

#[test]
fn a_crash_at_any_operation_of_the_recovery_loses_nothing_acknowledged() {
    passes("crash-in-recovery", 0..8);
}

#[test]
fn a_power_loss_at_any_write_boundary_loses_nothing_durable() {
    passes("power-loss-at-every-write-boundary", 0..8);
}

#[test]
fn random_histories_with_faults_agree_with_the_oracle() {
    passes("random", 0..420);
}

#[test]
fn of_several_writers_one_is_right() {
    passes("two-writers", 0..8);
}

#[test]
fn readers() {
    passes("readers", 0..7);
}

#[test]
fn databases_that_share_tables() {
    passes("clones", 0..8);
}

#[test]
fn standbys() {
    passes("standbys", 0..7);
}

#[test]
fn what_a_stale_writer_still_appends_is_never_seen() {
    passes("stale-appender", 0..600);
}

#[test]
fn one_history_under_many_option_sets_gives_one_result() {
    passes("metamorphic", 0..6);
}

#[test]
fn a_near_compute_log_loses_nothing_acknowledged() {
    passes("near-log", 0..48);
}

#[test]
fn replicated_segments_lose_nothing_acknowledged() {
    passes("segments", 0..2000);
}

#[test]
fn damage_is_an_error_or_harmless() {
    passes("bit-rot", 0..16);
}

#[test]
fn a_seed_gives_one_history() {
    for (name, seed) in [("random", 3), ("two-writers", 5)] {
        let Some(scenario) = scenario::by_name(name) else { panic!("there is no scenario {name}") };
        assert_eq!((scenario.run)(seed).unwrap(), (scenario.run)(seed).unwrap(), "{name} of seed {seed}");
    }
}
