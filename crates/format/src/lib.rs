//! Bytes of Tombolo: keys, batches, blocks, tables, log frames, manifest records. No IO.
//!
//! One home per layout: each module's documentation opens with a byte table, tested against its
//! constants. All integers are little-endian and of fixed width unless a table says otherwise.
//! Decoders take any bytes: damage, or a newer version, is a [`FormatError`];
//! nothing panics, and every size is checked before memory is allocated for it.

#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths are checked against this crate's limits, all below u32::MAX, before they are \
        narrowed; hashes are cut on purpose"
)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("sizes in files are 64 bits wide: Tombolo needs a 64-bit target");

pub mod aligned;
pub mod backup;
pub mod batch;
pub mod block;
pub mod change;
pub mod checkpoint;
pub mod checksum;
pub mod codec;
pub mod cold;
pub mod collected;
pub mod compaction;
pub mod compression;
pub mod error;
pub mod expiry;
pub mod filter;
pub mod flash;
#[doc(hidden)]
pub mod fuzzing;
pub mod incarnation;
pub mod index;
pub mod key;
pub mod keyspace;
pub mod log_frame;
pub mod log_object;
pub mod manifest;
mod message;
pub mod near_log;
pub mod operands;
pub mod pin;
pub mod prefetch;
pub mod prepared;
pub mod property;
pub mod question;
pub mod ranges;
pub mod segment_record;
pub mod stored;
pub mod table;
pub mod trace;
pub mod typed_key;
pub mod value_object;
pub mod zoned;

pub use error::{FormatError, Result};
