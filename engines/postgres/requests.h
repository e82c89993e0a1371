// PgRequest: one question of an engine to PostgreSQL, and what becomes of its answer.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "engines/engine.h"
#include "engines/postgres/pg_values.h"
#include "engines/postgres/sql.h"

namespace pinstripe {

// A statement, as it was prepared, with its parameters in binary.
struct PgCall {
  PgStatement statement;
  std::vector<PgValue> parameters;
  size_t max_rows = 1;  // more is no answer
};

// Its calls are one transaction, in this order. Answers exactly once.
class PgRequest {
 public:
  // What the calls answered, all of them with PgWord::kOk.
  using Take = std::function<void(std::vector<PgRows>)>;
  using Fail = std::function<void(const Status&)>;

  PgRequest(std::vector<PgCall> calls, Terms terms, Take take, Fail fail);

  const std::vector<PgCall>& calls() const { return calls_; }
  const Terms& terms() const { return terms_; }
  size_t bytes() const { return bytes_; }  // of its parameters

  // Has it raise the cluster version, too, when it is sent again.
  void Raise(const std::string& store);
  bool raises() const { return raises_; }

  bool is_answered() const { return fail_ == nullptr; }
  void Answer(std::vector<PgRows> rows);
  void AnswerFailure(const Status& why);

 private:
  std::vector<PgCall> calls_;
  const Terms terms_;
  Take take_;
  Fail fail_;
  size_t bytes_ = 0;
  bool raises_ = false;
};

// The word that each call begins its answer with; what stands in the first row of the first call.
struct PgVerdict {
  PgWord word = PgWord::kGone;
  int64_t version = 0;
};
// EBADMSG: they cannot be understood. No row: the store is gone.
Result<PgVerdict> VerdictOf(const std::vector<PgRows>& rows);

// Requests to the store of this id. Callbacks get what is to be answered, or why not.
std::shared_ptr<PgRequest> NewBatchRequest(const PgSql& sql, const std::string& store,
                                           EngineBatch batch, const Terms& terms,
                                           Callback<EngineAnswer> done);
std::shared_ptr<PgRequest> NewListRequest(const std::string& store, EngineRange range,
                                          const Terms& terms, Callback<RangeRecords> done);
std::shared_ptr<PgRequest> NewVersionRequest(const std::string& store, int64_t version,
                                             const Terms& terms, StatusCallback done);
// What the server that takes changes knows of itself and its standbys.
struct PgLook {
  EngineState state;     // without members
  int64_t position = 0;  // in its log, in bytes
  std::vector<EngineMember> standbys;
};
std::shared_ptr<PgRequest> NewLookRequest(const std::string& store, const Terms& terms,
                                          Callback<PgLook> done);

}  // namespace pinstripe
