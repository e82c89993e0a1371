// CheckFindings: what a Checker has to say, as it finds it. Where a file is in the tree is found
// out later, for many together.
//
// Used by one thread.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "fs/names/inode.h"
#include "upkeep/state_file.h"

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
  bool is_complete = true;  // nobody stopped it, and what was kept could be gone on with
  Epoch epoch = 0;          // the newest when all this was begun
  int64_t began = 0;        // when that was, by the clock of this host: nanoseconds since 1970
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

class CheckFindings {
 public:
  // Where these are in the tree.
  using PathsOf = std::function<std::map<InodeId, std::string>(const std::set<InodeId>& ids)>;
  // What an inode keeps, if it is a keeper.
  using KeepingOf = std::function<const Keeping*(InodeId id)>;

  // Of each problem that is no error, the first `most_told` are told, and the others counted.
  CheckFindings(CheckReport& report, size_t most_told, PathsOf paths_of, KeepingOf keeping_of)
      : report_(report),
        most_told_(most_told),
        paths_of_(std::move(paths_of)),
        keeping_of_(std::move(keeping_of)) {}

  void Report(Severity severity, std::string_view problem, std::string where, std::string what);
  // Of a file or a keeper, whose path is found out by TellLate() at the latest.
  void ReportOf(InodeId id, Severity severity, std::string_view problem, std::string what);
  void TellLate();

  // From here on it is another part that is archived; all was told that there is to tell.
  void BeginPart();
  void Archive(StateFile& file);

 private:
  struct Late {
    InodeId id = 0;
    Severity severity = Severity::kError;
    std::string problem;
    std::string what;
  };

  CheckReport& report_;
  const size_t most_told_;
  const PathsOf paths_of_;
  const KeepingOf keeping_of_;
  std::map<std::string, size_t> told_of_;  // by their problems
  std::vector<Late> late_;
  // What is not of this part: what is before these.
  size_t first_finding_ = 0;
  size_t first_not_checked_ = 0;
  std::map<std::string, CheckReport::Untold> untold_before_;
};

}  // namespace pinstripe
