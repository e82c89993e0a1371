#include "cluster/connecting.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/registers/call.h"

namespace pinstripe {

std::string Listed(const std::vector<std::string>& reasons) {
  constexpr size_t kMost = 6;
  const size_t shown = std::min(reasons.size(), kMost);
  std::string text = fmt::format(
      "{}", fmt::join(reasons.begin(), reasons.begin() + static_cast<ptrdiff_t>(shown), "; "));
  if (shown < reasons.size()) text += fmt::format("; and {} more", reasons.size() - shown);
  return text;
}

std::string Where(const DriveConfig& drive) {
  return fmt::format("drive {} ({})", drive.id, fmt::join(drive.addresses, ", "));
}

Result<DriveSet> MakeDrives(const ClusterConfig& config, const DriveFactory& factory,
                            const std::function<IdentityCheck(DriveId)>& check) {
  DriveSet drives;
  for (const DriveConfig& drive : config.drives) {
    drives.emplace(drive.id,
                   TRY_CONTEXT(factory(drive, SuperblockKey(config.name), check(drive.id)), "{}",
                               Where(drive)));
  }
  return drives;
}

IdentityCheck AnyDrive(DriveId) {
  return [](const Result<Record>& record, const Result<DriveInfo>&) {
    const bool answered = record.has_value() || record.error().code() == ENOENT;
    return answered ? Status() : record.error();
  };
}

RegisterStore::Options RegisterOptions(const ClusterConfig& config) {
  RegisterStore::Options options;
  options.prefix = ClusterPrefix(config.name);
  options.drive_timeout = config.drive_timeout;
  options.timeout = std::max(options.timeout, 3 * config.drive_timeout);
  return options;
}

}  // namespace pinstripe
