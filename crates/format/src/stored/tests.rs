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
            assert!(
                matches!(open(&stored, identity, offset), Err(FormatError::Damaged { .. })),
                "{identity} {offset}"
            );
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
            assert!(
                matches!(open(&flipped.into(), 0x1d, 4096), Err(FormatError::Damaged { .. })),
                "byte {at}"
            );
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

fn data_block(entries: u64, value_bytes: usize) -> (Vec<u8>, usize) {
    let mut builder = crate::block::BlockBuilder::new();
    for number in 0..entries {
        let value: Vec<u8> = (0..value_bytes)
            .map(|at| if at % 8 < 4 { b'v' } else { (number as usize * 31 + at * at) as u8 })
            .collect();
        builder
            .add(InternalKey::new(format!("key {number:06}").as_bytes(), Trailer(number << 8 | 1)), &value);
    }
    let mut raw = Vec::new();
    let values_end = builder.finish_into(&mut raw);
    (raw, values_end)
}

fn sealed_data(compression: Compression, entries: u64, value_bytes: usize) -> (Bytes, Vec<u8>) {
    let (raw, values_end) = data_block(entries, value_bytes);
    let mut out = Vec::new();
    seal_data(&mut Compressor::new(), compression, (&raw, values_end), 0x1d, 4096, &mut out);
    (out.into(), raw)
}

#[test]
fn a_payload_in_two_parts_is_the_bytes_of_its_table() {
    let raw = [[b'v'; 40].as_slice(), b"rows"].concat();
    let mut out = Vec::new();
    seal_data(&mut Compressor::new(), Compression::Lz4, (&raw, 40), 0x1d, 4096, &mut out);
    // An LZ4 block: one literal, 33 more of it by a match at a distance of one, and the last six as
    // literals.
    let first = [0x1f, b'v', 1, 0, 14, 0x60, b'v', b'v', b'v', b'v', b'v', b'v'];
    let mut golden = vec![44, 0, 0, 0, 40, 0, 0, 0, first.len() as u8, 0, 0, 0];
    golden.extend(first);
    golden.extend(b"rows");
    golden.push(3);
    let checksum = stamp(crc32c(&golden), 0x1d, 4096);
    golden.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(out, golden);
    assert_eq!(open(&out.into(), 0x1d, 4096).unwrap(), raw);
}

#[test]
fn a_look_up_in_a_sealed_block_finds_what_the_block_has() {
    let shapes = [(1, 100), (60, 100), (60, 0), (3, 5000), (200, 7)];
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for (entries, value_bytes) in shapes {
            let (stored, raw) = sealed_data(compression, entries, value_bytes);
            assert_eq!(open(&stored, 0x1d, 4096).unwrap(), raw);
            let block = Block::new(raw.into()).unwrap();
            let sealed = Sealed::check(&stored, 0x1d, 4096).unwrap();
            // What lay in the room before must not be seen.
            let mut room = vec![0xaa; 20_000];
            for number in (0..entries).flat_map(|number| [(number, ""), (number, "x")]).chain([(entries, "")])
            {
                let key = format!("key {:06}{}", number.0, number.1);
                for trailer in [Trailer(number.0 << 8 | 1), Trailer(number.0 << 8), Trailer(u64::MAX)] {
                    let target = InternalKey::new(key.as_bytes(), trailer);
                    let found = sealed
                        .get(target, &mut room)
                        .unwrap()
                        .map(|(trailer, value)| (trailer, room[value].to_vec()));
                    let expected =
                        block.get(target).unwrap().map(|entry| (entry.trailer, entry.value.to_vec()));
                    assert_eq!(found, expected, "{compression:?}, {entries} of {value_bytes}: {key}");
                    room.fill(0xaa);
                }
            }
        }
    }
}

#[test]
fn a_look_up_decompresses_no_further_than_its_value() {
    let (stored, raw) = sealed_data(Compression::Lz4, 60, 100);
    let sealed = Sealed::check(&stored, 0x1d, 4096).unwrap();
    let mut room = vec![0xaa; raw.len()];
    let (_, value) =
        sealed.get(InternalKey::new(b"key 000010", Trailer(u64::MAX)), &mut room).unwrap().unwrap();
    assert_eq!((value.clone(), &room[value.clone()]), (1000..1100, &raw[1000..1100]));
    assert!(room[2000..5900].iter().all(|byte| *byte == 0xaa), "the values after it were left alone");
}

#[test]
fn parts_that_do_not_fit_together_are_damage() {
    let (stored, raw) = sealed_data(Compression::Lz4, 60, 100);
    let target = InternalKey::new(b"key 000059", Trailer(u64::MAX));
    // Each length a little wrong, and the checksum right: what a bug, or somebody else, might have
    // written.
    for (at, by) in [(0, 1), (0, 255), (4, 1), (4, 255), (8, 1), (8, 255), (3, 255), (7, 255), (11, 255)] {
        let mut forged = stored[..stored.len() - 4].to_vec();
        forged[at] = forged[at].wrapping_add(by);
        let checksum = stamp(crc32c(&forged), 0x1d, 4096);
        forged.extend_from_slice(&checksum.to_le_bytes());
        let opened = open(&forged.clone().into(), 0x1d, 4096);
        assert!(opened.is_err() || opened.is_ok_and(|opened| opened != raw), "byte {at} by {by}");
        if let Ok(sealed) = Sealed::check(&forged, 0x1d, 4096) {
            let found = sealed.get(target, &mut Vec::new());
            assert!(
                matches!(found, Err(FormatError::Damaged { .. } | FormatError::Newer { .. }) | Ok(None)),
                "byte {at} by {by}: {found:?}"
            );
        }
    }
}
