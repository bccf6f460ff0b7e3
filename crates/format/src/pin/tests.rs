use super::*;

fn pin() -> Pin {
    let tables = (0..3).map(|random| TableName { epoch: 7, random }).collect();
    Pin {
        incarnation: 2,
        id: 1 << 100,
        kind: PinKind::Backup,
        lease_ms: 0,
        created_unix_seconds: 99,
        tables,
        clone: None,
    }
}

/// A written value is read back, and no flipped bit or cut goes unnoticed.
#[test]
fn round_trip_and_damage() {
    let bytes = encode_pin(&pin()).unwrap();
    assert_eq!(bytes.len(), PIN_HEADER_BYTES + 3 * 16 + 4);
    assert_eq!((bytes[16], bytes[56]), (0, 4));
    no_damage_goes_unnoticed(&pin());
    let bytes = encode_pin(&of_clone()).unwrap();
    assert_eq!(bytes.len(), PIN_HEADER_BYTES + 3 * 16 + 32 + 4 + 7 + 4);
    assert_eq!((bytes[16], bytes[56], &bytes[bytes.len() - 11..bytes.len() - 4]), (1, 3, &b"../copy"[..]));
    no_damage_goes_unnoticed(&of_clone());
}

fn of_clone() -> Pin {
    let clone = PinnedFor { place: "../copy".into(), incarnation: 3, database: 4, epoch: 5, seen_from: 6 };
    Pin { kind: PinKind::Clone, clone: Some(clone), ..pin() }
}

/// Who is to be asked stands in each clone's pin, and in no other.
#[test]
fn pins_of_clones_name_the_clone() {
    assert!(encode_pin(&Pin { clone: None, ..of_clone() }).is_err());
    assert!(encode_pin(&Pin { kind: PinKind::Checkpoint, ..of_clone() }).is_err());
    let mut bytes = encode_pin(&of_clone()).unwrap();
    bytes[16] = 0;
    let at = bytes.len() - 4;
    let checksum = crc32c(&bytes[..at]).to_le_bytes();
    bytes[at..].copy_from_slice(&checksum);
    assert!(matches!(decode_pin(&bytes), Err(FormatError::Damaged { offset: 16, .. })));
}

fn no_damage_goes_unnoticed(pin: &Pin) {
    let bytes = encode_pin(pin).unwrap();
    assert_eq!(decode_pin(&bytes).as_ref(), Ok(pin));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_pin(&damaged).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(decode_pin(&bytes[..end]).is_err(), "cut at {end}");
    }
}

/// A kind of pin that this version does not know must keep collection from deleting, not be taken
/// for damage.
#[test]
fn an_unknown_kind_is_newer() {
    let mut bytes = encode_pin(&pin()).unwrap();
    bytes[56] = 9;
    let at = bytes.len() - 4;
    let checksum = crc32c(&bytes[..at]).to_le_bytes();
    bytes[at..].copy_from_slice(&checksum);
    assert!(matches!(decode_pin(&bytes), Err(FormatError::Newer { offset: 56, .. })));
}
