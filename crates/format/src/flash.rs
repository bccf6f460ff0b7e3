//! Regions of a flash cache: files on a local disk that hold pieces of tables as they lie in them.
//!
//! | part | bytes | content |
//! |---|---|---|
//! | header | 64 | see below |
//! | records | 36 and the piece, each | one after another from byte 64 on |
//! | index | 32 each | the records, in their order; of a sealed region only |
//! | footer | 64 | see below; of a sealed region only |
//!
//! **Header**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOFLR` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | reserved (0) |
//! | 16 | 8 | id, random |
//! | 24 | 8 | number, as in its name; rises from region to region |
//! | 32 | 8 | incompatible feature bits |
//! | 40 | 8 | compatible feature bits |
//! | 48 | 12 | reserved (0) |
//! | 60 | 4 | CRC-32C of bytes 0–59 |
//!
//! **Record**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `TmFl` |
//! | 4 | 4 | bytes of the piece |
//! | 8 | 24 | key: table {epoch u64, random u64}, offset in the table u64; `u64::MAX` is the table's tail |
//! | 32 | 4 | CRC-32C of bytes 0–31, mixed with (id of the region, offset in it) |
//! | 36 | n | the piece: it has checksums of its own, mixed with the table's identity and its offset there |
//!
//! **Index entry**: offset in the region u32, bytes of the piece u32, key (24 bytes).
//!
//! **Footer**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | id of the region |
//! | 8 | 8 | offset of the index |
//! | 16 | 4 | number of records |
//! | 20 | 4 | CRC-32C of the index, mixed with (id, its offset) |
//! | 24 | 28 | reserved (0) |
//! | 52 | 4 | CRC-32C of bytes 0–51, mixed with (id, offset of the footer) |
//! | 56 | 8 | magic `TMBLOFLE` |
//!
//! Nothing here is ever synced: any part of a file may be missing or old after a crash. A footer is
//! believed with its index; without one the records are walked up to the first that is not sound.
//! That a record's header is sound says nothing of its piece.

use crate::checksum::{crc32c, stamp};
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};
use crate::manifest::TableName;

/// First bytes of a region.
pub const REGION_MAGIC: [u8; 8] = *b"TMBLOFLR";
/// Last bytes of a sealed region.
pub const REGION_END_MAGIC: [u8; 8] = *b"TMBLOFLE";
/// First bytes of a record.
pub const FLASH_RECORD_MAGIC: [u8; 4] = *b"TmFl";
/// The version written, and the newest read.
pub const REGION_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows.
pub const REGION_FEATURES_KNOWN: u64 = 0;
/// Bytes of the header.
pub const REGION_HEADER_BYTES: usize = 64;
/// Bytes of a record before its piece.
pub const FLASH_RECORD_BYTES: usize = 36;
/// Bytes of an index entry.
pub const REGION_ENTRY_BYTES: usize = 32;
/// Bytes of the footer.
pub const REGION_FOOTER_BYTES: usize = 64;
/// Most bytes of a region: offsets in it are of 32 bits.
pub const REGION_BYTES_MAX: u64 = 1 << 31;

/// Which piece of which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlashKey {
    /// The table, whose name is never used again.
    pub table: TableName,
    /// Where the piece begins in the table; [`FlashKey::TAIL`] for its tail.
    pub offset: u64,
}

impl FlashKey {
    /// Stands for a table's tail, where no block begins.
    pub const TAIL: u64 = u64::MAX;

    fn encode(self) -> [u8; 24] {
        let mut out = [0; 24];
        out[..8].copy_from_slice(&self.table.epoch.to_le_bytes());
        out[8..16].copy_from_slice(&self.table.random.to_le_bytes());
        out[16..].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    fn read(reader: &mut Reader<'_>) -> Result<FlashKey> {
        let table = TableName { epoch: reader.u64()?, random: reader.u64()? };
        Ok(FlashKey { table, offset: reader.u64()? })
    }
}

/// What a region says of itself at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionHeader {
    /// Random: mixed into the checksums of all else in it.
    pub id: u64,
    /// Rises from region to region.
    pub number: u64,
}

impl RegionHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; REGION_HEADER_BYTES] {
        let mut out = [0; REGION_HEADER_BYTES];
        out[..8].copy_from_slice(&REGION_MAGIC);
        out[8..12].copy_from_slice(&REGION_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.to_le_bytes());
        out[24..32].copy_from_slice(&self.number.to_le_bytes());
        let checksum = crc32c(&out[..60]);
        out[60..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset.
    pub fn decode(bytes: &[u8]) -> Result<RegionHeader> {
        let Some(bytes) = bytes.first_chunk::<REGION_HEADER_BYTES>() else {
            return Err(FormatError::damaged(0, "a header of 64 bytes", format!("{} bytes", bytes.len())));
        };
        if bytes[..8] != REGION_MAGIC {
            let expected = format!("the magic of a region ({})", REGION_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, bytes[..8].escape_ascii().to_string()));
        }
        let checksum = crc32c(&bytes[..60]);
        let mut reader = Reader::new(&bytes[60..]);
        let stored = reader.u32()?;
        if checksum != stored {
            return Err(FormatError::checksum(60, checksum, stored));
        }
        let mut reader = Reader::new(&bytes[8..]);
        check_version(8, reader.u32()?, REGION_VERSION)?;
        let _reserved = reader.u32()?;
        let header = RegionHeader { id: reader.u64()?, number: reader.u64()? };
        check_features(32, reader.u64()?, REGION_FEATURES_KNOWN)?;
        Ok(header)
    }
}

/// A piece in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlashRecord {
    /// Where its record begins in the region.
    pub at: u32,
    /// Bytes of the piece.
    pub length: u32,
    /// Which piece.
    pub key: FlashKey,
}

impl FlashRecord {
    /// Where the record after it begins.
    pub fn end(&self) -> u64 {
        u64::from(self.at) + FLASH_RECORD_BYTES as u64 + u64::from(self.length)
    }

    /// The bytes before the piece, in the region of this id.
    pub fn encode(&self, region: u64) -> [u8; FLASH_RECORD_BYTES] {
        let mut out = [0; FLASH_RECORD_BYTES];
        out[..4].copy_from_slice(&FLASH_RECORD_MAGIC);
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..32].copy_from_slice(&self.key.encode());
        let checksum = stamp(crc32c(&out[..32]), region, u64::from(self.at));
        out[32..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the bytes before the piece, which begin at `at` of the region of this id.
    ///
    /// # Errors
    /// `Damaged`, with the offset in `bytes`.
    pub fn decode(bytes: &[u8], region: u64, at: u32) -> Result<FlashRecord> {
        let Some(bytes) = bytes.first_chunk::<FLASH_RECORD_BYTES>() else {
            return Err(FormatError::damaged(
                0,
                "a record of at least 36 bytes",
                format!("{} bytes", bytes.len()),
            ));
        };
        if bytes[..4] != FLASH_RECORD_MAGIC {
            let expected = format!("the magic of a record ({})", FLASH_RECORD_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, bytes[..4].escape_ascii().to_string()));
        }
        let expected = stamp(crc32c(&bytes[..32]), region, u64::from(at));
        let found = Reader::new(&bytes[32..]).u32()?;
        if expected != found {
            return Err(FormatError::checksum(32, expected, found));
        }
        let mut reader = Reader::new(&bytes[4..]);
        Ok(FlashRecord { at, length: reader.u32()?, key: FlashKey::read(&mut reader)? })
    }
}

/// The index and footer that seal a region whose records end at `end`.
///
/// # Panics
/// When there are more than `u32::MAX` records: a region has no room for so many.
pub fn encode_region_end(region: u64, end: u64, records: &[FlashRecord]) -> Vec<u8> {
    let mut out = Vec::with_capacity(region_end_bytes(records.len()));
    for record in records {
        out.extend_from_slice(&record.at.to_le_bytes());
        out.extend_from_slice(&record.length.to_le_bytes());
        out.extend_from_slice(&record.key.encode());
    }
    let checksum = stamp(crc32c(&out), region, end);
    let mut footer = [0; REGION_FOOTER_BYTES];
    footer[..8].copy_from_slice(&region.to_le_bytes());
    footer[8..16].copy_from_slice(&end.to_le_bytes());
    let count = u32::try_from(records.len()).expect("a region is bounded by REGION_BYTES_MAX");
    footer[16..20].copy_from_slice(&count.to_le_bytes());
    footer[20..24].copy_from_slice(&checksum.to_le_bytes());
    let checksum = stamp(crc32c(&footer[..52]), region, end + out.len() as u64);
    footer[52..56].copy_from_slice(&checksum.to_le_bytes());
    footer[56..].copy_from_slice(&REGION_END_MAGIC);
    out.extend_from_slice(&footer);
    out
}

/// Bytes of the index and footer of so many records.
pub const fn region_end_bytes(records: usize) -> usize {
    records * REGION_ENTRY_BYTES + REGION_FOOTER_BYTES
}

/// Where a sealed region's index lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionFooter {
    /// Where the records end and the index begins.
    pub index_offset: u64,
    /// Records of the region.
    pub records: u32,
    checksum: u32,
}

impl RegionFooter {
    /// Reads the footer from the last 64 bytes of a region of `region_bytes`.
    ///
    /// # Errors
    /// `Damaged`, with the offset in the footer: the region was not sealed, or not all of it
    /// survived.
    pub fn decode(bytes: &[u8; REGION_FOOTER_BYTES], region: u64, region_bytes: u64) -> Result<RegionFooter> {
        if bytes[56..] != REGION_END_MAGIC {
            let expected = format!("the magic of a sealed region ({})", REGION_END_MAGIC.escape_ascii());
            return Err(FormatError::damaged(56, expected, bytes[56..].escape_ascii().to_string()));
        }
        let at = region_bytes.saturating_sub(REGION_FOOTER_BYTES as u64);
        let expected = stamp(crc32c(&bytes[..52]), region, at);
        let found = Reader::new(&bytes[52..]).u32()?;
        if expected != found {
            return Err(FormatError::checksum(52, expected, found));
        }
        let mut reader = Reader::new(bytes);
        let id = reader.u64()?;
        let footer =
            RegionFooter { index_offset: reader.u64()?, records: reader.u32()?, checksum: reader.u32()? };
        let index_bytes = u64::from(footer.records) * REGION_ENTRY_BYTES as u64;
        if id != region
            || footer.index_offset.checked_add(index_bytes) != Some(at)
            || region_bytes > REGION_BYTES_MAX
        {
            return Err(FormatError::damaged(
                0,
                format!("the footer of region {region:#018x}"),
                format!("{footer:?} of {id:#018x}"),
            ));
        }
        Ok(footer)
    }

    /// Reads the index.
    ///
    /// # Errors
    /// `Damaged`, with the offset in the index.
    pub fn records(&self, index: &[u8], region: u64) -> Result<Vec<FlashRecord>> {
        let expected = stamp(crc32c(index), region, self.index_offset);
        if expected != self.checksum {
            return Err(FormatError::checksum(0, expected, self.checksum));
        }
        let mut reader = Reader::new(index);
        let mut records = Vec::with_capacity((self.records as usize).min(index.len() / REGION_ENTRY_BYTES));
        let mut end = REGION_HEADER_BYTES as u64;
        for _ in 0..self.records {
            let place = reader.position();
            let record =
                FlashRecord { at: reader.u32()?, length: reader.u32()?, key: FlashKey::read(&mut reader)? };
            if u64::from(record.at) != end || record.end() > self.index_offset {
                return Err(FormatError::damaged(place, format!("a record at {end}"), format!("{record:?}")));
            }
            end = record.end();
            records.push(record);
        }
        reader.end()?;
        Ok(records)
    }
}

#[cfg(test)]
mod tests;
