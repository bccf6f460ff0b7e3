// Null pointers, wrong lengths and wrong numbers are errors, and never the end of the process.
#include "check.h"
#include <stdint.h>

static char *error = NULL;

int main(int count, char **arguments) {
  CHECK(count == 2);
  // To destroy nothing does nothing.
  tombolo_options_destroy(NULL);
  tombolo_keyspace_destroy(NULL);
  tombolo_batch_destroy(NULL);
  tombolo_cursor_destroy(NULL);
  tombolo_transaction_destroy(NULL);
  tombolo_snapshot_release(NULL);
  tombolo_value_release(NULL);
  tombolo_close(NULL, NULL);
  tombolo_free(NULL);
  tombolo_batch_clear(NULL);
  CHECK(tombolo_batch_count(NULL) == 0);
  CHECK(tombolo_cursor_valid(NULL) == 0);
  CHECK(tombolo_cursor_key(NULL, NULL) == NULL);
  CHECK(tombolo_value_bytes(NULL, NULL) == NULL);
  CHECK(tombolo_default_keyspace(NULL) == NULL);
  CHECK(tombolo_error_kind(NULL) == TOMBOLO_OK);
  CHECK(tombolo_error_kind("nothing known") == TOMBOLO_BUG);

  CHECK(tombolo_open(NULL, NULL, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_open(NULL, "\xff\xfe", &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_open(NULL, "nowhere://at/all", &error) == NULL);
  CHECK(error != NULL);
  // An earlier error makes place for a later one.
  CHECK(tombolo_open(NULL, NULL, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  // Nobody wants to know.
  CHECK(tombolo_open(NULL, NULL, NULL) == NULL);

  CHECK(tombolo_transaction_begin(NULL, 0, 0, 0, 0, NULL, 0, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_transaction_get(NULL, NULL, NULL, 0, 0, NULL, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_transaction_cursor(NULL, NULL, NULL, 0, NULL, 0, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  tombolo_transaction_put(NULL, NULL, NULL, 0, NULL, 0, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_transaction_set_savepoint(NULL, &error);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_transaction_commit(NULL, &error) == 0);
  FAILED(TOMBOLO_INVALID);
  tombolo_decide(NULL, NULL, 0, 1, &error);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_in_doubt(NULL, NULL, NULL, &error) == 0);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_transaction_outcome(NULL, NULL, 0, &error) == 0);
  FAILED(TOMBOLO_INVALID);

  tombolo_options_t *options = tombolo_options_create();
  tombolo_options_set(NULL, "memory_bytes", "1GiB", &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set(options, "no_such_setting", "1", &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set(options, "memory_bytes", NULL, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set_mode(options, 3, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set_take_over(options, -1, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set_log(options, NULL, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_add_operator(options, "name", 1, NULL, NULL, NULL, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set_listener(options, NULL, NULL, NULL, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_options_set_mode(options, TOMBOLO_OPEN, &error);
  CHECK(tombolo_open(options, arguments[1], &error) == NULL);
  FAILED(TOMBOLO_NOT_FOUND);
  tombolo_options_destroy(options);

  tombolo_t *database = tombolo_open(NULL, arguments[1], &error);
  WELL();
  CHECK(tombolo_keyspace(database, NULL, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_create_keyspace(database, "k", "no_value", 0, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_create_keyspace(database, "", NULL, 0, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_property(database, "no-such-property", &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_metrics(database, "\xff", 1, &error) == NULL);
  FAILED(TOMBOLO_INVALID);

  tombolo_keyspace_t *keyspace = tombolo_default_keyspace(database);
  tombolo_put(NULL, "k", 1, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_put(keyspace, NULL, 1, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_put(keyspace, "k", SIZE_MAX, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_put(keyspace, "k", 1, NULL, 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_put(keyspace, "k", 1, "v", 1, 3, &error);
  FAILED(TOMBOLO_INVALID);
  static char large[70000];
  tombolo_put(keyspace, large, sizeof large, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_merge(keyspace, "k", 1, "v", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_delete_range(keyspace, "b", 1, "a", 1, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  size_t length = 5;
  CHECK(tombolo_get(NULL, NULL, "k", 1, &length, &error) == NULL && length == 0);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_get(keyspace, NULL, NULL, 2, NULL, NULL) == NULL);
  CHECK(tombolo_get_with(keyspace, "k", 1, NULL, NULL, &error) == 0);
  FAILED(TOMBOLO_INVALID);
  tombolo_multi_get(keyspace, NULL, 1, NULL, NULL, NULL, NULL, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_multi_get(keyspace, NULL, 0, NULL, NULL, NULL, NULL, &error);
  WELL();
  CHECK(tombolo_snapshot(NULL, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_cursor(NULL, NULL, NULL, 0, NULL, 0, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  CHECK(tombolo_cursor_next(NULL, &error) == 0);
  FAILED(TOMBOLO_INVALID);
  tombolo_batch_t *batch = tombolo_batch_create();
  tombolo_batch_put(batch, NULL, "k", 1, "v", 1, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_write(database, NULL, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_write(NULL, batch, TOMBOLO_DURABLE, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_write(database, batch, 9, &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_batch_destroy(batch);
  // A keyspace and a snapshot of two databases.
  tombolo_t *other = tombolo_open(NULL, "mem://other", &error);
  WELL();
  tombolo_snapshot_t *snapshot = tombolo_snapshot(other, &error);
  CHECK(tombolo_get(keyspace, snapshot, "k", 1, NULL, &error) == NULL);
  FAILED(TOMBOLO_INVALID);
  tombolo_snapshot_release(snapshot);
  tombolo_close(other, &error);
  WELL();
  tombolo_drop_keyspace(database, "default", &error);
  FAILED(TOMBOLO_INVALID);
  tombolo_keyspace_destroy(keyspace);
  tombolo_close(database, &error);
  WELL();
  printf("all is well\n");
  return 0;
}
