use std::time::Duration;

use tombolo_env::simulated::World;
use tombolo_storage::{ErrorKind, Result};

use super::{BYTES_PER_SECOND_MIN, SECONDS, SECONDS_MAX, Silence};

/// How each of some requests ended, one after the other: how many seconds it needs, and of how many
/// bytes its table is. After those that say so a table is whole.
fn ended(requests: &'static [(u64, u64, bool)]) -> Vec<Result<()>> {
    let process = World::new(1).process("writer");
    let env = process.env();
    let asked = async move {
        let silence = Silence::default();
        let mut ended = Vec::new();
        for (needs, bytes, is_whole) in requests {
            let request = async {
                env.sleep(Duration::from_secs(*needs)).await;
                Ok(())
            };
            ended.push(silence.bounds(&env, *bytes, request).await);
            if *is_whole {
                silence.answered(*bytes);
            }
        }
        ended
    };
    process.run(asked).expect("it ran")
}

fn are_answered(requests: &'static [(u64, u64, bool)]) -> Vec<bool> {
    let unknown = |error: &tombolo_storage::Error| error.kind() == ErrorKind::OutcomeUnknown;
    let ended = ended(requests);
    assert!(ended.iter().all(|answer| answer.as_ref().err().is_none_or(unknown)), "{ended:?}");
    ended.iter().map(Result::is_ok).collect()
}

#[test]
fn a_request_has_its_time_and_no_more() {
    assert_eq!(are_answered(&[(SECONDS - 1, 0, true), (SECONDS + 1, 0, false)]), [true, false]);
}

#[test]
fn a_large_table_has_time_for_its_bytes() {
    const BYTES: u64 = 100 * BYTES_PER_SECOND_MIN;
    assert_eq!(are_answered(&[(SECONDS + 99, BYTES, true), (SECONDS + 101, BYTES, false)]), [true, false]);
}

#[test]
fn the_next_request_has_twice_the_time_until_a_table_is_whole() {
    const SLOW: u64 = SECONDS * 3;
    let answered = are_answered(&[
        (SLOW, 0, false),
        (SLOW, 0, false),
        (SLOW, 0, false),
        // That was no whole table yet.
        (SLOW, 0, true),
        (SLOW, 0, false),
    ]);
    assert_eq!(answered, [false, false, true, true, false]);
}

/// A smaller table says nothing of the one that was lost: it would be lost for ever.
#[test]
fn small_tables_take_no_time_from_a_large_one() {
    const LARGE: u64 = 100 * BYTES_PER_SECOND_MIN;
    const SLOW: u64 = 100 + SECONDS * 3;
    let answered = are_answered(&[
        (SLOW, LARGE, false),
        (1, 10, true),
        (SLOW, LARGE, false),
        (1, 10, true),
        (SLOW, LARGE, true),
        // Now it has been whole.
        (SLOW, LARGE, false),
    ]);
    assert_eq!(answered, [false, true, false, true, true, false]);
}

#[test]
fn the_longest_time_is_an_hour() {
    const LONG: (u64, u64, bool) = (SECONDS_MAX + 1, 0, false);
    assert_eq!(are_answered(&[LONG; 12]), [false; 12]);
}

#[cfg(feature = "mutants")]
#[test]
fn each_rule_taken_out_is_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};
    notices(Mutant::TableSilenceUnbounded, a_request_has_its_time_and_no_more);
    notices(Mutant::TableSilenceIgnoresBytes, a_large_table_has_time_for_its_bytes);
    let longer = the_next_request_has_twice_the_time_until_a_table_is_whole;
    notices(Mutant::TableSilenceNeverLonger, longer);
    notices(Mutant::TableSilenceStaysLong, longer);
}
