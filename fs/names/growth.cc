#include "fs/names/growth.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"
#include "base/try.h"
#include "cluster/cluster.h"
#include "cluster/map/features.h"
#include "cluster/map/placement.h"
#include "fs/names/names.h"
#include "fs/names/spreader.h"

namespace pinstripe {

void LargeDirectories::Tell(uint64_t at_names, OnLarge on_large) {
  at_names_ = at_names;
  on_large_ = std::move(on_large);
}

void LargeDirectories::Count(InodeId directory, uint64_t Slot::*what, uint64_t names, bool anew) {
  if (at_names_ == 0) return;
  {
    const MutexLock lock(mutex_);
    Slot& slot = slots_[MixBits(directory) % slots_.size()];
    if (slot.id != directory) slot = {.id = directory};
    if (anew) slot.*what = 0;
    slot.*what += names;
    if (slot.*what < at_names_ || std::exchange(slot.was_told, true)) return;
  }
  on_large_(directory);
}

void LargeDirectories::Forget(InodeId directory) {
  const MutexLock lock(mutex_);
  Slot& slot = slots_[MixBits(directory) % slots_.size()];
  if (slot.id == directory) slot = {};
}

Growth::Growth(Cluster& cluster, Records& records, Names& names, uint64_t at_names)
    : cluster_(cluster),
      records_(records),
      names_(names),
      at_names_(at_names),
      thread_(cluster.runtime(), "growth", [this] { Run(); }) {
  if (!UsesFeature(cluster.map().features, kGrownDirectoriesFeature)) return;
  names.large().Tell(at_names, [this](InodeId directory) {
    {
      const MutexLock lock(mutex_);
      waiting_.insert(directory);
    }
    thread_.Wake();
  });
}

void Growth::Run() {
  while (!thread_.IsEnding()) {
    InodeId directory = 0;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty()) return;
      directory = waiting_.extract(waiting_.begin()).value();
    }
    Spread(directory);
  }
}

Result<bool> Growth::IsToBeSpread(InodeId directory) {
  const std::optional<StoredInode> stored = TRY(records_.FindInode(directory));
  if (!stored) return false;
  const DirectoryParts settled{.bits = stored->inode.parts.bits};
  if (settled.bits != 0) return stored->inode.parts != settled;  // somebody may have died at it
  uint64_t names = 0;
  std::optional<std::string> next = "";
  while (next && names < at_names_ && !thread_.IsEnding()) {
    const Records::Page page = TRY(records_.List(directory, *next, kMaxRangeKeys));
    names += page.entries.size();
    next = page.next;
  }
  return names >= at_names_;
}

void Growth::Spread(InodeId directory) {
  const std::string id = fmt::format("{:016x}", directory);
  const auto failed = [&](const Status& why) {
    if (why.code() == ENOENT) return;  // it was removed
    names_.large().Forget(directory);  // it is tried again with as many names
    Log(LogLevel::kWarn, "a large directory could not be spread over all drives",
        {{"directory", id}, {"why", why}});
  };
  const Result<bool> is_to_be = IsToBeSpread(directory);
  if (!is_to_be.has_value()) return failed(is_to_be.error());
  if (!*is_to_be) return names_.large().Forget(directory);
  Log(LogLevel::kInfo, "a directory is large: its names are spread over all drives",
      {{"directory", id}});
  Spreader::Options options;
  options.go_on = [this] { return !thread_.IsEnding(); };
  const auto report = Spreader(cluster_, records_, names_, std::move(options))
                          .Run(directory, Spreader::Begin::kYes);
  if (!report.has_value()) return failed(report.error());
  if (report->ended) {
    Log(LogLevel::kInfo, "a large directory is spread over all drives",
        {{"directory", id}, {"moved", report->moved}});
  }
}

}  // namespace pinstripe
