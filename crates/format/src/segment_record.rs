//! Records of a replicated segment: what its regions on the nodes hold, byte for byte the same on
//! each, one after another from byte 0.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | payload bytes |
//! | 4 | 4 | flags (0) |
//! | 8 | 8 | committed: the byte of the segment up to which all was acknowledged when this was made |
//! | 16 | 8 | digest: of this record, its place, and by its predecessor's digest of all before it |
//! | 24 | | payload |
//!
//! The digest of what lies before byte 0 comes from the segment's identity ([`first_digest`]), so
//! that a record of another segment, or of another place in it, is none. Records are never split
//! nor joined: they are sent again as they are.
//!
//! Lengths are 32 bits wide: a segment is at most [`SEGMENT_RECORDS_BYTES_MAX`] long.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::checksum::mix64 as mix;
use crate::codec::Reader;
use crate::error::{FormatError, Result};
use crate::log_frame::SegmentIdentity;

/// Bytes of a record before its payload.
pub const RECORD_HEADER_BYTES: usize = 24;
/// Most bytes of a record's payload.
pub const RECORD_PAYLOAD_BYTES_MAX: usize = 32 << 20;
/// Most bytes of all the records of a segment.
pub const SEGMENT_RECORDS_BYTES_MAX: u32 = 1 << 30;

/// The digest of all that lies before a place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub u64);

/// The digest before byte 0 of the segment `identity` of the database that drew the random number
/// `database`.
pub fn first_digest(database: u64, identity: &SegmentIdentity) -> Digest {
    let SegmentIdentity { incarnation, epoch, lane, segment } = *identity;
    let words = [database, incarnation, epoch, u64::from(lane) << 32 | u64::from(segment)];
    Digest(words.into_iter().fold(0x5365_676d_656e_7473, |digest, word| mix(digest.rotate_left(5) ^ word)))
}

/// One record, as it lies in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The byte of the segment up to which all was acknowledged when this was made.
    pub committed: u32,
    /// Of all up to this record's end.
    pub digest: Digest,
    /// What it carries.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Bytes that it takes in a region.
    pub fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload.len()
    }
}

fn digest(predecessor: Digest, at: u32, head: u64, committed: u64, payload: &[u8]) -> Digest {
    let place = mix(head ^ u64::from(at).rotate_left(40) ^ committed.rotate_left(20));
    Digest(mix(xxh3_64_with_seed(payload, predecessor.0) ^ place))
}

/// The header of a record of `payload` at byte `at`, and the digest of all up to its end.
///
/// # Panics
/// When the payload is longer than [`RECORD_PAYLOAD_BYTES_MAX`]: its maker cuts before.
pub fn encode_header(
    predecessor: Digest,
    at: u32,
    committed: u32,
    payload: &[u8],
) -> ([u8; RECORD_HEADER_BYTES], Digest) {
    assert!(payload.len() <= RECORD_PAYLOAD_BYTES_MAX, "a record's payload is too long");
    let head = payload.len() as u64;
    let committed = u64::from(committed);
    let digest = digest(predecessor, at, head, committed, payload);
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..8].copy_from_slice(&head.to_le_bytes());
    header[8..16].copy_from_slice(&committed.to_le_bytes());
    header[16..].copy_from_slice(&digest.0.to_le_bytes());
    (header, digest)
}

/// The record that begins `bytes`, which lie at byte `at` of their segment behind `predecessor`.
///
/// # Errors
/// `Damaged` with the byte of the segment, when a whole record that follows its predecessor is not
/// there.
pub fn decode<'a>(predecessor: Digest, at: u32, bytes: &'a [u8]) -> Result<Record<'a>> {
    let record = decode_checked(at, bytes)?;
    let expected =
        digest(predecessor, at, record.payload.len() as u64, u64::from(record.committed), record.payload);
    if expected != record.digest {
        let (expected, found) =
            (format!("the digest {:016x}", expected.0), format!("{:016x}", record.digest.0));
        return Err(FormatError::damaged(at as usize + 16, expected, found));
    }
    Ok(record)
}

/// As [`decode`], of a record whose digest was found to be right before, in the same memory:
/// a check of a whole segment need not walk it twice.
///
/// # Errors
/// As [`decode`], but for the digest.
#[inline]
pub fn decode_checked(at: u32, bytes: &[u8]) -> Result<Record<'_>> {
    let mut reader = Reader::new(bytes);
    let mut decode = || {
        let (head, committed, digest) = (reader.u64()?, reader.u64()?, Digest(reader.u64()?));
        if head > RECORD_PAYLOAD_BYTES_MAX as u64 {
            let expected = format!("at most {RECORD_PAYLOAD_BYTES_MAX} bytes of payload and no flags");
            return Err(FormatError::damaged(0, expected, format!("{head:#x}")));
        }
        Ok((committed, digest, reader.take(head as usize)?))
    };
    let (committed, digest, payload) = decode().map_err(|error| error.shifted(u64::from(at)))?;
    // A record cannot have been acknowledged before it was made.
    match u32::try_from(committed) {
        Ok(committed) if committed <= at => Ok(Record { committed, digest, payload }),
        _ => Err(FormatError::damaged(
            at as usize + 8,
            format!("committed up to {at} at most"),
            committed.to_string(),
        )),
    }
}

/// Walks records from a place on, up to the end of `bytes` or to the first that is none.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    /// The next record's place, counted from the segment's start.
    at: u32,
    digest: Digest,
}

impl<'a> Records<'a> {
    /// The records of `bytes`, which lie at byte `at` of their segment behind `predecessor`.
    pub fn new(predecessor: Digest, at: u32, bytes: &'a [u8]) -> Records<'a> {
        Records { bytes, at, digest: predecessor }
    }

    /// Where the next record begins: all before it is sound.
    pub fn at(&self) -> u32 {
        self.at
    }

    /// The digest of all before the next record.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    /// The next record; after an error the same error again.
    fn next(&mut self) -> Option<Result<Record<'a>>> {
        if self.bytes.is_empty() {
            return None;
        }
        Some(decode(self.digest, self.at, self.bytes).inspect(|record| {
            self.bytes = &self.bytes[record.bytes()..];
            self.at += record.bytes() as u32;
            self.digest = record.digest;
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDENTITY: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 7, lane: 0, segment: 3 };

    fn written(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut digest = first_digest(9, &IDENTITY);
        for payload in payloads {
            let at = bytes.len() as u32;
            let (header, next) = encode_header(digest, at, at / 2, payload);
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(payload);
            digest = next;
        }
        bytes
    }

    fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(payloads in payloads()) {
            let bytes = written(&payloads);
            let records = Records::new(
                first_digest(9, &IDENTITY), 0, &bytes
            ).collect::<Result<Vec<_>>>().expect("sound");
            prop_assert_eq!(
                records.iter().map(|record| record.payload.to_vec()).collect::<Vec<_>>(), payloads
            );
        }

        #[test]
        fn a_changed_byte_ends_the_sound_prefix_at_its_record(
            payloads in payloads(),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8
        ) {
            let mut bytes = written(&payloads);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut records = Records::new(first_digest(9, &IDENTITY), 0, &bytes);
            while let Some(Ok(_)) = records.next() {}
            let mut begins = 0;
            for payload in &payloads {
                let ends = begins + RECORD_HEADER_BYTES + payload.len();
                if at < ends {
                    break;
                }
                begins = ends;
            }
            prop_assert_eq!(records.at() as usize, begins);
        }

        #[test]
        fn no_other_segment_and_no_other_place_takes_a_record(payloads in payloads(), at in 1..100_u32) {
            let bytes = written(&payloads);
            for (database, identity) in [
                (8, IDENTITY),
                (9, SegmentIdentity { incarnation: 2, ..IDENTITY }),
                (9, SegmentIdentity { epoch: 8, ..IDENTITY }),
                (9, SegmentIdentity { lane: 1, ..IDENTITY }),
                (9, SegmentIdentity { segment: 4, ..IDENTITY }),
            ] {
                prop_assert!(decode(first_digest(database, &identity), 0, &bytes).is_err());
            }
            prop_assert!(decode(first_digest(9, &IDENTITY), at, &bytes).is_err());
        }
    }

    #[test]
    fn a_cut_record_is_damage() {
        let bytes = written(&[vec![1; 30]]);
        for length in 1..bytes.len() {
            assert!(decode(first_digest(9, &IDENTITY), 0, &bytes[..length]).is_err(), "{length}");
            assert!(decode_checked(0, &bytes[..length]).is_err(), "{length}");
        }
        assert_eq!(decode_checked(0, &bytes), decode(first_digest(9, &IDENTITY), 0, &bytes));
    }
}
