//! Tombolo: every setting at its default but the memory, which is what the others get for cache and memtables together.

use tombolo::{Batch, BlockingKeyspace, Cursor, Db, ErrorKind, Keyspace, KeyspaceOptions, OpenMode, Options};
use tombolo_storage::layer::RequestKind;
use tombolo_workload::target::Seen;
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::{Config, Engine, Turn};

/// An open database.
pub struct Tombolo {
    db: Db,
    spaces: Vec<(String, Keyspace)>,
    turn: Turn,
}

fn failed(error: tombolo::Error) -> TargetError {
    let retryable = matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded);
    TargetError { message: error.to_string(), retryable }
}

impl Engine for Tombolo {
    fn open(config: &Config) -> Result<Tombolo, TargetError> {
        let io = if config.direct { "?io=direct" } else { "" };
        let mut options = Options::default();
        options.memory_bytes = config.memory_bytes();
        let store = format!("file://{}{io}", config.directory.display());
        let db = Db::builder(store).mode(OpenMode::CreateOrOpen).options(options).open().wait().map_err(failed)?;
        let space = |number| {
            let name = format!("space-{number}");
            let keyspace = match db.keyspace(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => db.create_keyspace(&name, KeyspaceOptions::default()).wait(),
                found => found,
            };
            Ok((name, keyspace.map_err(failed)?))
        };
        let spaces = (0..config.spaces).map(space).collect::<Result<_, TargetError>>()?;
        Ok(Tombolo { db, spaces, turn: Turn::default() })
    }

    fn close(self) -> Result<(), TargetError> {
        self.db.close().wait().map_err(failed)
    }

    fn runs(&self) -> Option<u64> {
        let levels = self.db.stats().tables_by_level;
        // Level 0 holds runs of their own, each other level one.
        Some(levels.iter().enumerate().map(|(level, tables)| if level == 0 { *tables } else { u64::from(*tables > 0) }).sum())
    }

    fn is_busy(&self) -> bool {
        let stats = self.db.stats();
        stats.memtables_waiting > 0 || stats.compactions_running > 0
    }

    fn file_reads(&self) -> Option<u64> {
        let counted = self.db.requests().counted;
        Some(counted.iter().filter(|one| matches!(one.kind, RequestKind::Read | RequestKind::ReadRanges)).map(|one| one.requests).sum())
    }

    fn settings(config: &Config) -> String {
        format!("memory_bytes={}, all else default; accepted: in the mapped log; durable: fdatasync", config.memory_bytes())
    }
}

impl Target for Tombolo {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        let durability = match durability {
            Durability::Unlogged => tombolo::Durability::Unlogged,
            Durability::Accepted => tombolo::Durability::Accepted,
            Durability::Durable => tombolo::Durability::Durable,
        };
        let (name, keyspace) = &self.spaces[self.turn.next(self.spaces.len())];
        Thread { db: &self.db, keyspace, blocking: self.db.blocking().keyspace(name).ok(), durability }
    }

    fn flush(&self) -> Result<(), TargetError> {
        self.db.flush().wait().map_err(failed)
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.db.compact().wait().map_err(failed)
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> String {
        format!("{:?}", self.db.stats())
    }

    fn describe(&self) -> String {
        "tombolo".to_owned()
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    /// `None` only when the keyspace is gone: then every read says so.
    blocking: Option<BlockingKeyspace>,
    durability: tombolo::Durability,
}

fn read(mut cursor: Cursor, from: Option<&[u8]>, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
    let mut count = 0;
    let mut valid = match from {
        Some(from) => cursor.seek(from),
        None => cursor.seek_to_last(),
    };
    while valid.map_err(failed)? {
        count += 1;
        if !seen(cursor.key(), cursor.value()) || count >= entries {
            break;
        }
        valid = if from.is_some() { cursor.next() } else { cursor.prev() };
    }
    Ok(count)
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.keyspace.put_with(key, value, self.durability).wait().map_err(failed)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let found = match &self.blocking {
            Some(keyspace) => keyspace.get_with(key, |value| seen(value)),
            None => self.keyspace.get(key).wait().map(|value| value.map(|value| seen(&value))),
        };
        found.map(|found| found.is_some()).map_err(failed)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.keyspace.delete_with(key, self.durability).wait().map_err(failed)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], seen: &mut dyn FnMut(usize, &[u8])) -> Result<usize, TargetError> {
        let values = self.keyspace.multi_get(keys).wait().map_err(failed)?;
        let mut found = 0;
        for (index, value) in values.iter().enumerate() {
            if let Some(value) = value {
                seen(index, value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        read(self.keyspace.cursor::<&[u8]>(..), Some(from), entries, seen)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        read(self.keyspace.cursor::<&[u8]>(..), None, entries, seen)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut batch = Batch::new();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(self.keyspace, key, value),
                None => batch.delete(self.keyspace, key),
            };
        }
        self.db.write_with(batch, self.durability).wait().map_err(failed)
    }
}
