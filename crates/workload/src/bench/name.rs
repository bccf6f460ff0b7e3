//! The benchmarks by name.

use std::fmt;
use std::str::FromStr;

use crate::ycsb::Core;

/// What a benchmark does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Writes keys in ascending order, each once.
    WriteSequential,
    /// Writes keys drawn at random, some of them more than once and some never.
    WriteRandom,
    /// Writes every key once, in random order.
    WriteShuffled,
    /// Writes batches of keys in ascending order.
    WriteBatches,
    /// Writes batches of keys drawn at random.
    WriteRandomBatches,
    /// Deletes keys drawn at random.
    DeleteRandom,
    /// Deletes each key once, in random order, and says that each was written once.
    SingleDelete,
    /// Adds to the numbers of keys drawn at random, by merges.
    MergeRandom,
    /// Reads numbers that merges have made, of keys drawn at random.
    ReadMerged,
    /// Reads all numbers that merges have made: they must add up to the merges.
    CheckMerged,
    /// Deletes ranges of keys that lie apart, in random order.
    DeleteRange,
    /// Reads keys drawn at random; one of a hundred operations deletes a short range.
    ReadDeleteRange,
    /// Writes keys drawn at random, whose values end in an hour.
    WriteExpiring,
    /// Makes tables outside of the database, in order, and makes them part of it.
    Ingest,
    /// Makes keyspaces, a thousand and some.
    CreateKeyspaces,
    /// Writes to each tenth of those keyspaces, and makes a checkpoint.
    Checkpoint,
    /// Reads keys drawn at random.
    ReadRandom,
    /// Reads keys that are not there.
    ReadMissing,
    /// Reads several keys with one call.
    MultiRead,
    /// Reads keys drawn at random, several of them on their way at a time from one thread.
    ReadInFlight,
    /// Seeks a key drawn at random and reads on from it.
    Seek,
    /// Reads in ascending order from the first entry on.
    ReadSequential,
    /// Reads in descending order from the last entry on.
    ReadReverse,
    /// Reads at random while one more thread overwrites at random.
    ReadWhileWriting,
    /// Deletes, writes and reads short ranges at random: deleted keys lie in the way of the scans.
    DeleteScan,
    /// A queue: puts an entry at the end, seeks to the first one and deletes that.
    Queue,
    /// Seeks to the first entry where all were deleted.
    SeekDeleted,
    /// Reads and overwrites keys drawn at random; so many of a hundred operations are reads.
    ReadUpdate(u8),
    /// One of YCSB's core workloads.
    Ycsb(Core),
    /// The model of a production database.
    Mixgraph,
    /// Merges everything.
    Compact,
    /// Moves memtables to tables.
    Flush,
    /// Waits until background work has settled.
    Wait,
    /// Prints what the engine says about itself.
    Stats,
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Benchmark {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub work: Work,
    /// Whether it begins with an empty database, as db_bench's do.
    pub is_fresh: bool,
    /// Whether its writes are durable, whatever the plan says.
    pub is_durable: bool,
    /// Bytes of its values, whatever the plan says: of a thousandth of the keys.
    pub value_bytes: Option<usize>,
    /// For help texts.
    pub help: &'static str,
}

const fn benchmark(name: &'static str, work: Work, help: &'static str) -> Benchmark {
    Benchmark { name, work, is_fresh: false, is_durable: false, value_bytes: None, help }
}

const fn fill(name: &'static str, work: Work, help: &'static str) -> Benchmark {
    Benchmark { is_fresh: true, ..benchmark(name, work, help) }
}

impl Benchmark {
    /// All of them.
    pub const ALL: &'static [Benchmark] = &[
        fill("fillseq", Work::WriteSequential, "write --num keys in order, into an empty database"),
        fill(
            "fillrandom",
            Work::WriteRandom,
            "write --num keys drawn at random (about 63 % of all), into an empty database",
        ),
        fill(
            "filluniquerandom",
            Work::WriteShuffled,
            "write each of --num keys once, in random order, into an empty database",
        ),
        Benchmark {
            is_durable: true,
            ..fill(
                "fillsync",
                Work::WriteRandom,
                "as fillrandom, each write durable; a thousandth of --num, at least 1000",
            )
        },
        fill(
            "fillbatch",
            Work::WriteBatches,
            "write --num keys in order, in batches of --batch-size, into an empty database",
        ),
        Benchmark {
            value_bytes: Some(100_000),
            ..fill(
                "fill100K",
                Work::WriteRandom,
                "as fillrandom, values of 100,000 bytes; a thousandth of --num keys",
            )
        },
        Benchmark {
            value_bytes: Some(1 << 20),
            ..fill(
                "fillbig",
                Work::WriteShuffled,
                "as filluniquerandom, values of 1 MiB; a thousandth of --num keys",
            )
        },
        fill("fillttl", Work::WriteExpiring, "as fillrandom, each value ending in an hour"),
        fill(
            "ingest",
            Work::Ingest,
            "make tables of --num keys in order outside of the database, and ingest each",
        ),
        fill(
            "createkeyspaces",
            Work::CreateKeyspaces,
            "make a thousandth of --num keyspaces, at least 1000, in an empty database",
        ),
        benchmark(
            "checkpoint",
            Work::Checkpoint,
            "10 checkpoints, before each a write to one in ten keyspaces: after createkeyspaces",
        ),
        fill(
            "fillrandombatch",
            Work::WriteRandomBatches,
            "write --num keys drawn at random, in batches of --batch-size, into an empty database",
        ),
        benchmark("overwrite", Work::WriteRandom, "write --num keys drawn at random"),
        benchmark("readrandom", Work::ReadRandom, "read --reads keys drawn at random"),
        benchmark("readmissing", Work::ReadMissing, "read --reads keys that are not there"),
        benchmark(
            "multireadrandom",
            Work::MultiRead,
            "read --reads keys, --batch-size at a time (see --multiread-stride)",
        ),
        benchmark(
            "readasync",
            Work::ReadInFlight,
            "read --reads keys, --batch-size of them on their way at a time from each thread",
        ),
        benchmark("seekrandom", Work::Seek, "seek --reads keys and read --seek-nexts entries from each"),
        benchmark("readseq", Work::ReadSequential, "read --reads entries in order, from the first"),
        benchmark(
            "readreverse",
            Work::ReadReverse,
            "read --reads entries in descending order, from the last",
        ),
        benchmark(
            "readwhilewriting",
            Work::ReadWhileWriting,
            "as readrandom, while one more thread overwrites",
        ),
        fill(
            "mergerandom",
            Work::MergeRandom,
            "add to the numbers of --num keys drawn at random (--distribution), by merges, into an empty \
                database",
        ),
        benchmark(
            "getmerged",
            Work::ReadMerged,
            "read --reads numbers that mergerandom made (--distribution)",
        ),
        benchmark(
            "checkmerged",
            Work::CheckMerged,
            "read all numbers that one mergerandom made: they must add up to --num",
        ),
        benchmark(
            "deleterange",
            Work::DeleteRange,
            "delete --ranges ranges of --range-keys keys each, spread over all, in random order",
        ),
        benchmark(
            "deleterangeget",
            Work::ReadDeleteRange,
            "--reads operations: 1 % deletes of --range-keys keys in a row, 99 % reads",
        ),
        benchmark("deleterandom", Work::DeleteRandom, "delete --num keys drawn at random"),
        benchmark(
            "singledelete",
            Work::SingleDelete,
            "delete each of --num keys once, in random order, by single deletes: after filluniquerandom",
        ),
        benchmark(
            "deletescan",
            Work::DeleteScan,
            "--reads operations: 50 % deletes, 30 % writes, 20 % scans of 1 to 100 entries",
        ),
        fill(
            "queue",
            Work::Queue,
            "a queue of --num entries, filled first: --reads times put at the end, seek to the first, \
                delete it",
        ),
        fill(
            "seekdeleted",
            Work::SeekDeleted,
            "write and delete --num keys, then seek to the first entry --reads times",
        ),
        benchmark(
            "readupdate-95",
            Work::ReadUpdate(95),
            "--reads operations: 95 % reads, 5 % overwrites of uniform keys (see --distribution)",
        ),
        benchmark("readupdate-50", Work::ReadUpdate(50), "the same with 50 % reads"),
        benchmark("readupdate-5", Work::ReadUpdate(5), "the same with 5 % reads"),
        benchmark(
            "ycsb-a",
            Work::Ycsb(Core::A),
            "--reads operations of YCSB A: 50 % reads, 50 % updates (see --distribution)",
        ),
        benchmark("ycsb-b", Work::Ycsb(Core::B), "the same of B: 95 % reads, 5 % updates"),
        benchmark("ycsb-c", Work::Ycsb(Core::C), "the same of C: reads only"),
        benchmark("ycsb-d", Work::Ycsb(Core::D), "the same of D: 95 % reads of the latest, 5 % insertions"),
        benchmark(
            "ycsb-e",
            Work::Ycsb(Core::E),
            "the same of E: 95 % scans of 1 to 100 entries, 5 % insertions",
        ),
        benchmark("ycsb-f", Work::Ycsb(Core::F), "the same of F: 50 % reads, 50 % reads followed by a write"),
        benchmark(
            "mixgraph",
            Work::Mixgraph,
            "--reads operations of a modelled production database: 83 % reads, 14 % writes, 3 % scans",
        ),
        benchmark("compact", Work::Compact, "merge everything into one sorted run"),
        benchmark("flush", Work::Flush, "move what is in memory to tables"),
        benchmark("wait", Work::Wait, "wait until background work has settled"),
        benchmark("stats", Work::Stats, "print what the engine says about itself"),
    ];

    /// Whether it reads.
    pub fn is_reading(&self) -> bool {
        matches!(
            self.work,
            Work::ReadRandom
                | Work::ReadMissing
                | Work::MultiRead
                | Work::ReadInFlight
                | Work::Seek
                | Work::ReadSequential
                | Work::ReadReverse
                | Work::ReadWhileWriting
                | Work::ReadMerged
        )
    }

    /// Whether it mixes reads and writes; it does as many operations as a reading one.
    pub fn is_mixed(&self) -> bool {
        matches!(
            self.work,
            Work::DeleteScan
                | Work::Queue
                | Work::SeekDeleted
                | Work::ReadDeleteRange
                | Work::ReadUpdate(_)
                | Work::Ycsb(_)
                | Work::Mixgraph
        )
    }

    /// Whether a number of threads does it; the rest is one call.
    pub fn is_threaded(&self) -> bool {
        !matches!(self.work, Work::Compact | Work::Flush | Work::Wait | Work::Stats)
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// A name that no benchmark has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no benchmark {name:?}; there are {known}")]
pub struct UnknownBenchmark {
    name: String,
    known: String,
}

impl FromStr for Benchmark {
    type Err = UnknownBenchmark;

    fn from_str(name: &str) -> Result<Benchmark, UnknownBenchmark> {
        let known = || Benchmark::ALL.iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
        let found = Benchmark::ALL.iter().find(|known| known.name == name);
        found.copied().ok_or_else(|| UnknownBenchmark { name: name.to_owned(), known: known() })
    }
}
