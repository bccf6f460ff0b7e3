//! Blocks: sorted entries, keys apart from values, in rows of fixed width, so that a search reads
//! numbers and decodes one entry.
//!
//! | part | bytes | content |
//! |---|---|---|
//! | values | | one after another, each from a multiple of the alignment on; 0 between |
//! | rests | | of each key what comes after common prefix and head |
//! | heads | h × entries | of each key the h bytes after the common prefix, zero-padded, as a number (first byte highest); ascending |
//! | value ends | o × entries | where each value ends; absent when all values are of one length |
//! | rest ends | o × entries | where each rest ends, from the first rest on; absent when all suffixes are of one length |
//! | suffix lengths | 2 × entries | bytes of each key after the common prefix; absent as above |
//! | trailers | t × entries | of each entry trailer − base trailer |
//! | common prefix | c | what all keys of the block begin with |
//! | base trailer | 8 | the smallest trailer (sequence << 8 \| kind) |
//! | values length | 4 | bytes of all values |
//! | rests length | 4 | bytes of all rests |
//! | entries | 4 | their number |
//! | common length | 2 | c |
//! | suffix length | 2 | of every key, when all are of one length; else 0 |
//! | flags | 4 | bit 0: h is 8, else 4; bit 1: o is 4, else 2; bit 2: all suffixes are of one length; bit 3: so are all values; bits 4–6: t is 0, 1, 2, 4, 8; bits 8–11: log₂ of the alignment |
//!
//! A search compares the target with the common prefix once, then numbers only (rests where numbers
//! tie, which is rare): a cached get takes some 150 instructions here, where walking entries that
//! share prefixes took 1,650, and any entry is reached directly, backward as well. What prefixes
//! shared between neighbours would save beyond the common one, compression saves on disk.
//!
//! The bytes were checked against their checksum before; every row is still checked against its
//! bounds when a block is made, so that a block that a bug wrote, or a forged one, is an error and
//! never a panic.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use crate::aligned;
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, KEY_BYTES_MAX, Trailer, VALUE_BYTES_MAX, head_of, kind_name};
use crate::prefetch::prefetch;

mod builder;
mod cursor;

pub use builder::BlockBuilder;
pub use cursor::{Cursor, Place};

/// Most bytes of a block when decompressed: the greatest entry, and room for a block's own bytes.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + (2 << 20);

/// Bytes after the common prefix.
pub const BLOCK_FOOTER_BYTES: usize = 28;
/// Greatest alignment of values.
pub const VALUE_ALIGNMENT_MAX: u32 = 4096;

const HEADS_WIDE: u32 = 1;
const OFFSETS_WIDE: u32 = 2;
const UNIFORM: u32 = 4;
const VALUES_UNIFORM: u32 = 8;
const TRAILER_SHIFT: u32 = 4;
const ALIGNMENT_SHIFT: u32 = 8;
const FLAGS_KNOWN: u32 =
    HEADS_WIDE | OFFSETS_WIDE | UNIFORM | VALUES_UNIFORM | 7 << TRAILER_SHIFT | 15 << ALIGNMENT_SHIFT;

/// How many leading bytes two keys share.
fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(one), Some(other)) = (left[at..].first_chunk::<8>(), right[at..].first_chunk::<8>()) {
        let differing = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + left[at..].iter().zip(&right[at..]).take_while(|(left, right)| left == right).count()
}

/// Whether two slices hold the same. Short ones, as parts of keys are, are compared here and not by
/// a call.
#[inline]
fn same_bytes(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    // Two words that overlap where there are less than two.
    let ends = |left: &[u8], right: &[u8]| left.last_chunk::<8>() == right.last_chunk::<8>();
    match left.len() {
        0 => true,
        8..=16 => left.first_chunk::<8>() == right.first_chunk::<8>() && ends(left, right),
        4..8 => {
            left.first_chunk::<4>() == right.first_chunk::<4>()
                && left.last_chunk::<4>() == right.last_chunk::<4>()
        }
        1..4 => left.iter().zip(right).all(|(left, right)| left == right),
        _ => left == right,
    }
}

/// A block whose rows were found sound. Over bytes that are borrowed it answers look-ups; over its
/// own it can be walked and kept.
#[derive(Clone, Debug)]
pub struct Block<B = Bytes> {
    bytes: B,
    base_trailer: u64,
    entries: u32,
    /// Where the parts begin. Invariant: in this order, one after another, each as long as its row
    /// is; and with the common prefix and the footer they make up `bytes`.
    rests: u32,
    heads: u32,
    value_ends: u32,
    rest_ends: u32,
    suffix_lengths: u32,
    trailers: u32,
    common: u32,
    common_length: u16,
    suffix_length: u16,
    /// Of every value, when `values_uniform`.
    value_length: u32,
    heads_wide: bool,
    offsets_wide: bool,
    uniform: bool,
    values_uniform: bool,
    trailer_bytes: u8,
    alignment_log2: u8,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Sequence number and kind.
    pub trailer: Trailer,
    /// The value.
    pub value: &'a [u8],
    /// Its place among the block's entries.
    pub index: usize,
}

/// What a block knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within<'a> {
    /// The first entry at or after the target has its user key.
    Found(Entry<'a>),
    /// It has another.
    Absent,
    /// All entries are before the target: the next block may know.
    Beyond,
}

/// What a search ends with: the first entry at or after the target.
struct Found {
    /// The number of entries when there is none.
    index: usize,
    /// Whether its user key is the target's.
    exact: bool,
}

impl Block {
    /// Takes the bytes of a block, as [`crate::stored::open`] gave them. Where its values are
    /// aligned, so are they in memory: bytes that lie askew are copied.
    ///
    /// # Errors
    /// `Damaged` when rows are out of bounds or out of order; `Newer` for unknown flags.
    pub fn new(bytes: Bytes) -> Result<Block> {
        let mut block = Block::parse(bytes)?;
        if !aligned::is_aligned(&block.bytes, block.alignment()) {
            block.bytes = aligned::copy(&block.bytes, block.alignment());
        }
        Ok(block)
    }

    /// Bytes of memory that the block holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Block>() + self.alignment() - 1
    }

    /// All bytes of the block.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same block, over a copy of its bytes. A copy that lies askew where values are aligned is
    /// copied once more.
    ///
    /// # Panics
    /// When the copy has another length.
    #[must_use]
    pub fn with_copy(&self, copy: Bytes) -> Block {
        assert_eq!(copy.len(), self.bytes.len(), "another block's bytes");
        debug_assert_eq!(copy, self.bytes);
        let bytes = if aligned::is_aligned(&copy, self.alignment()) {
            copy
        } else {
            aligned::copy(&copy, self.alignment())
        };
        Block { bytes, ..*self }
    }

    /// The shared buffer's slice that `value`, a slice of this block's bytes, lies in: to hand a
    /// value out without copying it.
    ///
    /// # Panics
    /// When `value` is no slice of this block.
    pub fn value_bytes(&self, value: &[u8]) -> Bytes {
        self.bytes.slice_ref(value)
    }
}

impl<B: AsRef<[u8]>> Block<B> {
    /// As [`Block::new`], of bytes wherever they lie. Only the rows are looked at, which come after
    /// the values.
    ///
    /// # Errors
    /// As there.
    pub fn parse(given: B) -> Result<Block<B>> {
        let bytes = given.as_ref();
        let total = bytes.len();
        if total > BLOCK_BYTES_MAX {
            let expected = format!("a block of at most {BLOCK_BYTES_MAX} bytes");
            return Err(FormatError::damaged(0, expected, format!("{total} bytes")));
        }
        let Some((body, footer)) = bytes.split_last_chunk::<BLOCK_FOOTER_BYTES>() else {
            return Err(FormatError::damaged(
                0,
                format!("a block of at least {BLOCK_FOOTER_BYTES} bytes"),
                format!("{total} bytes"),
            ));
        };
        let word =
            |at: usize| u32::from_le_bytes([footer[at], footer[at + 1], footer[at + 2], footer[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([footer[at], footer[at + 1]]);
        let (values_length, rests_length, entries, flags) = (word(8), word(12), word(16), word(24));
        let trailer_code = flags >> TRAILER_SHIFT & 7;
        if flags & !FLAGS_KNOWN != 0
            || trailer_code > 4
            || flags >> ALIGNMENT_SHIFT & 15 > VALUE_ALIGNMENT_MAX.ilog2()
        {
            return Err(FormatError::newer(total - 4, format!("unknown block flags {flags:#x}")));
        }
        let is_set = |flag: u32| flags & flag != 0;
        let (heads_wide, offsets_wide, uniform, values_uniform) =
            (is_set(HEADS_WIDE), is_set(OFFSETS_WIDE), is_set(UNIFORM), is_set(VALUES_UNIFORM));
        let trailer_bytes = if trailer_code == 0 { 0 } else { 1u8 << (trailer_code - 1) };
        let offset_bytes = if offsets_wide { 4 } else { 2 };
        // What a block may be long is far below 32 bits, and so is each part of one that adds up.
        let mut at = 0u64;
        let mut part = |length: u64| {
            let begin = at;
            at += length;
            begin as u32
        };
        part(u64::from(values_length));
        let rests = part(u64::from(rests_length));
        let heads = part(u64::from(entries) * if heads_wide { 8 } else { 4 });
        let value_ends = part(if values_uniform { 0 } else { u64::from(entries) * offset_bytes });
        let rest_ends = part(if uniform { 0 } else { u64::from(entries) * offset_bytes });
        let suffix_lengths = part(if uniform { 0 } else { u64::from(entries) * 2 });
        let trailers = part(u64::from(entries) * u64::from(trailer_bytes));
        let common = part(u64::from(half(20)));
        if at != body.len() as u64 {
            return Err(FormatError::damaged(
                total - BLOCK_FOOTER_BYTES,
                "rows that make up the block",
                format!("{at} bytes in {total}"),
            ));
        }
        let mut base_trailer = [0; 8];
        base_trailer.copy_from_slice(&footer[..8]);
        let block = Block {
            base_trailer: u64::from_le_bytes(base_trailer),
            entries,
            rests,
            heads,
            value_ends,
            rest_ends,
            suffix_lengths,
            trailers,
            common,
            common_length: half(20),
            suffix_length: half(22),
            value_length: values_length.checked_div(entries).unwrap_or(0),
            heads_wide,
            offsets_wide,
            uniform,
            values_uniform,
            trailer_bytes,
            alignment_log2: (flags >> ALIGNMENT_SHIFT & 15) as u8,
            bytes: given,
        };
        block.check_rows()?;
        Ok(block)
    }

    #[inline]
    fn raw(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    fn check_rows(&self) -> Result<()> {
        let bad = |at: u32, expected: &'static str, found: String| {
            Err(FormatError::damaged(at as usize, expected, found))
        };
        let ascending = match self.heads_wide {
            true => {
                self.row(self.heads).as_chunks::<8>().0.is_sorted_by_key(|head| u64::from_le_bytes(*head))
            }
            false => {
                self.row(self.heads).as_chunks::<4>().0.is_sorted_by_key(|head| u32::from_le_bytes(*head))
            }
        };
        if !ascending {
            return bad(self.heads, "heads in ascending order", "one after a greater one".to_owned());
        }
        if self.values_uniform {
            let sound =
                self.alignment_log2 == 0 && self.value_length as usize * self.len() == self.rests as usize;
            let found = || format!("{} bytes of {} values", self.rests, self.entries);
            return if sound {
                self.check_suffixes()
            } else {
                bad(self.rests, "values of one length", found())
            };
        }
        let mut end = 0;
        for index in 0..self.len() {
            let begin = if index == 0 { 0 } else { self.aligned(end) };
            end = self.offset(self.value_ends, index);
            if end < begin {
                return bad(
                    self.value_ends,
                    "values in ascending order",
                    format!("an end at {end} of one that begins at {begin}"),
                );
            }
        }
        if end != self.rests as usize {
            return bad(
                self.value_ends,
                "values that make up their part",
                format!("an end at {end} of {}", self.rests),
            );
        }
        self.check_suffixes()
    }

    fn check_suffixes(&self) -> Result<()> {
        let bad = |at: u32, expected: &'static str, found: String| {
            Err(FormatError::damaged(at as usize, expected, found))
        };
        let common = usize::from(self.common_length);
        let rests = (self.heads - self.rests) as usize;
        if self.uniform {
            let length = usize::from(self.suffix_length);
            let sound = common + length <= KEY_BYTES_MAX
                && length.saturating_sub(self.head_bytes()).checked_mul(self.len()) == Some(rests);
            return if sound {
                Ok(())
            } else {
                bad(self.rests, "rests of one length", format!("{rests} bytes"))
            };
        }
        let mut end = 0;
        for index in 0..self.len() {
            let length = self.suffix_bytes(index);
            end += length.saturating_sub(self.head_bytes());
            if common + length > KEY_BYTES_MAX || self.offset(self.rest_ends, index) != end {
                return bad(
                    self.rest_ends,
                    "rests as long as their suffixes",
                    format!("{length} bytes that do not end at {end}"),
                );
            }
        }
        if end == rests {
            Ok(())
        } else {
            bad(self.rest_ends, "rests that make up their part", format!("an end at {end} of {rests}"))
        }
    }

    /// Whether it holds no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries as usize
    }

    /// Alignment of its values; 1 for none.
    pub fn alignment(&self) -> usize {
        1 << self.alignment_log2
    }

    /// Where `value`, a slice of this block's bytes, lies in them.
    ///
    /// # Panics
    /// When `value` is no slice of this block.
    #[inline]
    pub fn range_of(&self, value: &[u8]) -> Range<usize> {
        let start = (value.as_ptr() as usize).wrapping_sub(self.raw().as_ptr() as usize);
        assert!(
            start <= self.raw().len() && value.len() <= self.raw().len() - start,
            "a slice of another block"
        );
        start..start + value.len()
    }

    /// The bytes from `at` on, in rows of which the rest is somebody else's.
    #[inline]
    fn from(&self, at: u32) -> &[u8] {
        self.raw().get(at as usize..).unwrap_or_default()
    }

    /// A row of the heads: from `at` to the value ends.
    #[inline]
    fn row(&self, at: u32) -> &[u8] {
        self.raw().get(at as usize..self.value_ends as usize).unwrap_or_default()
    }

    #[inline]
    fn head_bytes(&self) -> usize {
        if self.heads_wide { 8 } else { 4 }
    }

    #[inline]
    fn aligned(&self, at: usize) -> usize {
        let mask = (1usize << self.alignment_log2) - 1;
        (at + mask) & !mask
    }

    /// The bytes at `at`, which the checked rows hold; zeros beyond the block.
    #[inline]
    fn word<const N: usize>(&self, at: usize) -> [u8; N] {
        self.raw().get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
    }

    #[inline]
    fn offset(&self, row: u32, index: usize) -> usize {
        match self.offsets_wide {
            false => u16::from_le_bytes(self.word(row as usize + index * 2)).into(),
            true => u32::from_le_bytes(self.word(row as usize + index * 4)) as usize,
        }
    }

    #[inline]
    fn suffix_bytes(&self, index: usize) -> usize {
        match self.uniform {
            true => self.suffix_length.into(),
            false => u16::from_le_bytes(self.word(self.suffix_lengths as usize + index * 2)).into(),
        }
    }

    #[inline]
    fn rest(&self, index: usize, suffix_bytes: usize) -> &[u8] {
        let length = suffix_bytes.saturating_sub(self.head_bytes());
        let end = if self.uniform { (index + 1) * length } else { self.offset(self.rest_ends, index) };
        let rests = self.rests as usize;
        self.raw().get((rests + end).saturating_sub(length)..rests + end).unwrap_or_default()
    }

    #[inline]
    fn head(&self, index: usize) -> u64 {
        match self.heads_wide {
            true => u64::from_le_bytes(self.word(self.heads as usize + index * 8)),
            false => u64::from(u32::from_le_bytes(self.word(self.heads as usize + index * 4))) << 32,
        }
    }

    #[inline]
    fn trailer(&self, index: usize) -> Trailer {
        let at = self.trailers as usize + index * usize::from(self.trailer_bytes);
        let above = match self.trailer_bytes {
            0 => 0,
            1 => u64::from(u8::from_le_bytes(self.word(at))),
            2 => u64::from(u16::from_le_bytes(self.word(at))),
            4 => u64::from(u32::from_le_bytes(self.word(at))),
            _ => u64::from_le_bytes(self.word(at)),
        };
        Trailer(self.base_trailer.wrapping_add(above))
    }

    #[inline]
    fn value_range(&self, index: usize) -> Range<usize> {
        if self.values_uniform {
            let begin = index * self.value_length as usize;
            return begin..begin + self.value_length as usize;
        }
        let begin = if index == 0 { 0 } else { self.aligned(self.offset(self.value_ends, index - 1)) };
        begin..self.offset(self.value_ends, index)
    }

    #[inline]
    fn common(&self) -> &[u8] {
        self.raw()
            .get(self.common as usize..self.common as usize + usize::from(self.common_length))
            .unwrap_or_default()
    }

    /// How the entry's user key compares with one that goes on with `suffix` after the common
    /// prefix, when their heads are equal.
    #[inline]
    fn compare_tied(&self, index: usize, suffix: &[u8]) -> Ordering {
        let length = self.suffix_bytes(index);
        let head_bytes = self.head_bytes();
        match suffix.get(head_bytes..) {
            Some(rest) if length >= head_bytes => {
                let own = self.rest(index, length);
                if same_bytes(own, rest) { Ordering::Equal } else { own.cmp(rest) }
            }
            // Equal heads, of which one ends within: the longer one goes on with zeros.
            _ => length.cmp(&suffix.len()),
        }
    }

    /// Whether two entries are versions of one user key.
    #[inline]
    fn is_same_key(&self, one: usize, other: usize) -> bool {
        let (length, other_length) = (self.suffix_bytes(one), self.suffix_bytes(other));
        self.head(one) == self.head(other)
            && length == other_length
            && same_bytes(self.rest(one, length), self.rest(other, length))
    }

    /// Finds the first entry at or after `target`.
    #[inline]
    fn find(&self, target: InternalKey<'_>) -> Found {
        let common = self.common();
        let suffix = match target.user_key.split_at_checked(common.len()) {
            Some((prefix, suffix)) if same_bytes(prefix, common) => suffix,
            _ if target.user_key < common => return Found { index: 0, exact: false },
            _ => return Found { index: self.len(), exact: false },
        };
        let number = head_of(suffix);
        let index = match self.heads_wide {
            true => self
                .row(self.heads)
                .as_chunks::<8>()
                .0
                .partition_point(|head| u64::from_le_bytes(*head) < number),
            false => {
                let number = (number >> 32) as u32;
                self.row(self.heads)
                    .as_chunks::<4>()
                    .0
                    .partition_point(|head| u32::from_le_bytes(*head) < number)
            }
        };
        let number = if self.heads_wide { number } else { number & 0xffff_ffff_0000_0000 };
        if index >= self.len() || self.head(index) != number {
            return Found { index, exact: false };
        }
        match self.compare_tied(index, suffix) {
            Ordering::Greater => Found { index, exact: false },
            Ordering::Equal if target.trailer >= self.trailer(index) => Found { index, exact: true },
            _ => {
                let index = self.find_tied(index + 1, number, suffix, target.trailer);
                let exact = index < self.len()
                    && self.head(index) == number
                    && self.compare_tied(index, suffix) == Ordering::Equal;
                Found { index, exact }
            }
        }
    }

    /// The first entry from `low` on that is not before the target, among those with its head and
    /// the first after.
    fn find_tied(&self, mut low: usize, number: u64, suffix: &[u8], trailer: Trailer) -> usize {
        let mut high = self.len();
        // Invariant: entries below `low` are before the target, those from `high` on are not.
        while low < high {
            let middle = low + (high - low) / 2;
            let is_before = || {
                self.compare_tied(middle, suffix).then_with(|| trailer.cmp(&self.trailer(middle)))
                    == Ordering::Less
            };
            if self.head(middle) == number && is_before() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    #[inline]
    fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let value = self.raw().get(self.value_range(index))?;
        Some(Entry { trailer: self.trailer(index), value, index })
    }

    /// The first entry at or after `target` if it has the target's user key: what a get asks of a
    /// block. Copies nothing.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn get(&self, target: InternalKey<'_>) -> Result<Option<Entry<'_>>> {
        match self.find(target) {
            Found { index, exact: true } => self.entry(index).map(Some).ok_or_else(|| self.no_entry(index)),
            _ => Ok(None),
        }
    }

    /// The first entry at or after `target`, whatever its key: what an index is asked. Copies
    /// nothing.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn at_or_after(&self, target: InternalKey<'_>) -> Result<Option<Entry<'_>>> {
        let Found { index, .. } = self.find(target);
        if index >= self.len() {
            return Ok(None);
        }
        self.entry(index).map(Some).ok_or_else(|| self.no_entry(index))
    }

    /// Which entry is the first at or after `target`; [`Block::len`] when there is none.
    #[inline]
    pub fn place_at_or_after(&self, target: InternalKey<'_>) -> usize {
        self.find(target).index
    }

    /// As [`Block::get`], telling a key beyond this block from an absent one.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn get_within(&self, target: InternalKey<'_>) -> Result<Within<'_>> {
        match self.find(target) {
            Found { index, exact: true } => {
                self.entry(index).map(Within::Found).ok_or_else(|| self.no_entry(index))
            }
            Found { index, .. } if index < self.len() => Ok(Within::Absent),
            _ => Ok(Within::Beyond),
        }
    }

    #[cold]
    fn no_entry(&self, index: usize) -> FormatError {
        FormatError::damaged(
            self.value_ends as usize,
            "an entry within its block",
            format!("entry {index} of {}", self.entries),
        )
    }

    /// Asks the processor for the rows that a search reads, all at once: for a block that is in
    /// none of its caches.
    #[inline]
    pub fn prefetch_rows(&self) {
        prefetch(self.from(self.heads));
    }
}

impl Block {
    /// Walks all entries and checks that they are in order and of known kinds; calls `each` with
    /// every one.
    ///
    /// # Errors
    /// `Damaged`, `Newer` for an unknown kind, or what `each` returns.
    pub fn verify(&self, mut each: impl FnMut(InternalKey<'_>, &[u8]) -> Result<()>) -> Result<()> {
        let mut cursor = Cursor::new();
        let mut last: Option<(Vec<u8>, Trailer)> = None;
        cursor.first(self)?;
        while cursor.valid() {
            let key = cursor.key();
            if last.as_ref().is_some_and(|(user_key, trailer)| InternalKey::new(user_key, *trailer) >= key) {
                return Err(FormatError::damaged(
                    cursor.position(),
                    "keys in ascending order",
                    "a key not after its predecessor",
                ));
            }
            let head = head_of(key.user_key.get(usize::from(self.common_length)..).unwrap_or_default());
            if head >> (8 * (8 - self.head_bytes()))
                != self.head(cursor.index()) >> (8 * (8 - self.head_bytes()))
            {
                return Err(FormatError::damaged(
                    self.heads as usize,
                    "a head that is padded with zeros",
                    "one that is not",
                ));
            }
            if key.trailer.kind().is_none() {
                return Err(FormatError::newer(
                    cursor.position(),
                    format!("an entry of kind {}", kind_name(key.trailer.kind_byte())),
                ));
            }
            each(key, cursor.value(self))?;
            last = Some((key.user_key.to_vec(), key.trailer));
            cursor.next(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
