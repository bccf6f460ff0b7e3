//! The comparisons: scenes of steps, each measured step a row of the result, and the bar that a row
//! must reach.
//!
//! A scene is one process with one engine: an empty database, then its steps in order. Writes stay
//! in a scene even when nobody asked for their rows, because the reads after them need what they
//! left.

use super::record::Key;

mod operations;

/// Of what the rows are made.
#[derive(Clone, Debug)]
pub struct Size {
    /// Keys.
    pub num: u64,
    /// Seconds of each read.
    pub seconds: u64,
    /// Threads of each row that has threads.
    pub threads: Vec<usize>,
}

/// A step of a scene, in the words of the process that does it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// `verb name=value …`.
    pub text: String,
    /// The row of its rate.
    pub row: Option<Key>,
    /// The row of its rate with the wait for the background.
    pub settled: Option<Key>,
    /// Whether later steps need what it leaves.
    pub(super) writes: bool,
}

/// One process's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// For the progress bar.
    pub name: String,
    /// Its steps.
    pub steps: Vec<Step>,
    /// The engines that can do it; empty: all.
    pub engines: &'static [&'static str],
}

/// The engines, in the order in which they are drawn.
pub const ENGINES: &[&str] =
    &["tombolo", "rocksdb", "rocksdb-tuned", "fjall", "slatedb", "slatedb-tuned", "redb", "lmdb"];
/// Those that take part when nobody says which: what SlateDB's documentation advises is about
/// buckets.
pub const LOCAL: &[&str] = &["tombolo", "rocksdb", "rocksdb-tuned", "fjall", "slatedb", "redb", "lmdb"];
/// Those that the bars speak of.
pub const LSM_PEERS: &[&str] = &["rocksdb", "rocksdb-tuned", "fjall", "slatedb", "slatedb-tuned"];
/// Those that can read and write past the page cache.
const DIRECT: &[&str] = &["tombolo", "rocksdb", "rocksdb-tuned"];

/// Writes go to a count; an engine that takes longer is cut off, and has fewer keys in what
/// follows.
const WRITE_SECONDS_MAX: u64 = 120;

/// Writes a second beside the reads of `readwhilewriting`: a rate that every engine keeps up with,
/// so that all do the same work.
const WRITES_BESIDE: u64 = 100_000;

/// Rate of accepted writes, as the caller sees them.
pub const ACCEPTED: &str = "accepted";
/// Rate up to the end of all background work.
pub const SETTLED: &str = "settled";
/// The shape that overwrites left.
pub const NATURAL: &str = "natural";
/// Fully compacted.
pub const COMPACTED: &str = "compacted";
/// Compacted, with a cache much smaller than the data, over the page cache.
pub const SMALL_CACHE: &str = "64 MB cache";
/// Compacted, past the page cache, with a cache of a fifteenth of the data or less.
pub const DIRECT_IO: &str = "direct";
/// Reads of files past the page cache, of every engine: what a device can do at most, by fio.
pub const DEVICE: &str = "device";
/// In flight there.
pub const DEVICE_READS: usize = 32;
/// Durable writes.
pub const DURABLE: &str = "durable";

impl Scene {
    pub(super) fn new(name: impl Into<String>) -> Scene {
        Scene { name: name.into(), steps: Vec::new(), engines: &[] }
    }

    pub(super) fn setup(mut self, text: impl Into<String>) -> Scene {
        self.steps.push(Step { text: text.into(), row: None, settled: None, writes: true });
        self
    }

    pub(super) fn read(
        mut self,
        workload: &str,
        shape: &str,
        threads: usize,
        text: impl Into<String>,
    ) -> Scene {
        let row = Some(Key::new(workload, shape, threads));
        self.steps.push(Step { text: text.into(), row, settled: None, writes: false });
        self
    }

    /// A write, whose rate is told as accepted and until settled.
    fn write(mut self, workload: &str, threads: usize, text: impl Into<String>) -> Scene {
        let [row, settled] = [ACCEPTED, SETTLED].map(|shape| Some(Key::new(workload, shape, threads)));
        self.steps.push(Step {
            text: format!("{} settle=1 seconds={WRITE_SECONDS_MAX}", text.into()),
            row,
            settled,
            writes: true,
        });
        self
    }

    fn only(mut self, engines: &'static [&'static str]) -> Scene {
        self.engines = engines;
        self
    }

    /// The reads that show a shape.
    fn reads(self, shape: &str, threads: usize, seconds: u64) -> Scene {
        let with = format!("threads={threads} seconds={seconds}");
        self.read("readrandom", shape, threads, format!("run readrandom {with}"))
            .read("readmissing", shape, threads, format!("run readmissing {with}"))
            .read("multireadrandom", shape, threads, format!("run multireadrandom {with} batch=10 stride=1"))
            .read("seekrandom", shape, threads, format!("run seekrandom {with} nexts=10"))
            .read("longscan", shape, threads, format!("run seekrandom {with} nexts=1000"))
            .read("readseq", shape, threads, format!("run readseq {with}"))
            .read("readreverse", shape, threads, format!("run readreverse {with}"))
    }

    /// Without the rows that nobody asked for; `None` when none is left.
    pub(super) fn filtered(mut self, wanted: &dyn Fn(&Key) -> bool) -> Option<Scene> {
        for step in &mut self.steps {
            step.row = step.row.take().filter(|key| wanted(key));
            step.settled = step.settled.take().filter(|key| wanted(key));
        }
        let last = self.steps.iter().rposition(|step| step.row.is_some() || step.settled.is_some())?;
        self.steps.truncate(last + 1);
        self.steps.retain(|step| step.writes || step.row.is_some() || step.settled.is_some());
        Some(self)
    }
}

/// YCSB's mixes.
const LETTERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// All scenes of `size` with a row that `wanted` says yes to.
pub fn scenes(size: &Size, wanted: &dyn Fn(&Key) -> bool) -> Vec<Scene> {
    let seconds = size.seconds;
    let mut scenes = Vec::new();
    for &threads in &size.threads {
        let with = format!("threads={threads}");
        scenes.push(Scene::new(format!("in order, {with}")).setup("open").write(
            "fillseq",
            threads,
            format!("run fillseq {with}"),
        ));
        let random = Scene::new(format!("at random, {with}"))
            .setup("open")
            .write("fillrandom", threads, format!("run fillrandom {with}"))
            .write("overwrite", threads, format!("run overwrite {with}"))
            .setup("warm")
            .reads(NATURAL, threads, seconds)
            .read(
                "readwhilewriting",
                NATURAL,
                threads,
                format!("run readwhilewriting {with} seconds={} beside={WRITES_BESIDE}", 2 * seconds),
            )
            .setup("compact")
            .setup("warm")
            .reads(COMPACTED, threads, seconds)
            .read("open", COMPACTED, threads, "open")
            .write("deleterandom", threads, format!("run deleterandom {with}"))
            .read(
                "seekdeleted",
                NATURAL,
                threads,
                format!("run seekrandom {with} seconds={seconds} nexts=10"),
            );
        scenes.push(random);
        for (row, benchmark) in [("fillbatch", "fillbatch"), ("fillbatch random", "fillrandombatch")] {
            for batch in [10, 100, 1000] {
                // Batches of 100 are the usual ones.
                let row = if batch == 100 { row.to_owned() } else { format!("{row} {batch}") };
                let text = format!("run {benchmark} {with} batch={batch}");
                scenes.push(Scene::new(format!("{row}, {with}")).setup("open").write(&row, threads, text));
            }
        }
        for (row, benchmark) in [("queue", "queue"), ("seekdeleted all", "seekdeleted")] {
            let scene = Scene::new(format!("{row}, {with}")).setup("open");
            scenes.push(scene.mixed(row, benchmark, "", threads, 2 * seconds));
        }
        let mut ycsb = Scene::new(format!("YCSB, {with}"))
            .setup("open")
            .setup("run filluniquerandom settle=1")
            .setup("warm");
        // Writes are merged in bouts: a mix that writes runs longer, so that it meets them
        // in every engine.
        let seconds_of = |letter| if letter == "c" { seconds } else { 2 * seconds };
        for letter in LETTERS {
            ycsb = ycsb.mixed(
                &format!("ycsb-{letter}"),
                &format!("ycsb-{letter}"),
                "",
                threads,
                seconds_of(letter),
            );
        }
        scenes.push(ycsb);
        // Each with the keys that are not its own.
        for distribution in ["uniform", "zipfian", "latest", "hotspot"] {
            let mut ycsb = Scene::new(format!("YCSB, {distribution}, {with}"))
                .setup("open")
                .setup("run filluniquerandom settle=1")
                .setup("warm");
            for letter in LETTERS
                .into_iter()
                .filter(|letter| distribution != if *letter == "d" { "latest" } else { "zipfian" })
            {
                let options = format!("distribution={distribution}");
                ycsb = ycsb.mixed(
                    &format!("ycsb-{letter} {distribution}"),
                    &format!("ycsb-{letter}"),
                    &options,
                    threads,
                    seconds_of(letter),
                );
            }
            scenes.push(ycsb);
        }
        for name in ["mixgraph", "deletescan"] {
            let scene = Scene::new(format!("{name}, {with}"))
                .setup("open")
                .setup("run filluniquerandom settle=1")
                .setup("warm");
            scenes.push(scene.mixed(name, name, "", threads, 2 * seconds));
        }
        let small = Scene::new(format!("small cache, {with}"))
            .setup("open")
            .setup("run filluniquerandom")
            .setup("compact")
            .setup("open cache=67108864 memtable=4194304")
            .setup("warm")
            .read("readrandom", SMALL_CACHE, threads, format!("run readrandom {with} seconds={seconds}"))
            .read(
                "seekrandom",
                SMALL_CACHE,
                threads,
                format!("run seekrandom {with} seconds={seconds} nexts=10"),
            );
        scenes.push(small);
    }
    if size.threads.contains(&2) {
        let own = Scene::new("a keyspace for each of 2 threads")
            .setup("open spaces=2")
            .write("fillrandom own", 2, "run fillrandom threads=2")
            .write("overwrite own", 2, "run overwrite threads=2");
        scenes.push(own);
    }
    for threads in [1, 2, 8] {
        let text = format!("run fillrandom threads={threads} durability=durable seconds={seconds}");
        scenes.push(
            Scene::new(format!("durable, {threads} threads"))
                .setup("open")
                .read("fillsync", DURABLE, threads, text),
        );
    }
    // A sixteenth of the data or less in memory, and nothing in the page cache.
    let cache = (size.num * 120 / 16).max(1 << 20);
    let past_cache = |name: &str| {
        Scene::new(name)
            .setup("open direct=1")
            .setup("run filluniquerandom")
            .setup("compact")
            .setup(format!("open direct=1 cache={cache} memtable=1048576"))
    };
    // RocksDB's library has no such call from C.
    let text = format!("run readasync batch=1000 seconds={seconds}");
    scenes.push(
        past_cache("direct IO, 1,000 on their way from one thread")
            .read("readasync 1000", DIRECT_IO, 1, text)
            .only(&["tombolo"]),
    );
    let direct = past_cache("direct IO")
        .read("readrandom", DIRECT_IO, 1, format!("run readrandom seconds={seconds}"))
        .read("readrandom", DIRECT_IO, 8, format!("run readrandom threads=8 seconds={seconds}"))
        .read(
            "readrandom",
            DIRECT_IO,
            DEVICE_READS,
            format!("run readrandom threads={DEVICE_READS} seconds={seconds}"),
        )
        .read("multireadrandom 32", DIRECT_IO, 1, format!("run multireadrandom batch=32 seconds={seconds}"))
        .only(DIRECT);
    scenes.push(direct);
    scenes.extend(operations::scenes(size));
    scenes.into_iter().filter_map(|scene| scene.filtered(wanted)).collect()
}

impl Scene {
    /// A mix of reads and writes: each runs on what the ones before left.
    fn mixed(self, row: &str, name: &str, options: &str, threads: usize, seconds: u64) -> Scene {
        self.read(
            row,
            NATURAL,
            threads,
            format!("run {name} threads={threads} seconds={seconds} {options}").trim_end(),
        )
    }
}

/// What a bar is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Operations per second: more is better.
    Rate,
    /// The latency that 99 % do not exceed: less is better.
    P99,
}

/// How many times as good as others a row must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// By which measure.
    pub measure: Measure,
    /// Than RocksDB with everything equal.
    pub rocksdb: Option<f64>,
    /// Than the best of the LSM engines.
    pub peer: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size() -> Size {
        Size { num: 1000, seconds: 1, threads: vec![1, 2] }
    }

    #[test]
    fn every_row_is_measured_once() {
        let scenes = scenes(&size(), &|_| true);
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
        for workload in [
            "fillseq",
            "readreverse",
            "ycsb-f",
            "ycsb-c hotspot",
            "ycsb-d zipfian",
            "ycsb-e uniform",
            "mixgraph",
            "fillsync",
            "open",
            "deletescan",
            "overwrite own",
            "mergerandom zipfian",
            "getmerged",
            "deleterange+get",
            "seekrandom ranges",
            "fillbig 1M",
            "ingest",
            "queue",
            "seekdeleted all",
            "readasync 1000",
            "fillbatch random 1000",
        ] {
            assert!(keys.iter().any(|key| key.workload == workload), "{workload} is missing");
        }
    }

    #[test]
    fn reads_that_nobody_asked_for_are_left_out_and_writes_are_not() {
        let found =
            scenes(&size(), &|key| key.workload == "seekrandom" && key.shape == NATURAL && key.threads == 2);
        assert_eq!(found.len(), 1);
        let texts: Vec<&str> = found[0].steps.iter().map(|step| step.text.as_str()).collect();
        let expected = [
            "open",
            "run fillrandom threads=2 settle=1 seconds=120",
            "run overwrite threads=2 settle=1 seconds=120",
            "warm",
            "run seekrandom threads=2 seconds=1 nexts=10",
        ];
        assert_eq!(texts, expected);
        assert!(found[0].steps[1].row.is_none() && found[0].steps[4].row.is_some());
        assert!(scenes(&size(), &|_| false).is_empty());
    }
}
