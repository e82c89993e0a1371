// Giving a name to a file that was written already, as uploads and files without a name get theirs.

#include <algorithm>

#include "base/attempts.h"
#include "base/log.h"
#include "base/try.h"
#include "fs/names/names.h"

namespace pinstripe {
namespace {

Status TooBusy(const Names::NewName& name) {
  return Fail(EIO,
              "publish '{}' in directory {:016x}: others changed it {} times in between; try again",
              name.name, name.directory, Attempts::kMost);
}

}  // namespace

// A client that renames it, or gives it one more name, has found it by the name that it was to
// have.
Result<bool> Names::HasAnotherName(InodeId id, const Inode& inode, const GivenName& wanted) {
  const auto happened = [](const RenameOutcome& outcome) { return outcome.done; };
  if (inode.intent || std::ranges::any_of(inode.renames, happened)) return true;
  if (!inode.named || *inode.named == wanted) return false;
  const StoredEntry other = TRY(records_.FindEntry(inode.named->directory, inode.named->name));
  return other.entry && other.entry->inode == id;
}

// By an earlier attempt whose outcome could not be learnt the inode may have the name, or have had
// it. Where it has not, it is written once more, so that a collection that takes it because it has
// no name yet comes too late, or was first: docs/format.md, "Collecting".
Result<Names::Obstacle> Names::LookForPublish(const NewName& name, InodeId id, StoredInode& own) {
  using Kind = Obstacle::Kind;
  const auto never = [](Status why) { return Obstacle{Kind::kFinal, {}, std::move(why)}; };
  for (Attempts attempts; attempts.Next();) {
    const Place place = TRY(Look(name.directory, name.name));
    const NewName::Seen seen(place);
    if (place.id == id) return Obstacle{Kind::kOwn, seen, {}};
    if (place.found() && name.exclusive) {
      return never(
          Fail(EEXIST, "'{}' exists in directory {:016x} by now", name.name, name.directory));
    }
    if (place.found() && IsDirectory(place.inode.inode)) {
      return never(Fail(EISDIR, "'{}' in directory {:016x} is a directory by now", name.name,
                        name.directory));
    }
    if (TRY(HasAnotherName(id, own.inode, {name.directory, name.name}))) {
      return Obstacle{Kind::kLeft, seen, {}};
    }
    const GivenName wanted{name.directory, name.name};
    // Others have told it where to be. They may have given it names that nobody finds here.
    if (own.inode.named && *own.inode.named != wanted) ++own.inode.links;
    own.inode.named = wanted;  // for who collects
    const auto change = records_.ChangeInode(id, own.slot, own.inode);
    TRY(change.why);
    if (!change.now) {
      return never(Fail(ESTALE, "inode {:016x} was collected before it had a name", id));
    }
    own = *change.now;
    if (change.applied()) return Obstacle{Kind::kNone, seen, {}};
  }
  return Failed(TooBusy(name));
}

Names::Publication Names::Publish(const NewName& name, InodeId id, StoredInode& own, bool is_safe,
                                  Durability durability,
                                  std::optional<Records::EntryChange> given) {
  bool lasts = false;
  const auto applied = [&](uint64_t slot) {
    return Publication{{.effect = Effect::kApplied, .why = {}}, slot, lasts};
  };
  const auto refused = [](Status why, bool is_final) {
    Publication publication{{.effect = Effect::kRefused, .why = std::move(why)}};
    publication.is_final = is_final;
    return publication;
  };
  const auto take_back = [&](uint64_t slot, const std::optional<Entry>& former,
                             const Result<bool>& touched) {
    Publication publication{TakeBack(name, slot, former, touched)};
    publication.is_final = touched.has_value();
    return publication;
  };
  const Entry entry{.inode = id, .kind = own.inode.kind, .nonce = std::nullopt};
  std::optional<NewName::Seen> seen = name.seen;
  for (Attempts attempts; attempts.Next();) {
    if (!seen) {
      auto obstacle = LookForPublish(name, id, own);
      if (!obstacle.has_value()) return refused(obstacle.error(), /*is_final=*/false);
      seen = std::move(obstacle->seen);
      switch (obstacle->kind) {
        case Obstacle::Kind::kNone: break;
        case Obstacle::Kind::kLeft: return applied(0);
        case Obstacle::Kind::kFinal: return refused(obstacle->why, /*is_final=*/true);
        case Obstacle::Kind::kOwn:
          const Result<bool> touched = NoteGain(name.directory, seen->directory);
          if (touched.has_value() && *touched) return applied(seen->slot);
          return take_back(seen->slot, std::nullopt, touched);
      }
    }
    if (seen->entry && !is_safe) {
      Publication publication = refused(
          Fail(EIO, "'{}' exists, and its new contents are not safe yet", name.name), false);
      publication.wants_safe = true;
      return publication;
    }
    if (seen->unborn != 0) {
      const Result<bool> free = FenceUnborn(name.directory, name.name, seen->unborn);
      if (!free.has_value()) return refused(free.error(), /*is_final=*/false);
      if (!*free) {
        seen.reset();
        continue;
      }
    }
    if (seen->entry) durability = Durability::kWriteThrough;
    const auto change =
        given ? *std::exchange(given, std::nullopt)
              : records_.AddEntry(name.directory, name.name, seen->slot, entry, durability);
    if (change.unknown()) return {change};
    lasts = change.applied() && durability == Durability::kWriteThrough;
    if (!change.applied()) {
      if (!change.why.ok()) return refused(change.why, /*is_final=*/false);
      seen.reset();
      attempts.Pause(runtime_);
      continue;
    }
    const Result<bool> touched =
        NoteGain(name.directory, seen->directory, Subdirectories::kSame, change.directory);
    if (!touched.has_value() || !*touched) {
      return take_back(change.now.slot, seen->entry, touched);
    }
    if (!seen->entry) large_.Made(name.directory);
    if (seen->entry) {
      const Status dropped = DropLink(seen->entry->inode);
      if (!dropped.ok()) {
        Log(LogLevel::kWarn, "a replaced file stays behind",
            {{"inode", fmt::format("{:016x}", seen->entry->inode)}, {"why", dropped}});
      }
    }
    return applied(change.now.slot);
  }
  return refused(TooBusy(name), /*is_final=*/false);
}

}  // namespace pinstripe
