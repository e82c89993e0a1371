// pinstripe join: this host becomes one of a site. It checks the disks, puts the files of its
// bundle into place and starts what the host is to run.

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/private_file.h"
#include "base/read_file.h"
#include "base/try.h"
#include "tools/bundle.h"
#include "tools/commands.h"
#include "tools/disk_look.h"
#include "tools/drive_probe.h"
#include "tools/file_writing.h"
#include "tools/join_plan.h"
#include "tools/package_sample.h"
#include "tools/process.h"
#include "tools/programs.h"
#include "tools/run_program.h"
#include "tools/site_authority.h"
#include "tools/site_plan.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr int kExitAgain = 3;  // the host has to join once more
constexpr Duration kPatienceWithDrives = std::chrono::seconds(2);
constexpr Duration kPatienceWithPrograms = std::chrono::seconds(150);
constexpr const char* kRecord = "/etc/pinstripe/joined.toml";
constexpr const char* kClientKeys = "/etc/pinstripe/credentials.toml";

struct JoinOptions {
  std::string bundle;
  std::string as;
  std::string root;  // where the host's files are: "" is the host itself
  bool shared_disks = false;
  bool force = false;
};

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

class Join {
 public:
  Join(Runtime& runtime, const JoinOptions& options) : runtime_(runtime), options_(options) {}

  Result<int> Run() {
    TRY(ReadBundle());
    TRY(FindUsers());
    TRY(CheckDisks());
    TRY(LookAtFiles());
    TRY(MakeDrives());
    TRY(WriteFiles());
    TRY(MakeMountPoints());
    TRY(TellSystemd(PlanUnits(bundle_, written_)));
    return keys_change_ ? ChangeKeys() : 0;
  }

 private:
  std::string Place(const std::string& path) const { return options_.root + path; }

  Status ReadBundle() {
    TRY(CheckPrivateFile(options_.bundle));
    bundle_ = TRY_CONTEXT(UnpackBundle(TRY(ReadFile(options_.bundle))), "{} cannot be used",
                          options_.bundle);
    const std::string hostname = options_.as.empty() ? HostName() : options_.as;
    if (const std::string why = WhyNotForHost(bundle_, hostname); !why.empty()) {
      return Fail(EINVAL, "{}", why);
    }
    if (options_.root.empty() && geteuid() != 0) {
      return Fail(EPERM, "joining takes root, because it writes below /etc and starts units");
    }
    fmt::print("{}: host {} of the site {}, made {} by version {}\n", options_.bundle, bundle_.host,
               bundle_.site, bundle_.made, bundle_.version);
    return {};
  }

  // In another root there may be no packages yet, and its numbers may be others.
  Status FindUsers() {
    for (const BundleFile& file : bundle_.files) TRY(FindUser(file.owner));
    if (!bundle_.disks.empty()) TRY(FindUser("pinstripe"));
    return {};
  }
  Status FindUser(const std::string& name) {
    if (users_.contains(name)) return {};
    if (!options_.root.empty()) {
      users_[name] = OwnerInRoot(name);
      return {};
    }
    const Result<UnixUser> user = FindUnixUser(name);
    if (!user) {
      const char* package = name == "xrootd" ? "xrootd-pinstripe" : "pinstriped";
      return Fail(ENOENT, "there is no user {} on this host: install the package {} first", name,
                  package);
    }
    users_[name] = FileOwner{.user = user->user, .group = user->group};
    return {};
  }
  // As its own /etc/passwd says. Null: the caller.
  std::optional<FileOwner> OwnerInRoot(const std::string& name) const {
    if (geteuid() != 0) return std::nullopt;
    std::ifstream passwd(Place("/etc/passwd"));
    for (std::string line; std::getline(passwd, line);) {
      unsigned user = 0, group = 0;
      if (line.starts_with(name + ":") &&
          std::sscanf(line.c_str() + name.size(), ":%*[^:]:%u:%u:", &user, &group) == 2) {
        return FileOwner{.user = user, .group = group};
      }
    }
    return std::nullopt;
  }

  Status CheckDisks() {
    std::vector<DiskReading> readings;
    for (const std::string& disk : bundle_.disks) {
      readings.push_back(ReadDisk(runtime_, disk, Place(disk)));
    }
    const std::vector<Diagnosis> diagnoses = JudgeDisks(readings, options_.shared_disks);
    fmt::print("{}", DiagnosesText(diagnoses));
    if (WorstOf(diagnoses) == DiagnosisLevel::kError) {
      return Fail(EINVAL, "disks cannot be used, and nothing was changed{}",
                  options_.shared_disks ? ""
                                        : ": --shared-disks takes directories that are no disks of "
                                          "their own, to try it");
    }
    for (const DiskReading& reading : readings) {
      if (!reading.is_drive) new_drives_.push_back(reading.directory);
    }
    return {};
  }

  Status LookAtFiles() {
    const std::string record_file = Place(kRecord);
    if (fs::exists(record_file)) {
      record_ = TRY(ParseJoinRecord(TRY(ReadFile(record_file)), record_file));
      if (record_->site != bundle_.site && !options_.force) {
        return Fail(EEXIST,
                    "this host belongs to the site {}, and the bundle is of the site {}: --force "
                    "makes it leave the one for the other",
                    record_->site, bundle_.site);
      }
    }
    std::map<std::string, PresentFile> present;
    for (const BundleFile& file : bundle_.files) present[file.path] = TRY(Present(file));
    steps_ = PlanFiles(bundle_, record_, present);
    const bool had_keys = record_ && record_->sha256.contains(kClientKeys);
    keys_change_ = had_keys && steps_[KeysIndex()] == FileStep::kChange && !options_.force &&
                   *present.at(kClientKeys).contents != bundle_.files[KeysIndex()].contents;
    std::vector<std::string> edited;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i] == FileStep::kEdited) edited.push_back(bundle_.files[i].path);
    }
    if (!edited.empty() && !options_.force) {
      return Fail(EEXIST,
                  "somebody has edited {}; nothing was changed. Bring what is to stay into "
                  "SITE.toml or keep a copy of it, and say --force to replace {}",
                  fmt::join(edited, ", "), edited.size() == 1 ? "it" : "them");
    }
    return {};
  }

  Result<PresentFile> Present(const BundleFile& file) {
    PresentFile present;
    struct stat about {};
    const std::string place = Place(file.path);
    if (lstat(place.c_str(), &about) != 0) {
      const int code = errno;
      if (code == ENOENT) return present;
      return Fail(code, "cannot look at {}: {}", place, ErrnoText(code));
    }
    present.contents = TRY(ReadFile(place));
    const std::optional<FileOwner>& owner = users_.at(file.owner);
    present.right_owner_and_mode =
        (about.st_mode & 07777) == file.mode &&
        (!owner || (about.st_uid == owner->user && about.st_gid == owner->group));
    present.is_sample =
        IsPackageSample(options_.root, fs::path(file.path).filename(), *present.contents);
    return present;
  }

  // Who works with an old key goes on with it until all drives believe the new one. Those of this
  // host were told of it just now.
  Result<int> ChangeKeys() {
    const ClusterConfig config = TRY(NewConfig());
    const auto answers = TRY(AskAllDrives(runtime_, config, kPatienceWithDrives));
    bool wait = false;
    for (const auto& [id, answer] : answers) {
      if (answer.has_value()) continue;
      const auto drive = std::ranges::find(config.drives, id, &DriveConfig::id);
      fmt::print("drive {} ({}) does not take the new key: {}\n", id, drive->addresses.front(),
                 answer.error().WithoutDriveName());
      wait = true;
    }
    if (wait) {
      fmt::print(
          "This host goes on with the old key. Join here again when the other hosts have joined "
          "and their drives are up.\n");
      return kExitAgain;
    }
    const size_t keys = KeysIndex();
    TRY(WriteFile(keys));
    record_->sha256[kClientKeys] = Sha256(bundle_.files[keys].contents);
    TRY(WriteRecord());
    std::vector<std::vector<std::string>> signals;
    for (auto& call : PlanUnits(bundle_, {kClientKeys})) {
      if (call.front() == "try-reload-or-restart") signals.push_back(std::move(call));
    }
    TRY(TellSystemd(signals));
    fmt::print("This host uses the new key.\n");
    return 0;
  }

  size_t KeysIndex() const {
    const auto keys = std::ranges::find(bundle_.files, kClientKeys, &BundleFile::path);
    return static_cast<size_t>(keys - bundle_.files.begin());
  }

  // As the bundle has it.
  Result<ClusterConfig> NewConfig() {
    std::string directory = Place("/etc/pinstripe/.join-XXXXXX");
    if (mkdtemp(directory.data()) == nullptr) {
      const int code = errno;
      return Fail(code, "cannot make {}: {}", directory, ErrnoText(code));
    }
    const Result<ClusterConfig> config = LoadIn(directory);
    std::error_code ignored;
    fs::remove_all(directory, ignored);
    return config;
  }
  Result<ClusterConfig> LoadIn(const std::string& directory) {
    for (const BundleFile& file : bundle_.files) {
      if (!file.path.starts_with(kConfigDirectory)) continue;
      const std::string name = fs::path(file.path).filename();
      TRY(WriteNewFile(directory + "/" + name, file.contents, 0600));
    }
    return ClusterConfig::Load(directory + "/cluster.toml");
  }

  Status MakeDrives() {
    if (new_drives_.empty()) return {};
    const std::string program = TRY(FindProgram("pinstriped", "daemon"));
    const std::optional<FileOwner>& owner = users_.at("pinstripe");
    for (const std::string& directory : new_drives_) {
      const std::string place = Place(directory);
      if (owner && chown(place.c_str(), owner->user, owner->group) != 0) {
        const int code = errno;
        return Fail(code, "cannot change the owner of {}: {}", place, ErrnoText(code));
      }
      const ProgramOutcome outcome =
          TRY(RunProgram(runtime_, {program, "--init", place}, kPatienceWithPrograms));
      if (outcome.exit_code != 0) {
        return Fail(EIO, "{} does not become a drive: {}", directory, outcome.output);
      }
      fmt::print("{}: is a new, empty drive\n", directory);
    }
    return {};
  }

  Status WriteFiles() {
    for (const BundleFile& file : bundle_.files) {
      const fs::path directory = fs::path(Place(file.path)).parent_path();
      std::error_code error;
      fs::create_directories(directory, error);
      if (error) {
        return Fail(error.value(), "cannot make {}: {}", directory.string(), error.message());
      }
    }
    JoinRecord record{.site = bundle_.site, .host = bundle_.host, .version = bundle_.version};
    for (size_t i = 0; i < steps_.size(); ++i) {
      const BundleFile& file = bundle_.files[i];
      if (keys_change_ && file.path == kClientKeys) {
        record.sha256[file.path] = record_->sha256.at(file.path);
        continue;
      }
      record.sha256[file.path] = Sha256(file.contents);
      if (steps_[i] != FileStep::kKeep) TRY(WriteFile(i));
    }
    if (record_ && record_->site == bundle_.site) {
      for (const auto& [path, sum] : record_->sha256) {
        if (record.sha256.contains(path)) continue;
        fmt::print("{}: is of no use to this host any more, and stays\n", path);
      }
    }
    if (written_.empty()) fmt::print("All files are as they should be.\n");
    record_ = std::move(record);
    return WriteRecord();
  }

  Status WriteFile(size_t i) {
    const BundleFile& file = bundle_.files[i];
    TRY(ReplaceFile(Place(file.path), file.contents, file.mode, users_.at(file.owner)));
    written_.insert(file.path);
    fmt::print("{}: {}\n", file.path, steps_[i] == FileStep::kAdd ? "is there" : "is replaced");
    return {};
  }

  Status WriteRecord() {
    return ReplaceFile(Place(kRecord), JoinRecordText(*record_), 0644, users_.at("root"));
  }

  Status MakeMountPoints() {
    for (const std::string& mount : bundle_.mounts) {
      std::error_code error;
      // Of a mount that has died it is there, and cannot be looked at.
      if (fs::status(Place(mount), error).type() == fs::file_type::not_found) {
        fs::create_directories(Place(mount), error);
        if (error) return Fail(error.value(), "cannot make {}: {}", mount, error.message());
      }
    }
    return {};
  }

  Status TellSystemd(const std::vector<std::vector<std::string>>& calls) {
    if (calls.empty()) return {};
    const bool runs = options_.root.empty() && fs::exists("/run/systemd/system");
    if (!runs) {
      fmt::print("systemd does not run here. What it is to be told, as far as it was not yet:\n");
    }
    for (const std::vector<std::string>& arguments : calls) {
      fmt::print("  systemctl {}\n", fmt::join(arguments, " "));
      if (!runs) continue;
      std::vector<std::string> command = {"systemctl"};
      command.insert(command.end(), arguments.begin(), arguments.end());
      const ProgramOutcome outcome = TRY(RunProgram(runtime_, command, kPatienceWithPrograms));
      if (outcome.exit_code == 0) continue;
      return Fail(EIO, "`{}` says: {}`journalctl -u {}` has more", fmt::join(command, " "),
                  outcome.output, arguments.back());
    }
    return {};
  }

  Runtime& runtime_;
  const JoinOptions& options_;
  Bundle bundle_;
  std::optional<JoinRecord> record_;  // of the last time
  std::map<std::string, std::optional<FileOwner>> users_;
  std::vector<std::string> new_drives_;
  std::vector<FileStep> steps_;
  bool keys_change_ = false;  // clients on this host have another key so far
  std::set<std::string> written_;
};

}  // namespace

void AddJoinCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<JoinOptions>();
  CLI::App* command = app.add_subcommand("join", "Make this host one of a site");
  command->add_option("BUNDLE", options->bundle, "HOST.tar, made by `pinstripe init`")->required();
  command->add_option("--as", options->as, "The host that this machine is (what `hostname` says)");
  command->add_option("--root", options->root,
                      "Where the host's files are, for images: nothing is started");
  command->add_flag("--shared-disks", options->shared_disks,
                    "Take directories that are no disks of their own, to try it");
  command->add_flag("--force", options->force,
                    "Replace files that somebody has edited, and do not wait for drives");
  command->footer(
      "Checks the disks, makes their directories drives, puts the files into place and starts the\n"
      "units. It may run again at any time: it takes what changed in the bundle.\n"
      "Exit code: 0 done; 1 failed; 3 done but for a new key that some drives do not believe yet,\n"
      "so join again later.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Join(runtime, *options).Run(); };
  });
}

}  // namespace pinstripe
