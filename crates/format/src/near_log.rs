//! A log on replicated segments: what the manifest keeps of a lane, and what records of its
//! segments carry.
//!
//! **Configuration of a lane**, at most 64 KiB:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `TMBLONCL` |
//! | 4 | version (1) |
//! | 1 | n: regions that a segment should have |
//! | 1 | q: regions that acknowledge |
//! | 4 | segments |
//! | | segments, in ascending order |
//! | 4 | checksum of all before |
//!
//! **Segment** of it:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | number in the lane |
//! | 4 | length; `u32::MAX` while its writer appends |
//! | 8 | digest of so many bytes; 0 while its writer appends |
//! | 1 | regions; 0: it lies in an object, whole |
//! | | per region: 8 life of the node, 16 name of the region, 4 + text address of the node |
//!
//! **Payload of a record**: its kind in one byte, then:
//!
//! | kind | bytes | field |
//! |---|---|---|
//! | 1: an entry | 4 | stream |
//! | | 4 | count: sequence numbers taken |
//! | | 8 | first sequence number |
//! | | | the operations |
//! | 2: the segment's end: the lane goes on in the next | 0 | |
//! | 3: nothing but the committed offset | 0 | |

use crate::checksum::crc32c;
use crate::codec::{Reader, put_prefixed};
use crate::error::{FormatError, Result, check_version};
use crate::segment_record::{Digest, SEGMENT_RECORDS_BYTES_MAX};

/// First bytes of a lane's configuration.
pub const NEAR_LANE_MAGIC: [u8; 8] = *b"TMBLONCL";
/// The version written, and the newest read.
pub const NEAR_LANE_VERSION: u32 = 1;
/// Most bytes of a lane's configuration.
pub const NEAR_LANE_BYTES_MAX: usize = 64 << 10;
/// Most segments of a lane.
pub const NEAR_SEGMENTS_MAX: usize = 64;
/// Most regions of a segment.
pub const NEAR_REGIONS_MAX: usize = 7;
/// Most bytes of a node's address.
pub const NODE_ADDRESS_BYTES_MAX: usize = 100;
/// Bytes of an entry's payload before its operations.
pub const NEAR_ENTRY_HEADER_BYTES: usize = 17;

const ENTRY: u8 = 1;
const END: u8 = 2;
const COMMITTED: u8 = 3;
const APPENDING: u32 = u32::MAX;

/// A region, as configurations name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NearRegion {
    /// The node's life in which it was made.
    pub incarnation: u64,
    /// Its name.
    pub region: u128,
    /// Where the node is.
    pub address: String,
}

/// Where a segment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearSegment {
    /// Its number in the lane.
    pub number: u32,
    /// Bytes of it and their digest, once that is settled.
    pub settled: Option<(u32, Digest)>,
    /// Its regions. None: it lies in an object.
    pub regions: Vec<NearRegion>,
}

/// Where a lane is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearLane {
    /// Regions that a segment should have.
    pub copies: u8,
    /// Regions that acknowledge.
    pub quorum: u8,
    /// Its segments. Invariant: numbers without a gap.
    pub segments: Vec<NearSegment>,
}

impl NearLane {
    /// The bytes.
    ///
    /// # Errors
    /// `Limit` when there are more segments, regions or bytes of an address than there may be.
    pub fn encode(&self) -> Result<Vec<u8>> {
        if self.segments.len() > NEAR_SEGMENTS_MAX {
            return Err(FormatError::limit(format!(
                "{} segments of a lane; {NEAR_SEGMENTS_MAX} are the most",
                self.segments.len()
            )));
        }
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&NEAR_LANE_MAGIC);
        out.extend_from_slice(&NEAR_LANE_VERSION.to_le_bytes());
        out.extend_from_slice(&[self.copies, self.quorum]);
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for segment in &self.segments {
            let (length, digest) = segment.settled.unwrap_or((APPENDING, Digest(0)));
            out.extend_from_slice(&segment.number.to_le_bytes());
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&digest.0.to_le_bytes());
            if segment.regions.len() > NEAR_REGIONS_MAX {
                return Err(FormatError::limit(format!(
                    "{} regions; {NEAR_REGIONS_MAX} are the most",
                    segment.regions.len()
                )));
            }
            out.push(segment.regions.len() as u8);
            for region in &segment.regions {
                if region.address.len() > NODE_ADDRESS_BYTES_MAX {
                    let what = format!(
                        "an address of {} bytes; {NODE_ADDRESS_BYTES_MAX} are the most",
                        region.address.len()
                    );
                    return Err(FormatError::limit(what));
                }
                out.extend_from_slice(&region.incarnation.to_le_bytes());
                out.extend_from_slice(&region.region.to_le_bytes());
                put_prefixed(&mut out, region.address.as_bytes());
            }
        }
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        if out.len() > NEAR_LANE_BYTES_MAX {
            return Err(FormatError::limit(format!(
                "{} bytes of a lane's configuration; {NEAR_LANE_BYTES_MAX} are the most",
                out.len()
            )));
        }
        Ok(out)
    }

    /// Reads them.
    ///
    /// # Errors
    /// `Damaged` with the offset; `Newer`.
    pub fn decode(bytes: &[u8]) -> Result<NearLane> {
        let mut reader = Reader::new(bytes);
        let magic = reader.array::<8>()?;
        if magic != NEAR_LANE_MAGIC {
            let expected = format!("the magic of a near-compute log ({})", NEAR_LANE_MAGIC.escape_ascii());
            return Err(FormatError::damaged(0, expected, magic.escape_ascii().to_string()));
        }
        let hashed = bytes.len().saturating_sub(4);
        let (computed, stored) = (crc32c(&bytes[..hashed]), Reader::new(&bytes[hashed..]).u32()?);
        if computed != stored {
            return Err(FormatError::checksum(hashed, computed, stored));
        }
        check_version(8, reader.u32()?, NEAR_LANE_VERSION)?;
        let at = reader.position();
        let (copies, quorum) = (reader.u8()?, reader.u8()?);
        if quorum == 0 || quorum > copies || usize::from(copies) > NEAR_REGIONS_MAX {
            return Err(FormatError::damaged(
                at,
                format!("1 <= q <= n <= {NEAR_REGIONS_MAX}"),
                format!("n {copies}, q {quorum}"),
            ));
        }
        let at = reader.position();
        let count = reader.u32()? as usize;
        if count > NEAR_SEGMENTS_MAX {
            return Err(FormatError::damaged(
                at,
                format!("at most {NEAR_SEGMENTS_MAX} segments"),
                count.to_string(),
            ));
        }
        let mut segments: Vec<NearSegment> = Vec::with_capacity(count);
        for _ in 0..count {
            let at = reader.position();
            let segment = NearSegment::decode(&mut reader)?;
            if segments.last().is_some_and(|last| last.number.checked_add(1) != Some(segment.number)) {
                return Err(FormatError::damaged(
                    at,
                    "numbers of segments without a gap",
                    segment.number.to_string(),
                ));
            }
            segments.push(segment);
        }
        reader.u32()?;
        reader.end()?;
        Ok(NearLane { copies, quorum, segments })
    }
}

impl NearSegment {
    fn decode(reader: &mut Reader<'_>) -> Result<NearSegment> {
        let at = reader.position();
        let (number, length, digest, count) =
            (reader.u32()?, reader.u32()?, Digest(reader.u64()?), reader.u8()?);
        if usize::from(count) > NEAR_REGIONS_MAX || length != APPENDING && length > SEGMENT_RECORDS_BYTES_MAX
        {
            return Err(FormatError::damaged(
                at,
                "a segment within its limits",
                format!("{length} bytes in {count} regions"),
            ));
        }
        let settled = (length != APPENDING).then_some((length, digest));
        if settled.is_none() && count == 0 {
            return Err(FormatError::damaged(at, "regions to append to", "none"));
        }
        let mut regions = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (incarnation, region) = (reader.u64()?, reader.u128()?);
            regions.push(NearRegion {
                incarnation,
                region,
                address: reader.text(NODE_ADDRESS_BYTES_MAX)?.to_owned(),
            });
        }
        Ok(NearSegment { number, settled, regions })
    }
}

/// What a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearPayload<'a> {
    /// An entry of the log.
    Entry {
        /// The stream that orders it.
        stream: u32,
        /// Sequence numbers taken.
        count: u32,
        /// The first of them.
        first_sequence: u64,
        /// Its payload.
        operations: &'a [u8],
    },
    /// The segment's end.
    End,
    /// Nothing but what the record's header says.
    Committed,
}

/// What stands before an entry's operations.
pub fn encode_near_entry(stream: u32, count: u32, first_sequence: u64) -> [u8; NEAR_ENTRY_HEADER_BYTES] {
    let mut header = [0; NEAR_ENTRY_HEADER_BYTES];
    header[0] = ENTRY;
    header[1..5].copy_from_slice(&stream.to_le_bytes());
    header[5..9].copy_from_slice(&count.to_le_bytes());
    header[9..].copy_from_slice(&first_sequence.to_le_bytes());
    header
}

/// The payload of a segment's last record.
pub const NEAR_END: [u8; 1] = [END];
/// The payload of a record that tells the committed offset.
pub const NEAR_COMMITTED: [u8; 1] = [COMMITTED];

impl<'a> NearPayload<'a> {
    /// Reads a record's payload.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn decode(payload: &'a [u8]) -> Result<NearPayload<'a>> {
        let mut reader = Reader::new(payload);
        let kind = reader.u8()?;
        match kind {
            ENTRY => {
                let (stream, count, first_sequence) = (reader.u32()?, reader.u32()?, reader.u64()?);
                Ok(NearPayload::Entry {
                    stream,
                    count,
                    first_sequence,
                    operations: &payload[NEAR_ENTRY_HEADER_BYTES..],
                })
            }
            END | COMMITTED => {
                reader.end()?;
                Ok(if kind == END { NearPayload::End } else { NearPayload::Committed })
            }
            _ => Err(FormatError::newer(0, format!("a record of kind {kind}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane() -> NearLane {
        let region = |n: u64| NearRegion {
            incarnation: n,
            region: u128::from(n) << 70,
            address: format!("10.0.0.{n}:7000"),
        };
        NearLane {
            copies: 3,
            quorum: 2,
            segments: vec![
                NearSegment { number: 4, settled: Some((900, Digest(7))), regions: Vec::new() },
                NearSegment { number: 5, settled: None, regions: (0..3).map(region).collect() },
            ],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = lane().encode().expect("within limits");
        assert_eq!(NearLane::decode(&bytes), Ok(lane()));
        assert_eq!(NearPayload::decode(&NEAR_END), Ok(NearPayload::End));
        assert_eq!(NearPayload::decode(&NEAR_COMMITTED), Ok(NearPayload::Committed));
        let entry = [&encode_near_entry(1, 2, 3)[..], b"operations"].concat();
        let expected =
            NearPayload::Entry { stream: 1, count: 2, first_sequence: 3, operations: b"operations" };
        assert_eq!(NearPayload::decode(&entry), Ok(expected));
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = lane().encode().expect("within limits");
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(NearLane::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = NearLane::decode(&bytes);
            let mut stamped = [&NEAR_LANE_MAGIC[..], &NEAR_LANE_VERSION.to_le_bytes(), &bytes].concat();
            stamped.extend_from_slice(&crc32c(&stamped).to_le_bytes());
            if let Ok(lane) = NearLane::decode(&stamped) {
                prop_assert_eq!(NearLane::decode(&lane.encode().expect("it was read")), Ok(lane));
            }
            let _ = NearPayload::decode(&bytes);
        }
    }
}
