//! What a flash cache saves: `cargo run --release -p tombolo --example flash -- /path`.
//!
//! A database of 80 MB lies on a store whose requests take 2 ms longer than those of a local disk. Threads read keys drawn from a zipfian
//! distribution (exponent 0.99, popular keys spread over all blocks) with 8 MiB of memory: first without a flash cache, then with one of 40 MiB on the
//! disk of `/path`, then after a restart. Each time they warm up first, as long as they are measured twice, but after the restart.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tombolo::{Db, Durability, Env, Options, Registry, Result};
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{ObjectStore, Purpose, Uri};

const KEYS: u64 = 200_000;
const VALUE_BYTES: usize = 400;
const THREADS: u64 = 16;
const READS: u64 = 100_000;
const LATENCY: Duration = Duration::from_millis(2);
const EXPONENT: f64 = 0.99;

/// Fixed steps of a 64-bit generator: every run draws the same.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 11
}

/// A key's number: rank by the inverse of the continuous distribution, and then anywhere.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "drawn at random")]
fn draw(state: &mut u64) -> u64 {
    let uniform = random(state) as f64 / (1u64 << 53) as f64;
    let power = 1.0 - EXPONENT;
    let rank = ((KEYS as f64).powf(power) - 1.0).mul_add(uniform, 1.0).powf(1.0 / power) as u64;
    rank.min(KEYS - 1) * 104_729 % KEYS
}

struct Measured {
    requests: u64,
    nanos: Vec<u64>,
}

/// A database on the slow store, and the count of its requests.
fn open(path: &Path, settings: &[String]) -> Result<(Db, Tracer)> {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let store = Uri::parse(&format!("file://{}/db", path.display()))?;
    let plain = registry.open_object_store(&env, &store)?;
    let log = registry.open_log_store(&env, &store, None, &plain)?;
    let slow = Arc::new(ThrottleObjectStore::new(&env, plain, Throttle { latency: Latency::fixed(LATENCY), ..Throttle::default() }));
    let tracer = Tracer::with_sink(&env, 0, None);
    let counted: Arc<dyn ObjectStore> = Arc::new(TraceObjectStore::new(slow, tracer.clone()));
    let options = Options::parse(settings.iter().map(String::as_str))?;
    let db = Db::builder(store.to_string()).env(env).stores(counted, log).options(options).open().wait()?;
    Ok((db, tracer))
}

fn fill(db: &Db) -> Result<()> {
    let (keys, mut state) = (db.default_keyspace(), 1);
    for number in 0..KEYS {
        let value: Vec<u8> = std::iter::repeat_with(|| random(&mut state).to_le_bytes()[3]).take(VALUE_BYTES).collect();
        keys.put_with(number.to_be_bytes(), value, Durability::Accepted).wait()?;
    }
    db.flush().wait()?;
    db.compact().wait()
}

fn requests(tracer: &Tracer) -> u64 {
    tracer.counters().iter().filter(|((purpose, _), _)| *purpose == Purpose::Get).map(|(_, counters)| counters.requests).sum()
}

fn read(db: &Db, tracer: &Tracer, seed: u64, reads: u64) -> Result<Measured> {
    let before = requests(tracer);
    let mut nanos = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let keys = db.default_keyspace();
                scope.spawn(move || -> Result<Vec<u64>> {
                    let mut state = seed * THREADS + thread;
                    let mut nanos = Vec::new();
                    for _ in 0..reads / THREADS {
                        let key = draw(&mut state).to_be_bytes();
                        let begun = Instant::now();
                        let found = keys.get(key).wait()?;
                        nanos.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
                        assert!(found.is_some_and(|value| value.len() == VALUE_BYTES), "a key is missing");
                    }
                    Ok(nanos)
                })
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(read) => nanos.extend(read?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })?;
    nanos.sort_unstable();
    Ok(Measured { requests: requests(tracer) - before, nanos })
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn report(what: &str, measured: &Measured) -> (f64, f64) {
    let count = measured.nanos.len();
    let mean = measured.nanos.iter().sum::<u64>() as f64 / count as f64 / 1000.0;
    let of = |percent: usize| measured.nanos[(count - 1) * percent / 100] as f64 / 1000.0;
    let each = measured.requests as f64 / count as f64;
    println!("{what:<22} {each:>8.3} requests a read, {mean:>8.0} us mean, {:>8.0} us median, {:>8.0} us 99 %", of(50), of(99));
    (each, mean)
}

fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1).map(std::path::PathBuf::from) else {
        println!("usage: flash DIRECTORY, which is made and must be empty");
        return Ok(());
    };
    let memory = "memory_bytes=8388608".to_owned();
    let flash = [memory.clone(), format!("flash_cache_directory={}/flash", path.display()), "flash_cache_bytes=41943040".to_owned()];
    let (db, _) = open(&path, &["memory_bytes=67108864".to_owned()])?;
    fill(&db)?;
    db.close().wait()?;

    let (db, tracer) = open(&path, &[memory])?;
    read(&db, &tracer, 1, 2 * READS)?;
    let without = report("without", &read(&db, &tracer, 2, READS)?);
    db.close().wait()?;

    let (db, tracer) = open(&path, &flash)?;
    read(&db, &tracer, 1, 2 * READS)?;
    let with = report("with a flash cache", &read(&db, &tracer, 2, READS)?);
    for property in db.properties().iter().filter(|property| property.name.starts_with("flash-")) {
        println!("  {:<24} {}", property.name, property.value);
    }
    db.close().wait()?;

    let (db, tracer) = open(&path, &flash)?;
    report("after a restart", &read(&db, &tracer, 3, READS)?);
    db.close().wait()?;
    println!("requests {:+.0} %, mean latency {:+.0} %", (with.0 / without.0 - 1.0) * 100.0, (with.1 / without.1 - 1.0) * 100.0);
    Ok(())
}
