// Transactions of a program that was written for RocksDB's C library, and knows nothing of Tombolo.
#include "common.h"
#include <pthread.h>

static rocksdb_transaction_options_t *locking;

static void holds(rocksdb_transaction_t *txn, const char *key, const char *expected, int line) {
  size_t length = 0;
  char *value = rocksdb_transaction_get(txn, reading, key, strlen(key), &length, &error);
  well(line);
  is(value, length, expected, line);
}
#define HOLDS(txn, key, expected) holds(txn, key, expected, __LINE__)

static void count(rocksdb_iterator_t *iterator, int expected, int line) {
  int found = 0;
  for (rocksdb_iter_seek_to_first(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_next(iterator)) found++;
  rocksdb_iter_get_error(iterator, &error);
  well(line);
  if (found != expected) {
    fprintf(stderr, "line %d: %d entries\n", line, found);
    exit(1);
  }
  for (rocksdb_iter_seek_to_last(iterator); rocksdb_iter_valid(iterator); rocksdb_iter_prev(iterator)) found--;
  CHECK(found == 0);
  rocksdb_iter_destroy(iterator);
}
#define COUNT(iterator, expected) count(iterator, expected, __LINE__)

// What both kinds of transactions do.
static void verbs(rocksdb_transaction_t *txn, rocksdb_column_family_handle_t *family) {
  size_t length = 0;
  rocksdb_transaction_put(txn, "a", 1, "1", 1, &error);
  rocksdb_transaction_put_cf(txn, family, "f", 1, "of", 2, &error);
  WELL();
  HOLDS(txn, "a", "1");
  char *value = rocksdb_transaction_get_cf(txn, reading, family, "f", 1, &length, &error);
  WELL();
  is(value, length, "of", __LINE__);
  rocksdb_transaction_set_savepoint(txn);
  rocksdb_transaction_delete(txn, "a", 1, &error);
  rocksdb_transaction_delete_cf(txn, family, "f", 1, &error);
  rocksdb_transaction_put(txn, "b", 1, "2", 1, &error);
  WELL();
  HOLDS(txn, "a", NULL);
  COUNT(rocksdb_transaction_create_iterator(txn, reading), 1);
  COUNT(rocksdb_transaction_create_iterator_cf(txn, reading, family), 0);
  rocksdb_transaction_rollback_to_savepoint(txn, &error);
  WELL();
  HOLDS(txn, "a", "1");
  HOLDS(txn, "b", NULL);
  rocksdb_transaction_rollback_to_savepoint(txn, &error);
  FAILED("NotFound: ");
  value = rocksdb_transaction_get_for_update(txn, reading, "c", 1, &length, 1, &error);
  WELL();
  CHECK(value == NULL && length == 0);
  value = rocksdb_transaction_get_for_update_cf(txn, reading, family, "f", 1, &length, 1, &error);
  WELL();
  is(value, length, "of", __LINE__);
  rocksdb_pinnableslice_t *pinned = rocksdb_transaction_get_pinned(txn, reading, "a", 1, &error);
  WELL();
  CHECK(*rocksdb_pinnableslice_value(pinned, &length) == '1' && length == 1);
  rocksdb_pinnableslice_destroy(pinned);
  pinned = rocksdb_transaction_get_pinned_for_update_cf(txn, reading, family, "none", 4, 1, &error);
  CHECK(pinned == NULL && error == NULL);
  const char *keys[2] = {"a", "none"};
  size_t lengths[2] = {1, 4}, value_lengths[2];
  char *values[2], *errors[2];
  rocksdb_transaction_multi_get(txn, reading, 2, keys, lengths, values, value_lengths, errors);
  CHECK(errors[0] == NULL && errors[1] == NULL && values[1] == NULL);
  is(values[0], value_lengths[0], "1", __LINE__);
  const rocksdb_column_family_handle_t *families[2] = {family, family};
  keys[0] = "f";
  rocksdb_transaction_multi_get_for_update_cf(txn, reading, families, 2, keys, lengths, values, value_lengths,
                                              errors);
  CHECK(errors[0] == NULL && errors[1] == NULL && values[1] == NULL);
  is(values[0], value_lengths[0], "of", __LINE__);
}

static void *commits_later(void *txn) {
  char *failed = NULL;
  rocksdb_transaction_commit(txn, &failed);
  return failed;
}

// Commits with the key `x`, or says why not and rolls back.
static void *wants_x(void *txn) {
  char *failed = NULL;
  rocksdb_transaction_put(txn, "x", 1, "2", 1, &failed);
  if (failed == NULL) {
    rocksdb_transaction_commit(txn, &failed);
  } else {
    char *again = NULL;
    rocksdb_transaction_rollback(txn, &again);
    CHECK(again == NULL);
  }
  return failed;
}

static rocksdb_transaction_t *begun(rocksdb_transactiondb_t *db, rocksdb_transaction_t *old) {
  rocksdb_transaction_t *txn = rocksdb_transaction_begin(db, writing, locking, old);
  CHECK(txn != NULL);
  return txn;
}

static void locks(rocksdb_transactiondb_t *db) {
  size_t length = 0;
  rocksdb_transaction_t *first = begun(db, NULL), *second = begun(db, NULL);
  rocksdb_transaction_put(first, "locked", 6, "1", 1, &error);
  WELL();
  rocksdb_transaction_put(second, "locked", 6, "2", 1, &error);
  FAILED("Operation timed out: ");
  // A single write waits as well: for no longer than the database says.
  rocksdb_transactiondb_put(db, writing, "locked", 6, "3", 1, &error);
  FAILED("Operation timed out: ");
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "beside", 6, "3", 1);
  rocksdb_writebatch_put(batch, "locked", 6, "3", 1);
  rocksdb_transactiondb_write(db, writing, batch, &error);
  FAILED("Operation timed out: ");
  CHECK(rocksdb_transactiondb_get(db, reading, "beside", 6, &length, &error) == NULL);
  // It gets its lock once the first has ended, and sees what that has written.
  pthread_t thread;
  rocksdb_transaction_options_set_lock_timeout(locking, 60000);
  second = begun(db, second);
  CHECK(pthread_create(&thread, NULL, commits_later, first) == 0);
  char *value = rocksdb_transaction_get_for_update(second, reading, "locked", 6, &length, 1, &error);
  WELL();
  void *told = NULL;
  CHECK(pthread_join(thread, &told) == 0 && told == NULL);
  is(value, length, "1", __LINE__);
  rocksdb_transaction_rollback(second, &error);
  WELL();
  rocksdb_transactiondb_write(db, writing, batch, &error);
  rocksdb_transactiondb_delete(db, writing, "beside", 6, &error);
  WELL();
  IS(rocksdb_transactiondb_get(db, reading, "locked", 6, &length, &error), "3");
  rocksdb_writebatch_destroy(batch);
  // A circle is told to one of the two, which gives way.
  first = begun(db, first);
  second = begun(db, second);
  rocksdb_transaction_put(first, "x", 1, "1", 1, &error);
  rocksdb_transaction_put(second, "y", 1, "2", 1, &error);
  WELL();
  CHECK(pthread_create(&thread, NULL, wants_x, second) == 0);
  rocksdb_transaction_put(first, "y", 1, "1", 1, &error);
  int gave_way = error != NULL;
  if (gave_way) {
    FAILED("Resource busy: ");
    rocksdb_transaction_rollback(first, &error);
    WELL();
  } else {
    rocksdb_transaction_commit(first, &error);
    WELL();
  }
  CHECK(pthread_join(thread, &told) == 0 && (told == NULL) == gave_way);
  rocksdb_free(told);
  IS(rocksdb_transactiondb_get(db, reading, "x", 1, &length, &error), gave_way ? "2" : "1");
  rocksdb_transaction_options_set_lock_timeout(locking, 20);
  rocksdb_transaction_destroy(first);
  rocksdb_transaction_commit(second, &error);
  FAILED("Invalid argument: ");
  rocksdb_transaction_put(second, "z", 1, "2", 1, &error);
  FAILED("Invalid argument: ");
  rocksdb_transaction_destroy(second);
}

static void snapshots(rocksdb_transactiondb_t *db) {
  size_t length = 0;
  rocksdb_transaction_options_set_set_snapshot(locking, 1);
  rocksdb_transaction_t *txn = begun(db, NULL);
  const rocksdb_snapshot_t *own = rocksdb_transaction_get_snapshot(txn);
  CHECK(own != NULL && rocksdb_snapshot_get_sequence_number(own) > 0);
  rocksdb_transactiondb_put(db, writing, "since", 5, "1", 1, &error);
  WELL();
  rocksdb_readoptions_t *at = rocksdb_readoptions_create();
  rocksdb_readoptions_set_snapshot(at, own);
  CHECK(rocksdb_transaction_get(txn, at, "since", 5, &length, &error) == NULL && error == NULL);
  CHECK(rocksdb_transactiondb_get(db, at, "since", 5, &length, &error) == NULL && error == NULL);
  const rocksdb_snapshot_t *other = rocksdb_transactiondb_create_snapshot(db);
  rocksdb_readoptions_set_snapshot(at, other);
  CHECK(rocksdb_transaction_get(txn, at, "since", 5, &length, &error) == NULL);
  FAILED("Not implemented: ");
  IS(rocksdb_transactiondb_get(db, at, "since", 5, &length, &error), "1");
  rocksdb_readoptions_destroy(at);
  rocksdb_transactiondb_release_snapshot(db, (rocksdb_snapshot_t *)other);
  rocksdb_free((void *)own);
  rocksdb_transaction_destroy(txn);
  rocksdb_transaction_options_set_set_snapshot(locking, 0);
  txn = begun(db, NULL);
  CHECK(rocksdb_transaction_get_snapshot(txn) == NULL);
  rocksdb_transaction_destroy(txn);
}

static void prepares(rocksdb_transactiondb_t *db) {
  size_t length = 0;
  rocksdb_transaction_t *txn = begun(db, NULL);
  rocksdb_transaction_prepare(txn, &error);
  FAILED("Invalid argument: ");
  rocksdb_transaction_set_name(txn, "transfer", 8, &error);
  rocksdb_transaction_put(txn, "prepared", 8, "1", 1, &error);
  rocksdb_transaction_prepare(txn, &error);
  WELL();
  CHECK(rocksdb_transactiondb_get(db, reading, "prepared", 8, &length, &error) == NULL);
  rocksdb_transaction_destroy(txn);
  size_t waiting = 0;
  rocksdb_transaction_t **list = rocksdb_transactiondb_get_prepared_transactions(db, &waiting);
  CHECK(waiting == 1);
  IS(rocksdb_transaction_get_name(list[0], &length), "transfer");
  rocksdb_transaction_commit(list[0], &error);
  WELL();
  rocksdb_transaction_destroy(list[0]);
  rocksdb_free(list);
  IS(rocksdb_transactiondb_get(db, reading, "prepared", 8, &length, &error), "1");
  CHECK(rocksdb_transactiondb_get_prepared_transactions(db, &waiting) == NULL && waiting == 0);
}

static void with_locks(const rocksdb_options_t *options, const char *path) {
  size_t length = 0;
  rocksdb_transactiondb_options_t *of = rocksdb_transactiondb_options_create();
  rocksdb_transactiondb_options_set_max_num_locks(of, 1000);
  rocksdb_transactiondb_options_set_num_stripes(of, 16);
  rocksdb_transactiondb_options_set_transaction_lock_timeout(of, 20);
  rocksdb_transactiondb_options_set_default_lock_timeout(of, 20);
  rocksdb_transactiondb_t *db = rocksdb_transactiondb_open(options, of, path, &error);
  WELL();
  rocksdb_column_family_handle_t *family = rocksdb_transactiondb_create_column_family(db, options, "family", &error);
  WELL();
  locking = rocksdb_transaction_options_create();
  rocksdb_transaction_options_set_deadlock_detect(locking, 1);
  rocksdb_transaction_options_set_lock_timeout(locking, 20);
  rocksdb_transaction_t *txn = begun(db, NULL);
  verbs(txn, family);
  CHECK(rocksdb_transactiondb_get(db, reading, "a", 1, &length, &error) == NULL);
  rocksdb_transaction_commit(txn, &error);
  WELL();
  rocksdb_transaction_destroy(txn);
  IS(rocksdb_transactiondb_get(db, reading, "a", 1, &length, &error), "1");
  IS(rocksdb_transactiondb_get_cf(db, reading, family, "f", 1, &length, &error), "of");
  rocksdb_transactiondb_put_cf(db, writing, family, "g", 1, "1", 1, &error);
  rocksdb_transactiondb_delete_cf(db, writing, family, "g", 1, &error);
  WELL();
  COUNT(rocksdb_transactiondb_create_iterator(db, reading), 1);
  COUNT(rocksdb_transactiondb_create_iterator_cf(db, reading, family), 1);
  rocksdb_transactiondb_flush_wal(db, 1, &error);
  WELL();
  locks(db);
  snapshots(db);
  prepares(db);
  rocksdb_t *base = rocksdb_transactiondb_get_base_db(db);
  rocksdb_put(base, writing, "plain", 5, "1", 1, &error);
  WELL();
  rocksdb_transactiondb_close_base_db(base);
  IS(rocksdb_transactiondb_get(db, reading, "plain", 5, &length, &error), "1");
  char *said = rocksdb_transactiondb_property_value(db, "rocksdb.estimate-num-keys");
  CHECK(said != NULL);
  rocksdb_free(said);
  rocksdb_transaction_options_destroy(locking);
  rocksdb_column_family_handle_destroy(family);
  rocksdb_transactiondb_close(db);
  const char *names[2] = {"default", "family"};
  const rocksdb_options_t *each[2] = {options, options};
  rocksdb_column_family_handle_t *handles[2];
  db = rocksdb_transactiondb_open_column_families(options, of, path, 2, names, each, handles, &error);
  WELL();
  IS(rocksdb_transactiondb_get_cf(db, reading, handles[1], "f", 1, &length, &error), "of");
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_transactiondb_close(db);
  rocksdb_transactiondb_options_destroy(of);
}

static void optimistic(const rocksdb_options_t *options, const char *path) {
  size_t length = 0;
  const char *names[2] = {"default", "family"};
  const rocksdb_options_t *each[2] = {options, options};
  rocksdb_column_family_handle_t *handles[2];
  rocksdb_optimistictransactiondb_t *db =
      rocksdb_optimistictransactiondb_open_column_families(options, path, 2, names, each, handles, &error);
  WELL();
  rocksdb_t *base = rocksdb_optimistictransactiondb_get_base_db(db);
  rocksdb_delete(base, writing, "a", 1, &error);
  rocksdb_delete(base, writing, "b", 1, &error);
  rocksdb_delete_cf(base, writing, handles[1], "f", 1, &error);
  rocksdb_delete_range_cf(base, writing, handles[0], "c", 1, "z", 1, &error);
  WELL();
  rocksdb_optimistictransaction_options_t *of = rocksdb_optimistictransaction_options_create();
  rocksdb_optimistictransaction_options_set_set_snapshot(of, 1);
  rocksdb_transaction_t *txn = rocksdb_optimistictransaction_begin(db, writing, of, NULL);
  verbs(txn, handles[1]);
  rocksdb_transaction_commit(txn, &error);
  WELL();
  IS(rocksdb_get(base, reading, "a", 1, &length, &error), "1");
  // Of two that write the same, the second fails, and has written nothing.
  txn = rocksdb_optimistictransaction_begin(db, writing, of, txn);
  rocksdb_transaction_put(txn, "a", 1, "late", 4, &error);
  rocksdb_transaction_put(txn, "b", 1, "late", 4, &error);
  WELL();
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  rocksdb_writebatch_put(batch, "a", 1, "first", 5);
  rocksdb_optimistictransactiondb_write(db, writing, batch, &error);
  WELL();
  rocksdb_writebatch_destroy(batch);
  rocksdb_transaction_commit(txn, &error);
  FAILED("Resource busy: ");
  IS(rocksdb_get(base, reading, "a", 1, &length, &error), "first");
  CHECK(rocksdb_get(base, reading, "b", 1, &length, &error) == NULL);
  // It may be rolled back as any other whose commit failed, once.
  rocksdb_transaction_rollback(txn, &error);
  WELL();
  rocksdb_transaction_rollback(txn, &error);
  FAILED("Invalid argument: ");
  rocksdb_transaction_destroy(txn);
  rocksdb_optimistictransaction_options_destroy(of);
  rocksdb_optimistictransactiondb_close_base_db(base);
  rocksdb_column_family_handle_destroy(handles[0]);
  rocksdb_column_family_handle_destroy(handles[1]);
  rocksdb_optimistictransactiondb_close(db);
}

static void nulls(void) {
  CHECK(rocksdb_transaction_begin(NULL, NULL, NULL, NULL) == NULL);
  CHECK(rocksdb_optimistictransaction_begin(NULL, NULL, NULL, NULL) == NULL);
  rocksdb_transaction_commit(NULL, &error);
  FAILED("Invalid argument: ");
  rocksdb_transaction_put(NULL, "k", 1, "v", 1, &error);
  FAILED("Invalid argument: ");
  rocksdb_transactiondb_put(NULL, NULL, "k", 1, "v", 1, &error);
  FAILED("Invalid argument: ");
  rocksdb_transaction_set_savepoint(NULL);
  rocksdb_transaction_destroy(NULL);
  rocksdb_transactiondb_close(NULL);
  rocksdb_optimistictransactiondb_close(NULL);
  CHECK(rocksdb_transaction_get_snapshot(NULL) == NULL);
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  rocksdb_options_t *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_write_buffer_size(options, 4 << 20);
  reading = rocksdb_readoptions_create();
  writing = rocksdb_writeoptions_create();
  with_locks(options, arguments[1]);
  optimistic(options, arguments[1]);
  nulls();
  rocksdb_options_destroy(options);
  rocksdb_readoptions_destroy(reading);
  rocksdb_writeoptions_destroy(writing);
  printf("all is well\n");
  return 0;
}
