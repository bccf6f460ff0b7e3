//! Bytes of edits.

use bytes::Bytes;

use super::mark::{Mark, MarkKind};
use super::{
    Edit, LogRole, MAIN_STREAM, PLACE_BYTES_MAX, Source, TableDescription, TableName, TableSource,
    WRITER_TEXT_BYTES_MAX, Writer,
};
use crate::codec::{Reader, put_prefixed};
use crate::cold::{Aged, ColdStore};
use crate::error::{FormatError, Result};
use crate::expiry::Times;
use crate::key::{KEY_BYTES_MAX, SequenceNumber, check_entry_features};
use crate::keyspace::{KEYSPACE_NAME_BYTES_MAX, put_options, read_options};
use crate::property::{PROPERTIES_BYTES_MAX, PropertyList};

/// Most bytes of an edit's body.
pub const EDIT_BYTES_MAX: usize = 4 << 20;

/// Most bytes of a log store's identity.
const LOG_IDENTITY_BYTES_MAX: usize = 4096;
/// Most bytes of a log's configuration.
const CONFIGURATION_BYTES_MAX: usize = 64 << 10;
/// Tag, reserved byte, length.
const EDIT_HEADER_BYTES: usize = 6;

const DATABASE_CREATED: u8 = 1;
const KEYSPACE_CREATED: u8 = 2;
const KEYSPACE_DROPPED: u8 = 3;
const KEYSPACE_FLUSHED: u8 = 4;
const TABLE_ADDED: u8 = 5;
const TABLE_MOVED: u8 = 6;
const TABLE_OBSOLETE: u8 = 7;
const TABLE_CONDEMNED: u8 = 8;
const TABLE_UNNAMED: u8 = 9;
const LOG_NAMED: u8 = 10;
const LOG_SEALED: u8 = 11;
const LOG_REPLAY_POINT: u8 = 12;
const LOG_UNNAMED: u8 = 13;
const STREAM_REACHED: u8 = 14;
const KEYSPACE_CHANGED: u8 = 15;
const LOG_TRIMMED: u8 = 16;
const SOURCE_NAMED: u8 = 17;
const SOURCE_UNNAMED: u8 = 18;
const TABLE_OF_SOURCE_ADDED: u8 = 19;
const WRITER_NAMED: u8 = 20;
const WRITER_CLOSED: u8 = 21;
const TABLE_STAGED: u8 = 22;
const STAGED_TABLE_LIVE: u8 = 23;
const KEYSPACE_EMPTIED: u8 = 24;
const TIME: u8 = 25;
const COLD_STORE_NAMED: u8 = 26;
const AGED: u8 = 27;
const MARKED: u8 = 28;
const TAG_MAX: u8 = MARKED;

const MARK_NONE: u8 = 0;
const MARK_MIRROR: u8 = 1;
const MARK_MOVING: u8 = 2;
const MARK_MOVED: u8 = 3;
const MARK_MAX: u8 = MARK_MOVED;

const ROLE_MAIN: u8 = 1;
const ROLE_APPLICATION: u8 = 2;
const ROLE_STREAM: u8 = 3;
const ROLE_MAX: u8 = ROLE_STREAM;

/// Appends an edit.
///
/// # Errors
/// `Limit` when a name, key or configuration is too long; `out` is as before.
pub fn encode_edit(edit: &Edit, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; EDIT_HEADER_BYTES]);
    let tag = match encode_body(edit, out) {
        Ok(tag) => tag,
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    };
    let body = (out.len() - start - EDIT_HEADER_BYTES) as u32;
    out[start] = tag;
    out[start + 2..start + EDIT_HEADER_BYTES].copy_from_slice(&body.to_le_bytes());
    Ok(())
}

fn encode_body(edit: &Edit, out: &mut Vec<u8>) -> Result<u8> {
    let mut body = Body(out);
    Ok(match edit {
        Edit::DatabaseCreated { id, log_identity, created_unix_seconds } => {
            body.u64(*id);
            body.u64(*created_unix_seconds);
            body.bytes(log_identity.as_bytes(), LOG_IDENTITY_BYTES_MAX, "a log identity")?;
            DATABASE_CREATED
        }
        Edit::KeyspaceCreated { id, name, stream, options } => {
            body.u32(*id);
            body.u32(*stream);
            body.bytes(name.as_bytes(), KEYSPACE_NAME_BYTES_MAX, "a keyspace name")?;
            put_options(body.0, options)?;
            KEYSPACE_CREATED
        }
        Edit::KeyspaceDropped { id } => {
            body.u32(*id);
            KEYSPACE_DROPPED
        }
        Edit::KeyspaceFlushed { id, sequence } => {
            body.u32(*id);
            body.u64(sequence.0);
            KEYSPACE_FLUSHED
        }
        Edit::TableAdded(table) => {
            body.table(table)?;
            match table.source {
                None => TABLE_ADDED,
                Some(TableSource { source, name }) => {
                    body.u32(source);
                    body.name(name);
                    TABLE_OF_SOURCE_ADDED
                }
            }
        }
        Edit::TableStaged(table) => {
            body.table(table)?;
            TABLE_STAGED
        }
        Edit::StagedTableLive { name, level, sequence } => {
            body.name(*name);
            body.0.push(*level);
            body.u64(sequence.0);
            STAGED_TABLE_LIVE
        }
        Edit::KeyspaceEmptied { id } => {
            body.u32(*id);
            KEYSPACE_EMPTIED
        }
        Edit::TableMoved { name, level } => {
            body.name(*name);
            body.0.push(*level);
            TABLE_MOVED
        }
        Edit::TableObsolete { name } => {
            body.name(*name);
            TABLE_OBSOLETE
        }
        Edit::TableCondemned { name } => {
            body.name(*name);
            TABLE_CONDEMNED
        }
        Edit::TableUnnamed { name } => {
            body.name(*name);
            TABLE_UNNAMED
        }
        Edit::LogNamed { epoch, lane, role, configuration } => {
            body.log(*epoch, *lane);
            body.role(*role);
            body.bytes(configuration, CONFIGURATION_BYTES_MAX, "a log configuration")?;
            LOG_NAMED
        }
        Edit::LogSealed { epoch, lane, length } => {
            body.log(*epoch, *lane);
            body.u64(*length);
            LOG_SEALED
        }
        Edit::LogReplayPoint { epoch, lane, offset } => {
            body.log(*epoch, *lane);
            body.u64(*offset);
            LOG_REPLAY_POINT
        }
        Edit::LogTrimmed { epoch, lane, entries } => {
            body.log(*epoch, *lane);
            body.u64(*entries);
            LOG_TRIMMED
        }
        Edit::LogUnnamed { epoch, lane } => {
            body.log(*epoch, *lane);
            LOG_UNNAMED
        }
        Edit::SourceNamed(Source { number, place, incarnation, database, pin }) => {
            body.u32(*number);
            body.u64(*incarnation);
            body.u64(*database);
            body.0.extend_from_slice(&pin.to_le_bytes());
            body.bytes(place.as_bytes(), PLACE_BYTES_MAX, "a source's place")?;
            SOURCE_NAMED
        }
        Edit::SourceUnnamed { number } => {
            body.u32(*number);
            SOURCE_UNNAMED
        }
        Edit::WriterNamed { epoch, writer } => {
            body.u64(*epoch);
            body.writer(writer)?;
            WRITER_NAMED
        }
        Edit::WriterClosed => WRITER_CLOSED,
        Edit::Time { times, is_set } => {
            body.u64(times.reached_ms);
            body.u64(times.bound_ms);
            body.u64(times.settled_ms);
            body.0.push(u8::from(*is_set));
            TIME
        }
        Edit::ColdStoreNamed(ColdStore { id, database, place, is_own }) => {
            body.u64(*id);
            body.u64(*database);
            body.0.push(u8::from(*is_own));
            body.bytes(place.as_bytes(), PLACE_BYTES_MAX, "a cold store's place")?;
            COLD_STORE_NAMED
        }
        Edit::Aged { stream, aged } => {
            body.u32(*stream);
            body.u64(aged.sequence);
            body.u64(aged.unix_seconds);
            AGED
        }
        Edit::Marked(mark) => {
            body.mark(mark.as_ref())?;
            MARKED
        }
        Edit::StreamReached { stream, sequence } => {
            body.u32(*stream);
            body.u64(sequence.0);
            STREAM_REACHED
        }
        Edit::KeyspaceChanged { id, options } => {
            body.u32(*id);
            put_options(body.0, options)?;
            KEYSPACE_CHANGED
        }
    })
}

/// Appends who writes.
///
/// # Errors
/// `Limit` when a name is too long.
pub(super) fn encode_writer(writer: &Writer, out: &mut Vec<u8>) -> Result<()> {
    Body(out).writer(writer)
}

/// Reads who writes.
///
/// # Errors
/// `Damaged`.
pub(super) fn decode_writer(reader: &mut Reader<'_>) -> Result<Writer> {
    let boot_id = reader.u128()?;
    let (process_namespace, process) = (reader.u64()?, reader.u32()?);
    let (process_start, since_unix_seconds) = (reader.u64()?, reader.u64()?);
    let host = reader.text(WRITER_TEXT_BYTES_MAX)?.to_owned();
    let program = reader.text(WRITER_TEXT_BYTES_MAX)?.to_owned();
    Ok(Writer { host, program, boot_id, process_namespace, process, process_start, since_unix_seconds })
}

struct Body<'a>(&'a mut Vec<u8>);

impl Body<'_> {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn name(&mut self, name: TableName) {
        self.u64(name.epoch);
        self.u64(name.random);
    }

    fn role(&mut self, role: LogRole) {
        let (role, stream) = match role {
            LogRole::Main => (ROLE_MAIN, MAIN_STREAM),
            LogRole::Application => (ROLE_APPLICATION, MAIN_STREAM),
            LogRole::Stream(stream) => (ROLE_STREAM, stream),
        };
        self.0.push(role);
        self.u32(stream);
    }

    fn mark(&mut self, mark: Option<&Mark>) -> Result<()> {
        let kind = match mark.map(|mark| mark.kind) {
            None => MARK_NONE,
            Some(MarkKind::Mirror) => MARK_MIRROR,
            Some(MarkKind::Moving) => MARK_MOVING,
            Some(MarkKind::Moved) => MARK_MOVED,
        };
        self.0.push(kind);
        let Some(mark) = mark else { return Ok(()) };
        let Mark { database, incarnation, epoch, slot, sequence, unix_ms, .. } = mark;
        [*database, *incarnation, *epoch, *slot, sequence.0, *unix_ms]
            .into_iter()
            .for_each(|it| self.u64(it));
        self.bytes(mark.place.as_bytes(), PLACE_BYTES_MAX, "the place of a mark")
    }

    fn log(&mut self, epoch: u64, lane: u32) {
        self.u64(epoch);
        self.u32(lane);
    }

    fn bytes(&mut self, bytes: &[u8], bytes_max: usize, what: &str) -> Result<()> {
        if bytes.len() > bytes_max {
            return Err(FormatError::limit(format!("{what} of {} bytes; at most {bytes_max}", bytes.len())));
        }
        put_prefixed(self.0, bytes);
        Ok(())
    }

    fn writer(&mut self, writer: &Writer) -> Result<()> {
        self.0.extend_from_slice(&writer.boot_id.to_le_bytes());
        self.u64(writer.process_namespace);
        self.u32(writer.process);
        self.u64(writer.process_start);
        self.u64(writer.since_unix_seconds);
        self.bytes(writer.host.as_bytes(), WRITER_TEXT_BYTES_MAX, "a host's name")?;
        self.bytes(writer.program.as_bytes(), WRITER_TEXT_BYTES_MAX, "a program's name")
    }

    fn table(&mut self, table: &TableDescription) -> Result<()> {
        self.name(table.name);
        self.u64(table.offset);
        self.u64(table.length);
        self.u64(table.identity);
        self.u32(table.keyspace);
        self.0.push(table.level);
        self.u64(table.first_sequence.0);
        self.u64(table.last_sequence.0);
        self.u64(table.entries);
        self.u64(table.deletes);
        self.u32(table.tail_bytes);
        self.u64(table.oldest_unix_seconds);
        self.u64(table.features);
        self.bytes(&table.first_key, KEY_BYTES_MAX, "a first key")?;
        self.bytes(&table.last_key, KEY_BYTES_MAX, "a last key")?;
        self.bytes(table.properties.bytes(), PROPERTIES_BYTES_MAX, "the properties of a table")
    }
}

/// Reads one edit.
///
/// # Errors
/// `Damaged`, or `Newer` for a tag that this version does not know, with the offset in the reader's
/// bytes.
pub fn decode_edit(reader: &mut Reader<'_>) -> Result<Edit> {
    let at = reader.position();
    let tag = reader.u8()?;
    let reserved = reader.u8()?;
    if tag == 0 {
        return Err(FormatError::damaged(at, "an edit", "tag 0"));
    }
    if tag > TAG_MAX {
        return Err(FormatError::newer(at, format!("edit with tag {tag}")));
    }
    if reserved != 0 {
        return Err(FormatError::newer(at + 1, format!("edit with unknown flags {reserved:#x}")));
    }
    let body = reader.prefixed(EDIT_BYTES_MAX)?;
    decode_body(tag, body).map_err(|error| error.shifted((at + EDIT_HEADER_BYTES) as u64))
}

fn decode_body(tag: u8, body: &[u8]) -> Result<Edit> {
    let mut reader = Reader::new(body);
    let edit = match tag {
        DATABASE_CREATED => {
            let (id, created_unix_seconds) = (reader.u64()?, reader.u64()?);
            Edit::DatabaseCreated {
                id,
                log_identity: reader.text(LOG_IDENTITY_BYTES_MAX)?.to_owned(),
                created_unix_seconds,
            }
        }
        KEYSPACE_CREATED => {
            let (id, stream) = (reader.u32()?, reader.u32()?);
            let name = reader.text(KEYSPACE_NAME_BYTES_MAX)?.to_owned();
            let options =
                read_options(&mut reader).map_err(|error| error.of(format_args!("keyspace {name:?}")))?;
            Edit::KeyspaceCreated { id, name, stream, options }
        }
        KEYSPACE_DROPPED => Edit::KeyspaceDropped { id: reader.u32()? },
        KEYSPACE_FLUSHED => Edit::KeyspaceFlushed { id: reader.u32()?, sequence: sequence(&mut reader)? },
        TABLE_ADDED => Edit::TableAdded(table(&mut reader)?),
        TABLE_STAGED => Edit::TableStaged(table(&mut reader)?),
        STAGED_TABLE_LIVE => Edit::StagedTableLive {
            name: name(&mut reader)?,
            level: reader.u8()?,
            sequence: sequence(&mut reader)?,
        },
        KEYSPACE_EMPTIED => Edit::KeyspaceEmptied { id: reader.u32()? },
        TABLE_MOVED => Edit::TableMoved { name: name(&mut reader)?, level: reader.u8()? },
        TABLE_OBSOLETE => Edit::TableObsolete { name: name(&mut reader)? },
        TABLE_CONDEMNED => Edit::TableCondemned { name: name(&mut reader)? },
        TABLE_UNNAMED => Edit::TableUnnamed { name: name(&mut reader)? },
        LOG_NAMED => Edit::LogNamed {
            epoch: reader.u64()?,
            lane: reader.u32()?,
            role: role(&mut reader)?,
            configuration: Bytes::copy_from_slice(reader.prefixed(CONFIGURATION_BYTES_MAX)?),
        },
        LOG_SEALED => Edit::LogSealed { epoch: reader.u64()?, lane: reader.u32()?, length: reader.u64()? },
        LOG_REPLAY_POINT => {
            Edit::LogReplayPoint { epoch: reader.u64()?, lane: reader.u32()?, offset: reader.u64()? }
        }
        LOG_UNNAMED => Edit::LogUnnamed { epoch: reader.u64()?, lane: reader.u32()? },
        STREAM_REACHED => Edit::StreamReached { stream: reader.u32()?, sequence: sequence(&mut reader)? },
        LOG_TRIMMED => Edit::LogTrimmed { epoch: reader.u64()?, lane: reader.u32()?, entries: reader.u64()? },
        MARKED => Edit::Marked(mark(&mut reader)?),
        KEYSPACE_CHANGED => {
            let id = reader.u32()?;
            let options =
                read_options(&mut reader).map_err(|error| error.of(format_args!("keyspace {id}")))?;
            Edit::KeyspaceChanged { id, options }
        }
        SOURCE_NAMED => {
            let number = reader.u32()?;
            let (incarnation, database, pin) = (reader.u64()?, reader.u64()?, reader.u128()?);
            Edit::SourceNamed(Source {
                number,
                place: reader.text(PLACE_BYTES_MAX)?.to_owned(),
                incarnation,
                database,
                pin,
            })
        }
        SOURCE_UNNAMED => Edit::SourceUnnamed { number: reader.u32()? },
        WRITER_NAMED => Edit::WriterNamed { epoch: reader.u64()?, writer: decode_writer(&mut reader)? },
        WRITER_CLOSED => Edit::WriterClosed,
        TIME => time(&mut reader)?,
        COLD_STORE_NAMED => cold_store(&mut reader)?,
        AGED => {
            let stream = reader.u32()?;
            let (sequence, unix_seconds) = (sequence(&mut reader)?.0, reader.u64()?);
            Edit::Aged { stream, aged: Aged { sequence, unix_seconds } }
        }
        TABLE_OF_SOURCE_ADDED => {
            let table = table(&mut reader)?;
            let source = Some(TableSource { source: reader.u32()?, name: name(&mut reader)? });
            Edit::TableAdded(TableDescription { source, ..table })
        }
        tag => return Err(FormatError::newer(0, format!("edit with tag {tag}"))),
    };
    reader.end()?;
    Ok(edit)
}

fn cold_store(reader: &mut Reader<'_>) -> Result<Edit> {
    let (id, database) = (reader.u64()?, reader.u64()?);
    let at = reader.position();
    let is_own = match reader.u8()? {
        0 => false,
        1 => true,
        other => return Err(FormatError::newer(at, format!("a cold store with unknown use {other}"))),
    };
    let place = reader.text(PLACE_BYTES_MAX)?.to_owned();
    Ok(Edit::ColdStoreNamed(ColdStore { id, database, place, is_own }))
}

fn role(reader: &mut Reader<'_>) -> Result<LogRole> {
    let at = reader.position();
    let (role, stream) = (reader.u8()?, reader.u32()?);
    match (role, stream) {
        (ROLE_MAIN, MAIN_STREAM) => Ok(LogRole::Main),
        (ROLE_APPLICATION, MAIN_STREAM) => Ok(LogRole::Application),
        (ROLE_STREAM, 1..) => Ok(LogRole::Stream(stream)),
        (role, _) if role > ROLE_MAX => Err(FormatError::newer(at, format!("a log of role {role}"))),
        other => Err(FormatError::damaged(at, "a role of a log", format!("{other:?}"))),
    }
}

fn time(reader: &mut Reader<'_>) -> Result<Edit> {
    let at = reader.position();
    let times = Times { reached_ms: reader.u64()?, bound_ms: reader.u64()?, settled_ms: reader.u64()? };
    if !times.is_sound() {
        return Err(FormatError::damaged(at, "times in order", format!("{times:?}")));
    }
    match reader.u8()? {
        set @ (0 | 1) => Ok(Edit::Time { times, is_set: set == 1 }),
        other => Err(FormatError::damaged(at + 24, "0 or 1", other.to_string())),
    }
}

fn mark(reader: &mut Reader<'_>) -> Result<Option<Mark>> {
    let at = reader.position();
    let kind = match reader.u8()? {
        MARK_NONE => return Ok(None),
        MARK_MIRROR => MarkKind::Mirror,
        MARK_MOVING => MarkKind::Moving,
        MARK_MOVED => MarkKind::Moved,
        kind => {
            return Err(FormatError::newer(at, format!("mark of kind {kind}; {MARK_MAX} is the last known")));
        }
    };
    Ok(Some(Mark {
        kind,
        database: reader.u64()?,
        incarnation: reader.u64()?,
        epoch: reader.u64()?,
        slot: reader.u64()?,
        sequence: sequence(reader)?,
        unix_ms: reader.u64()?,
        place: reader.text(PLACE_BYTES_MAX)?.to_owned(),
    }))
}

fn sequence(reader: &mut Reader<'_>) -> Result<SequenceNumber> {
    let at = reader.position();
    let value = reader.u64()?;
    if value > SequenceNumber::MAX.0 {
        return Err(FormatError::damaged(at, "a sequence number of 56 bits", value.to_string()));
    }
    Ok(SequenceNumber(value))
}

fn name(reader: &mut Reader<'_>) -> Result<TableName> {
    Ok(TableName { epoch: reader.u64()?, random: reader.u64()? })
}

fn table(reader: &mut Reader<'_>) -> Result<TableDescription> {
    let name = name(reader)?;
    let place = || format!("table {:016x}-{:016x}", name.epoch, name.random);
    Ok(TableDescription {
        name,
        offset: reader.u64()?,
        length: reader.u64()?,
        identity: reader.u64()?,
        keyspace: reader.u32()?,
        level: reader.u8()?,
        first_sequence: sequence(reader)?,
        last_sequence: sequence(reader)?,
        entries: reader.u64()?,
        deletes: reader.u64()?,
        tail_bytes: reader.u32()?,
        oldest_unix_seconds: reader.u64()?,
        features: table_features(reader).map_err(|error| error.of(place()))?,
        first_key: Bytes::copy_from_slice(reader.prefixed(KEY_BYTES_MAX)?),
        last_key: Bytes::copy_from_slice(reader.prefixed(KEY_BYTES_MAX)?),
        properties: properties(reader).map_err(|error| error.of(place()))?,
        source: None,
    })
}

fn table_features(reader: &mut Reader<'_>) -> Result<u64> {
    let at = reader.position();
    let features = reader.u64()?;
    check_entry_features(at, features)?;
    Ok(features)
}

fn properties(reader: &mut Reader<'_>) -> Result<PropertyList> {
    let bytes = reader.prefixed(PROPERTIES_BYTES_MAX)?;
    let at = reader.position() - bytes.len();
    PropertyList::decode(bytes).map_err(|error| error.shifted(at as u64))
}
