use super::*;

#[test]
fn newer_versions_of_a_key_come_first() {
    let key =
        |user_key, sequence, kind| InternalKey::new(user_key, Trailer::new(SequenceNumber(sequence), kind));
    let ordered = [
        key(b"", 1, EntryKind::Put),
        key(b"a", 9, EntryKind::Delete),
        key(b"a", 9, EntryKind::Put),
        key(b"a", 8, EntryKind::Put),
        key(b"a\0", 100, EntryKind::Put),
        key(b"b", 1, EntryKind::Put),
    ];
    assert!(ordered.is_sorted());
    let seek = InternalKey::new(b"a", Trailer::seek(SequenceNumber(8)));
    assert!(ordered[2] < seek && seek < ordered[3]);
    assert!(
        InternalKey::new(b"a", Trailer::LAST) > ordered[3]
            && InternalKey::new(b"a", Trailer::FIRST) < ordered[1]
    );
}

#[test]
fn kinds_are_their_bytes() {
    for byte in 0..=255 {
        match EntryKind::from_byte(byte) {
            Some(kind) => assert!(kind as u8 == byte && EntryKind::ALL.contains(&kind)),
            None => assert!(EntryKind::ALL.iter().all(|kind| *kind as u8 != byte)),
        }
        assert_eq!(Trailer(u64::from(byte)).kind_byte(), byte);
    }
    let trailer = Trailer::new(SequenceNumber::MAX, EntryKind::Delete);
    assert_eq!((trailer.sequence(), trailer.kind()), (SequenceNumber::MAX, Some(EntryKind::Delete)));
}

/// A kind that some version does not know has the feature bit with its number; bits that are no
/// kind's are refused as well.
#[test]
fn a_kind_is_refused_by_its_bit() {
    for kind in EntryKind::ALL {
        let byte = kind as u8;
        assert_eq!(kind.feature(), if byte < 3 { 0 } else { 1 << byte });
        assert_eq!(check_entry_features(0, kind.feature()), Ok(()));
    }
    let error = check_entry_features(40, 1 << 12 | 1 << 20).unwrap_err();
    let said = "unknown incompatible feature bits 0x101000, which say: entries of kind 12";
    assert_eq!(error, FormatError::newer(40, said));
    let error = check_entry_features(8, 1 << 63).unwrap_err();
    assert_eq!(error, FormatError::newer(8, "unknown incompatible feature bits 0x8000000000000000"));
}

#[test]
fn limits_are_inclusive() {
    assert!(check_limits(&vec![0; KEY_BYTES_MAX], &[]).is_ok());
    assert!(matches!(check_limits(&vec![0; KEY_BYTES_MAX + 1], &[]), Err(FormatError::Limit { .. })));
}

#[test]
fn heads_that_differ_are_ordered_as_the_keys_are() {
    let keys: [&[u8]; 9] = [
        b"",
        b"\0",
        b"\0\0\x01",
        b"a",
        b"a\0",
        b"ab",
        b"abcdefgh",
        b"abcdefghi",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for pair in keys.windows(2) {
        assert!(head_of(pair[0]) <= head_of(pair[1]), "{pair:?}");
    }
    assert_eq!((head_of(b"ab"), head_of(b"abcdefghi")), (0x6162 << 48, 0x6162_6364_6566_6768));
}
