#include "cluster/map_group.h"

#include "base/log.h"
#include "base/try.h"
#include "cluster/map/history.h"
#include "cluster/map/names_place.h"

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

// The history, if there is one. It is told again what the registers of the epochs say; where it
// cannot be read, they are read.
std::vector<DriveMap> TakeHistory(const RegisterValue& history, const DriveMap& first_epoch,
                                  const std::string& cluster) {
  if (!history.value) return {};
  auto epochs = DecodeHistory(*history.value);
  if (epochs.has_value() && epochs->front() == first_epoch) {
    return *std::move(epochs);
  }
  Log(LogLevel::kError, "the history of the drive map is not used",
      {{"cluster", cluster},
       {"why", epochs.has_value() ? Status(EBADMSG, "it begins with another map than the cluster")
                                  : epochs.error()}});
  return {};
}

// Nothing rests on it, so whatever is wrong with it is only said.
std::optional<KeptLayout> TakeLayout(const Result<RegisterValue>& answer,
                                     const std::string& cluster) {
  if (answer.has_value() && !answer->value) return std::nullopt;
  auto kept = answer.has_value() ? KeptLayout::Decode(*answer->value) : Failed(answer.error());
  if (kept.has_value()) return *kept;
  Log(LogLevel::kWarn, "the layout that the cluster keeps cannot be read",
      {{"cluster", cluster}, {"why", kept.error()}});
  return std::nullopt;
}

}  // namespace

Result<MapGroup> ReadMapGroup(RegisterStore& registers, const ClusterConfig& config, Epoch first) {
  MapGroup group;
  std::vector<DriveMap>& maps = group.epochs;
  for (;;) {
    std::vector<RegisterName> names;
    const auto asked = static_cast<Epoch>(first + maps.size());
    for (Epoch i = 0; i < kEpochsAtOnce; ++i) names.push_back({kMapGroup, EpochKey(asked + i)});
    const bool is_first = first == 1 && maps.empty();
    // A cluster of few epochs needs none.
    const bool with_history = first == 1 && maps.size() == kEpochsAtOnce;
    for (const DriveConfig& drive : config.drives) {
      if (is_first) names.push_back({kMapGroup, IncarnationKey(drive.id)});
    }
    if (is_first) names.push_back({kMapGroup, LayoutKey()});
    if (with_history) names.push_back({kMapGroup, HistoryKey()});
    auto answers = registers.ReadMany(names);
    if (is_first) {
      group.layout = TakeLayout(answers.back(), config.name);
      answers.pop_back();
    }
    if (with_history) {
      group.history = TRY_CONTEXT(answers.back(), "read the history of the drive map");
      answers.pop_back();
      std::vector<DriveMap> history = TakeHistory(group.history, maps.front(), config.name);
      group.in_history = history.size();
      if (history.size() > maps.size()) maps = std::move(history);
    }
    for (size_t i = kEpochsAtOnce; i < answers.size(); ++i) {
      const DriveId id = config.drives[i - kEpochsAtOnce].id;
      const RegisterValue value = TRY_CONTEXT(
          answers[i], "read which drives were replaced in the cluster '{}'", config.name);
      if (!value.value) continue;
      group.incarnations[id] = TRY_CONTEXT(DecodeIncarnation(*value.value), "drive {}", id);
    }
    for (Epoch i = 0; i < kEpochsAtOnce; ++i) {
      const Epoch epoch = asked + i;
      if (epoch < first + maps.size()) continue;  // the history has brought it, and maybe more
      const RegisterValue value =
          TRY_CONTEXT(answers[i], "read the drive map of the cluster '{}'", config.name);
      if (!value.value && epoch > 1) {
        if (!maps.empty()) {
          TRY(CheckFeatures(config.name, maps.back().features));
          TRY(ReadNamesPlace(maps.back()));
        }
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

Status KeepHistory(RegisterStore& registers, const ClusterConfig& config) {
  const MapGroup group = TRY(ReadMapGroup(registers, config));
  if (group.epochs.size() < group.in_history + kEpochsAtOnce) return {};
  const std::string history = EncodeHistory(group.epochs);
  if (history == group.history.value) return {};  // it has no room for more
  const ChangeOutcome outcome = registers.Change({kMapGroup, HistoryKey()}, group.history, history,
                                                 Durability::kWriteThrough);
  // Where somebody else was quicker, it holds as much.
  return outcome.why.Context("keep the history of the drive map");
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
