#include "console/alarms.h"

#include <algorithm>

#include "console/history.h"

namespace pinstripe {
namespace {

std::string NameOf(const DriveReport& drive) {
  return drive.address.empty() ? fmt::format("drive {}", drive.id)
                               : fmt::format("drive {} ({})", drive.id, drive.address);
}

class Alarms {
 public:
  explicit Alarms(const Survey& survey) : survey_(survey), config_(survey.config.file) {}

  std::vector<Alarm> Find() {
    if (!survey_.opened.ok()) {
      Error(fmt::format("The cluster cannot be opened: {}", survey_.opened.message()),
            "The drives that are down come first: start their pinstriped.");
    }
    for (const std::string& what : survey_.OutOfReach()) {
      Error(what + ".", "Bring back the drives that are down, before anything else.");
    }
    if (survey_.IsLost()) {
      Error("The last look found something that is lost or damaged.",
            fmt::format("`pinstripe verify {}` names it.", config_));
    }
    for (const DriveReport& drive : survey_.drives) AddDrive(drive);
    const auto any = [this](uint64_t LastLook::*what) {
      return (survey_.listed && (*survey_.listed).*what > 0) ||
             (survey_.read && (*survey_.read).*what > 0);
    };
    if (any(&LastLook::lacking) || any(&LastLook::replicas_behind)) {
      Warn("Files lack shards, or names and inodes lack copies.",
           fmt::format("`pinstripe repair {}` writes them again.", config_));
    }
    if (any(&LastLook::not_looked_at)) {
      Warn("The last look could not look at everything.",
           fmt::format("`pinstripe check {}`, when all drives are up.", config_));
    }
    for (const ConfigDifference& each : survey_.differences) {
      Warn(fmt::format("{} says {} is {}; the cluster has {}.", config_, each.what, each.in_file,
                       each.in_cluster),
           each.advice);
    }
    if (survey_.opened.ok() && !survey_.settled) {
      Warn("The change of the drive map is not complete.",
           fmt::format("`pinstripe rebalance {}` finishes it.", config_));
    }
    std::ranges::stable_sort(
        found_, [](const Alarm& a, const Alarm& b) { return a.is_error && !b.is_error; });
    return std::move(found_);
  }

 private:
  void Error(std::string what, std::string way_out) {
    found_.push_back({true, std::move(what), std::move(way_out)});
  }
  void Warn(std::string what, std::string way_out) {
    found_.push_back({false, std::move(what), std::move(way_out)});
  }

  void AddDrive(const DriveReport& drive) {
    const std::string name = NameOf(drive);
    const std::string replace = fmt::format(
        "put an empty disk in its place and run `pinstripe rebuild {} {}`.", config_, drive.id);
    switch (StateOf(drive)) {
      case DriveLook::kUp:
      case DriveLook::kDrained: break;
      case DriveLook::kDown:
        Error(fmt::format("{} is down: {}", name, drive.info.error().WithoutDriveName()),
              fmt::format("Start pinstriped on its host. If its disk is lost, {}", replace));
        break;
      case DriveLook::kMissing:
        Error(fmt::format("{} is missing: {}", name, drive.info.error().WithoutDriveName()),
              fmt::format("List it in {} again.", config_));
        break;
      case DriveLook::kFailed:
        Error(fmt::format("{} takes no changes any more: {}", name, drive.info->failure),
              fmt::format("Replace its disk: {}", replace));
        break;
      case DriveLook::kNew:
        Warn(fmt::format("{} is listed, and was not added yet.", name),
             fmt::format("`pinstripe expand {}` adds it.", config_));
        break;
      case DriveLook::kFull:
        Warn(fmt::format("{} is full.", name),
             fmt::format("Remove files, or add drives and run `pinstripe expand {}`.", config_));
        break;
      case DriveLook::kDoubt:
        Warn(fmt::format("{} has no say in names and inodes: {}", name, drive.doubt),
             "It is compared with the others in the background.");
        break;
      case DriveLook::kDraining:
        if (drive.is_work_alive) break;
        Warn(fmt::format("Nobody drains {} now.", name),
             fmt::format("`pinstripe drain {} {}` goes on with it.", config_, drive.id));
        break;
    }
  }

  const Survey& survey_;
  const std::string& config_;
  std::vector<Alarm> found_;
};

}  // namespace

std::vector<Alarm> AlarmsOf(const Survey& survey) { return Alarms(survey).Find(); }

}  // namespace pinstripe
