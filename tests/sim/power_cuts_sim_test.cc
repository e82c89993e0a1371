// The power of all machines fails at some step of an operation on names, and comes back. Each drive
// has forgotten what it did since it was last synced, or the end of that, or nothing, each in its
// own way.
//
// What must hold then, for whoever opens the cluster next (docs/semantics.md):
//   - the operation has happened or it has not: the names, what they stand for and what is in that
//     are as before, or as after. If it was answered, and is one that is safe when it is answered,
//     they are as after;
//   - what was synced before is there;
//   - a file counts its names, or more; a directory has one, and knows its parent;
//   - whichever name is removed, all others show what they did.
//
// All steps of all operations with all drives that keep everything or nothing; and as many more as
// there is time for, with drives that keep a part:
//
//   SEED=42 power_cuts_sim_test
//   SEEDS=10000 power_cuts_sim_test

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map/features.h"
#include "cluster/membership/epoch_change.h"
#include "fs/file_system.h"
#include "fs/names/spreader.h"
#include "tests/support/expect_ok.h"
#include "tests/support/sanitized.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"
#include "upkeep/checker.h"
#include "upkeep/host_care.h"
#include "upkeep/packer.h"
#include "upkeep/tree_mender.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

constexpr size_t kDrives = 5;

// Path -> "dir", or what a file holds.
using Tree = std::map<std::string, std::string>;

// How an operation is told of in a tree of strings, and done.
struct Operation {
  const char* name;
  Tree before;
  std::vector<Tree> after;  // of one, or in turn: each may be what is left
  bool is_safe = false;     // once it was answered
  std::vector<std::pair<std::string, std::string>> links;  // path -> another name of it, before
  std::function<Status(FileSystem&)> run;
  std::function<Status(Cluster&, FileSystem&)> run_with_cluster = {};  // instead
};

struct Where {
  InodeId directory = 0;
  std::string name;
};

Result<Where> Find(FileSystem& fs, const std::string& path) {
  const auto place = TRY(fs.ResolveParent(path));
  return Where{place.directory, place.name};
}

Status Rename(FileSystem& fs, const std::string& from, const std::string& to) {
  const Where source = TRY(Find(fs, from));
  const Where target = TRY(Find(fs, to));
  return fs.Rename(source.directory, source.name, target.directory, target.name, false);
}
Status Exchange(FileSystem& fs, const std::string& one, const std::string& other) {
  const Where first = TRY(Find(fs, one));
  const Where second = TRY(Find(fs, other));
  return fs.Exchange(first.directory, first.name, second.directory, second.name);
}
Status Link(FileSystem& fs, const std::string& from, const std::string& to) {
  const auto found = fs.Resolve(from);
  if (!found.has_value()) return found.error();
  const Where target = TRY(Find(fs, to));
  return StatusOf(fs.Link(found->inode, target.directory, target.name));
}
Status Unlink(FileSystem& fs, const std::string& path) {
  const Where where = TRY(Find(fs, path));
  return fs.Unlink(where.directory, where.name);
}
Status MakeDirectory(FileSystem& fs, const std::string& path) {
  const Where where = TRY(Find(fs, path));
  return StatusOf(fs.MakeDirectory(where.directory, where.name, 0755, {}));
}
Status RemoveDirectory(FileSystem& fs, const std::string& path) {
  const Where where = TRY(Find(fs, path));
  return fs.RemoveDirectory(where.directory, where.name);
}
Status Write(FileSystem& fs, const std::string& path, const std::string& contents, bool upload) {
  const Where where = TRY(Find(fs, path));
  auto file =
      fs.Create(where.directory, where.name, {.truncate = true, .publish_at_commit = upload});
  if (!file.has_value()) return file.error();
  const Status written = (*file)->Write(0, AsBytes(contents));
  return written.ok() ? (*file)->Close() : written;
}

// Calls `meanwhile` before it is closed.
Status WriteLater(FileSystem& fs, const std::string& path, const std::string& contents,
                  const std::function<Status()>& meanwhile) {
  const Where where = TRY(Find(fs, path));
  auto file = fs.Create(where.directory, where.name, {.appears_later = true});
  if (!file.has_value()) return file.error();
  TRY((*file)->Write(0, AsBytes(contents)));
  TRY(meanwhile());
  return (*file)->Close();
}

std::string Large(char letter) { return std::string(200'000, letter); }

Status Both(Status first, const std::function<Status()>& second) {
  return first.ok() ? second() : first;
}

Status Pack(Cluster& cluster) {
  Packer packer(cluster, {.older_than = -1h, .least_bytes = 1, .jobs = 2});
  TRY(packer.Run(kRootInode));
  packer.WaitUntilFree();
  return {};
}

// With everything that there is, and calling `meanwhile` before the first name is moved and after
// each stage.
Status Spread(Cluster& cluster, FileSystem& fs, const std::string& path,
              const std::function<Status(int)>& meanwhile) {
  const auto directory = TRY(fs.Resolve(path)).inode;
  Records records(cluster);
  Names names(records, [](InodeId, const Inode&, uint64_t) {});
  int stages = 0;
  std::optional<DirectoryParts> parts;
  Status status;
  Spreader::Options options;
  options.names_in_page = 1;
  options.go_on = [&] {
    const auto now = records.FindInode(directory);
    if (!now.has_value() || !*now) return false;
    if (parts == (*now)->inode.parts) return true;
    parts = (*now)->inode.parts;
    status = meanwhile(stages++);
    return status.ok();
  };
  TRY(Spreader(cluster, records, names, options).Run(directory, Spreader::Begin::kYes));
  return status;
}

// Directories are "/p" and "/q", in groups of their own.
std::vector<Operation> Operations() {
  const Tree dirs = {{"/p", "dir"}, {"/q", "dir"}};
  const auto with = [&](Tree more) {
    more.insert(dirs.begin(), dirs.end());
    return more;
  };
  std::vector<Operation> all;
  const auto add = [&](Operation operation) { all.push_back(std::move(operation)); };

  add({.name = "create",
       .before = dirs,
       .after = {with({{"/p/a", ""}}), with({{"/p/a", "x"}})},
       .run = [](FileSystem& fs) { return Write(fs, "/p/a", "x", false); }});
  add({.name = "upload",
       .before = dirs,
       .after = {with({{"/p/a", "x"}})},
       .run = [](FileSystem& fs) { return Write(fs, "/p/a", "x", true); }});
  add({.name = "create later",
       .before = dirs,
       .after = {with({{"/p/a", "x"}})},
       .run = [](FileSystem& fs) { return WriteLater(fs, "/p/a", "x", [] { return Status(); }); }});
  add({.name = "create later and rename",
       .before = with({{"/p/a", "old"}}),
       .after = {with({{"/p/a", "old"}, {"/p/b", "new"}}), with({{"/p/a", "new"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) {
         return WriteLater(fs, "/p/b", "new", [&] { return Rename(fs, "/p/b", "/p/a"); });
       }});
  add({.name = "upload over a file",
       .before = with({{"/p/a", "old"}}),
       .after = {with({{"/p/a", "new"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Write(fs, "/p/a", "new", true); }});
  add({.name = "upload of blocks over blocks",
       .before = with({{"/p/a", Large('o')}}),
       .after = {with({{"/p/a", Large('n')}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Write(fs, "/p/a", Large('n'), true); }});
  add({.name = "mkdir",
       .before = dirs,
       .after = {with({{"/p/d", "dir"}})},
       .run = [](FileSystem& fs) { return MakeDirectory(fs, "/p/d"); }});
  add({.name = "mkdir and create in it",
       .before = dirs,
       .after = {with({{"/p/d", "dir"}}), with({{"/p/d", "dir"}, {"/p/d/a", ""}}),
                 with({{"/p/d", "dir"}, {"/p/d/a", "x"}})},
       .run = [](FileSystem& fs) {
         return Both(MakeDirectory(fs, "/p/d"), [&] { return Write(fs, "/p/d/a", "x", false); });
       }});
  add({.name = "rmdir",
       .before = with({{"/p/d", "dir"}}),
       .after = {dirs},
       .run = [](FileSystem& fs) { return RemoveDirectory(fs, "/p/d"); }});
  add({.name = "unlink and rmdir",
       .before = with({{"/p/d", "dir"}, {"/p/d/a", "x"}}),
       .after = {with({{"/p/d", "dir"}}), dirs},
       .run = [](FileSystem& fs) {
         return Both(Unlink(fs, "/p/d/a"), [&] { return RemoveDirectory(fs, "/p/d"); });
       }});
  add({.name = "link",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/p/a", "x"}, {"/q/b", "x"}})},
       .run = [](FileSystem& fs) { return Link(fs, "/p/a", "/q/b"); }});
  add({.name = "unlink",
       .before = with({{"/p/a", "x"}}),
       .after = {dirs},
       .run = [](FileSystem& fs) { return Unlink(fs, "/p/a"); }});
  add({.name = "unlink of one of two",
       .before = with({{"/p/a", "x"}, {"/q/b", "x"}}),
       .after = {with({{"/q/b", "x"}})},
       .links = {{"/p/a", "/q/b"}},
       .run = [](FileSystem& fs) { return Unlink(fs, "/p/a"); }});
  add({.name = "unlink of both",
       .before = with({{"/p/a", "x"}, {"/q/b", "x"}}),
       .after = {with({{"/q/b", "x"}}), with({{"/p/a", "x"}}), dirs},
       .links = {{"/p/a", "/q/b"}},
       .run = [](FileSystem& fs) {
         return Both(Unlink(fs, "/p/a"), [&] { return Unlink(fs, "/q/b"); });
       }});
  add({.name = "link and unlink of the old name",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/p/a", "x"}, {"/q/b", "x"}}), with({{"/q/b", "x"}})},
       .run = [](FileSystem& fs) {
         return Both(Link(fs, "/p/a", "/q/b"), [&] { return Unlink(fs, "/p/a"); });
       }});
  add({.name = "unlink and create",
       .before = with({{"/p/a", "old"}}),
       .after = {dirs, with({{"/p/a", ""}}), with({{"/p/a", "new"}})},
       .run = [](FileSystem& fs) {
         return Both(Unlink(fs, "/p/a"), [&] { return Write(fs, "/p/a", "new", false); });
       }});

  add({.name = "rename",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/p/b", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/a", "/p/b"); }});
  add({.name = "rename over a file",
       .before = with({{"/p/a", "new"}, {"/p/b", "old"}}),
       .after = {with({{"/p/b", "new"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/a", "/p/b"); }});
  add({.name = "rename to another directory",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/q/b", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/a", "/q/b"); }});
  add({.name = "rename over a file in another directory",
       .before = with({{"/p/a", "new"}, {"/q/b", "old"}}),
       .after = {with({{"/q/b", "new"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/a", "/q/b"); }});
  add({.name = "rename over one of two names",
       .before = with({{"/p/a", "new"}, {"/p/b", "old"}, {"/q/c", "old"}}),
       .after = {with({{"/p/b", "new"}, {"/q/c", "old"}})},
       .is_safe = true,
       .links = {{"/p/b", "/q/c"}},
       .run = [](FileSystem& fs) { return Rename(fs, "/p/a", "/p/b"); }});
  add({.name = "rename of one of two names",
       .before = with({{"/p/a", "x"}, {"/q/c", "x"}}),
       .after = {with({{"/q/b", "x"}, {"/q/c", "x"}})},
       .is_safe = true,
       .links = {{"/p/a", "/q/c"}},
       .run = [](FileSystem& fs) { return Rename(fs, "/p/a", "/q/b"); }});
  add({.name = "rename twice",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/q/b", "x"}}), with({{"/p/c", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) {
         return Both(Rename(fs, "/p/a", "/q/b"), [&] { return Rename(fs, "/q/b", "/p/c"); });
       }});
  add({.name = "rename and unlink",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/q/b", "x"}}), dirs},
       .run = [](FileSystem& fs) {
         return Both(Rename(fs, "/p/a", "/q/b"), [&] { return Unlink(fs, "/q/b"); });
       }});
  add({.name = "rename and create in its place",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/p/b", "x"}}), with({{"/p/a", ""}, {"/p/b", "x"}}),
                 with({{"/p/a", "y"}, {"/p/b", "x"}})},
       .run = [](FileSystem& fs) {
         return Both(Rename(fs, "/p/a", "/p/b"), [&] { return Write(fs, "/p/a", "y", false); });
       }});
  add({.name = "rename of a directory",
       .before = with({{"/p/d", "dir"}, {"/p/d/a", "x"}}),
       .after = {with({{"/p/e", "dir"}, {"/p/e/a", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/d", "/p/e"); }});
  add({.name = "move of a directory",
       .before = with({{"/p/d", "dir"}, {"/p/d/a", "x"}}),
       .after = {with({{"/q/e", "dir"}, {"/q/e/a", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/d", "/q/e"); }});
  add({.name = "move of a directory over an empty one",
       .before = with({{"/p/d", "dir"}, {"/p/d/a", "x"}, {"/q/e", "dir"}}),
       .after = {with({{"/q/e", "dir"}, {"/q/e/a", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Rename(fs, "/p/d", "/q/e"); }});
  add({.name = "mkdir and move into it",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/p/a", "x"}, {"/q/d", "dir"}}), with({{"/q/d", "dir"}, {"/q/d/a", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) {
         return Both(MakeDirectory(fs, "/q/d"), [&] { return Rename(fs, "/p/a", "/q/d/a"); });
       }});
  add({.name = "mkdir and link into it and unlink",
       .before = with({{"/p/a", "x"}}),
       .after = {with({{"/p/a", "x"}, {"/q/d", "dir"}}),
                 with({{"/p/a", "x"}, {"/q/d", "dir"}, {"/q/d/a", "x"}}),
                 with({{"/q/d", "dir"}, {"/q/d/a", "x"}})},
       .run = [](FileSystem& fs) {
         return Both(MakeDirectory(fs, "/q/d"), [&] {
           return Both(Link(fs, "/p/a", "/q/d/a"), [&] { return Unlink(fs, "/p/a"); });
         });
       }});
  add({.name = "exchange of files",
       .before = with({{"/p/a", "x"}, {"/q/b", "y"}}),
       .after = {with({{"/p/a", "y"}, {"/q/b", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Exchange(fs, "/p/a", "/q/b"); }});
  add({.name = "exchange in a directory",
       .before = with({{"/p/a", "x"}, {"/p/b", "y"}}),
       .after = {with({{"/p/a", "y"}, {"/p/b", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Exchange(fs, "/p/a", "/p/b"); }});
  add({.name = "exchange of directories",
       .before = with({{"/p/d", "dir"}, {"/p/d/a", "x"}, {"/q/e", "dir"}, {"/q/e/b", "y"}}),
       .after = {with({{"/p/d", "dir"}, {"/p/d/b", "y"}, {"/q/e", "dir"}, {"/q/e/a", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Exchange(fs, "/p/d", "/q/e"); }});
  add({.name = "exchange of a file and a directory",
       .before = with({{"/p/a", "x"}, {"/q/e", "dir"}, {"/q/e/b", "y"}}),
       .after = {with({{"/p/a", "dir"}, {"/p/a/b", "y"}, {"/q/e", "x"}})},
       .is_safe = true,
       .run = [](FileSystem& fs) { return Exchange(fs, "/p/a", "/q/e"); }});
  // What was safe in the inode, or as copies, is so in the pack, and in the next one.
  const std::string small(600, 's');
  const std::string other(700, 'o');
  const std::string copies(60'000, 'c');
  add({.name = "pack and unlink and pack again",
       .before = with({{"/p/a", small}, {"/p/b", copies}, {"/q/c", other}}),
       .after = {with({{"/p/a", small}, {"/q/c", other}})},
       .run = {},
       .run_with_cluster = [](Cluster& cluster, FileSystem& fs) -> Status {
         TRY(Pack(cluster));
         TRY(Unlink(fs, "/p/b"));
         cluster.runtime().NewSignal()->WaitUntil(cluster.runtime().Now() + 70s);
         return Pack(cluster);
       }});
  // In the order of what is done: each of these may be the last that was kept.
  const Tree four = {{"/p/a", "A"}, {"/p/b", "B"}, {"/p/c", "C"}, {"/p/d", "D"}};
  const auto without = [&](const std::vector<std::string>& gone, Tree more) {
    Tree tree = with(four);
    for (const std::string& path : gone) tree.erase(path);
    tree.insert(more.begin(), more.end());
    return tree;
  };
  add({.name = "spread a directory and rename in it",
       .before = with(four),
       .after = {with(four), without({"/p/a"}, {{"/p/e", "A"}}),
                 without({"/p/a", "/p/b"}, {{"/p/e", "A"}, {"/p/f", "B"}}),
                 without({"/p/a", "/p/b", "/p/c"}, {{"/p/e", "A"}, {"/p/f", "B"}, {"/q/c", "C"}})},
       .is_safe = true,
       .run = {},
       .run_with_cluster = [](Cluster& cluster, FileSystem& fs) {
         return Spread(cluster, fs, "/p", [&](int stage) -> Status {
           switch (stage) {
             case 1: return Rename(fs, "/p/a", "/p/e");
             case 2: return Rename(fs, "/p/b", "/p/f");
             case 3: return Rename(fs, "/p/c", "/q/c");
             default: return {};
           }
         });
       }});
  return all;
}

// ---- One cut

// What a drive keeps of what was not synced: nothing, everything, or a part by chance.
enum class Keeps { kNothing, kEverything, kSome };

// Machines whose power fails, and how to look at what is there then.
class PowerCut {
 public:
  explicit PowerCut(std::vector<Keeps> keeps, uint64_t seed)
      : keeps_(std::move(keeps)),
        sim_(seed),
        machines_(sim_, {.drives = kDrives,
                         .layout = {2, 1, 64 << 10},
                         .groups = 16,
                         .replicas = 3,
                         .loses_power = true}) {}

 protected:
  void Complain(const std::string& what) {
    if (complaint_.empty()) complaint_ = what;
  }
  bool Check(const Status& status) {
    if (!status.ok()) Complain(std::string(status.message()));
    return status.ok();
  }

  // Makes what is there at the beginning, and safe.
  void Prepare(const Tree& before, const std::vector<std::pair<std::string, std::string>>& links,
               bool uses_packs = false) {
    const bool beside = sim_.Chance(0.5);
    if (beside) machines_.config().inline_limit = 16;
    std::vector<Feature> features;
    if (beside) features.push_back(NewFeature(kContentsBesideFeature));
    if (sim_.Chance(0.7)) features.push_back(NewFeature(kGapsFeature));
    if (!Check(machines_.Format({.features = std::move(features)}))) {
      return;
    }
    auto cluster = machines_.Open();
    if (!Check(StatusOf(cluster))) return;
    if (!Check(FileSystem::Format(**cluster, {}, 0755))) return;
    auto fs = FileSystem::Open(**cluster, {.caretaker = &MakeHostCare});
    if (!Check(StatusOf(fs))) return;
    for (const auto& [path, contents] : before) {
      const bool is_link = std::ranges::any_of(
          links, [&, &path = path](const auto& link) { return link.second == path; });
      if (is_link) continue;
      Check(contents == "dir" ? MakeDirectory(**fs, path) : Write(**fs, path, contents, true));
    }
    for (const auto& [path, other] : links) Check(Link(**fs, path, other));
    if (uses_packs) Check(UseFeature(**cluster, kPacksFeature));
    sim_.Sleep(1s);
    Check((*fs)->SyncDirectory(kRootInode));
    fs->reset();
    for (DriveId id = 1; id <= kDrives; ++id) {  // contents, too
      Gather<Status> gather(sim_);
      machines_.memory(id).Flush(Time::max(), gather.Ask(0));
      Check(gather.Next(Time::max())->value);
    }
  }

  // The power fails after so many requests of `work`.
  void CutDuring(uint64_t requests,
                 const std::function<void(Cluster&, FileSystem&, const ClientLife&)>& work) {
    const auto life = std::make_shared<ClientLife>();
    auto cluster = machines_.Open(life);
    if (!Check(StatusOf(cluster))) return;
    auto fs = FileSystem::Open(**cluster, {.caretaker = &MakeHostCare});
    if (!Check(StatusOf(fs))) return;
    life->CrashAfter(requests);
    work(**cluster, **fs, *life);
    // Of what was on its way some arrives.
    if (sim_.Chance(0.5)) sim_.Sleep(sim_.Between(0us, 400us));
    life->Crash();
    for (DriveId id = 1; id <= kDrives; ++id) {
      const size_t unsynced = machines_.memory(id).CountUnsynced();
      switch (keeps_[id - 1]) {
        case Keeps::kNothing: machines_.LosePower(id, 0); break;
        case Keeps::kEverything: machines_.LosePower(id, unsynced); break;
        case Keeps::kSome: machines_.LosePower(id, sim_.Below(unsynced + 1)); break;
      }
    }
  }

  Tree Look(FileSystem& fs) {
    Tree tree;
    Look(fs, kRootInode, "", tree);
    return tree;
  }
  void Look(FileSystem& fs, InodeId directory, const std::string& path, Tree& tree) {
    const auto entries = fs.ReadDirectory(directory, "", 1000, false);
    if (!Check(StatusOf(entries))) return;
    for (const DirectoryEntry& entry : *entries) {
      const auto found = fs.Lookup(directory, entry.name);
      if (!found.has_value() && found.error().code() == ENOENT) continue;  // no name any more
      if (!Check(StatusOf(found))) continue;
      const std::string name = path + "/" + entry.name;
      if (found->kind == FileKind::kDirectory) {
        tree[name] = "dir";
        if (fs.ParentOf(found->inode).value_or(0) != directory) {
          // Whoever asks for the parent finishes an exchange that was begun: then the name stands
          // for something else now.
          const auto now = fs.Lookup(directory, entry.name);
          if (now.has_value() && now->inode == found->inode) {
            Complain(name + " has another parent");
          }
        }
        Look(fs, found->inode, name, tree);
      } else {
        tree[name] = Contents(fs, found->inode, name);
      }
    }
  }

  std::string Contents(FileSystem& fs, InodeId id, const std::string& name) {
    auto file = fs.Open(id, FileSystem::Access::kRead);
    std::string contents(400'000, '?');
    const auto read = file.has_value()
                          ? (*file)->Read(0, std::as_writable_bytes(std::span(contents)))
                          : tl::unexpected(file.error());
    if (!read.has_value()) {
      Complain(fmt::format("{} cannot be read: {}", name, read.error().message()));
      return "?";
    }
    contents.resize(*read);
    return contents;
  }

  static std::string Text(const Tree& tree) {
    std::string text;
    for (const auto& [path, contents] : tree) {
      text += fmt::format(" {}={}", path, contents.substr(0, 5));
    }
    return text;
  }

  // `judge` says whether what is there is as it may be.
  void Inspect(const std::function<void(const Tree&)>& judge) {
    if (!complaint_.empty()) return;
    sim_.Sleep(1s);
    auto cluster = machines_.Open();
    if (!Check(StatusOf(cluster))) return;
    auto fs = FileSystem::Open(**cluster, {.caretaker = &MakeHostCare});
    if (!Check(StatusOf(fs))) return;
    Look(**fs);  // who looks finishes what was begun
    const Tree tree = Look(**fs);
    judge(tree);
    // As `pinstripe repair` does.
    for (const std::string& what : TreeMender(**cluster).Run().not_mended) {
      Complain("not mended: " + what);
    }
    Checker checker(**cluster, {});
    for (const Finding& finding : checker.Run().findings) {
      if (finding.severity != Severity::kError) continue;
      // A name that the power left of a file that was made and not synced. What was is looked for
      // by itself.
      if (finding.problem == "lost-inode") continue;
      Complain(
          fmt::format("check: {} {}: {}{}", finding.problem, finding.where, finding.what, story_));
    }
    RemoveAll(**fs, Look(**fs));
    // And the cluster goes on.
    Check(Write(**fs, "/next", "next", false));
  }

  // One name after the other, and all that are left show what they did.
  void RemoveAll(FileSystem& fs, Tree tree) {
    for (bool any = true; any && complaint_.empty();) {
      any = false;
      for (const auto& [path, contents] : Tree(tree)) {
        if (contents == "dir" || sim_.Chance(0.3)) {
          any = any || contents != "dir";
          continue;
        }
        Check(Unlink(fs, path));
        tree.erase(path);
        any = true;
        const Tree now = Look(fs);
        if (now != tree) {
          Complain(
              fmt::format("without {} there is{}, where{} should be", path, Text(now), Text(tree)));
        }
      }
    }
  }

  const std::vector<Keeps> keeps_;
  SimRuntime sim_;
  TestCluster machines_;
  std::string complaint_;
  std::string story_;  // what was done until the power failed
};

class CutOperation final : public PowerCut {
 public:
  CutOperation(const Operation& operation, uint64_t requests, std::vector<Keeps> keeps,
               uint64_t seed)
      : PowerCut(std::move(keeps), seed), operation_(operation), requests_(requests) {}

  // What is wrong, or nothing.
  std::string Run() {
    const auto& with_cluster = operation_.run_with_cluster;
    Prepare(operation_.before, operation_.links, static_cast<bool>(with_cluster));
    CutDuring(requests_, [&](Cluster& cluster, FileSystem& fs, const ClientLife& life) {
      const Status ran = with_cluster ? with_cluster(cluster, fs) : operation_.run(fs);
      done_ = ran.ok() && !life.crashed();
    });
    Inspect([this](const Tree& tree) {
      const bool is_after = std::ranges::find(operation_.after, tree) != operation_.after.end();
      const bool is_last = tree == operation_.after.back();
      const bool must_be_last = done_ && operation_.is_safe;
      const bool is_right = must_be_last ? is_last : is_after || tree == operation_.before;
      if (!is_right) Complain(fmt::format("there is{}", Text(tree)));
    });
    return complaint_;
  }
  bool done() const { return done_; }  // before the power failed

 private:
  const Operation& operation_;
  const uint64_t requests_;
  bool done_ = false;
};

std::string Describe(const Operation& operation, uint64_t requests, const std::vector<Keeps>& keeps,
                     uint64_t seed) {
  std::string drives;
  for (const Keeps each : keeps) drives += "-+~"[static_cast<int>(each)];
  return fmt::format("{}, power cut after {} requests, drives {}, seed {}", operation.name,
                     requests, drives, seed);
}

// Every step of one operation, with drives that keep all or nothing in every way, or in some.
class PowerCutsAtEachStep : public testing::TestWithParam<size_t> {};

TEST_P(PowerCutsAtEachStep, AnOperationHasHappenedOrNot) {
  SetLogLevel(LogLevel::kError);
  const std::vector<Operation> operations = Operations();
  const Operation& operation = operations[GetParam()];
  const Seeds seeds = SeedsFromEnvironment(1);
  const bool is_short = std::getenv("SEED") == nullptr && std::getenv("SEEDS") == nullptr;
  constexpr uint64_t kSteps = 64;
  bool done = false;
  // Of what takes long, some of the steps.
  const uint64_t step = operation.run_with_cluster ? 11 : 1;
  for (uint64_t requests = 1; !done; requests += step) {
    ASSERT_LT(requests, 400u * step);
    for (uint64_t pattern = 0; pattern < uint64_t{1} << kDrives; ++pattern) {
      // Every way would take a quarter of an hour: one or two for each step, others for the next.
      // Under a sanitizer these would take that long: one for every fourth step.
      if (is_short && (pattern + requests) % (kSanitized ? 128 : 24) != 0) continue;
      std::vector<Keeps> keeps;
      for (size_t i = 0; i < kDrives; ++i) {
        keeps.push_back(pattern >> i & 1 ? Keeps::kEverything : Keeps::kNothing);
      }
      CutOperation cut(operation, requests, keeps, 1 + pattern + requests * 64);
      ASSERT_EQ(cut.Run(), "") << Describe(operation, requests, keeps, 1 + pattern + requests * 64);
      done = done || cut.done();
    }
    for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
      // All of many seeds at each step would take a day.
      if (seeds.end - seeds.first > kSteps && seed % kSteps != requests % kSteps) continue;
      const std::vector<Keeps> keeps(kDrives, Keeps::kSome);
      CutOperation cut(operation, requests, keeps, seed);
      ASSERT_EQ(cut.Run(), "") << Describe(operation, requests, keeps, seed);
    }
  }
}

// ---- Many operations, one after the other

// Files that are safe at the beginning, and whatever a host does to their names until the power
// fails. A file that has a name in all that the host has brought about, and would have one if what
// it was at had happened, has one afterwards, with its contents.
class CutStory final : public PowerCut {
 public:
  explicit CutStory(uint64_t seed) : PowerCut(std::vector<Keeps>(kDrives, Keeps::kSome), seed) {}

  std::string Run() {
    Tree before = {{"/p", "dir"}, {"/q", "dir"}, {"/p/d", "dir"}};
    for (const char* path : {"/p/a", "/p/b", "/q/a", "/p/d/a"}) {
      before[path] = fmt::format("file {}", path);
      kept_.insert(before[path]);
    }
    Prepare(before, {});
    tree_ = before;
    CutDuring(1 + sim_.Below(400), [this](Cluster&, FileSystem& fs, const ClientLife& life) {
      while (!life.crashed()) Step(fs);
    });
    Inspect([this](const Tree& tree) {
      std::set<std::string> found;
      for (const auto& [path, contents] : tree) {
        found.insert(contents);
        const bool is_known = contents == "dir" || contents.empty() || made_.contains(contents) ||
                              contents.starts_with("file ");
        if (!is_known) Complain(fmt::format("{} holds {}", path, contents.substr(0, 20)));
      }
      for (const std::string& contents : kept_) {
        if (!found.contains(contents)) {
          Complain(fmt::format("'{}' is lost; there is{}, after{}", contents, Text(tree), story_));
        }
      }
    });
    return complaint_;
  }

 private:
  std::string AnyPath() {
    static constexpr const char* kDirectories[] = {"/p", "/q", "/p/d", "/q/e"};
    return fmt::format("{}/{}", kDirectories[sim_.Below(4)], "abde"[sim_.Below(4)]);
  }

  // What has no name in `tree` may be gone.
  void Expect(const Tree& tree) {
    std::set<std::string> there;
    for (const auto& [path, contents] : tree) there.insert(contents);
    std::erase_if(kept_, [&](const std::string& each) { return !there.contains(each); });
  }

  static Tree Moved(const Tree& tree, const std::string& from, const std::string& to) {
    Tree moved;
    for (const auto& [path, contents] : tree) {
      if (path == from || path.starts_with(from + "/")) {
        moved[to + path.substr(from.size())] = contents;
      } else if (path != to) {
        moved.emplace(path, contents);
      }
    }
    return moved;
  }

  void Step(FileSystem& fs) {
    const std::string path = AnyPath();
    const std::string other = AnyPath();
    Tree next = tree_;
    Status status;
    const auto is_file = [&](const std::string& it) {
      return tree_.contains(it) && tree_.at(it) != "dir";
    };
    static constexpr const char* kWhat[] = {"upload", "link",  "link",     "unlink",
                                            "mkdir",  "rmdir", "exchange", "rename"};
    const uint64_t what = sim_.Below(8);
    switch (what) {
      case 0: {
        const std::string contents = fmt::format("new {}", made_.size());
        made_.insert(contents);
        next[path] = contents;
        if (is_file(path)) Expect(next);
        status = Write(fs, path, contents, true);
        break;
      }
      case 1:
      case 2:
        if (!is_file(path)) return;
        next[other] = next.at(path);
        status = Link(fs, path, other);
        break;
      case 3:
        if (!is_file(path)) return;
        next.erase(path);
        Expect(next);
        status = Unlink(fs, path);
        break;
      case 4:
        next[path] = "dir";
        status = MakeDirectory(fs, path);
        break;
      case 5:
        next.erase(path);
        status = RemoveDirectory(fs, path);
        break;
      case 6:
        if (!tree_.contains(path) || !tree_.contains(other) || path == other) return;
        if (path.starts_with(other) || other.starts_with(path)) return;
        next = Moved(Moved(Moved(tree_, path, "/x"), other, path), "/x", other);
        status = Exchange(fs, path, other);
        break;
      default:
        if (!tree_.contains(path) || path == other) return;
        // Between two names of one file it does nothing.
        if (tree_.contains(other) && tree_.at(path) == tree_.at(other) && is_file(path)) return;
        next = Moved(tree_, path, other);
        if (is_file(other)) Expect(next);
        status = Rename(fs, path, other);
        break;
    }
    story_ += fmt::format("; {} {} {}: {}", kWhat[what], path, other, status.code());
    if (status.ok()) tree_ = next;
    // Nobody knows: whatever has a name in only one of the two may have none.
    if (status.code() == EIO) Expect(next);
  }

  Tree tree_;
  std::set<std::string> kept_;  // contents
  std::set<std::string> made_;
};

TEST(PowerCutsSim, WhatWasSafeAndNotRemovedIsThere) {
  SetLogLevel(LogLevel::kError);
  const Seeds seeds = SeedsFromEnvironment(kSanitized ? 60 : 300);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    CutStory story(seed);
    ASSERT_EQ(story.Run(), "") << "reproduce with SEED=" << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Names, PowerCutsAtEachStep, testing::Range<size_t>(0, Operations().size()),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : std::string(Operations()[info.param].name)) {
                             name += c == ' ' ? '_' : c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace pinstripe
