// What the programs check with. They know nothing of Tombolo.
#ifndef COMMON_H
#define COMMON_H

#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

static char *error = NULL;

static void well(int line) {
  if (error != NULL) {
    fprintf(stderr, "line %d: %s\n", line, error);
    exit(1);
  }
}
#define WELL() well(__LINE__)

static void failed(const char *beginning, int line) {
  if (error == NULL || strncmp(error, beginning, strlen(beginning)) != 0) {
    fprintf(stderr, "line %d: expected %s, found %s\n", line, beginning, error ? error : "no error");
    exit(1);
  }
  rocksdb_free(error);
  error = NULL;
}
#define FAILED(beginning) failed(beginning, __LINE__)

static rocksdb_readoptions_t *reading;
static rocksdb_writeoptions_t *writing;

static void is(char *value, size_t length, const char *expected, int line) {
  int same = expected == NULL ? value == NULL
                              : value != NULL && length == strlen(expected) && memcmp(value, expected, length) == 0;
  if (!same) {
    fprintf(stderr, "line %d: expected %s, found %.*s\n", line, expected ? expected : "nothing", (int)length,
            value ? value : "nothing");
    exit(1);
  }
  rocksdb_free(value);
}

#define IS(get, expected)                  \
  do {                                     \
    char *got = get;                       \
    WELL();                                \
    is(got, length, expected, __LINE__);   \
  } while (0)

#endif
