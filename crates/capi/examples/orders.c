// Opens a database, writes two orders together, and prints all of them.
//
//     cc orders.c $(pkg-config --cflags --libs tombolo) -o orders && ./orders file:///data/orders

#include <stdio.h>
#include <stdlib.h>
#include <tombolo.h>

static void check(char *error) {
  if (error != NULL) {
    fprintf(stderr, "orders: %s\n", error);
    exit(tombolo_error_kind(error) == TOMBOLO_FENCED ? 4 : 1);
  }
}

int main(int count, char **arguments) {
  char *error = NULL;
  tombolo_t *database = tombolo_open(NULL, count > 1 ? arguments[1] : "mem://orders", &error);
  check(error);
  tombolo_keyspace_t *orders = tombolo_create_keyspace(database, "orders", NULL, 1, &error);
  check(error);

  tombolo_batch_t *batch = tombolo_batch_create();
  tombolo_batch_put(batch, orders, "1", 1, "two books", 9, &error);
  check(error);
  tombolo_batch_put(batch, orders, "2", 1, "a lamp", 6, &error);
  check(error);
  tombolo_write(database, batch, TOMBOLO_DURABLE, &error);
  check(error);
  tombolo_batch_destroy(batch);

  tombolo_cursor_t *cursor = tombolo_cursor(orders, NULL, NULL, 0, NULL, 0, &error);
  check(error);
  while (tombolo_cursor_next(cursor, &error)) {
    size_t key_bytes, value_bytes;
    const char *key = tombolo_cursor_key(cursor, &key_bytes);
    const char *value = tombolo_cursor_value(cursor, &value_bytes);
    printf("%.*s %.*s\n", (int)key_bytes, key, (int)value_bytes, value);
  }
  check(error);
  tombolo_cursor_destroy(cursor);
  tombolo_keyspace_destroy(orders);
  tombolo_close(database, &error);
  check(error);
  return 0;
}
