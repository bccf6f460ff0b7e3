//! Blocks of events: one column for each field, compressed by itself.
//!
//! | offset | bytes | field of a block |
//! |---|---|---|
//! | 0 | 1 | columns |
//! | 1 | 10 each | of each column: number, 1 when compressed by ZSTD, bytes, bytes as stored (u32) |
//! | | | the columns, one after the other |
//!
//! | column | each event has |
//! |---|---|
//! | 1 | time since the event before, zigzag; of the first, since the frame's first time |
//! | 2 | operation, a byte |
//! | 3 | keyspace |
//! | 4 | thread |
//! | 5, 6 | bytes of the key that it shares with the key before, and that follow |
//! | 7 | the bytes that follow, of all keys |
//! | 8, 9 | bytes of the end of the range, and the ends |
//! | 10 | bytes of the value |
//! | 11, 12 | bytes of the value as recorded, and the values |
//! | 13 | entries |
//! | 14 | found, a byte; bit 4 when it is joined to the event before |
//! | 15 | blocks read |
//! | 16 | blocks hit |
//! | 17 | latency |
//! | 18 | time to live |
//!
//! Numbers are LEB128. A column of numbers that is not there is all zeros, one of bytes has none. A
//! column that this version does not know is passed over.

use super::{
    Asked, Event, Found, FrameKind, TRACE_BLOCK_EVENTS_MAX, TRACE_PAYLOAD_BYTES_MAX, TraceFrame, frame,
};
use crate::codec::Reader;
use crate::error::{FormatError, Result};

const COLUMNS: usize = 18;
/// Those of keys, ends and values, whose bytes are all kept, zeros too.
const BYTES_COLUMNS: [usize; 3] = [7, 9, 12];
const HEAD_BYTES: usize = 10;
/// Most bytes of a column; most bytes of all keys and values that a decoder makes of a block.
const COLUMN_BYTES_MAX: usize = TRACE_PAYLOAD_BYTES_MAX;
/// Most bytes of one key or end.
const KEY_BYTES_MAX: usize = 1 << 20;
/// Below so many bytes compression is not tried.
const TRY_BYTES_MIN: usize = 64;
const JOINED: u8 = 16;
const ZSTD_LEVEL: i32 = 1;

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Columns as they are written.
#[derive(Default)]
struct Columns([Vec<u8>; COLUMNS]);

impl Columns {
    fn at(&mut self, column: usize) -> &mut Vec<u8> {
        &mut self.0[column - 1]
    }

    fn number(&mut self, column: usize, number: u64) {
        put_number(self.at(column), number);
    }
}

/// Collects events for one block; its memory is used again for the next.
#[derive(Default)]
pub struct BlockBuilder {
    columns: Columns,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    key: Vec<u8>,
    events: u32,
    bytes: usize,
    first_ns: u64,
    last_ns: u64,
    before_ns: u64,
}

impl std::fmt::Debug for BlockBuilder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("BlockBuilder")
            .field("events", &self.events)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl BlockBuilder {
    /// Events in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events as usize
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Bytes in it, about, before compression.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it should be finished before more is added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= TRACE_BLOCK_EVENTS_MAX / 4 || self.bytes >= 4 << 20
    }

    /// Adds an event.
    ///
    /// # Errors
    /// `Limit` for a key or value that a block cannot hold, or when there is no room left.
    pub fn push(&mut self, event: &Event<'_>) -> Result<()> {
        let bytes = event.key.len() + event.end.len() + event.value.len();
        let fits = self.bytes + bytes + 64 <= COLUMN_BYTES_MAX / 2 && self.len() < TRACE_BLOCK_EVENTS_MAX;
        if !fits || event.key.len().max(event.end.len()) > KEY_BYTES_MAX {
            return Err(FormatError::limit(format!("an event of {bytes} bytes in a block of a trace")));
        }
        if self.events == 0 {
            (self.first_ns, self.before_ns, self.last_ns) = (event.time_ns, event.time_ns, event.time_ns);
        }
        self.last_ns = self.last_ns.max(event.time_ns);
        let passed = event.time_ns.wrapping_sub(self.before_ns) as i64;
        self.before_ns = event.time_ns;
        let shared = self.key.iter().zip(event.key).take_while(|(before, now)| before == now).count();
        self.key.truncate(shared);
        self.key.extend_from_slice(&event.key[shared..]);
        let columns = &mut self.columns;
        columns.number(1, zigzag(passed));
        columns.at(2).push(event.asked as u8);
        columns.number(3, event.keyspace.into());
        columns.number(4, event.thread.into());
        columns.number(5, shared as u64);
        columns.number(6, (event.key.len() - shared) as u64);
        columns.at(7).extend_from_slice(&event.key[shared..]);
        columns.number(8, event.end.len() as u64);
        columns.at(9).extend_from_slice(event.end);
        columns.number(10, event.value_bytes.into());
        columns.number(11, event.value.len() as u64);
        columns.at(12).extend_from_slice(event.value);
        columns.number(13, event.entries.into());
        columns.at(14).push(event.found as u8 | if event.joined { JOINED } else { 0 });
        columns.number(15, event.blocks_read.into());
        columns.number(16, event.blocks_hit.into());
        columns.number(17, event.latency_ns);
        columns.number(18, event.ttl_ms);
        self.events += 1;
        self.bytes += bytes + 24;
        Ok(())
    }

    /// The frame of what was added; empty it is used anew.
    pub fn finish(&mut self) -> Vec<u8> {
        let (mut heads, mut data, mut count) = (Vec::new(), Vec::new(), 0);
        for (index, column) in self.columns.0.iter_mut().enumerate() {
            let holds_bytes = BYTES_COLUMNS.contains(&(index + 1)) && !column.is_empty();
            if holds_bytes || column.iter().any(|byte| *byte != 0) {
                count += 1;
                let stored = compress(&mut self.zstd, column);
                heads.push(index as u8 + 1);
                heads.push(u8::from(stored.is_some()));
                let bytes = stored.as_deref().unwrap_or(column);
                heads.extend_from_slice(&(column.len() as u32).to_le_bytes());
                heads.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                data.extend_from_slice(bytes);
            }
            column.clear();
        }
        let mut payload = Vec::with_capacity(1 + heads.len() + data.len());
        payload.push(count);
        payload.extend_from_slice(&heads);
        payload.extend_from_slice(&data);
        let whole = frame(FrameKind::Events, &payload, self.events, self.first_ns, self.last_ns);
        self.key.clear();
        (self.events, self.bytes) = (0, 0);
        whole
    }
}

fn compress(zstd: &mut Option<zstd::bulk::Compressor<'static>>, column: &[u8]) -> Option<Vec<u8>> {
    if column.len() < TRY_BYTES_MIN {
        return None;
    }
    if zstd.is_none() {
        *zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
    }
    let stored = zstd.as_mut()?.compress(column).ok()?;
    (stored.len() < column.len()).then_some(stored)
}

/// Fields of fixed size, and where the rest lies.
#[derive(Clone, Copy, Debug)]
struct Row {
    time_ns: u64,
    latency_ns: u64,
    ttl_ms: u64,
    keyspace: u32,
    thread: u32,
    value_bytes: u32,
    entries: u32,
    blocks_read: u32,
    blocks_hit: u32,
    /// Ends of its key, end and value in the arenas.
    key_end: u32,
    end_end: u32,
    value_end: u32,
    asked: Asked,
    found: Found,
    joined: bool,
}

/// A decoded block.
#[derive(Debug, Default)]
pub struct EventBlock {
    rows: Vec<Row>,
    keys: Vec<u8>,
    ends: Vec<u8>,
    values: Vec<u8>,
}

/// A column that is read: all zeros when it is not there.
struct Numbers<'a> {
    bytes: Option<&'a [u8]>,
    at: usize,
    column: usize,
}

impl Numbers<'_> {
    #[inline]
    fn next(&mut self) -> Result<u64> {
        let Some(bytes) = self.bytes else { return Ok(0) };
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(byte) = bytes.get(self.at) else { break };
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged("a number"))
    }

    fn next_u32(&mut self) -> Result<u32> {
        let number = self.next()?;
        u32::try_from(number).map_err(|_| self.damaged("a number of 32 bits"))
    }

    #[inline]
    fn byte(&mut self) -> Result<u8> {
        let Some(bytes) = self.bytes else { return Ok(0) };
        let byte = bytes.get(self.at).copied();
        self.at += 1;
        byte.ok_or_else(|| self.damaged("a byte"))
    }

    fn take(&mut self, count: usize) -> Result<&[u8]> {
        if count == 0 {
            return Ok(&[]);
        }
        let taken = self.bytes.and_then(|bytes| bytes.get(self.at..)?.get(..count));
        match taken {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(self.damaged("more bytes")),
        }
    }

    #[cold]
    fn damaged(&self, expected: &'static str) -> FormatError {
        FormatError::damaged(0, expected, format!("byte {} of column {}", self.at, self.column))
    }
}

impl EventBlock {
    /// Reads the payload of a frame of events, which [`TraceFrame::check`] has checked. What the
    /// block held before goes; its memory is used again.
    ///
    /// # Errors
    /// `Damaged`; `Newer` for an operation that this version does not know.
    pub fn decode(&mut self, head: &TraceFrame, payload: &[u8]) -> Result<()> {
        let events = head.events as usize;
        if events > TRACE_BLOCK_EVENTS_MAX {
            let expected = format!("at most {TRACE_BLOCK_EVENTS_MAX} events");
            return Err(FormatError::damaged(12, expected, events.to_string()));
        }
        let columns = read_columns(payload)?;
        let mut all: [Numbers<'_>; COLUMNS] = std::array::from_fn(|index| Numbers {
            bytes: columns[index].as_deref(),
            at: 0,
            column: index + 1,
        });
        let [
            times,
            operations,
            keyspaces,
            threads,
            shared,
            lengths,
            tails,
            end_lengths,
            ends,
            sizes,
            value_lengths,
            values,
            entries,
            found,
            reads,
            hits,
            latencies,
            lives,
        ] = &mut all;
        self.rows.clear();
        self.rows.reserve(events);
        for arena in [&mut self.keys, &mut self.ends, &mut self.values] {
            arena.clear();
        }
        let (mut time_ns, mut before) = (head.first_ns, 0);
        for _ in 0..events {
            time_ns = time_ns.wrapping_add(unzigzag(times.next()?) as u64);
            let byte = operations.byte()?;
            let asked = Asked::from_byte(byte)
                .ok_or_else(|| FormatError::newer(0, format!("an operation of kind {byte}")))?;
            let (common, length) = (shared.next()? as usize, lengths.next()? as usize);
            let key_length = self.keys.len() - before;
            if common > key_length || length > KEY_BYTES_MAX {
                return Err(shared.damaged("a key that shares no more than there is"));
            }
            let from = before;
            before = self.keys.len();
            if before + common + length > COLUMN_BYTES_MAX {
                return Err(FormatError::damaged(0, "less bytes of keys", "more than a block holds"));
            }
            self.keys.extend_from_within(from..from + common);
            self.keys.extend_from_slice(tails.take(length)?);
            let length = end_lengths.next()? as usize;
            self.ends.extend_from_slice(ends.take(length)?);
            let length = value_lengths.next()? as usize;
            self.values.extend_from_slice(values.take(length)?);
            let bits = found.byte()?;
            self.rows.push(Row {
                time_ns,
                asked,
                keyspace: keyspaces.next_u32()?,
                thread: threads.next_u32()?,
                value_bytes: sizes.next_u32()?,
                entries: entries.next_u32()?,
                blocks_read: reads.next_u32()?,
                blocks_hit: hits.next_u32()?,
                latency_ns: latencies.next()?,
                ttl_ms: lives.next()?,
                key_end: self.keys.len() as u32,
                end_end: self.ends.len() as u32,
                value_end: self.values.len() as u32,
                joined: bits & JOINED != 0,
                found: match bits & !JOINED {
                    0 => Found::Unknown,
                    1 => Found::Yes,
                    2 => Found::No,
                    other => return Err(FormatError::newer(0, format!("found: {other}"))),
                },
            });
        }
        Ok(())
    }

    /// Events in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its events, in the order in which they were recorded.
    pub fn iter(&self) -> impl Iterator<Item = Event<'_>> {
        let (mut key, mut end, mut value) = (0, 0, 0);
        self.rows.iter().map(move |row| {
            let event = Event {
                time_ns: row.time_ns,
                asked: row.asked,
                keyspace: row.keyspace,
                thread: row.thread,
                key: &self.keys[key..row.key_end as usize],
                end: &self.ends[end..row.end_end as usize],
                value_bytes: row.value_bytes,
                value: &self.values[value..row.value_end as usize],
                entries: row.entries,
                found: row.found,
                joined: row.joined,
                blocks_read: row.blocks_read,
                blocks_hit: row.blocks_hit,
                latency_ns: row.latency_ns,
                ttl_ms: row.ttl_ms,
            };
            (key, end, value) = (row.key_end as usize, row.end_end as usize, row.value_end as usize);
            event
        })
    }
}

type Column<'a> = Option<std::borrow::Cow<'a, [u8]>>;

fn read_columns(payload: &[u8]) -> Result<[Column<'_>; COLUMNS]> {
    let mut columns: [Column<'_>; COLUMNS] = std::array::from_fn(|_| None);
    let mut heads = Reader::new(payload);
    let count = usize::from(heads.u8()?);
    let mut data = Reader::new(payload);
    data.take(1 + count * HEAD_BYTES)?;
    for _ in 0..count {
        let at = heads.position();
        let (number, encoding) = (heads.u8()?, heads.u8()?);
        let (raw, stored) = (heads.u32()? as usize, heads.u32()? as usize);
        let bytes = data.take(stored)?;
        let Some(column) = usize::from(number).checked_sub(1).and_then(|index| columns.get_mut(index)) else {
            continue;
        };
        if raw > COLUMN_BYTES_MAX {
            let expected = format!("a column of at most {COLUMN_BYTES_MAX} bytes");
            return Err(FormatError::damaged(at, expected, raw.to_string()));
        }
        *column = Some(match encoding {
            0 => bytes.into(),
            1 => {
                let whole = zstd::bulk::decompress(bytes, raw);
                let whole = whole.map_err(|error| {
                    FormatError::damaged(at, "a column compressed by ZSTD", error.to_string())
                })?;
                whole.into()
            }
            other => return Err(FormatError::newer(at + 1, format!("a column encoded by {other}"))),
        });
    }
    Ok(columns)
}
