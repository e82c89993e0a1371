// PgConnection: one session on a PostgreSQL server, from the first byte to its loss. Never waits:
// its owner polls for what it waits for.
//
// It connects and learns what the server is (kGreeted). If the owner wants it, Open() then makes
// what is missing of the store, learns which store it is, and prepares all statements (kUp). From
// then on it is a pipeline: requests are sent without waiting for answers. Each is a transaction of
// its own, so an error concerns it alone. A request is done when the server has said that its
// transaction ended, not before: rows come before the commit.
//
// A server warns when somebody has cancelled a commit that waited for a standby: it is done, and
// may be lost. So a session that warns is left, and what was on its way may have happened.
//
// For one thread.

#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "engines/postgres/requests.h"
#include "engines/postgres/server_facts.h"
#include "engines/postgres/sql.h"
#include "engines/postgres/way.h"

struct pg_conn;  // libpq's

namespace pinstripe {

// What became of a request.
struct PgDone {
  std::shared_ptr<PgRequest> request;
  std::vector<PgRows> rows;      // of each of its calls
  std::optional<PgError> error;  // then nothing was done
};

class PgConnection {
 public:
  enum class Stage { kConnecting, kGreeting, kGreeted, kMaking, kLearning, kPreparing, kUp, kLost };

  // Begins to connect. `runtime` and `sql` outlive it.
  PgConnection(Runtime& runtime, const PgSql& sql, const PgParameters& to);
  ~PgConnection();
  PgConnection(const PgConnection&) = delete;
  PgConnection& operator=(const PgConnection&) = delete;

  Stage stage() const { return stage_; }
  const Status& failure() const { return failure_; }  // when lost

  // What to poll for, and what to call with what came of it.
  int fd() const;
  short events() const;
  void OnReady(short events);

  const PgFacts& facts() const { return facts_; }  // from kGreeted on
  std::string address() const;                     // that it is connected to; empty: a local socket

  // When kGreeted. `id` is for a store that has none yet.
  void Open(std::string id);
  const std::string& store() const { return store_; }  // when up: its id

  // When up.
  bool HasRoomFor(const PgRequest& request) const;
  void Send(std::shared_ptr<PgRequest> request);
  size_t in_flight() const { return in_flight_.size(); }
  // Since when the server owes an answer, with nothing else from it since. Null: it owes none.
  const std::optional<TimeLimit>& patience() const { return patience_; }
  Time silent_since() const { return silent_since_; }

  // What has been done since this was called last.
  std::vector<PgDone> TakeDone() { return std::exchange(done_, {}); }
  // When lost, or to be destroyed: those of which nobody knows whether they were done.
  std::vector<std::shared_ptr<PgRequest>> TakeInFlight();

  void GiveUp(const Status& why);

 private:
  struct InFlight {
    std::shared_ptr<PgRequest> request;
    std::vector<PgRows> rows;
    std::optional<PgError> error;
    size_t bytes = 0;  // of its rows
    // The call that is answered now has told all its rows.
    bool call_ended = false;
  };

  void GoOnConnecting();
  void Ask(Stage stage, const std::string& text);
  void TakeReplies();
  void OnReplies();
  void OnGreeting();
  void OnStore();
  void Prepare();
  void TakeAnswers();
  void TakeAnswer(std::shared_ptr<const struct pg_result> result);
  void TakeRows(InFlight& asked, const std::shared_ptr<const struct pg_result>& result);
  void OnEnd();
  void ExpectRows();
  void Flush();
  void GiveUpWithError(const struct pg_result* result);
  void RestartPatience();

  Runtime& runtime_;
  const PgSql& sql_;
  pg_conn* connection_ = nullptr;
  Stage stage_ = Stage::kConnecting;
  Status failure_;
  std::optional<std::string> warning_;
  short events_ = 0;

  // Before it is up: the last row of what was answered, by the names of its columns.
  PgFacts reply_;
  std::optional<PgError> reply_error_;
  PgFacts facts_;
  std::string new_id_;
  bool was_made_ = false;
  std::string store_;

  std::deque<InFlight> in_flight_;
  size_t in_flight_bytes_ = 0;
  std::vector<PgDone> done_;
  std::optional<TimeLimit> patience_;
  Time silent_since_{};
};

}  // namespace pinstripe
