#include "fs/names/path_walk.h"

#include "base/try.h"
#include "fs/names/path.h"

namespace pinstripe {

Status PathWalk::Enter(std::string_view name) {
  if (name == "..") {
    GoUp();
    return {};
  }
  const End end = TRY(Follow(name));
  if (!end.place.found()) {
    return Fail(ENOENT, "no '{}' in directory {:016x}", end.name, end.directory);
  }
  if (end.place.inode.inode.kind != FileKind::kDirectory) {
    return Fail(ENOTDIR, "'{}' in directory {:016x} is not a directory", end.name, end.directory);
  }
  Descend(end.place.id);
  return {};
}

Status PathWalk::EnterAllButLast(const std::vector<std::string>& names) {
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    coming_ = std::span(names).subspan(i);
    const Status entered = Enter(names[i]);
    coming_ = {};
    TRY(entered);
  }
  return {};
}

Status PathWalk::EnterParentOf(const std::vector<std::string>& names) {
  TRY(EnterAllButLast(names));
  // Nobody has asked for it yet: if it fails, it fails again.
  if (IsForeseen(names.back())) (void)names_.LookUp(std::move(foreseen_.front()));
  return {};
}

bool PathWalk::IsForeseen(std::string_view name) const {
  return !foreseen_.empty() && foreseen_.front().directory == at() &&
         foreseen_.front().name == name;
}

Result<Names::Place> PathWalk::Look(const std::string& name) {
  if (!IsForeseen(name)) {
    const bool knows_more = !coming_.empty() && coming_.front() == name;
    foreseen_ = names_.Foresee(at(), knows_more ? coming_ : std::span(&name, 1));
  }
  Names::Foreseen next = std::move(foreseen_.front());
  foreseen_.pop_front();
  return names_.Look(std::move(next));
}

Result<PathWalk::End> PathWalk::Follow(std::string_view name) {
  for (std::string next(name);;) {
    if (next == "..") {
      GoUp();
      next.clear();
    }
    if (next.empty()) {
      StoredInode here = TRY(names_.Load(at()));
      return End{at(), "", {.id = at(), .inode = std::move(here)}};
    }
    Names::Place place = TRY(Look(next));
    if (!place.found() || place.inode.inode.kind != FileKind::kSymlink) {
      return End{at(), std::move(next), std::move(place)};
    }
    if (way_.size() <= above_) {
      return Fail(ELOOP,
                  "'{}' in directory {:016x}, on the way to the directory that is exported, is a "
                  "symbolic link; name the directory that it leads to",
                  next, at());
    }
    if (++links_ > kMaxSymlinks) {
      return Fail(ELOOP,
                  "'{}' in directory {:016x} is one of more than {} symbolic links on the way",
                  next, at(), kMaxSymlinks);
    }
    const std::string& target = place.inode.inode.symlink;
    if (target.front() == '/') GoToRoot();
    const std::vector<std::string> names = TRY(SplitNames(target));
    TRY(EnterAllButLast(names));
    next = names.empty() ? "" : names.back();
  }
}

}  // namespace pinstripe
