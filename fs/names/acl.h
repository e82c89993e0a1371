// Access control lists (acl(5)), as the kernel hands them over, which is also how they are kept
// (docs/format.md): what they say of mode bits, and what is inherited. Pure.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

// The extended attributes that they are. The second is of a directory: for what is made in it.
inline constexpr std::string_view kAccessAcl = "system.posix_acl_access";
inline constexpr std::string_view kDefaultAcl = "system.posix_acl_default";
inline bool IsAcl(std::string_view name) { return name == kAccessAcl || name == kDefaultAcl; }

// The kernel asks for no more than a page of 4 KiB holds.
inline constexpr size_t kMaxAclEntries = 511;

// In the order in which they come.
enum class AclTag : uint16_t {
  kOwner = 0x01,
  kUser = 0x02,
  kOwningGroup = 0x04,
  kGroup = 0x08,
  kMask = 0x10,
  kOther = 0x20,
};

struct AclEntry {
  static constexpr uint32_t kNobody = UINT32_MAX;

  AclTag tag = AclTag::kOwner;
  uint16_t permissions = 0;  // 07: read, write, execute
  uint32_t id = kNobody;     // of a kUser or kGroup
  friend bool operator==(const AclEntry&, const AclEntry&) = default;
};

// One kOwner, kOwningGroup and kOther each, and a kMask if there are kUser or kGroup. Or nothing,
// which stands for no list at all.
using Acl = std::vector<AclEntry>;

Result<Acl> ParseAcl(std::string_view bytes);  // EINVAL
std::string EncodeAcl(const Acl& acl);

// That says what the mode bits say.
Acl AclOf(uint32_t mode);
// Whether there is anything in it that the mode bits do not say.
bool SaysMoreThanMode(const Acl& acl);
// `mode` with the permissions of the list. Those of the group are the mask's, where there is one.
uint32_t ModeOf(const Acl& acl, uint32_t mode);
// The list after chmod(2).
Acl Chmod(Acl acl, uint32_t mode);
// What something that is made with `mode` gets from the default list of its directory: no more than
// either gives.
Acl InheritAcl(const Acl& acl, uint32_t mode);

}  // namespace pinstripe
