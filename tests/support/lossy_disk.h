// LossyDisk: a directory on a disk whose power can fail. Everything that a LogStore does to its
// files goes through it (as its FileCalls and, for the index, as RocksDB's Env), to the real
// directory, and is written down until it is synced. At any moment an image can be taken of what
// the disk might hold had the power failed just then: what was synced, and of the rest what chance
// leaves:
//
//   data    any of the writes to a file, in any order, and some of them only in part
//   names   the oldest few of the changes of names, in their order, as journals keep it
//
// So a name is safe once its directory was synced and data once its file was; a whole file system
// is synced at once. What it does not know, files of the directory that did not come through it, is
// copied as it is.
//
// With `lies`, syncs answer at once and keep nothing: a store on such a disk must lose what it
// promised.
//
// Thread-safe.

#pragma once

#include <rocksdb/env.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/file_calls.h"

namespace pinstripe {

class LossyDisk final : public FileCalls {
 public:
  // What the directory holds now is safe.
  explicit LossyDisk(std::string directory, bool lies = false);
  ~LossyDisk() override;

  rocksdb::Env* env() { return env_.get(); }

  // Writes what might be left, as `seed` decides, to a directory that is made.
  void TakeImage(const std::string& target, uint64_t seed) const;

  // The same, and the directory becomes what was left: files that came through it are replaced by
  // those of the image, which is at `target` meanwhile, the others stay. Nothing comes to the disk
  // any more: whoever calls it waits for ever, so the process has to be ended.
  void FailPower(const std::string& target, uint64_t seed) const;

  int Create(const std::string& path) override;
  int Open(const std::string& path) override;
  int Unlink(const std::string& path) override;
  ssize_t Write(int fd, const iovec* pieces, int count, uint64_t offset) override;
  int Truncate(int fd, uint64_t size) override;
  int Punch(int fd, uint64_t begin, uint64_t end) override;
  int Sync(int fd) override;
  Status SyncDirectory(const std::string& path) override;
  int SyncFileSystem(int fd) override;

 private:
  class FileSystem;
  class WritableFile;
  class Directory;
  struct Written {
    uint64_t offset;
    std::string bytes;
  };
  struct Cut {
    uint64_t size;
  };
  struct Punched {
    uint64_t begin;
    uint64_t end;
  };
  using Change = std::variant<Written, Cut, Punched>;
  // A file, whatever its name.
  struct Node {
    std::string safe;            // contents
    std::vector<Change> unsafe;  // since
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct NameChange {
    std::string gone;  // or empty
    std::string come;  // or empty
    std::shared_ptr<Node> node;
  };

  static void Apply(const Change& change, std::string& contents);
  static void Apply(const NameChange& change, Names& names);
  static void MakeSafe(Node& node);
  std::shared_ptr<Node> NodeOf(int fd);
  void WriteImage(const std::string& target, uint64_t seed) const;
  void Rename(const std::string& gone, const std::string& come, std::shared_ptr<Node> node);
  void MakeNamesSafe();

  const std::string directory_;
  const bool lies_;
  std::unique_ptr<rocksdb::Env> env_;
  mutable std::mutex mutex_;
  Names names_;  // as they are; guarded by mutex_, like all below
  Names safe_names_;
  std::vector<NameChange> unsafe_names_;
  std::map<int, std::shared_ptr<Node>> open_;  // by descriptor, the last file that had it
};

}  // namespace pinstripe
