// What tests of EtcdEngine share: a listener that can be waited for, and calls that wait.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/real_runtime.h"
#include "engines/etcd/etcd_engine.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {

class HeardListener final : public NameEngine::Listener {
 public:
  void OnReached(const std::string& store) override {
    const MutexLock lock(mutex_);
    stores_.push_back(store);
    reached_ = true;
    changed_.WakeAll();
  }
  void OnLost(const Status& why) override {
    const MutexLock lock(mutex_);
    whys_.push_back(why);
    reached_ = false;
    changed_.WakeAll();
  }

  // The store, once there is one, or for the nth time (from 1).
  std::string AwaitStore(size_t times = 1) {
    const MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (stores_.size() < times || !reached_) {
      if (changed_.WaitUntil(lock, until)) continue;
      ADD_FAILURE() << "not reached: " << (whys_.empty() ? "" : whys_.back().message());
      return "";
    }
    return stores_.back();
  }
  Status AwaitLoss() {
    const MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (whys_.empty()) {
      if (changed_.WaitUntil(lock, until)) continue;
      ADD_FAILURE() << "not lost";
      return {};
    }
    return whys_.back();
  }
  size_t stores() {
    const MutexLock lock(mutex_);
    return stores_.size();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::vector<std::string> stores_ GUARDED_BY(mutex_);
  std::vector<Status> whys_ GUARDED_BY(mutex_);
  bool reached_ GUARDED_BY(mutex_) = false;
};

class EtcdEngineFixture : public testing::Test {
 protected:
  EtcdEngineFixture() { SetLogLevel(LogLevel::kError); }
  ~EtcdEngineFixture() override { SetLogLevel(LogLevel::kInfo); }

  // An engine that has a listener of its own, and calls that wait for their answers.
  struct Asker {
    Asker(Runtime& runtime_in, EngineOptions options)
        : runtime(runtime_in), engine(runtime_in, std::move(options)) {
      engine.Start(listener);
    }

    template <typename Answer, typename Ask>
    static Answer Await(Ask ask) {
      std::promise<Answer> answer;
      ask([&](Answer got) { answer.set_value(std::move(got)); });
      return answer.get_future().get();
    }
    Terms Soon(std::optional<int64_t> version = std::nullopt) {
      return {runtime.Now() + std::chrono::seconds(20), version};
    }

    Result<EngineAnswer> Do(EngineBatch batch, Terms terms) {
      return Await<Result<EngineAnswer>>([&](Callback<EngineAnswer> done) {
        engine.Do(std::move(batch), terms, std::move(done));
      });
    }
    Result<EngineAnswer> Do(EngineBatch batch) { return Do(std::move(batch), Soon()); }
    // The answer to one change.
    Status Change(EngineChange change, Terms terms) {
      EngineBatch batch;
      batch.changes.push_back(std::move(change));
      const Result<EngineAnswer> answer = Do(std::move(batch), terms);
      return answer ? answer->changes.at(0) : answer.error();
    }
    Status Change(EngineChange change) { return Change(std::move(change), Soon()); }
    Status Put(std::string key, std::string value, std::string version,
               Expected expected = Expected::Any()) {
      return Change({.key = std::move(key),
                     .put = RecordOf(std::move(value), std::move(version)),
                     .expected = std::move(expected)});
    }
    Status Remove(std::string key, Expected expected) {
      return Change({.key = std::move(key), .put = {}, .expected = std::move(expected)});
    }
    Result<Record> Get(std::string key, Terms terms) {
      EngineBatch batch;
      batch.reads.push_back(std::move(key));
      const Result<EngineAnswer> answer = Do(std::move(batch), terms);
      if (!answer) return tl::unexpected(answer.error());
      return answer->reads.at(0);
    }
    Result<Record> Get(std::string key) { return Get(std::move(key), Soon()); }
    // Its version, "-" where there is no such record, or what has failed.
    std::string VersionOf(std::string key) {
      const Result<Record> record = Get(std::move(key));
      if (record) return record->version;
      return record.error().code() == ENOENT ? "-" : std::string(record.error().message());
    }
    Result<RangeRecords> List(EngineRange range, Terms terms) {
      return Await<Result<RangeRecords>>([&](Callback<RangeRecords> done) {
        engine.List(std::move(range), terms, std::move(done));
      });
    }
    Result<RangeRecords> List(EngineRange range) { return List(std::move(range), Soon()); }
    // All keys of a range, page by page.
    std::vector<std::string> AllKeys(EngineRange range) {
      std::vector<std::string> keys;
      for (;;) {
        const Result<RangeRecords> page = List(range);
        EXPECT_OK(page);
        if (!page) return keys;
        for (const RangeRecord& record : page->records) keys.push_back(record.key);
        if (!page->more) return keys;
        if (range.reverse) {
          range.last = keys.back();
          keys.pop_back();  // it comes again
        } else {
          range.first = keys.back() + '\0';
        }
      }
    }
    Status SetVersion(int64_t version) {
      return Await<Status>(
          [&](StatusCallback done) { engine.SetClusterVersion(version, Soon(), std::move(done)); });
    }
    EngineState LookAt() {
      const auto state = Await<Result<EngineState>>(
          [&](Callback<EngineState> done) { engine.LookAt(Soon(), std::move(done)); });
      EXPECT_OK(state);
      return state.value_or(EngineState());
    }

    Runtime& runtime;
    HeardListener listener;
    EtcdEngine engine;
  };

  static Record RecordOf(std::string value, std::string version) {
    const uint32_t sum = Crc32c(AsBytes(value));
    return {.version = std::move(version),
            .tag = Writer().U32(sum).Take(),
            .value = SharedBytes(std::move(value))};
  }

  static EngineOptions OptionsFor(const EtcdCluster& etcd) {
    EngineOptions options;
    options.cluster = "test";
    options.endpoints = etcd.urls();
    options.least_backoff = std::chrono::milliseconds(10);
    options.most_backoff = std::chrono::milliseconds(200);
    return options;
  }
  std::unique_ptr<Asker> Connect(EngineOptions options) {
    return std::make_unique<Asker>(runtime_, std::move(options));
  }
  std::unique_ptr<Asker> Connect(const EtcdCluster& etcd) {
    auto asker = Connect(OptionsFor(etcd));
    asker->listener.AwaitStore();
    return asker;
  }

  RealRuntime runtime_;
};

}  // namespace pinstripe
