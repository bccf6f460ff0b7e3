//! Bytes of Tombolo: keys, batches, blocks, tables, log frames, manifest records. No IO.
//!
//! One home per layout: each module's documentation opens with a byte table, tested against its constants. All integers are
//! little-endian and of fixed width unless a table says otherwise. Decoders take any bytes: what is damaged, or written by a newer
//! version, is a [`FormatError`]; nothing panics, and every size is checked before memory is allocated for it.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "sizes in tests are small"))]

pub mod batch;
pub mod block;
pub mod checksum;
pub mod codec;
pub mod compression;
pub mod error;
pub mod incarnation;
pub mod filter;
#[doc(hidden)]
pub mod fuzzing;
pub mod index;
pub mod key;
pub mod log_frame;
pub mod manifest;
pub mod stored;
pub mod table;

pub use error::{FormatError, Result};
