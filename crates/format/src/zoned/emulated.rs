//! The header and the zones' states of a device that is a file.

use crate::checksum::crc32c;
use crate::codec::Reader;
use crate::error::{FormatError, Result};

/// First bytes of the file.
pub const EMULATED_MAGIC: [u8; 8] = *b"TMBLZEMU";
/// Bytes of the header.
pub const EMULATED_HEADER_BYTES: usize = 52;
/// Bytes that the state of a zone takes.
pub const ZONE_SLOT_BYTES: usize = 64;

const VERSION: u32 = 1;
const SLOT_CHECKED_BYTES: usize = 24;

/// What an emulated device looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedHeader {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Of these, bytes that can be written.
    pub capacity_bytes: u64,
    /// Zones.
    pub zones: u32,
    /// Zones that may be open at once; 0: any number.
    pub open_max: u32,
    /// Zones that may be active at once; 0: any number.
    pub active_max: u32,
}

impl EmulatedHeader {
    /// The bytes.
    pub fn encode(&self) -> [u8; EMULATED_HEADER_BYTES] {
        let mut out = [0; EMULATED_HEADER_BYTES];
        out[..8].copy_from_slice(&EMULATED_MAGIC);
        out[12..16].copy_from_slice(&VERSION.to_le_bytes());
        out[16..20].copy_from_slice(&self.block_bytes.to_le_bytes());
        out[20..28].copy_from_slice(&self.zone_bytes.to_le_bytes());
        out[28..36].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.zones.to_le_bytes());
        out[40..44].copy_from_slice(&self.open_max.to_le_bytes());
        out[44..48].copy_from_slice(&self.active_max.to_le_bytes());
        let checksum = crc32c(&out[12..]);
        out[8..12].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for another version.
    pub fn decode(bytes: &[u8]) -> Result<EmulatedHeader> {
        let mut reader = Reader::new(bytes);
        if reader.array::<8>()? != EMULATED_MAGIC {
            return Err(FormatError::damaged(0, "the magic TMBLZEMU", "other bytes"));
        }
        let found = reader.u32()?;
        let rest = bytes.get(12..EMULATED_HEADER_BYTES).ok_or_else(|| {
            FormatError::damaged(12, format!("{EMULATED_HEADER_BYTES} bytes"), bytes.len().to_string())
        })?;
        let expected = crc32c(rest);
        if expected != found {
            return Err(FormatError::checksum(8, expected, found));
        }
        let version = reader.u32()?;
        if version > VERSION {
            return Err(FormatError::newer(12, format!("version {version} of emulated zones")));
        }
        let header = EmulatedHeader {
            block_bytes: reader.u32()?,
            zone_bytes: reader.u64()?,
            capacity_bytes: reader.u64()?,
            zones: reader.u32()?,
            open_max: reader.u32()?,
            active_max: reader.u32()?,
        };
        let block = u64::from(header.block_bytes);
        if !header.block_bytes.is_power_of_two()
            || header.zones == 0
            || header.zone_bytes == 0
            || header.capacity_bytes == 0
            || !header.zone_bytes.is_multiple_of(block)
            || !header.capacity_bytes.is_multiple_of(block)
            || header.capacity_bytes > header.zone_bytes
            || u64::from(header.zones)
                .checked_add(2)
                .and_then(|zones| zones.checked_mul(header.zone_bytes))
                .is_none()
        {
            return Err(FormatError::damaged(16, "a geometry", format!("{header:?}")));
        }
        Ok(header)
    }

    /// Where the state of a zone lies.
    pub fn slot_offset(&self, zone: u32) -> u64 {
        u64::from(self.block_bytes) + u64::from(zone) * ZONE_SLOT_BYTES as u64
    }

    /// Where a zone begins in the file.
    pub fn zone_offset(&self, zone: u32) -> u64 {
        self.slot_offset(self.zones).next_multiple_of(self.zone_bytes) + u64::from(zone) * self.zone_bytes
    }
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSlot {
    /// The zone.
    pub zone: u32,
    /// Its state, as the numbers of Linux's `blk_zone_cond` say.
    pub state: u8,
    /// Its write pointer, in bytes of the zone.
    pub pointer: u64,
}

impl ZoneSlot {
    /// The bytes.
    pub fn encode(&self) -> [u8; ZONE_SLOT_BYTES] {
        let mut out = [0; ZONE_SLOT_BYTES];
        out[4..8].copy_from_slice(&self.zone.to_le_bytes());
        out[8] = self.state;
        out[16..24].copy_from_slice(&self.pointer.to_le_bytes());
        let checksum = crc32c(&out[4..SLOT_CHECKED_BYTES]);
        out[..4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the state at the start of `bytes`.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(bytes: &[u8]) -> Result<ZoneSlot> {
        let mut reader = Reader::new(bytes);
        let found = reader.u32()?;
        let rest = bytes.get(4..SLOT_CHECKED_BYTES).ok_or_else(|| {
            FormatError::damaged(4, format!("{SLOT_CHECKED_BYTES} bytes"), bytes.len().to_string())
        })?;
        let expected = crc32c(rest);
        if expected != found {
            return Err(FormatError::checksum(0, expected, found));
        }
        let (zone, state) = (reader.u32()?, reader.u8()?);
        let _zero = reader.take(7)?;
        Ok(ZoneSlot { zone, state, pointer: reader.u64()? })
    }
}
