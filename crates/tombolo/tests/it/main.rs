//! The engine through its public interface.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test ends at the first surprise")]

mod allocator;
mod application;
mod backups;
mod bank;
mod basics;
mod behind;
mod bucket;
mod changes;
mod checkpoint;
mod clock;
mod clones;
mod closing;
mod collected;
mod compaction;
mod conditional;
mod credentials;
mod cursor;
mod damage;
mod dead_keys;
mod deadlines;
mod destroy;
mod ended_log;
mod ending;
mod expiry;
mod explained;
mod export;
mod far_logs;
mod filters;
mod flash;
mod flush_ahead;
mod full_disk;
mod garbage;
mod golden;
mod ingest;
mod isolation;
mod large_records;
mod look;
mod memory;
mod merging;
mod mirror;
mod model;
mod moves;
mod newer;
mod operating;
mod options;
mod panics;
mod parts;
mod presence;
mod public;
mod pulled;
mod range_delete;
mod reader;
mod recorded;
mod refused;
mod remote;
mod remote_compaction;
mod reopening;
mod requests;
mod rules;
mod salvage;
mod separated;
mod shapes;
mod simulation;
mod single_delete;
mod slow;
mod small_cache;
mod sorted;
mod spread;
mod stalls;
mod standby;
mod stores;
mod streams;
mod streams_followed;
mod sweep;
mod threads;
mod tiers;
mod transactions;
mod two_phase;
mod unfolded;
mod verification;

/// Whether tests shall look at everything, as `cargo xtask campaign deep` has them do.
fn is_deep() -> bool {
    std::env::var_os("TOMBOLO_DEEP").is_some()
}
