#include "tools/disk_look.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/byte_text.h"
#include "base/file_descriptor.h"
#include "base/read_file.h"
#include "base/try.h"
#include "tools/run_program.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr int kSyncs = 11;
// A file system that answers faster has not waited for a disk: not even those with a memory of
// their own that survives a loss of power are as fast.
constexpr Duration kLeastSync = std::chrono::microseconds(8);
constexpr Duration kSlowSync = std::chrono::milliseconds(100);
constexpr Duration kPatienceWithDisk = std::chrono::seconds(30);
constexpr uint64_t kLeastFree = uint64_t{2} << 30;
constexpr double kNearlyFull = 0.90;

struct KnownFileSystem {
  uint64_t magic;
  const char* name;
  bool keeps;  // what was synced, on a disk of this machine
};
constexpr KnownFileSystem kFileSystems[] = {
    {0x58465342, "xfs", true},
    {EXT4_SUPER_MAGIC, "ext4", true},
    {BTRFS_SUPER_MAGIC, "btrfs", true},
    {0x2fc12fc1, "zfs", true},
    {F2FS_SUPER_MAGIC, "f2fs", true},
    {TMPFS_MAGIC, "tmpfs", false},
    {RAMFS_MAGIC, "ramfs", false},
    {NFS_SUPER_MAGIC, "nfs", false},
    {0xff534d42, "cifs", false},
    {0xfe534d42, "smb", false},
    {FUSE_SUPER_MAGIC, "fuse", false},
    {0x00c36400, "ceph", false},
    {OVERLAYFS_SUPER_MAGIC, "overlay", false},
};

const KnownFileSystem* Known(uint64_t magic) {
  const auto* found = std::ranges::find(kFileSystems, magic, &KnownFileSystem::magic);
  return found == std::end(kFileSystems) ? nullptr : found;
}
bool Keeps(const std::string& name) {
  return std::ranges::any_of(kFileSystems,
                             [&](const auto& known) { return known.name == name && known.keeps; });
}

constexpr int kMostLayers = 8;

void AddDisks(const fs::path& place, int layers, std::set<std::string>& disks) {
  std::error_code error;
  const bool is_part = fs::exists(place / "partition", error);
  const fs::path device = is_part ? place.parent_path() : place;
  bool is_made_of_others = false;
  for (fs::directory_iterator at(device / "slaves", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const fs::path below = fs::canonical(at->path(), gone);
    if (gone || layers == 0) continue;
    AddDisks(below, layers - 1, disks);
    is_made_of_others = true;
  }
  if (!is_made_of_others) disks.insert(device.filename().string());
}

// btrfs may lie on several devices, of which its mount names one.
std::vector<std::string> DevicesOfBtrfs(const std::string& name) {
  std::error_code error;
  for (fs::directory_iterator at("/sys/fs/btrfs", error), end; !error && at != end;
       at.increment(error)) {
    std::vector<std::string> names;
    std::error_code none;
    for (fs::directory_iterator one(at->path() / "devices", none), last; !none && one != last;
         one.increment(none)) {
      names.push_back(one->path().filename().string());
    }
    if (std::ranges::count(names, name) > 0) return names;
  }
  return {name};
}

// btrfs and zfs give each subvolume and dataset a device number of its own, which is no disk's.
std::set<std::string> DisksOfMount(const MountedAt& mount) {
  if (mount.type == "zfs") {
    return {fmt::format("{} (zfs)", mount.source.substr(0, mount.source.find('/')))};
  }
  std::set<std::string> disks;
  std::error_code error;
  const fs::path device = fs::canonical(mount.source, error);
  if (error || !mount.source.starts_with('/')) return disks;
  std::vector<std::string> names = {device.filename().string()};
  if (mount.type == "btrfs") names = DevicesOfBtrfs(names.front());
  for (const std::string& name : names) {
    struct stat about {};
    if (stat(("/dev/" + name).c_str(), &about) != 0 || !S_ISBLK(about.st_mode)) continue;
    disks.merge(DisksOf(about.st_rdev, "/sys"));
  }
  return disks;
}

std::optional<MountedAt> MountOf(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  const Result<std::string> mountinfo = ReadFile("/proc/self/mountinfo");
  if (error || !mountinfo) return std::nullopt;
  return FindMount(*mountinfo, real.string());
}

// A blank and the like are written as "\040".
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

Result<Duration> MeasureSync(Runtime& runtime, const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    const int code = errno;
    return Fail(code, "no file can be made in it: {}", ErrnoText(code));
  }
  const std::array<char, 4096> block{};
  std::vector<Duration> times;
  for (int i = 0; i < kSyncs; ++i) {
    const Time begin = runtime.Now();
    if (pwrite(file.get(), block.data(), block.size(), i * 4096) !=
            static_cast<ssize_t>(block.size()) ||
        fsync(file.get()) != 0) {
      const int code = errno;
      return Fail(code, "it cannot be written and synced: {}", ErrnoText(code));
    }
    times.push_back(runtime.Now() - begin);
  }
  std::ranges::nth_element(times, times.begin() + kSyncs / 2);
  return times[kSyncs / 2];
}

// Who asks a dead disk may wait for ever, and cannot be killed. So a child asks first, by system
// calls alone, as it is the copy of a program with threads.
Status CheckThatItAnswers(Runtime& runtime, const std::string& path) {
  const pid_t child = fork();
  if (child < 0) {
    const int code = errno;
    return Fail(code, "it cannot be asked: {}", ErrnoText(code));
  }
  if (child == 0) {
    struct statfs space {};
    const int file = statfs(path.c_str(), &space) == 0
                         ? open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
                         : -1;
    const char byte = 0;
    if (file >= 0 && pwrite(file, &byte, 1, 0) == 1) fsync(file);
    _exit(0);
  }
  if (WaitForChild(runtime, child, kPatienceWithDisk)) return {};
  kill(child, SIGKILL);
  return Fail(ETIMEDOUT, "it has not answered for {} s",
              std::chrono::duration_cast<std::chrono::seconds>(kPatienceWithDisk).count());
}

Status Look(Runtime& runtime, const std::string& path, DiskReading& reading) {
  TRY(CheckThatItAnswers(runtime, path));
  struct stat about {
  }, above{};
  struct statfs space {};
  if (stat(path.c_str(), &about) != 0 || stat((path + "/..").c_str(), &above) != 0 ||
      statfs(path.c_str(), &space) != 0) {
    const int code = errno;
    return Fail(code, "{}", ErrnoText(code));
  }
  if (!S_ISDIR(about.st_mode)) return Fail(ENOTDIR, "it is not a directory");
  const std::optional<MountedAt> mount = MountOf(path);
  std::error_code error;
  reading.is_mount_point = about.st_dev != above.st_dev &&
                           (!mount || mount->point == fs::canonical(path, error).string());
  reading.file_system_id = about.st_dev;
  reading.disks = DisksOf(about.st_dev, "/sys");
  if (reading.disks.empty() && mount) reading.disks = DisksOfMount(*mount);
  const auto magic = static_cast<uint64_t>(space.f_type) & UINT32_MAX;
  const KnownFileSystem* known = Known(magic);
  reading.file_system = known != nullptr ? known->name : fmt::format("of type {:#x}", magic);
  reading.total_bytes = static_cast<uint64_t>(space.f_blocks) * space.f_bsize;
  reading.free_bytes = static_cast<uint64_t>(space.f_bavail) * space.f_bsize;
  for (const char* name : {"/pinstripe-drive", "/superblock"}) {
    if (access((path + name).c_str(), F_OK) == 0) reading.is_drive = true;
  }
  reading.sync = MeasureSync(runtime, path);
  return {};
}

class Judge {
 public:
  explicit Judge(bool shared_disks) : shared_disks_(shared_disks) {}

  std::vector<Diagnosis> Of(const std::vector<DiskReading>& readings) {
    for (const DiskReading& reading : readings) OfOne(reading);
    for (size_t i = 0; i < readings.size(); ++i) {
      for (size_t j = 0; j < i; ++j) OfTwo(readings[j], readings[i]);
    }
    return std::move(diagnoses_);
  }

 private:
  void Note(DiagnosisLevel level, const DiskReading& reading, std::string text,
            std::string way_out) {
    diagnoses_.push_back({level, reading.directory, std::move(text), std::move(way_out)});
  }
  DiagnosisLevel Unless(bool allowed) const {
    return allowed ? DiagnosisLevel::kWarning : DiagnosisLevel::kError;
  }

  void OfOne(const DiskReading& reading) {
    const size_t before = diagnoses_.size();
    if (!reading.looked.ok()) {
      Note(DiagnosisLevel::kError, reading,
           fmt::format("cannot be used: {}", reading.looked.message()),
           "make a file system on the disk and mount it there (a line in /etc/fstab)");
      return;
    }
    if (!reading.is_mount_point) {
      Note(Unless(shared_disks_), reading,
           "is not a mount point, so it is a part of another file system",
           "mount the disk there (a line in /etc/fstab)");
    }
    if (!Keeps(reading.file_system)) {
      Note(Unless(shared_disks_), reading,
           fmt::format("has a file system {} that drives are not made for", reading.file_system),
           "give it xfs or ext4 on a disk of this machine");
    }
    JudgeSync(reading);
    JudgeRoom(reading);
    if (diagnoses_.size() > before) return;
    Note(DiagnosisLevel::kOk, reading,
         fmt::format("{} with {} of {} free, an fsync takes {}{}", reading.file_system,
                     BytesText(reading.free_bytes), BytesText(reading.total_bytes),
                     DelayText(*reading.sync), reading.is_drive ? "; it is a drive" : ""),
         "");
  }

  void JudgeSync(const DiskReading& reading) {
    if (!reading.sync) {
      Note(DiagnosisLevel::kError, reading, std::string(reading.sync.error().message()),
           "see to the disk (`dmesg`), and to its mount options (`findmnt`)");
    } else if (*reading.sync < kLeastSync) {
      Note(
          Unless(shared_disks_), reading,
          fmt::format("says after {} that something is synced, which no disk can",
                      DelayText(*reading.sync)),
          "what a loss of power takes away would be lost without a word: turn off what answers for "
          "the disk (a write cache of the host, the mount option nobarrier, eatmydata)");
    } else if (*reading.sync > kSlowSync) {
      Note(DiagnosisLevel::kWarning, reading,
           fmt::format("takes {} for an fsync", DelayText(*reading.sync)),
           "look for what else uses the disk, and at its health (`smartctl -a`)");
    }
  }

  void JudgeRoom(const DiskReading& reading) {
    const double used = reading.total_bytes == 0 ? 1
                                                 : 1 - static_cast<double>(reading.free_bytes) /
                                                           static_cast<double>(reading.total_bytes);
    if (!reading.is_drive && reading.free_bytes < kLeastFree) {
      Note(DiagnosisLevel::kError, reading,
           fmt::format("has {} free, and a drive needs {} to begin with",
                       BytesText(reading.free_bytes), BytesText(kLeastFree)),
           "make room, or use a larger disk");
    } else if (used > kNearlyFull) {
      Note(DiagnosisLevel::kWarning, reading,
           fmt::format("is {:.0f} % full, with {} free", used * 100, BytesText(reading.free_bytes)),
           "add drives, or remove what does not belong to the drive");
    }
  }

  void OfTwo(const DiskReading& first, const DiskReading& second) {
    if (!first.looked.ok() || !second.looked.ok()) return;
    const bool one_file_system = first.file_system_id == second.file_system_id;
    std::vector<std::string> shared;
    std::ranges::set_intersection(first.disks, second.disks, std::back_inserter(shared));
    if (!one_file_system && shared.empty()) return;
    Note(Unless(shared_disks_), second,
         fmt::format("is on the same {} as {}, so both are lost together",
                     one_file_system ? "file system" : "disk " + shared.front(), first.directory),
         "give each drive a disk of its own");
  }

  const bool shared_disks_;
  std::vector<Diagnosis> diagnoses_;
};

}  // namespace

std::set<std::string> DisksOf(dev_t device, const std::string& sys) {
  std::error_code error;
  const fs::path link = fmt::format("{}/dev/block/{}:{}", sys, major(device), minor(device));
  const fs::path place = fs::canonical(link, error);
  std::set<std::string> disks;
  if (!error) AddDisks(place, kMostLayers, disks);
  return disks;
}

std::optional<MountedAt> FindMount(std::string_view mountinfo, const std::string& path) {
  std::optional<MountedAt> found;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::string point;
    for (int i = 0; i < 5; ++i) words >> point;
    while (words >> word && word != "-") {
    }
    MountedAt mount{.point = Unescaped(point), .type = "", .source = ""};
    if (!(words >> mount.type >> mount.source)) continue;
    mount.source = Unescaped(mount.source);
    const bool holds =
        mount.point == "/" || path == mount.point || path.starts_with(mount.point + "/");
    // What is mounted later at the same place hides the other.
    if (holds && (!found || mount.point.size() >= found->point.size())) found = std::move(mount);
  }
  return found;
}

DiskReading ReadDisk(Runtime& runtime, const std::string& directory, const std::string& path) {
  DiskReading reading;
  reading.directory = directory;
  reading.looked = Look(runtime, path, reading);
  return reading;
}

std::vector<Diagnosis> JudgeDisks(const std::vector<DiskReading>& readings, bool shared_disks) {
  return Judge(shared_disks).Of(readings);
}

}  // namespace pinstripe
