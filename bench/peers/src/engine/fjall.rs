//! fjall: its defaults with blocks, filters, compression, cache and memtables made equal.

use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use tombolo_workload::target::Seen;
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::{BLOCK_BYTES, Config, Engine, FILTER_BITS, Turn, error};

/// An open database.
pub struct Fjall {
    db: Database,
    spaces: Vec<Keyspace>,
    turn: Turn,
}

impl Engine for Fjall {
    fn open(config: &Config) -> Result<Fjall, TargetError> {
        if config.direct {
            return Err(error("fjall has no direct IO"));
        }
        let db = Database::builder(&config.directory).cache_size(config.cache_bytes).open().map_err(error)?;
        let bits = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(f32::from(FILTER_BITS)));
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(config.memtable_bytes)
                .data_block_size_policy(BlockSizePolicy::all(u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX)))
                .filter_policy(FilterPolicy::all(bits))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        };
        let spaces = (0..config.spaces).map(|number| db.keyspace(&format!("space-{number}"), options));
        let spaces = spaces.collect::<Result<_, _>>().map_err(error)?;
        Ok(Fjall { db, spaces, turn: Turn::default() })
    }

    fn close(self) -> Result<(), TargetError> {
        self.db.persist(PersistMode::SyncAll).map_err(error)
    }

    fn runs(&self) -> Option<u64> {
        // Tables of level 0, and one run for all that lies deeper: it does not say of how many
        // levels that is.
        let of = |space: &Keyspace| {
            space.l0_table_count() + usize::from(space.table_count() > space.l0_table_count())
        };
        Some(self.spaces.iter().map(of).sum::<usize>() as u64)
    }

    fn is_busy(&self) -> bool {
        self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0
    }

    fn settings(config: &Config) -> String {
        format!(
            "cache_size={}, max_memtable_size={}, blocks of {BLOCK_BYTES}, bloom {FILTER_BITS} bits, lz4 on \
            all levels, all else default; accepted: written \
             to the journal's file; durable: persist(SyncData); multi-get is a loop of gets",
            config.cache_bytes, config.memtable_bytes
        )
    }
}

impl Target for Fjall {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        Thread {
            db: &self.db,
            space: &self.spaces[self.turn.next(self.spaces.len())],
            durable: durability == Durability::Durable,
        }
    }

    fn flush(&self) -> Result<(), TargetError> {
        self.spaces.iter().try_for_each(|space| space.rotate_memtable_and_wait().map_err(error))
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.flush()?;
        self.spaces.iter().try_for_each(|space| space.major_compact().map_err(error))
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> String {
        format!("{} compactions in {:?}", self.db.compactions_completed(), self.db.time_compacting())
    }

    fn describe(&self) -> String {
        "fjall".to_owned()
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    db: &'a Database,
    space: &'a Keyspace,
    durable: bool,
}

impl Thread<'_> {
    fn written(&self) -> Result<(), TargetError> {
        if self.durable { self.db.persist(PersistMode::SyncData).map_err(error) } else { Ok(()) }
    }
}

fn read(
    entries: impl Iterator<Item = fjall::Guard>,
    most: usize,
    seen: Seen<'_>,
) -> Result<usize, TargetError> {
    let mut count = 0;
    for entry in entries.take(most) {
        let (key, value) = entry.into_inner().map_err(error)?;
        count += 1;
        if !seen(&key, &value) {
            break;
        }
    }
    Ok(count)
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.space.insert(key, value).map_err(error)?;
        self.written()
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let value = self.space.get(key).map_err(error)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.space.remove(key).map_err(error)?;
        self.written()
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        read(self.space.range(from..), entries, seen)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        read(self.space.iter().rev(), entries, seen)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut batch = self.db.batch();
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(self.space, *key, *value),
                None => batch.remove(self.space, *key),
            }
        }
        batch.commit().map_err(error)?;
        self.written()
    }
}
