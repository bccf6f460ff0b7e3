//! Snapshot objects: the edits that build a whole state, in chunks that are encoded, sent, received
//! and decoded one by one.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOSNA` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | reserved (0) |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | slot whose state it is |
//! | 48 | 8 | random, as in its name |
//! | 56 | 4 | CRC-32C of bytes 0–55 |
//! | 60 | | chunks |
//!
//! **Chunk:**
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the edits (at most 8 MiB) |
//! | 4 | 4 | number of edits |
//! | 8 | 4 | ordinal, from 0 |
//! | 12 | 4 | flags: 1 end (the last chunk; it holds no edits, and `number` is that of all edits) |
//! | 16 | 4 | CRC-32C of bytes 0–15 and of the edits, mixed with (random, ordinal) |
//! | 20 | | edits |
//!
//! The record that names the object holds its length and the checksum of all of it (xxh3, 64 bits).

use super::{
    EDIT_BYTES_MAX, Edit, FEATURE_COLD, FEATURE_MARKED, FEATURE_SOURCES, FEATURE_STREAMS, decode_edit,
    encode_edit,
};
use crate::checksum::{StreamHash, crc32c, crc32c_two, stamp};
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};

/// First bytes of a snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"TMBLOSNA";
/// The version written, and the newest read.
pub const SNAPSHOT_VERSION: u32 = 1;
/// Incompatible feature bits that this program knows: those of which every path takes account.
pub const SNAPSHOT_FEATURES_KNOWN: u64 = FEATURE_SOURCES | FEATURE_STREAMS | FEATURE_COLD | FEATURE_MARKED;
/// Bytes before the first chunk.
pub const SNAPSHOT_HEADER_BYTES: usize = 60;
/// Bytes of a chunk before its edits.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Most bytes of a chunk's edits.
pub const CHUNK_BYTES_MAX: usize = 8 << 20;
/// A chunk is closed when its edits reach this.
const CHUNK_BYTES_WANTED: usize = 1 << 20;
const FLAG_END: u32 = 1;

#[allow(clippy::assertions_on_constants, reason = "a chunk holds one more edit than it wants")]
const _: () = assert!(CHUNK_BYTES_WANTED + EDIT_BYTES_MAX + 64 <= CHUNK_BYTES_MAX);

/// Which snapshot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotIdentity {
    /// The database's life.
    pub incarnation: u64,
    /// The slot whose state it is.
    pub slot: u64,
    /// Fresh randomness in its name.
    pub random: u64,
}

/// Encodes a snapshot piece by piece; the pieces in order are the object.
#[derive(Debug)]
pub struct SnapshotEncoder {
    random: u64,
    features: u64,
    edits: Vec<u8>,
    chunk_edits: u32,
    ordinal: u32,
    edits_total: u32,
    out: Vec<u8>,
    length: u64,
    hash: StreamHash,
}

/// The last piece of a snapshot, and what its record says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEnd {
    /// Bytes that follow all earlier pieces.
    pub piece: Vec<u8>,
    /// Length of the object.
    pub length: u64,
    /// Checksum of the object.
    pub checksum: u64,
}

impl SnapshotEncoder {
    /// Begins a snapshot of edits none of which needs a feature bit ([`Edit::features`]).
    pub fn new(identity: SnapshotIdentity) -> SnapshotEncoder {
        SnapshotEncoder::with_features(identity, 0)
    }

    /// Begins the snapshot of these edits, which are then pushed.
    pub fn of(identity: SnapshotIdentity, edits: &[Edit]) -> SnapshotEncoder {
        SnapshotEncoder::with_features(identity, Edit::features_of(edits))
    }

    fn with_features(identity: SnapshotIdentity, features: u64) -> SnapshotEncoder {
        let mut out = Vec::with_capacity(SNAPSHOT_HEADER_BYTES);
        out.extend_from_slice(&SNAPSHOT_MAGIC);
        out.extend_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&features.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&identity.incarnation.to_le_bytes());
        out.extend_from_slice(&identity.slot.to_le_bytes());
        out.extend_from_slice(&identity.random.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        SnapshotEncoder {
            random: identity.random,
            features,
            edits: Vec::new(),
            chunk_edits: 0,
            ordinal: 0,
            edits_total: 0,
            out,
            length: 0,
            hash: StreamHash::new(),
        }
    }

    /// Adds an edit. Now and then the next piece of the object is handed out: append it.
    ///
    /// # Errors
    /// `Limit` when the edit is beyond its limits, or needs a feature bit that the snapshot was not
    /// begun with; nothing was added.
    pub fn push(&mut self, edit: &Edit) -> Result<Option<Vec<u8>>> {
        if edit.features() & !self.features != 0 {
            return Err(FormatError::limit("an edit that needs a feature bit in a snapshot without it"));
        }
        encode_edit(edit, &mut self.edits)?;
        self.chunk_edits += 1;
        self.edits_total += 1;
        if self.edits.len() < CHUNK_BYTES_WANTED {
            return Ok(None);
        }
        self.close_chunk();
        Ok(Some(self.take_piece()))
    }

    /// Ends the snapshot.
    pub fn finish(mut self) -> SnapshotEnd {
        if self.chunk_edits > 0 {
            self.close_chunk();
        }
        self.chunk_edits = self.edits_total;
        self.put_chunk(FLAG_END);
        let piece = self.take_piece();
        SnapshotEnd { piece, length: self.length, checksum: self.hash.digest() }
    }

    fn close_chunk(&mut self) {
        self.put_chunk(0);
        self.edits.clear();
        self.chunk_edits = 0;
        self.ordinal += 1;
    }

    fn put_chunk(&mut self, flags: u32) {
        let mut header = [0; CHUNK_HEADER_BYTES];
        header[0..4].copy_from_slice(&(self.edits.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&self.chunk_edits.to_le_bytes());
        header[8..12].copy_from_slice(&self.ordinal.to_le_bytes());
        header[12..16].copy_from_slice(&flags.to_le_bytes());
        let checksum = stamp(crc32c_two(&header[..16], &self.edits), self.random, u64::from(self.ordinal));
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(&self.edits);
    }

    fn take_piece(&mut self) -> Vec<u8> {
        self.hash.update(&self.out);
        self.length += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }
}

/// Decodes a snapshot from its pieces, cut anywhere, and hands out edits as soon as their chunk is
/// whole.
#[derive(Debug)]
pub struct SnapshotDecoder {
    identity: SnapshotIdentity,
    buffer: Vec<u8>,
    /// Bytes of the object before `buffer`.
    consumed: u64,
    header_done: bool,
    features: u64,
    ordinal: u32,
    edits_total: u32,
    ended: bool,
    length: u64,
    hash: StreamHash,
}

impl SnapshotDecoder {
    /// A decoder of the snapshot that a record names.
    pub fn new(identity: SnapshotIdentity) -> SnapshotDecoder {
        SnapshotDecoder {
            identity,
            buffer: Vec::new(),
            consumed: 0,
            header_done: false,
            features: 0,
            ordinal: 0,
            edits_total: 0,
            ended: false,
            length: 0,
            hash: StreamHash::new(),
        }
    }

    /// Takes the next bytes of the object and appends the edits that they complete to `edits`.
    /// Memory beyond that is at most one chunk.
    ///
    /// # Errors
    /// `Damaged` or `Newer`, with the offset in the object.
    pub fn push(&mut self, piece: &[u8], edits: &mut Vec<Edit>) -> Result<()> {
        self.hash.update(piece);
        self.length += piece.len() as u64;
        self.buffer.extend_from_slice(piece);
        let mut used = 0;
        let result = loop {
            match self.step(used, edits) {
                Ok(0) => break Ok(()),
                Ok(more) => used += more,
                Err(error) => break Err(error.shifted(self.consumed + used as u64)),
            }
        };
        self.buffer.drain(..used);
        self.consumed += used as u64;
        result
    }

    /// Checks that the object ended where it should, with the length and checksum that its record
    /// states.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn finish(self, length: u64, checksum: u64) -> Result<()> {
        let at = self.consumed as usize;
        if !self.ended || self.length != length {
            return Err(FormatError::damaged(
                at,
                format!("a snapshot of {length} bytes"),
                format!("{} bytes", self.length),
            ));
        }
        let found = self.hash.digest();
        if found != checksum {
            return Err(FormatError::damaged(
                0,
                format!("checksum {checksum:#018x} of the object"),
                format!("{found:#018x}"),
            ));
        }
        Ok(())
    }

    /// Decodes the header or one chunk at `used`; returns its bytes, or 0 when more are needed.
    fn step(&mut self, used: usize, edits: &mut Vec<Edit>) -> Result<usize> {
        let bytes = &self.buffer[used..];
        if self.ended {
            return if bytes.is_empty() {
                Ok(0)
            } else {
                Err(FormatError::damaged(0, "the end", "more bytes"))
            };
        }
        if !self.header_done {
            if bytes.len() < SNAPSHOT_HEADER_BYTES {
                return Ok(0);
            }
            self.features = check_header(&bytes[..SNAPSHOT_HEADER_BYTES], &self.identity)?;
            self.header_done = true;
            return Ok(SNAPSHOT_HEADER_BYTES);
        }
        let mut reader = Reader::new(bytes);
        if reader.remaining() < CHUNK_HEADER_BYTES {
            return Ok(0);
        }
        let (length, count, ordinal) = (reader.u32()? as usize, reader.u32()?, reader.u32()?);
        let (flags, stored) = (reader.u32()?, reader.u32()?);
        if length > CHUNK_BYTES_MAX {
            return Err(FormatError::damaged(
                0,
                format!("a chunk of at most {CHUNK_BYTES_MAX} bytes"),
                length.to_string(),
            ));
        }
        if reader.remaining() < length {
            return Ok(0);
        }
        let body = reader.take(length)?;
        let checksum = stamp(crc32c_two(&bytes[..16], body), self.identity.random, u64::from(ordinal));
        if checksum != stored {
            return Err(FormatError::checksum(16, checksum, stored));
        }
        if ordinal != self.ordinal {
            return Err(FormatError::damaged(
                8,
                format!("chunk {}", self.ordinal),
                format!("chunk {ordinal}"),
            ));
        }
        self.ordinal += 1;
        match flags {
            0 => {
                let mut body = Reader::new(body);
                for _ in 0..count {
                    let edit =
                        decode_edit(&mut body).map_err(|error| error.shifted(CHUNK_HEADER_BYTES as u64))?;
                    let wanted = edit.features();
                    if wanted & !self.features != 0 {
                        let found = format!("{:#x}", self.features);
                        return Err(FormatError::damaged(16, format!("feature bits {wanted:#x}"), found));
                    }
                    edits.push(edit);
                }
                body.end().map_err(|error| error.shifted(CHUNK_HEADER_BYTES as u64))?;
                self.edits_total = self.edits_total.saturating_add(count);
            }
            FLAG_END => {
                if count != self.edits_total || length != 0 {
                    return Err(FormatError::damaged(
                        4,
                        format!("an end after {} edits", self.edits_total),
                        count.to_string(),
                    ));
                }
                self.ended = true;
            }
            flags => {
                return Err(FormatError::newer(12, format!("snapshot chunk with unknown flags {flags:#x}")));
            }
        }
        Ok(CHUNK_HEADER_BYTES + length)
    }
}

/// The feature bits.
fn check_header(bytes: &[u8], identity: &SnapshotIdentity) -> Result<u64> {
    let mut reader = Reader::new(bytes);
    let magic = reader.array::<8>()?;
    if magic != SNAPSHOT_MAGIC {
        let expected = format!("the magic of a manifest snapshot ({})", SNAPSHOT_MAGIC.escape_ascii());
        return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
    }
    let (version, _reserved, incompatible, _compatible) =
        (reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?);
    let found = SnapshotIdentity { incarnation: reader.u64()?, slot: reader.u64()?, random: reader.u64()? };
    let at = reader.position();
    let stored = reader.u32()?;
    if crc32c(&bytes[..at]) != stored {
        return Err(FormatError::checksum(at, crc32c(&bytes[..at]), stored));
    }
    check_version(8, version, SNAPSHOT_VERSION)?;
    check_features(16, incompatible, SNAPSHOT_FEATURES_KNOWN)?;
    if found != *identity {
        return Err(FormatError::damaged(32, format!("{identity:?}"), format!("{found:?}")));
    }
    Ok(incompatible)
}
