#include "upkeep/actor.h"

#include <errno.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cluster/membership/drive_claim.h"

namespace pinstripe {
namespace {

bool IsPrintableByte(char c) { return c >= ' ' && c <= '~'; }

std::string NameOfUser() {
  for (const char* const variable : {kOperatorVariable, "SUDO_USER"}) {
    const char* const name = std::getenv(variable);
    if (name != nullptr && name[0] != '\0') return name;
  }
  std::vector<char> room(16 << 10);
  passwd entry{};
  passwd* found = nullptr;
  const uid_t id = geteuid();
  if (getpwuid_r(id, &entry, room.data(), room.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return fmt::format("user {}", id);
}

std::string TakeText(Reader& in) {
  const std::string_view text = in.Text();
  if (text.size() > kMaxActorText || !IsPrintableAscii(text)) in.MarkBad();
  return std::string(text);
}

}  // namespace

bool IsPrintableAscii(std::string_view text) { return std::ranges::all_of(text, IsPrintableByte); }

std::string PrintableAscii(std::string_view text, size_t most) {
  std::string result(text.substr(0, most));
  std::ranges::replace_if(
      result, [](char c) { return !IsPrintableByte(c); }, '?');
  return result;
}

std::string Actor::Text() const {
  const std::string who = user.empty() ? program : user;
  if (who == program) return fmt::format("{} on {} (process {})", who, host, process);
  return fmt::format("{} on {} ({}, process {})", who, host, program, process);
}

void Actor::EncodeInto(Writer& out) const {
  out.Text(PrintableAscii(host, kMaxActorText)).U32(process);
  out.Text(PrintableAscii(program, kMaxActorText)).Text(PrintableAscii(user, kMaxActorText));
}

Actor Actor::DecodeFrom(Reader& in) {
  Actor actor;
  actor.host = TakeText(in);
  actor.process = in.U32();
  actor.program = TakeText(in);
  actor.user = TakeText(in);
  return actor;
}

Actor ThisProcess() {
  return {.host = NameOfThisHost(),
          .process = static_cast<uint32_t>(getpid()),
          .program = PrintableAscii(program_invocation_short_name, kMaxActorText),
          .user = PrintableAscii(NameOfUser(), kMaxActorText)};
}

}  // namespace pinstripe
