//! The measurements, each for a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use tombolo::{Db, Durability, Env, ErrorKind, OpenMode};
use tombolo_storage::{Epoch, ObjectInfo, ObjectStore, Purpose, Request};
use tombolo_workload::{Latencies, ValueSizes, Values, random};

use super::far::Far;
use crate::failure::{Failure, Result};
use crate::machine;

/// Keys of a multi-get, and how far they lie apart: as in the paper's benchmark.
const MULTI_GET_KEYS: u64 = 10;
const MULTI_GET_STRIDE: u64 = 32;
/// Steps after a seek.
const STEPS: usize = 10;
/// Bytes of a raw read: about those of a compressed block.
const RAW_BYTES: u64 = 4096;
/// A table is no place for raw reads near its end.
const RAW_END_BYTES: u64 = 1 << 16;

/// What calls took.
pub(super) struct Took {
    pub(super) calls: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    elapsed: Duration,
    cpu: Duration,
    /// Second requests for each read.
    pub(super) extra: f64,
}

impl Took {
    fn of(latencies: &Latencies, elapsed: Duration, cpu: Duration) -> Took {
        let percentile = |percent| latencies.percentile(percent);
        Took {
            calls: latencies.count(),
            p50: percentile(50.0),
            p99: percentile(99.0),
            elapsed,
            cpu,
            extra: 0.0,
        }
    }

    /// Calls in a second.
    pub(super) fn per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Which part of all cores the process used.
    pub(super) fn cpu_share(&self, cores: usize) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9) / cores.max(1) as f64
    }
}

/// The key with a number, of 20 bytes.
fn key(number: u64) -> Vec<u8> {
    format!("{number:020}").into_bytes()
}

/// So many threads repeat a call that says whether it counts, for a time.
fn repeat(
    at_once: usize,
    duration: Duration,
    seed: u64,
    call: impl Fn(&mut tombolo_workload::Random) -> Result<bool> + Sync,
) -> Result<Took> {
    let (begun, cpu) = (Instant::now(), machine::cpu_time());
    let one = |number: usize| -> Result<Latencies> {
        let mut random = random(seed, number as u64);
        let mut latencies = Latencies::new();
        while begun.elapsed() < duration {
            let called = Instant::now();
            if call(&mut random)? {
                latencies.record(called.elapsed());
            }
        }
        Ok(latencies)
    };
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|number| scope.spawn(move || one(number))).collect();
        let mut all = Latencies::new();
        for thread in threads {
            let latencies =
                thread.join().map_err(|_| Failure::Check("a measuring thread panicked".into()))??;
            all.merge(&latencies);
        }
        Ok::<_, Failure>(all)
    })?;
    Ok(Took::of(&all, begun.elapsed(), machine::cpu_time().saturating_sub(cpu)))
}

/// Gets, of which those that took less than `missed` found all in memory, and do not count.
pub(super) fn misses(
    far: &Far,
    keys: u64,
    at_once: usize,
    missed: Duration,
    duration: Duration,
    seed: u64,
) -> Result<Took> {
    let (reads, hedges) = far.hedges()?;
    let blocking = far.db.blocking().default_keyspace();
    let took = repeat(at_once, duration, seed, |random| {
        let (wanted, begun) = (key(random.random_range(0..keys)), Instant::now());
        found(blocking.get(&wanted)?.is_some())?;
        Ok(begun.elapsed() >= missed)
    })?;
    let (reads_after, hedges_after) = far.hedges()?;
    Ok(Took { extra: (hedges_after - hedges) as f64 / (reads_after - reads).max(1) as f64, ..took })
}

fn found(found: bool) -> Result<()> {
    if found { Ok(()) } else { Err(Failure::Check("a key that was written is not there".into())) }
}

/// Ranged reads of the store itself.
pub(super) fn raw(
    env: &Env,
    store: &Arc<dyn ObjectStore>,
    objects: &[ObjectInfo],
    at_once: usize,
    duration: Duration,
    seed: u64,
) -> Result<Took> {
    repeat(at_once, duration, seed, |random| {
        let object = &objects[random.random_range(0..objects.len())];
        let start = random.random_range(0..object.length - RAW_END_BYTES);
        match env.block_on(store.read(
            Request::new(Purpose::Get, Epoch::NONE),
            &object.name,
            start..start + RAW_BYTES,
        )) {
            // A table that was merged away is deleted some time after.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            read => Ok(read.map(|_| true)?),
        }
    })
}

/// Multi-gets of near keys, one after another, that memory could not answer.
pub(super) fn multi_gets(far: &Far, keys: u64, duration: Duration, seed: u64) -> Result<Took> {
    repeat(1, duration, seed, |random| {
        let start = random.random_range(0..keys - MULTI_GET_KEYS * MULTI_GET_STRIDE);
        let wanted: Vec<_> =
            (0..MULTI_GET_KEYS).map(|number| key(start + number * MULTI_GET_STRIDE)).collect();
        match far.keyspace.multi_get(&wanted).try_take() {
            Ok(values) => values.map(|_| false).map_err(Failure::from),
            Err(missed) => found(missed.wait()?.iter().all(Option::is_some)).map(|()| true),
        }
    })
}

/// A seek and some steps, one after another; those that took less than `missed` found all in
/// memory.
pub(super) fn seeks(far: &Far, keys: u64, missed: Duration, duration: Duration, seed: u64) -> Result<Took> {
    repeat(1, duration, seed, |random| {
        let begun = Instant::now();
        let mut cursor = far.keyspace.cursor::<&[u8]>(..);
        let mut valid = cursor.seek(key(random.random_range(0..keys - STEPS as u64 - 1)))?;
        for _ in 0..STEPS {
            found(valid)?;
            valid = cursor.next()?;
        }
        Ok(begun.elapsed() >= missed)
    })
}

/// In which order keys are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    Sequential,
    Random,
}

/// Writes all keys, each once.
pub(super) fn fill(db: &Db, writing: Writing, keys: u64, value_bytes: usize, seed: u64) -> Result<()> {
    // A step that shares no factor with their number visits all of them, each far from the one
    // before.
    let step = match writing {
        Writing::Sequential => 1,
        Writing::Random => {
            (keys / 1000 * 618 + 1..).find(|step| greatest_common_divisor(*step, keys) == 1).unwrap_or(1)
        }
    };
    let mut random = random(seed, 0);
    let values = Values::new(ValueSizes::Fixed(value_bytes), 0.5, &mut random);
    let keyspace = db.default_keyspace();
    let mut number = 0;
    for _ in 0..keys {
        keyspace.put_with(key(number), values.draw(&mut random), Durability::Accepted).wait()?;
        number = (number + step) % keys;
    }
    Ok(())
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

/// Flushes, and waits until nothing is left to compact.
pub(super) fn settle(db: &Db) -> Result<()> {
    db.flush().wait()?;
    let number = |name| Ok::<_, Failure>(db.property(name)?.value.number().unwrap_or(0));
    let mut quiet = 0;
    while quiet < 5 {
        let is_quiet = number("compactions-running")? == 0 && number("memtables-waiting")? == 0;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Writes per second to a fresh database: as its writer sees it, and up to when all is flushed and
/// compacted.
pub(super) fn writes(
    store: &str,
    writing: Writing,
    keys: u64,
    value_bytes: usize,
    seed: u64,
) -> Result<(f64, f64)> {
    let db = Db::builder(store).mode(OpenMode::Create).open().wait()?;
    let begun = Instant::now();
    let rate = || keys as f64 / begun.elapsed().as_secs_f64().max(1e-9);
    fill(&db, writing, keys, value_bytes, seed)?;
    let accepted = rate();
    settle(&db)?;
    let settled = rate();
    db.close().wait()?;
    Ok((accepted, settled))
}
