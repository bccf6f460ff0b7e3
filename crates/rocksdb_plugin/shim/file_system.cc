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

  IOStatus Read(size_t n, const IOOptions&, Slice* result, char* scratch, IODebugContext*) override {
    size_t read = 0;
    IOStatus status = Told(tombolo_fs_file_read(file_.get(), at_, scratch, n, &read));
    at_ += read;
    *result = Slice(scratch, read);
    return status;
  }

  IOStatus Skip(uint64_t n) override {
    at_ += n;
    return IOStatus::OK();
  }

  IOStatus PositionedRead(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                          IODebugContext*) override {
    size_t read = 0;
    IOStatus status = Told(tombolo_fs_file_read(file_.get(), offset, scratch, n, &read));
    *result = Slice(scratch, read);
    return status;
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
  std::function<void(const FSReadRequest&, void*)> told;
  void* argument;

  ~AsyncRead() {
    if (reading != nullptr) {
      tombolo_fs_read_free(reading);
    }
  }

  void End() {
    if (reading == nullptr) {
      return;
    }
    size_t read = 0;
    request.status = Told(tombolo_fs_read_end(reading, request.scratch, request.len, &read));
    reading = nullptr;
    request.result = Slice(request.scratch, read);
    told(request, argument);
  }

  void Abort() {
    if (reading == nullptr) {
      return;
    }
    tombolo_fs_read_free(reading);
    reading = nullptr;
    request.status = IOStatus::Aborted();
    told(request, argument);
  }
};

class RandomAccessFile : public rocksdb::FSRandomAccessFile {
 public:
  explicit RandomAccessFile(TomboloFile* file) : file_(file) {}

  IOStatus Read(uint64_t offset, size_t n, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    size_t read = 0;
    IOStatus status = Told(tombolo_fs_file_read(file_.get(), offset, scratch, n, &read));
    *result = Slice(scratch, read);
    return status;
  }

  // All are on their way before the first is waited for.
  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions&, IODebugContext*) override {
    std::vector<TomboloReading*> begun;
    begun.reserve(count);
    for (size_t i = 0; i < count; i++) {
      begun.push_back(tombolo_fs_file_read_begin(file_.get(), requests[i].offset, requests[i].len));
    }
    for (size_t i = 0; i < count; i++) {
      size_t read = 0;
      requests[i].status = Told(tombolo_fs_read_end(begun[i], requests[i].scratch, requests[i].len, &read));
      requests[i].result = Slice(requests[i].scratch, read);
    }
    return IOStatus::OK();
  }

  IOStatus ReadAsync(FSReadRequest& request, const IOOptions&,
                     std::function<void(const FSReadRequest&, void*)> told, void* argument, void** handle,
                     rocksdb::IOHandleDeleter* deleter, IODebugContext*) override {
    auto* read = new AsyncRead{tombolo_fs_file_read_begin(file_.get(), request.offset, request.len),
                               FSReadRequest(), std::move(told), argument};
    read->request.offset = request.offset;
    read->request.len = request.len;
    read->request.scratch = request.scratch;
    *handle = read;
    *deleter = [](void* handle) { delete static_cast<AsyncRead*>(handle); };
    return IOStatus::OK();
  }

  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }

 private:
  Handle file_;
};

class WritableFile : public rocksdb::FSWritableFile {
 public:
  WritableFile(TomboloFile* file, uint64_t size, const FileOptions& options)
      : FSWritableFile(options), file_(file), size_(size) {}
  ~WritableFile() override {
    if (!closed_) {
      Close(IOOptions(), nullptr).PermitUncheckedError();
    }
  }

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    IOStatus status = Told(tombolo_fs_file_append(file_.get(), data.data(), data.size()));
    if (status.ok()) {
      size_ += data.size();
    }
    return status;
  }

  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    IOStatus status = Told(tombolo_fs_file_truncate(file_.get(), size));
    if (status.ok()) {
      size_ = size;
    }
    return status;
  }

  IOStatus Close(const IOOptions&, IODebugContext*) override {
    if (closed_) {
      return IOStatus::OK();
    }
    closed_ = true;
    return Told(tombolo_fs_file_finish(file_.get()));
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return Told(tombolo_fs_file_flush(file_.get())); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return Told(tombolo_fs_file_sync(file_.get())); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return size_; }
  IOStatus InvalidateCache(size_t, size_t) override { return IOStatus::OK(); }
  // What a sync makes durable at once is cheaper in one piece.
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}

 private:
  Handle file_;
  uint64_t size_;
  bool closed_ = false;
};

class Directory : public rocksdb::FSDirectory {
 public:
  explicit Directory(TomboloFs* fs) : fs_(fs) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override { return Told(tombolo_fs_sync_names(fs_)); }
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
    IOStatus status = Told(tombolo_fs_exists(fs_, PathOf(path), &exists));
    return status.ok() && exists == 0 ? IOStatus::NotFound(path) : status;
  }

  IOStatus GetChildren(const std::string& path, const IOOptions& options, std::vector<std::string>* result,
                       IODebugContext* dbg) override {
    result->clear();
    IOStatus status = Told(tombolo_fs_list(
        fs_, PathOf(path), result, [](void* to, const char* name, size_t length) {
          static_cast<std::vector<std::string>*>(to)->emplace_back(name, length);
        }));
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
    return Told(tombolo_fs_delete(fs_, PathOf(path)));
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
    return Told(tombolo_fs_file_truncate(file, size));
  }

  IOStatus CreateDir(const std::string& path, const IOOptions&, IODebugContext*) override {
    return Told(tombolo_fs_create_directory(fs_, PathOf(path)));
  }

  IOStatus CreateDirIfMissing(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    bool is = false;
    IOStatus status = IsDirectory(path, options, &is, dbg);
    return status.ok() && !is ? CreateDir(path, options, dbg) : status;
  }

  IOStatus DeleteDir(const std::string& path, const IOOptions& options, IODebugContext* dbg) override {
    target()->DeleteDir(OnHost(path), options, dbg).PermitUncheckedError();
    return Told(tombolo_fs_delete_directory(fs_, PathOf(path)));
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
                        IODebugContext*) override {
    uint64_t one = 0;
    uint64_t other = 0;
    IOStatus status = Look(first, 3, &one);
    if (status.ok()) {
      status = Look(second, 3, &other);
    }
    *same = status.ok() && one == other;
    return status;
  }

  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    if (IsInfoLog(from)) {
      return target()->RenameFile(OnHost(from), MadeOnHost(to), options, dbg);
    }
    return Told(tombolo_fs_rename(fs_, PathOf(from), PathOf(to)));
  }

  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&, IODebugContext*) override {
    return Told(tombolo_fs_link(fs_, PathOf(from), PathOf(to)));
  }

  IOStatus LockFile(const std::string& path, const IOOptions&, rocksdb::FileLock** lock,
                    IODebugContext*) override {
    *lock = nullptr;
    IOStatus status = Told(tombolo_fs_lock(fs_, PathOf(path)));
    if (status.ok()) {
      *lock = new Lock(path);
    }
    return status;
  }

  IOStatus UnlockFile(rocksdb::FileLock* lock, const IOOptions&, IODebugContext*) override {
    std::unique_ptr<Lock> held(static_cast<Lock*>(lock));
    return Told(tombolo_fs_unlock(fs_, PathOf(held->path())));
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

  IOStatus GetFreeSpace(const std::string&, const IOOptions&, uint64_t*, IODebugContext*) override {
    return IOStatus::NotSupported("what is free in a store of objects is not known");
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
    uint64_t size = 0;
    if (how == 2) {
      status = Look(path, 0, &size);
    }
    result->reset(new WritableFile(file, size, options));
    return status;
  }

  IOStatus Look(const std::string& path, int which, uint64_t* fact) {
    uint64_t facts[4] = {0, 0, 0, 0};
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
