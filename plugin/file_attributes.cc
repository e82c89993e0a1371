#include "plugin/file_attributes.h"

#include <endian.h>

#include <XrdCks/XrdCksData.hh>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/answer.h"
#include "base/try.h"
#include "fs/posix_stat.h"

namespace pinstripe {
namespace {

constexpr std::string_view kTheirs = "U.";
constexpr std::string_view kOurs = "user.";
constexpr std::string_view kChecksums = "XrdCks.";

// Null: no attribute of a client.
std::optional<std::string> OurName(std::string_view theirs) {
  if (!theirs.starts_with(kTheirs)) return std::nullopt;
  return std::string(kOurs).append(theirs.substr(kTheirs.size()));
}

// As XRootD's manager of checksums keeps one in an attribute: its numbers are big-endian. It
// counts as long as the file's time is `modified`.
XrdCksData StoredChecksum(std::string_view algorithm, uint32_t sum, int64_t modified) {
  XrdCksData data;
  data.Set(std::string(algorithm).c_str());
  const uint32_t bytes = htobe32(sum);
  data.Set(static_cast<const void*>(&bytes), sizeof bytes);
  data.fmTime = static_cast<long long>(htobe64(static_cast<uint64_t>(ToTimespec(modified).tv_sec)));
  return data;
}

// A list's element has its name behind it, in one piece of memory.
XrdSysXAttr::AList* NewElement(const std::string& name, int value_size, XrdSysXAttr::AList* next) {
  void* memory = std::malloc(sizeof(XrdSysXAttr::AList) + name.size());
  if (memory == nullptr) throw std::bad_alloc();
  auto* element = new (memory) XrdSysXAttr::AList;
  element->Next = next;
  element->Vlen = value_size;
  element->Nlen = static_cast<int>(name.size());
  std::memcpy(element->Name, name.c_str(), name.size() + 1);
  return element;
}

}  // namespace

Result<InodeId> FileAttributes::Find(const char* path, Use use) const {
  if (oss_() == nullptr) return Fail(EAGAIN, "the file system is not open yet");
  if (use == Use::kChange) return oss_()->ResolveForChange(path);
  return TRY(oss_()->Resolve(path)).inode;
}

int FileAttributes::GetChecksum(std::string_view algorithm, void* value, int size,
                                const char* path) const {
  if (algorithm != "adler32" && algorithm != "crc32c") return -ENODATA;
  constexpr auto kSize = static_cast<int>(sizeof(XrdCksData));
  if (size <= 0) return kSize;
  if (size < kSize) return -ERANGE;
  const auto sum_up = [&]() -> Result<FileSums> {
    const InodeId inode = TRY(Find(path, Use::kLook));
    return oss_()->file_system().Checksums(inode);
  };
  const Result<FileSums> sums = sum_up();
  if (!sums.has_value()) {
    // Where reading the file may still bring it, the server tries that.
    return sums.error().code() == ENOENT ? -ENOENT : -ENODATA;
  }
  const XrdCksData data = StoredChecksum(
      algorithm, algorithm == "adler32" ? sums->adler32 : sums->crc32c, sums->modified);
  std::memcpy(value, &data, sizeof data);
  return kSize;
}

int FileAttributes::Get(const char* name, void* value, int size, const char* path, int) {
  if (const std::string_view whole = name; whole.starts_with(kChecksums)) {
    return GetChecksum(whole.substr(kChecksums.size()), value, size, path);
  }
  const auto ours = OurName(name);
  if (!ours) return -ENODATA;
  const auto read = [&]() -> Result<std::string> {
    const InodeId inode = TRY(Find(path, Use::kLook));
    return oss_()->file_system().GetExtended(inode, *ours);
  };
  const Result<std::string> found = read();
  if (!found.has_value()) {
    return found.error().code() == ENODATA ? -ENODATA
                                           : -Answer(found.error(), "get attribute of", path);
  }
  if (size <= 0) return static_cast<int>(found->size());
  if (found->size() > static_cast<size_t>(size)) return -ERANGE;
  found->copy(static_cast<char*>(value), found->size());
  return static_cast<int>(found->size());
}

int FileAttributes::Set(const char* name, const void* value, int size, const char* path, int,
                        int is_new) {
  const auto ours = OurName(name);
  if (!ours) return -ENOTSUP;
  const auto set = [&]() -> Status {
    const InodeId inode = TRY(Find(path, Use::kChange));
    const std::string_view bytes(static_cast<const char*>(value),
                                 static_cast<size_t>(std::max(size, 0)));
    using Mode = FileSystem::ExtendedMode;
    return oss_()->file_system().SetExtended(inode, *ours, bytes,
                                             is_new != 0 ? Mode::kCreate : Mode::kSet);
  };
  return -Answer(set(), "set attribute of", path);
}

int FileAttributes::Del(const char* name, const char* path, int) {
  const auto ours = OurName(name);
  if (!ours) return 0;  // it is not there
  const auto remove = [&]() -> Status {
    const InodeId inode = TRY(Find(path, Use::kChange));
    return oss_()->file_system().RemoveExtended(inode, *ours);
  };
  const Status status = remove();
  return status.code() == ENODATA ? -ENODATA : -Answer(status, "remove attribute of", path);
}

int FileAttributes::List(AList** first, const char* path, int, int with_sizes) {
  *first = nullptr;
  const auto list = [&]() -> Result<std::vector<std::pair<std::string, int>>> {
    const InodeId inode = TRY(Find(path, Use::kLook));
    std::vector<std::pair<std::string, int>> found;
    for (const std::string& name : TRY(oss_()->file_system().ListExtended(inode))) {
      if (!name.starts_with(kOurs)) continue;
      const auto value = oss_()->file_system().GetExtended(inode, name);
      // Removed since the list was made.
      if (!value.has_value() && value.error().code() == ENODATA) continue;
      if (!value.has_value()) return tl::unexpected(value.error());
      found.emplace_back(std::string(kTheirs).append(name.substr(kOurs.size())),
                         static_cast<int>(value->size()));
    }
    return found;
  };
  const auto found = list();
  if (!found.has_value()) return -Answer(found.error(), "list attributes of", path);
  int largest = 0;
  for (auto at = found->rbegin(); at != found->rend(); ++at) {
    *first = NewElement(at->first, at->second, *first);
    largest = std::max(largest, at->second);
  }
  return with_sizes != 0 ? largest : 0;
}

void FileAttributes::Free(AList* first) {
  while (first != nullptr) std::free(std::exchange(first, first->Next));
}

}  // namespace pinstripe
