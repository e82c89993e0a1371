// pinstripe init: from a short description of a site everything that its hosts need, in one
// directory.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/read_file.h"
#include "base/try.h"
#include "tools/commands.h"
#include "tools/drive_probe.h"
#include "tools/site_directory.h"
#include "tools/site_file.h"
#include "upkeep/command_cluster.h"
#include "upkeep/stop.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

struct InitOptions {
  std::string site;
  std::string directory;
  bool example = false;
  bool update = false;
  std::vector<DriveId> without;
  std::vector<std::string> moves;  // "10=store5:/srv/disk4"
  bool renew_certificates = false;
  bool renew_authority = false;
  bool rotate_keys = false;
  bool drop_old_keys = false;
  bool force = false;

  bool goes_on() const {
    return update || renew_certificates || renew_authority || rotate_keys || drop_old_keys ||
           !without.empty() || !moves.empty();
  }
};

constexpr Duration kPatienceWithDrives = std::chrono::seconds(5);

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

// Whoever has the old key alone is shut out when drives forget it, so they have to believe the new
// one before.
Status CheckThatDrivesBelieve(Runtime& runtime, const SiteState& state, const std::string& path) {
  ClusterConfig config = TRY(ClusterConfig::Load(path + "/cluster.toml"));
  for (const SiteIdentity& one : state.keys.identities) {
    if (one.id != state.keys.current) continue;
    for (DriveConfig& drive : config.drives) {
      drive.credentials.identity = one.id;
      drive.credentials.key = one.key;
    }
  }
  const auto answers = TRY(AskAllDrives(runtime, config, kPatienceWithDrives));
  std::vector<std::string> doubts;
  for (const auto& [id, answer] : answers) {
    if (answer.has_value()) continue;
    doubts.push_back(fmt::format("  drive {}: {}", id, answer.error().WithoutDriveName()));
  }
  if (doubts.empty()) return {};
  return Fail(EBUSY,
              "the old key stays, because drives do not take the new one:\n{}\nJoin their hosts "
              "first. --force drops it all the same, for drives that cannot be reached from here",
              fmt::join(doubts, "\n"));
}

// Whatever a drive still has that is needed would be out of reach as soon as nobody lists it.
Status CheckThatDrivesMayGo(Runtime& runtime, const std::vector<DriveId>& without,
                            const std::string& path) {
  constexpr std::string_view kForce = "--force takes them out all the same";
  const Survey survey = TRY(TakeSurvey(runtime, path + "/cluster.toml"));
  if (!survey.opened.ok()) {
    return Fail(EBUSY, "nobody knows whether the drives may go: {}\n{}", survey.opened.message(),
                kForce);
  }
  std::vector<std::string> doubts;
  for (const DriveReport& drive : survey.drives) {
    if (std::ranges::count(without, drive.id) == 0 || !drive.is_added) continue;
    if (drive.drain && drive.drain->retired) continue;
    doubts.push_back(drive.drain && drive.drain->keeps_map
                         ? fmt::format("  drive {} keeps a part of the drive map: leave it in, as "
                                       "small as it likes to be, or have it go on elsewhere with "
                                       "--move {}=HOST:DISK",
                                       drive.id, drive.id)
                         : fmt::format("  drive {} is not drained to its end: `pinstripe {} "
                                       "{}/cluster.toml{}` first",
                                       drive.id, drive.drain ? "rebalance" : "drain", path,
                                       drive.drain ? "" : fmt::format(" {}", drive.id)));
  }
  if (doubts.empty()) return {};
  return Fail(EBUSY, "not all drives may go:\n{}\n{}", fmt::join(doubts, "\n"), kForce);
}

// A drive that moves is lost for as long as its new place is empty.
Status CheckThatDrivesMayMove(Runtime& runtime, const std::vector<SiteMove>& moves,
                              const std::string& path) {
  constexpr std::string_view kForce = "--force moves them all the same";
  const auto connected = ConnectCommand(runtime, path + "/cluster.toml");
  if (!connected) {
    return Fail(EBUSY, "nobody knows whether the drives may move: {}\n{}",
                connected.error().message(), kForce);
  }
  Cluster& cluster = (*connected)->cluster();
  std::vector<std::string> ids;
  for (const SiteMove& move : moves) ids.push_back(fmt::format("{}", move.id));
  const StopAnswer answer = TRY(MayStop(cluster, SurveyOf(cluster), ids));
  if (answer.verdict == StopAnswer::Verdict::kYes) return {};
  return Fail(EBUSY,
              "the cluster cannot be without drives {} now, which it is until `pinstripe rebuild` "
              "has filled their new places:\n  {}\n{}",
              fmt::join(ids, ", "), fmt::join(answer.risks, "\n  "), kForce);
}

Result<SiteChange> ChangeOf(const InitOptions& options) {
  SiteChange change{.without = options.without, .moves = {}};
  for (const std::string& text : options.moves) change.moves.push_back(TRY(ParseMove(text)));
  return change;
}

// Without a description the one counts that the site was made from.
Result<int> ChangeSite(Runtime& runtime, const InitOptions& options) {
  const std::string file = options.site.empty() ? options.directory + "/site.toml" : options.site;
  std::string text = TRY(ReadFile(file));
  SiteDescription site = TRY(ParseSite(text, file));
  const std::string path = options.directory.empty() ? "site-" + site.name : options.directory;
  SiteDirectory directory = TRY(SiteDirectory::Open(path));
  SiteState& state = directory.state();
  const SiteState before = state;
  const SiteChange change = TRY(ChangeOf(options));
  TRY(UpdateSite(runtime, std::move(text), std::move(site), change, state));
  if (!change.without.empty() && !options.force) {
    TRY(CheckThatDrivesMayGo(runtime, change.without, path));
  }
  if (!change.moves.empty() && !options.force) {
    TRY(CheckThatDrivesMayMove(runtime, change.moves, path));
  }
  if (options.renew_certificates) TRY(RenewCertificates(runtime, state));
  if (options.renew_authority) TRY(RenewAuthority(runtime, state));
  if (options.rotate_keys) TRY(RotateKeys(runtime, state));
  if (options.drop_old_keys) {
    if (!options.force && state.keys.identities.size() > 1) {
      TRY(CheckThatDrivesBelieve(runtime, state, path));
    }
    TRY(DropOldKeys(state));
  }
  TRY(directory.Replace(StampOf(runtime)));
  PrintSite(state, path);

  const bool same_drives = state.drives == before.drives;
  const bool drives_only =
      options.drop_old_keys && same_drives && state.description == before.description &&
      state.certificates == before.certificates && state.authority == before.authority;
  if (options.drop_old_keys) {
    std::vector<std::string> hosts;
    for (const SiteHost& host : state.site.hosts) hosts.push_back(host.name);
    fmt::print(
        "The drives forget the old key when their hosts join. Before that, be sure that `pinstripe "
        "join` has said \"This host uses the new key\" on each of {}, and give the console and "
        "every other copy of credentials.toml the new one.\n",
        fmt::join(hosts, ", "));
  }
  fmt::print("As root on {}, one after the other:\n",
             drives_only ? "each host with disks" : "each host");
  PrintBundles(state, path, drives_only);
  if (!same_drives) {
    fmt::print(
        "A console has a copy of cluster.toml. Where it runs:\n"
        "  cp {}/cluster.toml /etc/pinstripe/console/ && systemctl reload pinstripe-console\n",
        path);
  }
  if (state.drives.size() > before.drives.size()) {
    fmt::print(
        "When all have joined, let the cluster take the new drives:\n"
        "  pinstripe expand {}/cluster.toml\n",
        path);
  }
  for (const SiteMove& move : change.moves) {
    fmt::print(
        "When all have joined, and nobody serves the old drive {} any more, fill its new place:\n"
        "  pinstripe rebuild {}/cluster.toml {}\n",
        move.id, path, move.id);
  }
  if (options.renew_authority) {
    fmt::print(
        "When every host has joined, and so believes the new authority, let it certify them:\n"
        "  pinstripe init {} --directory {} --renew-certificates\n",
        file, path);
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
  command->add_option("--move", options->moves,
                      "Go on with a drive in another place, as 10=store5:/srv/pinstripe/disk4");
  command->add_flag("--renew-certificates", options->renew_certificates,
                    "Go on, with new certificates for all hosts");
  command
      ->add_flag("--renew-authority", options->renew_authority,
                 "Go on, with a new authority beside the old one")
      ->excludes("--renew-certificates");
  command->add_flag("--rotate-keys", options->rotate_keys,
                    "Go on, with a new key beside the old one");
  command
      ->add_flag("--drop-old-keys", options->drop_old_keys,
                 "Go on, without the key that --rotate-keys has replaced")
      ->excludes("--rotate-keys");
  command->add_flag("--force", options->force,
                    "With --drop-old-keys, --without or --move: do not ask whether that may be");
  command->footer(
      "Makes an authority, a certificate for each host, keys, configurations, and a bundle for\n"
      "each host, which `pinstripe join` takes. The directory is complete or not there, and a\n"
      "directory that is there is never overwritten. Every mistake in SITE.toml is named.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Init(runtime, *options); };
  });
}

}  // namespace pinstripe
