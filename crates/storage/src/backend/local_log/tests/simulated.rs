//! Crashes, power losses, stale writers, failing syncs and full disks, in simulated worlds.

use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::simulated::{Action, Crash, Fault, Operation, OperationKind, World};
use tombolo_env::{FileSystemKind, TaskClass};

use super::harness::{Case, FORMS, Plan, RESTING, ROLLING, SHORT, read};
use crate::backend::local_log::Form;
use crate::backend::memory::MemoryObjectStore;
use crate::conformance::log::{LogSubject, append, check_log_store, entry};
use crate::{ErrorKind, LogEntry, LogOffset, LogStore, Result};

#[test]
fn the_log_keeps_its_promises_in_simulated_worlds() {
    for form in FORMS {
        for seed in 0..4 {
            let case = Case::new(seed, form);
            let process = case.world.process("conformance");
            let env = process.env();
            let objects = Arc::new(MemoryObjectStore::unnamed(&env));
            check_log_store(&LogSubject { store: Arc::new(case.store(&process)), env, objects });
        }
    }
}

#[test]
fn nothing_is_made_in_a_log_that_was_closed() {
    for form in FORMS {
        let mut made_while_closing = 0;
        for seed in 0..60 {
            let case = Case::new(seed, form);
            // A quarter of a segment is full, of the first or of the second: the last append has
            // one made ahead, or the one before did.
            let entries = [2, 3, 4, 10, 11, 12][usize::try_from(seed).unwrap() % 6];
            let plan = Plan { entries, sync_every: 0, ..ROLLING };
            let writer = case.world.process("writer");
            let env = writer.env();
            let made = note(&case.world, |operation| operation.kind == OperationKind::CreateNew);
            let noted = Arc::clone(&made);
            let (closing, inside) = (case.clone(), writer.clone());
            let names = move || {
                let mut names: Vec<_> = env
                    .files()
                    .list_atomically(&Case::directory(1))
                    .unwrap()
                    .into_iter()
                    .map(|file| file.name)
                    .collect();
                names.sort();
                names
            };
            let (before, after) = writer
                .run(async move {
                    let (store, context) = (closing.store(&inside), closing.context(&inside, 1));
                    let log = store.open(&context, 1).await.unwrap();
                    closing.write_to(&inside, &*log, plan).await.unwrap();
                    let before = noted.lock().len();
                    log.close().await.unwrap();
                    let after = names();
                    inside.sleep(std::time::Duration::from_secs(1)).await;
                    assert_eq!(names(), after, "{form:?}, seed {seed}: made after the close");
                    assert_eq!(log.append(0, &entry(99, 8)).unwrap_err().kind(), ErrorKind::Closed);
                    (before, after)
                })
                .expect("nobody ends the writer");
            assert!(
                after.len() <= 3,
                "{form:?}, seed {seed}: what was made ahead stays beside two segments and the control page: \
                {after:?}"
            );
            made_while_closing += u32::from(before < made.lock().len());
        }
        assert!(made_while_closing > 0, "{form:?}: no close met a segment that was being made");
    }
}

/// Notes the operations of a world that match.
pub(super) fn note(
    world: &World,
    matching: impl Fn(&Operation) -> bool + Send + 'static,
) -> Arc<Mutex<Vec<Operation>>> {
    let noted: Arc<Mutex<Vec<Operation>>> = Arc::default();
    let notes = Arc::clone(&noted);
    let never = Fault::new(Action::Stall(std::time::Duration::ZERO), move |operation| {
        if matching(operation) {
            notes.lock().push(operation.clone());
        }
        false
    });
    world.inject(never.always());
    noted
}

/// Operations of a writer that nobody disturbs.
fn operations(form: Form, plan: Plan) -> u64 {
    let operations = [0, 1].map(|seed| {
        let case = Case::of(seed, form, plan);
        let writer = case.world.process("writer");
        writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
        assert_eq!(case.told.lock().accepted, plan.entries);
        writer.operations()
    });
    operations.into_iter().max().unwrap_or(0)
}

/// Ends the writer at operation `number`, recovers, and checks what must be there. Returns the
/// violation.
pub(super) fn crash_at(
    seed: u64,
    form: Form,
    plan: Plan,
    number: u64,
    crash: Crash,
) -> std::result::Result<(), String> {
    let case = Case::of(seed, form, plan);
    let writer = case.world.process("writer");
    writer.crash_at(number, crash);
    let _ = writer.run(case.clone().write(writer.clone(), plan));
    if writer.is_alive() {
        writer.kill();
    }
    let told = case.told.lock().clone();
    // Before anybody fences: all that was acknowledged, and nothing that the fence takes back.
    let followed = case.follow(crash)?;
    match case.recover(2) {
        None if told.accepted == 0 => Ok(()),
        None => Err("acknowledged before the log was named".into()),
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok((sealed, read))) => {
            case.check(
                &read,
                plan.payload_bytes,
                if crash == Crash::Kill { told.accepted } else { told.durable },
            )?;
            if let Some(followed) = followed {
                case.check(&followed, plan.payload_bytes, told.durable)
                    .map_err(|violation| format!("a follower: {violation}"))?;
                let (shown, found) = (followed.last(), read.last());
                if shown.map(|entry| entry.first_sequence) > found.map(|entry| entry.first_sequence) {
                    return Err(format!("a follower was shown {shown:?}, and a fence finds {found:?} last"));
                }
            }
            // Once sealed it is durable, whatever happens next.
            case.world.host(0).power_loss();
            match case.recover(3) {
                Some(Ok((again, _))) if again < sealed => Err(format!("sealed at {sealed}, then at {again}")),
                Some(Ok((_, later))) if later.len() < read.len() => Err("less after the second fence".into()),
                Some(Ok((_, later))) => case.check(&later, plan.payload_bytes, 0),
                Some(Err(error)) => Err(format!("after a power loss behind the fence: {error}")),
                None => Err("the log is named no more".into()),
            }
        }
    }
}

fn crash_everywhere(crash: Crash, plan: Plan, seeds: u64) {
    for form in FORMS {
        let last = operations(form, plan);
        for number in moments(form).take_while(|number| *number <= last) {
            for seed in 0..seeds {
                if let Err(violation) = crash_at(number * 31 + seed, form, plan, number, crash) {
                    panic!(
                        "{form:?}, {crash:?} at operation {number}, seed {}: {violation}",
                        number * 31 + seed
                    );
                }
            }
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_accepted() {
    crash_everywhere(Crash::Kill, SHORT, 1);
    crash_everywhere(Crash::Kill, ROLLING, 1);
    crash_everywhere(Crash::Kill, RESTING, 1);
}

fn is_deep() -> bool {
    std::env::var_os("TOMBOLO_DEEP").is_some()
}

/// One seed of each moment; in a deep run so many.
fn seeds(many: u64) -> u64 {
    if is_deep() { many } else { 1 }
}

/// Every second moment, odd for one form of the log and even for the other; in a deep run all.
fn moments(form: Form) -> std::iter::StepBy<std::ops::RangeFrom<u64>> {
    match is_deep() {
        true => (1..).step_by(1),
        false => (if form == FORMS[0] { 1 } else { 2 }..).step_by(2),
    }
}

#[test]
fn a_power_loss_anywhere_loses_nothing_durable() {
    crash_everywhere(Crash::PowerLoss, SHORT, seeds(3));
    crash_everywhere(Crash::PowerLoss, ROLLING, seeds(2));
    crash_everywhere(Crash::PowerLoss, RESTING, seeds(2));
}

type Taken = Arc<Mutex<Option<Option<Result<(LogOffset, Vec<LogEntry>)>>>>>;

/// A successor takes over while the writer stands before its operation `number`; then the writer
/// goes on. `None`: the writer has fewer operations.
pub(super) fn fence_at(
    seed: u64,
    form: Form,
    plan: Plan,
    number: u64,
) -> Option<std::result::Result<(), String>> {
    let case = Case::of(seed, form, plan);
    let writer = case.world.process("writer");
    let taken: Taken = Arc::default();
    {
        let (case, taken) = (case.clone(), Arc::clone(&taken));
        writer.call_at(number, move |world: &World| {
            let successor = world.process("successor");
            *taken.lock() = successor.run(case.clone().take_over(successor.clone(), 2));
        });
    }
    writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
    let told = case.told.lock().clone();
    let taken = taken.lock().take()?;
    Some(match taken {
        // Before the log was named: the chain would have refused the writer.
        None => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok((_, read))) => case.check(&read, plan.payload_bytes, told.accepted),
    })
}

#[test]
fn a_writer_paused_anywhere_acknowledges_nothing_beyond_the_seal() {
    for form in FORMS {
        for (plan, seeds) in [(SHORT, 4), (Plan { trim_every: 0, ..ROLLING }, 2), (RESTING, 2)] {
            for seed in 0..self::seeds(seeds) {
                let mut last = 0;
                for number in moments(form) {
                    let Some(verdict) = fence_at(seed, form, plan, number) else { break };
                    if let Err(violation) = verdict {
                        panic!(
                            "{form:?}, fenced at operation {number} of the writer, seed {seed}: {violation}"
                        );
                    }
                    last = number;
                }
                assert!(last > 20, "the writer was interrupted up to its operation {last} only");
            }
        }
    }
}

/// The writer goes on while the fencer stands before its operation `number`.
pub(super) fn write_at(seed: u64, form: Form, number: u64) -> Option<std::result::Result<(), String>> {
    let case = Case::new(seed, form);
    let writer = case.world.process("writer");
    let log = {
        let (case, writer) = (case.clone(), writer.clone());
        let context = case.context(&writer, 1);
        let opened = writer.clone().run(async move { case.store(&writer).open(&context, 1).await });
        opened.expect("nobody ends the writer").expect("opening")
    };
    for number in 0..3 {
        append(&writer, &*log, 0, &entry(number, 300)).expect("appending");
    }
    case.told.lock().accepted = 3;
    // Nothing of the writer may stand still below the fencer when it is to go on.
    case.world.run_until_idle();
    let fencer = case.world.process("fencer");
    let hit = Arc::new(Mutex::new(false));
    {
        let (case, writer, log, hit) = (case.clone(), writer.clone(), Arc::clone(&log), Arc::clone(&hit));
        fencer.call_at(number, move |_: &World| {
            *hit.lock() = true;
            // As a task of the writer, so that its stores are its own.
            let (case, process, log) = (case.clone(), writer.clone(), Arc::clone(&log));
            writer.run(async move {
                for number in 3..6 {
                    match log.append(0, &entry(number, 300)) {
                        Ok(_) if process.is_alive() => case.told.lock().accepted = number + 1,
                        _ => return,
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
        Ok((_, read)) => case.check(&read, 300, told.accepted),
    })
}

#[test]
fn a_fencer_paused_anywhere_misses_nothing_acknowledged() {
    for form in FORMS {
        for seed in 0..8 {
            let mut number = 1;
            while let Some(verdict) = write_at(seed, form, number) {
                if let Err(violation) = verdict {
                    panic!(
                        "{form:?}, the writer went on at operation {number} of the fencer, seed {seed}: \
                        {violation}"
                    );
                }
                number += 1;
            }
            assert!(number > 8);
        }
    }
}

/// Writer and fencer side by side, interleaved by chance at every step.
pub(super) fn race(seed: u64, form: Form) -> std::result::Result<(), String> {
    let case = Case::new(seed, form);
    case.world.set_preemption_probability(0.5);
    let writer = case.world.process("writer");
    let plan =
        Plan { entries: 30, payload_bytes: 700, sync_every: 2, trim_every: 0, close: false, rests: false };
    writer.spawn(TaskClass::Foreground, "writer", case.clone().write(writer.clone(), plan)).detach();
    if seed.is_multiple_of(3) {
        writer.fail_next(OperationKind::Sync, std::io::ErrorKind::Other, 1 + seed % 2);
    }
    let fencer = case.world.process("fencer");
    let taken = fencer.run({
        let (case, fencer) = (case.clone(), fencer.clone());
        async move {
            let entries = fencer.random_u64() % plan.entries;
            while case.told.lock().accepted < entries && case.told.lock().error.is_none() {
                fencer.sleep(std::time::Duration::from_micros(1)).await;
            }
            case.take_over(fencer.clone(), 2).await
        }
    });
    case.world.run_until_idle();
    let told = case.told.lock().clone();
    match taken.expect("nobody ends the fencer") {
        None => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok((_, read))) => case.check(&read, plan.payload_bytes, told.accepted.max(told.durable)),
    }
}

#[test]
fn a_writer_and_a_fencer_interleaved_by_chance_agree() {
    for form in FORMS {
        for seed in 0..300 {
            if let Err(violation) = race(seed, form) {
                panic!("{form:?}, seed {seed}: {violation}");
            }
        }
    }
}

/// Syncs fail now and then; the power goes at operation `number`.
pub(super) fn failing_syncs(
    seed: u64,
    form: Form,
    number: u64,
    failures: u64,
) -> std::result::Result<(), String> {
    let case = Case::new(seed, form);
    let writer = case.world.process("writer");
    let id = writer.id();
    for skip in 0..failures {
        // Not the syncs of segments in the making: those are the making's error.
        let failing = Fault::new(Action::Fail(std::io::ErrorKind::Other), move |operation| {
            operation.process == id && operation.kind == OperationKind::Sync && operation.number > 40
        });
        case.world.inject(failing.after(seed % 5 + 3 * skip));
    }
    writer.crash_at(number, Crash::PowerLoss);
    let plan = Plan { close: true, ..ROLLING };
    let _ = writer.run(case.clone().write(writer.clone(), plan));
    if writer.is_alive() {
        case.world.host(0).power_loss();
    }
    let told = case.told.lock().clone();
    match case.recover(2) {
        None => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok((_, read))) => case.check(&read, plan.payload_bytes, told.durable),
    }
}

#[test]
fn failed_syncs_lose_nothing_durable() {
    for form in FORMS {
        for number in (40..400).step_by(3) {
            for failures in 1..=3 {
                if let Err(violation) = failing_syncs(number, form, number, failures) {
                    panic!(
                        "{form:?}, {failures} syncs failed, power loss at operation {number}: {violation}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_failed_sync_moves_the_unsynced_bytes_and_the_writer_goes_on() {
    for form in FORMS {
        let case = Case::new(5, form);
        let writer = case.world.process("writer");
        let context = case.context(&writer, 1);
        let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
        let mut end = LogOffset::ZERO;
        for number in 0..5 {
            end = append(&writer, &*log, 0, &entry(number, 200)).expect("appending");
        }
        writer.fail_next(OperationKind::Sync, std::io::ErrorKind::Other, 1);
        log.sync(0, end).expect("the second sync, of the new segment");
        assert!(
            log.durable_through(0) > end && log.durable_through(0).segment() > end.segment(),
            "the lane goes on in a new segment"
        );
        for number in 5..9 {
            end = append(&writer, &*log, 0, &entry(number, 200)).expect("appending");
        }
        log.sync(0, end).expect("a sync");
        case.world.host(0).power_loss();
        let (_, read) = case.recover(2).expect("named").expect("recovering");
        case.check(&read, 200, 9).unwrap();
        // A replay point in the bytes that moved: some entries come again, none is missing.
        case.told.lock().replay = Some((LogOffset::new(1, 4096 + 2 * 264), 2));
        let (_, read) = case.recover(3).expect("named").expect("recovering");
        case.check(&read, 200, 9).unwrap();
    }
}

#[test]
fn a_disk_that_fails_for_good_is_an_error_and_no_hang() {
    for form in FORMS {
        let case = Case::new(6, form);
        let writer = case.world.process("writer");
        let context = case.context(&writer, 1);
        let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
        let end = append(&writer, &*log, 0, &entry(0, 200)).expect("appending");
        writer.fail_next(OperationKind::Sync, std::io::ErrorKind::Other, u64::MAX);
        let ticket = log.durable(0, end);
        let error = writer.block_on(ticket).expect("an answer").expect_err("no sync succeeds");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(log.sync(0, end).expect_err("no sync succeeds").kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(
            log.append(0, &entry(1, 200)).expect_err("the lane has ended").kind(),
            ErrorKind::OutcomeUnknown
        );
        assert!(log.durable_through(0) < end);
    }
}

/// The writer's sync fails, which marks the pages clean, and it dies before it can move the bytes;
/// then fence, power loss, fence.
pub(super) fn sync_error_that_only_the_writer_saw(form: Form) -> std::result::Result<(), String> {
    let case = Case::new(7, form);
    let writer = case.world.process("writer");
    let context = case.context(&writer, 1);
    let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
    let mut end = LogOffset::ZERO;
    for number in 0..4 {
        end = append(&writer, &*log, 0, &entry(number, 200)).expect("appending");
    }
    let id = writer.id();
    let first = Case::directory(1).join("00000001");
    let is_sync = move |operation: &Operation| {
        operation.process == id && operation.kind == OperationKind::Sync && operation.path == first
    };
    case.world.run_until_idle();
    case.world.inject(Fault::new(Action::Fail(std::io::ErrorKind::Other), is_sync));
    // The operation after the failed sync; a kill there is that of the whole process.
    let doomed = writer.clone();
    let next = writer.operations() + 2;
    case.world.inject(Fault::new(Action::Call(Box::new(move |_: &World| doomed.kill())), move |operation| {
        operation.process == id && operation.number == next
    }));
    let _ = writer.run({
        let log = Arc::clone(&log);
        async move { log.durable(0, end).await }
    });
    assert!(!writer.is_alive());
    for epoch in [2, 3] {
        let (_, read) = case.recover(epoch).expect("named").map_err(|error| error.to_string())?;
        case.check(&read, 200, 4)?;
        case.world.host(0).power_loss();
    }
    Ok(())
}

#[test]
fn what_a_fence_sealed_outlives_a_sync_error_that_only_the_writer_saw() {
    for form in FORMS {
        sync_error_that_only_the_writer_saw(form).unwrap();
    }
}

/// A successor has raised the word and looks at the log when the writer's sync fails: the bytes are
/// not moved, and no later sync, which the kernel answers with success, makes them durable.
#[test]
fn a_sync_after_one_that_failed_beside_a_fence_acknowledges_nothing() {
    for form in FORMS {
        let case = Case::new(8, form);
        let writer = case.world.process("writer");
        let context = case.context(&writer, 1);
        let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
        let ends: Vec<LogOffset> =
            (0..2).map(|number| append(&writer, &*log, 0, &entry(number, 200)).expect("appending")).collect();
        case.world.run_until_idle();
        let fencer = case.world.process("successor");
        let (writer_id, fencer_id) = (writer.id(), fencer.id());
        let first = Case::directory(1).join("00000001");
        let looks = {
            let first = first.clone();
            move |operation: &Operation| operation.process == fencer_id && operation.path == first
        };
        let told = Arc::new(Mutex::new(Vec::new()));
        let meanwhile = {
            let told = Arc::clone(&told);
            move |world: &World| {
                let first = first.clone();
                let is_sync = move |operation: &Operation| {
                    operation.process == writer_id
                        && operation.kind == OperationKind::Sync
                        && operation.path == first
                };
                world.inject(Fault::new(Action::Fail(std::io::ErrorKind::Other), is_sync));
                for end in &ends {
                    told.lock().push(
                        world
                            .run_until(log.durable(0, *end))
                            .expect("an answer")
                            .map_err(|error| error.kind()),
                    );
                }
                assert!(log.durable_through(0) < ends[0]);
            }
        };
        case.world.inject(Fault::new(Action::Call(Box::new(meanwhile)), looks));
        let taken = fencer
            .run(case.clone().take_over(fencer.clone(), 2))
            .expect("nobody ends the successor")
            .expect("named");
        let (_, read) = taken.expect("taking over");
        assert_eq!(*told.lock(), [Err(ErrorKind::Fenced), Err(ErrorKind::Fenced)], "{form:?}");
        case.check(&read, 200, 2).unwrap();
        case.world.host(0).power_loss();
        let (_, read) = case.recover(3).expect("named").expect("recovering");
        case.check(&read, 200, 2).unwrap();
    }
}

/// The next segment's header may have got in, though storing it failed, and the segment may stay:
/// what follows must be found all the same.
#[test]
fn a_segment_that_was_not_begun_cuts_nothing_off() {
    for seed in 0..16 {
        let case = Case::new(seed, Form::Written);
        let writer = case.world.process("writer");
        let context = case.context(&writer, 1);
        let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
        for number in 0..6 {
            append(&writer, &*log, 0, &entry(number, 900)).expect("appending");
        }
        case.world.run_until_idle();
        let (id, second) = (writer.id(), Case::directory(1).join("00000002"));
        for kind in [OperationKind::Write, OperationKind::RemoveFile] {
            let second = second.clone();
            let hits = move |operation: &Operation| {
                operation.process == id && operation.kind == kind && operation.path == second
            };
            case.world.inject(Fault::new(Action::Fail(std::io::ErrorKind::Other), hits));
        }
        append(&writer, &*log, 0, &entry(6, 3000)).expect_err("the next segment cannot be begun");
        let end = append(&writer, &*log, 0, &entry(6, 900)).expect("there is room in this one");
        writer.block_on(log.durable(0, end)).expect("an answer").expect("syncing");
        case.world.clear_faults();
        case.world.host(0).power_loss();
        let (_, read) = case.recover(2).expect("named").expect("recovering");
        case.check(&read, 900, 7).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_room() {
    for (form, seed) in FORMS.into_iter().flat_map(|form| [(form, 8), (form, 9)]) {
        let case = Case::new(seed, form);
        let writer = case.world.process("writer");
        let context = case.context(&writer, 1);
        let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
        let host = case.world.host(0);
        host.set_capacity(Some(host.used() + 8192));
        let mut number = 0;
        let error = loop {
            match append(&writer, &*log, 0, &entry(number, 900)) {
                Ok(end) => {
                    log.sync(0, end).expect("a full disk syncs what it has");
                    number += 1;
                }
                Err(error) => break error,
            }
            assert!(number < 100, "a full disk takes no end of appends");
        };
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_eq!(
            append(&writer, &*log, 0, &entry(number, 900)).expect_err("still full").kind(),
            ErrorKind::OutOfSpace
        );
        host.set_capacity(None);
        for _ in 0..20 {
            append(&writer, &*log, 0, &entry(number, 900)).expect("there is room again");
            number += 1;
        }
        let (_, read) = case.recover(2).expect("named").expect("recovering");
        case.check(&read, 900, number).unwrap();
        // A database that cannot even begin its log leaves nothing behind.
        let case = Case::new(9, form);
        let writer = case.world.process("writer");
        case.world.host(0).set_capacity(Some(6000));
        let context = case.context(&writer, 1);
        let error = writer.block_on(case.store(&writer).open(&context, 1)).expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_eq!(case.world.host(0).all_files(), []);
    }
}

#[test]
fn recycled_segments_do_not_bring_old_frames_back() {
    for (form, seed) in FORMS.into_iter().flat_map(|form| [(form, 10), (form, 11)]) {
        let case = Case::new(seed, form);
        let writer = case.world.process("writer");
        let plan = Plan { entries: 150, ..ROLLING };
        writer.run(case.clone().write(writer.clone(), plan)).expect("nobody ends the writer");
        let segments = case
            .world
            .host(0)
            .all_files()
            .into_iter()
            .filter(|(path, _)| path.starts_with(Case::directory(1)))
            .count();
        assert!(segments <= 6, "trimmed segments are used again or deleted: {segments} files");
        let (sealed, read) = case.recover(2).expect("named").expect("recovering");
        assert!(sealed.segment() > 6, "many segments were used: {sealed}");
        case.check(&read, plan.payload_bytes, plan.entries).unwrap();
    }
}

#[test]
fn garbage_of_dead_epochs_is_collected_and_what_is_named_stays() {
    let case = Case::new(11, Form::Mapped);
    let writer = case.world.process("writer");
    let store = case.store(&writer);
    let first = case.context(&writer, 1);
    let _log = writer.block_on(store.open(&first, 2)).expect("opening");
    let unnamed = case.chain.clone();
    let record = case.record(1).expect("named");
    let lane_1 = crate::ConfigurationChain::named(&*unnamed)
        .into_iter()
        .find(|record| record.id.lane == 1)
        .expect("named");
    unnamed.unname(&lane_1);
    let second = case.context(&writer, 2);
    let _log = writer.block_on(store.open(&second, 1)).expect("opening");
    let directories: Vec<String> = case
        .world
        .host(0)
        .all_files()
        .into_iter()
        .filter_map(|(path, _)| Some(path.parent()?.file_name()?.to_str()?.to_owned()))
        .collect();
    assert!(directories.iter().any(|name| name == "0000000000000001-0000"), "{directories:?}");
    assert!(!directories.iter().any(|name| name == "0000000000000001-0001"), "{directories:?}");
    let entries = writer
        .block_on(read(&store, &second, &record, LogOffset::ZERO, LogOffset::new(1, 4096)))
        .expect("reading");
    assert_eq!(entries, []);
}

#[test]
fn a_network_file_system_is_refused_unless_one_host_alone_uses_it() {
    let mut case = Case::new(12, Form::Mapped);
    case.world.host(0).set_kind(tombolo_env::FileSystemKind::Network("nfs".into()));
    let writer = case.world.process("writer");
    let context = case.context(&writer, 1);
    let error = writer.block_on(case.store(&writer).open(&context, 1)).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    case.options.single_host = true;
    writer.block_on(case.store(&writer).open(&context, 1)).expect("the user vouches");
}

/// On a full disk that copies on write, a store through a mapping kills the process.
#[test]
fn the_default_form_is_written_where_the_file_system_copies_on_write() {
    for (kind, parameters, form) in [
        (FileSystemKind::Local, "", "(mapped)"),
        (FileSystemKind::CopyOnWrite("btrfs".into()), "", "(written)"),
        (FileSystemKind::CopyOnWrite("btrfs".into()), "?form=mapped", "(mapped)"),
        (FileSystemKind::Local, "?form=written", "(written)"),
    ] {
        let world = World::new(1);
        world.host(0).set_kind(kind.clone());
        let process = world.process("opener");
        let env = process.env();
        let objects: Arc<dyn crate::ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let uri = crate::Uri::parse(&format!("file:///data/not/there/yet{parameters}")).expect("a URI");
        let survival = process
            .run(async move {
                let store =
                    crate::Registry::default().open_log_store(&env, &uri, None, &objects).expect("a log");
                store.survival()
            })
            .expect("nobody ends it");
        assert!(survival.store.ends_with(form), "{kind:?}{parameters}: {}", survival.store);
        let is_risky = kind != FileSystemKind::Local && form == "(mapped)";
        assert_eq!(
            survival.notes.iter().any(|note| note.contains("copies on write")),
            is_risky,
            "{kind:?}{parameters}"
        );
    }
}
