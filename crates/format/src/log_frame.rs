//! Log segments: a header page, then frames. One frame is one commit group of one stream.
//!
//! **Segment** (file or region; `capacity` bytes):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOSEG` |
//! | 8 | 4 | version (3; 2, which has no compact frames, is read) |
//! | 12 | 4 | bytes of this page (4096): the first frame's offset |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | epoch |
//! | 48 | 4 | lane |
//! | 52 | 4 | segment number |
//! | 56 | 8 | capacity in bytes, this page included |
//! | 64 | 8 | predecessor end: the lane's offset at which the segment before this one ends |
//! | 72 | 16 | boot id of the host when the segment was begun |
//! | 88 | 4 | checksum of bytes 0–87 |
//! | 512 | 8 | durable-through slot: the lane's offset up to which all was known durable |
//! | 520 | 4 | checksum of the slot, mixed with (incarnation, epoch, lane, segment) |
//! | 4096 | | frames |
//!
//! The slot lies in a sector of its own and is rewritten in place; torn or never written it reads
//! as 'unknown', which is no error.
//!
//! **Frame**, at a multiple of 8:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | mark: of this segment, from its identity; never 0 |
//! | 4 | 4 | checksum of bytes 8 to the payload's end, mixed with the segment's identity and the frame's byte in it |
//! | 8 | 4 | bits 0 to 28: payload bytes; in the compact form bits 0 to 11 only, and bits 32 to 48 of the sequence number above them; bit 29: long form; bit 30: compact form; bit 31: 0 |
//! | 12 | 4 | compact form: the lower half of the first sequence number; short form: durable-through, as a byte of this segment, or 0; long form: count, the sequence numbers taken |
//! | 16 | 8 | short and long form: first sequence number |
//! | 24 | 4 | long form: stream |
//! | 28 | 4 | long form: 0 |
//! | 32 | 8 | long form: durable-through, or 0 |
//! | 16, 24 or 40 | | payload, zero-padded to a multiple of 8 |
//!
//! Durable-through is the lane's offset up to which all was known durable when the frame was
//! written; 0 says nothing about it. The short form says stream 0, a count of 1, and a
//! durable-through within this segment or nothing of it; the compact form stream 0, a count of 1, a
//! sequence number below 2^49, a payload of 1 to 4,095 bytes, and no word on durability: one
//! writer's puts, of which a log mostly consists. A frame has the shortest form that says it all,
//! and takes 24 bytes at least. Which frames carry the durable offset is the log store's choice:
//! the local log's is the first frame that begins in a page, and the first after more became
//! durable.
//!
//! A segment's mark and the place in its checksums are 64 bits of a hash of its identity, so that
//! what another segment left in recycled bytes is no frame of it.
//!
//! **Lane control page** (4096 bytes, a file of its own):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOLAN` |
//! | 8 | 4 | version (3; 2 is read) |
//! | 12 | 4 | bytes of this page (4096) |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | epoch |
//! | 48 | 4 | lane |
//! | 52 | 4 | checksum of bytes 0–51 |
//! | 1024 | 8 | fence word: 0, or the greatest epoch that fenced this log |
//! | 2048 | | free for words of the log store (all zero at first) |
//!
//! Magic, version, page size, feature bits and the checksum's place never change; the checksum is
//! checked first, so that 'newer' is only said of sound bytes. A lane's offset is
//! `segment << 32 | byte in the segment`. Read path of recovery: `FrameScanner` yields frames up to
//! the first bad offset; [`FrameScanner::verdict`] then tells a tail from corruption (rule 9).

use crate::checksum::{crc32c, mix64, stamp};
use crate::codec::Reader;
use crate::error::{FormatError, Result, check_features, check_version};

/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"TMBLOSEG";
/// First bytes of a lane's control page.
pub const LANE_MAGIC: [u8; 8] = *b"TMBLOLAN";
/// The newest version of segments and lanes that this program reads, and the one that it writes.
pub const LOG_VERSION: u32 = 3;
/// The oldest version of segments, lanes and log objects that this program reads: its frames are of
/// the short and the long form.
const LOG_VERSION_OLDEST: u32 = 2;
/// Incompatible feature bits of segments and lanes that this program knows.
pub const LOG_FEATURES_KNOWN: u64 = 0;
/// Bytes of a segment's header page; frames begin here.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// Bytes of the header page that the header itself takes.
pub const SEGMENT_HEADER_FIELDS_BYTES: usize = 92;
/// Where the durable-through slot lies in a segment.
pub const DURABLE_SLOT_OFFSET: usize = 512;
/// Bytes of the durable-through slot.
pub const DURABLE_SLOT_BYTES: usize = 12;
/// Bytes of the control page that its header takes.
pub const LANE_FIELDS_BYTES: usize = 56;
/// Bytes of a lane's control page.
pub const LANE_PAGE_BYTES: usize = 4096;
/// Where the fence word lies in a lane's control page.
pub const FENCE_WORD_OFFSET: usize = 1024;
/// Where the log store's own words begin in a lane's control page.
pub const LANE_WORDS_OFFSET: usize = 2048;
/// Bytes of a frame before its payload, in the compact form.
pub const FRAME_COMPACT_HEADER_BYTES: usize = 16;
/// Bytes of a frame before its payload, in the short form.
pub const FRAME_HEADER_BYTES: usize = 24;
/// Bytes of a frame before its payload, in the long form.
pub const FRAME_LONG_HEADER_BYTES: usize = 40;
/// Frames begin at multiples of this.
pub const FRAME_ALIGNMENT: usize = 8;
/// Fewest bytes of a frame, padding included.
pub const FRAME_BYTES_MIN: usize = 24;
/// Most bytes of a segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a frame's payload.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// Which segment bytes belong to: a frame with any other identity is not of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentIdentity {
    /// The database's life.
    pub incarnation: u64,
    /// The epoch that writes it.
    pub epoch: u64,
    /// The lane within the epoch.
    pub lane: u32,
    /// The segment within the lane.
    pub segment: u32,
}

impl SegmentIdentity {
    /// The lane's offset of a byte of this segment.
    pub const fn offset(&self, byte: u32) -> u64 {
        ((self.segment as u64) << 32) | byte as u64
    }

    /// What the frames of this segment begin with, and what their checksums are mixed with: two
    /// halves of one hash, which no field can leave as it is.
    #[inline]
    fn binding(&self) -> Binding {
        let (high, low) = self.mixed();
        let hash = mix64(high ^ mix64(low ^ FRAME_PLACE));
        // Zeros are what a segment is made of: they never look like a frame.
        Binding { mark: (hash as u32).max(1), place: hash >> 32 }
    }

    fn mixed(&self) -> (u64, u64) {
        (
            self.incarnation ^ self.epoch.rotate_left(32),
            (u64::from(self.lane) << 32) | u64::from(self.segment),
        )
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose it is.
    pub identity: SegmentIdentity,
    /// Bytes of the segment, header page included.
    pub capacity: u64,
    /// The lane's offset at which the segment before this one ends; 0 in the first.
    pub predecessor_end: u64,
    /// Identity of the host's boot when the segment was begun.
    pub boot_id: u128,
}

impl SegmentHeader {
    /// The header page, with `durable_through` in its slot.
    pub fn encode(&self, durable_through: u64) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_FIELDS_BYTES);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&LOG_VERSION.to_le_bytes());
        out.extend_from_slice(&(SEGMENT_HEADER_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&self.identity.incarnation.to_le_bytes());
        out.extend_from_slice(&self.identity.epoch.to_le_bytes());
        out.extend_from_slice(&self.identity.lane.to_le_bytes());
        out.extend_from_slice(&self.identity.segment.to_le_bytes());
        out.extend_from_slice(&self.capacity.to_le_bytes());
        out.extend_from_slice(&self.predecessor_end.to_le_bytes());
        out.extend_from_slice(&self.boot_id.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        let mut page = [0; SEGMENT_HEADER_BYTES];
        page[..out.len()].copy_from_slice(&out);
        page[DURABLE_SLOT_OFFSET..][..DURABLE_SLOT_BYTES]
            .copy_from_slice(&encode_durable_slot(&self.identity, durable_through));
        page
    }

    /// Reads a header page. The durable-through slot is read by [`decode_durable_slot`].
    ///
    /// # Errors
    /// `Damaged` with the offset in the page; `Newer`.
    pub fn decode(page: &[u8]) -> Result<SegmentHeader> {
        let mut reader = Reader::new(page);
        decode_preamble(&mut reader, page, SEGMENT_MAGIC, SEGMENT_HEADER_FIELDS_BYTES, "a log segment")?;
        let identity = SegmentIdentity {
            incarnation: reader.u64()?,
            epoch: reader.u64()?,
            lane: reader.u32()?,
            segment: reader.u32()?,
        };
        let capacity_at = reader.position();
        let capacity = reader.u64()?;
        let predecessor_end = reader.u64()?;
        let boot_id = reader.u128()?;
        if !(SEGMENT_HEADER_BYTES as u64..=SEGMENT_BYTES_MAX).contains(&capacity) {
            return Err(FormatError::damaged(
                capacity_at,
                format!("a capacity of {SEGMENT_HEADER_BYTES} to {SEGMENT_BYTES_MAX}"),
                capacity.to_string(),
            ));
        }
        // Frames begin and end at multiples of eight, and so does what bounds them.
        for (at, bound) in [(capacity_at, capacity), (capacity_at + 8, predecessor_end)] {
            if !bound.is_multiple_of(8) {
                return Err(FormatError::damaged(at, "a multiple of 8", bound.to_string()));
            }
        }
        Ok(SegmentHeader { identity, capacity, predecessor_end, boot_id })
    }
}

/// The content of a durable-through slot.
pub fn encode_durable_slot(identity: &SegmentIdentity, durable_through: u64) -> [u8; DURABLE_SLOT_BYTES] {
    let word = durable_through.to_le_bytes();
    let (high, low) = identity.mixed();
    let mut slot = [0; DURABLE_SLOT_BYTES];
    slot[..8].copy_from_slice(&word);
    slot[8..].copy_from_slice(&stamp(crc32c(&word), high, low).to_le_bytes());
    slot
}

/// What a durable-through slot says; `None` when it is torn, of another segment, or was never
/// written.
pub fn decode_durable_slot(identity: &SegmentIdentity, slot: &[u8]) -> Option<u64> {
    let word = *slot.first_chunk::<8>()?;
    let durable_through = u64::from_le_bytes(word);
    (slot.get(..DURABLE_SLOT_BYTES)? == encode_durable_slot(identity, durable_through))
        .then_some(durable_through)
}

/// The control page of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneHeader {
    /// The database's life.
    pub incarnation: u64,
    /// The epoch that writes it.
    pub epoch: u64,
    /// The lane within the epoch.
    pub lane: u32,
}

impl LaneHeader {
    /// The control page, not fenced.
    pub fn encode(&self) -> [u8; LANE_PAGE_BYTES] {
        let mut out = Vec::with_capacity(56);
        out.extend_from_slice(&LANE_MAGIC);
        out.extend_from_slice(&LOG_VERSION.to_le_bytes());
        out.extend_from_slice(&(LANE_PAGE_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.lane.to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        let mut page = [0; LANE_PAGE_BYTES];
        page[..out.len()].copy_from_slice(&out);
        page
    }

    /// Reads a control page; the fence word is the caller's to load.
    ///
    /// # Errors
    /// `Damaged` with the offset in the page; `Newer`.
    pub fn decode(page: &[u8]) -> Result<LaneHeader> {
        let mut reader = Reader::new(page);
        decode_preamble(&mut reader, page, LANE_MAGIC, LANE_FIELDS_BYTES, "a log lane")?;
        let header = LaneHeader { incarnation: reader.u64()?, epoch: reader.u64()?, lane: reader.u32()? };
        Ok(header)
    }
}

/// Refuses other versions: newer ones, and the first, whose frames look like the end of a log to
/// this one.
pub(crate) fn check_log_version(offset: usize, version: u32, known: u32) -> Result<()> {
    check_version(offset, version, known)?;
    if version < LOG_VERSION_OLDEST {
        let found =
            format!("version {version}, of an earlier build: close the database with that build first");
        return Err(FormatError::damaged(offset, format!("version {LOG_VERSION_OLDEST} to {known}"), found));
    }
    Ok(())
}

/// Bytes 0 to 31 of both pages, and the checksum in the last 4 of `fields_bytes`.
fn decode_preamble(
    reader: &mut Reader<'_>,
    page: &[u8],
    magic: [u8; 8],
    fields_bytes: usize,
    what: &'static str,
) -> Result<()> {
    let found = reader.array::<8>()?;
    if found != magic {
        let expected = format!("the magic of {what} ({})", magic.escape_ascii());
        return Err(FormatError::damaged(0, expected, found.escape_ascii().to_string()));
    }
    let mut fields = Reader::new(page);
    let hashed = fields.take(fields_bytes - 4)?;
    let stored = fields.u32()?;
    if crc32c(hashed) != stored {
        return Err(FormatError::checksum(fields_bytes - 4, crc32c(hashed), stored));
    }
    check_log_version(8, reader.u32()?, LOG_VERSION)?;
    let bytes = reader.u32()?;
    if bytes as usize != SEGMENT_HEADER_BYTES {
        return Err(FormatError::damaged(
            12,
            format!("a page of {SEGMENT_HEADER_BYTES} bytes"),
            bytes.to_string(),
        ));
    }
    check_features(16, reader.u64()?, LOG_FEATURES_KNOWN)?;
    reader.u64()?;
    Ok(())
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The segment that it is written to.
    pub identity: SegmentIdentity,
    /// The stream that orders it.
    pub stream: u32,
    /// Sequence number of its first operation.
    pub first_sequence: u64,
    /// Number of sequence numbers that it takes.
    pub count: u32,
    /// The lane's offset up to which all was known durable when this was written; 0 says nothing
    /// about it, and may spare bytes.
    pub durable_through: u64,
}

/// What binds a frame to its segment.
#[derive(Clone, Copy, Debug)]
struct Binding {
    mark: u32,
    place: u64,
}

/// Set in the length of frames of the long form.
const LONG_FORM: u32 = 1 << 29;
/// Set in the length of frames of the compact form.
const COMPACT_FORM: u32 = 1 << 30;
/// Bits of the length that no version uses yet.
const FLAGS_UNKNOWN: u32 = 1 << 31;
/// Bits of the length in the compact form; those of the sequence number follow.
const COMPACT_LENGTH_BITS: u32 = 12;
/// Bits of a sequence number in the compact form.
const COMPACT_SEQUENCE_BITS: u32 = 32 + 29 - COMPACT_LENGTH_BITS;

const _: () = assert!(FRAME_PAYLOAD_BYTES_MAX < LONG_FORM as usize);
const _: () = assert!(
    FRAME_COMPACT_HEADER_BYTES + FRAME_ALIGNMENT == FRAME_BYTES_MIN && FRAME_HEADER_BYTES >= FRAME_BYTES_MIN
);

/// Most bytes that a frame with `payload` bytes takes, padding included; a multiple of 8.
pub const fn frame_bytes_max(payload: usize) -> usize {
    FRAME_LONG_HEADER_BYTES + payload.next_multiple_of(FRAME_ALIGNMENT)
}

/// The form of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Compact,
    Short,
    Long,
}

impl Form {
    /// What the word with the length tells.
    #[inline]
    fn of(word: u32) -> Form {
        match word & (LONG_FORM | COMPACT_FORM) {
            0 => Form::Short,
            COMPACT_FORM => Form::Compact,
            _ => Form::Long,
        }
    }

    #[inline]
    const fn header_bytes(self) -> usize {
        match self {
            Form::Compact => FRAME_COMPACT_HEADER_BYTES,
            Form::Short => FRAME_HEADER_BYTES,
            Form::Long => FRAME_LONG_HEADER_BYTES,
        }
    }

    /// Bytes of the payload.
    #[inline]
    const fn length(self, word: u32) -> usize {
        let mask = match self {
            Form::Compact => (1 << COMPACT_LENGTH_BITS) - 1,
            Form::Short | Form::Long => LONG_FORM - 1,
        };
        (word & mask) as usize
    }

    /// Bits of the word that this form gives no meaning to.
    #[inline]
    const fn unknown(self, word: u32) -> u32 {
        match self {
            Form::Compact => word & FLAGS_UNKNOWN,
            Form::Short | Form::Long => word & (FLAGS_UNKNOWN | COMPACT_FORM),
        }
    }
}

impl FrameHeader {
    /// The shortest form that says it all.
    #[inline]
    fn form(&self, payload_bytes: usize) -> Form {
        if self.stream != 0 || self.count != 1 {
            Form::Long
        } else if self.durable_through == 0
            && payload_bytes.wrapping_sub(1) < (1 << COMPACT_LENGTH_BITS) - 1
            && self.first_sequence >> COMPACT_SEQUENCE_BITS == 0
        {
            Form::Compact
        } else if self.durable_through == 0
            || (self.durable_through >> 32 == u64::from(self.identity.segment)
                && self.durable_through as u32 != 0)
        {
            Form::Short
        } else {
            Form::Long
        }
    }

    /// Bytes before a payload of `payload` bytes.
    #[inline]
    pub fn bytes(&self, payload: usize) -> usize {
        self.form(payload).header_bytes()
    }

    /// Bytes that the frame takes with `payload` bytes, padding included; a multiple of 8, at least
    /// [`FRAME_BYTES_MIN`] and at most [`frame_bytes_max`].
    #[inline]
    pub fn frame_bytes(&self, payload: usize) -> usize {
        self.bytes(payload) + payload.next_multiple_of(FRAME_ALIGNMENT)
    }

    /// The header but for its checksum, in as many bytes as it takes.
    #[inline]
    fn fields(&self, byte: u32, payload_bytes: usize) -> ([u8; FRAME_LONG_HEADER_BYTES], usize) {
        assert!((byte as usize).is_multiple_of(FRAME_ALIGNMENT), "a frame at byte {byte}");
        assert!(payload_bytes <= FRAME_PAYLOAD_BYTES_MAX, "a payload of {payload_bytes} bytes");
        let mut header = [0; FRAME_LONG_HEADER_BYTES];
        let length = payload_bytes as u32;
        header[0..4].copy_from_slice(&self.identity.binding().mark.to_le_bytes());
        let form = self.form(payload_bytes);
        match form {
            Form::Compact => {
                let high = (self.first_sequence >> 32) as u32;
                header[8..12]
                    .copy_from_slice(&(length | (high << COMPACT_LENGTH_BITS) | COMPACT_FORM).to_le_bytes());
                header[12..16].copy_from_slice(&(self.first_sequence as u32).to_le_bytes());
            }
            Form::Short => {
                header[8..12].copy_from_slice(&length.to_le_bytes());
                header[12..16].copy_from_slice(&(self.durable_through as u32).to_le_bytes());
                header[16..24].copy_from_slice(&self.first_sequence.to_le_bytes());
            }
            Form::Long => {
                header[8..12].copy_from_slice(&(length | LONG_FORM).to_le_bytes());
                header[12..16].copy_from_slice(&self.count.to_le_bytes());
                header[16..24].copy_from_slice(&self.first_sequence.to_le_bytes());
                header[24..28].copy_from_slice(&self.stream.to_le_bytes());
                header[32..40].copy_from_slice(&self.durable_through.to_le_bytes());
            }
        }
        (header, form.header_bytes())
    }

    /// Appends the whole frame at `byte`, padded, to `out`.
    ///
    /// # Panics
    /// When `byte` is no multiple of 8 or the payload longer than [`FRAME_PAYLOAD_BYTES_MAX`]: both
    /// are bugs of the caller.
    pub fn append_to(&self, out: &mut Vec<u8>, byte: u32, payload: &[u8]) {
        self.append_parts_to(out, byte, &[payload]);
    }

    /// As [`FrameHeader::append_to`], of a payload in parts: they are joined here for the first
    /// time.
    ///
    /// # Panics
    /// As [`FrameHeader::append_to`].
    pub fn append_parts_to(&self, out: &mut Vec<u8>, byte: u32, parts: &[&[u8]]) {
        let payload_bytes = parts.iter().map(|part| part.len()).sum();
        let start = out.len();
        let frame_bytes = self.frame_bytes(payload_bytes);
        out.reserve(frame_bytes);
        let (header, header_bytes) = self.fields(byte, payload_bytes);
        out.extend_from_slice(&header[..header_bytes]);
        for part in parts {
            out.extend_from_slice(part);
        }
        let checksum = stamp(crc32c(&out[start + 8..]), self.identity.binding().place, u64::from(byte));
        out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        out.resize(start + frame_bytes, 0);
    }
}

/// Tells the hash of a frame's segment from other hashes of the same identity.
const FRAME_PLACE: u64 = 0x4c4f_4746_5241_4d45;

/// A frame read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What its header says.
    pub header: FrameHeader,
    /// Where it begins in its segment.
    pub byte: u32,
    /// Where its payload begins in its segment.
    pub payload_byte: u32,
    /// The byte after it and its padding.
    pub end: u32,
    /// The operations.
    pub payload: &'a [u8],
}

/// Why there is no frame of a segment at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFrame {
    /// The segment, or the part of it that was read, ends.
    End,
    /// Not the mark of this segment's frames: zeros, what another segment left, or something else.
    Mark {
        /// The segment's own.
        expected: u32,
        /// The value found.
        found: u32,
    },
    /// A mark, and a length beyond the segment's end or the limit.
    Length(u32),
    /// The checksum differs: what the bytes give, and what the frame says.
    Checksum(u32, u32),
    /// Sound, with flags that this version does not know.
    Flags(u32),
}

impl NoFrame {
    /// As an error at `byte` of the segment: for where a frame must be.
    pub fn into_error(self, byte: u32) -> FormatError {
        let at = byte as usize;
        match self {
            NoFrame::End => FormatError::damaged(at, "a frame", "the end"),
            NoFrame::Mark { expected, found } => {
                FormatError::damaged(at, format!("frame mark {expected:#010x}"), format!("{found:#010x}"))
            }
            NoFrame::Length(found) => {
                FormatError::damaged(at + 8, "a payload length within the segment", found.to_string())
            }
            NoFrame::Checksum(expected, found) => FormatError::checksum(at + 4, expected, found),
            NoFrame::Flags(flags) => FormatError::newer(at + 8, format!("unknown frame flags {flags:#x}")),
        }
    }
}

/// Reads the frame at `byte` of a segment. `segment` holds the segment's bytes from its byte 0.
///
/// # Errors
/// Why there is none.
pub fn decode_frame<'a>(
    segment: &'a [u8],
    byte: u32,
    identity: &SegmentIdentity,
) -> std::result::Result<Frame<'a>, NoFrame> {
    let bytes = segment.get(byte as usize..).unwrap_or_default();
    if bytes.len() < FRAME_BYTES_MIN {
        return Err(NoFrame::End);
    }
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | (u64::from(u32_at(at + 4)) << 32);
    let Binding { mark, place } = identity.binding();
    if u32_at(0) != mark {
        return Err(NoFrame::Mark { expected: mark, found: u32_at(0) });
    }
    let word = u32_at(8);
    let form = Form::of(word);
    let (header_bytes, length) = (form.header_bytes(), form.length(word));
    let payload = bytes
        .get(header_bytes..)
        .and_then(|rest| rest.get(..length))
        .filter(|_| length <= FRAME_PAYLOAD_BYTES_MAX);
    let end = (byte as usize).checked_add(header_bytes + length.next_multiple_of(FRAME_ALIGNMENT));
    let (Some(payload), Some(end)) = (payload, end.and_then(|end| u32::try_from(end).ok())) else {
        return Err(NoFrame::Length(word));
    };
    let checksum = stamp(crc32c(&bytes[8..header_bytes + length]), place, u64::from(byte));
    if checksum != u32_at(4) {
        return Err(NoFrame::Checksum(checksum, u32_at(4)));
    }
    let flags = form.unknown(word) | if form == Form::Long { u32_at(28) } else { 0 };
    if flags != 0 {
        return Err(NoFrame::Flags(flags));
    }
    let identity = *identity;
    let header = match form {
        Form::Compact => {
            let high = (word & (LONG_FORM - 1)) >> COMPACT_LENGTH_BITS;
            let first_sequence = u64::from(u32_at(12)) | (u64::from(high) << 32);
            FrameHeader { identity, stream: 0, first_sequence, count: 1, durable_through: 0 }
        }
        Form::Short => {
            // Nothing is durable before a segment's header: 0 says nothing.
            let durable_through = if u32_at(12) == 0 { 0 } else { identity.offset(u32_at(12)) };
            FrameHeader { identity, stream: 0, first_sequence: u64_at(16), count: 1, durable_through }
        }
        Form::Long => FrameHeader {
            identity,
            stream: u32_at(24),
            first_sequence: u64_at(16),
            count: u32_at(12),
            durable_through: u64_at(32),
        },
    };
    Ok(Frame { header, byte, payload_byte: byte + header_bytes as u32, end, payload })
}

/// The mark that the frames of a segment begin with: for tests and fuzzing, which forge them.
#[doc(hidden)]
pub fn frame_mark(identity: &SegmentIdentity) -> u32 {
    identity.binding().mark
}

mod scan;
pub use scan::{Evidence, FrameScanner, Verdict, greatest_durable_through};

#[cfg(test)]
mod tests;
