#include "daemon/security_commands.h"

#include "base/try.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {
namespace {

using kinetic::Security;
using kinetic::Setup;

Result<Scope> ScopeFrom(const Security::Acl::Scope& asked) {
  Scope scope;
  scope.offset = asked.offset();
  scope.value = asked.value();
  scope.tls_required = asked.tlsrequired();
  for (const int32_t number : asked.permission()) {
    const std::optional<Permission> permission = PermissionNumbered(number);
    if (!permission) return Fail(EINVAL, "unknown permission {}", number);
    scope.permissions.Add(*permission);
  }
  return scope;
}

Result<Rights> RightsFrom(const Security::Acl& asked) {
  if (asked.hmacalgorithm() != Security::Acl::HmacSHA1 || !asked.has_hmacalgorithm()) {
    return Fail(EPROTONOSUPPORT, "identity {}: its HMAC algorithm is not HmacSHA1",
                asked.identity());
  }
  Rights rights;
  rights.key = asked.key();
  if (asked.has_maxpriority()) rights.max_priority = asked.maxpriority();
  for (const Security::Acl::Scope& scope : asked.scope()) {
    rights.scopes.push_back(TRY(ScopeFrom(scope)));
  }
  return rights;
}

Result<RightsById> RightsByIdFrom(const Security& asked) {
  RightsById all;
  for (const Security::Acl& each : asked.acl()) {
    if (!all.emplace(each.identity(), TRY(RightsFrom(each))).second) {
      return Fail(EINVAL, "identity {} is named twice", each.identity());
    }
  }
  return all;
}

// A request may say what it is about; then it is about nothing else.
bool MayBe(const Security& asked, Security::Type type) {
  return !asked.has_securityoptype() || asked.securityoptype() == type;
}

}  // namespace

Status ExecuteSecurity(const Security& asked, DeviceSecurity& security) {
  const bool acls = asked.acl_size() > 0;
  const bool erase_pin = asked.has_olderasepin() || asked.has_newerasepin();
  const bool lock_pin = asked.has_oldlockpin() || asked.has_newlockpin();
  if (acls + erase_pin + lock_pin > 1) {
    return Fail(EINVAL, "identities, erase PIN and lock PIN are changed by requests of their own");
  }
  if ((acls && !MayBe(asked, Security::ACL_SECURITYOP)) ||
      (erase_pin && !MayBe(asked, Security::ERASE_PIN_SECURITYOP)) ||
      (lock_pin && !MayBe(asked, Security::LOCK_PIN_SECURITYOP))) {
    return Fail(EINVAL, "the request says it changes one thing, and holds another");
  }
  if (acls) return security.MergeIdentities(TRY(RightsByIdFrom(asked)));
  if (erase_pin) return security.ChangeErasePin(asked.olderasepin(), asked.newerasepin());
  if (lock_pin) return security.ChangeLockPin(asked.oldlockpin(), asked.newlockpin());
  return {};
}

Status ExecuteSetup(const Setup& asked, int64_t required, DeviceSecurity& security) {
  if (asked.firmwaredownload() || asked.setupoptype() == Setup::FIRMWARE_SETUPOP) {
    return Fail(EINVAL, "this device takes no firmware: its software is updated on its host");
  }
  if (asked.has_newclusterversion()) {
    return security.SetClusterVersion(asked.newclusterversion(), required);
  }
  if (asked.setupoptype() == Setup::CLUSTER_VERSION_SETUPOP) {
    return Fail(EINVAL, "no cluster version is given");
  }
  return {};
}

}  // namespace pinstripe
