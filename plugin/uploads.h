// Uploads: which files clients of this server are writing, so that two of them never write one new
// version.
//
// XRootD keeps one object per path for all writers: the second one would write into the first one's
// version without anybody being asked again. For each of them it does call Create(), so the second
// one is refused there. Between a client's Create() and its Open() there is a reservation; it ends
// by itself should the Open() never come.
//
// One second writer is let in: the program that fetches a third-party copy for the client that
// asked for it. It proves that by naming the key of the copy, which only the three parties know.
//
// Nothing tells how large an upload over HTTP will be, but a connection has one request at a time:
// a file that is still being written when its session ends was cut off. (A client of XRootD's own
// protocol may come back and go on.)
//
// An upload appears under its name when it is closed. Until then this tells which inode it is, so
// that clients can ask for it, change it and remove it by its path. A name that was removed is free
// at once, and a client that still writes to it is none of its writers any more.
//
// And which uploads were dropped in their middle, so that the name of one can be removed as that of
// a file cut short could be elsewhere, and so that who comes back to go on with one is recognised:
// a client that lost its connection opens the file again as if to update it, and would write the
// rest of its file into what it finds there.
//
// And UploadParts: which bytes of an announced size were written. A client that vanishes in the
// middle is closed by the server like one that has finished; only this tells them apart.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "fs/file_system.h"
#include "fs/files/interval_set.h"

namespace pinstripe {

// The writer of a file, as far as it is known besides its path.
struct Uploader {
  std::string copy_key;           // of the third-party copy that this is; empty: none
  const void* session = nullptr;  // whose end cuts the upload off; null: no such
};

// The client that uploads, and how much: what is the same when it comes back to go on.
struct UploadClaim {
  std::string client;  // its process, as ClientProcess() says
  uint64_t announced = 0;

  std::string Text() const;
  friend bool operator==(const UploadClaim&, const UploadClaim&) = default;
};

class Uploads {
 public:
  static constexpr Duration kReservation = std::chrono::seconds(10);
  // An Open() that is so late still finds what its Create() has said.
  static constexpr Duration kForgotten = std::chrono::minutes(10);

  // Dropped uploads are remembered for so long, and so many of them.
  static constexpr Duration kDropped = std::chrono::hours(1);
  static constexpr size_t kMostDropped = 10'000;

  enum class Parents { kMustExist, kAreMade };

  // One who writes, until End().
  struct Writer {
    std::string path;
    uint64_t upload = 0;
    Parents parents = Parents::kMustExist;  // as the last Reserve() said
  };

  // `client` is about to create or replace `path`. ETXTBSY: another one is writing it, and not for
  // the third-party copy of this key.
  Status Reserve(const std::string& path, std::string_view client, Time now,
                 std::string_view copy_key = {}, Parents parents = Parents::kMustExist);

  // Somebody writes `path` from now on, until End().
  Writer Begin(const std::string& path, Uploader uploader = {});
  void End(const Writer& writer);

  void SessionEnds(const void* session);

  // Whether its session has ended.
  bool IsCutOff(const Writer& writer);

  // It writes this inode, which appears when it is closed; `client` as in UploadClaim.
  void Creates(const Writer& writer, InodeId inode, std::string_view client = {});
  // The file that is being created under this path; null: none.
  std::optional<InodeId> Find(const std::string& path);
  // Nothing is any more, if it was `inode`.
  void Remove(const std::string& path, InodeId inode);
  bool WasRemoved(const Writer& writer);

  // An upload was dropped; with a claim, when its client may come back for the rest.
  void Drop(const std::string& path, Time now, std::optional<UploadClaim> claim = {});
  // Whether one was, and nobody has asked that or uploaded there since.
  bool RemoveDropped(const std::string& path, Time now);
  bool IsDropped(const std::string& path, const UploadClaim& claim, Time now);

 private:
  struct Entry {
    uint64_t number = 0;  // of the upload, while there are writers
    InodeId creates = 0;  // 0: nothing that is not there yet
    int writers = 0;
    std::string client;  // with a reservation
    Time reserved_until{};
    Uploader uploader;
    bool cut_off = false;
    Parents parents = Parents::kMustExist;
  };
  struct Dropped {
    Time at{};
    bool is_removed = false;
    std::optional<UploadClaim> claim;
  };
  Entry* FindLocked(const Writer& writer) REQUIRES(mutex_);
  Dropped* FindDroppedLocked(const std::string& path, Time now) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::string, Entry> entries_ GUARDED_BY(mutex_);
  std::map<std::string, Dropped> dropped_ GUARDED_BY(mutex_);
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;
};

class UploadParts {
 public:
  explicit UploadParts(uint64_t expected) : expected_(expected) {}

  void Add(uint64_t offset, uint64_t length);
  bool Complete() const;
  uint64_t expected() const { return expected_; }

 private:
  const uint64_t expected_;
  mutable Mutex mutex_;
  IntervalSet written_ GUARDED_BY(mutex_);
};

// The user and process of a client, as the server names it: "root.17" of "root.17:32@host". That
// is the same for each of its connections, wherever they come from.
std::string ClientProcess(std::string_view server_name);

// The size that a client announces with an upload ("oss.asize"), or null: none, or not a number.
std::optional<uint64_t> AnnouncedSize(const char* text);

}  // namespace pinstripe
