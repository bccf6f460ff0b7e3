//! The fuzz targets' bounded run: random bytes, and sound inputs with mutations behind checksums made right again.

use super::*;
use crate::batch::BatchBuilder;
use crate::checksum::{crc32c, key_hash};
use crate::key::{EntryKind, SequenceNumber};
use crate::log_frame::FrameHeader;
use crate::manifest::snapshot::SnapshotEncoder;
use crate::manifest::{Edit, Record, RecordKind};
use crate::table::{TableBuilder, TableOptions};

/// A seeded generator: the same mutations in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 += 1;
        (key_hash(&self.0.to_le_bytes()) % below as u64) as usize
    }
}

fn a_batch() -> Vec<u8> {
    let mut batch = BatchBuilder::new();
    for key in [&b"key"[..], b"another key"] {
        batch.push(EntryKind::Put, 1, key, b"value").unwrap();
    }
    batch.push_create_keyspace(2, "name", 0, &Default::default()).unwrap();
    batch.finish()
}

fn a_segment() -> Vec<u8> {
    let identity = SegmentIdentity { incarnation: 1, epoch: 2, lane: 0, segment: 3 };
    let mut bytes = SegmentHeader { identity, capacity: 1 << 16, predecessor_end: 0, boot_id: 0 }.encode(0).to_vec();
    for first_sequence in 1..4 {
        let byte = bytes.len() as u32;
        FrameHeader { identity, stream: 0, first_sequence, count: 3, durable_through: identity.offset(byte) }.append_to(
            &mut bytes,
            byte,
            &a_batch(),
        );
    }
    bytes
}

fn a_record() -> Vec<u8> {
    let edits = vec![
        Edit::KeyspaceCreated { id: 1, name: "name".into(), stream: 0, options: Default::default() },
        Edit::LogNamed { epoch: 1, lane: 0, configuration: Bytes::from_static(b"log") },
    ];
    let record =
        Record { incarnation: 1, slot: 2, epoch: 2, attempt: 3, predecessor_hash: 4, snapshot_slot: 0, kind: RecordKind::Edits(edits) };
    encode_record(&record).unwrap().to_vec()
}

fn a_snapshot() -> Vec<u8> {
    let mut encoder = SnapshotEncoder::new(SnapshotIdentity { incarnation: 1, slot: 2, random: 3 });
    encoder.push(&Edit::KeyspaceDropped { id: 7 }).unwrap();
    encoder.finish().piece
}

fn a_table() -> Vec<u8> {
    let options = TableOptions { block_bytes: 100, partition_bytes: 100, ..TableOptions::default() };
    let mut builder = TableBuilder::new(options, 7);
    for key in 0..40u8 {
        builder.add(&[b'k', key], SequenceNumber(1), EntryKind::Put, &[key; 9]).unwrap();
    }
    builder.finish().unwrap().0.to_vec()
}

fn a_block() -> Vec<u8> {
    let mut builder = crate::block::BlockBuilder::new(3);
    for key in 0..20u8 {
        builder.add(InternalKey::new(&[b'k', key], Trailer::new(SequenceNumber(1), EntryKind::Put)), &[key; 9]);
    }
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    out
}

fn a_filter() -> Vec<u8> {
    let mut builder = crate::filter::FilterBuilder::new(10);
    builder.add(b"key");
    let mut out = Vec::new();
    builder.finish_into(&mut out);
    out
}

fn a_compressed_block() -> Vec<u8> {
    let mut out = Vec::new();
    stored::seal(&mut crate::compression::Compressor::new(), Compression::Lz4, &[5; 500], 7, 0, &mut out);
    out
}

fn seeds() -> Vec<Vec<u8>> {
    vec![vec![], a_batch(), a_segment(), a_record(), a_snapshot(), a_table(), a_block(), a_filter(), a_compressed_block()]
}

#[test]
fn every_target_takes_every_seed_and_random_bytes() {
    let mut random = Random(1);
    for (_, target) in TARGETS {
        for seed in seeds() {
            target(&seed);
        }
        for _ in 0..300 {
            let length = random.next(300);
            let bytes: Vec<u8> = (0..length).map(|_| random.next(256) as u8).collect();
            target(&bytes);
        }
    }
}

#[test]
fn every_target_takes_mutations() {
    let mut random = Random(2);
    for (_, target) in TARGETS {
        for seed in seeds() {
            for _ in 0..150 {
                target(&mutate(&seed, &mut random));
            }
        }
    }
}

/// Checksums stand in the way of most mutations: put them right, so that the decoders behind them are reached.
#[test]
fn every_decoder_takes_mutations_behind_a_sound_checksum() {
    let mut random = Random(3);
    for _ in 0..2000 {
        let mut record = mutate(&a_record(), &mut random);
        if record.len() > 16 {
            let body = record.len() - 4;
            let length = record.len() as u32;
            record[12..16].copy_from_slice(&length.to_le_bytes());
            let checksum = crc32c(&record[..body]).to_le_bytes();
            record[body..].copy_from_slice(&checksum);
        }
        manifest_record(&record);
        let raw = mutate(&a_block(), &mut random);
        block(&raw);
        let mut sealed = Vec::new();
        stored::seal(&mut crate::compression::Compressor::new(), Compression::None, &raw, 7, 0, &mut sealed);
        compression(&sealed);
        batch(&mutate(&a_batch(), &mut random));
        filter_and_index(&mutate(&a_filter(), &mut random));
    }
}

fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.next(3) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.next(bytes.len());
        match random.next(5) {
            0 => bytes[at] ^= 1 << random.next(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.next(5)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next(256) as u8),
            _ => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
        }
    }
    bytes
}
