// A file system whose drives all lose their power at the same moment.
//
// Goal: what was fsynced is there, whole; of a file that was changed in place since, the old
// contents are, or newer ones. One that was replaced as a whole without an fsync may be gone, or
// say that it cannot be read. Never a mixture, never bytes that nobody wrote. Method: the stores of
// all drives of a cluster in this process are on LossyDisks. A client makes, overwrites, replaces,
// renames and removes files; at a request that the seed chooses, images are taken of all disks at
// once, and a cluster is opened on them.
//
//   SEED=42 fs_power_loss_test   one seed (RocksDB's own threads may make two runs of it differ)
//   CRASH_SECONDS=600            as many as there is time for

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/log.h"
#include "daemon/engine.h"
#include "fs/file_system.h"
#include "store/log_store.h"
#include "tests/support/expect_ok.h"
#include "tests/support/faulty_drive.h"
#include "tests/support/lossy_disk.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/temporary_directory.h"
#include "upkeep/checker.h"

namespace pinstripe {
namespace {

constexpr DriveId kDrives = 7;  // so that some files have nothing on the drives of their inodes
constexpr int kSteps = 25;
constexpr int kFiles = 4;

// The engine on a store that keeps what it is given, as `pinstriped` has it.
class StoreDrive final : public Drive {
 public:
  StoreDrive(Runtime& runtime, std::string name, std::unique_ptr<Store> store,
             std::function<void()> before_each_change)
      : runtime_(runtime),
        name_(std::move(name)),
        engine_(std::move(store)),
        before_each_change_(std::move(before_each_change)) {}

  std::string_view name() const override { return name_; }
  DriveCapabilities capabilities() const override {
    return {.range_get = true, .range_records = true, .guards = true};
  }
  bool IsUp() const override { return true; }
  uint64_t CountLosses() const override { return 0; }

  void Get(std::string key, ValueRange range, Terms, Callback<Record> done) override {
    Answer(std::move(done), engine_.Get(key, range).map([](StoredRecord&& record) -> Record {
      return {std::move(record.head.version), std::move(record.head.tag), record.value};
    }));
  }
  void Head(std::string key, Terms, Callback<RecordHead> done) override {
    Answer(std::move(done), engine_.Head(key).map([](StoredHead&& head) -> RecordHead {
      return {std::move(head.version), std::move(head.tag)};
    }));
  }
  void Put(PutRequest request, Terms, StatusCallback done) override {
    before_each_change_();
    const StoredRecord record{.head = {.version = std::move(request.version),
                                       .tag = std::move(request.tag),
                                       .algorithm = 4},
                              .value = std::move(request.value)};
    Answer(std::move(done),
           Durably(engine_.Put(request.key, record, request.expected, request.room, request.guard),
                   request.durability));
  }
  void Delete(std::string key, Expected expected, Durability durability, Terms,
              StatusCallback done) override {
    before_each_change_();
    Answer(std::move(done), Durably(engine_.Delete(key, expected), durability));
  }
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms,
             Callback<std::vector<std::string>> done) override {
    Answer(std::move(done),
           engine_.Keys({.first = std::move(first), .last = std::move(last)}, max, reverse));
  }
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms, Callback<RangeRecords> done) override {
    const RangeLimits limits{.entries = max,
                             .value_bytes = value_limit,
                             .all_value_bytes = kMaxValueBytes,
                             .all_head_bytes = kMaxRangeHeadBytes};
    const auto to_records = [](RangeItems&& items) {
      RangeRecords records{.more = items.more};
      for (RangeItem& item : items.items) {
        records.records.push_back(
            {.key = std::move(item.key),
             .record = {std::move(item.head.version), std::move(item.head.tag), item.value},
             .has_value = item.has_value,
             .damaged = item.damaged});
      }
      return records;
    };
    Answer(std::move(done),
           engine_.Items({.first = std::move(first), .last = std::move(last)}, limits, reverse)
               .map(to_records));
  }
  void Flush(Terms, StatusCallback done) override {
    before_each_change_();
    Answer(std::move(done), engine_.Flush());
  }
  void Info(Terms, Callback<DriveInfo> done) override {
    Answer(std::move(done), Result<DriveInfo>(Tell()));
  }
  void SetClusterVersion(int64_t, Terms, StatusCallback done) override {
    Answer(std::move(done), Status());
  }

  // Who it is and what it may have forgotten, as every connect asks.
  Status Identify(const std::string& identity_key, const IdentityCheck& check) {
    const auto superblock = engine_.Get(identity_key, {}).map([](StoredRecord&& record) -> Record {
      return {std::move(record.head.version), std::move(record.head.tag), record.value};
    });
    return check(superblock, Tell());
  }

 private:
  DriveInfo Tell() {
    const StoreStarts starts = engine_.Starts();
    return {.capacity_bytes = 1 << 30,
            .starts = starts.starts,
            .start_count = starts.count,
            .up = starts.up};
  }
  Status Durably(Status status, Durability durability) {
    return status.ok() && durability != Durability::kWriteBack ? engine_.Flush() : status;
  }
  template <typename R, typename V>
  void Answer(std::function<void(R)> done, V result) {
    runtime_.RunAt(runtime_.Now(),
                   [done = std::move(done), result = R(std::move(result))] { done(result); });
  }

  Runtime& runtime_;
  const std::string name_;
  Engine engine_;
  const std::function<void()> before_each_change_;
};

// All drives of a cluster, on the directories <path>/1, <path>/2, ...
class Machines {
 public:
  Machines(Runtime& runtime, const std::string& path, std::function<void()> each_change)
      : runtime_(runtime) {
    config_.file = "cluster.toml";
    config_.name = "test";
    config_.layout = {2, 1, 64 << 10};
    config_.replicas = 3;
    config_.groups = 16;
    config_.memory_bytes = 64 << 20;
    for (DriveId id = 1; id <= kDrives; ++id) {
      DriveConfig drive;
      drive.id = id;
      drive.addresses = {fmt::format("memory:{}", id)};
      config_.drives.push_back(drive);
      const std::string directory = fmt::format("{}/{}", path, id);
      std::filesystem::create_directories(directory);
      disks_.push_back(std::make_unique<LossyDisk>(directory));
      auto store = LogStore::Open({.path = directory + "/store",
                                   .segment_bytes = 1 << 20,
                                   .reserve_bytes = 0,
                                   .calls = disks_.back().get(),
                                   .index_env = disks_.back()->env()},
                                  *resources_.emplace_back(std::make_unique<StoreResources>()));
      EXPECT_OK(store);
      drives_[drive.addresses[0]] = std::make_shared<StoreDrive>(
          runtime, fmt::format("drive {}", id), *std::move(store), each_change);
    }
  }

  Status Format() { return Cluster::Format(runtime_, config_, Factory(), {}); }
  Result<std::unique_ptr<Cluster>> Open() { return Cluster::Open(runtime_, config_, Factory()); }
  void TakeImages(const std::string& path, uint64_t seed) {
    for (size_t i = 0; i < disks_.size(); ++i) {
      disks_[i]->TakeImage(fmt::format("{}/{}", path, i + 1), seed * 31 + i);
    }
  }

 private:
  DriveFactory Factory() {
    return [this](const DriveConfig& config, const std::string& identity_key,
                  const IdentityCheck& check) -> Result<std::unique_ptr<Drive>> {
      const std::shared_ptr<StoreDrive> drive = drives_.at(config.addresses[0]);
      if (Status refused = drive->Identify(identity_key, check); !refused.ok())
        return Failed(refused);
      return std::make_unique<FaultyDrive>(runtime_, drive);
    };
  }

  Runtime& runtime_;
  ClusterConfig config_;
  std::vector<std::unique_ptr<StoreResources>> resources_;  // stores on one disk share theirs
  std::vector<std::unique_ptr<LossyDisk>> disks_;
  std::map<std::string, std::shared_ptr<StoreDrive>> drives_;
};

// What a name may stand for after the power has failed. Null: nothing.
struct Allowed {
  std::set<std::optional<std::string>> contents = {std::nullopt};
  bool certain = true;   // it was fsynced, or never made, and not changed since
  bool readable = true;  // no part of what it may be has been written by somebody who did not care

  void Safe(std::optional<std::string> content) {
    contents = {std::move(content)};
    certain = readable = true;
  }
  void Possible(std::optional<std::string> content) {
    contents.insert(std::move(content));
    certain = false;
  }
};
using Model = std::map<std::string, Allowed>;

class Client {
 public:
  // `lies`: it commits where it says that it has synced.
  Client(SimRuntime& sim, FileSystem& fs, Model& model, bool lies)
      : sim_(sim), fs_(fs), model_(model), lies_(lies) {}

  // Files that are safe, and a change of each that is not.
  void MakeFiles() {
    for (int i = 0; i < kFiles; ++i) Replace(fmt::format("f{}", i), /*syncs=*/true);
    SyncDirectory();
  }
  void ChangeInPlace() {
    const std::string name = fmt::format("f{}", sim_.Below(kFiles));
    sim_.Chance(0.5) ? Touch(name, /*syncs=*/false) : Overwrite(name, /*syncs=*/false);
    if (sim_.Chance(0.5)) sim_.Sleep(std::chrono::seconds(7));  // what was replaced goes
  }

  void Step() {
    // Now and then what was replaced, or removed, goes.
    if (sim_.Chance(0.3)) sim_.Sleep(std::chrono::seconds(sim_.Chance(0.3) ? 70 : 7));
    const std::string name = fmt::format("f{}", sim_.Below(kFiles));
    switch (sim_.Below(11)) {
      case 0:
      case 1: return Replace(name, /*syncs=*/true);
      case 2: return Replace(name, /*syncs=*/false);
      case 3:
      case 4: return Overwrite(name, /*syncs=*/true);
      case 5: return Overwrite(name, /*syncs=*/false);
      case 6: return Remove(name);
      case 7:
      case 8: return Touch(name, /*syncs=*/true);
      case 9: return Touch(name, /*syncs=*/false);
      default: return SaveAs(name);
    }
  }

 private:
  std::string NewContent() {
    static constexpr size_t kSizes[] = {10, 5000, 70'000, 131'072, 300'000};
    const size_t wanted = kSizes[sim_.Below(std::size(kSizes))];
    std::string content = fmt::format("{:08}", ++version_);
    while (content.size() < wanted) {
      content += fmt::format("{:08x}", content.size() * 2654435761u + version_ * 40503u);
    }
    return content;
  }

  void Write(OpenFile& file, const std::string& content, bool syncs) {
    ASSERT_OK(file.Write(0, AsBytes(content)));
    ASSERT_OK(file.Truncate(content.size()));
    if (syncs && !lies_) {
      ASSERT_OK(file.Sync());
    } else {
      ASSERT_OK(file.Commit());
    }
  }

  void SyncDirectory() {
    if (lies_) return;
    ASSERT_OK(fs_.SyncDirectory(kRootInode));
  }

  void Replace(const std::string& name, bool syncs) {
    const std::string content = NewContent();
    model_[name].Possible(content);
    // The entry may be safe when the inode that it names is not; the old one is gone by then.
    if (!syncs) {
      model_[name].Possible(std::nullopt);
      model_[name].readable = false;
    }
    auto file = fs_.Create(kRootInode, name, {.truncate = true, .publish_at_commit = true});
    ASSERT_OK(file);
    Write(**file, content, syncs);
    // The name it replaced may have been changed without fsync: now it is that of the new file.
    if (syncs) model_[name].Safe(content);
  }

  void Overwrite(const std::string& name, bool syncs) {
    const auto found = fs_.Lookup(kRootInode, name);
    if (!found.has_value()) return;
    // Of a file whose name was never made safe only the name's directory can be.
    SyncDirectory();
    const std::string content = NewContent();
    model_[name].Possible(content);
    auto file = fs_.Open(found->inode, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    Write(**file, content, syncs);
    if (syncs) model_[name].Safe(content);
  }

  // A few bytes, which become a patch of a stored block where that is large enough.
  void Touch(const std::string& name, bool syncs) {
    const auto found = fs_.Lookup(kRootInode, name);
    if (!found.has_value()) return;
    SyncDirectory();
    auto file = fs_.Open(found->inode, FileSystem::Access::kWrite);
    ASSERT_OK(file);
    std::string content(found->size, '\0');
    ASSERT_OK((*file)->Read(0, std::as_writable_bytes(std::span(content))));
    const size_t at = sim_.Below(content.size() - 8);
    const std::string bytes = fmt::format("{:08}", ++version_);
    content.replace(at, bytes.size(), bytes);
    model_[name].Possible(content);
    ASSERT_OK((*file)->Write(at, AsBytes(bytes)));
    if (syncs && !lies_) {
      ASSERT_OK((*file)->Sync());
    } else {
      ASSERT_OK((*file)->Commit());
    }
    if (syncs) model_[name].Safe(content);
  }

  void Remove(const std::string& name) {
    model_[name].Possible(std::nullopt);
    if (!fs_.Unlink(kRootInode, name).ok()) return;
    if (sim_.Chance(0.5)) return;
    SyncDirectory();
    model_[name].Safe(std::nullopt);
  }

  // As editors do it: the new contents in a file of their own, safe; then the name.
  void SaveAs(const std::string& name) {
    const std::string content = NewContent();
    const std::string temporary = fmt::format("t{}", version_);
    auto file = fs_.Create(kRootInode, temporary, {});
    ASSERT_OK(file);
    Write(**file, content, /*syncs=*/true);
    ASSERT_OK((*file)->Close());
    model_[name].contents.insert(content);  // as certain as it was
    ASSERT_OK(fs_.Rename(kRootInode, temporary, kRootInode, name));
    if (sim_.Chance(0.5)) return;
    SyncDirectory();
    model_[name].Safe(content);
  }

  SimRuntime& sim_;
  FileSystem& fs_;
  Model& model_;
  const bool lies_;
  uint64_t version_ = 0;
};

// What is wrong after the power has come back, or nothing.
std::string ComplaintAbout(const std::string& path, const Model& model) {
  SimRuntime sim(1);
  Machines machines(sim, path, [] {});
  const auto cluster = machines.Open();
  if (!cluster.has_value()) return std::string(cluster.error().message());
  auto fs = FileSystem::Open(**cluster, {});
  if (!fs.has_value()) return std::string(fs.error().message());
  for (const auto& [name, allowed] : model) {
    std::optional<std::string> content;
    const auto found = (*fs)->Lookup(kRootInode, name);
    if (!found.has_value() && found.error().code() != ENOENT) {
      return fmt::format("{}: {}", name, found.error().message());
    }
    // A removal that few drives still know of may take effect between the look and this.
    const auto file = found.has_value() ? (*fs)->Open(found->inode, FileSystem::Access::kRead)
                                        : tl::unexpected(found.error());
    if (!file.has_value() && file.error().code() != ENOENT) {
      return fmt::format("{}: {}", name, file.error().message());
    }
    if (file.has_value()) {
      content.emplace(400'000, '?');
      const auto read = (*file)->Read(0, std::as_writable_bytes(std::span(*content)));
      if (!read.has_value()) {
        if (!allowed.readable) continue;  // it says so
        return fmt::format("{} was fsynced{}: {}", name, allowed.certain ? "" : ", and changed",
                           read.error().message());
      }
      content->resize(*read);
    }
    if (content && content->empty() && !allowed.certain) continue;  // made, and not written yet
    if (allowed.contents.contains(content)) continue;
    return fmt::format(
        "{} is {}, which is none of the {} things that it may be{}", name,
        content ? fmt::format("{} bytes of {}", content->size(), content->substr(0, 8)) : "gone",
        allowed.contents.size(), allowed.certain ? "; it was fsynced" : "");
  }
  return "";
}

enum class Story { kEverything, kChangesInPlace };

std::string RunOnce(uint64_t seed, Story story, bool lies) {
  const TemporaryDirectory directory;
  const std::string image = directory / "image";
  Model model;
  Model at_failure;
  {
    SimRuntime sim(seed);
    Machines* live = nullptr;
    uint64_t left = 0;  // changes until the power fails
    Machines machines(sim, directory / "live", [&] {
      if (left == 0 || --left > 0) return;
      live->TakeImages(image, seed);
      at_failure = model;
    });
    live = &machines;
    EXPECT_OK(machines.Format());
    auto cluster = machines.Open();
    EXPECT_OK(cluster);
    if (!cluster.has_value()) return "";
    EXPECT_OK(FileSystem::Format(**cluster, {}, 0755));
    auto fs = FileSystem::Open(**cluster, {.inline_map_bytes = 40, .map_page_bytes = 100});
    EXPECT_OK(fs);
    Client client(sim, **fs, model, lies);
    if (story == Story::kChangesInPlace) {
      client.MakeFiles();
      left = 1 + sim.Below(60);
      while (left > 0) client.ChangeInPlace();
    } else {
      left = 1 + sim.Below(600);
      for (int step = 0; step < kSteps && left > 0; ++step) client.Step();
    }
    if (left > 0) {
      left = 0;
      machines.TakeImages(image, seed);
      at_failure = model;
    }
  }
  return ComplaintAbout(image, at_failure);
}

bool TimeIsLeft() {
  static const auto begin = std::chrono::steady_clock::now();
  const char* seconds = std::getenv("CRASH_SECONDS");
  return seconds != nullptr &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(std::atoi(seconds));
}

TEST(FsPowerLoss, WhatWasSyncedIsWholeAndTheRestIsNoMixture) {
  SetLogLevel(LogLevel::kError);
  const Seeds seeds = SeedsFromEnvironment(20);
  for (uint64_t seed = seeds.first; seed < seeds.end || TimeIsLeft(); ++seed) {
    ASSERT_EQ(RunOnce(seed, Story::kEverything, /*lies=*/false), "")
        << "reproduce with SEED=" << seed;
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
  }
}

TEST(FsPowerLoss, WhatWasChangedInPlaceIsOldOrNew) {
  SetLogLevel(LogLevel::kError);
  const Seeds seeds = SeedsFromEnvironment(40);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    ASSERT_EQ(RunOnce(seed, Story::kChangesInPlace, /*lies=*/false), "")
        << "reproduce with SEED=" << seed;
    ASSERT_FALSE(testing::Test::HasFailure()) << "reproduce with SEED=" << seed;
  }
}

// A test of the test: a client that only says that it has synced is found out.
TEST(FsPowerLoss, WhatWasNotSyncedIsMissed) {
  SetLogLevel(LogLevel::kError);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    if (!RunOnce(seed, Story::kEverything, /*lies=*/true).empty()) return;
  }
  FAIL() << "nothing was ever missing";
}

}  // namespace
}  // namespace pinstripe
