use std::path::Path;

use tombolo_env::simulated::{OperationKind, Process, World};
use tombolo_format::trace::{EventBlock, FrameKind, Header, TRACE_FRAME_BYTES, TraceFrame, decode_name};

use super::*;

fn names() -> NameOf {
    Box::new(|id| (id == 7).then(|| "orders".to_owned()))
}

type Pair = (Vec<u8>, Vec<u8>);

/// All frames of a file, checked, and the events of all blocks as (key, value).
fn read(env: &Env, path: &Path) -> (Vec<FrameKind>, Vec<Pair>) {
    let file = env.files().open(path, tombolo_env::Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    tombolo_env::file::read_exact_at(&*file, &mut bytes, 0).unwrap();
    let (mut at, mut kinds, mut events) = (0, Vec::new(), Vec::new());
    while at < bytes.len() {
        let head = TraceFrame::decode(&bytes[at..]).unwrap();
        let payload = &bytes[at + TRACE_FRAME_BYTES..][..head.payload_bytes as usize];
        head.check(payload).unwrap();
        match head.kind {
            FrameKind::Header => assert!(Header::decode(payload).unwrap().sampled_one_in > 0),
            FrameKind::Name => assert_eq!(decode_name(payload).unwrap(), (7, "orders".to_owned())),
            FrameKind::Events => {
                let mut block = EventBlock::default();
                block.decode(&head, payload).unwrap();
                events.extend(block.iter().map(|event| (event.key.to_vec(), event.value.to_vec())));
            }
            FrameKind::Index | FrameKind::End => {}
        }
        kinds.push(head.kind);
        at += TRACE_FRAME_BYTES + payload.len();
    }
    (kinds, events)
}

/// A key that compresses badly.
fn key_of(number: u32) -> [u8; 8] {
    mix64(number.into()).to_be_bytes()
}

fn put(recorder: &Arc<Recorder>, number: u32) {
    let key = key_of(number);
    if recorder.samples(&key) {
        let event = Event { value: b"value", ..Event::new(0, Asked::Put, 7, &key) };
        recorder.add(recorder.now(), &event);
    }
}

fn recorded(seed: u64, options: RecordOptions, puts: u32) -> (Process, RecordReport) {
    let world = World::new(seed);
    let process = world.process("recorded");
    let env = process.env();
    env.files().create_directories(Path::new("/t")).unwrap();
    let recorder = Recorder::begin(&env, options, names()).unwrap();
    for number in 0..puts {
        put(&recorder, number);
        if number % 100 == 0 {
            env.block_on(env.sleep(Duration::from_millis(1)));
        }
    }
    let report = recorder.end();
    (process, report)
}

#[test]
fn a_full_disk_ends_the_recording_and_nobody_fails() {
    let world = World::new(9);
    let process = world.process("recorded");
    let env = process.env();
    env.files().create_directories(Path::new("/t")).unwrap();
    process.host().set_capacity(Some(500_000));
    let recorder = Recorder::begin(&env, RecordOptions::new("/t/a"), names()).unwrap();
    for number in 0..200_000 {
        put(&recorder, number);
        if number % 100 == 0 {
            env.block_on(env.sleep(Duration::from_millis(1)));
        }
    }
    assert!(recorder.has_failed());
    let report = recorder.end();
    assert_eq!(report.ended.map(|error| error.kind()), Some(ErrorKind::OutOfSpace));
    assert_eq!(report.events + report.dropped, 200_000);
    assert!(report.events > 0);
}

#[test]
fn everything_is_in_the_file_and_nothing_comes_after_the_end() {
    let options = RecordOptions { values: true, ..RecordOptions::new("/t/a") };
    let (process, report) = recorded(1, options, 5000);
    assert_eq!((report.events, report.dropped, report.ended.is_none()), (5000, 0, true));
    let (kinds, events) = read(&process.env(), Path::new("/t/a"));
    assert_eq!(
        (kinds[0], kinds[1], *kinds.last().unwrap()),
        (FrameKind::Header, FrameKind::Name, FrameKind::End)
    );
    let expected: Vec<_> = (0..5000_u32).map(|number| (key_of(number).to_vec(), b"value".to_vec())).collect();
    assert_eq!(events, expected);
}

#[test]
fn keys_are_sampled_by_their_hash() {
    let options = RecordOptions { sampled_one_in: 8, ..RecordOptions::new("/t/a") };
    let (process, report) = recorded(2, options.clone(), 8000);
    assert!((700..1300).contains(&report.events), "{}", report.events);
    let (_, events) = read(&process.env(), Path::new("/t/a"));
    let (process, _) = recorded(3, options, 8000);
    assert_eq!(events, read(&process.env(), Path::new("/t/a")).1, "another recording samples the same keys");
}

#[test]
fn anonymised_keys_keep_their_order() {
    let options =
        RecordOptions { keys: RecordKeys::Anonymised, secret: Some(5), ..RecordOptions::new("/t/a") };
    let (process, _) = recorded(4, options, 600);
    let (_, events) = read(&process.env(), Path::new("/t/a"));
    assert!(events.iter().all(|(key, value)| key.len() == 16 && value.is_empty()));
    let mut by_key: Vec<u32> = (0..600).collect();
    by_key.sort_by_key(|number| key_of(*number));
    let mapped = by_key.iter().map(|number| &events[*number as usize].0);
    assert!(mapped.is_sorted());
}

#[test]
fn files_follow_each_other_and_the_oldest_goes() {
    let options = RecordOptions {
        values: true,
        file_bytes_max: Some(1 << 16),
        files_max: Some(2),
        ..RecordOptions::new("/t/a")
    };
    let (process, report) = recorded(5, options, 400_000);
    assert_eq!((report.events, report.ended.is_none()), (400_000, true));
    assert_eq!(report.files.len(), 2);
    let (_, events) = read(&process.env(), &report.files[1]);
    assert_eq!(events.last().unwrap().0, key_of(399_999));
    let listed = process.env().files().list_atomically(Path::new("/t")).unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
}

#[test]
fn a_bound_ends_the_recording_and_what_was_written_is_sound() {
    let options = RecordOptions { bytes_max: 1 << 16, ..RecordOptions::new("/t/a") };
    let (process, report) = recorded(6, options, 400_000);
    assert_eq!(report.ended.map(|error| error.kind()), Some(ErrorKind::OutOfSpace));
    assert_eq!(report.events + report.dropped, 400_000);
    let (kinds, events) = read(&process.env(), Path::new("/t/a"));
    assert_eq!((events.len() as u64, kinds.last()), (report.events, Some(&FrameKind::End)));
}

#[test]
fn what_is_not_written_in_time_is_dropped_and_counted() {
    let world = World::new(7);
    let process = world.process("recorded");
    let env = process.env();
    env.files().create_directories(Path::new("/t")).unwrap();
    let options = RecordOptions { memory_bytes_max: 100_000, ..RecordOptions::new("/t/a") };
    let recorder = Recorder::begin(&env, options, names()).unwrap();
    // Nothing runs in between: the task has no turn.
    (0..100_000).for_each(|number| put(&recorder, number));
    let report = recorder.end();
    assert!(report.dropped > 90_000, "{report:?}");
    assert_eq!(report.events + report.dropped, 100_000);
}

#[test]
fn a_file_that_is_there_is_not_written_over() {
    let (process, _) = recorded(8, RecordOptions::new("/t/a"), 1);
    let env = process.env();
    let again = Recorder::begin(&env, RecordOptions::new("/t/a"), names());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
    for wrong in [
        RecordOptions { sampled_one_in: 0, ..RecordOptions::new("/t/b") },
        RecordOptions { files_max: Some(2), ..RecordOptions::new("/t/b") },
        RecordOptions { bytes_max: 1, ..RecordOptions::new("/t/b") },
    ] {
        assert_eq!(Recorder::begin(&env, wrong, names()).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_panic_in_the_writer_ends_the_recording_and_nobody_else() {
    let world = World::new(10);
    let process = world.process("recorded");
    let env = process.env();
    env.files().create_directories(Path::new("/t")).unwrap();
    let names: NameOf = Box::new(|id| panic!("keyspace {id} has no name"));
    let recorder = Recorder::begin(&env, RecordOptions::new("/t/a"), names).unwrap();
    for number in 0..2000 {
        put(&recorder, number);
        if number % 100 == 0 {
            env.block_on(env.sleep(Duration::from_millis(1)));
        }
    }
    assert!(recorder.has_failed());
    let report = recorder.end();
    assert_eq!(report.ended.map(|error| error.kind()), Some(ErrorKind::Bug));
    assert_eq!((report.events, report.dropped), (0, 2000));
    assert_eq!(read(&env, Path::new("/t/a")).0.last(), Some(&FrameKind::End));
}

/// Records when its thread ends.
struct AtEnd(Arc<Recorder>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        put(&self.0, 2);
    }
}

thread_local! {
    static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

#[test]
fn a_thread_may_record_while_it_ends() {
    let process = World::new(11).process("recorded");
    let env = process.env();
    env.files().create_directories(Path::new("/t")).unwrap();
    for (path, before) in [("/t/a", true), ("/t/b", false)] {
        let recorder = Recorder::begin(&env, RecordOptions::new(path), names()).unwrap();
        let theirs = Arc::clone(&recorder);
        let thread = std::thread::spawn(move || {
            let holds = || AT_END.with(|at_end| *at_end.borrow_mut() = Some(AtEnd(Arc::clone(&theirs))));
            if before {
                holds();
            }
            put(&theirs, 1);
            holds();
        });
        assert!(thread.join().is_ok());
        let report = recorder.end();
        assert!((1..=3).contains(&report.events), "{report:?}");
    }
}

#[test]
fn a_write_that_failed_in_its_midst_leaves_nothing_behind_the_end() {
    for seed in 0..8 {
        let process = World::new(seed).process("recorded");
        let env = process.env();
        env.files().create_directories(Path::new("/t")).unwrap();
        let recorder = Recorder::begin(&env, RecordOptions::new("/t/a"), names()).unwrap();
        (0..5000).for_each(|number| put(&recorder, number));
        env.block_on(env.sleep(Duration::from_millis(1)));
        process.fail_next(OperationKind::Write, std::io::ErrorKind::StorageFull, 1);
        let report = recorder.end();
        assert_eq!(report.ended.map(|error| error.kind()), Some(ErrorKind::OutOfSpace));
        assert_eq!((report.events, report.dropped), (0, 5000));
        assert_eq!(read(&env, Path::new("/t/a")).0.last(), Some(&FrameKind::End));
    }
}

#[test]
fn a_recording_that_ends_late_does_not_end_the_next_one() {
    let process = World::new(12).process("recorded");
    let env = process.env();
    env.files().create_directories(Path::new("/t")).unwrap();
    let switch = Switch::default();
    let begin = |path: &str| switch.begin(|| Recorder::begin(&env, RecordOptions::new(path), names()));
    let first = begin("/t/a").unwrap();
    first.has_failed.store(true, Ordering::Relaxed);
    assert!(switch.is_on() && switch.any().is_none());
    assert_eq!(begin("/t/b").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(env.files().open(Path::new("/t/b"), tombolo_env::Access::Read).is_err());
    switch.end(&first);
    let second = begin("/t/b").unwrap();
    switch.end(&first);
    assert!(switch.is_on() && Arc::ptr_eq(&switch.any().unwrap(), &second));
    switch.end(&second);
    assert!(!switch.is_on() && switch.any().is_none());
}
