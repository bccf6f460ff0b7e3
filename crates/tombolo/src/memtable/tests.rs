use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tombolo_format::key::EntryKind;

use super::*;
use crate::budget::Category;

fn trailer(sequence: u64, kind: EntryKind) -> Trailer {
    Trailer::new(SequenceNumber(sequence), kind)
}

fn put(writer: &mut MemtableWriter, keyspace: u32, key: &[u8], sequence: u64, value: &[u8]) {
    writer.reserve(MemtableWriter::entry_bytes(key.len(), value.len()), 1).unwrap();
    writer.insert(keyspace, key, trailer(sequence, EntryKind::Put), value);
}

fn walk(list: &List) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let mut cursor = list.cursor();
    cursor.first();
    let mut found = Vec::new();
    while let Some(entry) = cursor.entry() {
        found.push((entry.key.to_vec(), entry.trailer.sequence().0, entry.value.to_vec()));
        cursor.next();
    }
    found
}

#[test]
fn versions_are_seen_at_their_sequence_numbers() {
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
    assert!(memtable.is_empty() && memtable.list(1).is_none());
    put(&mut writer, 1, b"a", 1, b"one");
    put(&mut writer, 1, b"a", 3, b"three");
    put(&mut writer, 2, b"a", 4, b"other");
    let at = |sequence| {
        memtable.get(1, b"a", key_hash(b"a"), SequenceNumber(sequence), |entry| entry.value.to_vec())
    };
    assert_eq!((at(0), at(1), at(2)), (None, Some(b"one".to_vec()), Some(b"one".to_vec())));
    assert_eq!((at(3), at(9)), (Some(b"three".to_vec()), Some(b"three".to_vec())));
    assert_eq!(memtable.get(1, b"b", key_hash(b"b"), SequenceNumber::MAX, |_| ()), None);
    assert_eq!(memtable.get(3, b"a", key_hash(b"a"), SequenceNumber::MAX, |_| ()), None);
    assert_eq!(memtable.lists().iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_value_larger_than_a_chunk_has_its_own() {
    let budget = MemoryBudget::of_any_size(1 << 30);
    let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
    let large = vec![7; if cfg!(miri) { 20_000 } else { 5 << 20 }];
    put(&mut writer, 0, b"large", 1, &large);
    put(&mut writer, 0, b"small", 2, b"x");
    assert_eq!(
        memtable.get(0, b"large", key_hash(b"large"), SequenceNumber::MAX, |entry| entry.value == large),
        Some(true)
    );
    assert!(memtable.memory_bytes() >= large.len() as u64);
    assert_eq!(budget.used(Category::Memtables), memtable.memory_bytes(), "it is charged");
    drop((memtable, writer));
    assert_eq!(budget.used_bytes(), 0, "and given back");
}

#[test]
fn memory_follows_the_size_that_a_memtable_is_to_have() {
    for bytes in [4 << 10, 64 << 10, 1 << 20, 4 << 20].into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
        let filter = bytes / 128;
        let budget = MemoryBudget::of_any_size(1 << 30);
        let (memtable, mut writer) = Memtable::create(&budget, bytes);
        assert_eq!(budget.used_bytes(), 0, "nothing is taken before the first write");
        let mut sequence = 0;
        let entry = MemtableWriter::entry_bytes(8, 200) as u64;
        while memtable.used_bytes() + entry <= bytes {
            sequence += 1;
            put(&mut writer, 0, &(sequence * 0x9e37_79b9_u64).to_be_bytes(), sequence, &[7; 200]);
            if sequence == 1 {
                assert!(budget.used_bytes() <= (bytes / 8).clamp(4 << 10, 16 << 10) + filter, "{bytes}");
            }
        }
        let held = budget.used(Category::Memtables);
        assert!(
            held <= bytes + (4 << 10) + filter && sequence >= bytes / 400,
            "{held} of {bytes} for {sequence} entries"
        );
    }
}

#[test]
fn the_filter_of_a_large_memtable_hides_no_key_of_any_keyspace() {
    let budget = MemoryBudget::of_any_size(1 << 30);
    let (memtable, mut writer) = Memtable::create(&budget, 1 << 20);
    for number in 0..4000u32 {
        put(&mut writer, number % 3, &number.to_be_bytes(), u64::from(number) + 1, b"v");
    }
    let get = |keyspace, key: &[u8]| {
        memtable.get(keyspace, key, key_hash(key), SequenceNumber::MAX, |entry| entry.value.to_vec())
    };
    assert!((0..4000u32).all(|number| get(number % 3, &number.to_be_bytes()) == Some(b"v".to_vec())));
    assert!(
        (0..4000u32).all(|number| get(number % 3 + 1, &number.to_be_bytes()).is_none()),
        "of another keyspace"
    );
    assert!((4000..8000u32).all(|number| get(0, &number.to_be_bytes()).is_none()), "never written");
    drop((memtable, writer));
    assert_eq!(budget.used_bytes(), 0, "the filter's charge is given back");
}

#[test]
fn a_cursor_outlives_its_memtable() {
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
    put(&mut writer, 0, b"k", 1, b"v");
    let mut cursor = memtable.list(0).unwrap().cursor();
    cursor.first();
    drop((memtable, writer));
    assert_eq!(cursor.entry().unwrap().value, b"v");
}

#[test]
fn readers_see_whole_nodes_in_order_while_the_writer_inserts() {
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
    let inserts: usize = if cfg!(miri) { 60 } else { 50_000 };
    put(&mut writer, 0, &0u64.to_be_bytes(), 1, &1u64.to_le_bytes());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let list = memtable.list(0).unwrap();
                let mut seen = 0;
                while seen < inserts {
                    let found = walk(&list);
                    assert!(found.len() >= seen, "what was seen stays");
                    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0));
                    assert!(found.iter().all(|(_, sequence, value)| value[..] == sequence.to_le_bytes()));
                    seen = found.len();
                }
            });
        }
        scope.spawn(|| {
            for sequence in 2..=inserts as u64 {
                let key = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                put(&mut writer, 0, &key, sequence, &sequence.to_le_bytes());
            }
        });
    });
}

/// A point read finds whatever was visible when it began, while the leaf that holds it is filled,
/// split and left behind.
#[test]
fn point_reads_find_their_keys_while_leaves_split() {
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
    let inserts: u64 = if cfg!(miri) { 80 } else { 60_000 };
    // From both ends towards the middle, so that the leaf that is split holds what came last; each
    // key has two versions.
    let key = |number: u64| if number & 2 == 0 { number / 4 } else { u64::MAX - number / 4 }.to_be_bytes();
    let visible = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (memtable, visible) = (&memtable, &visible);
            scope.spawn(move || {
                let mut random = reader + 1;
                loop {
                    let seen = visible.load(Ordering::Acquire);
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Most often a key of late, whose leaf the writer is at.
                    let back = if random >> 63 == 0 { random >> 58 } else { random >> 8 };
                    if let Some(number) = seen.checked_sub(1 + back % seen.max(1)) {
                        let key = key(number);
                        let found = memtable.get(0, &key, key_hash(&key), SequenceNumber(seen), |entry| {
                            (entry.trailer.sequence().0, entry.value.to_vec())
                        });
                        // The newer version of the key, if it was visible.
                        let newest = if (number | 1) < seen { number | 1 } else { number };
                        assert_eq!(
                            found,
                            Some((newest + 1, newest.to_le_bytes().to_vec())),
                            "entry {number} of {seen}"
                        );
                    }
                    let absent = (u64::MAX / 2 + back).to_be_bytes();
                    assert_eq!(
                        memtable.get(0, &absent, key_hash(&absent), SequenceNumber::MAX, |_| ()),
                        None
                    );
                    if seen == inserts {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            for number in 0..inserts {
                put(&mut writer, 0, &key(number), number + 1, &number.to_le_bytes());
                visible.store(number + 1, Ordering::Release);
            }
        });
    });
}

/// Many entries are reserved for at once: each at its usual price, and pieces that come dearer
/// finds memory as well.
#[test]
fn a_large_batch_takes_what_it_needs() {
    let entries = if cfg!(miri) { 100 } else { 3 * DEAREST_MAX };
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 64 << 10);
    writer.reserve(entries, entries).unwrap();
    for number in 0..entries as u64 {
        // Of a keyspace each: a leaf each, the dearest there is.
        writer.insert(u32::try_from(number).unwrap(), b"k", trailer(number + 1, EntryKind::Put), b"v");
    }
    assert!((0..entries).all(|number| {
        memtable.list(u32::try_from(number).unwrap()).is_some_and(|list| walk(&list).len() == 1)
    }));
}

/// What a cursor is told to do.
#[derive(Clone, Debug)]
enum Step {
    Seek(Vec<u8>, u64),
    SeekBefore(Vec<u8>, u64),
    First,
    Last,
    Next,
    Prev,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12),
        (0..200u8).prop_map(|number| format!("shared-prefix-{number:04}").into_bytes()),
        (0..40u8, 0..3usize)
            .prop_map(|(number, more)| [&[b'l'; 70][..], &[number], &[b'm'; 2][..more]].concat()),
        Just(b"shared-prefix".to_vec()),
        Just(b"shared-prefix-and-more".to_vec()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (key(), 0..200u64).prop_map(|(key, sequence)| Step::Seek(key, sequence)),
        (key(), 0..200u64).prop_map(|(key, sequence)| Step::SeekBefore(key, sequence)),
        Just(Step::First),
        Just(Step::Last),
        Just(Step::Next),
        Just(Step::Next),
        Just(Step::Prev),
        Just(Step::Prev),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]
    #[test]
    fn a_list_is_a_sorted_map(
        keys in proptest::collection::vec(key(), 0..if cfg!(miri) { 60 } else { 200 }),
        ascending in any::<bool>(),
        together in prop::sample::select(vec![1usize, 2, 5, 17, 100]),
        steps in proptest::collection::vec(step(), 0..if cfg!(miri) { 20 } else { 60 }),
    ) {
        let mut keys = keys;
        if ascending {
            keys.sort();
        }
        let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
        let mut model = BTreeMap::new();
        let mut last = 0_u64;
        for keys in keys.chunks(together) {
            let values: Vec<_> = (last + 1..).take(keys.len()).map(u64::to_le_bytes).collect();
            let entries: Vec<_> = keys.iter().zip(&values).map(|(key, value)| {
                last += 1;
                let trailer = trailer(last, EntryKind::Put);
                model.insert((key.clone(), std::cmp::Reverse(trailer)), last);
                (5, Entry { key, trailer, value })
            }).collect();
            let bytes = keys.iter().map(|key| MemtableWriter::entry_bytes(key.len(), 8)).sum();
            writer.reserve(bytes, entries.len()).unwrap();
            writer.insert_several(&entries);
        }
        let Some(list) = memtable.list(5) else {
            prop_assert!(keys.is_empty());
            return Ok(());
        };
        let flat: Vec<_> = model.keys().cloned().collect();
        let mut cursor = list.cursor();
        let mut at: Option<usize> = None;
        for step in steps {
            match step {
                Step::Seek(key, sequence) => {
                    let target = trailer(sequence, EntryKind::Delete);
                    cursor.seek(&key, target);
                    at = flat.iter().position(|found| *found >= (key.clone(), std::cmp::Reverse(target)));
                }
                Step::SeekBefore(key, sequence) => {
                    let target = trailer(sequence, EntryKind::Delete);
                    cursor.seek_before(&key, target);
                    at = flat.iter().rposition(|found| *found < (key.clone(), std::cmp::Reverse(target)));
                }
                Step::First => {
                    cursor.first();
                    at = Some(0);
                }
                Step::Last => {
                    cursor.last();
                    at = Some(flat.len() - 1);
                }
                Step::Next => {
                    cursor.next();
                    at = at.map(|index| index + 1).filter(|index| *index < flat.len());
                }
                Step::Prev => {
                    cursor.prev();
                    at = at.and_then(|index| index.checked_sub(1));
                }
            }
            let found = cursor.entry().map(|entry| (entry.key.to_vec(), std::cmp::Reverse(entry.trailer)));
            prop_assert_eq!(found, at.map(|index| flat[index].clone()));
        }
    }
}

#[test]
fn memory_that_others_made_ready_is_used_and_charged_when_it_is() {
    let budget = MemoryBudget::of_any_size(1 << 30);
    let (memtable, mut writer) = Memtable::create(&budget, 16 << 20);
    let ready = writer.ready_chunks().clone();
    assert!(ready.ask(1) && !ready.ask(1), "one thread makes all");
    ready.make();
    assert_eq!((memtable.memory_bytes(), ready.count()), (0, 2));
    let value = vec![7; 100_000];
    for sequence in 1..=100_u64 {
        put(&mut writer, 1, &sequence.to_le_bytes(), sequence, &value);
    }
    assert_eq!(ready.count(), 0);
    assert_eq!(walk(&memtable.list(1).unwrap()).iter().filter(|(_, _, found)| *found == value).count(), 100);
    assert!((10_000_000..=16 << 20).contains(&memtable.memory_bytes()), "{} bytes", memtable.memory_bytes());
}

#[test]
fn memory_that_was_taken_before_anybody_made_it_ready_is_asked_for_no_more() {
    let budget = MemoryBudget::of_any_size(1 << 30);
    let (_memtable, mut writer) = Memtable::create(&budget, 16 << 20);
    let ready = writer.ready_chunks().clone();
    assert!(ready.ask(6));
    let value = vec![7; 100_000];
    // Some small chunks, then three of those.
    for sequence in 1..=70_u64 {
        put(&mut writer, 1, &sequence.to_le_bytes(), sequence, &value);
    }
    ready.make();
    assert!((2..=4).contains(&ready.count()), "{} of 6", ready.count());
    assert!(ready.ask(1), "nobody makes any");
}

#[test]
fn the_next_memtable_takes_the_chunks_of_one_that_ended() {
    let budget = MemoryBudget::of_any_size(1 << 30);
    let _member = budget.join(16 << 20).unwrap();
    let value = vec![0xee; 100_000];
    let fill = || {
        let (memtable, mut writer) = Memtable::create(&budget, 16 << 20);
        for sequence in 1..=100_u64 {
            put(&mut writer, 1, &sequence.to_le_bytes(), sequence, &value);
        }
        // Small ones lie between the earlier ones.
        for sequence in 101..=5000_u64 {
            put(&mut writer, 2, &sequence.to_be_bytes(), sequence, b"");
        }
        memtable
    };
    let first = fill();
    let used = budget.used(Category::Memtables);
    drop(first);
    let spare = budget.used(Category::Spare);
    assert!(
        budget.used(Category::Memtables) == 0 && spare >= 8 << 20 && spare <= used,
        "{spare} of {used} are kept"
    );
    let second = fill();
    assert_eq!(budget.used(Category::Memtables), used);
    assert!(budget.used(Category::Spare) < 4 << 20, "{} were not taken", budget.used(Category::Spare));
    assert_eq!(walk(&second.list(1).unwrap()).iter().filter(|(_, _, found)| *found == value).count(), 100);
    let small = walk(&second.list(2).unwrap());
    assert!(
        small.len() == 4900
            && small.iter().all(|(key, sequence, value)| *key == sequence.to_be_bytes() && value.is_empty())
    );
    assert_eq!(budget.peak_bytes(), used, "no more was held at once");
}

/// Places that were found before others were put between are found anew.
#[test]
fn entries_put_in_together_find_their_places_among_each_other() {
    let (memtable, mut writer) = Memtable::create(&MemoryBudget::of_any_size(1 << 30), 1 << 20);
    let mut model = BTreeMap::new();
    let mut number = 1_u64;
    for _ in 0..if cfg!(miri) { 20 } else { 200 } {
        // Most of a batch goes into few leaves, which are split and followed by others meanwhile.
        let near = number.wrapping_mul(0x9e37_79b9) % 64 * 1000;
        let keys: Vec<_> = (0..40)
            .map(|_| {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                format!("{:06}", near + (number >> 40) % 50).into_bytes()
            })
            .collect();
        let first = model.len() as u64 + 1;
        let entries: Vec<_> = keys
            .iter()
            .zip(first..)
            .map(|(key, sequence)| {
                (7, Entry { key, trailer: trailer(sequence, EntryKind::Put), value: b"v" })
            })
            .collect();
        for (key, sequence) in keys.iter().zip(first..) {
            model.insert((key.clone(), std::cmp::Reverse(sequence)), ());
        }
        writer.reserve(40 * MemtableWriter::entry_bytes(6, 1), 40).unwrap();
        writer.insert_several(&entries);
    }
    let found: Vec<_> =
        walk(&memtable.list(7).unwrap()).into_iter().map(|(key, sequence, _)| (key, sequence)).collect();
    let expected: Vec<_> = model.into_keys().map(|(key, sequence)| (key, sequence.0)).collect();
    assert_eq!(found, expected);
}

#[test]
fn while_a_chunk_is_filled_the_next_one_is_wanted_ready() {
    let budget = MemoryBudget::of_any_size(1 << 30);
    let (memtable, mut writer) = Memtable::create(&budget, 16 << 20);
    let value = vec![7; 100_000];
    let mut wanted = 0;
    for sequence in 1..=150_u64 {
        put(&mut writer, 1, &sequence.to_le_bytes(), sequence, &value);
        if let Some(ready) = writer.wants_chunk() {
            wanted += 1;
            ready.make();
            assert_eq!(ready.count(), 1);
        }
        assert!(writer.wants_chunk().is_none(), "asked for twice");
    }
    // Of sixteen, some small ones first: the last ones would not fit the memtable.
    assert!((4..=7).contains(&wanted), "{wanted} chunks were wanted");
    assert!(writer.ready_chunks().count() <= 1, "made and not used");
    drop(memtable);
}
