use super::*;

const IDENTITY: SegmentIdentity = SegmentIdentity { incarnation: 7, epoch: 8, lane: 9, segment: 10 };

#[test]
fn the_byte_tables_hold() {
    let data = encode_data_header(&IDENTITY, 0x0102_0304, 0x0506_0708, 9);
    assert_eq!(data.len(), LOG_OBJECT_HEADER_BYTES);
    assert_eq!((&data[..8], data[8], data[12]), (&LOG_OBJECT_MAGIC[..], 3, 80));
    assert_eq!((data[32], data[40], data[48], data[52], data[56]), (7, 8, 9, 10, 1));
    assert_eq!((&data[60..64], data[64], data[72]), (&[4, 3, 2, 1][..], 8, 9));
    assert_eq!(data[76..], crc32c(&data[..76]).to_le_bytes());
    let seal = encode_seal(&IDENTITY, 11, 12);
    assert_eq!((seal.len(), seal[56], seal[60], seal[64], seal[80]), (SEAL_BYTES, 2, 96, 11, 12));
}

#[test]
fn what_was_encoded_is_decoded() {
    let data = encode_data_header(&IDENTITY, 500, 77, 9);
    assert_eq!(
        LogObject::decode(&data, &IDENTITY),
        Ok(LogObject::Data { bytes: 500, writer: 77, known_through: 9 })
    );
    let seal = encode_seal(&IDENTITY, 11, 12);
    assert_eq!(LogObject::decode(&seal, &IDENTITY), Ok(LogObject::Seal { by: 11, sealed: 12 }));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for sound in [encode_data_header(&IDENTITY, 500, 77, 9).to_vec(), encode_seal(&IDENTITY, 11, 12)] {
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << bit;
                assert!(LogObject::decode(&damaged, &IDENTITY).is_err(), "bit {bit} of byte {at}");
            }
            assert!(LogObject::decode(&sound[..at], &IDENTITY).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn an_object_of_another_place_is_damage() {
    for other in [
        SegmentIdentity { incarnation: 1, ..IDENTITY },
        SegmentIdentity { epoch: 1, ..IDENTITY },
        SegmentIdentity { lane: 1, ..IDENTITY },
        SegmentIdentity { segment: 1, ..IDENTITY },
    ] {
        let error = LogObject::decode(&encode_seal(&other, 1, 2), &IDENTITY).expect_err("of another place");
        assert!(matches!(error, FormatError::Damaged { offset: 32, .. }), "{error}");
    }
}

#[test]
fn newer_ones_are_told_apart_from_damage() {
    let mut newer = encode_data_header(&IDENTITY, 500, 77, 9);
    newer[8] = 4;
    let checksum = crc32c(&newer[..76]);
    newer[76..].copy_from_slice(&checksum.to_le_bytes());
    assert!(matches!(LogObject::decode(&newer, &IDENTITY), Err(FormatError::Newer { offset: 8, .. })));
}
