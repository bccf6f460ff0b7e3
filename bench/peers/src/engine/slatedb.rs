//! SlateDB on the local file system or in a bucket: its defaults with blocks, filters, compression,
//! cache and memtables made equal.
//!
//! Its calls are asynchronous; each thread waits for its own on the runtime. The store of files
//! that it is given does not sync them, so that its durable writes are weaker there than the
//! others'; its accepted ones are in memory until the next flush (100 ms), and go with the process.
//! A multi-get, which it does not have, is as many gets at once in a bucket, and one after the
//! other on files, where they need no waiting. A directory that is made as slow as a store far away
//! is taken for one, and syncs its files, as Tombolo's does.
//!
//! Tuned, after its page on tuning and the comments of its settings: the log is flushed every
//! millisecond, so that durable writes wait for the store alone; scans read a megabyte ahead in
//! four tasks and keep what they read; an eighth of the cache is for indexes and filters alone;
//! compaction looks for work every second. Its cache on a local disk stays off, as Tombolo's does.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slatedb::admin::AdminBuilder;
use slatedb::compactor::{CompactionSpec, SourceId};
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, CompressionCodec, FlushOptions, FlushType, ScanOptions,
    Settings, SstBlockSize,
};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::db_cache::{DbCache, SplitCache};
use slatedb::object_store::ObjectStore;
use slatedb::object_store::local::LocalFileSystem;
use slatedb::{BloomFilterPolicy, Db, IterationOrder, WriteBatch, WriteHandle};
use tokio::runtime::Runtime;
use tombolo_workload::target::Seen;
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::slow::Slow;
use super::{Config, Engine, FILTER_BITS, error};

/// Where the database lies in its store.
const PATH: &str = "db";
/// How long a full compaction may take before it is given up.
const COMPACTION_MAX: Duration = Duration::from_secs(300);

/// Which settings.
pub trait Tuning: Send + Sync {
    /// Whether as its documentation advises.
    const TUNED: bool;
}

/// The defaults, made equal.
pub struct Plain;
/// Its documentation's advice.
pub struct Tuned;

impl Tuning for Plain {
    const TUNED: bool = false;
}

impl Tuning for Tuned {
    const TUNED: bool = true;
}

/// An open database.
pub struct Slate<T> {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    /// Where the database lies in its store.
    path: String,
    db: Db,
    is_remote: bool,
    tuning: PhantomData<T>,
}

/// The store, and the path of the database in it.
fn store(config: &Config) -> Result<(Arc<dyn ObjectStore>, String), TargetError> {
    match &config.bucket {
        None => {
            std::fs::create_dir_all(&config.directory).map_err(error)?;
            let files = LocalFileSystem::new_with_prefix(&config.directory).map_err(error)?;
            let store: Arc<dyn ObjectStore> = match config.latency {
                None => Arc::new(files),
                Some(latency) => Arc::new(Slow::new(Arc::new(files.with_fsync(true)), latency)),
            };
            Ok((store, PATH.to_owned()))
        }
        #[cfg(feature = "cloud")]
        Some(uri) => {
            let wrong = || error(format!("{uri}: s3://bucket/prefix?endpoint=http://host:port is expected"));
            let (place, endpoint) =
                uri.strip_prefix("s3://").and_then(|rest| rest.split_once("?endpoint=")).ok_or_else(wrong)?;
            let (bucket, prefix) = place.split_once('/').ok_or_else(wrong)?;
            let builder = slatedb::object_store::aws::AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_endpoint(endpoint);
            Ok((Arc::new(builder.with_allow_http(true).build().map_err(error)?), prefix.to_owned()))
        }
        #[cfg(not(feature = "cloud"))]
        Some(uri) => Err(error(format!("{uri}: built without the feature `cloud`"))),
    }
}

impl<T: Tuning> Engine for Slate<T> {
    fn open(config: &Config) -> Result<Slate<T>, TargetError> {
        if config.direct || config.spaces > 1 {
            return Err(error("SlateDB has neither direct IO nor keyspaces"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(error)?;
        let (store, path) = store(config)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut settings = Settings {
            compression_codec: Some(CompressionCodec::Lz4),
            l0_sst_size_bytes: size(config.memtable_bytes),
            ..Settings::default()
        };
        if config.is_far() {
            // Two memtables, as everybody has: by default a gigabyte may wait for the store.
            settings.max_unflushed_bytes = size(2 * config.memtable_bytes);
        }
        if T::TUNED {
            settings.flush_interval = Some(Duration::from_millis(1));
            let second = Duration::from_secs(1);
            let worker = CompactionWorkerOptions {
                compactions_poll_interval: second,
                ..CompactionWorkerOptions::default()
            };
            settings.compactor_options = Some(CompactorOptions {
                poll_interval: second,
                worker: Some(worker),
                ..CompactorOptions::default()
            });
        }
        let foyer = |bytes| {
            Arc::new(FoyerCache::new_with_opts(FoyerCacheOptions {
                max_capacity: bytes,
                ..FoyerCacheOptions::default()
            }))
        };
        let cache: Arc<dyn DbCache> = if T::TUNED {
            let metadata_bytes = config.cache_bytes / 8;
            let split = SplitCache::new().with_block_cache(Some(foyer(config.cache_bytes - metadata_bytes)));
            Arc::new(split.with_meta_cache(Some(foyer(metadata_bytes))).build())
        } else {
            foyer(config.cache_bytes)
        };
        let builder = Db::builder(path.as_str(), Arc::clone(&store))
            .with_settings(settings)
            .with_sst_block_size(SstBlockSize::Block8Kib)
            .with_filter_policies(vec![Arc::new(BloomFilterPolicy::new(u32::from(FILTER_BITS)))])
            .with_db_cache(cache, 0);
        let db = runtime.block_on(builder.build()).map_err(error)?;
        Ok(Slate { runtime, store, path, db, is_remote: config.is_far(), tuning: PhantomData })
    }

    fn close(self) -> Result<(), TargetError> {
        self.runtime.block_on(self.db.close()).map_err(error)
    }

    fn runs(&self) -> Option<u64> {
        let manifest = self.db.manifest();
        Some((manifest.l0().len() + manifest.compacted().len()) as u64)
    }

    fn is_busy(&self) -> bool {
        // Its compactor looks every 5 seconds: what it is going to do is at least as much as what
        // lies ready for it.
        self.db.manifest().l0().len() >= 4
    }

    fn settings(config: &Config) -> String {
        format!(
            "cache of {} (foyer), l0_sst_size_bytes={}, blocks of 8192, bloom {FILTER_BITS} bits, lz4, {}; \
            {}; accepted: in memory until the next \
             flush, goes with the process",
            config.cache_bytes,
            config.memtable_bytes,
            if T::TUNED {
                "flush_interval=1ms, compactions looked for every second, scans read 1 MiB ahead in 4 tasks \
                and are cached, an eighth of the cache for \
                 indexes and filters"
            } else {
                "all else default, a flush every 100 ms, scans as they are when not told otherwise"
            },
            if config.is_far() {
                "max_unflushed_bytes of two memtables; durable: await_durable; multi-get is as many gets at \
                once"
            } else {
                "local file system without fsync; durable: an explicit flush; multi-get is a loop of gets"
            }
        )
    }
}

impl<T: Tuning> Target for Slate<T> {
    type Session<'a>
        = Thread<'a, T>
    where
        T: 'a;

    fn session(&self, durability: Durability) -> Thread<'_, T> {
        Thread { slate: self, durable: durability == Durability::Durable }
    }

    fn flush(&self) -> Result<(), TargetError> {
        let options = FlushOptions { flush_type: FlushType::MemTable, ..FlushOptions::default() };
        self.runtime.block_on(self.db.flush_with_options(options)).map_err(error)
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.flush()?;
        let admin = AdminBuilder::new(self.path.as_str(), Arc::clone(&self.store)).build();
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
pub struct Thread<'a, T> {
    slate: &'a Slate<T>,
    durable: bool,
}

impl<T: Tuning> Thread<'_, T> {
    /// Waits until it is durable where that is asked: for the next flush of its own in a bucket,
    /// for a flush of this thread's asking on files.
    fn written(&self, write: &WriteHandle) -> Result<(), TargetError> {
        if !self.durable {
            return Ok(());
        }
        let db = &self.slate.db;
        self.slate
            .runtime
            .block_on(async {
                if self.slate.is_remote { write.await_durable().await } else { db.flush().await }
            })
            .map_err(error)
    }

    fn read(
        &self,
        from: &[u8],
        order: IterationOrder,
        entries: usize,
        seen: Seen<'_>,
    ) -> Result<usize, TargetError> {
        self.slate.runtime.block_on(async {
            // On files blocks are kept, as everybody's are; in a bucket its default is measured
            // too, which is not to.
            let mut options =
                ScanOptions { order, cache_blocks: !self.slate.is_remote, ..ScanOptions::default() };
            if T::TUNED {
                options = ScanOptions {
                    cache_blocks: true,
                    read_ahead_bytes: 1 << 20,
                    max_fetch_tasks: 4,
                    ..options
                };
            }
            let mut iterator =
                self.slate.db.scan_with_options(from.to_vec().., &options).await.map_err(error)?;
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

impl<T: Tuning> Session for Thread<'_, T> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let write = self.slate.runtime.block_on(self.slate.db.put(key, value)).map_err(error)?;
        self.written(&write)
    }

    fn multi_get(
        &mut self,
        keys: &[Vec<u8>],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, TargetError> {
        let mut found = 0;
        if !self.slate.is_remote {
            for (index, key) in keys.iter().enumerate() {
                found += usize::from(self.get(key, &mut |value| seen(index, value))?);
            }
            return Ok(found);
        }
        let values = self.slate.runtime.block_on(async {
            let mut gets = tokio::task::JoinSet::new();
            for (index, key) in keys.iter().enumerate() {
                let (db, key) = (self.slate.db.clone(), key.clone());
                gets.spawn(async move { (index, db.get(key).await) });
            }
            gets.join_all().await
        });
        for (index, value) in values {
            if let Some(value) = value.map_err(error)? {
                seen(index, &value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let value = self.slate.runtime.block_on(self.slate.db.get(key)).map_err(error)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        let write = self.slate.runtime.block_on(self.slate.db.delete(key)).map_err(error)?;
        self.written(&write)
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
        let write = self.slate.runtime.block_on(self.slate.db.write(batch)).map_err(error)?;
        self.written(&write)
    }
}
