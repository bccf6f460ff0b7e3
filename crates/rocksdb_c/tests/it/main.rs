//! The library as programs see it that were written for RocksDB: its header, and programs in C.

#![allow(clippy::unwrap_used, reason = "what fails in a test is shown")]

mod header;
mod programs;
