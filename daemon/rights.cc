#include "daemon/rights.h"

#include <algorithm>

#include "base/try.h"

namespace pinstripe {
namespace {

bool Covers(const Scope& scope, std::string_view key) {
  if (scope.value.empty()) return true;
  if (key.size() < scope.value.size() || scope.offset > key.size() - scope.value.size())
    return false;
  return key.substr(scope.offset, scope.value.size()) == scope.value;
}

bool Gives(const Scope& scope, Permission permission, bool tls) {
  return scope.permissions.Has(permission) && (tls || !scope.tls_required);
}

// The keys that are in both; none: there can be no such key.
std::optional<KeyRange> Intersection(const KeyRange& range, const std::string& prefix) {
  KeyRange part = range;
  if (part.first < prefix) {
    part.first = prefix;
    part.first_included = true;
  }
  const std::optional<std::string> end = EndOfPrefix(prefix);
  if (end && (!part.last || *part.last >= *end)) {
    part.last = end;
    part.last_included = false;
  }
  if (part.last && (*part.last < part.first ||
                    (*part.last == part.first && !(part.first_included && part.last_included)))) {
    return std::nullopt;
  }
  return part;
}

}  // namespace

std::string_view NameOf(Permission permission) {
  switch (permission) {
    case Permission::kRead: return "read";
    case Permission::kWrite: return "write";
    case Permission::kDelete: return "delete";
    case Permission::kRange: return "range";
    case Permission::kSetup: return "setup";
    case Permission::kPeerToPeer: return "p2p";
    case Permission::kGetLog: return "getlog";
    case Permission::kSecurity: return "security";
    case Permission::kPowerManagement: return "power";
  }
  return "unknown";
}

std::optional<Permission> PermissionNamed(std::string_view name) {
  for (const Permission permission : kAllPermissions) {
    if (NameOf(permission) == name) return permission;
  }
  return std::nullopt;
}

std::optional<Permission> PermissionNumbered(int64_t number) {
  for (const Permission permission : kAllPermissions) {
    if (static_cast<int64_t>(permission) == number) return permission;
  }
  return std::nullopt;
}

Permissions Permissions::All() {
  Permissions all;
  for (const Permission permission : kAllPermissions) all.Add(permission);
  return all;
}

Rights FullAccess(std::string key) {
  return {.key = std::move(key), .scopes = {Scope{.permissions = Permissions::All()}}};
}

Status CheckRights(int64_t identity, const Rights& rights) {
  if (rights.key.empty())
    return Fail(EINVAL, "identity {}: an empty key protects nothing", identity);
  if (rights.key.size() > kMaxHmacKeyBytes) {
    return Fail(EINVAL, "identity {}: a key of {} bytes; the limit is {}", identity,
                rights.key.size(), kMaxHmacKeyBytes);
  }
  if (rights.max_priority < 1 || rights.max_priority > kHighestPriority) {
    return Fail(EINVAL, "identity {}: priority {}; there are 1 to {}", identity,
                rights.max_priority, kHighestPriority);
  }
  if (rights.scopes.size() > kMaxScopes) {
    return Fail(EINVAL, "identity {}: {} scopes; the limit is {}", identity, rights.scopes.size(),
                kMaxScopes);
  }
  for (const Scope& scope : rights.scopes) {
    if (scope.permissions == Permissions() ||
        (scope.permissions.bits() & ~Permissions::All().bits()) != 0) {
      return Fail(EINVAL, "identity {}: a scope without a permission, or with an unknown one",
                  identity);
    }
    if (scope.offset > kMaxKeyBytes || scope.value.size() > kMaxKeyBytes - scope.offset) {
      return Fail(EINVAL, "identity {}: a scope for {} bytes at offset {}; keys have at most {}",
                  identity, scope.value.size(), scope.offset, kMaxKeyBytes);
    }
  }
  return {};
}

bool MayDo(const Rights& rights, Permission permission, ForKey key, bool tls) {
  return std::any_of(rights.scopes.begin(), rights.scopes.end(), [&](const Scope& scope) {
    return Gives(scope, permission, tls) && (!key || Covers(scope, *key));
  });
}

Status Allow(const Rights& rights, Permission permission, ForKey key, bool tls) {
  if (MayDo(rights, permission, key, tls)) return {};
  return Fail(EACCES, "permission denied");
}

// All keys between two begin with what both begin with; of a range without an end nothing is known.
bool MayDoAll(const Rights& rights, Permission permission, std::string_view first,
              std::string_view last, bool tls) {
  const auto differ = std::mismatch(first.begin(), first.end(), last.begin(), last.end());
  const std::string_view common(first.data(), static_cast<size_t>(differ.first - first.begin()));
  return std::any_of(rights.scopes.begin(), rights.scopes.end(), [&](const Scope& scope) {
    return Gives(scope, permission, tls) && Covers(scope, common);
  });
}

std::vector<KeyRange> PartsToList(const Rights& rights, const KeyRange& range, bool tls) {
  std::vector<std::string> prefixes;
  for (const Scope& scope : rights.scopes) {
    if (!Gives(scope, Permission::kRange, tls)) continue;
    // What is demanded behind the beginning of a key may be anywhere in the order of keys.
    if (scope.value.empty() || scope.offset > 0) return {range};
    prefixes.push_back(scope.value);
  }
  std::sort(prefixes.begin(), prefixes.end());
  std::vector<KeyRange> parts;
  const std::string* covering = nullptr;
  for (const std::string& prefix : prefixes) {
    if (covering != nullptr && prefix.starts_with(*covering)) continue;
    covering = &prefix;
    if (auto part = Intersection(range, prefix)) parts.push_back(*std::move(part));
  }
  return parts;
}

std::optional<std::string> EndOfPrefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

}  // namespace pinstripe
