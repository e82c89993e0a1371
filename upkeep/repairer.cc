#include "upkeep/repairer.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "base/attempts.h"
#include "base/try.h"
#include "cluster/membership/retirement.h"
#include "fs/files/map_pages.h"
#include "fs/options.h"

namespace pinstripe {
namespace {

constexpr int kMostPasses = 16;
constexpr size_t kBlocksOfATask = 64;
constexpr size_t kMostFailures = 20;
constexpr int kMostAttempts = 16;
constexpr Duration kProgressEvery = std::chrono::milliseconds(250);
constexpr double kThrottleLook = 1;  // seconds
// Few enough for memory. Many enough that a very large file does not keep one thread busy with the
// last of them for long.
constexpr size_t kTasksAtOnce = 50'000;

}  // namespace

// Tasks, and the threads that take them.
struct Repairer::Work {
  std::vector<Task> tasks;
  std::shared_ptr<Signal> done;
  Mutex mutex;
  std::vector<bool> taken GUARDED_BY(mutex);      // of the tasks
  size_t next GUARDED_BY(mutex) = 0;              // before it, all are taken
  std::map<InodeId, int> busy GUARDED_BY(mutex);  // files, and how many work on them
  bool shares_files = false;
  std::set<InodeId> changing GUARDED_BY(mutex);  // files of which something was moved

  // Not two of one file at a time, where they would change one inode, as what loses is done again.
  // Null: nothing is left that could be begun now.
  std::optional<size_t> Take() REQUIRES(mutex) {
    while (next < tasks.size() && taken[next]) ++next;
    for (size_t i = next; i < tasks.size(); ++i) {
      const InodeId file = tasks[i].file;
      const bool is_shared = shares_files && !changing.contains(file);
      if (taken[i] || (!is_shared && busy.contains(file))) continue;
      ++busy[file];
      taken[i] = true;
      return i;
    }
    return std::nullopt;
  }
  int threads GUARDED_BY(mutex) = 0;
};

Repairer::Repairer(Cluster& cluster, Options options)
    : cluster_(cluster),
      options_(std::move(options)),
      records_(cluster),
      names_(records_, [](InodeId, const Inode&, uint64_t) {}),
      bytes_per_second_(options_.bytes_per_second) {}

const RepairReport& Repairer::Run() {
  const auto look = [this](std::string_view phase, double done) {
    if (options_.progress) options_.progress(phase, done, 0);
  };
  bool first = true;
  uint64_t unread = 0;  // when everything was read
  for (int pass = 0; pass < kMostPasses; ++pass) {
    found_ = {};  // of the last one: there may be as much to find
    Checker checker(cluster_, {.data = true,
                               .most_told = options_.most_told,
                               .progress = look,
                               .go_on = options_.go_on,
                               .state = pass == 0 ? options_.state : nullptr});
    report_.check = checker.Run();
    if (!GoOn()) return report_;
    FindLacking(checker);
    if (first && (options_.read_all || !options_.without.empty())) {
      first = false;
      if (options_.scrubbed) ReadAgain(checker);
      if (!options_.scrubbed || !options_.without.empty()) ProcessAll(checker);
      if (cancelled_) return report_;
      unread = report_.unread;
      if (options_.dry_run) break;
      continue;  // and look what there is now
    }
    first = false;
    if (found_.empty()) break;
    const uint64_t before = report_.progress;
    ProcessFound(checker);
    if (cancelled_) return report_;
    if (options_.dry_run || report_.progress == before) break;
  }
  report_.unread = unread;
  if (!options_.dry_run) RetireDrained();
  return report_;
}

void Repairer::RetireDrained() {
  const CheckReport& found = report_.check;
  for (const DriveId id : cluster_.DrainingDrives()) {
    if (cluster_.IsRetired(id)) continue;
    const auto named = found.named_on_draining.find(id);
    Status retired;
    if (named != found.named_on_draining.end()) {
      retired = Fail(ENOTEMPTY, "{} shards of files should be on it", named->second);
    } else if (!found.knows_all_places) {
      retired = Fail(EIO, "not everything could be looked at that may be on it");
    } else {
      retired = RetireDrive(cluster_, id, found.epoch);
    }
    if (!retired.ok()) report_.not_retired[id] = std::move(retired);
  }
  report_.check.missing_drives = cluster_.MissingDrives();
}

// ---- What there is to do

void Repairer::FindLacking(Checker& checker) {
  constexpr int kWhole = INT32_MAX;
  std::deque<LackingBlock> lacking = checker.TakeLackingBlocks();
  std::deque<std::pair<InodeId, uint64_t>> displaced = checker.TakeDisplacedBlocks();
  found_ = {};
  found_.reserve(lacking.size() + displaced.size());
  // What is taken goes at once, so that both lists are never full together.
  for (; !lacking.empty(); lacking.pop_front()) {
    const LackingBlock& one = lacking.front();
    if (one.missing == 0 && options_.without.empty()) continue;  // its drives may come back
    found_.push_back({one.file, one.block, one.present - one.needed, one.missing > 0});
  }
  for (; !displaced.empty(); displaced.pop_front()) {
    found_.push_back({displaced.front().first, displaced.front().second, kWhole, false});
  }
  // Of one that is found more than once the most endangered counts.
  const auto place = [](const Found& one) {
    return std::tuple(one.file, one.block, one.left, !one.lacks_listed);
  };
  std::ranges::sort(found_, {}, place);
  const auto is_same = [](const Found& a, const Found& b) {
    return std::pair(a.file, a.block) == std::pair(b.file, b.block);
  };
  found_.erase(std::unique(found_.begin(), found_.end(), is_same), found_.end());
}

bool Repairer::LacksListed(InodeId file, uint64_t block) const {
  const auto found =
      std::ranges::lower_bound(found_, std::pair(file, block), {},
                               [](const Found& one) { return std::pair(one.file, one.block); });
  return found != found_.end() && found->file == file && found->block == block &&
         found->lacks_listed;
}

// Those come first that can lose the fewest further shards; those that are whole come last.
void Repairer::ProcessFound(const Checker& checker) {
  std::set<int> dangers;
  for (const Found& one : found_) dangers.insert(one.left);
  const auto all = static_cast<double>(found_.size());
  size_t done = 0;
  for (const int danger : dangers) {
    for (size_t next = 0; next < found_.size() && !cancelled_;) {
      Share share{static_cast<double>(done) / all, 1};
      std::vector<Task> tasks;
      for (; next < found_.size(); ++next) {
        const Found& one = found_[next];
        if (one.left != danger) continue;
        const bool is_same =
            !tasks.empty() && tasks.back().file == one.file &&
            tasks.back().blocks.back() / kBlocksOfATask == one.block / kBlocksOfATask;
        if (!is_same && tasks.size() == kTasksAtOnce) break;
        if (!is_same) tasks.push_back({one.file, {}});
        tasks.back().blocks.push_back(one.block);
        ++done;
      }
      share.to = static_cast<double>(done) / all;
      Process(std::move(tasks), "repairing", share);
      TellWhatWasNoted(checker);
    }
  }
}

void Repairer::ProcessAll(const Checker& checker) {
  const auto all = static_cast<double>(std::max<uint64_t>(1, checker.CountWithData()));
  InodeId last = 0;
  double done = 0;
  for (bool more = true; more && !cancelled_;) {
    Share share{done / all, 1};
    Batch batch;
    while (more && batch.tasks.size() < kTasksAtOnce) {
      const std::vector<InodeId> files = checker.WithData(last, Records::kMostAtOnce);
      AddFiles(files, batch);
      more = !files.empty();
      if (more) last = files.back();
      done += static_cast<double>(files.size());
    }
    share.to = done / all;
    const bool scrubs = options_.read_all && !options_.scrubbed;
    Process(std::move(batch.tasks), scrubs ? "scrubbing" : "moving", share);
    TellWhatWasNoted(checker);
  }
}

void Repairer::AddFiles(const std::vector<InodeId>& files, Batch& batch) {
  // For a scrub all of them, else those that have something on a drive that is to be left.
  const Wanted wanted = [this](uint64_t block, const BlockPlace& place) {
    return (options_.read_all && !options_.scrubbed) || IsToMove(place, block);
  };
  const auto inodes = records_.FindInodes(files);
  for (size_t i = 0; i < files.size(); ++i) {
    // The check has told what cannot be read, and of pages that cannot be.
    if (!inodes[i].has_value()) NoteUnread();
    if (!inodes[i].has_value() || !*inodes[i] || !(*inodes[i])->inode.map) continue;
    std::optional<uint64_t> all = 0;
    if (!AddBlocks(files[i], (*inodes[i])->inode, wanted, batch, all).ok()) NoteUnread();
  }
}

Status Repairer::AddBlocks(InodeId file, Inode inode, const Wanted& wanted, Batch& batch,
                           std::optional<uint64_t>& next) {
  const uint64_t from = *std::exchange(next, std::nullopt);
  Task task{file, {}};
  const auto flush = [&] {
    if (!task.blocks.empty()) batch.tasks.push_back(std::exchange(task, {file, {}}));
  };
  const auto add = [&](uint64_t block, const BlockPlace& place) {
    if (!wanted(block, place)) return;
    task.blocks.push_back(block);
    batch.bytes += place.stored;
    if (task.blocks.size() == kBlocksOfATask) flush();
  };
  Status unread;
  BlockMap& map = *inode.map;
  for (size_t i = 0; i < map.parts().size(); ++i) {
    const uint64_t begin = map.parts()[i].first;
    if (map.parts()[i].end() <= from) continue;
    Status loaded = LoadPages(cluster_.stripes(), file, inode, begin, begin + 1);
    if (!loaded.ok()) {
      if (unread.ok()) unread = std::move(loaded);
      continue;
    }
    uint64_t first = begin;
    for (const BlockRun& run : map.parts()[i].stretch->runs) {
      // Shared blocks are repaired with their keeper.
      for (uint64_t j = first < from ? from - first : 0; j < run.count && !run.hole && !run.shared;
           ++j) {
        if (batch.IsFull()) {
          flush();
          next = first + j;
          return unread;
        }
        add(first + j, PlaceInRun(run, j, map.block_bytes()));
      }
      first += run.count;
    }
    if (const auto& page = map.parts()[i].stretch->page) add(PageNumber(begin).number(), *page);
    map.ForgetPages();
  }
  flush();
  return unread;
}

bool Repairer::IsToMove(const BlockPlace& place, uint64_t block) {
  return std::ranges::any_of(place.Stripes(), [&](const BlockPlace& stripe) {
    const auto drives =
        cluster_.stripes().PlacesOf(stripe.IdOf(block), stripe.layout, stripe.place);
    return drives.has_value() && std::ranges::any_of(*drives, [this](DriveId id) {
             return options_.without.contains(id);
           });
  });
}

// For the shards that are not at home.
std::set<DriveId> Repairer::HomesOfMoved(uint64_t block, const BlockPlace& place) {
  std::set<DriveId> homes;
  for (const BlockPlace& stripe : place.Stripes()) {
    const auto all = cluster_.stripes().HomesOf(stripe.IdOf(block), stripe.layout);
    if (!all.has_value()) continue;
    for (const StripePlace::Moved& moved : stripe.place.moved) homes.insert((*all)[moved.shard]);
  }
  return homes;
}

Result<Repairer::Mended> Repairer::MendFile(InodeId file, std::set<DriveId>& drives_needed) {
  Mended mended;
  Batch batch;
  // Adds the blocks that have shards elsewhere: those that can be helped now to the tasks.
  const auto look = [&]() -> Status {
    const auto stored = TRY(names_.Find(file));
    if (!stored || !stored->inode.map) return {};
    const auto is_up = [this](DriveId id) {
      const Drive* drive = cluster_.FindDrive(id);
      return drive != nullptr && drive->IsUp();
    };
    const Wanted wanted = [&](uint64_t block, const BlockPlace& place) {
      const bool is_elsewhere = std::ranges::any_of(
          place.Stripes(), [](const BlockPlace& stripe) { return !stripe.place.moved.empty(); });
      if (!is_elsewhere) return false;
      ++mended.lacking;
      const std::set<DriveId> homes = HomesOfMoved(block, place);
      drives_needed.insert(homes.begin(), homes.end());
      return std::any_of(homes.begin(), homes.end(), is_up);
    };
    std::optional<uint64_t> all = 0;
    return AddBlocks(file, stored->inode, wanted, batch, all);
  };
  TRY(look());
  if (batch.tasks.empty()) return mended;
  const uint64_t before = report_.progress;
  for (const Task& task : std::exchange(batch.tasks, {})) {
    if (cancelled_) return Fail(ECANCELED, "the process ends");
    bool moved_some = false;
    const Status repaired = RepairBlocks(task, moved_some);
    TellWhatWasNoted([&](const std::set<InodeId>&) {
      return std::map<InodeId, std::string>{{file, fmt::format("inode {:016x}", file)}};
    });
    TRY(repaired);
  }
  mended.lacking = 0;
  drives_needed.clear();
  TRY(look());
  mended.changed = report_.progress > before;
  return mended;
}

// ---- Doing it

void Repairer::Process(std::vector<Task> tasks, std::string_view phase, const Share& share) {
  if (tasks.empty()) return;
  Runtime& runtime = cluster_.runtime();
  const auto work = std::make_shared<Work>();
  double blocks = 0;
  for (const Task& task : tasks) blocks += static_cast<double>(task.blocks.size());
  const uint64_t blocks_before = report_.blocks;
  work->tasks = std::move(tasks);
  work->shares_files = options_.read_all;  // it changes few of them
  work->done = runtime.NewSignal();
  const int threads = static_cast<int>(
      std::min<size_t>(static_cast<size_t>(options_.blocks_at_once), work->tasks.size()));
  {
    const MutexLock lock(work->mutex);
    work->taken.resize(work->tasks.size());
    work->threads = threads;
  }
  for (int i = 0; i < threads; ++i) {
    runtime.Spawn("repair", [this, work] { WorkOff(*work); });
  }
  for (;;) {
    work->done->WaitUntil(runtime.Now() + kProgressEvery);
    {
      const MutexLock lock(work->mutex);
      if (work->threads == 0) break;
    }
    uint64_t bytes = 0;
    double done = 0;
    {
      const MutexLock lock(mutex_);
      bytes = report_.bytes_read + report_.bytes_written;
      done = static_cast<double>(report_.blocks - blocks_before);
    }
    // Some are looked at more than once, where somebody changes their file.
    const double part = std::min(done / blocks, 1.0);
    if (options_.progress) {
      options_.progress(phase, share.from + (share.to - share.from) * part, bytes);
    }
  }
}

void Repairer::WorkOff(Work& work) {
  MutexLock lock(work.mutex);
  // A thread that works on a file takes the rest of its tasks, too.
  while (const std::optional<size_t> number = work.Take()) {
    lock.Unlock();
    const Task& task = work.tasks[*number];
    bool moved_some = false;
    const Status status = RepairBlocks(task, moved_some);
    if (!status.ok()) {
      NoteFailure(task.file, status);
      NoteUnread();
    }
    lock.Lock();
    const auto busy = work.busy.find(task.file);
    if (--busy->second == 0) work.busy.erase(busy);
    if (moved_some) work.changing.insert(task.file);
  }
  if (--work.threads == 0) work.done->Set();
}

// The inode is changed only if it is as it was before any shard was written. So whoever changes it
// in between, a collection that takes these copies for strays above all, has them written again.
Status Repairer::RepairBlocks(const Task& task, bool& moved_some) {
  Task left = task;
  for (Attempts attempts(kMostAttempts); attempts.Next();) {
    std::optional<StoredInode> stored = TRY(names_.Find(task.file));
    if (!stored || !stored->inode.map) {
      for (const uint64_t block : left.blocks) Forget(task.file, block);
      return {};
    }
    std::vector<Moved> moved;
    std::vector<uint64_t> again;
    for (const uint64_t block : left.blocks) {
      if (!GoOn()) break;
      const Result<bool> done = RepairBlock(task, stored->inode, block, moved);
      if (!done.has_value()) {
        NoteFailure(task.file, done.error());
      } else if (!*done) {
        again.push_back(block);
      }
    }
    moved_some |= !moved.empty();
    // What was moved is noted also where the rest is left.
    if (!moved.empty() && !TRY(Record(task.file, *std::move(stored), moved))) {
      for (const Moved& one : moved) again.push_back(one.block);
      std::ranges::sort(again);  // a block may be there more than once, with its patches
      again.erase(std::unique(again.begin(), again.end()), again.end());
    }
    if (again.empty() || cancelled_) return {};
    left.blocks = std::move(again);
    attempts.Pause(cluster_.runtime());
  }
  return Fail(EIO, "its inode was changed {} times in between", kMostAttempts);
}

Result<bool> Repairer::RepairBlock(const Task& task, Inode& inode, uint64_t block,
                                   std::vector<Moved>& moved) {
  const auto found = FindStripe(cluster_.stripes(), task.file, inode, block);
  if (!found.has_value() && !IsStillSo(task.file, block, nullptr)) return false;
  if (!found.has_value()) NoteUnread();
  const auto& place = TRY(found);
  if (!place || place->shared) {  // there is no such block any more
    Forget(task.file, block);
    return true;
  }
  Status why;
  bool is_seen = true;  // all of it
  for (const BlockPlace& stripe : place->Stripes()) {
    const Result<bool> repaired = RepairStripe(task.file, block, stripe, moved, is_seen);
    if (repaired.has_value() && !*repaired) return false;
    if (!repaired.has_value() && why.ok()) why = repaired.error();
  }
  MutexLock lock(mutex_);
  ++report_.blocks;
  if (!why.ok()) report_.not_whole.emplace(task.file, block);
  TRY(why);
  lock.Unlock();
  // What was found to be damaged is so until somebody has seen that it is not.
  if (is_seen) Forget(task.file, block);
  return true;
}

// Nothing is wrong with it any more.
void Repairer::Forget(InodeId file, uint64_t block) {
  const MutexLock lock(mutex_);
  report_.not_whole.erase({file, block});
  report_.found_by_reading.erase({file, block});
  report_.lost_by_reading.erase({file, block});
}

// Whether something bad that was found counts. It does not if the file was changed in between: what
// it was made of before is deleted after a while, and lacks nothing. `stripe`: what it was found
// of; null: the page of the map that names the block cannot be read.
bool Repairer::IsStillSo(InodeId file, uint64_t block, const BlockPlace* stripe) {
  auto stored = names_.Find(file);
  if (!stored.has_value()) return true;
  if (!*stored) return false;
  const auto place = FindStripe(cluster_.stripes(), file, (*stored)->inode, block);
  if (!place.has_value()) return true;
  if (stripe == nullptr || !*place || (*place)->shared) return false;
  return std::ranges::any_of((*place)->Stripes(), [&](const BlockPlace& now) {
    return now.SameStripe(*stripe) && now.place == stripe->place;
  });
}

// A block's own, or a patch. The error says why it is not whole; false as for RepairBlock().
Result<bool> Repairer::RepairStripe(InodeId file, uint64_t block, const BlockPlace& place,
                                    std::vector<Moved>& moved, bool& is_seen) {
  std::set<DriveId> without = cluster_.DrivesLeftBehind();
  without.insert(options_.without.begin(), options_.without.end());
  const StripeRepair repair = TRY(cluster_.stripes().Repair({.id = place.IdOf(block),
                                                             .layout = place.layout,
                                                             .length = place.stored,
                                                             .place = &place.place,
                                                             .read_all = options_.read_all,
                                                             .without = std::move(without),
                                                             .dry_run = options_.dry_run}));
  // The check tells what is away.
  const bool whole =
      repair.good + repair.away >= place.layout.geometry().shards() && repair.stranded == 0;
  const bool contradicts = repair.inconsistent || !repair.contradicted.empty();
  if ((!whole || contradicts) && !IsStillSo(file, block, &place)) return false;
  Note(repair);
  if (repair.away > 0) {
    NoteAway(place, block, repair.away);
    is_seen = false;
  }
  if (repair.lost || contradicts) {
    const std::string which = fmt::format("block {}", block);
    const MutexLock lock(mutex_);
    if (repair.lost) told_.push_back({file, block, which, &RepairReport::lost});
    if (repair.inconsistent) told_.push_back({file, block, which, &RepairReport::inconsistent});
    for (const std::string& shard : repair.contradicted) {
      told_.push_back(
          {file, block, fmt::format("{}: {}", which, shard), &RepairReport::contradicted});
    }
  }
  if (repair.place != place.place && !options_.dry_run) moved.push_back({block, place, repair});
  Throttle(repair.bytes_read + repair.bytes_written);
  if (whole) return true;
  if (repair.damaged > 0 || !LacksListed(file, block)) {
    const MutexLock lock(mutex_);
    report_.found_by_reading.emplace(file, block);
    if (repair.lost) report_.lost_by_reading.emplace(file, block);
  }
  return tl::unexpected(repair.why.Context(fmt::format("block {}", block)));
}

// Names the newest epoch for the neighbours in their run, too, as far as their shards are at home
// in it as well: blocks that were one run are one again when all of them have been moved.
void Repairer::Relabel(Inode& inode, const std::vector<Moved>& moved) {
  const Epoch newest = cluster_.map().epoch;
  if (newest == 1) return;
  StripeStore& stripes = cluster_.stripes();
  BlockMap& map = *inode.map;
  // False: it is a reason to go no further; a hole, above all.
  const auto relabel = [&](uint64_t block) {
    if (cancelled_ || block >= map.blocks() || map.FirstMissing(block, block + 1)) return false;
    std::optional<BlockPlace> place = map.Find(block);
    if (!place || place->shared || place->place.epoch == newest || !place->place.moved.empty())
      return false;
    const StripeId id = place->IdOf(block);
    const auto places = stripes.PlacesOf(id, place->layout, place->place);
    const auto homes = stripes.PlacesOf(id, place->layout, {newest, {}});
    if (!places.has_value() || !homes.has_value() || *places != *homes) return false;
    place->place.epoch = newest;
    map.Set(block, *place);
    return true;
  };
  for (const Moved& one : moved) {
    if (PageNumber::Is(one.block)) continue;
    for (uint64_t block = one.block; block > 0 && relabel(block - 1);) --block;
    for (uint64_t block = one.block + 1; relabel(block);) ++block;
  }
}

// Says in the block map where the shards are now, and has the copies removed that nobody looks for
// any more. Durably, because these may be gone for ever before anything else of the file is
// changed. False: the inode is another one than `stored`.
Result<bool> Repairer::Record(InodeId file, StoredInode stored, const std::vector<Moved>& moved) {
  BlockMap& map = *stored.inode.map;
  const BlockMap before = map;
  for (const Moved& one : moved) {
    if (PageNumber::Is(one.block)) continue;
    BlockPlace stripe = one.before;
    stripe.place = one.repair.place;
    BlockPlace now = *map.Find(one.block);
    now.TakePlaces(stripe);
    map.Set(one.block, now);
  }
  // Pages last: one that a block has just left is made anew anyway.
  for (const Moved& one : moved) {
    const auto page = PageNumber::From(one.block);
    if (!page || map.FindPage(*page) != one.before) continue;
    BlockPlace now = one.before;
    now.place = one.repair.place;
    map.SetPage(page->first_block(), now);
  }
  Relabel(stored.inode, moved);
  std::vector<BlockMap::Piece> pages;
  TRY(StorePages(file, stored.inode, pages));
  const auto change =
      records_.ChangeInode(file, stored.slot, stored.inode, Durability::kWriteThrough);
  if (change.unknown()) return Failed(change.why);  // it may name them
  if (!change.applied()) {
    DeletePages(pages);
    TRY(change.why);
    return false;
  }
  BlockMap::Difference gone = before.NotIn(*stored.inode.map);
  for (const BlockMap::Part& page : gone.missing) gone.pages.push_back(BlockMap::PieceOf(page));
  DeletePages(gone.pages);
  for (const Moved& one : moved) {
    // What cannot be removed now is collected.
    (void)cluster_.stripes().DeleteObsolete(one.before.IdOf(one.block), one.repair.obsolete);
  }
  const MutexLock lock(mutex_);
  report_.progress += moved.size();
  return true;
}

Status Repairer::StorePages(InodeId file, Inode& inode, std::vector<BlockMap::Piece>& pages) {
  Runtime& runtime = cluster_.runtime();
  const auto write_id = [&](uint64_t) {
    return MakeWriteId(SecondsOf(runtime.WallClock()), runtime.Random(), 0);
  };
  const FileSystemOptions options;
  const FileLayout layout = inode.layout.value_or(FileLayout::Default(cluster_.config()));
  const Status status = pinstripe::StorePages(
      cluster_.stripes(), file, inode, {options.inline_map_bytes, options.map_page_bytes},
      layout.PageParity(), Durability::kWriteThrough, write_id, pages);
  if (!status.ok()) DeletePages(pages);
  return status;
}

// What cannot be removed now is collected.
void Repairer::DeletePages(const std::vector<BlockMap::Piece>& pages) {
  for (const BlockMap::Piece& page : pages) {
    const BlockPlace place = PlaceInRun(page.run, 0, 1);
    (void)cluster_.stripes().Delete(place.IdOf(page.first), place.layout, place.place);
  }
}

// ---- Telling

void Repairer::Note(const StripeRepair& repair) {
  const MutexLock lock(mutex_);
  report_.damaged += static_cast<uint64_t>(repair.damaged);
  report_.missing += static_cast<uint64_t>(repair.missing);
  report_.written += static_cast<uint64_t>(repair.written);
  report_.relocated += static_cast<uint64_t>(repair.relocated);
  report_.bytes_read += repair.bytes_read;
  report_.bytes_written += repair.bytes_written;
  if (repair.written > 0) ++report_.progress;
}

void Repairer::NoteFailure(InodeId file, const Status& why) {
  const MutexLock lock(mutex_);
  if (++failures_ > kMostFailures) return;
  told_.push_back({file, 0, std::string(why.message()), &RepairReport::failures});
}

void Repairer::NoteUnread() {
  const MutexLock lock(mutex_);
  ++report_.unread;
  unread_drives_.insert(0);
}

// So many of its shards are on drives that do not answer.
void Repairer::NoteAway(const BlockPlace& place, uint64_t block, int shards) {
  const auto drives = cluster_.stripes().PlacesOf(place.IdOf(block), place.layout, place.place);
  std::set<DriveId> away;
  for (const DriveId id : drives.value_or(std::vector<DriveId>())) {
    const Drive* drive = cluster_.FindDrive(id);
    if (drive == nullptr || !drive->IsUp()) away.insert(id);
  }
  if (away.size() < static_cast<size_t>(shards)) away.insert(0);  // one was, for a moment
  const MutexLock lock(mutex_);
  report_.unread += static_cast<uint64_t>(shards);
  unread_drives_.merge(away);
}

void Repairer::TellWhatWasNoted(const Checker& checker) {
  TellWhatWasNoted([&checker](const std::set<InodeId>& files) { return checker.Paths(files); });
}

void Repairer::TellWhatWasNoted(const Paths& paths) {
  std::vector<Told> told;
  {
    const MutexLock lock(mutex_);
    told.swap(told_);
  }
  std::set<InodeId> files;
  for (const Told& one : told) files.insert(one.file);
  const std::map<InodeId, std::string> places = paths(files);
  const MutexLock lock(mutex_);
  for (const Told& one : told) {
    std::vector<std::string>& list = report_.*one.list;
    std::string words = fmt::format("{}: {}", places.at(one.file), one.words);
    // Each pass meets what is lost, and what was found before may be found again.
    const bool is_met_again =
        one.list == &RepairReport::lost || one.list == &RepairReport::contradicted;
    if (is_met_again && std::ranges::find(list, words) != list.end()) continue;
    list.push_back(std::move(words));
  }
}

// False: it is to end.
bool Repairer::GoOn() {
  if (!cancelled_ && options_.go_on && !options_.go_on()) cancelled_ = true;
  return !cancelled_;
}

// Waits until so many bytes more may have been moved. The rate may change meanwhile.
void Repairer::Throttle(uint64_t bytes) {
  Runtime& runtime = cluster_.runtime();
  std::optional<double> ours;  // the end of these, among all that was moved
  while (GoOn()) {
    const auto rate = static_cast<double>(bytes_per_second_.load());
    const Time now = runtime.Now();
    double wait = 0;
    {
      const MutexLock lock(mutex_);
      const std::chrono::duration<double> passed = now - std::exchange(paid_at_, now);
      paid_ = rate == 0 ? moved_ : std::min(moved_, paid_ + passed.count() * rate);
      if (!ours) ours = moved_ += static_cast<double>(bytes);
      if (rate == 0 || paid_ >= *ours) return;
      wait = std::min((*ours - paid_) / rate, kThrottleLook);
    }
    runtime.NewSignal()->WaitUntil(now + Duration(static_cast<int64_t>(wait * 1e9) + 1));
  }
}

}  // namespace pinstripe
