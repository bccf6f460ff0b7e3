use tombolo_format::key::EntryKind;

use super::*;
use crate::memtable::{Memtable, MemtableWriter};
use crate::version::Version;

fn view(versions: &[(&[u8], u64, EntryKind)]) -> Arc<View> {
    let (active, mut writer) = Memtable::create(&crate::budget::MemoryBudget::of_any_size(1 << 30), 1 << 20);
    for (key, sequence, kind) in versions {
        writer.reserve(MemtableWriter::entry_bytes(key.len(), 8), 1).unwrap();
        writer.insert(0, key, Trailer::new(SequenceNumber(*sequence), *kind), &sequence.to_le_bytes());
    }
    Arc::new(View {
        active,
        waiting: Vec::new(),
        version: Arc::new(Version::default()),
        kept_by: None,
        generation: 0,
    })
}

fn cursor(view: &Arc<View>, sequence: u64) -> RangeCursor {
    RangeCursor::new(
        Arc::clone(view),
        KeyspaceInfo::new(0, "k", crate::options::KeyspaceOptions::default(), 0),
        (SequenceNumber(sequence), 0),
        KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded },
    )
}

/// Takes a move that memory can answer; gives the entry, and how many sources it moved.
fn take(
    cursor: &mut RangeCursor,
    step: impl FnOnce(&mut RangeCursor) -> Result<Step>,
) -> (Option<(Vec<u8>, u64)>, usize) {
    let before = cursor.merge.moves;
    assert_eq!(step(cursor).unwrap(), Step::Done);
    let entry = cursor.valid().then(|| {
        let value = u64::from_le_bytes(cursor.value().try_into().unwrap());
        assert_eq!(cursor.value_bytes(), cursor.value());
        (cursor.key().to_vec(), value)
    });
    (entry, cursor.merge.moves - before)
}

#[test]
fn many_versions_of_a_key_cost_no_more_than_a_few() {
    const VERSIONS: u64 = 10_000;
    let mut versions: Vec<(&[u8], u64, EntryKind)> = vec![(b"a", 1, EntryKind::Put)];
    versions.extend((2..VERSIONS).map(|sequence| (&b"m"[..], sequence, EntryKind::Put)));
    versions.push((b"z", VERSIONS, EntryKind::Put));
    let view = view(&versions);
    // From now: all versions but one are older. From the past: half are newer.
    for (sequence, newest) in [(VERSIONS, VERSIONS - 1), (VERSIONS / 2, VERSIONS / 2), (2, 2)] {
        let mut cursor = cursor(&view, sequence);
        let most = 2 * STEPS_MAX as usize + 8;
        let (found, moves) = take(&mut cursor, RangeCursor::next);
        assert!(found == Some((b"a".to_vec(), 1)) && moves <= most, "{found:?} after {moves}");
        let (found, moves) = take(&mut cursor, RangeCursor::next);
        assert!(found == Some((b"m".to_vec(), newest)) && moves <= most, "{found:?} after {moves}");
        let (found, moves) = take(&mut cursor, RangeCursor::next);
        let last = (sequence == VERSIONS).then(|| (b"z".to_vec(), VERSIONS));
        assert!(found == last && moves <= most, "{found:?} after {moves}");
        cursor.stand_at_end();
        if last.is_some() {
            assert_eq!(take(&mut cursor, RangeCursor::prev).0, last);
        }
        let (found, moves) = take(&mut cursor, RangeCursor::prev);
        assert!(found == Some((b"m".to_vec(), newest)) && moves <= most, "{found:?} after {moves}");
        let (found, moves) = take(&mut cursor, RangeCursor::prev);
        assert!(found == Some((b"a".to_vec(), 1)) && moves <= most, "{found:?} after {moves}");
    }
}

#[test]
fn a_key_that_was_deleted_after_many_versions_is_passed_both_ways() {
    let mut versions: Vec<(&[u8], u64, EntryKind)> =
        (1..100).map(|sequence| (&b"m"[..], sequence, EntryKind::Put)).collect();
    versions.extend([
        (&b"m"[..], 100, EntryKind::Delete),
        (b"a", 101, EntryKind::Put),
        (b"z", 102, EntryKind::Put),
    ]);
    let view = view(&versions);
    let mut cursor = cursor(&view, 102);
    let keys = |cursor: &mut RangeCursor, step: fn(&mut RangeCursor) -> Result<Step>| {
        take(cursor, step).0.map(|(key, _)| key)
    };
    assert_eq!(keys(&mut cursor, RangeCursor::next), Some(b"a".to_vec()));
    assert_eq!(keys(&mut cursor, RangeCursor::next), Some(b"z".to_vec()));
    assert_eq!(keys(&mut cursor, RangeCursor::prev), Some(b"a".to_vec()));
    assert_eq!(keys(&mut cursor, RangeCursor::prev), None);
    assert_eq!(keys(&mut cursor, RangeCursor::next), Some(b"a".to_vec()));
}

/// A memtable gets a keyspace's list with its first write to it, which may come after the cursor.
#[test]
fn a_refreshed_cursor_sees_the_first_write_to_a_keyspace_in_the_memtable_that_it_looked_at_before() {
    let (active, mut writer) = Memtable::create(&crate::budget::MemoryBudget::of_any_size(1 << 30), 1 << 20);
    let view = Arc::new(View {
        active,
        waiting: Vec::new(),
        version: Arc::new(Version::default()),
        kept_by: None,
        generation: 0,
    });
    let mut cursor = cursor(&view, 0);
    assert_eq!(take(&mut cursor, RangeCursor::next).0, None);
    writer.reserve(MemtableWriter::entry_bytes(1, 8), 1).unwrap();
    writer.insert(0, b"a", Trailer::new(SequenceNumber(1), EntryKind::Put), &1u64.to_le_bytes());
    cursor.refresh(Arc::clone(&view), (SequenceNumber(1), 0));
    cursor.stand_at_start();
    assert_eq!(take(&mut cursor, RangeCursor::next).0, Some((b"a".to_vec(), 1)));
    cursor.stand_at_end();
    assert_eq!(take(&mut cursor, RangeCursor::prev).0, Some((b"a".to_vec(), 1)));
}

/// A keyspace of a catalog, in which runs of dead keys are known.
fn known_keyspace() -> (crate::engine::Catalog, Arc<KeyspaceInfo>) {
    let catalog = crate::engine::Catalog::default();
    let keyspace = KeyspaceInfo::new(0, "k", crate::options::KeyspaceOptions::default(), 0);
    catalog.insert(&keyspace);
    (catalog, keyspace)
}

#[test]
fn dead_keys_are_walked_over_once() {
    const DEAD: u64 = 3000;
    let keys: Vec<_> = (0..DEAD).map(|number| format!("m{number:06}").into_bytes()).collect();
    let mut versions: Vec<(&[u8], u64, EntryKind)> = vec![(b"a", 1, EntryKind::Put)];
    versions.extend(keys.iter().zip(2..).map(|(key, sequence)| (&key[..], sequence, EntryKind::Put)));
    let kinds = [EntryKind::Delete, EntryKind::SingleDelete];
    versions.extend(
        keys.iter()
            .zip(DEAD + 2..)
            .map(|(key, sequence)| (&key[..], sequence, kinds[usize::from(sequence % 2 == 1)])),
    );
    let last = 2 * DEAD + 2;
    versions.push((b"z", last, EntryKind::Put));
    let view = view(&versions);
    let least = 2 * keys.len();
    let few = 3 * dead_moves();
    type Move = fn(&mut RangeCursor) -> Result<Step>;
    let forward: Move = |cursor| cursor.seek(b"b");
    let middle: Move = |cursor| cursor.seek(b"m001500x");
    let backward: Move = |cursor| cursor.seek_for_prev(b"y");
    let middle_backward: Move = |cursor| cursor.seek_for_prev(b"m001500x");
    let (after, before) = (Some((b"z".to_vec(), last)), Some((b"a".to_vec(), 1)));
    for (first, others) in [
        (forward, [(middle, &after), (backward, &before), (middle_backward, &before)]),
        (backward, [(middle_backward, &before), (forward, &after), (middle, &after)]),
    ] {
        let (_catalog, keyspace) = known_keyspace();
        let open = |sequence| {
            let range = KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded };
            RangeCursor::new(Arc::clone(&view), Arc::clone(&keyspace), (SequenceNumber(sequence), 0), range)
        };
        let (_, moves) = take(&mut open(last), first);
        assert!(moves >= least, "{moves} moves of the first walk");
        let (_, moves) = take(&mut open(last), first);
        assert!(moves <= few, "{moves} moves of the second");
        for (other, found) in others {
            let (entry, moves) = take(&mut open(last), other);
            assert!(entry == *found && moves <= few, "{entry:?} after {moves}");
        }
        // From an older number half of them live.
        let (entry, _) = take(&mut open(DEAD + DEAD / 2), middle);
        assert_eq!(entry, Some((b"m001501".to_vec(), 1503)));
    }
}

/// What a cursor takes that goes past a known run: the keys after which it asks, each with its
/// versions, and seeks of the merge.
fn dead_moves() -> usize {
    2 * 12 + 8
}

#[test]
fn a_bounded_walk_tells_no_more_than_it_has_seen() {
    let keys: Vec<_> = (0..200).map(|number| format!("m{number:03}").into_bytes()).collect();
    let versions: Vec<(&[u8], u64, EntryKind)> =
        keys.iter().zip(1..).map(|(key, number)| (&key[..], number, EntryKind::Delete)).collect();
    let mut all = versions.clone();
    all.push((b"m050x", 300, EntryKind::Put));
    all.push((b"m150x", 301, EntryKind::Put));
    let view = view(&all);
    for is_backward in [false, true] {
        for bounds in [
            (Bound::Included(b"m051".to_vec()), Bound::Excluded(b"m150x".to_vec())),
            (Bound::Excluded(b"m050x".to_vec()), Bound::Included(b"m150".to_vec())),
        ] {
            let (_catalog, keyspace) = known_keyspace();
            let open = |lower: Bound<Vec<u8>>, upper| {
                let range = KeyRange { lower, upper };
                RangeCursor::new(Arc::clone(&view), Arc::clone(&keyspace), (SequenceNumber(400), 0), range)
            };
            let mut bounded = open(bounds.0, bounds.1);
            let step = |cursor: &mut RangeCursor| {
                if is_backward {
                    cursor.stand_at_end();
                    cursor.prev()
                } else {
                    cursor.next()
                }
            };
            assert_eq!(take(&mut bounded, step).0, None);
            let mut whole = open(Bound::Unbounded, Bound::Unbounded);
            assert_eq!(take(&mut whole, |cursor| cursor.seek(b"m040")).0, Some((b"m050x".to_vec(), 300)));
            let (entry, moves) = take(&mut whole, RangeCursor::next);
            assert!(entry == Some((b"m150x".to_vec(), 301)) && moves < 40, "{entry:?} after {moves}");
            assert_eq!(take(&mut whole, RangeCursor::next).0, None);
            assert_eq!(take(&mut whole, RangeCursor::prev).0, Some((b"m150x".to_vec(), 301)));
            assert_eq!(take(&mut whole, RangeCursor::prev).0, Some((b"m050x".to_vec(), 300)));
            assert_eq!(take(&mut whole, RangeCursor::prev).0, None);
        }
    }
}
