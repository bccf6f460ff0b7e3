//! redb, a B-tree that copies on write: its defaults with the memory made equal.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tombolo_workload::target::Seen;
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::{Config, Engine, Turn, error};

/// An open database.
pub struct Redb {
    /// Only compaction takes it for itself: it needs the database alone.
    db: RwLock<Database>,
    names: Vec<String>,
    turn: Turn,
}

impl Engine for Redb {
    fn open(config: &Config) -> Result<Redb, TargetError> {
        if config.direct {
            return Err(error("redb has no direct IO"));
        }
        std::fs::create_dir_all(&config.directory).map_err(error)?;
        let memory_bytes = usize::try_from(config.memory_bytes()).unwrap_or(usize::MAX);
        let db = Database::builder()
            .set_cache_size(memory_bytes)
            .create(config.directory.join("redb"))
            .map_err(error)?;
        let names: Vec<String> = (0..config.spaces).map(|number| format!("space-{number}")).collect();
        let write = db.begin_write().map_err(error)?;
        for name in &names {
            write.open_table(table(name)).map_err(error)?;
        }
        write.commit().map_err(error)?;
        Ok(Redb { db: RwLock::new(db), names, turn: Turn::default() })
    }

    fn close(self) -> Result<(), TargetError> {
        // Writes that were not synced become so with the next that is.
        self.flush()
    }

    fn runs(&self) -> Option<u64> {
        Some(1)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn settings(config: &Config) -> String {
        format!(
            "cache of {}, all else default, no compression; accepted: Durability::None, which does not \
            survive the process; durable: \
             Durability::Immediate (fsync); a transaction each call; multi-get is a loop of gets",
            config.memory_bytes()
        )
    }
}

fn table(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

impl Redb {
    fn db(&self) -> RwLockReadGuard<'_, Database> {
        self.db.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Redb {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        Thread {
            redb: self,
            name: &self.names[self.turn.next(self.names.len())],
            durable: durability == Durability::Durable,
        }
    }

    fn flush(&self) -> Result<(), TargetError> {
        self.db().begin_write().map_err(error)?.commit().map_err(error)
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.flush()?;
        let mut db = self.db.write().unwrap_or_else(PoisonError::into_inner);
        db.compact().map_err(error)?;
        Ok(())
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> String {
        String::new()
    }

    fn describe(&self) -> String {
        "redb".to_owned()
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    redb: &'a Redb,
    name: &'a str,
    durable: bool,
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, Some(value))])
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let read = self.redb.db().begin_read().map_err(error)?;
        let table = read.open_table(table(self.name)).map_err(error)?;
        let value = table.get(key).map_err(error)?;
        if let Some(value) = &value {
            seen(value.value());
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, None)])
    }

    fn multi_get(
        &mut self,
        keys: &[Vec<u8>],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, TargetError> {
        let read = self.redb.db().begin_read().map_err(error)?;
        let table = read.open_table(table(self.name)).map_err(error)?;
        let mut found = 0;
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = table.get(key.as_slice()).map_err(error)? {
                seen(index, value.value());
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let read = self.redb.db().begin_read().map_err(error)?;
        let table = read.open_table(table(self.name)).map_err(error)?;
        let mut count = 0;
        for entry in table.range(from..).map_err(error)?.take(entries) {
            let (key, value) = entry.map_err(error)?;
            count += 1;
            if !seen(key.value(), value.value()) {
                break;
            }
        }
        Ok(count)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let read = self.redb.db().begin_read().map_err(error)?;
        let table = read.open_table(table(self.name)).map_err(error)?;
        let mut count = 0;
        for entry in table.iter().map_err(error)?.rev().take(entries) {
            let (key, value) = entry.map_err(error)?;
            count += 1;
            if !seen(key.value(), value.value()) {
                break;
            }
        }
        Ok(count)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let db = self.redb.db();
        let mut write = db.begin_write().map_err(error)?;
        if !self.durable {
            write.set_durability(redb::Durability::None).map_err(error)?;
        }
        {
            let mut table = write.open_table(table(self.name)).map_err(error)?;
            for (key, value) in writes {
                match value {
                    Some(value) => drop(table.insert(*key, *value).map_err(error)?),
                    None => drop(table.remove(*key).map_err(error)?),
                }
            }
        }
        write.commit().map_err(error)
    }
}
