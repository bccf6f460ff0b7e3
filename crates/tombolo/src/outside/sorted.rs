//! Sorted batches: entries that are sorted already become tables without a log and a memtable, and
//! all of a batch part of the database at once.
//!
//! `in memory while it is small → tables under fresh names → staged by a record → one log entry`. A
//! batch that stays small is written as any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::batch::INGESTED_TABLES_MAX;
use tombolo_format::key::{EntryKind, InternalKey, SequenceNumber, Trailer, check_entry};
use tombolo_format::manifest::TableDescription;
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Purpose, Result};

use super::ingest::{give_up, name_keyspaces, show, stage};
use crate::engine::{Engine, KeyspaceInfo};
use crate::event::Event;
use crate::options::{Durability, KeyspaceOptions};
use crate::version::{Output, TableWriter};
use crate::write::{self, Ingestion, Prepared};

/// What all keyspaces of a batch have in memory together, before the largest becomes a table: so
/// much, or this part of a memtable that is small.
const WAITING_BYTES: u64 = 1 << 20;
const WAITING_PART: u64 = 4;
/// Of many keyspaces so much for each, but no more than that part of a memtable: what comes mixed
/// becomes tables of about that size.
const WAITING_EACH: usize = 16 << 10;
/// A table is complete with so many bytes.
const TABLE_BYTES: u64 = 64 << 20;
/// Tables of a batch that are open at once, each with buffers and, on a local disk, a file: beyond
/// it the largest is complete.
const OPEN_TABLES_MAX: usize = 16;
/// What an entry in memory takes beside its bytes.
const ENTRY_BYTES: usize = size_of::<(EntryKind, usize, usize)>();

/// A sorted batch that was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Its entries.
    pub entries: u64,
    /// The tables that it became; 0 when it was small, and went through the log.
    pub tables: u64,
    /// Their bytes.
    pub table_bytes: u64,
    /// The sequence number that all of it has; 0 when it went through the log.
    pub sequence: u64,
}

/// What a batch has for one keyspace.
#[derive(Debug)]
struct Part {
    keyspace: Arc<KeyspaceInfo>,
    last: Option<Vec<u8>>,
    /// Keys and values that wait, one after the other.
    bytes: Vec<u8>,
    /// Of each the kind, and where key and value end.
    waiting: Vec<(EntryKind, usize, usize)>,
    writer: Option<TableWriter>,
    wants_flush: bool,
    tables: Vec<TableDescription>,
}

/// The entries that lie in `bytes`, one after the other.
fn entries<'a>(
    bytes: &'a [u8],
    waiting: &'a [(EntryKind, usize, usize)],
) -> impl Iterator<Item = (EntryKind, &'a [u8], &'a [u8])> {
    let mut begin = 0;
    waiting.iter().map(move |(kind, key_end, value_end)| {
        let (key, value) = (&bytes[begin..*key_end], &bytes[*key_end..*value_end]);
        begin = *value_end;
        (*kind, key, value)
    })
}

impl Part {
    fn new(keyspace: &Arc<KeyspaceInfo>) -> Part {
        Part {
            keyspace: Arc::clone(keyspace),
            last: None,
            bytes: Vec::new(),
            waiting: Vec::new(),
            writer: None,
            wants_flush: false,
            tables: Vec::new(),
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.bytes.len() + self.waiting.len() * ENTRY_BYTES
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let last = self.last.as_deref().unwrap_or_default();
        let what =
            if last == key { "a key twice in a sorted batch" } else { "keys of a sorted batch out of order" };
        Error::new(ErrorKind::Invalid, what)
            .object(format!("keyspace {:?}", self.keyspace.name))
            .expected(format!("a key after {:?}", Bytes::copy_from_slice(last)))
            .found(format!("{:?}", Bytes::copy_from_slice(key)))
            .advice("sort the entries by key, byte by byte, and keep one of each key; or write a Batch")
    }

    /// Begins a table with what waits.
    async fn spill(&mut self, engine: &Engine) -> Result<()> {
        let output = Output {
            name: engine.manifest.fresh_table_name(),
            keyspace: self.keyspace.id,
            level: 0,
            lowest: false,
            oldest_unix_seconds: None,
            table_bytes: engine.table_bytes(),
            purpose: Purpose::Flush,
        };
        // Values of staged tables lie in them.
        let options =
            KeyspaceOptions { separate_bytes: 0, ..KeyspaceOptions::clone(&self.keyspace.options()) };
        let mut writer = TableWriter::create(engine.versions.tables(), output, &options).await?;
        let (bytes, waiting) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.waiting));
        for (kind, key, value) in entries(&bytes, &waiting) {
            let trailer = Trailer::new(SequenceNumber::ZERO, kind);
            if writer.add_now(InternalKey::new(key, trailer), value)? {
                writer.flush().await?;
            }
        }
        self.writer = Some(writer);
        Ok(())
    }

    async fn finish_table(&mut self, engine: &Engine) -> Result<()> {
        self.wants_flush = false;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        if let Some(written) = crate::flush::finish(&engine.left_behind, writer).await? {
            debug_assert!(written.values.is_empty(), "values lie in their tables");
            self.tables.push(written.table);
        }
        Ok(())
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Sorted {
    engine: Arc<Engine>,
    parts: BTreeMap<u32, Part>,
    waiting_bytes: usize,
    waiting_bytes_max: usize,
    /// Up to how much that rises.
    waiting_bytes_limit: usize,
    tables_max: usize,
    entries: u64,
    /// Whether some part became a table.
    is_spilled: bool,
}

impl Drop for Sorted {
    /// What was written and not published is named by nobody.
    fn drop(&mut self) {
        for table in self.parts.values().flat_map(|part| &part.tables) {
            self.engine.left_behind.add(table.name);
        }
    }
}

impl Sorted {
    pub(crate) fn new(engine: &Arc<Engine>) -> Sorted {
        let limit = engine.options.memtable_bytes() / WAITING_PART;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Sorted {
            engine: Arc::clone(engine),
            parts: BTreeMap::new(),
            waiting_bytes: 0,
            waiting_bytes_max: bytes(WAITING_BYTES.min(limit)),
            waiting_bytes_limit: bytes(limit),
            tables_max: INGESTED_TABLES_MAX,
            entries: 0,
            is_spilled: false,
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Adds an entry; whether [`Sorted::work`] should follow.
    ///
    /// # Errors
    /// `Invalid` for a key that does not come after the last one of its keyspace, and beyond a
    /// limit; `Unsupported` for a kind that the keyspace does not take. Nothing was added.
    pub(crate) fn add(
        &mut self,
        keyspace: &Arc<KeyspaceInfo>,
        kind: EntryKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        keyspace.check_kind(kind)?;
        check_entry(kind, key, value).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        let wanted = self.parts.len() * WAITING_EACH;
        self.waiting_bytes_max = self.waiting_bytes_max.max(wanted.min(self.waiting_bytes_limit));
        let part = self.parts.entry(keyspace.id).or_insert_with(|| Part::new(keyspace));
        if part.last.as_deref().is_some_and(|last| last >= key) {
            return Err(part.out_of_order(key));
        }
        match &mut part.writer {
            Some(writer) => {
                let trailer = Trailer::new(SequenceNumber::ZERO, kind);
                part.wants_flush |= writer.add_now(InternalKey::new(key, trailer), value)?;
            }
            None => {
                part.bytes.extend_from_slice(key);
                let key_end = part.bytes.len();
                part.bytes.extend_from_slice(value);
                part.waiting.push((kind, key_end, part.bytes.len()));
                self.waiting_bytes += key.len() + value.len() + ENTRY_BYTES;
            }
        }
        let last = part.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.entries += 1;
        Ok(part.wants_flush || self.waiting_bytes >= self.waiting_bytes_max)
    }

    /// # Errors
    /// `Invalid` when it has more tables than one record can make part of the database.
    fn check_tables(&self) -> Result<()> {
        let count: usize = self.parts.values().map(|part| part.tables.len()).sum();
        if count <= self.tables_max {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, format!("a batch of {count} tables"))
            .expected(format!("at most {}", self.tables_max))
            .advice("give the entries keyspace by keyspace, or in several batches"))
    }

    /// Hands output to the store where enough waits.
    ///
    /// # Errors
    /// `Invalid` when there are too many tables; those of the store. The batch is lost.
    pub(crate) async fn work(&mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        // Down to a half at once: else each entry that follows would have the next one spilled.
        let down_to = match self.waiting_bytes >= self.waiting_bytes_max {
            true => self.waiting_bytes_max / 2,
            false => self.waiting_bytes,
        };
        while self.waiting_bytes > down_to
            && let Some(part) = self.parts.values_mut().max_by_key(|part| part.waiting_bytes())
        {
            self.is_spilled = true;
            self.waiting_bytes -= part.waiting_bytes();
            part.spill(&engine).await?;
            self.bound_open_tables(&engine).await?;
        }
        for part in self.parts.values_mut().filter(|part| part.wants_flush) {
            let Some(writer) = &mut part.writer else { continue };
            if writer.written_bytes() >= TABLE_BYTES {
                part.finish_table(&engine).await?;
                continue;
            }
            writer.flush().await?;
            part.wants_flush = false;
        }
        self.check_tables()
    }

    async fn bound_open_tables(&mut self, engine: &Engine) -> Result<()> {
        let open = |part: &&mut Part| part.writer.is_some();
        if self.parts.values_mut().filter(open).count() > OPEN_TABLES_MAX
            && let Some(part) = self
                .parts
                .values_mut()
                .filter(open)
                .max_by_key(|part| part.writer.as_ref().map_or(0, TableWriter::written_bytes))
        {
            part.finish_table(engine).await?;
        }
        Ok(())
    }

    /// Makes all of it part of the database, durably, or nothing.
    ///
    /// # Errors
    /// Those of a write, and of the store.
    pub(crate) async fn publish(mut self) -> Result<Published> {
        let engine = Arc::clone(&self.engine);
        engine.check_writable()?;
        self.parts.values().try_for_each(|part| part.keyspace.check())?;
        let published = Published { entries: self.entries, ..Published::default() };
        if !self.is_spilled {
            let mut prepared = Prepared::default();
            for part in self.parts.values() {
                let entries = entries(&part.bytes, &part.waiting);
                entries.for_each(|(kind, key, value)| prepared.push(&part.keyspace, kind, key, value));
            }
            write::write(&engine, prepared, Durability::Durable).await?;
            return Ok(published);
        }
        for part in self.parts.values_mut() {
            if !part.waiting.is_empty() {
                part.spill(&engine).await?;
            }
            part.finish_table(&engine).await?;
        }
        self.check_tables()?;
        let keyspaces: Vec<_> = self.parts.values().map(|part| Arc::clone(&part.keyspace)).collect();
        name_keyspaces(&engine, &keyspaces).await?;
        // From here on they are named, or deleted by those who name them.
        let tables: Vec<_> =
            self.parts.values_mut().flat_map(|part| std::mem::take(&mut part.tables)).collect();
        let table_bytes = tables.iter().map(|table| table.length).sum();
        let published = Published { tables: tables.len() as u64, table_bytes, ..published };
        let sequence = publish_tables(&engine, tables, keyspaces).await?;
        let Published { entries, tables, table_bytes: bytes, .. } = published;
        engine.events.tell(|| Event::Ingested { tables, bytes, entries, sequence });
        Ok(Published { sequence, ..published })
    }
}

async fn publish_tables(
    engine: &Arc<Engine>,
    tables: Vec<TableDescription>,
    keyspaces: Vec<Arc<KeyspaceInfo>>,
) -> Result<u64> {
    // A mutant: each table by itself, so that a crash leaves a part of the batch.
    if is_enabled(Mutant::SortedBatchInPieces) {
        for table in tables {
            let layers = vec![vec![table]];
            stage(engine, &layers).await?;
            let ingestion = Arc::new(Ingestion::new(layers, keyspaces.clone(), Vec::new()));
            show(engine, &ingestion).await?;
        }
        return Ok(0);
    }
    let layers = vec![tables];
    stage(engine, &layers).await?;
    let ingestion = Arc::new(Ingestion::new(layers, keyspaces, Vec::new()));
    let shown = show(engine, &ingestion).await;
    if shown.is_err() && !ingestion.may_be_logged() {
        give_up(engine, &ingestion).await;
    }
    shown?;
    Ok(ingestion.taken().map_or(0, |number| number.0))
}

#[cfg(test)]
mod tests;
