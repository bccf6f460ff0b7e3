//! Records and snapshots of the manifest chain.
//!
//! A record is what one slot of the chain holds; a snapshot is a list of edits that builds a whole
//! state. Both carry the same edits.
//!
//! **Record** (an object of its own, at most [`RECORD_BYTES_MAX`]):
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TMBLOREC` |
//! | 8 | 4 | version (1) |
//! | 12 | 4 | bytes of the whole record |
//! | 16 | 8 | incompatible feature bits |
//! | 24 | 8 | compatible feature bits |
//! | 32 | 8 | incarnation |
//! | 40 | 8 | slot |
//! | 48 | 8 | epoch |
//! | 56 | 16 | attempt |
//! | 72 | 16 | hash of the predecessor (xxh3, 128 bits, of all its bytes) |
//! | 88 | 8 | slot of the snapshot that it builds on |
//! | 96 | 4 | kind: 1 claim, 2 edits, 3 snapshot, 4 destroyed; 5, 6, 7 the first, a further and the last part of edits |
//! | 100 | 4 | number of edits (0 of kinds 1, 3 and 4) |
//! | 104 | | of kind 1 the writer; of kinds 2 and 5 to 7 the edits; of kind 3 {slot u64, epoch u64, record hash u128, random u64, length u64, checksum u64} |
//! | −4 | 4 | CRC-32C of all before it |
//!
//! Edits beyond a record's limit are **parts**: a first one, any number of further ones and a last
//! one in consecutive slots, which take effect all together with the last. A first part that is
//! followed by anything else but a further or the last one has no effect.
//!
//! **Writer:** {boot u128, process namespace u64, process u32, process start u64, since u64, host,
//! program}. It is for liveness only: nothing safe depends on it.
//!
//! **Edit:** {tag u8, reserved u8, bytes of the body u32, body}. Text and bytes in a body have
//! their length (u32) before them.
//!
//! | tag | body |
//! |---|---|
//! | 1 database created | created u64, log identity |
//! | 2 keyspace created | id u32, stream u32, name, options ([`crate::batch`]) |
//! | 3 keyspace dropped | id u32 |
//! | 4 keyspace flushed | id u32, sequence u64 |
//! | 5 table added | name {epoch u64, random u64}, offset u64, length u64, identity u64, keyspace u32, level u8, first sequence u64, last sequence u64, entries u64, deletes u64, tail bytes u32, oldest u64, incompatible feature bits u64, first key, last key, properties |
//! | 6 table moved | name, level u8 |
//! | 7, 8, 9 table obsolete, condemned, un-named | name |
//! | 10 log named | epoch u64, lane u32, role u8 (1 main, 2 application, 3 stream), stream u32 (0 but of role 3), configuration |
//! | 11 log sealed | epoch u64, lane u32, length u64 |
//! | 12 log replay point | epoch u64, lane u32, offset u64 |
//! | 13 log un-named | epoch u64, lane u32 |
//! | 14 stream reached | stream u32, sequence u64 |
//! | 15 keyspace changed | id u32, options ([`crate::batch`]) |
//! | 16 log trimmed | epoch u64, lane u32, entries u64 |
//! | 17 source named | source u32, incarnation u64, database u64, pin u128, place |
//! | 18 source un-named | source u32 |
//! | 19 table of a source added | as 5, then source u32, the table's name there {epoch u64, random u64} |
//! | 20 writer named | epoch u64, writer; in snapshots only: records name writers by their claims |
//! | 21 writer closed | (empty) |
//! | 22 table staged | as 5: sequence numbers mean nothing yet; a level above 0: it comes to lie there, behind all that is older |
//! | 23 staged table live | name, level u8, sequence u64 |
//! | 24 keyspace emptied | id u32 |
//! | 25 time | {reached u64, bound u64, settled u64} in milliseconds, {set back u8}: [`Times`] |
//! | 26 | cold store named | id u64, database u64, own u8, place |
//! | 27 | aged | stream u32, sequence u64, seconds since the Unix epoch u64: all up to there was written by then |
//! | 28 | marked | kind u8 (0 no mark, 1 mirror, 2 moving, 3 moved); but of kind 0 {database u64, incarnation u64, epoch u64, slot u64, sequence u64, milliseconds since the Unix epoch u64}, place: [`Mark`] |
//!
//! **Properties** of a table's description are a list ([`crate::property`]) with its length (u32)
//! before it. It refuses a critical one that it does not know, and keeps the others wherever the
//! description is written again: in snapshots, checkpoints, clones and restores. Those with a value
//! are known to this version; the other ids are kept free:
//!
//! | id | critical | property |
//! |---|---|---|
//! | 1 | yes | range deletes: their number u32, at least 1; their bytes in the table u32; flags u8: 1 the table ends before its last key, where a range ends |
//! | 2 | no | when its newest data was written |
//! | 3 | yes | when its entries expire ([`crate::expiry`]) |
//! | 4 | yes | its object lies in a cold store: the store's id u64 ([`crate::cold`]) |
//! | 5 | yes | objects with values of its entries ([`crate::value_object`]) |
//! | 6 | no | sum of the hashes of its entries, as they are stored: u64, modulo 2^64 |
//! | 7 | yes | the sequence number that takes the place of all in it: u64. It has one version of each key |
//! | 8 | yes | the bounds of the keys that count |
//! | 9 | no | what a program's own collectors said of it ([`crate::collected`]) |
//! | 11 | no | the sequence numbers that cut its entries into eighths ([`crate::cold`]) |
//! | 12 | no | of which table of another database it is a copy ([`mark`]) |
//! | 13 | no | each of its entries is a value that stays, of a key of its own: they count as keys. No value |
//!
//! Feature bits of a description are those of the table's footer. First and last key are those of
//! entries and range deletes together.
//!
//! **A value object** ([`crate::value_object`]) is named as a table is, by edits 5, 7, 8, 9 and 19,
//! so that it is kept and deleted by the same rules. Its level is 255 ([`LEVEL_VALUES`]), its
//! entries are its records, its tail is its footer, its feature bits say kind 6. It is live as long
//! as a live table of its keyspace refers to it by property 5, and becomes obsolete with the edit
//! by which the last one leaves.
//!
//! Records and snapshots with edits 17 to 19 have the incompatible feature bit 0,
//! [`FEATURE_SOURCES`]: who does not know it would take tables of other databases for this one's.
//! Those with an edit 2, 10 or 14 of another stream than the main one have bit 1,
//! [`FEATURE_STREAMS`]: who does not know it would pass over the logs of those streams. Those with
//! edits 26 and 27 have bit 2, [`FEATURE_COLD`]: who does not know it would look for tables in the
//! wrong store. Those with an edit 28 have bit 3, [`FEATURE_MARKED`]: who does not know it would
//! write to a mirror, or to a database that has moved.
//!
//! **Snapshot object:** a header, then chunks, the last of them with the flag 'end'; encoded and
//! decoded chunk by chunk ([`snapshot`]).

use std::cmp::Ordering;

use bytes::Bytes;

use crate::cold::{Aged, ColdStore, EIGHTHS, PROPERTY_EIGHTHS, decode_eighths};
use crate::expiry::{Expiry, PROPERTY_EXPIRY, Times};
use crate::key::{ENTRY_FEATURES_ENDING, SequenceNumber};
pub use crate::keyspace::KeyspaceOptions;
use crate::property::{PROPERTY_ENTRY_SUM, Property, PropertyList, RangeDeletes, SEQUENCE_OVERRIDE};
use crate::value_object::{PROPERTY_VALUE_OBJECTS, Referred, decode_referred};

mod edit;
pub mod mark;
mod record;
pub mod snapshot;

pub use edit::{EDIT_BYTES_MAX, decode_edit, encode_edit};
use mark::{CopyOf, Mark, PROPERTY_COPY_OF};
pub use record::{
    RECORD_BYTES_MAX, RECORD_FEATURES_KNOWN, RECORD_HEADER_BYTES, RECORD_MAGIC, RECORD_VERSION,
    decode_record, encode_record, record_hash,
};

/// Name of a table attempt: never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The epoch that wrote it.
    pub epoch: u64,
    /// Fresh randomness of the attempt.
    pub random: u64,
}

/// Incompatible feature bit of records and snapshots: tables of other databases are named.
pub const FEATURE_SOURCES: u64 = 1;
/// Incompatible feature bit of records and snapshots: keyspaces have streams of their own, whose
/// logs are named.
pub const FEATURE_STREAMS: u64 = 2;
/// Incompatible feature bit of records and snapshots: tables lie in a cold store, or samples say
/// how old sequence numbers are.
pub const FEATURE_COLD: u64 = 4;
/// Incompatible feature bit of records and snapshots: the database is a mirror, or has moved.
pub const FEATURE_MARKED: u64 = 8;
/// The stream of keyspaces that have none of their own, and of the database itself.
pub const MAIN_STREAM: u32 = 0;
/// Most bytes of a place.
pub const PLACE_BYTES_MAX: usize = 4096;

/// Another database on the same store, of which tables are named where they lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Its number in this manifest; never used again.
    pub number: u32,
    /// Where it lies, from this database's place on (`../orders`).
    pub place: String,
    /// Its life.
    pub incarnation: u64,
    /// The random number of that life.
    pub database: u64,
    /// The pin under it that keeps the tables, of kind `Clone`.
    pub pin: u128,
}

/// A table that lies under another database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableSource {
    /// The number of its source.
    pub source: u32,
    /// Its name there.
    pub name: TableName,
}

/// The level of value objects: no table's.
pub const LEVEL_VALUES: u8 = u8::MAX;

/// What the manifest says about a table, or a value object: all that opening it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescription {
    /// The object that holds it.
    pub name: TableName,
    /// Where it begins in the object, in bytes (tables may be packed).
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its random identity, mixed into the checksum of each block.
    pub identity: u64,
    /// The keyspace it belongs to.
    pub keyspace: u32,
    /// Its level; 0 holds runs that overlap, newest by `last_sequence`.
    pub level: u8,
    /// Its smallest user key, of entries and range deletes.
    pub first_key: Bytes,
    /// Its greatest user key; or the key at which a range delete of it ends, if that is greater:
    /// see [`TableDescription::ends_before`].
    pub last_key: Bytes,
    /// Smallest sequence number in it.
    pub first_sequence: SequenceNumber,
    /// Greatest sequence number in it.
    pub last_sequence: SequenceNumber,
    /// Number of entries.
    pub entries: u64,
    /// Number of entries that delete.
    pub deletes: u64,
    /// Bytes at its end that hold index, filter, properties and footer: one request fetches them.
    pub tail_bytes: u32,
    /// When its oldest data was written, in seconds since the Unix epoch.
    pub oldest_unix_seconds: u64,
    /// Its incompatible feature bits, as its footer has them.
    pub features: u64,
    /// More about it, by properties that may be of a later version.
    pub properties: PropertyList,
    /// Where its object lies, if that is under another database; `name` is then no object's, and as
    /// fresh as one.
    pub source: Option<TableSource>,
}

impl TableDescription {
    /// Whether it is a value object and no table.
    pub fn is_values(&self) -> bool {
        self.level == LEVEL_VALUES
    }

    /// When its entries end, if any do.
    pub fn expiry(&self) -> Option<Expiry> {
        if self.features & ENTRY_FEATURES_ENDING == 0 {
            return None;
        }
        self.properties.get(PROPERTY_EXPIRY).and_then(|value| Expiry::decode(value).ok())
    }

    /// The sum of the hashes of its entries, as they are stored, if it was written with one.
    pub fn entry_sum(&self) -> Option<u64> {
        let value = self.properties.get(PROPERTY_ENTRY_SUM)?;
        value.try_into().ok().map(u64::from_le_bytes)
    }

    /// The id of the cold store in which its object lies, if it lies in one.
    #[inline]
    pub fn cold(&self) -> Option<u64> {
        self.properties.known().cold
    }

    /// Of which table of another database it is a copy, if it is one.
    pub fn copy_of(&self) -> Option<CopyOf> {
        self.properties.get(PROPERTY_COPY_OF).and_then(|value| CopyOf::decode(value).ok())
    }

    /// The sequence numbers that cut its entries into eighths, if it was written with them.
    pub fn eighths(&self) -> Option<[u64; EIGHTHS]> {
        self.properties.get(PROPERTY_EIGHTHS).and_then(|value| decode_eighths(value).ok())
    }

    /// To which value objects the table refers, by identity, ascending.
    pub fn referred(&self) -> Vec<Referred> {
        let value = self.properties.get(PROPERTY_VALUE_OBJECTS);
        let referred = value.map(decode_referred).transpose();
        debug_assert!(referred.is_ok(), "the list was checked: {referred:?}");
        referred.ok().flatten().unwrap_or_default()
    }

    /// The same table, as one that was made of a part of `whole`: it refers to no more objects of
    /// values than that does.
    #[must_use]
    pub fn referring_as(mut self, whole: &TableDescription) -> TableDescription {
        if let Some(value) = whole.properties.get(PROPERTY_VALUE_OBJECTS) {
            let property = Property { id: PROPERTY_VALUE_OBJECTS, is_critical: true, value };
            self.properties = self.properties.with(property);
        }
        self
    }

    /// A staged table as the operation of this number makes it part of the database: over all that
    /// is older, or, where it was staged for a sorted level, behind all that is there.
    #[must_use]
    pub fn ingested_at(&self, number: SequenceNumber) -> TableDescription {
        self.at_sequence(if self.level == 0 { number } else { SequenceNumber::ZERO })
    }

    /// The same table, all of it under one sequence number, whatever its entries say: so that what
    /// they say of their age is left out.
    #[must_use]
    pub fn at_sequence(&self, number: SequenceNumber) -> TableDescription {
        let value = number.0.to_le_bytes();
        let property = Property { id: SEQUENCE_OVERRIDE, is_critical: true, value: &value };
        TableDescription {
            first_sequence: number,
            last_sequence: number,
            properties: self.properties.without(PROPERTY_EIGHTHS).with(property),
            ..self.clone()
        }
    }
}

/// The keys that a table is about: those of its entries and of its range deletes. All comparisons
/// of tables and keys are made here.
impl TableDescription {
    /// The range deletes in it, if there are any.
    #[inline]
    pub fn range_deletes(&self) -> Option<RangeDeletes> {
        self.properties.known().range_deletes
    }

    /// Whether each of its entries is a value of a key of its own, and nothing else is in it.
    pub fn is_one_each(&self) -> bool {
        self.properties.known().one_each && self.range_deletes().is_none()
    }

    /// Whether all that it is about comes before `key`.
    #[inline]
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match (*self.last_key).cmp(key) {
            Ordering::Less => true,
            Ordering::Equal => self.range_deletes().is_some_and(|ranges| ranges.ends_before_last),
            Ordering::Greater => false,
        }
    }

    /// Whether it is about `key`, or about keys on both sides of it.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        *self.first_key <= *key && !self.ends_before(key)
    }

    /// Whether it may be about keys that another one is about, too.
    pub fn meets(&self, other: &TableDescription) -> bool {
        !self.ends_before(&other.first_key) && !other.ends_before(&self.first_key)
    }

    /// Whether all that it is about lies from `from` on and before `to`.
    pub fn is_within(&self, from: &[u8], to: &[u8]) -> bool {
        *from <= *self.first_key && self.ends_before(to)
    }
}

/// Most bytes of a writer's host name, and of its program's name.
pub const WRITER_TEXT_BYTES_MAX: usize = 255;

/// The process that writes. It is for liveness only: nothing safe depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// The name of its host.
    pub host: String,
    /// The name of its program.
    pub program: String,
    /// Identity of the boot of its host.
    pub boot_id: u128,
    /// The namespace in which its process number counts; 0 when it is not known.
    pub process_namespace: u64,
    /// Its process number.
    pub process: u32,
    /// When the process started, in the host's own units: tells a process number that was used
    /// again.
    pub process_start: u64,
    /// When it claimed the database, in seconds since the Unix epoch.
    pub since_unix_seconds: u64,
}

/// What a log is for. No number of a lane says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogRole {
    /// It carries the main stream.
    Main,
    /// It is the application's own.
    Application,
    /// It carries this stream, which is not the main one.
    Stream(u32),
}

/// A change of the manifest's state. Snapshots are the same edits, from nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// First edit of an incarnation: who it is, and the identity of the log store that it uses.
    DatabaseCreated {
        /// Random; names what the database keeps in places that other databases may share.
        id: u64,
        /// See `LogStore::identity`.
        log_identity: String,
        /// Seconds since the Unix epoch.
        created_unix_seconds: u64,
    },
    /// A keyspace became known to the manifest (it may have been in the log before).
    KeyspaceCreated {
        /// Its number; never used again.
        id: u32,
        /// Its name.
        name: String,
        /// The stream that orders its writes.
        stream: u32,
        /// Its options.
        options: KeyspaceOptions,
    },
    /// A keyspace was dropped; its tables become obsolete with the same record.
    KeyspaceDropped {
        /// Its number.
        id: u32,
    },
    /// A keyspace has other options from here on: tables made later follow them.
    KeyspaceChanged {
        /// Its number.
        id: u32,
        /// All its options.
        options: KeyspaceOptions,
    },
    /// Everything of a keyspace up to `sequence` is in tables.
    KeyspaceFlushed {
        /// Its number.
        id: u32,
        /// Inclusive.
        sequence: SequenceNumber,
    },
    /// A table entered the version.
    TableAdded(TableDescription),
    /// A table that was made outside lies in the database, and is not part of it yet: a log entry
    /// may make it so. The next epoch gives up those that none does.
    TableStaged(TableDescription),
    /// A staged table entered the version: a log entry has made it part of the database, under a
    /// sequence number that takes the place of all in it.
    StagedTableLive {
        /// Which.
        name: TableName,
        /// At which level.
        level: u8,
        /// The number of the log's operation.
        sequence: SequenceNumber,
    },
    /// All live tables of a keyspace left the version: others take their place with the same
    /// record.
    KeyspaceEmptied {
        /// Its number.
        id: u32,
    },
    /// A table changed its level without being rewritten.
    TableMoved {
        /// Which.
        name: TableName,
        /// To where.
        level: u8,
    },
    /// A table left the version and stays named; or a condemned one was found pinned and is
    /// obsolete again.
    TableObsolete {
        /// Which.
        name: TableName,
    },
    /// A table is about to be deleted: no pin made from here on may count on it.
    TableCondemned {
        /// Which.
        name: TableName,
    },
    /// A table is named no more; final.
    TableUnnamed {
        /// Which.
        name: TableName,
    },
    /// A log exists, or its configuration changed.
    LogNamed {
        /// Its epoch.
        epoch: u64,
        /// Its lane.
        lane: u32,
        /// What it is for; the same for as long as it is named.
        role: LogRole,
        /// The log store's own encoding.
        configuration: Bytes,
    },
    /// A fence's sealed length of an older epoch's log.
    LogSealed {
        /// Its epoch.
        epoch: u64,
        /// Its lane.
        lane: u32,
        /// The sealed length, as `LogOffset`.
        length: u64,
    },
    /// Everything of a lane before `offset` is in tables: recovery begins here.
    LogReplayPoint {
        /// Its epoch.
        epoch: u64,
        /// Its lane.
        lane: u32,
        /// As `LogOffset`.
        offset: u64,
    },
    /// The application has given up the first entries of a log of its own. Some of them may lie
    /// behind its replay point: a sync that failed has moved them since their place was told.
    LogTrimmed {
        /// Its epoch.
        epoch: u64,
        /// Its lane.
        lane: u32,
        /// How many, counted from the log's start.
        entries: u64,
    },
    /// A log is named no more; final.
    LogUnnamed {
        /// Its epoch.
        epoch: u64,
        /// Its lane.
        lane: u32,
    },
    /// Tables of another database are named from here on, which a pin of that database keeps.
    SourceNamed(Source),
    /// No table of a source is named any more, and its pin was given back; final.
    SourceUnnamed {
        /// Its number.
        number: u32,
    },
    /// The writer of an epoch: in snapshots only, as a record names it by its claim.
    WriterNamed {
        /// Its epoch.
        epoch: u64,
        /// Who it is.
        writer: Writer,
    },
    /// The writer of the record's epoch has closed the database: nobody writes until the next
    /// claim.
    WriterClosed,
    /// A stream has given out sequence numbers up to `sequence`, whatever its tables and logs hold.
    StreamReached {
        /// Its number.
        stream: u32,
        /// Inclusive.
        sequence: SequenceNumber,
    },
    /// The database's time.
    Time {
        /// All that is known of it.
        times: Times,
        /// Somebody has set it back: else no time goes back.
        is_set: bool,
    },
    /// Tables may lie in a part of another store from here on; or its place, or who writes there,
    /// has changed.
    ColdStoreNamed(ColdStore),
    /// Everything of a stream up to a sequence number was written by a time.
    Aged {
        /// Its number.
        stream: u32,
        /// Up to where, and by when.
        aged: Aged,
    },
    /// Nobody may write to the database from here on but the process that marks it, because of
    /// another database; or, without a mark, anybody may again.
    Marked(Option<Mark>),
}

impl Edit {
    /// The incompatible feature bits that a record or a snapshot with it has.
    pub fn features(&self) -> u64 {
        match self {
            Edit::SourceNamed(_) | Edit::SourceUnnamed { .. } => FEATURE_SOURCES,
            Edit::TableAdded(table) if table.source.is_some() => FEATURE_SOURCES,
            Edit::ColdStoreNamed(_) | Edit::Aged { .. } => FEATURE_COLD,
            Edit::Marked(_) => FEATURE_MARKED,
            Edit::LogNamed { role: LogRole::Stream(_), .. } => FEATURE_STREAMS,
            Edit::KeyspaceCreated { stream, .. } | Edit::StreamReached { stream, .. }
                if *stream != MAIN_STREAM =>
            {
                FEATURE_STREAMS
            }
            _ => 0,
        }
    }

    /// Those of all of them.
    pub fn features_of(edits: &[Edit]) -> u64 {
        edits.iter().fold(0, |features, edit| features | edit.features())
    }
}

/// What a slot of the chain is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Begins an epoch, whose number is the slot's, and says who writes in it. Never deleted.
    Claim(Writer),
    /// Changes the state.
    Edits(Vec<Edit>),
    /// Names a snapshot object that holds the state as of an earlier slot: edits go on while a
    /// large one is written.
    Snapshot {
        /// The state is that of this slot, below the record's own; also in the object's name.
        slot: u64,
        /// The epoch of the record in that slot.
        epoch: u64,
        /// Hash of that record's bytes: the record after it links to the snapshot by it.
        record_hash: u128,
        /// Fresh randomness in the object's name.
        random: u64,
        /// Length of the object in bytes.
        length: u64,
        /// Checksum of the whole object.
        checksum: u64,
    },
    /// Ends the incarnation.
    Destroyed,
    /// Edits that take effect together with those of the other parts, once the last one is there.
    Part(Part, Vec<Edit>),
}

/// Which part of edits that are too large for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first: earlier parts that never ended are forgotten.
    First,
    /// One after the first.
    Further,
    /// The last: all take effect.
    Last,
}

/// A slot of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The database's life.
    pub incarnation: u64,
    /// The slot's number; contiguous.
    pub slot: u64,
    /// The writer's epoch; of a claim, the slot's own number.
    pub epoch: u64,
    /// Fresh randomness of its writer, to tell one's own record from another's equal
    /// one.
    pub attempt: u128,
    /// Hash of the predecessor's bytes; 0 in the first slot.
    pub predecessor_hash: u128,
    /// The slot of the newest `Snapshot` record at or before the predecessor; 0 when there is none.
    pub snapshot_slot: u64,
    /// What it says.
    pub kind: RecordKind,
}

#[cfg(test)]
mod tests;
