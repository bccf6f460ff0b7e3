use super::*;

#[test]
fn varints_round_trip_and_refuse_what_does_not_fit() {
    for value in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(varint(&out), Some((value, out.len())));
        for cut in 0..out.len() {
            assert_eq!(varint(&out[..cut]), None);
        }
    }
    assert_eq!(varint(&[0xff; 20]), None);
    assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
}

#[test]
fn a_reader_never_goes_beyond_its_end() {
    let mut reader = Reader::new(&[1, 0, 0, 0, 7]);
    assert_eq!(reader.clone().u64().unwrap_err(), FormatError::damaged(0, "8 bytes", "an end after 5"));
    assert_eq!(reader.clone().prefixed(0).unwrap_err(), FormatError::damaged(0, "a length of at most 0", "1"));
    assert_eq!(reader.prefixed(1).unwrap(), [7]);
    reader.end().unwrap();
    assert!(Reader::new(&[9, 0, 0, 0, 7]).prefixed(100).is_err());
    assert!(Reader::new(&[1, 0, 0, 0, 0xff]).text(100).is_err());
}
