//! The option sets: each differs from the defaults in what a part of the engine does otherwise.

/// How the database of a run is opened, and how its keyspaces are made.
#[derive(Debug)]
pub(super) struct OptionSet {
    pub(super) name: &'static str,
    /// URIs of objects and log.
    pub(super) stores: (&'static str, &'static str),
    /// Settings of the database.
    pub(super) options: &'static [&'static str],
    /// Settings of the keyspaces created; `default` keeps the defaults.
    pub(super) keyspace: &'static [&'static str],
}

const MAPPED: (&str, &str) = ("file:///data/db", "file:///data/db?form=mapped");
const WRITTEN: (&str, &str) = ("file:///data/db", "file:///data/db?form=written");
const DIRECT: (&str, &str) = ("file:///data/db?io=direct", "file:///data/db?io=direct&form=mapped");
const DIRECT_WRITTEN: (&str, &str) = ("file:///data/db?io=direct", "file:///data/db?form=written");
const ELSEWHERE: (&str, &str) = ("file:///data/db", "file:///log/db?form=mapped");
const MEMORY: (&str, &str) = ("mem://db", "mem://db");
const OBJECTS: (&str, &str) = ("file:///data/db", "objects://");
const ZONES: (&str, &str) = ("zoned+file:///zones?zone=1MiB&zones=64", "zoned+file:///zones");
const ZONES_LOG_ELSEWHERE: (&str, &str) =
    ("zoned+file:///zones?zone=1MiB&zones=64&capacity=768KiB", "file:///log/db?form=mapped");
const MEMORY_OBJECTS: (&str, &str) = ("mem://db", "objects://");
const MEMORY_LOG_ON_DISK: (&str, &str) = ("mem://db", "file:///log/db?form=written");

const fn set(
    name: &'static str,
    stores: (&'static str, &'static str),
    options: &'static [&'static str],
    keyspace: &'static [&'static str],
) -> OptionSet {
    OptionSet { name, stores, options, keyspace }
}

impl OptionSet {
    /// Whether writes that were only accepted outlive their process.
    pub(super) fn keeps_accepted(&self) -> bool {
        !self.stores.1.starts_with("zoned")
    }
}

/// Least memory; a flush for every few writes.
const TINY: &[&str] = &["memory_bytes=1048576", "memtable_bytes=4096"];
const SMALL: &[&str] = &["memory_bytes=1048576", "memtable_bytes=16384"];
const SMALL_BY_HAND: &[&str] =
    &["memory_bytes=1048576", "memtable_bytes=16384", "automatic_compaction=false"];
const TINY_BY_HAND: &[&str] = &["memory_bytes=1048576", "memtable_bytes=4096", "automatic_compaction=false"];
const LARGE: &[&str] = &["memory_bytes=8388608", "memtable_bytes=1048576"];
const SLOW_BACKGROUND: &[&str] =
    &["memory_bytes=1048576", "memtable_bytes=8192", "background_bytes_per_second_max=1048576"];
const FLASH: &[&str] = &[
    "memory_bytes=1048576",
    "memtable_bytes=16384",
    "flash_cache_directory=/cache/flash",
    "flash_cache_bytes=4194304",
];
const FEW_IN_FLIGHT: &[&str] =
    &["memory_bytes=1048576", "memtable_bytes=8192", "writes_in_flight_max=1", "slow_operation=1ms"];

pub(super) const SETS: &[OptionSet] = &[
    set("defaults of 4 MiB", MAPPED, &["memory_bytes=4194304"], &[]),
    set("defaults of 4 MiB, written log", WRITTEN, &["memory_bytes=4194304"], &[]),
    set("tiny memtables", MAPPED, TINY, &[]),
    set("tiny memtables, written log", WRITTEN, TINY, &[]),
    set("tiny memtables, compaction by hand", MAPPED, TINY_BY_HAND, &[]),
    set("tiny memtables, written log, compaction by hand", WRITTEN, TINY_BY_HAND, &["compression=none"]),
    set("no flush but those asked for", MAPPED, LARGE, &[]),
    set(
        "no flush but those asked for, written log",
        WRITTEN,
        LARGE,
        &["compression=zstd", "block_bytes=65536"],
    ),
    set("log in another directory", ELSEWHERE, SMALL, &[]),
    set("log in another directory, by hand", ELSEWHERE, SMALL_BY_HAND, &["filter_bits=0"]),
    set("no compression", MAPPED, SMALL, &["compression=none"]),
    set("no compression, smallest blocks", WRITTEN, SMALL, &["compression=none", "block_bytes=1024"]),
    set("ZSTD", MAPPED, SMALL, &["compression=zstd"]),
    set("ZSTD, smallest blocks", WRITTEN, TINY, &["compression=zstd", "block_bytes=1024"]),
    set(
        "LZ4, smallest blocks, no filter",
        MAPPED,
        TINY,
        &["compression=lz4", "block_bytes=1024", "filter_bits=0"],
    ),
    set("largest blocks", MAPPED, SMALL, &["block_bytes=1048576"]),
    set("no filter", WRITTEN, SMALL, &["filter_bits=0"]),
    set("one filter bit", MAPPED, TINY, &["filter_bits=1"]),
    set("thirty filter bits", WRITTEN, TINY_BY_HAND, &["filter_bits=30"]),
    set("one write in flight", MAPPED, FEW_IN_FLIGHT, &[]),
    set("one write in flight, written log", WRITTEN, FEW_IN_FLIGHT, &["block_bytes=2048"]),
    set("direct IO", DIRECT, SMALL, &[]),
    set(
        "direct IO, written log, smallest blocks",
        DIRECT_WRITTEN,
        TINY,
        &["compression=none", "block_bytes=1024"],
    ),
    set("a flash cache", DIRECT, FLASH, &[]),
    set("slow background work", MAPPED, SLOW_BACKGROUND, &[]),
    set("last level by ZSTD", MAPPED, TINY, &["compression=none", "compression_lowest=zstd"]),
    set("last level not compressed", WRITTEN, SMALL, &["compression=zstd", "compression_lowest=none"]),
    set("values at pages", MAPPED, SMALL, &["value_alignment=4096"]),
    set("values at words, written log", WRITTEN, TINY, &["compression=none", "value_alignment=8"]),
    set("large values apart", MAPPED, TINY, &["separate_bytes=1024"]),
    set("types that somebody gave", MAPPED, TINY, &["types=u64 -> text", "block_bytes=2048"]),
    set("work elsewhere, where nobody is", WRITTEN, TINY, &["compaction=remote_or_local"]),
    set("an operator, and an end far away", WRITTEN, TINY, &["operator=append", "ttl=8760h"]),
    set(
        "a filter that writes values anew",
        MAPPED,
        TINY,
        &["compaction_filter=same@1", "separate_bytes=1024"],
    ),
    set("values apart, of which much is garbage", MAPPED, TINY, &["separate_bytes=512", "compression=none"]),
    set(
        "operands and values that end far away, apart",
        WRITTEN,
        TINY_BY_HAND,
        &["separate_bytes=512", "ttl=8760h"],
    ),
    set(
        "tiers of what ends far away, asked of a filter",
        MAPPED,
        TINY,
        &["shape=tiered", "ttl=8760h", "separate_bytes=512", "compaction_filter=same@1"],
    ),
    set("a level kept for what comes behind", WRITTEN, TINY, &["ingest_behind=true", "separate_bytes=1024"]),
    set(
        "a level kept under tiers that end far away",
        MAPPED,
        TINY,
        &["ingest_behind=true", "shape=tiered", "ttl=8760h"],
    ),
    set("a filter that is not there", WRITTEN, SMALL, &["compaction_filter=none_such@1"]),
    set("what is a second old in a cold store", MAPPED, TINY, &["cold_after=1s", "compression=none"]),
    set("tiers", MAPPED, TINY, &["shape=tiered"]),
    set("tiers, written log", WRITTEN, SMALL, &["shape=tiered", "compression=zstd"]),
    set("tiers until reads have paid", MAPPED, TINY, &["shape=auto"]),
    set(
        "nothing merged, and more room than is needed",
        MAPPED,
        SMALL,
        &["shape=fifo", "fifo_bytes=1073741824"],
    ),
    set("in memory", MEMORY, SMALL, &[]),
    set("in memory, tiny memtables", MEMORY, TINY, &["compression=zstd", "filter_bits=4"]),
    set("in memory, by hand", MEMORY, SMALL_BY_HAND, &["compression=none", "filter_bits=0"]),
    set("on zones", ZONES, SMALL, &[]),
    set("on zones, tiny memtables, large values apart", ZONES, TINY, &["separate_bytes=1024"]),
    set("objects on zones, log on disk", ZONES_LOG_ELSEWHERE, TINY, &["shape=tiered"]),
    set("objects in memory, log on disk", MEMORY_LOG_ON_DISK, TINY, &[]),
    set("log as objects", OBJECTS, SMALL, &[]),
    set("log as objects in memory, tiny memtables", MEMORY_OBJECTS, TINY, &["compression=none"]),
];
