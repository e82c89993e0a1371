// Checker: reads a whole namespace, and which shards the drives hold, and says what does not fit
// together. Changes nothing but what any reader would: it finishes renames that it meets, and
// brings replicas of registers up to date.
//
// It may run beside clients at any time. It reads once more what looks wrong before it reports it,
// so it does not report what only changed meanwhile. It keeps some 40 bytes of memory for each
// inode, and 100 more for each name but those that are the only one of a file (TreeFacts), which it
// reads again where it has to tell them. Each block that lacks shards, or is not at home, takes
// some 25 bytes more.
//
// Used by one thread.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/stripes/listing.h"
#include "fs/files/keepers.h"
#include "fs/names/names.h"
#include "upkeep/check_findings.h"
#include "upkeep/check_state.h"
#include "upkeep/growth_facts.h"
#include "upkeep/lost_inodes.h"
#include "upkeep/settled_names.h"
#include "upkeep/shards_in_order.h"
#include "upkeep/tree_check.h"

namespace pinstripe {

// A block of which not all shards are where they should be, or not all of its patches'.
struct LackingBlock {
  InodeId file = 0;
  uint64_t block = 0;
  // Not there, by their drives, or on drives that were left; others may be back.
  uint16_t missing = 0;
  // About the block or the patch that can lose the fewest further shards:
  uint8_t present = 0;
  uint8_t needed = 0;         // to read it
  uint8_t all = 0;            // that there should be
  bool lost = false;          // too few to read it
  bool out_of_reach = false;  // too few without the drives that the configuration lacks
};

class Checker {
 public:
  struct Options {
    bool data = true;  // look for the shards, too
    size_t most_told = 100'000;
    // When so many blocks seem to lack shards, they are asked for before others are looked at.
    size_t most_suspects = 1'000'000;
    // Told now and then: what is being done, and how far it is (0..1).
    std::function<void(std::string_view phase, double done)> progress;
    // Asked then, too. It may wait. False: Run() ends soon, and says that not all was looked at.
    std::function<bool()> go_on;
    // Where it keeps how far it is, and goes on from; it outlives this. Null: nowhere.
    CheckState* state = nullptr;
  };

  Checker(Cluster& cluster, Options options);

  const CheckReport& Run();

  // Whether every register of the namespace could be read and understood.
  bool knows_all_names() const { return knows_all_names_; }

  // For whoever removes or mends it: what is wrong with the tree, as it was found twice.
  const std::vector<Suspicion>& confirmed() const { return confirmed_; }
  // For whoever removes them: stripes that no inode names.
  const std::vector<ListedStripe>& unused_stripes() const { return unused_stripes_; }

  // For whoever keeps, removes or recovers what is left of them.
  const std::map<InodeId, LostInode>& lost_inodes() const { return lost_; }
  // Inodes that may be lost or never have been written, and why that cannot be told.
  const std::map<InodeId, Status>& undecided_inodes() const { return undecided_; }
  bool MayBeLost(InodeId id) const { return lost_.contains(id) || undecided_.contains(id); }

  // Inodes that keep what several files share, old and settled or not, with the files that may
  // name them.
  const std::map<InodeId, Keeping>& keepers() const { return keepers_; }
  // For whoever repairs them: those with data, the first `most` after this one, ascending: files,
  // keepers, and objects that may be gone, which keepers have stripes of. All ids are more than 0.
  std::vector<InodeId> WithData(InodeId after, size_t most) const;
  uint64_t CountWithData() const { return with_data_ + more_data_.size(); }
  // And blocks that lack shards or have some that are not at home, in any order.
  // They are not kept here then, as there may be very many.
  std::deque<LackingBlock> TakeLackingBlocks() { return std::exchange(lacking_, {}); }
  std::deque<std::pair<InodeId, uint64_t>> TakeDisplacedBlocks() {
    return std::exchange(displaced_, {});
  }
  // Directories that have grown, or do.
  const GrowthFacts& growth() const { return growth_; }
  // Where something is in the tree. This reads names that were settled.
  std::string Path(InodeId id) const { return Paths({id}).at(id); }
  std::map<InodeId, std::string> Paths(const std::set<InodeId>& ids) const {
    return settled_names_.Paths(facts_, ids);
  }
  std::string Path(const EntryFact& entry) const { return PathOf(facts_, entry); }

 private:
  // Where it is at a place to go on from, `keep` is given: it is called when it is time to.
  bool GoOn(std::string_view phase, double done, const std::function<void()>& keep = nullptr);

  void ReadFacts();
  void ReadRange(uint32_t group, std::string first, const std::string& last);
  void TakeRegister(uint32_t group, const std::string& key, const RegisterValue& value);
  void TakeInode(InodeId id, const RegisterValue& value);

  bool Knows(InodeId id) const;
  void FindLostByName();
  void FindLostByShards();
  void FindLost(std::map<InodeId, LostInode> candidates);
  bool IsStillNamed(LostInode& candidate);
  bool IsAboutWhatIsLost(const Suspicion& suspicion) const;
  void ReportLost();

  void Confirm(const Suspicion& suspicion);
  // EIO and its kin when it cannot be found out.
  Result<bool> IsStillSo(const Suspicion& suspicion);

  void CheckData();
  void CheckFile(InodeId id, StoredInode stored);
  void CheckSharedBlock(InodeId id, uint64_t block, const BlockPlace& place);
  // The inodes that name stripes of one object: its own, and keepers.
  struct Owner {
    InodeId id = 0;
    StoredInode stored;
  };
  void CheckObject(InodeId object, std::vector<Owner> owners);
  Status LoadOwner(Owner& owner, uint64_t first, uint64_t end);
  void CheckPages(InodeId id, const Inode& inode);
  struct OwnedBlock {
    InodeId id = 0;
    uint64_t block = 0;
    BlockPlace place;
  };
  void CheckBlock(std::span<const OwnedBlock> owned);  // all of one object and number
  void CheckKeepers();
  void NotChecked(InodeId id, const Status& why);
  void SkipBlocks(InodeId id, uint64_t end);
  void NoteDraining(uint64_t block, const BlockPlace& place);
  void Use(InodeId id, const ListedStripe& stripe, const BlockPlace& place);
  void Unused(const ListedStripe& stripe, std::vector<ShardCopy> copies);
  void Suspect(InodeId id, uint64_t block);
  // Tells that it does this, so far.
  void ConfirmBlocks(std::string_view phase, double from, double to);

  // What is kept between two runs (checker_state.cc); called at a place to go on from.
  void Keep();
  void GoOnFrom(const Result<bool>& kept);
  void ArchiveNames(StateFile& file);
  void ArchiveShards(StateFile& file);

  Cluster& cluster_;
  const Options options_;
  const std::set<DriveId> draining_;
  const std::set<DriveId> left_behind_;
  Records records_;
  Names names_;
  CheckReport report_;
  CheckFindings findings_;
  bool knows_all_names_ = true;
  bool stopped_ = false;
  // How far it is: what is read, and the next group.
  enum class Phase : uint8_t { kInodes, kNames, kShards };
  Phase phase_ = Phase::kInodes;
  uint32_t group_ = 0;
  std::optional<uint64_t> growth_before_;  // FindGrowth() then; null: it could not be read
  TreeFacts facts_;
  uint64_t with_data_ = 0;       // of the facts
  std::set<InodeId> more_data_;  // see WithData(); what the facts do not have
  std::set<InodeId> damaged_;    // inodes that cannot be understood
  std::map<InodeId, LostInode> lost_;
  std::map<InodeId, Status> undecided_;  // whether they are
  std::map<InodeId, Keeping> keepers_;
  std::map<InodeId, std::vector<InodeId>> keepers_of_;  // by their objects
  std::vector<std::pair<InodeId, InodeId>> sharing_;    // files, and the keepers that they name
  std::set<InodeId> told_;                              // files of which that was said
  // The files of one pack come in any order.
  static constexpr size_t kMostKeepers = 20'000;
  KeeperMaps keeper_maps_{cluster_, records_, kMostKeepers};
  std::vector<Suspicion> confirmed_;
  std::vector<ListedStripe> unused_stripes_;

  InodeId checked_to_ = 0;  // the last with data whose blocks were looked at
  std::optional<ShardsInOrder> listed_;
  std::vector<std::pair<InodeId, uint64_t>> suspects_;  // blocks that seem to lack shards
  std::deque<std::pair<InodeId, uint64_t>> displaced_;
  GrowthFacts growth_;
  mutable SettledNames settled_names_{cluster_, records_, growth_, options_.go_on};
  std::deque<LackingBlock> lacking_;  // of the suspects, those that do
  // Of the file whose suspects are being asked for, so far.
  struct LackingFile {
    InodeId id = 0;
    uint64_t short_blocks = 0;
    uint64_t lost_blocks = 0;
    uint64_t blocks_out_of_reach = 0;
    std::string first;
  };
  LackingFile lacking_file_;
};

}  // namespace pinstripe
