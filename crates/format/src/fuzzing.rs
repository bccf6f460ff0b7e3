//! Entry functions of the fuzz targets: each takes any bytes, decodes them and uses what came out.
//! They must end, and must not panic.
//!
//! `fuzz/` calls them under libFuzzer, the tests of this crate with random and mutated inputs.

use bytes::Bytes;

use crate::batch::Operations;
use crate::block::{Block, Cursor};
use crate::checkpoint::CheckpointHeader;
use crate::codec::Reader;
use crate::cold::{decode_marker, encode_marker};
use crate::collected::{decode_collected, encode_collected};
use crate::compaction::{
    Urgency, WorkerStatus, decode_job, decode_job_answer, encode_job, encode_job_answer,
};
use crate::compression::{Compression, decompress};
use crate::expiry::{join_operand, split_operand};
use crate::filter::Filter;
use crate::flash::{
    FLASH_RECORD_BYTES, FlashRecord, REGION_FOOTER_BYTES, REGION_HEADER_BYTES, RegionFooter, RegionHeader,
    encode_region_end,
};
use crate::incarnation::{decode_incarnation, encode_incarnation};
use crate::index::{PartitionHandle, decode_block_handle};
use crate::key::{InternalKey, Trailer};
use crate::log_frame::{
    FrameScanner, LaneHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentIdentity, decode_durable_slot,
};
use crate::log_object::{LogObject, encode_seal};
use crate::manifest::snapshot::{SnapshotDecoder, SnapshotIdentity};
use crate::manifest::{decode_edit, decode_record, encode_record};
use crate::operands::{OperandList, operands as decode};
use crate::pin::{decode_pin, encode_pin};
use crate::question::{decode_answer, decode_question, encode_answer, encode_question};
use crate::ranges::RangeLayers;
use crate::stored;
use crate::table::{Footer, Properties, Top};
use crate::trace::{
    BlockBuilder, End, EventBlock, Header, TRACE_FRAME_BYTES, TraceFrame, decode_index, decode_name,
    encode_index,
};
use crate::typed_key::{KeyDecoder, KeyEncoder, KeyError};
use crate::value_object::{
    Next, Reference, ValueObjectChecker, ValueObjectHeader, decode_referred, encode_referred,
};

pub mod seeds;

/// A target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 18] = [
    ("batch", batch),
    ("log_segment", log_segment),
    ("manifest_record", manifest_record),
    ("manifest_snapshot", manifest_snapshot),
    ("pin", pin),
    ("question", question),
    ("operands", operands),
    ("typed_key", typed_key),
    ("compaction", compaction),
    ("block", block),
    ("filter_and_index", filter_and_index),
    ("table", table),
    ("ranges", ranges),
    ("compression", compression),
    ("flash_region", flash_region),
    ("value_object", value_object),
    ("trace", trace),
    ("zoned", zoned),
];

/// Payloads of log entries; prepared transactions, changes and archives of them, which have some in
/// them.
pub fn batch(bytes: &[u8]) {
    crate::prepared::check_any(bytes);
    crate::change::check_any(bytes);
    crate::backup::check_any(bytes);
    let Ok(operations) = Operations::new(bytes) else { return };
    let promised = operations.remaining() as usize;
    assert!(operations.take(promised + 2).count() <= promised + 1);
}

/// Lists of merge operands, and their times; what decodes must encode to the same bytes.
pub fn operands(bytes: &[u8]) {
    if let Ok((operand, times)) = split_operand(bytes) {
        assert_eq!(join_operand(operand, times), bytes);
    }
    if let Ok(found) = decode(bytes) {
        let mut list = OperandList::default();
        found.iter().for_each(|operand| list.push(operand));
        assert_eq!(list.finish(), bytes);
    }
}

/// Typed keys: the first byte says how many fields there are, those after it of which types. A
/// decoded key has these bytes and no others.
pub fn typed_key(bytes: &[u8]) {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (fields, key) = rest.split_at(usize::from(*count).min(rest.len()));
    let (mut decoder, mut encoder) = (KeyDecoder::new(key), KeyEncoder::new());
    for field in fields {
        let (at, begun) = (decoder.position(), encoder.len());
        let mut read = |decoder: &mut KeyDecoder<'_>| typed_field(*field, decoder, &mut encoder);
        let found = if field & 0x80 == 0 { read(&mut decoder) } else { decoder.reversed(read) };
        if found.is_err() {
            return;
        }
        if field & 0x80 != 0 {
            encoder.invert_from(begun);
        }
        assert_eq!(encoder.bytes().get(begun..), key.get(at..decoder.position()));
    }
}

fn typed_field(field: u8, decoder: &mut KeyDecoder<'_>, encoder: &mut KeyEncoder) -> Result<(), KeyError> {
    match field % 9 {
        0 => decoder.u8().map(|value| encoder.put_u8(value)),
        1 => decoder.u64().map(|value| encoder.put_u64(value)),
        2 => decoder.i32().map(|value| encoder.put_i32(value)),
        3 => decoder.i128().map(|value| encoder.put_i128(value)),
        4 => decoder.f64().map(|value| encoder.put_f64(value)),
        5 => decoder.bool().map(|value| encoder.put_bool(value)),
        6 => decoder.char().map(|value| encoder.put_char(value)),
        7 => decoder.text().map(|value| encoder.escaped(value.as_bytes())),
        _ => decoder.escaped().map(|value| encoder.escaped(&value)),
    }
}

/// Jobs of compaction and their answers; what decodes must encode to an equal one.
pub fn compaction(bytes: &[u8]) {
    if let Ok(job) = decode_job(bytes) {
        let again = encode_job(&job).and_then(|bytes| decode_job(&bytes));
        assert_eq!(again, Ok(job));
    }
    if let Ok(urgency) = Urgency::decode(bytes) {
        assert_eq!(urgency.encode(), bytes);
    }
    if let Ok(worker) = WorkerStatus::decode(bytes) {
        assert_eq!(worker.encode().as_deref(), Ok(bytes));
    }
    if let Ok(answer) = decode_job_answer(bytes) {
        let again = encode_job_answer(&answer).and_then(|bytes| decode_job_answer(&bytes));
        assert_eq!(again, Ok(answer));
    }
}

/// Log segments, lanes, frames and log objects: of the identity that the first bytes state, so that
/// a mutated segment is walked.
pub fn log_segment(bytes: &[u8]) {
    let _ = LaneHeader::decode(bytes);
    let identity = match SegmentHeader::decode(bytes) {
        Ok(header) => header.identity,
        Err(_) => SegmentIdentity { incarnation: 1, epoch: 1, lane: 0, segment: 0 },
    };
    let _ = decode_durable_slot(&identity, bytes);
    log_object(bytes);
    for start in [0, SEGMENT_HEADER_BYTES as u32] {
        let mut scanner = FrameScanner::new(bytes, start, identity);
        let mut end = start;
        for frame in scanner.by_ref() {
            assert!(frame.byte == end && frame.end > end);
            end = frame.end;
            batch(frame.payload);
        }
        let _ = scanner.verdict(Some(identity.offset(end)));
    }
}

/// Log objects, of the identity that they state; a seal that decodes must encode to the same bytes,
/// its reserved feature bits apart.
fn log_object(bytes: &[u8]) {
    let word = |at: usize| {
        bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    };
    let (lane, segment) = (word(48) as u32, (word(48) >> 32) as u32);
    let identity = SegmentIdentity { incarnation: word(32), epoch: word(40), lane, segment };
    if let Ok(LogObject::Seal { by, sealed }) = LogObject::decode(bytes, &identity) {
        assert_eq!(
            LogObject::decode(&encode_seal(&identity, by, sealed), &identity),
            Ok(LogObject::Seal { by, sealed })
        );
    }
}

/// What lies in the zones of a device; records that decode must encode to the same bytes.
pub fn zoned(bytes: &[u8]) {
    use crate::zoned::{
        EmulatedHeader, Superblock, Unit, UnitKind, ZoneSlot, decode_batch, decode_entry, decode_records,
        decode_snapshot_end, encode_record, record_bytes,
    };
    let _ = EmulatedHeader::decode(bytes).map(|header| header.zone_offset(header.zones));
    let _ = ZoneSlot::decode(bytes);
    if let Ok(Some(entry)) = decode_entry(bytes, 1 << 20) {
        batch(entry.payload);
    }
    let (kind, payload) = match Unit::decode(bytes) {
        Ok(unit) => (Some(unit.kind), unit.payload),
        Err(_) => (None, bytes),
    };
    if kind.is_none_or(|kind| kind == UnitKind::Superblock)
        && let Ok(superblock) = Superblock::decode(payload)
    {
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
    let _ = decode_snapshot_end(payload);
    if let Ok((_, fragments)) = decode_batch(payload) {
        assert!(fragments.iter().all(|found| payload[found.offset..].starts_with(found.bytes)));
    }
    if let Ok(records) = decode_records(payload) {
        let mut again = Vec::new();
        records.iter().for_each(|record| encode_record(&mut again, record));
        assert_eq!(again, payload);
        assert_eq!(records.iter().map(record_bytes).sum::<usize>(), payload.len());
    }
}

/// Questions to a writer and their answers; what decodes must encode to an equal one.
pub fn question(bytes: &[u8]) {
    if let Ok(question) = decode_question(bytes) {
        let again = encode_question(&question).and_then(|bytes| decode_question(&bytes));
        assert_eq!(again, Ok(question));
    }
    if let Ok(answer) = decode_answer(bytes) {
        let again = encode_answer(&answer).and_then(|bytes| decode_answer(&bytes));
        assert_eq!(again, Ok(answer));
    }
}

/// Pins, headers of checkpoints, incarnation records and markers of cold stores; what decodes must
/// encode to an equal one.
pub fn pin(bytes: &[u8]) {
    if let Ok(pin) = decode_pin(bytes) {
        let again = encode_pin(&pin).and_then(|bytes| decode_pin(&bytes));
        assert_eq!(again, Ok(pin));
    }
    if let Ok((checkpoint, length)) = CheckpointHeader::decode(bytes) {
        let again = checkpoint.encode().and_then(|bytes| CheckpointHeader::decode(&bytes));
        assert_eq!(again, Ok((checkpoint, length)));
    }
    if let Ok(incarnation) = decode_incarnation(bytes) {
        assert_eq!(decode_incarnation(&encode_incarnation(incarnation)), Ok(incarnation));
    }
    if let Ok(marker) = decode_marker(bytes) {
        assert_eq!(decode_marker(&encode_marker(marker)), Ok(marker));
    }
}

/// Manifest records; what decodes must encode to the same bytes, its reserved feature bits apart.
pub fn manifest_record(bytes: &[u8]) {
    let _ = decode_edit(&mut Reader::new(bytes));
    if let Ok(record) = decode_record(bytes) {
        let again = encode_record(&record).expect("what was decoded is within the limits");
        assert_eq!(decode_record(&again), Ok(record));
    }
}

/// Manifest snapshots, in two pieces.
pub fn manifest_snapshot(bytes: &[u8]) {
    let word = |at: usize| {
        bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    };
    let mut decoder =
        SnapshotDecoder::new(SnapshotIdentity { incarnation: word(32), slot: word(40), random: word(48) });
    let (mut edits, (first, second)) = (Vec::new(), bytes.split_at(bytes.len() / 2));
    let sound = decoder.push(first, &mut edits).and_then(|()| decoder.push(second, &mut edits));
    if sound.is_ok() {
        let _ = decoder.finish(bytes.len() as u64, 0);
    }
}

/// Regions of a flash cache, of the id that they state: by their footer, and record by record. An
/// index that decodes must encode to the same bytes, its reserved ones apart.
pub fn flash_region(bytes: &[u8]) {
    let id = RegionHeader::decode(bytes).map_or(1, |header| header.id);
    let mut at = REGION_HEADER_BYTES as u64;
    while let Some(rest) =
        usize::try_from(at).ok().and_then(|at| bytes.get(at..)).filter(|rest| !rest.is_empty())
    {
        let Ok(record) = FlashRecord::decode(rest, id, at as u32) else { break };
        assert_eq!(rest[..FLASH_RECORD_BYTES], record.encode(id));
        assert!(record.end() >= at + FLASH_RECORD_BYTES as u64);
        at = record.end();
    }
    let Some((before, footer)) = bytes.split_last_chunk::<REGION_FOOTER_BYTES>() else { return };
    let Ok(footer) = RegionFooter::decode(footer, id, bytes.len() as u64) else { return };
    let index = &before[footer.index_offset as usize..];
    let Ok(records) = footer.records(index, id) else { return };
    assert_eq!(encode_region_end(id, footer.index_offset, &records)[..index.len()], *index);
}

/// Data blocks: walks forward and backward, and seeks to what it found.
pub fn block(bytes: &[u8]) {
    let Ok(block) = Block::new(Bytes::copy_from_slice(bytes)) else { return };
    let _ = block.verify(|_, _| Ok(()));
    let mut keys = vec![(bytes.get(..9.min(bytes.len())).unwrap_or_default().to_vec(), Trailer::FIRST)];
    let mut cursor = Cursor::new();
    let mut steps = 0;
    if cursor.first(&block).is_ok() {
        while cursor.valid() && steps <= bytes.len() {
            keys.push((cursor.key().user_key.to_vec(), cursor.key().trailer));
            let _ = cursor.value(&block);
            steps += 1;
            if cursor.next(&block).is_err() {
                break;
            }
        }
    }
    assert!(steps <= bytes.len(), "each entry takes at least a byte");
    if cursor.last(&block).is_ok() {
        for _ in 0..64 {
            if !cursor.valid() || cursor.prev(&block).is_err() {
                break;
            }
        }
    }
    for (user_key, trailer) in keys.iter().take(64) {
        let target = InternalKey::new(user_key, *trailer);
        let _ = block.get(target);
        let _ = block.at_or_after(target);
        let _ = cursor.seek(&block, target);
        let _ = cursor.seek_before(&block, target);
    }
}

/// Filters, and the values of index entries.
pub fn filter_and_index(bytes: &[u8]) {
    let _ = decode_block_handle(bytes, u64::MAX);
    let _ = PartitionHandle::decode(bytes, u64::MAX).map(PartitionHandle::length);
    if let Ok(filter) = Filter::new(Bytes::copy_from_slice(bytes)) {
        for hash in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let _ = filter.may_contain(hash);
        }
    }
}

/// Tables: opens them by their footer and reads every block that the index names.
pub fn table(bytes: &[u8]) {
    if let Ok(collected) = decode_collected(bytes) {
        assert_eq!(encode_collected(&collected).expect("within its limits"), bytes);
    }
    let _ = Properties::decode(bytes);
    let Ok(footer) = Footer::decode(bytes) else { return };
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(top) = Top::decode(&bytes, bytes.len() as u64, footer.identity) else { return };
    let _ = crate::table::verify(&bytes, &top, |_, _| Ok(()));
}

/// Value objects, of the identity that they state, walked record by record; references, and what
/// tables refer to. What decodes must encode to the same bytes.
pub fn value_object(bytes: &[u8]) {
    if let Ok(reference) = Reference::decode(bytes) {
        assert_eq!(reference.encode()[..], *bytes);
    }
    if let Ok(referred) = decode_referred(bytes) {
        assert_eq!(encode_referred(&referred)[..], *bytes);
    }
    let bytes = Bytes::copy_from_slice(bytes);
    for alignment in [1, 64] {
        let reference = Reference {
            object: 7,
            offset: 40,
            record_bytes: bytes.len() as u32,
            value_bytes: 0,
            checksum: 0,
        };
        let _ = reference.believing(&bytes).open(&bytes, b"key", alignment);
    }
    let Ok(header) = ValueObjectHeader::decode(&bytes) else { return };
    let Ok(mut checker) = ValueObjectChecker::begin(&bytes, header.keyspace, header.identity) else { return };
    loop {
        let rest = bytes.slice(checker.at() as usize..);
        match checker.next(&rest, bytes.len() as u64) {
            Ok(Next::Record(length)) => {
                if checker.record(&rest.slice(..length as usize)).is_err() {
                    return;
                }
            }
            Ok(Next::Footer) => {
                let _ = checker.end(&rest);
                return;
            }
            Err(_) => return,
        }
    }
}

/// Blocks of range deletes; what decodes must encode to the same bytes, and covers what it lists.
pub fn ranges(bytes: &[u8]) {
    let Ok(ranges) = RangeLayers::decode(bytes) else { return };
    let again = ranges.encode().and_then(|bytes| RangeLayers::decode(&bytes));
    assert_eq!(again.as_ref(), Ok(&ranges));
    for range in ranges.iter() {
        assert!(ranges.covered(range.from, range.number).is_some_and(|found| found.number == range.number));
    }
}

/// Frames of traces, one after the other, whatever their checksums say of the payload. Events that
/// decode come back when they are written and read again.
pub fn trace(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(head) = TraceFrame::decode(rest) {
        let Some(payload) = rest[TRACE_FRAME_BYTES..].get(..head.payload_bytes as usize) else { return };
        let _ = (head.check(payload), Header::decode(payload), decode_name(payload), End::decode(payload));
        if let Ok(entries) = decode_index(payload) {
            assert_eq!(encode_index(&entries)[TRACE_FRAME_BYTES..], *payload);
        }
        let mut block = EventBlock::default();
        if block.decode(&head, payload).is_ok() {
            trace_again(&block);
        }
        rest = &rest[TRACE_FRAME_BYTES + payload.len()..];
    }
}

fn trace_again(block: &EventBlock) {
    let mut builder = BlockBuilder::default();
    if !block.iter().all(|event| builder.push(&event).is_ok()) {
        return;
    }
    let (again, mut read) = (builder.finish(), EventBlock::default());
    let head = TraceFrame::decode(&again).expect("it was just written");
    read.decode(&head, &again[TRACE_FRAME_BYTES..]).expect("it was just written");
    assert!(block.iter().eq(read.iter()));
}

/// Stored blocks and compressed payloads.
pub fn compression(bytes: &[u8]) {
    let shared = Bytes::copy_from_slice(bytes);
    let opened = stored::open(&shared, 7, 0);
    if let Ok(sealed) = stored::Sealed::check(bytes, 7, 0) {
        // A look-up that leaves out most of the values finds what the whole block has, or both say
        // that something is wrong.
        let target = InternalKey::new(b"k\x07", Trailer(u64::MAX));
        let mut room = Vec::new();
        if let (Ok(found), Ok(raw)) = (sealed.get(target, &mut room), opened)
            && let Ok(block) = Block::new(raw)
        {
            let found = found.map(|(trailer, value)| (trailer, room[value].to_vec()));
            assert_eq!(
                block.get(target).map(|entry| entry.map(|entry| (entry.trailer, entry.value.to_vec()))),
                Ok(found)
            );
        }
    }
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        if let Ok(raw) = decompress(compression, bytes, 1 << 20) {
            assert!(raw.len() <= (1 << 20).max(bytes.len()));
        }
    }
}

#[cfg(test)]
mod tests;
