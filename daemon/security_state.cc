#include "daemon/security_state.h"

#include <openssl/crypto.h>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMagic = "pinstripe security\n";
constexpr uint32_t kFormat = 1;
constexpr size_t kChecksumBytes = 4;

constexpr uint8_t kTlsRequired = 1;

void EncodeRights(int64_t identity, const Rights& rights, Writer& writer) {
  writer.U64(static_cast<uint64_t>(identity)).Text(rights.key);
  writer.U8(static_cast<uint8_t>(rights.max_priority)).Varint(rights.scopes.size());
  for (const Scope& scope : rights.scopes) {
    writer.U16(static_cast<uint16_t>(scope.offset)).Text(scope.value);
    writer.U16(scope.permissions.bits()).U8(scope.tls_required ? kTlsRequired : 0);
  }
}

Result<Rights> DecodeRights(int64_t identity, Reader& reader) {
  Rights rights;
  rights.key = reader.Text();
  rights.max_priority = reader.U8();
  const uint64_t scopes = reader.Varint();
  for (uint64_t i = 0; i < scopes && reader.ok(); ++i) {
    Scope scope;
    scope.offset = reader.U16();
    scope.value = reader.Text();
    scope.permissions = Permissions::FromBits(reader.U16());
    const uint8_t flags = reader.U8();
    if (flags > kTlsRequired) reader.MarkBad();
    scope.tls_required = flags == kTlsRequired;
    rights.scopes.push_back(std::move(scope));
  }
  if (!reader.ok()) return Fail(EBADMSG, "it ends too early");
  const Status valid = CheckRights(identity, rights);
  if (!valid.ok()) return Fail(EBADMSG, "{}", valid.message());
  return rights;
}

}  // namespace

Status MergeIdentities(const RightsById& configured, const RightsById& changed,
                       SecurityState* state) {
  for (const auto& [identity, rights] : changed) TRY(CheckRights(identity, rights));
  RightsById merged = state->identities ? *state->identities : configured;
  for (const auto& [identity, rights] : changed) merged[identity] = rights;
  if (merged.size() > kMaxIdentities) {
    return Fail(EINVAL, "that would be {} identities; the limit is {}", merged.size(),
                kMaxIdentities);
  }
  state->identities = std::move(merged);
  return {};
}

Status ChangePin(std::string_view old_pin, std::string_view new_pin, std::string* pin) {
  if (new_pin.size() > kMaxPinBytes) {
    return Fail(EINVAL, "a PIN of {} bytes; the limit is {}", new_pin.size(), kMaxPinBytes);
  }
  if (!pin->empty() && !SamePin(old_pin, *pin)) return Fail(EACCES, "permission denied: wrong PIN");
  *pin = new_pin;
  return {};
}

bool SamePin(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string EncodeSecurityState(const SecurityState& state) {
  Writer writer;
  writer.Raw(kMagic).U32(kFormat).U64(static_cast<uint64_t>(state.cluster_version));
  writer.Text(state.erase_pin).Text(state.lock_pin).U8(state.identities ? 1 : 0);
  if (state.identities) {
    writer.Varint(state.identities->size());
    for (const auto& [identity, rights] : *state.identities) EncodeRights(identity, rights, writer);
  }
  writer.U32(Crc32c(AsBytes(writer.bytes())));
  return writer.Take();
}

Result<SecurityState> DecodeSecurityState(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.Raw(kMagic.size()) != kMagic) {
    return Fail(EBADMSG, "it does not begin as such a file does");
  }
  const uint32_t format = reader.U32();
  if (format > kFormat) {
    return Fail(ENOTSUP, "it has format {}, this program knows up to {}; use the newer pinstriped",
                format, kFormat);
  }
  if (format != kFormat || bytes.size() < kMagic.size() + 2 * kChecksumBytes) {
    return Fail(EBADMSG, "its beginning is damaged");
  }
  const size_t covered = bytes.size() - kChecksumBytes;
  if (Reader(bytes.substr(covered)).U32() != Crc32c(AsBytes(bytes.substr(0, covered)))) {
    return Fail(EBADMSG, "it has a wrong checksum");
  }
  SecurityState state;
  state.cluster_version = static_cast<int64_t>(reader.U64());
  state.erase_pin = reader.Text();
  state.lock_pin = reader.Text();
  const uint8_t has_identities = reader.U8();
  if (has_identities > 1) reader.MarkBad();
  if (has_identities == 1) {
    state.identities.emplace();
    const uint64_t count = reader.Varint();
    for (uint64_t i = 0; i < count && reader.ok(); ++i) {
      const int64_t identity = static_cast<int64_t>(reader.U64());
      Rights rights = TRY(DecodeRights(identity, reader));
      if (!state.identities->emplace(identity, std::move(rights)).second) reader.MarkBad();
    }
  }
  reader.U32();
  TRY(reader.Finish("the state of a drive's security"));
  return state;
}

}  // namespace pinstripe
