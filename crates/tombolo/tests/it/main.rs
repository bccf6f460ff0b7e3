//! The engine through its public interface.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test ends at the first surprise")]

mod allocator;
mod application;
mod basics;
mod checkpoint;
mod clock;
mod clones;
mod compaction;
mod credentials;
mod cursor;
mod damage;
mod deadlines;
mod destroy;
mod ended_log;
mod far_logs;
mod flash;
mod full_disk;
mod large_records;
mod memory;
mod model;
mod operating;
mod options;
mod panics;
mod reader;
mod refused;
mod remote;
mod reopening;
mod requests;
mod rules;
mod salvage;
mod simulation;
mod stalls;
mod standby;
mod sweep;
mod threads;
mod verification;
