#include "tests/crash/failing_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace pinstripe {
namespace {

constexpr int kMemoryMegabytes = 48;
constexpr int kDiskMegabytes = 600;   // of which the memory has room for a part
constexpr int kJournalMegabytes = 4;  // the least there can be
constexpr int kInodes = 256;
constexpr unsigned long kShutDown = _IOR('X', 125, uint32_t);  // of ext4, XFS and others
constexpr uint32_t kWithoutJournal = 2;

// What a command says, with its errors; its exit code is in `code`.
std::string OutputOf(const std::string& command, int* code) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    *code = -1;
    return strerror(errno);
  }
  std::string output;
  char bytes[256];
  while (const size_t got = fread(bytes, 1, sizeof bytes, pipe)) output.append(bytes, got);
  *code = pclose(pipe);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return output;
}

bool Run(const std::string& command, std::string* why) {
  int code = 0;
  const std::string output = OutputOf(command, &code);
  if (code == 0) return true;
  *why = fmt::format("\"{}\" fails: {}", command, output);
  return false;
}

void MustRun(const std::string& command) {
  std::string why;
  ASSERT_TRUE(Run(command, &why)) << why;
}

}  // namespace

FailingDisk::FailingDisk(std::string directory)
    : directory_(std::move(directory)), path_(directory_ + "/mounted") {}

std::unique_ptr<FailingDisk> FailingDisk::Make(std::string* why) {
  if (geteuid() != 0) {
    *why = "only root can mount a file system that fails";
    return nullptr;
  }
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    *why = std::string("no mounts of its own: ") + strerror(errno);
    return nullptr;
  }
  std::string directory = testing::TempDir() + "pinstripe-XXXXXX";
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  std::unique_ptr<FailingDisk> disk(new FailingDisk(directory));
  return disk->Prepare(why) ? std::move(disk) : nullptr;
}

bool FailingDisk::Prepare(std::string* why) {
  const std::string memory = directory_ + "/memory";
  const std::string image = memory + "/image";
  std::filesystem::create_directory(memory);
  std::filesystem::create_directory(path_);
  const bool made =
      Run(fmt::format("mount -t tmpfs -o size={}m none {}", kMemoryMegabytes, memory), why) &&
      Run(fmt::format("truncate -s {}M {}", kDiskMegabytes, image), why) &&
      Run(fmt::format("mkfs.ext4 -q -F -b 4096 -N {} -J size={} {}", kInodes, kJournalMegabytes,
                      image),
          why) &&
      Run(fmt::format("losetup --find --show {}", image), why);
  if (!made) return false;
  int code = 0;
  device_ = OutputOf("losetup --noheadings --output NAME --associated " + image, &code);
  holder_ = FileDescriptor(open(device_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!Run("losetup --detach " + device_, why)) return false;
  const std::string name = device_.substr(device_.rfind('/') + 1);
  // A write of which only the beginning finds room counts as done, so each is of one block.
  std::ofstream most("/sys/block/" + name + "/queue/max_sectors_kb");
  most << "4" << std::flush;
  if (!most.good()) {
    *why = "the kernel does not say how long a write may be";
    return false;
  }
  if (!Run(fmt::format("mount -t ext4 {} {}", device_, path_), why)) return false;
  // To write zeros on the disk is to give its memory back.
  std::ofstream("/sys/fs/ext4/" + name + "/extent_max_zeroout_kb") << "0";
  // All blocks come to be there that tell of inodes and of space, and those of the journal.
  const std::string space = path_ + "/space";
  const FileDescriptor all(open(space.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  for (off_t at = 0; posix_fallocate(all.get(), at, 1 << 20) == 0;) at += 1 << 20;
  for (int i = 0; i < kInodes; ++i) std::ofstream(fmt::format("{}/{}", path_, i)) << "";
  somebody_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(syncfs(somebody_.get()), 0);
  for (int i = 0; i < kInodes; ++i) unlink(fmt::format("{}/{}", path_, i).c_str());
  EXPECT_EQ(unlink(space.c_str()), 0);
  const FileDescriptor file(open(space.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  for (int i = 0; i < 2 * kJournalMegabytes * 256 / 2; ++i) {
    EXPECT_EQ(fchmod(file.get(), 0600 + i % 2) + fsync(file.get()), 0);
  }
  EXPECT_EQ(unlink(space.c_str()), 0);
  EXPECT_EQ(syncfs(somebody_.get()), 0);
  return true;
}

FailingDisk::~FailingDisk() {
  somebody_ = FileDescriptor();
  std::string ignored;
  Run("umount " + path_, &ignored);
  holder_ = FileDescriptor();
  Run("umount " + directory_ + "/memory", &ignored);
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

void FailingDisk::Fail() {
  // What is in the journal only gets to its place.
  ASSERT_EQ(ioctl(somebody_.get(), FIFREEZE, 0), 0) << strerror(errno);
  ASSERT_EQ(ioctl(somebody_.get(), FITHAW, 0), 0) << strerror(errno);
  const std::string block(4096, 'x');
  const FileDescriptor rest(
      open((directory_ + "/memory/rest").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (write(rest.get(), block.data(), block.size()) > 0) continue;
  ASSERT_EQ(errno, ENOSPC);
}

void FailingDisk::Mend() { ASSERT_EQ(unlink((directory_ + "/memory/rest").c_str()), 0); }

bool FailingDisk::SyncBySomebodyElse() { return syncfs(somebody_.get()) != 0; }

void FailingDisk::Remount() {
  somebody_ = FileDescriptor();
  MustRun("umount " + path_);
  MustRun(fmt::format("mount -t ext4 {} {}", device_, path_));
  somebody_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

void FailingDisk::ShutDown() {
  ASSERT_EQ(ioctl(somebody_.get(), kShutDown, &kWithoutJournal), 0) << strerror(errno);
}

}  // namespace pinstripe
