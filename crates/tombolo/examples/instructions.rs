//! The hot paths: `instructions FOLDER NAME` does one of them many times within `measured_gate`;
//! `cargo xtask instructions` runs that under callgrind, which counts in there only, and divides.
//! Without a name it does all. Prints the name and the number of operations.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tombolo::{
    Compression, Condition, Db, Durability, Env, Keyspace, KeyspaceOptions, OperatorName, Options,
};
use tombolo_env::simulated::World;
use tombolo_format::block::{Block, BlockBuilder};
use tombolo_format::compression::Compressor;
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer};
use tombolo_format::stored;
use tombolo_storage::backend::memory::{MemoryLogStore, MemoryObjectStore};

const KEYS: u64 = 30_000;
const ROUNDS: usize = 2_000;
/// Of range deletes, and of the puts that they are compared with.
const MANY: u64 = 10_000;
const BESIDE_PUTS: &str = "get beside 10,000 puts";
const BESIDE_RANGES: &str = "get beside 10,000 range deletes";
const BESIDE_FLUSHED_PUTS: &str = "get under a table of 10,000 puts";
const BESIDE_FLUSHED_RANGES: &str = "get under a table of 10,000 range deletes";
const MERGED: &str = "get of a merged key";
const PUT_TTL: &str = "put with a time to live";
const PUT_IF: &str = "put on a condition";
const OPERATIONS: [&str; 7] =
    [BESIDE_PUTS, BESIDE_RANGES, BESIDE_FLUSHED_PUTS, BESIDE_FLUSHED_RANGES, MERGED, PUT_TTL, PUT_IF];
const BLOCK_DECODE: &str = "block decode, 8 KiB of LZ4";
const COMPACTION: &str = "compaction of a block of 8 KiB";

/// What callgrind counts. Nothing else may have this name in its own.
#[inline(never)]
fn measured_gate(rounds: usize, operation: &mut dyn FnMut(usize)) {
    for round in 0..rounds {
        operation(round);
    }
}

fn is_wanted(name: &str) -> bool {
    std::env::args().nth(2).is_none_or(|wanted| wanted == name)
}

fn measure(name: &str, rounds: usize, mut operation: impl FnMut(usize)) {
    if is_wanted(name) {
        println!("{name}\t{rounds}");
        measured_gate(rounds, &mut operation);
    }
}

/// 20 bytes, as the benchmarks have them. Odd numbers are absent.
fn key(number: u64) -> [u8; 20] {
    let mut key = *b"user0000000000000000";
    let mut rest = number;
    for digit in key.iter_mut().rev().take(16) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A number that looks random, below `end`.
fn scatter(number: u64, end: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % end
}

/// 100 bytes, half of them compressible.
fn value(number: u64) -> [u8; 100] {
    let mut value = [b'x'; 100];
    for (index, word) in value[..50].chunks_mut(8).enumerate() {
        let random = scatter(number * 8 + index as u64, u64::MAX).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
    value
}

fn main() -> tombolo::Result<()> {
    let only = std::env::args().nth(2);
    let others = [&OPERATIONS[..], &[BLOCK_DECODE, COMPACTION]].concat();
    if only.as_deref().is_none_or(|only| !others.contains(&only)) {
        foreground()?;
    }
    if only.as_deref().is_none_or(|only| OPERATIONS.contains(&only)) {
        operations()?;
    }
    if is_wanted(BLOCK_DECODE) {
        block_decode();
    }
    if is_wanted(COMPACTION) {
        compaction()?;
    }
    Ok(())
}

/// A database in the folder, or in one beside it.
fn open(beside: &str) -> tombolo::Result<Db> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/tmp/tombolo-instructions".to_owned());
    let options =
        Options { memory_bytes: 64 << 20, automatic_compaction: beside.is_empty(), ..Options::default() };
    // Under valgrind a thread that waits for io_uring keeps all others from running.
    let env = Env::real_without_io_uring();
    Db::builder(format!("file://{folder}{beside}")).env(env).options(options).open().wait()
}

/// Puts all keys, and merges them into one run.
fn fill(keys: &Keyspace, value: impl Fn(u64) -> Vec<u8>) -> tombolo::Result<()> {
    for number in 0..KEYS {
        keys.put_with(key(number * 2), value(number), Durability::Unlogged).wait()?;
    }
    keys.compact_range::<&[u8]>(..).wait()
}

/// Operations beside put and get. Nothing is compacted unasked: each lies where it was put.
fn operations() -> tombolo::Result<()> {
    let db = open("/operations")?;
    let named = |name: &str, options| db.create_keyspace(name, options).wait();
    let lz4 = || KeyspaceOptions { compression: Compression::Lz4, ..KeyspaceOptions::default() };
    // Each third key is put again, or deleted; the others are read.
    let third = |number: u64| number * KEYS / MANY * 2;
    let read: Vec<_> =
        (0..ROUNDS as u64).map(|round| key(third(scatter(round, MANY)) + 2 + 2 * (round % 2))).collect();
    let (puts, ranges) = (named("puts", lz4())?, named("ranges", lz4())?);
    for keys in [&puts, &ranges] {
        fill(keys, |number| value(number).to_vec())?;
    }
    for number in 0..MANY {
        let (from, to) = (key(third(number)), key(third(number) + 1));
        puts.put_with(from, value(number), Durability::Accepted).wait()?;
        ranges.delete_range_with(from, to, Durability::Accepted).wait()?;
    }
    let get = |keys: &Keyspace, name| -> tombolo::Result<()> {
        get_all(keys, &read)?;
        measure(name, ROUNDS, |round| {
            assert!(black_box(keys.get(read[round]).wait().is_ok_and(|value| value.is_some())));
        });
        Ok(())
    };
    get(&puts, BESIDE_PUTS)?;
    get(&ranges, BESIDE_RANGES)?;
    assert!(ranges.get(key(third(7))).wait()?.is_none());
    db.flush().wait()?;
    get(&puts, BESIDE_FLUSHED_PUTS)?;
    get(&ranges, BESIDE_FLUSHED_RANGES)?;
    assert!(ranges.get(key(third(7))).wait()?.is_none());

    let sums = named("sums", KeyspaceOptions { operator: Some(OperatorName::parse("add_u64@1")?), ..lz4() })?;
    fill(&sums, |number| number.to_le_bytes().to_vec())?;
    let wanted: Vec<_> = (0..ROUNDS as u64).map(|round| key(scatter(round, KEYS) * 2)).collect();
    // Two operands of each in memory, over its value in a table.
    for key in wanted.iter().chain(&wanted) {
        sums.merge_with(key, 1_u64.to_le_bytes(), Durability::Accepted).wait()?;
    }
    get_all(&sums, &wanted)?;
    measure(MERGED, ROUNDS, |round| {
        assert!(black_box(sums.get(wanted[round]).wait().is_ok_and(|value| value.is_some())));
    });
    let hour = Duration::from_secs(3600);
    measure(PUT_TTL, ROUNDS, |round| {
        let put = puts.put_ttl_with(wanted[round], value(round as u64), hour, Durability::Accepted);
        assert!(put.wait().is_ok());
    });
    measure(PUT_IF, ROUNDS, |round| {
        let put =
            puts.put_if_with(read[round], value(round as u64), Condition::Present, Durability::Accepted);
        assert!(put.wait().is_ok_and(|decision| decision.is_met()));
    });
    db.close().wait()
}

fn get_all(keys: &Keyspace, wanted: &[[u8; 20]]) -> tombolo::Result<()> {
    for key in wanted {
        black_box(keys.get(key).wait()?);
    }
    Ok(())
}

/// What users call.
fn foreground() -> tombolo::Result<()> {
    let db = open("")?;
    let plain = KeyspaceOptions { compression: Compression::Lz4, ..KeyspaceOptions::default() };
    let keys = db.create_keyspace("measured", plain).wait()?;
    for number in 0..KEYS {
        keys.put_with(key(number * 2), value(number), Durability::Unlogged).wait()?;
    }
    db.flush().wait()?;
    db.compact().wait()?;
    for entry in keys.scan::<&[u8]>(..) {
        black_box(entry?);
    }
    let wanted: Vec<_> = (0..ROUNDS as u64).map(|round| key(scatter(round, KEYS) * 2)).collect();
    let missing: Vec<_> = (0..ROUNDS as u64).map(|round| key(scatter(round, KEYS) * 2 + 1)).collect();
    let existing = |round: usize| wanted[round];
    for number in 0..KEYS {
        black_box(keys.get(key(number * 2)).wait()?);
    }

    let get = |key: [u8; 20]| black_box(keys.get(key).wait().is_ok_and(|value| value.is_some()));
    measure("get, cached", ROUNDS, |round| assert!(get(existing(round))));
    let blocking = db.blocking().keyspace("measured")?;
    measure("get_with, cached", ROUNDS, |round| {
        black_box(blocking.get_with(existing(round), |value| black_box(value[0])).is_ok());
    });
    measure("get of a missing key", ROUNDS, |round| assert!(!get(missing[round])));
    let near = |round| -> [_; 10] {
        std::array::from_fn(|index| key((scatter(round, KEYS - 20) + index as u64) * 2))
    };
    let near: Vec<_> = (0..ROUNDS as u64 / 10).map(near).collect();
    measure("multi-get of 10 near keys", ROUNDS / 10, |round| {
        black_box(keys.multi_get(&near[round]).wait().is_ok());
    });
    measure("seek", ROUNDS / 10, |round| {
        black_box(keys.scan(existing(round)..).next().is_some());
    });
    let mut scan = keys.scan::<&[u8]>(..);
    measure("next", ROUNDS, |_| assert!(black_box(scan.next()).is_some()));
    drop(scan);
    let mut cursor = keys.cursor::<&[u8]>(..);
    measure("cursor next", ROUNDS, |_| {
        assert!(cursor.next().is_ok_and(|found| black_box(found && !cursor.value().is_empty())));
    });
    assert!(cursor.seek_to_last()?);
    measure("cursor prev", ROUNDS, |_| {
        assert!(cursor.prev().is_ok_and(|found| black_box(found && !cursor.value().is_empty())));
    });
    measure("cursor seek", ROUNDS / 10, |round| {
        assert!(black_box(cursor.seek(existing(round)).is_ok_and(|found| found)));
    });
    drop(cursor);
    measure("new cursor, seek, 10 next", ROUNDS / 10, |round| {
        let mut cursor = keys.cursor::<&[u8]>(..);
        let mut found = cursor.seek(key(scatter(round as u64, KEYS - 20) * 2)).is_ok_and(|found| found);
        for _ in 0..10 {
            found &= cursor.next().is_ok_and(|found| found) && black_box(!cursor.value().is_empty());
        }
        assert!(found);
    });
    measure("put, sequential keys", ROUNDS, |round| {
        black_box(
            keys.put_with(key((KEYS + round as u64) * 2), value(round as u64), Durability::Accepted)
                .wait()
                .is_ok(),
        );
    });
    measure("put, random keys", ROUNDS, |round| {
        black_box(keys.put_with(existing(round), value(round as u64), Durability::Accepted).wait().is_ok());
    });
    db.close().wait()
}

/// Merges three runs, fewer than are merged unasked, in a world with one thread: everything that
/// compaction does counts, wherever it runs.
fn compaction() -> tombolo::Result<()> {
    const RUNS: u64 = 3;
    /// What an entry takes of a block before compression: key, value, trailer and row.
    const ENTRY_BYTES: u64 = 20 + 100 + 12;
    let world = World::new(1);
    world.set_preemption_probability(0.0);
    let process = world.process("writer");
    let env = process.env();
    let (objects, log) =
        (Arc::new(MemoryObjectStore::unnamed(&env)), Arc::new(MemoryLogStore::unnamed(&env)));
    let options = Options { memory_bytes: 64 << 20, ..Options::default() };
    let builder = Db::builder("mem://instructions").env(env).options(options).stores(objects, log);
    let load = async move {
        let db = builder.open().await?;
        let plain = KeyspaceOptions {
            compression: Compression::Lz4,
            block_bytes: Some(8 << 10),
            ..KeyspaceOptions::default()
        };
        let keys = db.create_keyspace("measured", plain).await?;
        for run in 0..RUNS {
            for number in (0..KEYS).filter(|number| scatter(*number, RUNS) == run) {
                keys.put_with(key(number), value(number), Durability::Unlogged).await?;
            }
            db.flush().await?;
        }
        Ok(db)
    };
    let db = process
        .run(load)
        .unwrap_or_else(|| Err(tombolo::Error::new(tombolo::ErrorKind::Closed, "the world ended")))?;
    let blocks = usize::try_from(KEYS * ENTRY_BYTES / (8 << 10)).unwrap_or(1);
    measure(COMPACTION, blocks, |round| {
        let compact = db.clone();
        let done =
            if round == 0 { process.run(async move { compact.compact().await }) } else { Some(Ok(())) };
        assert!(done.is_some_and(|done| done.is_ok()));
    });
    Ok(())
}

/// A block of 8 KiB, LZ4: checksum, decompression, rows.
fn block_decode() {
    let mut builder = BlockBuilder::new();
    for number in 0.. {
        builder.add(
            InternalKey::new(&key(number), Trailer::new(SequenceNumber(number), EntryKind::Put)),
            &value(number),
        );
        if builder.block_bytes() >= 8 << 10 {
            break;
        }
    }
    let (mut raw, mut stored) = (Vec::new(), Vec::new());
    builder.finish_into(&mut raw);
    stored::seal(
        &mut Compressor::new(),
        tombolo_format::compression::Compression::Lz4,
        &raw,
        7,
        0,
        &mut stored,
    );
    let stored = bytes::Bytes::from(stored);
    measure(BLOCK_DECODE, ROUNDS, |_| {
        let block = stored::open(&stored, 7, 0).and_then(Block::new);
        black_box(block.is_ok());
    });
}
