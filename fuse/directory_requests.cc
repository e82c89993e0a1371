// Requests that list a directory.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/try.h"
#include "fs/posix_stat.h"
#include "fuse/directory_positions.h"
#include "fuse/listed_names.h"
#include "fuse/requests.h"
#include "fuse/virtual_files.h"

namespace pinstripe::requests {
namespace {

// How many entries an answer is to have. A program that lists the directory wants all. One that
// goes to some position (seekdir) often wants a single entry, and each one that comes along costs
// its inode. So it gets few, and twice as many with each answer that follows on.
class Pace {
 public:
  size_t Begin(uint64_t position) {
    constexpr size_t kAfterSeek = 16;
    if (position <= DirectoryPositions::kAfterDotDot) {
      entries_ = SIZE_MAX;
    } else if (position != end_) {
      entries_ = kAfterSeek;
    } else if (entries_ <= SIZE_MAX / 2) {
      entries_ *= 2;
    }
    return entries_;
  }
  void End(uint64_t position) { end_ = position; }

 private:
  size_t entries_ = SIZE_MAX;
  uint64_t end_ = DirectoryPositions::kStart;  // of the last answer
};

// An open directory. The kernel may list it from several threads at once.
struct DirectoryHandle {
  Mutex mutex;
  DirectoryPositions positions GUARDED_BY(mutex);
  Pace pace GUARDED_BY(mutex);
  ListedNames listed GUARDED_BY(mutex);
};

DirectoryHandle& DirectoryOf(const fuse_file_info* info) {
  return *reinterpret_cast<DirectoryHandle*>(info->fh);
}

// The answer to one readdir or readdirplus, as it fills up.
class Listing {
 public:
  Listing(fuse_req_t request, size_t size, bool with_attributes)
      : mount_(MountOf(request)),
        request_(request),
        buffer_(size),
        with_attributes_(with_attributes) {}

  // How many entries are worth fetching: about what will fit.
  size_t room() const {
    constexpr size_t kTypicalBytes = 48;  // of an entry with its name
    constexpr size_t kTypicalBytesWithAttributes = 176;
    const size_t each = with_attributes_ ? kTypicalBytesWithAttributes : kTypicalBytes;
    return std::max<size_t>(1, (buffer_.size() - used_) / each);
  }

  // False when it does not fit any more.
  bool Add(const DirectoryEntry& entry, uint64_t position_after) {
    char* out = reinterpret_cast<char*>(buffer_.data()) + used_;
    const size_t left = buffer_.size() - used_;
    const auto position = static_cast<off_t>(position_after);
    // Without attributes, and for "." and "..", the node stays 0. The kernel then learns only a
    // name.
    fuse_entry_param param{};
    if (entry.attributes.has_value()) {
      has_attributes_ = true;
      const MountOptions& options = mount_.options();
      param = EntryOf(mount_, *entry.attributes);
      param.entry_timeout = SecondsOf(options.name_age);
      param.attr_timeout = SecondsOf(options.attribute_age);
    }
    param.attr.st_ino = entry.inode;
    param.attr.st_mode |= TypeBits(entry.kind);
    const size_t needed =
        with_attributes_
            ? fuse_add_direntry_plus(request_, out, left, entry.name.c_str(), &param, position)
            : fuse_add_direntry(request_, out, left, entry.name.c_str(), &param.attr, position);
    if (needed > left) return false;
    used_ += needed;
    return true;
  }

  bool empty() const { return used_ == 0; }
  bool has_attributes() const { return has_attributes_; }  // of some entry
  // The few entries that would still fit are not worth another round trip.
  bool full_enough() const { return used_ >= buffer_.size() / 2; }
  void Reply() { fuse_reply_buf(request_, reinterpret_cast<const char*>(buffer_.data()), used_); }

 private:
  Mount& mount_;
  const fuse_req_t request_;
  Buffer buffer_;
  const bool with_attributes_;
  size_t used_ = 0;
  bool has_attributes_ = false;
};

// Adds "." and "..", or what `position` leaves of them. False: the listing is full.
Result<bool> AddDots(Mount& mount, InodeId directory, uint64_t& position, Listing& listing) {
  if (position == DirectoryPositions::kStart) {
    if (!listing.Add({".", directory, FileKind::kDirectory, {}}, DirectoryPositions::kAfterDot)) {
      return false;
    }
    position = DirectoryPositions::kAfterDot;
  }
  if (position == DirectoryPositions::kAfterDot) {
    // No path leads out of the mounted directory.
    InodeId parent = mount.root();
    if (directory != mount.root() && !IsVirtual(directory)) {
      parent = TRY(mount.file_system().ParentOf(directory));
    }
    if (!listing.Add({"..", parent, FileKind::kDirectory, {}}, DirectoryPositions::kAfterDotDot)) {
      return false;
    }
    position = DirectoryPositions::kAfterDotDot;
  }
  return true;
}

// The name after which a listing goes on.
Result<std::string> FindPlace(FileSystem& fs, InodeId directory,
                              const DirectoryPositions::Resume& resume) {
  constexpr size_t kLeastNamesAtOnce = 16;
  std::string place = resume.after;
  if (resume.passed.empty()) return place;
  const auto has = [](const std::vector<uint32_t>& sums, uint32_t sum) {
    return std::find(sums.begin(), sums.end(), sum) != sums.end();
  };
  // So many suffice if nothing has changed.
  const size_t at_once = std::max(kLeastNamesAtOnce, resume.passed.size());
  for (std::string after = resume.after;;) {
    const std::vector<DirectoryEntry> entries =
        TRY(fs.ReadDirectory(directory, after, at_once, /*with_attributes=*/false));
    if (entries.empty()) return place;
    for (const DirectoryEntry& entry : entries) {
      const uint32_t sum = DirectoryPositions::SumOf(entry.name);
      if (!resume.until.empty() && entry.name > resume.until) return place;
      if (has(resume.later, sum)) return place;
      if (has(resume.passed, sum)) place = entry.name;
      if (sum == resume.passed.back()) return place;
    }
    after = entries.back().name;
  }
}

// Adds names that were just listed here, without attributes. How many there were.
size_t AddListed(Mount& mount, uint64_t position, size_t wanted, DirectoryHandle& handle,
                 Listing& listing) REQUIRES(handle.mutex) {
  const auto changes = mount.NameChanges();
  if (!changes) return 0;
  const Time since = mount.runtime().Now() - mount.options().name_age;
  const auto names =
      handle.listed.After(position, std::min(wanted, listing.room()), since, *changes);
  size_t added = 0;
  for (const ListedNames::Name& name : names) {
    if (!listing.Add({name.name, name.inode, name.kind, {}}, position + added + 1)) break;
    ++added;
  }
  handle.pace.End(position + added);
  return added;
}

Status List(Mount& mount, InodeId directory, uint64_t position, bool with_attributes,
            DirectoryHandle& handle, Listing& listing) {
  FileSystem& fs = mount.file_system();
  DirectoryPositions::Resume resume;
  size_t wanted = 0;
  {
    const MutexLock lock(handle.mutex);
    if (position == DirectoryPositions::kStart) {
      handle.positions.Begin();
      handle.listed.Clear();
    }
    if (!handle.positions.Knows(position)) {
      return Fail(EINVAL, "position {} was never handed out", position);
    }
    resume = handle.positions.At(position);
    wanted = handle.pace.Begin(position);
    if (AddListed(mount, position, wanted, handle, listing) > 0) return {};
  }
  std::string after = TRY(FindPlace(fs, directory, resume));
  if (!TRY(AddDots(mount, directory, position, listing))) return {};
  for (;;) {
    // Fetches attributes only for the entries that this answer has room for. Older ones would
    // mislead the kernel about files that are being written.
    const Time asked_at = mount.runtime().Now();
    const auto changes = mount.NameChanges();
    std::vector<DirectoryEntry> entries =
        IsVirtual(directory)
            ? ListVirtual(after)
            : TRY(fs.ReadDirectory(directory, after, std::min(wanted, listing.room()),
                                   with_attributes));
    if (entries.empty()) return {};
    const MutexLock lock(handle.mutex);
    for (DirectoryEntry& entry : entries) {
      const uint64_t here = handle.positions.After(position, after, entry.name);
      if (!listing.Add(entry, here)) return {};
      after = entry.name;
      if (changes) {
        handle.listed.Add(here, {.name = std::move(entry.name),
                                 .inode = entry.inode,
                                 .kind = entry.kind,
                                 .previous = position,
                                 .listed_at = asked_at,
                                 .changes = *changes});
      }
      position = here;
      handle.pace.End(position);
    }
    wanted -= std::min(wanted, entries.size());
    if (wanted == 0 || listing.full_enough()) return {};
  }
}

void ReplyListing(fuse_req_t request, InodeId directory, size_t size, off_t offset,
                  const fuse_file_info* info, bool with_attributes) {
  Listing listing(request, size, with_attributes);
  const Status listed = List(MountOf(request), directory, static_cast<uint64_t>(offset),
                             with_attributes, DirectoryOf(info), listing);
  // Entries that were found before a failure are handed out. The next request meets the failure
  // again.
  if (!listed.ok() && listing.empty()) {
    ReplyStatus(request, listed, "readdir", Subject(directory));
    return;
  }
  if (listing.has_attributes()) MountOf(request).AttributesWereListed();
  listing.Reply();
}

}  // namespace

void SyncDirectory(fuse_req_t request, fuse_ino_t directory, int, fuse_file_info*) {
  ReplyStatus(request, FileSystemOf(request).SyncDirectory(directory), "fsync", Subject(directory));
}

void OpenDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  auto handle = std::make_unique<DirectoryHandle>();
  info->fh = reinterpret_cast<uint64_t>(handle.get());
  if (fuse_reply_open(request, info) != -ENOENT) handle.release();  // the kernel's until released
}

void ReleaseDirectory(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  delete &DirectoryOf(info);
  fuse_reply_err(request, 0);
}

void ReadDirectory(fuse_req_t request, fuse_ino_t directory, size_t size, off_t offset,
                   fuse_file_info* info) {
  ReplyListing(request, directory, size, offset, info, /*with_attributes=*/false);
}

void ReadDirectoryPlus(fuse_req_t request, fuse_ino_t directory, size_t size, off_t offset,
                       fuse_file_info* info) {
  ReplyListing(request, directory, size, offset, info, /*with_attributes=*/true);
}

}  // namespace pinstripe::requests
