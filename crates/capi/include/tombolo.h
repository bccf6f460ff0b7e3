// Tombolo for C: an embedded LSM key-value engine whose data lives on shared storage.
//
// Handles are opaque. A handle that a function gives is destroyed, closed or released by the
// function that is named so, once. Keys and values are a pointer with a length.
//
// Errors: the last argument is null, or says where an error is put: a text that begins with its
// kind, as in "Fenced: ...". Put NULL there before the first call; the text is freed with
// tombolo_free, and a later error frees an earlier one. Without an error the place stays as it is.
// tombolo_error_kind gives the kind as a number.
//
// Null handles, null pointers with a length and wrong lengths are errors of the kind Invalid; to
// destroy a null pointer does nothing. Memory to be freed is of malloc.
//
// Threads: databases, keyspaces, snapshots and values may be used by any number of threads at once;
// options, batches, transactions and cursors by one at a time. Destroy a handle only when no thread uses it. A
// database runs in threads of its own: open it after fork(), not before.

#ifndef TOMBOLO_H
#define TOMBOLO_H

// Made by cbindgen from crates/capi/src: do not edit. Its library is `libtombolo_c`.

#include <stddef.h>
#include <stdint.h>

// The write survives what its log survives: a sync or a round trip, shared with others.
#define TOMBOLO_DURABLE 0

// The write survives the end of the process.
#define TOMBOLO_ACCEPTED 1

// The write survives nothing but a later flush.
#define TOMBOLO_UNLOGGED 2

// There is no error.
#define TOMBOLO_OK 0

// Passing trouble; nothing took effect.
#define TOMBOLO_RETRY 1

// A limit of work in flight or of memory.
#define TOMBOLO_BUSY 2

// A conditional write was overtaken.
#define TOMBOLO_CONFLICT 3

// Another process has the database.
#define TOMBOLO_FENCED 4

// Somebody has the database open.
#define TOMBOLO_IN_USE 5

// The write may have taken effect.
#define TOMBOLO_OUTCOME_UNKNOWN 6

// The deadline passed; a write may still take effect.
#define TOMBOLO_DEADLINE_EXCEEDED 7

// What was named does not exist.
#define TOMBOLO_NOT_FOUND 8

// What was to be created exists.
#define TOMBOLO_ALREADY_EXISTS 9

// The call is wrong.
#define TOMBOLO_INVALID 10

// This store or version cannot do it.
#define TOMBOLO_UNSUPPORTED 11

// The system or the store refuses access.
#define TOMBOLO_PERMISSION_DENIED 12

// The store is full.
#define TOMBOLO_OUT_OF_SPACE 13

// Bytes in storage are not what was written.
#define TOMBOLO_CORRUPT 14

// What a reader needs was deleted.
#define TOMBOLO_PIN_LOST 15

// The handle was closed.
#define TOMBOLO_CLOSED 16

// A bug of Tombolo.
#define TOMBOLO_BUG 17

// A database is opened, and created if there is none.
#define TOMBOLO_CREATE_OR_OPEN 0

// A database is created; there must be none.
#define TOMBOLO_CREATE 1

// A database is opened; there must be one.
#define TOMBOLO_OPEN 2

// The database is taken from whichever process has it; not from a handle of this process.
#define TOMBOLO_TAKE_OVER_OTHERS 0

// The database is taken from whichever handle has it.
#define TOMBOLO_TAKE_OVER_ALWAYS 1

// Opening fails with `InUse` when somebody has the database.
#define TOMBOLO_TAKE_OVER_NEVER 2

// Nobody is kept away: the second of two commits that meet ends with `Conflict`.
#define TOMBOLO_OPTIMISTIC 0

// Writes and reads for update lock their keys; others that want them wait.
#define TOMBOLO_PESSIMISTIC 1

// All reads see one state.
#define TOMBOLO_SNAPSHOT_ISOLATION 0

// As if transactions ran one after the other.
#define TOMBOLO_SERIALIZABLE 1

// The id says nothing of a commit, or it is a day old.
#define TOMBOLO_TRANSACTION_UNKNOWN 0

// It was committed.
#define TOMBOLO_TRANSACTION_COMMITTED 1

// It was rolled back.
#define TOMBOLO_TRANSACTION_ROLLED_BACK 2

// It is prepared, and waits for its decision.
#define TOMBOLO_TRANSACTION_IN_DOUBT 3

// An event is usual.
#define TOMBOLO_LEVEL_INFO 0

// An event is trouble that the engine deals with.
#define TOMBOLO_LEVEL_WARNING 1

// An event ends the handle.
#define TOMBOLO_LEVEL_ERROR 2

// Writes that take effect whole or not at all. One thread uses it at a time.
typedef struct tombolo_batch_t tombolo_batch_t;

// Stands at an entry, or at none. One thread uses it at a time.
typedef struct tombolo_cursor_t tombolo_cursor_t;

// An open database. Any number of threads may use it at once.
typedef struct tombolo_t tombolo_t;

// A keyspace of an open database. Any number of threads may use it at once.
typedef struct tombolo_keyspace_t tombolo_keyspace_t;

// How databases are opened: settings, the log, operators, who is told of events.
typedef struct tombolo_options_t tombolo_options_t;

// A state of all keyspaces, which stays as it is. Any number of threads may use it at once.
typedef struct tombolo_snapshot_t tombolo_snapshot_t;

// A transaction that has begun. One thread uses it at a time. After its commit, its preparation or
// an error of these nothing but destroying it is left to do.
typedef struct tombolo_transaction_t tombolo_transaction_t;

// A value, or a key, that lies in the memory in which it was found.
typedef struct tombolo_value_t tombolo_value_t;

// What a key has with a value below operands. `base` is null where there is no value; operands
// come oldest first. It gives memory of `malloc`, which the library frees, and its length; null
// says that it cannot, and then the merge fails. Pure: the same input gives the same output for
// ever.
typedef char *(*tombolo_fold_t)(void *state,
                                const char *key,
                                size_t key_bytes,
                                const char *base,
                                size_t base_bytes,
                                const char *const *operands,
                                const size_t *operand_lengths,
                                size_t count,
                                size_t *value_bytes);

// Frees what belongs to a callback, once nobody needs it.
typedef void (*tombolo_free_state_t)(void *state);

// Is told of an event, with a text that is lent for the call.
typedef void (*tombolo_tell_event_t)(void *state, int level, const char *text);

// Is given bytes that are lent for the call.
typedef void (*tombolo_use_bytes_t)(void *state, const char *bytes, size_t length);

// Is told how an operation ended. `error` is null when it went well, and lent for the call.
typedef void (*tombolo_ended_t)(void *state, const char *error);

// Is told what a read found. `error` is null when it went well; `value` is null where there is
// none. Both are lent for the call.
typedef void (*tombolo_found_t)(void *state,
                                const char *value,
                                size_t value_bytes,
                                const char *error);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The kind of an error that a function told: `TOMBOLO_FENCED` and others; `TOMBOLO_OK` of a null
// pointer.
int tombolo_error_kind(const char *error);

// Frees what a function of this library gave: errors, values, texts. Null is fine.
void tombolo_free(void *memory);

// The version of the library. Stays, and is not to be freed.
const char *tombolo_version(void);

// Options as they are by default.
tombolo_options_t *tombolo_options_create(void);

// Databases that were opened with them stay open.
void tombolo_options_destroy(tombolo_options_t *options);

// Sets a setting of the database by its name: `memory_bytes` and others.
void tombolo_options_set(tombolo_options_t *options,
                         const char *name,
                         const char *value,
                         char **error);

// Whether opening may create: `TOMBOLO_CREATE_OR_OPEN` is the default.
void tombolo_options_set_mode(tombolo_options_t *options, int mode, char **error);

// From whom opening may take the database: `TOMBOLO_TAKE_OVER_OTHERS` is the default.
void tombolo_options_set_take_over(tombolo_options_t *options, int take_over, char **error);

// The log store, as a URI. A database is always opened with the log that it was created with.
void tombolo_options_set_log(tombolo_options_t *options, const char *uri, char **error);

// A merge operator for keyspaces whose setting `operator` names it, as `name@version`.
// `free_state` may be null.
void tombolo_options_add_operator(tombolo_options_t *options,
                                  const char *name,
                                  uint32_t version,
                                  tombolo_fold_t fold,
                                  void *state,
                                  tombolo_free_state_t free_state,
                                  char **error);

// Who is told of flushes, compactions, stalls, trouble and takeover, one after the other, on a
// thread of the engine: for the program's log. `free_state` may be null.
void tombolo_options_set_listener(tombolo_options_t *options,
                                  tombolo_tell_event_t tell,
                                  void *state,
                                  tombolo_free_state_t free_state,
                                  char **error);

// Opens the database at a URI, such as `file:///data/orders`; null options are the defaults. This
// process is its writer then, until another takes it over.
tombolo_t *tombolo_open(const tombolo_options_t *options, const char *uri, char **error);

// Opens the durable state of the database, to read it. Disturbs no writer, and needs no right to
// write.
tombolo_t *tombolo_open_read_only(const tombolo_options_t *options, const char *uri, char **error);

// Makes accepted writes durable, and ends the database and its handle: also after an error, which
// says what may not be durable. Handles of its keyspaces and snapshots answer `Closed` from here
// on, and a cursor goes on over what it keeps at most. They still have to be destroyed.
void tombolo_close(tombolo_t *database, char **error);

// Deletes all objects of the database at a URI: its life ends for ever.
void tombolo_destroy_database(const tombolo_options_t *options, const char *uri, char **error);

// The keyspace of that name. Its handle is destroyed with `tombolo_keyspace_destroy`.
tombolo_keyspace_t *tombolo_keyspace(const tombolo_t *database, const char *name, char **error);

// The keyspace `default`, which every database has; null of a null pointer.
tombolo_keyspace_t *tombolo_default_keyspace(const tombolo_t *database);

// Creates a keyspace, or opens it when `may_exist` is not 0. `settings` is null, or names and
// values as `compression=zstd filter_bits=12`, with a space between; they count for a creation.
tombolo_keyspace_t *tombolo_create_keyspace(const tombolo_t *database,
                                            const char *name,
                                            const char *settings,
                                            int may_exist,
                                            char **error);

// Drops a keyspace with all in it.
void tombolo_drop_keyspace(const tombolo_t *database, const char *name, char **error);

// The names of all keyspaces, a line each; to be freed.
char *tombolo_keyspace_names(const tombolo_t *database, char **error);

// Makes durable what was accepted before.
void tombolo_sync(const tombolo_t *database, char **error);

// Writes all that is in memory to tables.
void tombolo_flush(const tombolo_t *database, char **error);

// Merges the tables of each keyspace into one run.
void tombolo_compact(const tombolo_t *database, char **error);

// Makes a checkpoint of that name: a state that stays until it is deleted.
void tombolo_checkpoint(const tombolo_t *database, const char *name, char **error);

// Deletes the checkpoint of that name.
void tombolo_delete_checkpoint(const tombolo_t *database, const char *name, char **error);

// Changes a setting of the open database.
void tombolo_set_option(const tombolo_t *database,
                        const char *name,
                        const char *value,
                        char **error);

// What the database says of itself under that name, as text; to be freed.
char *tombolo_property(const tombolo_t *database, const char *name, char **error);

// All that the database says of itself, as Prometheus reads it; `label` names the database there.
// To be freed.
char *tombolo_metrics(const tombolo_t *database,
                      const char *label,
                      size_t label_bytes,
                      char **error);

// The keyspace itself stays.
void tombolo_keyspace_destroy(tombolo_keyspace_t *keyspace);

// Changes a setting of the keyspace, such as `compression`.
void tombolo_keyspace_set_option(const tombolo_keyspace_t *keyspace,
                                 const char *name,
                                 const char *value,
                                 char **error);

// Stores a value under a key. `survives` is `TOMBOLO_DURABLE` or another.
void tombolo_put(const tombolo_keyspace_t *keyspace,
                 const char *key,
                 size_t key_bytes,
                 const char *value,
                 size_t value_bytes,
                 int survives,
                 char **error);

// As `tombolo_put`; the key has no value once `ttl_ms` milliseconds have passed.
void tombolo_put_ttl(const tombolo_keyspace_t *keyspace,
                     const char *key,
                     size_t key_bytes,
                     const char *value,
                     size_t value_bytes,
                     uint64_t ttl_ms,
                     int survives,
                     char **error);

// Removes a key, there or not.
void tombolo_delete(const tombolo_keyspace_t *keyspace,
                    const char *key,
                    size_t key_bytes,
                    int survives,
                    char **error);

// Removes a key that was put once since it was last removed.
void tombolo_single_delete(const tombolo_keyspace_t *keyspace,
                           const char *key,
                           size_t key_bytes,
                           int survives,
                           char **error);

// Removes all keys from `from` on and before `to`.
void tombolo_delete_range(const tombolo_keyspace_t *keyspace,
                          const char *from,
                          size_t from_bytes,
                          const char *to,
                          size_t to_bytes,
                          int survives,
                          char **error);

// Merges an operand into the value of a key, by the keyspace's operator.
void tombolo_merge(const tombolo_keyspace_t *keyspace,
                   const char *key,
                   size_t key_bytes,
                   const char *operand,
                   size_t operand_bytes,
                   int survives,
                   char **error);

// All keyspaces as they are now. What it sees is kept until it is released.
tombolo_snapshot_t *tombolo_snapshot(const tombolo_t *database, char **error);

// Lets go of what the snapshot keeps.
void tombolo_snapshot_release(tombolo_snapshot_t *snapshot);

// The value of a key, copied: null when there is none, and after an error. To be freed. A null
// snapshot is now.
char *tombolo_get(const tombolo_keyspace_t *keyspace,
                  const tombolo_snapshot_t *snapshot,
                  const char *key,
                  size_t key_bytes,
                  size_t *value_bytes,
                  char **error);

// The value of a key, not copied: null when there is none, and after an error. It keeps memory of
// the database until it is released.
tombolo_value_t *tombolo_get_value(const tombolo_keyspace_t *keyspace,
                                   const tombolo_snapshot_t *snapshot,
                                   const char *key,
                                   size_t key_bytes,
                                   char **error);

// The bytes of a value, until it is released; null of a null pointer.
const char *tombolo_value_bytes(const tombolo_value_t *value, size_t *length);

// Lets go of a value.
void tombolo_value_release(tombolo_value_t *value);

// Lends the value of a key to `use_bytes`, which is called before this ends, if there is one;
// says 1 then, and else 0. Nothing is copied and nothing has to be freed. `use_bytes` must not
// call this library.
int tombolo_get_with(const tombolo_keyspace_t *keyspace,
                     const char *key,
                     size_t key_bytes,
                     tombolo_use_bytes_t use_bytes,
                     void *state,
                     char **error);

// The values of several keys at one moment. Key `i` is `keys[i]` of `key_lengths[i]` bytes. Of
// each, `values[i]` and `value_lengths[i]` become a copy to be freed, or null and 0. After an
// error all are null.
void tombolo_multi_get(const tombolo_keyspace_t *keyspace,
                       const tombolo_snapshot_t *snapshot,
                       size_t count,
                       const char *const *keys,
                       const size_t *key_lengths,
                       char **values,
                       size_t *value_lengths,
                       char **error);

// An empty batch.
tombolo_batch_t *tombolo_batch_create(void);

// What was not written is forgotten.
void tombolo_batch_destroy(tombolo_batch_t *batch);

// Forgets all writes in it.
void tombolo_batch_clear(tombolo_batch_t *batch);

// How many writes are in it; 0 of a null pointer.
size_t tombolo_batch_count(const tombolo_batch_t *batch);

// Adds a put.
void tombolo_batch_put(tombolo_batch_t *batch,
                       const tombolo_keyspace_t *keyspace,
                       const char *key,
                       size_t key_bytes,
                       const char *value,
                       size_t value_bytes,
                       char **error);

// Adds a put of a value that lives for so many milliseconds from now on.
void tombolo_batch_put_ttl(tombolo_batch_t *batch,
                           const tombolo_keyspace_t *keyspace,
                           const char *key,
                           size_t key_bytes,
                           const char *value,
                           size_t value_bytes,
                           uint64_t ttl_ms,
                           char **error);

// Adds a delete.
void tombolo_batch_delete(tombolo_batch_t *batch,
                          const tombolo_keyspace_t *keyspace,
                          const char *key,
                          size_t key_bytes,
                          char **error);

// Adds a delete of a key that was put once since it was last deleted.
void tombolo_batch_single_delete(tombolo_batch_t *batch,
                                 const tombolo_keyspace_t *keyspace,
                                 const char *key,
                                 size_t key_bytes,
                                 char **error);

// Adds a delete of all keys from `from` on and before `to`.
void tombolo_batch_delete_range(tombolo_batch_t *batch,
                                const tombolo_keyspace_t *keyspace,
                                const char *from,
                                size_t from_bytes,
                                const char *to,
                                size_t to_bytes,
                                char **error);

// Adds a merge.
void tombolo_batch_merge(tombolo_batch_t *batch,
                         const tombolo_keyspace_t *keyspace,
                         const char *key,
                         size_t key_bytes,
                         const char *operand,
                         size_t operand_bytes,
                         char **error);

// Writes the batch, whole or not at all, and empties it, also after an error.
void tombolo_write(const tombolo_t *database, tombolo_batch_t *batch, int survives, char **error);

// A cursor over the keys from `from` on and before `to`, of which a null pointer of length 0 is no
// bound. A null snapshot is now. It stands at no entry yet.
tombolo_cursor_t *tombolo_cursor(const tombolo_keyspace_t *keyspace,
                                 const tombolo_snapshot_t *snapshot,
                                 const char *from,
                                 size_t from_bytes,
                                 const char *to,
                                 size_t to_bytes,
                                 char **error);

// Lets go of what the cursor keeps.
void tombolo_cursor_destroy(tombolo_cursor_t *cursor);

// To the first entry; says 1 when it stands at one.
int tombolo_cursor_seek_to_first(tombolo_cursor_t *cursor, char **error);

// To the last entry; says 1 when it stands at one.
int tombolo_cursor_seek_to_last(tombolo_cursor_t *cursor, char **error);

// To the first entry at or after a key; says 1 when it stands at one.
int tombolo_cursor_seek(tombolo_cursor_t *cursor, const char *key, size_t key_bytes, char **error);

// To the last entry at or before a key; says 1 when it stands at one.
int tombolo_cursor_seek_for_prev(tombolo_cursor_t *cursor,
                                 const char *key,
                                 size_t key_bytes,
                                 char **error);

// To the next entry, of a fresh cursor the first; says 1 when it stands at one.
int tombolo_cursor_next(tombolo_cursor_t *cursor, char **error);

// To the entry before; says 1 when it stands at one.
int tombolo_cursor_prev(tombolo_cursor_t *cursor, char **error);

// Whether it stands at an entry: 1 or 0.
int tombolo_cursor_valid(const tombolo_cursor_t *cursor);

// The key at which it stands, lent until it moves; null at none.
const char *tombolo_cursor_key(const tombolo_cursor_t *cursor, size_t *length);

// The value at which it stands, lent until it moves; null at none.
const char *tombolo_cursor_value(const tombolo_cursor_t *cursor, size_t *length);

// Looks at the database as it is now, in the gap before the entry where it stood.
void tombolo_cursor_refresh(tombolo_cursor_t *cursor, char **error);

// Begins a transaction over all keyspaces. `locking` is `TOMBOLO_OPTIMISTIC` or
// `TOMBOLO_PESSIMISTIC`, `isolation` `TOMBOLO_SNAPSHOT_ISOLATION` or `TOMBOLO_SERIALIZABLE`,
// `survives` `TOMBOLO_DURABLE` or another, of its commit. A pessimistic one waits for a lock for
// `lock_wait_ms`; 0 is ten seconds. `id` is null, or a name of the caller's by which
// `tombolo_transaction_outcome` says for a day what became of it.
tombolo_transaction_t *tombolo_transaction_begin(const tombolo_t *database,
                                                 int locking,
                                                 int isolation,
                                                 int survives,
                                                 uint64_t lock_wait_ms,
                                                 const char *id,
                                                 size_t id_bytes,
                                                 char **error);

// Rolls it back if it has not ended, and lets go of it.
void tombolo_transaction_destroy(tombolo_transaction_t *transaction);

// The value of a key as the transaction sees it, copied: null when there is none, and after an
// error. To be freed. With `for_update` it counts as written: others that write the key meet this
// transaction.
char *tombolo_transaction_get(const tombolo_transaction_t *transaction,
                              const tombolo_keyspace_t *keyspace,
                              const char *key,
                              size_t key_bytes,
                              int for_update,
                              size_t *value_bytes,
                              char **error);

// Locks all keys from `from` on and before `to`, those that are not there included. A null pointer
// of length 0 is no bound.
void tombolo_transaction_lock_range(const tombolo_transaction_t *transaction,
                                    const tombolo_keyspace_t *keyspace,
                                    const char *from,
                                    size_t from_bytes,
                                    const char *to,
                                    size_t to_bytes,
                                    char **error);

// A cursor over what the transaction sees: see `tombolo_cursor`. It sees the writes of the
// transaction that were made before, and those since once it is refreshed.
tombolo_cursor_t *tombolo_transaction_cursor(const tombolo_transaction_t *transaction,
                                             const tombolo_keyspace_t *keyspace,
                                             const char *from,
                                             size_t from_bytes,
                                             const char *to,
                                             size_t to_bytes,
                                             char **error);

// Puts a value. A pessimistic transaction waits for the key.
void tombolo_transaction_put(const tombolo_transaction_t *transaction,
                             const tombolo_keyspace_t *keyspace,
                             const char *key,
                             size_t key_bytes,
                             const char *value,
                             size_t value_bytes,
                             char **error);

// Puts a value that lives for so many milliseconds from now on.
void tombolo_transaction_put_ttl(const tombolo_transaction_t *transaction,
                                 const tombolo_keyspace_t *keyspace,
                                 const char *key,
                                 size_t key_bytes,
                                 const char *value,
                                 size_t value_bytes,
                                 uint64_t ttl_ms,
                                 char **error);

// Merges an operand into the value of a key, by the keyspace's operator.
void tombolo_transaction_merge(const tombolo_transaction_t *transaction,
                               const tombolo_keyspace_t *keyspace,
                               const char *key,
                               size_t key_bytes,
                               const char *operand,
                               size_t operand_bytes,
                               char **error);

// Removes a key, there or not.
void tombolo_transaction_delete(const tombolo_transaction_t *transaction,
                                const tombolo_keyspace_t *keyspace,
                                const char *key,
                                size_t key_bytes,
                                char **error);

// Removes a key that was put once since it was last removed.
void tombolo_transaction_single_delete(const tombolo_transaction_t *transaction,
                                       const tombolo_keyspace_t *keyspace,
                                       const char *key,
                                       size_t key_bytes,
                                       char **error);

// Removes all keys from `from` on and before `to`.
void tombolo_transaction_delete_range(const tombolo_transaction_t *transaction,
                                      const tombolo_keyspace_t *keyspace,
                                      const char *from,
                                      size_t from_bytes,
                                      const char *to,
                                      size_t to_bytes,
                                      char **error);

// Sets a savepoint, on top of those that are set.
void tombolo_transaction_set_savepoint(tombolo_transaction_t *transaction, char **error);

// Undoes all writes since the newest savepoint, and takes that away.
void tombolo_transaction_rollback_to_savepoint(tombolo_transaction_t *transaction, char **error);

// Commits it: all of its writes take effect, or none. Says the number of the commit, at which a
// snapshot sees it. An error of the kind Conflict says that somebody else was there: begin again.
uint64_t tombolo_transaction_commit(tombolo_transaction_t *transaction, char **error);

// Undoes it, and ends it.
void tombolo_transaction_rollback(tombolo_transaction_t *transaction, char **error);

// Makes it durable under an id of the caller's without an effect yet, the first step of a commit
// over several databases. Its locks are held, also after a crash, until `tombolo_decide`.
void tombolo_transaction_prepare(tombolo_transaction_t *transaction,
                                 const char *id,
                                 size_t id_bytes,
                                 char **error);

// Commits a prepared transaction, or rolls it back where `commits` is 0. The same decision twice
// is no error.
void tombolo_decide(const tombolo_t *database,
                    const char *id,
                    size_t id_bytes,
                    int commits,
                    char **error);

// Lends the id of each prepared transaction that was not decided to `use_bytes`, which must not
// call this library; says how many there are.
size_t tombolo_in_doubt(const tombolo_t *database,
                        tombolo_use_bytes_t use_bytes,
                        void *state,
                        char **error);

// What became of a transaction with this id: `TOMBOLO_TRANSACTION_COMMITTED` or another.
int tombolo_transaction_outcome(const tombolo_t *database,
                                const char *id,
                                size_t id_bytes,
                                char **error);

// Begins a put; `ended` is told how it ended.
void tombolo_put_then(const tombolo_keyspace_t *keyspace,
                      const char *key,
                      size_t key_bytes,
                      const char *value,
                      size_t value_bytes,
                      int survives,
                      tombolo_ended_t ended,
                      void *state);

// Begins a delete; `ended` is told how it ended.
void tombolo_delete_then(const tombolo_keyspace_t *keyspace,
                         const char *key,
                         size_t key_bytes,
                         int survives,
                         tombolo_ended_t ended,
                         void *state);

// Begins to write a batch, which is empty when this returns; `ended` is told how it ended.
void tombolo_write_then(const tombolo_t *database,
                        tombolo_batch_t *batch,
                        int survives,
                        tombolo_ended_t ended,
                        void *state);

// Begins a flush; `ended` is told how it ended.
void tombolo_flush_then(const tombolo_t *database, tombolo_ended_t ended, void *state);

// Begins a read; `found` is told what it found. A null snapshot is now.
void tombolo_get_then(const tombolo_keyspace_t *keyspace,
                      const tombolo_snapshot_t *snapshot,
                      const char *key,
                      size_t key_bytes,
                      tombolo_found_t found,
                      void *state);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOMBOLO_H */
