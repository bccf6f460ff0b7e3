use std::fmt::Write;

use tombolo_format::batch::BatchBuilder;
use tombolo_format::key::{EntryKind, SequenceNumber};
use tombolo_format::log_frame::{FrameHeader, SegmentHeader, SegmentIdentity};
use tombolo_format::log_object::{encode_data_header, encode_seal};
use tombolo_format::manifest::{Edit, Record, RecordKind, TableName, encode_record};
use tombolo_format::pin::{Pin, PinKind, encode_pin};
use tombolo_format::table::{TableBuilder, TableOptions};

use super::*;

const IDENTITY: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 5, lane: 0, segment: 2 };

/// A segment of three frames and room, and where the frames begin.
fn segment() -> (Vec<u8>, Vec<usize>) {
    let header = SegmentHeader { identity: IDENTITY, capacity: 16384, predecessor_end: 0, boot_id: 7 };
    let mut bytes = header.encode(IDENTITY.offset(4096)).to_vec();
    let mut frames = Vec::new();
    for number in 0..3u8 {
        let mut batch = BatchBuilder::new();
        batch.push(EntryKind::Put, 0, &[b'k', b'0' + number], b"value\n").unwrap();
        let at = u32::try_from(bytes.len()).unwrap();
        frames.push(bytes.len());
        let frame = FrameHeader {
            identity: IDENTITY,
            stream: 0,
            first_sequence: 10 + u64::from(number),
            count: 1,
            durable_through: IDENTITY.offset(at),
        };
        frame.append_to(&mut bytes, at, &batch.finish());
    }
    bytes.resize(16384, 0);
    (bytes, frames)
}

fn record() -> Vec<u8> {
    let kind =
        RecordKind::Edits(vec![Edit::KeyspaceDropped { id: 3 }, Edit::LogUnnamed { epoch: 1, lane: 2 }]);
    let record =
        Record { incarnation: 1, slot: 9, epoch: 8, attempt: 1, predecessor_hash: 2, snapshot_slot: 0, kind };
    encode_record(&record).unwrap().to_vec()
}

/// The report as text, and whether something is damaged.
fn report(name: &str, bytes: &[u8]) -> (String, bool) {
    let report = inspect(name, &Bytes::copy_from_slice(bytes), None, true);
    let mut text = String::new();
    for line in report.lines() {
        writeln!(text, "{line}").unwrap();
    }
    (text, report.into_error().is_some())
}

#[test]
fn a_sound_segment_is_told_frame_by_frame() {
    let (bytes, frames) = segment();
    let (text, damaged) = report("x", &bytes);
    assert!(!damaged, "{text}");
    for at in frames {
        assert!(text.contains(&format!("{at:>10} +")), "{at}: {text}");
    }
    assert!(
        text.contains("epoch 5") && text.contains("key k2, value $'value\\n'") && text.contains("tail:"),
        "{text}"
    );
}

#[test]
fn beyond_a_damaged_frame_the_report_goes_on() {
    let (mut bytes, frames) = segment();
    bytes[frames[1] + 30] ^= 1;
    let (text, damaged) = report("x", &bytes);
    assert!(damaged);
    assert!(text.contains("key k0") && !text.contains("key k1") && text.contains("key k2"), "{text}");
    assert!(text.contains("expected checksum 0x") && text.contains("found checksum 0x"), "{text}");
}

#[test]
fn without_its_header_a_segment_still_tells_its_frames() {
    let (mut bytes, _) = segment();
    bytes[40] ^= 1;
    let (text, damaged) = report("0000000000000001/log/0000000000000005-0000/00000002", &bytes);
    assert!(damaged);
    assert!(text.contains("DAMAGED header") && text.contains("key k0") && text.contains("key k2"), "{text}");
}

#[test]
fn a_record_is_told_edit_by_edit_and_a_damaged_one_field_by_field() {
    let sound = record();
    let (text, damaged) = report("x", &sound);
    assert!(!damaged && text.contains("slot 9") && text.contains("keyspace dropped  id 3"), "{text}");
    let mut bytes = sound;
    bytes[110] ^= 1;
    let (text, damaged) = report("x", &bytes);
    assert!(damaged && text.contains("unchecked  slot 9") && text.contains("checksum"), "{text}");
}

/// A log object of two frames, where they begin, and the seal behind it.
fn log_object() -> (Vec<u8>, Vec<usize>, Vec<u8>) {
    let mut bytes = encode_data_header(&IDENTITY, 0, 77, 1).to_vec();
    let mut frames = Vec::new();
    for number in 0..2u8 {
        let mut batch = BatchBuilder::new();
        batch.push(EntryKind::Put, 0, &[b'k', b'0' + number], b"fills room").unwrap();
        let at = u32::try_from(bytes.len()).unwrap();
        frames.push(bytes.len());
        let frame =
            FrameHeader { identity: IDENTITY, stream: 0, first_sequence: 10, count: 1, durable_through: 0 };
        frame.append_to(&mut bytes, at, &batch.finish());
    }
    let length = u32::try_from(bytes.len()).unwrap();
    bytes[..80].copy_from_slice(&encode_data_header(&IDENTITY, length, 77, 1));
    (bytes, frames, encode_seal(&SegmentIdentity { segment: 3, ..IDENTITY }, 9, IDENTITY.offset(length)))
}

#[test]
fn objects_of_a_log_are_told_and_damage_in_them_is_found() {
    let place = "0000000000000001/log-objects/0000000000000005/0000";
    let (bytes, frames, seal) = log_object();
    for name in ["x".to_owned(), format!("{place}/00000002")] {
        let (text, damaged) = report(&name, &bytes);
        assert!(!damaged && text.contains("slot 2") && text.contains("writer 000000000000004d"), "{text}");
        assert!(text.contains("key k0") && text.contains("key k1"), "{text}");
    }
    let (text, damaged) = report(&format!("{place}/00000003"), &seal);
    assert!(!damaged && text.contains("seal") && text.contains("by_epoch 9"), "{text}");
    let (text, damaged) = report(&format!("{place}/00000004"), &bytes);
    assert!(damaged && text.contains("DAMAGED header"), "an object in another's place: {text}");
    for (name, sound) in [(format!("{place}/00000002"), &bytes), (format!("{place}/00000003"), &seal)] {
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 0x20;
            assert!(report(&name, &flipped).1, "byte {at} of {name}: {}", report(&name, &flipped).0);
            let _ = report("x", &flipped);
        }
        for length in 1..sound.len() {
            assert!(report(&name, &sound[..length]).1, "{length} bytes of {name}");
        }
    }
    let mut bytes = bytes;
    bytes[frames[0] + 46] ^= 1;
    let (text, _) = report(&format!("{place}/00000002"), &bytes);
    assert!(text.contains("DAMAGED frame") && !text.contains("key k0") && text.contains("key k1"), "{text}");
}

#[test]
fn checkpoints_and_pins_are_told_and_damage_in_them_is_found() {
    let pin = Pin {
        incarnation: 1,
        id: 0xabc,
        kind: PinKind::Checkpoint,
        lease_ms: 0,
        created_unix_seconds: 1_790_000_000,
        tables: vec![TableName { epoch: 3, random: 0xfeed }],
        clone: None,
    };
    let pin = encode_pin(&pin).unwrap();
    let (text, damaged) = report("1/pin/0abc", &pin);
    assert!(
        !damaged
            && text.contains("kind checkpoint")
            && text.contains("table 0000000000000003-000000000000feed"),
        "{text}"
    );
    let (text, damaged) = report("1/pin/0abc.0001", b"");
    assert!(!damaged && text.contains("sign"), "{text}");
    assert!(report("1/alive/0abc.0001", b"x").1);
    for at in 0..pin.len() {
        let mut flipped = pin.clone();
        flipped[at] ^= 1;
        assert!(report("1/pin/0abc", &flipped).1, "byte {at}");
    }
    let _ = report("1/pin/0abc", &pin[..50]);
    for bytes in [&b""[..], &b"TMBLOCKP"[..], &[0; 300][..]] {
        assert!(report("1/checkpoint/0abc", bytes).1);
    }
}

/// A table of 50 entries in blocks of a few.
fn table() -> Vec<u8> {
    let options = TableOptions { block_bytes: 200, partition_bytes: 100, ..TableOptions::default() };
    let mut builder = TableBuilder::new(options, 42);
    for number in 0..50u64 {
        builder
            .add(
                format!("key-{number:03}").as_bytes(),
                SequenceNumber(number + 1),
                EntryKind::Put,
                b"some value",
            )
            .unwrap();
    }
    builder.finish().unwrap().0.to_vec()
}

#[test]
fn a_sound_table_is_told_block_by_block() {
    let (text, damaged) = report("x", &table());
    assert!(!damaged, "{text}");
    assert!(
        text.contains("entries 50")
            && text.contains("first key-000")
            && text.contains("key key-049, sequence 50, value some value"),
        "{text}"
    );
    assert!(text.matches("data block").count() > 3 && text.matches("partition").count() > 1, "{text}");
}

#[test]
fn every_flipped_byte_of_a_table_is_damage_and_the_rest_is_told() {
    let bytes = table();
    let blocks = report("x", &bytes).0.matches("data block").count();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        let (text, damaged) = report("1/table/2", &flipped);
        assert!(damaged, "byte {at}: {text}");
        if at < 100 {
            assert_eq!(
                text.matches("data block").count(),
                blocks,
                "byte {at} of the first block hides others: {text}"
            );
        }
    }
}

#[test]
fn foreign_and_cut_files_are_damage_and_never_a_panic() {
    assert!(report("x", b"").1);
    assert!(report("x", b"#!/bin/sh\necho hello\n").1);
    let (segment, _) = segment();
    for (name, bytes) in [
        ("1/manifest/2", record()),
        ("1/log/2-0/0", segment),
        ("1/table/2", vec![0; 200]),
        ("1/snapshot/2", vec![0; 90]),
    ] {
        for length in (0..bytes.len()).step_by(13) {
            let _ = report(name, &bytes[..length]);
        }
        for at in (0..bytes.len()).step_by(7) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            let _ = report(name, &flipped);
        }
    }
}
