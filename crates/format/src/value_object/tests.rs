use super::*;

const IDENTITY: u64 = 0x1234_5678_9abc_def0;

fn values() -> Vec<(Vec<u8>, Vec<u8>)> {
    let noise = |seed: u8, length: usize| -> Vec<u8> {
        (0..length).map(|at| (key_hash(&[seed, at as u8, (at >> 8) as u8]) & 0xff) as u8).collect()
    };
    vec![
        (b"a".to_vec(), vec![7; 5000]),
        (b"b".to_vec(), noise(1, 3000)),
        (b"c".to_vec(), Vec::new()),
        (b"d".to_vec(), noise(2, 1)),
    ]
}

fn object(compression: Compression) -> (Bytes, Vec<Reference>, ValueObjectFooter) {
    let mut builder = ValueObjectBuilder::new(3, IDENTITY, compression);
    let mut bytes = Vec::new();
    let mut references = Vec::new();
    for (key, value) in values() {
        references.push(builder.add(&key, &value).unwrap());
        bytes.extend_from_slice(&builder.take_output());
    }
    let (end, footer) = builder.finish();
    bytes.extend_from_slice(&end);
    (bytes.into(), references, footer)
}

fn record(object: &Bytes, reference: &Reference) -> Bytes {
    object.slice(reference.offset as usize..reference.end() as usize)
}

/// Walks a whole object as verification does.
fn check(object: &Bytes) -> Result<ValueObjectFooter> {
    let mut checker = ValueObjectChecker::begin(object, 3, IDENTITY)?;
    loop {
        let rest = object.slice(checker.at() as usize..);
        match checker.next(&rest, object.len() as u64)? {
            Next::Record(bytes) => checker.record(&rest.slice(..bytes as usize))?,
            Next::Footer => return checker.end(&rest),
        }
    }
}

#[test]
fn what_was_written_is_read() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (object, references, footer) = object(compression);
        assert_eq!(footer.object_bytes, object.len() as u64);
        assert_eq!((footer.records, footer.value_bytes), (4, 8001));
        assert_eq!(check(&object), Ok(footer));
        for ((key, value), reference) in values().iter().zip(&references) {
            assert_eq!(Reference::decode(&reference.encode()), Ok(*reference));
            for alignment in [1, 16, 4096] {
                let read = reference.open(&record(&object, reference), key, alignment).unwrap();
                assert!(*read == value[..] && aligned::is_aligned(&read, alignment));
            }
            let filled = reference.open_into(&record(&object, reference), key, |bytes| vec![0; bytes]);
            assert_eq!(filled.as_ref(), Ok(value));
        }
        let small = references[0].record_bytes < 1000;
        assert_eq!(small, compression != Compression::None, "{compression:?}: what shrinks is compressed");
        assert_eq!(references[1].record_bytes as usize, 3000 + RECORD_OVERHEAD_BYTES, "noise is not");
    }
}

#[test]
fn the_tables_of_bytes_are_those_of_the_constants() {
    let (object, references, _) = object(Compression::None);
    assert_eq!(references[0].offset, VALUE_OBJECT_HEADER_BYTES as u64);
    assert_eq!(object[..8], VALUE_OBJECT_MAGIC);
    assert_eq!(object[12..16], 3u32.to_le_bytes());
    assert_eq!(object[16..24], IDENTITY.to_le_bytes());
    let first = record(&object, &references[0]);
    assert_eq!(first[..4], (first.len() as u32).to_le_bytes());
    assert_eq!(first[4..8], 5000u32.to_le_bytes());
    assert_eq!(first[8..16], key_hash(b"a").to_le_bytes());
    assert_eq!(first[first.len() - 4..], references[0].checksum.to_le_bytes());
    let footer = &object[object.len() - VALUE_OBJECT_FOOTER_BYTES..];
    assert_eq!(footer[..8], IDENTITY.to_le_bytes());
    assert_eq!(footer[8..16], (object.len() as u64).to_le_bytes());
    assert_eq!(footer[16..24], 4u64.to_le_bytes());
    assert_eq!(footer[48..], VALUE_OBJECT_END_MAGIC);
}

/// Each bit counts: of the record for who reads it, and of the whole for who verifies it.
#[test]
fn every_changed_byte_is_found() {
    let (object, references, _) = object(Compression::Lz4);
    for at in 0..object.len() {
        let mut changed = object.to_vec();
        changed[at] ^= 0x10;
        assert!(check(&changed.into()).is_err(), "byte {at}");
    }
    for cut in 0..object.len() {
        assert!(check(&object.slice(..cut)).is_err(), "cut at {cut}");
    }
    let first = record(&object, &references[0]);
    for at in 0..first.len() {
        let mut changed = first.to_vec();
        changed[at] ^= 0x10;
        assert!(references[0].open(&changed.into(), b"a", 1).is_err(), "byte {at}");
    }
}

#[test]
fn a_right_record_in_a_wrong_place_is_found() {
    let (object, references, _) = object(Compression::None);
    let reference = references[0];
    let first = record(&object, &reference);
    assert!(reference.open(&first, b"b", 1).is_err(), "the value of another key");
    for moved in [
        Reference { object: IDENTITY + 1, ..reference },
        Reference { offset: reference.offset + 8, ..reference },
        Reference { checksum: reference.checksum ^ 1, ..reference },
        Reference { value_bytes: reference.value_bytes + 1, ..reference },
        Reference { record_bytes: reference.record_bytes - 1, ..reference },
    ] {
        assert!(moved.open(&first, b"a", 1).is_err(), "{moved:?}");
    }
    // A later write of an equal key to an object of the same identity: only the reference tells.
    let mut other = ValueObjectBuilder::new(3, IDENTITY, Compression::None);
    other.add(b"a", &[8; 5000]).unwrap();
    let stale = other.take_output().slice(VALUE_OBJECT_HEADER_BYTES..);
    assert!(reference.open(&stale, b"a", 1).is_err());
    assert_eq!(reference.believing(&stale).open(&stale, b"a", 1), Ok(vec![8; 5000].into()));
}

#[test]
fn references_beyond_an_object_are_refused() {
    let (_, references, _) = object(Compression::None);
    let sound = references[0];
    for wrong in [
        Reference { offset: 0, ..sound },
        Reference { offset: u64::MAX - 10, ..sound },
        Reference { record_bytes: 20, ..sound },
        Reference { record_bytes: u32::MAX, ..sound },
        Reference { value_bytes: u32::MAX, ..sound },
    ] {
        assert!(Reference::decode(&wrong.encode()).is_err(), "{wrong:?}");
    }
    assert!(Reference::decode(&sound.encode()[1..]).is_err());
    assert!(Reference::decode(&[0; REFERENCE_BYTES + 1]).is_err());
}

#[test]
fn what_tables_refer_to_is_read_back() {
    let referred: Vec<_> = (0..5).map(|at| Referred { object: at * 7, bytes: at }).collect();
    assert_eq!(decode_referred(&encode_referred(&referred)), Ok(referred.clone()));
    let swapped: Vec<_> = referred.iter().rev().copied().collect();
    assert!(decode_referred(&encode_referred(&swapped)).is_err());
    assert!(decode_referred(&[]).is_err());
    assert!(decode_referred(&[0; 15]).is_err());
    assert!(decode_referred(&vec![0; REFERRED_BYTES * (REFERRED_OBJECTS_MAX + 1)]).is_err());
}

#[test]
fn newer_objects_are_refused_by_name() {
    let (object, ..) = object(Compression::None);
    let mut newer = object.to_vec();
    newer[8] = 2;
    let checksum = crc32c(&newer[..36]);
    newer[36..40].copy_from_slice(&checksum.to_le_bytes());
    assert!(matches!(ValueObjectHeader::decode(&newer), Err(FormatError::Newer { offset: 8, .. })));
}
