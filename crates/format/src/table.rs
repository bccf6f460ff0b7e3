//! Tables: immutable sorted runs of entries.
//!
//! | part | content |
//! |---|---|
//! | data blocks | [`crate::block`] in [`crate::stored`], in key order, one after another from offset 0 |
//! | partitions | filter block, index block, filter block, index block, … ([`crate::filter`], [`crate::index`]) |
//! | range deletes | a stored block, where there are any ([`crate::ranges`]); the properties say where |
//! | top index | a stored block |
//! | properties | a stored block: a list of properties ([`crate::property`]) |
//! | footer | see below |
//!
//! Everything from the first partition on is the table's tail, fetched with one request; of a tail
//! beyond [`TAIL_BYTES_MAX`] the request takes range deletes, top index, properties and footer, and
//! partitions are fetched on demand, two blocks with one request. A table may hold range deletes
//! and no entry.
//!
//! **Footer**, the last 96 bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | table identity |
//! | 8 | 8 | bytes of the table, footer included |
//! | 16 | 8 | offset of the first partition: where the data ends |
//! | 24 | 8 | offset of the top index |
//! | 32 | 4 | stored bytes of the top index |
//! | 36 | 4 | stored bytes of the properties, which follow the top index and end at the footer |
//! | 40 | 8 | incompatible feature bits: those of the kinds of its entries ([`crate::key`]), range deletes included |
//! | 48 | 8 | compatible feature bits |
//! | 56 | 24 | reserved (0) |
//! | 80 | 4 | version (1) |
//! | 84 | 4 | CRC-32C of bytes 0–83 |
//! | 88 | 8 | magic `TMBLOTAB` |
//!
//! Offsets count from the table's start, so that a table can be packed into a larger object or
//! moved without change; the identity is random and mixed into every block's checksum.

use std::ops::Range;

use bytes::Bytes;

use crate::block::{Block, Place};
use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::compression::Dictionary;
use crate::error::{FormatError, Result, check_version};
use crate::index::PartitionHandle;
use crate::key::{EntryKind, InternalKey, SequenceNumber, check_entry_features};
use crate::ranges::RangeLayers;
use crate::stored::{self, BlockHandle, Sealed};

mod builder;
mod properties;
mod verify;

pub use builder::{TableBuilder, TableOptions, TableSummary};
pub use properties::Properties;
pub use verify::{Partition, Verification, verify};

/// Last bytes of a table.
pub const TABLE_MAGIC: [u8; 8] = *b"TMBLOTAB";
/// The version written, and the newest read.
pub const TABLE_VERSION: u32 = 1;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 96;
/// Most bytes of a tail that one request fetches whole.
pub const TAIL_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of a tail that is read into memory at all.
pub const TAIL_BYTES_LIMIT: u32 = 64 << 20;

const FEATURES_OFFSET: usize = 40;
const VERSION_OFFSET: usize = 80;
const CHECKSUM_OFFSET: usize = 84;
const MAGIC_OFFSET: usize = 88;

/// The footer of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Mixed into every block's checksum.
    pub identity: u64,
    /// Bytes of the table, footer included.
    pub table_bytes: u64,
    /// Where the data ends and the partitions begin.
    pub data_end: u64,
    /// Where the top index lies. The properties follow it.
    pub top_index: BlockHandle,
    /// Stored bytes of the properties.
    pub properties_bytes: u32,
    /// Incompatible feature bits.
    pub features: u64,
}

impl Footer {
    /// The footer's bytes.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = [0; FOOTER_BYTES];
        out[0..8].copy_from_slice(&self.identity.to_le_bytes());
        out[8..16].copy_from_slice(&self.table_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.data_end.to_le_bytes());
        out[24..32].copy_from_slice(&self.top_index.offset.to_le_bytes());
        out[32..36].copy_from_slice(&self.top_index.length.to_le_bytes());
        out[36..40].copy_from_slice(&self.properties_bytes.to_le_bytes());
        out[FEATURES_OFFSET..48].copy_from_slice(&self.features.to_le_bytes());
        out[VERSION_OFFSET..CHECKSUM_OFFSET].copy_from_slice(&TABLE_VERSION.to_le_bytes());
        let checksum = crc32c(&out[..CHECKSUM_OFFSET]);
        out[CHECKSUM_OFFSET..MAGIC_OFFSET].copy_from_slice(&checksum.to_le_bytes());
        out[MAGIC_OFFSET..].copy_from_slice(&TABLE_MAGIC);
        out
    }

    /// Reads the footer at the end of `bytes`, which end where the table does.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Footer> {
        let Some((before, footer)) = bytes.split_last_chunk::<FOOTER_BYTES>() else {
            return Err(FormatError::damaged(
                0,
                format!("a footer of {FOOTER_BYTES} bytes"),
                format!("{} bytes", bytes.len()),
            ));
        };
        Footer::decode_exact(footer).map_err(|error| error.shifted(before.len() as u64))
    }

    fn decode_exact(footer: &[u8; FOOTER_BYTES]) -> Result<Footer> {
        if footer[MAGIC_OFFSET..] != TABLE_MAGIC {
            let expected = format!("the magic of a table ({})", TABLE_MAGIC.escape_ascii());
            return Err(FormatError::damaged(
                MAGIC_OFFSET,
                expected,
                footer[MAGIC_OFFSET..].escape_ascii().to_string(),
            ));
        }
        let mut end = Reader::new(&footer[VERSION_OFFSET..]);
        let (version, stored) = (end.u32()?, end.u32()?);
        let checksum = crc32c(&footer[..CHECKSUM_OFFSET]);
        if checksum != stored {
            return Err(FormatError::checksum(CHECKSUM_OFFSET, checksum, stored));
        }
        check_version(VERSION_OFFSET, version, TABLE_VERSION)?;
        let mut reader = Reader::new(footer);
        let footer = Footer {
            identity: reader.u64()?,
            table_bytes: reader.u64()?,
            data_end: reader.u64()?,
            top_index: BlockHandle { offset: reader.u64()?, length: reader.u32()? },
            properties_bytes: reader.u32()?,
            features: reader.u64()?,
        };
        check_entry_features(FEATURES_OFFSET, footer.features)?;
        let end =
            footer.top_index.end().checked_add(u64::from(footer.properties_bytes) + FOOTER_BYTES as u64);
        if footer.data_end > footer.top_index.offset || end != Some(footer.table_bytes) {
            return Err(FormatError::damaged(8, "parts that make up the table", format!("{footer:?}")));
        }
        Ok(footer)
    }

    /// Where the properties lie.
    pub fn properties(&self) -> BlockHandle {
        BlockHandle { offset: self.top_index.end(), length: self.properties_bytes }
    }
}

/// What opening a table reads: footer, top index, properties.
#[derive(Clone, Debug)]
pub struct Top {
    /// The footer.
    pub footer: Footer,
    /// The top index.
    pub index: Block,
    /// Where the partitions lie that it names, in its order.
    pub partitions: Box<[PartitionHandle]>,
    /// The properties.
    pub properties: Properties,
    /// What its data blocks have in common, if they are compressed so.
    pub dictionary: Option<Dictionary>,
    /// The range deletes.
    pub ranges: RangeLayers,
}

impl Top {
    /// Reads footer, top index and properties from a table's last bytes, of which there are enough
    /// (`tail_bytes` in the manifest).
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the table; `table_bytes` and `identity` are what
    /// the manifest says.
    pub fn decode(tail: &Bytes, table_bytes: u64, identity: u64) -> Result<Top> {
        let Some(tail_offset) = table_bytes.checked_sub(tail.len() as u64) else {
            return Err(FormatError::damaged(
                0,
                format!("a table of {table_bytes} bytes"),
                format!("{} bytes", tail.len()),
            ));
        };
        let footer = Footer::decode(tail).map_err(|error| error.shifted(tail_offset))?;
        let footer_offset = table_bytes.saturating_sub(FOOTER_BYTES as u64) as usize;
        if footer.identity != identity {
            let (expected, found) = (format!("table {identity:#018x}"), format!("{:#018x}", footer.identity));
            return Err(FormatError::damaged(footer_offset, expected, found));
        }
        if footer.table_bytes != table_bytes {
            return Err(FormatError::damaged(
                footer_offset + 8,
                format!("{table_bytes} bytes"),
                footer.table_bytes.to_string(),
            ));
        }
        let block = |handle: BlockHandle| open_within(tail, tail_offset, handle, identity);
        let index = block(footer.top_index)?;
        let index = Block::new(index).map_err(|error| error.shifted(footer.top_index.offset))?;
        let properties = Properties::decode(&block(footer.properties())?);
        let properties = properties.map_err(|error| error.shifted(footer.properties().offset))?;
        let partitions = partitions_of(&index, footer.top_index.offset)
            .map_err(|error| error.shifted(footer.top_index.offset))?;
        let dictionary = Dictionary::decode(&properties.dictionary);
        let dictionary = dictionary.map_err(|error| error.shifted(footer.properties().offset))?;
        let ranges = match ranges_within(&footer, &properties)? {
            None => RangeLayers::default(),
            Some(handle) => {
                decode_ranges(&block(handle)?, &properties).map_err(|error| error.shifted(handle.offset))?
            }
        };
        Ok(Top { footer, index, partitions, properties, dictionary, ranges })
    }

    /// Where the partitions end.
    pub fn partitions_end(&self) -> u64 {
        self.properties.ranges.map_or(self.footer.top_index.offset, |handle| handle.offset)
    }

    /// The partition that may hold the target.
    #[inline]
    pub fn partition_for(&self, target: InternalKey<'_>) -> Option<PartitionHandle> {
        self.place_for(target).map(|(_, partition)| partition)
    }

    /// The same, with its place in `partitions`.
    #[inline]
    pub fn place_for(&self, target: InternalKey<'_>) -> Option<(usize, PartitionHandle)> {
        let place = self.index.place_at_or_after(target);
        self.partitions.get(place).map(|partition| (place, *partition))
    }

    /// Bytes of memory that it holds.
    pub fn memory_bytes(&self) -> usize {
        let ranges = if self.ranges.is_empty() { 0 } else { self.ranges.memory_bytes() };
        let dictionary = self.dictionary.as_ref().map_or(0, Dictionary::memory_bytes);
        self.index.memory_bytes()
            + size_of_val(&*self.partitions)
            + self.properties.dictionary.len()
            + dictionary
            + ranges
            + size_of::<Top>()
            + 256
    }
}

/// Where the range deletes lie, if there are any: right before the top index. The feature bit says
/// so as well, to versions that do not know the property.
fn ranges_within(footer: &Footer, properties: &Properties) -> Result<Option<BlockHandle>> {
    let at = footer.properties().offset as usize;
    let says_so = footer.features & EntryKind::RangeDelete.feature() != 0;
    let fits = properties
        .ranges
        .is_none_or(|handle| handle.offset >= footer.data_end && handle.end() == footer.top_index.offset);
    if says_so != properties.ranges.is_some() || !fits {
        let found = format!("{:?} and features {:#x}", properties.ranges, footer.features);
        return Err(FormatError::damaged(at, "range deletes as footer and properties say", found));
    }
    Ok(properties.ranges)
}

fn decode_ranges(block: &[u8], properties: &Properties) -> Result<RangeLayers> {
    let ranges = RangeLayers::decode(block)?;
    let (first, last) = (properties.first_sequence, properties.last_sequence);
    if ranges.numbers().is_none_or(|(least, most)| least.0 < first || most.0 > last) {
        let found = format!("{:?}", ranges.numbers());
        return Err(FormatError::damaged(0, format!("range deletes of {first} to {last}"), found));
    }
    Ok(ranges)
}

/// What a top index names; partitions end at or before `end`.
fn partitions_of(index: &Block, end: u64) -> Result<Box<[PartitionHandle]>> {
    let mut place = Place::new();
    place.first(index)?;
    let mut partitions = Vec::with_capacity(index.len());
    while place.valid() {
        partitions.push(PartitionHandle::decode(place.value(index), end)?);
        place.next(index)?;
    }
    Ok(partitions.into())
}

/// Opens the stored block at `handle` of a table from `piece`, bytes of the table from
/// `piece_offset` on.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset in the table.
pub fn open_within(piece: &Bytes, piece_offset: u64, handle: BlockHandle, identity: u64) -> Result<Bytes> {
    let range = range_within(piece, piece_offset, handle)?;
    stored::open(&piece.slice(range), identity, handle.offset).map_err(|error| error.shifted(handle.offset))
}

/// As [`open_within`], of a data block of a table that has a dictionary, or none.
///
/// # Errors
/// As there.
pub fn open_data_within(
    piece: &Bytes,
    piece_offset: u64,
    handle: BlockHandle,
    identity: u64,
    dictionary: Option<&Dictionary>,
) -> Result<Bytes> {
    let stored = piece.slice(range_within(piece, piece_offset, handle)?);
    stored::open_with(&stored, identity, handle.offset, dictionary)
        .map_err(|error| error.shifted(handle.offset))
}

/// The stored block at `handle` of a table, checked and not decompressed yet, from `piece`, bytes
/// of the table from `piece_offset` on.
///
/// # Errors
/// `Damaged` or `Newer`, with the offset in the table.
pub fn sealed_within(
    piece: &[u8],
    piece_offset: u64,
    handle: BlockHandle,
    identity: u64,
) -> Result<Sealed<'_>> {
    let range = range_within(piece, piece_offset, handle)?;
    Sealed::check(&piece[range], identity, handle.offset).map_err(|error| error.shifted(handle.offset))
}

/// How long the block at `handle` says to be when decompressed, if it says so and `piece` holds it.
/// Nothing was checked: a hint.
pub fn raw_bytes_within(piece: &[u8], piece_offset: u64, handle: BlockHandle) -> Option<usize> {
    stored::raw_bytes(&piece[range_within(piece, piece_offset, handle).ok()?])
}

/// Where the block at `handle` lies in `piece`, bytes of the table from `piece_offset` on.
fn range_within(piece: &[u8], piece_offset: u64, handle: BlockHandle) -> Result<Range<usize>> {
    let start = handle.offset.checked_sub(piece_offset).and_then(|start| usize::try_from(start).ok());
    let range = start
        .and_then(|start| Some(start..start.checked_add(handle.length as usize)?))
        .filter(|range| range.end <= piece.len());
    range.ok_or_else(|| {
        let expected = format!("a block of {} bytes", handle.length);
        let end = piece_offset.saturating_add(piece.len() as u64);
        FormatError::Damaged {
            offset: handle.offset,
            expected: expected.into(),
            found: format!("bytes {piece_offset} to {end} only").into(),
        }
    })
}

/// Smallest and greatest sequence number of the entries so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRange {
    /// Inclusive.
    pub first: SequenceNumber,
    /// Inclusive.
    pub last: SequenceNumber,
}

#[cfg(test)]
mod tests;
