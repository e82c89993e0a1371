// EngineClient: asks an engine on PostgreSQL and waits for its answers, and remembers what the
// engine told of itself.

#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/real_runtime.h"
#include "engines/postgres/postgres_engine.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {

inline Record RecordOf(std::string_view value, std::string version, std::string tag = "") {
  return {.version = std::move(version),
          .tag = std::move(tag),
          .value = SharedBytes(std::string(value))};
}

class EngineClient final : public NameEngine::Listener {
 public:
  static EngineOptions OptionsFor(const std::string& connection, std::string cluster = "test") {
    EngineOptions options;
    options.cluster = std::move(cluster);
    options.connection = connection;
    options.least_backoff = std::chrono::milliseconds(5);
    options.most_backoff = std::chrono::milliseconds(100);
    return options;
  }

  explicit EngineClient(const std::string& connection) : EngineClient(OptionsFor(connection)) {}
  explicit EngineClient(const EngineOptions& options)
      : engine_(NewPostgresEngine(runtime_, options)) {
    engine_->Start(*this);
  }
  ~EngineClient() override { engine_.reset(); }

  NameEngine& engine() { return *engine_; }
  RealRuntime& runtime() { return runtime_; }

  void OnReached(const std::string& store) override {
    const MutexLock lock(mutex_);
    ++reached_;
    store_ = store;
    why_ = {};
    changed_.WakeAll();
  }
  void OnLost(const Status& why) override {
    const MutexLock lock(mutex_);
    ++lost_;
    store_.clear();
    why_ = why;
    changed_.WakeAll();
  }

  // The store's id, once it is reached; empty if it takes too long.
  std::string WaitUntilReached() {
    const Time until = Soon();
    const MutexLock lock(mutex_);
    while (store_.empty()) {
      if (!changed_.WaitUntil(lock, Steady(until))) {
        ADD_FAILURE() << "not reached: " << why_.message();
        return "";
      }
    }
    return store_;
  }
  // Why it is lost, or cannot be reached.
  Status WaitUntilLost() {
    const Time until = Soon();
    const MutexLock lock(mutex_);
    while (why_.ok()) {
      if (!changed_.WaitUntil(lock, Steady(until))) {
        ADD_FAILURE() << "not lost";
        return {};
      }
    }
    return why_;
  }
  int reached() {
    const MutexLock lock(mutex_);
    return reached_;
  }

  Time Soon() { return runtime_.Now() + std::chrono::seconds(120); }

  template <typename Answer, typename Ask>
  static Answer Await(Ask ask) {
    std::promise<Answer> answer;
    ask([&](Answer got) { answer.set_value(std::move(got)); });
    return answer.get_future().get();
  }

  Result<EngineAnswer> Do(EngineBatch batch, Terms terms) {
    return Await<Result<EngineAnswer>>([&](Callback<EngineAnswer> done) {
      engine_->Do(std::move(batch), terms, std::move(done));
    });
  }
  Result<EngineAnswer> Do(EngineBatch batch) { return Do(std::move(batch), Soon()); }
  Status Change(EngineChange change, Terms terms) {
    EngineBatch batch;
    batch.changes.push_back(std::move(change));
    const Result<EngineAnswer> answer = Do(std::move(batch), terms);
    if (!answer) return answer.error();
    if (answer->changes.size() != 1) return Fail(EBADMSG, "{} answers", answer->changes.size());
    return answer->changes[0];
  }
  Status Change(EngineChange change) { return Change(std::move(change), Soon()); }
  Status Put(std::string key, std::string_view value, std::string version,
             Expected expected = Expected::Any(), std::optional<Guard> guard = {}) {
    return Change({.key = std::move(key),
                   .put = RecordOf(value, std::move(version)),
                   .expected = std::move(expected),
                   .guard = std::move(guard)});
  }
  Status Remove(std::string key, Expected expected = Expected::Any()) {
    return Change({.key = std::move(key), .expected = std::move(expected)});
  }
  Result<Record> Get(std::string key, Terms terms) {
    EngineBatch batch;
    batch.reads.push_back(std::move(key));
    Result<EngineAnswer> answer = Do(std::move(batch), terms);
    if (!answer) return tl::unexpected(answer.error());
    if (answer->reads.size() != 1) return Fail(EBADMSG, "{} answers", answer->reads.size());
    return std::move(answer->reads[0]);
  }
  Result<Record> Get(std::string key) { return Get(std::move(key), Soon()); }
  // Asks until it is not away any more.
  Result<Record> GetOnceItIsBack(const std::string& key) {
    for (;;) {
      WaitUntilReached();
      Result<Record> record = Get(key);
      if (record || record.error().code() != EHOSTUNREACH) return record;
    }
  }
  Result<RangeRecords> List(EngineRange range) {
    return Await<Result<RangeRecords>>([&](Callback<RangeRecords> done) {
      engine_->List(std::move(range), Soon(), std::move(done));
    });
  }
  Status SetClusterVersion(int64_t version) {
    return Await<Status>(
        [&](StatusCallback done) { engine_->SetClusterVersion(version, Soon(), std::move(done)); });
  }
  Result<EngineState> LookAt() {
    return Await<Result<EngineState>>(
        [&](Callback<EngineState> done) { engine_->LookAt(Soon(), std::move(done)); });
  }

 private:
  std::chrono::steady_clock::time_point Steady(Time until) {
    return std::chrono::steady_clock::now() + (until - runtime_.Now());
  }

  RealRuntime runtime_;
  Mutex mutex_;
  Condition changed_;
  int reached_ GUARDED_BY(mutex_) = 0;
  int lost_ GUARDED_BY(mutex_) = 0;
  std::string store_ GUARDED_BY(mutex_);
  Status why_ GUARDED_BY(mutex_);
  std::unique_ptr<NameEngine> engine_;  // the last: it tells the others
};

}  // namespace pinstripe
