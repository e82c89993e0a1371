// SecurityState: what a device keeps about who may use it, besides its data: identities, PINs,
// cluster version. Its rules as pure functions, and its bytes in a file (docs/format.md, "Security
// of a drive").

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "daemon/rights.h"

namespace pinstripe {

inline constexpr size_t kMaxPinBytes = 200;
// The size of the whole state, encoded. Identities and scopes alone would allow gigabytes.
inline constexpr size_t kMaxSecurityBytes = 16 << 20;

struct SecurityState {
  // None: those that the daemon's configuration gives. Once they were changed they are all here.
  std::optional<RightsById> identities;
  std::string erase_pin;  // empty: not set
  std::string lock_pin;
  int64_t cluster_version = 0;
  friend bool operator==(const SecurityState&, const SecurityState&) = default;
};

// Gives `changed` identities new rules and new keys; others stay as they are, those of `configured`
// too when these were the valid ones so far. EINVAL: a rule is not valid, or there would be more
// than kMaxIdentities; nothing has changed then.
Status MergeIdentities(const RightsById& configured, const RightsById& changed,
                       SecurityState* state);

// Sets a PIN, given the present one (anything, when none is set). Empty: none is set any more.
// EACCES: it is another one. EINVAL: too long.
Status ChangePin(std::string_view old_pin, std::string_view new_pin, std::string* pin);

// Takes as long for a wrong PIN as for a right one of the same length.
bool SamePin(std::string_view a, std::string_view b);

std::string EncodeSecurityState(const SecurityState& state);

// EBADMSG: damaged. ENOTSUP: of a newer format.
Result<SecurityState> DecodeSecurityState(std::string_view bytes);

}  // namespace pinstripe
