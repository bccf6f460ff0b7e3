use proptest::prelude::*;

use super::*;

fn key(encoding: KeyEncoding, number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    encoding.encode(number, &mut key);
    key
}

#[test]
fn known_keys() {
    assert_eq!(key(KeyEncoding::BigEndian { width: 2 }, 258), [1, 2]);
    assert_eq!(key(KeyEncoding::BigEndian { width: 10 }, 1), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(key(KeyEncoding::Decimal { width: 10 }, 42), b"user000042");
    assert_eq!(key(KeyEncoding::Decimal { width: 24 }, u64::MAX), b"user18446744073709551615");
}

#[test]
fn an_encoding_knows_how_much_it_holds() {
    assert!(
        KeyEncoding::BigEndian { width: 1 }.holds(256) && !KeyEncoding::BigEndian { width: 1 }.holds(257)
    );
    assert!(KeyEncoding::Decimal { width: 6 }.holds(100) && !KeyEncoding::Decimal { width: 6 }.holds(101));
    assert!(!KeyEncoding::BigEndian { width: 0 }.holds(1) && !KeyEncoding::BigEndian { width: 65 }.holds(1));
    assert!(!KeyEncoding::Decimal { width: 4 }.holds(1) && !KeyEncoding::Decimal { width: 65 }.holds(1));
    assert!(
        KeyEncoding::BigEndian { width: 64 }.holds(u64::MAX)
            && KeyEncoding::Decimal { width: 64 }.holds(u64::MAX)
    );
}

#[test]
#[should_panic(expected = "does not fit")]
fn a_number_that_does_not_fit_is_a_bug_of_the_caller() {
    let _ = key(KeyEncoding::BigEndian { width: 1 }, 256);
}

proptest! {
    #[test]
    fn bytes_order_as_numbers_do(left: u64, right: u64, width in 8usize..=64) {
        let encoding = KeyEncoding::BigEndian { width };
        prop_assert_eq!(key(encoding, left).cmp(&key(encoding, right)), left.cmp(&right));
        let encoding = KeyEncoding::Decimal { width: width.max(24) };
        prop_assert_eq!(key(encoding, left).cmp(&key(encoding, right)), left.cmp(&right));
        prop_assert_eq!(key(encoding, left).len(), encoding.width());
    }
}
