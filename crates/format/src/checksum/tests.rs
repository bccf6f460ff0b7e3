use super::*;

#[test]
fn crc_is_castagnoli() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c_two(b"1234", b"56789"), 0xe306_9283);
    assert_eq!(crc32c_two(b"", b"123456789"), 0xe306_9283);
}

#[test]
fn restamping_equals_stamping_anew() {
    let crc = crc32c(b"a block");
    let moved = restamp(stamp(crc, 7, 4096), (7, 4096), (9, 0));
    assert_eq!(moved, stamp(crc, 9, 0));
}

#[test]
fn places_that_differ_in_one_bit_differ_in_their_modifier() {
    for bit in 0..64 {
        assert_ne!(modifier(5, 8192), modifier(5 ^ (1 << bit), 8192), "identity bit {bit}");
        assert_ne!(modifier(5, 8192), modifier(5, 8192 ^ (1 << bit)), "offset bit {bit}");
    }
}

#[test]
fn modifiers_and_hashes_are_part_of_the_format() {
    assert_eq!(modifier(0x0123_4567_89ab_cdef, 8192), GOLDEN_MODIFIER);
    assert_eq!(hash128(b"tombolo"), xxhash_rust::xxh3::xxh3_128_with_seed(b"tombolo", 0));
    assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
}

const GOLDEN_MODIFIER: u32 = 1_539_600_926;
