use proptest::prelude::*;

use super::*;

fn mapped(mapping: &KeyMapping, key: &[u8]) -> Vec<u8> {
    let mut out = vec![7];
    mapping.map(key, &mut out);
    out
}

fn shared(first: &[u8], second: &[u8]) -> usize {
    first.iter().zip(second).take_while(|(first, second)| first == second).count()
}

proptest! {
    #[test]
    fn order_and_common_prefixes_stay(
        first in proptest::collection::vec(any::<u8>(), 0..12),
        second in proptest::collection::vec(any::<u8>(), 0..12),
        secret in any::<u64>(),
    ) {
        let mapping = KeyMapping::ordered(secret);
        let (low, high) = (mapped(&mapping, &first), mapped(&mapping, &second));
        prop_assert_eq!(low.cmp(&high), first.cmp(&second));
        prop_assert_eq!(low.len(), 2 * first.len());
        // Codes of two bytes may share their first one.
        prop_assert_eq!(shared(&low, &high) / 2, shared(&first, &second));
    }
}

#[test]
fn every_byte_keeps_its_place_under_every_prefix() {
    for prefix in [0, 1, u64::MAX, 0x1234_5678] {
        let codes: Vec<u16> = (0..=255).map(|byte| code(prefix, byte)).collect();
        assert!(codes.is_sorted_by(|first, second| first < second));
    }
}

#[test]
fn secrets_and_keys_count() {
    for make in [KeyMapping::hashed, KeyMapping::ordered] {
        assert_ne!(mapped(&make(1), b"order 7"), mapped(&make(2), b"order 7"));
        assert_ne!(mapped(&make(1), b"order 7"), mapped(&make(1), b"order 8"));
        assert!(!format!("{:?}", make(77_777)).contains("77"));
    }
    assert_eq!(mapped(&KeyMapping::hashed(1), b"").len(), HASHED_KEY_BYTES);
}
