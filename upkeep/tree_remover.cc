#include "upkeep/tree_remover.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/try.h"
#include "fs/names/path.h"

namespace pinstripe {
namespace {

constexpr Duration kTellEvery = std::chrono::milliseconds(200);
constexpr Duration kLookForRoomEvery = std::chrono::milliseconds(100);
// What was removed waits for a minute anyway.
constexpr Duration kPatience = std::chrono::minutes(2);

// Whether something that is to become less has not, for too long.
class InVain {
 public:
  explicit InVain(Runtime& runtime) : runtime_(runtime) {}

  bool IsIt(size_t left) {
    if (left < least_) {
      least_ = left;
      end_ = runtime_.Now() + kPatience;
    }
    return runtime_.Now() >= end_;
  }

 private:
  Runtime& runtime_;
  size_t least_ = SIZE_MAX;
  Time end_{};
};

}  // namespace

TreeRemover::TreeRemover(Runtime& runtime, FileSystem& fs, Options options)
    : runtime_(runtime),
      fs_(fs),
      options_(std::move(options)),
      not_freed_before_(fs.CountNotFreed()),
      changed_(runtime.NewSignal()) {
  for (size_t i = 0; i < std::max<size_t>(options_.jobs, 1); ++i) {
    threads_.emplace_back(runtime, fmt::format("remover {}", i), [this, i] { Work(i); });
    idle_.push_back(i);
  }
}

TreeRemover::~TreeRemover() {
  for (BackgroundThread& thread : threads_) thread.TellToEnd();
}

bool TreeRemover::Remove(std::string_view path) {
  if (!GoOn()) return false;
  const Result<bool> to_its_end = RemoveOne(path);
  if (!to_its_end.has_value()) Tell(std::string(path), to_its_end.error());
  return to_its_end.value_or(true);
}

// Where its last name is. "." and ".." are none, and neither is the root.
Result<FileSystem::Place> TreeRemover::FindPlace(std::string_view path) {
  if (TRY(SplitPath(path)).empty()) {
    return Fail(EINVAL, "the root directory of a cluster cannot be removed; name what is in it");
  }
  std::string_view last = path;
  while (last.ends_with('/')) last.remove_suffix(1);
  last.remove_prefix(last.rfind('/') + 1);
  if (last == "." || last == "..") {
    return Fail(EINVAL, "'{}' is not a name that could be removed; write that of the directory",
                last);
  }
  return fs_.ResolveParent(path);
}

Result<bool> TreeRemover::RemoveOne(std::string_view path) {
  const auto place = FindPlace(path);
  const auto found = place.has_value() ? fs_.Lookup(place->directory, place->name)
                                       : Result<Attributes>(tl::unexpected(place.error()));
  if (!found.has_value()) {
    const int code = found.error().code();
    const bool is_missing = code == ENOENT || code == ENOTDIR;  // or what should lead to it
    if (is_missing && options_.ignore_missing) return true;
    if (code == ENOENT) return Fail(ENOENT, "there is no such name");
    return tl::unexpected(found.error());
  }
  if (found->kind == FileKind::kDirectory) {
    if (!options_.recursive) {
      return Fail(EISDIR, "it is a directory; -r removes one with all that is in it");
    }
    return RemoveTree(path, *place, found->inode);
  }
  if (path.ends_with('/')) return Fail(ENOTDIR, "it is not a directory");
  const Status removed = fs_.Unlink(place->directory, place->name);
  if (removed.code() == ENOENT && options_.ignore_missing) return true;
  TRY(removed);
  ++report_.files;
  if (found->links == 1) report_.bytes += found->stored_bytes;
  TellOfProgress();
  return true;
}

void TreeRemover::Tell(const std::string& path, const Status& why) {
  ++report_.failures;
  if (options_.failed) options_.failed(path, why);
}

void TreeRemover::TellOfProgress() {
  if (options_.progress) options_.progress(report_);
}

bool TreeRemover::RemoveTree(std::string_view path, const FileSystem::Place& place, InodeId inode) {
  const RemovalReport before = report_;
  MutexLock lock(mutex_);
  top_ = path;
  done_ = {};
  Directory& top = directories_.emplace_back();
  top.self = std::prev(directories_.end());
  top.in = place.directory;
  top.name = place.name;
  top.inode = inode;
  Settle(&top);
  for (;;) {
    const bool has_ended = is_stopped_ ? idle_.size() == threads_.size() : directories_.empty();
    report_.files = before.files + done_.files;
    report_.directories = before.directories + done_.directories;
    report_.bytes = before.bytes + done_.bytes;
    const auto failures = std::exchange(failures_, {});
    const bool is_stopped = is_stopped_;
    lock.Unlock();
    for (const auto& [where, why] : failures) Tell(where, why);
    TellOfProgress();
    if (has_ended) return !is_stopped;
    changed_->WaitUntil(runtime_.Now() + kTellEvery);
    lock.Lock();
  }
}

bool TreeRemover::WaitUntilFree(const std::function<void(size_t files)>& progress) {
  for (InVain in_vain(runtime_);;) {
    const size_t left = fs_.CountToFree();
    if (left == 0) return fs_.CountNotFreed() == not_freed_before_;
    if (progress) progress(left);
    if (in_vain.IsIt(left) || !GoOn()) return false;
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + kTellEvery);
  }
}

// ---- The threads

// It stays for as long as the remover does: the next step may come at any time.
void TreeRemover::Work(size_t thread) {
  while (!threads_[thread].IsEnding()) {
    if (const auto step = NextStep(thread)) {
      Do(*step);
    } else {
      threads_[thread].WaitUntil(Time::max());
    }
  }
}

// Null: there is none now, and the thread will be woken when there is.
std::optional<TreeRemover::Step> TreeRemover::NextStep(size_t thread) {
  const bool may_go_on = GoOn();
  const MutexLock lock(mutex_);
  if (!may_go_on) is_stopped_ = true;
  if (is_stopped_ || steps_.empty()) {
    if (std::ranges::find(idle_, thread) == idle_.end()) idle_.push_back(thread);
    changed_->Set();
    return std::nullopt;
  }
  Step step = std::move(steps_.back());
  steps_.pop_back();
  return step;
}

void TreeRemover::Do(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kList: return List(*step.directory);
    case Step::Kind::kUnlink: return Unlink(step);
    case Step::Kind::kRemoveDirectory: return RemoveDirectory(*step.directory);
  }
}

void TreeRemover::List(Directory& directory) {
  // Nobody else changes where it goes on while it is being listed.
  auto entries =
      fs_.ReadDirectory(directory.inode, directory.after, options_.page, /*with_attributes=*/true);
  const MutexLock lock(mutex_);
  directory.is_being_listed = false;
  if (entries.has_value()) {
    TakeListed(directory, *std::move(entries));
  } else {
    directory.has_ended = true;
    // One that is gone was removed by somebody else. That of its name is for who removes that.
    if (entries.error().code() != ENOENT) NoteFailure(directory, "", entries.error());
  }
  Settle(&directory);
}

void TreeRemover::TakeListed(Directory& directory, std::vector<DirectoryEntry> entries) {
  directory.has_ended = entries.size() < options_.page;
  if (entries.empty()) return;
  directory.after = entries.back().name;
  directory.pending += entries.size();
  for (DirectoryEntry& entry : entries) {
    if (entry.kind == FileKind::kDirectory) {
      Directory& child = directories_.emplace_back();
      child.self = std::prev(directories_.end());
      child.parent = &directory;
      child.in = directory.inode;
      child.name = std::move(entry.name);
      child.inode = entry.inode;
      Settle(&child);
    } else {
      const bool frees = entry.attributes && entry.attributes->links == 1;
      Push({.kind = Step::Kind::kUnlink,
            .directory = &directory,
            .name = std::move(entry.name),
            .bytes = frees ? entry.attributes->stored_bytes : 0});
    }
  }
}

// False: it is to be stopped.
bool TreeRemover::WaitForRoom() {
  for (InVain in_vain(runtime_); !has_waited_in_vain_;) {
    const size_t left = fs_.CountToFree();
    if (left < options_.most_to_free) return true;
    if (!GoOn()) return false;
    if (in_vain.IsIt(left)) has_waited_in_vain_ = true;
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + kLookForRoomEvery);
  }
  return true;
}

void TreeRemover::Unlink(const Step& step) {
  if (!WaitForRoom()) return;  // the next look at what may be done ends it
  Directory& directory = *step.directory;
  const Status removed = fs_.Unlink(directory.inode, step.name);
  const MutexLock lock(mutex_);
  --directory.pending;
  if (removed.ok()) {
    ++done_.files;
    done_.bytes += step.bytes;
  } else if (removed.code() != EISDIR && removed.code() != ENOENT) {
    // Where others have put a directory in its place, the next scan finds that.
    NoteFailure(directory, step.name, removed);
  }
  Settle(&directory);
}

void TreeRemover::RemoveDirectory(Directory& directory) {
  const Status removed = fs_.RemoveDirectory(directory.in, directory.name);
  const MutexLock lock(mutex_);
  if (removed.ok()) {
    ++done_.directories;
  } else if (removed.code() == ENOTEMPTY) {
    if (directory.scans < options_.most_scans) {
      ++directory.scans;
      directory.after.clear();
      directory.has_ended = false;
      return Settle(&directory);
    }
    NoteFailure(directory, "",
                Fail(ENOTEMPTY, "it is not empty: others put names into it, {} times in between",
                     directory.scans));
  } else if (removed.code() != ENOENT && (removed.code() != ENOTDIR || !directory.parent)) {
    // Where others have put something else in its place, the next scan of its parent finds that.
    NoteFailure(directory, "", removed);
  }
  Settle(Leave(directory));
}

// ---- What is next

void TreeRemover::Push(Step step) {
  steps_.push_back(std::move(step));
  WakeOne();
}

void TreeRemover::WakeOne() {
  if (idle_.empty() || is_stopped_) return;
  threads_[idle_.back()].Wake();
  idle_.pop_back();
}

void TreeRemover::Settle(Directory* directory) {
  while (directory != nullptr) {
    if (!directory->has_ended) {
      // The next page is listed while what is left of this one is removed.
      if (directory->is_being_listed || directory->pending > options_.page / 2) return;
      directory->is_being_listed = true;
      return Push({.kind = Step::Kind::kList, .directory = directory, .name = ""});
    }
    if (directory->pending > 0) return;
    if (!directory->has_failed) {
      return Push({.kind = Step::Kind::kRemoveDirectory, .directory = directory, .name = ""});
    }
    directory = Leave(*directory);
  }
}

// It is done with. The answer: the one above it, which may have waited for that.
TreeRemover::Directory* TreeRemover::Leave(Directory& directory) {
  Directory* const parent = directory.parent;
  if (parent != nullptr) {
    --parent->pending;
    parent->has_failed = parent->has_failed || directory.has_failed;
  }
  directories_.erase(directory.self);
  if (parent == nullptr) changed_->Set();
  return parent;
}

void TreeRemover::NoteFailure(Directory& directory, std::string_view name, Status why) {
  std::string path = PathOf(directory);
  if (!name.empty()) path.append("/").append(name);
  failures_.push_back({std::move(path), std::move(why)});
  directory.has_failed = true;
}

std::string TreeRemover::PathOf(const Directory& directory) const {
  std::vector<std::string_view> names;
  const Directory* at = &directory;
  for (; at->parent != nullptr; at = at->parent) names.push_back(at->name);
  std::string path = top_;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  for (auto name = names.rbegin(); name != names.rend(); ++name) path.append("/").append(*name);
  return path;
}

}  // namespace pinstripe
