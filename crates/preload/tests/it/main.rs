//! The library as programs load it: this process runs others, and itself, under `LD_PRELOAD`.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test ends at the first surprise")]

mod calls;
mod descriptors;
mod paths;
mod redis;
mod rocksdb;
mod setup;
mod shell;
mod sqlite;
mod streams;
