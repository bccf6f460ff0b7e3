use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::options::KeyspaceOptions;

fn keyspace() -> Arc<KeyspaceInfo> {
    KeyspaceInfo::new(3, "keys", KeyspaceOptions::default(), u64::MAX)
}

fn operation(kind: EntryKind, key: &str, value: &str) -> Operation {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Operation { keyspace: keyspace(), kind, key: bytes(key), value: bytes(value) }
}

/// What a key has, as a word: `-` none, `?` that of below.
fn word(index: &Index, key: &str) -> String {
    match index.of(3, key.as_bytes()) {
        Own::Nothing => "?".to_owned(),
        Own::Absent => "-".to_owned(),
        Own::Written(written, below) => {
            let mut word = if below { "?".to_owned() } else { String::new() };
            for (kind, value) in &*written {
                match kind {
                    EntryKind::Merge => word.push('+'),
                    EntryKind::Put => {}
                    _ => word.push('-'),
                }
                word.push_str(std::str::from_utf8(value).unwrap());
            }
            word
        }
    }
}

#[test]
fn own_writes_say_what_a_key_has() {
    let mut writes = Writes::default();
    let push = |writes: &mut Writes, kind, key: &str, value: &str| {
        writes.push(operation(kind, key, value)).unwrap();
    };
    push(&mut writes, EntryKind::Merge, "m", "1");
    assert_eq!(word(&writes.index, "m"), "?+1");
    push(&mut writes, EntryKind::Merge, "m", "2");
    assert_eq!(word(&writes.index, "m"), "?+1+2");
    let mark = writes.mark();
    push(&mut writes, EntryKind::Put, "m", "p");
    push(&mut writes, EntryKind::Merge, "m", "3");
    assert_eq!(word(&writes.index, "m"), "p+3");
    push(&mut writes, EntryKind::RangeDelete, "a", "n");
    assert_eq!((word(&writes.index, "m"), word(&writes.index, "a")), ("-".to_owned(), "-".to_owned()));
    assert_eq!(word(&writes.index, "n"), "?", "the end is not in it");
    push(&mut writes, EntryKind::Merge, "m", "4");
    assert_eq!(word(&writes.index, "m"), "+4", "over nothing");
    push(&mut writes, EntryKind::SingleDelete, "z", "");
    assert_eq!(word(&writes.index, "z"), "-");
    // Another range that joins it makes it longer.
    push(&mut writes, EntryKind::RangeDelete, "n", "q");
    assert_eq!(writes.index.range_around(3, b"o").unwrap().1, "q");
    writes.go_back(&mark);
    assert_eq!((word(&writes.index, "m"), word(&writes.index, "a")), ("?+1+2".to_owned(), "?".to_owned()));
    assert_eq!(writes.operations.len(), 2);
    assert_eq!(writes.to_prepared().batch.count(), 2);
    assert_eq!(writes.touched().len(), 1);
}

#[test]
fn more_than_a_batch_holds_is_refused() {
    let mut writes = Writes::default();
    let large = "x".repeat(48 << 20);
    writes.push(operation(EntryKind::Put, "a", &large)).unwrap();
    let before = writes.bytes();
    let error = writes.push(operation(EntryKind::Put, "b", &large)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!((writes.operations.len(), writes.bytes()), (1, before));
    assert_eq!(word(&writes.index, "b"), "?");
}

fn step() -> impl Strategy<Value = (u8, u8, u8)> {
    (0..4_u8, 0..20_u8, 1..6_u8)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Against a map of what each key has, and the set of keys that are known.
    #[test]
    fn the_index_is_a_map_with_ranges(steps in prop::collection::vec(step(), 1..60)) {
        let mut writes = Writes::default();
        let mut model: BTreeMap<u8, String> = BTreeMap::new();
        let mut deleted: BTreeSet<u8> = BTreeSet::new();
        for (number, (kind, key, span)) in steps.into_iter().enumerate() {
            let at = |key: u8| format!("{key:03}");
            let (text, value) = (at(key), number.to_string());
            let (kind, value) = match kind {
                0 => {
                    model.insert(key, value.clone());
                    (EntryKind::Put, value)
                }
                1 => {
                    model.insert(key, "-".to_owned());
                    (EntryKind::Delete, String::new())
                }
                2 => {
                    let below = if deleted.contains(&key) { "" } else { "?" };
                    let has = model.entry(key).or_insert_with(|| below.to_owned());
                    *has = format!("{has}+{value}");
                    (EntryKind::Merge, value)
                }
                _ => {
                    model.retain(|other, _| !(key..key + span).contains(other));
                    deleted.extend(key..key + span);
                    (EntryKind::RangeDelete, at(key + span))
                }
            };
            writes.push(operation(kind, &text, &value)).unwrap();
        }
        let at = |key: u8| format!("{key:03}");
        for key in 0..30_u8 {
            let nothing = if deleted.contains(&key) { "-" } else { "?" };
            let wanted = model.get(&key).map_or(nothing, |has| has);
            prop_assert_eq!(word(&writes.index, &at(key)), wanted, "{}", key);
            let next = writes.index.next(3, at(key).as_bytes(), key % 2 == 0).map(|(key, _)| key);
            let from = if key % 2 == 0 { key + 1 } else { key };
            let wanted = model.range(from..).next().map(|(key, _)| Bytes::from(at(*key)));
            prop_assert_eq!(next, wanted);
            let prev = writes.index.prev(3, Some(at(key).as_bytes()), key % 2 == 0).map(|(key, _)| key);
            let to = if key % 2 == 0 { key } else { key + 1 };
            let wanted = model.range(..to).next_back().map(|(key, _)| Bytes::from(at(*key)));
            prop_assert_eq!(prev, wanted);
        }
        let last = model.keys().next_back().map(|key| Bytes::from(at(*key)));
        prop_assert_eq!(writes.index.prev(3, None, false).map(|(key, _)| key), last);
        prop_assert!(writes.index.next(2, b"", false).is_none());
        prop_assert!(writes.index.prev(4, None, true).is_none());
    }
}
