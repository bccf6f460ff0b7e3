//! Settings that are accepted and have no effect: Tombolo has no such part, or decides it itself.
//!
//! None of them changes what a read gives or what a write survives; those that would are refused.

use std::ffi::{c_char, c_double, c_int, c_uchar, c_uint};

use crate::options::OptionsHandle;

/// How a flush flushes: every one waits.
#[derive(Default)]
pub struct FlushOptions {
    _nothing: u8,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_flushoptions_create() -> Option<Box<FlushOptions>> {
    Some(Box::default())
}

/// What was made of it stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_flushoptions_destroy(handle: Option<Box<FlushOptions>>) {
    drop(handle);
}

/// The world: there is the real one.
#[derive(Default)]
pub struct EnvHandle {
    _nothing: u8,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_create_default_env() -> Option<Box<EnvHandle>> {
    Some(Box::default())
}

/// What was made of it stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_env_destroy(handle: Option<Box<EnvHandle>>) {
    drop(handle);
}

/// A bound on background work, which Tombolo finds itself.
#[derive(Default)]
pub struct RateLimiter {
    _nothing: u8,
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_ratelimiter_create(
    _rate: i64,
    _refill: i64,
    _fairness: i32,
) -> Option<Box<RateLimiter>> {
    Some(Box::default())
}

/// What was made of it stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_ratelimiter_destroy(handle: Option<Box<RateLimiter>>) {
    drop(handle);
}

/// How tables are merged: the setting `shape` of a keyspace says it.
#[derive(Default)]
pub struct UniversalOptions {
    _nothing: u8,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_create() -> Option<Box<UniversalOptions>> {
    Some(Box::default())
}

/// What was made of it stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_destroy(handle: Option<Box<UniversalOptions>>) {
    drop(handle);
}

/// How much is kept: the setting `fifo_bytes` of a keyspace says it.
#[derive(Default)]
pub struct FifoOptions {
    _nothing: u8,
}

/// As they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_fifo_compaction_options_create() -> Option<Box<FifoOptions>> {
    Some(Box::default())
}

/// What was made of it stays.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_fifo_compaction_options_destroy(handle: Option<Box<FifoOptions>>) {
    drop(handle);
}

/// A part of keys that filters are made for: those of Tombolo are made for whole keys.
#[derive(Default)]
pub struct SliceTransform {
    _length: usize,
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_slicetransform_create_fixed_prefix(length: usize) -> Option<Box<SliceTransform>> {
    Some(Box::new(SliceTransform { _length: length }))
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_slicetransform_create_noop() -> Option<Box<SliceTransform>> {
    Some(Box::default())
}

/// One that no options own.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_slicetransform_destroy(handle: Option<Box<SliceTransform>>) {
    drop(handle);
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_increase_parallelism(_options: Option<&mut OptionsHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_optimize_for_point_lookup(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_optimize_level_style_compaction(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_optimize_universal_style_compaction(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_allow_ingest_behind(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_paranoid_checks(_options: Option<&mut OptionsHandle>, _value: c_uchar) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_env(
    _options: Option<&mut OptionsHandle>,
    _value: Option<&mut EnvHandle>,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_info_log_level(_options: Option<&mut OptionsHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_db_write_buffer_size(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_open_files(_options: Option<&mut OptionsHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_file_opening_threads(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_total_wal_size(_options: Option<&mut OptionsHandle>, _value: u64) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_compression_options(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
    _second: c_int,
    _third: c_int,
    _fourth: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_bottommost_compression_options(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
    _second: c_int,
    _third: c_int,
    _fourth: c_int,
    _fifth: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_prefix_extractor(
    _options: Option<&mut OptionsHandle>,
    _value: Option<Box<SliceTransform>>,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_num_levels(_options: Option<&mut OptionsHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_level0_file_num_compaction_trigger(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_level0_slowdown_writes_trigger(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_level0_stop_writes_trigger(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_target_file_size_base(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_target_file_size_multiplier(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_bytes_for_level_base(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_bytes_for_level_multiplier(
    _options: Option<&mut OptionsHandle>,
    _value: c_double,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_enable_statistics(_options: Option<&mut OptionsHandle>) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_ttl(_options: Option<&mut OptionsHandle>, _value: u64) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_periodic_compaction_seconds(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_skip_stats_update_on_db_open(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_write_buffer_number(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_min_write_buffer_number_to_merge(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_enable_pipelined_write(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_unordered_write(_options: Option<&mut OptionsHandle>, _value: c_uchar) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_subcompactions(_options: Option<&mut OptionsHandle>, _value: u32) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_background_jobs(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_background_compactions(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_background_flushes(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_log_file_size(_options: Option<&mut OptionsHandle>, _value: usize) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_log_file_time_to_roll(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_keep_log_file_num(_options: Option<&mut OptionsHandle>, _value: usize) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_recycle_log_file_num(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_soft_pending_compaction_bytes_limit(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_hard_pending_compaction_bytes_limit(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_manifest_file_size(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_table_cache_numshardbits(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_arena_block_size(_options: Option<&mut OptionsHandle>, _value: usize) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_use_fsync(_options: Option<&mut OptionsHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_db_log_dir(
    _options: Option<&mut OptionsHandle>,
    _value: *const c_char,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_wal_dir(_options: Option<&mut OptionsHandle>, _value: *const c_char) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_WAL_ttl_seconds(_options: Option<&mut OptionsHandle>, _value: u64) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_WAL_size_limit_MB(_options: Option<&mut OptionsHandle>, _value: u64) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_manifest_preallocation_size(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_allow_mmap_reads(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_allow_mmap_writes(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_use_direct_reads(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_use_direct_io_for_flush_and_compaction(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_is_fd_close_on_exec(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_stats_dump_period_sec(
    _options: Option<&mut OptionsHandle>,
    _value: c_uint,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_advise_random_on_open(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_use_adaptive_mutex(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_bytes_per_sync(_options: Option<&mut OptionsHandle>, _value: u64) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_wal_bytes_per_sync(_options: Option<&mut OptionsHandle>, _value: u64) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_writable_file_max_buffer_size(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_allow_concurrent_memtable_write(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_sequential_skip_in_iterations(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_optimize_filters_for_hits(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_delete_obsolete_files_period_micros(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_prepare_for_bulk_load(_options: Option<&mut OptionsHandle>) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_memtable_vector_rep(_options: Option<&mut OptionsHandle>) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_memtable_prefix_bloom_size_ratio(
    _options: Option<&mut OptionsHandle>,
    _value: c_double,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_compaction_bytes(
    _options: Option<&mut OptionsHandle>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_hash_skip_list_rep(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
    _second: i32,
    _third: i32,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_hash_link_list_rep(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_write_dbid_to_manifest(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_track_and_verify_wals_in_manifest(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_min_level_to_compress(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_memtable_huge_page_size(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_max_successive_merges(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_bloom_locality(_options: Option<&mut OptionsHandle>, _value: u32) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_inplace_update_support(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_inplace_update_num_locks(
    _options: Option<&mut OptionsHandle>,
    _value: usize,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_report_bg_io_stats(
    _options: Option<&mut OptionsHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_wal_recovery_mode(_options: Option<&mut OptionsHandle>, _value: c_int) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_universal_compaction_options(
    _options: Option<&mut OptionsHandle>,
    _value: Option<&mut UniversalOptions>,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_fifo_compaction_options(
    _options: Option<&mut OptionsHandle>,
    _value: Option<&mut FifoOptions>,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_ratelimiter(
    _options: Option<&mut OptionsHandle>,
    _value: Option<&mut RateLimiter>,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_atomic_flush(_options: Option<&mut OptionsHandle>, _value: c_uchar) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_manual_wal_flush(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_wal_compression(_options: Option<&mut OptionsHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_options_set_dump_malloc_stats(
    _options: Option<&mut OptionsHandle>,
    _value: c_uchar,
) {
}
