// Reaper: frees replaced and removed blocks. It deletes stripes that nothing refers to any more, in
// the background, many at once. Stripes that it cannot delete (a drive is away, the queue is full,
// the process ends) stay as garbage, are logged, and harm nobody.
//
// Data that an inode named goes only when it is safe from power loss that it does so no more: else
// the power could bring back the inode, and not the data.
//
// Thread-safe. Its thread ends within kDrainTime of the destructor being called, and what those
// requests take that were begun by then: of some dozens of files, where these leave a keeper.

#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "cluster/cluster.h"
#include "fs/files/block_map.h"
#include "fs/files/keepers.h"
#include "fs/names/records.h"
#include "fs/types.h"

namespace pinstripe {

class Reaper {
 public:
  static constexpr size_t kMaxQueue = 100'000;
  // How long other hosts can go on reading a file that was removed.
  static constexpr Duration kGrace = std::chrono::minutes(1);
  // How long data that was replaced in place waits, so that one flush of the drives serves many
  // changes.
  static constexpr Duration kGather = std::chrono::seconds(5);
  static constexpr Duration kDrainTime = std::chrono::seconds(10);

  explicit Reaper(Cluster& cluster);
  ~Reaper();

  // Stripes that no inode has named.
  void Add(const std::vector<BlockMap::Piece>& pieces, uint64_t block_bytes);
  // What the map of `gone` names and that of `kept`, by which it was replaced, does not, pages
  // included. A keeper that `kept` does not seem to name any more is left, and its stripes go if it
  // was the last file (fs/files/keepers.h). `losses`: Records::CountLosses() before the inode was
  // changed.
  void AddDifference(InodeId id, const Inode& gone, const Inode& kept, Durability durability,
                     uint64_t losses);
  // Everything that the map of a removed inode names, kGrace from now on, keepers as above.
  void AddRemoved(InodeId id, const Inode& inode, uint64_t losses);

  // Of how many changes and removals there is data that is to go yet; about.
  size_t CountWaiting();
  // How often it has left something to a collection so far.
  uint64_t CountLeft() const { return left_; }

 private:
  struct Page {  // with what it names
    InodeId inode = 0;
    InodeId object = 0;  // of what it names
    BlockMap::Part part;
    StripeLayout layout;
    BlockMap kept;
  };
  struct Departure {
    InodeId keeper = 0;
    Keepers::Leaving file;
  };
  struct Item {
    BlockMap::Piece piece;
    uint64_t block_bytes = 0;
    std::optional<Page> page;            // instead
    std::optional<Departure> departure;  // or this
  };
  struct Waiting {
    InodeId inode = 0;
    bool was_removed = false;  // else it has other contents
    uint64_t losses = 0;       // of drives that have the inode, before that
    std::vector<Item> items;
  };
  // `object`: of the stripes that may go.
  static std::vector<Item> ItemsOf(InodeId inode, InodeId object, const BlockMap& gone,
                                   const BlockMap& kept);
  void AddItems(std::vector<Item> items);
  void AddItemsLocked(std::vector<Item> items) REQUIRES(mutex_);
  void Wait(Duration delay, Waiting waiting);
  std::vector<Waiting> TakeDueLocked(Time now) REQUIRES(mutex_);
  void PutBackLocked(Waiting waiting) REQUIRES(mutex_);
  void Run();
  // Takes those whose inodes are safe; the others are left in it.
  std::vector<Item> TakeSafe(std::vector<Waiting>& waiting);
  bool IsGoneForGood(InodeId inode);
  void Delete(const Item& item);
  void DeletePage(const Page& page);
  void Depart(InodeId keeper, std::vector<Keepers::Leaving> files);
  // Others of the same keeper, which leave with it.
  std::vector<Keepers::Leaving> TakeDeparturesLocked(const Departure& first) REQUIRES(mutex_);
  // With the next batch, which is deleted now if it is large enough.
  void DeletePiece(const BlockMap::Piece& piece, uint64_t block_bytes);
  void DeleteBatch();
  bool MayGoOn();
  // Tells of garbage that a collection has to remove, and counts that.
  void LeaveBehind(std::string_view event, std::initializer_list<LogField> fields,
                   LogLevel level = LogLevel::kInfo);

  Cluster& cluster_;
  Records records_;
  Keepers keepers_;
  const std::shared_ptr<Signal> work_;
  const std::shared_ptr<Signal> idle_;
  Mutex mutex_;
  std::deque<Item> items_ GUARDED_BY(mutex_);
  std::multimap<Time, Waiting> waiting_ GUARDED_BY(mutex_);  // until then
  size_t at_work_ GUARDED_BY(mutex_) = 0;                    // taken from these, and not gone yet
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
  Time next_flush_{};                         // of the reaper's thread
  std::vector<StripeStore::Deletion> batch_;  // of the reaper's thread
  Time end_by_ GUARDED_BY(mutex_) = Time::max();
  std::atomic<uint64_t> left_ = 0;
};

}  // namespace pinstripe
