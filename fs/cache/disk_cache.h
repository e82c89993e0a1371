// DiskCache: the second level of the cache of cells, in files on a disk of this machine. Cells that
// come from the drives are kept there. They are found there after they have left the memory, or by
// the next process.
//
// Cells are appended to segments, and when there is no room for another segment the oldest one goes
// as a whole. A cell that is found in the oldest quarter is to be offered again, and so stays.
// Nothing in a segment is ever changed. Each cell has a checksum, and its place in the table
// another one, so nothing has to be synced. Cells that a crash or a loss of power has torn, or
// somebody has damaged, are noticed and not returned. A cell is named by its stripe, which is never
// written again, so what is found is never stale, however long the process was away.
//
// Nobody waits for its writes: they have a thread of their own and a queue, and what does not fit
// into that is not kept. When the disk is full or fails, the cache goes without for a while, says
// so once, and tries again. A read that takes long is not waited for, and no other one is begun for
// some seconds. Everything may be removed from the directory at any time; another process that has
// claimed the directory is waited for. So a disk that hangs stops nobody, until the process is to
// end.
//
// Thread-safe.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "fs/cache/cell_cache.h"
#include "fs/cache/directory.h"
#include "fs/cache/disk_cache_format.h"
#include "fs/cache/patient_reader.h"
#include "fs/types.h"

namespace pinstripe {

class DiskCache {
 public:
  struct Options {
    std::string cluster;       // its uuid, 16 bytes
    uint64_t bytes = 0;        // of all files together, at least kLeastDiskCacheBytes
    uint64_t queue_bytes = 0;  // of cells that wait to be written
  };

  // The directory is looked at in the background; until then nothing is found.
  DiskCache(Runtime& runtime, std::unique_ptr<CacheDirectory> directory, const Options& options);
  ~DiskCache();  // when what was offered is written, unless the disk fails

  // Without waiting: whether Find() is worth it.
  bool Has(const CellKey& key, uint64_t bytes) const;

  // Reads a cell of this size. Null: it is not there, or not good; then Has() says so, too.
  struct Found {
    Buffer bytes;
    bool leaves_soon = false;  // offer it again
  };
  std::optional<Found> Find(const CellKey& key, uint64_t bytes);

  // Cells that share memory: all of them are kept, or none. Never waits.
  struct Cell {
    CellKey key;
    SharedBytes bytes;
  };
  void Offer(std::vector<Cell> together);

  DiskCacheCounters counters() const;

  // For tests: false when what was offered until now is not written or given up by then.
  bool WaitUntilIdle(Time deadline);

 private:
  struct Segment {
    uint64_t number = 0;
    std::string header;  // encoded
    uint32_t slots = 0;
    std::shared_ptr<CacheFile> file;
    uint64_t end = 0;              // of its file; guarded by the owner's mutex_
    std::vector<CacheSlot> cells;  // guarded by the owner's mutex_
  };
  struct Place {
    std::shared_ptr<Segment> segment;
    size_t cell = 0;
  };

  std::optional<Place> PlaceOf(const CellKey& key, uint64_t bytes) const REQUIRES(mutex_);
  void Forget(const CellKey& key, const Segment& segment) REQUIRES(mutex_);
  void Drop(std::deque<std::shared_ptr<Segment>>::iterator at) REQUIRES(mutex_);
  uint64_t UsedBytes() const REQUIRES(mutex_);

  // The writer's thread.
  void Run();
  bool IsStopping() const;
  Status Open();
  std::shared_ptr<Segment> Load(const std::string& name);
  void Adopt(std::shared_ptr<Segment> segment);
  void WriteQueue();
  Status Write(const Cell& cell);
  Status BeginSegment();
  Status MakeRoom(uint64_t bytes);
  void ForgetAll();
  void LookAtFiles();
  void GoWithout(const Status& why);
  void Say(const Status& why);

  Runtime& runtime_;
  PatientReader reader_;
  const std::unique_ptr<CacheDirectory> directory_;
  const Options options_;
  const uint64_t segment_bytes_;
  const std::shared_ptr<Signal> wake_;
  const std::shared_ptr<Signal> idle_;

  // Used by the writer's thread alone.
  std::shared_ptr<Segment> current_;  // which has room, perhaps
  bool claimed_ = false;
  std::string said_;  // why it goes without

  mutable Mutex mutex_;
  std::deque<std::shared_ptr<Segment>> segments_ GUARDED_BY(mutex_);  // the oldest first
  std::unordered_map<uint64_t, Place> places_ GUARDED_BY(mutex_);     // by CellKey::Hash()
  uint64_t old_before_ GUARDED_BY(mutex_) = 0;  // segments with lower numbers leave soon
  std::deque<std::vector<Cell>> queue_ GUARDED_BY(mutex_);
  uint64_t queued_bytes_ GUARDED_BY(mutex_) = 0;  // of queue_, and what is being written
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;

  std::atomic<bool> ready_ = false;
  std::atomic<Time> resumes_at_ = Time::min();  // writes
  std::atomic<Time> reads_at_ = Time::min();    // reads
  std::atomic<uint64_t> found_ = 0;
  std::atomic<uint64_t> written_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  std::atomic<uint64_t> evicted_ = 0;
  std::atomic<uint64_t> damaged_ = 0;
};

}  // namespace pinstripe
