#include "upkeep/packer.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <set>
#include <utility>

#include "base/background_thread.h"
#include "base/try.h"
#include "base/utf8.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "fs/files/map_pages.h"

namespace pinstripe {
namespace {

constexpr size_t kNamesAtOnce = 128;
constexpr size_t kMostKnown = 10'000;  // packs that were looked at
constexpr size_t kMostNotPacked = 1000;
constexpr size_t kMostPathBytes = 4096;  // that are shown of one
constexpr Duration kLookEvery = std::chrono::milliseconds(200);
constexpr Duration kWaitInVain = std::chrono::minutes(2);

std::string PathIn(const std::string& directory, std::string_view name) {
  return directory + "/" + std::string(name);
}

// Where all of a file is, that has one block. Null: it lies in the inode, or is another one.
std::optional<BlockPlace> OnlyPlace(const Inode& inode) {
  if (!inode.map || inode.map->blocks() != 1 || inode.map->FirstMissing(0, 1)) return std::nullopt;
  return inode.map->Find(0);
}

}  // namespace

struct Packer::Batch {
  explicit Batch(const StripeLayout& striped) : layout(striped), map(striped) {}

  StripeLayout layout;
  InodeId id = 0;  // of the pack
  WriteId write{};
  BlockMap map;
  uint64_t blocks = 0;                   // that are full, and on their way
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
  uint64_t size() const { return blocks * layout.block_bytes() + filled; }
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
  while (!todo.empty() && GoOn()) {
    const auto [id, path] = std::move(todo.back());
    todo.pop_back();
    std::vector<std::pair<InodeId, std::string>> below;
    const Status status = PackDirectory(id, path, below);
    if (status.code() == ENOTSUP) return status;
    if (!status.ok()) NotPacked(path.empty() ? "/" : path, status);
    todo.insert(todo.end(), below.rbegin(), below.rend());
  }
  Status last;
  for (const auto& batch : batches_) {
    if (batch->files.empty()) continue;
    const bool is_worth_it = batch->bytes + batch->freed >= options_.least_bytes;
    if (todo.empty() && is_worth_it) {
      const Status status = Finish(*batch);
      if (!status.ok()) last = status;
      continue;
    }
    report_.too_few += batch->files.size();
    report_.too_few_bytes += batch->bytes;
    Drop(*batch);
  }
  if (options_.progress) options_.progress(report_);
  return last;
}

Status Packer::PackDirectory(InodeId directory, const std::string& path,
                             std::vector<std::pair<InodeId, std::string>>& below) {
  std::optional<std::string> next = "";
  while (next && GoOn()) {
    Records::Page page = TRY(records_.List(directory, *next, kNamesAtOnce));
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
      if (status.code() == ENOTSUP) return status;
      if (!status.ok()) NotPacked(names[i], status);
    }
  }
  return {};
}

// Whether a pack is one that is to be left. Null: it is gone.
Result<const Packer::Known*> Packer::LookAtPack(InodeId keeper) {
  if (const auto at = known_.find(keeper); at != known_.end()) return &at->second;
  if (known_.size() == kMostKnown) known_.clear();
  const auto stored = TRY(records_.FindInode(keeper));
  if (!stored) return nullptr;
  Known known{.is_pack = Keepers::IsPack(keeper, stored->inode)};
  if (known.is_pack) {
    uint64_t used = 0;
    for (const auto& file : records_.FindInodes(stored->inode.keeping->files)) {
      if (!file.has_value()) return tl::unexpected(file.error());
      const auto place = *file ? OnlyPlace((*file)->inode) : std::nullopt;
      if (place && place->shared && place->object == keeper) used += place->valid;
    }
    known.unused_bytes = stored->inode.size - std::min(used, stored->inode.size);
    known.is_sparse = known.unused_bytes * 2 > stored->inode.size;
  }
  return &known_.emplace(keeper, known).first->second;
}

Status Packer::Consider(InodeId id, StoredInode stored, std::string path) {
  const Inode& inode = stored.inode;
  const bool is_small = inode.size >= options_.smallest_file && inode.size <= options_.largest_file;
  const bool is_moving = inode.mark || inode.intent;
  if (inode.kind != FileKind::kRegular || !is_small || is_moving || inode.keeping) return {};
  const FileLayout& layout = inode.layout ? *inode.layout : layout_;
  // Somebody wants more copies than a pack is worth.
  if (layout.copies > layout.striped.parity_shards + 1) return {};
  const Known* pack = nullptr;
  InodeId keeper = 0;
  if (inode.map) {
    const auto place = OnlyPlace(inode);
    if (!place) return {};
    if (place->shared) {
      keeper = place->object;
      pack = TRY(LookAtPack(keeper));
      if (pack == nullptr || !pack->is_sparse) return {};
    } else if (place->layout.data_shards > 1) {
      return {};  // it is coded by itself
    }
  }
  if (inode.keepers.size() >= kMostKeepersOfFile) return {};
  if (!pack && inode.changed > changed_before_) {
    ++report_.too_young;
    return {};
  }
  Batch& batch = BatchOf(layout.striped);
  if (!batch.ids.insert(id).second) return {};  // it has several names
  if (pack && batch.leaves.insert(keeper).second) batch.freed += pack->unused_bytes;
  const Buffer contents = TRY(ReadContents(id, inode));
  Candidate candidate{.id = id, .stored = std::move(stored), .path = std::move(path)};
  candidate.is_repacked = pack != nullptr;
  candidate.stored.inode.inline_data = {};  // it is in the pack
  return Add(batch, std::move(candidate), contents);
}

Result<Buffer> Packer::ReadContents(InodeId id, const Inode& inode) {
  if (!inode.map) return Buffer::CopyOf(AsBytes(inode.inline_data));
  Buffer contents(inode.size);
  ZeroBytes(contents.mutable_bytes());
  const BlockPlace place = TRY(maps_.Resolve(*OnlyPlace(inode), 0));
  maps_.ForgetSome();
  const MutableBytes valid =
      contents.mutable_bytes().first(std::min<uint64_t>(place.valid, inode.size));
  TRY_CONTEXT(ReadBlock(cluster_.stripes(), place, 0, valid), "inode {:016x}", id);
  return contents;
}

// ---- Filling packs

Packer::Batch& Packer::BatchOf(const StripeLayout& layout) {
  for (const auto& batch : batches_) {
    if (batch->layout == layout) return *batch;
  }
  return *batches_.emplace_back(std::make_unique<Batch>(layout));
}

Status Packer::Add(Batch& batch, Candidate candidate, Bytes contents) {
  const uint64_t block_bytes = batch.layout.block_bytes();
  const auto size = static_cast<uint32_t>(contents.size());
  if (batch.filled + size > block_bytes) TRY(StoreBlock(batch));
  if (!batch.buffer) batch.buffer = std::make_shared<StripeBuffer>(batch.layout);
  CopyBytes(batch.buffer->data().subspan(batch.filled), contents);
  candidate.block = batch.blocks;
  candidate.skip = batch.filled;
  batch.filled += size;
  batch.bytes += size;
  batch.files.push_back(std::move(candidate));
  const bool is_full = batch.files.size() == kMostFilesOfKeeper ||
                       batch.size() + options_.largest_file > options_.most_bytes;
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
    Runtime& runtime = cluster_.runtime();
    batch.id = records_.NewInodeId();
    batch.write = MakeWriteId(SecondsOf(runtime.WallClock()), runtime.Random(), 0);
  }
  batch.sent.push_back({block, stored,
                        cluster_.stripes().StartWrite({batch.id, block, batch.write}, buffer,
                                                      stored, Durability::kWriteThrough)});
  return {};
}

// What was stored goes again.
void Packer::Drop(Batch& batch) {
  std::vector<BlockMap::Piece> pieces;
  for (uint64_t block = 0; block < batch.map.blocks(); ++block) {
    if (const auto place = batch.map.Find(block)) {
      const auto of_block = BlockMap::PiecesOf(block, *place);
      pieces.insert(pieces.end(), of_block.begin(), of_block.end());
    }
  }
  reaper_.Add(pieces, batch.layout.block_bytes());
  batch = Batch(batch.layout);  // what is on its way is removed by that
}

Status Packer::Finish(Batch& batch) {
  const auto count = [&] {
    ++report_.packs;
    report_.left_packs += batch.leaves.size();
  };
  if (options_.dry_run) {
    count();
    report_.files += batch.files.size();
    report_.bytes += batch.bytes;
    report_.repacked += static_cast<uint64_t>(
        std::ranges::count_if(batch.files, [](const Candidate& file) { return file.is_repacked; }));
    batch = Batch(batch.layout);
    return {};
  }
  const auto make = [&]() -> Status {
    if (!uses_packs_) {
      TRY(UseFeature(cluster_, kPacksFeature));
      uses_packs_ = true;
    }
    const uint64_t size = batch.size();
    TRY(Store(batch));
    batch.map.Resize(size);
    for (Batch::Sent& sent : batch.sent) {
      StripePlace place = TRY(sent.pending->Wait());
      batch.map.Set(sent.block, {.object = batch.id,
                                 .write = batch.write,
                                 .layout = batch.layout,
                                 .place = std::move(place),
                                 .stored = sent.stored,
                                 .valid = sent.stored});
    }
    batch.sent.clear();
    const StoredInode pack =
        TRY(keepers_.CreatePack(batch.id, batch.map, size, {batch.ids.begin(), batch.ids.end()}));
    count();
    Change(batch, pack.inode);
    return {};
  };
  const Status made = make();
  if (!made.ok()) {
    // Whether there is a pack by now may not be known. If there is not, all of it is collected.
    for (const Candidate& file : batch.files) NotPacked(file.path, made);
  }
  for (const InodeId keeper : batch.leaves) known_.erase(keeper);
  batch = Batch(batch.layout);
  return made.code() == ENOTSUP ? made : Status();
}

// ---- The inodes

// Has several threads take one file after the other.
void Packer::Change(Batch& batch, const Inode& pack) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < batch.files.size(); i = next++) {
      Candidate& file = batch.files[i];
      const auto size = static_cast<uint32_t>(file.stored.inode.size);
      BlockMap map(batch.layout);
      map.Resize(size);
      map.Set(0, SharedPlace(batch.id, file.block, size, file.skip));
      file.stored.inode.keepers.insert(
          std::ranges::lower_bound(file.stored.inode.keepers, batch.id), batch.id);
      ChangeOne(file, map);
    }
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
  std::vector<Keepers::Leaving> leaving;
  {
    const MutexLock lock(mutex_);
    for (const InodeId file : std::exchange(foiled_, {})) leaving.push_back({file});
  }
  if (leaving.empty()) return;
  const auto left = keepers_.Leave(batch.id, std::move(leaving));
  if (!left.has_value()) {
    NotPacked(fmt::format("inode {:016x}, a pack", batch.id), left.error());
  } else if (left->removed) {
    reaper_.AddRemoved(batch.id, pack, left->losses);
  }
}

void Packer::ChangeOne(Candidate& file, const BlockMap& map) {
  const Inode before = file.stored.inode;
  Inode& inode = file.stored.inode;
  inode.map = map;
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
    report_.bytes += inode.size;
    report_.repacked += file.is_repacked ? 1 : 0;
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
