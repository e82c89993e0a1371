// Spreader: spreads a directory with very many names over parts, while everybody goes on to use it
// (docs/format.md, "Directories that grow"). Whoever goes on with a directory that somebody else
// has begun to spread ends it, and several may be at it at once.
//
// A directory grows through stages, and each lasts for minutes, so that nobody goes by the one
// before when the next begins. A process that ends in between leaves a directory that can be used
// as before, only slower.

#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "fs/names/names.h"
#include "fs/names/records.h"

namespace pinstripe {

class Spreader {
 public:
  struct Options {
    // Asked often; false: to end where it is. Null: never.
    std::function<bool()> go_on;
    // What is being done, and with how many names that was done.
    std::function<void(std::string_view phase, uint64_t names)> progress;
    std::function<void()> waits;  // told now and then while it waits for the next stage
    size_t names_at_once = 32;
    size_t names_in_page = 1000;
    Duration stage_lasts = kStageLasts;  // less only for tests of the tests
  };
  struct Report {
    uint64_t moved = 0;    // names that were brought to their parts here
    uint64_t cleared = 0;  // that have left the directory's own group
    bool ended = false;    // the directory is spread, and nothing is left to do
  };

  // All outlive it.
  Spreader(Cluster& cluster, Records& records, Names& names, Options options)
      : cluster_(cluster), records_(records), names_(names), options_(std::move(options)) {}

  // kGoOn: with one that has begun to grow, and else nothing but what was left behind is removed.
  enum class Begin { kYes, kGoOn };
  // ENOENT, ENOTDIR; ENOTSUP: the cluster has too few groups for parts.
  Result<Report> Run(InodeId directory, Begin begin);

 private:
  bool GoesOn() const { return options_.go_on == nullptr || options_.go_on(); }
  bool WaitUntil(Time until);
  Status SetParts(InodeId directory, const DirectoryParts& from, const DirectoryParts& to);
  // How many names had not been moved when it came to them; null: it was ended.
  Result<std::optional<uint64_t>> MoveAll(InodeId directory, uint8_t bits, Report& report);
  // False: it was ended.
  Result<bool> ClearStray(InodeId directory, uint8_t bits);
  Result<bool> ClearAll(InodeId directory, uint8_t bits, Report& report);
  // Does something for all that is left in the directory's own group, some of it at a time. The sum
  // of what that answers; null: it was ended.
  using Left = std::vector<Records::ListedEntry>;
  Result<std::optional<uint64_t>> ForAllLeft(InodeId directory, uint8_t bits,
                                             std::string_view phase,
                                             const std::function<Result<uint64_t>(Left)>& work);
  Status MoveSome(InodeId directory, uint8_t bits, const Left& some);
  // The first failure, once all was tried.
  Status ForEach(const Left& some, const std::function<Status(size_t)>& work);

  Cluster& cluster_;
  Records& records_;
  Names& names_;
  const Options options_;
};

}  // namespace pinstripe
