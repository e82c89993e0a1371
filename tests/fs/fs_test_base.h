// A file system on memory drives under simulated time: what the tests of fs/ begin with. The layout
// is the smallest there is, 2+1 with blocks of 128 KiB, so that files of many blocks stay small.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/gather.h"
#include "cluster/stripes/shard.h"
#include "fs/file_system.h"
#include "fs/names/records.h"
#include "tests/support/expect_ok.h"
#include "tests/support/file_page_sums.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"
#include "upkeep/checker.h"
#include "upkeep/host_care.h"

namespace pinstripe {

inline constexpr uint64_t kTestBlock = 128 << 10;

// Bytes that tell where they are: equal seeds and offsets give equal bytes.
inline std::string Pattern(uint64_t seed, size_t size, uint64_t offset = 0) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    uint64_t x = (offset + i) * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9;
    x ^= x >> 29;
    bytes[i] = static_cast<char>(x * 0x94d049bb133111eb >> 56);
  }
  return bytes;
}

// The sums that are known of it are to be right.
inline std::string ReadAll(OpenFile& file, uint64_t offset = 0, size_t size = 4 << 20) {
  std::string bytes(size, '?');
  std::vector<PageSum> known(CountFilePages(offset, size));
  OpenFile::Part part{offset, std::as_writable_bytes(std::span(bytes))};
  part.sums = known;
  const Status read = file.ReadParts({&part, 1});
  EXPECT_OK(read);
  bytes.resize(read.ok() ? part.length : 0);
  const std::vector<uint32_t> sums = FilePageSums(offset, AsBytes(bytes));
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(!known[i].known || known[i].crc32c == sums[i]) << "page " << i;
  }
  return bytes;
}

// With block maps in pages as soon as there are two runs, or several pages with some more.
inline const FileSystem::Options kTinyPages{.inline_map_bytes = 40, .map_page_bytes = 100};
inline const FileSystem::Options kSmallPages{.inline_map_bytes = 150, .map_page_bytes = 60};

// Nothing is wrong, nothing was left out, and nothing is left over.
inline void ExpectClean(const CheckReport& report) {
  for (const std::string& what : report.not_checked) ADD_FAILURE() << "not checked: " << what;
  EXPECT_EQ(report.unused_shards, 0u);
  for (const Finding& finding : report.findings) {
    ADD_FAILURE() << finding.problem << " " << finding.where << ": " << finding.what;
  }
}

// One host: its own way to the drives, and a file system.
struct Host {
  Host() = default;
  Host(Host&&) = default;
  Host& operator=(Host&& other) noexcept {  // the file system needs its cluster to the last
    fs = std::move(other.fs);
    cluster = std::move(other.cluster);
    return *this;
  }

  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<FileSystem> fs;

  FileSystem* operator->() { return fs.get(); }
};

class FsTest : public testing::Test {
 protected:
  explicit FsTest(TestCluster::Options options = {.drives = 5, .layout = {2, 1, 64 << 10}})
      : sim_(1), machines_(sim_, options) {
    SetLogLevel(LogLevel::kWarn);
  }

  void SetUp() override {
    ASSERT_OK(machines_.Format(format_));
    auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    ASSERT_OK(FileSystem::Format(**cluster, {10, 20}, 0755));
    cluster->reset();
    host_ = NewHost();
    fs_ = host_.fs.get();
  }

  Host NewHost(uint64_t memory_bytes = 64 << 20, std::shared_ptr<ClientLife> life = nullptr) {
    FileSystem::Options options = options_;
    options.memory_bytes = memory_bytes;
    options.caretaker = &MakeHostCare;
    Host host;
    auto cluster = machines_.Open(std::move(life));
    EXPECT_OK(cluster);
    host.cluster = *std::move(cluster);
    auto fs = FileSystem::Open(*host.cluster, options);
    EXPECT_OK(fs);
    host.fs = *std::move(fs);
    return host;
  }

  InodeId MakeDirectory(std::string_view name, InodeId parent = kRootInode) {
    const auto made = fs_->MakeDirectory(parent, name, 0755, {});
    EXPECT_OK(made);
    return made->inode;
  }

  // A committed file with these contents.
  InodeId Make(std::string_view name, std::string_view contents, InodeId directory = kRootInode) {
    auto file = fs_->Create(directory, name, {.truncate = true});
    EXPECT_OK(file);
    EXPECT_OK((*file)->Write(0, AsBytes(contents)));
    const InodeId id = (*file)->inode();
    EXPECT_OK((*file)->Close());
    return id;
  }

  // A file of 12 blocks, each committed by itself, so that its block map is in pages where these
  // are small (kSmallPages). Its contents.
  std::string MakeInPieces(std::string_view name) {
    std::string contents;
    auto file = fs_->Create(kRootInode, name, {});
    EXPECT_OK(file);
    for (uint64_t block = 0; block < 12; ++block) {
      const std::string bytes = Pattern(block, kTestBlock);
      contents += bytes;
      EXPECT_OK((*file)->Write(block * kTestBlock, AsBytes(bytes)));
      EXPECT_OK((*file)->Commit());
    }
    EXPECT_OK((*file)->Close());
    sim_.Sleep(std::chrono::seconds(30));  // until the pages that were replaced are gone
    return contents;
  }

  // As it is on the drives.
  Inode InodeOf(InodeId id) {
    Records records(*host_.cluster);
    const auto stored = records.FindInode(id);
    EXPECT_OK(stored);
    return (*stored)->inode;
  }

  // Its contents, as somebody sees them who opens it now.
  std::string Contents(std::string_view path, FileSystem* fs = nullptr) {
    if (!fs) fs = fs_;
    const auto attributes = fs->Resolve(path);
    EXPECT_OK(attributes);
    if (!attributes.has_value()) return "";
    auto file = fs->Open(attributes->inode, FileSystem::Access::kRead);
    EXPECT_OK(file);
    return ReadAll(**file);
  }

  std::vector<std::string> List(InodeId directory = kRootInode, FileSystem* fs = nullptr) {
    const auto entries = (fs ? fs : fs_)->ReadDirectory(directory, "", 10000, true);
    EXPECT_OK(entries);
    std::vector<std::string> names;
    for (const auto& entry : *entries) names.push_back(entry.name);
    return names;
  }

  // Runs them all at the same time. (SimRuntime::Run() would wait for the file systems' own
  // threads.)
  void RunTogether(int count, const std::function<void(int)>& body) {
    int running = count;
    for (int i = 0; i < count; ++i) {
      sim_.Spawn(fmt::format("client {}", i), [&, i] {
        body(i);
        --running;
      });
    }
    while (running > 0) sim_.Sleep(std::chrono::milliseconds(10));
  }

  // ---- Planting damage, past all rules

  void ChangeInode(InodeId id, const std::function<void(Inode&)>& change) {
    Records records(*host_.cluster);
    const auto stored = records.FindInode(id);
    ASSERT_OK(stored);
    Inode inode = (*stored)->inode;
    change(inode);
    EXPECT_TRUE(records.ChangeInode(id, (*stored)->slot, inode).applied());
  }
  void RemoveInode(InodeId id) {
    Records records(*host_.cluster);
    const auto stored = records.FindInode(id);
    EXPECT_TRUE(records.ChangeInode(id, (*stored)->slot, std::nullopt).applied());
  }
  void PutEntry(InodeId directory, std::string_view name, std::optional<Entry> entry) {
    Records records(*host_.cluster);
    const auto stored = records.FindEntry(directory, name);
    EXPECT_TRUE(records.ChangeEntry(directory, name, stored->slot, entry).applied());
  }

  // All but so many of the copies of a register. Gives back a drive that has one still.
  DriveId LoseCopies(uint64_t object, const std::string& key, size_t left = 0) {
    const std::string record = Writer()
                                   .Raw(ClusterPrefix("test"))
                                   .Raw("R")
                                   .U32(host_.cluster->GroupOfObject(object))
                                   .Raw(key)
                                   .Take();
    size_t found = 0;
    DriveId left_on = 0;
    for (DriveId drive = 1; drive <= machines_.size(); ++drive) {
      Gather<Result<pinstripe::Record>> gets(sim_);
      machines_.memory(drive).Get(record, {}, Time::max(), gets.Ask(0));
      if (!gets.Next(Time::max())->value.has_value()) continue;
      if (++found <= left) {
        left_on = drive;
        continue;
      }
      Gather<Status> deletes(sim_);
      machines_.memory(drive).Delete(record, Expected::Any(), Durability::kWriteBack, Time::max(),
                                     deletes.Ask(0));
      EXPECT_OK(deletes.Next(Time::max())->value);
    }
    EXPECT_GT(found, host_.cluster->map().replicas / 2u);
    return left_on;
  }

  // The keys of shards that a drive holds.
  std::vector<std::string> ShardsOn(DriveId drive) {
    const std::string prefix = ClusterPrefix("test") + "D";
    std::vector<std::string> all;
    for (std::string first = prefix;;) {
      Gather<Result<std::vector<std::string>>> gather(sim_);
      machines_.memory(drive).Range(first, prefix + std::string(64, '\xff'), 200, false,
                                    Time::max(), gather.Ask(0));
      const auto keys = *gather.Next(Time::max())->value;
      all.insert(all.end(), keys.begin(), keys.end());
      if (keys.size() < 200) return all;
      first = all.back() + '\0';
    }
  }
  // Turns a bit of the value over.
  void Rot(DriveId drive, const std::string& key) {
    Gather<Result<pinstripe::Record>> gets(sim_);
    machines_.memory(drive).Get(key, {}, Time::max(), gets.Ask(0));
    const auto record = *std::move(gets.Next(Time::max())->value);
    std::string value(record.value.text());
    value[value.size() / 2] ^= 1;
    Gather<Status> puts(sim_);
    machines_.memory(drive).Put(
        {.key = key, .value = SharedBytes(value), .version = record.version, .tag = record.tag},
        Time::max(), puts.Ask(0));
    ASSERT_OK(puts.Next(Time::max())->value);
  }

  SimRuntime sim_;
  TestCluster machines_;
  Host host_;
  FileSystem* fs_ = nullptr;
  FileSystem::Options options_;      // of hosts; set before SetUp()
  Cluster::FormatOptions format_{};  // the same
};

}  // namespace pinstripe
