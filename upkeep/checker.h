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
#include "upkeep/growth_facts.h"
#include "upkeep/lost_inodes.h"
#include "upkeep/settled_names.h"
#include "upkeep/tree_check.h"

namespace pinstripe {

enum class Severity {
  kError,     // a promise is broken
  kShort,     // all bytes are there, with less redundancy than they should have
  kLeftover,  // takes space and does no harm; `pinstripe collect` sees to it
};

struct Finding {
  Severity severity = Severity::kError;
  std::string problem;  // one word, such as "orphan"
  std::string where;    // a path, or what comes nearest to it
  std::string what;     // a sentence
};

struct CheckReport {
  uint64_t directories = 0;
  uint64_t files = 0;  // and everything else that is not a directory
  uint64_t entries = 0;
  uint64_t blocks = 0;         // that files name, map_pages included
  uint64_t map_pages = 0;      // of block maps that are too large for an inode
  uint64_t patches = 0;        // over these blocks
  uint64_t shards = 0;         // found of these
  uint64_t unused_shards = 0;  // found of others
  uint64_t unused_bytes = 0;   // of these; a guess by some of them, where they are many
  // Blocks with shards that are not at home under the newest epoch of the drive map, or not stored.
  uint64_t displaced_blocks = 0;
  std::set<std::pair<int, int>> geometries;     // k and m of the stripes that files name
  std::map<DriveId, uint64_t> unused_by_drive;  // of the unused shards; no drive without any
  std::map<DriveId, uint64_t> shards_by_drive;  // that files name, where the files say
  // Drives that the drive map has and the configuration lacks. Shards on those that were drained
  // count as missing, shards on others as away.
  std::vector<MissingDrive> missing_drives;
  std::vector<DriveId> full_drives;
  Epoch epoch = 0;    // the newest when all this was begun
  int64_t began = 0;  // when that was, by the clock of this host: nanoseconds since 1970
  // Shards that should be on drives that are drained and not retired, wherever they are. And
  // whether these are all that there can be: every map of blocks could be read.
  std::map<DriveId, uint64_t> named_on_draining;
  bool knows_all_places = true;
  std::vector<Finding> findings;
  // Findings that are not among them, by their problems: of those that are no errors, the first
  // hundred thousand of each problem are.
  struct Untold {
    Severity severity = Severity::kShort;
    uint64_t count = 0;
  };
  std::map<std::string, Untold> untold;
  uint64_t lost_inodes = 0;  // each is a finding, too
  // The places that could not be looked at, and why. Unless it is empty, nothing can be said to be
  // in order.
  std::vector<std::string> not_checked;

  size_t Count(Severity severity) const;
};

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
  bool GoOn(std::string_view phase, double done);
  void Report(Severity severity, std::string_view problem, std::string where, std::string what);
  // Of a file or a keeper. Its path is found out later, with others'.
  struct Late {
    InodeId id = 0;
    Severity severity = Severity::kError;
    std::string problem;
    std::string what;
  };
  void ReportOf(InodeId id, Severity severity, std::string_view problem, std::string what);
  void TellLate();

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
  // The next stripe on the drives; null at the end.
  const ListedStripe* Peek();
  void NoteDraining(uint64_t block, const BlockPlace& place);
  void Use(InodeId id, const ListedStripe& stripe, const BlockPlace& place);
  void Unused(const ListedStripe& stripe, std::vector<ShardCopy> copies);
  void Suspect(InodeId id, uint64_t block);
  // Tells that it does this, so far.
  void ConfirmBlocks(std::string_view phase, double from, double to);

  Cluster& cluster_;
  const Options options_;
  const std::set<DriveId> draining_;
  const std::set<DriveId> left_behind_;
  Records records_;
  Names names_;
  CheckReport report_;
  bool knows_all_names_ = true;
  bool stopped_ = false;
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
  std::map<std::string, size_t> told_of_;               // findings, by their problems
  std::vector<Late> late_;
  // The files of one pack come in any order.
  static constexpr size_t kMostKeepers = 20'000;
  KeeperMaps keeper_maps_{cluster_, records_, kMostKeepers};
  std::vector<Suspicion> confirmed_;
  std::vector<ListedStripe> unused_stripes_;

  std::optional<StripeListing> listing_;
  std::vector<ListedStripe> page_;
  size_t at_ = 0;                                       // in page_
  std::vector<std::pair<InodeId, uint64_t>> suspects_;  // blocks that seem to lack shards
  std::deque<std::pair<InodeId, uint64_t>> displaced_;
  GrowthFacts growth_;
  mutable SettledNames settled_names_{cluster_, records_, growth_, options_.go_on};
  std::deque<LackingBlock> lacking_;  // of the suspects, those that do
};

}  // namespace pinstripe
