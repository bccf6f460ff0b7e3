//! Takeovers: by chance, and the histories that matter one by one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::simulated::Process;
use tombolo_format::checksum::crc32c;
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::log_object::{
    LOG_OBJECT_FIRST_BYTE, LOG_OBJECT_HEADER_BYTES, LOG_OBJECT_VERSION, SEAL_BYTES, encode_data_header,
};

use super::harness::{Case, contest};
use crate::backend::object_log::ObjectLogStore;
use crate::conformance::log::{append, entry};
use crate::layer::RequestKind;
use crate::layer::fault::{Asked, Chances, Fault, Lateness, Rule};
use crate::{
    ErrorKind, Life, LogContext, LogOffset, LogStore, ObjectKind, ObjectName, Placement, Purpose, Request,
    Result,
};

#[test]
fn nothing_acknowledged_is_lost_and_nothing_late_counts() {
    let wrong: Vec<String> = (0..150).filter_map(|seed| contest(seed).err()).take(3).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

/// Deletes a slot's object behind everybody's back.
pub(super) async fn lose(case: &Case, slot: u32) -> Result<()> {
    let name = ObjectName::new(format!("{:016x}/log-objects/{:016x}/{:04x}/{slot:08x}", 7, 1, 0))?;
    let request = Request::new(Purpose::Collection, crate::Epoch::NONE);
    case.objects.length(request, &name).await?;
    case.objects.delete(request, &name).await
}

/// A log of `entries` objects, of which one is lost; what the takeover comes to.
pub(super) fn takeover_with_a_hole(entries: u64, lost: u32) -> Result<LogOffset> {
    let case = Case::new(3, Chances::NONE);
    let writer = case.world.process("writer");
    let env = writer.env();
    let log = env.block_on(case.store(&writer).open(&case.context(&writer, 1), 1)).expect("opened");
    for number in 0..entries {
        append(&env, &*log, 0, &entry(number, 10)).expect("appended");
    }
    env.block_on(lose(&case, lost)).expect("it was there");
    let successor = case.world.process("successor");
    let record = case.record().expect("named");
    successor.env().block_on(case.store(&successor).fence(
        &case.context(&successor, 2),
        &record,
        LogOffset::ZERO,
    ))
}

#[test]
fn a_missing_object_is_damage_and_no_end() {
    for entries in [3, 9, 15, 40, 90] {
        for lost in [0, 1, 2, 7, 14, 15, 16, 17, 30, 47, 48, 62, 80] {
            if u64::from(lost) + 1 < entries {
                let error = takeover_with_a_hole(entries, lost).expect_err("damage");
                assert_eq!(error.kind(), ErrorKind::Corrupt, "slot {lost} of {entries}: {error}");
                assert!(
                    error.object_name().is_some_and(|name| name.ends_with(&format!("{lost:08x}"))),
                    "{error}"
                );
            }
        }
    }
}

/// A follower's look at the slot behind where it stands takes long, and the writer, which flushed,
/// trims meanwhile: that the slot is empty says nothing then.
pub(super) fn followed_over_what_was_trimmed() -> Result<()> {
    let case = Case::new(9, Chances::NONE);
    let writer = case.world.process("writer");
    let env = writer.env();
    let log = env.block_on(case.store(&writer).open(&case.context(&writer, 1), 1)).expect("opened");
    let ends: Vec<_> =
        (0..4).map(|number| append(&env, &*log, 0, &entry(number, 10)).expect("appended")).collect();
    let reader = case.world.process("reader");
    let (store, context, record) =
        (case.store(&reader), case.context(&reader, 2), case.record().expect("named"));
    let is_next = |asked: &Asked<'_>| asked.kind == RequestKind::Read && asked.name.ends_with("/00000002");
    case.plan.inject(Rule::new(is_next, Fault::Delay(Duration::from_secs(1))));
    let trimmed = Arc::new(parking_lot::Mutex::new(None));
    let (told, from) = (Arc::clone(&trimmed), ends[0]);
    let follow = async move { *told.lock() = Some(store.tail(&context, &record, from).await.map(drop)) };
    reader.spawn(tombolo_env::TaskClass::Foreground, "follow", follow).detach();
    case.world.run_for(Duration::from_millis(10));
    log.trim(0, ends[3]).expect("trimmed");
    case.world.run_for(Duration::from_secs(5));
    let outcome = trimmed.lock().take();
    outcome.expect("it has looked")
}

#[test]
fn a_slot_that_was_trimmed_is_no_end_to_a_follower() {
    let error = followed_over_what_was_trimmed().expect_err("what it stood in is gone");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

/// Trims that overlap delete in ascending order all the same, whatever becomes of a deletion: a
/// follower takes no slot that was emptied for the end.
#[test]
fn trims_that_overlap_delete_in_order() {
    for fault in [Fault::Delay(Duration::from_secs(60)), Fault::Error(ErrorKind::PermissionDenied)] {
        let case = Case::new(13, Chances::NONE);
        let writer = case.world.process("writer");
        let env = writer.env();
        let log = env.block_on(case.store(&writer).open(&case.context(&writer, 1), 1)).expect("opened");
        // Entry 0 is in slot 1, and so on.
        let ends: Vec<_> =
            (0..9).map(|number| append(&env, &*log, 0, &entry(number, 10)).expect("appended")).collect();
        let (reader, record) = (case.world.process("reader"), case.record().expect("named"));
        let follow = || {
            let (store, context) = (case.store(&reader), case.context(&reader, 2));
            reader.env().block_on(async {
                let (mut reader, mut found) = (store.tail(&context, &record, ends[1]).await?, Vec::new());
                while let Some((entry, _)) = reader.next().await? {
                    found.push(entry.first_sequence);
                }
                Ok::<_, crate::Error>(found)
            })
        };
        let trim = |slot| {
            log.trim(0, LogOffset::new(slot, 0)).expect("trimmed");
            case.world.run_for(Duration::from_secs(5));
        };
        let is_first =
            |asked: &Asked<'_>| asked.kind == RequestKind::Delete && asked.name.ends_with("/00000001");
        case.plan.inject(Rule::new(is_first, fault.clone()).times(2));
        trim(4);
        trim(8);
        assert_eq!(
            follow().expect("slot 1 is there, and so is all behind it"),
            [2, 3, 4, 5, 6, 7, 8],
            "{fault:?}"
        );
        case.world.run_for(Duration::from_secs(180));
        // What could not be deleted is with the next trim, although that has nothing of its own.
        trim(8);
        let error = follow().expect_err("what it stood in is gone");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{fault:?}: {error}");
        let request = Request::new(Purpose::Collection, crate::Epoch::NONE);
        let left = env.block_on(case.objects.list(request, "", None, 100)).expect("listed");
        let left: Vec<_> =
            left.objects.iter().filter_map(|info| info.name.as_str().rsplit('/').next()).collect();
        assert_eq!(left, ["00000008", "00000009"], "{fault:?}");
    }
}

/// A successor that has fenced the log of `case`, and freed it; where the log ends.
fn replaced(case: &Case) -> (Process, LogOffset) {
    let successor = case.world.process("successor");
    let (context, record) = (case.context(&successor, 2), case.record().expect("named"));
    let fencer = case.store(&successor);
    let sealed = successor.env().block_on(fencer.fence(&context, &record, LogOffset::ZERO)).expect("fenced");
    case.chain.unname(&record);
    successor.env().block_on(fencer.free(&context, &record)).expect("freed");
    (successor, sealed)
}

/// A put that is on its way while the successor seals its slot, frees the log, and only then lands.
#[test]
fn a_put_that_lands_after_the_log_was_freed_finds_the_seal() {
    let case = Case::new(4, Chances::NONE);
    let writer = case.world.process("writer");
    let (env, store) = (writer.env(), case.store(&writer));
    let log = env.block_on(store.open(&case.context(&writer, 1), 1)).expect("opened");
    append(&env, &*log, 0, &entry(0, 10)).expect("appended");
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Late(Lateness::Released)).times(1));
    let late = log.append(0, &entry(1, 10)).expect("appended").accepted.expect("not yet accepted");
    case.world.run_for(Duration::from_millis(1));
    writer.pause();
    let (successor, sealed) = replaced(&case);
    let plan = case.plan.clone();
    successor.env().block_on(async move { plan.release().await });
    writer.resume();
    let error = env.block_on(late).expect("it resolves").expect_err("the slot is sealed");
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert_eq!(sealed.segment(), 1);
    assert_eq!(log.append(0, &entry(2, 10)).expect_err("finished").kind(), ErrorKind::Fenced);
}

/// A put whose answer is lost has landed; a successor seals behind it, replays it, and frees the
/// log. Only the seal is left, behind a slot that is empty.
pub(super) fn confirmed_behind_a_slot_that_was_freed() -> Result<()> {
    let case = Case::new(10, Chances::NONE);
    let writer = case.world.process("writer");
    let env = writer.env();
    let log = env.block_on(case.store(&writer).open(&case.context(&writer, 1), 1)).expect("opened");
    append(&env, &*log, 0, &entry(0, 10)).expect("appended");
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: true }).times(1));
    drop(log.append(0, &entry(1, 10)).expect("appended"));
    case.world.run_for(Duration::from_millis(1));
    writer.pause();
    let (_successor, sealed) = replaced(&case);
    assert_eq!(sealed.segment(), 2, "the landed put is in the log");
    // What the writer puts again is late.
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Late(Lateness::Released)));
    writer.resume();
    env.block_on(log.confirm())
}

#[test]
fn a_writer_that_was_fenced_behind_its_landed_put_is_not_confirmed() {
    let error = confirmed_behind_a_slot_that_was_freed().expect_err("fenced");
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

/// A lane whose first object is late and whose next ones are in place: what two successors in turn
/// say where it ends.
pub(super) fn ends_with_data_behind_the_seal() -> Result<(LogOffset, LogOffset)> {
    let case = Case::new(8, Chances::NONE);
    let writer = case.world.process("writer");
    let env = writer.env();
    let log = env.block_on(case.store(&writer).open(&case.context(&writer, 1), 1))?;
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Late(Lateness::Released)).times(1));
    for number in 0..4 {
        drop(log.append(0, &entry(number, 900))?);
    }
    case.world.run_for(Duration::from_millis(1));
    writer.pause();
    let objects = Arc::clone(&case.objects);
    let second = ObjectName::new(format!("{:016x}/log-objects/{:016x}/{:04x}/{:08x}", 7, 1, 0, 2))?;
    let (reader, record) = (case.world.process("reader"), case.record().expect("named"));
    reader.env().block_on(async move {
        objects.length(Request::new(Purpose::Log, crate::Epoch::NONE), &second).await
    })?;
    let fence = |epoch: u64| {
        let successor = case.world.process("successor");
        successor.env().block_on(case.store(&successor).fence(
            &case.context(&successor, epoch),
            &record,
            LogOffset::ZERO,
        ))
    };
    Ok((fence(2)?, fence(3)?))
}

#[test]
fn the_first_seal_counts() {
    assert_eq!(ends_with_data_behind_the_seal().expect("fenced twice"), (LogOffset::ZERO, LogOffset::ZERO));
}

/// An epoch's log has one writer; a second one is noticed, however it was started.
#[test]
fn a_second_writer_of_an_epoch_is_noticed() {
    let case = Case::new(5, Chances::NONE);
    let process = case.world.process("writer");
    let (env, store) = (process.env(), case.store(&process));
    let _log = env.block_on(store.open(&case.context(&process, 1), 1)).expect("opened");
    let error = env.block_on(store.open(&case.context(&process, 1), 1)).expect_err("taken");
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("another process"), "{error}");
}

/// A store that fails for a while delays writes; one that refuses for longer has them told, and
/// takes none until it takes an object again.
#[test]
fn failures_pass_and_refusals_too() {
    let case = Case::new(6, Chances::NONE);
    let process = case.world.process("writer");
    let env = process.env();
    let log = env.block_on(case.store(&process).open(&case.context(&process, 1), 1)).expect("opened");
    let append = |number| log.append(0, &entry(number, 10));
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::Retry)));
    let waiting = append(0).expect("appended").accepted.expect("not yet accepted");
    case.world.run_for(Duration::from_secs(600));
    assert!(!waiting.is_ready());
    case.plan.clear();
    env.block_on(waiting).expect("it resolves").expect("accepted once the store is back");
    let durable = log.durable_through(0);

    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::PermissionDenied)));
    let refused = append(1).expect("appended");
    let error = env
        .block_on(refused.accepted.expect("not yet accepted"))
        .expect("it resolves")
        .expect_err("not taken in time");
    assert!(
        error.kind() == ErrorKind::DeadlineExceeded && error.to_string().contains("PermissionDenied"),
        "{error}"
    );
    for _ in 0..100 {
        assert_eq!(append(2).expect_err("not taken").kind(), ErrorKind::PermissionDenied);
        assert_eq!(log.sync(0, refused.end).expect_err("not durable").kind(), ErrorKind::DeadlineExceeded);
        case.world.run_for(Duration::from_secs(6));
    }
    assert_eq!(log.durable_through(0), durable, "nothing that was refused counts");
    case.plan.clear();
    case.world.run_for(Duration::from_secs(3));
    assert!(log.durable_through(0) >= refused.end, "what was taken is tried on");
    env.block_on(append(2).expect("taken again").accepted.expect("a ticket"))
        .expect("it resolves")
        .expect("accepted");
}

/// A put that landed unseen, and a store that refuses to show what holds its slot: that says
/// nothing of the put, and ends nothing.
#[test]
fn a_taken_slot_that_is_not_shown_ends_nothing() {
    for kind in
        [ErrorKind::PermissionDenied, ErrorKind::Invalid, ErrorKind::Unsupported, ErrorKind::OutOfSpace]
    {
        let case = Case::new(11, Chances::NONE);
        let process = case.world.process("writer");
        let env = process.env();
        let log = env.block_on(case.store(&process).open(&case.context(&process, 1), 1)).expect("opened");
        let append = |number| log.append(0, &entry(number, 10)).expect("appended");
        let refuse = |times| {
            case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: true }).times(1));
            case.plan.inject(Rule::of_kind(RequestKind::Read, Fault::Error(kind)).times(times));
        };
        refuse(5);
        env.block_on(append(0).accepted.expect("a ticket"))
            .expect("it resolves")
            .expect("accepted once it was shown");
        env.block_on(append(1).accepted.expect("a ticket")).expect("it resolves").expect("the log goes on");

        refuse(u64::MAX);
        let taken = append(2);
        let error = env
            .block_on(taken.accepted.expect("a ticket"))
            .expect("it resolves")
            .expect_err("not seen in time");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        let error = log.append(0, &entry(3, 10)).expect_err("nothing is taken meanwhile");
        assert_eq!(error.kind(), kind, "{error}");
        case.plan.clear();
        case.world.run_for(Duration::from_secs(3));
        assert!(log.durable_through(0) >= taken.end, "it was asked on until it was seen");
        env.block_on(append(3).accepted.expect("a ticket")).expect("it resolves").expect("the log goes on");
    }
}

/// A writer that waits for a lane that ends is never told that nothing took effect.
#[test]
fn a_lane_that_ends_claims_nothing_of_what_is_on_its_way() {
    let case = Case::new(12, Chances::NONE);
    let process = case.world.process("writer");
    let env = process.env();
    let log = env.block_on(case.store(&process).open(&case.context(&process, 1), 1)).expect("opened");
    // A newer version wrote the object that holds the slot.
    let identity = SegmentIdentity { incarnation: 7, epoch: 1, lane: 0, segment: 1 };
    let mut newer = encode_data_header(&identity, LOG_OBJECT_FIRST_BYTE, 0, 0);
    newer[8..12].copy_from_slice(&(LOG_OBJECT_VERSION + 1).to_le_bytes());
    let checksum = crc32c(&newer[..LOG_OBJECT_HEADER_BYTES - 4]);
    newer[LOG_OBJECT_HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    let name =
        ObjectName::new(format!("{:016x}/log-objects/{:016x}/{:04x}/{:08x}", 7, 1, 0, 1)).expect("a name");
    let placement = Placement::new(ObjectKind::Log, Life::Short);
    let request = Request::new(Purpose::Log, crate::Epoch::NONE);
    env.block_on(case.objects.put_if_absent(request, &name, placement, Bytes::copy_from_slice(&newer)))
        .expect("put");
    let error = env
        .block_on(log.append(0, &entry(0, 10)).expect("appended").accepted.expect("a ticket"))
        .expect("it resolves");
    let error = error.expect_err("the slot is taken");
    assert!(error.kind() == ErrorKind::OutcomeUnknown && error.to_string().contains("newer"), "{error}");
    assert_eq!(log.append(0, &entry(1, 10)).expect_err("finished").kind(), ErrorKind::OutcomeUnknown);
}

/// A store that says that a slot is taken, and shows nothing there, is a refusal as well: those who
/// wait are told in the end, and a fence ends.
#[test]
fn a_slot_that_is_taken_and_empty_keeps_nobody_waiting() {
    let case = Case::new(9, Chances::NONE);
    let process = case.world.process("writer");
    let env = process.env();
    let log = env.block_on(case.store(&process).open(&case.context(&process, 1), 1)).expect("opened");
    let contradict = || {
        case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: true }).times(1));
        case.plan.inject(Rule::of_kind(RequestKind::Read, Fault::Error(ErrorKind::NotFound)).times(300));
    };
    contradict();
    let began = env.now();
    let taken = log.append(0, &entry(0, 10)).expect("appended");
    let error = env
        .block_on(taken.accepted.expect("not yet accepted"))
        .expect("it resolves")
        .expect_err("nobody knows");
    assert!(error.kind() == ErrorKind::DeadlineExceeded && error.to_string().contains("taken"), "{error}");
    assert!(env.now().since(began) < Duration::from_secs(60), "virtual time");
    case.world.run_for(Duration::from_secs(600));
    assert!(log.durable_through(0) >= taken.end, "it was asked on until it was seen");
    let (successor, record) = (case.world.process("successor"), case.record().expect("it is named"));
    let fence = || {
        successor.env().block_on(case.store(&successor).fence(
            &case.context(&successor, 2),
            &record,
            taken.end,
        ))
    };
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: true }).times(1));
    case.plan.inject(Rule::new(
        |asked| asked.kind == RequestKind::Read && !asked.name.ends_with("1"),
        Fault::Error(ErrorKind::NotFound),
    ));
    let error = fence().expect_err("nobody knows");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    case.plan.clear();
    assert_eq!(fence().expect("fenced"), taken.end);
}

/// Refuses puts for good, the first of which is of unknown outcome.
fn refuse_after_an_unknown_put(case: &Case) {
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Unknown { landed: false }).times(1));
    case.plan.inject(Rule::of_kind(RequestKind::Put, Fault::Error(ErrorKind::PermissionDenied)).skip(1));
}

/// Closing ends all puts on their way, those of unknown outcome too.
#[test]
fn a_refused_log_that_was_closed_puts_nothing_more() {
    for refused_before in [Duration::ZERO, Duration::from_secs(120)] {
        let case = Case::new(14, Chances::NONE);
        let process = case.world.process("writer");
        let env = process.env();
        let log = env.block_on(case.store(&process).open(&case.context(&process, 1), 1)).expect("opened");
        refuse_after_an_unknown_put(&case);
        drop(log.append(0, &entry(0, 10)).expect("appended"));
        case.world.run_for(refused_before);
        let error = env.block_on(log.close()).expect_err("not all of it is durable");
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        let requests = case.plan.requests();
        case.world.run_for(Duration::from_secs(60));
        assert_eq!(case.plan.requests(), requests, "nothing works on in the background");
        assert_eq!(log.append(0, &entry(1, 10)).expect_err("closed").kind(), ErrorKind::Closed);
    }
}

/// A lane that nothing names yet is given up, whatever became of its first put: opening ends.
#[test]
fn opening_ends_while_the_store_refuses() {
    let case = Case::new(15, Chances::NONE);
    let process = case.world.process("writer");
    refuse_after_an_unknown_put(&case);
    let opened = Arc::new(parking_lot::Mutex::new(None));
    let (told, store, context) = (Arc::clone(&opened), case.store(&process), case.context(&process, 1));
    let open = async move { *told.lock() = Some(store.open(&context, 1).await.map(drop)) };
    process.spawn(tombolo_env::TaskClass::Foreground, "open", open).detach();
    case.world.run_for(Duration::from_secs(120));
    let error = opened.lock().take().expect("it has ended").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(case.record(), None);
}

/// A successor that comes while the store refuses has the log, and its writer is told.
#[test]
fn a_refused_log_can_be_fenced() {
    let case = Case::new(8, Chances::NONE);
    let process = case.world.process("writer");
    let env = process.env();
    let log = env.block_on(case.store(&process).open(&case.context(&process, 1), 1)).expect("opened");
    let is_data = |asked: &Asked<'_>| asked.kind == RequestKind::Put && asked.bytes > SEAL_BYTES as u64;
    case.plan.inject(Rule::new(is_data, Fault::Error(ErrorKind::OutOfSpace)));
    let refused = log.append(0, &entry(0, 1000)).expect("appended");
    env.block_on(refused.accepted.expect("not yet accepted"))
        .expect("it resolves")
        .expect_err("not taken in time");
    let (successor, record) = (case.world.process("successor"), case.record().expect("it is named"));
    let sealed = successor.env().block_on(case.store(&successor).fence(
        &case.context(&successor, 2),
        &record,
        LogOffset::ZERO,
    ));
    assert_eq!(sealed.expect("fenced"), LogOffset::ZERO);
    case.plan.clear();
    case.world.run_for(Duration::from_secs(3));
    assert_eq!(log.append(0, &entry(1, 10)).expect_err("fenced").kind(), ErrorKind::Fenced);
}

/// What a fenced writer puts behind the seal is found and deleted by the next opening.
#[test]
fn garbage_of_older_epochs_goes_with_the_next_opening() {
    let case = Case::new(7, Chances::NONE);
    let process = case.world.process("writer");
    let env = process.env();
    let store = case.store(&process);
    let log = env.block_on(store.open(&case.context(&process, 1), 1)).expect("opened");
    for number in 0..5 {
        append(&env, &*log, 0, &entry(number, 10)).expect("appended");
    }
    case.chain.unname(&case.record().expect("named"));
    drop(env.block_on(store.open(&case.context(&process, 3), 1)).expect("opened"));
    case.world.run_for(Duration::from_secs(5));
    let request = Request::new(Purpose::Open, crate::Epoch::NONE);
    let objects = Arc::clone(&case.objects);
    let left = env.block_on(async move { objects.list(request, "", None, 100).await }).expect("listed");
    let names: Vec<&str> = left.objects.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["0000000000000007/log-objects/0000000000000003/0000/00000000"]);
}

/// A place of logs that two databases share, whose incarnations are the same.
#[test]
fn clearing_deletes_a_destroyed_databases_data_and_no_other() {
    let case = Case::new(6, Chances::NONE);
    let writer = case.world.process("writer");
    let env = writer.env();
    let store = || ObjectLogStore::new(&env, Arc::clone(&case.objects), false);
    let context = |database, epoch| LogContext { database, ..case.context(&writer, epoch) };
    // Of the first, one log that a record names and one that was left behind; of the second one.
    let mut named = None;
    for (database, epoch) in [(7, 1), (7, 2), (8, 1)] {
        let log = env.block_on(store().open(&context(database, epoch), 1)).expect("opened");
        append(&env, &*log, 0, &entry(1, 10)).expect("appended");
        named = named.or_else(|| case.record());
    }
    let names = || {
        let listed = env
            .block_on(case.objects.list(Request::new(Purpose::Collection, crate::Epoch::NONE), "", None, 100))
            .expect("listed");
        listed.objects.into_iter().map(|info| (info.name.to_string(), info.length)).collect::<Vec<_>>()
    };
    let of = |database: u64| {
        names()
            .into_iter()
            .filter(|(name, _)| name.starts_with(&format!("{database:016x}/")))
            .collect::<Vec<_>>()
    };
    let others = of(8);
    env.block_on(store().fence(&context(7, 3), &named.expect("named"), LogOffset::ZERO)).expect("fenced");
    assert!(of(7).len() >= 5 && others.len() >= 2, "{:?}", names());
    env.block_on(store().clear(&context(7, 3))).expect("cleared");
    assert!(
        of(7).iter().all(|(_, length)| *length == SEAL_BYTES as u64) && !of(7).is_empty(),
        "seals stay, and nothing else: {:?}",
        of(7)
    );
    assert_eq!(of(8), others);
}
