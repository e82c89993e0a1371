#include "upkeep/check_state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMagic = "pinstripe check";
constexpr uint32_t kVersion = 1;
// Of the time, at most, goes into keeping it: one part in so many.
constexpr int kPartForKeeping = 20;

}  // namespace

CheckState::CheckState(Cluster& cluster, std::string directory, Duration every)
    : cluster_(cluster), directory_(std::move(directory)), every_(every) {
  head_ = {.magic = std::string(kMagic),
           .version = kVersion,
           .uuid = cluster.uuid(),
           .epoch = cluster.map().epoch,
           .groups = cluster.map().groups};
}

Result<std::unique_ptr<CheckState>> CheckState::Open(Cluster& cluster, const std::string& directory,
                                                     Duration every) {
  std::unique_ptr<CheckState> state(new CheckState(cluster, directory, every));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    const int code = errno;
    return Fail(code, "cannot make {}: {}", directory, ErrnoText(code));
  }
  state->lock_ = FileDescriptor(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (state->lock_.get() < 0) {
    const int code = errno;
    return Fail(code, "cannot open {}: {}", directory, ErrnoText(code));
  }
  struct stat found {};
  if (fstat(state->lock_.get(), &found) != 0 || found.st_uid != geteuid() ||
      (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Fail(EPERM, "{} is somebody else's, or others may write there: give another directory",
                directory);
  }
  if (flock(state->lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Fail(EBUSY, "{} is used by another process", directory);
  }
  TRY(state->Look());
  state->next_ = cluster.runtime().Now() + every;
  return state;
}

void CheckState::Archive(StateFile& file, Head& head) {
  file.Text(head.magic);
  file.Number(head.version);
  // What comes behind is another version's business.
  if (head.magic != kMagic || head.version != kVersion) return;
  file.Text(head.uuid);
  file.Number(head.epoch);
  file.Number(head.groups);
  file.Number(head.began);
  file.Raw(head.id);
}

// What is there. All of it is looked at here, so that what does not fit is told before anything is
// begun.
Status CheckState::Look() {
  auto names = StateFile::Read(PathOf(kNames));
  if (!names.has_value()) {
    return names.error().code() == ENOENT ? Status() : names.error();
  }
  Head head;
  Archive(*names, head);
  if (!names->ok() || head.magic != kMagic) {
    return Fail(EBADMSG, "{} is not what a check keeps there: give another directory",
                PathOf(kNames));
  }
  if (head.version != kVersion) {
    return Fail(EBADMSG, "{} is of version {}, and this program knows {}: remove it to begin anew",
                PathOf(kNames), head.version, kVersion);
  }
  if (head.uuid != head_.uuid) {
    return Fail(EINVAL, "{} is about another cluster: give another directory", directory_);
  }
  if (head.epoch != head_.epoch || head.groups != head_.groups) {
    Log(LogLevel::kInfo, "a check begins anew, as the drive map has changed",
        {{"directory", directory_}, {"epoch", head_.epoch}, {"before", head.epoch}});
    return {};
  }
  head_ = head;
  has_names_ = true;
  auto shards = StateFile::Read(PathOf(kShards));
  if (!shards.has_value()) {
    return shards.error().code() == ENOENT ? Status() : shards.error();
  }
  Head of_shards;
  Archive(*shards, of_shards);
  has_shards_ = shards->ok() && of_shards.id == head.id;
  return {};
}

std::optional<int64_t> CheckState::goes_on_since() const {
  return has_names_ ? std::optional(head_.began) : std::nullopt;
}

Result<bool> CheckState::Read(const char* name, const Contents& contents) {
  const Status read = [&]() -> Status {
    StateFile file = TRY(StateFile::Read(PathOf(name)));
    Head head;
    Archive(file, head);
    contents(file);
    return file.Finish();
  }();
  is_unread_ |= !read.ok();
  TRY(read);
  return true;
}

Result<bool> CheckState::ReadNames(const Contents& contents) {
  if (!has_names_) return false;
  return Read(kNames, contents);
}

Result<bool> CheckState::ReadShards(const Contents& contents) {
  if (!has_shards_) return false;
  return Read(kShards, contents);
}

Status CheckState::WriteFile(const char* name, const Contents& contents) {
  StateFile file = TRY(StateFile::Write(PathOf(name)));
  Archive(file, head_);
  contents(file);
  return file.Finish();
}

bool CheckState::Write(const char* name, const Contents& contents) {
  const Time begin = cluster_.runtime().Now();
  const Status written = WriteFile(name, contents);
  if (!written.ok()) {
    Log(LogLevel::kWarn, "how far a check is cannot be kept",
        {{"directory", directory_}, {"why", written}});
  }
  const Time end = cluster_.runtime().Now();
  next_ = end + std::max(every_, kPartForKeeping * (end - begin));
  return written.ok();
}

void CheckState::WriteNames(int64_t began, const Contents& contents) {
  head_.began = began;
  const std::string random =
      Writer().U64(cluster_.runtime().Random()).U64(cluster_.runtime().Random()).Take();
  std::ranges::copy(random, head_.id.begin());
  has_names_ = Write(kNames, contents);
}

// Only with names that it goes with.
void CheckState::WriteShards(const Contents& contents) {
  if (has_names_) Write(kShards, contents);
}

Status CheckState::Remove() {
  if (is_unread_) return {};
  for (const char* name : {kShards, kNames}) {
    for (const std::string& path : {PathOf(name) + std::string(StateFile::kBeside), PathOf(name)}) {
      if (unlink(path.c_str()) != 0 && errno != ENOENT) {
        const int code = errno;
        return Fail(code, "cannot remove {}: {}", path, ErrnoText(code));
      }
    }
  }
  (void)rmdir(directory_.c_str());  // unless something else is in it
  return {};
}

}  // namespace pinstripe
