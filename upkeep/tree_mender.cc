#include "upkeep/tree_mender.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/attempts.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr TreeProblem kMendable[] = {TreeProblem::kUnreachable, TreeProblem::kTooFewLinks,
                                     TreeProblem::kWrongParent, TreeProblem::kWrongCount};

Status ChangedMeanwhile() {
  return Fail(EAGAIN, "it was changed meanwhile; run the command again");
}

// Whether the directory, or one on its way up, is `below`.
Result<bool> IsBelow(Names& names, InodeId directory, InodeId below) {
  std::set<InodeId> seen;
  while (directory != kRootInode && seen.insert(directory).second) {
    if (directory == below) return true;
    const auto stored = TRY(names.Find(directory));
    if (!stored) return false;
    directory = stored->inode.parent;
  }
  return directory != kRootInode;  // a circle
}

}  // namespace

bool IsMendable(TreeProblem problem) {
  return std::ranges::find(kMendable, problem) != std::end(kMendable);
}

bool IsMendable(std::string_view problem) {
  return std::ranges::any_of(kMendable, [&](TreeProblem each) { return NameOf(each) == problem; });
}

TreeMender::TreeMender(Cluster& cluster, Progress progress, std::function<bool()> go_on)
    : cluster_(cluster),
      progress_(std::move(progress)),
      go_on_(std::move(go_on)),
      records_(cluster),
      names_(records_, [](InodeId, const Inode&, uint64_t) {}) {}

TreeMendReport TreeMender::Run() {
  Checker checker(cluster_, {.data = false, .progress = progress_, .go_on = go_on_});
  checker.Run();
  const auto is_stopped = [this] { return go_on_ != nullptr && !go_on_(); };
  if (is_stopped()) return std::move(report_);
  for (const Suspicion& found : checker.confirmed()) {
    const bool is_directory = found.inode.kind == FileKind::kDirectory;
    const bool has_no_name =
        found.problem == TreeProblem::kUnreachable || found.problem == TreeProblem::kOrphan;
    if (is_directory && has_no_name && found.entries.empty()) nameless_.insert(found.inode.id);
  }
  for (const Suspicion& found : checker.confirmed()) {
    if (!IsMendable(found.problem)) continue;
    if (is_stopped()) break;
    const Status mended = Mend(checker, found);
    if (mended.ok()) continue;
    report_.not_mended.push_back(fmt::format("{}: {}: {}", checker.Path(found.inode.id),
                                             Describe(found.problem), mended.message()));
  }
  return std::move(report_);
}

Status TreeMender::Mend(const Checker& checker, const Suspicion& found) {
  const std::string path = checker.Path(found.inode.id);
  switch (found.problem) {
    case TreeProblem::kUnreachable:
      if (!found.entries.empty()) return {};  // what is above it is what lost its name
      // One that could not be read may be the one that it has.
      if (!checker.knows_all_names()) return Fail(EIO, "not all names could be read");
      return GiveName(found.inode.id);
    case TreeProblem::kTooFewLinks:
      TRY(Change(found,
                 [&](Inode& inode) { inode.links = static_cast<uint32_t>(found.entries.size()); }));
      report_.mended.push_back(
          fmt::format("{}: its inode counts its {} names", path, found.entries.size()));
      return {};
    case TreeProblem::kWrongParent:
      TRY(Change(found, [&](Inode& inode) { inode.parent = found.entries.front().directory; }));
      report_.mended.push_back(fmt::format("{}: it knows the directory that it is in", path));
      return {};
    case TreeProblem::kWrongCount: {
      const std::optional<StoredInode> stored = TRY(names_.Find(found.inode.id));
      if (!stored) return {};
      TRY(names_.CountSubdirectories(found.inode.id, *stored));
      // Nobody had counted them, as a rule, which is nothing to tell.
      if (found.inode.links != 1) {
        report_.mended.push_back(fmt::format("{}: its subdirectories are counted again", path));
      }
      return {};
    }
    default: return {};
  }
}

Status TreeMender::GiveName(InodeId id) {
  if (nameless_.erase(id) == 0) return {};  // it has one by now
  std::optional<GivenName> place = TRY(FormerPlace(id));
  // An empty one that lost its name is wanted again, if something that lost its own was in it.
  if (place) TRY(GiveName(place->directory));
  const bool is_former = place.has_value();
  if (!place) {
    const InodeId directory = TRY(LostAndFound());
    place = GivenName{directory, fmt::format("{:016x}", id)};
  }
  if (!TRY(names_.Reattach(id, *place))) return ChangedMeanwhile();
  report_.mended.push_back(
      is_former
          ? fmt::format("directory {:016x}: it has its name '{}' again", id, place->name)
          : fmt::format("directory {:016x}: it is /{}/{} now", id, kLostAndFound, place->name));
  return {};
}

Result<std::optional<GivenName>> TreeMender::FormerPlace(InodeId directory) {
  const std::optional<GivenName> none;
  const std::optional<StoredInode> stored = TRY(names_.Find(directory));
  if (!stored || !stored->inode.named) return none;
  const GivenName& place = *stored->inode.named;
  if (place.directory != stored->inode.parent) return none;  // it was moved since
  const std::optional<StoredInode> parent = TRY(names_.Find(place.directory));
  if (!parent || parent->inode.kind != FileKind::kDirectory) return none;
  if (parent->inode.IsMarkedByRename(place.directory)) return none;
  if (TRY(IsBelow(names_, place.directory, directory))) return none;
  const StoredEntry there = TRY(records_.FindEntry(place.directory, place.name));
  return there.entry ? none : std::optional(place);
}

Result<InodeId> TreeMender::LostAndFound() {
  for (Attempts attempts; attempts.Next();) {
    const Names::Place place = TRY(names_.Look(kRootInode, kLostAndFound));
    if (place.found()) {
      if (place.inode.inode.kind == FileKind::kDirectory) return place.id;
      return Fail(ENOTDIR, "/{} is not a directory: rename it", kLostAndFound);
    }
    const int64_t now = records_.WallClock();
    Inode inode;
    inode.kind = FileKind::kDirectory;
    inode.mode = 0700;
    inode.links = kLinksOfEmptyDirectory;
    inode.parent = kRootInode;
    inode.changed = inode.modified = inode.accessed = now;
    if (const auto made = TRY(names_.Make(kRootInode, kLostAndFound, place, inode))) {
      return made->id;
    }
    attempts.Pause(cluster_.runtime());
  }
  return Fail(EIO, "make /{}: others changed it {} times in between", kLostAndFound,
              Attempts::kMost);
}

// As it was found, and safe from power loss.
Status TreeMender::Change(const Suspicion& found, const std::function<void(Inode&)>& edit) {
  const std::optional<StoredInode> stored = TRY(names_.Find(found.inode.id));
  if (!stored || stored->slot != found.inode.slot) return ChangedMeanwhile();
  Inode inode = stored->inode;
  edit(inode);
  const auto change =
      records_.ChangeInode(found.inode.id, stored->slot, inode, Durability::kWriteThrough);
  TRY(change.why);
  return change.applied() ? Status() : ChangedMeanwhile();
}

}  // namespace pinstripe
