//! Tombolo as a target of benchmarks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tombolo::{
    Batch, BlockingKeyspace, Bring, Cursor, Db, Env, ErrorKind, Ingest, IngestOptions, Keyspace,
    KeyspaceOptions, Op, OpenMode, Options, RecordOptions, Recording, Stats, TableFileBuilder, TablePlace,
    TakeOver,
};
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};
use tombolo_storage::{Epoch, ObjectStore, Purpose, Request, Uri};
use tombolo_workload::target::{NextEntry, NextKey, ReadEnded, Seen};
use tombolo_workload::{Durability, InFlight, Session, Target, TargetError};

use crate::failure::{Failure, Result};
use crate::machine;
use crate::text;

/// How to open the database.
#[derive(Clone, Debug)]
pub struct Place {
    /// The store's URI.
    pub store: String,
    /// Whether it is taken from a process that has it open.
    pub take_over: TakeOver,
    /// The log's URI.
    pub log: Option<String>,
    /// Settings of the database.
    pub options: Options,
    /// The keyspace.
    pub keyspace: String,
    /// Settings of the keyspace, when it is made.
    pub keyspace_options: KeyspaceOptions,
}

/// An open database.
pub struct Engine {
    place: Place,
    env: Env,
    objects: Arc<dyn ObjectStore>,
    /// Counts requests to the object store while it is on.
    tracer: Tracer,
    db: Db,
    keyspace: Keyspace,
    outside: Outside,
}

/// Where tables are made outside of the database.
struct Outside {
    uri: Uri,
    /// Of the tables that were made.
    number: AtomicU64,
}

impl Outside {
    /// Beside the database's own store.
    fn of(store: &Uri) -> Outside {
        let mut uri = store.clone();
        uri.rest = format!("{}-tables", uri.rest.trim_end_matches('/'));
        Outside { uri, number: AtomicU64::new(0) }
    }

    /// The next.
    fn place(&self) -> TablePlace {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let mut uri = self.uri.clone();
        uri.rest = format!("{}/{}-{number}.table", uri.rest, std::process::id());
        uri.to_string().into()
    }
}

/// How often settling is looked at, and how long nothing may have happened.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_QUIET: u32 = 10;
/// CPU time of the whole process between two looks that still counts as quiet.
const CPU_QUIET: Duration = Duration::from_millis(10);

impl Engine {
    /// Opens or creates the database.
    pub fn open(place: &Place, mode: OpenMode) -> Result<Engine> {
        let env = Env::real();
        let registry = crate::database::registry();
        let store = Uri::parse(&place.store)?;
        let log = place.log.as_deref().map(Uri::parse).transpose()?;
        let plain = registry.open_object_store(&env, &store)?;
        let logs = registry.open_log_store(&env, &store, log.as_ref(), &plain)?;
        let tracer = Tracer::with_sink(&env, 0, None);
        let objects: Arc<dyn ObjectStore> =
            Arc::new(TraceObjectStore::new(Arc::clone(&plain), tracer.clone()));
        let builder = Db::builder(&place.store).env(env.clone()).stores(objects, logs);
        let db =
            builder.mode(mode).take_over(place.take_over).options(place.options.clone()).open().wait()?;
        let keyspace = match db.keyspace(&place.keyspace) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                db.create_keyspace(&place.keyspace, place.keyspace_options.clone()).wait()?
            }
            found => found?,
        };
        let outside = Outside::of(&store);
        Ok(Engine { place: place.clone(), env, objects: plain, tracer, db, keyspace, outside })
    }

    /// Destroys the database and creates it anew.
    pub fn fresh(self) -> Result<Engine> {
        let Engine { place, db, keyspace, .. } = self;
        // A database with checkpoints is not destroyed.
        for checkpoint in db.checkpoints().wait()? {
            if checkpoint.name.starts_with(CHECKPOINT_NAMES) {
                db.delete_checkpoint(&checkpoint.name).wait()?;
            }
        }
        db.close().wait()?;
        drop((db, keyspace));
        let mut builder = Db::builder(&place.store).registry(crate::database::registry());
        if let Some(log) = &place.log {
            builder = builder.log(log);
        }
        builder.destroy().wait()?;
        Engine::open(&place, OpenMode::Create)
    }

    /// Closes it.
    pub fn close(self) -> Result<()> {
        Ok(self.db.close().wait()?)
    }

    /// What the database says of itself.
    pub fn stats(&self) -> Stats {
        self.db.stats()
    }

    /// Records its operations from here on.
    pub fn record(&self, options: RecordOptions) -> Result<Recording> {
        Ok(self.db.record(options)?)
    }

    /// Begins to merge everything.
    pub fn begin_compaction(&self) -> Op<()> {
        self.db.compact()
    }

    /// Begins to move memtables to tables.
    pub fn begin_flush(&self) -> Op<()> {
        self.db.flush()
    }

    /// Counts requests from here on, or not: counting costs two readings of the clock for each,
    /// which reads from the store would feel.
    pub fn count_requests(&self, on: bool) {
        self.tracer.set_on(on);
    }

    /// Bytes put into the object store so far, while requests were counted, by why: flush,
    /// compaction, manifest, the rest.
    pub fn put_bytes(&self) -> [(&'static str, u64); 4] {
        let mut bytes = [("flush", 0), ("compaction", 0), ("manifest", 0), ("other", 0)];
        for ((purpose, kind), counters) in self.tracer.counters() {
            if !matches!(kind, RequestKind::Append | RequestKind::Put) {
                continue;
            }
            let index = match purpose {
                Purpose::Flush => 0,
                Purpose::Compaction => 1,
                Purpose::Manifest => 2,
                _ => 3,
            };
            bytes[index].1 += counters.bytes;
        }
        bytes
    }

    /// Bytes of all objects in the store.
    pub fn object_bytes(&self) -> Result<u64> {
        let (mut bytes, mut after) = (0, None);
        loop {
            let page = self.env.block_on(self.objects.list(
                Request::new(Purpose::Verify, Epoch::NONE),
                "",
                after.as_ref(),
                1000,
            ))?;
            bytes += page.objects.iter().map(|object| object.length).sum::<u64>();
            after = page.objects.last().map(|object| object.name.clone());
            if !page.more || after.is_none() {
                return Ok(bytes);
            }
        }
    }

    /// What has to stand still before the background counts as settled.
    fn activity(&self) -> (u64, u64, u64, u64, Vec<u64>) {
        let stats = self.db.stats();
        (stats.memtables_waiting, stats.flushes, stats.compactions, stats.table_bytes, stats.tables_by_level)
    }
}

/// How names of checkpoints begin that a benchmark makes.
const CHECKPOINT_NAMES: &str = "bench-";

/// The name of a keyspace that a benchmark makes.
fn keyspace_name(number: u64) -> String {
    format!("bench-{number:07}")
}

fn target_error(error: tombolo::Error) -> TargetError {
    let retryable = matches!(error.kind(), ErrorKind::Retry | ErrorKind::Busy | ErrorKind::DeadlineExceeded);
    TargetError { message: Failure::from(error).to_string(), retryable }
}

impl Target for Engine {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        let durability = match durability {
            Durability::Unlogged => tombolo::Durability::Unlogged,
            Durability::Accepted => tombolo::Durability::Accepted,
            Durability::Durable => tombolo::Durability::Durable,
        };
        let blocking = self.db.blocking().keyspace(&self.place.keyspace).ok();
        let outside = &self.outside;
        Thread {
            env: &self.env,
            db: &self.db,
            keyspace: &self.keyspace,
            blocking,
            durability,
            merges: false,
            outside,
        }
    }

    fn flush(&self) -> std::result::Result<(), TargetError> {
        self.db.flush().wait().map_err(target_error)
    }

    fn compact(&self) -> std::result::Result<(), TargetError> {
        self.db.compact().wait().map_err(target_error)
    }

    fn settle(&self, go_on: &dyn Fn() -> bool) -> std::result::Result<(), TargetError> {
        let (mut quiet, mut last, mut cpu) = (0, self.activity(), machine::cpu_time());
        while quiet < LOOKS_QUIET && go_on() {
            std::thread::sleep(LOOK);
            let (now, cpu_now) = (self.activity(), machine::cpu_time());
            let is_quiet = now.0 == 0 && now == last && cpu_now.saturating_sub(cpu) <= CPU_QUIET;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            (last, cpu) = (now, cpu_now);
        }
        Ok(())
    }

    fn statistics(&self) -> String {
        text::stats(&self.db.stats())
    }

    fn describe(&self) -> String {
        format!("tombolo {} at {}", env!("CARGO_PKG_VERSION"), self.place.store)
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    env: &'a Env,
    db: &'a Db,
    keyspace: &'a Keyspace,
    /// `None` when the keyspace was dropped meanwhile: then every read says so.
    blocking: Option<BlockingKeyspace>,
    durability: tombolo::Durability,
    /// Whether the keyspace is known to have an operator.
    merges: bool,
    outside: &'a Outside,
}

impl Thread<'_> {
    fn read(
        mut cursor: Cursor,
        from: Option<&[u8]>,
        entries: usize,
        seen: Seen<'_>,
    ) -> std::result::Result<usize, TargetError> {
        let mut count = 0;
        let mut valid = match from {
            Some(from) => cursor.seek(from),
            None => cursor.seek_to_last(),
        };
        while valid.map_err(target_error)? {
            count += 1;
            if !seen(cursor.key(), cursor.value()) || count >= entries {
                break;
            }
            valid = if from.is_some() { cursor.next() } else { cursor.prev() };
        }
        Ok(count)
    }
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), TargetError> {
        self.keyspace.put_with(key, value, self.durability).wait().map_err(target_error)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> std::result::Result<bool, TargetError> {
        let found = match &self.blocking {
            Some(keyspace) => keyspace.get_with(key, |value| seen(value)),
            None => self.keyspace.get(key).wait().map(|value| value.map(|value| seen(&value))),
        };
        found.map(|found| found.is_some()).map_err(target_error)
    }

    fn delete(&mut self, key: &[u8]) -> std::result::Result<(), TargetError> {
        self.keyspace.delete_with(key, self.durability).wait().map_err(target_error)
    }

    fn single_delete(&mut self, key: &[u8]) -> std::result::Result<(), TargetError> {
        self.keyspace.single_delete_with(key, self.durability).wait().map_err(target_error)
    }

    fn merge(&mut self, key: &[u8], operand: u64) -> std::result::Result<(), TargetError> {
        if !self.merges {
            let (name, value) = ("operator", "add_u64@1");
            if self.keyspace.options().operator.is_none() {
                self.keyspace.set_options([(name, value)]).wait().map_err(target_error)?;
            }
            self.merges = true;
        }
        let operand = operand.to_le_bytes();
        self.keyspace.merge_with(key, operand, self.durability).wait().map_err(target_error)
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) -> std::result::Result<(), TargetError> {
        self.keyspace.delete_range_with(from, to, self.durability).wait().map_err(target_error)
    }

    fn put_ttl(&mut self, key: &[u8], value: &[u8], ttl: Duration) -> std::result::Result<(), TargetError> {
        self.keyspace.put_ttl_with(key, value, ttl, self.durability).wait().map_err(target_error)
    }

    fn ingest(&mut self, entries: NextEntry<'_>) -> std::result::Result<(), TargetError> {
        let place = self.outside.place();
        let options = self.keyspace.options();
        let registry = crate::database::registry();
        let begun = TableFileBuilder::create_with(Env::real(), registry, place.clone(), options).wait();
        let mut table = begun.map_err(target_error)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while entries(&mut key, &mut value) {
            table.put(&key, &value).wait().map_err(target_error)?;
        }
        table.finish().wait().map_err(target_error)?;
        let moved = IngestOptions { bring: Bring::Move, ..IngestOptions::default() };
        let ingest = Ingest::new().options(moved).table(self.keyspace, place);
        self.db.ingest(ingest).wait().map(|_| ()).map_err(target_error)
    }

    fn create_keyspaces(&mut self, numbers: Range<u64>) -> std::result::Result<(), TargetError> {
        let begin = |number: u64| self.db.create_keyspace(&keyspace_name(number), KeyspaceOptions::default());
        let begun: Vec<_> = numbers.map(begin).collect();
        begun.into_iter().try_for_each(|made| made.wait().map(drop)).map_err(target_error)
    }

    fn put_in(&mut self, keyspace: u64, key: &[u8], value: &[u8]) -> std::result::Result<(), TargetError> {
        let keyspace = self.db.keyspace(&keyspace_name(keyspace)).map_err(target_error)?;
        keyspace.put_with(key, value, self.durability).wait().map_err(target_error)
    }

    fn checkpoint(&mut self, number: u64) -> std::result::Result<(), TargetError> {
        let name = format!("{CHECKPOINT_NAMES}{number}-{:016x}", self.env.random_u64());
        self.db.checkpoint(&name).wait().map(drop).map_err(target_error)
    }

    fn multi_get(
        &mut self,
        keys: &[Vec<u8>],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> std::result::Result<usize, TargetError> {
        let values = match &self.blocking {
            Some(keyspace) => keyspace.multi_get(keys),
            None => self.keyspace.multi_get(keys).wait(),
        };
        let values = values.map_err(target_error)?;
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
    ) -> std::result::Result<(), TargetError> {
        let (env, mut flight, mut key) = (self.env, InFlight::default(), Vec::new());
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
                ended(
                    number,
                    value.as_ref().map(Option::as_deref).map_err(|error| target_error(error.clone())),
                );
            }
        }
    }

    fn scan(
        &mut self,
        from: &[u8],
        entries: usize,
        seen: Seen<'_>,
    ) -> std::result::Result<usize, TargetError> {
        Thread::read(self.keyspace.cursor::<&[u8]>(..), Some(from), entries, seen)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> std::result::Result<usize, TargetError> {
        Thread::read(self.keyspace.cursor::<&[u8]>(..), None, entries, seen)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> std::result::Result<(), TargetError> {
        let mut batch = Batch::new();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(self.keyspace, key, value),
                None => batch.delete(self.keyspace, key),
            };
        }
        self.db.write_with(batch, self.durability).wait().map_err(target_error)
    }
}
