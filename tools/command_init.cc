// pinstripe init: from a short description of a site everything that its hosts need, in one
// directory.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/read_file.h"
#include "base/try.h"
#include "tools/commands.h"
#include "tools/site_directory.h"
#include "tools/site_file.h"

namespace pinstripe {
namespace {

struct InitOptions {
  std::string site;
  std::string directory;
  bool example = false;
  bool update = false;
  std::vector<DriveId> without;
  bool renew_certificates = false;
  bool rotate_keys = false;
  bool drop_old_keys = false;

  bool goes_on() const {
    return update || renew_certificates || rotate_keys || drop_old_keys || !without.empty();
  }
};

// What changed, and so what there is to type.
struct Change {
  bool everywhere = false;   // clients' files
  bool drives_only = false;  // files of hosts with disks
};

SiteStamp StampOf(Runtime& runtime) {
  return {.version = PINSTRIPE_VERSION, .made = TimeText(runtime)};
}

void PrintBundles(const SiteState& state, const std::string& directory, bool drives_only) {
  for (const SiteHost& host : state.site.hosts) {
    if (drives_only && host.disks.empty()) continue;
    fmt::print("  {:20} pinstripe join {}.tar\n", host.name, host.name);
  }
  fmt::print("The bundles are in {}. They hold keys: copy them with scp, and remove the copies.\n",
             directory);
}

size_t ServedDrives(const SiteState& state) {
  size_t drives = 0;
  for (const SiteDrive& drive : state.drives) drives += drive.retired ? 0 : 1;
  return drives;
}

size_t HostsWithDisks(const SiteState& state) {
  const auto& hosts = state.site.hosts;
  return static_cast<size_t>(
      std::ranges::count_if(hosts, [](const SiteHost& host) { return !host.disks.empty(); }));
}

void PrintSite(const SiteState& state, const std::string& directory) {
  fmt::print("The site {} has {} drives on {} hosts, layout {}+{}. It survives {}.\n",
             state.site.name, ServedDrives(state), HostsWithDisks(state),
             state.site.layout.data_shards, state.site.layout.parity_shards,
             SurvivalText(state.site));
  if (ServedDrives(state) == static_cast<size_t>(state.site.layout.shards())) {
    fmt::print(
        "It has no drive more than the layout needs: while one is away, files are written with "
        "less redundancy.\n");
  }
  fmt::print("Everything is in {}. Keep that directory, and a copy of it: it has the keys.\n\n",
             directory);
}

Result<int> MakeSite(Runtime& runtime, const InitOptions& options) {
  std::string text = TRY(ReadFile(options.site));
  SiteDescription site = TRY(ParseSite(text, options.site));
  const std::string directory = options.directory.empty() ? "site-" + site.name : options.directory;
  const SiteState state = TRY(NewSite(runtime, std::move(text), std::move(site)));
  TRY(MakeSiteDirectory(directory, state, StampOf(runtime)));
  PrintSite(state, directory);
  fmt::print("As root on each host, which has the packages and its disks mounted:\n");
  PrintBundles(state, directory, /*drives_only=*/false);
  fmt::print(
      "Then once, on a gateway or here (the owner is who the gateway runs as, on the gateway):\n"
      "  pinstripe format /etc/pinstripe/cluster.toml --owner $(id -u xrootd):$(id -g xrootd)\n"
      "  pinstripe format {}/cluster.toml\n",
      directory);
  return 0;
}

// Without a description the one counts that the site was made from.
Result<int> ChangeSite(Runtime& runtime, const InitOptions& options) {
  const std::string file = options.site.empty() ? options.directory + "/site.toml" : options.site;
  std::string text = TRY(ReadFile(file));
  SiteDescription site = TRY(ParseSite(text, file));
  const std::string path = options.directory.empty() ? "site-" + site.name : options.directory;
  SiteDirectory directory = TRY(SiteDirectory::Open(path));
  SiteState& state = directory.state();
  const std::vector<SiteDrive> before = state.drives;
  TRY(UpdateSite(runtime, std::move(text), std::move(site), options.without, state));
  if (options.renew_certificates) TRY(RenewCertificates(runtime, state));
  if (options.rotate_keys) TRY(RotateKeys(runtime, state));
  if (options.drop_old_keys) TRY(DropOldKeys(state));
  TRY(directory.Replace(StampOf(runtime)));
  PrintSite(state, path);

  const bool same_drives = state.drives == before;
  const bool drives_only = options.drop_old_keys && same_drives && !options.renew_certificates;
  fmt::print("As root on {}, one after the other:\n",
             drives_only ? "each host with disks" : "each host");
  PrintBundles(state, path, drives_only);
  if (!same_drives) {
    fmt::print(
        "When all have joined, let the cluster take the new drives:\n"
        "  pinstripe expand {}/cluster.toml\n",
        path);
  }
  if (options.rotate_keys) {
    fmt::print(
        "A host takes the new key into use when all drives believe it, so hosts that join early "
        "say that they have to join again. When every host uses it, take the old one away:\n"
        "  pinstripe init {} --directory {} --drop-old-keys\n",
        file, path);
  }
  return 0;
}

Result<int> Init(Runtime& runtime, const InitOptions& options) {
  if (options.example) {
    fmt::print("{}", ExampleSite());
    return 0;
  }
  const bool has_site = !options.site.empty() || (options.goes_on() && !options.directory.empty());
  if (!has_site) {
    fmt::print(stderr,
               "pinstripe: SITE.toml is required; `pinstripe init --example` prints one to start "
               "from\n");
    return kExitUsage;
  }
  return options.goes_on() ? ChangeSite(runtime, options) : MakeSite(runtime, options);
}

}  // namespace

void AddInitCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<InitOptions>();
  CLI::App* command = app.add_subcommand("init", "Make everything that the hosts of a site need");
  command->add_option("SITE", options->site, "SITE.toml, a description of the site");
  command->add_flag("--example", options->example, "Print a description to start from");
  command->add_option("--directory", options->directory,
                      "Where everything is made (site-NAME in the current directory)");
  command->add_flag("--update", options->update,
                    "Go on from that directory with a description that has changed");
  command
      ->add_option("--without", options->without,
                   "Go on without these drives, which were drained and are not described any more")
      ->delimiter(',');
  command->add_flag("--renew-certificates", options->renew_certificates,
                    "Go on, with new certificates for all hosts");
  command->add_flag("--rotate-keys", options->rotate_keys,
                    "Go on, with a new key beside the old one");
  command
      ->add_flag("--drop-old-keys", options->drop_old_keys,
                 "Go on, without the key that --rotate-keys has replaced")
      ->excludes("--rotate-keys");
  command->footer(
      "Makes an authority, a certificate for each host, keys, configurations, and a bundle for\n"
      "each host, which `pinstripe join` takes. The directory is complete or not there, and a\n"
      "directory that is there is never overwritten. Every mistake in SITE.toml is named.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Init(runtime, *options); };
  });
}

}  // namespace pinstripe
