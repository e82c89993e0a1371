// The part of Repairer that reads everything, a part at a time.

#include <algorithm>

#include "base/coding.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

// Of a part of a scrub: enough for many threads, and so little that a scrub whose process dies has
// to read about a minute's work once more.
constexpr size_t kTasksOfAPart = 1024;
constexpr uint64_t kBytesOfAPart = uint64_t{16} << 30;
constexpr uint64_t kSecondsOfAPart = 60;                        // at the rate that there is
constexpr Duration kMostCollecting = std::chrono::seconds(10);  // of tasks

}  // namespace

// What was found while everything was read is told as if it had been found now.
void Repairer::ReadAgain(const Checker& checker) {
  const ScrubFound& found = *options_.scrubbed;
  std::vector<Task> tasks;
  for (const auto& [file, block] : found.not_whole) {
    if (tasks.empty() || tasks.back().file != file) tasks.push_back({file, {}});
    tasks.back().blocks.push_back(block);
  }
  {
    const MutexLock lock(mutex_);
    report_.not_whole = found.not_whole;
    for (const FileBlock& block : found.not_whole) {
      if (!LacksListed(block.first, block.second)) report_.found_by_reading.insert(block);
    }
  }
  Process(std::move(tasks), "reading again", {});
  {
    const MutexLock lock(mutex_);
    // These are among those that were found.
    report_.blocks = found.blocks;
    report_.damaged = found.damaged;
    report_.missing = found.missing;
    report_.unread += found.unread;
    report_.more_contradicted = found.more_contradicted;
    report_.more_not_whole = found.more_not_whole;
    report_.written += found.written;
    report_.relocated += found.relocated;
    report_.bytes_read += found.bytes_read;
    report_.bytes_written += found.bytes_written;
    for (const auto& [file, what] : found.contradicted) {
      told_.push_back({file, 0, what, &RepairReport::contradicted});
    }
  }
  TellWhatWasNoted(checker);
}

Repairer::ScrubbedGroups Repairer::ScrubGroups(const ScrubPlace& first, const ScrubPlace& end,
                                               double done, double done_at_end) {
  ScrubbedGroups scrubbed{.next = first, .found = {}};
  const uint64_t rate = bytes_per_second_;
  scrub_done_ = done;
  const Time began = cluster_.runtime().Now();
  Batch batch{.tasks = {}, .bytes = 0, .most_tasks = kTasksOfAPart, .most_bytes = kBytesOfAPart};
  if (rate > 0 && rate < kBytesOfAPart / kSecondsOfAPart) batch.most_bytes = rate * kSecondsOfAPart;
  while (scrubbed.next < end && !batch.IsFull() && GoOn() &&
         scrubbed.next.group - first.group < options_.groups_at_once &&
         cluster_.runtime().Now() - began < kMostCollecting) {
    scrubbed.next = AddGroup(scrubbed.next, end, batch);
  }
  const double groups = std::max<uint32_t>(1, end.group - first.group);
  const double read = scrubbed.next.group - first.group;
  Process(std::move(batch.tasks), "scrubbing", {done, done + (done_at_end - done) * read / groups});
  scrubbed.found = TakeFound();
  const MutexLock lock(mutex_);
  scrubbed.away.swap(unread_drives_);
  return scrubbed;
}

// Files of a group, and what keeps stripes for several of them.
ScrubPlace Repairer::AddGroup(const ScrubPlace& place, const ScrubPlace& end, Batch& batch) {
  const Wanted all = [](uint64_t, const BlockPlace&) { return true; };
  const bool is_cut = end.group == place.group;
  const ScrubPlace after = is_cut ? end : ScrubPlace{place.group + 1};
  const std::string last = Writer().Raw("I").U64(is_cut ? end.file - 1 : UINT64_MAX).Take();
  for (std::optional<std::string> next = Writer().Raw("I").U64(place.file).Take(); next;) {
    ShowThatItGoesOn();
    const auto page = cluster_.registers().Scan(place.group, *next, last, kMaxRangeKeys);
    if (!page.has_value()) {
      NoteUnread();
      return after;
    }
    for (const auto& [key, value] : page->entries) {
      Reader reader(key);
      reader.Raw(1);
      const InodeId id = reader.U64();
      if (!reader.Finish("").ok()) continue;  // a check tells what else is there
      auto inode = Inode::Decode(*value.value, id);
      if (!inode.has_value() || !inode->map) continue;  // and what cannot be understood
      ShowThatItGoesOn();
      std::optional<uint64_t> block = id == place.file ? place.block : 0;
      if (!AddBlocks(id, *std::move(inode), all, batch, block).ok()) NoteUnread();
      if (block) return {place.group, id, *block};
    }
    next = page->next;
  }
  return after;
}

// What was found since the last time. Of it nothing is told: whoever looks again finds it.
ScrubFound Repairer::TakeFound() {
  const MutexLock lock(mutex_);
  ScrubFound all;
  all.blocks = report_.blocks;
  all.damaged = report_.damaged;
  all.missing = report_.missing;
  all.written = report_.written;
  all.relocated = report_.relocated;
  all.bytes_read = report_.bytes_read;
  all.bytes_written = report_.bytes_written;
  all.unread = report_.unread;
  ScrubFound found;
  for (auto sum : {&ScrubFound::blocks, &ScrubFound::damaged, &ScrubFound::missing,
                   &ScrubFound::written, &ScrubFound::relocated, &ScrubFound::bytes_read,
                   &ScrubFound::bytes_written, &ScrubFound::unread}) {
    found.*sum = all.*sum - taken_.*sum;
  }
  taken_ = std::move(all);
  found.not_whole.swap(report_.not_whole);
  report_.found_by_reading.clear();
  report_.lost_by_reading.clear();
  for (Told& one : told_) {
    if (one.list == &RepairReport::contradicted)
      found.contradicted.emplace_back(one.file, one.words);
    if (one.list == &RepairReport::inconsistent) found.not_whole.emplace(one.file, one.block);
  }
  told_.clear();
  return found;
}

// On the thread that called ScrubGroups().
void Repairer::ShowThatItGoesOn() {
  if (!options_.progress) return;
  uint64_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    bytes = report_.bytes_read + report_.bytes_written;
  }
  options_.progress("scrubbing", scrub_done_, bytes);
}

}  // namespace pinstripe
