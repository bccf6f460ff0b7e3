//! `libtombolo_rocksdb.so`: functions with the names of RocksDB's C library, on Tombolo.
//!
//! A program that uses no others runs on Tombolo when it is linked with this library in the place
//! of `librocksdb`. `include/rocksdb/c.h` lists them, made by cbindgen; docs/c.md tells the
//! differences. What a function cannot do is an error that says so, and never a silent difference.
//!
//! Column families are keyspaces, write options are durabilities: `sync` is durable, without it a
//! write is accepted, without a log it is unlogged.
//!
//! Safety and the rules of the door are those of `tombolo_c`: see that crate.

#![allow(clippy::missing_safety_doc, reason = "the crate's documentation has it, once for all functions")]

mod accepted;
mod accepted_more;
pub mod batch;
pub mod checkpoint;
pub mod database;
pub mod door;
pub mod families;
pub mod handles;
pub mod iterator;
pub mod operator;
pub mod options;
pub mod reading;
pub mod transaction;
pub mod transactiondb;
pub mod writing;

pub use accepted::*;
pub use accepted_more::*;
