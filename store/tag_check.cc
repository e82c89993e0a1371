#include "store/tag_check.h"

#include <openssl/evp.h>

#include <string>

#include "base/checksum.h"
#include "base/coding.h"

namespace pinstripe {
namespace {

constexpr int kSha1 = 1;
constexpr int kSha2 = 2;
constexpr int kSha3 = 3;
constexpr int kCrc32c = 4;
constexpr int kCrc32 = 6;

std::string Digest(const EVP_MD* kind, Bytes value) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(value.data(), value.size(), digest, &size, kind, nullptr) != 1) return {};
  return {reinterpret_cast<const char*>(digest), size};
}

std::string BigEndian(uint32_t sum) { return Writer().U32(sum).Take(); }

}  // namespace

TagVerdict CheckTag(const StoredHead& head, Bytes value) {
  if (head.tag.empty() || !head.algorithm) return TagVerdict::kUnknown;
  std::string right;
  switch (*head.algorithm) {
    case kSha1: right = Digest(EVP_sha1(), value); break;
    case kSha2: right = Digest(EVP_sha256(), value); break;
    case kSha3: right = Digest(EVP_sha3_256(), value); break;
    case kCrc32c: right = BigEndian(Crc32c(value)); break;
    case kCrc32: right = BigEndian(Crc32(value)); break;
    default: return TagVerdict::kUnknown;
  }
  if (right.empty()) return TagVerdict::kUnknown;  // this machine's library lacks the algorithm
  return head.tag == right ? TagVerdict::kRight : TagVerdict::kWrong;
}

Status CheckCoveringTag(StoredRecord* record) {
  const StoredHead& head = record->head;
  if (record->value.empty() && head.tag.empty()) return {};
  if (head.algorithm != kCrc32c) {
    return Fail(EBADMSG, "a value without a tag that covers it: nobody has signed for it");
  }
  record->value_crc = Crc32c(record->value);
  if (head.tag == BigEndian(*record->value_crc)) return {};
  return Fail(EBADMSG, "the value is not the one that was signed for: its tag is that of another");
}

}  // namespace pinstripe
