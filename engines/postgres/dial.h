// PgDial: an attempt to reach one server: its name is looked up, and its addresses are tried one
// after the other until one of them greets us.
//
// For one thread. Never waits: its owner polls for its connection, and calls GoOn().

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engines/postgres/connection.h"
#include "engines/postgres/way.h"

namespace pinstripe {

class PgDial {
 public:
  // What is common to all attempts of an engine.
  struct Context {
    Runtime& runtime;
    const PgSql& sql;
    const PgWay& way;
    std::shared_ptr<const PgWake> wake;
    Duration timeout;
  };

  PgDial(const Context& context, const PgServer& server);

  const PgServer& server() const { return server_; }
  // Null: there is none at the moment.
  PgConnection* connection() const { return connection_.get(); }
  Time give_up_at() const { return limit_.time(); }

  // What came of it so far: greeted, failed, or neither yet.
  enum class Outcome { kGoesOn, kGreeted, kFailed };
  Outcome GoOn();
  const Status& failure() const { return failure_; }
  std::unique_ptr<PgConnection> TakeConnection() { return std::move(connection_); }

 private:
  bool ConnectToNext();

  const Context& context_;
  const PgServer& server_;
  TimeLimit limit_;
  std::shared_ptr<PgLookup> lookup_;
  std::vector<std::string> addresses_;  // that are left, the next one last
  std::unique_ptr<PgConnection> connection_;
  Status failure_;
};

}  // namespace pinstripe
