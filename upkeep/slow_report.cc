#include "upkeep/slow_report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "cluster/connect.h"
#include "cluster/gather.h"
#include "kinetic/io.h"
#include "kinetic/kinetic_drive.h"

namespace pinstripe {
namespace {

// What names a request: its connection, and its number on that.
using RequestName = std::pair<uint64_t, uint64_t>;

struct AtDrive {
  const ClusterSlow::OfDrive* drive = nullptr;
  const SlowRequest* request = nullptr;
};

const ClusterSlow::OfDrive* DriveOf(const ClusterSlow& slow, uint32_t id) {
  const auto found = std::ranges::find(slow.drives, id, &ClusterSlow::OfDrive::id);
  return found == slow.drives.end() ? nullptr : &*found;
}

SlowPart PartOf(const SlowOperation::Request& request, const ClusterSlow& slow,
                const std::map<RequestName, AtDrive>& at_drives) {
  SlowPart part{.drive = static_cast<DriveId>(request.drive), .waited = request.waited};
  const auto found = at_drives.find({request.waited.connection, request.waited.sequence});
  const bool is_known = found != at_drives.end();
  const ClusterSlow::OfDrive* const drive =
      is_known ? found->second.drive : DriveOf(slow, request.drive);
  if (drive != nullptr) {
    part.drive = drive->id;
    part.address = drive->address;
  }
  if (is_known) {
    part.at_drive = *found->second.request;
  } else if (drive == nullptr || !drive->slow.has_value()) {
    part.tells = SlowPart::Drive::kIsSilent;
  } else if (request.waited.took < drive->slow->slow_after ||
             drive->slow->slow_after == Duration()) {
    part.tells = SlowPart::Drive::kWasQuick;
  } else {
    part.tells = SlowPart::Drive::kKnowsNothing;
  }
  return part;
}

}  // namespace

size_t ClusterSlow::Silent() const {
  return std::ranges::count_if(drives, [](const OfDrive& each) { return !each.slow.has_value(); });
}

ClusterSlow AskSlow(Runtime& runtime, const ClusterConfig& config) {
  KineticIo io(runtime);
  ClusterSlow all;
  std::vector<std::unique_ptr<KineticDrive>> drives;
  Gather<Result<DriveSlow>> answers(runtime);
  const Time deadline = runtime.Now() + config.drive_timeout;
  for (const DriveConfig& each : config.drives) {
    ClusterSlow::OfDrive& asked = all.drives.emplace_back(
        ClusterSlow::OfDrive{.id = each.id,
                             .address = each.addresses.empty() ? "" : each.addresses.front(),
                             .slow = tl::unexpected(Status(ETIMEDOUT, "no answer"))});
    auto drive = ConnectDrive(io, each, config.drive_timeout);
    if (!drive.has_value()) {
      asked.slow = tl::unexpected(drive.error());
      continue;
    }
    (*drive)->AskSlow(deadline, answers.Ask(all.drives.size() - 1));
    drives.push_back(*std::move(drive));
  }
  while (auto answer = answers.Next(deadline)) {
    all.drives[answer->index].slow = std::move(answer->value);
  }
  all.when = runtime.WallClock();
  return all;
}

std::vector<SlowEntry> JoinSlow(const ClusterSlow& slow, const SlowFilter& filter) {
  std::map<RequestName, AtDrive> at_drives;
  for (const ClusterSlow::OfDrive& drive : slow.drives) {
    if (!drive.slow.has_value()) continue;
    for (const SlowRequest& each : drive.slow->requests) {
      at_drives.try_emplace({each.connection, each.sequence}, AtDrive{&drive, &each});
    }
  }
  std::vector<SlowEntry> entries;
  const auto add = [&](SlowEntry entry) {
    if (entry.ended >= filter.since && entry.took >= filter.at_least) {
      entries.push_back(std::move(entry));
    }
  };
  // Several drives are told of one operation.
  std::set<std::tuple<std::string, std::string, uint32_t, uint64_t, Duration>> known;
  std::set<RequestName> waited_for;
  for (const ClusterSlow::OfDrive& drive : slow.drives) {
    if (!drive.slow.has_value()) continue;
    for (const ToldOperation& told : drive.slow->operations) {
      const SlowOperation& operation = told.operation;
      const DriveUser& client = told.client;
      if (!known
               .emplace(client.host, client.program.name, client.process, operation.id,
                        operation.took)
               .second) {
        continue;
      }
      SlowEntry entry{.ended = slow.when - operation.ago.count(),
                      .client = client,
                      .operation = operation,
                      .took = operation.took,
                      .parts = {}};
      for (const SlowOperation::Request& each : operation.requests) {
        waited_for.emplace(each.waited.connection, each.waited.sequence);
        entry.parts.push_back(PartOf(each, slow, at_drives));
      }
      std::ranges::stable_sort(entry.parts, std::ranges::greater(), &SlowPart::took);
      add(std::move(entry));
    }
  }
  for (const auto& [name, found] : at_drives) {
    if (waited_for.contains(name)) continue;
    const SlowRequest& request = *found.request;
    add({.ended = slow.when - request.ago.count(),
         .client = request.client,
         .operation = std::nullopt,
         .took = request.took,
         .parts = {{.drive = found.drive->id,
                    .address = found.drive->address,
                    .waited = std::nullopt,
                    .at_drive = request}}});
  }
  std::ranges::stable_sort(entries, {}, &SlowEntry::ended);
  return entries;
}

}  // namespace pinstripe
