// Rights: who may do what on a device, what the protocol calls an ACL. Pure decisions over plain
// data: every operation of the service asks MayDo(), and nothing else decides.
//
// An identity has scopes. A scope gives some permissions on the keys that hold certain bytes at a
// certain place, perhaps over TLS only; what no scope gives is refused. A scope without such bytes
// covers every key.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/store.h"

namespace pinstripe {

// The protocol's numbers.
enum class Permission : uint8_t {
  kRead = 0,
  kWrite = 1,
  kDelete = 2,
  kRange = 3,
  kSetup = 4,
  kPeerToPeer = 5,
  kGetLog = 7,
  kSecurity = 8,
  kPowerManagement = 9,
};
inline constexpr Permission kAllPermissions[] = {
    Permission::kRead,   Permission::kWrite,    Permission::kDelete,
    Permission::kRange,  Permission::kSetup,    Permission::kPeerToPeer,
    Permission::kGetLog, Permission::kSecurity, Permission::kPowerManagement,
};
std::string_view NameOf(Permission permission);  // "read"
std::optional<Permission> PermissionNamed(std::string_view name);
std::optional<Permission> PermissionNumbered(int64_t number);

class Permissions {
 public:
  static Permissions All();
  static Permissions FromBits(uint16_t bits) {
    Permissions permissions;
    permissions.bits_ = bits;
    return permissions;
  }
  void Add(Permission permission) { bits_ |= BitOf(permission); }
  bool Has(Permission permission) const { return (bits_ & BitOf(permission)) != 0; }
  uint16_t bits() const { return bits_; }  // bit n: the permission with number n
  friend bool operator==(Permissions, Permissions) = default;

 private:
  static uint16_t BitOf(Permission permission) {
    return static_cast<uint16_t>(1 << static_cast<int>(permission));
  }
  uint16_t bits_ = 0;
};

struct Scope {
  uint64_t offset = 0;
  std::string value;  // what a key holds at `offset`; empty: any key
  Permissions permissions;
  bool tls_required = false;
  friend bool operator==(const Scope&, const Scope&) = default;
};

inline constexpr int kHighestPriority = 9;

// What one identity signs with, and may do.
struct Rights {
  std::string key;  // of the HMAC: raw bytes
  int max_priority = kHighestPriority;
  std::vector<Scope> scopes;
  friend bool operator==(const Rights&, const Rights&) = default;
};
using RightsById = std::map<int64_t, Rights>;  // by identity

// The key of the first identity of a device as it comes from the factory. Everybody knows it.
inline constexpr std::string_view kFactoryKey = "asdfasdf";

// Everything on every key, as a device gives it to its first identity.
Rights FullAccess(std::string key);

inline constexpr size_t kMaxIdentities = 1000;
inline constexpr size_t kMaxHmacKeyBytes = 1024;
inline constexpr size_t kMaxScopes = 1000;  // of one identity

// EINVAL, and what is wrong: a key that is empty or too long, a scope that gives nothing or that no
// key can be in, a priority that does not exist, too many scopes.
Status CheckRights(int64_t identity, const Rights& rights);

// What a request is about: one key, or no key at all.
using ForKey = std::optional<std::string_view>;

// Whether the identity may do what needs `permission` on this key, over a connection with TLS or
// without.
bool MayDo(const Rights& rights, Permission permission, ForKey key, bool tls);

// EACCES, in the words that the protocol knows, which say nothing of what there is.
Status Allow(const Rights& rights, Permission permission, ForKey key, bool tls);

// Whether it has the permission on all keys from `first` to `last`, whichever there are. An empty
// `last`: to the end.
bool MayDoAll(const Rights& rights, Permission permission, std::string_view first,
              std::string_view last, bool tls);

// The parts of a range outside of which no key can be allowed, in ascending order: where a listing
// has to look. Keys in them may still be forbidden.
std::vector<KeyRange> PartsToList(const Rights& rights, const KeyRange& range, bool tls);

// The first key behind all those that begin with `prefix`; none: there is no such key.
std::optional<std::string> EndOfPrefix(std::string prefix);

}  // namespace pinstripe
