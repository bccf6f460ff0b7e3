//! The fuzz targets' bounded run: random bytes, and sound inputs with mutations behind checksums
//! made right again.

use super::seeds::{a_batch, a_block, a_compaction_job, a_filter, a_record, a_single_entry};
use super::*;
use crate::checksum::{crc32c, key_hash};

/// A seeded generator: the same mutations in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 += 1;
        (key_hash(&self.0.to_le_bytes()) % below as u64) as usize
    }
}

#[test]
fn every_target_takes_every_seed_and_random_bytes() {
    let mut random = Random(1);
    for (_, target) in TARGETS {
        for (_, seed) in seeds::all() {
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
        for (_, seed) in seeds::all() {
            for _ in 0..150 {
                target(&mutate(&seed, &mut random));
            }
        }
    }
}

/// Checksums stand in the way of most mutations: put them right, so that the decoders behind them
/// are reached.
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
        let mut job = mutate(&a_compaction_job(), &mut random);
        if job.len() > 16 {
            let body = job.len() - 4;
            let length = job.len() as u32;
            job[12..16].copy_from_slice(&length.to_le_bytes());
            let checksum = crc32c(&job[..body]).to_le_bytes();
            job[body..].copy_from_slice(&checksum);
        }
        compaction(&job);
        let raw = mutate(&a_block(), &mut random);
        block(&raw);
        let mut sealed = Vec::new();
        stored::seal(&mut crate::compression::Compressor::new(), Compression::None, &raw, 7, 0, &mut sealed);
        compression(&sealed);
        batch(&mutate(&a_batch(), &mut random));
        batch(&mutate(&a_single_entry(), &mut random));
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
