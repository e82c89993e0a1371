#include "fs/path_walk.h"

#include "base/try.h"
#include "fs/path.h"

namespace pinstripe {

Status PathWalk::Enter(std::string_view name) {
  if (name == "..") {
    at_ = TRY(names_.ParentOf(at_));
    return {};
  }
  const End end = TRY(Follow(name));
  if (!end.place.found()) {
    return Fail(ENOENT, "no '{}' in directory {:016x}", end.name, end.directory);
  }
  if (end.place.inode.inode.kind != FileKind::kDirectory) {
    return Fail(ENOTDIR, "'{}' in directory {:016x} is no directory", end.name, end.directory);
  }
  at_ = end.place.id;
  return {};
}

Status PathWalk::EnterAllButLast(const std::vector<std::string>& names) {
  for (size_t i = 0; i + 1 < names.size(); ++i) TRY(Enter(names[i]));
  return {};
}

Result<PathWalk::End> PathWalk::Follow(std::string_view name) {
  for (std::string next(name);;) {
    if (next == "..") {
      at_ = TRY(names_.ParentOf(at_));
      next.clear();
    }
    if (next.empty()) return End{at_, "", {.id = at_, .inode = TRY(names_.Load(at_))}};
    Names::Place place = TRY(names_.Look(at_, next));
    if (!place.found() || place.inode.inode.kind != FileKind::kSymlink) {
      return End{at_, std::move(next), std::move(place)};
    }
    if (++links_ > kMaxSymlinks) {
      return Fail(ELOOP,
                  "'{}' in directory {:016x} is one of more than {} symbolic links on the way",
                  next, at_, kMaxSymlinks);
    }
    const std::string& target = place.inode.inode.symlink;
    if (target.front() == '/') at_ = kRootInode;
    const std::vector<std::string> names = TRY(SplitNames(target));
    TRY(EnterAllButLast(names));
    next = names.empty() ? "" : names.back();
  }
}

}  // namespace pinstripe
