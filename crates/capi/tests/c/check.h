// What both test programs need.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tombolo.h>

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

// No error was told.
#define WELL()                                                       \
  do {                                                               \
    if (error != NULL) {                                             \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error);      \
      exit(1);                                                       \
    }                                                                \
  } while (0)

// An error of this kind was told; it is freed.
#define FAILED(kind)                                                     \
  do {                                                                   \
    if (tombolo_error_kind(error) != (kind)) {                           \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error ? error : "no error"); \
      exit(1);                                                           \
    }                                                                    \
    tombolo_free(error);                                                 \
    error = NULL;                                                        \
  } while (0)
