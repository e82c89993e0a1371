// Clients write, overwrite, append, clear, truncate, clone, read, move and remove files while
// drives come and go, lose and repeat requests, answer rotten bytes or with other records than were
// asked for, one burns down, and clients die between any two of their requests and come back as new
// ones.
//
// What must hold, whatever happens (docs/semantics.md):
//   - a commit that was acknowledged is there until another one replaces it; one whose outcome
//     nobody knows (its client died, or was told so) has happened wholly or not at all. So a file
//     always reads as one of the contents that it may have: never a mixture, never something else;
//   - during the storm an operation may fail with EIO, and says nothing else that is not true;
//   - a file that is moved has its old name or its new one, never neither; in the calm never both;
//   - in the calm after the storm every name can be opened, and everything reads.
// Each file has one writer at a time, so that the allowed contents are few; everybody reads all of
// them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "fs/file_system.h"
#include "tests/support/file_page_sums.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"
#include "upkeep/checker.h"
#include "upkeep/collector.h"
#include "upkeep/host_care.h"
#include "upkeep/packer.h"
#include "upkeep/repairer.h"

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kClients = 3;
constexpr int kStepsPerClient = 25;
constexpr int kFilesPerClient = 3;
constexpr DriveId kDrives = 8;

constexpr size_t kBlock = 4 * 65536;

// Inline, replicated, a short stripe, a full block, several blocks; and the borders between them.
constexpr size_t kSizes[] = {0,     1,      700,    4096,   4097,    20000,  65536,
                             65537, 100000, 262144, 262145, 700'000, 1 << 20};

// What a file may contain: the last acknowledged content and every later one whose fate is unknown.
struct Expectation {
  std::vector<std::optional<std::string>> contents = {std::nullopt};  // null: there is no such file
  uint64_t changes = 0;                                               // how often the list changed

  bool Allows(const std::optional<std::string>& content) const {
    return std::find(contents.begin(), contents.end(), content) != contents.end();
  }
  void Known(std::optional<std::string> content) {
    contents = {std::move(content)};
    ++changes;
  }
  void Possible(std::optional<std::string> content) {
    contents.push_back(std::move(content));
    ++changes;
  }
};

class Storm {
 public:
  Storm(uint64_t seed, int min_redundancy, bool fences = true, bool careful_packer = true)
      : seed_(seed),
        sim_(seed),
        machines_(sim_, {.drives = kDrives}),
        fences_(fences),
        careful_packer_(careful_packer),
        mends_(fences && min_redundancy > 0),
        clones_at_all_(min_redundancy > 0) {
    machines_.config().min_redundancy = min_redundancy;
    machines_.config().drive_timeout = seconds(2);
  }

  void Run() {
    sim_.Spawn("main", [this] {
      Prepare();
      for (int client = 0; client < kClients; ++client) {
        sim_.Spawn(fmt::format("client {}", client), [this, client] { Client(client); });
      }
      sim_.Spawn("weather", [this] { Weather(); });
      if (!fences_ || sim_.Chance(0.4)) sim_.Spawn("collector", [this] { CollectAllTheTime(); });
      if (sim_.Chance(0.4)) sim_.Spawn("repairer", [this] { RepairAllTheTime(); });
      if (!careful_packer_ || (fences_ && sim_.Chance(0.4))) {
        sim_.Spawn("packer", [this] { PackAllTheTime(); });
      }
    });
    sim_.Run();
    sim_.Spawn("inspector", [this] { Inspect(); });
    sim_.Run();
  }

  const std::string& complaint() const { return complaint_; }
  int acknowledged() const { return acknowledged_; }
  uint64_t collected() const { return collected_; }
  uint64_t repaired() const { return repaired_; }
  uint64_t packed() const { return packed_; }
  uint64_t repacked() const { return repacked_; }
  int crashes() const { return crashes_; }
  uint64_t patches() const { return patches_; }
  uint64_t clones() const { return clones_; }
  uint64_t trace_hash() const { return sim_.trace_hash(); }

 private:
  // One life of a client. What it has open dies with it.
  struct Life {
    std::shared_ptr<ClientLife> life = std::make_shared<ClientLife>();
    std::unique_ptr<Cluster> cluster;
    std::unique_ptr<FileSystem> fs;
    bool crashed() const { return life->crashed(); }
  };

  void Prepare() {
    const bool beside = seed_ % 4 != 0;
    if (beside) machines_.config().inline_limit = static_cast<uint32_t>(seed_ * 977 % 4096);
    std::vector<Feature> features;
    if (beside) features.push_back(NewFeature(kContentsBesideFeature));
    if (sim_.Chance(0.7)) features.push_back(NewFeature(kGapsFeature));
    Require(machines_.Format({.features = std::move(features)}), "format");
    {
      const auto cluster = machines_.Open();
      if (!cluster.has_value()) return Complain("a new cluster cannot be opened");
      Require(FileSystem::Format(**cluster, {}, 0755), "make the root");
      // Else the first pack waits until all drives can hear of it.
      if (fences_ && sim_.Chance(0.9)) Require(UseFeature(**cluster, kPacksFeature), "use packs");
    }
    std::unique_ptr<Life> life = Open();
    if (!life) return Complain("a new file system cannot be opened");
    for (const char* name : {"a", "b"}) {
      const auto made = life->fs->MakeDirectory(kRootInode, name, 0755, {});
      Require(StatusOf(made), "mkdir");
      directories_.push_back(made.has_value() ? made->inode : 0);
    }
  }

  std::unique_ptr<Life> Open() {
    auto life = std::make_unique<Life>();
    auto cluster = machines_.Open(life->life);
    if (!cluster.has_value()) return nullptr;
    life->cluster = *std::move(cluster);
    FileSystem::Options options{.memory_bytes = 8 << 20,
                                .caretaker = mends_ ? &MakeHostCare : nullptr,
                                .least_shared_bytes = kBlock};
    if (sim_.Chance(0.7)) {  // block maps in pages as soon as there are two runs, or some more
      const bool tiny = sim_.Chance(0.5);
      options.inline_map_bytes = tiny ? 40 : 150;
      options.map_page_bytes = tiny ? 100 : 60;
    }
    auto fs = FileSystem::Open(*life->cluster, options);
    if (!fs.has_value()) return nullptr;
    life->fs = *std::move(fs);
    return life;
  }

  std::unique_ptr<Life> Resurrect() {
    for (;;) {
      if (auto life = Open()) {
        if (sim_.Chance(0.6)) life->life->CrashAfter(sim_.Below(400));
        return life;
      }
      sim_.Sleep(milliseconds(500));
    }
  }

  void Client(int client) {
    std::unique_ptr<Life> life = Resurrect();
    for (int step = 0; step < kStepsPerClient; ++step) {
      if (life->crashed()) {
        ++crashes_;
        life.reset();
        life = Resurrect();
      }
      if (sim_.Chance(0.3)) sim_.Sleep(sim_.Between(milliseconds(1), milliseconds(500)));
      const std::string name = fmt::format("c{}-{}", client, sim_.Below(kFilesPerClient));
      if (unsure_.contains(name)) continue;  // nobody knows where it is: left for the inspection
      switch (sim_.Below(clones_at_all_ ? 10 : 8)) {
        case 0:
        case 1: Replace(*life, name); break;
        case 2:
        case 3: Modify(*life, name); break;
        case 4: Move(*life, name); break;
        case 5: Remove(*life, name); break;
        case 8:
        case 9:
          Clone(*life, name, fmt::format("c{}-{}", client, sim_.Below(kFilesPerClient)));
          break;
        default:
          CheckFile(*life, fmt::format("c{}-{}", sim_.Below(kClients), sim_.Below(kFilesPerClient)),
                    /*calm=*/false);
      }
    }
    ++clients_done_;
  }

  // What dead clients left goes at once, and so does what live ones did not commit: these are told
  // so when they try.
  // By this collector's clock everything is old.
  void CollectAllTheTime() {
    while (clients_done_ < kClients) {
      const std::unique_ptr<Life> life = Resurrect();
      while (clients_done_ < kClients && !life->crashed()) {
        Collector collector(*life->cluster, {.older_than = -std::chrono::hours(1),
                                             .renew_epoch_for = sim_.Chance(0.3) ? 1u : 1000u,
                                             .least_age_of_names = std::chrono::seconds(40),
                                             .fences = fences_});
        const CollectReport& report = collector.Run();
        collected_ += report.inodes + report.entries + report.shards;
        sim_.Sleep(sim_.Between(milliseconds(1), milliseconds(500)));
      }
    }
  }

  // Whatever is small, at once, and every pack with something unused in it again. It dies in the
  // middle of it, too.
  void PackAllTheTime() {
    while (clients_done_ < kClients) {
      const std::unique_ptr<Life> life = Resurrect();
      if (sim_.Chance(0.5)) life->life->CrashAfter(sim_.Below(400));
      while (clients_done_ < kClients && !life->crashed()) {
        Packer packer(*life->cluster, {.older_than = -std::chrono::hours(1),
                                       .least_bytes = 1,
                                       .jobs = 4,
                                       .fences = careful_packer_});
        (void)packer.Run(kRootInode);
        packed_ += packer.report().files;
        repacked_ += packer.report().repacked;
        sim_.Sleep(sim_.Between(milliseconds(1), milliseconds(500)));
      }
    }
  }

  void RepairAllTheTime() {
    while (clients_done_ < kClients) {
      const std::unique_ptr<Life> life = Resurrect();
      while (clients_done_ < kClients && !life->crashed()) {
        Repairer::Options options{.read_all = sim_.Chance(0.3)};
        if (sim_.Chance(0.2)) options.without.insert(AnyDrive());
        Repairer repairer(*life->cluster, options);
        const RepairReport& report = repairer.Run();
        repaired_ += report.written + report.relocated;
        if (!report.inconsistent.empty()) Complain(report.inconsistent.front());
        if (!report.contradicted.empty()) Complain(report.contradicted.front());
        sim_.Sleep(sim_.Between(milliseconds(1), seconds(2)));
      }
    }
  }

  std::string NewContent() {
    std::string content(kSizes[sim_.Below(std::size(kSizes))], '\0');
    uint64_t bits = sim_.Random();
    for (size_t i = 0; i < content.size(); ++i) {
      if (i % 8 == 0) bits = bits * 6364136223846793005u + 1442695040888963407u;
      content[i] = static_cast<char>(bits >> (i % 8 * 8));
    }
    return content;
  }

  // In which of the two directories the client that owns the file last put it.
  InodeId HomeOf(const std::string& name) { return directories_[homes_[name]]; }

  // Sometimes with checksums, as XRootD's clients do, and sometimes without.
  static Status Put(OpenFile& file, uint64_t offset, Bytes bytes) {
    if (bytes.size() % 2 == 0) return file.Write(offset, bytes);
    return file.Write(offset, bytes, FilePageSums(offset, bytes));
  }

  Status WriteAll(OpenFile& file, uint64_t offset, const std::string& content) {
    for (size_t done = 0; done < content.size();) {
      const size_t size = std::min<size_t>(1 + sim_.Below(200'000), content.size() - done);
      const Status written = Put(file, offset + done, AsBytes(content).subspan(done, size));
      if (!written.ok()) return written;
      done += size;
    }
    return {};
  }

  // An operation after which the file may be as `content`: so from its beginning on, since others
  // read meanwhile, and so from its end on if nobody knows what became of it.
  Status Attempt(const std::string& name, std::optional<std::string> content,
                 const std::function<Status()>& operation) {
    const Expectation before = files_[name];
    files_[name].Possible(content);
    const Status status = operation();
    // That there is no room is certain, and nothing has changed.
    if (status.code() == ENOSPC) files_[name] = before;
    if (status.ok()) {
      files_[name].Known(std::move(content));
      if (late_unlinks_.contains(name)) files_[name].Possible(std::nullopt);
      ++acknowledged_;
    }
    return status;
  }

  // A failure may be EIO and its kin; whatever else it says must be true.
  void RequireHonest(const Status& status, const std::string& what) {
    if (status.ok() || HostErrno(status) == EIO || status.code() == ENOSPC) return;
    Complain(fmt::format("{}: {}: {}", what, ErrnoText(status.code()), status.message()));
  }

  // As `xrdcp -f` does it: all of a new content, visible at close.
  void Replace(Life& life, const std::string& name) {
    const std::string content = NewContent();
    // One that appears at once appears empty; an existing file keeps what it has until the commit.
    const bool publish_at_commit = sim_.Chance(0.7);
    if (!publish_at_commit && files_[name].Allows(std::nullopt)) files_[name].Possible("");
    auto file = life.fs->Create(HomeOf(name), name,
                                {.truncate = true, .publish_at_commit = publish_at_commit});
    if (!file.has_value()) return RequireHonest(file.error(), "create " + name);
    const Status written = WriteAll(**file, 0, content);
    if (!written.ok()) return RequireHonest(written, "write " + name);
    if (sim_.Chance(0.2)) return;  // without Close(): nothing of it is committed
    const Status closed = Attempt(name, content, [&] { return (*file)->Close(); });
    // The name has a new inode, and an unlink of what it was comes too late.
    if (closed.ok() && publish_at_commit && late_unlinks_.erase(name) > 0)
      files_[name].Known(content);
    RequireHonest(closed, "close " + name);
  }

  // Reads what is there, changes a part, or the length, and commits once or twice.
  void Modify(Life& life, const std::string& name) {
    // A commit of an earlier life may still be on its way and be merged with this one: then the
    // whole file is written again instead, whose outcome does not depend on it.
    if (files_[name].contents.size() != 1) return Replace(life, name);
    const auto found = life.fs->Lookup(HomeOf(name), name);
    if (!found.has_value()) return CheckAbsence(found.error(), name);
    auto file = life.fs->Open(found->inode, FileSystem::Access::kWrite);
    if (!file.has_value()) return RequireHonest(file.error(), "open " + name);
    const Result<std::string> now = ReadAll(**file);
    if (!now.has_value()) return RequireHonest(now.error(), "read " + name);
    if (!files_[name].Allows(*now))
      return Complain(name + " is open with a content it cannot have");
    std::string content = *now;
    // Small overwrites of one block become patches, and many of them one.
    const bool small = sim_.Chance(0.5);
    for (uint64_t edits = 1 + sim_.Below(small ? 12 : 3); edits > 0; --edits) {
      if (clones_at_all_ && sim_.Chance(0.2)) {
        const Status cloned = CloneWithin(**file, name, content);
        if (!cloned.ok()) return RequireHonest(cloned, "clone within " + name);
        continue;
      }
      const Status edited = small ? Touch(**file, content) : Edit(**file, content);
      if (!edited.ok()) return RequireHonest(edited, "edit " + name);
      if (!sim_.Chance(small ? 0.7 : 0.2)) continue;
      const Status synced = Attempt(name, content, [&] { return (*file)->Sync(); });
      if (!synced.ok()) return RequireHonest(synced, "sync " + name);
    }
    RequireHonest(Attempt(name, content, [&] { return (*file)->Close(); }), "close " + name);
  }

  // Another file of the same client gets the same blocks, at once.
  void Clone(Life& life, const std::string& name, const std::string& from) {
    if (name == from || unsure_.contains(from) || files_[from].contents.size() != 1) return;
    const std::optional<std::string> content = files_[from].contents.front();
    if (!content || content->size() < kBlock) return;
    const auto found = life.fs->Lookup(HomeOf(from), from);
    if (!found.has_value()) return CheckAbsence(found.error(), from);
    auto source = life.fs->Open(found->inode, FileSystem::Access::kRead);
    if (!source.has_value()) return RequireHonest(source.error(), "open " + from);
    files_[name].Possible("");
    auto target = life.fs->Create(HomeOf(name), name, {.truncate = true});
    if (!target.has_value()) return RequireHonest(target.error(), "create " + name);
    RequireHonest(Attempt(name, content,
                          [&]() -> Status {
                            const auto shared =
                                (*source)->ShareBlocks(0, content->size(), **target, 0);
                            if (!shared.has_value()) return shared.error();
                            if (*shared == content->size()) ++clones_;
                            if (*shared != 0 && *shared != content->size()) {
                              Complain(fmt::format("{} bytes of {} were cloned", *shared, from));
                            }
                            if (*shared == 0) {
                              const Status written = WriteAll(**target, 0, *content);
                              if (!written.ok()) return written;
                            }
                            return (*target)->Close();
                          }),
                  fmt::format("clone {} to {}", from, name));
  }

  // Some of its blocks come to lie elsewhere in it, too.
  Status CloneWithin(OpenFile& file, const std::string& name, std::string& content) {
    const size_t blocks = content.size() / kBlock;
    if (blocks == 0) return {};
    const size_t from = sim_.Below(blocks);
    const size_t count = 1 + sim_.Below(blocks - from);
    const size_t to = sim_.Below(blocks + 1);
    if (from < to + count && to < from + count) return {};
    if (to * kBlock > content.size()) return {};
    std::string cloned = content;
    cloned.resize(std::max(cloned.size(), (to + count) * kBlock));
    cloned.replace(to * kBlock, count * kBlock, content, from * kBlock, count * kBlock);
    files_[name].Possible(content);  // it is committed first, as it is
    bool shared = false;
    const Status status = Attempt(name, cloned, [&]() -> Status {
      const auto bytes = file.ShareBlocks(from * kBlock, count * kBlock, file, to * kBlock);
      if (!bytes.has_value()) return bytes.error();
      if (*bytes == 0) {
        const Status written =
            WriteAll(file, to * kBlock, cloned.substr(to * kBlock, count * kBlock));
        if (!written.ok()) return written;
        return file.Commit();
      }
      shared = true;
      return {};
    });
    if (status.ok()) content = cloned;
    if (shared) ++clones_;
    return status;
  }

  Status Edit(OpenFile& file, std::string& content) {
    if (sim_.Chance(0.3)) {
      const size_t size =
          sim_.Chance(0.5) ? sim_.Below(content.size() + 1) : content.size() + sim_.Below(300'000);
      content.resize(size, '\0');
      return file.Truncate(size);
    }
    const size_t offset = sim_.Chance(0.3) ? content.size() : sim_.Below(content.size() + 70'000);
    if (sim_.Chance(0.2)) {
      const size_t length = 1 + sim_.Below(600'000);
      const bool grows = sim_.Chance(0.3);
      if (grows) content.resize(std::max(content.size(), offset + length), '\0');
      const size_t there = std::min(length, content.size() - std::min(content.size(), offset));
      if (there > 0) content.replace(offset, there, there, '\0');
      return file.Zero(offset, length, grows ? OpenFile::Size::kGrows : OpenFile::Size::kStays);
    }
    const std::string part = NewContent().substr(0, 1 + sim_.Below(150'000));
    if (part.empty()) return {};
    if (content.size() < offset + part.size()) content.resize(offset + part.size(), '\0');
    content.replace(offset, part.size(), part);
    return WriteAll(file, offset, part);
  }

  // Overwrites a little of what is there.
  Status Touch(OpenFile& file, std::string& content) {
    if (content.empty()) return {};
    const size_t offset = sim_.Below(std::min<size_t>(content.size(), 300'000));
    const size_t size = std::min<size_t>(1 + sim_.Below(3000), content.size() - offset);
    for (size_t i = 0; i < size; ++i) content[offset + i] = static_cast<char>(sim_.Random());
    return Put(file, offset, AsBytes(content).subspan(offset, size));
  }

  void Move(Life& life, const std::string& name) {
    const InodeId from = HomeOf(name);
    const InodeId to = directories_[1 - homes_[name]];
    unsure_.insert(name);
    const Status status = life.fs->Rename(from, name, to, name);
    if (status.ok()) homes_[name] = 1 - homes_[name];
    if (status.ok() || status.code() == ENOENT) unsure_.erase(name);
    CheckAbsence(status, name);
  }

  void Remove(Life& life, const std::string& name) {
    const Expectation before = files_[name];
    const Status status =
        Attempt(name, std::nullopt, [&] { return life.fs->Unlink(HomeOf(name), name); });
    // Its requests may still be on their way to the drives.
    if (!status.ok() && status.code() != ENOENT) late_unlinks_.insert(name);
    if (status.code() != ENOENT) return RequireHonest(status, "unlink " + name);
    if (!before.Allows(std::nullopt)) Complain(name + " is gone before it was removed");
  }

  void CheckAbsence(const Status& status, const std::string& name) {
    if (status.code() != ENOENT) return RequireHonest(status, name);
    if (!files_[name].Allows(std::nullopt) && !unsure_.contains(name)) {
      Complain(fmt::format("{} is gone: {}", name, status.message()));
    }
  }

  // All of it in one call, so that it is as of one moment; which need not be that of the size,
  // since others may have committed between the opening and that.
  Result<std::string> ReadAll(OpenFile& file) {
    const Result<Attributes> attributes = file.Stat();
    if (!attributes.has_value()) return tl::unexpected(attributes.error());
    for (std::string content(attributes->size + 1, '?');; content.resize(2 * content.size())) {
      const Result<size_t> got =
          file.Read(0, {reinterpret_cast<std::byte*>(content.data()), content.size()});
      if (!got.has_value()) return tl::unexpected(got.error());
      if (*got < content.size()) return content.substr(0, *got);
    }
  }

  Result<std::string> ReadByName(Life& life, InodeId directory, const std::string& name) {
    const auto found = life.fs->Lookup(directory, name);
    if (!found.has_value()) return tl::unexpected(found.error());
    auto file = life.fs->Open(found->inode, FileSystem::Access::kRead);
    if (!file.has_value()) return tl::unexpected(file.error());
    return ReadAll(**file);
  }

  void CheckFile(Life& life, const std::string& name, bool calm) {
    const uint64_t changes = files_[name].changes;
    const int home = homes_[name];
    const Result<std::string> content = ReadByName(life, HomeOf(name), name);
    // Its owner changed or moved it meanwhile: what was allowed is not known any more.
    if (files_[name].changes != changes || homes_[name] != home) return;
    if (content.has_value()) {
      if (!files_[name].Allows(*content)) {
        Complain(fmt::format("{} has {} bytes that are none of the {} contents it may have", name,
                             content->size(), files_[name].contents.size()));
      }
    } else if (content.error().code() == ENOENT) {
      // A writer may be in the middle of what it has not concluded yet.
      if (calm) CheckAbsence(content.error(), name);
    } else if (calm) {
      Complain(fmt::format("{}: {}", name, content.error().message()));
    } else {
      RequireHonest(content.error(), "read " + name);
    }
  }

  std::string Allowed(const std::string& name) {
    std::string text = "it may have";
    for (const auto& content : files_[name].contents) {
      text += content ? fmt::format(" {} bytes;", content->size()) : " none;";
    }
    return text;
  }

  void Inspect() {
    std::unique_ptr<Life> life = Open();
    if (!life) return Complain("in the calm the cluster cannot be opened");
    // A rename that its client did not live to finish is finished by whoever meets it.
    for (const InodeId directory : directories_) {
      for (const std::string& name : unsure_) (void)ReadByName(*life, directory, name);
    }
    std::map<std::string, int> names;
    for (const InodeId directory : directories_) {
      const auto entries = life->fs->ReadDirectory(directory, "", 1000, /*with_attributes=*/true);
      if (!entries.has_value()) return Complain(std::string(entries.error().message()));
      for (const DirectoryEntry& entry : *entries) {
        ++names[entry.name];
        const auto content = ReadByName(*life, directory, entry.name);
        if (!content.has_value() && content.error().code() == ENOENT) {
          // This look alone has finished its rename: where it is now is counted below.
          --names[entry.name];
        } else if (!content.has_value()) {
          Complain(fmt::format("in the calm {}: {}", entry.name, content.error().message()));
        } else if (!files_[entry.name].Allows(*content)) {
          Complain(fmt::format("in the calm {} has {} bytes, a content that it cannot have: {}",
                               entry.name, content->size(), Allowed(entry.name)));
        }
      }
    }
    for (const auto& [name, file] : files_) {
      // A rename of which so few drives know that only reading an entry found and finished it may
      // have been seen in one directory before, and in the other one after that.
      const int count = names[name] == 1 ? 1 : CountNames(*life, name);
      if (count > 1) Complain(name + " has two names");
      if (count == 0 && !file.Allows(std::nullopt)) Complain(name + " has no name left");
      if (!unsure_.contains(name)) CheckFile(*life, name, /*calm=*/true);
    }
    InspectEverything(*life);
  }

  void InspectEverything(Life& life) {
    Checker checker(*life.cluster, {});
    const CheckReport& report = checker.Run();
    patches_ = report.patches;
    for (const Finding& finding : report.findings) {
      if (finding.severity != Severity::kError) continue;
      Complain(fmt::format("check: {} {}: {}", finding.problem, finding.where, finding.what));
    }
  }

  int CountNames(Life& life, const std::string& name) {
    return static_cast<int>(std::count_if(
        directories_.begin(), directories_.end(),
        [&](InodeId directory) { return life.fs->Lookup(directory, name).has_value(); }));
  }

  // Two drives may be ill at a time, the burned one included: what m = 2 promises to survive. Now
  // and then more are down at once than there are spares for: then a block is acknowledged with one
  // shard more than it needs, or not at all. Only one drive ever burns, so that is enough.
  void Weather() {
    int lost = 0;
    while (clients_done_ < kClients) {
      if (sim_.Chance(0.1)) {
        FillUp();
        sim_.Sleep(sim_.Between(seconds(1), seconds(10)));
      } else if (sim_.Chance(0.3)) {
        Outage();
        sim_.Sleep(sim_.Between(seconds(1), seconds(10)));
      } else {
        for (int sick = static_cast<int>(sim_.Below(3)) - lost; sick > 0; --sick)
          FallIll(AnyDrive());
        sim_.Sleep(sim_.Between(milliseconds(1), seconds(4)));
      }
      for (DriveId id = 1; id <= kDrives; ++id) machines_.drive(id).Set({});
      if (lost == 0 && sim_.Chance(0.1)) {
        machines_.Replace(AnyDrive());
        lost = 1;
      }
    }
    if (lost == 0) machines_.Replace(AnyDrive());
    sim_.Sleep(seconds(60));  // until what is on its way has arrived
  }

  void Outage() {
    std::set<DriveId> down;
    for (const uint64_t count = 3 + sim_.Below(2); down.size() < count;) down.insert(AnyDrive());
    for (const DriveId id : down) machines_.drive(id).Set({.down = true});
  }

  // Most of them become full, after some puts more.
  void FillUp() {
    const auto room = std::make_shared<std::atomic<int64_t>>(sim_.Below(100));
    for (DriveId id = 1; id <= kDrives; ++id) {
      if (!sim_.Chance(0.1)) machines_.drive(id).Set({.room = room});
    }
  }

  void FallIll(DriveId id) {
    DriveFaults faults;
    switch (sim_.Below(7)) {
      case 0: faults.down = true; break;
      case 1: faults.lose_request = 0.5; break;
      case 2: faults.lose_answer = 0.5; break;
      case 3: faults.flip_bit = 0.8; break;
      case 4: faults.duplicate_request = 0.5; break;
      case 5: faults.most_latency = seconds(1); break;
      case 6: faults.mix_up = 0.7; break;
    }
    machines_.drive(id).Set(faults);
  }

  DriveId AnyDrive() { return static_cast<DriveId>(1 + sim_.Below(kDrives)); }

  static Status StatusOf(const Result<Attributes>& result) {
    return result.has_value() ? Status() : result.error();
  }
  void Require(const Status& status, std::string_view what) {
    if (!status.ok()) Complain(fmt::format("{}: {}", what, status.message()));
  }
  void Complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
  }

  const uint64_t seed_;
  SimRuntime sim_;
  TestCluster machines_;
  const bool fences_;  // of the collector
  const bool careful_packer_;
  const bool mends_;          // not where a weakness is to be found that would be mended
  const bool clones_at_all_;  // nor where it is in what is written
  std::vector<InodeId> directories_;
  // Threads take turns, so none of this needs a lock.
  std::map<std::string, Expectation> files_;
  std::map<std::string, int> homes_;
  std::set<std::string> late_unlinks_;  // names that may go as long as their entry stays the same
  std::set<std::string> unsure_;        // being moved, or nobody knows whether they were
  int clients_done_ = 0;
  int acknowledged_ = 0;
  int crashes_ = 0;
  uint64_t collected_ = 0;
  uint64_t repaired_ = 0;
  uint64_t packed_ = 0;
  uint64_t repacked_ = 0;  // of these
  uint64_t patches_ = 0;   // that there are in the end
  uint64_t clones_ = 0;
  std::string complaint_;
};

class FileContentsSim : public testing::Test {
 protected:
  FileContentsSim() { SetLogLevel(LogLevel::kError); }
  ~FileContentsSim() override { SetLogLevel(LogLevel::kInfo); }
};

TEST_F(FileContentsSim, FilesSurviveTheStorm) {
  const Seeds seeds = SeedsFromEnvironment(40);
  int crashes = 0;
  int acknowledged = 0;
  uint64_t collected = 0;
  uint64_t repaired = 0;
  uint64_t packed = 0;
  uint64_t repacked = 0;
  uint64_t patches = 0;
  uint64_t clones = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Storm storm(seed, /*min_redundancy=*/1);
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: ./dev sim SEED=" << seed;
    crashes += storm.crashes();
    acknowledged += storm.acknowledged();
    collected += storm.collected();
    repaired += storm.repaired();
    packed += storm.packed();
    repacked += storm.repacked();
    patches += storm.patches();
    clones += storm.clones();
  }
  EXPECT_GT(acknowledged, 0) << "nothing was tested";
  if (seeds.end - seeds.first > 10) {
    EXPECT_GT(crashes, 0) << "no client ever died";
    EXPECT_GT(collected, 0u) << "nothing was ever collected";
    EXPECT_GT(repaired, 0u) << "nothing was ever repaired";
    EXPECT_GT(packed, (seeds.end - seeds.first) / 4) << "little was packed";
    // About one story in twenty does.
    if (seeds.end - seeds.first >= 200) {
      EXPECT_GT(repacked, 0u) << "nothing was ever packed anew";
    }
    EXPECT_GT(patches, (seeds.end - seeds.first) / 2) << "little was patched";
    EXPECT_GT(clones, seeds.end - seeds.first) << "little was cloned";
  }
}

TEST_F(FileContentsSim, OneSeedIsOneRun) {
  Storm one(7, 1);
  one.Run();
  Storm two(7, 1);
  two.Run();
  EXPECT_EQ(one.trace_hash(), two.trace_hash());
}

// A test of the test: stripes without redundancy, and the storm, in which a drive burns, must
// notice that contents are lost, and complain of nothing else before.
TEST_F(FileContentsSim, TheStormFindsFilesThatWereAcknowledgedWithoutRedundancy) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Storm storm(seed, /*min_redundancy=*/0);
    storm.Run();
    if (storm.complaint().empty()) continue;
    EXPECT_THAT(storm.complaint(), testing::HasSubstr("of 4 shards needed can be read"))
        << "seed " << seed;
    return;
  }
  FAIL() << "500 storms did not find it";
}

// And one in which the collector removes what seems unused without making sure that nobody is about
// to name it.
TEST_F(FileContentsSim, TheStormFindsACollectorWithoutFences) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Storm storm(seed, /*min_redundancy=*/1, /*fences=*/false);
    storm.Run();
    if (!storm.complaint().empty()) return;
  }
  FAIL() << "1000 storms did not find it";
}

// And one in which files that were changed meanwhile are packed as they were read.
TEST_F(FileContentsSim, TheStormFindsAPackerWithoutFences) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Storm storm(seed, /*min_redundancy=*/1, /*fences=*/true, /*careful_packer=*/false);
    storm.Run();
    if (!storm.complaint().empty()) return;
  }
  FAIL() << "200 storms did not find it";
}

}  // namespace
}  // namespace pinstripe
