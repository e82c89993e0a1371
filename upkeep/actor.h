// Actor: which process did something, and for whom, as events and work say it.

#pragma once

#include <cstdint>
#include <string>

#include "base/coding.h"

namespace pinstripe {

// Each text has printable characters of ASCII alone, and no more than kMaxActorText of them.
struct Actor {
  std::string host;
  uint32_t process = 0;  // there
  std::string program;   // "xrootd"
  std::string user;      // "alice"; the operator of the console, or the one who called sudo

  // "alice on box1 (pinstripe, process 123)"
  std::string Text() const;

  void EncodeInto(Writer& out) const;
  static Actor DecodeFrom(Reader& in);  // what it should not have makes the reader bad
  friend bool operator==(const Actor&, const Actor&) = default;
};

inline constexpr size_t kMaxActorText = 255;

// In the environment of what the console starts: the operator who had it do that.
inline constexpr char kOperatorVariable[] = "PINSTRIPE_OPERATOR";

// The process that asks.
Actor ThisProcess();

// With '?' for each byte that is no printable character of ASCII, and cut at `most` bytes: what
// others may have chosen is shown on terminals.
std::string PrintableAscii(std::string_view text, size_t most);
bool IsPrintableAscii(std::string_view text);

}  // namespace pinstripe
