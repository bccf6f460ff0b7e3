//! Operands of a merge operator that were joined to one entry, in their order: the value of an
//! entry of kind merge list.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | number of operands, at least 1 |
//! | | of each, oldest first: its length (u32), then its bytes |
//!
//! The entry's checksum is that of its block, or of its frame in a log; a decoder here still trusts
//! no length.

use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result};
use crate::key::VALUE_BYTES_MAX;

/// Bytes of a list before its first operand.
pub const LIST_HEADER_BYTES: usize = 4;
/// Bytes of a list before each operand.
pub const OPERAND_HEADER_BYTES: usize = 4;

/// Builds a list.
#[derive(Clone, Debug)]
pub struct OperandList {
    /// Invariant: a list, complete after every call.
    bytes: Vec<u8>,
    count: u32,
}

impl Default for OperandList {
    fn default() -> OperandList {
        OperandList { bytes: vec![0; LIST_HEADER_BYTES], count: 0 }
    }
}

impl OperandList {
    /// Adds an operand that is newer than those before.
    pub fn push(&mut self, operand: &[u8]) {
        self.count += 1;
        self.bytes[..LIST_HEADER_BYTES].copy_from_slice(&self.count.to_le_bytes());
        put_prefixed(&mut self.bytes, operand);
    }

    /// The list.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The operands of a list, oldest first.
///
/// # Errors
/// `Damaged` when it is no list.
pub fn operands(list: &[u8]) -> Result<Vec<&[u8]>> {
    let mut reader = Reader::new(list);
    let count = reader.u32()? as usize;
    if count == 0 || count > reader.remaining() / OPERAND_HEADER_BYTES {
        let expected = "a number of operands, at least 1, that fits the list";
        return Err(FormatError::damaged(0, expected, count.to_string()));
    }
    let mut operands = Vec::with_capacity(count);
    for _ in 0..count {
        operands.push(reader.prefixed(VALUE_BYTES_MAX)?);
    }
    reader.end()?;
    Ok(operands)
}

#[cfg(test)]
mod tests;
