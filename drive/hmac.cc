#include "drive/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cassert>

namespace pinstripe {
namespace {

constexpr size_t kBlockBytes = 64;  // of SHA-1

struct FreeDigest {
  void operator()(EVP_MD_CTX* digest) const { EVP_MD_CTX_free(digest); }
};
using Digest = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

// SHA-1 fails only for want of memory, or where policy forbids it: nothing could be signed then.
void Check(int good) {
  if (good != 1) {
    assert(!"SHA-1 is not available in this OpenSSL");
    std::abort();
  }
}

Digest NewDigest() {
  Digest digest(EVP_MD_CTX_new());
  Check(digest != nullptr);
  return digest;
}

void Update(EVP_MD_CTX* digest, Bytes bytes) {
  Check(EVP_DigestUpdate(digest, bytes.data(), bytes.size()));
}

Hmac Finish(EVP_MD_CTX* digest) {
  Hmac sum;
  Check(EVP_DigestFinal_ex(digest, reinterpret_cast<unsigned char*>(sum.data()), nullptr));
  return sum;
}

using Block = std::array<std::byte, kBlockBytes>;

Block PaddedKey(std::string_view key) {
  Block block{};
  if (key.size() <= kBlockBytes) {
    CopyBytes(block, AsBytes(key));
    return block;
  }
  const Digest digest = NewDigest();
  Check(EVP_DigestInit_ex(digest.get(), EVP_sha1(), nullptr));
  Update(digest.get(), AsBytes(key));
  CopyBytes(block, Finish(digest.get()));
  return block;
}

Digest Started(Block block, std::byte pad) {
  for (std::byte& byte : block) byte ^= pad;
  Digest digest = NewDigest();
  Check(EVP_DigestInit_ex(digest.get(), EVP_sha1(), nullptr));
  Update(digest.get(), block);
  return digest;
}

}  // namespace

// The digests after the key's block: HMAC(text) = SHA1(outer ‖ SHA1(inner ‖ text)).
struct HmacKey::States {
  Digest inner;
  Digest outer;
};

HmacKey::HmacKey(std::string_view key) {
  const Block block = PaddedKey(key);
  states_ = std::make_shared<const States>(
      States{Started(block, std::byte{0x36}), Started(block, std::byte{0x5c})});
}

HmacKey::~HmacKey() = default;
HmacKey::HmacKey(const HmacKey&) = default;
HmacKey& HmacKey::operator=(const HmacKey&) = default;
HmacKey::HmacKey(HmacKey&&) noexcept = default;
HmacKey& HmacKey::operator=(HmacKey&&) noexcept = default;

Hmac HmacKey::Sign(Bytes command) const {
  thread_local const Digest digest = NewDigest();
  Check(EVP_MD_CTX_copy_ex(digest.get(), states_->inner.get()));
  if (!command.empty()) {
    std::array<std::byte, 4> length;
    for (int i = 0; i < 4; ++i) length[i] = static_cast<std::byte>(command.size() >> (24 - 8 * i));
    Update(digest.get(), length);
    Update(digest.get(), command);
  }
  const Hmac inner = Finish(digest.get());
  Check(EVP_MD_CTX_copy_ex(digest.get(), states_->outer.get()));
  Update(digest.get(), inner);
  return Finish(digest.get());
}

bool HmacKey::Verify(Bytes command, Bytes hmac) const {
  const Hmac right = Sign(command);
  return hmac.size() == right.size() && CRYPTO_memcmp(hmac.data(), right.data(), right.size()) == 0;
}

}  // namespace pinstripe
