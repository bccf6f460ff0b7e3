use super::*;
use crate::FormatError;

#[test]
fn a_marker_is_read_back() {
    let marker = Marker { id: 7, database: 9 };
    let bytes = encode_marker(marker);
    assert_eq!(bytes.len(), MARKER_BYTES);
    assert_eq!(decode_marker(&bytes), Ok(marker));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(decode_marker(&damaged).is_err(), "byte {at}");
    }
    assert!(decode_marker(&bytes[..40]).is_err());
}

#[test]
fn a_newer_marker_is_told_from_a_damaged_one() {
    let mut bytes = encode_marker(Marker { id: 1, database: 2 });
    bytes[16] = 1;
    let sum = crc32c(&bytes[..48]);
    bytes[48..].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(decode_marker(&bytes), Err(FormatError::Newer { .. })));
}

#[test]
fn eighths_ascend() {
    let eighths = [1, 2, 2, 3, 5, 8, 13];
    assert_eq!(decode_eighths(&encode_eighths(eighths)), Ok(eighths));
    assert!(decode_eighths(&encode_eighths([2, 1, 2, 3, 5, 8, 13])).is_err());
    assert!(decode_eighths(&[0; 55]).is_err());
}
