use tombolo_format::key::{SequenceNumber, Trailer};

use super::*;
use crate::{Db, Durability, KeyspaceOptions, Registry};

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:06}").into_bytes()
}

fn found(entries: &[(u64, EntryKind)]) -> Vec<(Vec<u8>, Option<Vec<u8>>, u64)> {
    let mut burying = Burying::new(7);
    for (number, kind) in entries {
        let key = key(*number);
        burying.meet(InternalKey::new(&key, Trailer::new(SequenceNumber(1), *kind)));
    }
    let end = burying.end();
    assert!(end.iter().all(|buried| buried.keyspace == 7));
    end.into_iter().map(|buried| (buried.first.to_vec(), buried.end.map(Into::into), buried.keys)).collect()
}

#[test]
fn stretches_of_deletes_are_found_the_longest_ones() {
    let deletes = |from: u64, to| (from..to).map(|number| (number, EntryKind::Delete));
    let mut entries = vec![(0, EntryKind::Put)];
    entries.extend(deletes(1, 1 + BURIED_FROM));
    entries.push((100, EntryKind::Put));
    entries.extend(deletes(101, 100 + BURIED_FROM));
    assert_eq!(found(&entries), [(key(1), Some(key(100)), BURIED_FROM)]);
    entries.push((200, EntryKind::SingleDelete));
    assert_eq!(found(&entries)[1..], [(key(101), None, BURIED_FROM)]);
    let mut entries = Vec::new();
    for stretch in 0..20 {
        entries.extend(deletes(stretch * 1000, stretch * 1000 + 100 + stretch));
        entries.push((stretch * 1000 + 500, EntryKind::Put));
    }
    let longest: Vec<_> = found(&entries).iter().map(|(.., keys)| *keys).collect();
    assert_eq!(longest, (112..120).collect::<Vec<_>>());
}

/// The first entry from a key on, by a cursor of its own, and how many sources it moved.
fn first_from(db: &Db, keyspace: &crate::Keyspace, from: u64) -> (Option<Vec<u8>>, usize) {
    let engine = db.engine();
    let view = engine.view_owned();
    let moment = (engine.stream.visible(), engine.judged_ms());
    let range = KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let mut cursor = RangeCursor::new(view, Arc::clone(keyspace.info()), moment, range);
    let mut move_it = async || {
        if cursor.seek(&key(from)).unwrap() == Step::Blocked {
            cursor.load().await.unwrap();
        }
    };
    engine.env.block_on(move_it());
    (cursor.valid().then(|| cursor.key().to_vec()), cursor.moves())
}

/// Two versions of each of the dead keys after which a cursor asks, and seeks of five sources.
const FEW: usize = 2 * 12 + 6 * 5;

#[test]
fn the_first_cursor_over_what_a_flush_has_buried_walks_over_few_keys() {
    const KEYS: u64 = 20_000;
    let options = crate::Options::parse(["automatic_compaction=false"]).unwrap();
    let builder = Db::builder("mem://buried").registry(Registry::with_defaults()).options(options);
    let db = builder.open().wait().unwrap();
    let keys = db.create_keyspace("keys", KeyspaceOptions::default()).wait().unwrap();
    let all = |from, to, step: &dyn Fn(u64)| (from..to).for_each(step);
    let put = |number| keys.put_with(key(number), "value", Durability::Unlogged).wait().unwrap();
    let delete = |number| keys.delete_with(key(number), Durability::Unlogged).wait().unwrap();
    all(0, KEYS, &put);
    db.flush().wait().unwrap();
    let snapshot = db.snapshot();
    all(0, KEYS / 2, &delete);
    db.flush().wait().unwrap();
    let (first, moves) = first_from(&db, &keys, 0);
    assert!(first == Some(key(KEYS / 2)) && moves <= FEW, "{first:?} after {moves}");
    // The rest, and one that lives in an older table between them.
    all(KEYS / 2, KEYS * 3 / 4, &delete);
    all(KEYS * 3 / 4 + 1, KEYS, &delete);
    db.flush().wait().unwrap();
    for (from, expected) in [(0, Some(KEYS * 3 / 4)), (77, Some(KEYS * 3 / 4)), (KEYS * 3 / 4 + 1, None)] {
        let (first, moves) = first_from(&db, &keys, from);
        assert!(first == expected.map(key) && moves <= 2 * FEW, "{first:?} after {moves}");
    }
    // Later writes are found, and a snapshot from before sees all.
    put(77);
    assert_eq!(first_from(&db, &keys, 0).0, Some(key(77)));
    let mut cursor = snapshot.cursor::<&[u8]>(&keys, ..);
    assert!(cursor.seek_to_first().unwrap());
    assert_eq!(cursor.key(), key(0));
    drop((cursor, snapshot));
    db.close().wait().unwrap();
}

#[test]
fn a_walk_meets_what_is_written_beside_it() {
    const KEYS: u64 = 3000;
    let options = crate::Options::parse(["automatic_compaction=false"]).unwrap();
    let builder = Db::builder("mem://beside").registry(Registry::with_defaults()).options(options);
    let db = builder.open().wait().unwrap();
    let keys = db.default_keyspace();
    for number in 0..KEYS {
        keys.put_with(key(number), "value", Durability::Unlogged).wait().unwrap();
    }
    db.flush().wait().unwrap();
    for number in 0..KEYS {
        keys.delete_with(key(number), Durability::Unlogged).wait().unwrap();
    }
    // Another key is written while the flush goes on, and its numbers lie behind the walk's.
    let flush = db.flush();
    for number in 0..500 {
        keys.put_with(format!("other-{number}"), "value", Durability::Unlogged).wait().unwrap();
    }
    keys.put_with(key(1234), "value", Durability::Unlogged).wait().unwrap();
    flush.wait().unwrap();
    keys.put_with("other", "value", Durability::Unlogged).wait().unwrap();
    assert_eq!(first_from(&db, &keys, 0).0, Some(key(1234)));
    let (first, moves) = first_from(&db, &keys, 1235);
    assert!(first == Some(b"other".to_vec()) && moves <= 2 * FEW, "{first:?} after {moves}");
    db.close().wait().unwrap();
}
