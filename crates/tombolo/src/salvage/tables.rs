//! Which tables are sound: each is read once, whatever states name it; and the rest of those
//! that are not.

use std::collections::BTreeMap;
use std::sync::Arc;

use tombolo_env::{BoxFuture, Env, all};
use tombolo_format::FormatError;
use tombolo_format::block::Cursor;
use tombolo_format::key::InternalKey;
use tombolo_format::manifest::{TableDescription, TableName};
use tombolo_storage::{Epoch, Error, Incarnation, ObjectStore, Purpose, Request, Result};

use super::history::is_damage;
use crate::budget::MemoryBudget;
use crate::cache::BlockCache;
use crate::manifest::{Manifest, Places, State, names};
use crate::options::KeyspaceOptions;
use crate::table::{NewTable, Part, Table, TableWriter, ValueObject, check_description, piece_bytes};
use crate::version::{BLOCK_BYTES_BEYOND, table_options};

/// Tables read at once: each is in memory while it is checked.
const TABLES_IN_FLIGHT_MAX: usize = 4;

/// A table, and its damage.
type Checked = (TableName, Option<Error>);

/// The rest of a damaged table.
pub(super) struct Rest {
    pub(super) description: Arc<TableDescription>,
    /// Those of its keyspace.
    pub(super) options: KeyspaceOptions,
    pub(super) parts: Vec<Part>,
}

impl Rest {
    /// Entries that can still be had.
    pub(super) fn entries(&self) -> u64 {
        self.parts.iter().map(|part| if let Part::Sound { entries, .. } = part { *entries } else { 0 }).sum()
    }

    /// The bytes of their blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| if let Part::Sound { block, .. } = part { u64::from(block.length) } else { 0 })
            .sum()
    }
}

/// The knowledge of the tables so far.
pub(super) struct Tables {
    cache: Arc<BlockCache>,
    places: Places,
    /// `None` for a sound one.
    known: BTreeMap<TableName, Option<Error>>,
}

impl Tables {
    pub(super) fn new(
        objects: &Arc<dyn ObjectStore>,
        budget: &Arc<MemoryBudget>,
        incarnation: Incarnation,
    ) -> Tables {
        Tables {
            cache: BlockCache::of(budget),
            places: Places::own(objects, incarnation),
            known: BTreeMap::new(),
        }
    }

    /// Where the tables of the states lie that were looked at.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// The live tables and value objects of a state that are damaged or gone.
    ///
    /// # Errors
    /// Those of the store that say nothing about a table.
    pub(super) async fn damaged(&mut self, state: &State) -> Result<Vec<(Arc<TableDescription>, Error)>> {
        self.places.learn(state)?;
        let live: Vec<_> = state.keyspaces().flat_map(|keyspace| keyspace.objects()).collect();
        let unknown: Vec<BoxFuture<'_, Result<Checked>>> = live
            .iter()
            .filter(|table| !self.known.contains_key(&table.name))
            .map(|table| Box::pin(self.check(table)) as BoxFuture<'_, _>)
            .collect();
        let checked: Result<Vec<_>> = all(unknown, TABLES_IN_FLIGHT_MAX).await.into_iter().collect();
        self.known.extend(checked?);
        let damaged = live
            .into_iter()
            .filter_map(|table| self.known.get(&table.name)?.clone().map(|error| (Arc::clone(table), error)));
        Ok(damaged.collect())
    }

    /// What can still be had of a damaged table; `None` when nothing can.
    ///
    /// # Errors
    /// Those of the store that say nothing about the table.
    pub(super) async fn parts(&self, description: &Arc<TableDescription>) -> Result<Option<Vec<Part>>> {
        if check_description(description, &self.places.locate(description).1).is_err() {
            return Ok(None);
        }
        let parts =
            self.open(description).parts(Request::new(Purpose::Verify, Epoch::NONE), is_damage).await?;
        Ok(parts.filter(|parts| parts.iter().any(|part| !matches!(part, Part::Lost { .. }))))
    }

    fn open(&self, description: &TableDescription) -> Table {
        let (store, object) = self.places.locate(description);
        Table::new(description.clone(), object, store, Arc::clone(&self.cache))
    }

    /// Writes what can be had of a damaged table as one of the database that `manifest` has
    /// claimed. Reads each block once more.
    ///
    /// # Errors
    /// Those of both stores; `Corrupt` when a block that was sound is so no more.
    pub(super) async fn rewrite(
        &self,
        rest: &Rest,
        env: &Env,
        manifest: &Manifest,
        target: &Arc<dyn ObjectStore>,
    ) -> Result<Option<TableDescription>> {
        let Rest { description, options, parts } = rest;
        let source = self.open(description);
        let name = manifest.fresh_table_name();
        let bytes = piece_bytes(self.cache.budget().bytes());
        // One table says nothing of the database: as if it were large.
        let options = table_options(
            options,
            description.keyspace,
            false,
            description.oldest_unix_seconds,
            BLOCK_BYTES_BEYOND,
            bytes,
        );
        let object = names::table(manifest.incarnation(), name);
        let new = NewTable { name, object, identity: env.random_u64(), level: description.level, options };
        let mut writer =
            TableWriter::create(&**target, Request::new(Purpose::Compaction, manifest.epoch()), new).await?;
        let number = description.properties.sequence_override();
        for part in parts {
            let (block, dictionary) = match part {
                Part::Sound { block, dictionary, .. } => (block, dictionary),
                Part::RangeDeletes(ranges) => {
                    writer.set_ranges(ranges.clone())?;
                    continue;
                }
                Part::Lost { .. } => continue,
            };
            let request = Request::new(Purpose::Verify, Epoch::NONE);
            let read = source.sound_block(request, *block, dictionary.as_ref()).await?;
            let wrong = |error: FormatError| Error::format(source.object(), block.offset, error);
            let mut cursor = Cursor::new();
            cursor.first(&read).map_err(wrong)?;
            while cursor.valid() {
                let key = cursor.key();
                let trailer = number.map_or(key.trailer, |number| key.trailer.at(number));
                writer.add(InternalKey::new(key.user_key, trailer), cursor.value(&read))?;
                cursor.next(&read).map_err(wrong)?;
            }
            if writer.wants_flush() {
                writer.flush().await?;
            }
        }
        let written = writer.finish().await?;
        Ok(written.map(|table| table.referring_as(description)))
    }

    /// Whether a table or a value object that was looked at is damaged.
    pub(super) fn is_damaged(&self, name: TableName) -> bool {
        self.known.get(&name).is_some_and(Option::is_some)
    }

    /// Says of what lies under a source where that is: there it can be restored.
    fn placed(&self, description: &TableDescription, error: Error) -> Error {
        match description.source {
            Some(_) => {
                let (store, _) = self.places.locate(description);
                error.context(format!("under the source at {}", store.describe()))
            }
            None => error,
        }
    }

    async fn check(&self, description: &Arc<TableDescription>) -> Result<Checked> {
        if let Err(error) = check_description(description, &self.places.locate(description).1) {
            return Ok((description.name, Some(error)));
        }
        let verified = if description.is_values() {
            let (store, object) = self.places.locate(description);
            let cache = Arc::clone(&self.cache);
            ValueObject::new((**description).clone(), object, store, cache, None, Epoch::NONE).verify().await
        } else {
            self.open(description).verify(Request::new(Purpose::Verify, Epoch::NONE)).await
        };
        match verified {
            Ok(()) => Ok((description.name, None)),
            Err(error) if is_damage(&error) => Ok((description.name, Some(self.placed(description, error)))),
            Err(error) => Err(error),
        }
    }
}
