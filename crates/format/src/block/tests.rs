use proptest::prelude::*;

use super::*;
use crate::key::{EntryKind, SequenceNumber};

type Owned = (Vec<u8>, u64, Vec<u8>);

fn key(entry: &Owned) -> InternalKey<'_> {
    InternalKey::new(&entry.0, Trailer::new(SequenceNumber(entry.1), EntryKind::Put))
}

fn build(entries: &[Owned], interval: usize) -> Block {
    let mut builder = BlockBuilder::new(interval);
    for entry in entries {
        builder.add(key(entry), &entry.2);
    }
    let (mut bytes, expected) = (Vec::new(), builder.block_bytes());
    builder.finish_into(&mut bytes);
    assert_eq!(bytes.len(), expected);
    Block::new(bytes.into()).unwrap()
}

/// Entries in order: few letters, so that keys share prefixes, repeat and extend one another.
fn entries() -> impl Strategy<Value = Vec<Owned>> {
    let user_key = prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)], 0..12);
    prop::collection::vec((user_key, 1u64..5, prop::collection::vec(any::<u8>(), 0..200)), 0..80).prop_map(|mut entries| {
        entries.sort_by(|left, right| key(left).cmp(&key(right)));
        entries.dedup_by(|left, right| key(left) == key(right));
        entries
    })
}

fn collect(block: &Block) -> Vec<Owned> {
    let mut out = Vec::new();
    let mut cursor = Cursor::new();
    cursor.first(block).unwrap();
    while cursor.valid() {
        let key = cursor.key();
        out.push((key.user_key.to_vec(), key.trailer.sequence().0, cursor.value(block).to_vec()));
        cursor.next(block).unwrap();
    }
    out
}

#[test]
fn a_block_is_the_bytes_of_its_table() {
    let block = build(&[(b"abc".to_vec(), 1, b"x".to_vec()), (b"abd".to_vec(), 2, b"".to_vec()), (b"abd".to_vec(), 1, b"y".to_vec())], 2);
    let mut golden = vec![0, 3, 1, 0x81, 2, b'a', b'b', b'c', b'x'];
    golden.extend([2, 1, 0, 0x81, 4, b'd']);
    golden.extend([0, 3, 1, 0x81, 2, b'a', b'b', b'd', b'y']);
    golden.extend([0, 0, 0, 0, 0, 0, 0, b'c', 0, 0, 0, 0, 0, 0, 0, b'd']);
    golden.extend([0, 0, 0, 0, 15, 0, 0, 0]);
    golden.extend([2, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(block.bytes().as_ref(), golden);
    assert_eq!((BLOCK_FOOTER_BYTES, RESTART_BYTES), (8, 12));
}

#[test]
fn an_empty_block_holds_nothing() {
    let block = build(&[], 16);
    let mut cursor = Cursor::new();
    cursor.last(&block).unwrap();
    assert!(!cursor.valid() && block.is_empty());
    assert_eq!(block.get(InternalKey::new(b"a", Trailer::FIRST)), Ok(None));
}

#[test]
#[should_panic(expected = "out of order")]
fn entries_out_of_order_are_a_bug() {
    build(&[(b"b".to_vec(), 1, vec![]), (b"a".to_vec(), 1, vec![])], 16);
}

#[test]
#[should_panic(expected = "out of order")]
fn an_older_version_before_a_newer_one_is_a_bug() {
    build(&[(b"a".to_vec(), 1, vec![]), (b"a".to_vec(), 2, vec![])], 16);
}

#[test]
fn an_entry_of_an_unknown_kind_is_newer() {
    let mut bytes = build(&[(b"k".to_vec(), 1, vec![])], 16).bytes().to_vec();
    // The trailer 0x101 as a variable-length integer: kind 1 becomes kind 9.
    assert_eq!(bytes[3..5], [0x81, 2]);
    bytes[3] = 0x89;
    let block = Block::new(bytes.into()).unwrap();
    assert_eq!(block.verify(|_, _| Ok(())), Err(FormatError::newer(0, "entry of kind 9")));
}

#[test]
fn large_keys_and_values_round_trip() {
    let entries = vec![(vec![7; KEY_BYTES_MAX], 3, vec![1; 300_000]), (vec![8; 200], 1 << 55, vec![])];
    assert_eq!(collect(&build(&entries, 16)), entries);
}

proptest! {
    #[test]
    fn entries_come_back_in_both_directions(entries in entries(), interval in 1usize..20) {
        let block = build(&entries, interval);
        prop_assert_eq!(&collect(&block), &entries);
        let mut cursor = Cursor::new();
        cursor.last(&block).unwrap();
        for entry in entries.iter().rev() {
            prop_assert!(cursor.valid());
            prop_assert_eq!(cursor.key(), key(entry));
            prop_assert_eq!(cursor.value(&block), entry.2.as_slice());
            cursor.prev(&block).unwrap();
        }
        prop_assert!(!cursor.valid());
        let mut count = 0;
        block.verify(|_, _| { count += 1; Ok(()) }).unwrap();
        prop_assert_eq!(count, entries.len());
    }

    #[test]
    fn seeks_find_the_first_entry_at_or_after(entries in entries(), targets in entries(), interval in 1usize..20, sequence in 0u64..6) {
        let block = build(&entries, interval);
        let mut cursor = Cursor::new();
        for target in targets.iter().chain(&entries) {
            for trailer in [Trailer::seek(SequenceNumber(sequence)), Trailer::FIRST, Trailer::LAST, key(target).trailer] {
                let target = InternalKey::new(&target.0, trailer);
                let at = entries.partition_point(|entry| key(entry) < target);
                cursor.seek(&block, target).unwrap();
                prop_assert_eq!(cursor.valid().then(|| cursor.key()), entries.get(at).map(key));
                let expected = entries.get(at).map(|entry| entry.2.as_slice());
                prop_assert_eq!(block.at_or_after(target).unwrap().map(|entry| entry.value), expected);
                let expected = entries.get(at).filter(|entry| entry.0 == target.user_key).map(|entry| entry.2.as_slice());
                prop_assert_eq!(block.get(target).unwrap().map(|entry| entry.value), expected);
                cursor.seek_before(&block, target).unwrap();
                prop_assert_eq!(cursor.valid().then(|| cursor.key()), at.checked_sub(1).map(|at| key(&entries[at])));
            }
        }
    }

    #[test]
    fn damaged_blocks_are_errors_and_never_panics(entries in entries(), interval in 1usize..8, flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)) {
        let mut bytes = build(&entries, interval).bytes().to_vec();
        for (at, flip) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        crate::fuzzing::block(&bytes);
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzzing::block(&bytes);
    }
}
