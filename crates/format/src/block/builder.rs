//! Builds a block.

use super::shared_bytes;
use super::{
    ALIGNMENT_SHIFT, BLOCK_FOOTER_BYTES, HEADS_WIDE, OFFSETS_WIDE, TRAILER_SHIFT, UNIFORM,
    VALUE_ALIGNMENT_MAX, VALUES_UNIFORM,
};
use crate::key::{InternalKey, Trailer, head_of};

/// Builds a block from entries in order. A value is copied once, to where it stays.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    alignment_log2: u32,
    values: Vec<u8>,
    keys: Vec<u8>,
    value_ends: Vec<u32>,
    /// Invariant: ascending, the last one the length of `keys`.
    key_ends: Vec<u32>,
    trailers: Vec<u64>,
    /// Bytes that all keys share.
    common: usize,
    key_bytes_min: usize,
    key_bytes_max: usize,
    value_bytes_min: usize,
    value_bytes_max: usize,
    trailer_min: u64,
    trailer_max: u64,
}

/// Widths that a block's entries ask for.
struct Widths {
    heads_wide: bool,
    offsets_wide: bool,
    uniform: bool,
    values_uniform: bool,
    /// 0 to 4: 0, 1, 2, 4, 8 bytes.
    trailer_code: u32,
}

impl BlockBuilder {
    /// An empty block.
    pub fn new() -> BlockBuilder {
        BlockBuilder::default()
    }

    /// An empty block whose values begin at multiples of `alignment`.
    ///
    /// # Panics
    /// When that is no power of two up to [`VALUE_ALIGNMENT_MAX`].
    pub fn with_alignment(alignment: u32) -> BlockBuilder {
        assert!(
            alignment.is_power_of_two() && alignment <= VALUE_ALIGNMENT_MAX,
            "values aligned to {alignment} bytes"
        );
        BlockBuilder { alignment_log2: alignment.ilog2(), ..BlockBuilder::default() }
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// When it does not come after the last one: a bug of the caller that would make the table
    /// wrong for ever.
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        let user_key = key.user_key;
        if self.key_ends.is_empty() {
            self.common = user_key.len();
            (self.key_bytes_min, self.key_bytes_max) = (user_key.len(), user_key.len());
            (self.value_bytes_min, self.value_bytes_max) = (value.len(), value.len());
            (self.trailer_min, self.trailer_max) = (key.trailer.0, key.trailer.0);
        } else {
            let last = self.last_key();
            assert!(last < key, "entries out of order: {last:?} before {key:?}");
            let common = &self.keys[..self.common];
            if !user_key.starts_with(common) {
                self.common = shared_bytes(common, user_key);
            }
            self.key_bytes_min = self.key_bytes_min.min(user_key.len());
            self.key_bytes_max = self.key_bytes_max.max(user_key.len());
            self.value_bytes_min = self.value_bytes_min.min(value.len());
            self.value_bytes_max = self.value_bytes_max.max(value.len());
            self.trailer_min = self.trailer_min.min(key.trailer.0);
            self.trailer_max = self.trailer_max.max(key.trailer.0);
        }
        self.keys.extend_from_slice(user_key);
        self.key_ends.push(self.keys.len() as u32);
        self.trailers.push(key.trailer.0);
        let aligned = self.values.len().next_multiple_of(1 << self.alignment_log2);
        self.values.resize(aligned, 0);
        self.values.extend_from_slice(value);
        self.value_ends.push(self.values.len() as u32);
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.key_ends.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    fn widths(&self) -> Widths {
        let above = self.trailer_max - self.trailer_min;
        let trailer_code = match above {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 3,
            _ => 4,
        };
        Widths {
            heads_wide: self.key_bytes_max - self.common > 4,
            offsets_wide: self.values.len().max(self.keys.len()) > usize::from(u16::MAX),
            uniform: self.key_bytes_min == self.key_bytes_max,
            values_uniform: self.value_bytes_min == self.value_bytes_max
                && self.alignment_log2 == 0
                && !self.is_empty(),
            trailer_code,
        }
    }

    /// Bytes of the block if it ended here, or a few more.
    pub fn block_bytes(&self) -> usize {
        let widths = self.widths();
        let head_bytes = if widths.heads_wide { 8 } else { 4 };
        let offset_bytes = if widths.offsets_wide { 4 } else { 2 };
        let suffixes = self.keys.len() - self.count() * self.common;
        let rests = match () {
            () if self.key_bytes_max - self.common <= head_bytes => 0,
            () if self.key_bytes_min - self.common >= head_bytes => suffixes - self.count() * head_bytes,
            () => suffixes,
        };
        let trailer_bytes = (1usize << widths.trailer_code) / 2;
        let value_end_bytes = if widths.values_uniform { 0 } else { offset_bytes };
        let row =
            head_bytes + value_end_bytes + trailer_bytes + if widths.uniform { 0 } else { offset_bytes + 2 };
        self.values.len() + rests + self.count() * row + self.common + BLOCK_FOOTER_BYTES
    }

    /// The first key; of an empty block, nothing useful.
    pub fn first_key(&self) -> &[u8] {
        self.key(0)
    }

    /// The last entry's key; of an empty block, nothing useful.
    #[inline]
    pub fn last_key(&self) -> InternalKey<'_> {
        let trailer = self.trailers.last().copied().unwrap_or(Trailer::FIRST.0);
        InternalKey::new(self.key(self.count().saturating_sub(1)), Trailer(trailer))
    }

    #[inline]
    fn key(&self, index: usize) -> &[u8] {
        let begin = if index == 0 { 0 } else { self.key_ends[index - 1] as usize };
        let end = self.key_ends.get(index).map_or(begin, |end| *end as usize);
        &self.keys[begin..end]
    }

    /// Completes the block and puts its bytes into `out`, in place of its content; the
    /// builder is empty again and keeps its memory. Returns how many of them, from the first, are
    /// values.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) -> usize {
        let Widths { heads_wide, offsets_wide, uniform, values_uniform, trailer_code } = self.widths();
        let head_bytes = if heads_wide { 8 } else { 4 };
        let block_bytes = self.block_bytes();
        std::mem::swap(&mut self.values, out);
        self.values.clear();
        out.reserve(block_bytes - out.len());
        let values_length = out.len() as u32;
        let suffixes = || (0..self.count()).map(|index| &self.key(index)[self.common..]);
        let offsets = |out: &mut Vec<u8>, offset: u32| match offsets_wide {
            true => out.extend_from_slice(&offset.to_le_bytes()),
            false => out.extend_from_slice(&(offset as u16).to_le_bytes()),
        };
        if self.key_bytes_max > self.common + head_bytes {
            for suffix in suffixes() {
                out.extend_from_slice(suffix.get(head_bytes..).unwrap_or_default());
            }
        }
        let rests_length = out.len() as u32 - values_length;
        for suffix in suffixes() {
            let head = head_of(suffix);
            match heads_wide {
                true => out.extend_from_slice(&head.to_le_bytes()),
                false => out.extend_from_slice(&((head >> 32) as u32).to_le_bytes()),
            }
        }
        if !values_uniform {
            for end in &self.value_ends {
                offsets(out, *end);
            }
        }
        if !uniform {
            let mut end = 0;
            for suffix in suffixes() {
                end += suffix.len().saturating_sub(head_bytes) as u32;
                offsets(out, end);
            }
            for suffix in suffixes() {
                out.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
            }
        }
        for trailer in &self.trailers {
            out.extend_from_slice(&(trailer - self.trailer_min).to_le_bytes()[..(1 << trailer_code) / 2]);
        }
        out.extend_from_slice(&self.keys[..self.common]);
        out.extend_from_slice(&self.trailer_min.to_le_bytes());
        let suffix_length = if uniform { self.key_bytes_max - self.common } else { 0 };
        let mut flags = trailer_code << TRAILER_SHIFT | self.alignment_log2 << ALIGNMENT_SHIFT;
        for (set, flag) in [
            (heads_wide, HEADS_WIDE),
            (offsets_wide, OFFSETS_WIDE),
            (uniform, UNIFORM),
            (values_uniform, VALUES_UNIFORM),
        ] {
            flags |= if set { flag } else { 0 };
        }
        for word in [values_length, rests_length, self.count() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for half in [self.common as u16, suffix_length as u16] {
            out.extend_from_slice(&half.to_le_bytes());
        }
        out.extend_from_slice(&flags.to_le_bytes());
        self.clear();
        values_length as usize
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.value_ends.clear();
        self.trailers.clear();
        (self.common, self.key_bytes_min, self.key_bytes_max, self.trailer_min, self.trailer_max) =
            (0, 0, 0, 0, 0);
        (self.value_bytes_min, self.value_bytes_max) = (0, 0);
    }
}
