//! Recordings of a database: what its operations leave in the trace.

use tombolo::{Batch, Db, ErrorKind, KeyspaceOptions, RecordOptions};
use tombolo_format::trace::{Asked, Event, EventBlock, Found, FrameKind, TRACE_FRAME_BYTES, TraceFrame};

type Seen = (Asked, Vec<u8>, Found, u32, Vec<u8>, bool);

fn events(path: &std::path::Path) -> Vec<Seen> {
    each(path, |event| {
        let (key, value) = (event.key.to_vec(), event.value.to_vec());
        (event.asked, key, event.found, event.value_bytes, value, event.joined)
    })
}

fn each<T>(path: &std::path::Path, seen: impl Fn(&Event<'_>) -> T) -> Vec<T> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut all) = (0, Vec::new());
    while at < bytes.len() {
        let head = TraceFrame::decode(&bytes[at..]).unwrap();
        let payload = &bytes[at + TRACE_FRAME_BYTES..][..head.payload_bytes as usize];
        if head.kind == FrameKind::Events {
            let mut block = EventBlock::default();
            block.decode(&head, payload).unwrap();
            all.extend(block.iter().map(|event| seen(&event)));
        }
        at += TRACE_FRAME_BYTES + payload.len();
    }
    all
}

#[test]
fn operations_are_answered_as_before_and_stand_in_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    for with_values in [false, true] {
        let db = Db::builder(format!("mem://recorded-{with_values}")).open().wait().unwrap();
        let keyspace = db.default_keyspace();
        let path = folder.path().join(format!("{with_values}.trace"));
        let options = RecordOptions { values: with_values, ..RecordOptions::new(&path) };
        let recording = db.record(options.clone()).unwrap();
        assert_eq!(db.record(options).unwrap_err().kind(), ErrorKind::AlreadyExists);
        keyspace.put(b"a", b"five!").wait().unwrap();
        let long = vec![7; (1 << 20) + 1];
        keyspace.put(b"b", &long).wait().unwrap();
        assert_eq!(keyspace.get(b"a").wait().unwrap().unwrap(), b"five!"[..]);
        assert!(keyspace.get(b"c").wait().unwrap().is_none());
        let several = keyspace.multi_get(&[&b"c"[..], b"a"]).wait().unwrap();
        assert_eq!(several.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        let mut batch = Batch::new();
        batch.put(&keyspace, b"d", b"xy");
        batch.delete(&keyspace, b"a");
        db.write(batch).wait().unwrap();
        assert_eq!(recording.report().ended.map(|error| error.kind()), None);
        let report = recording.stop();
        assert_eq!((report.events, report.dropped), (8, 0));
        keyspace.put(b"e", b"nobody sees it").wait().unwrap();
        let value = |value: &[u8]| if with_values { value.to_vec() } else { Vec::new() };
        let of = |asked, key: &[u8], found, bytes, value, joined| {
            (asked, key.to_vec(), found, bytes, value, joined)
        };
        let (unknown, none) = (Found::Unknown, Vec::new);
        assert_eq!(
            events(&path),
            [
                of(Asked::Put, b"a", unknown, 5, value(b"five!"), false),
                // Too long a value is recorded by its size.
                of(Asked::Put, b"b", unknown, (1 << 20) + 1, none(), false),
                of(Asked::Get, b"a", Found::Yes, 5, none(), false),
                of(Asked::Get, b"c", Found::No, 0, none(), false),
                of(Asked::MultiGet, b"c", Found::No, 0, none(), false),
                of(Asked::MultiGet, b"a", Found::Yes, 5, none(), true),
                of(Asked::Put, b"d", unknown, 2, value(b"xy"), false),
                of(Asked::Delete, b"a", unknown, 0, none(), true),
            ]
        );
    }
}

#[test]
fn a_database_that_closes_while_it_is_recorded_leaves_a_whole_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("closed.trace");
    let db = Db::builder("mem://recorded-closed").open().wait().unwrap();
    let recording = db.record(RecordOptions::new(&path)).unwrap();
    db.default_keyspace().put(b"a", b"b").wait().unwrap();
    db.close().wait().unwrap();
    assert!(db.default_keyspace().put(b"a", b"c").wait().is_err());
    let report = recording.stop();
    assert_eq!((report.events, report.ended.is_none()), (1, true));
    assert_eq!(events(&path).len(), 1);
}

/// Operations of all streams, also of one that begins meanwhile, and none after the end.
#[test]
fn operations_of_streams_stand_in_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streams.trace");
    let db = Db::builder("mem://recorded-streams").open().wait().unwrap();
    let of_stream = |stream| KeyspaceOptions { stream, ..KeyspaceOptions::default() };
    let one = db.create_keyspace("one", of_stream(1)).wait().unwrap();
    let recording = db.record(RecordOptions::new(&path)).unwrap();
    let two = db.create_keyspace("two", of_stream(2)).wait().unwrap();
    one.put(b"a", b"v").wait().unwrap();
    two.put(b"b", b"v").wait().unwrap();
    db.default_keyspace().put(b"c", b"v").wait().unwrap();
    assert!(two.get(b"b").wait().unwrap().is_some());
    let mut batch = Batch::new();
    batch.put(&two, b"d", b"v");
    db.write(batch).wait().unwrap();
    let transaction = db.transaction();
    transaction.put(&one, b"e", b"v").wait().unwrap();
    transaction.commit().wait().unwrap();
    assert_eq!(recording.stop().events, 6);
    one.put(b"f", b"nobody sees it").wait().unwrap();
    let all: Vec<_> = events(&path).into_iter().map(|(asked, key, ..)| (asked, key)).collect();
    let of = |asked, key: &[u8]| (asked, key.to_vec());
    let (put, get) = (Asked::Put, Asked::Get);
    let wanted = [of(put, b"a"), of(put, b"b"), of(put, b"c"), of(get, b"b"), of(put, b"d"), of(put, b"e")];
    assert_eq!(all, wanted);
    // The next recording is of all of them again.
    let recording = db.record(RecordOptions::new(folder.path().join("again.trace"))).unwrap();
    one.put(b"a", b"v").wait().unwrap();
    two.put(b"a", b"v").wait().unwrap();
    assert_eq!(recording.stop().events, 2);
}

/// What a read asked of the cache stands in its event, whichever way it was read, and nothing of
/// what the thread read in between.
#[test]
fn reads_say_how_many_blocks_they_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("file://{}", folder.path().join("db").display());
    let key = |number: u32| format!("key-{number:05}");
    let db = Db::builder(&uri).open().wait().unwrap();
    for number in 0..2000 {
        db.default_keyspace().put(key(number), [7; 100]).wait().unwrap();
    }
    db.compact().wait().unwrap();
    db.close().wait().unwrap();
    let db = Db::builder(&uri).open().wait().unwrap();
    let keyspace = db.default_keyspace();
    let path = folder.path().join("blocks.trace");
    let recording = db.record(RecordOptions::new(&path)).unwrap();
    // Nothing lies in memory; then it does.
    for _ in 0..2 {
        keyspace.get(key(1)).wait().unwrap().unwrap();
    }
    tombolo::Env::real().block_on(async { keyspace.get(key(1000)).await }).unwrap().unwrap();
    keyspace.get(key(1000)).wait().unwrap().unwrap();
    // Far from one another, the last in a block that is there: it is asked for again when the
    // others have come.
    keyspace.multi_get(&[key(500), key(1500), key(1)]).wait().unwrap();
    assert!(keyspace.get(b"none").wait().unwrap().is_none());
    assert_eq!(recording.stop().dropped, 0);
    assert_eq!(
        each(&path, |event| (event.blocks_read, event.blocks_hit)),
        [(1, 0), (0, 1), (1, 0), (0, 1), (2, 2), (0, 0), (0, 0), (0, 0)]
    );
}
