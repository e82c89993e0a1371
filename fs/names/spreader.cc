#include "fs/names/spreader.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/mutex.h"
#include "base/side_by_side.h"
#include "base/try.h"
#include "fs/names/growth_register.h"

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
  TRY(CountGrowth(cluster_));
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
    TRY(CheckParts(cluster_.map(), directory, parts));
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
      // Nothing comes to be a name that was none.
      if (!TRY(ClearStray(directory, parts.bits))) return report;
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
                                    [&](Left some) -> Result<uint64_t> {
                                      std::erase_if(some, [](const Records::ListedEntry& listed) {
                                        return listed.entry.move == Entry::Move::kMoved;
                                      });
                                      TRY(MoveSome(directory, bits, some));
                                      return some.size();
                                    }));
  report.moved += moved.value_or(0);
  return moved;
}

// Once it is said of an entry that it was moved, what is in its part may change: it must be safe
// from power loss before that, and so must be what is said.
Status Spreader::MoveSome(InodeId directory, uint8_t bits, const Left& some) {
  if (some.empty()) return {};
  std::vector<std::optional<uint64_t>> slots(some.size());
  TRY(ForEach(some, [&](size_t i) -> Status {
    slots[i] = TRY(records_.places().Copy(directory, bits, some[i]));
    return {};
  }));
  TRY(records_.SyncChanges());
  return ForEach(some, [&](size_t i) {
    return slots[i] ? records_.places().EndMove(directory, some[i].name, *slots[i]) : Status();
  });
}

Result<bool> Spreader::ClearStray(InodeId directory, uint8_t bits) {
  std::optional<std::string> next = "";
  while (next) {
    if (!GoesOn()) return false;
    const Records::Page page =
        TRY(records_.places().ListStray(directory, bits, *next, options_.names_in_page));
    TRY(ForEach(page.entries, [&](size_t i) {
      return records_.places().ClearStray(directory, bits, page.entries[i]);
    }));
    next = page.next;
  }
  return true;
}

Result<bool> Spreader::ClearAll(InodeId directory, uint8_t bits, Report& report) {
  const auto cleared =
      TRY(ForAllLeft(directory, bits, "clearing what is left", [&](Left some) -> Result<uint64_t> {
        TRY(ForEach(some, [&](size_t i) { return records_.places().Clear(directory, some[i]); }));
        return some.size();
      }));
  report.cleared += cleared.value_or(0);
  return cleared.has_value();
}

Status Spreader::ForEach(const Left& some, const std::function<Status(size_t)>& work) {
  Mutex mutex;
  Status failure;
  SideBySide(cluster_.runtime(), "spread", some.size(), options_.names_at_once, [&](size_t i) {
    const Status status = work(i);
    const MutexLock lock(mutex);
    if (failure.ok()) failure = status;
  });
  return failure;
}

Result<std::optional<uint64_t>> Spreader::ForAllLeft(
    InodeId directory, uint8_t bits, std::string_view phase,
    const std::function<Result<uint64_t>(Left)>& work) {
  uint64_t count = 0;
  uint64_t looked_at = 0;
  std::optional<std::string> next = "";
  while (next) {
    if (!GoesOn()) return std::optional<uint64_t>();
    Records::Page page =
        TRY(records_.places().ListLeft(directory, bits, *next, options_.names_in_page));
    looked_at += page.entries.size();
    next = std::move(page.next);
    count += TRY(work(std::move(page.entries)));
    if (options_.progress) options_.progress(phase, looked_at);
  }
  return std::optional(count);
}

}  // namespace pinstripe
