// pinstripe dev: a whole cluster in one directory of this machine, to try things out and for tests.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/try.h"
#include "cluster/config.h"
#include "tools/commands.h"
#include "tools/dev_cluster.h"

namespace pinstripe {
namespace {

using Json = nlohmann::json;

void Say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);  // so that progress is seen through a pipe, too
}

// --- up ---

struct UpOptions {
  std::string directory;
  DevOptions cluster;
  std::string layout = "4+2";
  std::string groups;
  bool one_process = false;
};

void SayWhatNext(const DevCluster& cluster) {
  const std::string& directory = cluster.directory();
  Say(fmt::format("\nThe cluster in {} is up.", directory));
  Say(fmt::format("  configuration  {}", cluster.cluster_file()));
  if (cluster.gateway()) Say(fmt::format("  gateway        {}", cluster.gateway()->Url()));
  if (cluster.mount()) Say(fmt::format("  mount          {}", cluster.mount()->point));
  Say("\nTry:");
  if (cluster.gateway()) {
    const std::string url = cluster.gateway()->Url();
    Say(fmt::format("  xrdcp /etc/services {}/services", url));
    Say(fmt::format("  xrdfs {} ls -l /", url));
    Say(fmt::format("  pinstripe dev kill {} 1 2   # and read on: xrdcp -f {}/services /tmp/copy",
                    directory, url));
  }
  Say(fmt::format("  pinstripe status {}", cluster.cluster_file()));
  Say(fmt::format("  pinstripe dev down {}", directory));
}

Result<int> Up(Runtime& runtime, UpOptions options) {
  std::unique_ptr<DevCluster> cluster;
  if (DevCluster::Exists(options.directory)) {
    cluster = TRY(DevCluster::Open(runtime, options.directory, Say));
    if (!options.cluster.mount.empty()) TRY(cluster->AddMount(options.cluster.mount));
  } else {
    DevOptions& wanted = options.cluster;
    wanted.layout = TRY(ParseGeometry(options.layout));
    if (wanted.layout.shards() > wanted.drives) {
      return Fail(EINVAL, "layout {} needs {} drives, but --drives is {}", options.layout,
                  wanted.layout.shards(), wanted.drives);
    }
    if (wanted.redis > wanted.drives) {
      return Fail(EINVAL, "--redis is {}, but --drives is {}", wanted.redis, wanted.drives);
    }
    const int served = wanted.drives - wanted.redis;
    if (options.one_process && served > 0) {
      wanted.groups = {served};
    } else if (!options.groups.empty()) {
      wanted.groups = TRY(ParseGroups(options.groups, served));
    }
    cluster = TRY(DevCluster::Create(runtime, options.directory, wanted, Say));
  }
  TRY(cluster->Up());
  SayWhatNext(*cluster);
  return 0;
}

void AddUp(CLI::App& dev, Action& chosen) {
  auto options = std::make_shared<UpOptions>();
  DevOptions& wanted = options->cluster;
  CLI::App* up =
      dev.add_subcommand("up", "Make a cluster in DIR, or start its processes that do not run");
  up->add_option("DIR", options->directory, "A new or empty directory, or one made by `dev up`")
      ->required();
  up->add_option("--drives", wanted.drives, "How many drives")
      ->check(CLI::Range(1, 200))
      ->capture_default_str();
  up->add_option("--redis", wanted.redis,
                 "How many of them, the last ones, are kept by a redis-server each")
      ->check(CLI::Range(0, 200))
      ->capture_default_str();
  up->add_option("--layout", options->layout, "Data shards + parity shards")->capture_default_str();
  CLI::Option* groups =
      up->add_option("--groups", options->groups,
                     "Drives per process, such as 4,1,31, without those of --redis; "
                     "one each by default");
  up->add_flag("--one-process", options->one_process, "All drives in one process")
      ->excludes(groups);
  up->add_flag("--share-connections", wanted.share_connections,
               "The drives of a process share one connection to it");
  up->add_option("--name", wanted.name, "Name of the cluster")->capture_default_str();
  up->add_option("--close", wanted.close, "What close promises: commit or durable")
      ->check(CLI::IsMember({"commit", "durable"}))
      ->capture_default_str();
  up->add_flag("--gateway,!--no-gateway", wanted.gateway, "Start an xrootd gateway (the default)");
  up->add_option("--port", wanted.gateway_port, "Port of the gateway; a free one by default");
  up->add_option("--user", wanted.user,
                 "User of the gateway, when started by root: xrootd or nobody");
  up->add_option("--mount", wanted.mount, "Mount the cluster on this directory, too");
  up->footer(
      "In a directory that `dev up` made before it starts what does not run, and only --mount has\n"
      "a meaning. Returns when everything answers.");
  up->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Up(runtime, *options); };
  });
}

// --- the others ---

struct DevArguments {
  std::string directory;
  std::vector<std::string> names;
  bool remove = false;
  bool json = false;
};

CLI::App* AddCommand(CLI::App& dev, Action& chosen, const std::string& name,
                     const std::string& what, const std::shared_ptr<DevArguments>& arguments,
                     Result<int> (*run)(Runtime&, const DevArguments&)) {
  CLI::App* command = dev.add_subcommand(name, what);
  command->add_option("DIR", arguments->directory, "The directory of the cluster")->required();
  command->callback([arguments, run, &chosen] {
    chosen = [arguments, run](Runtime& runtime) { return run(runtime, *arguments); };
  });
  return command;
}

Result<int> Down(Runtime& runtime, const DevArguments& arguments) {
  const auto cluster = TRY(DevCluster::Open(runtime, arguments.directory, Say));
  TRY(cluster->Down());
  if (arguments.remove) {
    TRY(cluster->Delete());
    Say(fmt::format("deleted {}", cluster->directory()));
  }
  return 0;
}

Result<int> Kill(Runtime& runtime, const DevArguments& arguments) {
  const auto cluster = TRY(DevCluster::Open(runtime, arguments.directory, Say));
  TRY(cluster->Kill(arguments.names));
  return 0;
}

Result<int> Start(Runtime& runtime, const DevArguments& arguments) {
  const auto cluster = TRY(DevCluster::Open(runtime, arguments.directory, Say));
  TRY(cluster->Start(arguments.names));
  return 0;
}

Json ToJson(const DevProcess& process) {
  const auto found = process.Find();
  return {{"name", process.name},
          {"running", found.has_value()},
          {"pid", found ? found->pid() : 0},
          {"log", process.log}};
}

void SayProcess(const DevProcess& process, const std::string& more) {
  const auto found = process.Find();
  const std::string state = found ? fmt::format("process {}", found->pid()) : "DOWN";
  Say(fmt::format("{:<14}{:<16}{:<34}{}", process.name, state, more, process.log));
}

// Exit code 1 unless all of it runs, so that scripts can ask.
Result<int> ShowDev(Runtime& runtime, const DevArguments& arguments) {
  const auto cluster = TRY(DevCluster::Open(runtime, arguments.directory, Say));
  Json json{{"directory", cluster->directory()},
            {"config", cluster->cluster_file()},
            {"daemons", Json::array()}};
  bool all_run = true;
  const auto show = [&](const DevProcess& process, const std::string& more) {
    all_run = all_run && process.Find().has_value();
    if (!arguments.json) SayProcess(process, more);
    return ToJson(process);
  };
  for (const DevDaemon& daemon : cluster->daemons()) {
    Json entry = show(daemon.process, fmt::format("127.0.0.1:{}", daemon.drives.front().port));
    for (const DevDrive& drive : daemon.drives) {
      entry["drives"].push_back({{"id", drive.id}, {"port", drive.port}, {"path", drive.path}});
    }
    json["daemons"].push_back(std::move(entry));
  }
  if (const auto& gateway = cluster->gateway()) {
    json["gateway"] = show(gateway->process, gateway->Url());
    json["gateway"]["url"] = gateway->Url();
    json["gateway"]["user"] = gateway->user;
  }
  if (const auto& mount = cluster->mount()) {
    json["mount"] = show(mount->process, mount->point);
    json["mount"]["point"] = mount->point;
  }
  if (arguments.json) Say(json.dump(2));
  return all_run ? 0 : 1;
}

}  // namespace

void AddDevCommand(CLI::App& app, Action& chosen) {
  CLI::App* dev =
      app.add_subcommand("dev", "Make and run a whole cluster in one directory of this machine");
  dev->require_subcommand(1);
  AddUp(*dev, chosen);

  auto down = std::make_shared<DevArguments>();
  AddCommand(*dev, chosen, "down", "Stop everything; its files stay", down, Down)
      ->add_flag("--delete", down->remove, "Delete DIR and all in it, too");

  auto status = std::make_shared<DevArguments>();
  AddCommand(*dev, chosen, "status", "Show what runs; exit code 1 unless all of it does", status,
             ShowDev)
      ->add_flag("--json", status->json, "Print it as JSON");

  auto kill = std::make_shared<DevArguments>();
  AddCommand(*dev, chosen, "kill", "Kill processes with SIGKILL, without warning", kill, Kill)
      ->add_option("NAME", kill->names, "The number of a drive, gateway or mount")
      ->required();

  auto start = std::make_shared<DevArguments>();
  AddCommand(*dev, chosen, "start", "Start what was killed", start, Start)
      ->add_option("NAME", start->names, "The number of a drive, gateway or mount")
      ->required();
}

}  // namespace pinstripe
