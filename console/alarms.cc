#include "console/alarms.h"

#include <algorithm>

#include "console/history.h"

namespace pinstripe {
namespace {

std::string NameOf(const DriveReport& drive) {
  return drive.address.empty() ? fmt::format("drive {}", drive.id)
                               : fmt::format("drive {} ({})", drive.id, drive.address);
}

std::string Sentence(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  return text + ".";
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
    for (const Shortcoming& each : survey_.FindShortcomings()) AddShortcoming(each);
    for (const ConfigDifference& each : survey_.differences) {
      Warn(fmt::format("{} says {} is {}; the cluster has {}.", config_, each.what, each.in_file,
                       each.in_cluster),
           each.advice);
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

  void AddShortcoming(const Shortcoming& each) {
    using enum Shortcoming::Kind;
    switch (each.kind) {
      // Each drive is told of by itself.
      case kDrivesDown:
      case kDoubt:
      case kFull: break;
      case kWritesShort:
        Warn(Sentence(each.what),
             fmt::format("Bring back the drives that are down, then run `pinstripe repair {}`.",
                         config_));
        break;
      case kEngine:
        Warn(Sentence(each.what),
             "See to the engine of names: `pinstripe status` has the details.");
        break;
      case kNearlyFull:
        Warn(Sentence(each.what),
             fmt::format("Remove files, or add drives and run `pinstripe expand {}`, before they "
                         "are full.",
                         config_));
        break;
      case kDraining:
        if (IsDrainGoingOn()) Warn(Sentence(each.what), "Wait: somebody is at work on that.");
        break;
      case kUnsettled:
        Warn(Sentence(each.what), fmt::format("`pinstripe rebalance {}` finishes it.", config_));
        break;
      case kNotesUnread:
        Warn(Sentence(each.what), "Bring back the drives that keep the drive map.");
        break;
      case kLacking:
      case kReplicasBehind:
        Warn(Sentence(each.what), fmt::format("`pinstripe repair {}` writes them again.", config_));
        break;
      case kNotLookedAt:
        Warn(Sentence(each.what),
             fmt::format("`pinstripe check {}`, when all drives are up.", config_));
        break;
      case kOverdue:
        Warn(
            Sentence(each.what),
            fmt::format("`pinstripe care {}` does that now. pinstripe-care.timer does it by itself "
                        "on each host where it is enabled.",
                        config_));
        break;
    }
  }

  // And each drive that nobody drains is told of by itself.
  bool IsDrainGoingOn() const {
    return std::ranges::none_of(survey_.drives, [](const DriveReport& drive) {
      return StateOf(drive) == DriveLook::kDraining && !drive.is_work_alive;
    });
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
      case DriveLook::kDoubt: break;  // below, as others may be that, too
      case DriveLook::kDraining:
        if (drive.is_work_alive) break;
        Warn(fmt::format("Nobody drains {} now.", name),
             fmt::format("`pinstripe drain {} {}` goes on with it.", config_, drive.id));
        break;
    }
    if (!drive.doubt.empty()) {
      Warn(fmt::format("{} has no say in names and inodes: {}", name, drive.doubt),
           "It is compared with the others in the background.");
    }
    if (drive.fullness() == Fullness::kFull) {
      Warn(fmt::format("{} is full.", name),
           fmt::format("Remove files, or add drives and run `pinstripe expand {}`.", config_));
    }
  }

  const Survey& survey_;
  const std::string& config_;
  std::vector<Alarm> found_;
};

}  // namespace

std::vector<Alarm> AlarmsOf(const Survey& survey) { return Alarms(survey).Find(); }

}  // namespace pinstripe
