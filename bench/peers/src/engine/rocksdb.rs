//! RocksDB, twice: at its defaults with what all engines have in common made equal, and as its own
//! guides recommend for such a machine.
//!
//! Equal: LZ4, 8 KiB blocks, full Bloom filters of 10 bits, the cache, memtables of the given size
//! (two, its default).
//!
//! Large values lie apart where a row says so: in blob files, LZ4 like the rest, with their garbage
//! collection on, which is off by default: without it overwritten values would stay.
//!
//! Tuned, from the wiki pages "Setup Options and Basic Tuning", "HyperClockCache", "Data Block Hash
//! Index", "Pipelined Write", "MultiGet Performance" and "Memory usage": HyperClockCache, hash
//! index in data blocks, filter of the memtable for whole keys, parallelism by the number of cores,
//! index and filters in the cache with those of level 0 pinned, filters made for memory, pipelined
//! writes, bytes_per_sync of 1 MiB, async_io in multi-gets (on io_uring) and iterators. Its advice
//! on compression (ZSTD below) and block size (16 KiB) is not followed: these stay equal. Nor is
//! unordered_write, which gives up what the others promise.

use std::marker::PhantomData;
use std::sync::Arc;

use rocksdb::{
    BlockBasedOptions, BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBCompressionType, DBWithThreadMode,
    DataBlockIndexType, IngestExternalFileOptions, MultiThreaded, Options, ReadOptions, SstFileWriter,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use tombolo_workload::target::{NextEntry, Seen};
use tombolo_workload::{Durability, Session, Target, TargetError};

use super::{BLOCK_BYTES, Config, Engine, FILTER_BITS, LARGE_BYTES, Outside, Turn, error};

type Handle = DBWithThreadMode<MultiThreaded>;

/// Which of the two.
pub trait Tuning: Send + Sync + 'static {
    /// As the guides recommend.
    const TUNED: bool;
}

/// The defaults, made equal.
pub struct Plain;
/// The guides' advice.
pub struct Tuned;

impl Tuning for Plain {
    const TUNED: bool = false;
}

impl Tuning for Tuned {
    const TUNED: bool = true;
}

/// An open database.
pub struct Rocks<T> {
    db: Handle,
    spaces: usize,
    turn: Turn,
    /// Of tables made outside.
    options: Options,
    outside: Outside,
    tuning: PhantomData<T>,
}

fn name(number: usize) -> String {
    format!("space-{number}")
}

/// RocksDB's `uint64add`, which its C interface does not give out.
fn add(_key: &[u8], value: Option<&[u8]>, operands: &rocksdb::MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let mut sum = value.map_or(Some(0), number)?;
    for operand in operands {
        sum = sum.wrapping_add(number(operand)?);
    }
    Some(sum.to_le_bytes().to_vec())
}

fn options<T: Tuning>(config: &Config) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(f64::from(FILTER_BITS), false);
    let cache_bytes = usize::try_from(config.cache_bytes).unwrap_or(usize::MAX);
    // 0: it estimates the charge of an entry itself.
    let cache = if T::TUNED {
        Cache::new_hyper_clock_cache(cache_bytes, 0)
    } else {
        Cache::new_lru_cache(cache_bytes)
    };
    table.set_block_cache(&cache);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(usize::try_from(config.memtable_bytes).unwrap_or(usize::MAX));
    options.set_use_direct_reads(config.direct);
    options.set_use_direct_io_for_flush_and_compaction(config.direct);
    if T::TUNED {
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_optimize_filters_for_memory(true);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        options.increase_parallelism(i32::try_from(cores).unwrap_or(i32::MAX));
        options.set_memtable_prefix_bloom_ratio(0.02);
        options.set_memtable_whole_key_filtering(true);
        options.set_enable_pipelined_write(true);
        options.set_bytes_per_sync(1 << 20);
        options.set_avoid_unnecessary_blocking_io(true);
    }
    options.set_block_based_table_factory(&table);
    options.set_merge_operator_associative("uint64add", add);
    if config.apart {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(u64::from(LARGE_BYTES));
        options.set_blob_compression_type(DBCompressionType::Lz4);
        options.set_enable_blob_gc(true);
        options.set_blob_cache(&cache);
    }
    options
}

impl<T: Tuning> Rocks<T> {
    fn space(&self, number: usize) -> Result<Arc<BoundColumnFamily<'_>>, TargetError> {
        self.db.cf_handle(&name(number)).ok_or_else(|| error(format!("no column family {}", name(number))))
    }

    fn number(&self, property: &str) -> u64 {
        let of =
            |space: usize| self.db.property_int_value_cf(&self.space(space).ok()?, property).ok().flatten();
        (0..self.spaces).filter_map(of).sum()
    }
}

impl<T: Tuning> Engine for Rocks<T> {
    fn open(config: &Config) -> Result<Rocks<T>, TargetError> {
        let options = options::<T>(config);
        let families =
            (0..config.spaces).map(|number| ColumnFamilyDescriptor::new(name(number), options.clone()));
        let db = Handle::open_cf_descriptors(&options, &config.directory, families).map_err(error)?;
        let outside = Outside::of(&config.directory);
        Ok(Rocks { db, spaces: config.spaces, turn: Turn::default(), options, outside, tuning: PhantomData })
    }

    fn close(self) -> Result<(), TargetError> {
        self.db.cancel_all_background_work(true);
        drop(self.db);
        Ok(())
    }

    fn runs(&self) -> Option<u64> {
        let mut runs = 0;
        for space in 0..self.spaces {
            let family = self.space(space).ok()?;
            for level in 0..7 {
                let property = format!("rocksdb.num-files-at-level{level}");
                let files: u64 =
                    self.db.property_value_cf(&family, &property).ok().flatten()?.parse().ok()?;
                runs += if level == 0 { files } else { u64::from(files > 0) };
            }
        }
        Some(runs)
    }

    fn is_busy(&self) -> bool {
        ["num-running-flushes", "num-running-compactions", "mem-table-flush-pending", "compaction-pending"]
            .iter()
            .any(|property| self.number(&format!("rocksdb.{property}")) > 0)
    }

    fn settings(config: &Config) -> String {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let common = format!(
            "block_cache={}, write_buffer_size={} (2 of them), block_size={BLOCK_BYTES}, bloom \
            {FILTER_BITS} bits, lz4{}",
            config.cache_bytes,
            config.memtable_bytes,
            if config.apart {
                format!(", blob files from {LARGE_BYTES} bytes on with garbage collection")
            } else {
                String::new()
            }
        );
        let tuned = if T::TUNED {
            format!(
                ", HyperClockCache, hash index in blocks, index and filters in the cache (level 0 pinned), \
                whole-key memtable filter 0.02, \
                 IncreaseParallelism({cores}), pipelined writes, bytes_per_sync 1 MiB, async_io, \
                 optimize_filters_for_memory"
            )
        } else {
            ", all else default".to_owned()
        };
        format!("{common}{tuned}; accepted: written to the log's file; durable: sync=true (fdatasync)")
    }
}

impl<T: Tuning> Target for Rocks<T> {
    type Session<'a> = Thread<'a>;

    fn session(&self, durability: Durability) -> Thread<'_> {
        let mut write = WriteOptions::default();
        write.set_sync(durability == Durability::Durable);
        write.disable_wal(durability == Durability::Unlogged);
        let family = self.space(self.turn.next(self.spaces)).ok();
        let mut read = ReadOptions::default();
        read.set_async_io(T::TUNED);
        let (options, outside) = (&self.options, &self.outside);
        Thread { db: &self.db, family, write, read, tuned: T::TUNED, options, outside }
    }

    fn flush(&self) -> Result<(), TargetError> {
        (0..self.spaces).try_for_each(|space| self.db.flush_cf(&self.space(space)?).map_err(error))
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.flush()?;
        for space in 0..self.spaces {
            self.db.compact_range_cf::<&[u8], &[u8]>(&self.space(space)?, None, None);
        }
        Ok(())
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(error)
    }

    fn statistics(&self) -> String {
        self.db.property_value("rocksdb.stats").ok().flatten().unwrap_or_default()
    }

    fn describe(&self) -> String {
        if T::TUNED { "rocksdb-tuned" } else { "rocksdb" }.to_owned()
    }
}

/// One thread's handle.
pub struct Thread<'a> {
    db: &'a Handle,
    /// `None` only when the column family is gone: then every call says so.
    family: Option<Arc<BoundColumnFamily<'a>>>,
    write: WriteOptions,
    read: ReadOptions,
    tuned: bool,
    options: &'a Options,
    outside: &'a Outside,
}

impl<'a> Thread<'a> {
    fn family(&self) -> Result<&Arc<BoundColumnFamily<'a>>, TargetError> {
        self.family.as_ref().ok_or_else(|| error("the column family is gone"))
    }

    fn iterator(&self) -> Result<rocksdb::DBRawIteratorWithThreadMode<'_, Handle>, TargetError> {
        let mut read = ReadOptions::default();
        read.set_async_io(self.tuned);
        Ok(self.db.raw_iterator_cf_opt(self.family()?, read))
    }
}

impl Session for Thread<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.db.put_cf_opt(self.family()?, key, value, &self.write).map_err(error)
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let value = self.db.get_pinned_cf_opt(self.family()?, key, &self.read).map_err(error)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.db.delete_cf_opt(self.family()?, key, &self.write).map_err(error)
    }

    fn merge(&mut self, key: &[u8], operand: u64) -> Result<(), TargetError> {
        let operand = operand.to_le_bytes();
        self.db.merge_cf_opt(self.family()?, key, operand, &self.write).map_err(error)
    }

    fn single_delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        // As RocksDB's own call does it.
        let mut batch = WriteBatch::default();
        batch.single_delete_cf(self.family()?, key);
        self.db.write_opt(batch, &self.write).map_err(error)
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) -> Result<(), TargetError> {
        self.db.delete_range_cf_opt(self.family()?, from, to, &self.write).map_err(error)
    }

    fn ingest(&mut self, entries: NextEntry<'_>) -> Result<(), TargetError> {
        let path = self.outside.next()?;
        let mut table = SstFileWriter::create(self.options);
        table.open(&path).map_err(error)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while entries(&mut key, &mut value) {
            table.put(&key, &value).map_err(error)?;
        }
        table.finish().map_err(error)?;
        let mut moved = IngestExternalFileOptions::default();
        moved.set_move_files(true);
        self.db.ingest_external_file_cf_opts(self.family()?, &moved, vec![path]).map_err(error)
    }

    fn multi_get(
        &mut self,
        keys: &[Vec<u8>],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<usize, TargetError> {
        let mut found = 0;
        let values = self.db.batched_multi_get_cf_opt(self.family()?, keys, false, &self.read);
        for (index, value) in values.into_iter().enumerate() {
            if let Some(value) = value.map_err(error)? {
                seen(index, &value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let mut iterator = self.iterator()?;
        iterator.seek(from);
        let mut count = 0;
        while let Some((key, value)) = iterator.item() {
            count += 1;
            if !seen(key, value) || count >= entries {
                break;
            }
            iterator.next();
        }
        iterator.status().map_err(error)?;
        Ok(count)
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let mut iterator = self.iterator()?;
        iterator.seek_to_last();
        let mut count = 0;
        while let Some((key, value)) = iterator.item() {
            count += 1;
            if !seen(key, value) || count >= entries {
                break;
            }
            iterator.prev();
        }
        iterator.status().map_err(error)?;
        Ok(count)
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut batch = WriteBatch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put_cf(self.family()?, key, value),
                None => batch.delete_cf(self.family()?, key),
            }
        }
        self.db.write_opt(batch, &self.write).map_err(error)
    }
}
