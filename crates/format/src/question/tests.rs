use super::*;
use crate::checksum::crc32c;

fn questions() -> [Question; 6] {
    let checkpoint = Verb::Checkpoint("monday".into());
    [
        Verb::Flush,
        Verb::Compact,
        checkpoint,
        Verb::Properties,
        Verb::Stats,
        Verb::Metrics("orders".to_owned()),
    ]
    .map(|verb| Question { incarnation: 2, id: 1 << 100, verb })
}

fn answers() -> [Answer; 2] {
    let facts = vec![("tables".to_owned(), "7".to_owned()), (String::new(), String::new())];
    let done = Answer { incarnation: 2, id: 1 << 100, epoch: 9, is_done: true, facts };
    [done.clone(), Answer { is_done: false, facts: Vec::new(), ..done }]
}

#[test]
fn both_are_the_bytes_of_their_tables() {
    let bytes = encode_question(&questions()[2]).unwrap();
    assert_eq!((&bytes[..8], bytes[8], bytes[12] as usize), (&b"TMBLOASK"[..], 1, bytes.len()));
    assert_eq!((bytes[32], bytes[52], bytes[56]), (2, 1 << 4, 3));
    assert_eq!(&bytes[60..70], b"\x06\0\0\0monday");
    assert_eq!(bytes[70..], crc32c(&bytes[..70]).to_le_bytes());
    let bytes = encode_answer(&answers()[0]).unwrap();
    assert_eq!((&bytes[..8], bytes[56], bytes[64], bytes[68]), (&b"TMBLOANS"[..], 9, 0, 2));
    assert_eq!(&bytes[72..87], b"\x06\0\0\0tables\x01\0\0\x007");
    assert_eq!(encode_answer(&answers()[1]).unwrap()[64], 1);
}

fn damaged(bytes: &[u8], is_read: impl Fn(&[u8]) -> bool) {
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_read(&flipped), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(!is_read(&bytes[..end]), "cut at {end}");
    }
}

#[test]
fn round_trip_and_damage() {
    for question in questions() {
        let bytes = encode_question(&question).unwrap();
        assert_eq!(decode_question(&bytes), Ok(question));
        damaged(&bytes, |bytes| decode_question(bytes).is_ok());
        assert!(decode_answer(&bytes).is_err());
    }
    for answer in answers() {
        let bytes = encode_answer(&answer).unwrap();
        assert_eq!(decode_answer(&bytes), Ok(answer));
        damaged(&bytes, |bytes| decode_answer(bytes).is_ok());
    }
}

fn altered(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut altered = bytes[..bytes.len() - 4].to_vec();
    altered[at] = value;
    let checksum = crc32c(&altered);
    altered.extend_from_slice(&checksum.to_le_bytes());
    altered
}

/// What a later version asks is not taken for anything else.
#[test]
fn newer_ones_are_told_from_damaged_ones() {
    let bytes = encode_question(&questions()[0]).unwrap();
    for (at, value) in [(8, 2), (16, 1), (56, 99)] {
        let error = decode_question(&altered(&bytes, at, value)).unwrap_err();
        assert!(matches!(error, FormatError::Newer { offset, .. } if offset == at as u64), "{at}: {error}");
    }
    let bytes = encode_answer(&answers()[0]).unwrap();
    let error = decode_answer(&altered(&bytes, 64, 7)).unwrap_err();
    assert!(matches!(error, FormatError::Newer { offset: 64, .. }), "{error}");
    assert!(matches!(decode_answer(&altered(&bytes, 70, 1)), Err(FormatError::Damaged { offset: 68, .. })));
}

#[test]
fn limits_are_errors() {
    let verb = Verb::Checkpoint("n".repeat(QUESTION_NAME_BYTES_MAX + 1));
    assert!(encode_question(&Question { verb, ..questions()[0].clone() }).is_err());
    let of = |facts| encode_answer(&Answer { facts, ..answers()[0].clone() });
    assert!(of(vec![(String::new(), String::new()); FACTS_MAX + 1]).is_err());
    assert!(of(vec![(String::new(), "v".repeat(FACT_BYTES_MAX + 1))]).is_err());
    assert!(of(vec![(String::new(), "v".repeat(FACT_BYTES_MAX)); 20]).is_err(), "too large in all");
}
