#include "cluster/map/drive_map.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kMapFormat = 5;
constexpr uint8_t kSuperblockFormat = 2;
constexpr uint8_t kIncarnationFormat = 1;
constexpr uint8_t kSettlementFormat = 1;
constexpr uint8_t kRetirementFormat = 1;
constexpr size_t kMaxDomainBytes = 255;
constexpr uint32_t kMaxWeight = 1 << 20;
constexpr uint32_t kMaxGroups = 1 << 20;
constexpr size_t kUuidBytes = 16;

Status CheckFormat(uint8_t format, uint8_t known, std::string_view what) {
  if (format == known) return {};
  return Fail(EBADMSG, "{}: format {} is not known here (known: {}); {} wrote it", what, format,
              known, format > known ? "a newer version" : "a version that was never released");
}

// Checks what placement relies on.
Status CheckMap(const DriveMap& map) {
  const auto bad = [](std::string_view reason) { return Fail(EBADMSG, "drive map: {}", reason); };
  if (map.epoch == 0) return bad("epoch 0");
  if (!std::has_single_bit(map.groups) || map.groups > kMaxGroups) {
    return bad("the number of groups is not a power of two up to 2^20");
  }
  if (map.replicas % 2 == 0) return bad("the number of replicas is even");
  if (map.replicas > map.drives.size()) return bad("more replicas than drives");
  DriveId last = 0;
  for (const MappedDrive& drive : map.drives) {
    if ((drive.pull == 0) != (map.drives.front().pull == 0)) {
      return bad("some of its drives have a pull, and others have none");
    }
    if (drive.id <= last) return bad("drive ids are not ascending");
    if (drive.weight == 0 || drive.weight > kMaxWeight) return bad("a weight is not 1..2^20");
    if (drive.domain.size() > kMaxDomainBytes) return bad("the name of a domain is too long");
    if (drive.state != DriveState::kActive && drive.state != DriveState::kDraining) {
      return bad("the state of a drive is not known here");
    }
    last = drive.id;
  }
  return {};
}

}  // namespace

std::string DriveMap::Encode() const {
  Writer out;
  out.U8(kMapFormat).U32(epoch).U32(groups).U8(replicas).Varint(drives.size());
  for (const MappedDrive& drive : drives) {
    out.U16(drive.id).U32(drive.weight).U8(static_cast<uint8_t>(drive.state)).Text(drive.domain);
    out.U32(drive.pull);
  }
  WriteFeatures(features, out);
  return out.Take();
}

Result<DriveMap> DriveMap::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok()) TRY(CheckFormat(format, kMapFormat, "drive map"));

  DriveMap map;
  map.epoch = in.U32();
  map.groups = in.U32();
  map.replicas = in.U8();
  const uint64_t count = in.Varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    MappedDrive drive;
    drive.id = in.U16();
    drive.weight = in.U32();
    drive.state = static_cast<DriveState>(in.U8());
    drive.domain = in.Text();
    drive.pull = in.U32();
    map.drives.push_back(std::move(drive));
  }
  map.features = TRY(ReadFeatures(in, "drive map"));
  TRY(in.Finish("drive map"));
  TRY(CheckMap(map));
  return map;
}

std::string Superblock::Encode() const {
  Writer out;
  out.U8(kSuperblockFormat).Text(cluster_name).Raw(cluster_uuid).U16(drive);
  out.U32(incarnation).U8(static_cast<uint8_t>(service));
  out.U64(static_cast<uint64_t>(formatted_at)).Varint(map_drives.size());
  for (DriveId id : map_drives) out.U16(id);
  return out.Take();
}

Result<Superblock> Superblock::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok()) TRY(CheckFormat(format, kSuperblockFormat, "superblock"));

  Superblock block;
  block.cluster_name = in.Text();
  block.cluster_uuid = in.Raw(kUuidBytes);
  block.drive = in.U16();
  block.incarnation = in.U32();
  block.service = static_cast<DriveService>(in.U8());
  block.formatted_at = static_cast<int64_t>(in.U64());
  const uint64_t count = in.Varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) block.map_drives.push_back(in.U16());
  TRY(in.Finish("superblock"));

  if (!CheckClusterName(block.cluster_name).ok()) {
    return Fail(EBADMSG, "superblock: the name of the cluster is malformed");
  }
  auto ids = block.map_drives;
  std::sort(ids.begin(), ids.end());
  const bool distinct = std::adjacent_find(ids.begin(), ids.end()) == ids.end();
  if (block.drive == 0 || ids.size() % 2 == 0 || ids.front() == 0 || !distinct) {
    return Fail(EBADMSG, "superblock: its drive ids make no sense");
  }
  if (block.service != DriveService::kInService && block.service != DriveService::kBeingRebuilt) {
    return Fail(EBADMSG, "superblock: the state of the drive is not known here");
  }
  return block;
}

std::string Superblock::Version() const {
  return Writer().U32(incarnation).U8(static_cast<uint8_t>(service)).Take();
}

std::string IncarnationKey(DriveId drive) { return Writer().Raw("D").U16(drive).Take(); }

std::string GivenIncarnationKey(DriveId drive) { return Writer().Raw("N").U16(drive).Take(); }

std::string EncodeIncarnation(uint32_t incarnation) {
  return Writer().U8(kIncarnationFormat).U32(incarnation).Take();
}

Result<uint32_t> DecodeIncarnation(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok()) TRY(CheckFormat(format, kIncarnationFormat, "incarnation of a drive"));
  const uint32_t incarnation = in.U32();
  TRY(in.Finish("incarnation of a drive"));
  return incarnation;
}

std::string EpochKey(Epoch epoch) { return Writer().Raw("M").U32(epoch).Take(); }

std::string SettlementKey(Epoch epoch) { return Writer().Raw("V").U32(epoch).Take(); }

std::string Settlement::Encode() const {
  Writer out;
  out.U8(kSettlementFormat).Varint(to_clear.size());
  for (const DriveId id : to_clear) out.U16(id);
  return out.Take();
}

Result<Settlement> Settlement::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok()) TRY(CheckFormat(format, kSettlementFormat, "settlement of an epoch"));
  Settlement settlement;
  const uint64_t count = in.Varint();
  for (uint64_t i = 0; i < count && in.ok(); ++i) settlement.to_clear.push_back(in.U16());
  TRY(in.Finish("settlement of an epoch"));
  const auto& ids = settlement.to_clear;
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal()) != ids.end()) {
    return Fail(EBADMSG, "settlement of an epoch: its drives are not ascending");
  }
  return settlement;
}

std::string RetirementKey(DriveId drive) { return Writer().Raw("G").U16(drive).Take(); }

std::string Retirement::Encode() const { return Writer().U8(kRetirementFormat).U32(epoch).Take(); }

Result<Retirement> Retirement::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok()) TRY(CheckFormat(format, kRetirementFormat, "retirement of a drive"));
  const Retirement retirement{in.U32()};
  TRY(in.Finish("retirement of a drive"));
  if (retirement.epoch == 0) return Fail(EBADMSG, "retirement of a drive: in epoch 0");
  return retirement;
}

Status CheckClusterName(std::string_view name) {
  if (IsPlainName(name)) return {};
  return Fail(EINVAL, "'{}' cannot be the name of a cluster: 1 to {} characters of a-z 0-9 - _ .",
              name, kMaxPlainNameBytes);
}

std::string ClusterPrefix(std::string_view name) {
  return Writer().U8(static_cast<uint8_t>(name.size())).Raw(name).Take();
}

std::string SuperblockKey(std::string_view name) { return ClusterPrefix(name) + "S"; }

}  // namespace pinstripe
