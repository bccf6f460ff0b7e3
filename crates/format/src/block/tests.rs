use proptest::prelude::*;

use super::*;
use crate::key::{EntryKind, SequenceNumber};

type Owned = (Vec<u8>, u64, Vec<u8>);

fn key(entry: &Owned) -> InternalKey<'_> {
    InternalKey::new(&entry.0, Trailer::new(SequenceNumber(entry.1), EntryKind::Put))
}

fn build(entries: &[Owned], alignment: u32) -> Block {
    let mut builder = BlockBuilder::with_alignment(alignment);
    for entry in entries {
        builder.add(key(entry), &entry.2);
    }
    let (mut bytes, expected) = (Vec::new(), builder.block_bytes());
    builder.finish_into(&mut bytes);
    let lengths: Vec<_> = entries.iter().map(|entry| entry.0.len()).collect();
    let exact = lengths.windows(2).all(|pair| pair[0] == pair[1]);
    assert!(
        if exact { bytes.len() == expected } else { bytes.len() <= expected },
        "{} of {expected}",
        bytes.len()
    );
    Block::new(bytes.into()).unwrap()
}

/// Entries in order: few letters, so that keys share prefixes, repeat and extend one another.
fn entries() -> impl Strategy<Value = Vec<Owned>> {
    let user_key = prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)], 0..12);
    prop::collection::vec((user_key, 1u64..5, prop::collection::vec(any::<u8>(), 0..200)), 0..80).prop_map(
        |mut entries| {
            entries.sort_by(|left, right| key(left).cmp(&key(right)));
            entries.dedup_by(|left, right| key(left) == key(right));
            entries
        },
    )
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
    let block = build(
        &[
            (b"abc".to_vec(), 1, b"x".to_vec()),
            (b"abd".to_vec(), 2, b"".to_vec()),
            (b"abd".to_vec(), 1, b"yz".to_vec()),
        ],
        1,
    );
    let mut golden = b"xyz".to_vec();
    golden.extend([0, 0, 0, b'c', 0, 0, 0, b'd', 0, 0, 0, b'd']);
    golden.extend([1, 0, 1, 0, 3, 0]);
    golden.extend([0, 0, 0, 1, 0, 0]);
    golden.extend(b"ab");
    golden.extend([1, 1, 0, 0, 0, 0, 0, 0]);
    golden.extend([3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 1, 0]);
    golden.extend([0b10_0100, 0, 0, 0]);
    assert_eq!(block.bytes().as_ref(), golden);
    assert_eq!(BLOCK_FOOTER_BYTES, 28);
}

#[test]
fn a_block_of_long_keys_of_different_lengths_is_the_bytes_of_its_table() {
    let block = build(&[(b"k".to_vec(), 1, b"x".to_vec()), (b"k0123456789".to_vec(), 1, b"y".to_vec())], 4);
    let mut golden = b"x\0\0\0y".to_vec();
    golden.extend(b"89");
    golden.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend(b"76543210");
    golden.extend([1, 0, 5, 0, 0, 0, 2, 0, 0, 0, 10, 0]);
    golden.extend(b"k");
    golden.extend([1, 1, 0, 0, 0, 0, 0, 0]);
    golden.extend([5, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    golden.extend([1, 2, 0, 0]);
    assert_eq!(block.bytes().as_ref(), golden);
}

#[test]
fn heads_that_tie_are_told_apart_by_rests_lengths_and_trailers() {
    let mut entries: Vec<Owned> = Vec::new();
    for user_key in [&b"a"[..], b"a\0", b"a\0\0", b"a\0\0\0\0\0\0\0\0", b"a\0\0\0\0\0\0\0\0\x01", b"b"] {
        for sequence in (1..60).rev() {
            entries.push((user_key.to_vec(), sequence, sequence.to_string().into_bytes()));
        }
    }
    let block = build(&entries, 1);
    for entry in &entries {
        let found = block.get(key(entry)).unwrap().unwrap();
        assert_eq!((found.value, found.trailer), (entry.2.as_slice(), key(entry).trailer));
    }
    assert_eq!(block.get(InternalKey::new(b"a\0\0\0", Trailer::FIRST)), Ok(None));
}

#[test]
fn aligned_values_begin_at_multiples() {
    let entries: Vec<Owned> =
        (0..40u8).map(|number| (vec![number], 1, vec![number; usize::from(number)])).collect();
    for alignment in [1, 2, 16, 4096] {
        let block = build(&entries, alignment);
        assert_eq!(block.alignment(), alignment as usize);
        for entry in &entries {
            let value = block.get(key(entry)).unwrap().unwrap().value;
            assert_eq!(value, entry.2);
            assert!(block.range_of(value).start.is_multiple_of(alignment as usize));
            assert!(value.as_ptr().addr().is_multiple_of(alignment as usize), "in memory");
        }
    }
}

#[test]
fn an_empty_block_holds_nothing() {
    let block = build(&[], 1);
    let mut cursor = Cursor::new();
    cursor.last(&block).unwrap();
    assert!(!cursor.valid() && block.is_empty());
    assert_eq!(block.get(InternalKey::new(b"a", Trailer::FIRST)), Ok(None));
}

#[test]
#[should_panic(expected = "out of order")]
fn entries_out_of_order_are_a_bug() {
    build(&[(b"b".to_vec(), 1, vec![]), (b"a".to_vec(), 1, vec![])], 1);
}

#[test]
#[should_panic(expected = "out of order")]
fn an_older_version_before_a_newer_one_is_a_bug() {
    build(&[(b"a".to_vec(), 1, vec![]), (b"a".to_vec(), 2, vec![])], 1);
}

#[test]
fn an_entry_of_an_unknown_kind_is_newer() {
    let mut bytes = build(&[(b"k".to_vec(), 1, vec![])], 1).bytes().to_vec();
    // The base trailer 0x101: kind 1 becomes kind 12.
    let at = bytes.len() - BLOCK_FOOTER_BYTES;
    assert_eq!(bytes[at..at + 2], [1, 1]);
    bytes[at] = 12;
    let block = Block::new(bytes.into()).unwrap();
    assert_eq!(block.verify(|_, _| Ok(())), Err(FormatError::newer(0, "an entry of kind 12")));
}

#[test]
fn large_keys_and_values_round_trip() {
    let entries = vec![(vec![7; KEY_BYTES_MAX], 3, vec![1; 300_000]), (vec![8; 200], 1 << 55, vec![])];
    assert_eq!(collect(&build(&entries, 1)), entries);
}

proptest! {
    #[test]
    fn entries_come_back_in_both_directions(
        entries in entries(),
        alignment in prop::sample::select(vec![1u32, 2, 8, 64])
    ) {
        let block = build(&entries, alignment);
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
    fn seeks_find_the_first_entry_at_or_after(
        entries in entries(),
        targets in entries(),
        alignment in prop::sample::select(vec![1u32, 2, 8, 64]),
        sequence in 0u64..6
    ) {
        let block = build(&entries, alignment);
        let mut cursor = Cursor::new();
        for target in targets.iter().chain(&entries) {
            for trailer in [
                Trailer::seek(SequenceNumber(sequence)), Trailer::FIRST, Trailer::LAST, key(target).trailer
            ] {
                let target = InternalKey::new(&target.0, trailer);
                let at = entries.partition_point(|entry| key(entry) < target);
                cursor.seek(&block, target).unwrap();
                prop_assert_eq!(cursor.valid().then(|| cursor.key()), entries.get(at).map(key));
                let expected = entries.get(at).map(|entry| entry.2.as_slice());
                prop_assert_eq!(block.at_or_after(target).unwrap().map(|entry| entry.value), expected);
                let expected = entries.get(at).filter(|entry| entry.0 == target.user_key).map(
                    |entry| entry.2.as_slice()
                );
                prop_assert_eq!(block.get(target).unwrap().map(|entry| entry.value), expected);
                match block.get_within(target).unwrap() {
                    Within::Found(entry) => prop_assert_eq!(Some(entry.value), expected),
                    Within::Absent => prop_assert!(expected.is_none() && at < entries.len()),
                    Within::Beyond => prop_assert_eq!(at, entries.len()),
                }
                cursor.seek_before(&block, target).unwrap();
                prop_assert_eq!(
                    cursor.valid().then(|| cursor.key()), at.checked_sub(1).map(|at| key(&entries[at]))
                );
            }
        }
    }

    #[test]
    fn damaged_blocks_are_errors_and_never_panics(
        entries in entries(),
        alignment in prop::sample::select(vec![1u32, 16]),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)
    ) {
        let mut bytes = build(&entries, alignment).bytes().to_vec();
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
