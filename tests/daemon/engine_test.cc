// The rules of versions, limits and neighbours, as every Kinetic device has them.

#include "daemon/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "store/memory_store.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

class EngineTest : public testing::Test {
 protected:
  Status Put(std::string_view key, std::string version, const Expected& expected,
             std::string value = "value") {
    return engine_.Put(key, {{.version = std::move(version)}, SharedBytes(std::move(value))},
                       expected);
  }
  std::string VersionOf(std::string_view key) {
    const auto head = engine_.Head(key);
    return head.has_value() ? head->version : "(" + ErrnoText(head.error().code()) + ")";
  }

  Engine engine_{std::make_unique<MemoryStore>()};
};

TEST_F(EngineTest, ANewKeyHasTheEmptyVersion) {
  EXPECT_FAILS(Put("key", "v1", Expected::Version("v0")), ESTALE);
  EXPECT_FAILS(engine_.Head("key"), ENOENT);
  EXPECT_OK(Put("key", "v1", Expected::Absent()));
  EXPECT_EQ(VersionOf("key"), "v1");
}

TEST_F(EngineTest, AnEntryWithAVersionIsReplacedOnlyByWhoKnowsIt) {
  ASSERT_OK(Put("key", "v1", Expected::Absent()));
  EXPECT_FAILS(Put("key", "v2", Expected::Absent()), ESTALE);
  EXPECT_FAILS(Put("key", "v2", Expected::Version("v0")), ESTALE);
  EXPECT_FAILS(Put("key", "v2", Expected::Version("v")), ESTALE);
  EXPECT_FAILS(Put("key", "v2", Expected::Version("v11")), ESTALE);
  EXPECT_EQ(VersionOf("key"), "v1");
  EXPECT_OK(Put("key", "v2", Expected::Version("v1")));
  EXPECT_EQ(VersionOf("key"), "v2");
}

TEST_F(EngineTest, AnEntryWithoutAVersionIsReplacedLikeAnAbsentOne) {
  ASSERT_OK(Put("key", "", Expected::Absent()));
  EXPECT_FAILS(Put("key", "v1", Expected::Version("v0")), ESTALE);
  EXPECT_OK(Put("key", "", Expected::Version("")));
  EXPECT_OK(Put("key", "v1", Expected::Absent()));
}

TEST_F(EngineTest, AVersionCanBeTakenAway) {
  ASSERT_OK(Put("key", "v1", Expected::Absent()));
  ASSERT_OK(Put("key", "", Expected::Version("v1")));
  EXPECT_EQ(VersionOf("key"), "");
}

TEST_F(EngineTest, WhoExpectsNothingAlwaysWrites) {
  EXPECT_OK(Put("key", "v1", Expected::Any()));
  EXPECT_OK(Put("key", "v2", Expected::Any()));
  EXPECT_EQ(VersionOf("key"), "v2");
}

TEST_F(EngineTest, DeletingFollowsTheSameRules) {
  EXPECT_FAILS(engine_.Delete("key", Expected::Any()), ENOENT);
  EXPECT_FAILS(engine_.Delete("key", Expected::Absent()), ENOENT);
  EXPECT_FAILS(engine_.Delete("key", Expected::Version("v1")), ENOENT);
  ASSERT_OK(Put("key", "v1", Expected::Any()));
  EXPECT_FAILS(engine_.Delete("key", Expected::Absent()), ESTALE);
  EXPECT_FAILS(engine_.Delete("key", Expected::Version("v0")), ESTALE);
  EXPECT_EQ(VersionOf("key"), "v1");
  EXPECT_OK(engine_.Delete("key", Expected::Version("v1")));
  EXPECT_FAILS(engine_.Head("key"), ENOENT);
  ASSERT_OK(Put("key", "v1", Expected::Any()));
  EXPECT_OK(engine_.Delete("key", Expected::Any()));
  ASSERT_OK(Put("key", "", Expected::Any()));
  EXPECT_OK(engine_.Delete("key", Expected::Absent()));
}

TEST_F(EngineTest, LimitsAreReachedAndNotPassed) {
  const auto text = [](size_t size) { return std::string(size, 'x'); };
  EXPECT_OK(Put(text(kMaxKeyBytes), "", Expected::Any()));
  EXPECT_FAILS(Put(text(kMaxKeyBytes + 1), "", Expected::Any()), EINVAL);
  EXPECT_OK(Put("key", text(kMaxVersionBytes), Expected::Any()));
  EXPECT_FAILS(Put("key", text(kMaxVersionBytes + 1), Expected::Any()), EINVAL);
  EXPECT_FAILS(Put("key", "", Expected::Version(text(kMaxVersionBytes + 1))), EINVAL);
  EXPECT_OK(Put("key", "", Expected::Any(), text(kMaxValueBytes)));
  EXPECT_FAILS(Put("key", "", Expected::Any(), text(kMaxValueBytes + 1)), EINVAL);
  EXPECT_OK(engine_.Put("tag", {{.tag = text(kMaxTagBytes)}, {}}, Expected::Any()));
  EXPECT_FAILS(engine_.Put("tag", {{.tag = text(kMaxTagBytes + 1)}, {}}, Expected::Any()), EINVAL);
  EXPECT_FAILS(engine_.Get(text(kMaxKeyBytes + 1)), EINVAL);
  EXPECT_FAILS(engine_.Head(text(kMaxKeyBytes + 1)), EINVAL);
  EXPECT_FAILS(engine_.Delete(text(kMaxKeyBytes + 1), Expected::Any()), EINVAL);
  EXPECT_OK(engine_.Keys({}, kMaxRangeKeys, false));
  EXPECT_FAILS(engine_.Keys({}, kMaxRangeKeys + 1, false), EINVAL);
  EXPECT_FAILS(engine_.Keys({}, 0, false), EINVAL);
}

TEST_F(EngineTest, TheEmptyKeyIsAKeyAndTheFirst) {
  ASSERT_OK(Put("", "v1", Expected::Absent(), "empty"));
  ASSERT_OK(Put("a", "v1", Expected::Absent()));
  EXPECT_EQ(engine_.Get("")->value.text(), "empty");
  EXPECT_EQ(engine_.GetPrevious("a")->key, "");
}

TEST_F(EngineTest, NeighboursAreStrictlyAboveAndBelowAKeyThatNeedNotExist) {
  for (const char* key : {"a", "b", "b\x01", "d"}) ASSERT_OK(Put(key, "v", Expected::Any(), key));
  const auto next = [&](const char* key) {
    const auto found = engine_.GetNext(key);
    return found.has_value() ? found->key : "(none)";
  };
  const auto previous = [&](const char* key) {
    const auto found = engine_.GetPrevious(key);
    return found.has_value() ? found->key : "(none)";
  };
  EXPECT_EQ(next(""), "a");
  EXPECT_EQ(next("a"), "b");
  EXPECT_EQ(next("b"), "b\x01");
  EXPECT_EQ(next("c"), "d");
  EXPECT_EQ(next("d"), "(none)");
  EXPECT_EQ(previous("e"), "d");
  EXPECT_EQ(previous("d"), "b\x01");
  EXPECT_EQ(previous("b\x01"), "b");
  EXPECT_EQ(previous("a"), "(none)");
  EXPECT_FAILS(engine_.GetNext("d"), ENOENT);
  EXPECT_EQ(engine_.GetNext("a")->record.value.text(), "b");
}

TEST_F(EngineTest, CountsWhatItWasAskedAndWhatItMoved) {
  ASSERT_OK(Put("key", "v1", Expected::Absent(), "12345"));
  EXPECT_FAILS(Put("key", "v1", Expected::Absent(), "12345"), ESTALE);
  ASSERT_OK(engine_.Get("key", {1, 3}));
  const Engine::Count puts = engine_.CountOf(Engine::Operation::kPut);
  EXPECT_EQ(puts.operations, 2u);
  EXPECT_EQ(puts.value_bytes, 5u);
  const Engine::Count gets = engine_.CountOf(Engine::Operation::kGet);
  EXPECT_EQ(gets.operations, 1u);
  EXPECT_EQ(gets.value_bytes, 3u);
}

// Everybody counts up the same few entries by conditional puts. A condition that is not one step
// with its put would lose counts.
TEST_F(EngineTest, OfChangesThatExpectTheSameVersionOneWins) {
  constexpr int kThreads = 4;
  constexpr int kCountsEach = 2000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int counted = 0; counted < kCountsEach;) {
        const std::string key = counted % 2 == 0 ? "even" : "odd";
        const auto head = engine_.Head(key);
        const std::string version = head.has_value() ? head->version : "";
        const int next = version.empty() ? 1 : std::stoi(version) + 1;
        const Status put = Put(key, std::to_string(next), Expected::Version(version));
        if (put.ok()) ++counted;
        if (!put.ok()) {
          ASSERT_FAILS(put, ESTALE);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(VersionOf("even"), std::to_string(kThreads * kCountsEach / 2));
  EXPECT_EQ(VersionOf("odd"), std::to_string(kThreads * kCountsEach / 2));
}

Engine::Change PutOf(std::string key, std::string version, Expected expected) {
  return {std::move(key), StoredRecord{{.version = std::move(version)}, {}}, std::move(expected)};
}
Engine::Change DeleteOf(std::string key, Expected expected) {
  return {std::move(key), std::nullopt, std::move(expected)};
}

TEST_F(EngineTest, ChangesOfABatchAreCheckedAgainstWhatWasThereBefore) {
  ASSERT_OK(Put("key", "v1", Expected::Absent()));
  const Engine::Change twice[] = {PutOf("key", "v2", Expected::Version("v1")),
                                  PutOf("key", "v3", Expected::Version("v2"))};
  const auto failure = engine_.Apply(twice);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->change, 1u);
  EXPECT_FAILS(failure->status, ESTALE);
  EXPECT_EQ(VersionOf("key"), "v1");
  const Engine::Change both[] = {PutOf("key", "v2", Expected::Version("v1")),
                                 PutOf("other", "o", Expected::Absent()),
                                 PutOf("key", "v3", Expected::Version("v1"))};
  EXPECT_FALSE(engine_.Apply(both).has_value());
  EXPECT_EQ(VersionOf("key"), "v3") << "the last one stays";
  EXPECT_EQ(VersionOf("other"), "o");
}

TEST_F(EngineTest, PutsThatComeTogetherAreAsIfTheyCameOneByOne) {
  ASSERT_OK(Put("key", "v1", Expected::Absent()));
  const Engine::Change puts[] = {
      PutOf("key", "v2", Expected::Version("v1")),
      PutOf("other", "o", Expected::Version("never")),
      PutOf("key", "v3", Expected::Version("v1")),
      PutOf(std::string(kMaxKeyBytes + 1, 'k'), "", Expected::Any()),
      PutOf("key", "v4", Expected::Version("v2")),
      PutOf("new", "n", Expected::Absent()),
  };
  const std::vector<Status> statuses = engine_.PutEach(puts);
  ASSERT_EQ(statuses.size(), 6u);
  EXPECT_OK(statuses[0]);
  EXPECT_FAILS(statuses[1], ESTALE);
  EXPECT_FAILS(statuses[2], ESTALE);
  EXPECT_FAILS(statuses[3], EINVAL);
  EXPECT_OK(statuses[4]);
  EXPECT_OK(statuses[5]);
  EXPECT_EQ(VersionOf("key"), "v4");
  EXPECT_EQ(VersionOf("new"), "n");
  EXPECT_FAILS(engine_.Head("other"), ENOENT);
}

TEST_F(EngineTest, ABatchThatFailsAnywhereChangesNothing) {
  ASSERT_OK(Put("key", "v1", Expected::Absent()));
  const auto fails = [&](Engine::Change last, int code) {
    const Engine::Change changes[] = {PutOf("new", "n", Expected::Absent()),
                                      DeleteOf("key", Expected::Any()), std::move(last)};
    const auto failure = engine_.Apply(changes);
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->change, 2u);
    EXPECT_FAILS(failure->status, code);
    EXPECT_FAILS(engine_.Head("new"), ENOENT);
    EXPECT_EQ(VersionOf("key"), "v1");
  };
  fails(DeleteOf("missing", Expected::Absent()), ENOENT);
  fails(DeleteOf("key", Expected::Version("v2")), ESTALE);
  fails(PutOf(std::string(kMaxKeyBytes + 1, 'k'), "", Expected::Any()), EINVAL);
  fails(PutOf("k", std::string(kMaxVersionBytes + 1, 'v'), Expected::Any()), EINVAL);
  const Engine::Change forced[] = {DeleteOf("missing", Expected::Any()),
                                   DeleteOf("key", Expected::Version("v1"))};
  EXPECT_FALSE(engine_.Apply(forced).has_value());
  EXPECT_FAILS(engine_.Head("key"), ENOENT);
}

// Two batches that swap the same keys in opposite orders neither deadlock nor interleave.
TEST_F(EngineTest, BatchesOfTheSameKeysComeOneAfterTheOther) {
  constexpr int kRounds = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::string version = fmt::format("{}/{}", t, i);
        std::vector<Engine::Change> changes;
        for (const char* key : {"a", "b", "c"})
          changes.push_back(PutOf(key, version, Expected::Any()));
        if (t % 2 == 0) std::reverse(changes.begin(), changes.end());
        ASSERT_FALSE(engine_.Apply(changes).has_value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(VersionOf("a"), VersionOf("b"));
  EXPECT_EQ(VersionOf("b"), VersionOf("c"));
}

// A store on which somebody's put does not come back until the test says so.
class SlowStore final : public Store {
 public:
  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    return store_.Get(key, range);
  }
  Result<StoredHead> Head(std::string_view key) override { return store_.Head(key); }
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override {
    return store_.Keys(range, max, reverse);
  }
  Status Put(std::string_view key, const StoredRecord& record, Room room = Room::kData) override {
    if (key == "slow") {
      slow_put_came_ = true;
      slow_put_came_.notify_all();
      released_.wait(false);
    }
    return store_.Put(key, record, room);
  }
  Status Delete(std::string_view key) override { return store_.Delete(key); }
  Status Apply(std::span<const StoreChange> changes) override { return store_.Apply(changes); }
  Status Flush() override { return {}; }
  StoreUsage Usage() override { return store_.Usage(); }

  void AwaitSlowPut() { slow_put_came_.wait(false); }
  void Release() {
    released_ = true;
    released_.notify_all();
  }

 private:
  MemoryStore store_;
  std::atomic<bool> slow_put_came_ = false;
  std::atomic<bool> released_ = false;
};

TEST(EngineLocks, ASlowPutOfOneKeyHoldsUpNoOther) {
  auto owned = std::make_unique<SlowStore>();
  SlowStore& store = *owned;
  Engine engine(std::move(owned));
  std::thread slow([&] { EXPECT_OK(engine.Put("slow", {}, Expected::Absent())); });
  store.AwaitSlowPut();
  // Many keys, so that some share whatever is shared with the slow one.
  for (int i = 0; i < 200; ++i) {
    EXPECT_OK(engine.Put(std::to_string(i), {}, Expected::Absent()));
  }
  EXPECT_FAILS(engine.Head("slow"), ENOENT);
  store.Release();
  slow.join();
  EXPECT_OK(engine.Head("slow"));
}

// One by one, and with others that came at the same time.
class GuardLocks : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(EngineLocks, GuardLocks, testing::Bool());

TEST_P(GuardLocks, AGuardStaysAsItIsWhileWhatDependsOnItIsPut) {
  auto owned = std::make_unique<SlowStore>();
  SlowStore& store = *owned;
  Engine engine(std::move(owned));
  const Guard open{"dir", Expected::Version("open")};
  const auto put = [&](std::string key) {
    if (!GetParam()) return engine.Put(key, {}, Expected::Absent(), Room::kData, open);
    const Engine::Change change{.key = std::move(key),
                                .record = StoredRecord(),
                                .expected = Expected::Absent(),
                                .guard = open};
    return engine.PutEach({&change, 1})[0];
  };
  ASSERT_OK(engine.Put("dir", {{.version = "open"}, {}}, Expected::Absent()));
  std::thread slow([&] { EXPECT_OK(put("slow")); });
  store.AwaitSlowPut();
  EXPECT_OK(put("beside")) << "puts with one guard do not wait for each other";
  std::atomic<bool> closing = false;
  std::atomic<bool> closed = false;
  std::thread closer([&] {
    closing = true;
    closing.notify_all();
    EXPECT_OK(engine.Put("dir", {{.version = "closed"}, {}}, Expected::Version("open")));
    closed = true;
  });
  closing.wait(false);
  // Time enough for it, if it did not have to wait.
  for (int i = 0; i < 2000; ++i) {
    EXPECT_OK(engine.Put(std::to_string(i), {}, Expected::Absent()));
  }
  EXPECT_FALSE(closed);
  store.Release();
  slow.join();
  closer.join();
  EXPECT_OK(engine.Head("slow"));
  EXPECT_FAILS(put("late"), ECANCELED);
}

}  // namespace
}  // namespace pinstripe
