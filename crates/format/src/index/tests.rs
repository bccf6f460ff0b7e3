use proptest::prelude::*;

use super::*;
use crate::key::{EntryKind, SequenceNumber};

fn between(left: &[u8], right: &[u8]) -> Vec<u8> {
    let trailer = Trailer::new(SequenceNumber(5), EntryKind::Put);
    let (last, next) = (InternalKey::new(left, trailer), InternalKey::new(right, trailer));
    let mut out = Vec::new();
    let trailer = separator(last, next, &mut out);
    let found = InternalKey::new(&out, trailer);
    assert!(last <= found && found < next, "{last:?} {found:?} {next:?}");
    assert!(out.len() <= left.len().max(1), "no longer than the last key");
    out
}

#[test]
fn separators_are_short() {
    assert_eq!(between(b"abcdefgh", b"abzz"), b"abd");
    assert_eq!(between(b"abcdefgh", b"abdz"), b"abd");
    assert_eq!(between(b"abcdefgh", b"abd"), b"abce".to_vec());
    assert_eq!(between(b"abc\xff\xffgh", b"abd"), b"abc\xff\xffh".to_vec());
    assert_eq!(between(b"abc", b"abcd"), b"abc");
    assert_eq!(between(b"", b"a"), b"");
}

#[test]
fn versions_of_one_key_are_separated_by_their_trailer() {
    let newer = InternalKey::new(b"k", Trailer::new(SequenceNumber(9), EntryKind::Put));
    let older = InternalKey::new(b"k", Trailer::new(SequenceNumber(8), EntryKind::Put));
    let mut out = Vec::new();
    assert_eq!((separator(newer, older, &mut out), out.as_slice()), (newer.trailer, &b"k"[..]));
}

#[test]
fn handles_are_the_bytes_of_their_table_and_lie_within_the_table() {
    let handle = PartitionHandle { offset: 0x0102, filter_bytes: 3, index_bytes: 4 };
    assert_eq!(handle.encode(), [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(PartitionHandle::decode(&handle.encode(), 0x0109), Ok(handle));
    assert!(PartitionHandle::decode(&handle.encode(), 0x0108).is_err());
    assert!(PartitionHandle::decode(&[0xff; 16], u64::MAX).is_err());
    assert_eq!(handle.index(), BlockHandle { offset: 0x0105, length: 4 });
    let block = BlockHandle { offset: 10, length: 5 };
    assert_eq!(decode_block_handle(&block.encode(), 15), Ok(block));
    assert!(decode_block_handle(&block.encode(), 14).is_err());
    assert!(decode_block_handle(&block.encode()[..11], 15).is_err());
}

proptest! {
    #[test]
    fn separators_lie_between(
        mut left in prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(2), Just(0xfe), Just(0xff)], 0..8
        ),
        mut right in prop::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(2), Just(0xfe), Just(0xff)], 0..8
        ),
    ) {
        if left > right {
            std::mem::swap(&mut left, &mut right);
        }
        prop_assume!(left != right);
        between(&left, &right);
    }
}
