//! Cursors against an ordered map, in every shape that a keyspace takes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::pin::Pin;

use futures_core::Stream;
use proptest::prelude::*;
use tombolo::{
    Cursor, Db, Durability, Keyspace, KeyspaceOptions, Options, Registry, Scan, ScanStream, Snapshot,
};
use tombolo_env::simulated::World;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy, Debug)]
enum Change {
    Put(u8, u8),
    Delete(u8),
    /// Puts one key many times.
    Hammer(u8, u8),
    Flush,
    Compact,
    Snapshot,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Next,
    Prev,
    Seek(u8),
    SeekForPrev(u8),
    First,
    Last,
    Refresh,
}

const KEYS: u8 = 60;

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        20 => (0..KEYS, any::<u8>()).prop_map(|(key, value)| Change::Put(key, value)),
        6 => (0..KEYS).prop_map(Change::Delete),
        2 => (0..KEYS, any::<u8>()).prop_map(|(key, value)| Change::Hammer(key, value)),
        2 => Just(Change::Flush),
        1 => Just(Change::Compact),
        2 => Just(Change::Snapshot),
    ]
}

fn a_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => Just(Move::Next),
        8 => Just(Move::Prev),
        2 => (0..KEYS).prop_map(Move::Seek),
        2 => (0..KEYS).prop_map(Move::SeekForPrev),
        1 => Just(Move::First),
        1 => Just(Move::Last),
        1 => Just(Move::Refresh),
    ]
}

fn bound() -> impl Strategy<Value = Bound<u8>> {
    prop_oneof![
        2 => Just(Bound::Unbounded),
        1 => (0..KEYS).prop_map(Bound::Included),
        1 => (0..KEYS).prop_map(Bound::Excluded)
    ]
}

/// Keys of several lengths: some tie in many bytes, some are prefixes of others.
fn key_of(key: u8) -> Vec<u8> {
    match key % 3 {
        0 => vec![key],
        1 => format!("a common prefix of all/{key:03}").into_bytes(),
        _ => format!("a common prefix of all/{:03}/{key}", key / 4).into_bytes(),
    }
}

fn value_of(value: u8) -> Vec<u8> {
    vec![value; if value.is_multiple_of(32) { 5000 } else { usize::from(value) / 2 }]
}

struct Run {
    db: Db,
    keyspace: Keyspace,
    model: Map,
    snapshots: Vec<(Snapshot, Map)>,
}

impl Run {
    fn open(world: &World, uri: &str) -> Run {
        let mut options = Options::parse(["memory_bytes=1048576", "memtable_bytes=16384"]).unwrap();
        options.automatic_compaction = false;
        let builder = Db::builder(uri)
            .env(world.process("user").env())
            .registry(Registry::with_defaults())
            .options(options);
        let db = builder.open().wait().unwrap();
        let options = KeyspaceOptions { block_bytes: Some(1024), ..KeyspaceOptions::default() };
        let keyspace = db.create_keyspace("walked", options).wait().unwrap();
        Run { db, keyspace, model: Map::new(), snapshots: Vec::new() }
    }

    fn put(&mut self, key: u8, value: u8) {
        self.keyspace.put_with(key_of(key), value_of(value), Durability::Accepted).wait().unwrap();
        self.model.insert(key_of(key), value_of(value));
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Put(key, value) => self.put(key, value),
            Change::Delete(key) => {
                self.keyspace.delete_with(key_of(key), Durability::Accepted).wait().unwrap();
                self.model.remove(&key_of(key));
            }
            Change::Hammer(key, value) => (0..40).for_each(|again| self.put(key, value.wrapping_add(again))),
            Change::Flush => self.db.flush().wait().unwrap(),
            Change::Compact => self.db.compact().wait().unwrap(),
            Change::Snapshot => self.snapshots.push((self.db.snapshot(), self.model.clone())),
        }
    }
}

/// What the map says.
struct Expected<'a> {
    entries: Vec<(&'a [u8], &'a [u8])>,
    place: Place,
}

/// Where a cursor stands among the entries: at one, or in the gap before one.
#[derive(Clone, Copy, Debug)]
enum Place {
    At(usize),
    Gap(usize),
}

impl<'a> Expected<'a> {
    fn new(model: &'a Map, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Expected<'a> {
        use std::ops::RangeBounds;
        let range = (lower.clone(), upper.clone());
        let entries = model
            .iter()
            .filter(|(key, _)| range.contains(*key))
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        Expected { entries, place: Place::Gap(0) }
    }

    fn go(&mut self, index: Option<usize>, otherwise: usize) {
        self.place = match index {
            Some(index) if index < self.entries.len() => Place::At(index),
            _ => Place::Gap(otherwise),
        };
    }

    fn take(&mut self, step: &Move) {
        let end = self.entries.len();
        let from = |key: u8| self.entries.partition_point(|entry| *entry.0 < *key_of(key));
        let after = |key: u8| self.entries.partition_point(|entry| *entry.0 <= *key_of(key));
        match (step, self.place) {
            (Move::Next, Place::At(index)) => self.go(Some(index + 1), end),
            (Move::Next, Place::Gap(index)) => self.go(Some(index), end),
            (Move::Prev, Place::At(index) | Place::Gap(index)) => self.go(index.checked_sub(1), 0),
            (Move::Seek(key), _) => self.go(Some(from(*key)), end),
            (Move::SeekForPrev(key), _) => self.go(after(*key).checked_sub(1), 0),
            (Move::First, _) => self.go(Some(0), end),
            (Move::Last, _) => self.go(end.checked_sub(1), 0),
            (Move::Refresh, Place::At(index)) => self.place = Place::Gap(index),
            (Move::Refresh, Place::Gap(_)) => {}
        }
    }
}

fn take(cursor: &mut Cursor, step: &Move, world: &World, waits: bool) -> bool {
    if waits {
        match step {
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
            Move::Seek(key) => cursor.seek(key_of(*key)),
            Move::SeekForPrev(key) => cursor.seek_for_prev(key_of(*key)),
            Move::First => cursor.seek_to_first(),
            Move::Last => cursor.seek_to_last(),
            Move::Refresh => cursor.refresh().map(|()| cursor.valid()),
        }
    } else {
        world.run_until(async {
            match step {
                Move::Next => cursor.next_async().await,
                Move::Prev => cursor.prev_async().await,
                Move::Seek(key) => cursor.seek_async(key_of(*key)).await,
                Move::SeekForPrev(key) => cursor.seek_for_prev_async(key_of(*key)).await,
                Move::First => cursor.seek_to_first_async().await,
                Move::Last => cursor.seek_to_last_async().await,
                Move::Refresh => cursor.refresh().map(|()| cursor.valid()),
            }
        })
    }
    .unwrap()
}

fn walk(world: &World, mut cursor: Cursor, mut expected: Expected<'_>, moves: &[Move]) {
    for (number, step) in moves.iter().enumerate() {
        let found = take(&mut cursor, step, world, number % 2 == 0);
        expected.take(step);
        let entry = match expected.place {
            Place::At(index) => Some(expected.entries[index]),
            Place::Gap(_) => None,
        };
        assert_eq!(found, entry.is_some(), "move {number} of {moves:?}");
        assert_eq!(
            cursor.valid().then(|| (cursor.key(), cursor.value())),
            entry,
            "move {number} of {moves:?}"
        );
        let kept = cursor.entry();
        assert_eq!(
            kept.as_ref().map(|(key, value)| (&key[..], &value[..])),
            entry,
            "move {number} of {moves:?}"
        );
    }
}

fn check(
    uri: &str,
    seed: u64,
    changes: Vec<Change>,
    later: &[Change],
    range: (Bound<u8>, Bound<u8>),
    moves: &[Move],
) {
    let world = World::new(seed);
    let mut run = Run::open(&world, uri);
    let (lower, upper) = (range.0.map(key_of), range.1.map(key_of));
    changes.into_iter().for_each(|change| run.change(change));
    // Opened before the last changes: it must not see them, whatever becomes of memtables and
    // tables.
    let early = run.keyspace.cursor((lower.clone(), upper.clone()));
    let seen = run.model.clone();
    later.iter().for_each(|change| run.change(*change));
    let steady: Vec<_> = moves.iter().filter(|step| !matches!(step, Move::Refresh)).copied().collect();
    walk(&world, early, Expected::new(&seen, &lower, &upper), &steady);
    walk(
        &world,
        run.keyspace.cursor((lower.clone(), upper.clone())),
        Expected::new(&run.model, &lower, &upper),
        moves,
    );
    for (snapshot, model) in std::mem::take(&mut run.snapshots) {
        let cursor = snapshot.cursor(&run.keyspace, (lower.clone(), upper.clone()));
        // The cursor alone keeps what the snapshot saw, however often it looks anew.
        drop(snapshot);
        later.iter().for_each(|change| run.change(*change));
        run.change(Change::Flush);
        walk(&world, cursor, Expected::new(&model, &lower, &upper), moves);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if crate::is_deep() { 512 } else { 16 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn cursors_move_as_over_an_ordered_map(
        changes in prop::collection::vec(change(), 0..150),
        later in prop::collection::vec(change(), 0..30),
        range in (bound(), bound()),
        moves in prop::collection::vec(a_move(), 0..80),
        seed in 0..u64::MAX,
        on_disk in any::<bool>(),
    ) {
        check(if on_disk { "file:///db" } else { "mem://cursors" }, seed, changes, &later, range, &moves);
    }
}

#[derive(Clone, Copy, Debug)]
enum ScanMove {
    Next,
    NextBack,
    Prev,
    Seek(u8),
    First,
    Last,
}

fn scan_move() -> impl Strategy<Value = ScanMove> {
    prop_oneof![
        8 => Just(ScanMove::Next),
        8 => Just(ScanMove::NextBack),
        3 => Just(ScanMove::Prev),
        1 => (0..KEYS).prop_map(ScanMove::Seek),
        1 => Just(ScanMove::First),
        1 => Just(ScanMove::Last),
    ]
}

type Entry = (tombolo::Value, tombolo::Value);

fn take_of_scan(scan: &mut Scan, step: ScanMove, world: &World, waits: bool) -> Option<Entry> {
    let taken = match step {
        ScanMove::Next if waits => scan.next().transpose(),
        ScanMove::NextBack if waits => scan.next_back().transpose(),
        ScanMove::Prev if waits => scan.prev().transpose(),
        ScanMove::Next => world.run_until(async { scan.next_async().await }),
        ScanMove::NextBack => world.run_until(async { scan.next_back_async().await }),
        ScanMove::Prev => world.run_until(async { scan.prev_async().await }),
        ScanMove::Seek(key) => {
            scan.seek(key_of(key));
            Ok(None)
        }
        ScanMove::First => {
            scan.seek_to_first();
            Ok(None)
        }
        ScanMove::Last => {
            scan.seek_to_last();
            Ok(None)
        }
    };
    taken.unwrap()
}

/// What a stream gives, all of it.
async fn collected(stream: &mut ScanStream) -> Vec<Entry> {
    let mut all = Vec::new();
    while let Some(entry) = std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await {
        all.push(entry.unwrap());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if crate::is_deep() { 512 } else { 16 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    /// Between the two ends of a scan is what neither has given: as over a list of all entries.
    #[test]
    fn scans_give_from_both_ends_what_neither_has_given(
        changes in prop::collection::vec(change(), 0..150),
        later in prop::collection::vec(change(), 0..30),
        range in (bound(), bound()),
        moves in prop::collection::vec(scan_move(), 0..80),
        seed in 0..u64::MAX,
        on_disk in any::<bool>(),
    ) {
        let world = World::new(seed);
        let mut run = Run::open(&world, if on_disk { "file:///db" } else { "mem://scans" });
        changes.into_iter().for_each(|change| run.change(change));
        let range = (range.0.map(key_of), range.1.map(key_of));
        let mut scan = run.keyspace.scan(range.clone());
        let model = run.model.clone();
        // The other end begins when these are there, and sees the same moment all the same.
        later.into_iter().for_each(|change| run.change(change));
        let expected = Expected::new(&model, &range.0, &range.1).entries;
        let (mut front, mut back) = (0, expected.len());
        for (number, step) in moves.iter().enumerate() {
            let taken = take_of_scan(&mut scan, *step, &world, number % 2 == 0);
            let index = match step {
                ScanMove::Next if front < back => {
                    front += 1;
                    Some(front - 1)
                }
                ScanMove::NextBack if front < back => {
                    back -= 1;
                    Some(back)
                }
                ScanMove::Prev if front > 0 => {
                    front -= 1;
                    Some(front)
                }
                ScanMove::Seek(key) => {
                    front = expected.partition_point(|entry| *entry.0 < *key_of(*key));
                    None
                }
                ScanMove::First => {
                    front = 0;
                    None
                }
                ScanMove::Last => {
                    front = expected.len();
                    None
                }
                _ => None,
            };
            let taken = taken.as_ref().map(|(key, value)| (&key[..], &value[..]));
            prop_assert_eq!(taken, index.map(|index| expected[index]), "move {} of {:?}", number, moves);
        }
        let mut stream = scan.into_stream();
        let rest = world.run_until(async { collected(&mut stream).await });
        let rest: Vec<_> = rest.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        prop_assert_eq!(&rest[..], expected.get(front..back).unwrap_or_default());
        let after = world.run_until(async { collected(&mut stream).await });
        prop_assert!(after.is_empty());
    }
}

/// A stream whose read is pending may be dropped, or asked again by another task.
#[test]
fn a_stream_waits_without_blocking() {
    let world = World::new(7);
    let mut run = Run::open(&world, "file:///db");
    (0..KEYS).for_each(|key| run.put(key, 100));
    run.change(Change::Flush);
    let expected: Vec<_> = run.model.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let poll = |stream: &mut ScanStream| {
        Pin::new(stream).poll_next(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    };
    let mut dropped = run.keyspace.scan::<&[u8]>(..).into_stream();
    let _pending = poll(&mut dropped).is_pending();
    drop(dropped);
    let mut stream = run.keyspace.scan::<&[u8]>(..).into_stream();
    let first = match poll(&mut stream) {
        std::task::Poll::Ready(first) => vec![first.unwrap().unwrap()],
        std::task::Poll::Pending => Vec::new(),
    };
    let all = [first, world.run_until(async { collected(&mut stream).await })].concat();
    let all: Vec<_> = all.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(all, expected);
}

#[test]
fn a_refreshed_cursor_goes_on_where_it_stood_and_sees_what_is_new() {
    let world = World::new(3);
    let mut run = Run::open(&world, "mem://refreshed");
    (0..30).for_each(|key| run.put(3 * key, 1));
    let mut cursor = run.keyspace.cursor::<&[u8]>(..);
    assert!(cursor.seek(key_of(9)).unwrap());
    run.put(12, 2);
    run.change(Change::Delete(9));
    run.change(Change::Flush);
    assert_eq!(cursor.value(), value_of(1));
    cursor.refresh().unwrap();
    assert!(cursor.next().unwrap());
    assert_eq!((cursor.key(), cursor.value()), (&key_of(12)[..], &value_of(2)[..]));
}

#[test]
fn a_snapshots_cursor_sees_the_snapshot_though_it_outlives_it_and_looks_anew() {
    let world = World::new(6);
    let mut run = Run::open(&world, "mem://outlived");
    run.put(0, 1);
    let snapshot = run.db.snapshot();
    let mut cursor = snapshot.cursor::<&[u8]>(&run.keyspace, ..);
    drop(snapshot);
    for change in [Change::Put(0, 2), Change::Flush, Change::Compact] {
        run.change(change);
        cursor.refresh().unwrap();
        assert!(cursor.seek_to_first().unwrap(), "after {change:?}");
        assert_eq!(cursor.value(), value_of(1), "after {change:?}");
    }
    assert_eq!(run.db.property("snapshots").unwrap().value.number(), Some(1));
    drop(cursor);
    assert_eq!(run.db.property("snapshots").unwrap().value.number(), Some(0));
}

#[test]
fn prefixes_find_their_keys_alone() {
    let world = World::new(4);
    let run = Run::open(&world, "mem://prefixes");
    let keys: [&[u8]; 7] = [b"a", b"ab", b"ab\0", b"ab\xff\xff", b"ac", b"\xff", b"\xff\xff"];
    for key in keys {
        run.keyspace.put(key, b"").wait().unwrap();
    }
    let snapshot = run.db.snapshot();
    for prefix in [&b""[..], b"a", b"ab", b"ab\xff", b"ac\0", b"\xff", b"\xff\xff", b"\xff\xff\xff"] {
        let found: Vec<_> = run.keyspace.prefix(prefix).map(|entry| entry.unwrap().0.to_vec()).collect();
        let expected: Vec<_> =
            keys.iter().filter(|key| key.starts_with(prefix)).map(|key| key.to_vec()).collect();
        assert_eq!(found, expected, "{prefix:?}");
        assert_eq!(snapshot.prefix(&run.keyspace, prefix).count(), expected.len());
    }
}

#[test]
fn a_cursor_that_falls_behind_is_told_of_and_holds_nothing_once_it_is_gone() {
    use std::time::Duration;
    let world = World::new(5);
    let mut run = Run::open(&world, "file:///db");
    (0..KEYS).for_each(|key| run.put(key, 100));
    run.change(Change::Flush);
    let mut cursor = run.keyspace.cursor::<&[u8]>(..);
    assert!(cursor.next().unwrap());
    assert_eq!(run.db.stats().readers_behind, 0);
    (0..KEYS).for_each(|key| run.put(key, 101));
    run.change(Change::Compact);
    let env = world.process("user").env();
    env.block_on(env.sleep(Duration::from_secs(3600)));
    let stats = run.db.stats();
    assert_eq!(stats.readers_behind, 1);
    assert!(stats.oldest_reader_nanos >= 3_600_000_000_000, "{stats:?}");
    assert!(stats.reader_memtable_bytes > 0, "{stats:?}");
    // It sees what it saw, and as long as it does, what it reads is there.
    let mut count = 1;
    while cursor.next().unwrap() {
        assert_eq!(cursor.value(), value_of(100));
        count += 1;
    }
    assert_eq!(count, run.model.len());
    let tables =
        || env.files().list_atomically(std::path::Path::new("/db/0000000000000001/table")).unwrap().len();
    let kept = tables();
    drop(cursor);
    let stats = run.db.stats();
    assert_eq!((stats.readers_behind, stats.oldest_reader_nanos, stats.reader_memtable_bytes), (0, 0, 0));
    // What it kept is deleted without another write.
    env.block_on(env.sleep(Duration::from_secs(1)));
    assert!(tables() < kept, "{} of {kept} tables", tables());
    assert!(run.db.verify().wait().unwrap().damage.is_empty());
}

mod joins {
    use super::*;

    fn keys_put(name: &str) -> (Db, Keyspace) {
        let db = Db::builder(format!("mem://{name}")).open().wait().unwrap();
        let keys = db.default_keyspace();
        for key in (0..400_u32).step_by(2) {
            keys.put_with(key.to_be_bytes(), key.to_le_bytes(), Durability::Accepted).wait().unwrap();
            if key == 200 {
                db.flush().wait().unwrap();
            }
        }
        (db, keys)
    }

    /// Near targets, far ones, those between entries, those behind, and those beyond the end.
    fn a_cursor_advances_and_never_goes_back() {
        let (_db, keys) = keys_put("advance");
        let mut cursor = keys.cursor::<&[u8]>(..);
        let mut at: Option<u32> = None;
        for target in [0_u32, 2, 3, 3, 1, 16, 60, 59, 7, 399, 5, 0] {
            let from = at.map_or(target, |at| at.max(target));
            let wanted = (from <= 398).then(|| from.next_multiple_of(2));
            assert_eq!(cursor.advance_to(target.to_be_bytes()).unwrap(), wanted.is_some(), "{target}");
            at = Some(wanted.unwrap_or(u32::MAX));
            if let Some(wanted) = wanted {
                assert_eq!(cursor.key(), wanted.to_be_bytes(), "{target}");
            }
        }
    }

    #[test]
    fn advancing_and_finding() {
        a_cursor_advances_and_never_goes_back();
        let (_db, keys) = keys_put("finding");
        let mut cursor = keys.cursor::<&[u8]>(..);
        let is_of_hundred = |_key: &[u8], value: &[u8]| value[0].is_multiple_of(100);
        assert!(cursor.find_next(is_of_hundred).unwrap() && cursor.key() == 0_u32.to_be_bytes());
        assert!(cursor.find_next(is_of_hundred).unwrap() && cursor.key() == 100_u32.to_be_bytes());
        assert!(cursor.find_next(is_of_hundred).unwrap() && cursor.key() == 200_u32.to_be_bytes());
        assert!(cursor.find_prev(is_of_hundred).unwrap() && cursor.key() == 100_u32.to_be_bytes());
        assert!(cursor.find_prev(is_of_hundred).unwrap() && !cursor.find_prev(is_of_hundred).unwrap());
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn an_advance_that_goes_back_is_noticed() {
        use tombolo_storage::mutant::{Mutant, notices};

        notices(Mutant::AdvanceGoesBack, a_cursor_advances_and_never_goes_back);
    }

    #[test]
    fn sorted_keys_are_looked_up_in_one_walk() {
        let (db, keys) = keys_put("look-up");
        let wanted: Vec<[u8; 4]> =
            [0, 0, 1, 2, 50, 51, 52, 390, 398, 399, 500].map(u32::to_be_bytes).to_vec();
        let snapshot = db.snapshot();
        keys.delete(wanted[4]).wait().unwrap();
        let mut cursor = snapshot.cursor::<&[u8]>(&keys, ..);
        let mut found = Vec::new();
        cursor.look_up(&wanted, |number, value| found.push((number, value.map(<[u8]>::to_vec)))).unwrap();
        let several = snapshot.multi_get(&keys, &wanted).wait().unwrap();
        let several: Vec<_> =
            several.into_iter().map(|value| value.map(|value| value.to_vec())).enumerate().collect();
        assert_eq!(found, several);
        // A second look-up begins anew; disorder is said, and what came before it was given.
        let mut count = 0;
        let disorder = [wanted[2], wanted[6], wanted[5]];
        let error = cursor.look_up(disorder, |_, _| count += 1).unwrap_err();
        assert_eq!((error.kind(), count), (tombolo::ErrorKind::Invalid, 2));
    }
}
