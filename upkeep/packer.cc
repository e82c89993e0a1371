#include "upkeep/packer.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <set>
#include <utility>

#include "base/background_thread.h"
#include "base/checksum.h"
#include "base/try.h"
#include "base/utf8.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr size_t kMostKnown = 10'000;  // packs that were looked at
constexpr size_t kMostNotPacked = 1000;
constexpr size_t kMostPathBytes = 4096;  // that are shown of one
constexpr Duration kLookEvery = std::chrono::milliseconds(200);
constexpr Duration kWaitInVain = std::chrono::minutes(2);

constexpr size_t kMostUnderWay = 4;  // blocks of a pack on their way to the drives

std::string PathIn(const std::string& directory, std::string_view name) {
  return directory + "/" + std::string(name);
}

// How many bytes of a file are in a pack, and the first block that is there. Only what is loaded.
struct InPack {
  uint64_t bytes = 0;
  std::optional<uint64_t> block;
};
InPack FindInPack(const Inode& inode, InodeId keeper) {
  InPack found;
  if (!inode.map) return found;
  for (const BlockMap::Part& part : inode.map->parts()) {
    uint64_t first = part.first;
    for (const BlockRun& run : part.stretch->runs) {
      if (run.shared && run.object == keeper) {
        found.bytes += (run.count - 1) * inode.map->block_bytes() + run.last_valid;
        if (!found.block) found.block = first;
      }
      first += run.count;
    }
  }
  return found;
}

}  // namespace

struct Packer::Batch {
  explicit Batch(const StripeLayout& striped) : layout(striped) {}

  StripeLayout layout;
  InodeId id = 0;  // of the pack
  WriteId write{};
  uint64_t blocks = 0;                   // before the one that is being filled
  uint64_t bytes = 0;                    // of contents
  uint64_t freed = 0;                    // bytes of packs that would go
  std::shared_ptr<StripeBuffer> buffer;  // the block that is being filled
  uint32_t filled = 0;
  std::vector<Candidate> files;
  std::set<InodeId> ids;
  std::set<InodeId> leaves;  // packs of which little is used
  struct Sent {
    uint64_t block = 0;
    uint32_t stored = 0;
    std::unique_ptr<StripeStore::PendingWrite> pending;
  };
  std::deque<Sent> sent;
  std::vector<BlockPlace> places;  // of the blocks that are stored, from the first one on
};

Packer::Packer(Cluster& cluster, Options options)
    : cluster_(cluster),
      options_(std::move(options)),
      layout_(FileLayout::Default(cluster.config())),
      changed_before_(cluster.runtime().WallClock() - options_.older_than.count()),
      records_(cluster) {}

Packer::~Packer() = default;

bool Packer::GoOn() {
  if (options_.progress) options_.progress(report_);
  return options_.go_on == nullptr || options_.go_on();
}

void Packer::NotPacked(const std::string& path, const Status& why) {
  if (report_.not_packed.size() == kMostNotPacked) return;
  report_.not_packed.push_back(
      fmt::format("{}: {}", Printable(path, kMostPathBytes), why.message()));
}

// ---- What is to go into packs

Status Packer::Run(InodeId directory) {
  std::vector<std::pair<InodeId, std::string>> todo = {{directory, ""}};
  std::set<InodeId> seen = {directory};  // an entry that is damaged may lead to one above it
  bool goes_on = true;
  while (!todo.empty() && (goes_on = GoOn())) {
    const auto [id, path] = std::move(todo.back());
    todo.pop_back();
    std::vector<std::pair<InodeId, std::string>> below;
    const Status status = PackDirectory(id, path, below);
    TRY(unusable_);
    if (!status.ok()) NotPacked(path.empty() ? "/" : path, status);
    for (auto at = below.rbegin(); at != below.rend(); ++at) {
      if (seen.insert(at->first).second) todo.push_back(std::move(*at));
    }
  }
  goes_on = goes_on && GoOn();
  for (const auto& batch : batches_) {
    if (batch->files.empty() || !goes_on) continue;
    if (batch->bytes + batch->freed >= options_.least_bytes) {
      TRY(Finish(*batch));
    } else {
      report_.too_few += batch->files.size();
      report_.too_few_bytes += batch->bytes;
    }
  }
  for (const auto& batch : batches_) Discard(*batch);
  if (options_.progress) options_.progress(report_);
  return {};
}

// A failure is the directory's. What fails with a file is noted, and the rest goes on.
Status Packer::PackDirectory(InodeId directory, const std::string& path,
                             std::vector<std::pair<InodeId, std::string>>& below) {
  std::optional<std::string> next = "";
  while (next && GoOn()) {
    Records::Page page = TRY(records_.List(directory, *next, Records::kMostAtOnce));
    next = std::move(page.next);
    std::vector<InodeId> ids;
    std::vector<std::string> names;
    for (Records::ListedEntry& entry : page.entries) {
      if (entry.entry.kind == FileKind::kDirectory) {
        below.emplace_back(entry.entry.inode, PathIn(path, entry.name));
      } else if (entry.entry.kind == FileKind::kRegular) {
        ids.push_back(entry.entry.inode);
        names.push_back(PathIn(path, entry.name));
      }
    }
    auto found = records_.FindInodes(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      Status status;
      if (!found[i].has_value()) {
        status = found[i].error();
      } else if (*found[i]) {
        status = Consider(ids[i], **std::move(found[i]), names[i]);
      }
      TRY(unusable_);
      if (!status.ok()) NotPacked(names[i], status);
    }
  }
  return {};
}

// A file of which nobody knows what it names counts as one that uses its part.
Result<Packer::Known> Packer::LookAtPack(InodeId keeper) {
  if (const auto at = known_.find(keeper); at != known_.end()) return at->second;
  if (known_.size() == kMostKnown) known_.clear();
  const auto stored = TRY(records_.FindInode(keeper));
  Known known;
  if (stored && Keepers::IsPack(keeper, stored->inode)) {
    const std::vector<InodeId>& files = stored->inode.keeping->files;
    const uint64_t size = stored->inode.size;
    for (size_t first = 0; first < files.size(); first += Records::kMostAtOnce) {
      const size_t end = std::min(first + Records::kMostAtOnce, files.size());
      const std::vector<InodeId> some(files.begin() + static_cast<ptrdiff_t>(first),
                                      files.begin() + static_cast<ptrdiff_t>(end));
      for (const auto& file : records_.FindInodes(some)) {
        if (!file.has_value()) known.used_bytes += options_.largest_file;
        if (file.has_value() && *file) known.used_bytes += FindInPack((*file)->inode, keeper).bytes;
      }
    }
    known.unused_bytes = size - std::min(known.used_bytes, size);
    known.is_sparse = known.unused_bytes > known.used_bytes && known.used_bytes > 0;
  }
  known_.emplace(keeper, known);
  return known;
}

Result<std::optional<Packer::Candidate>> Packer::FindSparse(InodeId id, const StoredInode& stored) {
  for (const InodeId keeper : stored.inode.keepers) {
    const auto block = FindInPack(stored.inode, keeper).block;
    if (!block || !TRY(LookAtPack(keeper)).is_sparse) continue;
    const BlockPlace place = *stored.inode.map->Find(*block);
    if (place.valid == 0) continue;
    return std::optional(Candidate{.id = id,
                                   .stored = {},
                                   .path = {},
                                   .block = *block,
                                   .valid = place.valid,
                                   .leaves = keeper});
  }
  return std::optional<Candidate>();
}

// One that is in no pack, and lies in its inode or is kept as copies.
bool Packer::IsToBePacked(const Inode& inode) {
  if (inode.size < options_.smallest_file || inode.size > options_.largest_file) return false;
  const FileLayout& layout = inode.layout ? *inode.layout : layout_;
  // Somebody wants more copies than a pack is worth.
  if (layout.copies > layout.striped.parity_shards + 1) return false;
  if (inode.map) {
    if (inode.map->blocks() != 1 || inode.map->FirstMissing(0, 1)) return false;
    const auto place = inode.map->Find(0);
    if (!place || place->valid == 0 || place->shared) return false;
    // Copies, or pieces beside the inode.
    if (place->layout.data_shards > 1 && place->shift == 0) return false;
  }
  if (inode.changed <= changed_before_) return true;
  ++report_.too_young;
  return false;
}

Status Packer::Consider(InodeId id, StoredInode stored, std::string path) {
  const Inode& inode = stored.inode;
  const bool is_moving = inode.mark || inode.intent;
  if (inode.kind != FileKind::kRegular || is_moving || inode.keeping) return {};
  if (inode.keepers.size() >= kMostKeepersOfFile) return {};
  auto candidate = TRY(FindSparse(id, stored));
  if (!candidate && !IsToBePacked(inode)) return {};
  if (!candidate) {
    const auto valid = inode.map ? inode.map->Find(0)->valid : static_cast<uint32_t>(inode.size);
    candidate = Candidate{.id = id, .stored = {}, .path = {}, .block = 0, .valid = valid};
  }
  candidate->stored = std::move(stored);
  candidate->path = std::move(path);
  const FileLayout& layout =
      candidate->stored.inode.layout ? *candidate->stored.inode.layout : layout_;
  // One that has blocks keeps their size, as somebody may be writing to it.
  Batch& batch =
      BatchOf(candidate->stored.inode.map ? candidate->stored.inode.map->layout() : layout.striped);
  if (batch.ids.contains(id)) return {};  // it has several names
  const Result<Buffer> contents = ReadContents(*candidate);
  if (!contents.has_value()) {
    maps_.Forget();  // a repair may have moved what its pack has
    const auto now = TRY(records_.FindInode(id));
    if (now && now->slot == candidate->stored.slot) return contents.error();
    ++report_.changed;
    return {};
  }
  WaitForRoom();
  candidate->stored.inode.inline_data = {};  // it is in the pack
  return Add(batch, *std::move(candidate), *contents);
}

Result<Buffer> Packer::ReadContents(const Candidate& candidate) {
  const Inode& inode = candidate.stored.inode;
  if (!inode.map) return Buffer::CopyOf(AsBytes(inode.inline_data));
  const BlockPlace place = TRY(maps_.Resolve(*inode.map->Find(candidate.block), candidate.block));
  maps_.ForgetSome();
  Buffer contents(candidate.valid);
  TRY_CONTEXT(ReadBlock(cluster_.stripes(), place, candidate.block, contents.mutable_bytes()),
              "inode {:016x}", candidate.id);
  return contents;
}

void Packer::WaitForRoom() {
  Runtime& runtime = cluster_.runtime();
  const Time until = runtime.Now() + kWaitInVain;
  while (reaper_.CountWaiting() > options_.most_to_free && !has_waited_in_vain_ && GoOn()) {
    runtime.NewSignal()->WaitUntil(runtime.Now() + kLookEvery);
    has_waited_in_vain_ = runtime.Now() >= until;
  }
}

// ---- Filling packs

Packer::Batch& Packer::BatchOf(const StripeLayout& layout) {
  for (const auto& batch : batches_) {
    if (batch->layout == layout) return *batch;
  }
  return *batches_.emplace_back(std::make_unique<Batch>(layout));
}

Status Packer::Add(Batch& batch, Candidate candidate, Bytes contents) {
  const auto size = static_cast<uint32_t>(contents.size());
  if (batch.filled + size > batch.layout.block_bytes()) {
    const Status stored = StoreBlock(batch);
    if (!stored.ok()) Abandon(batch, stored);
    TRY(stored);
  }
  if (!batch.buffer) batch.buffer = std::make_shared<StripeBuffer>(batch.layout);
  const RangeSums::Range sum{.first = batch.filled, .size = size, .crc32c = Crc32c(contents)};
  CopyBytes(batch.buffer->data().subspan(batch.filled), contents);
  batch.buffer->sums().Add({&sum, 1});
  candidate.at = batch.blocks;
  candidate.skip = batch.filled;
  batch.filled += size;
  batch.bytes += size;
  batch.ids.insert(candidate.id);
  if (candidate.leaves != 0) {
    batch.leaves.insert(candidate.leaves);
    const Known& known = known_[candidate.leaves];
    // The whole of it where all that use it are there.
    if (known.used_bytes > 0) batch.freed += known.unused_bytes * size / known.used_bytes;
  }
  batch.files.push_back(std::move(candidate));
  const uint64_t stored = batch.blocks * batch.layout.block_bytes() + batch.filled;
  const bool is_full = batch.files.size() >= options_.most_files ||
                       stored + options_.largest_file > options_.most_bytes;
  return is_full ? Finish(batch) : Status();
}

// Starts to store the block that is being filled; all but the last are stored in full.
Status Packer::StoreBlock(Batch& batch) {
  ZeroBytes(batch.buffer->data().subspan(batch.filled));
  batch.filled = static_cast<uint32_t>(batch.layout.block_bytes());
  return Store(batch);
}

Status Packer::Store(Batch& batch) {
  const std::shared_ptr<StripeBuffer> buffer = std::exchange(batch.buffer, nullptr);
  const uint32_t stored = std::exchange(batch.filled, 0);
  const uint64_t block = batch.blocks++;
  if (options_.dry_run) return {};
  if (batch.id == 0) {
    unusable_ = UseFeature(cluster_, kPacksFeature);
    TRY(unusable_);
    Runtime& runtime = cluster_.runtime();
    batch.id = records_.NewInodeId();
    batch.write = MakeWriteId(SecondsOf(runtime.WallClock()), runtime.Random(), 0);
  }
  batch.sent.push_back({block, stored,
                        cluster_.stripes().StartWrite({batch.id, block, batch.write}, buffer,
                                                      stored, Durability::kWriteThrough)});
  return WaitForStores(batch, kMostUnderWay);
}

Status Packer::WaitForStores(Batch& batch, size_t most_under_way) {
  while (batch.sent.size() > most_under_way) {
    const Batch::Sent sent = std::move(batch.sent.front());
    batch.sent.pop_front();
    StripePlace place = TRY(sent.pending->Wait());
    batch.places.push_back({.object = batch.id,
                            .write = batch.write,
                            .layout = batch.layout,
                            .place = std::move(place),
                            .stored = sent.stored,
                            .valid = sent.stored});
  }
  return {};
}

// The batch is empty then. A failure is that of the cluster; what fails with a pack is noted.
Status Packer::Finish(Batch& batch) {
  if (options_.dry_run) {
    ++report_.packs;
    report_.left_packs += batch.leaves.size();
    report_.files += batch.files.size();
    report_.bytes += batch.bytes;
    report_.repacked += static_cast<uint64_t>(
        std::ranges::count_if(batch.files, [](const Candidate& file) { return file.leaves != 0; }));
  } else if (const Status made = MakePack(batch); !made.ok()) {
    Abandon(batch, made);
  }
  for (const InodeId keeper : batch.leaves) known_.erase(keeper);
  batch = Batch(batch.layout);
  return unusable_;
}

void Packer::Abandon(Batch& batch, const Status& why) {
  for (const Candidate& file : batch.files) NotPacked(file.path, why);
  Discard(batch);
}

// What was stored goes again; what is on its way is removed with it.
void Packer::Discard(Batch& batch) {
  std::vector<BlockMap::Piece> pieces;
  for (uint64_t block = 0; block < batch.places.size(); ++block) {
    std::ranges::move(BlockMap::PiecesOf(block, batch.places[block]), std::back_inserter(pieces));
  }
  reaper_.Add(pieces, batch.layout.block_bytes());
  batch = Batch(batch.layout);
}

Status Packer::MakePack(Batch& batch) {
  const uint64_t size = batch.blocks * batch.layout.block_bytes() + batch.filled;
  TRY(Store(batch));
  TRY(WaitForStores(batch, 0));
  BlockMap map(batch.layout);
  map.Resize(size);
  for (uint64_t block = 0; block < batch.places.size(); ++block) {
    map.Set(block, batch.places[block]);
  }
  std::vector<InodeId> files;
  for (const Candidate& file : batch.files) files.push_back(file.id);
  std::ranges::sort(files);
  const auto pack = keepers_.CreatePack(batch.id, map, size, std::move(files));
  if (!pack.has_value()) {
    // Where nobody knows whether there is one, what was stored is for a collection.
    if (pack.error().code() != EEXIST) batch.places.clear();
    return pack.error();
  }
  ++report_.packs;
  report_.left_packs += batch.leaves.size();
  Change(batch);
  return {};
}

// ---- The inodes

// Has several threads take one file after the other.
void Packer::Change(Batch& batch) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < batch.files.size(); i = next++) ChangeOne(batch.files[i], batch);
  };
  {
    std::deque<BackgroundThread> threads;
    const size_t others = std::min(options_.jobs, batch.files.size()) - 1;
    for (size_t i = 0; i < others; ++i) {
      threads.emplace_back(cluster_.runtime(), "pack", work);
      threads.back().Wake();
    }
    work();
  }
  // Whoever has seen a file in its pack is not to find it elsewhere after a loss of power.
  const Status safe = records_.SyncChanges();
  if (!safe.ok()) NotPacked(fmt::format("inode {:016x}, a pack", batch.id), safe);
  std::vector<Keepers::Leaving> leaving;
  {
    const MutexLock lock(mutex_);
    for (const InodeId file : std::exchange(foiled_, {})) leaving.push_back({file});
  }
  if (leaving.empty()) return;
  const auto left = keepers_.Leave(batch.id, std::move(leaving));
  if (!left.has_value() || !left->failure.ok()) {
    NotPacked(fmt::format("inode {:016x}, a pack", batch.id),
              left.has_value() ? left->failure : left.error());
  }
  if (left.has_value() && left->removed) {
    reaper_.AddRemoved(batch.id, *left->removed, left->losses);
  }
}

void Packer::ChangeOne(Candidate& file, const Batch& batch) {
  const Inode& before = file.stored.inode;
  Inode inode = before;
  if (file.leaves == 0) {
    inode.map.emplace(batch.layout);
    inode.map->Resize(inode.size);
  }
  inode.map->Set(file.block, SharedPlace(batch.id, file.at - file.block, file.valid, file.skip));
  inode.keepers.insert(std::ranges::lower_bound(inode.keepers, batch.id), batch.id);
  uint64_t slot = file.stored.slot;
  if (!options_.fences) {
    const auto now = records_.FindInode(file.id);
    if (now.has_value() && *now) slot = (*now)->slot;
  }
  const auto change =
      records_.ChangeInode(file.id, slot, inode, {Durability::kWriteBack, Room::kFreeing});
  const MutexLock lock(mutex_);
  if (change.applied()) {
    ++report_.files;
    report_.bytes += file.valid;
    report_.repacked += file.leaves != 0 ? 1 : 0;
    reaper_.AddDifference(file.id, before, inode, Durability::kWriteBack, change.losses);
  } else if (change.why.ok()) {
    ++report_.changed;
    foiled_.push_back(file.id);
  } else {
    NotPacked(file.path, change.why);  // whoever takes it out of the list finds out
  }
}

bool Packer::WaitUntilFree(const std::function<void(size_t waiting)>& progress) {
  size_t least = reaper_.CountWaiting();
  Runtime& runtime = cluster_.runtime();
  Time since = runtime.Now();
  for (size_t waiting = least; waiting > 0; waiting = reaper_.CountWaiting()) {
    if (waiting < least) {
      least = waiting;
      since = runtime.Now();
    }
    if (runtime.Now() - since > kWaitInVain) return false;
    if (options_.go_on != nullptr && !options_.go_on()) return false;
    if (progress) progress(waiting);
    runtime.NewSignal()->WaitUntil(runtime.Now() + kLookEvery);
  }
  return reaper_.CountLeft() == 0;
}

}  // namespace pinstripe
