use proptest::prelude::*;

use super::*;

const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

#[test]
fn bytes_and_names_are_the_format() {
    for (byte, compression) in (0..).zip(ALL) {
        assert_eq!((compression as u8, Compression::from_byte(byte)), (byte, Some(compression)));
        assert_eq!(Compression::from_name(compression.name()), Some(compression));
    }
    assert_eq!((Compression::from_byte(3), Compression::from_name("LZ4")), (None, None));
}

#[test]
fn what_repeats_shrinks_and_what_does_not_stays() {
    let repeating = vec![7; 8192];
    let random: Vec<u8> =
        (0..8192u64).map(|index| crate::checksum::key_hash(&index.to_le_bytes()) as u8).collect();
    for wanted in [Compression::Lz4, Compression::Zstd] {
        let mut out = vec![0xaa];
        assert_eq!(Compressor::new().compress(wanted, &repeating, &mut out), wanted);
        assert!(out.len() < 200 && out[0] == 0xaa);
        out.clear();
        assert_eq!(Compressor::new().compress(wanted, &random, &mut out), Compression::None);
        assert_eq!(out, random);
    }
}

#[test]
fn a_forged_length_allocates_nothing() {
    let mut payload = u32::MAX.to_le_bytes().to_vec();
    payload.push(0);
    for compression in [Compression::Lz4, Compression::Zstd] {
        let error = decompress(compression, &payload, 1 << 20).unwrap_err();
        assert_eq!(error, FormatError::damaged(0, "at most 1048576 bytes when decompressed", "4294967295"));
    }
}

#[test]
fn a_length_that_is_not_the_data_s_is_damage() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let mut payload = Vec::new();
        Compressor::new().compress(compression, &[1; 1000], &mut payload);
        for length in [999u32, 1001] {
            payload[..4].copy_from_slice(&length.to_le_bytes());
            assert!(
                matches!(decompress(compression, &payload, 1 << 20), Err(FormatError::Damaged { .. })),
                "{compression:?} {length}"
            );
        }
    }
}

proptest! {
    #[test]
    fn compressed_bytes_come_back(seed in prop::collection::vec(any::<u8>(), 0..64), times in 1usize..200) {
        let raw = seed.repeat(times);
        let mut compressor = Compressor::new();
        for wanted in ALL {
            let mut out = Vec::new();
            let used = compressor.compress(wanted, &raw, &mut out);
            prop_assert_eq!(&decompress(used, &out, raw.len()).unwrap(), &raw);
        }
    }

    #[test]
    fn any_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzzing::compression(&bytes);
    }
}
