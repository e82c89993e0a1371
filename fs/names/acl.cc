#include "fs/names/acl.h"

#include <algorithm>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint32_t kVersion = 2;
constexpr size_t kHeadBytes = 4;
constexpr size_t kEntryBytes = 8;
constexpr uint16_t kAllPermissions = 07;
constexpr uint32_t kAllModeBits = 0777;

// The kernel's are little-endian, unlike all that is ours.
template <typename Number>
Number TakeLittle(std::string_view& bytes) {
  uint32_t number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    number |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  bytes.remove_prefix(sizeof(Number));
  return static_cast<Number>(number);
}

template <typename Number>
void PutLittle(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) {
    out.push_back(static_cast<char>(uint32_t{number} >> (8 * i) & 0xff));
  }
}

bool HasName(AclTag tag) { return tag == AclTag::kUser || tag == AclTag::kGroup; }

bool IsKnown(AclTag tag) {
  const auto bits = static_cast<uint16_t>(tag);
  return bits != 0 && (bits & (bits - 1)) == 0 && bits <= static_cast<uint16_t>(AclTag::kOther);
}

Status CheckEntry(const AclEntry& entry) {
  if (!IsKnown(entry.tag)) {
    return Fail(EINVAL, "an ACL has an entry of kind {}", static_cast<uint16_t>(entry.tag));
  }
  if (entry.permissions > kAllPermissions) {
    return Fail(EINVAL, "an ACL gives permissions {:o}", entry.permissions);
  }
  if (HasName(entry.tag) && entry.id == AclEntry::kNobody) {
    return Fail(EINVAL, "an ACL has an entry for nobody");
  }
  return {};
}

// Checks entries that are right each by itself. One named user or group may have several, as in
// Linux.
Status CheckTogether(const Acl& acl) {
  const auto count = [&](AclTag tag) { return std::ranges::count(acl, tag, &AclEntry::tag); };
  if (!std::ranges::is_sorted(acl, {}, &AclEntry::tag)) {
    return Fail(EINVAL, "the entries of an ACL are out of order");
  }
  for (const AclTag tag : {AclTag::kOwner, AclTag::kOwningGroup, AclTag::kOther}) {
    if (count(tag) != 1) {
      return Fail(EINVAL, "an ACL needs one entry each for owner, group and others");
    }
  }
  const bool has_names = std::ranges::any_of(acl, HasName, &AclEntry::tag);
  if (count(AclTag::kMask) > 1 || (has_names && count(AclTag::kMask) == 0)) {
    return Fail(EINVAL, "an ACL with users or groups needs a mask, and none needs two");
  }
  return {};
}

// The entry that the bits of the group in a mode are.
AclTag TagOfGroupBits(const Acl& acl) {
  const bool has_mask = std::ranges::find(acl, AclTag::kMask, &AclEntry::tag) != acl.end();
  return has_mask ? AclTag::kMask : AclTag::kOwningGroup;
}

}  // namespace

Result<Acl> ParseAcl(std::string_view bytes) {
  Acl acl;
  if (bytes.empty()) return acl;
  if (bytes.size() < kHeadBytes || (bytes.size() - kHeadBytes) % kEntryBytes != 0) {
    return Fail(EINVAL, "an ACL cannot have {} bytes", bytes.size());
  }
  if (bytes.size() > kHeadBytes + kMaxAclEntries * kEntryBytes) {
    return Fail(EINVAL, "an ACL of {} bytes: at most {} entries are allowed", bytes.size(),
                kMaxAclEntries);
  }
  const auto version = TakeLittle<uint32_t>(bytes);
  if (version != kVersion) return Fail(EINVAL, "an ACL of version {}", version);
  while (!bytes.empty()) {
    AclEntry entry{.tag = static_cast<AclTag>(TakeLittle<uint16_t>(bytes))};
    entry.permissions = TakeLittle<uint16_t>(bytes);
    entry.id = TakeLittle<uint32_t>(bytes);
    TRY(CheckEntry(entry));
    if (!HasName(entry.tag)) entry.id = AclEntry::kNobody;  // whatever it was, it means nothing
    acl.push_back(entry);
  }
  if (!acl.empty()) TRY(CheckTogether(acl));
  return acl;
}

std::string EncodeAcl(const Acl& acl) {
  std::string bytes;
  PutLittle(bytes, kVersion);
  for (const AclEntry& entry : acl) {
    PutLittle(bytes, static_cast<uint16_t>(entry.tag));
    PutLittle(bytes, entry.permissions);
    PutLittle(bytes, entry.id);
  }
  return bytes;
}

Acl AclOf(uint32_t mode) {
  return Chmod({{AclTag::kOwner}, {AclTag::kOwningGroup}, {AclTag::kOther}}, mode);
}

bool SaysMoreThanMode(const Acl& acl) {
  return std::ranges::any_of(
      acl, [](AclTag tag) { return HasName(tag) || tag == AclTag::kMask; }, &AclEntry::tag);
}

uint32_t ModeOf(const Acl& acl, uint32_t mode) {
  const AclTag group = TagOfGroupBits(acl);
  for (const AclEntry& entry : acl) {
    const uint32_t bits = entry.permissions;
    if (entry.tag == AclTag::kOwner) mode = (mode & ~uint32_t{0700}) | bits << 6;
    if (entry.tag == group) mode = (mode & ~uint32_t{0070}) | bits << 3;
    if (entry.tag == AclTag::kOther) mode = (mode & ~uint32_t{0007}) | bits;
  }
  return mode;
}

Acl Chmod(Acl acl, uint32_t mode) {
  const AclTag group = TagOfGroupBits(acl);
  for (AclEntry& entry : acl) {
    if (entry.tag == AclTag::kOwner) entry.permissions = mode >> 6 & kAllPermissions;
    if (entry.tag == group) entry.permissions = mode >> 3 & kAllPermissions;
    if (entry.tag == AclTag::kOther) entry.permissions = mode & kAllPermissions;
  }
  return acl;
}

Acl InheritAcl(const Acl& acl, uint32_t mode) {
  return Chmod(acl, ModeOf(acl, kAllModeBits) & mode);
}

}  // namespace pinstripe
