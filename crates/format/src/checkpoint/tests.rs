use super::*;

fn header() -> CheckpointHeader {
    CheckpointHeader {
        incarnation: 2,
        id: (1 << 100) | 5,
        epoch: 3,
        slot: 9,
        last_sequence: SequenceNumber(77),
        created_unix_seconds: 99,
        tables: 4,
        table_bytes: 1 << 40,
        entries: 6,
        snapshot_bytes: 7,
        snapshot_checksum: 8,
        name: "monday".into(),
    }
}

#[test]
fn a_header_is_the_bytes_of_its_table() {
    let bytes = header().encode().unwrap();
    assert_eq!(bytes.len(), CHECKPOINT_HEADER_BYTES_MIN + 6);
    assert_eq!((&bytes[..8], bytes[8], bytes[12] as usize), (&b"TMBLOCKP"[..], 1, bytes.len()));
    for (at, value) in [
        (32, 2),
        (40, 5),
        (56, 3),
        (64, 9),
        (72, 77),
        (80, 99),
        (88, 4),
        (96, 1 << 40),
        (104, 6),
        (112, 7),
        (120, 8),
    ] {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(value), "offset {at}");
    }
    assert_eq!((&bytes[128..132], &bytes[132..138]), (&[6, 0, 0, 0][..], &b"monday"[..]));
    assert_eq!(header().snapshot_identity(), SnapshotIdentity { incarnation: 2, slot: 9, random: 5 });
}

#[test]
fn round_trip_and_damage() {
    let mut bytes = header().encode().unwrap();
    let length = bytes.len();
    bytes.extend_from_slice(b"what follows");
    assert_eq!(CheckpointHeader::decode(&bytes), Ok((header(), length)));
    for bit in 0..length * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(CheckpointHeader::decode(&damaged).is_err(), "bit {bit}");
    }
    for end in 0..length {
        assert!(CheckpointHeader::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    let long = CheckpointHeader { name: "n".repeat(CHECKPOINT_NAME_BYTES_MAX + 1), ..header() };
    assert!(matches!(long.encode(), Err(FormatError::Limit { .. })));
}
