//! SlateDB on the local file system: its defaults with blocks, filters, compression, cache and memtables made equal.
//!
//! Its calls are asynchronous; each thread waits for its own on the runtime. The store it is given does not sync files, so that its durable
//! writes are weaker than the others'; its accepted ones are in memory until the next flush (100 ms), and go with the process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slatedb::admin::AdminBuilder;
use slatedb::compactor::{CompactionSpec, SourceId};
use slatedb::config::{CompressionCodec, FlushOptions, FlushType, ScanOptions, Settings, SstBlockSize};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::object_store::ObjectStore;
use slatedb::object_store::local::LocalFileSystem;
use slatedb::{BloomFilterPolicy, Db, IterationOrder, WriteBatch};
use tokio::runtime::Runtime;
use tombolo_workload::target::Seen;
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::{Config, Engine, FILTER_BITS, error};

/// Where the database lies in its store.
const PATH: &str = "db";
/// How long a full compaction may take before it is given up.
const COMPACTION_MAX: Duration = Duration::from_secs(300);

/// An open database.
pub struct Slate {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    db: Db,
}

impl Engine for Slate {
    fn open(config: &Config) -> Result<Slate, TargetError> {
        if config.direct || config.spaces > 1 {
            return Err(error("SlateDB has neither direct IO nor keyspaces"));
        }
        std::fs::create_dir_all(&config.directory).map_err(error)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(error)?;
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(&config.directory).map_err(error)?);
        let settings = Settings {
            compression_codec: Some(CompressionCodec::Lz4),
            l0_sst_size_bytes: usize::try_from(config.memtable_bytes).unwrap_or(usize::MAX),
            ..Settings::default()
        };
        let cache = FoyerCache::new_with_opts(FoyerCacheOptions { max_capacity: config.cache_bytes, ..FoyerCacheOptions::default() });
        let builder = Db::builder(PATH, Arc::clone(&store))
            .with_settings(settings)
            .with_sst_block_size(SstBlockSize::Block8Kib)
            .with_filter_policies(vec![Arc::new(BloomFilterPolicy::new(u32::from(FILTER_BITS)))])
            .with_db_cache(Arc::new(cache), 0);
        let db = runtime.block_on(builder.build()).map_err(error)?;
        Ok(Slate { runtime, store, db })
    }

    fn close(self) -> Result<(), TargetError> {
        self.runtime.block_on(self.db.close()).map_err(error)
    }

    fn runs(&self) -> Option<u64> {
        let manifest = self.db.manifest();
        Some((manifest.l0().len() + manifest.compacted().len()) as u64)
    }

    fn is_busy(&self) -> bool {
        // Its compactor looks every 5 seconds: what it is going to do is at least as much as what lies ready for it.
        self.db.manifest().l0().len() >= 4
    }

    fn settings(config: &Config) -> String {
        format!(
            "cache of {} (foyer), l0_sst_size_bytes={}, blocks of 8192, bloom {FILTER_BITS} bits, lz4, all else default; local file system without \
             fsync; accepted: in memory until the next flush (100 ms), goes with the process; durable: an explicit flush; multi-get is a loop of gets",
            config.cache_bytes, config.memtable_bytes
        )
    }
}

impl Target for Slate {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        Thread { slate: self, durable: durability == Durability::Durable }
    }

    fn flush(&self) -> Result<(), TargetError> {
        let options = FlushOptions { flush_type: FlushType::MemTable, ..FlushOptions::default() };
        self.runtime.block_on(self.db.flush_with_options(options)).map_err(error)
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.flush()?;
        let admin = AdminBuilder::new(PATH, Arc::clone(&self.store)).build();
        let begun = Instant::now();
        // Its own compactions come between: ask until one has merged everything.
        while self.runs() > Some(1) {
            let manifest = self.db.manifest();
            let tables = manifest.l0().iter().map(|table| SourceId::SstView(table.id));
            let runs = manifest.compacted().iter().map(|run| SourceId::SortedRun(run.id));
            let destination = manifest.compacted().iter().map(|run| run.id).min().unwrap_or(0);
            let spec = CompactionSpec::new(tables.chain(runs).collect(), destination);
            self.runtime.block_on(admin.submit_compaction(spec)).map_err(error)?;
            let until = Instant::now() + Duration::from_secs(30);
            while self.runs() > Some(1) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(100));
            }
            if begun.elapsed() > COMPACTION_MAX {
                return Err(error(format!("not merged after {COMPACTION_MAX:?}")));
            }
        }
        Ok(())
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> String {
        String::new()
    }

    fn describe(&self) -> String {
        "slatedb".to_owned()
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    slate: &'a Slate,
    durable: bool,
}

impl Thread<'_> {
    fn written(&self) -> Result<(), TargetError> {
        if self.durable { self.slate.runtime.block_on(self.slate.db.flush()).map_err(error) } else { Ok(()) }
    }

    fn read(&self, from: &[u8], order: IterationOrder, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        self.slate.runtime.block_on(async {
            let options = ScanOptions { order, cache_blocks: true, ..ScanOptions::default() };
            let mut iterator = self.slate.db.scan_with_options(from.to_vec().., &options).await.map_err(error)?;
            let mut count = 0;
            while count < entries
                && let Some(entry) = iterator.next().await.map_err(error)?
            {
                count += 1;
                if !seen(&entry.key, &entry.value) {
                    break;
                }
            }
            Ok(count)
        })
    }
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.slate.runtime.block_on(self.slate.db.put(key, value)).map_err(error)?;
        self.written()
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let value = self.slate.runtime.block_on(self.slate.db.get(key)).map_err(error)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.slate.runtime.block_on(self.slate.db.delete(key)).map_err(error)?;
        self.written()
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        self.read(from, IterationOrder::Ascending, entries, seen)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        self.read(&[], IterationOrder::Descending, entries, seen)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut batch = WriteBatch::new();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        self.slate.runtime.block_on(self.slate.db.write(batch)).map_err(error)?;
        self.written()
    }
}
