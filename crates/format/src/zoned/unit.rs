//! Units, superblocks, batches and entries.

use crate::checksum::{crc32c, crc32c_two};
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result};

/// First bytes of a unit.
pub const UNIT_MAGIC: [u8; 8] = *b"TMBLZONE";
/// Bytes of a unit before its payload.
pub const UNIT_HEADER_BYTES: usize = 64;
/// Most bytes of a unit's payload.
pub const UNIT_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The version written, and the newest read.
pub const ZONED_VERSION: u32 = 1;
/// Most bytes of a label.
pub const LABEL_BYTES_MAX: usize = 64;
/// Bytes of a fragment before its lane's bytes.
pub const FRAGMENT_HEADER_BYTES: usize = 20;
/// Bytes of an entry before its payload.
pub const ENTRY_HEADER_BYTES: usize = 24;

/// What a unit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the table of this module's parent says what each is")]
pub enum UnitKind {
    Superblock,
    SnapshotPart,
    SnapshotEnd,
    Transaction,
    GenerationEnd,
    Batch,
}

impl UnitKind {
    const ALL: [UnitKind; 6] = [
        UnitKind::Superblock,
        UnitKind::SnapshotPart,
        UnitKind::SnapshotEnd,
        UnitKind::Transaction,
        UnitKind::GenerationEnd,
        UnitKind::Batch,
    ];

    fn number(self) -> u8 {
        match self {
            UnitKind::Superblock => 1,
            UnitKind::SnapshotPart => 2,
            UnitKind::SnapshotEnd => 3,
            UnitKind::Transaction => 4,
            UnitKind::GenerationEnd => 5,
            UnitKind::Batch => 6,
        }
    }

    fn of(number: u8) -> Option<UnitKind> {
        UnitKind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// Where a unit belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnitIdentity {
    /// The device's random number.
    pub device: u128,
    /// Of the metadata, or of the log zone.
    pub generation: u64,
    /// Of the unit in its generation.
    pub number: u64,
    /// The zone.
    pub zone: u32,
    /// The block in it.
    pub block: u32,
}

/// A unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Where it belongs.
    pub identity: UnitIdentity,
    /// What it holds.
    pub kind: UnitKind,
    /// The payload.
    pub payload: &'a [u8],
}

/// Bytes of a unit with so many bytes of payload, in whole blocks.
pub fn unit_bytes(payload_bytes: usize, block_bytes: usize) -> usize {
    (UNIT_HEADER_BYTES + payload_bytes).next_multiple_of(block_bytes)
}

/// The bytes of a unit, padded to whole blocks of `block_bytes`.
///
/// # Panics
/// When the payload is longer than [`UNIT_PAYLOAD_BYTES_MAX`]: its maker cuts before.
pub fn encode_unit(identity: UnitIdentity, kind: UnitKind, payload: &[u8], block_bytes: usize) -> Vec<u8> {
    assert!(payload.len() <= UNIT_PAYLOAD_BYTES_MAX, "a unit's payload is too long");
    let mut out = Vec::with_capacity(unit_bytes(payload.len(), block_bytes));
    out.extend_from_slice(&UNIT_MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&identity.device.to_le_bytes());
    out.extend_from_slice(&identity.generation.to_le_bytes());
    out.extend_from_slice(&identity.number.to_le_bytes());
    out.extend_from_slice(&identity.zone.to_le_bytes());
    out.extend_from_slice(&identity.block.to_le_bytes());
    out.push(kind.number());
    out.resize(UNIT_HEADER_BYTES, 0);
    let checksum = crc32c_two(&out[12..], payload);
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(unit_bytes(payload.len(), block_bytes), 0);
    out
}

impl Unit<'_> {
    /// Bytes of the payload of the unit whose header begins `bytes`, if it may be one: how much is
    /// to be read before it is decoded.
    ///
    /// # Errors
    /// `Damaged` when no unit begins here.
    pub fn payload_bytes(bytes: &[u8]) -> Result<usize> {
        let mut reader = Reader::new(bytes);
        if reader.array::<8>()? != UNIT_MAGIC {
            return Err(FormatError::damaged(0, "the magic TMBLZONE", "other bytes"));
        }
        let _checksum = reader.u32()?;
        match reader.u32()? as usize {
            length if length <= UNIT_PAYLOAD_BYTES_MAX => Ok(length),
            length => Err(FormatError::damaged(
                12,
                format!("at most {UNIT_PAYLOAD_BYTES_MAX} bytes of payload"),
                length.to_string(),
            )),
        }
    }

    /// The unit that begins `bytes`.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(bytes: &[u8]) -> Result<Unit<'_>> {
        let length = Unit::payload_bytes(bytes)?;
        let mut reader = Reader::new(bytes);
        let _magic = reader.take(8)?;
        let found = reader.u32()?;
        let Some(checked) = bytes.get(12..UNIT_HEADER_BYTES + length) else {
            let end = format!("an end after {}", bytes.len());
            return Err(FormatError::damaged(12, format!("{} bytes", UNIT_HEADER_BYTES + length), end));
        };
        let expected = crc32c(checked);
        if expected != found {
            return Err(FormatError::checksum(8, expected, found));
        }
        let _length = reader.u32()?;
        let identity = UnitIdentity {
            device: reader.u128()?,
            generation: reader.u64()?,
            number: reader.u64()?,
            zone: reader.u32()?,
            block: reader.u32()?,
        };
        let number = reader.u8()?;
        let Some(kind) = UnitKind::of(number) else {
            return Err(FormatError::newer(56, format!("a unit of kind {number}")));
        };
        if reader.array::<7>()? != [0; 7] {
            return Err(FormatError::newer(57, "a field of units"));
        }
        Ok(Unit { identity, kind, payload: reader.take(length)? })
    }
}

/// What a device was formatted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Zones.
    pub zones: u32,
    /// Of these, the first so many are for metadata.
    pub metadata_zones: u32,
    /// A zone with less than so many percent left is finished.
    pub finish_percent: u8,
    /// When it was formatted, in milliseconds since 1970.
    pub formatted_ms: u64,
    /// Its label.
    pub label: String,
}

impl Superblock {
    /// The payload.
    ///
    /// # Panics
    /// When the label is longer than [`LABEL_BYTES_MAX`]: callers check.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.label.len() <= LABEL_BYTES_MAX, "a label is too long");
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&ZONED_VERSION.to_le_bytes());
        out.extend_from_slice(&0_u32.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        out.extend_from_slice(&self.zone_bytes.to_le_bytes());
        out.extend_from_slice(&self.zones.to_le_bytes());
        out.extend_from_slice(&self.metadata_zones.to_le_bytes());
        out.push(self.finish_percent);
        out.extend_from_slice(&self.formatted_ms.to_le_bytes());
        put_prefixed(&mut out, self.label.as_bytes());
        out
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// `Newer` for another version or unknown features; `Damaged`.
    pub fn decode(payload: &[u8]) -> Result<Superblock> {
        let mut reader = Reader::new(payload);
        let version = reader.u32()?;
        if version > ZONED_VERSION {
            return Err(FormatError::newer(0, format!("version {version} of zoned devices")));
        }
        let features = reader.u32()?;
        if features != 0 {
            return Err(FormatError::newer(4, format!("features {features:#x} of zoned devices")));
        }
        let superblock = Superblock {
            block_bytes: reader.u32()?,
            zone_bytes: reader.u64()?,
            zones: reader.u32()?,
            metadata_zones: reader.u32()?,
            finish_percent: reader.u8()?,
            formatted_ms: reader.u64()?,
            label: reader.text(LABEL_BYTES_MAX)?.to_owned(),
        };
        reader.end()?;
        if !superblock.block_bytes.is_power_of_two()
            || !superblock.zone_bytes.is_multiple_of(u64::from(superblock.block_bytes))
            || superblock.metadata_zones >= superblock.zones
            || superblock.finish_percent > 100
        {
            return Err(FormatError::damaged(8, "a geometry", format!("{superblock:?}")));
        }
        Ok(superblock)
    }
}

/// The payload of a snapshot's end.
pub fn encode_snapshot_end(records: u64, hash: u64) -> Vec<u8> {
    [records.to_le_bytes(), hash.to_le_bytes()].concat()
}

/// Records of the snapshot that ends here, and the hash of its parts.
///
/// # Errors
/// `Damaged`.
pub fn decode_snapshot_end(payload: &[u8]) -> Result<(u64, u64)> {
    let mut reader = Reader::new(payload);
    let end = (reader.u64()?, reader.u64()?);
    reader.end()?;
    Ok(end)
}

/// The beginning of a batch's payload.
pub fn encode_batch_head(durable_blocks: u32) -> [u8; 4] {
    durable_blocks.to_le_bytes()
}

/// A part of a lane's bytes, in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The lane.
    pub lane: u64,
    /// Its place in the lane.
    pub at: u64,
    /// Where its bytes begin in the payload of the batch.
    pub offset: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What stands before a fragment's bytes.
pub fn encode_fragment_header(lane: u64, at: u64, bytes: u32) -> [u8; FRAGMENT_HEADER_BYTES] {
    let mut header = [0; FRAGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(&lane.to_le_bytes());
    header[8..16].copy_from_slice(&at.to_le_bytes());
    header[16..].copy_from_slice(&bytes.to_le_bytes());
    header
}

/// Blocks known to be durable when the batch was made, and its fragments.
///
/// # Errors
/// `Damaged`.
pub fn decode_batch(payload: &[u8]) -> Result<(u32, Vec<Fragment<'_>>)> {
    let mut reader = Reader::new(payload);
    let durable_blocks = reader.u32()?;
    let mut fragments = Vec::new();
    while reader.remaining() != 0 {
        let begin = reader.position();
        let (lane, at) = (reader.u64()?, reader.u64()?);
        let bytes = reader.prefixed(UNIT_PAYLOAD_BYTES_MAX)?;
        if bytes.is_empty() || at.checked_add(bytes.len() as u64).is_none() {
            return Err(FormatError::damaged(
                begin,
                "a fragment of some bytes",
                format!("{} bytes at {at}", bytes.len()),
            ));
        }
        let offset = reader.position() - bytes.len();
        fragments.push(Fragment { lane, at, offset, bytes });
    }
    Ok((durable_blocks, fragments))
}

/// An entry of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedEntry<'a> {
    /// The stream that orders it.
    pub stream: u32,
    /// Sequence numbers that it takes.
    pub count: u32,
    /// Its first sequence number.
    pub first_sequence: u64,
    /// The operations.
    pub payload: &'a [u8],
    /// Bytes that it takes in its lane.
    pub bytes: usize,
}

/// What stands before the operations of an entry, which come in parts.
///
/// # Panics
/// When the operations are longer than `u32::MAX`: callers check limits first.
pub fn encode_entry_header(
    stream: u32,
    count: u32,
    first_sequence: u64,
    parts: &[&[u8]],
) -> [u8; ENTRY_HEADER_BYTES] {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut header = [0; ENTRY_HEADER_BYTES];
    header[4..8]
        .copy_from_slice(&u32::try_from(length).expect("limits are checked before encoding").to_le_bytes());
    header[8..12].copy_from_slice(&stream.to_le_bytes());
    header[12..16].copy_from_slice(&count.to_le_bytes());
    header[16..].copy_from_slice(&first_sequence.to_le_bytes());
    let checksum = match parts {
        [] => crc32c(&header[4..]),
        [one] => crc32c_two(&header[4..], one),
        many => crc32c_two(&header[4..], &many.concat()),
    };
    header[..4].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The entry that begins `bytes`; `None` when the bytes end before it does.
///
/// # Errors
/// `Damaged` when its checksum does not match, or it is longer than `payload_bytes_max`.
pub fn decode_entry(bytes: &[u8], payload_bytes_max: usize) -> Result<Option<ZonedEntry<'_>>> {
    if bytes.len() < ENTRY_HEADER_BYTES {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes);
    let (found, length) = (reader.u32()?, reader.u32()? as usize);
    if length > payload_bytes_max {
        return Err(FormatError::damaged(
            4,
            format!("at most {payload_bytes_max} bytes of payload"),
            length.to_string(),
        ));
    }
    let (stream, count, first_sequence) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let whole = (ENTRY_HEADER_BYTES + length).next_multiple_of(8);
    if bytes.len() < whole {
        return Ok(None);
    }
    let expected = crc32c(&bytes[4..ENTRY_HEADER_BYTES + length]);
    if expected != found {
        return Err(FormatError::checksum(0, expected, found));
    }
    Ok(Some(ZonedEntry { stream, count, first_sequence, payload: reader.take(length)?, bytes: whole }))
}
