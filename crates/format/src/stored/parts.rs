//! Payloads in two parts: of a data block the values, which come first in it, and the rows by which
//! they are found. A look-up that nothing will follow reads the rows and decompresses the values
//! only as far as the one that it wants.
//!
//! | offset | bytes | field of a payload in two parts |
//! |---|---|---|
//! | 0 | 4 | bytes when decompressed, of both parts |
//! | 4 | 4 | of these, bytes of the first part |
//! | 8 | 4 | bytes of the first part as stored |
//! | 12 | | the first part |
//! | | | the second part, to the payload's end |
//!
//! A part is an LZ4 block, unless it is stored with as many bytes as it has: then it lies there as
//! it is. Nothing of one part refers to the other.

use crate::compression::{Compressor, LENGTH_BYTES, decompress_lz4, decompress_prefix_into, saves_enough};
use crate::error::{FormatError, Result};

const HEADER_BYTES: usize = 12;

/// A payload whose lengths were found sound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    raw_bytes: usize,
    first_bytes: usize,
    first: &'a [u8],
    second: &'a [u8],
}

/// Appends `raw` in two parts, of which the first ends at `split`, if that pays; else nothing.
pub(super) fn compress(compressor: &mut Compressor, raw: &[u8], split: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let word = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&word(raw.len()));
    out.extend_from_slice(&word(split));
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let (first, second) = raw.split_at(split);
    compressor.compress_lz4_or_copy(first, out);
    let first_stored = out.len() - start - HEADER_BYTES;
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&word(first_stored));
    compressor.compress_lz4_or_copy(second, out);
    let pays = saves_enough(out.len() - start, raw.len());
    if !pays {
        out.truncate(start);
    }
    pays
}

impl<'a> Parts<'a> {
    /// The parts of a payload, of at most `bytes_max` when decompressed.
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn new(payload: &'a [u8], bytes_max: usize) -> Result<Parts<'a>> {
        let Some((header, data)) = payload.split_first_chunk::<HEADER_BYTES>() else {
            return Err(FormatError::damaged(
                0,
                "the lengths of two parts",
                format!("{} bytes", payload.len()),
            ));
        };
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
        };
        let (raw_bytes, first_bytes, first_stored) = (word(0), word(4), word(8));
        if raw_bytes > bytes_max {
            return Err(FormatError::damaged(
                0,
                format!("at most {bytes_max} bytes when decompressed"),
                raw_bytes.to_string(),
            ));
        }
        if first_bytes > raw_bytes {
            return Err(FormatError::damaged(
                4,
                format!("a part of at most {raw_bytes} bytes"),
                first_bytes.to_string(),
            ));
        }
        let Some((first, second)) = data.split_at_checked(first_stored) else {
            return Err(FormatError::damaged(
                8,
                format!("a part of at most {} bytes", data.len()),
                first_stored.to_string(),
            ));
        };
        Ok(Parts { raw_bytes, first_bytes, first, second })
    }

    /// Bytes of both parts when decompressed.
    pub(super) fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// Decompresses both parts into `raw`, of [`Parts::raw_bytes`].
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn decompress_into(&self, raw: &mut [u8]) -> Result<()> {
        self.second_into(raw)?;
        if self.first.len() == self.first_bytes {
            raw[..self.first_bytes].copy_from_slice(self.first);
            return Ok(());
        }
        decompress_lz4(self.first, &mut raw[..self.first_bytes])
            .map_err(|error| error.shifted(HEADER_BYTES as u64))
    }

    /// Decompresses the second part to where it belongs in `raw`, of [`Parts::raw_bytes`].
    ///
    /// # Errors
    /// `Damaged`.
    pub(super) fn second_into(&self, raw: &mut [u8]) -> Result<()> {
        let second = &mut raw[self.first_bytes..];
        if self.second.len() == second.len() {
            second.copy_from_slice(self.second);
            return Ok(());
        }
        decompress_lz4(self.second, second)
            .map_err(|error| error.shifted((HEADER_BYTES + self.first.len()) as u64))
    }

    /// Decompresses the first part as far as `end`, into the beginning of `raw`.
    ///
    /// # Errors
    /// `Damaged`, also when that is beyond the part.
    pub(super) fn first_until(&self, end: usize, raw: &mut [u8]) -> Result<()> {
        if end > self.first_bytes {
            return Err(FormatError::damaged(
                4,
                format!("a part of at least {end} bytes"),
                self.first_bytes.to_string(),
            ));
        }
        if self.first.len() == self.first_bytes {
            raw[..end].copy_from_slice(&self.first[..end]);
            return Ok(());
        }
        decompress_prefix_into(self.first, &mut raw[..end])
            .map_err(|error| error.shifted(HEADER_BYTES as u64))
    }
}
