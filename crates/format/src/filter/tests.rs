use super::*;

fn filter(keys: impl Iterator<Item = u64>, bits: u32) -> Filter {
    let mut builder = FilterBuilder::new(bits);
    for key in keys {
        builder.add(&key.to_be_bytes());
    }
    let (mut out, expected) = (Vec::new(), builder.filter_bytes());
    builder.finish_into(&mut out);
    assert_eq!(out.len(), expected);
    Filter::new(out.into()).unwrap()
}

#[test]
fn keys_that_were_added_always_pass() {
    for bits in 1..=BITS_PER_KEY_MAX {
        let filter = filter(0..1000, bits);
        assert!((0..1000u64).all(|key| filter.may_contain(key_hash(&key.to_be_bytes()))), "{bits} bits");
    }
}

#[test]
fn about_one_absent_key_in_a_hundred_passes_at_ten_bits() {
    let filter = filter(0..100_000, 10);
    let passed = (200_000..400_000u64).filter(|key| filter.may_contain(key_hash(&key.to_be_bytes()))).count();
    assert!((1_000..2_800).contains(&passed), "{passed} of 200,000");
}

#[test]
fn no_keys_and_no_bits_make_no_filter() {
    let mut out = Vec::new();
    FilterBuilder::new(10).finish_into(&mut out);
    let mut none = FilterBuilder::new(0);
    none.add(b"key");
    none.finish_into(&mut out);
    assert!(out.is_empty() && none.filter_bytes() == 0);
}

#[test]
fn versions_of_one_key_count_once() {
    let mut builder = FilterBuilder::new(10);
    for _ in 0..10_000 {
        builder.add(b"same");
    }
    assert_eq!(builder.filter_bytes(), LINE_BYTES + FILTER_FOOTER_BYTES);
}

#[test]
fn a_filter_is_the_bytes_of_its_table() {
    let mut builder = FilterBuilder::new(10);
    builder.add(b"key");
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    let mut golden = vec![0; LINE_BYTES];
    let mut mixed = xxhash_rust::xxh3::xxh3_64(b"key") as u32;
    for _ in 0..6 {
        mixed = mixed.wrapping_mul(0x9e37_79b9);
        golden[(mixed >> 26) as usize] |= 1 << ((mixed >> 23) & 7);
    }
    golden.extend([1, 0, 0, 0, 6, 1, 0, 0]);
    assert_eq!(out, golden);
}

#[test]
fn sizes_that_do_not_fit_are_damage_and_other_kinds_newer() {
    let sound = filter(0..10, 10).bytes.to_vec();
    let with = |at: usize, value: u8| {
        let mut bytes = sound.clone();
        bytes[at] = value;
        Filter::new(bytes.into())
    };
    let footer = sound.len() - FILTER_FOOTER_BYTES;
    assert!(matches!(with(footer, 0), Err(FormatError::Damaged { .. })));
    assert!(matches!(with(footer + 3, 0xff), Err(FormatError::Damaged { .. })));
    assert!(matches!(with(footer + 4, 0), Err(FormatError::Damaged { .. })));
    assert!(matches!(with(footer + 4, 200), Err(FormatError::Damaged { .. })));
    assert!(matches!(with(footer + 5, 2), Err(FormatError::Newer { .. })));
    for length in 0..sound.len() {
        assert!(Filter::new(Bytes::copy_from_slice(&sound[..length])).is_err());
    }
}
