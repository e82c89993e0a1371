#include "kinetic/key_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/coding.h"

namespace pinstripe {
namespace {

constexpr size_t kMostBytes = 48;      // of a key that is of no known form
constexpr size_t kMostReadable = 128;  // of the name in a register's key
constexpr size_t kLongestClusterName = 32;
constexpr size_t kWriteIdBytes = 16;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool IsLetter(char c) { return c >= 'A' && c <= 'Z'; }

// Shows bytes that are not printable characters in hexadecimal.
std::string Readable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, kMostReadable)) {
    const auto byte = static_cast<uint8_t>(c);
    text +=
        byte > ' ' && byte < 0x7f && c != '\\' ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return bytes.size() > kMostReadable ? text + "..." : text;
}

std::string HexText(std::string_view key) {
  return Hex(AsBytes(key.substr(0, kMostBytes))) + (key.size() > kMostBytes ? "..." : "");
}

}  // namespace

std::string RegisterText(uint32_t group, std::string_view key) {
  constexpr size_t kNumbered = 1 + sizeof(uint64_t);
  if (key.size() < kNumbered || !IsLetter(key[0])) {
    return fmt::format("register {}/{}", group, Readable(key));
  }
  const std::string_view rest = key.substr(kNumbered);
  return fmt::format("register {}/{}:{:016x}{}{}", group, key[0], Reader(key.substr(1)).U64(),
                     rest.empty() ? "" : "/", Readable(rest));
}

std::string KeyText(std::string_view key) {
  Reader reader(key);
  const size_t length = reader.U8();
  const std::string_view name = reader.Raw(length);
  const bool is_ours =
      !name.empty() && length <= kLongestClusterName && std::ranges::all_of(name, IsNameCharacter);
  const std::string_view kind = reader.Raw(1);
  if (!is_ours || !reader.ok()) return HexText(key);
  if (kind == "S" && reader.left() == 0) return "superblock";
  if (kind == "R") {
    const uint32_t group = reader.U32();
    const std::string_view rest = reader.Rest();
    if (reader.ok() && !rest.empty()) return RegisterText(group, rest);
  }
  if (kind == "D") {
    const uint64_t object = reader.U64();
    const uint64_t block = reader.U64();
    reader.Raw(kWriteIdBytes);
    const uint8_t shard = reader.U8();
    if (reader.ok() && reader.left() == 0) {
      return fmt::format("shard {} of block {} of object {:016x}", shard, block, object);
    }
  }
  return HexText(key);
}

}  // namespace pinstripe
