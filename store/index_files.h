// IndexFiles: the tables of an index as RocksDB reads them, which can be asked not to wait.
//
// RocksDB's own way to ask only for what is in memory (kBlockCacheTier) knows no more than its
// block cache, and of a key in a table that it has not opened yet it says that there is one, with
// an empty value. Here it reads as always, and each read that the kernel cannot answer from its
// memory fails.

#pragma once

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace pinstripe {

class IndexFiles {
 public:
  // For the options of an index. Lives as long as the process.
  static rocksdb::Env* Env();

  // While one lives, what its thread asks an index for ends with rocksdb::Status::Busy where it
  // would have to wait for the disk, or to open a table.
  class NoWait {
   public:
    NoWait();
    ~NoWait();
    NoWait(const NoWait&) = delete;
    NoWait& operator=(const NoWait&) = delete;
  };

  // Around a question of who may wait. RocksDB opens a table under a lock that others come to who
  // ask for one nearby: while one is being opened for such a question, who must not wait had better
  // ask nothing, since the disk may hang. One of these two at a time in a thread. What scans and
  // compactions open is not counted.
  class Wait {
   public:
    Wait();
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    friend class IndexFiles;
    int opened_ = 0;
  };
  static bool IsOpening();
};

}  // namespace pinstripe
