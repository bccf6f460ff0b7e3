//! Logs: lane control pages, segments and their frames.

use bytes::Bytes;
use serde_json::{Value, json};
use tombolo_format::FormatError;
use tombolo_format::batch::{Operation, Operations};
use tombolo_format::log_frame::{
    DURABLE_SLOT_BYTES, DURABLE_SLOT_OFFSET, FENCE_WORD_OFFSET, FRAME_ALIGNMENT, Frame, FrameScanner,
    LANE_FIELDS_BYTES, LaneHeader, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_FIELDS_BYTES, SegmentHeader,
    SegmentIdentity, Verdict, decode_durable_slot, decode_frame,
};
use tombolo_format::manifest::TableName;
use tombolo_storage::LogOffset;

use super::report::Report;
use crate::text;

/// Reports on a lane's control page.
pub fn lane(bytes: &Bytes, report: &mut Report) {
    report.kind("lane control page");
    match LaneHeader::decode(bytes) {
        Ok(LaneHeader { incarnation, epoch, lane }) => {
            let fields = vec![
                ("incarnation", json!(format!("{incarnation:016x}"))),
                ("epoch", json!(epoch)),
                ("lane", json!(lane)),
                ("checksum", json!("right")),
            ];
            report.part(0, LANE_FIELDS_BYTES as u64, "header", fields);
        }
        Err(error) => report.damage(0, "header", error),
    }
    match bytes.get(FENCE_WORD_OFFSET..).and_then(<[u8]>::first_chunk::<8>) {
        Some(word) => {
            let fenced_by = u64::from_le_bytes(*word);
            let what = if fenced_by == 0 {
                "fence word: not fenced".to_owned()
            } else {
                format!("fence word: fenced by epoch {fenced_by}")
            };
            report.part(FENCE_WORD_OFFSET as u64, 8, what, Vec::new());
        }
        None => {
            report.damage(
                0,
                "fence word",
                FormatError::damaged(FENCE_WORD_OFFSET, "a fence word", "the end"),
            );
        }
    }
}

/// Reports on a segment.
pub fn segment(name: &str, bytes: &Bytes, entries: bool, report: &mut Report) {
    report.kind("log segment");
    if bytes.len() >= SEGMENT_HEADER_BYTES && bytes[..SEGMENT_HEADER_BYTES].iter().all(|byte| *byte == 0) {
        return report.part(
            0,
            bytes.len() as u64,
            "not begun: made ahead, its header is still zeros",
            Vec::new(),
        );
    }
    let identity = match header(name, bytes, report) {
        Some(identity) => identity,
        None => return,
    };
    let slot = bytes.get(DURABLE_SLOT_OFFSET..DURABLE_SLOT_OFFSET + DURABLE_SLOT_BYTES).unwrap_or_default();
    let durable = decode_durable_slot(&identity, slot);
    let says = durable.map_or("unknown".to_owned(), |durable| LogOffset(durable).to_string());
    report.part(
        DURABLE_SLOT_OFFSET as u64,
        DURABLE_SLOT_BYTES as u64,
        "durable-through slot",
        vec![("durable_through", json!(says))],
    );
    let mut at = u32::try_from(SEGMENT_HEADER_BYTES).unwrap_or(u32::MAX);
    loop {
        let mut scanner = FrameScanner::new(bytes, at, identity);
        for found in scanner.by_ref() {
            frame(&found, entries, report);
        }
        at = scanner.byte();
        match scanner.verdict(durable) {
            Verdict::Tail { byte } => {
                let left = bytes.len() as u64 - u64::from(byte).min(bytes.len() as u64);
                return report.part(
                    u64::from(byte),
                    left,
                    "tail: nothing from here on is known to have been durable",
                    Vec::new(),
                );
            }
            Verdict::Newer { byte, flags } => {
                report.damage(
                    0,
                    "frame",
                    FormatError::newer(byte as usize, format!("frame flags {flags:#x}")),
                );
            }
            Verdict::Damaged { byte, reason, durable_through, .. } => {
                report.damage(
                    0,
                    &format!("frame; the lane was durable up to {}", LogOffset(durable_through)),
                    reason.into_error(byte),
                );
            }
        }
        // Frames beyond the bad place are shown too, though recovery stops there.
        match next_frame(bytes, at, &identity) {
            Some(next) => at = next,
            None => return,
        }
    }
}

fn header(name: &str, bytes: &Bytes, report: &mut Report) -> Option<SegmentIdentity> {
    match SegmentHeader::decode(bytes) {
        Ok(SegmentHeader { identity, capacity, predecessor_end, .. }) => {
            let fields = vec![
                ("incarnation", json!(format!("{:016x}", identity.incarnation))),
                ("epoch", json!(identity.epoch)),
                ("lane", json!(identity.lane)),
                ("segment", json!(identity.segment)),
                ("capacity", json!(capacity)),
                ("predecessor_end", json!(LogOffset(predecessor_end).to_string())),
                ("checksum", json!("right")),
            ];
            report.part(0, SEGMENT_HEADER_FIELDS_BYTES as u64, "header", fields);
            Some(identity)
        }
        Err(error) => {
            report.damage(0, "header", error);
            // Frames are bound to their segment: whichever guess finds one is right.
            let first = u32::try_from(SEGMENT_HEADER_BYTES - FRAME_ALIGNMENT).ok()?;
            let guesses = [identity_by_name(name), identity_by_bytes(bytes)];
            guesses.into_iter().flatten().find(|guess| next_frame(bytes, first, guess).is_some())
        }
    }
}

/// Of `…/{incarnation}/log/{epoch}-{lane}/{segment}`.
fn identity_by_name(name: &str) -> Option<SegmentIdentity> {
    let mut segments = name.rsplit('/');
    let (segment, (epoch, lane)) = (segments.next()?, segments.next()?.split_once('-')?);
    let incarnation =
        segments.next().filter(|directory| *directory == "log").and_then(|_| segments.next())?;
    Some(SegmentIdentity {
        incarnation: u64::from_str_radix(incarnation, 16).ok()?,
        epoch: u64::from_str_radix(epoch, 16).ok()?,
        lane: u32::from_str_radix(lane, 16).ok()?,
        segment: u32::from_str_radix(segment, 16).ok()?,
    })
}

/// What the header of a segment, or of a log object, says, unchecked: both say it at the same
/// place.
pub(super) fn identity_by_bytes(bytes: &[u8]) -> Option<SegmentIdentity> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let half = |at: usize| bytes.get(at..)?.first_chunk().map(|half| u32::from_le_bytes(*half));
    Some(SegmentIdentity { incarnation: word(32)?, epoch: word(40)?, lane: half(48)?, segment: half(52)? })
}

pub(super) fn next_frame(bytes: &Bytes, after: u32, identity: &SegmentIdentity) -> Option<u32> {
    let mut at = after.checked_add(8)?;
    while (at as usize) < bytes.len() {
        if decode_frame(bytes, at, identity).is_ok() {
            return Some(at);
        }
        at = at.checked_add(8)?;
    }
    None
}

pub(super) fn frame(frame: &Frame<'_>, entries: bool, report: &mut Report) {
    let header = &frame.header;
    let durable_through = match header.durable_through {
        0 => json!("not said"),
        said => json!(LogOffset(said).to_string()),
    };
    let fields = vec![
        ("stream", json!(header.stream)),
        ("sequences", json!(format!("{}+{}", header.first_sequence, header.count))),
        ("payload_bytes", json!(frame.payload.len())),
        ("durable_through", durable_through),
        ("checksum", json!("right")),
    ];
    report.part(u64::from(frame.byte), u64::from(frame.end - frame.byte), "frame", fields);
    if !entries {
        return;
    }
    let base = u64::from(frame.payload_byte);
    let operations = match Operations::new(frame.payload) {
        Ok(operations) => operations,
        Err(error) => return report.damage(base, "payload", error),
    };
    for operation in operations {
        match operation.and_then(|operation| describe(&operation)) {
            Ok((what, fields)) => report.part(base, None, what, fields),
            Err(error) => return report.damage(base, "operation", error),
        }
    }
}

/// What an operation is, and its fields.
type Described = (String, Vec<(&'static str, Value)>);

fn describe(operation: &Operation<'_>) -> Result<Described, FormatError> {
    Ok(match operation {
        Operation::Entry { kind, keyspace, key, value } => {
            let mut fields = vec![("keyspace", json!(keyspace)), ("key", text::to_json(key))];
            fields.extend(super::entry::fields(*kind, value)?);
            (format!("{kind:?}"), fields)
        }
        Operation::CreateKeyspace { keyspace, name, stream, options } => {
            let fields = vec![
                ("keyspace", json!(keyspace)),
                ("name", json!(name)),
                ("stream", json!(stream)),
                ("options", json!(options.settings)),
            ];
            ("CreateKeyspace".to_owned(), fields)
        }
        Operation::Ingest { tables } => {
            let name = |(table, keyspace): &(TableName, u32)| {
                format!("{:016x}-{:016x} of keyspace {keyspace}", table.epoch, table.random)
            };
            let names: Vec<_> = tables.iter().map(name).collect();
            ("Ingest".to_owned(), vec![("tables", json!(names))])
        }
        Operation::Exchange { keyspace } => ("Exchange".to_owned(), vec![("keyspace", json!(keyspace))]),
        other => (format!("{other:?}"), Vec::new()),
    })
}
