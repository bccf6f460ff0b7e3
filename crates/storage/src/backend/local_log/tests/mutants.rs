//! Every rule of fences, frames and syncs taken out in turn: the checkers report a violation with
//! it, and none without.

use tombolo_env::simulated::Crash;

use super::harness::{Case, FORMS, Plan, ROLLING, SHORT};
use super::simulated::{
    crash_at, failing_syncs, fence_at, race, sync_error_that_only_the_writer_saw, write_at,
};
use super::space::rest_at;
use crate::backend::local_log::Form;
use crate::mutant::{Mutant, enable};

type Verdict = Result<(), String>;

/// Whether a checker reports a violation with `mutant`, and none without.
fn assert_caught(mutant: Mutant, name: &str, violations: impl Fn() -> Vec<String>) {
    assert_eq!(violations(), Vec::<String>::new(), "without {name}");
    let guard = enable(mutant);
    let caught = violations();
    drop(guard);
    assert!(!caught.is_empty(), "{name} was not caught");
}

fn collect(verdicts: impl IntoIterator<Item = Verdict>) -> Vec<String> {
    verdicts.into_iter().filter_map(Result::err).take(1).collect()
}

fn stale_writers() -> Vec<String> {
    let fences = FORMS.into_iter().flat_map(|form| {
        (0..4).flat_map(move |seed| (1..).map_while(move |number| fence_at(seed, form, SHORT, number)))
    });
    let races = FORMS.into_iter().flat_map(|form| (0..60).map(move |seed| race(seed, form)));
    collect(fences.chain(races))
}

#[test]
fn an_unchecked_fence_word_is_caught() {
    assert_caught(Mutant::LogFenceWordUnchecked, "an unchecked fence word", stale_writers);
}

#[test]
fn a_fence_word_checked_before_the_store_is_caught() {
    assert_caught(
        Mutant::LogFenceWordCheckedBeforeStore,
        "a fence word checked before the store",
        stale_writers,
    );
}

#[test]
fn a_fencer_that_reads_before_it_raises_the_word_is_caught() {
    assert_caught(Mutant::LogFenceReadsBeforeWord, "reading before raising the word", || {
        let writes = FORMS.into_iter().flat_map(|form| {
            (0..4).flat_map(move |seed| (1..).map_while(move |number| write_at(seed, form, number)))
        });
        collect(writes)
    });
}

#[test]
fn a_fence_without_sync_is_caught() {
    assert_caught(Mutant::LogFenceWithoutSync, "a fence without sync", || {
        collect((30..90).map(|number| crash_at(number, Form::Written, SHORT, number, Crash::Kill)))
    });
}

#[test]
fn a_bad_frame_taken_for_a_tail_is_caught() {
    assert_caught(Mutant::LogBadFrameIsAlwaysTail, "a bad frame taken for a tail", || {
        let plan = Plan { close: true, ..SHORT };
        let damaged = |rebooted: bool| {
            let case = Case::new(1, Form::Mapped);
            let writer = case.world.process("writer");
            writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
            case.world
                .host(0)
                .flip_bit(Case::directory(1).join("00000001"), 4096 + 3 * 368 + 100, 0)
                .unwrap();
            if rebooted {
                case.world.host(0).power_loss();
            }
            match case.recover(2).expect("named") {
                // Damage that is told is no violation.
                Err(_) => Ok(()),
                Ok((_, read)) => case.check(&read, plan.payload_bytes, plan.entries),
            }
        };
        collect([damaged(false), damaged(true)])
    });
}

#[test]
fn foreign_frames_taken_for_own_are_caught() {
    assert_caught(Mutant::LogAcceptsForeignFrames, "frames of another segment taken for own", || {
        let recycled = |entries: u64| {
            let case = Case::new(2, Form::Written);
            let writer = case.world.process("writer");
            let plan = Plan { entries, ..ROLLING };
            writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
            match case.recover(2).expect("named") {
                Err(error) => Err(error.to_string()),
                Ok((_, read)) => case.check(&read, plan.payload_bytes, entries),
            }
        };
        collect((40..80).map(recycled))
    });
}

#[test]
fn durable_without_a_sync_is_caught() {
    assert_caught(Mutant::LogDurableWithoutSync, "durable without a sync", || {
        collect(
            (40..200)
                .step_by(4)
                .map(|number| crash_at(number, Form::Written, ROLLING, number, Crash::PowerLoss)),
        )
    });
}

#[test]
fn an_ignored_sync_error_is_caught() {
    assert_caught(Mutant::LogSyncErrorIgnored, "an ignored sync error", || {
        collect((60..300).step_by(3).map(|number| failing_syncs(number, Form::Written, number, 2)))
    });
}

#[test]
fn an_append_accepted_without_a_full_fence_is_caught() {
    // The frame is still on its way to memory when the word is read: a matter of chance, so many
    // worlds.
    assert_caught(Mutant::LogAcceptsWithoutFullFence, "an append accepted without a full fence", || {
        collect(
            (0..400).flat_map(|seed| (3..7).filter_map(move |number| write_at(seed, Form::Mapped, number))),
        )
    });
}

#[test]
fn a_fencer_that_trusts_clean_pages_is_caught() {
    assert_caught(Mutant::LogFenceTrustsCleanPages, "a fencer that trusts clean pages", || {
        collect(FORMS.into_iter().map(sync_error_that_only_the_writer_saw))
    });
}

#[test]
fn a_segment_given_back_whatever_the_fence_word_says_is_caught() {
    assert_caught(
        Mutant::LogRestDeletesWithoutFenceWord,
        "a segment given back whatever the fence word says",
        || {
            collect(FORMS.into_iter().flat_map(|form| {
                (0..6).flat_map(move |seed| (1..).map_while(move |number| rest_at(seed, form, number)))
            }))
        },
    );
}

#[test]
fn a_roll_whose_old_segment_is_not_synced_is_caught() {
    assert_caught(Mutant::LogRollsWithoutSync, "a roll whose old segment is not synced", || {
        collect(
            (40..300)
                .step_by(2)
                .map(|number| crash_at(number, Form::Written, ROLLING, number, Crash::PowerLoss)),
        )
    });
}

#[test]
fn a_follower_that_believes_the_word_of_a_host_that_started_again_is_caught() {
    assert_caught(
        Mutant::LogTailBelievesWordOfLostHost,
        "a word on the control page that was not synced",
        || {
            collect(
                (40..300).map(|number| crash_at(number, Form::Written, ROLLING, number, Crash::PowerLoss)),
            )
        },
    );
}

#[test]
fn a_close_that_does_not_tell_how_far_the_log_is_durable_is_caught() {
    assert_caught(Mutant::LogCloseTellsNothing, "a log that is closed without a word", || {
        let damaged = |seed: u64| {
            let plan = Plan { close: true, ..SHORT };
            let case = Case::new(seed, Form::Written);
            let writer = case.world.process("writer");
            writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
            let host = case.world.host(0);
            host.power_loss();
            let image = host.disk_image();
            let (sealed, _) = case.recover(2).expect("named").map_err(|error| error.to_string())?;
            host.set_disk(&image);
            // In the last frame, of which no later one tells.
            let segment = Case::directory(1).join(format!("{:08x}", sealed.segment()));
            host.flip_bit(segment, u64::from(sealed.byte()) - 100, 0).expect("a file");
            match case.recover(3).expect("named") {
                // Damage that is told is no violation.
                Err(_) => Ok(()),
                Ok((_, read)) => case.check(&read, plan.payload_bytes, plan.entries),
            }
        };
        collect((0..16).map(damaged))
    });
}
