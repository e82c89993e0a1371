#include "fuse/remount.h"

#include <fmt/ranges.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/read_file.h"
#include "base/try.h"
#include "fuse/mount_options.h"

namespace pinstripe {
namespace {

constexpr unsigned long kNoSymlinks = 256;  // MS_NOSYMFOLLOW, which glibc does not name
constexpr unsigned long kAccessTimes = MS_NOATIME | MS_RELATIME | MS_STRICTATIME;

struct KernelOption {
  std::string_view name;
  unsigned long clear = 0;
  unsigned long set = 0;
};
constexpr std::array<KernelOption, 23> kKernelOptions = {{
    {"ro", 0, MS_RDONLY},
    {"rw", MS_RDONLY, 0},
    {"nosuid", 0, MS_NOSUID},
    {"suid", MS_NOSUID, 0},
    {"nodev", 0, MS_NODEV},
    {"dev", MS_NODEV, 0},
    {"noexec", 0, MS_NOEXEC},
    {"exec", MS_NOEXEC, 0},
    {"nosymfollow", 0, kNoSymlinks},
    {"symfollow", kNoSymlinks, 0},
    {"sync", 0, MS_SYNCHRONOUS},
    {"async", MS_SYNCHRONOUS, 0},
    {"lazytime", 0, MS_LAZYTIME},
    {"nolazytime", MS_LAZYTIME, 0},
    {"noatime", kAccessTimes, MS_NOATIME},
    {"atime", kAccessTimes, MS_RELATIME},
    {"relatime", kAccessTimes, MS_RELATIME},
    {"norelatime", MS_RELATIME, 0},
    {"strictatime", kAccessTimes, MS_STRICTATIME},
    {"nostrictatime", MS_STRICTATIME, 0},
    {"nodiratime", 0, MS_NODIRATIME},
    {"diratime", MS_NODIRATIME, 0},
    {"remount", 0, 0},
}};

bool Apply(std::string_view option, unsigned long& flags) {
  const auto known = std::ranges::find(kKernelOptions, option, &KernelOption::name);
  if (known == kKernelOptions.end()) return false;
  flags = (flags & ~known->clear) | known->set;
  return true;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

// The kernel writes blanks and the like as a backslash and three octal digits.
std::string Unescape(std::string_view text) {
  std::string plain;
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 3);
    if (text[i] == '\\' && digits.size() == 3 && std::ranges::all_of(digits, is_octal)) {
      plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + digits[2] - '0');
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// The options that the mount was made with, as it tells them itself.
Result<std::string> OptionsOfMount(const std::string& directory) {
  constexpr std::string_view kLine = "options      ";
  const std::string text = TRY(ReadFile(directory + "/.pinstripe/config"));
  for (const std::string_view line : Split(text, '\n')) {
    if (line.starts_with(kLine)) return std::string(line.substr(kLine.size()));
  }
  return std::string();
}

}  // namespace

bool IsRemount(std::string_view options) {
  return std::ranges::count(Split(options, ','), "remount") > 0;
}

// A line is "ID PARENT DEVICE ROOT DIRECTORY OPTIONS [FIELD...] - TYPE SOURCE OPTIONS". The last
// one for a directory is what paths through it meet.
Result<MountedAs> FindMounted(std::string_view mountinfo, std::string_view directory) {
  constexpr size_t kDirectory = 4;
  constexpr size_t kOptions = 5;
  std::optional<std::vector<std::string_view>> found;
  for (const std::string_view line : Split(mountinfo, '\n')) {
    std::vector<std::string_view> fields = Split(line, ' ');
    if (fields.size() > kOptions && Unescape(fields[kDirectory]) == directory) {
      found = std::move(fields);
    }
  }
  if (!found) return Fail(ENOENT, "nothing is mounted on {}", directory);
  const auto dash = std::ranges::find(*found, "-");
  if (found->end() - dash < 4 || dash[1] != "fuse.pinstripe") {
    return Fail(EINVAL, "what is mounted on {} is not a file system of Pinstripe", directory);
  }
  MountedAs mounted;
  for (const std::string_view option : Split((*found)[kOptions], ',')) {
    Apply(option, mounted.flags);
  }
  for (const std::string_view option : Split(dash[3], ',')) {
    if (option == "rw") continue;  // which does not make a read-only mount of it writable
    if (!Apply(option, mounted.flags)) mounted.options.emplace_back(option);
  }
  // Without one of these remount(2) would keep what there is, and "strictatime" is what is not
  // told.
  if ((mounted.flags & kAccessTimes) == 0) mounted.flags |= MS_STRICTATIME;
  return mounted;
}

Remounted AfterRemount(const MountedAs& mounted, std::string_view options, Asks asks) {
  Remounted after{mounted.flags, {}};
  if (asks == Asks::kMountHelper) {
    // Not nosuid and nodev: libfuse adds these to each mount, so they are in no fstab.
    for (const std::string_view option : {"exec", "symfollow", "async", "nolazytime", "diratime"}) {
      Apply(option, after.flags);
    }
    if ((after.flags & MS_NOATIME) != 0) Apply("atime", after.flags);
  }
  for (const std::string_view option : Split(options, ',')) {
    if (IsForFstab(option) || Apply(option, after.flags)) continue;
    if (std::ranges::find(mounted.options, option) != mounted.options.end()) continue;
    after.others.emplace_back(option);
  }
  return after;
}

Status Remount(const std::string& directory, std::string_view options, Asks asks) {
  const std::string mountinfo = TRY(ReadFile("/proc/self/mountinfo"));
  MountedAs mounted = TRY(FindMounted(mountinfo, directory));
  Remounted after = AfterRemount(mounted, options, asks);
  if (!after.others.empty()) {
    const std::string made_with =
        TRY_CONTEXT(OptionsOfMount(directory), "find out what {} was mounted with", directory);
    for (const std::string_view option : Split(made_with, ',')) {
      mounted.options.emplace_back(option);
    }
    after = AfterRemount(mounted, options, asks);
  }
  if (!after.others.empty()) {
    return Fail(EINVAL,
                "mount options {}: a remount cannot change them; unmount {}, and mount it with the "
                "new options",
                fmt::join(after.others, ","), directory);
  }
  if (mount("none", directory.c_str(), nullptr, MS_REMOUNT | after.flags, nullptr) == 0) return {};
  const int error = errno;
  if (error == EBUSY) {
    return Fail(EBUSY, "remount {}: a file is open for writing; `fuser -vm {}` says by whom",
                directory, directory);
  }
  if (error == EPERM) return Fail(EPERM, "remount {}: only root may do that", directory);
  return Fail(error, "remount {}: {}", directory, ErrnoText(error));
}

}  // namespace pinstripe
