// What the shim asks of the library: functions of C that never throw. A call that fails gives a
// status, which the caller frees; none is success.

#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

struct TomboloFs;
struct TomboloFile;
struct TomboloReading;

// Codes of a status.
enum {
  TOMBOLO_NOT_FOUND = 1,
  TOMBOLO_CORRUPT = 2,
  TOMBOLO_UNSUPPORTED = 3,
  TOMBOLO_INVALID = 4,
  TOMBOLO_NO_SPACE = 5,
  TOMBOLO_FENCED = 6,
  TOMBOLO_TIMED_OUT = 7,
  TOMBOLO_RETRY = 8,
  TOMBOLO_EXISTS = 9,
  TOMBOLO_IN_USE = 10,
  TOMBOLO_OTHER = 11,
};

struct TomboloStatus {
  int32_t code;
  const char* message;
  size_t message_bytes;
};

struct TomboloPath {
  const char* bytes;
  size_t length;
};

// How a read is asked for: within so many microseconds, 0 for ever; priority 0 when nobody waits, 1
// as a rule, 2 when a user waits.
struct TomboloAsk {
  uint64_t timeout_micros;
  int32_t priority;
};

// What a read gave: so many bytes, and so many requests that the store got for it.
struct TomboloGot {
  size_t bytes;
  size_t requests;
};

void tombolo_fs_status_free(TomboloStatus*);

// The file system of a URI; the same one for the same URI while somebody has it.
TomboloStatus* tombolo_fs_open(TomboloPath uri, TomboloFs** fs);
void tombolo_fs_free(TomboloFs*);
// Where the information log of RocksDB lies on this host.
TomboloPath tombolo_fs_info_directory(const TomboloFs*);

// How: 0 a file that is there, 1 a new one, 2 one that is there or else a new one.
TomboloStatus* tombolo_fs_file_open(TomboloFs*, TomboloPath, int32_t how, TomboloFile** file);
void tombolo_fs_file_free(TomboloFile*);
TomboloStatus* tombolo_fs_file_read(const TomboloFile*, uint64_t at, char* to, size_t length, TomboloAsk,
                                    TomboloGot*);
// Fetches bytes ahead of the reads that want them; says whether there was room for them.
TomboloStatus* tombolo_fs_file_prefetch(const TomboloFile*, uint64_t at, size_t length, TomboloAsk,
                                        int32_t* has_room);
TomboloReading* tombolo_fs_file_read_begin(const TomboloFile*, uint64_t at, size_t length, TomboloAsk);
// Ends it, and frees it.
TomboloStatus* tombolo_fs_read_end(TomboloReading*, char* to, size_t length, TomboloGot*);
void tombolo_fs_read_free(TomboloReading*);
TomboloStatus* tombolo_fs_file_append(TomboloFile*, const char* bytes, size_t length);
TomboloStatus* tombolo_fs_file_flush(TomboloFile*);
TomboloStatus* tombolo_fs_file_sync(TomboloFile*);
TomboloStatus* tombolo_fs_file_finish(TomboloFile*);
TomboloStatus* tombolo_fs_file_truncate(TomboloFile*, uint64_t size);

// Before the first byte: it stays for 0 minutes, 1 hours, 2 days; priority as of a read.
void tombolo_fs_file_hint(TomboloFile*, int32_t life, int32_t priority);
void tombolo_fs_file_facts(const TomboloFile*, uint64_t* size, int32_t* is_in_lane);

// What the store has left; 2^60 bytes where it tells no end.
TomboloStatus* tombolo_fs_free_space(TomboloFs*, uint64_t* bytes);

TomboloStatus* tombolo_fs_exists(TomboloFs*, TomboloPath, int32_t* exists);
TomboloStatus* tombolo_fs_is_directory(TomboloFs*, TomboloPath, int32_t* is);
TomboloStatus* tombolo_fs_list(TomboloFs*, TomboloPath, void* to,
                               void (*each)(void* to, const char* name, size_t length));
TomboloStatus* tombolo_fs_delete(TomboloFs*, TomboloPath);
TomboloStatus* tombolo_fs_create_directory(TomboloFs*, TomboloPath);
TomboloStatus* tombolo_fs_delete_directory(TomboloFs*, TomboloPath);
// Size in bytes, seconds since 1970 of the last change, and names; of a directory as well.
TomboloStatus* tombolo_fs_look(TomboloFs*, TomboloPath, uint64_t facts[3]);
TomboloStatus* tombolo_fs_are_same(TomboloFs*, TomboloPath one, TomboloPath other, int32_t* same);
TomboloStatus* tombolo_fs_rename(TomboloFs*, TomboloPath from, TomboloPath to);
TomboloStatus* tombolo_fs_link(TomboloFs*, TomboloPath from, TomboloPath to);
TomboloStatus* tombolo_fs_lock(TomboloFs*, TomboloPath);
TomboloStatus* tombolo_fs_unlock(TomboloFs*, TomboloPath);
TomboloStatus* tombolo_fs_sync_names(TomboloFs*);
}
