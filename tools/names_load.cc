#include "tools/names_load.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <set>

#include "base/mutex.h"
#include "base/try.h"
#include "cluster/config.h"
#include "cluster/connect.h"
#include "fs/file_system.h"
#include "tools/process_use.h"

namespace pinstripe {
namespace {

constexpr size_t kListAtOnce = 1000;
constexpr Duration kBetweenProgress = std::chrono::milliseconds(200);

struct Host {
  std::unique_ptr<ConnectedCluster> cluster;
  std::unique_ptr<FileSystem> fs;
  InodeId directory = 0;
};

// The daemons of a cluster that run here.
std::set<pid_t> DaemonsOf(const ClusterConfig& config) {
  std::set<pid_t> daemons;
  for (const DriveConfig& drive : config.drives) {
    if (const auto daemon = DaemonAt(drive.addresses[0])) daemons.insert(*daemon);
  }
  return daemons;
}

double CpuSecondsOf(const std::set<pid_t>& daemons) {
  double seconds = 0;
  for (const pid_t daemon : daemons) seconds += UseOf(daemon).value_or(ProcessUse{}).cpu_seconds;
  return seconds;
}

class Run {
 public:
  Run(Runtime& runtime, const NamesLoad& load, std::set<pid_t> daemons, std::vector<Host>& hosts,
      const NamesLoadTold& tell)
      : runtime_(runtime), load_(load), daemons_(std::move(daemons)), hosts_(hosts), tell_(tell) {}

  Status All() {
    const uint64_t all = load_.files * hosts_.size();
    if (load_.fill > 0) {
      TRY(Measure("fill", load_.fill, [this](Host& host, int client) {
        return ForItsFill(client, [&](const std::string& name) { return Make(host, name, ""); });
      }));
    }
    TRY(Measure("create", all, [this](Host& host, int client) { return Create(host, client); }));
    TRY(Measure("stat", all, [this](Host& host, int client) { return Stat(host, client); }));
    TRY(Measure("list", all + load_.fill,
                [this](Host& host, int client) { return List(host, client); }));
    TRY(Measure("rename", all, [this](Host& host, int client) { return Rename(host, client); }));
    if (load_.keep) return {};
    TRY(Measure("delete", all, [this](Host& host, int client) { return Delete(host, client); }));
    if (load_.fill == 0) return {};
    return Measure("clear", load_.fill, [this](Host& host, int client) {
      return ForItsFill(
          client, [&](const std::string& name) { return host.fs->Unlink(host.directory, name); });
    });
  }

 private:
  static std::string NameOf(int client, uint32_t file) {
    return fmt::format("c{}-f{:06}", client, file);
  }
  static std::string NewNameOf(int client, uint32_t file) {
    return fmt::format("c{}-r{:06}", client, file);
  }

  Status Make(Host& host, const std::string& name, std::string_view contents) {
    const auto file =
        TRY(host.fs->Create(host.directory, name, {.truncate = true, .publish_at_commit = true}));
    TRY(file->Write(0, AsBytes(contents)));
    return file->Close();
  }

  // The clients take turns with the names that fill the directory.
  Status ForItsFill(int client, const std::function<Status(const std::string&)>& body) {
    for (auto i = static_cast<uint64_t>(client); i < load_.fill; i += hosts_.size()) {
      TRY(body(fmt::format("fill-{:08}", i)));
      ++done_;
    }
    return {};
  }

  Status Create(Host& host, int client) {
    const std::string contents(load_.file_bytes, 'x');
    for (uint32_t i = 0; i < load_.files; ++i, ++done_) {
      TRY(Make(host, NameOf(client, i), contents));
    }
    return {};
  }
  Status Stat(Host& host, int client) {
    for (uint32_t i = 0; i < load_.files; ++i, ++done_) {
      TRY(host.fs->Lookup(host.directory, NameOf(client, i)));
    }
    return {};
  }
  Status List(Host& host, int client) {
    if (load_.shared && client > 0) return {};
    const uint64_t expected =
        load_.shared ? load_.files * hosts_.size() + load_.fill : uint64_t{load_.files};
    uint64_t listed = 0;
    for (std::string after;;) {
      const auto page = TRY(host.fs->ReadDirectory(host.directory, after, kListAtOnce, true));
      if (page.empty()) break;
      listed += page.size();
      done_ += page.size();
      after = page.back().name;
    }
    if (listed == expected) return {};
    return Fail(EIO, "{} names are listed instead of {}", listed, expected);
  }
  Status Rename(Host& host, int client) {
    for (uint32_t i = 0; i < load_.files; ++i, ++done_) {
      TRY(host.fs->Rename(host.directory, NameOf(client, i), host.directory, NewNameOf(client, i)));
    }
    return {};
  }
  Status Delete(Host& host, int client) {
    for (uint32_t i = 0; i < load_.files; ++i, ++done_) {
      TRY(host.fs->Unlink(host.directory, NewNameOf(client, i)));
    }
    return {};
  }

  // All clients at once; until the last one is done.
  Status Measure(std::string_view op, uint64_t operations,
                 const std::function<Status(Host&, int)>& body) {
    const Time start = runtime_.Now();
    const double client_cpu = OwnCpuSeconds();
    const double drives_cpu = CpuSecondsOf(daemons_);
    done_ = 0;
    const auto done = runtime_.NewSignal();
    struct {
      Mutex mutex;
      Status first_failure GUARDED_BY(mutex);
      size_t left GUARDED_BY(mutex) = 0;
    } clients;
    {
      const MutexLock lock(clients.mutex);
      clients.left = hosts_.size();
    }
    for (size_t i = 0; i < hosts_.size(); ++i) {
      runtime_.Spawn("client", [&, i] {
        Status status = body(hosts_[i], static_cast<int>(i));
        const MutexLock lock(clients.mutex);
        if (!status.ok() && clients.first_failure.ok()) clients.first_failure = std::move(status);
        if (--clients.left == 0) done->Set();
      });
    }
    while (!done->WaitUntil(runtime_.Now() + kBetweenProgress)) {
      tell_.progress(op, static_cast<double>(done_) / static_cast<double>(operations));
    }
    const MutexLock lock(clients.mutex);  // the last one has let go of it
    TRY(clients.first_failure);
    const bool by_one = op == "list" && load_.shared;
    tell_.result({.op = op,
                  .clients = by_one ? 1 : static_cast<int>(hosts_.size()),
                  .operations = operations,
                  .seconds = std::chrono::duration<double>(runtime_.Now() - start).count(),
                  .client_cpu_seconds = OwnCpuSeconds() - client_cpu,
                  .drives_cpu_seconds = CpuSecondsOf(daemons_) - drives_cpu});
    return {};
  }

  Runtime& runtime_;
  const NamesLoad& load_;
  const std::set<pid_t> daemons_;
  std::vector<Host>& hosts_;
  const NamesLoadTold& tell_;
  std::atomic<uint64_t> done_ = 0;  // of what is measured now
};

Result<std::string> RunWith(Runtime& runtime, const NamesLoad& load, int clients,
                            const NamesLoadTold& tell) {
  std::vector<Host> hosts;
  for (int i = 0; i < clients; ++i) {
    Host host;
    host.cluster = TRY(Connect(runtime, load.config));
    host.fs = TRY(FileSystem::Open(host.cluster->cluster(), {}));
    hosts.push_back(std::move(host));
  }
  FileSystem& fs = *hosts.front().fs;
  const std::string name = fmt::format("pinstripe-bench-{:016x}", runtime.Random());
  const InodeId top = TRY(fs.MakeDirectory(kRootInode, name, 0700, {})).inode;
  for (int i = 0; i < clients; ++i) {
    hosts[static_cast<size_t>(i)].directory =
        load.shared ? top : TRY(fs.MakeDirectory(top, fmt::format("c{}", i), 0700, {})).inode;
  }
  const Status status =
      Run(runtime, load, DaemonsOf(hosts.front().cluster->cluster().config()), hosts, tell).All();
  if (!status.ok()) {
    return Failed(status.Context(fmt::format("what was made stays in /{}", name)));
  }
  if (load.keep) return name;
  for (int i = 0; i < clients && !load.shared; ++i) {
    TRY(fs.RemoveDirectory(top, fmt::format("c{}", i)));
  }
  TRY(fs.RemoveDirectory(kRootInode, name));
  return name;
}

}  // namespace

Result<std::string> RunNamesLoad(Runtime& runtime, const NamesLoad& load,
                                 const NamesLoadTold& tell) {
  for (const int clients : load.clients) {
    if (clients < 1 || clients > 64) return Fail(EINVAL, "{} clients: give 1 to 64", clients);
  }
  if (load.files < 1) return Fail(EINVAL, "0 files: at least one is needed");
  if (load.fill > 0 && !load.shared) {
    return Fail(EINVAL, "--fill needs --shared: it fills the directory that all clients share");
  }
  std::string name;
  for (const int clients : load.clients) name = TRY(RunWith(runtime, load, clients, tell));
  return name;
}

}  // namespace pinstripe
