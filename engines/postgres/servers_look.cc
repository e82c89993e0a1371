#include "engines/postgres/servers_look.h"

#include <algorithm>
#include <iterator>

#include "base/byte_text.h"
#include "engines/postgres/server_facts.h"

namespace pinstripe {
namespace {

EngineMember MemberOf(PgDial& dial, bool greeted) {
  EngineMember member{.name = dial.server().name, .address = dial.server().name};
  if (!greeted) {
    member.note = dial.failure().message();
    return member;
  }
  const PgConnection& connection = *dial.connection();
  member.is_up = true;
  if (!connection.address().empty()) member.address = connection.address();
  if (FactOf(connection.facts(), "standby") == "t") {
    member.note = "standby";
  } else {
    const Status fits = CheckPgServer(connection.facts());
    member.note = fits.ok() ? "takes changes, too" : std::string(fits.message());
  }
  return member;
}

}  // namespace

bool PgServersLook::GoOn() {
  for (std::unique_ptr<PgDial>& dial : dials) {
    if (dial == nullptr) continue;
    const PgDial::Outcome outcome = dial->GoOn();
    if (outcome == PgDial::Outcome::kGoesOn) continue;
    const bool greeted = outcome == PgDial::Outcome::kGreeted;
    if (greeted && FactOf(dial->connection()->facts(), "standby") == "t") {
      const auto position = NumberOf(FactOf(dial->connection()->facts(), "position"));
      positions.emplace_back(members.size(), static_cast<int64_t>(position));
    }
    members.push_back(MemberOf(*dial, greeted));
    dial.reset();
  }
  const bool all = std::ranges::all_of(dials, [](const auto& dial) { return !dial; });
  return all && primary && done != nullptr;
}

Result<EngineState> PgServersLook::Finish(std::optional<EngineMember> asked) {
  EngineState state;
  if (!*primary) {
    const Status& why = primary->error();
    if (why.code() == EREMCHG) return tl::unexpected(why);
    state.software = "PostgreSQL";
    state.alarms.emplace_back(why.WithoutDriveName());
    state.members = std::move(members);
    return state;
  }
  PgLook& found = **primary;
  state = std::move(found.state);
  for (const auto& [member, position] : positions) {
    if (found.position <= position) continue;
    members[member].note +=
        fmt::format(", {} behind", BytesText(static_cast<uint64_t>(found.position - position)));
  }
  if (asked) state.members.push_back(*std::move(asked));
  // Standbys that it knows, and that the connection string does not name.
  for (EngineMember& standby : found.standbys) {
    const bool is_named = std::ranges::any_of(members, [&](const EngineMember& member) {
      return member.is_up && member.note.starts_with("standby") &&
             (member.address == standby.address || members.size() == found.standbys.size());
    });
    if (!is_named) state.members.push_back(std::move(standby));
  }
  std::ranges::move(members, std::back_inserter(state.members));
  return state;
}

}  // namespace pinstripe
