//! What an open database is doing and holds, of all its streams.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::db::Db;
use crate::engine::Engine;
use crate::stalls::StallReason;
use crate::version::Version;
use crate::{compaction, write};

/// What an open database is doing and holds. Counts are since opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Memtables that wait for their flush.
    pub memtables_waiting: u64,
    /// Tables in the version.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// Tables that the manifest names and that lie under other databases, with which they are
    /// shared; those that left the version included.
    pub tables_shared: u64,
    /// Their bytes.
    pub table_bytes_shared: u64,
    /// Tables of each level, from level 0.
    pub tables_by_level: Vec<u64>,
    /// Writes begun.
    pub writes: u64,
    /// Flushes installed.
    pub flushes: u64,
    /// Compactions installed.
    pub compactions: u64,
    /// Compactions that run.
    pub compactions_running: u64,
    /// Bytes of the tables that flushes made.
    pub flushed_bytes: u64,
    /// Bytes of the tables that compactions merged. What was moved unwritten does not count.
    pub compacted_bytes_read: u64,
    /// Bytes of the tables that compactions made.
    pub compacted_bytes_written: u64,
    /// Bytes that wait to be compacted.
    pub compaction_bytes_pending: u64,
    /// Why writers are slowed, if they are: smoothly, by the rate at which background work goes.
    pub write_stall: Option<StallReason>,
    /// The bytes per second that writers are slowed to, all together; 0 when they are not.
    pub write_bytes_per_second_max: u64,
    /// Time that writers were asked to wait for background work, in nanoseconds.
    pub write_delay_nanos: u64,
    /// Bytes of the log not yet freed.
    pub log_bytes: u64,
    /// The newest sequence number that reads see.
    pub last_sequence: u64,
    /// Bytes that opening replayed from logs.
    pub replayed_bytes: u64,
    /// Time that opening took, in nanoseconds.
    pub open_nanos: u64,
    /// What background work last failed with and still retries, as a person would read it.
    pub background_error: Option<String>,
    /// Cursors and reads that look at something which flush or compaction has replaced since,
    /// counted by what they look at.
    pub readers_behind: u64,
    /// How long ago that of the oldest of them was replaced, in nanoseconds; 0 when there is none.
    pub oldest_reader_nanos: u64,
    /// Bytes of memtables that were flushed and that readers keep.
    pub reader_memtable_bytes: u64,
    /// Of a [`Reader`](crate::Reader) or a look: how old what it shows may be, in nanoseconds.
    pub reader_lag_nanos: Option<u64>,
    /// Transactions that have begun and not ended.
    pub transactions_open: u64,
    /// How long ago the oldest of them began, in nanoseconds; 0 when there is none. Until it ends,
    /// all versions stay that it sees.
    pub oldest_transaction_nanos: u64,
    /// Transactions that were committed.
    pub transactions_committed: u64,
    /// Transactions that ended with `Conflict`, as others had written what they rest on.
    pub transaction_conflicts: u64,
    /// Requests of transactions that wait for a lock.
    pub transaction_locks_waiting: u64,
}

impl Db {
    /// What the database is doing and holds.
    pub fn stats(&self) -> Stats {
        let engine = self.engine();
        let view = engine.view_owned();
        let slowed = write::slowed_now(engine);
        let behind = engine.readers.behind(&view, engine.env.now());
        let (tables_shared, table_bytes_shared) = engine.manifest.state().shared_tables();
        let transactions = &engine.transactions;
        let (transactions_open, oldest_transaction_nanos) = transactions.ages(engine.env.now());
        let mut stats = Stats {
            transactions_open,
            oldest_transaction_nanos,
            transactions_committed: transactions.committed.load(Ordering::Relaxed),
            transaction_conflicts: transactions.conflicts.load(Ordering::Relaxed),
            transaction_locks_waiting: transactions.locks.waiting() as u64,
            tables_shared,
            table_bytes_shared,
            readers_behind: behind.views,
            oldest_reader_nanos: behind.oldest_nanos,
            reader_memtable_bytes: behind.memtable_bytes,
            memtable_bytes: view.active.memory_bytes()
                + view.waiting.iter().map(|sealed| sealed.memtable.memory_bytes()).sum::<u64>(),
            memtables_waiting: view.waiting.len() as u64,
            writes: engine.stream.writes(),
            flushes: engine.counters.flushes.load(Ordering::Relaxed),
            compactions: engine.counters.compactions.load(Ordering::Relaxed),
            compactions_running: engine.counters.compactions_running.load(Ordering::Relaxed),
            flushed_bytes: engine.counters.flushed_bytes.load(Ordering::Relaxed),
            compacted_bytes_read: engine.counters.compacted_bytes_read.load(Ordering::Relaxed),
            compacted_bytes_written: engine.counters.compacted_bytes_written.load(Ordering::Relaxed),
            compaction_bytes_pending: compaction::bytes_pending(engine, &view.version),
            write_stall: slowed.map(|slowed| slowed.reason),
            write_bytes_per_second_max: slowed.map_or(0, |slowed| slowed.bytes_per_second),
            write_delay_nanos: engine.stalls.delayed_nanos.load(Ordering::Relaxed),
            // Without a claim: what was read of the writer's.
            log_bytes: match engine.is_read_only() {
                true => engine.counters.replayed_bytes.load(Ordering::Relaxed),
                false => engine.main_log().pressure().live_bytes,
            },
            last_sequence: engine.stream.visible().0,
            replayed_bytes: engine.counters.replayed_bytes.load(Ordering::Relaxed),
            open_nanos: engine.counters.open_nanos.load(Ordering::Relaxed),
            background_error: engine.background_errors().first().map(|known| known.error.to_string()),
            reader_lag_nanos: self.age().map(|age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
            ..Stats::default()
        };
        add_tables(&mut stats, &view.version);
        engine.streams.all().iter().for_each(|stream| add_stream(&mut stats, stream));
        stats
    }
}

/// Counts the tables of a version.
fn add_tables(stats: &mut Stats, version: &Version) {
    for (_, levels) in version.keyspaces() {
        let runs = std::iter::once((
            0,
            levels.runs.len(),
            levels.runs.iter().map(|table| table.description().length).sum(),
        ));
        let sorted = levels.sorted.iter().map(|(level, tables)| (*level, tables.len(), tables.bytes()));
        for (level, tables, bytes) in runs.chain(sorted) {
            let level = usize::from(level);
            stats.tables_by_level.resize(stats.tables_by_level.len().max(level + 1), 0);
            stats.tables_by_level[level] += tables as u64;
            stats.tables += tables as u64;
            stats.table_bytes += bytes;
        }
    }
}

/// Adds what another stream does and holds.
fn add_stream(stats: &mut Stats, engine: &Engine) {
    let (view, counters) = (engine.view_owned(), &engine.counters);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let behind = engine.readers.behind(&view, engine.env.now());
    stats.readers_behind += behind.views;
    stats.oldest_reader_nanos = stats.oldest_reader_nanos.max(behind.oldest_nanos);
    stats.reader_memtable_bytes += behind.memtable_bytes;
    stats.memtable_bytes += view.memtables().map(|memtable| memtable.memory_bytes()).sum::<u64>();
    stats.memtables_waiting += view.waiting.len() as u64;
    stats.writes += engine.stream.writes();
    stats.flushes += count(&counters.flushes);
    stats.compactions += count(&counters.compactions);
    stats.compactions_running += count(&counters.compactions_running);
    stats.flushed_bytes += count(&counters.flushed_bytes);
    stats.compacted_bytes_read += count(&counters.compacted_bytes_read);
    stats.compacted_bytes_written += count(&counters.compacted_bytes_written);
    stats.compaction_bytes_pending += compaction::bytes_pending(engine, &view.version);
    stats.transaction_locks_waiting += engine.transactions.locks.waiting() as u64;
    stats.write_delay_nanos += engine.stalls.delayed_nanos.load(Ordering::Relaxed);
    stats.log_bytes += engine.main_log().pressure().live_bytes;
    stats.replayed_bytes += count(&counters.replayed_bytes);
    if let Some(slowed) = write::slowed_now(engine) {
        stats.write_stall.get_or_insert(slowed.reason);
        stats.write_bytes_per_second_max += slowed.bytes_per_second;
    }
    let error = || engine.background_errors().first().map(|known| known.error.to_string());
    stats.background_error = stats.background_error.take().or_else(error);
    add_tables(stats, &view.version);
}
