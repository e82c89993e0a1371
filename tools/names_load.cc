#include "tools/names_load.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "base/try.h"
#include "cluster/cluster_config.h"
#include "cluster/connect.h"
#include "fs/file_system.h"
#include "tools/process_use.h"

namespace pinstripe {
namespace {

constexpr size_t kListAtOnce = 1000;

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
      const std::function<void(const NamesLoadResult&)>& tell)
      : runtime_(runtime), load_(load), daemons_(std::move(daemons)), hosts_(hosts), tell_(tell) {}

  Status All() {
    TRY(Measure("create", load_.files,
                [this](Host& host, int client) { return Create(host, client); }));
    TRY(Measure("stat", load_.files,
                [this](Host& host, int client) { return Stat(host, client); }));
    const uint64_t listed = uint64_t{load_.files} * (load_.shared ? hosts_.size() : 1);
    TRY(Measure("list", listed, [listed](Host& host, int) { return List(host, listed); }));
    TRY(Measure("rename", load_.files,
                [this](Host& host, int client) { return Rename(host, client); }));
    return Measure("delete", load_.files,
                   [this](Host& host, int client) { return Delete(host, client); });
  }

 private:
  static std::string NameOf(int client, uint32_t file) {
    return fmt::format("c{}-f{:06}", client, file);
  }
  static std::string NewNameOf(int client, uint32_t file) {
    return fmt::format("c{}-r{:06}", client, file);
  }

  Status Create(Host& host, int client) {
    const std::string contents(load_.file_bytes, 'x');
    for (uint32_t i = 0; i < load_.files; ++i) {
      const auto file = TRY(host.fs->Create(host.directory, NameOf(client, i),
                                            {.truncate = true, .publish_at_commit = true}));
      TRY(file->Write(0, AsBytes(contents)));
      TRY(file->Close());
    }
    return {};
  }
  Status Stat(Host& host, int client) {
    for (uint32_t i = 0; i < load_.files; ++i) {
      TRY(host.fs->Lookup(host.directory, NameOf(client, i)));
    }
    return {};
  }
  static Status List(Host& host, uint64_t expected) {
    uint64_t listed = 0;
    for (std::string after;;) {
      const auto page = TRY(host.fs->ReadDirectory(host.directory, after, kListAtOnce, true));
      if (page.empty()) break;
      listed += page.size();
      after = page.back().name;
    }
    if (listed == expected) return {};
    return Fail(EIO, "{} names are listed instead of {}", listed, expected);
  }
  Status Rename(Host& host, int client) {
    for (uint32_t i = 0; i < load_.files; ++i) {
      TRY(host.fs->Rename(host.directory, NameOf(client, i), host.directory, NewNameOf(client, i)));
    }
    return {};
  }
  Status Delete(Host& host, int client) {
    for (uint32_t i = 0; i < load_.files; ++i) {
      TRY(host.fs->Unlink(host.directory, NewNameOf(client, i)));
    }
    return {};
  }

  // All clients at once; until the last one is done.
  Status Measure(std::string_view op, uint64_t operations_each,
                 const std::function<Status(Host&, int)>& body) {
    const Time start = runtime_.Now();
    const double client_cpu = OwnCpuSeconds();
    const double drives_cpu = CpuSecondsOf(daemons_);
    const auto done = runtime_.NewSignal();
    std::mutex mutex;
    Status first_failure;
    size_t left = hosts_.size();
    for (size_t i = 0; i < hosts_.size(); ++i) {
      runtime_.Spawn("client", [&, i] {
        Status status = body(hosts_[i], static_cast<int>(i));
        const std::lock_guard lock(mutex);
        if (!status.ok() && first_failure.ok()) first_failure = std::move(status);
        if (--left == 0) done->Set();
      });
    }
    done->WaitUntil(Time::max());
    const std::lock_guard lock(mutex);  // the last one has let go of it
    TRY(first_failure);
    tell_({.op = op,
           .clients = static_cast<int>(hosts_.size()),
           .operations = operations_each * hosts_.size(),
           .seconds = std::chrono::duration<double>(runtime_.Now() - start).count(),
           .client_cpu_seconds = OwnCpuSeconds() - client_cpu,
           .drives_cpu_seconds = CpuSecondsOf(daemons_) - drives_cpu});
    return {};
  }

  Runtime& runtime_;
  const NamesLoad& load_;
  const std::set<pid_t> daemons_;
  std::vector<Host>& hosts_;
  const std::function<void(const NamesLoadResult&)>& tell_;
};

Status RunWith(Runtime& runtime, const NamesLoad& load, int clients,
               const std::function<void(const NamesLoadResult&)>& tell) {
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
  if (!status.ok()) return status.Context(fmt::format("what was made stays in /{}", name));
  for (int i = 0; i < clients && !load.shared; ++i) {
    TRY(fs.RemoveDirectory(top, fmt::format("c{}", i)));
  }
  return fs.RemoveDirectory(kRootInode, name);
}

}  // namespace

Status RunNamesLoad(Runtime& runtime, const NamesLoad& load,
                    const std::function<void(const NamesLoadResult&)>& tell) {
  for (const int clients : load.clients) {
    if (clients < 1 || clients > 64) return Fail(EINVAL, "{} clients: 1 to 64 can be", clients);
  }
  if (load.files < 1) return Fail(EINVAL, "0 files: at least one is needed");
  for (const int clients : load.clients) TRY(RunWith(runtime, load, clients, tell));
  return {};
}

}  // namespace pinstripe
