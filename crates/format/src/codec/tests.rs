use super::*;

#[test]
fn a_reader_never_goes_beyond_its_end() {
    let mut reader = Reader::new(&[1, 0, 0, 0, 7]);
    assert_eq!(reader.clone().u64().unwrap_err(), FormatError::damaged(0, "8 bytes", "an end after 5"));
    assert_eq!(
        reader.clone().prefixed(0).unwrap_err(),
        FormatError::damaged(0, "a length of at most 0", "1")
    );
    assert_eq!(reader.prefixed(1).unwrap(), [7]);
    reader.end().unwrap();
    assert!(Reader::new(&[9, 0, 0, 0, 7]).prefixed(100).is_err());
    assert!(Reader::new(&[1, 0, 0, 0, 0xff]).text(100).is_err());
}
