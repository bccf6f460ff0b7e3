use super::*;

fn pin() -> Pin {
    let tables = (0..3).map(|random| TableName { epoch: 7, random }).collect();
    Pin { incarnation: 2, id: 1 << 100, kind: PinKind::Backup, lease_ms: 0, created_unix_seconds: 99, tables }
}

/// What is written is read, and no flipped bit or cut goes unnoticed.
#[test]
fn round_trip_and_damage() {
    let bytes = encode_pin(&pin()).unwrap();
    assert_eq!(bytes.len(), PIN_HEADER_BYTES + 3 * 16 + 4);
    assert_eq!(bytes[56..60], 4u32.to_le_bytes());
    assert_eq!(decode_pin(&bytes), Ok(pin()));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_pin(&damaged).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(decode_pin(&bytes[..end]).is_err(), "cut at {end}");
    }
}

/// A kind of pin that this version does not know must keep collection from deleting, not be taken for damage.
#[test]
fn an_unknown_kind_is_newer() {
    let mut bytes = encode_pin(&pin()).unwrap();
    bytes[56] = 9;
    let at = bytes.len() - 4;
    let checksum = crc32c(&bytes[..at]).to_le_bytes();
    bytes[at..].copy_from_slice(&checksum);
    assert!(matches!(decode_pin(&bytes), Err(FormatError::Newer { offset: 56, .. })));
}
