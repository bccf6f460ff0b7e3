//! A table as the engine uses it.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::{Incarnation, Life, ObjectKind, ObjectStore, Placement, Purpose, Request, Result};

use crate::manifest::names;
use crate::options::KeyspaceOptions;

/// Where tables are read from and written to.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) env: Env,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) incarnation: Incarnation,
    pub(crate) epoch: tombolo_storage::Epoch,
}

/// What a table knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Nothing.
    Absent,
    /// That it was deleted.
    Deleted,
    /// Its value.
    Value(Bytes),
}

/// What a verification has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
}

type Entries = Arc<Vec<(Bytes, Trailer, Bytes)>>;

/// A table that a version names.
#[derive(Debug)]
pub(crate) struct TableHandle {
    tables: Tables,
    description: Arc<TableDescription>,
    entries: Mutex<Option<Entries>>,
}

impl TableHandle {
    pub(crate) fn new(tables: &Tables, description: Arc<TableDescription>) -> TableHandle {
        TableHandle { tables: tables.clone(), description, entries: Mutex::default() }
    }

    #[inline]
    pub(crate) fn description(&self) -> &Arc<TableDescription> {
        &self.description
    }

    async fn load(&self, purpose: Purpose) -> Result<Entries> {
        if let Some(entries) = &*self.entries.lock() {
            return Ok(Arc::clone(entries));
        }
        let name = names::table(self.tables.incarnation, self.description.name);
        let request = Request::new(purpose, self.tables.epoch);
        let bytes = self.tables.objects.read(request, &name, 0..self.description.length).await?;
        let mut entries = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
            let (trailer, key_bytes, value_bytes) = (Trailer(word(at)), word(at + 8) as usize, word(at + 16) as usize);
            at += 24;
            entries.push((bytes.slice(at..at + key_bytes), trailer, bytes.slice(at + key_bytes..at + key_bytes + value_bytes)));
            at += key_bytes + value_bytes;
        }
        let entries = Arc::new(entries);
        *self.entries.lock() = Some(Arc::clone(&entries));
        Ok(entries)
    }

    /// Looks a key up in memory; `None` when that takes a request.
    pub(crate) fn get_in_memory(&self, key: &[u8], sequence: SequenceNumber) -> Option<Result<Lookup>> {
        let entries = self.entries.lock().clone()?;
        Some(Ok(find(&entries, key, sequence)))
    }

    /// Looks a key up.
    pub(crate) async fn get(&self, key: &[u8], sequence: SequenceNumber) -> Result<Lookup> {
        Ok(find(&*self.load(Purpose::Get).await?, key, sequence))
    }

    /// Reads and checks all of it.
    pub(crate) async fn verify(&self) -> Result<Verified> {
        let entries = self.load(Purpose::Verify).await?;
        Ok(Verified { blocks: 1, entries: entries.len() as u64 })
    }

    /// A cursor that stands nowhere.
    pub(crate) fn cursor(self: &Arc<Self>, purpose: Purpose) -> TableCursor {
        TableCursor { table: Arc::clone(self), purpose, entries: Arc::default(), at: None }
    }
}

fn find(entries: &[(Bytes, Trailer, Bytes)], key: &[u8], sequence: SequenceNumber) -> Lookup {
    let seek = Trailer::seek(sequence);
    let index = entries.partition_point(|(found, trailer, _)| (&found[..], std::cmp::Reverse(*trailer)) < (key, std::cmp::Reverse(seek)));
    match entries.get(index) {
        Some((found, trailer, value)) if found == key => match trailer.kind() {
            Some(EntryKind::Put) => Lookup::Value(value.clone()),
            _ => Lookup::Deleted,
        },
        _ => Lookup::Absent,
    }
}

/// Walks a table both ways.
#[derive(Clone, Debug)]
pub(crate) struct TableCursor {
    table: Arc<TableHandle>,
    purpose: Purpose,
    entries: Entries,
    at: Option<usize>,
}

impl TableCursor {
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], Trailer)> {
        self.at.map(|at| (&self.entries[at].0[..], self.entries[at].1))
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.at.map_or(&[], |at| &self.entries[at].2[..])
    }

    pub(crate) fn value_bytes(&self) -> Bytes {
        self.at.map_or_else(Bytes::new, |at| self.entries[at].2.clone())
    }

    pub(crate) async fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.entries = self.table.load(self.purpose).await?;
        let at = self.position(key, trailer);
        self.at = (at < self.entries.len()).then_some(at);
        Ok(())
    }

    pub(crate) async fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.entries = self.table.load(self.purpose).await?;
        self.at = self.position(key, trailer).checked_sub(1);
        Ok(())
    }

    fn position(&self, key: &[u8], trailer: Trailer) -> usize {
        self.entries.partition_point(|(found, other, _)| (&found[..], std::cmp::Reverse(*other)) < (key, std::cmp::Reverse(trailer)))
    }

    pub(crate) async fn first(&mut self) -> Result<()> {
        self.seek(&[], Trailer::FIRST).await
    }

    pub(crate) async fn last(&mut self) -> Result<()> {
        self.entries = self.table.load(self.purpose).await?;
        self.at = self.entries.len().checked_sub(1);
        Ok(())
    }

    pub(crate) async fn next(&mut self) -> Result<()> {
        self.at = self.at.map(|at| at + 1).filter(|at| *at < self.entries.len());
        Ok(())
    }

    pub(crate) async fn prev(&mut self) -> Result<()> {
        self.at = self.at.and_then(|at| at.checked_sub(1));
        Ok(())
    }
}

/// Writes a table, entries in order.
#[derive(Debug)]
pub(crate) struct TableWriter {
    tables: Tables,
    description: TableDescription,
    bytes: BytesMut,
    purpose: Purpose,
}

impl TableWriter {
    pub(crate) fn new(
        tables: &Tables,
        name: TableName,
        keyspace: u32,
        level: u8,
        _options: &KeyspaceOptions,
        purpose: Purpose,
    ) -> TableWriter {
        let description = TableDescription {
            name,
            offset: 0,
            length: 0,
            identity: tables.env.random_u64(),
            keyspace,
            level,
            first_key: Bytes::new(),
            last_key: Bytes::new(),
            first_sequence: SequenceNumber::MAX,
            last_sequence: SequenceNumber::ZERO,
            entries: 0,
            deletes: 0,
            tail_bytes: 0,
            oldest_unix_seconds: tables.env.unix_time().as_secs(),
        };
        TableWriter { tables: tables.clone(), description, bytes: BytesMut::new(), purpose }
    }

    pub(crate) async fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if self.description.entries == 0 {
            self.description.first_key = Bytes::copy_from_slice(key);
        }
        self.description.last_key = Bytes::copy_from_slice(key);
        self.description.entries += 1;
        self.description.deletes += u64::from(trailer.kind().is_some_and(EntryKind::is_delete));
        self.description.first_sequence = self.description.first_sequence.min(trailer.sequence());
        self.description.last_sequence = self.description.last_sequence.max(trailer.sequence());
        self.bytes.put_u64_le(trailer.0);
        self.bytes.put_u64_le(key.len() as u64);
        self.bytes.put_u64_le(value.len() as u64);
        self.bytes.put_slice(key);
        self.bytes.put_slice(value);
        Ok(())
    }

    /// Bytes written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Makes the table durable. Nothing but its description names it.
    pub(crate) async fn finish(mut self) -> Result<TableDescription> {
        self.description.length = self.bytes.len() as u64;
        let name = names::table(self.tables.incarnation, self.description.name);
        let request = Request::new(self.purpose, self.tables.epoch);
        let placement = Placement { level: self.description.level, ..Placement::new(ObjectKind::Table, Life::Medium) };
        let mut writer = self.tables.objects.create(request, &name, placement).await?;
        writer.append(self.bytes.freeze()).await?;
        writer.finish().await?;
        Ok(self.description)
    }
}
