use super::*;

/// A written value is read back, and no flipped bit or cut goes unnoticed.
#[test]
fn round_trip_and_damage() {
    let bytes = encode_incarnation(0x0102_0304_0506_0708);
    assert_eq!(bytes.len(), INCARNATION_BYTES);
    assert_eq!(bytes[32..40], 0x0102_0304_0506_0708u64.to_le_bytes());
    assert_eq!(decode_incarnation(&bytes), Ok(0x0102_0304_0506_0708));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_incarnation(&damaged).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(decode_incarnation(&bytes[..end]).is_err(), "cut at {end}");
    }
}

/// A newer program's record is told from damage.
#[test]
fn a_newer_record_is_not_damage() {
    for (offset, value) in [(8usize, 2u8), (16, 1)] {
        let mut bytes = encode_incarnation(1);
        bytes[offset] = value;
        let at = INCARNATION_BYTES - 4;
        let checksum = crc32c(&bytes[..at]).to_le_bytes();
        bytes[at..].copy_from_slice(&checksum);
        assert!(matches!(decode_incarnation(&bytes), Err(FormatError::Newer { .. })));
    }
}
