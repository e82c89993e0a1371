#include "fs/cache/disk_cache.h"

#include <algorithm>
#include <charconv>

#include "base/checksum.h"
#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kSegments = 64;  // of the cache's size
// With those of times when it was smaller, or that a process left that did not live long: each has
// an open file.
constexpr size_t kMostSegments = 2 * kSegments;
constexpr uint64_t kLeastSegmentBytes = 1 << 20;
constexpr uint64_t kBytesPerSlot = 16 << 10;  // so many cells of a mean size have room
constexpr size_t kOldPart = 4;

constexpr Duration kLook = seconds(5);           // at what others did to the directory
constexpr Duration kRetry = seconds(1);          // until another process has left it
constexpr Duration kWithout = seconds(60);       // after a write failed
constexpr Duration kSlow = milliseconds(100);    // a cell is not waited for any longer
constexpr Duration kWithoutReads = seconds(10);  // after that

constexpr std::string_view kNamePrefix = "cells-";

std::string NameOf(uint64_t number) { return fmt::format("{}{:016x}", kNamePrefix, number); }

std::optional<uint64_t> NumberOf(std::string_view name) {
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  uint64_t number = 0;
  const std::string_view digits = name.substr(kNamePrefix.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return NameOf(number) == name ? std::optional(number) : std::nullopt;
}

uint64_t SegmentBytes(uint64_t cache_bytes) {
  return std::max(kLeastSegmentBytes, cache_bytes / kSegments / kCellAlignment * kCellAlignment);
}

uint64_t AlignUp(uint64_t bytes) {
  return (bytes + kCellAlignment - 1) / kCellAlignment * kCellAlignment;
}

Result<std::string> ReadText(CacheFile& file, uint64_t position, size_t bytes) {
  std::string text(bytes, '\0');
  const size_t got = TRY(file.Read(position, std::as_writable_bytes(std::span(text))));
  if (got < bytes) return Fail(EBADMSG, "it ends within what is to be read");
  return text;
}

}  // namespace

DiskCache::DiskCache(Runtime& runtime, std::unique_ptr<CacheDirectory> directory,
                     const Options& options)
    : runtime_(runtime),
      reader_(runtime),
      directory_(std::move(directory)),
      options_(options),
      segment_bytes_(SegmentBytes(options.bytes)),
      wake_(runtime.NewSignal()),
      idle_(runtime.NewSignal()) {
  runtime_.Spawn("disk cache", [this] { Run(); });
}

DiskCache::~DiskCache() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_->Set();
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (ended_) break;
    }
    idle_->WaitUntil(Time::max());
  }
}

// ---- Looking up

std::optional<DiskCache::Place> DiskCache::PlaceOf(const CellKey& key, uint64_t bytes) const {
  const auto found = places_.find(key.Hash());
  if (found == places_.end()) return std::nullopt;
  const CacheSlot& slot = found->second.segment->cells[found->second.cell];
  if (!(slot.key == key) || slot.bytes != bytes) return std::nullopt;
  return found->second;
}

void DiskCache::Forget(const CellKey& key, const Segment& segment) {
  const auto found = places_.find(key.Hash());
  if (found != places_.end() && found->second.segment.get() == &segment) places_.erase(found);
}

bool DiskCache::Has(const CellKey& key, uint64_t bytes) const {
  if (runtime_.Now() < reads_at_.load()) return false;
  const MutexLock lock(mutex_);
  return PlaceOf(key, bytes).has_value();
}

std::optional<DiskCache::Found> DiskCache::Find(const CellKey& key, uint64_t bytes) {
  const Time begin = runtime_.Now();
  if (begin < reads_at_.load()) return std::nullopt;
  std::shared_ptr<Segment> segment;
  CacheSlot slot;
  Found found;
  {
    const MutexLock lock(mutex_);
    const auto place = PlaceOf(key, bytes);
    if (!place) return std::nullopt;
    segment = place->segment;
    slot = segment->cells[place->cell];
    found.leaves_soon = segment->number < old_before_;
  }
  std::optional<Result<Buffer>> read(Buffer{bytes});
  if (!segment->file->ReadFromMemory(slot.position, **read)) {
    read = reader_.Read(segment->file, slot.position, bytes, begin + kSlow);
  }
  if (!read) {
    if (reads_at_.exchange(runtime_.Now() + kWithoutReads) <= begin) {
      Log(LogLevel::kWarn, "disk cache is slow: drives are asked instead for a while",
          {{"directory", directory_->path()}});
    }
    return std::nullopt;
  }
  if (read->has_value() && (*read)->size() == bytes && Crc32c(**read) == slot.crc) {
    found.bytes = std::move(**read);
    ++found_;
    return found;
  }
  {
    const MutexLock lock(mutex_);
    Forget(key, *segment);
  }
  ++damaged_;
  Log(LogLevel::kWarn, "cell in the disk cache is damaged: it is read from drives",
      {{"directory", directory_->path()},
       {"file", NameOf(segment->number)},
       {"why", read->has_value() ? Status(EBADMSG, "its checksum is wrong, or it is cut")
                                 : Status(read->error())}});
  return std::nullopt;
}

DiskCacheCounters DiskCache::counters() const {
  DiskCacheCounters counters{.limit_bytes = options_.bytes,
                             .ready = ready_,
                             .cells_found = found_,
                             .cells_written = written_,
                             .cells_dropped = dropped_,
                             .cells_evicted = evicted_,
                             .cells_damaged = damaged_};
  const MutexLock lock(mutex_);
  counters.used_bytes = UsedBytes();
  counters.cells = places_.size();
  return counters;
}

uint64_t DiskCache::UsedBytes() const {
  uint64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment->end;
  return bytes;
}

// ---- The queue

void DiskCache::Offer(std::vector<Cell> together) {
  uint64_t bytes = 0;
  for (const Cell& cell : together) bytes += cell.bytes.size();
  if (!ready_ || runtime_.Now() < resumes_at_.load()) {
    dropped_ += together.size();
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (stopping_ || queued_bytes_ + bytes > options_.queue_bytes) {
      dropped_ += together.size();
      return;
    }
    queued_bytes_ += bytes;
    queue_.push_back(std::move(together));
  }
  wake_->Set();
}

void DiskCache::WriteQueue() {
  for (;;) {
    std::vector<Cell> cells;
    {
      const MutexLock lock(mutex_);
      if (queue_.empty()) break;
      cells = std::move(queue_.front());
      queue_.pop_front();
    }
    uint64_t bytes = 0;
    for (const Cell& cell : cells) {
      bytes += cell.bytes.size();
      if (runtime_.Now() < resumes_at_.load()) {
        ++dropped_;
      } else if (const Status written = Write(cell); !written.ok()) {
        ++dropped_;
        GoWithout(written);
      }
    }
    cells.clear();  // its memory goes before others may come
    const MutexLock lock(mutex_);
    queued_bytes_ -= bytes;
  }
  idle_->Set();
}

bool DiskCache::WaitUntilIdle(Time deadline) {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (ready_ && queued_bytes_ == 0) return true;
    }
    if (!idle_->WaitUntil(deadline) && runtime_.Now() >= deadline) return false;
  }
}

// ---- The writer

bool DiskCache::IsStopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

void DiskCache::Run() {
  Time look_at = Time::min();
  while (!IsStopping()) {
    if (!claimed_) {
      if (const Status opened = Open(); !opened.ok()) {
        Say(opened);
        wake_->WaitUntil(runtime_.Now() + kRetry);
        continue;
      }
    }
    WriteQueue();
    if (runtime_.Now() >= look_at) {
      LookAtFiles();
      look_at = runtime_.Now() + kLook;
      if (!claimed_) continue;
    }
    wake_->WaitUntil(look_at);
  }
  if (claimed_) WriteQueue();
  const MutexLock lock(mutex_);
  ended_ = true;
  const std::shared_ptr<Signal> idle = idle_;  // *this is gone as soon as the lock is
  idle->Set();
}

// Once, until something else is wrong or all is well.
void DiskCache::Say(const Status& why) {
  if (std::exchange(said_, std::string(why.message())) == why.message()) return;
  Log(LogLevel::kWarn, "disk cache cannot be used: going on without",
      {{"directory", directory_->path()}, {"why", why}});
}

void DiskCache::GoWithout(const Status& why) {
  Say(why);
  resumes_at_ = runtime_.Now() + kWithout;
  if (const auto last = std::exchange(current_, nullptr)) {
    const uint64_t size = last->file->Size().value_or(segment_bytes_);  // with what was torn
    const MutexLock lock(mutex_);
    last->end = std::max(last->end, size);
  }
  if (why.code() != ENOSPC && why.code() != EDQUOT) return;
  // A part of the room goes to those who need it more; if that is not enough, another one next
  // time.
  const uint64_t used = counters().used_bytes;
  if (const Status made = MakeRoom(options_.bytes - std::min(options_.bytes, used / 4 * 3));
      !made.ok()) {
    Say(made);
  }
}

Status DiskCache::Open() {
  TRY(directory_->Claim());
  ForgetAll();
  std::vector<uint64_t> numbers;
  for (const std::string& name : TRY(directory_->List())) {
    if (const auto number = NumberOf(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  for (const uint64_t number : numbers) {
    if (IsStopping()) break;
    if (auto segment = Load(NameOf(number))) {
      Adopt(std::move(segment));
    } else {
      TRY(directory_->Remove(NameOf(number)));
    }
  }
  TRY(MakeRoom(0));
  claimed_ = true;
  ready_ = true;
  said_.clear();
  const DiskCacheCounters found = counters();
  Log(LogLevel::kInfo, "disk cache is used",
      {{"directory", directory_->path()}, {"bytes", found.used_bytes}, {"cells", found.cells}});
  idle_->Set();
  return {};
}

// Null: it is none of ours, or nothing of it can be used.
std::shared_ptr<DiskCache::Segment> DiskCache::Load(const std::string& name) {
  const auto load = [&]() -> Result<std::shared_ptr<Segment>> {
    auto segment = std::make_shared<Segment>();
    segment->file = TRY(directory_->Open(name));
    segment->end = TRY(segment->file->Size());
    segment->header = TRY(ReadText(*segment->file, 0, CacheSegmentHeader::kBytes));
    const CacheSegmentHeader header = TRY(CacheSegmentHeader::Decode(segment->header));
    if (header.cluster != options_.cluster) return Fail(EBADMSG, "it is another cluster's");
    if (NameOf(header.number) != name) return Fail(EBADMSG, "it has another name");
    segment->number = header.number;
    segment->slots = header.slots;
    const uint64_t begin = header.CellsBegin();
    if (begin > segment->end) return Fail(EBADMSG, "it ends in its table");
    const std::string table =
        TRY(ReadText(*segment->file, CacheSlot::PositionOf(0), header.slots * CacheSlot::kBytes));
    for (size_t at = 0; at < table.size(); at += CacheSlot::kBytes) {
      const auto slot =
          CacheSlot::Decode(std::string_view(table).substr(at, CacheSlot::kBytes), segment->header);
      if (!slot.has_value()) continue;  // not used, or torn
      if (slot->position < begin || slot->position + slot->bytes > segment->end) continue;
      segment->cells.push_back(*slot);
    }
    return segment;
  };
  auto loaded = load();
  if (!loaded.has_value()) {
    Log(LogLevel::kInfo, "file of the disk cache is of no use: it is removed",
        {{"directory", directory_->path()}, {"file", name}, {"why", loaded.error()}});
    return nullptr;
  }
  return *std::move(loaded);
}

void DiskCache::Adopt(std::shared_ptr<Segment> segment) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < segment->cells.size(); ++i) {
    places_.insert_or_assign(segment->cells[i].key.Hash(), Place{segment, i});
  }
  segments_.push_back(std::move(segment));
}

// The data first: a slot without its cell would only be found out by the checksum.
Status DiskCache::Write(const Cell& cell) {
  CacheSlot slot{.key = cell.key,
                 .bytes = static_cast<uint32_t>(cell.bytes.size()),
                 .position = 0,
                 .crc = Crc32c(cell.bytes)};
  {
    const MutexLock lock(mutex_);
    const auto place = PlaceOf(cell.key, slot.bytes);
    if (place && place->segment->number >= old_before_) return {};
  }
  const auto has_room = [&] {
    const MutexLock lock(mutex_);
    return current_->cells.size() < current_->slots &&
           AlignUp(current_->end) + slot.bytes <= segment_bytes_;
  };
  if (current_ == nullptr || !has_room()) TRY(BeginSegment());
  {
    const MutexLock lock(mutex_);
    slot.position = AlignUp(current_->end);
  }
  // It has no other writer, so the number of its cells is the slot's.
  TRY(current_->file->Write(slot.position, cell.bytes));
  TRY(current_->file->Write(CacheSlot::PositionOf(current_->cells.size()),
                            AsBytes(slot.Encode(current_->header))));
  ++written_;
  if (!said_.empty()) Log(LogLevel::kInfo, "disk cache can be used again");
  said_.clear();
  const MutexLock lock(mutex_);
  current_->end = slot.position + slot.bytes;
  current_->cells.push_back(slot);
  places_.insert_or_assign(cell.key.Hash(), Place{current_, current_->cells.size() - 1});
  return {};
}

Status DiskCache::BeginSegment() {
  current_ = nullptr;
  TRY(MakeRoom(segment_bytes_));
  auto segment = std::make_shared<Segment>();
  CacheSegmentHeader header{.cluster = options_.cluster,
                            .number = 1,
                            .slots = static_cast<uint32_t>(std::min<uint64_t>(
                                segment_bytes_ / kBytesPerSlot, CacheSegmentHeader::kMostSlots))};
  {
    const MutexLock lock(mutex_);
    if (!segments_.empty()) header.number = segments_.back()->number + 1;
  }
  segment->number = header.number;
  segment->slots = header.slots;
  segment->header = header.Encode();
  segment->end = header.CellsBegin();
  const std::string name = NameOf(header.number);
  segment->file = TRY(directory_->Create(name));
  if (const Status written = segment->file->Write(0, AsBytes(segment->header)); !written.ok()) {
    (void)directory_->Remove(name);  // what is wrong is told by what went wrong first
    return written;
  }
  const MutexLock lock(mutex_);
  segments_.push_back(segment);
  current_ = std::move(segment);
  return {};
}

// The oldest go, until so much more fits, and one more file can be open.
Status DiskCache::MakeRoom(uint64_t bytes) {
  for (;;) {
    uint64_t number = 0;
    {
      const MutexLock lock(mutex_);
      const bool full = UsedBytes() + bytes > options_.bytes || segments_.size() >= kMostSegments;
      if (!full || segments_.empty()) {
        old_before_ = segments_.size() < kOldPart || UsedBytes() < options_.bytes / 2
                          ? 0
                          : segments_[segments_.size() / kOldPart]->number;
        return {};
      }
      number = segments_.front()->number;
      evicted_ += segments_.front()->cells.size();
      Drop(segments_.begin());
    }
    TRY(directory_->Remove(NameOf(number)));
  }
}

void DiskCache::ForgetAll() {
  current_ = nullptr;
  const MutexLock lock(mutex_);
  places_.clear();
  segments_.clear();
}

void DiskCache::Drop(std::deque<std::shared_ptr<Segment>>::iterator at) {
  const std::shared_ptr<Segment> segment = *at;
  segments_.erase(at);
  for (const CacheSlot& slot : segment->cells) Forget(slot.key, *segment);
}

// Files that others have removed take their room as long as they are open here.
void DiskCache::LookAtFiles() {
  if (!directory_->IsClaimed()) {
    claimed_ = false;
    ready_ = false;
    ForgetAll();
    return;
  }
  std::deque<std::shared_ptr<Segment>> segments;
  {
    const MutexLock lock(mutex_);
    segments = segments_;
  }
  for (const auto& segment : segments) {
    if (!segment->file->IsRemoved()) continue;
    if (segment == current_) current_ = nullptr;
    const MutexLock lock(mutex_);
    Drop(std::find(segments_.begin(), segments_.end(), segment));
  }
}

}  // namespace pinstripe
