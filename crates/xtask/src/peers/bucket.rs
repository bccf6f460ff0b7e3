//! The same comparison in a bucket: rows of SlateDB's own benchmark, on a real server, behind a
//! proxy that makes every request as slow as one to a store of the cloud.
//!
//! `versitygw (as cargo xtask real builds it) ← proxy with a latency (tombolo-peers delay) ← one engine a process`.
//! Keys of 20 B with values of 400 B; reads run in a cache of about a ninth of what lies in the
//! bucket, from a database that was just opened, after a warm-up of their own kind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::record::Key;
use super::rows::{Bar, Measure, Scene, Size};
use crate::real::servers::{Kind, Server};

/// Those that can keep a database in a bucket.
pub const ENGINES: &[&str] = &["tombolo", "slatedb", "slatedb-tuned"];
/// Bytes of a value: as large that data is more than cache without millions of keys, whose load
/// would be most of a run.
pub const VALUE_BYTES: u64 = 400;
/// Keys when nobody says how many.
pub const NUM: u64 = 300_000;

/// Operations that return before they are durable, and go with the process.
const ACCEPTED: &str = "bucket accepted";
/// The same, up to the end of all background work.
const UNTIL_SETTLED: &str = "bucket settled";
/// Each acknowledged when a crash cannot take it.
const DURABLE: &str = "bucket durable";
/// Merged, with a cache of about a ninth.
const SMALL_CACHE: &str = "bucket";
/// Merged, all in memory.
const CACHED: &str = "bucket cached";
/// Reads and writes mixed.
const MIXED: &str = "bucket mixed";

/// All scenes with a row that `wanted` says yes to.
pub fn scenes(size: &Size, wanted: &dyn Fn(&Key) -> bool) -> Vec<Scene> {
    let seconds = size.seconds;
    let mut scenes = Vec::new();
    for (name, text) in [("ingest", "run fillrandom"), ("ingest batches", "run fillbatch batch=100")] {
        let mut scene = Scene::new(name).setup("open cache=33554432 memtable=33554432");
        scene = scene.read(name, ACCEPTED, 1, format!("{text} settle=1 seconds=120"));
        if let Some(step) = scene.steps.last_mut() {
            step.settled = Some(Key::new(name, UNTIL_SETTLED, 1));
            step.writes = true;
        }
        scenes.push(scene);
    }
    let load = |name: &str| {
        Scene::new(name)
            .setup("open cache=33554432 memtable=33554432")
            .setup("run filluniquerandom settle=1")
            .setup("compact")
    };
    let cache = (size.num * (VALUE_BYTES + 20) / 16).max(1 << 20);
    let small = format!("open cache={cache} memtable=4194304");
    let mut reads = load("reads").setup(&small).setup(format!("run readrandom threads=64 seconds={seconds}"));
    for threads in [1, 16, 64] {
        let with = format!("threads={threads} seconds={seconds}");
        reads = reads.read("readrandom", SMALL_CACHE, threads, format!("run readrandom {with}")).read(
            "readmissing",
            SMALL_CACHE,
            threads,
            format!("run readmissing {with}"),
        );
    }
    // Until the popular keys are in the cache: some twenty thousand requests, in each engine.
    reads = reads.setup(format!("run ycsb-c threads=64 seconds={} distribution=zipfian", 10 * seconds));
    for threads in [1, 16, 64] {
        reads = reads.read(
            "readzipfian",
            SMALL_CACHE,
            threads,
            format!("run ycsb-c threads={threads} seconds={seconds} distribution=zipfian"),
        );
    }
    for threads in [1, 16] {
        let with = format!("threads={threads} seconds={seconds}");
        reads = reads
            .read(
                "multireadrandom",
                SMALL_CACHE,
                threads,
                format!("run multireadrandom {with} batch=10 stride=32"),
            )
            .read("seekrandom", SMALL_CACHE, threads, format!("run seekrandom {with} nexts=10"))
            .read("longscan", SMALL_CACHE, threads, format!("run seekrandom {with} nexts=1000"));
    }
    reads = reads.read("readseq", SMALL_CACHE, 1, format!("run readseq seconds={seconds}"));
    scenes.push(reads);
    let all = 2 * size.num * (VALUE_BYTES + 20);
    let cached = load("cached")
        .setup(format!("open cache={all} memtable=4194304"))
        .setup("run readseq")
        .setup(format!("run readrandom threads=64 seconds={seconds}"))
        .setup("warm")
        .read("readrandom", CACHED, 1, format!("run readrandom seconds={seconds}"))
        .read("seekrandom", CACHED, 1, format!("run seekrandom seconds={seconds} nexts=10"));
    scenes.push(cached);
    let mut mixed = load("mixes")
        .setup(format!("open cache={cache} memtable=16777216"))
        .setup(format!("run readrandom threads=64 seconds={seconds}"));
    for reads in [95, 50, 5] {
        for distribution in ["uniform", "zipfian"] {
            let row = format!("{reads}/{} {distribution}", 100 - reads);
            let text =
                format!("run readupdate-{reads} threads=16 seconds={seconds} distribution={distribution}");
            mixed = mixed.read(&row, MIXED, 16, text);
            // Later mixes read what the ones before left.
            if let Some(step) = mixed.steps.last_mut() {
                step.writes = true;
            }
        }
    }
    scenes.push(mixed);
    for threads in [1, 16, 64] {
        let text = format!("run fillrandom threads={threads} durability=durable seconds={seconds}");
        scenes.push(
            Scene::new(format!("durable, {threads} threads"))
                .setup("open cache=33554432 memtable=33554432")
                .read("fillsync", DURABLE, threads, text),
        );
    }
    scenes.into_iter().filter_map(|scene| scene.filtered(wanted)).collect()
}

/// The bar of a row in a bucket: ahead, and twice as good where caching, batching or hedging
/// decides.
pub fn bar(key: &Key) -> Option<Bar> {
    let rate = |peer| Some(Bar { measure: Measure::Rate, rocksdb: None, peer });
    match (key.workload.as_str(), key.shape.as_str()) {
        // One reader waits for the store: the tail is what hedging decides.
        ("readrandom", SMALL_CACHE) if key.threads == 1 => {
            Some(Bar { measure: Measure::P99, rocksdb: None, peer: 2.0 })
        }
        ("readzipfian" | "multireadrandom" | "seekrandom" | "longscan" | "readseq", SMALL_CACHE) => rate(2.0),
        ("readrandom" | "seekrandom", CACHED) => rate(2.0),
        (_, ACCEPTED | UNTIL_SETTLED | DURABLE | SMALL_CACHE | MIXED) => rate(1.0),
        _ => None,
    }
}

/// A server, and the proxy before it. Both end when dropped.
pub struct Far {
    server: Server,
    proxy: Child,
    /// Where the proxy listens.
    address: String,
    /// Where it says what passed.
    pub counter: String,
}

impl Far {
    /// Starts both; `binary` is the program of the engines, which is the proxy as well.
    pub fn start(binary: &Path, latency: &str) -> Result<Far, String> {
        let server = Server::start(Kind::Versitygw, false)?;
        let failed = |error| format!("starting the proxy: {error}");
        let mut proxy = Command::new(binary)
            .args(["delay", &server.address(), latency])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = proxy.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let mut far = Far { server, proxy, address: String::new(), counter: String::new() };
        let text = |name: &str| {
            said[name]
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("starting the proxy: it says {line:?}"))
        };
        (far.address, far.counter) = (text("address")?, text("counter")?);
        Ok(far)
    }

    /// What an engine is told: arguments and credentials.
    pub fn tell(&self, command: &mut Command, database: &str) {
        let uri = self.server.uri_by_way_of(&self.address, database);
        command
            .arg(format!("bucket={uri}"))
            .arg(format!("counter={}", self.counter))
            .arg(format!("value={VALUE_BYTES}"));
        command.envs(self.server.credentials());
    }

    /// Removes a database behind the server's back: deleting its objects by requests would take as
    /// long as the run.
    pub fn remove(&self, database: &str) -> Result<(), String> {
        self.server.plain_files().map_or(Ok(()), |files| super::child::remove(&files.join(database)))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Best effort: it may have ended already.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{COMPACTED, SETTLED};
    use super::*;

    #[test]
    fn every_row_has_a_bar_and_is_measured_once() {
        let size = Size { num: 1000, seconds: 1, threads: Vec::new() };
        let scenes = scenes(&size, &|_| true);
        let mut keys: Vec<Key> = scenes
            .iter()
            .flat_map(|scene| &scene.steps)
            .flat_map(|step| [&step.row, &step.settled])
            .flatten()
            .cloned()
            .collect();
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all, "a row is measured twice");
        assert!(keys.iter().all(|key| bar(key).is_some()), "{keys:?}");
        for workload in ["ingest", "readzipfian", "95/5 uniform", "5/95 zipfian", "longscan", "fillsync"] {
            assert!(keys.iter().any(|key| key.workload == workload), "{workload} is missing");
        }
        assert_eq!(bar(&Key::new("readrandom", COMPACTED, 1)), None);
        assert_eq!(bar(&Key::new("fillrandom", SETTLED, 1)), None);
    }
}
