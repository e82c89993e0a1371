// Uploads: which files clients of this server are writing, so that two of them never write one new
// version.
//
// XRootD keeps one object per path for all writers: the second one would write into the first one's
// version without anybody being asked again. What it does ask for each of them is Create(), so that
// is where the second one is refused. Between a client's Create() and its Open() there is a
// reservation; it ends by itself should the Open() never come.
//
// One second writer is let in: the program that fetches a third-party copy for the client that
// asked for it. It proves that by naming the key of the copy, which only the three parties know.
//
// Of an upload over HTTP nothing tells how large it will be, but a connection has one request at a
// time: a file that is still being written when its session ends was cut off. (A client of XRootD's
// own protocol may come back and go on.)
//
// And UploadParts: which bytes of an announced size were written. A client that vanishes in the
// middle is closed by the server like one that has finished; only this tells them apart.
//
// Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/runtime.h"
#include "base/status.h"
#include "fs/interval_set.h"

namespace pinstripe {

// What is known of who writes a file, besides its path.
struct Uploader {
  std::string copy_key;           // of the third-party copy that this is; empty: none
  const void* session = nullptr;  // whose end cuts the upload off; null: no such
};

class Uploads {
 public:
  static constexpr Duration kReservation = std::chrono::seconds(10);
  // An Open() that is so late still finds what its Create() has said.
  static constexpr Duration kForgotten = std::chrono::minutes(10);

  enum class Parents { kMustExist, kAreMade };

  // `client` is about to create or replace `path`. ETXTBSY: another one is writing it, and not for
  // the third-party copy of this key.
  Status Reserve(const std::string& path, std::string_view client, Time now,
                 std::string_view copy_key = {}, Parents parents = Parents::kMustExist);

  // Somebody writes `path` from now on, until End(). What the last Reserve() said of its parents.
  Parents Begin(const std::string& path, Uploader uploader = {});
  void End(const std::string& path);

  void SessionEnds(const void* session);

  // Whether the session that writes `path` has ended.
  bool IsCutOff(const std::string& path);

 private:
  struct Entry {
    int writers = 0;
    std::string client;  // with a reservation
    Time reserved_until{};
    Uploader uploader;
    bool cut_off = false;
    Parents parents = Parents::kMustExist;
  };
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;  // guarded by mutex_
};

class UploadParts {
 public:
  explicit UploadParts(uint64_t expected) : expected_(expected) {}

  void Add(uint64_t offset, uint64_t length);
  bool Complete() const;
  uint64_t expected() const { return expected_; }

 private:
  const uint64_t expected_;
  mutable std::mutex mutex_;
  IntervalSet written_;  // guarded by mutex_
};

// The size that a client announces with an upload ("oss.asize"), or null: none, or not a number.
std::optional<uint64_t> AnnouncedSize(const char* text);

}  // namespace pinstripe
