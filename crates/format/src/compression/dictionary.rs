//! Dictionaries of ZSTD: what the blocks of a table have in common, said once.
//!
//! A block of a few KiB is too short for ZSTD to learn what its rows have in common with those of
//! other blocks. A dictionary is trained from the table's first entries and kept in its properties;
//! each block is then compressed as if the dictionary came before it.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, get_error_name};

use super::ZSTD_LEVEL;
use crate::error::{FormatError, Result};

/// Most bytes of a dictionary.
pub const DICTIONARY_BYTES_MAX: usize = 48 << 10;

/// Samples have at least this many times the bytes of the dictionary that is trained from them.
const SAMPLES_MIN: usize = 8;
/// Pieces in which samples are given to the training, at least: rows, or a few short ones.
const SAMPLE_BYTES: usize = 512;
/// A dictionary is kept when it saves one byte in so many of what blocks take without it.
const SAVING_DIVISOR: usize = 20;
/// Blocks by which that is judged.
const JUDGED_BLOCKS: usize = 16;

/// A dictionary, ready to decompress with. Clones share it.
#[derive(Clone)]
pub struct Dictionary(Arc<Prepared>);

struct Prepared {
    bytes: usize,
    prepared: DDict<'static>,
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Dictionary").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

thread_local! {
    // A context is some 100 KiB: one per thread, not one per block.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

impl Dictionary {
    /// Of bytes that were trained; `None` for no bytes.
    ///
    /// # Errors
    /// `Damaged` when they are no dictionary, or too long.
    pub fn decode(bytes: &[u8]) -> Result<Option<Dictionary>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() > DICTIONARY_BYTES_MAX {
            let expected = format!("a dictionary of at most {DICTIONARY_BYTES_MAX} bytes");
            return Err(FormatError::damaged(0, expected, bytes.len().to_string()));
        }
        let damaged = || FormatError::damaged(0, "a ZSTD dictionary", format!("{} other bytes", bytes.len()));
        let prepared = DDict::try_create(bytes).ok_or_else(damaged)?;
        Ok(Some(Dictionary(Arc::new(Prepared { bytes: bytes.len(), prepared }))))
    }

    /// Bytes of memory that it holds: its own, and tables that are made of them.
    pub fn memory_bytes(&self) -> usize {
        self.0.prepared.sizeof()
    }

    /// Decompresses a ZSTD frame into `raw`, which it has to fill.
    pub(crate) fn decompress_into(&self, data: &[u8], raw: &mut [u8]) -> Result<()> {
        let found = CONTEXT.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(DCtx::try_create().ok_or("no memory for a context")?),
            };
            context.decompress_using_ddict(raw, data, &self.0.prepared).map_err(get_error_name)
        });
        match found {
            Ok(found) if found == raw.len() => Ok(()),
            Ok(found) => {
                let expected = format!("{} bytes when decompressed", raw.len());
                Err(FormatError::damaged(0, expected, found.to_string()))
            }
            Err(error) => Err(FormatError::damaged(0, "zstd data for the table's dictionary", error)),
        }
    }
}

/// A dictionary, ready to compress with.
pub(crate) struct Trained {
    bytes: Vec<u8>,
    context: CCtx<'static>,
    prepared: CDict<'static>,
}

impl fmt::Debug for Trained {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Trained").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Trained {
    /// Trains a dictionary of at most `bytes_max` from entries, which lie in `samples` one after
    /// another and have `lengths`. `None` when there are too few, or blocks of `block_bytes` would
    /// save too little.
    pub(crate) fn train(
        samples: &[u8],
        lengths: &[usize],
        bytes_max: usize,
        block_bytes: usize,
    ) -> Option<Trained> {
        if samples.len() < bytes_max.saturating_mul(SAMPLES_MIN) {
            return None;
        }
        let mut pieces = Vec::new();
        let mut piece = 0;
        for length in lengths {
            piece += length;
            if piece >= SAMPLE_BYTES {
                pieces.push(std::mem::take(&mut piece));
            }
        }
        let whole = pieces.iter().sum();
        let bytes = zstd::dict::from_continuous(samples.get(..whole)?, &pieces, bytes_max).ok()?;
        let prepared = CDict::try_create(&bytes, ZSTD_LEVEL)?;
        let mut trained = Trained { bytes, context: CCtx::try_create()?, prepared };
        trained.pays(samples, block_bytes).then_some(trained)
    }

    /// Whether blocks become smaller by it, of some that lie evenly among the samples.
    fn pays(&mut self, samples: &[u8], block_bytes: usize) -> bool {
        let Some(mut plain) = CCtx::try_create() else { return false };
        let block_bytes = block_bytes.clamp(1, samples.len().max(1));
        let step = (samples.len() / JUDGED_BLOCKS).max(block_bytes);
        let mut out = vec![0; zstd::zstd_safe::compress_bound(block_bytes)];
        let (mut without, mut with) = (0, 0);
        for block in samples.chunks(step).filter_map(|chunk| chunk.get(..block_bytes)) {
            let (Ok(one), Ok(other)) = (
                plain.compress(&mut out[..], block, ZSTD_LEVEL),
                self.context.compress_using_cdict(&mut out[..], block, &self.prepared),
            ) else {
                return false;
            };
            without += one;
            with += other;
        }
        with + without / SAVING_DIVISOR <= without
    }

    /// The dictionary's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.context.sizeof() + self.prepared.sizeof()
    }

    /// Appends `raw` as a ZSTD frame; whether it could.
    pub(crate) fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
        match self.context.compress_using_cdict(&mut out[start..], raw, &self.prepared) {
            Ok(written) => {
                out.truncate(start + written);
                true
            }
            Err(_) => false,
        }
    }
}
