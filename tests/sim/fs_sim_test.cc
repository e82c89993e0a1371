// Hosts work on one tree while drives misbehave and hosts crash in the middle of a request and come
// back.
//
// What must hold, whatever happens (docs/semantics.md):
//   - whoever reads a file reads one version of it, whole: never a mixture of two, never other
//     bytes;
//   - a version whose commit was acknowledged is there until a later one takes its place. A commit
//     that was not acknowledged happens or does not, at the latest before the next one that is;
//   - a file that is renamed from name to name has exactly one of them in the end, and its
//     contents;
//   - a name that was given to a file by a hard link, and acknowledged, stands for that file until
//     it is taken away, and a file counts its names: exactly if nobody died or was left in doubt
//     while he changed them, else at least as many as there are;
//   - in the calm after the storm every entry has its inode, no inode has more names than it
//     counts, every directory knows its parent and every symbolic link its target, and everything
//     can be read although one drive is gone for good.
// During the storm, anything may fail with EIO, or with ENOSPC where drives are full. The storm is
// larger than what registers and stripes promise to survive: beyond that they must be honest.
//
//   SEED=42 fs_sim_test        one seed, to look at
//   SEEDS=10000 fs_sim_test    as many as there is time for

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "fs/file_system.h"
#include "fs/names/spreader.h"
#include "tests/support/expect_ok.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"
#include "upkeep/checker.h"
#include "upkeep/collector.h"
#include "upkeep/host_care.h"

namespace pinstripe {
namespace {

constexpr int kHosts = 3;
constexpr int kFilesPerHost = 3;
constexpr int kStepsPerHost = 25;
constexpr size_t kHeader = 8 + 8 + 4;  // version, length, sum

// A version of a file, recognisable from its bytes alone.
std::string ContentsOf(uint64_t version, size_t size) {
  std::string body(std::max(size, kHeader) - kHeader, '\0');
  uint64_t x = version;
  for (char& c : body) {
    x = x * 6364136223846793005 + 1442695040888963407;
    c = static_cast<char>(x >> 56);
  }
  return Writer().U64(version).U64(body.size()).U32(Crc32c(AsBytes(body))).Raw(body).Take();
}

// 0: nothing was ever written. Null: no version of anything.
std::optional<uint64_t> VersionOf(const std::string& contents) {
  if (contents.empty()) return 0;
  Reader reader(contents);
  const uint64_t version = reader.U64();
  const uint64_t length = reader.U64();
  const uint32_t sum = reader.U32();
  const std::string_view body = reader.Rest();
  if (!reader.ok() || body.size() != length || Crc32c(AsBytes(body)) != sum) return std::nullopt;
  return version;
}

constexpr uint64_t kAbsent = UINT64_MAX;

// What a file that one host alone changes may be found as.
struct Expectation {
  uint64_t acknowledged = kAbsent;
  std::set<uint64_t> by_name;   // attempts that may change what the name stands for
  std::set<uint64_t> in_place;  // attempts to change the file that has the name
  std::vector<uint64_t> begun;  // all attempts, in order

  bool Allows(uint64_t version) const {
    return version == acknowledged || by_name.contains(version) || in_place.contains(version);
  }
  void Begin(std::set<uint64_t>& kind, uint64_t version) {
    kind.insert(version);
    begun.push_back(version);
  }
  // An acknowledged change ends all attempts before it, except that the last request of a crashed
  // host may give the name to its file much later, if the name's entry was not changed since.
  void Acknowledge(uint64_t version) {
    acknowledged = version;
    in_place.clear();
    by_name.erase(version);
    by_name.erase(0);
    if (version == kAbsent) by_name.clear();
  }
};

class Storm {
 public:
  // With `stage_lasts`, directories grow meanwhile, in stages that last so long.
  Storm(uint64_t seed, int min_redundancy, bool collects = false,
        std::optional<Duration> stage_lasts = {})
      : sim_(seed),
        machines_(sim_, {.drives = 4, .layout = {2, 2, 64 << 10}, .groups = 16}),
        collects_(collects),
        stage_lasts_(stage_lasts) {
    SetLogLevel(LogLevel::kError);
    machines_.config().min_redundancy = min_redundancy;
  }

  void Run() {
    Prepare();
    for (int host = 0; host < kHosts; ++host) {
      sim_.Spawn(fmt::format("host {}", host), [this, host] { LiveAndDie(host); });
    }
    sim_.Spawn("weather", [this] { Weather(); });
    if (collects_ && sim_.Chance(0.3)) sim_.Spawn("collector", [this] { CollectAllTheTime(); });
    if (stage_lasts_) sim_.Spawn("grower", [this] { GrowAllTheTime(); });
    sim_.Run();
    Inspect();
  }

  const std::string& complaint() const { return complaint_; }
  int acknowledged() const { return acknowledged_; }
  int touched() const { return touched_; }
  int made_later() const { return made_later_; }
  int exact_counts() const { return exact_counts_; }
  int spread() const { return spread_; }

 private:
  struct Traveller {
    InodeId inode = 0;
    std::set<std::string> places;  // where it may be
  };

  // A file whose names one host alone gives and takes; one of them, "keep", is never taken.
  struct Linked {
    InodeId inode = 0;
    enum class State { kAbsent, kPresent, kUnknown };
    std::map<std::string, State> names;
    bool exact = true;  // the outcome of everything is known
  };

  // Two that are only ever exchanged, so that each has one of the two names.
  struct Pair {
    std::string names[2];
    InodeId inodes[2] = {0, 0};             // the first had the first name at the start
    std::optional<bool> exchanged = false;  // null: nobody can tell
  };

  void Complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }

  // ---- Before

  void Prepare() {
    ASSERT_OK(machines_.Format());
    auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    ASSERT_OK(FileSystem::Format(**cluster, {}, 0755));
    auto fs = FileSystem::Open(**cluster, {});
    ASSERT_OK(fs);
    for (const char* name : {"p", "q"}) {
      directories_.push_back((*fs)->MakeDirectory(kRootInode, name, 0755, {})->inode);
    }
    for (int host = 0; host < kHosts; ++host) {
      const std::string name = fmt::format("t{}a", host);
      auto file = (*fs)->Create(directories_[0], name, {});
      ASSERT_OK((*file)->Write(0, AsBytes(ContentsOf(1000u + host, 5000))));
      travellers_[host] = {(*file)->inode(), {"/p/" + name}};
      ASSERT_OK((*file)->Close());
      const std::string directory = fmt::format("d{}a", host);
      const auto made = (*fs)->MakeDirectory(directories_[1], directory, 0755, {});
      moving_directories_[host] = {made->inode, {"/q/" + directory}};
      for (const char kind : {'f', 'd'}) {
        Pair& pair = pairs_[host].emplace_back();
        pair.names[0] = fmt::format("/p/e{}{}", host, kind);
        pair.names[1] = fmt::format("/q/e{}{}", host, kind);
        const auto kind_of_first = kind == 'f' ? FileKind::kRegular : FileKind::kDirectory;
        for (int i = 0; i < 2; ++i) {
          const std::string own = pair.names[i].substr(3);
          const auto both = i == 0 && kind_of_first == FileKind::kRegular
                                ? (*fs)->MakeNode(directories_[0], own, kind_of_first, 0644, {}, {})
                                : (*fs)->MakeDirectory(directories_[i], own, 0755, {});
          ASSERT_OK(both);
          pair.inodes[i] = both->inode;
        }
      }
      const std::string symlink = fmt::format("s{}a", host);
      const auto linked = (*fs)->MakeSymlink(directories_[0], symlink, TargetOf(host), {});
      symlinks_[host] = {linked->inode, {"/p/" + symlink}};
      auto keep = (*fs)->Create(directories_[0], fmt::format("h{}keep", host), {});
      ASSERT_OK((*keep)->Write(0, AsBytes(ContentsOf(2000u + host, 5000))));
      linked_[host].inode = (*keep)->inode();
      ASSERT_OK((*keep)->Close());
      for (const char letter : {'a', 'b', 'c'}) {
        for (const char directory : {'p', 'q'}) {
          linked_[host].names[fmt::format("/{}/h{}{}", directory, host, letter)] =
              Linked::State::kAbsent;
        }
      }
    }
  }

  // ---- A host's life

  void LiveAndDie(int host) {
    int steps = kStepsPerHost;
    while (steps > 0) {
      auto life = std::make_shared<ClientLife>();
      auto cluster = machines_.Open(life);
      if (!cluster.has_value()) {
        sim_.Sleep(std::chrono::milliseconds(200));
        continue;
      }
      FileSystem::Options options{.memory_bytes = sim_.Chance(0.3) ? 1u : 64u << 20,
                                  .caretaker = &MakeHostCare};
      if (sim_.Chance(0.7)) {  // block maps in pages as soon as there are two runs
        options.inline_map_bytes = 40;
        options.map_page_bytes = 100;
      }
      auto fs = FileSystem::Open(**cluster, options);
      if (!fs.has_value()) continue;
      if (sim_.Chance(0.8)) life->CrashAfter(sim_.Below(600));
      while (steps > 0 && !life->crashed()) {
        --steps;
        Step(**fs, host);
      }
    }
    ++hosts_done_;
  }

  void Step(FileSystem& fs, int host) {
    // A stage of growing takes minutes. What is done about when it ends is what tells.
    if (stage_lasts_ && sim_.Chance(0.2)) {
      const Time until = stage_began_ + *stage_lasts_ +
                         sim_.Between(-std::chrono::seconds(10), std::chrono::seconds(10));
      if (sim_.Chance(0.2)) {
        sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), *stage_lasts_));
      } else if (until > sim_.Now()) {
        sim_.Sleep(until - sim_.Now());
      }
    } else if (stage_lasts_) {
      sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), std::chrono::seconds(4)));
    }
    switch (sim_.Below(20)) {
      case 0:
      case 1:
      case 2: return WriteAnew(fs, OwnFile(host), true);
      case 3: return WriteAnew(fs, OwnFile(host), false);
      case 4: return MakeLater(fs, OwnFile(host));
      case 5: return Overwrite(fs, OwnFile(host));
      case 6: return Remove(fs, OwnFile(host));
      case 7: return Travel(fs, travellers_[host], fmt::format("t{}", host));
      case 8: return Travel(fs, moving_directories_[host], fmt::format("d{}", host));
      case 9: return Brawl(fs);
      case 10: return Travel(fs, symlinks_[host], fmt::format("s{}", host));
      case 11:
      case 12: return ChangeLinks(fs, linked_[host]);
      case 13:
      case 14: return Exchange(fs, pairs_[host][sim_.Below(2)]);
      case 16:
      case 17: return Touch(fs, OwnFile(host));
      case 15: return LookAt(fs, pairs_[static_cast<int>(sim_.Below(kHosts))][sim_.Below(2)]);
      default: return Look(fs, OwnFile(static_cast<int>(sim_.Below(kHosts))));
    }
  }

  std::string OwnFile(int host) { return fmt::format("f{}{}", host, sim_.Below(kFilesPerHost)); }

  size_t AnySize() {
    static constexpr size_t kSizes[] = {30, 4097, 60'000, 70'000, 140'000, 300'000};
    return kSizes[sim_.Below(std::size(kSizes))];
  }

  Status WriteInParts(OpenFile& file, const std::string& bytes) {
    const size_t part = 1 + sim_.Below(bytes.size());
    for (size_t at = 0; at < bytes.size(); at += part) {
      const Status status = file.Write(at, AsBytes(std::string_view(bytes).substr(at, part)));
      if (!status.ok()) return status;
    }
    return {};
  }

  Status Finish(OpenFile& file) { return sim_.Chance(0.3) ? file.Sync() : file.Close(); }

  void WriteAnew(FileSystem& fs, const std::string& name, bool publish) {
    const uint64_t version = ++last_version_;
    Expectation& expected = files_[name];
    expected.Begin(expected.by_name, version);
    if (!publish) expected.Begin(expected.by_name, 0);  // a new name appears with an empty file
    const auto file = fs.Create(kRootInode, name, {.truncate = true, .publish_at_commit = publish});
    if (!file.has_value()) return;
    Status status = WriteInParts(**file, ContentsOf(version, AnySize()));
    if (status.ok()) status = Finish(**file);
    if (!status.ok()) return;
    expected.Acknowledge(version);
    ++acknowledged_;
  }

  // It appears for others when it is closed, or after a second, and then it may be empty. Where
  // there is such a file it is overwritten. Its parts are not written one by one, as each of them
  // may be the last one that others see.
  void MakeLater(FileSystem& fs, const std::string& name) {
    const uint64_t version = ++last_version_;
    Expectation& expected = files_[name];
    expected.Begin(expected.by_name, version);
    expected.Begin(expected.by_name, 0);
    const auto file = fs.Create(kRootInode, name, {.truncate = true, .appears_later = true});
    if (!file.has_value()) return;
    if (sim_.Chance(0.2)) sim_.Sleep(std::chrono::milliseconds(1200));
    Status status = (*file)->Write(0, AsBytes(ContentsOf(version, AnySize())));
    if (sim_.Chance(0.2)) sim_.Sleep(std::chrono::milliseconds(1200));
    if (status.ok()) status = Finish(**file);
    if (!status.ok()) return;
    expected.Acknowledge(version);
    ++acknowledged_;
    ++made_later_;
  }

  // Every byte, in place, and the size: an attempt that failed before may turn out to have
  // happened, and have left a longer file.
  void Overwrite(FileSystem& fs, const std::string& name) {
    const auto attributes = fs.Lookup(kRootInode, name);
    if (!attributes.has_value()) return;
    const auto file = fs.Open(attributes->inode, FileSystem::Access::kWrite);
    if (!file.has_value()) return;
    const uint64_t version = ++last_version_;
    Expectation& expected = files_[name];
    expected.Begin(expected.in_place, version);
    const size_t size = attributes->size + sim_.Below(2) * 1000;
    const std::string bytes = ContentsOf(version, size);
    Status status = WriteInParts(**file, bytes);
    if (status.ok()) status = (*file)->Truncate(bytes.size());
    if (status.ok()) status = Finish(**file);
    if (!status.ok()) return;
    expected.Acknowledge(version);
    ++acknowledged_;
  }

  // A few bytes in place, so that a part of the file becomes a patch. What an attempt that failed
  // before may turn out to have done would be mixed with it: then every byte is written.
  void Touch(FileSystem& fs, const std::string& name) {
    Expectation& expected = files_[name];
    if (!expected.in_place.empty() || !expected.by_name.empty()) return Overwrite(fs, name);
    const auto attributes = fs.Lookup(kRootInode, name);
    if (!attributes.has_value()) return;
    const auto file = fs.Open(attributes->inode, FileSystem::Access::kWrite);
    if (!file.has_value()) return;
    std::string bytes(500'000, '?');
    const auto read = (*file)->Read(0, std::as_writable_bytes(std::span(bytes)));
    if (!read.has_value()) return;
    bytes.resize(*read);
    if (bytes.size() <= kHeader || VersionOf(bytes) != expected.acknowledged) return;
    const uint64_t version = ++last_version_;
    expected.Begin(expected.in_place, version);
    const size_t at = kHeader + sim_.Below(bytes.size() - kHeader);
    const size_t length = std::min<size_t>(bytes.size() - at, 1 + sim_.Below(2000));
    for (size_t i = at; i < at + length; ++i) bytes[i] = static_cast<char>(sim_.Random());
    const std::string_view body = std::string_view(bytes).substr(kHeader);
    bytes.replace(0, kHeader,
                  Writer().U64(version).U64(body.size()).U32(Crc32c(AsBytes(body))).Take());
    Status status = (*file)->Write(at, AsBytes(std::string_view(bytes).substr(at, length)));
    if (status.ok()) {
      status = (*file)->Write(0, AsBytes(std::string_view(bytes).substr(0, kHeader)));
    }
    if (status.ok()) status = Finish(**file);
    if (!status.ok()) return;
    expected.Acknowledge(version);
    ++acknowledged_;
    ++touched_;
  }

  void Remove(FileSystem& fs, const std::string& name) {
    Expectation& expected = files_[name];
    expected.Begin(expected.by_name, kAbsent);
    if (fs.Unlink(kRootInode, name).ok()) expected.Acknowledge(kAbsent);
  }

  void Look(FileSystem& fs, const std::string& name) {
    const Expectation before = files_[name];
    const auto found = Read(fs, kRootInode, name);
    if (!found || before.Allows(*found)) return;
    const std::vector<uint64_t>& begun = files_[name].begun;
    const auto since = begun.begin() + static_cast<ptrdiff_t>(before.begun.size());
    if (std::find(since, begun.end(), *found) != begun.end()) return;
    Complain(fmt::format("{} reads as version {}; acknowledged is {}", name, *found,
                         before.acknowledged));
  }

  // Null: it cannot be read now.
  std::optional<uint64_t> Read(FileSystem& fs, InodeId directory, const std::string& name) {
    const auto attributes = fs.Lookup(directory, name);
    if (!attributes.has_value()) {
      if (attributes.error().code() == ENOENT) return kAbsent;
      return std::nullopt;
    }
    const auto file = fs.Open(attributes->inode, FileSystem::Access::kRead);
    if (!file.has_value()) return std::nullopt;
    std::string bytes(500'000, '?');
    const auto read = (*file)->Read(0, std::as_writable_bytes(std::span(bytes)));
    if (!read.has_value()) return std::nullopt;
    bytes.resize(*read);
    const auto version = VersionOf(bytes);
    if (!version) {
      Complain(fmt::format("{} has {} bytes that are no version of it", name, bytes.size()));
    }
    return version;
  }

  // From the name it has to another one, in this or the other directory.
  void Travel(FileSystem& fs, Traveller& traveller, const std::string& stem) {
    const std::string to = fmt::format("/{}/{}{}", "pq"[sim_.Below(2)], stem, "abc"[sim_.Below(3)]);
    for (const std::string& from : std::set<std::string>(traveller.places)) {
      if (traveller.places.size() > 1) {  // an earlier move may have happened
        const auto found = fs.Lookup(DirectoryOf(from), from.substr(3));
        if (!found.has_value()) continue;
      }
      const bool certain = traveller.places.size() == 1;
      traveller.places.insert(to);
      const Status status =
          fs.Rename(DirectoryOf(from), from.substr(3), DirectoryOf(to), to.substr(3));
      // What changes nothing settles nothing: an earlier move may still come about.
      if (status.ok() && to != from) traveller.places = {to};
      if (certain && status.code() == ENOENT) {
        Complain(fmt::format("{} is lost: {}", from, status.message()));
      }
      return;
    }
  }

  void Exchange(FileSystem& fs, Pair& pair) {
    const bool first = sim_.Chance(0.5);
    const std::string& one = pair.names[first ? 0 : 1];
    const std::string& other = pair.names[first ? 1 : 0];
    const std::optional<bool> before = std::exchange(pair.exchanged, std::nullopt);
    const Status status =
        fs.Exchange(DirectoryOf(one), one.substr(3), DirectoryOf(other), other.substr(3));
    if (status.ok()) {
      if (before) pair.exchanged = !*before;
      ++acknowledged_;
    } else if (status.code() == ENOSPC) {
      pair.exchanged = before;  // nothing has happened
    } else if (status.code() != EIO) {
      Complain(fmt::format("{} and {}: {}", one, other, status.message()));
    }
  }

  void LookAt(FileSystem& fs, const Pair& pair) {
    for (const std::string& name : pair.names) {
      const auto found = fs.Lookup(DirectoryOf(name), name.substr(3));
      if (found.has_value() && found->inode != pair.inodes[0] && found->inode != pair.inodes[1]) {
        Complain(name + " stands for something else");
      } else if (!found.has_value() && found.error().code() == ENOENT) {
        Complain(name + " is lost: " + std::string(found.error().message()));
      }
    }
  }

  static std::string TargetOf(int host) { return fmt::format("../where/{}", host); }

  // What is done while drives are ill may leave the count too high: a name that was removed is
  // gone, whatever becomes of the rest.
  void ChangeLinks(FileSystem& fs, Linked& linked) {
    for (int i = 0; i < 6; ++i) {
      const int changes_before = weather_changes_;
      const bool was_calm = is_calm_;
      ChangeOneLink(fs, linked);
      if (!was_calm || weather_changes_ != changes_before) linked.exact = false;
    }
  }

  // Gives the file another name, takes one away, or renames one of them onto another.
  void ChangeOneLink(FileSystem& fs, Linked& linked) {
    using State = Linked::State;
    const auto any = [&] {
      return std::next(linked.names.begin(),
                       static_cast<ptrdiff_t>(sim_.Below(linked.names.size())));
    };
    auto& [path, state] = *any();
    const State before = state;
    state = State::kUnknown;
    const InodeId directory = DirectoryOf(path);
    const std::string name = path.substr(3);
    if (sim_.Chance(0.3)) {
      auto& [to, to_state] = *any();
      const State to_before = to == path ? before : to_state;
      to_state = State::kUnknown;
      const Status renamed = fs.Rename(directory, name, DirectoryOf(to), to.substr(3));
      if (renamed.ok()) {
        // Between two names of the file, or a name and itself, a rename does nothing.
        if (before == State::kAbsent) Complain(path + " was renamed and is not there");
        const bool does_nothing = to == path || to_before == State::kPresent;
        // And what changes nothing settles nothing: what was uncertain may still come about.
        if (does_nothing) state = before;
        if (!does_nothing && to_before == State::kAbsent) state = State::kAbsent;
        if (to != path && to_before != State::kUnknown) to_state = State::kPresent;
      } else if (renamed.code() == ENOENT && before == State::kAbsent) {
        state = before;
        if (to != path) to_state = to_before;
      } else {
        linked.exact = false;
      }
      if (renamed.code() == ENOENT && before == State::kPresent) {
        Complain(fmt::format("{} is lost: {}", path, renamed.message()));
      }
      return;
    }
    const bool adds = before != State::kPresent ? sim_.Chance(0.8) : sim_.Chance(0.2);
    const Status changed =
        adds ? StatusOf(fs.Link(linked.inode, directory, name)) : fs.Unlink(directory, name);
    const int refused = adds ? EEXIST : ENOENT;
    const State before_refusal = adds ? State::kPresent : State::kAbsent;
    if (changed.ok()) {
      state = adds ? State::kPresent : State::kAbsent;
      ++acknowledged_;
    } else if (changed.code() == refused && before == before_refusal) {
      state = before;
    } else if (changed.code() == refused && before != State::kUnknown) {
      Complain(fmt::format("{}: {}", path, changed.message()));
    } else if (adds && changed.code() == ENOENT) {
      Complain(fmt::format("the file of {} is lost: {}", path, changed.message()));
    } else {
      linked.exact = false;
    }
  }

  InodeId DirectoryOf(const std::string& path) { return directories_[path[1] == 'p' ? 0 : 1]; }

  // Everybody does everything to the same few names.
  void Brawl(FileSystem& fs) {
    const auto directory = [&] { return directories_[sim_.Below(2)]; };
    const auto name = [&] { return fmt::format("x{}", sim_.Below(3)); };
    for (int i = 0; i < 4; ++i) {
      switch (sim_.Below(8)) {
        case 7: (void)fs.Exchange(directory(), name(), directory(), name()); break;
        case 0: {
          const auto file = fs.Create(directory(), name(), {.appears_later = sim_.Chance(0.5)});
          if (file.has_value() && sim_.Chance(0.5)) (void)(*file)->Close();
          break;
        }
        case 5: (void)fs.MakeSymlink(directory(), name(), "anywhere", {}); break;
        case 6: {
          const auto found = fs.Lookup(directory(), name());
          if (found.has_value()) (void)fs.Link(found->inode, directory(), name());
          break;
        }
        case 1: (void)fs.MakeDirectory(directory(), name(), 0755, {}); break;
        case 2: (void)fs.Unlink(directory(), name()); break;
        case 3: (void)fs.RemoveDirectory(directory(), name()); break;
        case 4: (void)fs.Rename(directory(), name(), directory(), name()); break;
      }
    }
  }

  // ---- The drives

  // What dead hosts left goes at once, and so does what live ones did not commit: these are told so
  // when they try.
  // By this collector's clock everything is old.
  void CollectAllTheTime() {
    while (hosts_done_ < kHosts) {
      auto life = std::make_shared<ClientLife>();
      const auto cluster = machines_.Open(life);
      if (sim_.Chance(0.5)) life->CrashAfter(sim_.Below(3000));
      while (cluster.has_value() && hosts_done_ < kHosts && !life->crashed()) {
        // A new epoch for every name, sometimes, so that all that was removed is erased.
        Collector(**cluster, {.older_than = -std::chrono::hours(1),
                              .renew_epoch_for = sim_.Chance(0.3) ? 1u : 1000u,
                              .least_age_of_names = std::chrono::seconds(40)})
            .Run();
        sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), std::chrono::milliseconds(200)));
      }
      sim_.Sleep(std::chrono::milliseconds(200));
    }
  }

  // Directories grow, and whoever spreads them dies in the middle.
  void GrowAllTheTime() {
    while (hosts_done_ < kHosts) {
      auto life = std::make_shared<ClientLife>();
      const auto cluster = machines_.Open(life);
      if (sim_.Chance(0.5)) life->CrashAfter(sim_.Below(3000));
      while (cluster.has_value() && hosts_done_ < kHosts && !life->crashed()) {
        Records records(**cluster);
        Names names(records, [](InodeId, const Inode&, uint64_t) {});
        Spreader::Options options;
        options.stage_lasts = *stage_lasts_;
        options.names_in_page = 1 + sim_.Below(20);
        options.go_on = [&] { return hosts_done_ < kHosts && !life->crashed(); };
        bool waits = false;
        options.progress = [&](std::string_view, uint64_t) { waits = false; };
        options.waits = [&] {
          if (!std::exchange(waits, true)) stage_began_ = sim_.Now();
        };
        const InodeId directory =
            sim_.Chance(0.5) ? kRootInode : directories_[sim_.Below(directories_.size())];
        const auto report =
            Spreader(**cluster, records, names, options).Run(directory, Spreader::Begin::kYes);
        if (report.has_value() && report->ended) ++spread_;
        sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), std::chrono::milliseconds(200)));
      }
      sim_.Sleep(std::chrono::milliseconds(200));
    }
  }

  // All of them become full, after some puts more.
  void FillUp(std::set<DriveId>& ill) {
    const auto room = std::make_shared<std::atomic<int64_t>>(sim_.Below(60));
    for (DriveId id = 1; id <= machines_.size(); ++id) {
      if (sim_.Chance(0.1)) continue;
      machines_.drive(id).Set({.room = room});
      ill.insert(id);
    }
  }

  void Weather() {
    while (hosts_done_ < kHosts) {
      std::set<DriveId> ill;
      const bool two_away = sim_.Chance(0.4);
      is_calm_ = false;
      ++weather_changes_;
      if (sim_.Chance(0.1)) FillUp(ill);
      for (uint64_t n = two_away ? 2 : 1 + sim_.Below(2); n > 0; --n) {
        const auto id = static_cast<DriveId>(1 + sim_.Below(machines_.size()));
        DriveFaults faults;
        switch (two_away ? 0 : sim_.Below(6)) {
          case 0: faults.down = true; break;
          case 1: faults.lose_request = 0.3; break;
          case 2: faults.lose_answer = 0.3; break;
          case 3: faults.duplicate_request = 0.3; break;
          case 4: faults.flip_bit = 0.5; break;
          case 5: faults.mix_up = 0.5; break;
        }
        machines_.drive(id).Set(faults);
        ill.insert(id);
      }
      sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), std::chrono::seconds(1)));
      for (const DriveId id : ill) machines_.drive(id).Set({});
      is_calm_ = true;
      sim_.Sleep(sim_.Between(std::chrono::milliseconds(1), std::chrono::milliseconds(300)));
    }
  }

  // ---- After

  void Inspect() {
    sim_.Sleep(std::chrono::seconds(60));  // the last late requests arrive
    machines_.SetDown(static_cast<DriveId>(1 + sim_.Below(machines_.size())), true);
    auto cluster = machines_.Open();
    ASSERT_OK(cluster);
    auto fs = FileSystem::Open(**cluster, {});
    ASSERT_OK(fs);
    // A change that only one replica knows of may be found, and then takes place, at any look.
    for (int look = 0; look < 5; ++look) FinishWhatWasBegun(**fs, kRootInode);
    InspectTree(**fs, kRootInode);
    for (const auto& [name, expected] : files_) {
      const auto found = Read(**fs, kRootInode, name);
      if (!found) {
        Complain(fmt::format("{} cannot be read in the calm", name));
      } else if (!expected.Allows(*found)) {
        Complain(fmt::format("{} is version {} in the end; acknowledged is {}", name, *found,
                             expected.acknowledged));
      }
    }
    for (const auto& [host, traveller] : travellers_) InspectTraveller(traveller);
    for (const auto& [host, traveller] : moving_directories_) InspectTraveller(traveller);
    Checker checker(**cluster, {});
    for (const Finding& finding : checker.Run().findings) {
      if (finding.severity != Severity::kError) continue;
      Complain(fmt::format("check: {} {}: {}", finding.problem, finding.where, finding.what));
    }
    for (const auto& [host, traveller] : symlinks_) {
      InspectTraveller(traveller);
      const auto target = (*fs)->ReadSymlink(traveller.inode);
      if (!target.has_value() || *target != TargetOf(host)) {
        Complain(fmt::format("the link s{} has another target", host));
      }
    }
    for (const auto& [host, linked] : linked_) InspectLinked(**fs, host, linked);
    for (const auto& [host, pairs] : pairs_) {
      for (const Pair& pair : pairs) InspectPair(pair);
    }
  }

  void InspectPair(const Pair& pair) {
    for (int i = 0; i < 2; ++i) {
      const auto place = places_.find(pair.inodes[i]);
      if (place == places_.end() || places_.count(pair.inodes[i]) != 1) {
        Complain(fmt::format("one of {} and {} has {} names in the end", pair.names[0],
                             pair.names[1], places_.count(pair.inodes[i])));
        return;
      }
      const bool at_home = place->second == pair.names[i];
      if ((!at_home && place->second != pair.names[1 - i]) ||
          (pair.exchanged && *pair.exchanged == at_home)) {
        Complain(fmt::format("{} is in the end at {}", pair.names[i], place->second));
      }
    }
  }

  void InspectLinked(FileSystem& fs, int host, const Linked& linked) {
    if (Read(fs, directories_[0], fmt::format("h{}keep", host)) != 2000u + host) {
      Complain(fmt::format("h{}keep is not what it was", host));
    }
    const auto [first, end] = places_.equal_range(linked.inode);
    for (const auto& [name, state] : linked.names) {
      const bool there = std::any_of(
          first, end, [&, wanted = name](const auto& place) { return place.second == wanted; });
      if (state == Linked::State::kPresent && !there) Complain(name + " is gone in the end");
      if (state == Linked::State::kAbsent && there) Complain(name + " is there in the end");
    }
    const auto found = fs.GetAttributes(linked.inode);
    const auto names = static_cast<uint32_t>(std::distance(first, end));
    if (!found.has_value()) return Complain(std::string(found.error().message()));
    if (linked.exact && found->links != names) {
      Complain(fmt::format("h{}keep counts {} names and has {}", host, found->links, names));
    }
    if (linked.exact && names > 1) ++exact_counts_;
  }

  void InspectTraveller(const Traveller& traveller) {
    const auto place = places_.find(traveller.inode);
    if (place == places_.end()) {
      Complain(fmt::format("{} has no name in the end", *traveller.places.begin()));
    } else if (places_.count(traveller.inode) > 1) {
      Complain(fmt::format("{} has another name in the end", place->second));
    } else if (!traveller.places.contains(place->second)) {
      Complain(fmt::format("{} is in the end at {}", *traveller.places.begin(), place->second));
    }
  }

  // Whoever looks an inode up finishes the rename that died on the way, and takes away the entry of
  // a directory that was removed.
  void FinishWhatWasBegun(FileSystem& fs, InodeId directory) {
    const auto entries = fs.ReadDirectory(directory, "", 1000, false);
    if (!entries.has_value()) return Complain(std::string(entries.error().message()));
    for (const DirectoryEntry& entry : *entries) {
      const auto found = fs.Lookup(directory, entry.name);
      if (found.has_value() && found->kind == FileKind::kDirectory)
        FinishWhatWasBegun(fs, found->inode);
    }
  }

  // With its inode: without attributes, a name may be listed whose maker died before it was one.
  bool IsListed(FileSystem& fs, InodeId directory, const std::string& name) {
    const auto listed = fs.ReadDirectory(directory, "", 1000, /*with_attributes=*/true);
    return !listed.has_value() ||
           std::any_of(listed->begin(), listed->end(),
                       [&](const auto& entry) { return entry.name == name; });
  }

  void InspectTree(FileSystem& fs, InodeId directory, const std::string& path = "") {
    const auto listed = fs.ReadDirectory(directory, "", 1000, false);
    const auto entries = fs.ReadDirectory(directory, "", 1000, true);
    if (!listed.has_value()) return Complain(std::string(listed.error().message()));
    if (!entries.has_value()) return Complain(std::string(entries.error().message()));
    for (const DirectoryEntry& entry : *listed) {
      // A rename of unknown outcome may have reached so few drives that only this look finds and
      // finishes it.
      const auto found = fs.Lookup(directory, entry.name);
      if (!found.has_value() && IsListed(fs, directory, entry.name)) {
        Complain(
            fmt::format("{}/{} stands for nothing: {}", path, entry.name, found.error().message()));
      }
    }
    for (const DirectoryEntry& entry : *entries) {
      const std::string name = path + "/" + entry.name;
      if (!entry.attributes) Complain(name + " has no attributes");
      places_.emplace(entry.inode, name);
      if (entry.attributes && entry.attributes->links < places_.count(entry.inode)) {
        Complain(fmt::format("{} has {} names and counts {}", name, places_.count(entry.inode),
                             entry.attributes->links));
      }
      if (entry.kind == FileKind::kSymlink) {
        if (!fs.ReadSymlink(entry.inode).has_value()) Complain(name + " leads nowhere");
        continue;
      }
      if (entry.kind == FileKind::kDirectory) {
        if (fs.ParentOf(entry.inode).value_or(0) != directory) {
          Complain(name + " has another parent");
        }
        InspectTree(fs, entry.inode, name);
      } else if (!Read(fs, directory, entry.name)) {
        Complain(name + " cannot be read");
      }
    }
  }

  SimRuntime sim_;
  TestCluster machines_;
  const bool collects_;
  const std::optional<Duration> stage_lasts_;
  std::vector<InodeId> directories_;  // p, q
  std::map<std::string, Expectation> files_;
  std::map<int, Traveller> travellers_;
  std::map<int, Traveller> moving_directories_;
  std::map<int, Traveller> symlinks_;
  std::map<int, Linked> linked_;
  std::map<int, std::vector<Pair>> pairs_;
  std::multimap<InodeId, std::string> places_;
  uint64_t last_version_ = 0;
  bool is_calm_ = true;      // no drive is ill
  int weather_changes_ = 0;  // how often some became ill
  int hosts_done_ = 0;
  int acknowledged_ = 0;
  int touched_ = 0;
  int made_later_ = 0;
  int exact_counts_ = 0;
  Time stage_began_{};  // of the growth of a directory, about
  int spread_ = 0;      // how often a directory was found to be, wholly
  std::string complaint_;
};

TEST(FsSim, WhatWasCommittedSurvivesTheStorm) {
  const Seeds seeds = SeedsFromEnvironment(100);
  int exact_counts = 0;
  int touched = 0;
  int made_later = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Storm storm(seed, 1, /*collects=*/true);
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with SEED=" << seed;
    ASSERT_GT(storm.acknowledged(), 0) << "seed " << seed << " tested nothing";
    exact_counts += storm.exact_counts();
    touched += storm.touched();
    made_later += storm.made_later();
  }
  if (seeds.end - seeds.first >= 100) {
    EXPECT_GT(touched, 100) << "little was overwritten";
    EXPECT_GT(made_later, 100) << "few files were made that appear later";
    EXPECT_GT(exact_counts, 0) << "in all files of several names somebody was left in doubt";
  }
}

TEST(FsSim, NothingIsMissedInDirectoriesThatGrow) {
  const Seeds seeds = SeedsFromEnvironment(60);
  int spread = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    Storm storm(seed, 1, /*collects=*/true, kStageLasts);
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with SEED=" << seed;
    spread += storm.spread();
  }
  if (seeds.end - seeds.first >= 50) {
    EXPECT_GT(spread, 10);
  }
}

// A test of the test: where a stage ends before everybody has heard of it, names are lost.
TEST(FsSim, TheStormFindsDirectoriesThatGrowTooSoon) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 400 && found == 0; ++seed) {
    Storm storm(seed, 1, /*collects=*/false, std::chrono::seconds(1));
    storm.Run();
    if (!storm.complaint().empty()) ++found;
  }
  EXPECT_GT(found, 0);
}

// A test of the test: acknowledge stripes without redundancy, and the storm must notice.
TEST(FsSim, TheStormFindsAcknowledgementsWithoutRedundancy) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 400 && found == 0; ++seed) {
    Storm storm(seed, 0);
    storm.Run();
    if (storm.complaint().find("cannot be read") != std::string::npos) ++found;
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace pinstripe
