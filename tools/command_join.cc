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

#include "base/program.h"
#include "base/read_file.h"
#include "base/try.h"
#include "tools/bundle.h"
#include "tools/commands.h"
#include "tools/disk_look.h"
#include "tools/draft.h"
#include "tools/drive_probe.h"
#include "tools/file_writing.h"
#include "tools/join_plan.h"
#include "tools/new_drive.h"
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
// Daemons that were just told of a key read it a little later.
constexpr Duration kPatienceWithKeys = std::chrono::seconds(5);
constexpr Duration kPause = std::chrono::milliseconds(200);
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

class Join {
 public:
  Join(Runtime& runtime, const JoinOptions& options) : runtime_(runtime), options_(options) {}

  Result<int> Run() {
    TRY(ReadBundle());
    TRY(FindUsers());
    TRY(ReadRecord());
    TRY(CheckDisks());
    TRY(LookAtFiles());
    TRY(MakeDrives());
    TRY(WriteFiles());
    TRY(MakeMountPoints());
    TRY(TellPrograms());
    return keys_change_ ? ChangeKeys() : 0;
  }

 private:
  std::string Place(const std::string& path) const { return options_.root + path; }

  Status ReadBundle() {
    bundle_ = TRY_CONTEXT(UnpackBundle(TRY(ReadBundleFile(options_.bundle))), "{} cannot be used",
                          options_.bundle);
    if (auto unit_file = UnitFileOf(bundle_)) bundle_.files.push_back(*std::move(unit_file));
    if (KeysIndex() == bundle_.files.size()) {
      return Fail(EBADMSG, "{} cannot be used: it lacks {}", options_.bundle, kClientKeys);
    }
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

  Status ReadRecord() {
    const std::string record_file = Place(kRecord);
    if (!fs::exists(record_file)) return {};
    record_ = TRY(ParseJoinRecord(TRY(ReadFile(record_file)), record_file));
    if (options_.force) return {};
    if (record_->site != bundle_.site) {
      return Fail(EEXIST,
                  "this host belongs to the site {}, and the bundle is of the site {}: --force "
                  "makes it leave the one for the other",
                  record_->site, bundle_.site);
    }
    if (const std::string why = WhyTooOld(bundle_, *record_); !why.empty()) {
      return Fail(ESTALE, "{}", why);
    }
    return {};
  }

  // What becomes a drive is held open from here on.
  Status CheckDisks() {
    std::vector<DiskReading> readings;
    for (const std::string& disk : bundle_.disks) {
      readings.push_back(ReadDisk(runtime_, disk, Place(disk)));
    }
    std::vector<Diagnosis> diagnoses = JudgeDisks(readings, options_.shared_disks);
    for (const DiskReading& reading : readings) {
      if (!reading.looked.ok() || reading.is_drive) continue;
      if (record_ && std::ranges::count(record_->drives, reading.directory) > 0) {
        diagnoses.push_back({DiagnosisLevel::kError, reading.directory,
                             "was a drive when this host joined, and is none now",
                             fmt::format("mount its disk; for a new disk in its place, run "
                                         "`pinstriped --init {}` as the user pinstripe",
                                         reading.directory)});
        continue;
      }
      Result<NewDrive> drive = NewDrive::Open(reading.directory, Place(reading.directory));
      if (drive) {
        new_drives_.push_back(*std::move(drive));
      } else {
        diagnoses.push_back({DiagnosisLevel::kError, reading.directory,
                             fmt::format("cannot become a drive: {}", drive.error().message()),
                             "give each drive an empty directory of its own"});
      }
    }
    fmt::print("{}", DiagnosesText(diagnoses));
    if (WorstOf(diagnoses) == DiagnosisLevel::kError) {
      return Fail(EINVAL, "disks cannot be used, and nothing was changed{}",
                  options_.shared_disks ? ""
                                        : ": --shared-disks takes directories that are no disks of "
                                          "their own, to try it");
    }
    return {};
  }

  Status LookAtFiles() {
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
    const auto answers = TRY(AskUntilAllBelieve(config));
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
    const std::string sum = Sha256(bundle_.files[keys].contents);
    record_->coming[kClientKeys] = sum;
    record_->pending.insert(kClientKeys);
    TRY(WriteRecord());
    TRY(WriteFile(keys));
    record_->sha256[kClientKeys] = sum;
    record_->coming.clear();
    TRY(WriteRecord());
    TRY(TellPrograms());
    fmt::print("This host uses the new key.\n");
    return 0;
  }
  Result<std::map<DriveId, Result<DriveInfo>>> AskUntilAllBelieve(const ClusterConfig& config) {
    const TimeLimit limit(runtime_, kPatienceWithKeys);
    const std::shared_ptr<Signal> nobody = runtime_.NewSignal();
    for (;;) {
      auto answers = TRY(AskAllDrives(runtime_, config, kPatienceWithDrives));
      const bool all = std::ranges::all_of(
          answers, [](const auto& answer) { return answer.second.has_value(); });
      if (all || limit.has_passed()) return answers;
      nobody->WaitUntil(runtime_.Now() + kPause);
    }
  }

  size_t KeysIndex() const {
    const auto keys = std::ranges::find(bundle_.files, kClientKeys, &BundleFile::path);
    return static_cast<size_t>(keys - bundle_.files.begin());
  }

  // As the bundle has it.
  Result<ClusterConfig> NewConfig() {
    const Draft draft = TRY(Draft::Make(Place("/etc/pinstripe/.join-")));
    return LoadIn(draft.path());
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
    for (const NewDrive& drive : new_drives_) {
      const std::string& directory = drive.directory();
      if (owner) TRY(drive.GiveTo(*owner));
      const ProgramOutcome outcome =
          TRY(RunProgram(runtime_, {program, "--init", Place(directory)}, kPatienceWithPrograms));
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
    // A join that is stopped from here on is known by its record, and gone on with by the next one.
    JoinRecord record{.site = bundle_.site,
                      .host = bundle_.host,
                      .version = bundle_.version,
                      .generation = bundle_.generation,
                      .drives = bundle_.disks};
    if (record_) record.pending = record_->pending;
    JoinRecord before = record;
    if (record_) before.sha256 = record_->sha256;
    std::vector<size_t> to_write;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const BundleFile& file = bundle_.files[i];
      if (keys_change_ && file.path == kClientKeys) {
        record.sha256[file.path] = record_->sha256.at(file.path);
        continue;
      }
      record.sha256[file.path] = Sha256(file.contents);
      if (steps_[i] == FileStep::kKeep) continue;
      to_write.push_back(i);
      before.coming[file.path] = record.sha256[file.path];
      before.pending.insert(file.path);
    }
    if (record_ && record_->site == bundle_.site) {
      for (const auto& [path, sum] : record_->sha256) {
        if (record.sha256.contains(path)) continue;
        fmt::print("{}: is of no use to this host any more, and stays\n", path);
      }
    }
    if (to_write.empty()) {
      fmt::print("All files are as they should be.\n");
    } else {
      record.pending = before.pending;
      record_ = std::move(before);
      TRY(WriteRecord());
      for (const size_t i : to_write) TRY(WriteFile(i));
    }
    record_ = std::move(record);
    return WriteRecord();
  }

  Status WriteFile(size_t i) {
    const BundleFile& file = bundle_.files[i];
    TRY(ReplaceFile(Place(file.path), file.contents, file.mode, users_.at(file.owner)));
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

  bool SystemdRuns() const { return options_.root.empty() && fs::exists("/run/systemd/system"); }

  // Of everything that no program was told of yet, also by a join that was stopped.
  Status TellPrograms() {
    TRY(TellSystemd(PlanUnits(bundle_, record_->pending)));
    if (record_->pending.empty()) return {};
    record_->pending.clear();
    return WriteRecord();
  }

  Status TellSystemd(const std::vector<std::vector<std::string>>& calls) {
    if (calls.empty()) return {};
    const bool runs = SystemdRuns();
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
  std::vector<NewDrive> new_drives_;
  std::vector<FileStep> steps_;
  bool keys_change_ = false;  // clients on this host have another key so far
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
