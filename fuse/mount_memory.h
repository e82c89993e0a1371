// MountMemory: how much memory a mount may take for the contents of files.
//
// The mount option says it, or else cluster.toml. Where neither does, all such mounts of this
// machine share equally what one alone would take (base/seat.h). A mount that comes or goes changes
// the parts of the others within moments.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/background_thread.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/seat.h"
#include "cluster/config.h"
#include "fs/file_system.h"

namespace pinstripe {

// Thread-safe.
class MountMemory {
 public:
  struct Options {
    std::string kind = "pinstripe-mounts";  // of those that share
  };

  // `given` by the mount option, if any.
  explicit MountMemory(std::optional<uint64_t> given) : MountMemory(given, Options()) {}
  MountMemory(std::optional<uint64_t> given, Options options)
      : given_(given), options_(std::move(options)) {}

  // What the mount may take by `config`, which counts from now on.
  uint64_t By(const ClusterConfig& config);

  // What it may take now.
  uint64_t Part() const;

 private:
  const std::optional<uint64_t> given_;
  const Options options_;
  mutable Mutex mutex_;
  uint64_t alone_ GUARDED_BY(mutex_) = 0;                // if nobody shares it
  std::shared_ptr<const Seat> seat_ GUARDED_BY(mutex_);  // null: it is not shared
};

// Gives the file system what it may take, as long as this exists: others come and go. Both outlive
// it.
class MountMemoryFollower {
 public:
  static constexpr Duration kEvery = std::chrono::seconds(2);

  MountMemoryFollower(Runtime& runtime, const MountMemory& memory, FileSystem& file_system);

 private:
  void Follow();

  Runtime& runtime_;
  const MountMemory& memory_;
  FileSystem& file_system_;
  BackgroundThread thread_;  // the last: it uses the others
};

}  // namespace pinstripe
