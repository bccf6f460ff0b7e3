//! Compression of blocks: none, LZ4, ZSTD, with a fall-back to none where it does not pay.
//!
//! | offset | bytes | field of a compressed payload |
//! |---|---|---|
//! | 0 | 4 | bytes when decompressed |
//! | 4 | | LZ4 block or ZSTD frame |
//!
//! The stored block's compression byte ([`crate::stored`]) says which: 0 none, 1 LZ4, 2 ZSTD. The
//! decompressed size is checked against the caller's bound before memory is allocated for it.

use std::cell::RefCell;

use crate::error::{FormatError, Result};

mod dictionary;
mod prefix;

pub(crate) use dictionary::Trained;
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionary};
pub(crate) use prefix::decompress_prefix_into;

/// How a block is compressed. The byte values are the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// LZ4: fast both ways.
    Lz4 = 1,
    /// ZSTD, level 3: smaller.
    Zstd = 2,
}

impl Compression {
    /// The compression of a byte, if this version knows it.
    pub const fn from_byte(byte: u8) -> Option<Compression> {
        Some(match byte {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return None,
        })
    }

    /// Its name in options.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// The compression that options call `name`.
    pub fn from_name(name: &str) -> Option<Compression> {
        [Compression::None, Compression::Lz4, Compression::Zstd]
            .into_iter()
            .find(|compression| compression.name() == name)
    }
}

/// Bytes before the compressed data: the decompressed length.
pub const LENGTH_BYTES: usize = 4;
/// Compression must save at least one byte in so many, or the block is stored as it is.
const SAVING_DIVISOR: usize = 8;
const ZSTD_LEVEL: i32 = 3;

/// Whether compression to `stored` bytes pays.
pub(crate) fn saves_enough(stored: usize, raw: usize) -> bool {
    stored <= raw - raw / SAVING_DIVISOR
}

/// Compresses blocks; keeps what it works with from block to block.
#[derive(Default)]
pub struct Compressor {
    lz4: lz4_flex::block::CompressTable,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Of the table that it compresses.
    dictionary: Option<Trained>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// A compressor.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// From here on data blocks are compressed with a dictionary.
    pub(crate) fn set_dictionary(&mut self, dictionary: Trained) {
        self.dictionary = Some(dictionary);
    }

    /// The dictionary's bytes; none without one.
    pub(crate) fn dictionary(&self) -> &[u8] {
        self.dictionary.as_ref().map_or(&[], Trained::bytes)
    }

    /// Bytes of memory that the dictionary holds.
    pub(crate) fn dictionary_memory_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, Trained::memory_bytes)
    }

    /// Appends `raw`, compressed with the dictionary, if there is one and that pays; else nothing.
    pub(crate) fn compress_with_dictionary(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let (Some(dictionary), Ok(length)) = (&mut self.dictionary, u32::try_from(raw.len())) else {
            return false;
        };
        let start = out.len();
        out.extend_from_slice(&length.to_le_bytes());
        if dictionary.compress(raw, out) && saves_enough(out.len() - start, raw.len()) {
            return true;
        }
        out.truncate(start);
        false
    }

    /// Appends `raw`, compressed if that pays, and says how it did.
    pub fn compress(&mut self, wanted: Compression, raw: &[u8], out: &mut Vec<u8>) -> Compression {
        let start = out.len();
        let done = match (wanted, u32::try_from(raw.len())) {
            (Compression::None, _) | (_, Err(_)) => false,
            (Compression::Lz4, Ok(length)) => {
                out.extend_from_slice(&length.to_le_bytes());
                self.lz4(raw, out)
            }
            (Compression::Zstd, Ok(length)) => self.zstd(raw, length, out),
        };
        if done && saves_enough(out.len() - start, raw.len()) {
            return wanted;
        }
        out.truncate(start);
        out.extend_from_slice(raw);
        Compression::None
    }

    /// Appends `raw` as an LZ4 block, if that pays, else as it is: told apart by the length, which
    /// is that of `raw` then.
    pub(crate) fn compress_lz4_or_copy(&mut self, raw: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        if !self.lz4(raw, out)
            || out.len() - start == raw.len()
            || !saves_enough(out.len() - start, raw.len())
        {
            out.truncate(start);
            out.extend_from_slice(raw);
        }
    }

    fn lz4(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        match lz4_flex::block::compress_into_with_table(raw, &mut out[start..], &mut self.lz4) {
            Ok(written) => {
                out.truncate(start + written);
                true
            }
            Err(_) => false,
        }
    }

    fn zstd(&mut self, raw: &[u8], length: u32, out: &mut Vec<u8>) -> bool {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        let Some(compressor) = &mut self.zstd else { return false };
        out.extend_from_slice(&length.to_le_bytes());
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
        match compressor.compress_to_buffer(raw, &mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                true
            }
            Err(_) => false,
        }
    }
}

thread_local! {
    // A ZSTD context is some 100 KiB: one per thread, not one per block.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The decompressed length that a payload states.
///
/// # Errors
/// `Damaged` when it states none, or one beyond `bytes_max`.
pub fn decompressed_bytes(compression: Compression, payload: &[u8], bytes_max: usize) -> Result<usize> {
    let length = match (compression, payload.first_chunk::<LENGTH_BYTES>()) {
        (Compression::None, _) => payload.len(),
        (_, Some(length)) => u32::from_le_bytes(*length) as usize,
        (_, None) => {
            return Err(FormatError::damaged(0, "a decompressed length", format!("{} bytes", payload.len())));
        }
    };
    if length > bytes_max {
        return Err(FormatError::damaged(
            0,
            format!("at most {bytes_max} bytes when decompressed"),
            length.to_string(),
        ));
    }
    Ok(length)
}

/// Decompresses a payload into `raw`, of the length that [`decompressed_bytes`] told.
///
/// # Errors
/// `Damaged` when the payload does not decompress to exactly that length.
pub fn decompress_into(compression: Compression, payload: &[u8], raw: &mut [u8]) -> Result<()> {
    let data = if compression == Compression::None {
        payload
    } else {
        payload.get(LENGTH_BYTES..).unwrap_or_default()
    };
    let result = match compression {
        Compression::None if data.len() != raw.len() => Ok(data.len()),
        Compression::None => {
            raw.copy_from_slice(data);
            Ok(data.len())
        }
        Compression::Lz4 => {
            return decompress_lz4(data, raw).map_err(|error| error.shifted(LENGTH_BYTES as u64));
        }
        Compression::Zstd => ZSTD.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
            };
            context.decompress_to_buffer(data, raw).map_err(|error| error.to_string())
        }),
    };
    match result {
        Ok(found) if found == raw.len() => Ok(()),
        Ok(found) => {
            Err(FormatError::damaged(0, format!("{} bytes when decompressed", raw.len()), found.to_string()))
        }
        Err(error) => Err(FormatError::damaged(LENGTH_BYTES, format!("{} data", compression.name()), error)),
    }
}

/// Decompresses an LZ4 block into `raw`, which it has to fill.
///
/// # Errors
/// `Damaged`.
pub(crate) fn decompress_lz4(data: &[u8], raw: &mut [u8]) -> Result<()> {
    // The library counts in 31 bits, and would misread a longer length.
    let found = match (i32::try_from(data.len()), i32::try_from(raw.len())) {
        (Ok(_), Ok(length)) => {
            lz4::block::decompress_to_buffer(data, Some(length), raw).map_err(|error| error.to_string())
        }
        _ => Err(format!("{} bytes, more than a block may have", data.len().max(raw.len()))),
    };
    match found {
        Ok(found) if found == raw.len() => Ok(()),
        Ok(found) => {
            Err(FormatError::damaged(0, format!("{} bytes when decompressed", raw.len()), found.to_string()))
        }
        Err(error) => Err(FormatError::damaged(0, "lz4 data", error)),
    }
}

/// Decompresses a payload; of `None` the caller already has the bytes.
///
/// # Errors
/// `Damaged` when the payload does not decompress to exactly the length that it states, or that is
/// beyond `bytes_max`.
pub fn decompress(compression: Compression, payload: &[u8], bytes_max: usize) -> Result<Vec<u8>> {
    let mut raw = vec![0; decompressed_bytes(compression, payload, bytes_max)?];
    decompress_into(compression, payload, &mut raw)?;
    Ok(raw)
}

#[cfg(test)]
mod tests;
