//! LMDB through heed: a B-tree in mapped memory. It has no cache of its own: the page cache of the
//! system is its memory, all of it.

use std::ops::Bound;

use heed::types::Bytes;
use heed::{CommitOrAbort, EnvFlags, EnvOpenOptions, WithoutTls};
use tombolo_workload::target::Seen;
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::{Config, Engine, Turn, error};

/// The largest that a database may become, in bytes of address space.
const MAP_BYTES: usize = 256 << 30;

type Env = heed::Env<WithoutTls>;
type Database = heed::Database<'static, Bytes, Bytes>;

/// An open database.
pub struct Lmdb {
    env: Env,
    spaces: Vec<Database>,
    turn: Turn,
}

impl Engine for Lmdb {
    fn open(config: &Config) -> Result<Lmdb, TargetError> {
        if config.direct {
            return Err(error("LMDB has no direct IO"));
        }
        std::fs::create_dir_all(&config.directory).map_err(error)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES).max_dbs(u32::try_from(config.spaces).unwrap_or(1)).max_readers(256);
        // SAFETY: NO_SYNC gives up nothing that the file's consistency in a running system depends
        // on, and durable writes sync explicitly; no other process touches the directory, nor does
        // this one open it twice.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC);
            options.open(&config.directory)
        };
        let env: Env = env.map_err(error)?;
        let mut spaces = Vec::new();
        for number in 0..config.spaces {
            let (name, write) = (format!("space-{number}"), env.write_txn().map_err(error)?);
            let made = env.create_databases_and_commit(write, |opener, write| {
                opener.create_database::<Bytes, Bytes>(write, Some(&name)).map(CommitOrAbort::<_, ()>::Commit)
            });
            spaces.push(made.map_err(|failure: heed::Error| error(failure))?.unwrap_commit());
        }
        Ok(Lmdb { env, spaces, turn: Turn::default() })
    }

    fn close(self) -> Result<(), TargetError> {
        self.env.force_sync().map_err(error)?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }

    fn runs(&self) -> Option<u64> {
        Some(1)
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn settings(_config: &Config) -> String {
        "MDB_NOSYNC, all else default, no compression, memory not bounded (the page cache); accepted: \
        written to the file; durable: mdb_env_sync after \
         the commit; a transaction each call; multi-get is a loop of gets in one"
            .to_owned()
    }
}

impl Target for Lmdb {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        let space = &self.spaces[self.turn.next(self.spaces.len())];
        Thread { env: &self.env, space, durable: durability == Durability::Durable }
    }

    fn flush(&self) -> Result<(), TargetError> {
        self.env.force_sync().map_err(error)
    }

    fn compact(&self) -> Result<(), TargetError> {
        // It compacts only into a copy.
        self.flush()
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> String {
        String::new()
    }

    fn describe(&self) -> String {
        "lmdb".to_owned()
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    env: &'a Env,
    space: &'a Database,
    durable: bool,
}

fn read<'t>(
    entries: impl Iterator<Item = heed::Result<(&'t [u8], &'t [u8])>>,
    most: usize,
    seen: Seen<'_>,
) -> Result<usize, TargetError> {
    let mut count = 0;
    for entry in entries.take(most) {
        let (key, value) = entry.map_err(error)?;
        count += 1;
        if !seen(key, value) {
            break;
        }
    }
    Ok(count)
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, Some(value))])
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let transaction = self.env.read_txn().map_err(error)?;
        let value = self.space.get(&transaction, key).map_err(error)?;
        if let Some(value) = value {
            seen(value);
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
        let transaction = self.env.read_txn().map_err(error)?;
        let mut found = 0;
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = self.space.get(&transaction, key).map_err(error)? {
                seen(index, value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let transaction = self.env.read_txn().map_err(error)?;
        // An empty key is none to LMDB.
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        read(self.space.range(&transaction, &(from, Bound::Unbounded)).map_err(error)?, entries, seen)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let transaction = self.env.read_txn().map_err(error)?;
        read(self.space.rev_iter(&transaction).map_err(error)?, entries, seen)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut transaction = self.env.write_txn().map_err(error)?;
        for (key, value) in writes {
            match value {
                Some(value) => self.space.put(&mut transaction, key, value).map_err(error)?,
                None => drop(self.space.delete(&mut transaction, key).map_err(error)?),
            }
        }
        transaction.commit().map_err(error)?;
        if self.durable { self.env.force_sync().map_err(error) } else { Ok(()) }
    }
}
