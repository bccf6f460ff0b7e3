use proptest::prelude::*;

use super::mark::MarkKind;
use super::snapshot::{SnapshotDecoder, SnapshotEncoder, SnapshotEnd, SnapshotIdentity};
use super::*;
use crate::FormatError;
use crate::checksum::crc32c;
use crate::cold::{Aged, ColdStore};
use crate::property::{Property, put_property};

/// Of a later version, which this one may ignore.
fn properties() -> PropertyList {
    let mut out = Vec::new();
    put_property(&mut out, Property { id: 2, is_critical: false, value: b"newest" });
    put_property(&mut out, Property { id: 12, is_critical: false, value: b"" });
    PropertyList::decode(&out).unwrap()
}

fn table(random: u64) -> TableDescription {
    TableDescription {
        name: TableName { epoch: 3, random },
        offset: 4096,
        length: 1 << 20,
        identity: 0xfeed,
        keyspace: 2,
        level: 1,
        first_key: Bytes::from_static(b"a"),
        last_key: Bytes::from_static(b"zz"),
        first_sequence: SequenceNumber(5),
        last_sequence: SequenceNumber::MAX,
        entries: 100,
        deletes: 7,
        tail_bytes: 9000,
        oldest_unix_seconds: 1_790_000_000,
        features: 0,
        properties: properties(),
        source: None,
    }
}

fn all_edits() -> Vec<Edit> {
    let name = TableName { epoch: 3, random: 4 };
    vec![
        Edit::DatabaseCreated { id: 29, log_identity: "file:///log".into(), created_unix_seconds: 17 },
        Edit::KeyspaceCreated {
            id: 1,
            name: "default".into(),
            stream: 0,
            options: KeyspaceOptions::of([("compression".into(), "zstd".into())]),
        },
        Edit::KeyspaceChanged { id: 1, options: KeyspaceOptions::of([("filter_bits".into(), "0".into())]) },
        Edit::KeyspaceDropped { id: 1 },
        Edit::KeyspaceFlushed { id: 1, sequence: SequenceNumber(10) },
        Edit::TableAdded(table(4)),
        Edit::TableMoved { name, level: 6 },
        Edit::TableObsolete { name },
        Edit::TableCondemned { name },
        Edit::TableUnnamed { name },
        Edit::LogNamed {
            epoch: 3,
            lane: 1,
            role: LogRole::Application,
            configuration: Bytes::from_static(b"configuration"),
        },
        Edit::LogNamed { epoch: 3, lane: 0, role: LogRole::Main, configuration: Bytes::new() },
        Edit::LogSealed { epoch: 3, lane: 1, length: 99 },
        Edit::LogReplayPoint { epoch: 3, lane: 1, offset: 98 },
        Edit::LogTrimmed { epoch: 3, lane: 1, entries: 97 },
        Edit::LogUnnamed { epoch: 3, lane: 1 },
        Edit::StreamReached { stream: 0, sequence: SequenceNumber(11) },
        Edit::Time { times: Times { reached_ms: 7, bound_ms: 9, settled_ms: 5 }, is_set: true },
        Edit::SourceNamed(Source {
            number: 1,
            place: "../orders".into(),
            incarnation: 2,
            database: 30,
            pin: 1 << 99,
        }),
        Edit::TableAdded(TableDescription {
            source: Some(TableSource { source: 1, name: TableName { epoch: 8, random: 9 } }),
            ..table(5)
        }),
        Edit::SourceUnnamed { number: 1 },
        Edit::ColdStoreNamed(ColdStore { id: 5, database: 6, place: "file:///cold".into(), is_own: true }),
        Edit::Aged { stream: 0, aged: Aged { sequence: 44, unix_seconds: 55 } },
        Edit::WriterNamed { epoch: 3, writer: writer() },
        Edit::WriterClosed,
        Edit::TableStaged(table(6)),
        Edit::StagedTableLive { name, level: 5, sequence: SequenceNumber(12) },
        Edit::KeyspaceEmptied { id: 1 },
        Edit::TableAdded(table(7).at_sequence(SequenceNumber(13))),
        Edit::Marked(None),
        Edit::Marked(Some(Mark {
            kind: MarkKind::Moving,
            place: "s3://bucket/orders".into(),
            database: 1,
            incarnation: 2,
            epoch: 3,
            slot: 4,
            sequence: SequenceNumber(5),
            unix_ms: 6,
        })),
    ]
}

fn writer() -> Writer {
    Writer {
        host: "db7".into(),
        program: "orders".into(),
        boot_id: 1 << 90,
        process_namespace: 5,
        process: 4711,
        process_start: 6,
        since_unix_seconds: 1_790_000_000,
    }
}

fn record(kind: RecordKind) -> Record {
    Record {
        incarnation: 1,
        slot: 9,
        epoch: 3,
        attempt: 0xa77e,
        predecessor_hash: 0xbeef,
        snapshot_slot: 2,
        kind,
    }
}

#[test]
fn records_round_trip() {
    for kind in [
        RecordKind::Claim(writer()),
        RecordKind::Claim(Writer::default()),
        RecordKind::Destroyed,
        RecordKind::Snapshot { slot: 8, epoch: 2, record_hash: 7, random: 1, length: 2, checksum: 3 },
        RecordKind::Edits(all_edits()),
        RecordKind::Edits(vec![]),
        RecordKind::Part(Part::First, all_edits()),
        RecordKind::Part(Part::Further, vec![]),
        RecordKind::Part(Part::Last, all_edits()),
    ] {
        let record = record(kind);
        let bytes = encode_record(&record).unwrap();
        assert_eq!(decode_record(&bytes), Ok(record));
        assert_eq!(record_hash(&bytes), crate::checksum::hash128(&bytes));
    }
}

#[test]
fn a_record_is_the_bytes_of_its_table() {
    let bytes =
        encode_record(&record(RecordKind::Edits(vec![Edit::LogUnnamed { epoch: 3, lane: 1 }]))).unwrap();
    assert_eq!(bytes.len(), RECORD_HEADER_BYTES + 6 + 12 + 4);
    assert_eq!(&bytes[0..8], b"TMBLOREC");
    assert_eq!((bytes[8], bytes[12] as usize), (1, bytes.len()));
    for (at, value) in [(32, 1), (40, 9), (48, 3), (88, 2)] {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(value), "offset {at}");
    }
    assert_eq!(bytes[56..72], 0xa77eu128.to_le_bytes());
    assert_eq!(bytes[72..88], 0xbeefu128.to_le_bytes());
    assert_eq!(bytes[96..104], [2, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[104..122], [13, 0, 12, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[122..], crc32c(&bytes[..122]).to_le_bytes());
}

#[test]
fn a_claim_names_its_writer_in_the_bytes_of_the_table() {
    let bytes = encode_record(&record(RecordKind::Claim(writer()))).unwrap();
    assert_eq!(bytes[96..104], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[104..120], (1u128 << 90).to_le_bytes());
    assert_eq!(bytes[120..128], 5u64.to_le_bytes());
    assert_eq!(bytes[128..132], 4711u32.to_le_bytes());
    assert_eq!(bytes[132..140], 6u64.to_le_bytes());
    assert_eq!(bytes[140..148], 1_790_000_000u64.to_le_bytes());
    assert_eq!(&bytes[148..155], b"\x03\0\0\0db7");
    assert_eq!(&bytes[155..165], b"\x06\0\0\0orders");
    assert_eq!(bytes.len(), 169);
    let long = Writer { host: "h".repeat(WRITER_TEXT_BYTES_MAX + 1), ..writer() };
    assert!(matches!(encode_record(&record(RecordKind::Claim(long))), Err(FormatError::Limit { .. })));
}

/// Of a stream that is not the main one.
fn edits_of_streams() -> [Edit; 3] {
    let options = KeyspaceOptions::default();
    [
        Edit::KeyspaceCreated { id: 2, name: "orders".into(), stream: 4, options },
        Edit::LogNamed { epoch: 3, lane: 9, role: LogRole::Stream(4), configuration: Bytes::new() },
        Edit::StreamReached { stream: 4, sequence: SequenceNumber(14) },
    ]
}

/// A version that has no streams would pass over their logs: it refuses them by the bit.
#[test]
fn a_manifest_with_streams_has_their_bit_and_is_read() {
    for edit in edits_of_streams() {
        assert_eq!(edit.features(), FEATURE_STREAMS);
        let mut bytes = Vec::new();
        encode_edit(&edit, &mut bytes).unwrap();
        assert_eq!(decode_edit(&mut crate::codec::Reader::new(&bytes)).as_ref(), Ok(&edit));
        let edits = vec![edit];
        let (object, end) = snapshot(&edits);
        assert!(read_back(&object, object.len(), &end).is_ok());
        let record = record(RecordKind::Edits(edits));
        let bytes = encode_record(&record).unwrap();
        assert_eq!(u64::from(bytes[16]), FEATURE_STREAMS);
        assert_eq!(decode_record(&bytes), Ok(record));
    }
}

/// What names tables of other databases, or logs of streams, is not read by who does not know of
/// them.
#[test]
fn edits_that_nobody_may_pass_over_have_feature_bits() {
    let of = |edits: Vec<Edit>| encode_record(&record(RecordKind::Edits(edits))).unwrap();
    for edit in all_edits().into_iter().chain(edits_of_streams()) {
        assert_eq!(of(vec![edit.clone()])[16], u8::try_from(edit.features()).unwrap(), "{edit:?}");
    }
    let bytes = of(all_edits());
    let mut without = bytes[..bytes.len() - 4].to_vec();
    assert_eq!(u64::from(without[16]), RECORD_FEATURES_KNOWN & !FEATURE_STREAMS);
    without[16] = 0;
    without.extend_from_slice(&crc32c(&without).to_le_bytes());
    assert!(matches!(decode_record(&without), Err(FormatError::Damaged { offset: 16, .. })));
    let identity = SnapshotIdentity { incarnation: 1, slot: 2, random: 3 };
    for edit in all_edits().iter().chain(&edits_of_streams()).filter(|edit| edit.features() != 0) {
        assert!(SnapshotEncoder::new(identity).push(edit).is_err());
    }
}

#[test]
fn every_flipped_byte_and_every_truncation_of_a_record_is_damage() {
    let bytes = encode_record(&record(RecordKind::Edits(all_edits()))).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x20;
        assert!(matches!(decode_record(&flipped), Err(FormatError::Damaged { .. })), "byte {at}");
        assert!(matches!(decode_record(&bytes[..at]), Err(FormatError::Damaged { .. })), "{at} bytes");
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(decode_record(&longer).is_err());
}

#[test]
fn newer_records_are_told_from_damaged_ones() {
    let bytes = encode_record(&record(RecordKind::Edits(all_edits()))).unwrap();
    // Version, feature bits, kind, an edit's tag, an edit's flags.
    for (at, value) in [(8, 2), (16, 64), (96, 8), (104, 99), (105, 1)] {
        let mut newer = bytes[..bytes.len() - 4].to_vec();
        newer[at] = value;
        newer.extend_from_slice(&crc32c(&newer).to_le_bytes());
        let error = decode_record(&newer).unwrap_err();
        assert!(
            matches!(error, FormatError::Newer { offset, .. } if offset == at as u64),
            "byte {at}: {error}"
        );
    }
    let mut compatible = bytes[..bytes.len() - 4].to_vec();
    compatible[24] = 0xff;
    compatible.extend_from_slice(&crc32c(&compatible).to_le_bytes());
    assert!(decode_record(&compatible).is_ok(), "compatible feature bits do not matter to a reader");
}

/// The bytes of an edit with its body changed by `change`.
fn changed(edit: &Edit, change: impl FnOnce(&mut Vec<u8>)) -> crate::Result<Edit> {
    let mut bytes = Vec::new();
    encode_edit(edit, &mut bytes).unwrap();
    change(&mut bytes);
    let body = (bytes.len() - 6) as u32;
    bytes[2..6].copy_from_slice(&body.to_le_bytes());
    decode_edit(&mut crate::codec::Reader::new(&bytes))
}

/// Entries, settings and properties that only a later version knows are refused where the manifest
/// is read, with the place and the kind.
#[test]
fn what_a_later_version_needs_is_refused_by_feature_bits() {
    let newer = |found: crate::Result<Edit>, said: &str| {
        let Err(FormatError::Newer { what, .. }) = found else { panic!("{found:?} is not refused") };
        assert_eq!(what, said);
    };
    let plain = Edit::TableAdded(TableDescription { properties: PropertyList::default(), ..table(4) });
    // Name, six words, keyspace, level, three words, tail bytes; then the bits.
    let bits = 6 + 16 + 24 + 5 + 32 + 4 + 8;
    let name = "table 0000000000000003-0000000000000004";
    newer(
        changed(&plain, |bytes| bytes[bits + 1] = 1 << 5),
        &format!("{name}: unknown incompatible feature bits 0x2000, which say: entries of kind 13"),
    );
    let critical = |bytes: &mut Vec<u8>| {
        bytes.truncate(bytes.len() - 4);
        bytes.extend_from_slice(&[7, 0, 0, 0, 99, 0, 1, 0, 0, 0, 0]);
    };
    newer(changed(&plain, critical), &format!("{name}: unknown critical property 99"));
    let ignorable = |bytes: &mut Vec<u8>| {
        critical(bytes);
        let flags = bytes.len() - 5;
        bytes[flags] = 0;
    };
    let Ok(Edit::TableAdded(kept)) = changed(&plain, ignorable) else { panic!("it may be ignored") };
    assert_eq!(kept.properties.ids(), [99]);
    let created =
        Edit::KeyspaceCreated { id: 1, name: "k".into(), stream: 0, options: KeyspaceOptions::default() };
    newer(
        changed(&created, |bytes| bytes[6 + 8 + 5 + 2] = 2),
        "keyspace \"k\": unknown incompatible feature bits 0x20000",
    );
    let other = Edit::KeyspaceChanged { id: 9, options: KeyspaceOptions::default() };
    newer(
        changed(&other, |bytes| bytes[6 + 4 + 1] = 1 << 5),
        "keyspace 9: unknown incompatible feature bits 0x2000, which say: entries of kind 13",
    );
}

#[test]
fn limits_of_edits_are_errors() {
    let long = Edit::KeyspaceCreated {
        id: 1,
        name: "n".repeat(256),
        stream: 0,
        options: KeyspaceOptions::default(),
    };
    assert!(matches!(encode_record(&record(RecordKind::Edits(vec![long]))), Err(FormatError::Limit { .. })));
    let configuration = Bytes::from(vec![0; (64 << 10) + 1]);
    let mut out = vec![1, 2];
    assert!(
        encode_edit(&Edit::LogNamed { epoch: 0, lane: 0, role: LogRole::Main, configuration }, &mut out)
            .is_err()
    );
    assert_eq!(out, [1, 2], "nothing of a refused edit stays");
}

const IDENTITY: SnapshotIdentity = SnapshotIdentity { incarnation: 1, slot: 30, random: 0x5eed };

fn snapshot(edits: &[Edit]) -> (Vec<u8>, SnapshotEnd) {
    let mut encoder = SnapshotEncoder::of(IDENTITY, edits);
    let mut object = Vec::new();
    for edit in edits {
        if let Some(piece) = encoder.push(edit).unwrap() {
            object.extend_from_slice(&piece);
        }
    }
    let end = encoder.finish();
    object.extend_from_slice(&end.piece);
    (object, end)
}

fn read_back(object: &[u8], step: usize, end: &SnapshotEnd) -> crate::Result<Vec<Edit>> {
    let mut decoder = SnapshotDecoder::new(IDENTITY);
    let mut edits = Vec::new();
    for piece in object.chunks(step) {
        decoder.push(piece, &mut edits)?;
    }
    decoder.finish(end.length, end.checksum)?;
    Ok(edits)
}

#[test]
fn snapshots_round_trip_however_they_are_cut() {
    let edits = all_edits();
    let (object, end) = snapshot(&edits);
    assert_eq!(end.length, object.len() as u64);
    assert_eq!(end.checksum, xxhash_rust::xxh3::xxh3_64(&object));
    for step in [1, 7, 61, object.len()] {
        assert_eq!(read_back(&object, step, &end).as_ref(), Ok(&edits), "pieces of {step}");
    }
    let (object, end) = snapshot(&[]);
    assert_eq!(read_back(&object, 10, &end), Ok(vec![]));
}

#[test]
fn a_snapshot_is_the_bytes_of_its_table() {
    let (object, _) = snapshot(&[Edit::KeyspaceDropped { id: 7 }]);
    assert_eq!((snapshot::SNAPSHOT_HEADER_BYTES, snapshot::CHUNK_HEADER_BYTES), (60, 20));
    assert_eq!(&object[..8], b"TMBLOSNA");
    assert_eq!(object[8], 1);
    for (at, value) in [(32, 1), (40, 30), (48, 0x5eed)] {
        assert_eq!(object[at..at + 8], u64::to_le_bytes(value), "offset {at}");
    }
    assert_eq!(object[56..60], crc32c(&object[..56]).to_le_bytes());
    assert_eq!(object[60..76], [10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(object[80..90], [3, 0, 4, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(object[90..106], [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(object.len(), 110);
}

#[test]
fn large_snapshots_come_in_several_pieces() {
    let edits: Vec<Edit> = (0..20_000).map(|random| Edit::TableAdded(table(random))).collect();
    let mut encoder = SnapshotEncoder::new(IDENTITY);
    let pieces = edits.iter().filter(|edit| encoder.push(edit).unwrap().is_some()).count();
    assert!(pieces >= 2, "{pieces} pieces");
    let (object, end) = snapshot(&edits);
    assert_eq!(read_back(&object, 64 << 10, &end), Ok(edits));
}

#[test]
fn chunks_in_another_order_are_damage_although_each_is_sound() {
    let edits: Vec<Edit> = (0..20_000).map(|random| Edit::TableAdded(table(random))).collect();
    let (object, end) = snapshot(&edits);
    let chunk_bytes = |at: usize| {
        snapshot::CHUNK_HEADER_BYTES + u32::from_le_bytes(object[at..at + 4].try_into().unwrap()) as usize
    };
    let first = snapshot::SNAPSHOT_HEADER_BYTES;
    let second = first + chunk_bytes(first);
    let third = second + chunk_bytes(second);
    let swapped =
        [&object[..first], &object[second..third], &object[first..second], &object[third..]].concat();
    let error = read_back(&swapped, swapped.len(), &end).unwrap_err();
    assert_eq!(error, FormatError::damaged(first + 8, "chunk 0", "chunk 1"));
}

#[test]
fn every_flipped_byte_and_every_truncation_of_a_snapshot_is_damage() {
    let (object, end) = snapshot(&all_edits());
    for at in 0..object.len() {
        let mut flipped = object.clone();
        flipped[at] ^= 0x04;
        assert!(
            matches!(read_back(&flipped, object.len(), &end), Err(FormatError::Damaged { .. })),
            "byte {at}"
        );
        assert!(read_back(&object[..at], object.len(), &end).is_err(), "{at} bytes");
    }
    let mut longer = object.clone();
    longer.push(0);
    assert!(read_back(&longer, object.len(), &end).is_err());
    let mut decoder = SnapshotDecoder::new(SnapshotIdentity { slot: 31, ..IDENTITY });
    assert!(decoder.push(&object, &mut Vec::new()).is_err(), "another's snapshot");
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_record(&bytes);
        let _ = decode_edit(&mut crate::codec::Reader::new(&bytes));
        let _ = SnapshotDecoder::new(IDENTITY).push(&bytes, &mut Vec::new());
    }

    #[test]
    fn sound_checksums_over_damaged_records_do_not_panic(at in 8usize..400, value in any::<u8>()) {
        let bytes = encode_record(&record(RecordKind::Edits(all_edits()))).unwrap();
        let mut damaged = bytes[..bytes.len() - 4].to_vec();
        let at = at % damaged.len();
        damaged[at] = value;
        damaged.extend_from_slice(&crc32c(&damaged).to_le_bytes());
        let _ = decode_record(&damaged);
    }
}
