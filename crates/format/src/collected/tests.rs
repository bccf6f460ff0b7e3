use proptest::prelude::*;

use super::*;

#[test]
fn properties_are_the_bytes_of_their_table() {
    let all = [Collected { collector: "c", name: "n", value: b"v" }];
    let bytes = encode_collected(&all).unwrap();
    assert_eq!(bytes, [1, 0, 0, 0, 1, 0, 0, 0, b'c', 1, 0, 0, 0, b'n', 1, 0, 0, 0, b'v']);
    assert_eq!(decode_collected(&bytes).unwrap(), all);
    assert_eq!(decode_collected(&encode_collected(&[]).unwrap()).unwrap(), []);
}

#[test]
fn limits_and_order_are_kept() {
    let long = "n".repeat(COLLECTED_NAME_BYTES_MAX + 1);
    assert!(encode_collected(&[Collected { collector: "c", name: &long, value: b"" }]).is_err());
    let large = vec![0; COLLECTED_BYTES_MAX];
    assert!(encode_collected(&[Collected { collector: "c", name: "n", value: &large }]).is_err());
    let one = encode_collected(&[Collected { collector: "c", name: "n", value: b"v" }]).unwrap();
    let twice = [&[2, 0, 0, 0][..], &one[4..], &one[4..]].concat();
    assert!(decode_collected(&twice).is_err(), "a name that comes twice");
    assert!(decode_collected(&[&one[..], b"x"].concat()).is_err(), "bytes behind the last");
    assert!(decode_collected(&large).is_err());
    for cut in 0..one.len() {
        assert!(decode_collected(&one[..cut]).is_err(), "{cut}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(all in prop::collection::btree_map(
        ("[a-c]{0,3}", "[a-z]{0,9}"), prop::collection::vec(any::<u8>(), 0..20), 0..20,
    )) {
        let all: Vec<_> =
            all.iter().map(|((collector, name), value)| Collected { collector, name, value }).collect();
        let bytes = encode_collected(&all).unwrap();
        prop_assert_eq!(decode_collected(&bytes).unwrap(), all);
    }

    #[test]
    fn any_bytes_are_refused_or_say_what_they_are(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(all) = decode_collected(&bytes) {
            prop_assert_eq!(encode_collected(&all).unwrap(), bytes);
        }
    }
}
