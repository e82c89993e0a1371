#include "kinetic/hmac.h"

// OpenSSL's EVP interface allocates for every copy of a digest, and four copies are a quarter of
// what a small request costs. Its plain SHA-1 is the same code, and its state is a struct.
#define OPENSSL_SUPPRESS_DEPRECATED

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cassert>
#include <cstdlib>

namespace pinstripe {
namespace {

constexpr size_t kBlockBytes = 64;  // of SHA-1

static_assert(kHmacBytes == SHA_DIGEST_LENGTH && kBlockBytes == SHA_CBLOCK);

void Check(int good) {
  if (good == 1) return;
  assert(!"SHA-1 is not available in this OpenSSL");
  std::abort();  // nothing could be signed
}

void Update(SHA_CTX& digest, Bytes bytes) {
  Check(SHA1_Update(&digest, bytes.data(), bytes.size()));
}

Hmac Finish(SHA_CTX& digest) {
  Hmac sum;
  Check(SHA1_Final(reinterpret_cast<unsigned char*>(sum.data()), &digest));
  return sum;
}

using Block = std::array<std::byte, kBlockBytes>;

Block PaddedKey(std::string_view key) {
  Block block{};
  if (key.size() <= kBlockBytes) {
    CopyBytes(block, AsBytes(key));
    return block;
  }
  SHA_CTX digest;
  Check(SHA1_Init(&digest));
  Update(digest, AsBytes(key));
  CopyBytes(block, Finish(digest));
  return block;
}

SHA_CTX Started(Block block, std::byte pad) {
  for (std::byte& byte : block) byte ^= pad;
  SHA_CTX digest;
  Check(SHA1_Init(&digest));
  Update(digest, block);
  return digest;
}

}  // namespace

// The digests after the key's block: HMAC(text) = SHA1(outer ‖ SHA1(inner ‖ text)).
struct HmacKey::States {
  SHA_CTX inner;
  SHA_CTX outer;
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
  SHA_CTX digest = states_->inner;
  if (!command.empty()) {
    std::array<std::byte, 4> length;
    for (int i = 0; i < 4; ++i) length[i] = static_cast<std::byte>(command.size() >> (24 - 8 * i));
    Update(digest, length);
    Update(digest, command);
  }
  const Hmac inner = Finish(digest);
  digest = states_->outer;
  Update(digest, inner);
  return Finish(digest);
}

bool HmacKey::Verify(Bytes command, Bytes hmac) const {
  const Hmac right = Sign(command);
  return hmac.size() == right.size() && CRYPTO_memcmp(hmac.data(), right.data(), right.size()) == 0;
}

}  // namespace pinstripe
