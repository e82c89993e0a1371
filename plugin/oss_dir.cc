#include "plugin/oss_dir.h"

#include <algorithm>
#include <cerrno>

#include "base/answer.h"
#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kBatch = 4096;  // entries fetched at once: few round trips for large directories

}  // namespace

int OssDir::Opendir(const char* path, XrdOucEnv&) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kList, path);
  path_ = path;
  const Result<Attributes> found = oss_.Resolve(path);
  if (!found.has_value()) return oss_.AnswerFor(found.error(), "opendir", path);
  if (found->kind != FileKind::kDirectory) return -ENOTDIR;
  directory_ = found->inode;
  return 0;
}

int OssDir::StatRet(struct stat* out) {
  if (directory_ == 0) return -EBADF;
  stat_ = out;
  return 0;
}

Result<bool> OssDir::Advance() {
  if (next_ < batch_.size()) return true;
  batch_ = TRY(oss_.file_system().ReadDirectory(directory_, last_name_, kBatch, stat_ != nullptr));
  next_ = 0;
  if (batch_.empty()) return false;
  last_name_ = batch_.back().name;
  return true;
}

Result<std::optional<Attributes>> OssDir::AttributesOf(const DirectoryEntry& entry) {
  const bool is_link = entry.kind == FileKind::kSymlink;  // what it leads to is asked for
  if (entry.attributes.has_value() && !is_link) return entry.attributes;
  Result<Attributes> attributes = is_link ? oss_.Resolve((path_ + "/" + entry.name).c_str())
                                          : oss_.file_system().GetAttributes(entry.inode);
  if (attributes.has_value()) return std::optional(*attributes);
  const int code = attributes.error().code();
  const bool leads_nowhere = is_link && (code == ELOOP || code == ENOTDIR);
  if (code == ENOENT || leads_nowhere) return std::optional<Attributes>();
  return Failed(attributes.error().Context(entry.name));
}

// XRootD's server has room for 254 bytes, and takes an error here for the end of the listing. A
// longer name is listed by its beginning, as XRootD's own storage does it. Where that is another
// entry's name, it is listed by something else that none has. Nobody finds it under that, and a
// client that copies or removes a tree is told so. To leave it out would have it believe that it
// has it all.
Result<std::string> OssDir::NameToShow(const DirectoryEntry& entry, int length) {
  const auto room = static_cast<size_t>(std::max(length, 2)) - 1;
  if (entry.name.size() <= room) return entry.name;
  Log(LogLevel::kWarn, "name too long to be listed by XRootD as a whole",
      {{"directory", path_}, {"name", entry.name}});
  std::string shown = entry.name.substr(0, room);
  for (const char last : std::string_view("~_-0123456789")) {
    const auto other = oss_.file_system().Lookup(directory_, shown);
    if (!other.has_value() && other.error().code() == ENOENT) return shown;
    TRY(other);
    shown.back() = last;
  }
  return Fail(ENAMETOOLONG, "there are too many names like '{}' to list it", entry.name);
}

int OssDir::Readdir(char* name, int length) {
  const auto counted = oss_.Counted(GatewayCounters::Request::kList, path_.c_str());
  if (directory_ == 0) return -EBADF;
  for (;;) {
    const Result<bool> more = Advance();
    if (!more.has_value()) return oss_.AnswerFor(more.error(), "readdir", path_);
    if (!*more) {
      *name = '\0';
      return 0;
    }
    const DirectoryEntry& entry = batch_[next_++];
    const Result<std::string> shown = NameToShow(entry, length);
    if (!shown.has_value()) return oss_.AnswerFor(shown.error(), "readdir", path_);
    if (stat_ != nullptr) {
      const Result<std::optional<Attributes>> attributes = AttributesOf(entry);
      if (!attributes.has_value()) return oss_.AnswerFor(attributes.error(), "readdir", path_);
      if (!attributes->has_value()) continue;  // gone since it was listed, or a link to nothing
      *stat_ = oss_.StatOf(**attributes);
    }
    shown->copy(name, shown->size());
    name[shown->size()] = '\0';
    return 0;
  }
}

int OssDir::Close(long long*) {
  if (directory_ == 0) return -EBADF;
  directory_ = 0;
  batch_.clear();
  return 0;
}

}  // namespace pinstripe
