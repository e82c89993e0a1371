// CheckState: a directory of this host in which a check keeps how far it is, so that the next one
// goes on where this one was stopped or killed. One that goes on is as one that took longer: what
// it concludes rests on what it has read, some of it a while ago, and it reads once more what looks
// wrong before it says so. So no more is read from the directory than what was read from drives,
// and what follows from it is found out anew (upkeep/checker_state.cc).
//
// It is about one cluster under one epoch of its drive map: under another one shards have other
// homes, and the check begins anew. Two files are in it, each a StateFile: `names`, with what was
// read of all inodes and entries, and `shards`, with how far the shards were looked for since.
//
// Used by one thread, and by one process at a time.

#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/file_descriptor.h"
#include "base/runtime.h"
#include "base/status.h"
#include "cluster/cluster.h"
#include "upkeep/state_file.h"

namespace pinstripe {

class CheckState {
 public:
  // Makes the directory if there is none. EBUSY: another process uses it. EPERM: others may write
  // there, who could make anything up. EINVAL: it is another cluster's. EBADMSG: what is in it is
  // damaged, or of another version. Each says what to do.
  static Result<std::unique_ptr<CheckState>> Open(Cluster& cluster, const std::string& directory,
                                                  Duration every = std::chrono::minutes(5));

  const std::string& directory() const { return directory_; }
  // When the check began that is gone on with, nanoseconds since 1970; null: a new one begins.
  std::optional<int64_t> goes_on_since() const;

  // Whether it is time to keep it again: after a while, which is longer where that takes long.
  bool IsDue() const { return cluster_.runtime().Now() >= next_; }

  // Says what is in a file, for both directions.
  using Contents = std::function<void(StateFile& file)>;
  // What was kept; false: there is nothing. EBADMSG: it does not fit, or as of read(2).
  Result<bool> ReadNames(const Contents& contents);
  Result<bool> ReadShards(const Contents& contents);
  // In the place of what there was. Where that fails the log tells why, and the check goes on.
  void WriteNames(int64_t began, const Contents& contents);
  void WriteShards(const Contents& contents);

  // What it was kept for has ended. What could not be read stays.
  Status Remove();

 private:
  static constexpr const char* kNames = "names";
  static constexpr const char* kShards = "shards";

  struct Head {
    std::string magic;
    uint32_t version = 0;
    std::string uuid;  // of the cluster
    Epoch epoch = 0;
    uint32_t groups = 0;
    int64_t began = 0;
    std::array<uint8_t, 16> id{};  // of `names`, and of the `shards` that go with it
  };
  static void Archive(StateFile& file, Head& head);

  CheckState(Cluster& cluster, std::string directory, Duration every);
  std::string PathOf(const char* name) const { return fmt::format("{}/{}", directory_, name); }
  Status Look();
  Result<bool> Read(const char* name, const Contents& contents);
  bool Write(const char* name, const Contents& contents);
  Status WriteFile(const char* name, const Contents& contents);

  Cluster& cluster_;
  const std::string directory_;
  const Duration every_;
  FileDescriptor lock_;
  Head head_;
  bool has_names_ = false;
  bool has_shards_ = false;
  bool is_unread_ = false;
  Time next_{};
};

}  // namespace pinstripe
