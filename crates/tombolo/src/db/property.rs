//! What an open database says about itself, by name: for operators, dashboards and alerts.
//!
//! Reading them takes no lock that writes or reads contend for, but one look into the commit
//! section, and makes no request.

use std::fmt;
use std::sync::atomic::Ordering;

use tombolo_storage::price::PriceClass;
use tombolo_storage::{Counted, Error, ErrorKind, ObjectStore, Purpose, Result};

use crate::budget::Category;
use crate::cache::CacheStats;
use crate::db::Db;
use crate::engine::{Background, Engine, Store};
use crate::flash::{FlashCacheStats, FlashUse};
use crate::manifest::{State, TableStatus};
use crate::{compaction, write};

/// The unit of a property's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// A ratio, in thousandths.
    Thousandths,
    /// Text, for people.
    Text,
}

impl fmt::Display for Unit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Thousandths => "thousandths",
            Unit::Text => "text",
        })
    }
}

/// What a property says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropertyValue {
    /// One number.
    Number(u64),
    /// A number for each level, from level 0.
    Levels(Vec<u64>),
    /// Text; empty when there is nothing to say.
    Text(String),
}

impl PropertyValue {
    /// The number, or the sum over the levels; `None` of text.
    pub fn number(&self) -> Option<u64> {
        match self {
            PropertyValue::Number(number) => Some(*number),
            PropertyValue::Levels(levels) => Some(levels.iter().sum()),
            PropertyValue::Text(_) => None,
        }
    }
}

impl fmt::Display for PropertyValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PropertyValue::Number(number) => number.fmt(formatter),
            PropertyValue::Levels(levels) => {
                let levels: Vec<_> = levels.iter().map(u64::to_string).collect();
                formatter.write_str(&levels.join(" "))
            }
            PropertyValue::Text(text) => text.fmt(formatter),
        }
    }
}

/// Something that an open database says about itself. Counts are since opening.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Property {
    /// Its name, which stays.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// What it means, and when to look at it.
    pub help: &'static str,
    /// What it says now.
    pub value: PropertyValue,
}

#[derive(Default)]
struct List(Vec<Property>);

impl List {
    fn add(&mut self, name: &'static str, unit: Unit, value: PropertyValue, help: &'static str) {
        self.0.push(Property { name, unit, help, value });
    }

    fn count(&mut self, name: &'static str, value: u64, help: &'static str) {
        self.add(name, Unit::Count, PropertyValue::Number(value), help);
    }

    fn bytes(&mut self, name: &'static str, value: u64, help: &'static str) {
        self.add(name, Unit::Bytes, PropertyValue::Number(value), help);
    }

    fn nanos(&mut self, name: &'static str, value: u64, help: &'static str) {
        self.add(name, Unit::Nanoseconds, PropertyValue::Number(value), help);
    }

    fn text(&mut self, name: &'static str, value: String, help: &'static str) {
        self.add(name, Unit::Text, PropertyValue::Text(value), help);
    }
}

impl Db {
    /// All that the database says about itself.
    ///
    /// ```no_run
    /// # fn f(db: &tombolo::Db) {
    /// for property in db.properties() {
    ///     println!("{} = {} {} ({})", property.name, property.value, property.unit, property.help);
    /// }
    /// # }
    /// ```
    pub fn properties(&self) -> Vec<Property> {
        let engine = self.engine();
        let mut list = List::default();
        trouble(engine, &mut list);
        memory(engine, &mut list);
        flash(engine, &mut list);
        list.count("keyspaces", engine.catalog.len() as u64, "keyspaces");
        tables(engine, &mut list);
        work(engine, &mut list);
        store(engine, &mut list);
        requests(self, &mut list);
        list.0
    }

    /// One of [`Db::properties`].
    ///
    /// # Errors
    /// `Invalid` for an unknown name; it lists the known ones.
    pub fn property(&self, name: &str) -> Result<Property> {
        let all = self.properties();
        let names: Vec<_> = all.iter().map(|property| property.name).collect();
        let unknown = || {
            Error::new(ErrorKind::Invalid, format!("there is no property {name:?}"))
                .expected(names.join(", "))
        };
        all.into_iter().find(|property| property.name == name).ok_or_else(unknown)
    }
}

/// What an operator looks at first.
fn trouble(engine: &Engine, list: &mut List) {
    let view = engine.view_owned();
    let waiting = engine.stream.commit.lock().line.len() as u64;
    list.text(
        "failure",
        engine
            .failure()
            .filter(|_| !engine.is_read_only())
            .map(|error| error.to_string())
            .unwrap_or_default(),
        "why the handle is finished for writing; alert on any: open the database again, or close this \
        process",
    );
    let errors = engine.background_errors();
    list.count(
        "background-errors",
        errors.len() as u64,
        "background works that fail and are tried again; alert when it stays above 0",
    );
    let text: Vec<_> = errors.iter().map(ToString::to_string).collect();
    list.text("background-error", text.join("; "), "what they fail with, since when, how often");
    list.count(
        "writes-waiting",
        waiting,
        "writes that stand in line for room in memory; above 0: flushing does not keep up",
    );
    list.count(
        "memtables-waiting",
        view.waiting.len() as u64,
        "full memtables that wait for their flush; writers slow down as it grows",
    );
    list.count(
        "runs-max",
        view.version.runs_max() as u64,
        "most overlapping runs of a keyspace; reads cost more, and writers slow down",
    );
    let slowed = write::slowed_now(engine);
    let reason = slowed.map(|slowed| slowed.reason.to_string()).unwrap_or_default();
    list.text("write-stall", reason, "why writers are slowed now; empty when they are not");
    let rate = slowed.map_or(0, |slowed| slowed.bytes_per_second);
    list.bytes(
        "write-rate-max",
        rate,
        "bytes per second that writers are slowed to, all together; 0 when they are not",
    );
    let slow = engine.recording.slow();
    list.count(
        "slow-operations",
        slow.count(),
        "operations that took as long as the setting slow_operation says, or longer",
    );
    let newest: Vec<_> = slow.kept().iter().rev().take(8).map(ToString::to_string).collect();
    list.text("slow-operation", newest.join("; "), "the newest of them, newest first; empty without any");
    let (snapshots, oldest) = engine.snapshots.ages(engine.env.now());
    list.count("snapshots", snapshots, "open snapshots; compaction keeps what they see");
    let behind = engine.readers.behind(&view, engine.env.now());
    list.count(
        "readers-behind",
        behind.views,
        "states that were replaced since and that cursors and reads look at still",
    );
    list.nanos(
        "reader-age-max",
        behind.oldest_nanos,
        "since when the oldest of them is replaced; one that grows for ever holds space",
    );
    list.bytes(
        "reader-memtable-bytes",
        behind.memtable_bytes,
        "memtables that were flushed and that only they keep, beyond the budget if need be",
    );
    list.nanos(
        "snapshot-age-max",
        oldest,
        "age of the oldest open snapshot; one that grows for ever holds space for ever",
    );
}

fn memory(background: &Background, list: &mut List) {
    let budget = background.budget();
    list.bytes(
        "memory-budget",
        budget.bytes(),
        "the memory budget, which databases of one process may share",
    );
    list.bytes("memory-used", budget.used_bytes(), "of the budget, in use");
    list.bytes("memory-peak", budget.peak_bytes(), "the most that was in use at once");
    let names = [
        (Category::Memtables, "memory-memtables", "the newest writes, not yet flushed"),
        (Category::Cache, "memory-cache", "blocks, filters and indexes; gives way to all others"),
        (Category::Tables, "memory-tables", "what open tables hold beside the cache"),
        (Category::Pinned, "memory-pinned", "values handed out that share a block's memory: drop them"),
        (Category::Scans, "memory-scans", "buffers of scans: drop those that are not used"),
        (Category::Compactions, "memory-compactions", "buffers of flushes and compactions"),
        (Category::Queues, "memory-queues", "writes that wait for room"),
        (Category::Log, "memory-log", "what the log keeps of writes until they are durable"),
        (
            Category::Flash,
            "memory-flash",
            "what the flash cache knows of its pieces, and those that wait to be written",
        ),
        (
            Category::Spare,
            "memory-spare",
            "of memtables that ended, kept for the next ones; gives way to all others",
        ),
    ];
    for (category, name, help) in names {
        list.bytes(name, budget.used(category), help);
    }
    let CacheStats { hits, misses, insertions, evictions, rows, row_bytes, row_hits, .. } =
        background.versions.tables().cache.stats();
    list.count(
        "cache-hits",
        hits,
        "look-ups that found what they sought in the block cache, about; of all who share it",
    );
    list.count("cache-misses", misses, "look-ups that found nothing in the block cache, of all who share it");
    list.count("cache-insertions", insertions, "blocks taken into the cache");
    list.count(
        "cache-evictions",
        evictions,
        "blocks put out of the cache; far above the misses of a warm-up: more memory would help",
    );
    list.count(
        "cache-rows",
        rows,
        "single rows in the cache, of keys that are read often in tables far away",
    );
    list.bytes("cache-row-bytes", row_bytes, "what they take of the cache");
    list.count(
        "cache-row-hits",
        row_hits,
        "look-ups that found what they sought among them, and needed no block",
    );
}

fn flash(store: &Store, list: &mut List) {
    let flash = &store.versions.tables().flash;
    let trouble = match flash {
        FlashUse::Off(error) => error.to_string(),
        _ => flash.cache().map(|cache| cache.stats().trouble).unwrap_or_default(),
    };
    list.text(
        "flash-trouble",
        trouble,
        "why the flash cache is not used, or its disk fails; empty when all is well, or there is none",
    );
    let Some(cache) = flash.cache() else { return };
    let FlashCacheStats {
        pieces,
        bytes,
        hits,
        misses,
        insertions,
        written_bytes,
        dropped_by_rate,
        dropped_by_room,
        damaged,
        errors,
        ..
    } = cache.stats();
    list.count("flash-pieces", pieces, "blocks, partitions and tails of tables in the flash cache");
    list.bytes("flash-bytes", bytes, "bytes of the flash cache's files");
    list.bytes("flash-bytes-max", cache.bytes_max(), "most bytes that they take");
    list.count(
        "flash-hits",
        hits,
        "look-ups that found what they sought in the flash cache; of all who share it",
    );
    list.count(
        "flash-misses",
        misses,
        "look-ups that had to ask the store, of all who share it; stays high: a larger one would help",
    );
    list.count("flash-insertions", insertions, "pieces taken into the flash cache");
    list.bytes("flash-written-bytes", written_bytes, "bytes written to its files: what wears its disk");
    list.count(
        "flash-dropped-by-rate",
        dropped_by_rate,
        "pieces not taken in because of the rate at which its disk may be written",
    );
    list.count(
        "flash-dropped-by-room",
        dropped_by_room,
        "pieces not taken in because memory, the queue or the disk had no room",
    );
    list.count(
        "flash-damaged",
        damaged,
        "pieces that did not pass their checks, and were read from the store; grows without a crash: \
        replace the disk",
    );
    list.count("flash-errors", errors, "operations on its files that failed; alert when it grows");
}

fn value_objects(state: &State, list: &mut List) {
    let (mut objects, mut bytes, mut garbage) = (0, 0, 0);
    for keyspace in state.keyspaces() {
        objects += keyspace.values.len() as u64;
        for object in keyspace.values.objects() {
            bytes += object.length;
            garbage += keyspace.values.garbage_bytes(object);
        }
    }
    list.count("value-objects", objects, "objects that hold values apart from tables (`separate_bytes`)");
    list.bytes("value-bytes", bytes, "their bytes");
    list.bytes(
        "value-bytes-garbage",
        garbage,
        "of those, to which no table refers any more; compaction collects it beyond two fifths of them",
    );
}

/// What lies in the cold store, and what was asked of it.
fn cold(store: &Store, state: &State, list: &mut List) {
    let all = state.keyspaces().flat_map(|keyspace| keyspace.tables());
    let (mut tables, mut bytes) = (0, 0);
    for table in all.filter(|table| table.cold().is_some()) {
        (tables, bytes) = (tables + 1, bytes + table.length);
    }
    list.count("cold-tables", tables, "of all tables, those in the cold store");
    list.bytes("cold-table-bytes", bytes, "their bytes");
    let places = store.versions.tables().places.lock().clone();
    let counted = places.cold().filter_map(|cold| cold.meter()).flat_map(|meter| meter.counted());
    let reads = counted.filter(|one| PriceClass::of(one.kind) == PriceClass::B).map(|one| one.requests);
    list.count("cold-reads", reads.sum(), "requests that read in the cold store");
}

fn tables(store: &Store, list: &mut List) {
    let state = store.manifest.state();
    let (mut counts, mut bytes) = (Vec::new(), Vec::new());
    let (mut entries, mut deletes) = (0u64, 0u64);
    for table in state.keyspaces().flat_map(|keyspace| keyspace.tables()) {
        let level = usize::from(table.level);
        if counts.len() <= level {
            counts.resize(level + 1, 0);
            bytes.resize(level + 1, 0);
        }
        counts[level] += 1;
        bytes[level] += table.length;
        entries += table.entries;
        deletes += table.deletes;
    }
    list.add("tables", Unit::Count, PropertyValue::Levels(counts), "tables of each level");
    list.add("table-bytes", Unit::Bytes, PropertyValue::Levels(bytes), "bytes of the tables of each level");
    value_objects(&state, list);
    let unneeded: Vec<_> = state.unneeded().collect();
    let held: u64 = unneeded.iter().map(|table| table.description.length).sum();
    let condemned = unneeded.iter().filter(|table| table.status == TableStatus::Condemned).count() as u64;
    list.count(
        "tables-unneeded",
        unneeded.len() as u64,
        "tables that left the tree and wait for deletion, or are kept by readers and pins",
    );
    list.count("tables-condemned", condemned, "of those, about to be deleted");
    list.bytes(
        "table-bytes-unneeded",
        held,
        "their bytes; when it stays high: old scans and snapshots, or checkpoints, hold space",
    );
    cold(store, &state, list);
    let (shared, shared_bytes) = state.shared_tables();
    list.count(
        "tables-shared",
        shared,
        "tables that lie under other databases, with which they are shared; those that left the tree \
        included",
    );
    list.bytes(
        "table-bytes-shared",
        shared_bytes,
        "their bytes: the other databases keep them until compaction has rewritten them here",
    );
    list.count("entries", entries, "entries of all tables, older versions and deletes included");
    list.count(
        "keys-estimated",
        entries.saturating_sub(2 * deletes),
        "keys, as far as tables tell without reading them",
    );
}

/// Measurements of a remote store; all zero of one on this host.
fn store(store: &Store, list: &mut List) {
    let performance = store.objects.performance().unwrap_or_default();
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    list.nanos(
        "store-latency-p50",
        nanos(performance.latency_p50),
        "median latency of small reads of a remote store, lately; 0 of one on this host",
    );
    list.nanos(
        "store-latency-p99",
        nanos(performance.latency_p99),
        "their 99th percentile; what is above it is asked for twice",
    );
    list.bytes(
        "store-bytes-per-second",
        performance.bytes_per_second,
        "what one request moves once it gives the first byte, as measured",
    );
    list.count(
        "store-slow",
        u64::from(performance.is_slow),
        "1: the median rose far above what is usual; look at the store",
    );
    list.count("store-reads", performance.reads, "ranged reads of a remote store that somebody waited for");
    list.count(
        "store-hedges",
        performance.hedges,
        "second requests for reads that took long; at most one for twenty reads",
    );
    list.count("store-hedges-won", performance.hedges_won, "of those, answered before the first");
    list.count(
        "store-hedges-suppressed",
        performance.hedges_suppressed,
        "second requests that were due and not made, to spare the store",
    );
    list.count("store-requests", performance.in_flight, "requests that are on their way to a remote store");
    list.count(
        "store-requests-waiting",
        performance.waiting,
        "requests that wait for others to end; stays above 0: the store is the bottleneck",
    );
    list.count(
        "store-requests-max",
        performance.in_flight_max,
        "requests that may be on their way at once; falls when the store refuses or slows down",
    );
}

fn work(engine: &Engine, list: &mut List) {
    let counters = &engine.counters;
    let pressure = engine.main_log().pressure();
    let log_bytes = match engine.is_read_only() {
        true => counters.replayed_bytes.load(Ordering::Relaxed),
        false => pressure.live_bytes,
    };
    list.bytes("log-bytes", log_bytes, "bytes of the log not yet freed: what opening would replay");
    list.bytes(
        "log-bytes-wanted-max",
        pressure.wanted_bytes_max,
        "beyond it the log has its oldest data flushed",
    );
    let age = engine.following().map(|following| following.lag(engine.env.now())).unwrap_or_default();
    list.nanos(
        "shown-age",
        u64::try_from(age.as_nanos()).unwrap_or(u64::MAX),
        "how old what a reader or a look shows may be; 0 of the writer",
    );
    list.count("last-sequence", engine.stream.visible().0, "the newest sequence number that reads see");
    list.count("writes", engine.stream.writes(), "writes committed");
    list.count(
        "writes-in-flight",
        engine.stream.in_flight.load(Ordering::Relaxed),
        "durable writes that have not ended",
    );
    list.count("flushes", counters.flushes.load(Ordering::Relaxed), "flushes installed");
    list.count("compactions", counters.compactions.load(Ordering::Relaxed), "compactions installed");
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (flushed, compacted) = (of(&counters.flushed_bytes), of(&counters.compacted_bytes_written));
    list.count("compactions-running", of(&counters.compactions_running), "compactions that run now");
    list.count(
        "single-deletes-misused",
        of(&counters.single_deletes_misused),
        "single deletes that met anything but one put, as far as it was seen; above 0: use deletes",
    );
    let help = "entries that compaction filters dropped";
    list.count("filter-dropped", of(&counters.filter_dropped), help);
    let help = "values that compaction filters replaced";
    list.count("filter-replaced", of(&counters.filter_replaced), help);
    list.count(
        "filter-failed",
        of(&counters.filter_failed),
        "entries that were kept as a compaction filter failed; above 0: mend the filter",
    );
    list.count(
        "filter-missing",
        of(&counters.filter_missing),
        "compactions of keyspaces whose filter the program does not have; nothing was filtered",
    );
    let help = "compactions that workers did";
    list.count("remote-compactions", of(&counters.remote_compactions), help);
    let help = "compactions that no worker brought to an end; above 0: see what workers say";
    list.count("remote-compactions-failed", of(&counters.remote_failed), help);
    let help = "answers of workers that were refused; above 0: replace that worker, and report it";
    list.count("remote-compactions-refused", of(&counters.remote_refused), help);
    list.count(
        "remote-compactions-here",
        of(&counters.remote_fallbacks),
        "compactions that were meant for workers and were done by the writer",
    );
    let pending = compaction::bytes_pending(engine, &engine.view().version);
    list.bytes(
        "compaction-bytes-pending",
        pending,
        "bytes that wait to be compacted; grows for ever: compaction does not keep up",
    );
    let delayed = of(&engine.stalls.delayed_nanos);
    list.nanos("write-delay", delayed, "time that writers were asked to wait for background work, in all");
    list.bytes("flushed-bytes", flushed, "bytes of the tables that flushes made");
    let help = "bytes of the tables that compactions put into the cold store";
    list.bytes("cold-bytes-written", of(&counters.cold_bytes_written), help);
    list.bytes(
        "compacted-bytes-read",
        of(&counters.compacted_bytes_read),
        "bytes of the tables that compactions merged",
    );
    let levels = |counts: &[std::sync::atomic::AtomicU64]| {
        let bytes: Vec<_> = counts.iter().map(of).collect();
        let used = bytes.iter().rposition(|bytes| *bytes > 0).map_or(0, |last| last + 1);
        PropertyValue::Levels(bytes[..used].to_vec())
    };
    list.add(
        "level-bytes-read",
        Unit::Bytes,
        levels(&counters.level_bytes_read),
        "bytes of the tables of each level that compactions merged",
    );
    let help = "bytes of the tables of each level that flushes and compactions made";
    list.add("level-bytes-written", Unit::Bytes, levels(&counters.level_bytes_written), help);
    list.bytes("compacted-bytes-written", compacted, "bytes of the tables that compactions made");
    let amplification = (flushed + compacted).saturating_mul(1000) / flushed.max(1);
    let help = "bytes of tables written for each byte flushed, the log apart";
    list.add("write-amplification", Unit::Thousandths, PropertyValue::Number(amplification), help);
    list.bytes(
        "replayed-bytes",
        counters.replayed_bytes.load(Ordering::Relaxed),
        "bytes that opening replayed from logs",
    );
    list.nanos("open-time", counters.open_nanos.load(Ordering::Relaxed), "how long opening took");
    list.count(
        "epoch",
        engine.context.epoch.0,
        "the epoch in which this process writes; 0 of a reader without a claim",
    );
}

/// What was asked of the object store. The log is among it where it is kept as objects.
fn requests(db: &Db, list: &mut List) {
    let counted = db.requests().counted;
    let sum = |which: &dyn Fn(&Counted) -> bool, of: &dyn Fn(&Counted) -> u64| {
        counted.iter().filter(|one| which(one)).map(of).sum::<u64>()
    };
    let requests = |which: &dyn Fn(&Counted) -> bool| sum(which, &|one| one.requests);
    let class = |class| requests(&|one| PriceClass::of(one.kind) == class);
    list.count(
        "requests-class-a",
        class(PriceClass::A),
        "requests for objects that write or list: the dear ones where requests are paid for",
    );
    list.count("requests-class-b", class(PriceClass::B), "requests for objects that read");
    list.count("requests-free", class(PriceClass::Free), "deletions, which cost nothing");
    list.count(
        "requests-failed",
        sum(&|_| true, &|one| one.failed),
        "of all these, refused or without an answer; absent names count",
    );
    list.bytes("request-bytes-sent", sum(&|_| true, &|one| one.bytes_sent), "bytes sent to the object store");
    list.bytes(
        "request-bytes-received",
        sum(&|_| true, &|one| one.bytes_received),
        "bytes that came from it",
    );
    for (purpose, name, help) in [
        (Purpose::Open, "requests-open", "requests for objects by opening, recovery and takeover"),
        (Purpose::Manifest, "requests-manifest", "by the manifest's chain"),
        (Purpose::Log, "requests-log", "by the log, where it is kept as objects"),
        (Purpose::Get, "requests-get", "by reads of keys"),
        (Purpose::Scan, "requests-scan", "by scans"),
        (Purpose::Flush, "requests-flush", "by flushes"),
        (Purpose::Compaction, "requests-compaction", "by compactions"),
        (Purpose::Collection, "requests-collection", "by deletion of what is not needed"),
        (Purpose::Verify, "requests-verify", "by verification and inspection"),
        (Purpose::Application, "requests-application", "by the application, for objects of its own"),
    ] {
        list.count(name, requests(&|one| one.purpose == purpose), help);
    }
    let told: Vec<_> =
        counted.iter().map(|one| format!("{} {} {}", one.purpose, one.kind, one.requests)).collect();
    list.text("requests-by-purpose-and-kind", told.join(", "), "all of them, by purpose and kind");
}
