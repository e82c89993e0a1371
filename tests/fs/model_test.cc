// Random operations on two hosts and on a model of what a file system is, from a seed: they agree.
//
// Goal: no sequence of creating, opening, writing, punching holes, copying, truncating, syncing,
// closing, dropping, renaming and removing gives anything but what a plain tree of strings would.
// Method: a small alphabet of names, so that operations meet; sizes around all the borders there
// are (inline, copies, cells, shards, blocks). The two hosts take turns file by file: a file that
// one has open is left to it until it is closed.
//
//   SEED=7 fs_test --gtest_filter='Model*'

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cluster/map/features.h"
#include "fs/files/copy_range.h"
#include "tests/fs/fs_test_base.h"
#include "tests/support/file_page_sums.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"
#include "upkeep/host_care.h"

namespace pinstripe {
namespace {

constexpr int kSteps = 400;

struct Node {
  bool directory = false;
  std::map<std::string, std::shared_ptr<Node>> entries;
  std::string now;  // with what is not committed
  std::string committed;
  int host = -1;  // who has it open
  int users = 0;
};
using NodePtr = std::shared_ptr<Node>;

struct OpenNode {
  NodePtr node;
  std::unique_ptr<OpenFile> file;
  bool writes = false;
  bool wrote = false;
};

class Model {
 public:
  // kLater: all work is done on one host, and new files appear for the other one when they are
  // closed. That host drops none, as nobody could say whether it has appeared by then.
  enum class Names { kAtOnce, kLater };

  Model(uint64_t seed, TestCluster::Options options, const FileSystem::Options& fs_options,
        Names names = Names::kAtOnce)
      : sim_(seed), machines_(sim_, options), names_(names) {
    SetLogLevel(LogLevel::kWarn);
    std::vector<Feature> features;
    if (seed % 3 != 0) features.push_back(NewFeature(kGapsFeature));
    EXPECT_OK(machines_.Format({.features = std::move(features)}));
    for (int i = 0; i < 2; ++i) {
      hosts_[i].cluster = *machines_.Open();
      if (i == 0) {
        EXPECT_OK(FileSystem::Format(*hosts_[0].cluster, {}, 0755));
      }
      FileSystem::Options all = fs_options;
      all.caretaker = &MakeHostCare;
      all.least_shared_bytes = kTestBlock;
      hosts_[i].fs = *FileSystem::Open(*hosts_[i].cluster, all);
    }
    root_->directory = true;
  }

  void Run() {
    for (step_ = 0; step_ < kSteps && !testing::Test::HasFatalFailure(); ++step_) {
      SCOPED_TRACE(fmt::format("seed {} step {}", sim_.seed(), step_));
      Step();
      if (testing::Test::HasFailure()) return;
    }
    while (!open_.empty()) Close(open_.size() - 1);
    for (Host& host : hosts_) CompareTree(host, kRootInode, *root_);
  }

  uint64_t cells_found_on_disk() { return hosts_[0]->Memory().disk.cells_found; }

 private:
  void Step() {
    const uint64_t dice = sim_.Below(100);
    if (dice < 14) return Create();
    if (dice < 22) return OpenSome();
    if (dice < 60 && !open_.empty()) return UseFile(sim_.Below(open_.size()));
    if (dice < 70 && !open_.empty()) return Close(sim_.Below(open_.size()));
    if (dice < 76) return MakeDirectory();
    if (dice < 82) return Unlink();
    if (dice < 86) return RemoveDirectory();
    if (dice < 95) return Rename();
    CompareTree(AnyHost(), kRootInode, *root_);
    if (names_ == Names::kLater && sim_.Chance(0.3)) sim_.Sleep(std::chrono::milliseconds(700));
  }

  // ---- Choices

  Host& AnyHost() { return hosts_[names_ == Names::kLater ? 0 : sim_.Below(2)]; }

  std::string Name() { return std::string(1, static_cast<char>('a' + sim_.Below(4))); }

  // A directory of the tree, and where it is on the drives.
  struct Dir {
    NodePtr node;
    InodeId id = kRootInode;
  };
  Dir Directory(Host& host) {
    Dir at{root_, kRootInode};
    while (sim_.Chance(0.5)) {
      const std::string name = Name();
      const auto found = at.node->entries.find(name);
      if (found == at.node->entries.end() || !found->second->directory) break;
      const auto attributes = host->Lookup(at.id, name);
      EXPECT_OK(attributes);
      if (!attributes.has_value()) break;
      at = {found->second, attributes->inode};
    }
    return at;
  }

  uint64_t Size() {
    static constexpr uint64_t kBorders[] = {
        0, 1, 64, 4096, 65536, 70000, kTestBlock, 2 * kTestBlock, 5 * kTestBlock};
    const uint64_t border = kBorders[sim_.Below(std::size(kBorders))];
    const uint64_t off = sim_.Below(3);
    if (sim_.Chance(0.3)) return sim_.Below(border + 1);
    return border + off < 1 ? 0 : border + off - 1;
  }

  NodePtr Find(const Dir& dir, const std::string& name) {
    const auto found = dir.node->entries.find(name);
    return found == dir.node->entries.end() ? nullptr : found->second;
  }

  // Which host may work on all of these now; -1: none.
  int HostFor(std::initializer_list<NodePtr> nodes) {
    int host = names_ == Names::kLater ? 0 : static_cast<int>(sim_.Below(2));
    bool bound = false;
    for (const NodePtr& node : nodes) {
      if (!node || node->users == 0) continue;
      if (bound && node->host != host) return -1;
      host = node->host;
      bound = true;
    }
    return host;
  }

  // ---- Operations

  void Create() {
    const Dir dir = Directory(hosts_[0]);
    const std::string name = Name();
    NodePtr node = Find(dir, name);
    const int host = HostFor({node});
    FileSystem::CreateOptions options{.mode = 0600};
    options.exclusive = sim_.Chance(0.2);
    options.truncate = sim_.Chance(0.5);
    options.appears_later = names_ == Names::kLater && sim_.Chance(0.8);
    auto file = hosts_[host]->Create(dir.id, name, options);
    if (node && options.exclusive) return Expect(file, EEXIST);
    if (node && node->directory) return Expect(file, EISDIR);
    ASSERT_OK(file);
    const bool found = node != nullptr;
    if (!node) node = dir.node->entries[name] = std::make_shared<Node>();
    const bool truncated = found && options.truncate;
    if (truncated) node->now.clear();
    Keep(host, node, *std::move(file), true, truncated);
  }

  void OpenSome() {
    const Dir dir = Directory(hosts_[0]);
    const std::string name = Name();
    const NodePtr node = Find(dir, name);
    const int host = HostFor({node});
    const auto found = hosts_[host]->Lookup(dir.id, name);
    if (!node) return Expect(found, ENOENT);
    ASSERT_OK(found);
    const bool writes = sim_.Chance(0.6);
    const auto access = writes ? FileSystem::Access::kWrite : FileSystem::Access::kRead;
    auto file = hosts_[host]->Open(found->inode, access);
    if (node->directory) return Expect(file, EISDIR);
    ASSERT_OK(file);
    Keep(host, node, *std::move(file), writes, false);
  }

  void Keep(int host, const NodePtr& node, std::unique_ptr<OpenFile> file, bool writes,
            bool wrote) {
    node->host = host;
    ++node->users;
    open_.push_back({node, std::move(file), writes, wrote});
    if (open_.size() > 6) Close(0);
  }

  void UseFile(size_t which) {
    OpenNode& open = open_[which];
    std::string& now = open.node->now;
    const uint64_t dice = sim_.Below(100);
    if (dice < 30 || !open.writes) {
      const uint64_t offset = Size();
      const size_t length = Size();
      const std::string expected = offset < now.size() ? now.substr(offset, length) : "";
      ASSERT_EQ(ReadAll(*open.file, offset, length) == expected, true)
          << "read " << length << " at " << offset << " of " << now.size();
    } else if (dice < 36) {
      Zero(open);
    } else if (dice < 40) {
      ASSERT_NO_FATAL_FAILURE(Copy(open));
    } else if (dice < 75) {
      const uint64_t offset = sim_.Chance(0.4) ? now.size() : Size();
      const std::string data = Pattern(sim_.Below(1u << 30), Size());
      std::vector<uint32_t> sums;
      if (data.size() % 2 == 0) sums = FilePageSums(offset, AsBytes(data));
      ASSERT_OK(open.file->Write(offset, AsBytes(data), sums));
      open.wrote = true;
      if (data.empty()) return;
      if (now.size() < offset + data.size()) now.resize(offset + data.size());
      now.replace(offset, data.size(), data);
    } else if (dice < 80) {
      const std::string data = Pattern(sim_.Below(1u << 30), Size());
      const auto where = open.file->Append(AsBytes(data));
      ASSERT_OK(where);
      ASSERT_EQ(*where, now.size());
      open.wrote = true;
      now += data;
    } else if (dice < 90) {
      const uint64_t size = Size();
      ASSERT_OK(open.file->Truncate(size));
      open.wrote = true;
      now.resize(size);
    } else {
      ASSERT_OK(dice < 95 ? open.file->Sync() : open.file->Commit());
      if (dice < 95 || open.wrote) open.node->committed = now;
    }
    if (open.writes && now.size() > 12 * kTestBlock) {
      open.wrote = true;
      ASSERT_OK(open.file->Truncate(100));
      now.resize(100);
    }
    const auto attributes = open.file->Stat();
    ASSERT_OK(attributes);
    ASSERT_EQ(attributes->size, now.size());
    if (sim_.Chance(0.1)) Seek(open);
  }

  void Zero(OpenNode& open) {
    std::string& now = open.node->now;
    const uint64_t offset = Size();
    const uint64_t length = Size();
    const auto size = sim_.Chance(0.5) ? OpenFile::Size::kGrows : OpenFile::Size::kStays;
    const bool only_allocates = sim_.Chance(0.2);
    ASSERT_OK(only_allocates ? open.file->Allocate(offset, length, size)
                             : open.file->Zero(offset, length, size));
    open.wrote = true;
    if (length == 0) return;
    if (size == OpenFile::Size::kGrows) now.resize(std::max(now.size(), offset + length));
    if (only_allocates || offset >= now.size()) return;
    const uint64_t there = std::min(length, now.size() - offset);
    now.replace(offset, there, there, '\0');
  }

  void Copy(OpenNode& target) {
    OpenNode& source = open_[sim_.Below(open_.size())];
    const std::string from = source.node->now;
    std::string& to = target.node->now;
    uint64_t offset = Size();
    uint64_t target_offset = Size();
    uint64_t length = Size();
    const bool may_share = sim_.Chance(0.5);  // whole blocks
    if (may_share) {
      offset -= offset % kTestBlock;
      target_offset -= target_offset % kTestBlock;
      length += kTestBlock;
    }
    if (source.node->host != target.node->host) return;  // it is of one file system
    const auto copied = CopyRange(*source.file, offset, *target.file, target_offset, length);
    length = offset < from.size() ? std::min(length, from.size() - offset) : 0;
    const bool overlap = offset < target_offset + length && target_offset < offset + length;
    if (source.node == target.node && length > 0 && overlap) return Expect(copied, EINVAL);
    ASSERT_OK(copied);
    if (may_share && *copied != length) {
      ASSERT_LT(*copied, length);
      ASSERT_GE(*copied, kTestBlock);
      ASSERT_EQ(*copied % kTestBlock, 0u);
      length = *copied;
    }
    ASSERT_EQ(*copied, length);
    if (length == 0) return;
    target.wrote = true;
    to.resize(std::max(to.size(), target_offset + length));
    to.replace(target_offset, length, from, offset, length);
    if (!may_share) return;
    // It may have committed both.
    ASSERT_OK(source.file->Sync());
    ASSERT_OK(target.file->Sync());
    source.node->committed = source.node->now;
    target.node->committed = target.node->now;
  }

  // All that lies in a hole is zeros; data and holes take turns up to the end of the file.
  void Seek(OpenNode& open) {
    const std::string& now = open.node->now;
    bool data = sim_.Chance(0.5);
    for (uint64_t at = sim_.Below(now.size() + 1); at < now.size(); data = !data) {
      const auto kind = data ? OpenFile::Contents::kData : OpenFile::Contents::kHole;
      const auto found = open.file->Seek(at, kind);
      const uint64_t end = found.value_or(now.size());
      if (data && !found.has_value()) {
        Expect(found, ENXIO);
      } else {
        ASSERT_OK(found);
      }
      ASSERT_GE(end, at);
      ASSERT_LE(end, now.size());
      if (data) {
        ASSERT_EQ(now.find_first_not_of('\0', at) >= end, true)
            << "there is something between " << at << " and " << end;
      }
      at = end;
    }
    Expect(open.file->Seek(now.size(), OpenFile::Contents::kHole), ENXIO);
  }

  void Close(size_t which) {
    OpenNode open = std::move(open_[which]);
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(which));
    Node& node = *open.node;
    if (names_ == Names::kLater || sim_.Chance(0.9)) {
      ASSERT_OK(open.file->Close());
      if (open.wrote) node.committed = node.now;  // a reader's close commits nothing
    }
    open.file.reset();
    if (--node.users == 0) node.now = node.committed;
  }

  void MakeDirectory() {
    Host& host = AnyHost();
    const Dir dir = Directory(host);
    const std::string name = Name();
    const auto made = host->MakeDirectory(dir.id, name, 0755, {});
    if (Find(dir, name)) return Expect(made, EEXIST);
    ASSERT_OK(made);
    dir.node->entries[name] = std::make_shared<Node>();
    dir.node->entries[name]->directory = true;
  }

  void Unlink() {
    const Dir dir = Directory(hosts_[0]);
    const std::string name = Name();
    const NodePtr node = Find(dir, name);
    const Status status = hosts_[HostFor({node})]->Unlink(dir.id, name);
    if (!node) return Expect(status, ENOENT);
    if (node->directory) return Expect(status, EISDIR);
    ASSERT_OK(status);
    dir.node->entries.erase(name);
  }

  void RemoveDirectory() {
    Host& host = AnyHost();
    const Dir dir = Directory(host);
    const std::string name = Name();
    const NodePtr node = Find(dir, name);
    const Status status = host->RemoveDirectory(dir.id, name);
    if (!node) return Expect(status, ENOENT);
    if (!node->directory) return Expect(status, ENOTDIR);
    if (!node->entries.empty()) return Expect(status, ENOTEMPTY);
    ASSERT_OK(status);
    dir.node->entries.erase(name);
  }

  static bool IsBelow(const Node& ancestor, const NodePtr& node) {
    if (&ancestor == node.get()) return true;
    for (const auto& [name, child] : ancestor.entries) {
      if (child->directory && IsBelow(*child, node)) return true;
    }
    return false;
  }

  void Rename() {
    const Dir from = Directory(hosts_[0]);
    const Dir to = Directory(hosts_[0]);
    const std::string name = Name();
    const std::string new_name = Name();
    const NodePtr node = Find(from, name);
    const NodePtr replaced = Find(to, new_name);
    const int host = HostFor({node, replaced});
    if (host < 0) return;
    const bool no_replace = sim_.Chance(0.2);
    const Status status = hosts_[host]->Rename(from.id, name, to.id, new_name, no_replace);
    if (!node) return Expect(status, ENOENT);
    if (node == replaced) return no_replace ? Expect(status, EEXIST) : Expect(status, 0);
    if (node->directory && IsBelow(*node, to.node)) return Expect(status, EINVAL);
    if (replaced) {
      if (no_replace) return Expect(status, EEXIST);
      if (node->directory && !replaced->directory) return Expect(status, ENOTDIR);
      if (!node->directory && replaced->directory) return Expect(status, EISDIR);
      if (!replaced->entries.empty()) return Expect(status, ENOTEMPTY);
    }
    ASSERT_OK(status);
    from.node->entries.erase(name);
    to.node->entries[new_name] = node;
  }

  template <typename T>
  void Expect(const T& outcome, int code) {
    ASSERT_EQ(StatusOf(outcome).code(), code) << StatusOf(outcome).message();
  }

  void CompareTree(Host& host, InodeId id, const Node& node) {
    const auto listed = host->ReadDirectory(id, "", 1000, true);
    ASSERT_OK(listed);
    std::set<std::string> names;
    for (const DirectoryEntry& entry : *listed) names.insert(entry.name);
    std::set<std::string> expected;
    for (const auto& [name, child] : node.entries) expected.insert(name);
    ASSERT_EQ(names, expected);
    for (const DirectoryEntry& entry : *listed) {
      const Node& child = *node.entries.at(entry.name);
      ASSERT_EQ(entry.kind == FileKind::kDirectory, child.directory);
      if (child.directory) {
        ASSERT_EQ(*host->ParentOf(entry.inode), id);
        CompareTree(host, entry.inode, child);
      } else if (child.users == 0) {
        ASSERT_EQ(entry.attributes->size, child.now.size());
        auto file = host->Open(entry.inode, FileSystem::Access::kRead);
        ASSERT_OK(file);
        const std::string bytes = ReadAll(**file);
        const size_t at = static_cast<size_t>(
            std::mismatch(bytes.begin(), bytes.end(), child.now.begin(), child.now.end()).first -
            bytes.begin());
        ASSERT_EQ(bytes.size(), child.now.size());
        ASSERT_EQ(at, bytes.size())
            << entry.name << " has other bytes from there on; inode " << entry.inode;
        ASSERT_OK((*file)->Close());
      }
    }
  }

  SimRuntime sim_;
  TestCluster machines_;
  const Names names_;
  Host hosts_[2];
  NodePtr root_ = std::make_shared<Node>();
  std::vector<OpenNode> open_;
  int step_ = 0;
};

TEST(ModelTest, TwoHostsAgreeWithAPlainTreeOfStrings) {
  const Seeds seeds = SeedsFromEnvironment(20);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Model model(seed, {.drives = 5, .layout = {2, 1, 64 << 10}}, {.memory_bytes = 64 << 20});
    model.Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
  }
}

TEST(ModelTest, AndSoTheyDoWithHardlyAnyMemory) {
  const Seeds seeds = SeedsFromEnvironment(10);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Model model(seed, {.drives = 5, .layout = {2, 1, 64 << 10}}, {.memory_bytes = 1});
    model.Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
  }
}

TEST(ModelTest, AndSoDoesOneWhoseFilesAppearLater) {
  const Seeds seeds = SeedsFromEnvironment(20);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Model model(seed, {.drives = 5, .layout = {2, 1, 64 << 10}}, {.memory_bytes = 64 << 20},
                Model::Names::kLater);
    model.Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
  }
}

// Both in one directory, of which only the first has the use. With little memory, or nothing would
// be read from it.
TEST(ModelTest, AndSoTheyDoWithACacheOnALocalDisk) {
  const Seeds seeds = SeedsFromEnvironment(10);
  uint64_t found = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    TemporaryDirectory directory;
    FileSystem::Options options{.memory_bytes = 1 << 20};
    options.disk_cache_directory = directory.path();
    options.disk_cache_bytes = kLeastDiskCacheBytes;
    Model model(seed, {.drives = 5, .layout = {2, 1, 64 << 10}}, options);
    model.Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
    found += model.cells_found_on_disk();
  }
  if (seeds.end - seeds.first >= 10) {
    EXPECT_GT(found, 10u) << "little was tested";
  }
}

TEST(ModelTest, AndSoTheyDoWithBlockMapsInPages) {
  const Seeds seeds = SeedsFromEnvironment(20);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    FileSystem::Options options = seed % 2 == 0 ? kTinyPages : kSmallPages;
    if (seed % 3 == 0) options.memory_bytes = 1;
    Model model(seed, {.drives = 5, .layout = {2, 1, 64 << 10}}, options);
    model.Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
  }
}

}  // namespace
}  // namespace pinstripe
