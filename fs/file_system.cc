// The facade: looks whether a request may be made, and hands it to names/ or files/. An open file
// is a Handle (handle.h).

#include "fs/file_system.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/attempts.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/send_together.h"
#include "base/try.h"
#include "fs/files/sums.h"
#include "fs/handle.h"
#include "fs/names/extended.h"
#include "fs/names/names.h"
#include "fs/names/path.h"
#include "fs/names/path_walk.h"
#include "fs/open_files.h"
#include "fs/pending_files.h"

namespace pinstripe {
namespace {

constexpr uint32_t kSetGroup = 02000;  // of a mode

Status CheckDirectory(InodeId id, const Inode& inode) {
  if (inode.kind == FileKind::kDirectory) return {};
  return Fail(ENOTDIR, "inode {:016x} is not a directory", id);
}

Status CheckSettable(std::string_view name) {
  if (name != kWhyAttribute) return {};
  return Fail(EPERM, "'{}' tells on which drives a file is, and cannot be changed", name);
}

class ClusterFileSystem final : public FileSystem {
 public:
  ClusterFileSystem(Cluster& cluster, const Options& options, std::vector<std::string> exported)
      : cluster_(cluster),
        memory_by_(options.memory_by),
        exported_(std::move(exported)),
        files_(cluster, options) {
    records().listed().Keep(options.listed_age);
  }

  Result<Attributes> Lookup(InodeId directory, std::string_view name) override {
    TRY(CheckName(name));
    if (const auto file = files_.Find(pending_.Find(directory, name))) return file->Describe({});
    const Names::Place place = TRY(names().LookUp(directory, name));
    return Describe(place.id, Counted(place.id, place.inode));
  }

  Result<Attributes> GetAttributes(InodeId inode, Duration age) override {
    if (const auto file = FindToAppear(inode)) return file->Stat(age);
    if (const auto recent = records().FindRecent(inode, age)) {
      return Describe(inode, Counted(inode, *recent));
    }
    const auto stored = names().Load(inode);
    if (stored.has_value()) return Describe(inode, Counted(inode, *stored));
    // Without a name, but still open.
    if (stored.error().code() != ENOENT) return tl::unexpected(stored.error());
    if (const auto file = files_.Find(inode)) return file->Stat({});
    if (const auto directory = files_.DescribeRemoved(inode)) return *directory;
    return tl::unexpected(stored.error());
  }

  Result<Attributes> SetAttributes(InodeId inode, const AttributeChange& change) override {
    if (change.size) {
      Use file(files_, inode);
      TRY(file->Refresh());
      TRY(file->Truncate(*change.size));
      TRY(file->IsToAppear() ? pending_.SettleFile(inode) : file->Commit(false));
    }
    AttributeChange rest = change;
    rest.size.reset();
    if (const auto file = files_.Find(inode)) {
      TRY(file->SetAttributes(rest));
      if (file->HasSetLater()) return file->Describe({});
      return GetAttributes(inode, {});
    }
    const int64_t now = records().WallClock();
    const auto stored = names().Update(inode, [&](Inode& it) {
      it.Apply(rest, now);
      return Status();
    });
    if (stored.has_value()) return Describe(inode, Counted(inode, *stored));
    if (stored.error().code() == ENOENT) {
      const auto removed = files_.DescribeRemoved(inode, [&](Inode& it) { it.Apply(rest, now); });
      if (removed) return *removed;
    }
    return tl::unexpected(stored.error());
  }

  Result<FileSums> Checksums(InodeId inode) override {
    const auto file = files_.Find(inode);
    if (file && file->HasChanges()) {
      return Fail(EBUSY, "inode {:016x} is being written", inode);
    }
    KeeperMaps keepers(cluster_, records());
    return SumUpFile(cluster_.stripes(), keepers, inode, TRY(names().Load(inode)).inode,
                     files_.context().reserve);
  }

  Result<std::string> GetExtended(InodeId inode, std::string_view name, Duration age) override {
    TRY(CheckExtendedName(name));
    // The kernel asks for this one before each write.
    if (name == kCapability) {
      const auto file = files_.Find(inode);
      if (file && file->HasSeen()) return pinstripe::GetExtended(file->Known().attributes, name);
    }
    if (name == kWhyAttribute) {
      TRY(pending_.SettleFile(inode));
      return Why(inode);
    }
    if (age > Duration::zero() && ListedInodes::Has(name)) {
      if (const auto listed = records().listed().Find(inode)) {
        return pinstripe::GetExtended(*listed, name);
      }
    }
    const Inode about = TRY(LoadEvenWithoutName(inode, age));
    if (name == kLayoutAttribute) return GetLayout(about, cluster_.config());
    return pinstripe::GetExtended(about.attributes, name);
  }

  Status SetExtended(InodeId inode, std::string_view name, std::string_view value,
                     ExtendedMode mode, SetGroupBit set_group) override {
    TRY(CheckExtendedName(name));
    TRY(CheckSettable(name));
    if (name == kLayoutAttribute) TRY(pending_.SettleFile(inode));
    const auto set = [&](Inode& it) -> Status {
      if (name == kLayoutAttribute) return SetLayout(it, value, mode, cluster_.config());
      TRY(pinstripe::SetExtended(inode, it, name, value, mode));
      if (set_group == SetGroupBit::kGoes) it.mode &= ~kSetGroup;
      return Status();
    };
    return Edit(inode, set, Room::kData);
  }

  Status RemoveExtended(InodeId inode, std::string_view name) override {
    TRY(CheckExtendedName(name));
    TRY(CheckSettable(name));
    if (name == kLayoutAttribute) TRY(pending_.SettleFile(inode));
    return Edit(inode, [&](Inode& it) {
      if (name == kLayoutAttribute) return RemoveLayout(it);
      return pinstripe::RemoveExtended(inode, it, name);
    });
  }

  Result<std::vector<std::string>> ListExtended(InodeId inode) override {
    return pinstripe::ListExtended(TRY(LoadEvenWithoutName(inode, {})));
  }

  Result<Attributes> MakeDirectory(InodeId directory, std::string_view name, uint32_t mode,
                                   Owner owner, uint32_t umask) override {
    TRY(CheckName(name));
    return Make(directory, name, NewDirectory(directory, mode, owner), umask);
  }

  Result<Attributes> MakeSymlink(InodeId directory, std::string_view name, std::string_view target,
                                 Owner owner) override {
    TRY(CheckName(name));
    TRY(CheckSymlinkTarget(target));
    Inode inode = NewInode(FileKind::kSymlink, 0777, owner);
    inode.symlink = target;
    return Make(directory, name, inode, 0);
  }

  Result<Attributes> MakeNode(InodeId directory, std::string_view name, FileKind kind,
                              uint32_t mode, Owner owner, DeviceNumber device,
                              uint32_t umask) override {
    TRY(CheckName(name));
    if (kind == FileKind::kDirectory || kind == FileKind::kSymlink) {
      return Fail(EINVAL, "'{}': directories and symbolic links are made in other ways", name);
    }
    Inode inode = NewInode(kind, mode, owner);
    if (kind == FileKind::kCharacterDevice || kind == FileKind::kBlockDevice) inode.device = device;
    return Make(directory, name, inode, umask);
  }

  Result<std::string> ReadSymlink(InodeId inode) override {
    const StoredInode stored = TRY(names().Load(inode));
    if (stored.inode.kind == FileKind::kSymlink) return stored.inode.symlink;
    return Fail(EINVAL, "inode {:016x} is not a symbolic link", inode);
  }

  Result<Attributes> Link(InodeId inode, InodeId directory, std::string_view name) override {
    TRY(CheckName(name));
    if (pending_.Find(directory, name) != 0) return Exists(directory, name);
    if (Use file = Use::IfOpen(files_, inode); file && file->IsNameless()) {
      TRY(file->GiveFirstName({directory, std::string(name), /*exclusive=*/true, std::nullopt}));
      names().Forget(directory, name);
      return file->Known().Describe(inode);
    }
    TRY(pending_.SettleFile(inode));
    return Describe(inode, TRY(names().Link(inode, directory, name)));
  }

  Status Unlink(InodeId directory, std::string_view name) override {
    TRY(CheckName(name));
    if (!TRY(pending_.Drop(directory, name))) return names().Unlink(directory, name);
    NoteDropped(directory);
    return {};
  }

  Status RemoveDirectory(InodeId directory, std::string_view name) override {
    TRY(CheckName(name));
    if (pending_.Find(directory, name) != 0) {
      return Fail(ENOTDIR, "'{}' in directory {:016x} is not a directory", name, directory);
    }
    TRY(SettleBelow(directory, name));
    return names().RemoveDirectory(directory, name);
  }

  Status Rename(InodeId directory, std::string_view name, InodeId new_directory,
                std::string_view new_name, bool no_replace) override {
    TRY(CheckName(name));
    TRY(CheckName(new_name));
    TRY(pending_.Settle(directory, name));
    TRY(pending_.Settle(new_directory, new_name));
    TRY(SettleBelow(new_directory, new_name));
    const Status renamed = names().Rename(directory, name, new_directory, new_name, no_replace);
    names().Forget(new_directory, new_name);
    return renamed;
  }

  Status Exchange(InodeId directory, std::string_view name, InodeId other_directory,
                  std::string_view other_name) override {
    TRY(CheckName(name));
    TRY(CheckName(other_name));
    TRY(pending_.Settle(directory, name));
    TRY(pending_.Settle(other_directory, other_name));
    return names().Exchange(directory, name, other_directory, other_name);
  }

  Result<std::unique_ptr<OpenFile>> Create(InodeId directory, std::string_view name,
                                           const CreateOptions& options) override {
    TRY(CheckName(name));
    for (Attempts attempts; attempts.Next();) {
      const InodeId pending = pending_.Find(directory, name);
      if (pending == 0) {
        return CreateAt(directory, name, options,
                        TRY(names().Recall(directory, name, Names::IsFree)));
      }
      if (options.exclusive) return Exists(directory, name);
      if (options.publish_at_commit) {
        TRY(pending_.SettleFile(pending));
        continue;
      }
      auto opened = Open(pending, Access::kWrite, options.truncate, Freshness::kNow);
      // Its last handle was closed, and it could not be committed.
      if (opened.has_value() || opened.error().code() != ENOENT) return opened;
    }
    return TooBusy(directory, name);
  }

  Result<bool> Discard(InodeId inode) override {
    Use file = Use::IfOpen(files_, inode);
    return file ? file->Discard() : false;
  }

  Result<std::unique_ptr<OpenFile>> CreateUnnamed(InodeId directory, uint32_t mode, Owner owner,
                                                  uint32_t umask) override {
    const StoredInode in = TRY(names().Load(directory));
    TRY(CheckDirectory(directory, in.inode));
    const Inode inode = Inherit(in.inode, NewInode(FileKind::kRegular, mode, owner), umask);
    auto handle = NewHandle(files_.TakeNew(inode, std::nullopt), true);
    handle->MarkWritten();
    return handle;
  }

  Result<std::unique_ptr<OpenFile>> Open(InodeId inode, Access access, bool truncate,
                                         Freshness freshness) override {
    const auto state = files_.Take(inode);
    auto handle = NewHandle(state, access == Access::kWrite);
    // Not before: whoever changes or removes it from now on finds that it is open.
    std::optional<StoredInode> seen;
    if (freshness == Freshness::kAsLookedUp) seen = records().FindRecent(inode);
    // What was just listed is asked for together with the inode, and used if that is still so.
    const SendTogether together;
    if (!seen && access == Access::kRead && !truncate) {
      if (const auto small = records().listed().FindSmall(inode)) handle->ExpectReadingAt(*small);
    }
    TRY(seen ? state->Refresh(*seen) : state->Refresh());
    if (truncate) TRY(handle->Truncate(0));
    return handle;
  }

  Result<std::vector<DirectoryEntry>> ReadDirectory(InodeId directory, std::string_view after,
                                                    size_t max, bool with_attributes) override {
    // Who goes on with a listing need not hear at once that the directory is gone. It is empty
    // then.
    const auto recent = after.empty() ? std::nullopt : records().FindRecent(directory);
    const bool is_known = recent && recent->inode.kind == FileKind::kDirectory;
    if (!is_known) TRY(CheckDirectory(directory, TRY(names().Load(directory)).inode));
    // Before the drives are asked: each of them is on the drives when it is not here any more.
    std::vector<DirectoryEntry> pending = pending_.List(directory, after, with_attributes);
    std::vector<DirectoryEntry> entries;
    std::optional<std::string> next(after);
    if (!after.empty()) next->push_back('\0');  // the first name that follows it
    while (next && entries.size() < max) {
      const size_t wanted = max - entries.size();
      std::vector<Records::ListedEntry> names;
      while (next && names.size() < wanted) {
        Records::Page page = TRY(records().List(directory, *next, wanted - names.size(), nullptr,
                                                Records::Listing::kAhead));
        std::ranges::move(page.entries, std::back_inserter(names));
        next = std::move(page.next);
      }
      std::ranges::move(Describe(directory, names, with_attributes), std::back_inserter(entries));
    }
    this->names().large().Listed(directory, std::min(entries.size(), max), after.empty());
    return MergeListing(std::move(entries), std::move(pending), !next, max);
  }

  Status SyncDirectory(InodeId directory) override {
    TRY(CheckDirectory(directory, TRY(names().Load(directory)).inode));
    TRY_CONTEXT(pending_.SettleIn(directory), "sync directory {:016x}", directory);
    TRY_CONTEXT(names().times().Note(directory), "sync directory {:016x}", directory);
    TRY_CONTEXT(records().SyncChanges(), "sync directory {:016x}", directory);
    return {};
  }

  Result<InodeId> ParentOf(InodeId directory) override { return names().ParentOf(directory); }

  Result<Attributes> Resolve(std::string_view path) override {
    const std::vector<std::string> components = TRY(WayTo(path));
    if (components.empty()) return GetAttributes(kRootInode, {});
    const Names::Place place = TRY(Find(components));
    return Describe(place.id, Counted(place.id, place.inode));
  }

  Result<std::unique_ptr<OpenFile>> OpenPath(const OpenRequest& request) override {
    const std::vector<std::string> components = TRY(WayTo(request.path));
    if (request.create) return CreatePath(components, request);
    if (components.empty()) {
      return Open(kRootInode, request.access, request.truncate, Freshness::kNow);
    }
    const Time begun = records().runtime().Now();
    const Names::Place place = TRY(Find(components));
    const auto state = files_.Take(place.id);
    auto handle = NewHandle(state, request.access == Access::kWrite);
    // Who changed it here before it was known to be open may be gone, and what was seen older.
    const bool is_changed = records().ChangedSince(place.id, begun);
    TRY(is_changed ? state->Refresh() : state->Refresh(place.inode));
    if (request.truncate) {
      TRY(handle->Truncate(0));
    } else if (request.access == Access::kRead) {
      handle->ExpectReading();
    }
    return handle;
  }

  Result<Place> ResolveParent(std::string_view path,
                              std::optional<MissingParents> parents) override {
    const std::vector<std::string> components = TRY(WayTo(path));
    TRY(CheckEndsInName(components));
    PathWalk walk = NewWalk();
    TRY(walk.EnterParentOf(components, MakerOf(parents)));
    return Place{walk.at(), components.back()};
  }

  Result<Place> ResolveTarget(std::string_view path) override {
    const std::vector<std::string> components = TRY(WayTo(path));
    if (components.size() == exported_.size()) return Fail(EISDIR, "the root is a directory");
    PathWalk walk = NewWalk();
    TRY(walk.EnterAllButLast(components));
    PathWalk::End end = TRY(walk.Follow(components.back()));
    if (end.name.empty()) return Fail(EISDIR, "'{}' is a directory", path);
    return Place{end.directory, std::move(end.name)};
  }

  Status MakePath(std::string_view path, uint32_t mode, Owner owner) override {
    const std::vector<std::string> components = TRY(WayTo(path));
    if (components.empty()) return {};
    const PathWalk::Maker make = MakerOf(MissingParents{mode, owner});
    PathWalk walk = NewWalk();
    TRY(walk.EnterAllButLast(components, make));
    return walk.Enter(components.back(), make);
  }

  Result<SpaceInfo> Space() override { return cluster_.Space(); }

  void SetMemory(uint64_t bytes) override {
    files_.context().budget.SetLimit(bytes);
    files_.StoreExcess();
  }

  Status Reload() override {
    const Result<ClusterConfig> config = cluster_.Reload();
    if (!config.has_value()) {
      Log(LogLevel::kError, "configuration not read again; what was used before is used on",
          {{"cluster", cluster_.config().name}, {"why", config.error()}});
      return config.error();
    }
    if (memory_by_) SetMemory(memory_by_(*config));
    const auto fixed = cluster_.config().FixedSettingsThatDiffer(*config);
    Log(LogLevel::kInfo, "configuration read again",
        {{"cluster", config->name},
         {"memory", Memory().limit_bytes},
         {"after_a_restart", fmt::format("{}", fmt::join(fixed, ", "))}});
    return {};
  }

  size_t CountToFree() override { return files_.context().reaper.CountWaiting(); }

  uint64_t CountNotFreed() override { return files_.context().reaper.CountLeft(); }

  size_t FilesToMend() override { return files_.FilesToMend(); }

  MemoryCounters Memory() override {
    FileContext& context = files_.context();
    const BlockReader::Counters reads = context.reader.counters();
    return {.limit_bytes = context.budget.limit(),
            .used_bytes = context.budget.used(),
            .cached_bytes = context.reader.cached_bytes(),
            .cache_hits = reads.hits,
            .cache_misses = reads.misses,
            .shared_reads = reads.shared,
            .read_ahead_cells = reads.ahead,
            .disk = context.reader.disk()};
  }

 private:
  Records& records() { return files_.context().records; }
  Names& names() { return files_.context().names; }

  Failed Exists(InodeId directory, std::string_view name) const {
    return Fail(EEXIST, "'{}' exists in directory {:016x}", name, directory);
  }
  Failed TooBusy(InodeId directory, std::string_view name) const {
    return Fail(EIO,
                "create '{}' in directory {:016x}: others changed the name {} times; try again",
                name, directory, Attempts::kMost);
  }

  // The names from the cluster's root on, to be gone by a NewWalk().
  Result<std::vector<std::string>> WayTo(std::string_view path) const {
    std::vector<std::string> names = TRY(SplitPath(path));
    names.insert(names.begin(), exported_.begin(), exported_.end());
    return names;
  }
  PathWalk NewWalk() {
    // A way goes by what is on the drives. What fails here is told whoever has the file open.
    (void)pending_.SettleAll();
    return PathWalk(names(), exported_.size());
  }

  // A file that is on no drive yet, and is to get a name.
  std::shared_ptr<FileState> FindToAppear(InodeId inode) {
    auto file = files_.Find(inode);
    return file != nullptr && file->IsToAppear() ? file : nullptr;
  }

  // A name was made in the directory, and taken away, of which the drives never heard.
  void NoteDropped(InodeId directory) {
    auto seen = records().FindRecent(directory);
    if (!seen) seen = names().Find(directory).value_or(std::nullopt);
    if (seen) names().times().Add(directory, *seen);
  }

  // Whoever is about to remove or replace the directory that has this name finds what is in it.
  Status SettleBelow(InodeId directory, std::string_view name) {
    if (!pending_.MayBeOutside(directory)) return {};
    // Others may have given the name to another one since it was seen last.
    return pending_.SettleIn(TRY(names().Look(directory, name)).id);
  }

  // What a path leads to that has names.
  Result<Names::Place> Find(const std::vector<std::string>& components) {
    PathWalk walk = NewWalk();
    TRY(walk.EnterAllButLast(components));
    PathWalk::End end = TRY(walk.Follow(components.back()));
    if (end.place.found()) return std::move(end.place);
    return Fail(ENOENT, "no '{}' in directory {:016x}", end.name, end.directory);
  }

  // EINVAL: it is what is exported, or ends in "..".
  Status CheckEndsInName(const std::vector<std::string>& components) const {
    if (components.size() == exported_.size()) {
      return Fail(EINVAL, "the root directory has no name");
    }
    if (components.back() == "..") return Fail(EINVAL, "'..' is not the name of a directory");
    return {};
  }

  PathWalk::Maker MakerOf(const std::optional<MissingParents>& parents) {
    if (!parents) return nullptr;
    return [this, parents](const PathWalk::End& free) -> Result<InodeId> {
      const Inode wanted = NewDirectory(free.directory, parents->mode, parents->owner);
      return TRY(MakeAt(free.directory, free.name, wanted, 0, free.place)).inode;
    };
  }

  Result<std::unique_ptr<OpenFile>> CreatePath(const std::vector<std::string>& components,
                                               const OpenRequest& request) {
    auto opened = TryCreatePath(components, request);
    // Somebody may have put a link into the place of the name, or removed a parent, on the way.
    const int code = opened.has_value() ? 0 : opened.error().code();
    const bool may_be_overtaken =
        (code == ELOOP && !request.exclusive) || (code == ENOENT && request.parents);
    return may_be_overtaken ? TryCreatePath(components, request) : std::move(opened);
  }

  Result<std::unique_ptr<OpenFile>> TryCreatePath(const std::vector<std::string>& components,
                                                  const OpenRequest& request) {
    TRY(CheckEndsInName(components));
    PathWalk walk = NewWalk();
    TRY(walk.EnterAllButLast(components, MakerOf(request.parents)));
    PathWalk::End end{walk.at(), components.back(), {}};
    if (request.exclusive) {
      end.place = TRY(walk.Look(end.name));
    } else {
      end = TRY(walk.Follow(end.name));
    }
    if (end.name.empty()) return Fail(EISDIR, "'{}' is a directory", request.path);
    const CreateOptions options{.mode = request.mode,
                                .owner = request.owner,
                                .exclusive = request.exclusive,
                                .truncate = request.truncate,
                                .publish_at_commit = request.publish_at_commit,
                                .note_on_replaced = request.note_on_replaced};
    return CreateAt(end.directory, end.name, options, std::move(end.place));
  }

  // What has no name is on no drive that it could be said of.
  Result<std::string> Why(InodeId inode) {
    const auto stored = names().Load(inode);
    if (!stored.has_value() && stored.error().code() == ENOENT) {
      return Fail(ENODATA, "inode {:016x} has no name", inode);
    }
    TRY(stored);
    if (files_.caretaker() == nullptr) {
      return Fail(ENODATA, "nobody here can say where inode {:016x} is", inode);
    }
    return files_.caretaker()->Why(inode, stored->inode);
  }

  Result<Inode> LoadEvenWithoutName(InodeId inode, Duration age) {
    if (const auto file = FindToAppear(inode)) return file->Known();
    if (const auto recent = records().FindRecent(inode, age)) return recent->inode;
    const auto stored = names().Load(inode);
    if (stored.has_value()) return stored->inode;
    if (stored.error().code() == ENOENT) {
      if (const auto file = files_.Find(inode); file && file->HasSeen()) return file->Known();
      if (auto directory = files_.FindRemoved(inode)) return *std::move(directory);
    }
    return tl::unexpected(stored.error());
  }

  // Changes an inode, with its ctime, whether it is open or not.
  Status Edit(InodeId inode, const Names::Edit& edit, Room room = Room::kNames) {
    const int64_t now = records().WallClock();
    const auto with_time = [&](Inode& it) -> Status {
      TRY(edit(it));
      it.changed = now;
      return {};
    };
    if (const auto file = files_.Find(inode)) return file->Edit(with_time, room);
    TRY(names().Update(inode, with_time, {Durability::kWriteBack, room}));
    return {};
  }

  // It may have been removed meanwhile.
  Status NoteOnReplaced(InodeId inode, const std::pair<std::string, std::string>& note) {
    const Status status =
        SetExtended(inode, note.first, note.second, ExtendedMode::kSet, SetGroupBit::kStays);
    if (status.code() != ENOSPC) return status.code() == ENOENT ? Status() : status;
    Log(LogLevel::kWarn, "no room to note on a file that it is about to be replaced",
        {{"inode", fmt::format("{:016x}", inode)}, {"why", status}});
    return {};
  }

  Inode NewInode(FileKind kind, uint32_t mode, Owner owner) {
    Inode inode;
    inode.kind = kind;
    inode.mode = mode & 07777;
    inode.owner = owner;
    inode.accessed = inode.modified = inode.changed = records().WallClock();
    return inode;
  }

  Inode NewDirectory(InodeId parent, uint32_t mode, Owner owner) {
    Inode inode = NewInode(FileKind::kDirectory, mode, owner);
    inode.parent = parent;
    inode.links = kLinksOfEmptyDirectory;
    return inode;
  }

  // What a new inode has from its directory.
  static Inode Inherit(const Inode& directory, Inode inode, uint32_t umask) {
    InheritAcl(directory, umask, inode);
    const bool has_layout = inode.kind == FileKind::kRegular || inode.kind == FileKind::kDirectory;
    if (has_layout) inode.layout = directory.layout;
    if ((directory.mode & kSetGroup) == 0) return inode;
    inode.owner.group = directory.owner.group;
    if (inode.kind == FileKind::kDirectory) inode.mode |= kSetGroup;
    return inode;
  }

  std::unique_ptr<Handle> NewHandle(std::shared_ptr<FileState> state, bool writes) {
    return std::make_unique<Handle>(files_, std::move(state), writes,
                                    cluster_.config().durable_close);
  }

  // With the number of subdirectories, where that has to be found out and costs next to nothing.
  StoredInode Counted(InodeId id, const StoredInode& stored) {
    constexpr uint64_t kMostEntries = 200;
    if (!stored.inode.IsUncounted()) return stored;
    const auto found = names().FindSubdirectories(id, kMostEntries).value_or(std::nullopt);
    if (!found) return stored;
    auto noted = names().NoteSubdirectories(id, stored, *found);
    if (noted.has_value() && !noted->inode.IsUncounted()) return *std::move(noted);
    // Somebody changes it all the time, or drives do not take it.
    StoredInode counted = stored;
    counted.inode.links = kLinksOfEmptyDirectory + *found;
    return counted;
  }

  Attributes Describe(InodeId id, const StoredInode& stored) {
    const auto file = files_.Find(id);
    if (file) return file->Describe(stored);
    if (stored.inode.kind != FileKind::kDirectory) return stored.inode.Describe(id);
    Inode known = stored.inode;
    names().times().Complete(id, known);
    pending_.Complete(id, known);
    return known.Describe(id);
  }

  std::vector<DirectoryEntry> Describe(InodeId directory,
                                       const std::vector<Records::ListedEntry>& names,
                                       bool with_attributes) {
    std::vector<InodeId> ids;
    for (const auto& [name, entry, slot] : names) ids.push_back(entry.inode);
    std::vector<Result<std::optional<StoredInode>>> inodes;
    const Time at = records().runtime().Now();
    if (with_attributes) inodes = records().FindInodes(ids);
    std::vector<DirectoryEntry> entries;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto& [name, entry, slot] = names[i];
      DirectoryEntry listed{name, entry.inode, entry.kind, std::nullopt};
      if (with_attributes && inodes[i].has_value()) {
        std::optional<StoredInode>& stored = *inodes[i];
        if (!stored) continue;  // removed, or about to be
        // Who wants to know an uncounted one asks for it alone.
        if (!stored->inode.IsUncounted()) {
          records().listed().Learn(entry.inode, *stored, at);
          listed.attributes = Describe(entry.inode, *stored);
        }
        records().listed_places().Learn(directory, name, {slot, entry.inode, *std::move(stored)});
      }
      entries.push_back(std::move(listed));
    }
    return entries;
  }

  // `place` is what was found under that name.
  Result<std::unique_ptr<OpenFile>> CreateAt(InodeId directory, std::string_view name,
                                             const CreateOptions& options, Names::Place place) {
    const Inode wanted = NewInode(FileKind::kRegular, options.mode, options.owner);
    bool noted = false;
    for (Attempts attempts; attempts.Next();) {
      if (!attempts.IsFirst()) place = TRY(names().Look(directory, name));
      Inode inode = Inherit(place.directory.inode, wanted, options.umask);
      const bool replaces = options.truncate && options.publish_at_commit && place.found() &&
                            place.inode.inode.kind == FileKind::kRegular && !options.exclusive;
      if (replaces && options.note_on_replaced && !std::exchange(noted, true)) {
        TRY(NoteOnReplaced(place.id, *options.note_on_replaced));
        continue;  // with the inode as it is now
      }
      if (replaces) TakePermissions(place.inode.inode, inode);
      if (place.found() && !replaces) {
        if (options.exclusive) return Exists(directory, name);
        auto opened = Open(place.id, Access::kWrite, options.truncate, Freshness::kNow);
        // Removed since it was looked up: then the name may be free.
        if (!opened.has_value() && opened.error().code() == ENOENT) continue;
        return opened;
      }
      // Without the right to replace what others may have made meanwhile.
      const Names::NewName entry{directory, std::string(name),
                                 options.exclusive || options.appears_later,
                                 Names::NewName::Seen(place)};
      if (options.publish_at_commit || options.appears_later) {
        auto handle = NewHandle(files_.TakeNew(inode, entry), true);
        handle->MarkWritten();
        const bool is_ours =
            !options.appears_later || pending_.Add(directory, name, handle->inode());
        if (is_ours) return handle;
        return Create(directory, name, options);  // another thread was faster
      }
      const auto made = TRY(names().Make(directory, name, place, inode));
      if (!made) continue;
      const auto state = files_.Take(made->id);
      auto handle = NewHandle(state, true);
      TRY(state->TakeOver(made->inode));
      state->Remember(entry, made->entry_slot);
      return handle;
    }
    return TooBusy(directory, name);
  }

  // A name for an inode that nobody knows yet.
  Result<Attributes> Make(InodeId directory, std::string_view name, const Inode& wanted,
                          uint32_t umask) {
    if (pending_.Find(directory, name) != 0) return Exists(directory, name);
    return MakeAt(directory, name, wanted, umask,
                  TRY(names().Recall(directory, name, Names::IsFree)));
  }
  // `place` is what was found under that name.
  Result<Attributes> MakeAt(InodeId directory, std::string_view name, const Inode& wanted,
                            uint32_t umask, Names::Place place) {
    for (Attempts attempts; attempts.Next();) {
      if (!attempts.IsFirst()) place = TRY(names().Look(directory, name));
      if (place.found()) return Exists(directory, name);
      const Inode inode = Inherit(place.directory.inode, wanted, umask);
      const auto made = TRY(names().Make(directory, name, place, inode));
      if (made) return made->inode.inode.Describe(made->id);
    }
    return TooBusy(directory, name);
  }

  Cluster& cluster_;
  const std::function<uint64_t(const ClusterConfig&)> memory_by_;
  const std::vector<std::string> exported_;  // the names that lead to what paths begin at
  OpenFiles files_;
  PendingFiles pending_{files_};
};

}  // namespace

Result<std::unique_ptr<FileSystem>> FileSystem::Open(Cluster& cluster, Options options) {
  std::vector<std::string> exported =
      TRY_CONTEXT(SplitPath(options.exported), "'{}'", options.exported);
  if (std::ranges::find(exported, "..") != exported.end()) {
    return Fail(EINVAL, "the directory to be exported is to be named without '..': {}",
                options.exported);
  }
  const bool is_part = !exported.empty();
  auto file_system = std::make_unique<ClusterFileSystem>(cluster, options, std::move(exported));
  const auto root = file_system->GetAttributes(kRootInode, {});
  if (!root.has_value()) {
    if (root.error().code() != ENOENT) return tl::unexpected(root.error().Context("open the root"));
    return Fail(ENOENT, "the cluster has no root directory; make one with `pinstripe format`");
  }
  if (!is_part) return file_system;
  const Attributes seen =
      TRY_CONTEXT(file_system->Resolve("/"), "the directory to be exported, {}", options.exported);
  if (seen.kind != FileKind::kDirectory) {
    return Fail(ENOTDIR, "what is to be exported, {}, is not a directory", options.exported);
  }
  return file_system;
}

Status FileSystem::Format(Cluster& cluster, Owner owner, uint32_t mode) {
  Records records(cluster);
  Inode root;
  root.kind = FileKind::kDirectory;
  root.mode = mode & 07777;
  root.owner = owner;
  root.parent = kRootInode;
  root.links = kLinksOfEmptyDirectory;
  root.accessed = root.modified = root.changed = records.WallClock();
  const auto change = records.ChangeInode(kRootInode, 0, root, Durability::kWriteThrough);
  TRY(change.why);
  if (!change.applied()) return Fail(EEXIST, "the cluster has a root directory already");
  return {};
}

}  // namespace pinstripe
