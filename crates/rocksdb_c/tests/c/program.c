// A program that was written for RocksDB's C library, and knows nothing of Tombolo.
#include "common.h"

static void has_(rocksdb_t *db, const char *key, const char *expected, int line) {
  size_t length;
  char *value = rocksdb_get(db, reading, key, strlen(key), &length, &error);
  well(line);
  is(value, length, expected, line);
}
#define HAS(key, expected) has_(db, key, expected, __LINE__)

static int destroyed;
static void destroy(void *state) { *(int *)state += 1; }
static const char *name(void *state) {
  (void)state;
  return "program's own";
}
static int compare(void *state, const char *a, size_t alen, const char *b, size_t blen) {
  (void)state;
  return -memcmp(a, b, alen < blen ? alen : blen);
}

// Keeps the longest.
static char *full_merge(void *state, const char *key, size_t key_length, const char *existing, size_t existing_length,
                        const char *const *operands, const size_t *lengths, int count, unsigned char *success,
                        size_t *length) {
  (void)state, (void)key, (void)key_length;
  const char *best = existing;
  *length = existing ? existing_length : 0;
  for (int i = 0; i < count; i++)
    if (lengths[i] > *length) best = operands[i], *length = lengths[i];
  char *value = malloc(*length + 1);
  if (*length > 0) memcpy(value, best, *length);
  *success = 1;
  return value;
}
static char *partial_merge(void *state, const char *key, size_t key_length, const char *const *operands,
                           const size_t *lengths, int count, unsigned char *success, size_t *length) {
  (void)state, (void)key, (void)key_length, (void)operands, (void)lengths, (void)count, (void)length;
  *success = 0;
  return NULL;
}

static int puts_seen, deletes_seen;
static void seen_put(void *state, const char *key, size_t klen, const char *value, size_t vlen) {
  CHECK(state == &puts_seen && klen == 1 && vlen == 1 && key[0] != 0 && value[0] != 0);
  puts_seen++;
}
static void seen_any_put(void *state, const char *key, size_t klen, const char *value, size_t vlen) {
  CHECK(state == &puts_seen && klen > 0 && vlen > 0 && key[0] != 0 && value[0] != 0);
  puts_seen++;
}
static void seen_delete(void *state, const char *key, size_t klen) {
  CHECK(state == &puts_seen && klen == 1 && key[0] != 0);
  deletes_seen++;
}

static void batches(rocksdb_t *db) {
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "x", 1, "1", 1);
  rocksdb_writebatch_put(batch, "y", 1, "2", 1);
  rocksdb_writebatch_delete(batch, "x", 1);
  rocksdb_writebatch_set_save_point(batch);
  rocksdb_writebatch_put(batch, "z", 1, "3", 1);
  rocksdb_writebatch_rollback_to_save_point(batch, &error);
  WELL();
  rocksdb_writebatch_rollback_to_save_point(batch, &error);
  FAILED("NotFound: ");
  rocksdb_writebatch_put_log_data(batch, "blob", 4);
  CHECK(rocksdb_writebatch_count(batch) == 3);
  rocksdb_writebatch_iterate(batch, &puts_seen, seen_put, seen_delete);
  CHECK(puts_seen == 2 && deletes_seen == 1);
  // The bytes are RocksDB's: a tag, then texts with their length.
  size_t size;
  const char *data = rocksdb_writebatch_data(batch, &size);
  CHECK(size == 12 + 5 + 5 + 3 + 6 && data[8] == 3 && data[12] == 1 && data[13] == 1 && data[14] == 'x');
  rocksdb_writebatch_t *copy = rocksdb_writebatch_create_from(data, size);
  rocksdb_write(db, writing, copy, &error);
  WELL();
  rocksdb_writebatch_destroy(copy);
  HAS("x", NULL);
  HAS("y", "2");
  copy = rocksdb_writebatch_create_from("000000000000\x09", 13);
  rocksdb_write(db, writing, copy, &error);
  FAILED("Invalid argument: ");
  rocksdb_writebatch_destroy(copy);
  CHECK(rocksdb_writebatch_create_from("short", 5) == NULL);
  // Bytes that end between two records are no shorter batch.
  copy = rocksdb_writebatch_create_from(data, 12 + 5);
  rocksdb_write(db, writing, copy, &error);
  FAILED("Invalid argument: ");
  rocksdb_writebatch_destroy(copy);
  HAS("x", NULL);
  // A batch that lacks a write, because that was wrong, is not written.
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_put(batch, "well", 4, "1", 1);
  rocksdb_writebatch_set_save_point(batch);
  rocksdb_writebatch_put(batch, NULL, 5, "1", 1);
  rocksdb_write(db, writing, batch, &error);
  FAILED("Invalid argument: ");
  HAS("well", NULL);
  rocksdb_writebatch_rollback_to_save_point(batch, &error);
  rocksdb_write(db, writing, batch, &error);
  WELL();
  HAS("well", "1");
  rocksdb_writebatch_put_cf(batch, NULL, "nowhere", 7, "1", 1);
  rocksdb_write(db, writing, batch, &error);
  FAILED("Invalid argument: ");
  HAS("nowhere", NULL);
  rocksdb_writebatch_clear(batch);
  rocksdb_writebatch_put(batch, "r1", 2, "1", 1);
  rocksdb_writebatch_put(batch, "r2", 2, "1", 1);
  rocksdb_writebatch_put(batch, "s", 1, "1", 1);
  rocksdb_writebatch_delete_range(batch, "r", 1, "s", 1);
  rocksdb_writebatch_singledelete(batch, "s", 1);
  puts_seen = deletes_seen = 0;
  // It ends at the range: one put after it would be given without what it deletes.
  rocksdb_writebatch_put(batch, "t", 1, "1", 1);
  rocksdb_writebatch_iterate(batch, &puts_seen, seen_any_put, seen_delete);
  CHECK(puts_seen == 3 && deletes_seen == 0);
  rocksdb_write(db, writing, batch, &error);
  WELL();
  HAS("r1", NULL);
  HAS("s", NULL);
  rocksdb_writebatch_destroy(batch);
}

static void iterators(rocksdb_t *db) {
  rocksdb_put(db, writing, "a", 1, "1", 1, &error);
  rocksdb_put(db, writing, "b", 1, "2", 1, &error);
  rocksdb_put(db, writing, "c", 1, "3", 1, &error);
  WELL();
  rocksdb_readoptions_t *bounded = rocksdb_readoptions_create();
  rocksdb_readoptions_set_iterate_upper_bound(bounded, "c", 1);
  rocksdb_iterator_t *iterator = rocksdb_create_iterator(db, bounded);
  rocksdb_readoptions_destroy(bounded);
  CHECK(!rocksdb_iter_valid(iterator));
  char keys[8] = {0};
  size_t count = 0, length;
  for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator)) {
    keys[count++] = *rocksdb_iter_key(iterator, &length);
    CHECK(length == 1 && rocksdb_iter_value(iterator, &length) != NULL && length == 1);
  }
  CHECK(strcmp(keys, "ab") == 0);
  rocksdb_iter_next(iterator);
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_seek_to_last(iterator);
  CHECK(*rocksdb_iter_key(iterator, &length) == 'b');
  rocksdb_iter_prev(iterator);
  CHECK(*rocksdb_iter_key(iterator, &length) == 'a');
  rocksdb_iter_prev(iterator);
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_seek(iterator, "aa", 2);
  CHECK(*rocksdb_iter_key(iterator, &length) == 'b');
  rocksdb_iter_seek_for_prev(iterator, "aa", 2);
  CHECK(*rocksdb_iter_key(iterator, &length) == 'a');
  rocksdb_iter_get_error(iterator, &error);
  WELL();
  rocksdb_iter_destroy(iterator);
  rocksdb_readoptions_t *tailing = rocksdb_readoptions_create();
  rocksdb_readoptions_set_tailing(tailing, 1);
  rocksdb_readoptions_set_prefix_same_as_start(tailing, 0);
  iterator = rocksdb_create_iterator(db, tailing);
  rocksdb_iter_seek_to_first(iterator);
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_get_error(iterator, &error);
  FAILED("Not implemented: ");
  rocksdb_iter_destroy(iterator);
  rocksdb_readoptions_destroy(tailing);
  // A bound that cannot be is no iterator without one.
  rocksdb_readoptions_t *wrong = rocksdb_readoptions_create();
  rocksdb_readoptions_set_iterate_upper_bound(wrong, "c", SIZE_MAX);
  iterator = rocksdb_create_iterator(db, wrong);
  rocksdb_readoptions_destroy(wrong);
  rocksdb_iter_seek_to_first(iterator);
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_get_error(iterator, &error);
  FAILED("Invalid argument: ");
  rocksdb_iter_destroy(iterator);
  // An error stays until the next seek, and is told in the place of an earlier one.
  iterator = rocksdb_create_iterator(db, reading);
  rocksdb_iter_seek(iterator, NULL, 5);
  rocksdb_iter_next(iterator);
  rocksdb_iter_prev(iterator);
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_get_error(iterator, &error);
  rocksdb_iter_get_error(iterator, &error);
  FAILED("Invalid argument: ");
  rocksdb_iter_seek(iterator, "b", 1);
  CHECK(rocksdb_iter_valid(iterator));
  rocksdb_iter_refresh(iterator, &error);
  WELL();
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_destroy(iterator);
}

static void snapshots_and_the_rest(rocksdb_t *db, const char *path) {
  uint64_t number;
  const rocksdb_snapshot_t *snapshot = rocksdb_create_snapshot(db);
  rocksdb_readoptions_t *before = rocksdb_readoptions_create();
  rocksdb_readoptions_set_snapshot(before, snapshot);
  rocksdb_put(db, writing, "a", 1, "changed", 7, &error);
  size_t length;
  IS(rocksdb_get(db, before, "a", 1, &length, &error), "1");
  WELL();
  HAS("a", "changed");
  rocksdb_pinnableslice_t *slice = rocksdb_get_pinned(db, before, "a", 1, &error);
  CHECK(*rocksdb_pinnableslice_value(slice, &length) == '1' && length == 1);
  rocksdb_pinnableslice_destroy(slice);
  CHECK(rocksdb_get_pinned(db, before, "nothing", 7, &error) == NULL);
  const char *keys[] = {"a", "nothing"};
  const size_t lengths[] = {1, 7};
  char *values[2], *errors[2];
  size_t value_lengths[2];
  rocksdb_multi_get(db, before, 2, keys, lengths, values, value_lengths, errors);
  CHECK(errors[0] == NULL && errors[1] == NULL && values[1] == NULL);
  is(values[0], value_lengths[0], "1", __LINE__);
  // Each key has the error, also where there is no database to look into.
  rocksdb_multi_get(NULL, before, 2, keys, lengths, values, value_lengths, errors);
  for (int i = 0; i < 2; i++) {
    CHECK(values[i] == NULL && value_lengths[i] == 0);
    error = errors[i];
    FAILED("Invalid argument: ");
  }
  rocksdb_iterator_t *fixed = rocksdb_create_iterator(db, before);
  rocksdb_iter_refresh(fixed, &error);
  FAILED("Not implemented: ");
  rocksdb_iter_destroy(fixed);
  rocksdb_readoptions_set_read_tier(before, 2);
  CHECK(rocksdb_get(db, before, "a", 1, &length, &error) == NULL);
  FAILED("Not implemented: ");
  rocksdb_readoptions_destroy(before);
  CHECK(rocksdb_get_latest_sequence_number(db) > rocksdb_snapshot_get_sequence_number(snapshot));
  rocksdb_release_snapshot(db, (rocksdb_snapshot_t *)snapshot);
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_flush(db, flush, &error);
  WELL();
  rocksdb_flushoptions_destroy(flush);
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  char *value = rocksdb_property_value(db, "rocksdb.stats");
  CHECK(value != NULL && strlen(value) > 100);
  rocksdb_free(value);
  CHECK(rocksdb_property_value(db, "no.such.property") == NULL);
  CHECK(rocksdb_property_int(db, "rocksdb.total-sst-files-size", &number) == 0 && number > 0);
  CHECK(rocksdb_property_int(db, "rocksdb.nothing", &number) == -1);
  const char *starts[] = {"a"}, *limits[] = {"zzz"};
  const size_t start_lengths[] = {1}, limit_lengths[] = {3};
  rocksdb_approximate_sizes(db, 1, starts, start_lengths, limits, limit_lengths, &number, &error);
  WELL();
  CHECK(number > 0);
  rocksdb_checkpoint_t *checkpoint = rocksdb_checkpoint_object_create(db, &error);
  char other[4096];
  snprintf(other, sizeof other, "%s-checkpoint", path);
  rocksdb_checkpoint_create(checkpoint, other, 0, &error);
  WELL();
  rocksdb_checkpoint_object_destroy(checkpoint);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_t *copy = rocksdb_open(options, other, &error);
  WELL();
  IS(rocksdb_get(copy, reading, "a", 1, &length, &error), "changed");
  rocksdb_close(copy);
  rocksdb_destroy_db(options, other, &error);
  WELL();
  rocksdb_destroy_db(options, other, &error);
  WELL();
  rocksdb_repair_db(options, other, &error);
  FAILED("Not implemented: ");
  rocksdb_options_destroy(options);
}

static void families(const char *path) {
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_t *merging = rocksdb_options_create();
  rocksdb_options_set_merge_operator(
      merging, rocksdb_mergeoperator_create(&destroyed, destroy, full_merge, partial_merge, NULL, name));
  const char *names[] = {"default", "longest"};
  const rocksdb_options_t *of[] = {options, merging};
  rocksdb_column_family_handle_t *handles[2];
  CHECK(rocksdb_open_column_families(options, path, 2, names, of, handles, &error) == NULL);
  FAILED("Invalid argument: ");
  rocksdb_options_set_create_missing_column_families(options, 1);
  rocksdb_t *db = rocksdb_open_column_families(options, path, 2, names, of, handles, &error);
  WELL();
  rocksdb_merge_cf(db, writing, handles[1], "k", 1, "abc", 3, &error);
  rocksdb_merge_cf(db, writing, handles[1], "k", 1, "de", 2, &error);
  WELL();
  size_t length;
  IS(rocksdb_get_cf(db, reading, handles[1], "k", 1, &length, &error), "abc");
  rocksdb_merge(db, writing, "k", 1, "abc", 3, &error);
  FAILED("Invalid argument: ");
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put_cf(batch, handles[0], "in", 2, "default", 7);
  rocksdb_writebatch_put_cf(batch, handles[1], "in", 2, "longest", 7);
  rocksdb_writebatch_merge_cf(batch, handles[1], "in", 2, "longer still", 12);
  puts_seen = 0;
  rocksdb_writebatch_iterate(batch, &puts_seen, seen_any_put, seen_delete);
  CHECK(puts_seen == 1);
  rocksdb_write(db, writing, batch, &error);
  WELL();
  rocksdb_writebatch_destroy(batch);
  IS(rocksdb_get_cf(db, reading, handles[1], "in", 2, &length, &error), "longer still");
  HAS("in", "default");
  rocksdb_put_cf(db, writing, NULL, "in", 2, "default", 7, &error);
  FAILED("Invalid argument: ");
  rocksdb_column_family_handle_t *third = rocksdb_create_column_family(db, options, "third", &error);
  WELL();
  rocksdb_put_cf(db, writing, third, "k", 1, "v", 1, &error);
  rocksdb_delete_cf(db, writing, third, "k", 1, &error);
  rocksdb_delete_range_cf(db, writing, third, "a", 1, "z", 1, &error);
  WELL();
  rocksdb_iterator_t *iterator = rocksdb_create_iterator_cf(db, reading, third);
  rocksdb_iter_seek_to_first(iterator);
  CHECK(!rocksdb_iter_valid(iterator));
  rocksdb_iter_destroy(iterator);
  rocksdb_drop_column_family(db, third, &error);
  WELL();
  rocksdb_put_cf(db, writing, third, "k", 1, "v", 1, &error);
  FAILED("NotFound: ");
  // The handle of one that was dropped does not drop another that has its name.
  rocksdb_column_family_handle_t *another = rocksdb_create_column_family(db, options, "third", &error);
  WELL();
  rocksdb_put_cf(db, writing, another, "k", 1, "kept", 4, &error);
  rocksdb_drop_column_family(db, third, &error);
  FAILED("Invalid argument: Invalid: Column family already dropped");
  IS(rocksdb_get_cf(db, reading, another, "k", 1, &length, &error), "kept");
  rocksdb_drop_column_family(db, another, &error);
  WELL();
  rocksdb_column_family_handle_destroy(another);
  rocksdb_column_family_handle_destroy(third);
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_close(db);
  // A family that merges by one operator is not opened with another, by which it would not merge.
  rocksdb_options_t *adding = rocksdb_options_create();
  rocksdb_options_set_uint64add_merge_operator(adding);
  const rocksdb_options_t *of_others[] = {options, adding};
  CHECK(rocksdb_open_column_families(options, path, 2, names, of_others, handles, &error) == NULL);
  FAILED("Invalid argument: ");
  rocksdb_options_destroy(adding);
  char **list = rocksdb_list_column_families(options, path, &length, &error);
  WELL();
  CHECK(length == 2 && strcmp(list[0], "default") == 0 && strcmp(list[1], "longest") == 0);
  rocksdb_list_column_families_destroy(list, length);
  rocksdb_options_destroy(merging);
  CHECK(destroyed == 1);
  rocksdb_destroy_db(options, path, &error);
  WELL();
  rocksdb_options_destroy(options);
}

static void what_is_refused(const char *path) {
  rocksdb_options_t *options = rocksdb_options_create();
  CHECK(rocksdb_open(options, path, &error) == NULL);
  FAILED("NotFound: ");
  CHECK(rocksdb_open(NULL, path, &error) == NULL);
  FAILED("Invalid argument: ");
  CHECK(rocksdb_open(options, NULL, &error) == NULL);
  FAILED("Invalid argument: ");
  rocksdb_comparator_t *comparator = rocksdb_comparator_create(&destroyed, destroy, compare, name);
  rocksdb_options_set_comparator(options, comparator);
  rocksdb_options_set_create_if_missing(options, 1);
  CHECK(rocksdb_open(options, path, &error) == NULL);
  FAILED("Not implemented: ");
  rocksdb_options_destroy(options);
  options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_compaction_style(options, 2);
  CHECK(rocksdb_open(options, path, &error) == NULL);
  FAILED("Not implemented: ");
  rocksdb_options_destroy(options);
  rocksdb_comparator_destroy(comparator);
  CHECK(destroyed == 2);
  // Null handles are errors, and never the end of the program.
  rocksdb_close(NULL);
  rocksdb_put(NULL, writing, "k", 1, "v", 1, &error);
  FAILED("Invalid argument: ");
  CHECK(rocksdb_get(NULL, NULL, "k", 1, NULL, &error) == NULL);
  FAILED("Invalid argument: ");
  rocksdb_write(NULL, NULL, NULL, &error);
  FAILED("Invalid argument: ");
  rocksdb_writebatch_put(NULL, "k", 1, "v", 1);
  rocksdb_iter_next(NULL);
  CHECK(!rocksdb_iter_valid(NULL) && rocksdb_iter_key(NULL, NULL) == NULL);
  CHECK(rocksdb_create_snapshot(NULL) == NULL);
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  const char *path = arguments[1];
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_block_based_table_options_t *tables = rocksdb_block_based_options_create();
  rocksdb_cache_t *cache = rocksdb_cache_create_lru(16 << 20);
  rocksdb_block_based_options_set_block_cache(tables, cache);
  rocksdb_block_based_options_set_filter_policy(tables, rocksdb_filterpolicy_create_bloom(12));
  rocksdb_block_based_options_set_block_size(tables, 4096);
  rocksdb_options_set_block_based_table_factory(options, tables);
  rocksdb_options_set_compression(options, rocksdb_snappy_compression);
  rocksdb_options_set_write_buffer_size(options, 4 << 20);
  rocksdb_options_set_max_open_files(options, 100);
  rocksdb_options_increase_parallelism(options, 2);
  rocksdb_options_set_create_if_missing(options, 1);
  reading = rocksdb_readoptions_create();
  writing = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(writing, 1);
  rocksdb_t *db = rocksdb_open(options, path, &error);
  WELL();
  CHECK(rocksdb_open(options, path, &error) == NULL);
  FAILED("IO error: While lock file");
  rocksdb_put(db, writing, "k", 1, "value", 5, &error);
  WELL();
  HAS("k", "value");
  rocksdb_delete(db, writing, "k", 1, &error);
  WELL();
  HAS("k", NULL);
  batches(db);
  iterators(db);
  snapshots_and_the_rest(db, path);
  rocksdb_close(db);
  db = rocksdb_open_for_read_only(options, path, 0, &error);
  WELL();
  HAS("c", "3");
  rocksdb_close(db);
  rocksdb_destroy_db(options, path, &error);
  WELL();
  rocksdb_options_destroy(options);
  rocksdb_block_based_options_destroy(tables);
  rocksdb_cache_destroy(cache);
  families(path);
  what_is_refused(path);
  rocksdb_readoptions_destroy(reading);
  rocksdb_writeoptions_destroy(writing);
  printf("all is well\n");
  return 0;
}
