//! Options, as far as they mean something here. `accepted` has those that do not.

use std::ffi::{c_char, c_double, c_int, c_uchar, c_void};
use std::sync::Arc;

use tombolo::{
    Builder, Compression, Db, Env, Error, KeyspaceOptions, OpenMode, OperatorName, Options, Result, TakeOver,
};

use crate::door::{name_of, unsupported};
use crate::handles::SnapshotHandle;
use crate::operator::{MergeOperator, shipped};

/// Of a database and of a column family.
#[derive(Clone, Default)]
pub struct OptionsHandle {
    create_if_missing: bool,
    error_if_exists: bool,
    pub(crate) create_missing_families: bool,
    cache_bytes: Option<u64>,
    write_buffer_bytes: Option<u64>,
    manual_compaction_only: bool,
    compression: Option<Compression>,
    compression_lowest: Option<Compression>,
    filter_bits: Option<u8>,
    block_bytes: Option<u32>,
    operator: Option<Arc<MergeOperator>>,
    /// What these options ask for that Tombolo does not have: opening says so.
    refused: Option<String>,
    /// Whether the oldest data is to be dropped, which opening refuses.
    drops_oldest: bool,
}

/// RocksDB's number of the compaction style FIFO.
const FIFO: c_int = 2;

/// What Tombolo's memory is where a program says nothing of caches.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

impl OptionsHandle {
    /// # Errors
    /// `Unsupported` for what Tombolo does not have.
    pub(crate) fn check(&self) -> Result<()> {
        if self.drops_oldest {
            let refused = unsupported("FIFO compaction, by options: all data would stay");
            return Err(refused.advice("create the keyspace with the settings shape=fifo and fifo_bytes"));
        }
        match &self.refused {
            Some(what) => Err(unsupported(what.clone())),
            None => Ok(()),
        }
    }

    /// Settings of the database: the block cache and some memtables make the memory budget.
    fn database(&self) -> Options {
        let mut options = Options::default();
        if let Some(cache) = self.cache_bytes {
            let buffers = self.write_buffer_bytes.unwrap_or(64 << 20).saturating_mul(4);
            options.memory_bytes = cache.saturating_add(buffers).max(MEMORY_BYTES_MIN);
        }
        if let Some(bytes) = self.write_buffer_bytes {
            options.memory_bytes = options.memory_bytes.max(bytes.saturating_mul(4));
            options.memtable_bytes = Some(bytes.clamp(4096, options.memory_bytes / 4));
        }
        options.automatic_compaction = !self.manual_compaction_only;
        options
    }

    /// Settings of a keyspace that is created for a column family.
    pub(crate) fn keyspace(&self) -> KeyspaceOptions {
        let default = KeyspaceOptions::default();
        KeyspaceOptions {
            compression: self.compression.unwrap_or(default.compression),
            compression_lowest: self.compression_lowest,
            block_bytes: self.block_bytes,
            filter_bits: self.filter_bits.unwrap_or(default.filter_bits),
            operator: self.operator.as_ref().map(|operator| operator.name.clone()),
            ..default
        }
    }

    /// A builder for the database at a path or URI. A database that another process has open stays
    /// with it, as RocksDB's lock sees to.
    pub(crate) fn builder(&self, uri: &str, env: &Env) -> Builder {
        let mode = match (self.create_if_missing, self.error_if_exists) {
            (true, true) => OpenMode::Create,
            (true, false) => OpenMode::CreateOrOpen,
            (false, _) => OpenMode::Open,
        };
        let builder =
            Db::builder(uri).env(env.clone()).mode(mode).take_over(TakeOver::Never).options(self.database());
        self.with_operator(builder)
    }

    /// The same database with the operator of these options as well.
    pub(crate) fn with_operator(&self, builder: Builder) -> Builder {
        match &self.operator {
            Some(operator) if !operator.folding.is_shipped() => {
                builder.operator(operator.name.clone(), operator.folding.operator(&operator.folding))
            }
            _ => builder,
        }
    }

    /// The name of the operator, if there is one.
    pub(crate) fn operator_name(&self) -> Option<&OperatorName> {
        self.operator.as_ref().map(|operator| &operator.name)
    }
}

/// Options as they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_create() -> Option<Box<OptionsHandle>> {
    Some(Box::default())
}

/// A copy.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_create_copy(options: Option<&OptionsHandle>) -> Option<Box<OptionsHandle>> {
    options.map(|options| Box::new(options.clone()))
}

/// Databases that were opened with them stay open.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_destroy(options: Option<Box<OptionsHandle>>) {
    drop(options);
}

fn set(options: Option<&mut OptionsHandle>, change: impl FnOnce(&mut OptionsHandle)) {
    if let Some(options) = options {
        change(options);
    }
}

/// Whether opening creates a database that is not there.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_create_if_missing(options: Option<&mut OptionsHandle>, value: c_uchar) {
    set(options, |options| options.create_if_missing = value != 0);
}

/// Whether opening creates column families that are not there.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_create_missing_column_families(
    options: Option<&mut OptionsHandle>,
    value: c_uchar,
) {
    set(options, |options| options.create_missing_families = value != 0);
}

/// Whether opening fails when the database is there.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_error_if_exists(options: Option<&mut OptionsHandle>, value: c_uchar) {
    set(options, |options| options.error_if_exists = value != 0);
}

/// Bytes of a memtable.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_write_buffer_size(options: Option<&mut OptionsHandle>, bytes: usize) {
    set(options, |options| options.write_buffer_bytes = Some((bytes as u64).max(4096)));
}

/// Compaction only when it is asked for.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_disable_auto_compactions(
    options: Option<&mut OptionsHandle>,
    value: c_int,
) {
    set(options, |options| options.manual_compaction_only = value != 0);
}

/// Level and universal compaction: the setting `shape` of a keyspace says it. FIFO, which drops the
/// oldest data, is refused: opening then fails.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_compaction_style(options: Option<&mut OptionsHandle>, value: c_int) {
    set(options, |options| options.drops_oldest = value == FIFO);
}

/// The nearest that there is: none stays none, fast ones are LZ4, strong ones are ZSTD.
fn compression(number: c_int) -> Compression {
    match number {
        0 => Compression::None,
        2 | 3 | 7 => Compression::Zstd,
        _ => Compression::Lz4,
    }
}

/// None; LZ4 for Snappy, LZ4 and XPRESS; ZSTD for zlib, bzip2 and ZSTD.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_compression(options: Option<&mut OptionsHandle>, kind: c_int) {
    set(options, |options| options.compression = Some(compression(kind)));
}

/// As `rocksdb_options_set_compression`, for the last level.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_bottommost_compression(
    options: Option<&mut OptionsHandle>,
    kind: c_int,
) {
    set(options, |options| options.compression_lowest = (kind >= 0).then(|| compression(kind)));
}

/// Other than by their bytes, keys cannot be ordered: opening then fails.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_comparator(
    options: Option<&mut OptionsHandle>,
    comparator: Option<&Comparator>,
) {
    let Some(comparator) = comparator.filter(|comparator| comparator.name != "leveldb.BytewiseComparator")
    else {
        return;
    };
    let refused =
        format!("keys are ordered by their bytes; the comparator {:?} is another order", comparator.name);
    set(options, |options| options.refused = Some(refused));
}

/// Which merge operator column families have. The options own it from here on.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_merge_operator(
    options: Option<&mut OptionsHandle>,
    operator: Option<Box<MergeOperator>>,
) {
    set(options, |options| options.operator = operator.map(|operator| Arc::new(*operator)));
}

/// Sums of little-endian u64.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_uint64add_merge_operator(options: Option<&mut OptionsHandle>) {
    set(options, |options| options.operator = shipped("add_u64").map(Arc::new));
}

/// What tables look like: block size, filters and the cache count.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_block_based_table_factory(
    options: Option<&mut OptionsHandle>,
    tables: Option<&TableOptions>,
) {
    let Some(tables) = tables else { return };
    set(options, |options| {
        options.block_bytes = tables.block_bytes.or(options.block_bytes);
        options.filter_bits = tables.filter_bits.or(options.filter_bits);
        options.cache_bytes = tables.cache_bytes.or(options.cache_bytes);
    });
}

/// What tables look like.
#[derive(Default)]
pub struct TableOptions {
    block_bytes: Option<u32>,
    filter_bits: Option<u8>,
    cache_bytes: Option<u64>,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_create() -> Option<Box<TableOptions>> {
    Some(Box::default())
}

/// Options that were made with them stay.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_destroy(options: Option<Box<TableOptions>>) {
    drop(options);
}

/// Bytes of a block, as near as Tombolo has it: 1 KiB to 1 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_block_size(
    options: Option<&mut TableOptions>,
    bytes: usize,
) {
    if let Some(options) = options {
        options.block_bytes = u32::try_from(bytes.clamp(1024, 1 << 20)).ok();
    }
}

/// A filter, whose bits per key count. The options own it from here on.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_filter_policy(
    options: Option<&mut TableOptions>,
    policy: Option<Box<FilterPolicy>>,
) {
    if let Some(options) = options {
        options.filter_bits = policy.map(|policy| policy.0);
    }
}

/// A cache, whose bytes count towards the memory of databases that are opened with it.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_block_cache(
    options: Option<&mut TableOptions>,
    cache: Option<&Cache>,
) {
    if let Some(options) = options {
        options.cache_bytes = cache.map(|cache| cache.0);
    }
}

/// A filter: its bits per key.
pub struct FilterPolicy(u8);

fn filter(bits: c_double) -> Option<Box<FilterPolicy>> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies from 0 to 30")]
    let bits = if bits.is_finite() { bits.clamp(0.0, 30.0).round() as u8 } else { 10 };
    Some(Box::new(FilterPolicy(bits)))
}

/// Of so many bits per key.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_filterpolicy_create_bloom(bits_per_key: c_double) -> Option<Box<FilterPolicy>> {
    filter(bits_per_key)
}

/// Of so many bits per key.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_filterpolicy_create_bloom_full(
    bits_per_key: c_double,
) -> Option<Box<FilterPolicy>> {
    filter(bits_per_key)
}

/// A filter of Tombolo's with as few wrong answers.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_filterpolicy_create_ribbon(bits_per_key: c_double) -> Option<Box<FilterPolicy>> {
    filter(bits_per_key)
}

/// One that no options own.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_filterpolicy_destroy(policy: Option<Box<FilterPolicy>>) {
    drop(policy);
}

/// A block cache: its bytes.
pub struct Cache(u64);

/// Of so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_cache_create_lru(capacity: usize) -> Option<Box<Cache>> {
    Some(Box::new(Cache(capacity as u64)))
}

/// Databases that were opened with it keep their memory.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_cache_destroy(cache: Option<Box<Cache>>) {
    drop(cache);
}

/// A comparator: its name.
pub struct Comparator {
    name: String,
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Drop for Comparator {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller's function for its own pointer, called once.
            unsafe { destructor(self.state) };
        }
    }
}

/// An order of keys. Options take only one of the name `leveldb.BytewiseComparator`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    _compare: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int>,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> Option<Box<Comparator>> {
    Some(Box::new(Comparator { name: name_of(name, state), state, destructor }))
}

/// Options that were given it keep its name.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_comparator_destroy(comparator: Option<Box<Comparator>>) {
    drop(comparator);
}

type Filter = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut c_uchar,
) -> c_uchar;

/// A compaction filter: its name.
pub struct CompactionFilter {
    name: String,
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Drop for CompactionFilter {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller's function for its own pointer, called once.
            unsafe { destructor(self.state) };
        }
    }
}

/// A compaction filter, which options do not take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_compactionfilter_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    _filter: Option<Filter>,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> Option<Box<CompactionFilter>> {
    Some(Box::new(CompactionFilter { name: name_of(name, state), state, destructor }))
}

/// Options that were given it keep its name.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_compactionfilter_destroy(filter: Option<Box<CompactionFilter>>) {
    drop(filter);
}

/// Refused: opening then fails.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_compaction_filter(
    options: Option<&mut OptionsHandle>,
    filter: Option<&CompactionFilter>,
) {
    let Some(filter) = filter else { return };
    let refused =
        format!("the compaction filter {:?}: compaction filters of C programs are not called", filter.name);
    set(options, |options| options.refused = Some(refused));
}

/// RocksDB's number of the read tier that leaves out writes in no table and no log.
const PERSISTED_TIER: c_int = 2;

/// How reads read.
#[derive(Default)]
pub struct ReadOptions {
    pub(crate) snapshot: Option<tombolo::Snapshot>,
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
    /// What a bound failed with, which had no place to say so.
    wrong: Option<Error>,
    tier: c_int,
    is_tailing: bool,
    keeps_prefix: bool,
}

impl ReadOptions {
    /// # Errors
    /// `Unsupported` for what Tombolo does not have.
    pub(crate) fn check(&self) -> Result<()> {
        if self.tier >= PERSISTED_TIER {
            return Err(unsupported("reads see all that was written: no tier leaves anything out"));
        }
        Ok(())
    }

    /// The same, for an iterator.
    ///
    /// # Errors
    /// As of `check`; what a bound failed with.
    pub(crate) fn check_iterator(&self) -> Result<()> {
        self.check()?;
        if self.is_tailing {
            return Err(unsupported("iterators look at one moment: there are none that tail"));
        }
        if self.keeps_prefix {
            return Err(unsupported("no iterator ends with a prefix: set an upper bound"));
        }
        self.wrong.clone().map_or(Ok(()), Err)
    }

    /// A key that bounds iterators; a null pointer is none.
    fn bound(&mut self, key: *const c_char, length: usize) -> Option<Vec<u8>> {
        if key.is_null() {
            return None;
        }
        match tombolo_c::bytes!(key, length) {
            Ok(bound) => Some(bound.to_vec()),
            Err(error) => {
                self.wrong = Some(error);
                None
            }
        }
    }
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_create() -> Option<Box<ReadOptions>> {
    Some(Box::default())
}

/// Iterators that were made with them stay.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_destroy(options: Option<Box<ReadOptions>>) {
    drop(options);
}

/// Reads look from this snapshot; from now without one.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_snapshot(
    options: Option<&mut ReadOptions>,
    snapshot: Option<&SnapshotHandle>,
) {
    if let Some(options) = options {
        options.snapshot = snapshot.map(|snapshot| snapshot.0.clone());
    }
}

/// All data, or that of the block cache: a read that finds nothing there reads on. Tiers that leave
/// out written data are refused: reads say so as their error.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_read_tier(options: Option<&mut ReadOptions>, value: c_int) {
    if let Some(options) = options {
        options.tier = value;
    }
}

/// Iterators end before this key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_readoptions_set_iterate_upper_bound(
    options: Option<&mut ReadOptions>,
    key: *const c_char,
    keylen: usize,
) {
    if let Some(options) = options {
        options.upper = options.bound(key, keylen);
    }
}

/// Iterators begin at this key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_readoptions_set_iterate_lower_bound(
    options: Option<&mut ReadOptions>,
    key: *const c_char,
    keylen: usize,
) {
    if let Some(options) = options {
        options.lower = options.bound(key, keylen);
    }
}

/// An iterator that sees later writes is refused: it says so as its error.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_tailing(options: Option<&mut ReadOptions>, value: c_uchar) {
    if let Some(options) = options {
        options.is_tailing = value != 0;
    }
}

/// An iterator that ends with a prefix is refused: it says so as its error. Set an upper bound.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_prefix_same_as_start(
    options: Option<&mut ReadOptions>,
    value: c_uchar,
) {
    if let Some(options) = options {
        options.keeps_prefix = value != 0;
    }
}

/// How writes write.
#[derive(Default)]
pub struct WriteOptions {
    sync: bool,
    unlogged: bool,
}

impl WriteOptions {
    /// As they say it; without any, accepted.
    pub(crate) fn durability(options: Option<&WriteOptions>) -> tombolo::Durability {
        match options {
            Some(WriteOptions { sync: true, .. }) => tombolo::Durability::Durable,
            Some(WriteOptions { unlogged: true, .. }) => tombolo::Durability::Unlogged,
            _ => tombolo::Durability::Accepted,
        }
    }
}

/// As they are by default: accepted.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_create() -> Option<Box<WriteOptions>> {
    Some(Box::default())
}

/// Writes that were made with them stay.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_destroy(options: Option<Box<WriteOptions>>) {
    drop(options);
}

/// Writes are durable when they end.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_set_sync(options: Option<&mut WriteOptions>, value: c_uchar) {
    if let Some(options) = options {
        options.sync = value != 0;
    }
}

/// Writes are in no log: unlogged.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_disable_WAL(options: Option<&mut WriteOptions>, disable: c_int) {
    if let Some(options) = options {
        options.unlogged = disable != 0;
    }
}
