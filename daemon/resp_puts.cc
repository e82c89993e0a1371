#include "daemon/resp_puts.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "daemon/shared_by_sessions.h"
#include "store/gate.h"

namespace pinstripe {
namespace {

// By the loop.
constexpr size_t kMostOfRound = 256;
constexpr size_t kMostBytesOfRound = 256 << 10;

}  // namespace

void RespPuts::Add(DeviceSecurity::IdentityPtr identity, std::vector<Engine::Change> puts,
                   Done done) {
  // What is posted here runs when the loop has told everybody whose socket is ready.
  if (next_.parts.empty()) loop_.Post([self = shared_from_this()] { self->Run(); });
  next_.parts.push_back({std::move(identity), next_.puts.size(), puts.size(), std::move(done)});
  for (Engine::Change& put : puts) {
    next_.bytes += put.record->value.size();
    next_.puts.push_back(std::move(put));
  }
}

void RespPuts::Merge(Round& round) {
  std::unordered_map<std::string_view, size_t> places;
  round.made.reserve(round.puts.size());
  round.made_as.reserve(round.puts.size());
  for (Engine::Change& put : round.puts) {
    const auto place = places.find(put.key);
    if (place != places.end()) {
      round.made_as.push_back(place->second);
      round.made[place->second].record = std::move(put.record);
      continue;
    }
    round.made_as.push_back(round.made.size());
    round.made.push_back(std::move(put));
    places.emplace(round.made.back().key, round.made.size() - 1);
  }
}

void RespPuts::Run() {
  Round round = std::exchange(next_, {});
  Merge(round);
  if (MakeAtOnce(round)) return Tell(round);
  const auto make = [self = shared_from_this(),
                     handed = std::make_shared<Round>(std::move(round))] {
    self->workers_.Add([self, handed] {
      self->Make(*handed);
      self->device_.turns().Leave(RespTurns::Kind::kBeside);
      self->loop_.Post([handed] { Tell(*handed); });
    });
  };
  if (device_.turns().Enter(RespTurns::Kind::kBeside, make)) make();
}

// Whether the device was not erased since these were allowed.
bool RespPuts::AreCurrent(const Round& round) const {
  const DeviceSecurity& security = device_.service().security();
  return std::ranges::all_of(round.parts,
                             [&](const Part& part) { return security.IsCurrent(*part.identity); });
}

bool RespPuts::MakeAtOnce(Round& round) {
  if (round.made.size() > kMostOfRound || round.bytes > kMostBytesOfRound) return false;
  const Time begin = loop_.runtime().Now();
  if (begin < no_puts_at_once_.load(std::memory_order_relaxed)) return false;
  const Gate::QuickVisit visit(device_.service().inside().executing);
  const RespTurns::Quick turn(device_.turns());
  if (!visit.inside() || !turn.inside() || !AreCurrent(round)) return false;
  const bool made = device_.PutAllAtOnce(round.made);
  const Time end = loop_.runtime().Now();
  if (end - begin > long_put_) no_puts_at_once_ = end + kRestFromPuts;
  if (made) round.statuses.resize(round.made.size());
  return made;
}

void RespPuts::Make(Round& round) {
  const Gate::Visit visit(device_.service().inside().executing);
  if (AreCurrent(round)) {
    round.statuses = device_.PutEach(round.made);
  } else {
    round.statuses.assign(round.made.size(), Fail(EACCES, "the device was erased meanwhile"));
  }
}

void RespPuts::Tell(const Round& round) {
  std::vector<Status> statuses;
  for (const Part& part : round.parts) {
    statuses.clear();
    for (size_t i = 0; i < part.count; ++i) {
      statuses.push_back(round.statuses[round.made_as[part.first + i]]);
    }
    part.done(statuses);
  }
}

}  // namespace pinstripe
