//! Flash caches on the same reads: that of Tombolo within its engine, and foyer's hybrid cache with
//! nothing around it, each in a process of its own.
//!
//! `fill once → rounds → for each cache: a process → open, warm up, measure, close, open again, measure → medians`.
//! The data, its store, the latency of that store's requests, the keys (zipfian, popular ones
//! spread over all blocks) and the threads are the same. Tombolo is the whole engine: it finds the
//! table, its index and the block, and checks and decompresses what it reads. foyer is given less
//! to do, which is to its advantage: the number of the block that has the key, on objects that are
//! an array of such blocks. Without the feature `foyer` Tombolo stands beside no flash cache alone.
//!
//! Equal: 8 MiB of memory (Tombolo's whole budget; foyer's values alone), 40 MiB of the same disk
//! in pieces of 1 MiB, pages of the kernel's between. foyer's is its engine of blocks with its pool
//! of threads for IO; it writes what memory evicts, as it does by default.

#[cfg(feature = "foyer")]
mod foyer;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tombolo::{Db, Durability, Env, Options, Registry};
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{LogStore, ObjectStore, Purpose, Uri};

use crate::measure;

const KEYS: u64 = 200_000;
const VALUE_BYTES: usize = 400;
const THREADS: u64 = 16;
const READS: u64 = 100_000;
/// How slow the store is, unless it is said.
pub const LATENCY: &str = "p50_us:2000,p99_us:2000";
const EXPONENT: f64 = 0.99;
const MEMORY_BYTES: usize = 8 << 20;
const FLASH_BYTES: usize = 40 << 20;

/// The caches that are compared, in this order.
const CACHES: &[&str] = &[
    "none",
    "tombolo",
    #[cfg(feature = "foyer")]
    "foyer",
];

type Result<T> = std::result::Result<T, String>;

fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Fixed steps of a 64-bit generator: every run draws the same.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 11
}

/// A key's number: rank by the inverse of the continuous distribution, and then anywhere.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "drawn at random"
)]
fn draw(state: &mut u64) -> u64 {
    let uniform = random(state) as f64 / (1u64 << 53) as f64;
    let power = 1.0 - EXPONENT;
    let rank = ((KEYS as f64).powf(power) - 1.0).mul_add(uniform, 1.0).powf(1.0 / power) as u64;
    rank.min(KEYS - 1) * 104_729 % KEYS
}

fn value(state: &mut u64) -> Vec<u8> {
    std::iter::repeat_with(|| random(state).to_le_bytes()[3]).take(VALUE_BYTES).collect()
}

/// A store below `path` whose requests take longer, and the count of them.
fn store(path: &Path, latency: &str) -> Result<(Arc<dyn ObjectStore>, Arc<dyn LogStore>, Tracer, Uri)> {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let uri = Uri::parse(&format!("file://{}", path.display())).map_err(failed)?;
    let plain = registry.open_object_store(&env, &uri).map_err(failed)?;
    let log = registry.open_log_store(&env, &uri, None, &plain).map_err(failed)?;
    let latency = Latency::parse(latency).map_err(failed)?;
    let slow = Arc::new(ThrottleObjectStore::new(&env, plain, Throttle { latency, ..Throttle::default() }));
    let tracer = Tracer::with_sink(&env, 0, None);
    Ok((Arc::new(TraceObjectStore::new(slow, tracer.clone())), log, tracer, uri))
}

fn requests(tracer: &Tracer) -> u64 {
    tracer
        .counters()
        .iter()
        .filter(|((purpose, _), _)| *purpose == Purpose::Get)
        .map(|(_, counters)| counters.requests)
        .sum()
}

/// Something that keys are read from; the bytes of a key's value.
trait Reads: Sync {
    fn get(&self, key: u64) -> Result<Vec<u8>>;
}

struct Engine(Db);

impl Reads for Engine {
    fn get(&self, key: u64) -> Result<Vec<u8>> {
        let found = self.0.default_keyspace().get(key.to_be_bytes()).wait().map_err(failed)?;
        found.map(|value| value.to_vec()).ok_or_else(|| format!("key {key} is missing"))
    }
}

fn open(data: &Path, latency: &str, flash: Option<&Path>, memory_bytes: usize) -> Result<(Engine, Tracer)> {
    let (objects, log, tracer, uri) = store(&data.join("db"), latency)?;
    let mut settings = vec![format!("memory_bytes={memory_bytes}")];
    if let Some(flash) = flash {
        settings.extend([
            format!("flash_cache_directory={}", flash.display()),
            format!("flash_cache_bytes={FLASH_BYTES}"),
        ]);
    }
    let options = Options::parse(settings.iter().map(String::as_str)).map_err(failed)?;
    let db = Db::builder(uri.to_string())
        .env(Env::real())
        .stores(objects, log)
        .options(options)
        .open()
        .wait()
        .map_err(failed)?;
    Ok((Engine(db), tracer))
}

fn read(from: &impl Reads, seed: u64, reads: u64) -> Result<Vec<u64>> {
    let one = |thread: u64| -> Result<Vec<u64>> {
        let (mut state, mut nanos) = (seed * THREADS + thread, Vec::new());
        for _ in 0..reads / THREADS {
            let key = draw(&mut state);
            let begun = Instant::now();
            let found = from.get(key)?;
            nanos.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if found.len() != VALUE_BYTES {
                return Err(format!("key {key} has a value of {} bytes", found.len()));
            }
        }
        Ok(nanos)
    };
    let mut nanos = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || one(thread))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())));
        ended.collect::<Result<Vec<_>>>().map(|parts| parts.concat())
    })?;
    nanos.sort_unstable();
    Ok(nanos)
}

/// Reads that are measured, as figures with `prefix` before their names.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn measured(from: &impl Reads, tracer: &Tracer, seed: u64, prefix: &str) -> Result<Vec<(String, f64)>> {
    let (before, cpu) = (requests(tracer), measure::cpu_time());
    let nanos = read(from, seed, READS)?;
    let count = nanos.len() as f64;
    let at = |percent: usize| nanos[(nanos.len() - 1) * percent / 100] as f64 / 1e3;
    let figures = [
        ("requests", (requests(tracer) - before) as f64 / count),
        ("micros_mean", nanos.iter().sum::<u64>() as f64 / count / 1e3),
        ("micros_p50", at(50)),
        ("micros_p99", at(99)),
        ("cpu_micros", (measure::cpu_time() - cpu).as_secs_f64() * 1e6 / count),
    ];
    Ok(figures.map(|(name, figure)| (format!("{prefix}{name}"), figure)).to_vec())
}

/// Makes the database and the array of blocks, with the same values.
fn fill(data: &Path) -> Result<()> {
    let (engine, _) = open(data, LATENCY, None, 64 << 20)?;
    let mut state = 1;
    for number in 0..KEYS {
        let written = engine.0.default_keyspace().put_with(
            number.to_be_bytes(),
            value(&mut state),
            Durability::Accepted,
        );
        written.wait().map_err(failed)?;
    }
    engine.0.flush().wait().map_err(failed)?;
    engine.0.compact().wait().map_err(failed)?;
    engine.0.close().wait().map_err(failed)?;
    #[cfg(feature = "foyer")]
    foyer::fill(data)?;
    Ok(())
}

/// One cache in this process: a line of JSON.
pub fn one(cache: &str, directory: &Path, latency: &str) -> Result<()> {
    let (data, flash) = (directory.join("data"), directory.join("flash"));
    let written = measure::written_bytes();
    let mut figures = Vec::new();
    for life in ["", "restarted_"] {
        let flash = (cache != "none").then_some(flash.as_path());
        match (cache, flash) {
            #[cfg(feature = "foyer")]
            ("foyer", Some(flash)) => {
                let (foyer, tracer) = foyer::Foyer::open(&data, latency, flash)?;
                figures.extend(look(&foyer, &tracer, life)?);
                foyer.close()?;
            }
            _ => {
                let (engine, tracer) = open(&data, latency, flash, MEMORY_BYTES)?;
                figures.extend(look(&engine, &tracer, life)?);
                engine.0.close().wait().map_err(failed)?;
            }
        }
        if life.is_empty() {
            #[allow(clippy::cast_precision_loss, reason = "megabytes for people")]
            figures.push(("megabytes_written".to_owned(), (measure::written_bytes() - written) as f64 / 1e6));
        }
        if cache == "none" {
            break;
        }
    }
    println!("{}", json!(figures.into_iter().collect::<BTreeMap<_, _>>()));
    Ok(())
}

/// What one life measures: after a warm-up, but for one after a restart.
fn look(from: &impl Reads, tracer: &Tracer, life: &str) -> Result<Vec<(String, f64)>> {
    if life.is_empty() {
        read(from, 1, 2 * READS)?;
    }
    measured(from, tracer, if life.is_empty() { 2 } else { 3 }, life)
}

/// All caches, in interleaved rounds, each in a process of its own.
pub fn compare(directory: &Path, rounds: usize, latency: &str) -> Result<()> {
    Latency::parse(latency).map_err(failed)?;
    std::fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    fill(&directory.join("data"))?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut found: BTreeMap<(&str, String), Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        for nth in 0..CACHES.len() {
            let cache = CACHES[(nth + round) % CACHES.len()];
            // Best effort: without a cache there is none.
            let _removed = std::fs::remove_dir_all(directory.join("flash"));
            let output = Command::new(&program)
                .args(["flash-cache", cache])
                .arg(directory)
                .arg(latency)
                .output()
                .map_err(failed)?;
            let line: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let figures = line.as_object().filter(|_| output.status.success());
            let figures = figures.ok_or_else(|| {
                format!("{cache} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
            })?;
            for (name, figure) in figures {
                found.entry((cache, name.clone())).or_default().push(figure.as_f64().unwrap_or(f64::NAN));
            }
            eprintln!("round {} of {rounds}: {cache}: {line}", round + 1);
        }
    }
    let mut names: Vec<&String> = found.keys().map(|(_, name)| name).collect();
    names.sort();
    names.dedup();
    println!(
        "{:<24} {}",
        "medians (least to most)",
        CACHES.iter().map(|cache| format!("{cache:>36}")).collect::<String>()
    );
    for name in names {
        let shown = CACHES.iter().map(|cache| match found.get(&(*cache, name.clone())) {
            None => format!("{:>36}", "-"),
            Some(figures) => {
                let mut figures = figures.clone();
                figures.sort_by(f64::total_cmp);
                let [least, median, most] = [0, figures.len() / 2, figures.len() - 1].map(|at| figures[at]);
                format!("{:>36}", format!("{median:.3} ({least:.3} to {most:.3})"))
            }
        });
        println!("{name:<24} {}", shown.collect::<String>());
    }
    std::fs::remove_dir_all(directory).map_err(failed)
}
