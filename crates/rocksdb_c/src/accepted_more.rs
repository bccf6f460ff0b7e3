//! As `accepted`, of tables, reads, writes and the rest.
//!
//! None of them changes what a read gives or what a write survives; those that would are refused.

use std::ffi::{c_int, c_uchar};

use crate::accepted::{EnvHandle, FifoOptions, FlushOptions, UniversalOptions};
use crate::options::{ReadOptions, TableOptions, WriteOptions};

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_verify_checksums(
    _options: Option<&mut ReadOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_fill_cache(_options: Option<&mut ReadOptions>, _value: c_uchar) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_async_io(_options: Option<&mut ReadOptions>, _value: c_uchar) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_readahead_size(_options: Option<&mut ReadOptions>, _value: usize) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_max_skippable_internal_keys(
    _options: Option<&mut ReadOptions>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_total_order_seek(
    _options: Option<&mut ReadOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_pin_data(_options: Option<&mut ReadOptions>, _value: c_uchar) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_readoptions_set_background_purge_on_iterator_cleanup(
    _options: Option<&mut ReadOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_env_set_background_threads(_options: Option<&mut EnvHandle>, _value: c_int) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_env_set_high_priority_background_threads(
    _options: Option<&mut EnvHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_env_set_low_priority_background_threads(
    _options: Option<&mut EnvHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_env_set_bottom_priority_background_threads(
    _options: Option<&mut EnvHandle>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_set_size_ratio(
    _options: Option<&mut UniversalOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_set_min_merge_width(
    _options: Option<&mut UniversalOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_set_max_merge_width(
    _options: Option<&mut UniversalOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_set_max_size_amplification_percent(
    _options: Option<&mut UniversalOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_set_compression_size_percent(
    _options: Option<&mut UniversalOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_universal_compaction_options_set_stop_style(
    _options: Option<&mut UniversalOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_fifo_compaction_options_set_max_table_files_size(
    _options: Option<&mut FifoOptions>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_set_ignore_missing_column_families(
    _options: Option<&mut WriteOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_set_no_slowdown(_options: Option<&mut WriteOptions>, _value: c_uchar) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_set_low_pri(_options: Option<&mut WriteOptions>, _value: c_uchar) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_writeoptions_set_memtable_insert_hint_per_batch(
    _options: Option<&mut WriteOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_flushoptions_set_wait(_options: Option<&mut FlushOptions>, _value: c_uchar) {}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_pin_top_level_index_and_filter(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_index_type(
    _options: Option<&mut TableOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_data_block_index_type(
    _options: Option<&mut TableOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_no_block_cache(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_block_size_deviation(
    _options: Option<&mut TableOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_block_restart_interval(
    _options: Option<&mut TableOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_index_block_restart_interval(
    _options: Option<&mut TableOptions>,
    _value: c_int,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_metadata_block_size(
    _options: Option<&mut TableOptions>,
    _value: u64,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_partition_filters(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_optimize_filters_for_memory(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_use_delta_encoding(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_whole_key_filtering(
    _options: Option<&mut TableOptions>,
    _value: c_uchar,
) {
}

/// Accepted, and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_block_based_options_set_format_version(
    _options: Option<&mut TableOptions>,
    _value: c_int,
) {
}
