use super::*;

fn sealed(compression: Compression) -> (Bytes, Vec<u8>) {
    let raw = b"a block that repeats, a block that repeats, a block that repeats".to_vec();
    let mut out = Vec::new();
    let handle = seal(&mut Compressor::new(), compression, &raw, 0x1d, 4096, &mut out);
    assert_eq!(handle, BlockHandle { offset: 4096, length: out.len() as u32 });
    (out.into(), raw)
}

#[test]
fn a_stored_block_is_the_bytes_of_its_table() {
    let (stored, raw) = sealed(Compression::None);
    let mut golden = raw;
    golden.push(0);
    let checksum = stamp(crc32c(&golden), 0x1d, 4096);
    golden.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(stored, golden);
    assert_eq!(BlockHandle { offset: 1, length: 2 }.encode(), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn blocks_open_only_in_their_place() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (stored, raw) = sealed(compression);
        assert_eq!(open(&stored, 0x1d, 4096).unwrap(), raw);
        for (identity, offset) in [(0x1c, 4096), (0x1d, 4097), (0x1d, 0)] {
            assert!(matches!(open(&stored, identity, offset), Err(FormatError::Damaged { .. })), "{identity} {offset}");
        }
    }
}

#[test]
fn every_flipped_byte_and_every_truncation_is_damage() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (stored, _) = sealed(compression);
        for at in 0..stored.len() {
            let mut flipped = stored.to_vec();
            flipped[at] ^= 0x01;
            assert!(matches!(open(&flipped.into(), 0x1d, 4096), Err(FormatError::Damaged { .. })), "byte {at}");
            assert!(open(&stored.slice(..at), 0x1d, 4096).is_err(), "{at} bytes");
        }
    }
}

#[test]
fn an_unknown_compression_is_newer() {
    let mut stored = b"payload".to_vec();
    stored.push(9);
    let checksum = stamp(crc32c(&stored), 0, 0);
    stored.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(open(&stored.into(), 0, 0), Err(FormatError::newer(7, "compression 9")));
}
