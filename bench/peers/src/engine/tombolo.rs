//! Tombolo: every setting at its default but the memory, which is what the others get for cache and
//! memtables together.
//!
//! In a bucket, where accepted is as late as durable, accepted writes are issued and not waited
//! for, as many as are allowed to be on their way: the process then loses as much when it ends as
//! SlateDB does.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tombolo::{
    Batch, BlockingKeyspace, Bring, Cursor, Db, ErrorKind, Ingest, IngestOptions, Keyspace, KeyspaceOptions,
    Op, OpenMode, OperatorName, Options, TableFileBuilder,
};
use tombolo_env::Env;
use tombolo_storage::layer::RequestKind;
use tombolo_workload::target::{NextEntry, NextKey, ReadEnded, Seen};
use tombolo_workload::{Durability, InFlight, Session, Target, TargetError};

use super::{BLOCK_BYTES, Config, Engine, LARGE_BYTES, Outside, Turn};

/// An open database.
pub struct Tombolo {
    env: Env,
    db: Db,
    spaces: Vec<(String, Keyspace)>,
    turn: Turn,
    /// Whether it lies in a bucket.
    is_remote: bool,
    sessions: AtomicUsize,
    outside: Outside,
}

/// Writes of all threads that may be on their way: half of what the engine allows, so that it never
/// refuses one.
const ON_THEIR_WAY_MAX: usize = 32_768;

/// The defaults, but for blocks as large as the others': left alone, the engine takes twice as
/// large ones where the memory can hold the data.
fn keyspace_options(config: &Config) -> KeyspaceOptions {
    KeyspaceOptions {
        block_bytes: u32::try_from(BLOCK_BYTES).ok(),
        operator: OperatorName::parse("add_u64@1").ok(),
        separate_bytes: if config.apart { LARGE_BYTES } else { 0 },
        ..KeyspaceOptions::default()
    }
}

fn failed(error: tombolo::Error) -> TargetError {
    let retryable = matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded);
    TargetError { message: error.to_string(), retryable }
}

impl Engine for Tombolo {
    fn open(config: &Config) -> Result<Tombolo, TargetError> {
        let io = if config.direct { "?io=direct" } else { "" };
        let options = Options { memory_bytes: config.memory_bytes(), ..Options::default() };
        let store =
            config.bucket.clone().unwrap_or_else(|| format!("file://{}{io}", config.directory.display()));
        let env = Env::real();
        let builder = Db::builder(store).env(env.clone()).mode(OpenMode::CreateOrOpen);
        let db = builder.options(options).open().wait().map_err(failed)?;
        let space = |number| {
            let name = format!("space-{number}");
            let keyspace = match db.keyspace(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    db.create_keyspace(&name, keyspace_options(config)).wait()
                }
                found => found,
            };
            Ok((name, keyspace.map_err(failed)?))
        };
        let spaces = (0..config.spaces).map(space).collect::<Result<_, TargetError>>()?;
        Ok(Tombolo {
            env,
            db,
            spaces,
            turn: Turn::default(),
            is_remote: config.is_far(),
            sessions: AtomicUsize::new(0),
            outside: Outside::of(&config.directory),
        })
    }

    fn close(self) -> Result<(), TargetError> {
        self.db.close().wait().map_err(failed)
    }

    fn runs(&self) -> Option<u64> {
        let levels = self.db.stats().tables_by_level;
        // Level 0 holds runs of their own, each other level one.
        Some(
            levels
                .iter()
                .enumerate()
                .map(|(level, tables)| if level == 0 { *tables } else { u64::from(*tables > 0) })
                .sum(),
        )
    }

    fn is_busy(&self) -> bool {
        let stats = self.db.stats();
        stats.memtables_waiting > 0 || stats.compactions_running > 0
    }

    fn file_reads(&self) -> Option<u64> {
        let counted = self.db.requests().counted;
        Some(
            counted
                .iter()
                .filter(|one| matches!(one.kind, RequestKind::Read | RequestKind::ReadRanges))
                .map(|one| one.requests)
                .sum(),
        )
    }

    fn settings(config: &Config) -> String {
        let means = if config.is_far() {
            "accepted: issued, not waited for, goes with the process; durable: in an object of the log"
        } else {
            "accepted: in the mapped log; durable: fdatasync"
        };
        let apart = if config.apart { format!(", separate_bytes={LARGE_BYTES}") } else { String::new() };
        format!(
            "memory_bytes={}, block_bytes={BLOCK_BYTES}{apart}, all else default; {means}",
            config.memory_bytes()
        )
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
        self.sessions.fetch_add(1, Ordering::Relaxed);
        let pipelined = self.is_remote && durability == tombolo::Durability::Accepted;
        let blocking = self.db.blocking().keyspace(name).ok();
        Thread { engine: self, keyspace, blocking, durability, pipelined, on_their_way: VecDeque::new() }
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
    engine: &'a Tombolo,
    keyspace: &'a Keyspace,
    /// `None` only when the keyspace is gone: then every read says so.
    blocking: Option<BlockingKeyspace>,
    durability: tombolo::Durability,
    /// Whether writes are issued and not waited for.
    pipelined: bool,
    on_their_way: VecDeque<Op<()>>,
}

impl Thread<'_> {
    /// Waits for the write, or for the oldest on its way when there are too many.
    fn written(&mut self, write: Op<()>) -> Result<(), TargetError> {
        if !self.pipelined {
            return write.wait().map_err(failed);
        }
        self.on_their_way.push_back(write);
        let most = ON_THEIR_WAY_MAX / self.engine.sessions.load(Ordering::Relaxed).max(1);
        while self.on_their_way.len() > most.max(1)
            && let Some(oldest) = self.on_their_way.pop_front()
        {
            oldest.wait().map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        self.engine.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

fn read(
    mut cursor: Cursor,
    from: Option<&[u8]>,
    entries: usize,
    seen: Seen<'_>,
) -> Result<usize, TargetError> {
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
        let write = self.keyspace.put_with(key, value, self.durability);
        self.written(write)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let found = match &self.blocking {
            Some(keyspace) => keyspace.get_with(key, |value| seen(value)),
            None => self.keyspace.get(key).wait().map(|value| value.map(|value| seen(&value))),
        };
        found.map(|found| found.is_some()).map_err(failed)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        let write = self.keyspace.delete_with(key, self.durability);
        self.written(write)
    }

    fn single_delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        let write = self.keyspace.single_delete_with(key, self.durability);
        self.written(write)
    }

    fn merge(&mut self, key: &[u8], operand: u64) -> Result<(), TargetError> {
        let write = self.keyspace.merge_with(key, operand.to_le_bytes(), self.durability);
        self.written(write)
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) -> Result<(), TargetError> {
        let write = self.keyspace.delete_range_with(from, to, self.durability);
        self.written(write)
    }

    fn put_ttl(&mut self, key: &[u8], value: &[u8], ttl: Duration) -> Result<(), TargetError> {
        let write = self.keyspace.put_ttl_with(key, value, ttl, self.durability);
        self.written(write)
    }

    fn ingest(&mut self, entries: NextEntry<'_>) -> Result<(), TargetError> {
        let place = self.engine.outside.next()?;
        let mut table =
            TableFileBuilder::create(place.as_path(), self.keyspace.options()).wait().map_err(failed)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while entries(&mut key, &mut value) {
            table.put(&key, &value).wait().map_err(failed)?;
        }
        table.finish().wait().map_err(failed)?;
        // As RocksDB does by default: ends are looked at, and not every block.
        let moved = IngestOptions { bring: Bring::Move, trusted: true, ..IngestOptions::default() };
        let ingest = Ingest::new().options(moved).table(self.keyspace, place);
        self.engine.db.ingest(ingest).wait().map(|_| ()).map_err(failed)
    }

    fn multi_get(
        &mut self,
        keys: &[Vec<u8>],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, TargetError> {
        let values = match &self.blocking {
            Some(keyspace) => keyspace.multi_get(keys),
            None => self.keyspace.multi_get(keys).wait(),
        };
        let values = values.map_err(failed)?;
        let mut found = 0;
        for (index, value) in values.iter().enumerate() {
            if let Some(value) = value {
                seen(index, value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn get_in_flight(
        &mut self,
        in_flight: usize,
        next: NextKey<'_>,
        ended: ReadEnded<'_>,
    ) -> Result<(), TargetError> {
        let (env, mut flight, mut key) = (&self.engine.env, InFlight::default(), Vec::new());
        loop {
            while flight.len() < in_flight
                && let Some(number) = next(&mut key)
            {
                flight.push(number, self.keyspace.get(&key));
            }
            if flight.is_empty() {
                return Ok(());
            }
            let poll = std::future::poll_fn(|context| flight.poll_ended(context));
            for (number, value) in env.block_on(poll) {
                ended(number, value.as_ref().map(Option::as_deref).map_err(|error| failed(error.clone())));
            }
        }
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
        let write = self.engine.db.write_with(batch, self.durability);
        self.written(write)
    }
}
