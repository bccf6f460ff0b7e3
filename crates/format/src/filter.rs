//! Filters: whether a partition of a table may hold a user key.
//!
//! | part | bytes | content |
//! |---|---|---|
//! | lines | 64 × lines | bits, bit i of a line in byte i / 8, lowest first |
//! | lines | 4 | their number |
//! | probes | 1 | bits set per key |
//! | kind | 1 | 1: Bloom filter in lines |
//! | reserved | 2 | 0 |
//!
//! A Bloom filter whose bits for one key all lie in one cache line: a look-up costs one memory
//! access. With h = xxh3 (64 bits) of the user key, the line is `(h >> 32) × lines >> 32` and probe
//! i is the top 9 bits of `(h mod 2³²) × 0x9e3779b9^(i+1) mod 2³²`. At 10 bits a key about 1 % of
//! absent keys pass (0.8 % for an unblocked filter).

use bytes::Bytes;

use crate::checksum::key_hash;
use crate::error::{FormatError, Result};

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// Bytes after the lines.
pub const FILTER_FOOTER_BYTES: usize = 8;
/// Bits per key unless an option says otherwise.
pub const BITS_PER_KEY_DEFAULT: u32 = 10;
/// Most bits per key that pay.
pub const BITS_PER_KEY_MAX: u32 = 32;
const KIND_LINES: u8 = 1;
const PROBES_MAX: u8 = 16;
const STEP: u32 = 0x9e37_79b9;

/// Collects the keys of a partition.
#[derive(Debug)]
pub struct FilterBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A builder; 0 bits per key makes no filter.
    pub fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder { bits_per_key: bits_per_key.min(BITS_PER_KEY_MAX), hashes: Vec::new() }
    }

    /// Adds a user key; the same key twice in a row counts once.
    #[inline]
    pub fn add(&mut self, user_key: &[u8]) {
        if self.bits_per_key == 0 {
            return;
        }
        let hash = key_hash(user_key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Bytes of the filter if it ended here.
    pub fn filter_bytes(&self) -> usize {
        match self.hashes.len() {
            0 => 0,
            keys => lines(keys, self.bits_per_key) * LINE_BYTES + FILTER_FOOTER_BYTES,
        }
    }

    /// Bytes of memory that it takes: the hashes of its keys.
    pub fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
    }

    /// Appends the filter to `out` and begins the next; appends nothing when there are no keys or
    /// no bits.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) {
        if self.hashes.is_empty() {
            return;
        }
        let lines = lines(self.hashes.len(), self.bits_per_key);
        let probes = probes(self.bits_per_key);
        let start = out.len();
        out.resize(start + lines * LINE_BYTES, 0);
        for hash in self.hashes.drain(..) {
            let line = start + line_of(hash, lines as u32) * LINE_BYTES;
            for bit in bits_of(hash, probes) {
                out[line + bit / 8] |= 1 << (bit % 8);
            }
        }
        out.extend_from_slice(&(lines as u32).to_le_bytes());
        out.extend_from_slice(&[probes, KIND_LINES, 0, 0]);
    }
}

fn lines(keys: usize, bits_per_key: u32) -> usize {
    (keys * bits_per_key as usize).div_ceil(LINE_BYTES * 8).clamp(1, u32::MAX as usize / LINE_BYTES)
}

/// Few enough that a line does not fill up, many enough to use the bits: 0.69 × bits per key, less
/// what blocking costs.
fn probes(bits_per_key: u32) -> u8 {
    match bits_per_key {
        0..=2 => 1,
        3..=4 => 2,
        5..=6 => 3,
        7 => 4,
        8..=9 => 5,
        10..=11 => 6,
        12..=14 => 7,
        15..=18 => 8,
        _ => 10,
    }
}

#[inline]
fn line_of(hash: u64, lines: u32) -> usize {
    (((hash >> 32) * u64::from(lines)) >> 32) as usize
}

#[inline]
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let mut mixed = hash as u32;
    (0..probes).map(move |_| {
        mixed = mixed.wrapping_mul(STEP);
        (mixed >> 23) as usize
    })
}

/// A filter read back.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Invariant: `lines * LINE_BYTES + FILTER_FOOTER_BYTES` long.
    bytes: Bytes,
    lines: u32,
    probes: u8,
}

impl Filter {
    /// Takes the bytes of a filter.
    ///
    /// # Errors
    /// `Damaged` when the sizes do not fit; `Newer` for another kind of filter.
    pub fn new(bytes: Bytes) -> Result<Filter> {
        let Some((body, footer)) = bytes.split_last_chunk::<FILTER_FOOTER_BYTES>() else {
            return Err(FormatError::damaged(
                0,
                "a filter of at least 8 bytes",
                format!("{} bytes", bytes.len()),
            ));
        };
        let lines = u32::from_le_bytes([footer[0], footer[1], footer[2], footer[3]]);
        let probes = footer[4];
        if footer[5] != KIND_LINES || footer[6..8] != [0, 0] {
            return Err(FormatError::newer(body.len() + 5, format!("filter of kind {}", footer[5])));
        }
        if lines == 0 || body.len() != lines as usize * LINE_BYTES {
            return Err(FormatError::damaged(
                body.len(),
                format!("{} lines", body.len() / LINE_BYTES),
                lines.to_string(),
            ));
        }
        if !(1..=PROBES_MAX).contains(&probes) {
            return Err(FormatError::damaged(
                body.len() + 4,
                format!("1 to {PROBES_MAX} probes"),
                probes.to_string(),
            ));
        }
        Ok(Filter { lines, probes, bytes })
    }

    /// Whether a key with this hash ([`key_hash`]) may be in the partition; never `false` for one
    /// that is.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let start = line_of(hash, self.lines) * LINE_BYTES;
        let Some(line) = self.bytes[start..].first_chunk::<LINE_BYTES>() else { return true };
        bits_of(hash, self.probes).all(|bit| line[bit / 8] & (1 << (bit % 8)) != 0)
    }

    /// All bytes of the filter.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same filter, over a copy of its bytes.
    ///
    /// # Panics
    /// When the copy has another length.
    #[must_use]
    pub fn with_copy(&self, copy: Bytes) -> Filter {
        assert_eq!(copy.len(), self.bytes.len(), "another filter's bytes");
        debug_assert_eq!(copy, self.bytes);
        Filter { bytes: copy, ..*self }
    }

    /// Bytes of memory that the filter holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Filter>()
    }
}

#[cfg(test)]
mod tests;
