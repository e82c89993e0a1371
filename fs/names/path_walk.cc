#include "fs/names/path_walk.h"

#include "base/try.h"
#include "fs/names/path.h"

namespace pinstripe {

Status PathWalk::Enter(std::string_view name, const Maker& make) {
  if (name == "..") {
    GoUp();
    return {};
  }
  const int links_before = links_;
  const End end = TRY(Follow(name));
  if (!end.place.found()) {
    const bool may_be_made = links_ == links_before && way_.size() > above_;
    if (make != nullptr && may_be_made) {
      const Result<InodeId> made = make(end);
      if (made.has_value()) {
        way_.push_back(*made);
        return {};
      }
      return made.error().code() == EEXIST ? Enter(name) : made.error();
    }
    return Fail(ENOENT, "no '{}' in directory {:016x}", end.name, end.directory);
  }
  if (end.place.inode.inode.kind != FileKind::kDirectory) {
    return Fail(ENOTDIR, "'{}' in directory {:016x} is not a directory", end.name, end.directory);
  }
  way_.push_back(end.place.id);
  return {};
}

Status PathWalk::EnterAllButLast(const std::vector<std::string>& names, const Maker& make) {
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    coming_ = std::span(names).subspan(i);
    const Status entered = Enter(names[i], make);
    coming_ = {};
    TRY(entered);
  }
  return {};
}

Status PathWalk::EnterParentOf(const std::vector<std::string>& names, const Maker& make) {
  TRY(EnterAllButLast(names, make));
  if (!IsForeseen(names.back())) return {};
  Names::Foreseen last = std::move(foreseen_.front());
  foreseen_.pop_front();
  (void)names_.LookUp(std::move(last));  // nobody has asked for it yet: if it fails, it fails again
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
