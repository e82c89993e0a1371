#include "cluster/map_group.h"

#include "base/log.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kEpochsAtOnce = 4;

// Whether the homes of registers in `epoch` have a say.
Result<bool> ReadIsSettled(RegisterStore& registers, Epoch epoch) {
  if (epoch <= 1) return true;
  const RegisterValue value =
      TRY_CONTEXT(registers.Read({kMapGroup, SettlementKey(epoch)}), "read the drive map");
  if (value.value) TRY(Settlement::Decode(*value.value));
  return value.value.has_value();
}

}  // namespace

Result<MapGroup> ReadMapGroup(RegisterStore& registers, const ClusterConfig& config, Epoch first) {
  MapGroup group;
  std::vector<DriveMap>& maps = group.epochs;
  for (;;) {
    std::vector<RegisterName> names;
    for (Epoch i = 0; i < kEpochsAtOnce; ++i) {
      names.push_back({kMapGroup, EpochKey(static_cast<Epoch>(first + maps.size() + i))});
    }
    for (const DriveConfig& drive : config.drives) {
      if (first == 1 && maps.empty()) names.push_back({kMapGroup, IncarnationKey(drive.id)});
    }
    const auto answers = registers.ReadMany(names);
    for (size_t i = kEpochsAtOnce; i < answers.size(); ++i) {
      const DriveId id = config.drives[i - kEpochsAtOnce].id;
      const RegisterValue value = TRY_CONTEXT(
          answers[i], "read which drives were replaced in the cluster '{}'", config.name);
      if (!value.value) continue;
      group.incarnations[id] = TRY_CONTEXT(DecodeIncarnation(*value.value), "drive {}", id);
    }
    for (size_t i = 0; i < kEpochsAtOnce; ++i) {
      const RegisterValue value =
          TRY_CONTEXT(answers[i], "read the drive map of the cluster '{}'", config.name);
      const auto epoch = static_cast<Epoch>(first + maps.size());
      if (!value.value && epoch > 1) {
        group.settled = TRY(ReadIsSettled(registers, epoch - 1));
        return group;
      }
      if (!value.value) {
        return Fail(ENOENT,
                    "the cluster '{}' has no drive map: formatting it was not finished. Run "
                    "`pinstripe format --force`",
                    config.name);
      }
      maps.push_back(TRY_CONTEXT(DriveMap::Decode(*value.value), "epoch {}", epoch));
      if (maps.back().epoch != epoch) {
        return Fail(EBADMSG, "drive map: epoch {} is stored as epoch {}", maps.back().epoch, epoch);
      }
    }
  }
}

Result<std::map<DriveId, Epoch>> ReadRetirements(RegisterStore& registers,
                                                 const std::set<DriveId>& drives) {
  std::map<DriveId, Epoch> retired;
  std::vector<RegisterName> names;
  for (const DriveId id : drives) names.push_back({kMapGroup, RetirementKey(id)});
  const auto answers = registers.ReadMany(names);
  auto answer = answers.begin();
  for (const DriveId id : drives) {
    const RegisterValue value =
        TRY_CONTEXT(*answer++, "read which drives of the drive map may be away");
    if (!value.value.has_value()) continue;
    const auto retirement = Retirement::Decode(*value.value);
    if (retirement.has_value()) {
      retired[id] = retirement->epoch;
    } else {
      Log(LogLevel::kError, "whether a drained drive may be away cannot be read",
          {{"drive", id}, {"why", retirement.error()}});
    }
  }
  return retired;
}

}  // namespace pinstripe
