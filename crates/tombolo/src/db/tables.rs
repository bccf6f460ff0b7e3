//! The properties of each table of a keyspace, without reading it.

use bytes::Bytes;
use tombolo_format::collected::{PROPERTY_COLLECTED, decode_collected};
use tombolo_storage::{Error, Result};

use crate::db::Keyspace;
use crate::read;
use crate::version::TableHandle;

/// A table of a keyspace, as the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableProperties {
    /// The object that holds it.
    pub object: String,
    /// Its level; 0 has the newest, which may overlap.
    pub level: u8,
    /// Its bytes.
    pub bytes: u64,
    /// Its entries, deletes among them.
    pub entries: u64,
    /// Its deletes.
    pub deletes: u64,
    /// Its first key.
    pub first_key: Bytes,
    /// Its last key.
    pub last_key: Bytes,
    /// The smallest sequence number in it.
    pub first_sequence: u64,
    /// The greatest sequence number in it.
    pub last_sequence: u64,
    /// When its oldest data was written, in seconds since the Unix epoch.
    pub oldest_unix_seconds: u64,
    /// What collectors said of it, by collector and name.
    pub collected: Vec<CollectedProperty>,
}

/// What a collector said of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedProperty {
    /// The collector.
    pub collector: String,
    /// The property.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
}

impl TableProperties {
    fn of(table: &TableHandle, level: u8) -> Result<TableProperties> {
        let description = table.description();
        let collected = match description.properties.get(PROPERTY_COLLECTED) {
            None => Vec::new(),
            Some(bytes) => {
                decode_collected(bytes).map_err(|error| Error::format(table.object(), 0, error))?
            }
        };
        let own = |said: tombolo_format::collected::Collected<'_>| CollectedProperty {
            collector: said.collector.to_owned(),
            name: said.name.to_owned(),
            value: said.value.to_vec(),
        };
        Ok(TableProperties {
            object: table.object().to_string(),
            level,
            bytes: description.length,
            entries: description.entries,
            deletes: description.deletes,
            first_key: description.first_key.clone(),
            last_key: description.last_key.clone(),
            first_sequence: description.first_sequence.0,
            last_sequence: description.last_sequence.0,
            oldest_unix_seconds: description.oldest_unix_seconds,
            collected: collected.into_iter().map(own).collect(),
        })
    }
}

impl Keyspace {
    /// The properties of each of its tables, level by level from 0 on; of level 0 the newest first,
    /// of the others in the order of their keys. Makes no request. Writes in memory alone are in no
    /// table yet.
    ///
    /// # Errors
    /// `NotFound` when the keyspace was dropped; `Corrupt` when the manifest has what no collector
    /// wrote.
    pub fn table_properties(&self) -> Result<Vec<TableProperties>> {
        let engine = &self.handle().engine;
        let view = engine.view();
        read::check(engine, self.info())?;
        let Some(levels) = view.version.levels(self.info().id) else { return Ok(Vec::new()) };
        let runs = levels.runs.iter().map(|table| (0, table));
        let sorted =
            levels.sorted.iter().flat_map(|(level, run)| run.iter().map(move |table| (*level, table)));
        runs.chain(sorted).map(|(level, table)| TableProperties::of(table, level)).collect()
    }
}
