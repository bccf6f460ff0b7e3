//! Bytes of Tombolo: keys, batches, blocks, tables, log frames, manifest records. No IO.
//!
//! One home per layout: each module's documentation opens with a byte table, tested against its constants. All integers are
//! little-endian and of fixed width unless a table says otherwise. Decoders take any bytes: what is damaged, or written by a newer
//! version, is a [`FormatError`]; nothing panics, and every size is checked before memory is allocated for it.

pub mod batch;
pub mod checksum;
pub mod codec;
pub mod error;
pub mod incarnation;
pub mod key;
pub mod log_frame;
pub mod manifest;

pub use error::{FormatError, Result};
