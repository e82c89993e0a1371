#include "upkeep/recovery.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/try.h"
#include "fs/files/beside_number.h"
#include "fs/files/keepers.h"
#include "fs/files/map_pages.h"
#include "fs/names/names.h"
#include "upkeep/checker.h"
#include "upkeep/lost_inodes.h"

namespace pinstripe {
namespace {

constexpr uint32_t kModeOfFile = 0600;
constexpr uint32_t kModeOfDirectory = 0700;

// One write of a block, or a small overwrite of it.
struct FoundWrite {
  StripeId id;
  StripeStore::Form form;
};

class Recovery {
 public:
  Recovery(Cluster& cluster, FileSystem& fs, InodeId id, std::string_view path,
           const RecoverProgress& progress)
      : cluster_(cluster),
        fs_(fs),
        id_(id),
        path_(path),
        progress_(progress),
        records_(cluster),
        names_(records_, [](InodeId, const Inode&, uint64_t) {}) {}

  Result<RecoverReport> Run() {
    const FileSystem::Place place = TRY_CONTEXT(fs_.ResolveParent(path_), "{}", path_);
    TRY(CheckFree(place));
    TRY(FindLost());
    report_.had_copy = lost_.copy.has_value();
    if (lost_.IsDirectory()) {
      TRY(MakeDirectory(place));
    } else if (lost_.copy && lost_.copy->kind == FileKind::kSymlink) {
      TRY(fs_.MakeSymlink(place.directory, place.name, lost_.copy->symlink, lost_.copy->owner));
    } else if (lost_.copy && lost_.copy->kind != FileKind::kRegular) {
      return Fail(EINVAL, "inode {:016x} was a fifo, a socket or a device: make a new one", id_);
    } else {
      TRY(MakeFile(place));
    }
    return std::move(report_);
  }

 private:
  // Or that it is the name of what is to be brought back.
  Status CheckFree(const FileSystem::Place& place) {
    const StoredEntry there = TRY(records_.FindEntry(place.directory, place.name));
    if (!there.entry || there.entry->inode == id_) return {};
    if (!TRY(records_.FindInode(there.entry->inode))) {
      return Fail(EEXIST, "{}: it is the name of another inode, {:016x}, which is gone", path_,
                  there.entry->inode);
    }
    return Fail(EEXIST, "{}: it is there already, and is not overwritten", path_);
  }

  Status FindLost() {
    Checker checker(cluster_, {.data = false, .progress = progress_});
    checker.Run();
    has_grown_ = checker.growth().SeemsGrown(id_);
    const auto undecided = checker.undecided_inodes().find(id_);
    if (undecided != checker.undecided_inodes().end()) return undecided->second;
    const auto lost = checker.lost_inodes().find(id_);
    if (lost != checker.lost_inodes().end()) {
      lost_ = lost->second;
      for (const EntryFact& name : lost_.names) paths_.push_back(checker.Path(name));
      return {};
    }
    const InodeFound found = TRY(FindFates(records_, {&id_, 1}).front());
    switch (found.fate) {
      case InodeFate::kThere:
        return Fail(EEXIST, "inode {:016x} is not lost: it is {}", id_, checker.Path(id_));
      case InodeFate::kRemoved: return Fail(ENOENT, "inode {:016x} was removed", id_);
      case InodeFate::kNoTrace:
      case InodeFate::kBegun:
      case InodeFate::kGivenUp:
      case InodeFate::kLost: break;
    }
    lost_.id = id_;
    lost_.copy = found.copy;
    return {};
  }

  // ---- A directory

  Status MakeDirectory(const FileSystem::Place& place) {
    report_.is_directory = true;
    report_.entries = lost_.contents.size();
    const auto has_name = [&](const EntryFact& name) {
      return name.directory == place.directory && name.name == place.name;
    };
    const bool is_named = std::ranges::any_of(lost_.names, has_name);
    if (!lost_.names.empty() && !is_named) {
      return Fail(EINVAL, "directory {:016x} has its name still: bring it back as {}, then move it",
                  id_, paths_.front());
    }
    const int64_t now = records_.WallClock();
    Inode inode;
    if (lost_.copy) {
      inode = *lost_.copy;
      inode.mark.reset();
      inode.intent.reset();
    } else {
      inode.kind = FileKind::kDirectory;
      inode.mode = kModeOfDirectory;
      inode.owner = TRY(OwnerOf(place.directory));
      inode.accessed = inode.modified = now;
    }
    const bool may_hide = MayHideNames(inode.parts);
    if (may_hide) {
      inode.parts = {.bits = BitsFor(cluster_.map()), .stage = DirectoryParts::Stage::kMoving};
      TRY(ShowMoved());
    }
    inode.links = 1;  // nobody has counted its subdirectories
    inode.parent = place.directory;
    inode.named = GivenName{place.directory, place.name};
    inode.changed = now;
    const auto made = records_.ChangeInode(id_, 0, inode, Durability::kWriteThrough);
    TRY(made.why);
    if (!made.applied()) return Fail(EEXIST, "inode {:016x} has come back meanwhile", id_);
    if (!is_named && !TRY(names_.Reattach(id_, *inode.named))) {
      return Fail(EEXIST, "{}: others were at it meanwhile; `pinstripe repair` gives it a name",
                  path_);
    }
    return {};
  }

  // The copy may be from before the directory had grown, or had grown so far. What was moved by
  // then is not looked for in its part.
  bool MayHideNames(const DirectoryParts& parts) const {
    if (parts.bits != 0 && parts.stage != DirectoryParts::Stage::kMoving) return false;
    return has_grown_;
  }
  bool IsInPart(const EntryFact& entry) const { return entry.group != cluster_.GroupOfObject(id_); }
  // Says so of all these where they were, as if it had not ended: a collection ends it.
  Status ShowMoved() {
    for (const EntryFact& entry : lost_.contents) {
      if (IsInPart(entry)) TRY(records_.places().MarkMoved(id_, entry.name));
    }
    return {};
  }

  Result<Owner> OwnerOf(InodeId directory) {
    const auto stored = TRY(records_.FindInode(directory));
    return stored ? stored->inode.owner : Owner{};
  }

  // ---- A file

  Status MakeFile(const FileSystem::Place& place) {
    TRY(FindWrites());
    const std::optional<Inode>& copy = lost_.copy;
    const bool has_contents = copy && (copy->size == 0 || !copy->inline_data.empty());
    if (writes_.empty() && !has_contents && !(copy && copy->map)) {
      return Fail(ENOENT, "nothing is left of inode {:016x}", id_);
    }
    FileSystem::CreateOptions options{
        .mode = kModeOfFile, .exclusive = true, .publish_at_commit = true};
    options.owner = TRY(OwnerOf(place.directory));
    if (copy) {
      options.mode = copy->mode;
      options.owner = copy->owner;
    }
    TRY(ClearOwnName(place));
    file_ = TRY_CONTEXT(fs_.Create(place.directory, place.name, options), "{}", path_);
    TRY(WriteShared());
    if (writes_.empty() && copy) {
      TRY(file_->Write(0, AsBytes(copy->inline_data)));
      report_.bytes = copy->inline_data.size();
      if (copy->map) TRY(SetSize(copy->size));
    } else {
      TRY(WriteBlocks());
    }
    NoteWhatIsLacking();
    if (copy) TRY(file_->SetAttributes({.accessed = copy->accessed, .modified = copy->modified}));
    return file_->Close();
  }

  // What it has still, if that is where it is to be brought back: the new file has another inode.
  // By its number it is found without a name, too.
  Status ClearOwnName(const FileSystem::Place& place) {
    const StoredEntry there = TRY(records_.FindEntry(place.directory, place.name));
    if (!there.entry || there.entry->inode != id_) return {};
    return records_.ChangeEntry(place.directory, place.name, there.slot, std::nullopt).why;
  }

  // All that is listed of it, but for pages of its block map.
  Status FindWrites() {
    std::map<DriveId, Drive*> drives;
    for (const MappedDrive& drive : cluster_.map().drives) {
      if (Drive* found = cluster_.FindDrive(drive.id)) drives.emplace(drive.id, found);
    }
    StripeListing listing(cluster_.runtime(), drives, ClusterPrefix(cluster_.config().name),
                          cluster_.config().drive_timeout, id_);
    for (;;) {
      const std::vector<ListedStripe> page = listing.Next();
      if (page.empty()) break;
      for (const ListedStripe& stripe : page) TRY(Take(stripe));
    }
    for (const auto& [drive, why] : listing.unlisted()) {
      report_.lost.push_back(
          fmt::format("what drive {} has of it was not looked at: {}", drive, why.message()));
    }
    return {};
  }

  Status Take(const ListedStripe& stripe) {
    if (PageNumber::Is(stripe.id.block)) return {};
    if (progress_) progress_("looking at shards", 0);
    const auto form = TRY(cluster_.stripes().Describe(stripe.id, stripe.copies));
    if (form && form->length > 0) {
      writes_[BlockOfNumber(stripe.id.block)].push_back({stripe.id, *form});
    } else {
      report_.lost.push_back(fmt::format("block {}: no shard of one of its writes says what it is",
                                         BlockOfNumber(stripe.id.block)));
    }
    return {};
  }

  // What a keeper keeps for it, by a copy of its inode: a file in a pack has nothing else.
  Status WriteShared() {
    if (!lost_.copy || !lost_.copy->map) return {};
    const uint64_t block_bytes = lost_.copy->map->block_bytes();
    KeeperMaps keepers(cluster_, records_);
    for (const BlockMap::Part& part : lost_.copy->map->parts()) {
      uint64_t first = part.first;
      for (const BlockRun& run : part.stretch->runs) {
        for (uint64_t i = 0; i < run.count && run.shared; ++i) {
          const uint64_t block = first + i;
          const auto place = keepers.Resolve(PlaceInRun(run, i, block_bytes), block);
          if (!place.has_value() || writes_.contains(block)) continue;
          Buffer bytes(place->valid);
          if (!ReadBlock(cluster_.stripes(), *place, block, bytes.mutable_bytes()).ok()) continue;
          TRY(file_->Write(block * block_bytes, bytes));
          shared_.insert(block);
          ++report_.blocks;
          keepers.ForgetPages();
        }
        first += run.count;
      }
    }
    return {};
  }

  Status WriteBlocks() {
    std::vector<StripeStore::Form> forms;
    for (auto& [block, writes] : writes_) {
      SortOut(writes);
      for (const FoundWrite& write : writes) forms.push_back(write.form);
    }
    const std::optional<Inode>& copy = lost_.copy;
    uint64_t block_bytes = GuessBlockBytes(cluster_.config().layout, forms);
    if (copy && copy->map) block_bytes = copy->map->block_bytes();
    uint64_t end = 0;
    uint64_t number = 0;
    for (const auto& [block, writes] : writes_) {
      if (progress_) {
        progress_("bringing back blocks",
                  static_cast<double>(number++) / static_cast<double>(writes_.size()));
      }
      if (block >= kMaxFileBytes / block_bytes) {
        report_.lost.push_back(fmt::format("block {}: no file is that large", block));
        continue;
      }
      const auto bytes = ReadNewest(block, writes);
      const uint64_t first = block * block_bytes;
      const bool is_longer = !bytes && HasGaps(writes.front().id.write);
      const uint64_t length = bytes ? bytes->size() : writes.front().form.length;
      end = std::max(end, first + (is_longer ? block_bytes : std::min(length, block_bytes)));
      if (!bytes) continue;
      TRY(file_->Write(first, AsBytes(*bytes).first(std::min(length, block_bytes))));
      ++report_.blocks;
    }
    // A copy knows of holes at the end, and where the last block ends. But it may be older than the
    // last blocks.
    if (copy && (copy->size + block_bytes - 1) / block_bytes > writes_.rbegin()->first) {
      end = copy->size;
    }
    return SetSize(end);
  }

  Status SetSize(uint64_t size) {
    report_.bytes = size;
    return file_->Truncate(size);
  }

  // Newest first; small overwrites are put aside.
  void SortOut(std::vector<FoundWrite>& writes) {
    std::ranges::stable_sort(writes, std::greater(), [](const FoundWrite& write) {
      return std::pair(TimeOf(write.id.write), WithoutGaps(write.id.write));
    });
    // They are copies, each of a sixteenth of the block at most.
    const auto largest = std::ranges::max_element(
        writes, {}, [](const FoundWrite& write) { return write.form.length; });
    // Contents beside the inode have none.
    const bool is_coded = std::ranges::any_of(writes, [](const FoundWrite& write) {
      return write.form.layout.data_shards > 1 && !IsBeside(write.id.block);
    });
    const auto is_patch = [&, longest = largest->form.length](const FoundWrite& write) {
      if (write.form.layout.data_shards > 1 || HasGaps(write.id.write)) return false;
      return is_coded || write.form.length * kPartOfPatch <= longest;
    };
    const auto patches = std::stable_partition(writes.begin(), writes.end(),
                                               [&](const auto& write) { return !is_patch(write); });
    for (auto patch = patches; patch != writes.end(); ++patch) {
      patches_.emplace(std::pair(patch->id.block, patch->id.write), *patch);
    }
    writes.erase(patches, writes.end());
  }

  std::optional<std::string> ReadNewest(uint64_t block, const std::vector<FoundWrite>& writes) {
    Status why;
    for (const FoundWrite& write : writes) {
      auto bytes = ReadWhole(block, write);
      if (bytes.has_value()) {
        if (!why.ok()) {
          report_.lost.push_back(
              fmt::format("block {}: an older write of it was taken, as a newer "
                          "one cannot be read: {}",
                          block, why.message()));
        }
        LayPatches(block, write, *bytes);
        return *std::move(bytes);
      }
      if (why.ok()) why = bytes.error();
    }
    report_.lost.push_back(
        fmt::format("block {}: it cannot be read, and is zeros now: {}", block, why.message()));
    return std::nullopt;
  }

  Result<std::string> Read(const FoundWrite& write) {
    std::string bytes(write.form.length, '\0');
    TRY(cluster_.stripes().Read({.id = write.id,
                                 .layout = write.form.layout,
                                 .length = write.form.length,
                                 .place = &write.form.place,
                                 .offset = 0,
                                 .out = std::as_writable_bytes(std::span(bytes))}));
    return bytes;
  }

  // What a stripe has left out of its block is put back.
  Result<std::string> ReadWhole(uint64_t block, const FoundWrite& write) {
    std::string bytes = TRY(Read(write));
    if (!HasGaps(write.id.write)) return bytes;
    const std::optional<BlockPlace> place = PlaceInCopy(block);
    if (!place || place->write != write.id.write) {
      return Fail(EIO, "it had holes, and nothing says where");
    }
    for (const BlockExtent& gap : place->gaps) {
      if (gap.first <= bytes.size()) bytes.insert(gap.first, gap.length, '\0');
    }
    return bytes;
  }

  // Where they belong only a block map says.
  void LayPatches(uint64_t block, const FoundWrite& write, std::string& bytes) {
    const std::optional<BlockPlace> place = PlaceInCopy(block);
    if (!place || place->write != write.id.write) return;
    for (const BlockPatch& patch : place->patches) {
      const auto found = patches_.find({block, patch.write});
      if (found == patches_.end()) continue;
      const auto record = Read(found->second);
      if (!record.has_value()) continue;
      patches_.erase(found);
      size_t at = 0;
      for (const BlockPatch::Extent& extent : patch.extents) {
        if (extent.end() > bytes.size() || at + extent.length > record->size()) break;
        std::copy_n(record->begin() + static_cast<ptrdiff_t>(at), extent.length,
                    bytes.begin() + extent.first);
        at += extent.length;
      }
    }
  }

  // As far as the copy of the inode says so by itself.
  std::optional<BlockPlace> PlaceInCopy(uint64_t block) const {
    if (!lost_.copy || !lost_.copy->map) return std::nullopt;
    const BlockMap::Part* part = lost_.copy->map->PartOf(block);
    if (part == nullptr || !part->stretch->loaded()) return std::nullopt;
    return lost_.copy->map->Find(block);
  }

  void NoteWhatIsLacking() {
    std::map<uint64_t, uint64_t> overwrites;
    for (const auto& [name, patch] : patches_) ++overwrites[name.first];
    for (const auto& [block, count] : overwrites) {
      report_.lost.push_back(fmt::format(
          "block {}: {} small overwrites of it are left out, as nothing says where they belong",
          block, count));
    }
    if (!lost_.copy || !lost_.copy->map) return;
    for (const BlockMap::Part& part : lost_.copy->map->parts()) {
      uint64_t first = part.first;
      for (const BlockRun& run : part.stretch->runs) {
        uint64_t lacking = 0;
        for (uint64_t i = 0; i < run.count && !run.hole && lacking < kMostToldOfRun; ++i) {
          if (writes_.contains(first + i) || shared_.contains(first + i)) continue;
          ++lacking;
          report_.lost.push_back(fmt::format("block {}: nothing is left of it{}; it is zeros now",
                                             first + i, run.shared ? " here" : ""));
        }
        first += run.count;
      }
    }
  }

  static constexpr uint64_t kPartOfPatch = 16;
  static constexpr uint64_t kMostToldOfRun = 100;

  Cluster& cluster_;
  FileSystem& fs_;
  const InodeId id_;
  const std::string path_;
  const RecoverProgress& progress_;
  Records records_;
  bool has_grown_ = false;  // entries say so of a directory
  Names names_;
  LostInode lost_;
  std::vector<std::string> paths_;                              // of its names
  std::map<uint64_t, std::vector<FoundWrite>> writes_;          // by block
  std::map<std::pair<uint64_t, WriteId>, FoundWrite> patches_;  // by block and write
  std::set<uint64_t> shared_;  // blocks that were found with their keepers
  std::unique_ptr<OpenFile> file_;
  RecoverReport report_;
};

}  // namespace

Result<RecoverReport> RecoverInode(Cluster& cluster, FileSystem& fs, InodeId id,
                                   std::string_view path, const RecoverProgress& progress) {
  return Recovery(cluster, fs, id, path, progress).Run();
}

}  // namespace pinstripe
