#include "store/drive_mark.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/config.h"
#include "base/drive_directory.h"
#include "base/file_descriptor.h"
#include "base/read_file.h"
#include "base/time_text.h"
#include "base/toml_text.h"
#include "base/try.h"
#include "store/directory.h"

namespace pinstripe {
namespace {

constexpr int64_t kFormat = 1;
constexpr mode_t kMode = 0640;
constexpr size_t kIdBytes = 16;

std::string MarkOf(const std::string& directory) {
  return fmt::format("{}/{}", directory, DriveMark::kFileName);
}

Result<bool> IsThere(const std::string& path) {
  struct stat about;
  if (stat(path.c_str(), &about) == 0) return true;
  if (errno == ENOENT) return false;
  return Fail(errno, "cannot look at {}: {}", path, ErrnoText(errno));
}

bool IsId(std::string_view id) {
  return id.size() == 2 * kIdBytes && std::ranges::all_of(id, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// For the owner of the directory, who serves the drive: root makes drives for others.
Result<DriveMark> WriteMark(const std::string& directory, std::string_view version) {
  struct stat about;
  if (stat(directory.c_str(), &about) != 0) {
    return Fail(errno, "cannot look at {}: {}", directory, ErrnoText(errno));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const DriveMark mark{
      .id = RandomHex(kIdBytes),
      .made = TimeText(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
      .made_by = std::string(version)};
  const auto contents = [&](int fd) -> Result<std::string> {
    const bool foreign = about.st_uid != geteuid() || about.st_gid != getegid();
    if (geteuid() == 0 && foreign && fchown(fd, about.st_uid, about.st_gid) != 0) {
      return Fail(errno, "cannot give {} to the owner of its directory: {}", MarkOf(directory),
                  ErrnoText(errno));
    }
    return EncodeDriveMark(mark);
  };
  TRY(ReplaceFileDurably(MarkOf(directory), contents, kMode));
  return mark;
}

// An opened directory, whatever has its name by now: root may work where somebody else can rename.
std::string PathOf(const FileDescriptor& opened) {
  return fmt::format("/proc/self/fd/{}", opened.get());
}

// A directory of which InitDrive() can make a drive. Failures as of CheckCanBecomeDrive().
Result<FileDescriptor> OpenNewDrive(const std::string& directory) {
  FileDescriptor opened(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 && errno == ENOENT) {
    return Fail(ENOENT,
                "there is no directory {}: make it, and give it to the user that pinstriped runs "
                "as",
                directory);
  }
  if (opened.get() < 0) {
    return Fail(errno, "cannot read directory {}: {}", directory, ErrnoText(errno));
  }
  const std::string path = PathOf(opened);
  const std::string something =
      TRY_CONTEXT(SomethingIn(path), "whether {} can become a drive", directory);
  if (TRY_CONTEXT(StoreDirectory::HasStore(path), "whether {} can become a drive", directory) ||
      TRY_CONTEXT(IsThere(MarkOf(path)), "whether {} can become a drive", directory)) {
    return Fail(EEXIST,
                "{} is a drive already. To make a new one there, remove everything in it: what the "
                "drive holds is lost then",
                directory);
  }
  if (!something.empty()) {
    return Fail(ENOTEMPTY,
                "{} is not empty: \"{}\" is in it. Give a drive an empty directory of its own",
                directory, something);
  }
  return opened;
}

}  // namespace

std::string EncodeDriveMark(const DriveMark& mark) {
  TomlText text;
  text.Comment("This directory is a drive's. pinstriped serves no drive without this file.");
  text.Set("format", kFormat);
  text.Set("id", mark.id);
  text.Set("made", mark.made);
  text.Set("made_by", mark.made_by);
  return text.Take();
}

Result<DriveMark> DecodeDriveMark(std::string_view text, const std::string& file) {
  const auto damaged = [&](const Status& why) {
    return Fail(EBADMSG,
                "the mark of the drive is damaged: {}. If this is the right disk, remove the "
                "file: a drive that has its store gets a new one",
                why.message());
  };
  const Result<ConfigFile> parsed = ConfigFile::Parse(text, file);
  if (!parsed.has_value()) return damaged(parsed.error());
  ConfigTable root = parsed->root();
  const int64_t format = root.Integer("format", std::nullopt, 1, INT64_MAX);
  if (format > kFormat) {
    return Fail(ENOTSUP,
                "{}: the mark of the drive has format {}, this program knows up to {}; use the "
                "newer pinstriped",
                file, format, kFormat);
  }
  DriveMark mark{.id = root.Text("id"), .made = root.Text("made"), .made_by = root.Text("made_by")};
  if (!IsId(mark.id)) root.Refuse("id", fmt::format("'{}' is not 32 hexadecimal digits", mark.id));
  const Status read = parsed->Finish();
  if (!read.ok()) return damaged(read);
  return mark;
}

Status CheckCanBecomeDrive(const std::string& directory) {
  TRY(OpenNewDrive(directory));
  return {};
}

Status CheckCanBecomeDrives(const std::vector<std::string>& directories) {
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  for (const std::string& directory : directories) {
    const FileDescriptor opened = TRY(OpenNewDrive(directory));
    struct stat about;
    if (fstat(opened.get(), &about) != 0) {
      return Fail(errno, "cannot look at {}: {}", directory, ErrnoText(errno));
    }
    const auto [known, is_new] = seen.emplace(std::pair(about.st_dev, about.st_ino), directory);
    if (!is_new) {
      return Fail(EINVAL, "{} and {} are one directory, which becomes one drive alone",
                  known->second, directory);
    }
  }
  return {};
}

Result<DriveMark> InitDrive(const std::string& directory, std::string_view version) {
  const FileDescriptor opened = TRY(OpenNewDrive(directory));
  return TRY_CONTEXT(WriteMark(PathOf(opened), version), "{} does not become a drive", directory);
}

Result<DriveMark> RequireDriveMark(const std::string& directory, std::string_view version) {
  const std::string file = MarkOf(directory);
  if (TRY(IsThere(file))) return DecodeDriveMark(TRY(ReadFile(file)), file);
  if (TRY(StoreDirectory::HasStore(directory))) return WriteMark(directory, version);
  // Short, as clients of the drive are told it, too.
  return Fail(
      ENOENT,
      "it has no file \"{}\". Is its disk mounted? (`pinstriped --init DIR` makes a new, empty "
      "drive)",
      DriveMark::kFileName);
}

}  // namespace pinstripe
