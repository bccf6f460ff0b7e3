//! Data blocks: sorted entries with shared prefixes, restarts, and a row of fixed-width restart prefixes for seeks.
//!
//! | part | bytes | content |
//! |---|---|---|
//! | entries | | see below, in the order of internal keys |
//! | prefixes | 8 × restarts | of each restart's key the 8 bytes after the common prefix, zero-padded, as a number (first byte highest) |
//! | offsets | 4 × restarts | where each restart's entry begins; ascending, the first 0 |
//! | common prefix | 2 | bytes that all keys of the block share |
//! | flags | 2 | 0 |
//! | restarts | 4 | their number |
//!
//! **Entry:** {shared varint, unshared varint, value bytes varint, trailer varint (sequence << 8 | kind), unshared bytes of the user key,
//! value}. `shared` counts bytes of the previous entry's key; it is 0 at a restart.
//!
//! A seek compares the target with the common prefix once, then numbers only (whole keys where numbers tie), then walks at most one
//! restart interval, comparing just the bytes that the walk has not matched yet. Nothing is allocated but a cursor's key buffer.
//!
//! The bytes were checked against their checksum before; every length is still checked against its bound, so that a block that a bug
//! wrote, or a forged one, is an error and never a panic.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::codec::{put_varint, varint};
use crate::error::{FormatError, Result};
use crate::key::{InternalKey, KEY_BYTES_MAX, Trailer};

/// Bytes after the restart offsets.
pub const BLOCK_FOOTER_BYTES: usize = 8;
/// Bytes of a restart: prefix and offset.
pub const RESTART_BYTES: usize = 12;
/// Entries from one restart to the next in data blocks.
pub const RESTART_INTERVAL: usize = 16;

/// Builds a block from entries in order.
#[derive(Debug)]
pub struct BlockBuilder {
    entries: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    since_restart: usize,
    count: usize,
    /// Invariant: the last entry's user key and trailer; unspecified while `count` is 0.
    last_key: Vec<u8>,
    last_trailer: Trailer,
    first_key_bytes: usize,
}

impl BlockBuilder {
    /// An empty block with a restart every `interval` entries.
    ///
    /// # Panics
    /// When `interval` is 0.
    pub fn new(interval: usize) -> BlockBuilder {
        assert!(interval > 0, "a restart interval of 0");
        BlockBuilder {
            entries: Vec::new(),
            restarts: Vec::new(),
            interval,
            since_restart: 0,
            count: 0,
            last_key: Vec::new(),
            last_trailer: Trailer::LAST,
            first_key_bytes: 0,
        }
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// When it does not come after the last one: a bug of the caller that would make the table wrong for ever.
    pub fn add(&mut self, key: InternalKey<'_>, value: &[u8]) {
        let shared = if self.count == 0 {
            self.first_key_bytes = key.user_key.len();
            0
        } else {
            let last = InternalKey::new(&self.last_key, self.last_trailer);
            assert!(last < key, "entries out of order: {last:?} before {key:?}");
            shared_bytes(&self.last_key, key.user_key)
        };
        let mut shared = shared;
        if self.count == 0 || self.since_restart == self.interval {
            self.restarts.push(self.entries.len() as u32);
            self.since_restart = 0;
            shared = 0;
        }
        let unshared = &key.user_key[shared..];
        put_varint(&mut self.entries, shared as u64);
        put_varint(&mut self.entries, unshared.len() as u64);
        put_varint(&mut self.entries, value.len() as u64);
        put_varint(&mut self.entries, key.trailer.0);
        self.entries.extend_from_slice(unshared);
        self.entries.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(unshared);
        self.last_trailer = key.trailer;
        self.since_restart += 1;
        self.count += 1;
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the block if it ended here.
    pub fn block_bytes(&self) -> usize {
        self.entries.len() + self.restarts.len() * RESTART_BYTES + BLOCK_FOOTER_BYTES
    }

    /// The last entry's key; of an empty block, nothing useful.
    pub fn last_key(&self) -> InternalKey<'_> {
        InternalKey::new(&self.last_key, self.last_trailer)
    }

    /// Completes the block and appends its bytes to `out`; the builder is empty again and keeps its memory.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) {
        let common = match self.entries.is_empty() {
            true => 0,
            false => shared_bytes(self.restart_key(0), &self.last_key).min(self.first_key_bytes),
        };
        let prefixes: Vec<u64> = (0..self.restarts.len()).map(|restart| prefix_number(self.restart_key(restart), common)).collect();
        out.reserve(self.block_bytes());
        out.extend_from_slice(&self.entries);
        for prefix in prefixes {
            out.extend_from_slice(&prefix.to_le_bytes());
        }
        for offset in &self.restarts {
            out.extend_from_slice(&offset.to_le_bytes());
        }
        out.extend_from_slice(&(common as u16).to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.entries.clear();
        self.restarts.clear();
        self.since_restart = 0;
        self.count = 0;
    }

    fn restart_key(&self, restart: usize) -> &[u8] {
        let header = EntryHeader::decode(&self.entries, self.restarts[restart] as usize).expect("the builder wrote this entry");
        &self.entries[header.key_at..header.value_at]
    }
}

fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The 8 bytes of `key` after `skip`, zero-padded, first byte highest. Different numbers are ordered as the keys are.
#[inline]
fn prefix_number(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// The lengths of an entry, and where its parts begin.
#[derive(Clone, Copy, Debug)]
struct EntryHeader {
    shared: usize,
    trailer: Trailer,
    key_at: usize,
    value_at: usize,
    end: usize,
}

impl EntryHeader {
    /// Decodes the entry at `at`; `None` when it does not lie within `entries`.
    #[inline]
    fn decode(entries: &[u8], at: usize) -> Option<EntryHeader> {
        let bytes = entries.get(at..)?;
        let (shared, unshared, value, mut used) = match bytes {
            [shared, unshared, value, ..] if (shared | unshared | value) < 0x80 => {
                (usize::from(*shared), usize::from(*unshared), usize::from(*value), 3)
            }
            _ => Self::decode_long(bytes)?,
        };
        let (trailer, length) = varint(bytes.get(used..)?)?;
        used += length;
        let key_at = at + used;
        let value_at = key_at.checked_add(unshared)?;
        let end = value_at.checked_add(value)?;
        if end > entries.len() || shared + unshared > KEY_BYTES_MAX {
            return None;
        }
        Some(EntryHeader { shared, trailer: Trailer(trailer), key_at, value_at, end })
    }

    fn decode_long(bytes: &[u8]) -> Option<(usize, usize, usize, usize)> {
        let (shared, first) = varint(bytes)?;
        let (unshared, second) = varint(&bytes[first..])?;
        let (value, third) = varint(&bytes[first + second..])?;
        if shared.max(unshared) > KEY_BYTES_MAX as u64 {
            return None;
        }
        Some((shared as usize, unshared as usize, usize::try_from(value).ok()?, first + second + third))
    }
}

/// A block whose frame was found sound.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    /// Invariant: `entries_end + restarts * RESTART_BYTES + BLOCK_FOOTER_BYTES == bytes.len()`.
    entries_end: u32,
    restarts: u32,
    common: u16,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Sequence number and kind.
    pub trailer: Trailer,
    /// The value.
    pub value: &'a [u8],
}

impl Block {
    /// Takes the bytes of a block, as [`crate::stored::open`] gave them.
    ///
    /// # Errors
    /// `Damaged` when footer or restarts are out of bounds or out of order; `Newer` for unknown flags.
    pub fn new(bytes: Bytes) -> Result<Block> {
        let total = bytes.len();
        if total > crate::stored::BLOCK_BYTES_MAX {
            let expected = format!("a block of at most {} bytes", crate::stored::BLOCK_BYTES_MAX);
            return Err(FormatError::damaged(0, expected, format!("{total} bytes")));
        }
        let Some((body, footer)) = bytes.split_last_chunk::<BLOCK_FOOTER_BYTES>() else {
            return Err(FormatError::damaged(0, format!("a block of at least {BLOCK_FOOTER_BYTES} bytes"), format!("{total} bytes")));
        };
        let common = u16::from_le_bytes([footer[0], footer[1]]);
        let flags = u16::from_le_bytes([footer[2], footer[3]]);
        let restarts = u32::from_le_bytes([footer[4], footer[5], footer[6], footer[7]]);
        if flags != 0 {
            return Err(FormatError::newer(total - 6, format!("unknown block flags {flags:#x}")));
        }
        let Some(entries_end) =
            (restarts as usize).checked_mul(RESTART_BYTES).and_then(|bytes| body.len().checked_sub(bytes)).map(|end| end as u32)
        else {
            return Err(FormatError::damaged(total - 4, "a number of restarts that fits the block", restarts.to_string()));
        };
        let block = Block { entries_end, restarts, common, bytes };
        block.check_restarts()?;
        Ok(block)
    }

    fn check_restarts(&self) -> Result<()> {
        if (self.restarts == 0) != (self.entries_end == 0) {
            return Err(FormatError::damaged(self.entries_end as usize, "restarts where there are entries", self.restarts.to_string()));
        }
        let mut last = None;
        for restart in 0..self.restarts {
            let (prefix, offset) = (self.prefix(restart), self.offset(restart));
            let sound = match last {
                None => offset == 0,
                Some((prefix_before, offset_before)) => prefix_before <= prefix && offset_before < offset && offset < self.entries_end,
            };
            if !sound {
                let at = self.entries_end as usize + self.restarts as usize * 8 + restart as usize * 4;
                return Err(FormatError::damaged(at, "restarts in ascending order", format!("{offset} after {last:?}")));
            }
            last = Some((prefix, offset));
        }
        if self.restarts > 0 && self.restart_key(0)?.user_key.len() < usize::from(self.common) {
            return Err(FormatError::damaged(self.bytes.len() - 8, "a common prefix within the first key", self.common.to_string()));
        }
        Ok(())
    }

    /// Bytes of memory that the block holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Block>()
    }

    /// All bytes of the block.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether it holds no entry.
    pub fn is_empty(&self) -> bool {
        self.restarts == 0
    }

    /// The shared buffer's slice that `value`, a slice of this block's bytes, lies in: to hand a value out without copying it.
    ///
    /// # Panics
    /// When `value` is no slice of this block.
    pub fn value_bytes(&self, value: &[u8]) -> Bytes {
        self.bytes.slice_ref(value)
    }

    /// Where `value`, a slice of this block's bytes, lies in them.
    ///
    /// # Panics
    /// When `value` is no slice of this block.
    #[inline]
    pub fn range_of(&self, value: &[u8]) -> std::ops::Range<usize> {
        let start = (value.as_ptr() as usize).wrapping_sub(self.bytes.as_ptr() as usize);
        assert!(start <= self.bytes.len() && value.len() <= self.bytes.len() - start, "a slice of another block");
        start..start + value.len()
    }

    fn entries(&self) -> &[u8] {
        &self.bytes[..self.entries_end as usize]
    }

    #[inline]
    fn prefix(&self, restart: u32) -> u64 {
        let at = self.entries_end as usize + restart as usize * 8;
        self.bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    #[inline]
    fn offset(&self, restart: u32) -> u32 {
        let at = self.entries_end as usize + self.restarts as usize * 8 + restart as usize * 4;
        self.bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn header(&self, at: usize) -> Result<EntryHeader> {
        EntryHeader::decode(self.entries(), at).ok_or_else(|| FormatError::damaged(at, "an entry within its block", "lengths beyond it"))
    }

    fn restart_key(&self, restart: u32) -> Result<InternalKey<'_>> {
        let at = self.offset(restart) as usize;
        let header = self.header(at)?;
        if header.shared != 0 {
            return Err(FormatError::damaged(at, "a whole key at a restart", format!("{} shared bytes", header.shared)));
        }
        Ok(InternalKey::new(&self.entries()[header.key_at..header.value_at], header.trailer))
    }

    /// Finds the first entry at or after `target`.
    fn find(&self, target: InternalKey<'_>) -> Result<Option<Found>> {
        if self.restarts == 0 {
            return Ok(None);
        }
        let common = usize::from(self.common);
        let first = self.restart_key(0)?.user_key;
        // The common prefix lies within the first key: `Block::new` checked it.
        let start = match target.user_key[..common.min(target.user_key.len())].cmp(&first[..common]) {
            Ordering::Less => 0,
            Ordering::Greater => return Ok(None),
            Ordering::Equal => self.restart_before(target, prefix_number(target.user_key, common))?,
        };
        self.walk(self.offset(start) as usize, target)
    }

    /// The last restart whose key is before `target`, or the first restart.
    #[inline]
    fn restart_before(&self, target: InternalKey<'_>, number: u64) -> Result<u32> {
        let (mut low, mut high) = (0, self.restarts);
        // Invariant: restarts below `low` are before the target, those from `high` on are not.
        while low < high {
            let middle = low + (high - low) / 2;
            let before = match self.prefix(middle).cmp(&number) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.restart_key(middle)? < target,
            };
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// Walks from the restart at `at` to the first entry at or after `target`.
    fn walk(&self, mut at: usize, target: InternalKey<'_>) -> Result<Option<Found>> {
        let entries = self.entries();
        // Bytes of the target that the entry before matched, and that entry's key length.
        let (mut matched, mut key_bytes) = (0, 0);
        while at < entries.len() {
            let header = self.header(at)?;
            let unshared = &entries[header.key_at..header.value_at];
            if header.shared > key_bytes {
                return Err(FormatError::damaged(at, format!("at most {key_bytes} shared bytes"), header.shared.to_string()));
            }
            key_bytes = header.shared + unshared.len();
            // The entry before is less than the target at byte `matched`; so is one that shares more with it. One that shares less is
            // greater than the entry before within what that matched, and so greater than the target.
            let order = match header.shared.cmp(&matched) {
                Ordering::Greater => Ordering::Less,
                Ordering::Less => Ordering::Greater,
                Ordering::Equal => {
                    let rest = &target.user_key[matched..];
                    let same = shared_bytes(unshared, rest);
                    matched += same;
                    match (unshared.get(same), rest.get(same)) {
                        (None, None) => target.trailer.cmp(&header.trailer),
                        (None, Some(_)) => Ordering::Less,
                        (Some(_), None) => Ordering::Greater,
                        (Some(left), Some(right)) => left.cmp(right),
                    }
                }
            };
            if order != Ordering::Less {
                return Ok(Some(Found { at, header }));
            }
            at = header.end;
        }
        Ok(None)
    }

    /// The first entry at or after `target` if it has the target's user key: what a get asks of a block. Copies nothing.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn get(&self, target: InternalKey<'_>) -> Result<Option<Entry<'_>>> {
        let Some(Found { header, .. }) = self.find(target)? else { return Ok(None) };
        let entries = self.entries();
        // What a found entry shares with the one before it, it shares with the target.
        let same = target.user_key.get(header.shared..) == Some(&entries[header.key_at..header.value_at]);
        Ok(same.then(|| Entry { trailer: header.trailer, value: &entries[header.value_at..header.end] }))
    }

    /// The first entry at or after `target`, whatever its key: what an index is asked. Copies nothing.
    ///
    /// # Errors
    /// `Damaged`.
    #[inline]
    pub fn at_or_after(&self, target: InternalKey<'_>) -> Result<Option<Entry<'_>>> {
        let found = self.find(target)?;
        Ok(found.map(|Found { header, .. }| Entry { trailer: header.trailer, value: &self.entries()[header.value_at..header.end] }))
    }

    /// Walks all entries and checks that they are in order and of known kinds; calls `each` with every one.
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
                return Err(FormatError::damaged(cursor.position(), "keys in ascending order", "a key not after its predecessor"));
            }
            if key.trailer.kind().is_none() {
                return Err(FormatError::newer(cursor.position(), format!("entry of kind {}", key.trailer.0 & 0xff)));
            }
            each(key, cursor.value(self))?;
            last = Some((key.user_key.to_vec(), key.trailer));
            cursor.next(self)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Found {
    at: usize,
    header: EntryHeader,
}

mod cursor;
pub use cursor::Cursor;

#[cfg(test)]
mod tests;
