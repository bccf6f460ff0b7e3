// Every function of the library does what the header says.
#include "check.h"

static char *error = NULL;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int waiting, freed, events;
static char found[64];

static void one_less(void) {
  pthread_mutex_lock(&lock);
  waiting--;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
}

static void wait_for_all(void) {
  pthread_mutex_lock(&lock);
  while (waiting > 0) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

static void ended(void *state, const char *failure) {
  CHECK(state == &waiting);
  CHECK(failure == NULL);
  one_less();
}

static void ended_as_invalid(void *state, const char *failure) {
  CHECK(state == &waiting);
  CHECK(tombolo_error_kind(failure) == TOMBOLO_INVALID);
  one_less();
}

static void found_value(void *state, const char *value, size_t length, const char *failure) {
  CHECK(failure == NULL);
  memcpy(state, value, length);
  one_less();
}

static void found_nothing(void *state, const char *value, size_t length, const char *failure) {
  CHECK(state == NULL && value == NULL && length == 0 && failure == NULL);
  one_less();
}

static void use_bytes(void *state, const char *bytes, size_t length) { memcpy(state, bytes, length); }

static void free_state(void *state) {
  CHECK(state == &freed);
  __atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
}

static void tell(void *state, int level, const char *text) {
  CHECK(state == &freed && level >= TOMBOLO_LEVEL_INFO && level <= TOMBOLO_LEVEL_ERROR && text[0] != 0);
  __atomic_add_fetch(&events, 1, __ATOMIC_SEQ_CST);
}

// Joins all operands with dots.
static char *fold(void *state, const char *key, size_t key_bytes, const char *base, size_t base_bytes,
                  const char *const *operands, const size_t *lengths, size_t count, size_t *value_bytes) {
  CHECK(state == &freed && key_bytes > 0);
  if (key[0] == '!') return NULL;
  size_t length = base_bytes;
  for (size_t i = 0; i < count; i++) length += lengths[i] + 1;
  char *value = malloc(length), *end = value;
  if (base != NULL) memcpy(end, base, base_bytes), end += base_bytes;
  for (size_t i = 0; i < count; i++) {
    *end++ = '.';
    memcpy(end, operands[i], lengths[i]), end += lengths[i];
  }
  *value_bytes = length;
  return value;
}

static void is(const char *value, size_t length, const char *expected) {
  if (value == NULL || length != strlen(expected) || memcmp(value, expected, length) != 0) {
    fprintf(stderr, "expected %s, found %.*s\n", expected, (int)length, value ? value : "nothing");
    exit(1);
  }
}

static void has(tombolo_keyspace_t *keyspace, tombolo_snapshot_t *snapshot, const char *key, const char *expected) {
  size_t length = 77;
  char *value = tombolo_get(keyspace, snapshot, key, strlen(key), &length, &error);
  WELL();
  if (expected == NULL) {
    CHECK(value == NULL && length == 0);
    return;
  }
  is(value, length, expected);
  tombolo_free(value);
}

static void writes_and_reads(tombolo_t *database) {
  tombolo_keyspace_t *orders = tombolo_create_keyspace(database, "orders", "filter_bits=12 block_bytes=4096", 0, &error);
  WELL();
  CHECK(tombolo_create_keyspace(database, "orders", NULL, 0, &error) == NULL);
  FAILED(TOMBOLO_ALREADY_EXISTS);
  tombolo_keyspace_set_option(orders, "compression", "zstd", &error);
  WELL();
  tombolo_put(orders, "1", 1, "two books", 9, TOMBOLO_DURABLE, &error);
  WELL();
  tombolo_put(orders, "2", 1, "", 0, TOMBOLO_ACCEPTED, &error);
  WELL();
  tombolo_put(orders, "3", 1, NULL, 0, TOMBOLO_UNLOGGED, &error);
  WELL();
  tombolo_put_ttl(orders, "4", 1, "soon gone", 9, 3600000, TOMBOLO_DURABLE, &error);
  WELL();
  has(orders, NULL, "1", "two books");
  has(orders, NULL, "2", "");
  has(orders, NULL, "4", "soon gone");
  has(orders, NULL, "5", NULL);
  tombolo_snapshot_t *before = tombolo_snapshot(database, &error);
  WELL();
  tombolo_delete(orders, "1", 1, TOMBOLO_DURABLE, &error);
  WELL();
  tombolo_single_delete(orders, "2", 1, TOMBOLO_DURABLE, &error);
  WELL();
  tombolo_delete_range(orders, "3", 1, "5", 1, TOMBOLO_DURABLE, &error);
  WELL();
  has(orders, NULL, "1", NULL);
  has(orders, NULL, "4", NULL);
  has(orders, before, "1", "two books");
  tombolo_value_t *value = tombolo_get_value(orders, before, "1", 1, &error);
  WELL();
  size_t length;
  const char *bytes = tombolo_value_bytes(value, &length);
  is(bytes, length, "two books");
  tombolo_value_release(value);
  const char *keys[] = {"1", "9", "4"};
  const size_t key_lengths[] = {1, 1, 1};
  char *values[3];
  size_t lengths[3];
  tombolo_multi_get(orders, before, 3, keys, key_lengths, values, lengths, &error);
  WELL();
  is(values[0], lengths[0], "two books");
  CHECK(values[1] == NULL && lengths[1] == 0);
  is(values[2], lengths[2], "soon gone");
  tombolo_free(values[0]), tombolo_free(values[2]);
  tombolo_snapshot_release(before);
  tombolo_put(orders, "7", 1, "lent", 5, TOMBOLO_DURABLE, &error);
  WELL();
  char lent[8] = {0};
  CHECK(tombolo_get_with(orders, "7", 1, use_bytes, lent, &error) == 1);
  WELL();
  CHECK(strcmp(lent, "lent") == 0);
  CHECK(tombolo_get_with(orders, "8", 1, use_bytes, lent, &error) == 0);
  WELL();
  char *names = tombolo_keyspace_names(database, &error);
  WELL();
  CHECK(strcmp(names, "default\norders\n") == 0);
  tombolo_free(names);
  tombolo_keyspace_destroy(orders);
  tombolo_drop_keyspace(database, "orders", &error);
  WELL();
  CHECK(tombolo_keyspace(database, "orders", &error) == NULL);
  FAILED(TOMBOLO_NOT_FOUND);
}

static void batches_and_cursors(tombolo_t *database) {
  tombolo_keyspace_t *keyspace = tombolo_default_keyspace(database);
  tombolo_batch_t *batch = tombolo_batch_create();
  tombolo_batch_put(batch, keyspace, "a", 1, "gone", 4, &error);
  tombolo_batch_clear(batch);
  CHECK(tombolo_batch_count(batch) == 0);
  tombolo_batch_put(batch, keyspace, "a", 1, "1", 1, &error);
  tombolo_batch_put(batch, keyspace, "b", 1, "2", 1, &error);
  tombolo_batch_put(batch, keyspace, "c", 1, "3", 1, &error);
  tombolo_batch_put_ttl(batch, keyspace, "d", 1, "4", 1, 3600000, &error);
  tombolo_batch_delete(batch, keyspace, "b", 1, &error);
  WELL();
  CHECK(tombolo_batch_count(batch) == 5);
  tombolo_write(database, batch, TOMBOLO_DURABLE, &error);
  WELL();
  CHECK(tombolo_batch_count(batch) == 0);
  has(keyspace, NULL, "a", "1");
  has(keyspace, NULL, "b", NULL);
  tombolo_cursor_t *cursor = tombolo_cursor(keyspace, NULL, NULL, 0, NULL, 0, &error);
  WELL();
  CHECK(!tombolo_cursor_valid(cursor) && tombolo_cursor_key(cursor, NULL) == NULL);
  char seen[8] = {0};
  size_t count = 0, length;
  while (tombolo_cursor_next(cursor, &error)) {
    seen[count++] = *tombolo_cursor_key(cursor, &length);
    CHECK(length == 1);
    is(tombolo_cursor_value(cursor, &length), 1, count == 1 ? "1" : count == 2 ? "3" : "4");
  }
  WELL();
  CHECK(strcmp(seen, "acd") == 0);
  CHECK(tombolo_cursor_seek(cursor, "b", 1, &error) && *tombolo_cursor_key(cursor, NULL) == 'c');
  CHECK(tombolo_cursor_prev(cursor, &error) && *tombolo_cursor_key(cursor, NULL) == 'a');
  CHECK(!tombolo_cursor_prev(cursor, &error));
  CHECK(tombolo_cursor_seek_to_last(cursor, &error) && *tombolo_cursor_key(cursor, NULL) == 'd');
  CHECK(tombolo_cursor_seek_to_first(cursor, &error) && *tombolo_cursor_key(cursor, NULL) == 'a');
  CHECK(tombolo_cursor_seek_for_prev(cursor, "bb", 2, &error) && *tombolo_cursor_key(cursor, NULL) == 'a');
  tombolo_batch_single_delete(batch, keyspace, "a", 1, &error);
  tombolo_batch_delete_range(batch, keyspace, "d", 1, "e", 1, &error);
  tombolo_write(database, batch, TOMBOLO_ACCEPTED, &error);
  tombolo_cursor_refresh(cursor, &error);
  WELL();
  CHECK(tombolo_cursor_seek_to_first(cursor, &error) && *tombolo_cursor_key(cursor, NULL) == 'c');
  CHECK(!tombolo_cursor_next(cursor, &error));
  tombolo_cursor_destroy(cursor);
  cursor = tombolo_cursor(keyspace, NULL, "a", 1, "c", 1, &error);
  CHECK(!tombolo_cursor_next(cursor, &error));
  tombolo_cursor_destroy(cursor);
  tombolo_batch_destroy(batch);
  tombolo_keyspace_destroy(keyspace);
  WELL();
}

static void merges(tombolo_t *database) {
  tombolo_keyspace_t *keyspace = tombolo_create_keyspace(database, "dots", "operator=dots@1", 1, &error);
  WELL();
  tombolo_put(keyspace, "k", 1, "a", 1, TOMBOLO_DURABLE, &error);
  tombolo_merge(keyspace, "k", 1, "b", 1, TOMBOLO_DURABLE, &error);
  tombolo_batch_t *batch = tombolo_batch_create();
  tombolo_batch_merge(batch, keyspace, "k", 1, "c", 1, &error);
  tombolo_write(database, batch, TOMBOLO_DURABLE, &error);
  tombolo_batch_destroy(batch);
  WELL();
  has(keyspace, NULL, "k", "a.b.c");
  tombolo_merge(keyspace, "!", 1, "b", 1, TOMBOLO_DURABLE, &error);
  WELL();
  CHECK(tombolo_get(keyspace, NULL, "!", 1, NULL, &error) == NULL);
  FAILED(TOMBOLO_UNSUPPORTED);
  tombolo_delete(keyspace, "!", 1, TOMBOLO_DURABLE, &error);
  tombolo_flush(database, &error);
  tombolo_compact(database, &error);
  WELL();
  has(keyspace, NULL, "k", "a.b.c");
  tombolo_keyspace_destroy(keyspace);
}

static void remember(void *state, const char *bytes, size_t length) {
  memcpy(state, bytes, length);
  ((char *)state)[length] = 0;
}

static void sees(tombolo_transaction_t *transaction, tombolo_keyspace_t *keyspace, int for_update,
                 const char *key, const char *expected) {
  size_t length = 77;
  char *value = tombolo_transaction_get(transaction, keyspace, key, strlen(key), for_update, &length, &error);
  WELL();
  if (expected == NULL) CHECK(value == NULL && length == 0);
  else is(value, length, expected);
  tombolo_free(value);
}

static tombolo_transaction_t *begun(tombolo_t *database, int locking, const char *id) {
  size_t length = id == NULL ? 0 : strlen(id);
  tombolo_transaction_t *transaction = tombolo_transaction_begin(
      database, locking, TOMBOLO_SNAPSHOT_ISOLATION, TOMBOLO_DURABLE, 20, id, length, &error);
  WELL();
  return transaction;
}

static void transactions(tombolo_t *database) {
  tombolo_keyspace_t *keyspace = tombolo_create_keyspace(database, "accounts", NULL, 0, &error);
  WELL();
  tombolo_put(keyspace, "a", 1, "1", 1, TOMBOLO_DURABLE, &error);
  tombolo_put(keyspace, "z", 1, "1", 1, TOMBOLO_DURABLE, &error);
  WELL();

  // Its own writes are seen inside, by gets and cursors, and nowhere else until the commit.
  tombolo_transaction_t *one = begun(database, TOMBOLO_OPTIMISTIC, "transfer 1");
  sees(one, keyspace, 1, "a", "1");
  tombolo_transaction_put(one, keyspace, "b", 1, "2", 1, &error);
  tombolo_transaction_put_ttl(one, keyspace, "c", 1, "3", 1, 3600000, &error);
  tombolo_transaction_delete(one, keyspace, "z", 1, &error);
  tombolo_transaction_set_savepoint(one, &error);
  tombolo_transaction_put(one, keyspace, "b", 1, "wrong", 5, &error);
  tombolo_transaction_delete_range(one, keyspace, "a", 1, "d", 1, &error);
  WELL();
  sees(one, keyspace, 0, "a", NULL);
  tombolo_transaction_rollback_to_savepoint(one, &error);
  WELL();
  tombolo_transaction_rollback_to_savepoint(one, &error);
  FAILED(TOMBOLO_INVALID);
  sees(one, keyspace, 0, "b", "2");
  has(keyspace, NULL, "b", NULL);
  tombolo_cursor_t *cursor = tombolo_transaction_cursor(one, keyspace, NULL, 0, NULL, 0, &error);
  WELL();
  const char *order = "abc";
  size_t length;
  for (int step = tombolo_cursor_seek_to_first(cursor, &error); step; step = tombolo_cursor_next(cursor, &error)) {
    const char *key = tombolo_cursor_key(cursor, &length);
    CHECK(length == 1 && *key == *order++);
  }
  WELL();
  CHECK(*order == 0 && !tombolo_cursor_valid(cursor));
  CHECK(tombolo_cursor_seek(cursor, "b", 1, &error) == 1);
  is(tombolo_cursor_value(cursor, &length), length, "2");
  tombolo_cursor_destroy(cursor);
  CHECK(tombolo_transaction_commit(one, &error) > 0);
  WELL();
  tombolo_transaction_commit(one, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_transaction_destroy(one);
  has(keyspace, NULL, "b", "2");
  has(keyspace, NULL, "z", NULL);
  CHECK(tombolo_transaction_outcome(database, "transfer 1", 10, &error) == TOMBOLO_TRANSACTION_COMMITTED);
  CHECK(tombolo_transaction_outcome(database, "transfer 2", 10, &error) == TOMBOLO_TRANSACTION_UNKNOWN);
  WELL();

  // The second of two that meet is told so.
  one = begun(database, TOMBOLO_OPTIMISTIC, NULL);
  sees(one, keyspace, 1, "a", "1");
  tombolo_put(keyspace, "a", 1, "other", 5, TOMBOLO_DURABLE, &error);
  tombolo_transaction_put(one, keyspace, "d", 1, "4", 1, &error);
  WELL();
  tombolo_transaction_commit(one, &error);
  FAILED(TOMBOLO_CONFLICT);
  tombolo_transaction_destroy(one);
  has(keyspace, NULL, "d", NULL);

  // Locks keep others away, and a lock that does not come is an error.
  one = begun(database, TOMBOLO_PESSIMISTIC, NULL);
  tombolo_transaction_t *other = begun(database, TOMBOLO_PESSIMISTIC, NULL);
  tombolo_transaction_lock_range(one, keyspace, "m", 1, "p", 1, &error);
  WELL();
  tombolo_transaction_put(other, keyspace, "n", 1, "5", 1, &error);
  CHECK(error != NULL);
  tombolo_free(error), error = NULL;
  tombolo_transaction_rollback(other, &error);
  WELL();
  tombolo_transaction_destroy(other);
  tombolo_transaction_destroy(one);

  // Prepared, it is decided later, by its id.
  one = begun(database, TOMBOLO_PESSIMISTIC, NULL);
  tombolo_transaction_put(one, keyspace, "n", 1, "6", 1, &error);
  tombolo_transaction_single_delete(one, keyspace, "b", 1, &error);
  tombolo_transaction_prepare(one, "both", 4, &error);
  WELL();
  tombolo_transaction_destroy(one);
  char id[16];
  CHECK(tombolo_in_doubt(database, remember, id, &error) == 1 && strcmp(id, "both") == 0);
  WELL();
  has(keyspace, NULL, "n", NULL);
  tombolo_decide(database, "both", 4, 1, &error);
  tombolo_decide(database, "both", 4, 1, &error);
  WELL();
  has(keyspace, NULL, "n", "6");
  has(keyspace, NULL, "b", NULL);
  CHECK(tombolo_in_doubt(database, remember, id, &error) == 0);

  tombolo_keyspace_t *dots = tombolo_keyspace(database, "dots", &error);
  one = begun(database, TOMBOLO_OPTIMISTIC, NULL);
  tombolo_transaction_merge(one, dots, "merged", 6, "x", 1, &error);
  tombolo_transaction_commit(one, &error);
  WELL();
  tombolo_transaction_destroy(one);
  has(dots, NULL, "merged", ".x");
  tombolo_keyspace_destroy(dots);
  CHECK(tombolo_transaction_begin(database, 7, 0, 0, 0, NULL, 0, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  tombolo_keyspace_destroy(keyspace);
}

static void callbacks(tombolo_t *database) {
  tombolo_keyspace_t *keyspace = tombolo_default_keyspace(database);
  tombolo_batch_t *batch = tombolo_batch_create();
  tombolo_batch_put(batch, keyspace, "batched", 7, "too", 3, &error);
  waiting = 7;
  tombolo_put_then(keyspace, "async", 5, "value", 5, TOMBOLO_DURABLE, ended, &waiting);
  tombolo_write_then(database, batch, TOMBOLO_DURABLE, ended, &waiting);
  tombolo_delete_then(keyspace, "absent", 6, TOMBOLO_DURABLE, ended, &waiting);
  tombolo_put_then(keyspace, NULL, 5, "value", 5, TOMBOLO_DURABLE, ended_as_invalid, &waiting);
  tombolo_put_then(NULL, "k", 1, "value", 5, TOMBOLO_DURABLE, ended_as_invalid, &waiting);
  tombolo_flush_then(database, ended, &waiting);
  tombolo_get_then(keyspace, NULL, "absent", 6, found_nothing, NULL);
  wait_for_all();
  waiting = 1;
  tombolo_get_then(keyspace, NULL, "async", 5, found_value, found);
  wait_for_all();
  CHECK(strcmp(found, "value") == 0);
  tombolo_put_then(keyspace, "nobody", 6, "cares", 5, TOMBOLO_DURABLE, NULL, NULL);
  has(keyspace, NULL, "batched", "too");
  tombolo_batch_destroy(batch);
  tombolo_keyspace_destroy(keyspace);
}

int main(int count, char **arguments) {
  CHECK(count == 2 && tombolo_version()[0] >= '0');
  tombolo_options_t *options = tombolo_options_create();
  tombolo_options_set(options, "memory_bytes", "32MiB", &error);
  tombolo_options_set_mode(options, TOMBOLO_CREATE, &error);
  tombolo_options_set_take_over(options, TOMBOLO_TAKE_OVER_NEVER, &error);
  tombolo_options_add_operator(options, "dots", 1, fold, &freed, free_state, &error);
  tombolo_options_set_listener(options, tell, &freed, free_state, &error);
  WELL();
  tombolo_t *database = tombolo_open(options, arguments[1], &error);
  WELL();
  CHECK(tombolo_open(options, arguments[1], &error) == NULL);
  FAILED(TOMBOLO_ALREADY_EXISTS);
  tombolo_options_destroy(options);
  CHECK(freed == 0);
  writes_and_reads(database);
  batches_and_cursors(database);
  merges(database);
  transactions(database);
  callbacks(database);
  tombolo_sync(database, &error);
  tombolo_set_option(database, "automatic_compaction", "false", &error);
  tombolo_checkpoint(database, "noon", &error);
  tombolo_delete_checkpoint(database, "noon", &error);
  WELL();
  char *writes = tombolo_property(database, "writes", &error);
  WELL();
  CHECK(atoi(writes) > 10);
  tombolo_free(writes);
  char *metrics = tombolo_metrics(database, "orders", 6, &error);
  WELL();
  CHECK(strstr(metrics, "\ntombolo_writes_total{database=\"orders\"} ") != NULL);
  tombolo_free(metrics);
  tombolo_t *look = tombolo_open_read_only(NULL, arguments[1], &error);
  WELL();
  tombolo_keyspace_t *seen = tombolo_default_keyspace(look);
  has(seen, NULL, "async", "value");
  tombolo_put(seen, "k", 1, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_PERMISSION_DENIED);
  tombolo_keyspace_destroy(seen);
  tombolo_close(look, &error);
  WELL();
  tombolo_keyspace_t *keyspace = tombolo_default_keyspace(database);
  tombolo_close(database, &error);
  WELL();
  tombolo_put(keyspace, "k", 1, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_CLOSED);
  tombolo_keyspace_destroy(keyspace);
  CHECK(__atomic_load_n(&freed, __ATOMIC_SEQ_CST) == 2);
  CHECK(__atomic_load_n(&events, __ATOMIC_SEQ_CST) > 2);
  tombolo_destroy_database(NULL, arguments[1], &error);
  WELL();
  printf("all is well\n");
  return 0;
}
