// PatientReader: reads files of a local disk for callers that wait so long and no longer. A disk
// that hangs keeps the threads that have asked it, and nobody else.
//
// Threads are made as they are needed, up to a number, and stay. When all of them hang the reads
// that come are given up without a word to the disk.
//
// Thread-safe. The destructor waits for the reads that have begun.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "fs/cache/directory.h"

namespace pinstripe {

class PatientReader {
 public:
  static constexpr int kMostThreads = 16;

  explicit PatientReader(Runtime& runtime) : runtime_(runtime), ended_(runtime.NewSignal()) {}
  ~PatientReader();

  // What is there of so many bytes. Null: it takes longer than until then.
  std::optional<Result<Buffer>> Read(std::shared_ptr<CacheFile> file, uint64_t position,
                                     uint64_t bytes, Time until);

 private:
  struct Reading {
    std::shared_ptr<CacheFile> file;
    uint64_t position = 0;
    Buffer buffer;
    std::shared_ptr<Signal> ended;
    std::optional<Result<size_t>> got;  // guarded by the owner's mutex_
  };
  void Run();

  Runtime& runtime_;
  const std::shared_ptr<Signal> ended_;
  Mutex mutex_;
  std::deque<std::shared_ptr<Reading>> queue_ GUARDED_BY(mutex_);
  int threads_ GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Signal>> waiting_ GUARDED_BY(mutex_);  // of those that wait for work
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace pinstripe
