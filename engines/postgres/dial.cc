#include "engines/postgres/dial.h"

#include <algorithm>

namespace pinstripe {

PgDial::PgDial(const Context& context, const PgServer& server)
    : context_(context), server_(server), limit_(context.runtime, context.timeout) {
  if (server.needs_lookup()) {
    lookup_ = PgLookup::Start(context.runtime, server.host, context.wake);
  } else {
    addresses_ = {server.address};
    ConnectToNext();
  }
}

bool PgDial::ConnectToNext() {
  if (addresses_.empty()) return false;
  const PgParameters to = context_.way.To(server_, addresses_.back());
  addresses_.pop_back();
  connection_ = std::make_unique<PgConnection>(context_.runtime, context_.sql, to);
  return true;
}

PgDial::Outcome PgDial::GoOn() {
  using Stage = PgConnection::Stage;
  if (connection_ != nullptr && connection_->stage() == Stage::kGreeted) return Outcome::kGreeted;
  if (lookup_ != nullptr && lookup_->is_done()) {
    Result<std::vector<std::string>> found = std::exchange(lookup_, nullptr)->Take();
    if (!found) {
      failure_ = found.error();
      return Outcome::kFailed;
    }
    addresses_ = *std::move(found);
    std::ranges::reverse(addresses_);
    ConnectToNext();
  }
  while (connection_ != nullptr && connection_->stage() == Stage::kLost) {
    failure_ = connection_->failure();
    if (!ConnectToNext()) {
      connection_.reset();
      return Outcome::kFailed;
    }
  }
  if (!limit_.has_passed()) return Outcome::kGoesOn;
  failure_ = Fail(EHOSTUNREACH, "{}",
                  lookup_ != nullptr ? "the resolver does not answer" : "it does not answer");
  connection_.reset();
  return Outcome::kFailed;
}

}  // namespace pinstripe
