//! `libtombolo_c`: Tombolo for C, and for languages that call C.
//!
//! The habit is that of RocksDB's C library. Handles are opaque, keys and values are a pointer with
//! a length, and an error is a text in memory of the C library, put where the last argument says.
//! `include/tombolo.h` is made of these functions by cbindgen; a test compares the two.
//!
//! Invariants, which every function keeps:
//! 1. No panic crosses: it is caught at the door and becomes an error of kind `Bug`.
//! 2. A null handle, a null pointer with a length, a length beyond all memory and a text that is
//!    not UTF-8 are errors of kind `Invalid`. To destroy nothing does nothing.
//! 3. Memory that a caller has to free comes from the C library's `malloc`.
//!
//! Safety, for all functions here: a handle is null, or one that a function of this library gave
//! and that was not destroyed since. A pointer with a length is null, or readable over that length
//! during the call. The place for an error or a length is null, or writable; an error in it is
//! null, or one of this library. Handles of a cursor, a batch, a transaction or options are used
//! by one thread at a time; all others by any number.

#![allow(clippy::missing_safety_doc, reason = "the crate's documentation has it, once for all functions")]

pub mod batch;
pub mod boundary;
pub mod callbacks;
pub mod cursor;
pub mod database;
pub mod keyspace;
pub mod options;
pub mod reading;
pub mod tasks;
pub mod transaction;
