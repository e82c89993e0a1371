#include "fs/names/spreader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/mutex.h"
#include "base/side_by_side.h"
#include "base/try.h"

namespace pinstripe {
namespace {

using Stage = DirectoryParts::Stage;

}  // namespace

bool Spreader::WaitUntil(Time until) {
  Runtime& runtime = cluster_.runtime();
  const auto signal = runtime.NewSignal();
  while (runtime.Now() < until) {
    if (!GoesOn()) return false;
    if (options_.waits) options_.waits();
    signal->WaitUntil(std::min<Time>(until, runtime.Now() + std::chrono::seconds(1)));
  }
  return GoesOn();
}

// Written through: what follows rests on it.
Status Spreader::SetParts(InodeId directory, const DirectoryParts& from, const DirectoryParts& to) {
  TRY(records_.CountGrowth());
  const auto edit = [&](Inode& inode) -> Status {
    if (inode.parts == from) inode.parts = to;  // else somebody else was faster
    return {};
  };
  TRY(names_.Update(directory, edit, {Durability::kWriteThrough, Room::kFreeing}));
  return {};
}

Result<Spreader::Report> Spreader::Run(InodeId directory, Begin begin) {
  Report report;
  std::optional<Stage> stage;
  Time since{};  // it was seen in this stage here
  while (GoesOn()) {
    const StoredInode stored = TRY(names_.Load(directory));
    if (!IsDirectory(stored.inode)) {
      return Fail(ENOTDIR, "inode {:016x} is not a directory", directory);
    }
    const DirectoryParts parts = stored.inode.parts;
    if (parts.bits == 0) {
      report.ended = begin == Begin::kGoOn;
      if (report.ended) return report;
      const uint8_t bits = BitsFor(cluster_.map());
      if (bits == 0) return Fail(ENOTSUP, "the cluster has one placement group: nothing to spread");
      TRY(SetParts(directory, parts, {.bits = bits, .stage = Stage::kMoving}));
      continue;
    }
    if (stage != parts.stage) since = cluster_.runtime().Now();
    stage = parts.stage;
    DirectoryParts next = parts;
    if (parts.stage == Stage::kMoving) {
      // Of what came to the directory's own group before this, nothing is missed.
      const bool sees_all = cluster_.runtime().Now() >= since + options_.stage_lasts;
      const auto moved = TRY(MoveAll(directory, parts.bits, report));
      if (!moved) return report;
      if (*moved > 0 || !sees_all) {
        if (*moved == 0 && !WaitUntil(since + options_.stage_lasts)) return report;
        continue;
      }
      // A loss of power must not take what is in the parts once it counts.
      TRY(records_.SyncChanges());
      next.stage = Stage::kClearing;
    } else {
      const bool is_settled = parts.stage == Stage::kSettled;
      if (!is_settled && !WaitUntil(since + options_.stage_lasts)) return report;
      if (!TRY(ClearAll(directory, parts.bits, report))) return report;
      report.ended = is_settled;
      if (report.ended) return report;
      next.stage = Stage::kSettled;
    }
    TRY(SetParts(directory, parts, next));
  }
  return report;
}

Result<std::optional<uint64_t>> Spreader::MoveAll(InodeId directory, uint8_t bits, Report& report) {
  const auto moved = TRY(ForAllLeft(directory, bits, "moving names to their parts",
                                    [&](const Records::ListedEntry& listed) -> Result<bool> {
                                      if (listed.entry.move == Entry::Move::kMoved) return false;
                                      return !TRY(records_.places().Copy(directory, bits, listed));
                                    }));
  report.moved += moved.value_or(0);
  return moved;
}

Result<bool> Spreader::ClearAll(InodeId directory, uint8_t bits, Report& report) {
  const auto cleared = TRY(ForAllLeft(directory, bits, "clearing what is left",
                                      [&](const Records::ListedEntry& listed) -> Result<bool> {
                                        TRY(records_.places().Clear(directory, listed));
                                        return true;
                                      }));
  report.cleared += cleared.value_or(0);
  return cleared.has_value();
}

Result<std::optional<uint64_t>> Spreader::ForAllLeft(InodeId directory, uint8_t bits,
                                                     std::string_view phase, const ForEach& work) {
  std::atomic<uint64_t> counted = 0;
  uint64_t looked_at = 0;
  Mutex mutex;
  Status failure;
  std::optional<std::string> next = "";
  while (next) {
    if (!GoesOn()) return std::optional<uint64_t>();
    const Records::Page page =
        TRY(records_.places().ListLeft(directory, bits, *next, options_.names_in_page));
    SideBySide(cluster_.runtime(), "spread", page.entries.size(), options_.names_at_once,
               [&](size_t i) {
                 const Result<bool> counts = work(page.entries[i]);
                 if (counts.has_value()) {
                   counted += *counts ? 1 : 0;
                   return;
                 }
                 const MutexLock lock(mutex);
                 if (failure.ok()) failure = counts.error();
               });
    {
      const MutexLock lock(mutex);
      TRY(failure);
    }
    looked_at += page.entries.size();
    if (options_.progress) options_.progress(phase, looked_at);
    next = page.next;
  }
  return std::optional(counted.load());
}

}  // namespace pinstripe
