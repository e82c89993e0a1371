#include "cluster/membership/drive_contents.h"

#include <string>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/try.h"
#include "cluster/gather.h"

namespace pinstripe {

Result<DriveContents> ListDrive(Cluster& cluster, DriveId id) {
  Drive* drive = cluster.FindDrive(id);
  if (drive == nullptr) return Fail(EHOSTUNREACH, "drive {} is not in the configuration", id);
  const std::string prefix = ClusterPrefix(cluster.config().name);
  const std::string last = prefix + std::string(kMaxKeyBytes - prefix.size(), '\xff');
  // Under the newest version: nothing of an earlier epoch comes after the look.
  const int64_t version = ClusterVersionOf(cluster.map().epoch);
  DriveContents contents;
  for (std::string first = prefix;;) {
    Gather<Result<std::vector<std::string>>> gather(cluster.runtime());
    drive->Range(first, last, kMaxRangeKeys, /*reverse=*/false,
                 {cluster.runtime().Now() + cluster.config().drive_timeout, version},
                 gather.Ask(0));
    const auto keys = TRY(std::move(gather.Next(Time::max())->value));
    for (const std::string& key : keys) {
      Reader reader(key);
      reader.Raw(prefix.size());
      const std::string_view kind = reader.Raw(1);
      if (kind == "D") ++contents.shards;
      if (kind == "R") ++(reader.U32() == kMapGroup ? contents.map_registers : contents.registers);
    }
    if (keys.size() < kMaxRangeKeys) return contents;
    first = keys.back() + '\0';
  }
}

Result<DriveContents> PeekIntoDrive(Cluster& cluster, DriveId id) {
  Drive* drive = cluster.FindDrive(id);
  if (drive == nullptr) return Fail(EHOSTUNREACH, "drive {} is not in the configuration", id);
  const std::string prefix = ClusterPrefix(cluster.config().name);
  const Time deadline = cluster.runtime().Now() + cluster.config().drive_timeout;
  const std::string end(64, '\xff');
  Gather<Result<std::vector<std::string>>> gather(cluster.runtime());
  drive->Range(prefix + "D", prefix + "D" + end, kMaxRangeKeys, false, deadline, gather.Ask(0));
  drive->Range(prefix + "R", prefix + "R" + Writer().U32(kMapGroup - 1).Take() + end, kMaxRangeKeys,
               false, deadline, gather.Ask(1));
  DriveContents contents;
  while (const auto answer = gather.Next(Time::max())) {
    const auto keys = TRY(std::move(answer->value));
    (answer->index == 0 ? contents.shards : contents.registers) = keys.size();
  }
  return contents;
}

}  // namespace pinstripe
