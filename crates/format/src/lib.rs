//! Bytes of Tombolo: keys, batches, blocks, tables, log frames, manifest records. No IO.
//!
//! One home per layout: each module's documentation opens with a byte table, tested against its constants. All integers are
//! little-endian and of fixed width unless a table says otherwise.

pub mod key;
pub mod manifest;
