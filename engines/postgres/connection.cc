#include "engines/postgres/connection.h"

#include <libpq-fe.h>
#include <poll.h>

#include <array>
#include <cassert>

#include "base/coding.h"
#include "base/utf8.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 30s;       // more than a statement may take on the server
constexpr size_t kMostInFlight = 8;       // requests
constexpr size_t kMostSent = 8 << 20;     // bytes of them; one more may go beyond
constexpr size_t kMostAnswer = 64 << 20;  // bytes of a request's rows
constexpr size_t kStoreBytes = 16;

using ResultPtr = std::shared_ptr<const pg_result>;

ResultPtr Owned(PGresult* result) {
  return {result, [](const PGresult* each) { PQclear(const_cast<PGresult*>(each)); }};
}

PgError ErrorOf(const PGresult* result) {
  const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char* const message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  return {.state = state == nullptr ? "" : state,
          .message = message == nullptr ? PQresultErrorMessage(result) : message};
}

// Only of rows in text.
PgFacts FactsOf(const PGresult* result) {
  PgFacts facts;
  for (int column = 0; column < PQnfields(result); ++column) {
    facts.emplace(PQfname(result, column), PQgetvalue(result, 0, column));
  }
  return facts;
}

std::optional<std::string> FromHex(std::string_view text) {
  std::string bytes;
  if (text.size() % 2 != 0) return std::nullopt;
  for (size_t i = 0; i < text.size(); i += 2) {
    const std::string_view digits = text.substr(i, 2);
    if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return std::nullopt;
    bytes.push_back(static_cast<char>(NumberOf(digits, 16)));
  }
  return bytes;
}

}  // namespace

PgConnection::PgConnection(Runtime& runtime, const PgSql& sql, const PgParameters& to)
    : runtime_(runtime), sql_(sql) {
  std::vector<const char*> names;
  std::vector<const char*> values;
  for (const auto& [name, value] : to) {
    names.push_back(name.c_str());
    values.push_back(value.c_str());
  }
  names.push_back(nullptr);
  values.push_back(nullptr);
  connection_ = PQconnectStartParams(names.data(), values.data(), 0);
  if (connection_ == nullptr || PQstatus(connection_) == CONNECTION_BAD) {
    GiveUp(Fail(EHOSTUNREACH, "{}",
                connection_ == nullptr ? "no memory"
                                       : ConnectErrorOf(PQerrorMessage(connection_)).message));
    return;
  }
  PQsetErrorVerbosity(connection_, PQERRORS_VERBOSE);  // so that SQLSTATE is in its sentences
  PQsetNoticeReceiver(
      connection_,
      [](void* self, const PGresult* notice) {
        // At its level nothing less than a warning comes.
        static_cast<PgConnection*>(self)->warning_ = Printable(ErrorOf(notice).message, 200);
      },
      this);
  events_ = POLLOUT;
}

PgConnection::~PgConnection() { PQfinish(connection_); }

int PgConnection::fd() const { return stage_ == Stage::kLost ? -1 : PQsocket(connection_); }

short PgConnection::events() const { return events_; }

std::string PgConnection::address() const {
  const char* const address = connection_ == nullptr ? nullptr : PQhostaddr(connection_);
  return address == nullptr ? "" : address;
}

void PgConnection::GiveUp(const Status& why) {
  if (stage_ == Stage::kLost) return;
  stage_ = Stage::kLost;
  failure_ = why;
  events_ = 0;
  patience_.reset();
}

void PgConnection::GiveUpWithError(const PGresult* result) {
  const PgError error = ErrorOf(result);
  if (error.state.empty()) {
    GiveUp(Fail(EHOSTUNREACH, "the connection is lost: {}", Printable(error.message, 200)));
  } else {
    GiveUp(StatusOf(error));
  }
}

void PgConnection::OnReady(short) {
  switch (stage_) {
    case Stage::kConnecting: return GoOnConnecting();
    case Stage::kGreeting:
    case Stage::kMaking:
    case Stage::kLearning: return TakeReplies();
    case Stage::kGreeted:
    case Stage::kPreparing:
    case Stage::kUp: return TakeAnswers();
    case Stage::kLost: return;
  }
}

// --- Until it is greeted

void PgConnection::GoOnConnecting() {
  switch (PQconnectPoll(connection_)) {
    case PGRES_POLLING_READING: events_ = POLLIN; return;
    case PGRES_POLLING_WRITING: events_ = POLLOUT; return;
    case PGRES_POLLING_OK: break;
    default: {
      const PgError error = ConnectErrorOf(PQerrorMessage(connection_));
      if (!error.state.empty()) return GiveUp(StatusOf(error));
      const bool wants_password = PQconnectionNeedsPassword(connection_) != 0;
      return GiveUp(
          Fail(wants_password ? EACCES : EHOSTUNREACH, "{}", Printable(error.message, 200)));
    }
  }
  if (const int version = PQserverVersion(connection_); version < kLeastPgVersion) {
    return GiveUp(Fail(EHOSTUNREACH, "it is PostgreSQL {}: {} is the oldest that will do",
                       version / 10000, kLeastPgVersion / 10000));
  }
  PQsetnonblocking(connection_, 1);
  Ask(Stage::kGreeting, sql_.Greeting());
}

// Several statements, of which the last one's row counts.
void PgConnection::Ask(Stage stage, const std::string& text) {
  reply_.clear();
  reply_error_.reset();
  stage_ = stage;
  if (PQsendQuery(connection_, text.c_str()) == 0) {
    return GiveUp(Fail(EHOSTUNREACH, "{}", Printable(PQerrorMessage(connection_), 200)));
  }
  Flush();
}

void PgConnection::Flush() {
  const int left = PQflush(connection_);
  if (left < 0) {
    // What the server has said before it went says more.
    PQconsumeInput(connection_);
    if (PQstatus(connection_) == CONNECTION_BAD && in_flight_.empty()) {
      return GiveUp(Fail(EHOSTUNREACH, "the connection is lost: {}",
                         Printable(PQerrorMessage(connection_), 200)));
    }
  }
  events_ = left > 0 ? POLLIN | POLLOUT : POLLIN;
}

void PgConnection::TakeReplies() {
  const bool is_there = PQconsumeInput(connection_) != 0;
  Flush();
  while (stage_ != Stage::kLost && PQisBusy(connection_) == 0) {
    const ResultPtr result = Owned(PQgetResult(connection_));
    if (result == nullptr) return OnReplies();
    switch (PQresultStatus(result.get())) {
      case PGRES_TUPLES_OK:
        if (PQntuples(result.get()) == 1) reply_ = FactsOf(result.get());
        break;
      case PGRES_COMMAND_OK: break;
      default:
        if (ErrorOf(result.get()).state.empty()) return GiveUpWithError(result.get());
        reply_error_ = ErrorOf(result.get());
        break;
    }
  }
  if (!is_there) {
    GiveUp(Fail(EHOSTUNREACH, "the connection is lost: {}",
                Printable(PQerrorMessage(connection_), 200)));
  }
}

void PgConnection::OnReplies() {
  if (reply_error_) {
    return GiveUp(StatusOf(*reply_error_));
  }
  switch (stage_) {
    case Stage::kGreeting:
      facts_ = std::exchange(reply_, {});
      if (!facts_.contains("system")) {
        return GiveUp(Fail(EHOSTUNREACH, "it does not say what it is"));
      }
      warning_.reset();  // about what is not ours: its locale, say
      stage_ = Stage::kGreeted;
      return;
    case Stage::kMaking: return Ask(Stage::kLearning, sql_.Store());
    case Stage::kLearning: return OnStore();
    default: return;
  }
}

// --- Until it is up

void PgConnection::Open(std::string id) {
  assert(stage_ == Stage::kGreeted);
  constexpr uint64_t kParts = 3;  // two tables and a function
  new_id_ = std::move(id);
  if (NumberOf(FactOf(facts_, "parts")) >= kParts) return Ask(Stage::kLearning, sql_.Store());
  was_made_ = true;
  Ask(Stage::kMaking, sql_.Make(new_id_));
}

void PgConnection::OnStore() {
  if (reply_.empty() && !was_made_) {
    was_made_ = true;
    return Ask(Stage::kMaking, sql_.Make(new_id_));
  }
  const auto id = FromHex(FactOf(reply_, "encode"));
  if (!id || id->size() != kStoreBytes) {
    return GiveUp(
        Fail(EHOSTUNREACH, "the table {}.store is not as Pinstripe makes it", sql_.schema()));
  }
  if (const uint64_t layout = NumberOf(FactOf(reply_, "layout")); layout != kPgLayout) {
    return GiveUp(Fail(EHOSTUNREACH,
                       "its tables have layout {}, and this version knows {}: use a version of "
                       "Pinstripe that is as new as the one that made them",
                       layout, kPgLayout));
  }
  if (const std::string_view cluster = FactOf(reply_, "cluster"); cluster != sql_.cluster()) {
    return GiveUp(Fail(EHOSTUNREACH, "the schema {} keeps the names of another cluster, '{}'",
                       sql_.schema(), Printable(cluster, 64)));
  }
  store_ = *id;
  Prepare();
}

void PgConnection::Prepare() {
  stage_ = Stage::kPreparing;
  bool sent = PQenterPipelineMode(connection_) != 0;
  for (const PgStatement statement : kPgStatements) {
    sent = sent && PQsendPrepare(connection_, NameOf(statement), sql_.Text(statement).c_str(), 0,
                                 nullptr) != 0;
  }
  if (!sent || PQpipelineSync(connection_) == 0) {
    return GiveUp(Fail(EHOSTUNREACH, "{}", Printable(PQerrorMessage(connection_), 200)));
  }
  Flush();
}

// --- While it is up

bool PgConnection::HasRoomFor(const PgRequest& request) const {
  return in_flight_.empty() ||
         (in_flight_.size() < kMostInFlight && in_flight_bytes_ + request.bytes() <= kMostSent);
}

void PgConnection::Send(std::shared_ptr<PgRequest> request) {
  assert(stage_ == Stage::kUp);
  bool sent = true;
  for (const PgCall& call : request->calls()) {
    std::vector<const char*> values;
    std::vector<int> lengths;
    for (const PgValue& value : call.parameters) {
      values.push_back(value ? value->data() : nullptr);
      lengths.push_back(value ? static_cast<int>(value->size()) : 0);
    }
    const std::vector<int> binary(values.size(), 1);
    sent = sent &&
           PQsendQueryPrepared(connection_, NameOf(call.statement), static_cast<int>(values.size()),
                               values.data(), lengths.data(), binary.data(), 1) != 0;
  }
  sent = sent && PQpipelineSync(connection_) != 0;
  const bool is_first = in_flight_.empty();
  in_flight_bytes_ += request->bytes();
  in_flight_.push_back({.request = std::move(request), .rows = {PgRows()}});
  if (is_first) {
    ExpectRows();
    RestartPatience();
  }
  Flush();
  if (!sent) {
    GiveUp(Fail(EHOSTUNREACH, "the connection is lost: {}",
                Printable(PQerrorMessage(connection_), 200)));
  }
}

// Rows come one by one, so that too many are noticed before they are all here. Where this is not
// the moment to say so they come together.
void PgConnection::ExpectRows() { PQsetSingleRowMode(connection_); }

void PgConnection::RestartPatience() {
  patience_.emplace(runtime_, kPatience);
  silent_since_ = runtime_.Now();
}

void PgConnection::TakeAnswers() {
  const bool is_there = PQconsumeInput(connection_) != 0;
  Flush();
  // Null says that a statement's answer ends, or that there is nothing; twice in a row the latter.
  int nothing = 0;
  while (stage_ != Stage::kLost && PQisBusy(connection_) == 0) {
    ResultPtr result = Owned(PQgetResult(connection_));
    if (warning_) {
      return GiveUp(Fail(EHOSTUNREACH, "it warned: {}", *warning_));
    }
    if (result != nullptr) {
      nothing = 0;
      TakeAnswer(std::move(result));
      continue;
    }
    if (!in_flight_.empty() && in_flight_.front().call_ended) {
      in_flight_.front().call_ended = false;
      in_flight_.front().rows.emplace_back();
      ExpectRows();
      nothing = 0;
    } else if (++nothing > 1 && stage_ != Stage::kPreparing) {
      break;
    } else if (nothing > static_cast<int>(kPgStatements.size()) + 1) {
      break;
    }
  }
  if (stage_ != Stage::kLost && (!is_there || PQstatus(connection_) == CONNECTION_BAD)) {
    GiveUp(Fail(EHOSTUNREACH, "the connection is lost: {}",
                Printable(PQerrorMessage(connection_), 200)));
  }
}

void PgConnection::TakeAnswer(ResultPtr result) {
  const ExecStatusType status = PQresultStatus(result.get());
  if (stage_ == Stage::kPreparing) {
    if (status == PGRES_PIPELINE_SYNC) {
      stage_ = Stage::kUp;
    } else if (status != PGRES_COMMAND_OK) {
      GiveUpWithError(result.get());
    }
    return;
  }
  if (in_flight_.empty()) {
    // Nobody asked: the server says that it goes.
    if (status == PGRES_FATAL_ERROR) return GiveUpWithError(result.get());
    return GiveUp(Fail(EHOSTUNREACH, "it answered what nobody asked"));
  }
  InFlight& asked = in_flight_.front();
  // The last one is for the end of the transaction.
  const bool all_answered = asked.rows.size() > asked.request->calls().size();
  RestartPatience();
  switch (status) {
    case PGRES_SINGLE_TUPLE:
    case PGRES_TUPLES_OK:
      if (all_answered || asked.call_ended) {
        return GiveUp(Fail(EHOSTUNREACH, "it answered what nobody asked"));
      }
      TakeRows(asked, result);
      asked.call_ended = status == PGRES_TUPLES_OK;
      return;
    case PGRES_PIPELINE_ABORTED: asked.call_ended = true; return;
    case PGRES_PIPELINE_SYNC:
      if (!all_answered) return GiveUp(Fail(EHOSTUNREACH, "it did not answer all that was asked"));
      return OnEnd();
    case PGRES_FATAL_ERROR: {
      PgError error = ErrorOf(result.get());
      // Without a state it is libpq that says so. Where it comes with the end of the transaction,
      // nobody knows what became of that.
      if (error.state.empty() || all_answered) return GiveUpWithError(result.get());
      asked.error = std::move(error);
      asked.call_ended = true;
      return;
    }
    default: return GiveUp(Fail(EHOSTUNREACH, "its answer cannot be understood"));
  }
}

void PgConnection::TakeRows(InFlight& asked, const ResultPtr& result) {
  PgRows& rows = asked.rows.back();
  const size_t most = asked.request->calls()[asked.rows.size() - 1].max_rows;
  for (int i = 0; i < PQntuples(result.get()); ++i) {
    PgRow row(result, i);
    asked.bytes += row.size();
    if (rows.size() >= most || asked.bytes > kMostAnswer) {
      return GiveUp(Fail(EHOSTUNREACH, "it answered with more than was asked for"));
    }
    rows.push_back(std::move(row));
  }
}

void PgConnection::OnEnd() {
  InFlight asked = std::move(in_flight_.front());
  in_flight_.pop_front();
  in_flight_bytes_ -= asked.request->bytes();
  asked.rows.resize(asked.request->calls().size());
  // A session that ends has not done what it answers with that.
  if (asked.error && MeaningOf(asked.error->state) == PgMeaning::kLost) {
    GiveUp(StatusOf(*asked.error));
  }
  done_.push_back({.request = std::move(asked.request),
                   .rows = std::move(asked.rows),
                   .error = std::move(asked.error)});
  if (in_flight_.empty()) {
    patience_.reset();
  } else {
    ExpectRows();
  }
}

std::vector<std::shared_ptr<PgRequest>> PgConnection::TakeInFlight() {
  std::vector<std::shared_ptr<PgRequest>> requests;
  for (InFlight& each : in_flight_) requests.push_back(std::move(each.request));
  in_flight_.clear();
  return requests;
}

}  // namespace pinstripe
