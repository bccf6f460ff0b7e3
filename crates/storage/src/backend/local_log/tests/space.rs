//! What a log takes of the disk: bytes written twice only where that pays, and space that goes back
//! when nothing is live.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::simulated::{Action, Fault, Operation, OperationKind, Process, World};

use super::harness::{Case, FORMS, Plan, RESTING};
use super::simulated::note;
use crate::backend::local_log::{Form, LocalLogOptions};
use crate::conformance::log::{append, entry};
use crate::{ErrorKind, Log, LogOffset, LogStore};

const KIB: u64 = 1 << 10;

/// Segments of 16 KiB to 1 MiB, of which those up to 64 KiB are small.
fn options(form: Form) -> LocalLogOptions {
    LocalLogOptions {
        form,
        segment_bytes_min: 16 << 10,
        segment_bytes_max: 1 << 20,
        small_segment_bytes: 64 << 10,
        ..LocalLogOptions::default()
    }
}

fn open(case: &Case) -> (Process, Arc<dyn Log>) {
    let writer = case.world.process("writer");
    let context = case.context(&writer, 1);
    let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
    (writer, log)
}

/// Appends `entries` of 900 bytes, with a sync after so many; the last one's end.
fn fill(
    case: &Case,
    writer: &Process,
    log: &dyn Log,
    entries: std::ops::Range<u64>,
    sync_every: u64,
) -> LogOffset {
    let mut end = LogOffset::ZERO;
    for number in entries {
        end = append(writer, log, 0, &entry(number, 900)).expect("appending");
        if sync_every > 0 && number % sync_every == sync_every - 1 {
            log.sync(0, end).expect("syncing");
        }
        // The task that makes segments ahead comes to it.
        case.world.run_until_idle();
    }
    end
}

type Noted = Arc<Mutex<Vec<Operation>>>;

/// Zeroing writes, and lengths of segments whose blocks were only taken.
fn making(case: &Case) -> (Noted, Noted) {
    let in_lane = |operation: &Operation| {
        operation.path.starts_with(Case::directory(1)) && !operation.path.ends_with("control")
    };
    // A header is as long, and lies at the start.
    let zeroed = move |operation: &Operation| {
        in_lane(operation)
            && operation.kind == OperationKind::Write
            && operation.length == 4096
            && operation.offset > 0
    };
    let taken = move |operation: &Operation| in_lane(operation) && operation.kind == OperationKind::SetLength;
    (note(&case.world, zeroed), note(&case.world, taken))
}

#[test]
fn large_segments_are_zeroed_only_where_somebody_waits_for_syncs() {
    for form in FORMS {
        // Never, once in 900 KiB as a flush does, and after every eighth entry.
        for (sync_every, are_zeroed) in [(0, false), (1000, false), (8, true)] {
            let case = Case::with(1, LocalLogOptions { zeroed_sync_bytes: 16 << 10, ..options(form) });
            let (zeroed, taken) = making(&case);
            let (writer, log) = open(&case);
            fill(&case, &writer, &*log, 0..3000, sync_every);
            let (zeroed, taken) = (zeroed.lock().clone(), taken.lock().clone());
            let large_zeroed = zeroed.iter().any(|write| write.offset >= 64 * KIB);
            let what = format!("{form:?}, a sync after every {sync_every}");
            assert_eq!(large_zeroed, are_zeroed, "{what}");
            assert_eq!(taken.is_empty(), are_zeroed, "{what}: {taken:?}");
            assert!(
                taken.iter().all(|taken| taken.length > 64 * KIB),
                "{what}: a small segment is zeroed in any case: {taken:?}"
            );
            assert!(!zeroed.is_empty(), "{what}: a small segment is zeroed in any case");
        }
    }
}

#[test]
fn durable_writes_have_the_next_segment_zeroed_and_accepted_ones_the_next_not() {
    let case = Case::with(2, LocalLogOptions { zeroed_sync_bytes: 16 << 10, ..options(Form::Mapped) });
    let (zeroed, taken) = making(&case);
    let (writer, log) = open(&case);
    fill(&case, &writer, &*log, 0..2000, 0);
    let before = (zeroed.lock().len(), taken.lock().len());
    assert!(before.1 > 0);
    fill(&case, &writer, &*log, 2000..5000, 8);
    let durable = (zeroed.lock().len(), taken.lock().len());
    assert!(
        durable.0 >= before.0 + 255,
        "the next but one at the latest is zeroed: {before:?}, then {durable:?}"
    );
    fill(&case, &writer, &*log, 5000..9000, 0);
    assert!(taken.lock().len() > durable.1, "and is not, once nobody waits any more");
}

/// A page that is stored to through the mapping costs a fault, and one that is brought into it
/// costs as well. Frames of which few share a page take neither.
#[test]
fn large_frames_go_around_the_mapping_and_small_ones_through_it() {
    for (entry_bytes, are_mapped) in [(900, true), (10_000, false)] {
        let case = Case::with(3, options(Form::Mapped));
        let in_segment = |operation: &Operation| !operation.path.ends_with("control");
        let stored = note(&case.world, move |operation: &Operation| {
            in_segment(operation) && operation.kind == OperationKind::MapWrite && operation.length > 256
        });
        let brought = note(&case.world, move |operation: &Operation| {
            in_segment(operation)
                && operation.kind == OperationKind::MapPopulate
                && operation.length > 64 * KIB
        });
        let (writer, log) = open(&case);
        for number in 0..400 {
            append(&writer, &*log, 0, &entry(number, entry_bytes)).expect("appending");
            case.world.run_until_idle();
        }
        // A segment's header is stored through the mapping in any case.
        let frames = stored.lock().iter().filter(|store| store.offset >= 4096).count();
        assert_eq!(frames > 0, are_mapped, "{frames} frames of {entry_bytes} bytes");
        assert_eq!(!brought.lock().is_empty(), are_mapped, "{entry_bytes}: {:?}", brought.lock());
    }
}

#[test]
fn a_file_system_that_cannot_take_blocks_gets_zeroed_segments() {
    for form in FORMS {
        let case = Case::with(3, options(form));
        let (zeroed, _) = making(&case);
        let cannot = Fault::new(Action::Fail(std::io::ErrorKind::Unsupported), |operation| {
            operation.kind == OperationKind::SetLength
        });
        case.world.inject(cannot.always());
        let (writer, log) = open(&case);
        fill(&case, &writer, &*log, 0..1500, 0);
        assert!(zeroed.lock().iter().any(|write| write.offset >= 64 * KIB), "{form:?}");
        writer.kill();
        let (_, read) = case.recover(2).expect("named").expect("recovering");
        case.check(&read, 900, 1500).unwrap();
    }
}

/// Blocks are taken when a segment is made: a store never finds the disk full, which under a
/// mapping would end the process.
#[test]
fn a_full_disk_is_met_when_a_segment_is_made_and_not_when_it_is_stored_to() {
    for form in FORMS {
        let case = Case::with(4, options(form));
        let (_, taken) = making(&case);
        let (writer, log) = open(&case);
        fill(&case, &writer, &*log, 0..700, 0);
        assert!(!taken.lock().is_empty(), "a segment that is not zeroed is in use");
        let host = case.world.host(0);
        host.set_capacity(Some(host.used()));
        let mut number = 700;
        let error = loop {
            match append(&writer, &*log, 0, &entry(number, 900)) {
                Ok(_) => number += 1,
                Err(error) => break error,
            }
            assert!(number < 5000, "a full disk takes no end of appends");
        };
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert!(writer.is_alive() && number > 700, "what was taken could be stored to: {number} entries");
        host.set_capacity(None);
        fill(&case, &writer, &*log, number..number + 500, 0);
        writer.kill();
        let (_, read) = case.recover(2).expect("named").expect("recovering");
        case.check(&read, 900, number + 500).unwrap();
    }
}

/// Where a large segment does not fit any more, smaller ones do.
#[test]
fn a_disk_that_is_nearly_full_is_used_up_by_smaller_segments() {
    for form in FORMS {
        let case = Case::with(9, LocalLogOptions { segment_bytes_max: 8 << 20, ..options(form) });
        let (writer, log) = open(&case);
        fill(&case, &writer, &*log, 0..5000, 0);
        let host = case.world.host(0);
        host.set_capacity(Some(host.used() + 4096 * KIB));
        let mut number = 5000;
        while append(&writer, &*log, 0, &entry(number, 900)).is_ok() {
            number += 1;
            case.world.run_until_idle();
        }
        let space = writer.env().files().space("/data".as_ref()).expect("space");
        // A segment of 1 MiB, and the room that is left to flush and compaction.
        assert!(
            space.available < 1024 * KIB + space.total / 32,
            "{form:?}: {} KiB are free",
            space.available / KIB
        );
    }
}

#[test]
fn space_goes_back_once_a_lane_rests() {
    for form in FORMS {
        for zeroed_sync_bytes in [0, u64::MAX] {
            let case = Case::with(5, LocalLogOptions { zeroed_sync_bytes, ..options(form) });
            let (writer, log) = open(&case);
            let end = fill(&case, &writer, &*log, 0..2500, 100);
            log.trim(0, end).expect("trimming");
            let before = case.segments();
            assert!(before.iter().sum::<u64>() >= 1024 * KIB, "{form:?}: {before:?}");
            case.told.lock().replay = Some((end, 2500));
            case.world.run_for(Duration::from_secs(2));
            let after = case.segments();
            assert!(after.iter().sum::<u64>() <= 64 * KIB, "{form:?}: {after:?}");
            // It goes on, and is read back from the replay point in the segment that is gone.
            fill(&case, &writer, &*log, 2500..2600, 100);
            case.world.host(0).power_loss();
            let (_, read) = case.recover(2).expect("named").expect("recovering");
            case.check(&read, 900, 2600).unwrap();
            assert_eq!(read.len(), 100);
        }
    }
}

#[test]
fn a_lane_with_something_live_keeps_the_segment_that_holds_it() {
    let case = Case::with(6, options(Form::Mapped));
    let (writer, log) = open(&case);
    let end = fill(&case, &writer, &*log, 0..2500, 100);
    fill(&case, &writer, &*log, 2500..2510, 0);
    log.trim(0, end).expect("trimming");
    case.world.run_for(Duration::from_secs(2));
    assert_eq!(case.segments(), [1024 * KIB], "no segment made ahead");
    case.told.lock().replay = Some((end, 2500));
    writer.kill();
    let (_, read) = case.recover(2).expect("named").expect("recovering");
    case.check(&read, 900, 2510).unwrap();
}

#[test]
fn a_lane_that_is_written_to_keeps_its_segments() {
    let case = Case::with(7, options(Form::Mapped));
    let (writer, log) = open(&case);
    for round in 0..30 {
        let end = fill(&case, &writer, &*log, round * 500..round * 500 + 500, 500);
        log.trim(0, end).expect("trimming");
        case.world.run_for(Duration::from_millis(120));
        assert!(
            round < 10 || case.segments().contains(&(1024 * KIB)),
            "round {round}: {:?}",
            case.segments()
        );
    }
    case.world.run_for(Duration::from_secs(2));
    assert!(case.segments().iter().sum::<u64>() <= 64 * KIB);
}

#[test]
fn a_closed_log_keeps_nothing_that_was_made_ahead() {
    for form in FORMS {
        let case = Case::with(8, options(form));
        let (writer, log) = open(&case);
        let end = fill(&case, &writer, &*log, 0..2500, 100);
        log.trim(0, end).expect("trimming");
        writer.block_on(log.close()).expect("closing");
        assert!(case.segments().iter().sum::<u64>() <= 64 * KIB, "{form:?}: {:?}", case.segments());
        case.told.lock().replay = Some((end, 2500));
        case.world.host(0).power_loss();
        let (_, read) = case.recover(2).expect("named").expect("recovering");
        assert_eq!(read, []);
    }
}

#[test]
fn the_resting_plan_goes_over_into_a_small_segment() {
    for (form, seed) in FORMS.into_iter().flat_map(|form| [(form, 0), (form, 1)]) {
        let case = Case::of(seed, form, RESTING);
        let writer = case.world.process("writer");
        let plan = Plan { entries: RESTING.trim_every, ..RESTING };
        let removed = note(&case.world, |operation| operation.kind == OperationKind::RemoveFile);
        writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
        assert!(
            case.segments().iter().sum::<u64>() <= 32 * KIB,
            "{form:?}, seed {seed}: {:?}",
            case.segments()
        );
        assert!(!removed.lock().is_empty());
    }
}

/// The lane goes over into a small segment while a fencer stands before its operation `number`.
/// `None`: the fencer has fewer operations.
pub(super) fn rest_at(seed: u64, form: Form, number: u64) -> Option<Result<(), String>> {
    let case = Case::of(seed, form, RESTING);
    let (writer, log) = open(&case);
    let plan = Plan { entries: RESTING.trim_every, rests: false, ..RESTING };
    writer
        .run({
            let (case, process, log) = (case.clone(), writer.clone(), Arc::clone(&log));
            async move { case.write_to(&process, &*log, plan).await }
        })
        .expect("nobody ends the writer")
        .expect("writing");
    case.world.run_until_idle();
    let fencer = case.world.process("fencer");
    let hit = Arc::new(Mutex::new(false));
    {
        let (case, writer, hit) = (case.clone(), writer.clone(), Arc::clone(&hit));
        fencer.call_at(number, move |_: &World| {
            *hit.lock() = true;
            let (case, process, log) = (case.clone(), writer.clone(), Arc::clone(&log));
            writer.run(async move {
                process.sleep(Duration::from_secs(2)).await;
                for number in plan.entries..plan.entries + 3 {
                    match log.append(0, &entry(number, plan.payload_bytes)) {
                        Ok(_) => case.told.lock().accepted = number + 1,
                        Err(_) => return,
                    }
                }
            });
        });
    }
    let taken = fencer
        .run(case.clone().take_over(fencer.clone(), 2))
        .expect("nobody ends the fencer")
        .expect("named");
    if !*hit.lock() {
        return None;
    }
    let told = case.told.lock().clone();
    Some(match taken {
        Err(error) => Err(error.to_string()),
        Ok((_, read)) => case.check(&read, plan.payload_bytes, told.accepted),
    })
}

#[test]
fn a_fencer_paused_anywhere_reads_a_lane_that_comes_to_rest() {
    for form in FORMS {
        for seed in 0..6 {
            let mut number = 1;
            while let Some(verdict) = rest_at(seed, form, number) {
                if let Err(violation) = verdict {
                    panic!(
                        "{form:?}, the lane came to rest at operation {number} of the fencer, seed {seed}: \
                        {violation}"
                    );
                }
                number += 1;
            }
            assert!(number > 8);
        }
    }
}
