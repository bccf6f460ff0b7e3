// The functions of RocksDB's C library that Tombolo has: their names and arguments are RocksDB's.
// The library is libtombolo_rocksdb.so. What each does here is said; docs/c.md has the rest.

#ifndef TOMBOLO_ROCKSDB_C_H
#define TOMBOLO_ROCKSDB_C_H

// Made by cbindgen from crates/rocksdb_c/src: do not edit.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A block cache: its bytes.
typedef struct rocksdb_cache_t rocksdb_cache_t;

// Makes checkpoints of a database.
typedef struct rocksdb_checkpoint_t rocksdb_checkpoint_t;

// A compaction filter: its name.
typedef struct rocksdb_compactionfilter_t rocksdb_compactionfilter_t;

// A comparator: its name.
typedef struct rocksdb_comparator_t rocksdb_comparator_t;

// An open database. Any number of threads may use it at once.
typedef struct rocksdb_t rocksdb_t;

// The world: there is the real one.
typedef struct rocksdb_env_t rocksdb_env_t;

// A column family: a keyspace. Any number of threads may use it at once.
typedef struct rocksdb_column_family_handle_t rocksdb_column_family_handle_t;

// How much is kept: the setting `fifo_bytes` of a keyspace says it.
typedef struct rocksdb_fifo_compaction_options_t rocksdb_fifo_compaction_options_t;

// A filter: its bits per key.
typedef struct rocksdb_filterpolicy_t rocksdb_filterpolicy_t;

// How a flush flushes: every one waits.
typedef struct rocksdb_flushoptions_t rocksdb_flushoptions_t;

// Stands at an entry, or at none. One thread uses it at a time.
typedef struct rocksdb_iterator_t rocksdb_iterator_t;

// How a transaction with locks begins.
typedef struct rocksdb_transaction_options_t rocksdb_transaction_options_t;

// A merge operator of the program's.
typedef struct rocksdb_mergeoperator_t rocksdb_mergeoperator_t;

// A database whose transactions find out when they commit. Any number of threads may use it at
// once.
typedef struct rocksdb_optimistictransactiondb_t rocksdb_optimistictransactiondb_t;

// How an optimistic transaction begins.
typedef struct rocksdb_optimistictransaction_options_t rocksdb_optimistictransaction_options_t;

typedef struct Option_Filter Option_Filter;

// Of a database and of a column family.
typedef struct rocksdb_options_t rocksdb_options_t;

// A value that lies where it was found.
typedef struct rocksdb_pinnableslice_t rocksdb_pinnableslice_t;

// A bound on background work, which Tombolo finds itself.
typedef struct rocksdb_ratelimiter_t rocksdb_ratelimiter_t;

// How reads read.
typedef struct rocksdb_readoptions_t rocksdb_readoptions_t;

// A part of keys that filters are made for: those of Tombolo are made for whole keys.
typedef struct rocksdb_slicetransform_t rocksdb_slicetransform_t;

// A state that stays.
typedef struct rocksdb_snapshot_t rocksdb_snapshot_t;

// What tables look like.
typedef struct rocksdb_block_based_table_options_t rocksdb_block_based_table_options_t;

// A database whose transactions lock. Any number of threads may use it at once.
typedef struct rocksdb_transactiondb_t rocksdb_transactiondb_t;

// How a database with locks is opened.
typedef struct rocksdb_transactiondb_options_t rocksdb_transactiondb_options_t;

// A transaction that has begun. One thread uses it at a time.
typedef struct rocksdb_transaction_t rocksdb_transaction_t;

// How tables are merged: the setting `shape` of a keyspace says it.
typedef struct rocksdb_universal_compaction_options_t rocksdb_universal_compaction_options_t;

// Writes that take effect together. One thread uses it at a time.
typedef struct rocksdb_writebatch_t rocksdb_writebatch_t;

// How writes write.
typedef struct rocksdb_writeoptions_t rocksdb_writeoptions_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Frees what a function of this library gave.
void rocksdb_free(void *ptr);

// Options as they are by default.
rocksdb_options_t *rocksdb_options_create(void);

// A copy.
rocksdb_options_t *rocksdb_options_create_copy(const rocksdb_options_t *options);

// Databases that were opened with them stay open.
void rocksdb_options_destroy(rocksdb_options_t *options);

// Whether opening creates a database that is not there.
void rocksdb_options_set_create_if_missing(rocksdb_options_t *options, unsigned char value);

// Whether opening creates column families that are not there.
void rocksdb_options_set_create_missing_column_families(rocksdb_options_t *options,
                                                        unsigned char value);

// Whether opening fails when the database is there.
void rocksdb_options_set_error_if_exists(rocksdb_options_t *options, unsigned char value);

// Bytes of a memtable.
void rocksdb_options_set_write_buffer_size(rocksdb_options_t *options, size_t bytes);

// Compaction only when it is asked for.
void rocksdb_options_set_disable_auto_compactions(rocksdb_options_t *options, int value);

// Level and universal compaction: the setting `shape` of a keyspace says it. FIFO, which drops the
// oldest data, is refused: opening then fails.
void rocksdb_options_set_compaction_style(rocksdb_options_t *options, int value);

// None; LZ4 for Snappy, LZ4 and XPRESS; ZSTD for zlib, bzip2 and ZSTD.
void rocksdb_options_set_compression(rocksdb_options_t *options, int kind);

// As `rocksdb_options_set_compression`, for the last level.
void rocksdb_options_set_bottommost_compression(rocksdb_options_t *options, int kind);

// Other than by their bytes, keys cannot be ordered: opening then fails.
void rocksdb_options_set_comparator(rocksdb_options_t *options,
                                    const rocksdb_comparator_t *comparator);

// Which merge operator column families have. The options own it from here on.
void rocksdb_options_set_merge_operator(rocksdb_options_t *options,
                                        rocksdb_mergeoperator_t *operator_);

// Sums of little-endian u64.
void rocksdb_options_set_uint64add_merge_operator(rocksdb_options_t *options);

// What tables look like: block size, filters and the cache count.
void rocksdb_options_set_block_based_table_factory(rocksdb_options_t *options,
                                                   const rocksdb_block_based_table_options_t *tables);

// As they are by default.
rocksdb_block_based_table_options_t *rocksdb_block_based_options_create(void);

// Options that were made with them stay.
void rocksdb_block_based_options_destroy(rocksdb_block_based_table_options_t *options);

// Bytes of a block, as near as Tombolo has it: 1 KiB to 1 MiB.
void rocksdb_block_based_options_set_block_size(rocksdb_block_based_table_options_t *options,
                                                size_t bytes);

// A filter, whose bits per key count. The options own it from here on.
void rocksdb_block_based_options_set_filter_policy(rocksdb_block_based_table_options_t *options,
                                                   rocksdb_filterpolicy_t *policy);

// A cache, whose bytes count towards the memory of databases that are opened with it.
void rocksdb_block_based_options_set_block_cache(rocksdb_block_based_table_options_t *options,
                                                 const rocksdb_cache_t *cache);

// Of so many bits per key.
rocksdb_filterpolicy_t *rocksdb_filterpolicy_create_bloom(double bits_per_key);

// Of so many bits per key.
rocksdb_filterpolicy_t *rocksdb_filterpolicy_create_bloom_full(double bits_per_key);

// A filter of Tombolo's with as few wrong answers.
rocksdb_filterpolicy_t *rocksdb_filterpolicy_create_ribbon(double bits_per_key);

// One that no options own.
void rocksdb_filterpolicy_destroy(rocksdb_filterpolicy_t *policy);

// Of so many bytes.
rocksdb_cache_t *rocksdb_cache_create_lru(size_t capacity);

// Databases that were opened with it keep their memory.
void rocksdb_cache_destroy(rocksdb_cache_t *cache);

// An order of keys. Options take only one of the name `leveldb.BytewiseComparator`.
rocksdb_comparator_t *rocksdb_comparator_create(void *state,
                                                void (*destructor)(void*),
                                                int (*_compare)(void*,
                                                                const char*,
                                                                size_t,
                                                                const char*,
                                                                size_t),
                                                const char *(*name)(void*));

// Options that were given it keep its name.
void rocksdb_comparator_destroy(rocksdb_comparator_t *comparator);

// A compaction filter, which options do not take.
rocksdb_compactionfilter_t *rocksdb_compactionfilter_create(void *state,
                                                            void (*destructor)(void*),
                                                            Option_Filter _filter,
                                                            const char *(*name)(void*));

// Options that were given it keep its name.
void rocksdb_compactionfilter_destroy(rocksdb_compactionfilter_t *filter);

// Refused: opening then fails.
void rocksdb_options_set_compaction_filter(rocksdb_options_t *options,
                                           const rocksdb_compactionfilter_t *filter);

// As they are by default.
rocksdb_readoptions_t *rocksdb_readoptions_create(void);

// Iterators that were made with them stay.
void rocksdb_readoptions_destroy(rocksdb_readoptions_t *options);

// Reads look from this snapshot; from now without one.
void rocksdb_readoptions_set_snapshot(rocksdb_readoptions_t *options,
                                      const rocksdb_snapshot_t *snapshot);

// All data, or that of the block cache: a read that finds nothing there reads on. Tiers that leave
// out written data are refused: reads say so as their error.
void rocksdb_readoptions_set_read_tier(rocksdb_readoptions_t *options, int value);

// Iterators end before this key.
void rocksdb_readoptions_set_iterate_upper_bound(rocksdb_readoptions_t *options,
                                                 const char *key,
                                                 size_t keylen);

// Iterators begin at this key.
void rocksdb_readoptions_set_iterate_lower_bound(rocksdb_readoptions_t *options,
                                                 const char *key,
                                                 size_t keylen);

// An iterator that sees later writes is refused: it says so as its error.
void rocksdb_readoptions_set_tailing(rocksdb_readoptions_t *options, unsigned char value);

// An iterator that ends with a prefix is refused: it says so as its error. Set an upper bound.
void rocksdb_readoptions_set_prefix_same_as_start(rocksdb_readoptions_t *options,
                                                  unsigned char value);

// As they are by default: accepted.
rocksdb_writeoptions_t *rocksdb_writeoptions_create(void);

// Writes that were made with them stay.
void rocksdb_writeoptions_destroy(rocksdb_writeoptions_t *options);

// Writes are durable when they end.
void rocksdb_writeoptions_set_sync(rocksdb_writeoptions_t *options, unsigned char value);

// Writes are in no log: unlogged.
void rocksdb_writeoptions_disable_WAL(rocksdb_writeoptions_t *options, int disable);

// A merge operator. Its name, with `_` for all but letters, digits, `.` and `-`, becomes the
// setting `operator` of the column families that have it. `partial_merge` is not called.
rocksdb_mergeoperator_t *rocksdb_mergeoperator_create(void *state,
                                                      void (*destructor)(void*),
                                                      char *(*full_merge)(void*,
                                                                          const char*,
                                                                          size_t,
                                                                          const char*,
                                                                          size_t,
                                                                          const char*const *,
                                                                          const size_t*,
                                                                          int,
                                                                          unsigned char*,
                                                                          size_t*),
                                                      char *(*_partial_merge)(void*,
                                                                              const char*,
                                                                              size_t,
                                                                              const char*const *,
                                                                              const size_t*,
                                                                              int,
                                                                              unsigned char*,
                                                                              size_t*),
                                                      void (*delete_value)(void*,
                                                                           const char*,
                                                                           size_t),
                                                      const char *(*name)(void*));

// One that no options own.
void rocksdb_mergeoperator_destroy(rocksdb_mergeoperator_t *operator_);

// Opens a database, at a path or a URI, with its default column family; the others stay as they
// are.
rocksdb_t *rocksdb_open(const rocksdb_options_t *options, const char *name, char **errptr);

// Opens a database to read the durable state as it is now.
rocksdb_t *rocksdb_open_for_read_only(const rocksdb_options_t *options,
                                      const char *name,
                                      unsigned char _error_if_wal_file_exists,
                                      char **errptr);

// Makes accepted writes durable and ends the database. Column families, iterators and snapshots
// have to be destroyed before.
void rocksdb_close(rocksdb_t *db);

// Deletes a database, there or not.
void rocksdb_destroy_db(const rocksdb_options_t *options, const char *name, char **errptr);

// Refused: `tombolo db salvage` saves a damaged database into another one.
void rocksdb_repair_db(const rocksdb_options_t *_options, const char *_name, char **errptr);

// Writes all that is in memory to tables.
void rocksdb_flush(const rocksdb_t *db, const rocksdb_flushoptions_t *_options, char **errptr);

// As `rocksdb_flush`: a flush is of all column families.
void rocksdb_flush_cf(const rocksdb_t *db,
                      const rocksdb_flushoptions_t *_options,
                      const rocksdb_column_family_handle_t *_column_family,
                      char **errptr);

// Makes accepted writes durable; without `sync` there is nothing to do.
void rocksdb_flush_wal(const rocksdb_t *db, unsigned char sync, char **errptr);

// Compacts the keys from `start_key` on and before `limit_key`; null is no bound. An error is not
// told, as RocksDB does not.
void rocksdb_compact_range(const rocksdb_t *db,
                           const char *start_key,
                           size_t start_key_len,
                           const char *limit_key,
                           size_t limit_key_len);

// As `rocksdb_compact_range`.
void rocksdb_compact_range_cf(const rocksdb_t *db,
                              const rocksdb_column_family_handle_t *column_family,
                              const char *start_key,
                              size_t start_key_len,
                              const char *limit_key,
                              size_t limit_key_len);

// A state of all column families, which stays.
rocksdb_snapshot_t *rocksdb_create_snapshot(const rocksdb_t *db);

// Lets go of what a snapshot keeps.
void rocksdb_release_snapshot(const rocksdb_t *_db, rocksdb_snapshot_t *snapshot);

// The newest sequence number that a snapshot sees.
uint64_t rocksdb_snapshot_get_sequence_number(const rocksdb_snapshot_t *snapshot);

// The newest sequence number that reads see.
uint64_t rocksdb_get_latest_sequence_number(const rocksdb_t *db);

// What the database says of itself, to be freed; null of an unknown name.
char *rocksdb_property_value(const rocksdb_t *db, const char *propname);

// As `rocksdb_property_value`: of the whole database.
char *rocksdb_property_value_cf(const rocksdb_t *db,
                                const rocksdb_column_family_handle_t *_column_family,
                                const char *propname);

// As a number; -1 of an unknown name.
int rocksdb_property_int(const rocksdb_t *db, const char *propname, uint64_t *out_val);

// The bytes of tables that keys of each range take, about.
void rocksdb_approximate_sizes(const rocksdb_t *db,
                               int num_ranges,
                               const char *const *range_start_key,
                               const size_t *range_start_key_len,
                               const char *const *range_limit_key,
                               const size_t *range_limit_key_len,
                               uint64_t *sizes,
                               char **errptr);

// Opens a database with these column families. Those that are there and not named stay as they
// are.
rocksdb_t *rocksdb_open_column_families(const rocksdb_options_t *options,
                                        const char *name,
                                        int num_column_families,
                                        const char *const *column_family_names,
                                        const rocksdb_options_t *const *column_family_options,
                                        rocksdb_column_family_handle_t **column_family_handles,
                                        char **errptr);

// As `rocksdb_open_column_families`, to read the durable state as it is now.
rocksdb_t *rocksdb_open_for_read_only_column_families(const rocksdb_options_t *options,
                                                      const char *name,
                                                      int num_column_families,
                                                      const char *const *column_family_names,
                                                      const rocksdb_options_t *const *column_family_options,
                                                      rocksdb_column_family_handle_t **column_family_handles,
                                                      unsigned char _error_if_wal_file_exists,
                                                      char **errptr);

// The names of all column families; to be given back by `rocksdb_list_column_families_destroy`.
char **rocksdb_list_column_families(const rocksdb_options_t *options,
                                    const char *name,
                                    size_t *lencf,
                                    char **errptr);

// Gives a list of names back.
void rocksdb_list_column_families_destroy(char **list, size_t len);

// Creates a column family.
rocksdb_column_family_handle_t *rocksdb_create_column_family(const rocksdb_t *db,
                                                             const rocksdb_options_t *column_family_options,
                                                             const char *column_family_name,
                                                             char **errptr);

// Drops a column family with all in it. Its handle has to be destroyed still.
void rocksdb_drop_column_family(const rocksdb_t *db,
                                const rocksdb_column_family_handle_t *handle_,
                                char **errptr);

// The column family itself stays.
void rocksdb_column_family_handle_destroy(rocksdb_column_family_handle_t *handle);

// Its number.
uint32_t rocksdb_column_family_handle_get_id(const rocksdb_column_family_handle_t *handle);

// Its name, to be freed, with its length.
char *rocksdb_column_family_handle_get_name(const rocksdb_column_family_handle_t *handle,
                                            size_t *name_len);

// A handle of the default column family.
rocksdb_column_family_handle_t *rocksdb_get_default_column_family_handle(const rocksdb_t *db);

// Stores a value under a key.
void rocksdb_put(const rocksdb_t *db,
                 const rocksdb_writeoptions_t *options,
                 const char *key,
                 size_t keylen,
                 const char *val,
                 size_t vallen,
                 char **errptr);

// Stores a value under a key of a column family.
void rocksdb_put_cf(const rocksdb_t *db,
                    const rocksdb_writeoptions_t *options,
                    const rocksdb_column_family_handle_t *column_family,
                    const char *key,
                    size_t keylen,
                    const char *val,
                    size_t vallen,
                    char **errptr);

// Removes a key.
void rocksdb_delete(const rocksdb_t *db,
                    const rocksdb_writeoptions_t *options,
                    const char *key,
                    size_t keylen,
                    char **errptr);

// Removes a key of a column family.
void rocksdb_delete_cf(const rocksdb_t *db,
                       const rocksdb_writeoptions_t *options,
                       const rocksdb_column_family_handle_t *column_family,
                       const char *key,
                       size_t keylen,
                       char **errptr);

// Removes a key that was put once since it was last removed.
void rocksdb_singledelete(const rocksdb_t *db,
                          const rocksdb_writeoptions_t *options,
                          const char *key,
                          size_t keylen,
                          char **errptr);

// Removes all keys from `start_key` on and before `end_key`.
void rocksdb_delete_range_cf(const rocksdb_t *db,
                             const rocksdb_writeoptions_t *options,
                             const rocksdb_column_family_handle_t *column_family,
                             const char *start_key,
                             size_t start_key_len,
                             const char *end_key,
                             size_t end_key_len,
                             char **errptr);

// Merges an operand into the value of a key.
void rocksdb_merge(const rocksdb_t *db,
                   const rocksdb_writeoptions_t *options,
                   const char *key,
                   size_t keylen,
                   const char *val,
                   size_t vallen,
                   char **errptr);

// Merges an operand into the value of a key of a column family.
void rocksdb_merge_cf(const rocksdb_t *db,
                      const rocksdb_writeoptions_t *options,
                      const rocksdb_column_family_handle_t *column_family,
                      const char *key,
                      size_t keylen,
                      const char *val,
                      size_t vallen,
                      char **errptr);

// Writes a batch, whole or not at all. It stays as it is.
void rocksdb_write(const rocksdb_t *db,
                   const rocksdb_writeoptions_t *options,
                   rocksdb_writebatch_t *batch,
                   char **errptr);

// The value of a key, to be freed; null when there is none.
char *rocksdb_get(const rocksdb_t *db,
                  const rocksdb_readoptions_t *options,
                  const char *key,
                  size_t keylen,
                  size_t *vallen,
                  char **errptr);

// The value of a key of a column family, to be freed; null when there is none.
char *rocksdb_get_cf(const rocksdb_t *db,
                     const rocksdb_readoptions_t *options,
                     const rocksdb_column_family_handle_t *column_family,
                     const char *key,
                     size_t keylen,
                     size_t *vallen,
                     char **errptr);

// The value of a key, not copied; null when there is none.
rocksdb_pinnableslice_t *rocksdb_get_pinned(const rocksdb_t *db,
                                            const rocksdb_readoptions_t *options,
                                            const char *key,
                                            size_t keylen,
                                            char **errptr);

// The value of a key of a column family, not copied; null when there is none.
rocksdb_pinnableslice_t *rocksdb_get_pinned_cf(const rocksdb_t *db,
                                               const rocksdb_readoptions_t *options,
                                               const rocksdb_column_family_handle_t *column_family,
                                               const char *key,
                                               size_t keylen,
                                               char **errptr);

// Lets go of a value.
void rocksdb_pinnableslice_destroy(rocksdb_pinnableslice_t *v);

// The bytes of a value, until it is destroyed.
const char *rocksdb_pinnableslice_value(const rocksdb_pinnableslice_t *t, size_t *vlen);

// Whether a key may have a value. It always may: a value is never given.
unsigned char rocksdb_key_may_exist(const rocksdb_t *_db,
                                    const rocksdb_readoptions_t *_options,
                                    const char *_key,
                                    size_t _key_len,
                                    char **_value,
                                    size_t *_val_len,
                                    const char *_timestamp,
                                    size_t _timestamp_len,
                                    unsigned char *value_found);

// The values of several keys at one moment; each value and each error is to be freed.
void rocksdb_multi_get(const rocksdb_t *db,
                       const rocksdb_readoptions_t *options,
                       size_t num_keys,
                       const char *const *keys_list,
                       const size_t *keys_list_sizes,
                       char **values_list,
                       size_t *values_list_sizes,
                       char **errs);

// As `rocksdb_multi_get`, each key of its column family.
void rocksdb_multi_get_cf(const rocksdb_t *db,
                          const rocksdb_readoptions_t *options,
                          const rocksdb_column_family_handle_t *const *column_families,
                          size_t num_keys,
                          const char *const *keys_list,
                          const size_t *keys_list_sizes,
                          char **values_list,
                          size_t *values_list_sizes,
                          char **errs);

// An iterator at one moment, which stands at no entry yet. What it cannot do is its error.
rocksdb_iterator_t *rocksdb_create_iterator(const rocksdb_t *db,
                                            const rocksdb_readoptions_t *options);

// As `rocksdb_create_iterator`, over a column family.
rocksdb_iterator_t *rocksdb_create_iterator_cf(const rocksdb_t *db,
                                               const rocksdb_readoptions_t *options,
                                               const rocksdb_column_family_handle_t *column_family);

// Lets go of what it keeps.
void rocksdb_iter_destroy(rocksdb_iterator_t *iter);

// Whether it stands at an entry.
unsigned char rocksdb_iter_valid(const rocksdb_iterator_t *iter);

// To the first entry.
void rocksdb_iter_seek_to_first(rocksdb_iterator_t *iter);

// To the last entry.
void rocksdb_iter_seek_to_last(rocksdb_iterator_t *iter);

// To the first entry at or after a key.
void rocksdb_iter_seek(rocksdb_iterator_t *iter, const char *k, size_t klen);

// To the last entry at or before a key.
void rocksdb_iter_seek_for_prev(rocksdb_iterator_t *iter, const char *k, size_t klen);

// To the next entry; at none it stays there.
void rocksdb_iter_next(rocksdb_iterator_t *iter);

// To the entry before; at none it stays there.
void rocksdb_iter_prev(rocksdb_iterator_t *iter);

// The key at which it stands, until it moves.
const char *rocksdb_iter_key(const rocksdb_iterator_t *iter, size_t *klen);

// The value at which it stands, until it moves.
const char *rocksdb_iter_value(const rocksdb_iterator_t *iter, size_t *vlen);

// What the last move failed with, if it did.
void rocksdb_iter_get_error(const rocksdb_iterator_t *iter, char **errptr);

// Looks at the database as it is now, at no entry. Refused for one that looks from a snapshot.
void rocksdb_iter_refresh(rocksdb_iterator_t *iter, char **errptr);

// An empty batch.
rocksdb_writebatch_t *rocksdb_writebatch_create(void);

// A batch of the bytes that `rocksdb_writebatch_data` gave; null of bytes that are none.
rocksdb_writebatch_t *rocksdb_writebatch_create_from(const char *rep, size_t size);

// What was not written is forgotten.
void rocksdb_writebatch_destroy(rocksdb_writebatch_t *b);

// Forgets all writes in it.
void rocksdb_writebatch_clear(rocksdb_writebatch_t *b);

// How many writes are in it.
int rocksdb_writebatch_count(rocksdb_writebatch_t *b);

// The bytes of the batch, until it changes.
const char *rocksdb_writebatch_data(rocksdb_writebatch_t *b, size_t *size);

// Adds a put.
void rocksdb_writebatch_put(rocksdb_writebatch_t *b,
                            const char *key,
                            size_t klen,
                            const char *val,
                            size_t vlen);

// Adds a put into a column family.
void rocksdb_writebatch_put_cf(rocksdb_writebatch_t *b,
                               const rocksdb_column_family_handle_t *column_family,
                               const char *key,
                               size_t klen,
                               const char *val,
                               size_t vlen);

// Adds a merge.
void rocksdb_writebatch_merge(rocksdb_writebatch_t *b,
                              const char *key,
                              size_t klen,
                              const char *val,
                              size_t vlen);

// Adds a merge into a column family.
void rocksdb_writebatch_merge_cf(rocksdb_writebatch_t *b,
                                 const rocksdb_column_family_handle_t *column_family,
                                 const char *key,
                                 size_t klen,
                                 const char *val,
                                 size_t vlen);

// Adds a delete.
void rocksdb_writebatch_delete(rocksdb_writebatch_t *b, const char *key, size_t klen);

// Adds a delete in a column family.
void rocksdb_writebatch_delete_cf(rocksdb_writebatch_t *b,
                                  const rocksdb_column_family_handle_t *column_family,
                                  const char *key,
                                  size_t klen);

// Adds a delete of a key that was put once since it was last deleted.
void rocksdb_writebatch_singledelete(rocksdb_writebatch_t *b, const char *key, size_t klen);

// Adds a delete of all keys from `start_key` on and before `end_key`.
void rocksdb_writebatch_delete_range(rocksdb_writebatch_t *b,
                                     const char *start_key,
                                     size_t start_key_len,
                                     const char *end_key,
                                     size_t end_key_len);

// As `rocksdb_writebatch_delete_range`, in a column family.
void rocksdb_writebatch_delete_range_cf(rocksdb_writebatch_t *b,
                                        const rocksdb_column_family_handle_t *column_family,
                                        const char *start_key,
                                        size_t start_key_len,
                                        const char *end_key,
                                        size_t end_key_len);

// Adds bytes that are no write; they are in the batch's bytes and nowhere else.
void rocksdb_writebatch_put_log_data(rocksdb_writebatch_t *b, const char *blob, size_t len);

// Remembers how far the batch has come.
void rocksdb_writebatch_set_save_point(rocksdb_writebatch_t *b);

// Takes away what was added since the last save point, and the save point.
void rocksdb_writebatch_rollback_to_save_point(rocksdb_writebatch_t *b, char **errptr);

// Gives puts and deletes of the default column family to functions of the program's, in their
// order. As with RocksDB, it ends at the first write of another column family or of a range.
void rocksdb_writebatch_iterate(rocksdb_writebatch_t *b,
                                void *state,
                                void (*put)(void*, const char*, size_t, const char*, size_t),
                                void (*deleted)(void*, const char*, size_t));

// Of this database.
rocksdb_checkpoint_t *rocksdb_checkpoint_object_create(const rocksdb_t *db, char **errptr);

// Makes a database of its own of the state as it is now, in another directory or at another URI.
// Tables are linked where they can be.
void rocksdb_checkpoint_create(const rocksdb_checkpoint_t *checkpoint,
                               const char *checkpoint_dir,
                               uint64_t _log_size_for_flush,
                               char **errptr);

// The databases that it made stay.
void rocksdb_checkpoint_object_destroy(rocksdb_checkpoint_t *checkpoint);

// Names it, for its preparation. A name that was prepared under is known for a day, and is not
// used again meanwhile.
void rocksdb_transaction_set_name(rocksdb_transaction_t *txn,
                                  const char *name,
                                  size_t name_len,
                                  char **errptr);

// Its name, to be freed, with its length.
char *rocksdb_transaction_get_name(const rocksdb_transaction_t *txn, size_t *name_len);

// Makes it durable under its name, without an effect yet. Its locks are held, also after a crash,
// until it is committed or rolled back.
void rocksdb_transaction_prepare(rocksdb_transaction_t *txn, char **errptr);

// All of its writes take effect, or none. `Resource busy` says that somebody else was there:
// nothing was written, and it has ended.
void rocksdb_transaction_commit(rocksdb_transaction_t *txn, char **errptr);

// Undoes it, and ends it.
void rocksdb_transaction_rollback(rocksdb_transaction_t *txn, char **errptr);

// Sets a savepoint, on top of those that are set. One that cannot be set, of a transaction that
// has ended, is missing when it is rolled back to.
void rocksdb_transaction_set_savepoint(rocksdb_transaction_t *txn);

// Undoes all writes since the newest savepoint, and takes that away.
void rocksdb_transaction_rollback_to_savepoint(rocksdb_transaction_t *txn, char **errptr);

// Rolls it back if it has not ended, and lets go of it. What was prepared stays so.
void rocksdb_transaction_destroy(rocksdb_transaction_t *txn);

// The snapshot that `set_snapshot` took, for read options of this transaction; null without. It is
// freed with `rocksdb_free`, and used as long as the transaction is there.
const rocksdb_snapshot_t *rocksdb_transaction_get_snapshot(const rocksdb_transaction_t *txn);

// An iterator over what the transaction sees: its writes until now, and those since once it is
// refreshed.
rocksdb_iterator_t *rocksdb_transaction_create_iterator(rocksdb_transaction_t *txn,
                                                        const rocksdb_readoptions_t *options);

// As `rocksdb_transaction_create_iterator`, over a column family.
rocksdb_iterator_t *rocksdb_transaction_create_iterator_cf(rocksdb_transaction_t *txn,
                                                           const rocksdb_readoptions_t *options,
                                                           const rocksdb_column_family_handle_t *column_family);

// The value of a key as the transaction sees it, to be freed; null when there is none.
char *rocksdb_transaction_get(rocksdb_transaction_t *txn,
                              const rocksdb_readoptions_t *options,
                              const char *key,
                              size_t klen,
                              size_t *vlen,
                              char **errptr);

// The value of a key of a column family as the transaction sees it, to be freed; null when there
// is none.
char *rocksdb_transaction_get_cf(rocksdb_transaction_t *txn,
                                 const rocksdb_readoptions_t *options,
                                 const rocksdb_column_family_handle_t *column_family,
                                 const char *key,
                                 size_t klen,
                                 size_t *vlen,
                                 char **errptr);

// The value of a key as the transaction sees it, not copied; null when there is none.
rocksdb_pinnableslice_t *rocksdb_transaction_get_pinned(rocksdb_transaction_t *txn,
                                                        const rocksdb_readoptions_t *options,
                                                        const char *key,
                                                        size_t klen,
                                                        char **errptr);

// The value of a key of a column family as the transaction sees it, not copied; null when there is
// none.
rocksdb_pinnableslice_t *rocksdb_transaction_get_pinned_cf(rocksdb_transaction_t *txn,
                                                           const rocksdb_readoptions_t *options,
                                                           const rocksdb_column_family_handle_t *column_family,
                                                           const char *key,
                                                           size_t klen,
                                                           char **errptr);

// As `rocksdb_transaction_get`; the key counts as written. Whether it is `exclusive` makes no
// difference: every lock is.
char *rocksdb_transaction_get_for_update(rocksdb_transaction_t *txn,
                                         const rocksdb_readoptions_t *options,
                                         const char *key,
                                         size_t klen,
                                         size_t *vlen,
                                         unsigned char _exclusive,
                                         char **errptr);

// As `rocksdb_transaction_get`, of a column family; the key counts as written. Whether it is
// `exclusive` makes no difference: every lock is.
char *rocksdb_transaction_get_for_update_cf(rocksdb_transaction_t *txn,
                                            const rocksdb_readoptions_t *options,
                                            const rocksdb_column_family_handle_t *column_family,
                                            const char *key,
                                            size_t klen,
                                            size_t *vlen,
                                            unsigned char _exclusive,
                                            char **errptr);

// As `rocksdb_transaction_get`; the key counts as written. Whether it is `exclusive` makes no
// difference: every lock is.
rocksdb_pinnableslice_t *rocksdb_transaction_get_pinned_for_update(rocksdb_transaction_t *txn,
                                                                   const rocksdb_readoptions_t *options,
                                                                   const char *key,
                                                                   size_t klen,
                                                                   unsigned char _exclusive,
                                                                   char **errptr);

// As `rocksdb_transaction_get`, of a column family; the key counts as written. Whether it is
// `exclusive` makes no difference: every lock is.
rocksdb_pinnableslice_t *rocksdb_transaction_get_pinned_for_update_cf(rocksdb_transaction_t *txn,
                                                                      const rocksdb_readoptions_t *options,
                                                                      const rocksdb_column_family_handle_t *column_family,
                                                                      const char *key,
                                                                      size_t klen,
                                                                      unsigned char _exclusive,
                                                                      char **errptr);

// The values of several keys as the transaction sees them; each value and
// each error is to be freed.
void rocksdb_transaction_multi_get(rocksdb_transaction_t *txn,
                                   const rocksdb_readoptions_t *options,
                                   size_t num_keys,
                                   const char *const *keys_list,
                                   const size_t *keys_list_sizes,
                                   char **values_list,
                                   size_t *values_list_sizes,
                                   char **errs);

// The values of several keys, each of its column family, as the transaction sees them; each value
// and each error is to be freed.
void rocksdb_transaction_multi_get_cf(rocksdb_transaction_t *txn,
                                      const rocksdb_readoptions_t *options,
                                      const rocksdb_column_family_handle_t *const *column_families,
                                      size_t num_keys,
                                      const char *const *keys_list,
                                      const size_t *keys_list_sizes,
                                      char **values_list,
                                      size_t *values_list_sizes,
                                      char **errs);

// The values of several keys as the transaction sees them, which count as written; each value and
// each error is to be freed.
void rocksdb_transaction_multi_get_for_update(rocksdb_transaction_t *txn,
                                              const rocksdb_readoptions_t *options,
                                              size_t num_keys,
                                              const char *const *keys_list,
                                              const size_t *keys_list_sizes,
                                              char **values_list,
                                              size_t *values_list_sizes,
                                              char **errs);

// The values of several keys, each of its column family, as the transaction sees them, which count
// as written; each value and each error is to be freed.
void rocksdb_transaction_multi_get_for_update_cf(rocksdb_transaction_t *txn,
                                                 const rocksdb_readoptions_t *options,
                                                 const rocksdb_column_family_handle_t *const *column_families,
                                                 size_t num_keys,
                                                 const char *const *keys_list,
                                                 const size_t *keys_list_sizes,
                                                 char **values_list,
                                                 size_t *values_list_sizes,
                                                 char **errs);

// Stores a value under a key.
void rocksdb_transaction_put(rocksdb_transaction_t *txn,
                             const char *key,
                             size_t klen,
                             const char *val,
                             size_t vlen,
                             char **errptr);

// Stores a value under a key of a column family.
void rocksdb_transaction_put_cf(rocksdb_transaction_t *txn,
                                const rocksdb_column_family_handle_t *column_family,
                                const char *key,
                                size_t klen,
                                const char *val,
                                size_t vlen,
                                char **errptr);

// Merges an operand into the value of a key.
void rocksdb_transaction_merge(rocksdb_transaction_t *txn,
                               const char *key,
                               size_t klen,
                               const char *val,
                               size_t vlen,
                               char **errptr);

// Merges an operand into the value of a key of a column family.
void rocksdb_transaction_merge_cf(rocksdb_transaction_t *txn,
                                  const rocksdb_column_family_handle_t *column_family,
                                  const char *key,
                                  size_t klen,
                                  const char *val,
                                  size_t vlen,
                                  char **errptr);

// Removes a key.
void rocksdb_transaction_delete(rocksdb_transaction_t *txn,
                                const char *key,
                                size_t klen,
                                char **errptr);

// Removes a key of a column family.
void rocksdb_transaction_delete_cf(rocksdb_transaction_t *txn,
                                   const rocksdb_column_family_handle_t *column_family,
                                   const char *key,
                                   size_t klen,
                                   char **errptr);

// As they are by default: locks are waited for a second.
rocksdb_transactiondb_options_t *rocksdb_transactiondb_options_create(void);

// What was opened with them stays.
void rocksdb_transactiondb_options_destroy(rocksdb_transactiondb_options_t *opt);

// Without effect: memory bounds locks.
void rocksdb_transactiondb_options_set_max_num_locks(rocksdb_transactiondb_options_t *_opt,
                                                     int64_t _max_num_locks);

// Without effect.
void rocksdb_transactiondb_options_set_num_stripes(rocksdb_transactiondb_options_t *_opt,
                                                   size_t _num_stripes);

// How long a transaction waits for a lock, in milliseconds, unless its options say; negative is
// without an end.
void rocksdb_transactiondb_options_set_transaction_lock_timeout(rocksdb_transactiondb_options_t *opt,
                                                                int64_t txn_lock_timeout);

// How long a single write waits for a lock, in milliseconds; negative is without an end.
void rocksdb_transactiondb_options_set_default_lock_timeout(rocksdb_transactiondb_options_t *opt,
                                                            int64_t default_lock_timeout);

// As they are by default.
rocksdb_transaction_options_t *rocksdb_transaction_options_create(void);

// Transactions that began with them stay.
void rocksdb_transaction_options_destroy(rocksdb_transaction_options_t *opt);

// Whether it takes its state when it begins, and not with its first verb.
void rocksdb_transaction_options_set_set_snapshot(rocksdb_transaction_options_t *opt,
                                                  unsigned char v);

// Without effect: deadlocks are always found.
void rocksdb_transaction_options_set_deadlock_detect(rocksdb_transaction_options_t *_opt,
                                                     unsigned char _v);

// How long it waits for a lock, in milliseconds; negative is as the database says.
void rocksdb_transaction_options_set_lock_timeout(rocksdb_transaction_options_t *opt,
                                                  int64_t lock_timeout);

// Without effect: locks are held until it ends.
void rocksdb_transaction_options_set_expiration(rocksdb_transaction_options_t *_opt,
                                                int64_t _expiration);

// Without effect: deadlocks of any depth are found.
void rocksdb_transaction_options_set_deadlock_detect_depth(rocksdb_transaction_options_t *_opt,
                                                           int64_t _depth);

// Most bytes of its writes; 0 is 64 MiB.
void rocksdb_transaction_options_set_max_write_batch_size(rocksdb_transaction_options_t *opt,
                                                          size_t size);

// Without effect: a transaction may be committed that was not prepared.
void rocksdb_transaction_options_set_skip_prepare(rocksdb_transaction_options_t *_opt,
                                                  unsigned char _v);

// As they are by default.
rocksdb_optimistictransaction_options_t *rocksdb_optimistictransaction_options_create(void);

// Transactions that began with them stay.
void rocksdb_optimistictransaction_options_destroy(rocksdb_optimistictransaction_options_t *opt);

// Whether it takes its state when it begins, and not with its first verb.
void rocksdb_optimistictransaction_options_set_set_snapshot(rocksdb_optimistictransaction_options_t *opt,
                                                            unsigned char v);

// Opens a database whose transactions lock, at a path or a URI.
rocksdb_transactiondb_t *rocksdb_transactiondb_open(const rocksdb_options_t *options,
                                                    const rocksdb_transactiondb_options_t *txn_db_options,
                                                    const char *name,
                                                    char **errptr);

// As `rocksdb_transactiondb_open`, with these column families.
rocksdb_transactiondb_t *rocksdb_transactiondb_open_column_families(const rocksdb_options_t *options,
                                                                    const rocksdb_transactiondb_options_t *txn_db_options,
                                                                    const char *name,
                                                                    int num_column_families,
                                                                    const char *const *column_family_names,
                                                                    const rocksdb_options_t *const *column_family_options,
                                                                    rocksdb_column_family_handle_t **column_family_handles,
                                                                    char **errptr);

// Makes accepted writes durable and ends the database. Column families, iterators, snapshots and
// transactions have to be destroyed before.
void rocksdb_transactiondb_close(rocksdb_transactiondb_t *txn_db);

// Opens a database whose transactions are optimistic, at a path or a URI.
rocksdb_optimistictransactiondb_t *rocksdb_optimistictransactiondb_open(const rocksdb_options_t *options,
                                                                        const char *name,
                                                                        char **errptr);

// As `rocksdb_optimistictransactiondb_open`, with these column families.
rocksdb_optimistictransactiondb_t *rocksdb_optimistictransactiondb_open_column_families(const rocksdb_options_t *options,
                                                                                        const char *name,
                                                                                        int num_column_families,
                                                                                        const char *const *column_family_names,
                                                                                        const rocksdb_options_t *const *column_family_options,
                                                                                        rocksdb_column_family_handle_t **column_family_handles,
                                                                                        char **errptr);

// Makes accepted writes durable and ends the database. Column families, iterators, snapshots and
// transactions have to be destroyed before.
void rocksdb_optimistictransactiondb_close(rocksdb_optimistictransactiondb_t *otxn_db);

// The database without transactions: its writes take no locks, and a commit that meets one fails.
// Given back by `rocksdb_transactiondb_close_base_db`.
rocksdb_t *rocksdb_transactiondb_get_base_db(const rocksdb_transactiondb_t *txn_db);

// The database itself stays open.
void rocksdb_transactiondb_close_base_db(rocksdb_t *base_db);

// The database for everything but transactions: given back by
// `rocksdb_optimistictransactiondb_close_base_db`.
rocksdb_t *rocksdb_optimistictransactiondb_get_base_db(const rocksdb_optimistictransactiondb_t *otxn_db);

// The database itself stays open.
void rocksdb_optimistictransactiondb_close_base_db(rocksdb_t *base_db);

// Begins a transaction with locks. `old_txn`, if it is not null, is rolled back and used again.
// Null of a null pointer.
rocksdb_transaction_t *rocksdb_transaction_begin(const rocksdb_transactiondb_t *txn_db,
                                                 const rocksdb_writeoptions_t *write_options,
                                                 const rocksdb_transaction_options_t *txn_options,
                                                 rocksdb_transaction_t *old_txn);

// Begins an optimistic transaction. `old_txn`, if it is not null, is rolled back and used again.
// Null of a null pointer.
rocksdb_transaction_t *rocksdb_optimistictransaction_begin(const rocksdb_optimistictransactiondb_t *otxn_db,
                                                           const rocksdb_writeoptions_t *write_options,
                                                           const rocksdb_optimistictransaction_options_t *otxn_options,
                                                           rocksdb_transaction_t *old_txn);

// The transactions that were prepared, and wait for their commit or rollback: also those of before
// a crash. An array to be freed, of handles to be destroyed.
rocksdb_transaction_t **rocksdb_transactiondb_get_prepared_transactions(const rocksdb_transactiondb_t *txn_db,
                                                                        size_t *cnt);

// Writes a batch, whole or not at all, as a transaction of its own. It stays as it is.
void rocksdb_transactiondb_write(const rocksdb_transactiondb_t *txn_db,
                                 const rocksdb_writeoptions_t *options,
                                 rocksdb_writebatch_t *batch,
                                 char **errptr);

// Writes a batch, whole or not at all. It stays as it is.
void rocksdb_optimistictransactiondb_write(const rocksdb_optimistictransactiondb_t *otxn_db,
                                           const rocksdb_writeoptions_t *options,
                                           rocksdb_writebatch_t *batch,
                                           char **errptr);

// Stores a value under a key, as a transaction of its own.
void rocksdb_transactiondb_put(const rocksdb_transactiondb_t *txn_db,
                               const rocksdb_writeoptions_t *options,
                               const char *key,
                               size_t keylen,
                               const char *val,
                               size_t vallen,
                               char **errptr);

// Stores a value under a key of a column family, as a transaction of its own.
void rocksdb_transactiondb_put_cf(const rocksdb_transactiondb_t *txn_db,
                                  const rocksdb_writeoptions_t *options,
                                  const rocksdb_column_family_handle_t *column_family,
                                  const char *key,
                                  size_t keylen,
                                  const char *val,
                                  size_t vallen,
                                  char **errptr);

// Merges an operand into the value of a key, as a transaction of its own.
void rocksdb_transactiondb_merge(const rocksdb_transactiondb_t *txn_db,
                                 const rocksdb_writeoptions_t *options,
                                 const char *key,
                                 size_t keylen,
                                 const char *val,
                                 size_t vallen,
                                 char **errptr);

// Merges an operand into the value of a key of a column family, as a transaction of its own.
void rocksdb_transactiondb_merge_cf(const rocksdb_transactiondb_t *txn_db,
                                    const rocksdb_writeoptions_t *options,
                                    const rocksdb_column_family_handle_t *column_family,
                                    const char *key,
                                    size_t keylen,
                                    const char *val,
                                    size_t vallen,
                                    char **errptr);

// Removes a key, as a transaction of its own.
void rocksdb_transactiondb_delete(const rocksdb_transactiondb_t *txn_db,
                                  const rocksdb_writeoptions_t *options,
                                  const char *key,
                                  size_t keylen,
                                  char **errptr);

// Removes a key of a column family, as a transaction of its own.
void rocksdb_transactiondb_delete_cf(const rocksdb_transactiondb_t *txn_db,
                                     const rocksdb_writeoptions_t *options,
                                     const rocksdb_column_family_handle_t *column_family,
                                     const char *key,
                                     size_t keylen,
                                     char **errptr);

// As `rocksdb_get`.
char *rocksdb_transactiondb_get(const rocksdb_transactiondb_t *txn_db,
                                const rocksdb_readoptions_t *options,
                                const char *key,
                                size_t keylen,
                                size_t *vallen,
                                char **errptr);

// As `rocksdb_get_cf`.
char *rocksdb_transactiondb_get_cf(const rocksdb_transactiondb_t *txn_db,
                                   const rocksdb_readoptions_t *options,
                                   const rocksdb_column_family_handle_t *column_family,
                                   const char *key,
                                   size_t keylen,
                                   size_t *vallen,
                                   char **errptr);

// As `rocksdb_get_pinned`.
rocksdb_pinnableslice_t *rocksdb_transactiondb_get_pinned(const rocksdb_transactiondb_t *txn_db,
                                                          const rocksdb_readoptions_t *options,
                                                          const char *key,
                                                          size_t keylen,
                                                          char **errptr);

// As `rocksdb_get_pinned_cf`.
rocksdb_pinnableslice_t *rocksdb_transactiondb_get_pinned_cf(const rocksdb_transactiondb_t *txn_db,
                                                             const rocksdb_readoptions_t *options,
                                                             const rocksdb_column_family_handle_t *column_family,
                                                             const char *key,
                                                             size_t keylen,
                                                             char **errptr);

// As `rocksdb_multi_get`.
void rocksdb_transactiondb_multi_get(const rocksdb_transactiondb_t *txn_db,
                                     const rocksdb_readoptions_t *options,
                                     size_t num_keys,
                                     const char *const *keys_list,
                                     const size_t *keys_list_sizes,
                                     char **values_list,
                                     size_t *values_list_sizes,
                                     char **errs);

// As `rocksdb_multi_get_cf`.
void rocksdb_transactiondb_multi_get_cf(const rocksdb_transactiondb_t *txn_db,
                                        const rocksdb_readoptions_t *options,
                                        const rocksdb_column_family_handle_t *const *column_families,
                                        size_t num_keys,
                                        const char *const *keys_list,
                                        const size_t *keys_list_sizes,
                                        char **values_list,
                                        size_t *values_list_sizes,
                                        char **errs);

// As `rocksdb_create_iterator`.
rocksdb_iterator_t *rocksdb_transactiondb_create_iterator(const rocksdb_transactiondb_t *txn_db,
                                                          const rocksdb_readoptions_t *options);

// As `rocksdb_create_iterator_cf`.
rocksdb_iterator_t *rocksdb_transactiondb_create_iterator_cf(const rocksdb_transactiondb_t *txn_db,
                                                             const rocksdb_readoptions_t *options,
                                                             const rocksdb_column_family_handle_t *column_family);

// As `rocksdb_create_snapshot`.
rocksdb_snapshot_t *rocksdb_transactiondb_create_snapshot(const rocksdb_transactiondb_t *txn_db);

// Lets go of what a snapshot keeps.
void rocksdb_transactiondb_release_snapshot(const rocksdb_transactiondb_t *_txn_db,
                                            rocksdb_snapshot_t *snapshot);

// As `rocksdb_property_value`.
char *rocksdb_transactiondb_property_value(const rocksdb_transactiondb_t *txn_db,
                                           const char *propname);

// As `rocksdb_property_int`.
int rocksdb_transactiondb_property_int(const rocksdb_transactiondb_t *txn_db,
                                       const char *propname,
                                       uint64_t *out_val);

// As `rocksdb_flush`.
void rocksdb_transactiondb_flush(const rocksdb_transactiondb_t *txn_db,
                                 const rocksdb_flushoptions_t *options,
                                 char **errptr);

// As `rocksdb_flush_wal`.
void rocksdb_transactiondb_flush_wal(const rocksdb_transactiondb_t *txn_db,
                                     unsigned char sync,
                                     char **errptr);

// As `rocksdb_checkpoint_object_create`.
rocksdb_checkpoint_t *rocksdb_transactiondb_checkpoint_object_create(const rocksdb_transactiondb_t *txn_db,
                                                                     char **errptr);

// As `rocksdb_create_column_family`.
rocksdb_column_family_handle_t *rocksdb_transactiondb_create_column_family(const rocksdb_transactiondb_t *txn_db,
                                                                           const rocksdb_options_t *column_family_options,
                                                                           const char *column_family_name,
                                                                           char **errptr);

// As `rocksdb_property_value`.
char *rocksdb_optimistictransactiondb_property_value(const rocksdb_optimistictransactiondb_t *otxn_db,
                                                     const char *propname);

// As `rocksdb_property_int`.
int rocksdb_optimistictransactiondb_property_int(const rocksdb_optimistictransactiondb_t *otxn_db,
                                                 const char *propname,
                                                 uint64_t *out_val);

// As `rocksdb_checkpoint_object_create`.
rocksdb_checkpoint_t *rocksdb_optimistictransactiondb_checkpoint_object_create(const rocksdb_optimistictransactiondb_t *otxn_db,
                                                                               char **errptr);

// As they are by default.
rocksdb_flushoptions_t *rocksdb_flushoptions_create(void);

// What was made of it stays.
void rocksdb_flushoptions_destroy(rocksdb_flushoptions_t *handle);

// As they are by default.
rocksdb_env_t *rocksdb_create_default_env(void);

// What was made of it stays.
void rocksdb_env_destroy(rocksdb_env_t *handle);

// Accepted, and without effect.
rocksdb_ratelimiter_t *rocksdb_ratelimiter_create(int64_t _rate,
                                                  int64_t _refill,
                                                  int32_t _fairness);

// What was made of it stays.
void rocksdb_ratelimiter_destroy(rocksdb_ratelimiter_t *handle);

// As they are by default.
rocksdb_universal_compaction_options_t *rocksdb_universal_compaction_options_create(void);

// What was made of it stays.
void rocksdb_universal_compaction_options_destroy(rocksdb_universal_compaction_options_t *handle);

// As they are by default.
rocksdb_fifo_compaction_options_t *rocksdb_fifo_compaction_options_create(void);

// What was made of it stays.
void rocksdb_fifo_compaction_options_destroy(rocksdb_fifo_compaction_options_t *handle);

// Accepted, and without effect.
rocksdb_slicetransform_t *rocksdb_slicetransform_create_fixed_prefix(size_t length);

// Accepted, and without effect.
rocksdb_slicetransform_t *rocksdb_slicetransform_create_noop(void);

// One that no options own.
void rocksdb_slicetransform_destroy(rocksdb_slicetransform_t *handle);

// Accepted, and without effect.
void rocksdb_options_increase_parallelism(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_optimize_for_point_lookup(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_optimize_level_style_compaction(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_optimize_universal_style_compaction(rocksdb_options_t *_options,
                                                         uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_allow_ingest_behind(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_paranoid_checks(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_env(rocksdb_options_t *_options, rocksdb_env_t *_value);

// Accepted, and without effect.
void rocksdb_options_set_info_log_level(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_db_write_buffer_size(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_max_open_files(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_max_file_opening_threads(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_max_total_wal_size(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_compression_options(rocksdb_options_t *_options,
                                             int _value,
                                             int _second,
                                             int _third,
                                             int _fourth);

// Accepted, and without effect.
void rocksdb_options_set_bottommost_compression_options(rocksdb_options_t *_options,
                                                        int _value,
                                                        int _second,
                                                        int _third,
                                                        int _fourth,
                                                        unsigned char _fifth);

// Accepted, and without effect.
void rocksdb_options_set_prefix_extractor(rocksdb_options_t *_options,
                                          rocksdb_slicetransform_t *_value);

// Accepted, and without effect.
void rocksdb_options_set_num_levels(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_level0_file_num_compaction_trigger(rocksdb_options_t *_options,
                                                            int _value);

// Accepted, and without effect.
void rocksdb_options_set_level0_slowdown_writes_trigger(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_level0_stop_writes_trigger(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_target_file_size_base(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_target_file_size_multiplier(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_max_bytes_for_level_base(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_level_compaction_dynamic_level_bytes(rocksdb_options_t *_options,
                                                              unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_max_bytes_for_level_multiplier(rocksdb_options_t *_options, double _value);

// Accepted, and without effect.
void rocksdb_options_enable_statistics(rocksdb_options_t *_options);

// Accepted, and without effect.
void rocksdb_options_set_ttl(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_periodic_compaction_seconds(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_skip_stats_update_on_db_open(rocksdb_options_t *_options,
                                                      unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_max_write_buffer_number(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_min_write_buffer_number_to_merge(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_enable_pipelined_write(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_unordered_write(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_max_subcompactions(rocksdb_options_t *_options, uint32_t _value);

// Accepted, and without effect.
void rocksdb_options_set_max_background_jobs(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_max_background_compactions(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_max_background_flushes(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_max_log_file_size(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_log_file_time_to_roll(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_keep_log_file_num(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_recycle_log_file_num(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_soft_pending_compaction_bytes_limit(rocksdb_options_t *_options,
                                                             size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_hard_pending_compaction_bytes_limit(rocksdb_options_t *_options,
                                                             size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_max_manifest_file_size(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_table_cache_numshardbits(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_arena_block_size(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_use_fsync(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_db_log_dir(rocksdb_options_t *_options, const char *_value);

// Accepted, and without effect.
void rocksdb_options_set_wal_dir(rocksdb_options_t *_options, const char *_value);

// Accepted, and without effect.
void rocksdb_options_set_WAL_ttl_seconds(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_WAL_size_limit_MB(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_manifest_preallocation_size(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_allow_mmap_reads(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_allow_mmap_writes(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_use_direct_reads(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_use_direct_io_for_flush_and_compaction(rocksdb_options_t *_options,
                                                                unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_is_fd_close_on_exec(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_stats_dump_period_sec(rocksdb_options_t *_options, unsigned int _value);

// Accepted, and without effect.
void rocksdb_options_set_advise_random_on_open(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_use_adaptive_mutex(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_bytes_per_sync(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_wal_bytes_per_sync(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_writable_file_max_buffer_size(rocksdb_options_t *_options,
                                                       uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_allow_concurrent_memtable_write(rocksdb_options_t *_options,
                                                         unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_max_sequential_skip_in_iterations(rocksdb_options_t *_options,
                                                           uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_optimize_filters_for_hits(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_delete_obsolete_files_period_micros(rocksdb_options_t *_options,
                                                             uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_prepare_for_bulk_load(rocksdb_options_t *_options);

// Accepted, and without effect.
void rocksdb_options_set_memtable_vector_rep(rocksdb_options_t *_options);

// Accepted, and without effect.
void rocksdb_options_set_memtable_prefix_bloom_size_ratio(rocksdb_options_t *_options,
                                                          double _value);

// Accepted, and without effect.
void rocksdb_options_set_max_compaction_bytes(rocksdb_options_t *_options, uint64_t _value);

// Accepted, and without effect.
void rocksdb_options_set_hash_skip_list_rep(rocksdb_options_t *_options,
                                            size_t _value,
                                            int32_t _second,
                                            int32_t _third);

// Accepted, and without effect.
void rocksdb_options_set_hash_link_list_rep(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_write_dbid_to_manifest(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_track_and_verify_wals_in_manifest(rocksdb_options_t *_options,
                                                           unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_min_level_to_compress(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_memtable_huge_page_size(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_max_successive_merges(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_bloom_locality(rocksdb_options_t *_options, uint32_t _value);

// Accepted, and without effect.
void rocksdb_options_set_inplace_update_support(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_inplace_update_num_locks(rocksdb_options_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_options_set_report_bg_io_stats(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_wal_recovery_mode(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_universal_compaction_options(rocksdb_options_t *_options,
                                                      rocksdb_universal_compaction_options_t *_value);

// Accepted, and without effect.
void rocksdb_options_set_fifo_compaction_options(rocksdb_options_t *_options,
                                                 rocksdb_fifo_compaction_options_t *_value);

// Accepted, and without effect.
void rocksdb_options_set_ratelimiter(rocksdb_options_t *_options, rocksdb_ratelimiter_t *_value);

// Accepted, and without effect.
void rocksdb_options_set_atomic_flush(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_manual_wal_flush(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_options_set_wal_compression(rocksdb_options_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_options_set_dump_malloc_stats(rocksdb_options_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_verify_checksums(rocksdb_readoptions_t *_options,
                                              unsigned char _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_fill_cache(rocksdb_readoptions_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_async_io(rocksdb_readoptions_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_readahead_size(rocksdb_readoptions_t *_options, size_t _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_max_skippable_internal_keys(rocksdb_readoptions_t *_options,
                                                         uint64_t _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_total_order_seek(rocksdb_readoptions_t *_options,
                                              unsigned char _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_pin_data(rocksdb_readoptions_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_readoptions_set_background_purge_on_iterator_cleanup(rocksdb_readoptions_t *_options,
                                                                  unsigned char _value);

// Accepted, and without effect.
void rocksdb_env_set_background_threads(rocksdb_env_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_env_set_high_priority_background_threads(rocksdb_env_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_env_set_low_priority_background_threads(rocksdb_env_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_env_set_bottom_priority_background_threads(rocksdb_env_t *_options, int _value);

// Accepted, and without effect.
void rocksdb_universal_compaction_options_set_size_ratio(rocksdb_universal_compaction_options_t *_options,
                                                         int _value);

// Accepted, and without effect.
void rocksdb_universal_compaction_options_set_min_merge_width(rocksdb_universal_compaction_options_t *_options,
                                                              int _value);

// Accepted, and without effect.
void rocksdb_universal_compaction_options_set_max_merge_width(rocksdb_universal_compaction_options_t *_options,
                                                              int _value);

// Accepted, and without effect.
void rocksdb_universal_compaction_options_set_max_size_amplification_percent(rocksdb_universal_compaction_options_t *_options,
                                                                             int _value);

// Accepted, and without effect.
void rocksdb_universal_compaction_options_set_compression_size_percent(rocksdb_universal_compaction_options_t *_options,
                                                                       int _value);

// Accepted, and without effect.
void rocksdb_universal_compaction_options_set_stop_style(rocksdb_universal_compaction_options_t *_options,
                                                         int _value);

// Accepted, and without effect.
void rocksdb_fifo_compaction_options_set_max_table_files_size(rocksdb_fifo_compaction_options_t *_options,
                                                              uint64_t _value);

// Accepted, and without effect.
void rocksdb_writeoptions_set_ignore_missing_column_families(rocksdb_writeoptions_t *_options,
                                                             unsigned char _value);

// Accepted, and without effect.
void rocksdb_writeoptions_set_no_slowdown(rocksdb_writeoptions_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_writeoptions_set_low_pri(rocksdb_writeoptions_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_writeoptions_set_memtable_insert_hint_per_batch(rocksdb_writeoptions_t *_options,
                                                             unsigned char _value);

// Accepted, and without effect.
void rocksdb_flushoptions_set_wait(rocksdb_flushoptions_t *_options, unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_cache_index_and_filter_blocks(rocksdb_block_based_table_options_t *_options,
                                                                   unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(rocksdb_block_based_table_options_t *_options,
                                                                                      unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(rocksdb_block_based_table_options_t *_options,
                                                                             unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_pin_top_level_index_and_filter(rocksdb_block_based_table_options_t *_options,
                                                                    unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_index_type(rocksdb_block_based_table_options_t *_options,
                                                int _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_data_block_index_type(rocksdb_block_based_table_options_t *_options,
                                                           int _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_no_block_cache(rocksdb_block_based_table_options_t *_options,
                                                    unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_block_size_deviation(rocksdb_block_based_table_options_t *_options,
                                                          int _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_block_restart_interval(rocksdb_block_based_table_options_t *_options,
                                                            int _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_index_block_restart_interval(rocksdb_block_based_table_options_t *_options,
                                                                  int _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_metadata_block_size(rocksdb_block_based_table_options_t *_options,
                                                         uint64_t _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_partition_filters(rocksdb_block_based_table_options_t *_options,
                                                       unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_optimize_filters_for_memory(rocksdb_block_based_table_options_t *_options,
                                                                 unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_use_delta_encoding(rocksdb_block_based_table_options_t *_options,
                                                        unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_whole_key_filtering(rocksdb_block_based_table_options_t *_options,
                                                         unsigned char _value);

// Accepted, and without effect.
void rocksdb_block_based_options_set_format_version(rocksdb_block_based_table_options_t *_options,
                                                    int _value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOMBOLO_ROCKSDB_C_H */

enum {
  rocksdb_no_compression = 0,
  rocksdb_snappy_compression = 1,
  rocksdb_zlib_compression = 2,
  rocksdb_bz2_compression = 3,
  rocksdb_lz4_compression = 4,
  rocksdb_lz4hc_compression = 5,
  rocksdb_xpress_compression = 6,
  rocksdb_zstd_compression = 7
};
