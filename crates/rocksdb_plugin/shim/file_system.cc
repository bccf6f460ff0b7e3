// A rocksdb::FileSystem whose files lie in a Tombolo database, registered by the scheme of its
// URIs when this library is loaded: tombolo://?store=...&log=...
//
// The shim holds no state but handles. Every rule of the files is in the library behind bridge.h;
// here statuses become those of RocksDB, with what makes it do the right thing: retryable, data
// loss, scope. The information log of RocksDB lies on this host, where people look for it.

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/utilities/object_registry.h>
#include <rocksdb/version.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bridge.h"

namespace tombolo {

using rocksdb::FileOptions;
using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

TomboloPath PathOf(const std::string& path) { return TomboloPath{path.data(), path.size()}; }

// A status of RocksDB for one of ours, which is freed.
IOStatus Told(TomboloStatus* status) {
  if (status == nullptr) {
    return IOStatus::OK();
  }
  const std::string message(status->message, status->message_bytes);
  IOStatus told;
  switch (status->code) {
    case TOMBOLO_NOT_FOUND:
      told = IOStatus::PathNotFound(message);
      break;
    case TOMBOLO_CORRUPT:
      told = IOStatus::Corruption(message);
      told.SetDataLoss(true);
      break;
    case TOMBOLO_UNSUPPORTED:
      told = IOStatus::NotSupported(message);
      break;
    case TOMBOLO_INVALID:
      told = IOStatus::InvalidArgument(message);
      break;
    case TOMBOLO_NO_SPACE:
      told = IOStatus::NoSpace(message);
      told.SetScope(IOStatus::kIOErrorScopeFileSystem);
      break;
    case TOMBOLO_FENCED:
      told = IOStatus::IOFenced(message);
      told.SetScope(IOStatus::kIOErrorScopeFileSystem);
      break;
    case TOMBOLO_TIMED_OUT:
      told = IOStatus::TimedOut(message);
      told.SetRetryable(true);
      break;
    case TOMBOLO_RETRY:
      told = IOStatus::IOError(message);
      told.SetRetryable(true);
      told.SetScope(IOStatus::kIOErrorScopeFile);
      break;
    default:
      told = IOStatus::IOError(message);
      break;
  }
  tombolo_fs_status_free(status);
  return told;
}

// The same for a call with a place for what went wrong.
IOStatus Told(TomboloStatus* status, IODebugContext* dbg) {
  IOStatus told = Told(status);
  if (dbg != nullptr && !told.ok()) {
    dbg->msg = told.ToString();
  }
  return told;
}

// How a read of RocksDB is asked for. It says who waits by the limit of rates that is to be
// charged, and newer versions by what they do; where it says nothing a user waits.
TomboloAsk AskOf(const IOOptions& options) {
  TomboloAsk ask;
  ask.timeout_micros = options.timeout.count() > 0 ? static_cast<uint64_t>(options.timeout.count()) : 0;
  ask.priority = 2;
  switch (options.rate_limiter_priority) {
    case rocksdb::Env::IO_LOW:
      ask.priority = 0;
      break;
    case rocksdb::Env::IO_MID:
      ask.priority = 1;
      break;
    default:
#if ROCKSDB_MAJOR >= 9
      if (options.io_activity == rocksdb::Env::IOActivity::kCompaction) {
        ask.priority = 0;
      } else if (options.io_activity == rocksdb::Env::IOActivity::kFlush) {
        ask.priority = 1;
      }
#endif
      break;
  }
  return ask;
}

// What a read told, for RocksDB and for who asked to see it.
IOStatus Read(TomboloStatus* status, const TomboloGot& got, char* scratch, Slice* result, IODebugContext* dbg) {
  IOStatus told = Told(status, dbg);
  *result = Slice(scratch, got.bytes);
  if (dbg != nullptr) {
    dbg->counters["tombolo.requests"] += got.requests;
    dbg->counters["tombolo.bytes"] += got.bytes;
  }
  return told;
}

// An open file; freed with the last who has it.
class Handle {
 public:
  explicit Handle(TomboloFile* file) : file_(file) {}
  ~Handle() { tombolo_fs_file_free(file_); }
  Handle(const Handle&) = delete;
  void operator=(const Handle&) = delete;
  TomboloFile* get() const { return file_; }

 private:
  TomboloFile* file_;
};

class SequentialFile : public rocksdb::FSSequentialFile {
 public:
  explicit SequentialFile(TomboloFile* file) : file_(file) {}

  IOStatus Read(size_t n, const IOOptions& options, Slice* result, char* scratch, IODebugContext* dbg) override {
    IOStatus status = PositionedRead(at_, n, options, result, scratch, dbg);
    at_ += result->size();
    return status;
  }

  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }

  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                          IODebugContext* dbg) override {
    TomboloGot got{0, 0};
    TomboloStatus* status = tombolo_fs_file_read(file_.get(), offset, scratch, n, AskOf(options), &got);
    return tombolo::Read(status, got, scratch, result, dbg);
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  Handle file_;
  uint64_t at_ = 0;
};

// A read that has begun, until Poll or AbortIO ends it.
struct AsyncRead {
  TomboloReading* reading;
  FSReadRequest request;
  std::function<void(FSReadRequest&)> told;

  ~AsyncRead() {
    if (reading != nullptr) {
      tombolo_fs_read_free(reading);
    }
  }

  void End() {
    if (reading == nullptr) {
      return;
    }
    TomboloGot got{0, 0};
    TomboloStatus* status = tombolo_fs_read_end(reading, request.scratch, request.len, &got);
    reading = nullptr;
    request.status = Read(status, got, request.scratch, &request.result, nullptr);
    told(request);
  }

  void Abort() {
    if (reading == nullptr) {
      return;
    }
    tombolo_fs_read_free(reading);
    reading = nullptr;
    request.status = IOStatus::Aborted();
    told(request);
  }
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  explicit RandomAccessFile(TomboloFile* file) : file_(file) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* dbg) const override {
    TomboloGot got{0, 0};
    TomboloStatus* status = tombolo_fs_file_read(file_.get(), offset, scratch, n, AskOf(options), &got);
    return tombolo::Read(status, got, scratch, result, dbg);
  }

  // Where there is no room for it RocksDB fetches into a buffer of its own.
  IOStatus Prefetch(uint64_t offset, size_t n, const IOOptions& options, IODebugContext* dbg) override {
    int32_t has_room = 0;
    IOStatus status =
        Told(tombolo_fs_file_prefetch(file_.get(), offset, n, AskOf(options), &has_room), dbg);
    return status.ok() && has_room == 0 ? IOStatus::NotSupported("no room to fetch so much ahead") : status;
  }

  // All are on their way before the first is waited for.
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* dbg) override {
    const TomboloAsk ask = AskOf(options);
    std::vector<TomboloReading*> begun;
    begun.reserve(count);
    for (size_t i = 0; i < count; i++) {
      begun.push_back(tombolo_fs_file_read_begin(file_.get(), requests[i].offset, requests[i].len, ask));
    }
    for (size_t i = 0; i < count; i++) {
      FSReadRequest& request = requests[i];
      TomboloGot got{0, 0};
      TomboloStatus* status = tombolo_fs_read_end(begun[i], request.scratch, request.len, &got);
      request.status = tombolo::Read(status, got, request.scratch, &request.result, dbg);
    }
    return IOStatus::OK();
  }

  // The one of these two that RocksDB's class has takes its place; which it is, is a matter of the
  // version.
  virtual IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options,
                             std::function<void(const FSReadRequest&, void*)> told, void* argument, void** handle,
                             rocksdb::IOHandleDeleter* deleter, IODebugContext*) {
    return Begin(request, options, [told, argument](FSReadRequest& read) { told(read, argument); }, handle,
                 deleter);
  }
  virtual IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options,
                             std::function<void(FSReadRequest&, void*)> told, void* argument, void** handle,
                             rocksdb::IOHandleDeleter* deleter, IODebugContext*) {
    return Begin(request, options, [told, argument](FSReadRequest& read) { told(read, argument); }, handle,
                 deleter);
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

  // Newer versions have it in their class.
  virtual IOStatus GetFileSize(uint64_t* size) {
    int32_t is_in_lane = 0;
    tombolo_fs_file_facts(file_.get(), size, &is_in_lane);
    return IOStatus::OK();
  }

 private:
  IOStatus Begin(FSReadRequest& request, const IOOptions& options, std::function<void(FSReadRequest&)> told,
                 void** handle, rocksdb::IOHandleDeleter* deleter) {
    auto* read = new AsyncRead{
        tombolo_fs_file_read_begin(file_.get(), request.offset, request.len, AskOf(options)), FSReadRequest(),
        std::move(told)};
    read->request.offset = request.offset;
    read->request.len = request.len;
    read->request.scratch = request.scratch;
    *handle = read;
    *deleter = [](void* handle) { delete static_cast<AsyncRead*>(handle); };
    return IOStatus::OK();
  }

  Handle file_;
};

class WritableFile : public rocksdb::FSWritableFile {
 public:
  WritableFile(TomboloFile* file, const FileOptions& options) : FSWritableFile(options), file_(file) {
    int32_t is_in_lane = 0;
    tombolo_fs_file_facts(file, &size_, &is_in_lane);
    is_in_lane_ = is_in_lane != 0;
    temperature_ = options.temperature;
#if ROCKSDB_MAJOR >= 10
    write_hint_ = options.write_hint;
#endif
    Hint();
  }
  ~WritableFile() override {
    if (!closed_) {
      Close(IOOptions(), nullptr).PermitUncheckedError();
    }
  }

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext* dbg) override {
    IOStatus status = Told(tombolo_fs_file_append(file_.get(), data.data(), data.size()), dbg);
    if (status.ok()) {
      size_ += data.size();
    }
    return status;
  }

  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext* dbg) override {
    IOStatus status = Told(tombolo_fs_file_truncate(file_.get(), size), dbg);
    if (status.ok()) {
      size_ = size;
    }
    return status;
  }

  IOStatus Close(const IOOptions&, IODebugContext* dbg) override {
    if (closed_) {
      return IOStatus::OK();
    }
    closed_ = true;
    return Told(tombolo_fs_file_finish(file_.get()), dbg);
  }

  IOStatus Flush(const IOOptions&, IODebugContext* dbg) override {
    return Told(tombolo_fs_file_flush(file_.get()), dbg);
  }
  IOStatus Sync(const IOOptions&, IODebugContext* dbg) override {
    return Told(tombolo_fs_file_sync(file_.get()), dbg);
  }
  // A sync of a table finishes the object that is written, so that nothing is appended meanwhile.
  bool IsSyncThreadSafe() const override { return is_in_lane_; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  // What a sync makes durable at once is cheaper in one piece.
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}

  void SetWriteLifeTimeHint(rocksdb::Env::WriteLifeTimeHint hint) override {
    FSWritableFile::SetWriteLifeTimeHint(hint);
    Hint();
  }
  void SetIOPriority(rocksdb::Env::IOPriority priority) override {
    FSWritableFile::SetIOPriority(priority);
    Hint();
  }

 private:
  // RocksDB hints before its first append. A cold file stays long, whatever it is written by.
  void Hint() {
    int32_t life = 2;
    if (write_hint_ == rocksdb::Env::WLTH_SHORT) {
      life = 0;
    } else if (write_hint_ == rocksdb::Env::WLTH_MEDIUM || temperature_ == rocksdb::Temperature::kHot) {
      life = 1;
    }
    if (temperature_ == rocksdb::Temperature::kCold) {
      life = 2;
    }
    // Compaction writes with the low one, flush with the high one: memory depends on that.
    const int32_t priority = io_priority_ == rocksdb::Env::IO_LOW ? 0 : 1;
    tombolo_fs_file_hint(file_.get(), life, priority);
  }

  Handle file_;
  uint64_t size_ = 0;
  bool is_in_lane_ = false;
  rocksdb::Temperature temperature_ = rocksdb::Temperature::kUnknown;
  bool closed_ = false;
};

class Directory : public rocksdb::FSDirectory {
 public:
  explicit Directory(TomboloFs* fs) : fs_(fs) {}
  IOStatus Fsync(const IOOptions&, IODebugContext* dbg) override { return Told(tombolo_fs_sync_names(fs_), dbg); }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }

 private:
  TomboloFs* fs_;
};

class Lock : public rocksdb::FileLock {
 public:
  explicit Lock(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool IsInfoLog(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return name == "LOG" || name.compare(0, 8, "LOG.old.") == 0;
}

class TomboloFileSystem : public rocksdb::FileSystemWrapper {
 public:
  explicit TomboloFileSystem(TomboloFs* fs) : FileSystemWrapper(rocksdb::FileSystem::Default()), fs_(fs) {
    const TomboloPath info = tombolo_fs_info_directory(fs);
    info_.assign(info.bytes, info.length);
  }
  ~TomboloFileSystem() override { tombolo_fs_free(fs_); }

  static const char* kClassName() { return "TomboloFileSystem"; }
  const char* Name() const override { return kClassName(); }
  // What it wraps is for the information log only, and no part of what it is.
  const Customizable* Inner() const override { return nullptr; }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result, IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->NewSequentialFile(OnHost(path), options, result, dbg);
    }
    TomboloFile* file = nullptr;
    IOStatus status = Open(path, 0, &file);
    if (status.ok()) {
      result->reset(new SequentialFile(file));
    }
    return status;
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->NewRandomAccessFile(OnHost(path), options, result, dbg);
    }
    TomboloFile* file = nullptr;
    IOStatus status = Open(path, 0, &file);
    if (status.ok()) {
      result->reset(new RandomAccessFile(file));
    }
    return status;
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->NewWritableFile(MadeOnHost(path), options, result, dbg);
    }
    return Write(path, 1, options, result);
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->ReopenWritableFile(MadeOnHost(path), options, result, dbg);
    }
    return Write(path, 2, options, result);
  }

  // A file that is used again begins anew: nothing is gained by the space of its old bytes.
  IOStatus ReuseWritableFile(const std::string& path, const std::string& old, const FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* dbg) override {
    IOStatus status = RenameFile(old, path, options.io_options, dbg);
    return status.ok() ? NewWritableFile(path, options, result, dbg) : status;
  }

  IOStatus NewRandomRWFile(const std::string& path, const FileOptions&, std::unique_ptr<rocksdb::FSRandomRWFile>*,
                           IODebugContext*) override {
    return IOStatus::NotSupported("files of Tombolo are not written in their midst", path);
  }

  IOStatus NewMemoryMappedFileBuffer(const std::string& path,
                                     std::unique_ptr<rocksdb::MemoryMappedFileBuffer>*) override {
    return IOStatus::NotSupported("files of Tombolo cannot be mapped", path);
  }

  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext* dbg) override {
    bool is = false;
    IOStatus status = IsDirectory(path, options, &is, dbg);
    if (status.ok() && !is) {
      status = IOStatus::PathNotFound("there is no directory", path);
    }
    if (status.ok()) {
      result->reset(new Directory(fs_));
    }
    return status;
  }

  IOStatus FileExists(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->FileExists(OnHost(path), options, dbg);
    }
    int32_t exists = 0;
    IOStatus status = Told(tombolo_fs_exists(fs_, PathOf(path), &exists), dbg);
    return status.ok() && exists == 0 ? IOStatus::NotFound(path) : status;
  }

  IOStatus GetChildren(const std::string& path, const IOOptions& options, std::vector<std::string>* result,
                       IODebugContext* dbg) override {
    result->clear();
    IOStatus status = Told(tombolo_fs_list(
        fs_, PathOf(path), result, [](void* to, const char* name, size_t length) {
          static_cast<std::vector<std::string>*>(to)->emplace_back(name, length);
        }), dbg);
    // Here RocksDB asks for the plain one, where it asks for that of a path elsewhere.
    if (status.IsPathNotFound()) {
      return IOStatus::NotFound(path);
    }
    std::vector<std::string> on_host;
    if (status.ok() && target()->GetChildren(OnHost(path), options, &on_host, dbg).ok()) {
      for (std::string& name : on_host) {
        if (IsInfoLog(name)) {
          result->push_back(std::move(name));
        }
      }
    }
    return status;
  }

  IOStatus GetChildrenFileAttributes(const std::string& path, const IOOptions& options,
                                     std::vector<rocksdb::Env::FileAttributes>* result,
                                     IODebugContext* dbg) override {
    return FileSystem::GetChildrenFileAttributes(path, options, result, dbg);
  }

  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->DeleteFile(OnHost(path), options, dbg);
    }
    return Told(tombolo_fs_delete(fs_, PathOf(path)), dbg);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options, IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->Truncate(OnHost(path), size, options, dbg);
    }
    TomboloFile* file = nullptr;
    IOStatus status = Open(path, 0, &file);
    if (!status.ok()) {
      return status;
    }
    Handle handle(file);
    return Told(tombolo_fs_file_truncate(file, size), dbg);
  }

  // Newer versions ask by name. Where they do not, nobody calls it.
  virtual IOStatus SyncFile(const std::string& path, const FileOptions&, const IOOptions&, bool,
                            IODebugContext* dbg) {
    TomboloFile* file = nullptr;
    IOStatus status = Open(path, 0, &file);
    if (!status.ok()) {
      return status;
    }
    Handle handle(file);
    return Told(tombolo_fs_file_sync(file), dbg);
  }

  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext* dbg) override {
    return Told(tombolo_fs_create_directory(fs_, PathOf(path)), dbg);
  }

  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    bool is = false;
    IOStatus status = IsDirectory(path, options, &is, dbg);
    return status.ok() && !is ? CreateDir(path, options, dbg) : status;
  }

  IOStatus DeleteDir(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    target()->DeleteDir(OnHost(path), options, dbg).PermitUncheckedError();
    return Told(tombolo_fs_delete_directory(fs_, PathOf(path)), dbg);
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->GetFileSize(OnHost(path), options, size, dbg);
    }
    return Look(path, 0, size);
  }

  IOStatus GetFileModificationTime(const std::string& path, const IOOptions& options, uint64_t* time,
                                   IODebugContext* dbg) override {
    if (IsInfoLog(path)) {
      return target()->GetFileModificationTime(OnHost(path), options, time, dbg);
    }
    return Look(path, 1, time);
  }

  IOStatus NumFileLinks(const std::string& path, const IOOptions&, uint64_t* count, IODebugContext*) override {
    return Look(path, 2, count);
  }

  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&, bool* same,
                        IODebugContext* dbg) override {
    int32_t found = 0;
    IOStatus status =
        Told(tombolo_fs_are_same(fs_, PathOf(first), PathOf(second), &found), dbg);
    *same = found != 0;
    return status;
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    if (IsInfoLog(from)) {
      return target()->RenameFile(OnHost(from), MadeOnHost(to), options, dbg);
    }
    return Told(tombolo_fs_rename(fs_, PathOf(from), PathOf(to)), dbg);
  }

  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&,
                    IODebugContext* dbg) override {
    return Told(tombolo_fs_link(fs_, PathOf(from), PathOf(to)), dbg);
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext* dbg) override {
    *lock = nullptr;
    IOStatus status = Told(tombolo_fs_lock(fs_, PathOf(path)), dbg);
    if (status.ok()) {
      *lock = new Lock(path);
    }
    return status;
  }

  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext* dbg) override {
    std::unique_ptr<Lock> held(static_cast<Lock*>(lock));
    return Told(tombolo_fs_unlock(fs_, PathOf(held->path())), dbg);
  }

  IOStatus GetTestDirectory(const IOOptions& options, std::string* path, IODebugContext* dbg) override {
    *path = "/test";
    return CreateDirIfMissing(*path, options, dbg);
  }

  IOStatus NewLogger(const std::string& path, const IOOptions& options, std::shared_ptr<rocksdb::Logger>* result,
                     IODebugContext* dbg) override {
    return target()->NewLogger(MadeOnHost(path), options, result, dbg);
  }

  IOStatus GetAbsolutePath(const std::string& path, const IOOptions&, std::string* result,
                           IODebugContext*) override {
    *result = !path.empty() && path[0] == '/' ? path : "/" + path;
    return IOStatus::OK();
  }

  IOStatus GetFreeSpace(const std::string&, const IOOptions&, uint64_t* free, IODebugContext* dbg) override {
    return Told(tombolo_fs_free_space(fs_, free), dbg);
  }

  IOStatus IsDirectory(const std::string& path, const IOOptions&, bool* is, IODebugContext*) override {
    int32_t found = 0;
    IOStatus status = Told(tombolo_fs_is_directory(fs_, PathOf(path), &found));
    *is = found != 0;
    return status;
  }

  IOStatus Poll(std::vector<void*>& handles, size_t) override {
    for (void* handle : handles) {
      static_cast<AsyncRead*>(handle)->End();
    }
    return IOStatus::OK();
  }

  IOStatus AbortIO(std::vector<void*>& handles) override {
    for (void* handle : handles) {
      static_cast<AsyncRead*>(handle)->Abort();
    }
    return IOStatus::OK();
  }

#if ROCKSDB_MAJOR > 8 || (ROCKSDB_MAJOR == 8 && ROCKSDB_MINOR >= 6)
  void SupportedOps(int64_t& supported) override {
    supported = 0;
    supported |= int64_t{1} << rocksdb::FSSupportedOps::kAsyncIO;
  }
#endif

 private:
  IOStatus Open(const std::string& path, int32_t how, TomboloFile** file) {
    return Told(tombolo_fs_file_open(fs_, PathOf(path), how, file));
  }

  IOStatus Write(const std::string& path, int32_t how, const FileOptions& options,
                 std::unique_ptr<rocksdb::FSWritableFile>* result) {
    TomboloFile* file = nullptr;
    IOStatus status = Open(path, how, &file);
    if (!status.ok()) {
      return status;
    }
    result->reset(new WritableFile(file, options));
    return status;
  }

  IOStatus Look(const std::string& path, int which, uint64_t* fact) {
    uint64_t facts[3] = {0, 0, 0};
    IOStatus status = Told(tombolo_fs_look(fs_, PathOf(path), facts));
    *fact = facts[which];
    return status;
  }

  std::string OnHost(const std::string& path) const {
    return !path.empty() && path[0] == '/' ? info_ + path : info_ + "/" + path;
  }

  // The same, with the directories that it lies in.
  std::string MadeOnHost(const std::string& path) const {
    const std::string on_host = OnHost(path);
    for (size_t at = on_host.find('/', 1); at != std::string::npos; at = on_host.find('/', at + 1)) {
      target()->CreateDirIfMissing(on_host.substr(0, at), IOOptions(), nullptr).PermitUncheckedError();
    }
    return on_host;
  }

  TomboloFs* fs_;
  std::string info_;
};

// Runs when the library is loaded: by LD_PRELOAD, by dlopen, or with the program.
const auto& registered = rocksdb::ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(
    rocksdb::ObjectLibrary::PatternEntry("tombolo", false).AddSeparator("://", false),
    [](const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard, std::string* message) {
      TomboloFs* fs = nullptr;
      IOStatus status = Told(tombolo_fs_open(PathOf(uri), &fs));
      if (!status.ok()) {
        *message = status.ToString();
        return static_cast<rocksdb::FileSystem*>(nullptr);
      }
      guard->reset(new TomboloFileSystem(fs));
      return guard->get();
    });

}  // namespace tombolo
