//! One sound input of each kind, for fuzzing to begin with.

use bytes::Bytes;

use crate::batch::{BatchBuilder, single_head};
use crate::block::BlockBuilder;
use crate::checkpoint::CheckpointHeader;
use crate::collected::{Collected, encode_collected};
use crate::compaction::{
    Attempt, CompactionJob, JobAnswer, JobInput, JobOutcome, JobResult, JobTrouble, Reach, Role, Tally,
    WorkerStatus, encode_job, encode_job_answer,
};
use crate::compression::{Compression, Compressor};
use crate::filter::FilterBuilder;
use crate::flash::{FlashKey, FlashRecord, RegionHeader, encode_region_end};
use crate::incarnation::encode_incarnation;
use crate::index::PartitionHandle;
use crate::key::{EntryKind, InternalKey, SequenceNumber, Trailer};
use crate::log_frame::{FrameHeader, SegmentHeader, SegmentIdentity};
use crate::log_object::encode_seal;
use crate::manifest::snapshot::{SnapshotEncoder, SnapshotIdentity};
use crate::manifest::{
    Edit, KeyspaceOptions, LogRole, Record, RecordKind, TableDescription, TableName, encode_record,
};
use crate::operands::OperandList;
use crate::pin::{Pin, PinKind, encode_pin};
use crate::property::{PROPERTY_RANGE_DELETES, Property, PropertyList, RangeDeletes, put_property};
use crate::question::{Answer, Question, Verb, encode_answer, encode_question};
use crate::ranges::{RangeLayers, RangeSet};
use crate::stored;
use crate::table::{TableBuilder, TableOptions};
use crate::trace::{self, Asked, Event, TracedKeys};
use crate::typed_key::KeyEncoder;
use crate::value_object::{Referred, ValueObjectBuilder, encode_referred};
use crate::zoned::{Extent, UnitIdentity, UnitKind, ZoneRecord, ZoneSlot, encode_unit};

pub(super) fn a_batch() -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    for key in [&b"key"[..], b"another key"] {
        batch.push(EntryKind::Put, 1, key, b"value").expect("a seed is within the limits");
    }
    batch.push(EntryKind::RangeDelete, 1, b"a", b"b").expect("a seed is within the limits");
    batch
        .push_create_keyspace(2, "name", 0, &KeyspaceOptions::default())
        .expect("a seed is within the limits");
    batch.push_ingest(&[(TableName { epoch: 3, random: 4 }, 1)]).expect("a seed is within the limits");
    batch.push_exchange(2).expect("a seed is within the limits");
    batch.push_cut(&[(3, SequenceNumber(9))]).expect("a seed is within the limits");
    batch.finish()
}

fn a_typed_key() -> Vec<u8> {
    let mut key = KeyEncoder::new();
    key.put_u64(7);
    key.escaped(b"a\0b");
    let reversed = key.len();
    key.put_f64(-1.5);
    key.invert_from(reversed);
    let mut found = vec![3, 1, 8, 0x82];
    found.extend_from_slice(key.bytes());
    found
}

pub(super) fn an_operand_list() -> Vec<u8> {
    let mut list = OperandList::default();
    [&b"one"[..], b"", b"three"].iter().for_each(|operand| list.push(operand));
    list.finish()
}

pub(super) fn a_single_entry() -> Vec<u8> {
    let head = single_head(EntryKind::Put, 1, b"key", b"value").expect("a seed is within the limits");
    [&head[..], b"key", b"value"].concat()
}

fn a_segment() -> Vec<u8> {
    let identity = SegmentIdentity { incarnation: 1, epoch: 2, lane: 0, segment: 3 };
    let mut bytes =
        SegmentHeader { identity, capacity: 1 << 16, predecessor_end: 0, boot_id: 0 }.encode(0).to_vec();
    for first_sequence in 1..4 {
        let byte = bytes.len() as u32;
        FrameHeader { identity, stream: 0, first_sequence, count: 3, durable_through: identity.offset(byte) }
            .append_to(&mut bytes, byte, &a_batch());
    }
    bytes
}

pub(super) fn a_record() -> Vec<u8> {
    let edits = vec![
        Edit::KeyspaceCreated { id: 1, name: "name".into(), stream: 0, options: KeyspaceOptions::default() },
        Edit::LogNamed {
            epoch: 1,
            lane: 0,
            role: LogRole::Application,
            configuration: Bytes::from_static(b"log"),
        },
        Edit::TableAdded(a_description()),
        Edit::TableStaged(a_description()),
        Edit::StagedTableLive {
            name: TableName { epoch: 2, random: 3 },
            level: 0,
            sequence: SequenceNumber(9),
        },
        Edit::KeyspaceEmptied { id: 1 },
    ];
    let record = Record {
        incarnation: 1,
        slot: 2,
        epoch: 2,
        attempt: 3,
        predecessor_hash: 4,
        snapshot_slot: 0,
        kind: RecordKind::Edits(edits),
    };
    encode_record(&record).expect("a seed is within the limits").to_vec()
}

fn a_question() -> Vec<u8> {
    let question = Question { incarnation: 1, id: 2, verb: Verb::Checkpoint("monday".into()) };
    encode_question(&question).expect("a seed is within the limits")
}

fn an_answer() -> Vec<u8> {
    let facts = vec![("tables".to_owned(), "7".to_owned())];
    let answer = Answer { incarnation: 1, id: 2, epoch: 3, is_done: true, facts };
    encode_answer(&answer).expect("a seed is within the limits")
}

fn a_trace() -> Vec<u8> {
    let header = trace::Header {
        start_unix_ns: 1,
        sampled_one_in: 2,
        keys: TracedKeys::Clear,
        has_values: true,
        is_of_blocks: false,
        origin: "seed".to_owned(),
    };
    let mut builder = trace::BlockBuilder::default();
    for asked in Asked::ALL {
        let event = Event {
            value: b"value",
            value_bytes: 5,
            entries: 3,
            ..Event::new(7, asked, 1, b"a key of a trace")
        };
        builder.push(&event).expect("a seed is within the limits");
    }
    let entry = trace::IndexEntry { offset: 40, first_ns: 1, last_ns: 2, events: 3 };
    let end = trace::End { index_offset: 40, events: 3, dropped: 0 };
    let name = trace::encode_name(1, "name");
    [header.encode(), name, builder.finish(), trace::encode_index(&[entry]), end.encode()].concat()
}

fn a_pin() -> Vec<u8> {
    let tables = vec![TableName { epoch: 1, random: 2 }];
    let pin = Pin {
        incarnation: 1,
        id: 2,
        kind: PinKind::Reader,
        lease_ms: 30_000,
        created_unix_seconds: 3,
        tables,
        clone: None,
    };
    encode_pin(&pin).expect("a seed is within the limits")
}

fn a_checkpoint() -> Vec<u8> {
    let header = CheckpointHeader {
        incarnation: 1,
        id: 2,
        epoch: 3,
        slot: 4,
        last_sequence: SequenceNumber(5),
        created_unix_seconds: 6,
        tables: 7,
        table_bytes: 8,
        entries: 9,
        snapshot_bytes: 10,
        snapshot_checksum: 11,
        name: "name".into(),
    };
    header.encode().expect("a seed is within the limits")
}

fn a_description() -> TableDescription {
    let mut properties = Vec::new();
    let ranges = RangeDeletes { count: 2, bytes: 60, ends_before_last: true };
    let value = &ranges.encode();
    put_property(&mut properties, Property { id: PROPERTY_RANGE_DELETES, is_critical: true, value });
    put_property(&mut properties, Property { id: 2, is_critical: false, value: b"newest" });
    TableDescription {
        name: TableName { epoch: 2, random: 3 },
        offset: 0,
        length: 900,
        identity: 4,
        keyspace: 1,
        level: 0,
        first_key: Bytes::from_static(b"a"),
        last_key: Bytes::from_static(b"z"),
        first_sequence: SequenceNumber(1),
        last_sequence: SequenceNumber(2),
        entries: 2,
        deletes: 1,
        tail_bytes: 300,
        oldest_unix_seconds: 5,
        features: 0,
        properties: PropertyList::decode(&properties).expect("a seed is sound"),
        source: None,
    }
}

fn a_snapshot() -> Vec<u8> {
    let mut encoder = SnapshotEncoder::new(SnapshotIdentity { incarnation: 1, slot: 2, random: 3 });
    for edit in
        [Edit::KeyspaceDropped { id: 7 }, Edit::TableAdded(a_description().at_sequence(SequenceNumber(8)))]
    {
        encoder.push(&edit).expect("a seed is within the limits");
    }
    encoder.finish().piece
}

fn a_table() -> Vec<u8> {
    let options = TableOptions { block_bytes: 100, partition_bytes: 100, ..TableOptions::default() };
    let mut builder = TableBuilder::new(options, 7);
    for key in 0..40u8 {
        builder
            .add(&[b'k', key], SequenceNumber(1), EntryKind::Put, &[key; 9])
            .expect("a seed is within the limits");
    }
    let mut ranges = RangeSet::default();
    ranges.insert(b"k", b"l", SequenceNumber(1));
    builder.set_ranges(RangeLayers::of_stripes(vec![ranges])).expect("a seed is within the limits");
    builder.finish().expect("a seed is within the limits").0.to_vec()
}

fn some_ranges() -> Vec<u8> {
    let (mut older, mut newer) = (RangeSet::default(), RangeSet::default());
    older.insert(b"a", b"b", SequenceNumber(1));
    older.insert(b"c", b"d", SequenceNumber(2));
    newer.insert(b"a", b"c", SequenceNumber(3));
    RangeLayers::of_stripes(vec![older, newer]).encode().expect("a seed is within the limits")
}

pub(super) fn a_block() -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    for key in 0..20u8 {
        builder
            .add(InternalKey::new(&[b'k', key], Trailer::new(SequenceNumber(1), EntryKind::Put)), &[key; 9]);
    }
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    out
}

pub(super) fn a_filter() -> Vec<u8> {
    let mut builder = FilterBuilder::new(10);
    builder.add(b"key");
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    out
}

fn a_compressed_block(compression: Compression) -> Vec<u8> {
    let mut out = Vec::new();
    stored::seal(&mut Compressor::new(), compression, &[5; 500], 7, 0, &mut out);
    out
}

fn a_block_in_two_parts() -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    for key in 0..20u8 {
        builder
            .add(InternalKey::new(&[b'k', key], Trailer::new(SequenceNumber(1), EntryKind::Put)), &[key; 90]);
    }
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    let values_end = builder.finish_into(&mut raw);
    stored::seal_data(&mut Compressor::new(), Compression::Lz4, (&raw, values_end), 7, 0, &mut out);
    out
}

fn a_region() -> Vec<u8> {
    let mut bytes = RegionHeader { id: 1, number: 2 }.encode().to_vec();
    let mut records = Vec::new();
    for offset in 0..3 {
        let key = FlashKey { table: TableName { epoch: 3, random: 4 }, offset };
        let record = FlashRecord { at: bytes.len() as u32, length: 5, key };
        bytes.extend_from_slice(&record.encode(1));
        bytes.extend_from_slice(b"piece");
        records.push(record);
    }
    bytes.extend_from_slice(&encode_region_end(1, bytes.len() as u64, &records));
    bytes
}

fn collected_properties() -> Vec<u8> {
    let least = Collected { collector: "times", name: "least", value: b"1" };
    encode_collected(&[least, Collected { name: "most", value: b"27", ..least }]).expect("short")
}

fn a_value_object() -> Vec<u8> {
    let mut builder = ValueObjectBuilder::new(1, 7, Compression::Lz4);
    for key in 0..3u8 {
        builder.add(&[b'k', key], &[key; 90]).expect("a seed is within the limits");
    }
    builder.finish().0.to_vec()
}

fn a_reference() -> Vec<u8> {
    let mut builder = ValueObjectBuilder::new(1, 7, Compression::None);
    builder.add(b"key", b"value").expect("a seed is within the limits").encode().to_vec()
}

fn a_zoned_unit() -> Vec<u8> {
    let mut payload = Vec::new();
    let extents = vec![Extent { zone: 3, block: 1, bytes: 5, hash: 7 }];
    for record in [
        ZoneRecord::Clock { written: 1, next: 2 },
        ZoneRecord::Moved { body: 1, extents },
        ZoneRecord::Name { name: "a".into(), body: 1 },
        ZoneRecord::Lane { lane: 1, life: 2, epoch: 3, number: 0 },
    ] {
        crate::zoned::encode_record(&mut payload, &record);
    }
    let identity = UnitIdentity { device: 1, generation: 1, number: 3, zone: 0, block: 3 };
    encode_unit(identity, UnitKind::Transaction, &payload, 512)
}

fn an_attempt() -> Attempt {
    Attempt { database: 1, incarnation: 2, epoch: 3, job: 4, random: 5 }
}

pub(crate) fn a_compaction_job() -> Vec<u8> {
    let name = TableName { epoch: 2, random: 3 };
    let options = KeyspaceOptions::default();
    let job = CompactionJob {
        attempt: an_attempt(),
        time_ms: 6,
        settled_ms: 7,
        output_bytes: 1 << 20,
        block_bytes: 8192,
        names_max: 64,
        keyspace: 1,
        from: 0,
        to: 5,
        is_asked: true,
        place: "mem://one".into(),
        needs: vec!["operator add_u64@1".into()],
        snapshots: vec![(SequenceNumber(8), 9)],
        collected: vec![10],
        inputs: vec![JobInput { role: Role::Upper, level: 0, name }],
        others: vec![Reach {
            level: 6,
            ends_before_last: true,
            length: 11,
            first_key: Bytes::from_static(b"b"),
            last_key: Bytes::from_static(b"c"),
        }],
        edits: vec![
            Edit::KeyspaceCreated { id: 1, name: "name".into(), stream: 0, options },
            Edit::TableAdded(a_description()),
        ],
    };
    encode_job(&job).expect("a seed is within the limits")
}

fn a_worker() -> Vec<u8> {
    let abilities = vec!["tombolo 1".to_owned()];
    let worker = WorkerStatus { jobs_max: 2, running: 1, abilities, ..WorkerStatus::default() };
    worker.encode().expect("a seed is within the limits")
}

fn an_answer_to_a_job(has_failed: bool) -> Vec<u8> {
    let result = JobResult {
        tally: Tally { read: 2, written: 2, ..Tally::default() },
        names: 1,
        older: vec![TableName { epoch: 2, random: 3 }],
        outputs: vec![a_description()],
        ..JobResult::default()
    };
    let outcome = if has_failed {
        JobOutcome::Failed(JobTrouble::Damaged, "an input".into())
    } else {
        JobOutcome::Done(Box::new(result))
    };
    encode_job_answer(&JobAnswer { attempt: an_attempt(), outcome }).expect("a seed is within the limits")
}

/// All seeds, each with the target that it is of.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("batch", vec![]),
        ("batch", a_batch()),
        ("batch", a_single_entry()),
        ("batch", crate::prepared::example()),
        ("batch", crate::change::example()),
        ("batch", crate::backup::examples()[1].clone()),
        ("batch", crate::backup::examples()[2].clone()),
        ("log_segment", a_segment()),
        (
            "log_segment",
            encode_seal(&SegmentIdentity { incarnation: 1, epoch: 2, lane: 0, segment: 3 }, 4, 5),
        ),
        ("manifest_record", a_record()),
        ("trace", a_trace()),
        ("pin", a_pin()),
        ("pin", a_checkpoint()),
        ("pin", encode_incarnation(1)),
        ("operands", an_operand_list()),
        ("typed_key", a_typed_key()),
        ("compaction", a_compaction_job()),
        ("compaction", a_worker()),
        ("compaction", an_answer_to_a_job(false)),
        ("compaction", an_answer_to_a_job(true)),
        ("question", a_question()),
        ("question", an_answer()),
        ("manifest_snapshot", a_snapshot()),
        ("table", a_table()),
        ("ranges", some_ranges()),
        ("table", collected_properties()),
        ("block", a_block()),
        ("filter_and_index", a_filter()),
        (
            "filter_and_index",
            PartitionHandle { offset: 4096, filter_bytes: 5, index_bytes: 6 }.encode().to_vec(),
        ),
        ("compression", a_compressed_block(Compression::Lz4)),
        ("compression", a_compressed_block(Compression::Zstd)),
        ("compression", a_block_in_two_parts()),
        ("flash_region", a_region()),
        ("value_object", a_value_object()),
        ("value_object", a_reference()),
        ("zoned", a_zoned_unit()),
        ("zoned", ZoneSlot { zone: 1, state: 4, pointer: 4096 }.encode().to_vec()),
        (
            "value_object",
            encode_referred(&[Referred { object: 7, bytes: 8 }, Referred { object: 9, bytes: 1 }]),
        ),
    ]
}
