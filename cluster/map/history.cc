#include "cluster/map/history.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kHistoryFormat = 2;
constexpr uint8_t kHasPull = 0x80;  // of the byte of a drive's state

const MappedDrive* Find(const DriveMap& map, DriveId id) {
  const auto found = std::ranges::lower_bound(map.drives, id, {}, &MappedDrive::id);
  return found != map.drives.end() && found->id == id ? &*found : nullptr;
}

// Whether the features of an epoch are those of the one before.
enum class FeaturesNow : uint8_t { kAsBefore = 0, kListed = 1 };

// How much memory a map takes, in drives.
size_t WeightOf(const DriveMap& map) {
  constexpr size_t kDrivesOfFeature = 2;
  constexpr size_t kBytesOfDrive = 32;
  size_t weight = map.drives.size() + kDrivesOfFeature * map.features.size();
  for (const Feature& feature : map.features) weight += feature.section.size() / kBytesOfDrive;
  return weight;
}

// What has to be done to the drives and features of `before` to have those of `after`.
std::string EncodeChange(const DriveMap& before, const DriveMap& after) {
  std::vector<const MappedDrive*> changed;
  for (const MappedDrive& drive : after.drives) {
    const MappedDrive* was = Find(before, drive.id);
    if (was == nullptr || *was != drive) changed.push_back(&drive);
  }
  Writer out;
  out.Varint(changed.size());
  for (const MappedDrive* drive : changed) {
    out.U16(drive->id).U32(drive->weight);
    out.U8(static_cast<uint8_t>(drive->state) | (drive->pull != 0 ? kHasPull : 0));
    out.Text(drive->domain);
    if (drive->pull != 0) out.U32(drive->pull);
  }
  const bool same = after.features == before.features;
  out.U8(static_cast<uint8_t>(same ? FeaturesNow::kAsBefore : FeaturesNow::kListed));
  if (!same) WriteFeatures(after.features, out);
  return out.Take();
}

// Whether a change says all that differs: drives do not go, and the rest of a map stays.
bool CanFollow(const DriveMap& before, const DriveMap& after) {
  return after.epoch == before.epoch + 1 && after.groups == before.groups &&
         after.replicas == before.replicas &&
         std::ranges::all_of(before.drives, [&](const MappedDrive& drive) {
           return Find(after, drive.id) != nullptr;
         });
}

Status ApplyChange(Reader& in, DriveMap& map) {
  ++map.epoch;
  const uint64_t count = in.Varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    MappedDrive drive;
    drive.id = in.U16();
    drive.weight = in.U32();
    const uint8_t state = in.U8();
    drive.state = static_cast<DriveState>(state & ~kHasPull);
    drive.domain = in.Text();
    if ((state & kHasPull) != 0) drive.pull = in.U32();
    const auto place = std::ranges::lower_bound(map.drives, drive.id, {}, &MappedDrive::id);
    if (place != map.drives.end() && place->id == drive.id) {
      *place = std::move(drive);
    } else {
      map.drives.insert(place, std::move(drive));
    }
  }
  const auto features = static_cast<FeaturesNow>(in.U8());
  if (features == FeaturesNow::kListed)
    map.features = TRY(ReadFeatures(in, "history of the drive map"));
  if (features > FeaturesNow::kListed) in.MarkBad();
  return {};
}

}  // namespace

std::string HistoryKey() { return "H"; }

std::string EncodeHistory(const std::vector<DriveMap>& epochs) {
  assert(!epochs.empty() && epochs.front().epoch == 1);
  std::string changes;
  Epoch newest = 1;
  const std::string first = epochs.front().Encode();
  size_t drives = WeightOf(epochs.front());
  for (size_t i = 1; i < epochs.size() && CanFollow(epochs[i - 1], epochs[i]); ++i) {
    const std::string change = EncodeChange(epochs[i - 1], epochs[i]);
    drives += WeightOf(epochs[i]);
    if (first.size() + changes.size() + change.size() > kMaxHistoryBytes) break;
    if (drives > kMaxHistoryDrives) break;
    changes += change;
    newest = epochs[i].epoch;
  }
  return Writer().U8(kHistoryFormat).U32(newest).Text(first).Raw(changes).Take();
}

Result<std::vector<DriveMap>> DecodeHistory(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kHistoryFormat) {
    return Fail(EBADMSG, "history of the drive map: format {} is not known here (known: {})",
                format, kHistoryFormat);
  }
  const Epoch newest = in.U32();
  const std::string first(in.Text());
  // Each epoch takes a byte at least, which bounds what damaged bytes can make us do.
  if (!in.ok() || newest == 0 || newest - 1 > bytes.size()) {
    return Fail(EBADMSG, "history of the drive map: {} bytes do not hold {} epochs", bytes.size(),
                newest);
  }
  std::vector<DriveMap> epochs;
  epochs.push_back(TRY_CONTEXT(DriveMap::Decode(first), "history of the drive map"));
  if (epochs.front().epoch != 1) {
    return Fail(EBADMSG, "history of the drive map: it begins with epoch {}", epochs.front().epoch);
  }
  size_t drives = WeightOf(epochs.front());
  while (epochs.size() < newest && in.ok()) {
    DriveMap next = epochs.back();
    TRY(ApplyChange(in, next));
    drives += WeightOf(next);
    if (drives > kMaxHistoryDrives) {
      return Fail(EBADMSG, "history of the drive map: {} epochs of up to {} drives are too many",
                  newest, next.drives.size());
    }
    // The drive map itself judges whether a map is valid.
    if (in.ok()) {
      epochs.push_back(TRY_CONTEXT(DriveMap::Decode(next.Encode()), "history of the drive map"));
    }
  }
  TRY(in.Finish("history of the drive map"));
  if (EncodeHistory(epochs) != bytes) {
    return Fail(EBADMSG, "history of the drive map: it is not as anybody would have written it");
  }
  return epochs;
}

}  // namespace pinstripe
