// What every store promises, on each of them, against a model that is a map.

#include "store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "store/database_store.h"
#include "store/erasable_store.h"
#include "store/log_store.h"
#include "store/memory_store.h"
#include "tests/store/pretended_machine.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

// A store that can be closed and opened again; memory forgets, so there it stays open.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual Store& store() = 0;
  virtual void Reopen() = 0;
};

class MemoryUnderTest final : public StoreUnderTest {
 public:
  explicit MemoryUnderTest(uint64_t capacity) : store_(capacity) {}
  Store& store() override { return store_; }
  void Reopen() override {}

 private:
  MemoryStore store_;
};

class LogUnderTest final : public StoreUnderTest {
 public:
  explicit LogUnderTest(uint64_t capacity) : capacity_(capacity) { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    auto opened = LogStore::Open({.path = directory_.path(),
                                  .capacity_bytes = capacity_,
                                  .segment_bytes = 1 << 20,  // so that there are many
                                  .reserve_bytes = 0},
                                 resources_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }

 private:
  const uint64_t capacity_;
  TemporaryDirectory directory_;
  StoreResources resources_;
  std::unique_ptr<LogStore> store_;
};

// A LogStore as a daemon has it.
class ErasableUnderTest final : public StoreUnderTest {
 public:
  explicit ErasableUnderTest(uint64_t capacity) : capacity_(capacity) { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    Result<std::unique_ptr<Store>> opened = Open();
    ASSERT_OK(opened);
    store_ = std::make_unique<ErasableStore>(directory_.path(), *std::move(opened),
                                             [this] { return Open(); });
  }

 private:
  Result<std::unique_ptr<Store>> Open() {
    return LogStore::Open({.path = directory_.path(),
                           .capacity_bytes = capacity_,
                           .segment_bytes = 1 << 20,
                           .reserve_bytes = 0},
                          resources_);
  }

  const uint64_t capacity_;
  TemporaryDirectory directory_;
  StoreResources resources_;
  std::unique_ptr<ErasableStore> store_;
};

#ifdef PINSTRIPE_COMPARE_STORES
// A database as a daemon has it.
template <StoreKind kKind>
class DatabaseUnderTest final : public StoreUnderTest {
 public:
  explicit DatabaseUnderTest(uint64_t capacity) : capacity_(capacity) { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    Result<std::unique_ptr<Store>> opened = Open();
    ASSERT_OK(opened);
    store_ = std::make_unique<ErasableStore>(directory_.path(), *std::move(opened),
                                             [this] { return Open(); });
  }

 private:
  Result<std::unique_ptr<Store>> Open() {
    return DatabaseStore::Open(
        kKind, {.path = directory_.path(), .capacity_bytes = capacity_, .reserve_bytes = 0});
  }

  const uint64_t capacity_;
  TemporaryDirectory directory_;
  std::unique_ptr<ErasableStore> store_;
};
#endif

struct Kind {
  const char* name;
  std::function<std::unique_ptr<StoreUnderTest>(uint64_t capacity)> make;
  bool counts_exactly =
      true;  // what it uses; a database knows that only when it has compacted itself
};

constexpr char kCountsLater[] = "a database counts what was deleted until it has compacted itself";

class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { Make(uint64_t{1} << 30); }
  void Make(uint64_t capacity) { under_test_ = GetParam().make(capacity); }
  Store& store() { return under_test_->store(); }

  Status Put(std::string_view key, std::string value, std::string version = "") {
    return store().Put(key, {{.version = std::move(version)}, SharedBytes(std::move(value))});
  }
  std::string Value(std::string_view key, ValueRange range = {}) {
    const auto record = store().Get(key, range);
    EXPECT_OK(record);
    return record.has_value() ? std::string(record->value.text()) : "";
  }

  std::unique_ptr<StoreUnderTest> under_test_;
};

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreTest,
    testing::Values(Kind{"Memory", [](uint64_t c) { return std::make_unique<MemoryUnderTest>(c); }},
                    Kind{"Log", [](uint64_t c) { return std::make_unique<LogUnderTest>(c); }},
                    Kind{"Erasable",
                         [](uint64_t c) { return std::make_unique<ErasableUnderTest>(c); }}),
    [](const auto& info) { return info.param.name; });

#ifdef PINSTRIPE_COMPARE_STORES
INSTANTIATE_TEST_SUITE_P(
    Databases, StoreTest,
    testing::Values(
        Kind{"LevelDb",
             [](uint64_t c) { return std::make_unique<DatabaseUnderTest<StoreKind::kLevelDb>>(c); },
             false},
        Kind{"RocksDb",
             [](uint64_t c) { return std::make_unique<DatabaseUnderTest<StoreKind::kRocksDb>>(c); },
             false}),
    [](const auto& info) { return info.param.name; });
#endif

// Around the sizes at which a value moves from the index into the log.
const std::vector<size_t> kSizes = {0, 1, 100, 4095, 4096, 4097, 65536, kMaxValueBytes};

std::string Pattern(size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  std::mt19937 random(seed);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST_P(StoreTest, ARecordOfAnySizeIsWhatWasPut) {
  for (size_t size : kSizes) {
    const std::string key = fmt::format("key {}", size);
    const StoredRecord record{{.version = "version", .tag = "tag", .algorithm = 4},
                              SharedBytes(Pattern(size, 1))};
    ASSERT_OK(store().Put(key, record));
    const auto got = store().Get(key, {});
    ASSERT_OK(got);
    EXPECT_EQ(got->value.text(), record.value.text());
    EXPECT_EQ(got->head.version, "version");
    EXPECT_EQ(got->head.tag, "tag");
    EXPECT_EQ(got->head.algorithm, 4);
    EXPECT_EQ(got->head.value_bytes, size);
    const auto head = store().Head(key);
    ASSERT_OK(head);
    EXPECT_EQ(head->version, "version");
    EXPECT_EQ(head->value_bytes, size);
  }
}

TEST_P(StoreTest, APartOfAValueIsCutAtItsEnd) {
  for (size_t size : {size_t{10}, size_t{100'000}}) {
    const std::string value = Pattern(size, 2);
    ASSERT_OK(Put("key", value));
    const auto n = static_cast<uint32_t>(size);
    EXPECT_EQ(Value("key", {3, 4}), value.substr(3, 4));
    EXPECT_EQ(Value("key", {0, 4}), value.substr(0, 4));
    EXPECT_EQ(Value("key", {n - 2, 100}), value.substr(size - 2));
    EXPECT_EQ(Value("key", {n, 1}), "");
    EXPECT_EQ(Value("key", {UINT32_MAX, UINT32_MAX}), "");
    EXPECT_EQ(Value("key", {5, 0}), "");
  }
}

TEST_P(StoreTest, EveryReplacementOfOneSizeByAnotherHolds) {
  std::map<size_t, std::string> after;  // made once: a sanitizer makes that slow
  for (const size_t size : kSizes) after[size] = Pattern(size, 4);
  for (size_t first : kSizes) {
    const std::string before = Pattern(first, 3);
    for (size_t second : kSizes) {
      ASSERT_OK(Put("key", before, "1"));
      ASSERT_OK(Put("key", after[second], "2"));
      EXPECT_EQ(Value("key"), after[second]) << first << " replaced by " << second;
      ASSERT_OK(store().Delete("key"));
      EXPECT_FAILS(store().Get("key", {}), ENOENT);
    }
  }
}

TEST_P(StoreTest, WhatIsNotThereIsNotFound) {
  EXPECT_FAILS(store().Get("key", {}), ENOENT);
  EXPECT_FAILS(store().Head("key"), ENOENT);
  EXPECT_FAILS(store().Delete("key"), ENOENT);
}

TEST_P(StoreTest, AlgorithmsAreKeptUntouched) {
  for (std::optional<int32_t> algorithm : {std::optional<int32_t>(), {0}, {-1}, {100}}) {
    ASSERT_OK(store().Put("key", {{.algorithm = algorithm}, SharedBytes(std::string("v"))}));
    EXPECT_EQ(store().Head("key")->algorithm, algorithm);
  }
}

TEST_P(StoreTest, RangesHaveTheirEndsOrNot) {
  for (const char* key : {"", "a", "ab", "b", "\xff"}) ASSERT_OK(Put(key, key));
  const auto keys = [&](KeyRange range, bool reverse = false, size_t max = 100) {
    const auto found = store().Keys(range, max, reverse);
    EXPECT_OK(found);
    return found.value_or(std::vector<std::string>{"failed"});
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(keys({}), (List{"", "a", "ab", "b", "\xff"}));
  EXPECT_EQ(keys({}, true), (List{"\xff", "b", "ab", "a", ""}));
  EXPECT_EQ(keys({.first = "a", .last = "b"}), (List{"a", "ab", "b"}));
  EXPECT_EQ(keys({.first = "a", .first_included = false, .last = "b"}), (List{"ab", "b"}));
  EXPECT_EQ(keys({.first = "a", .last = "b", .last_included = false}), (List{"a", "ab"}));
  EXPECT_EQ(keys({.first = "a", .last = "b"}, true, 2), (List{"b", "ab"}));
  EXPECT_EQ(keys({.first = "a", .last = "b"}, false, 2), (List{"a", "ab"}));
  EXPECT_EQ(keys({.first = "b", .last = "a"}), List{});
  EXPECT_EQ(keys({.first = "a", .last = "a"}), List{"a"});
  EXPECT_EQ(keys({.first = "a", .first_included = false, .last = "a"}), List{});
  EXPECT_EQ(keys({.first = "a", .last = "a", .last_included = false}), List{});
  EXPECT_EQ(keys({.last = ""}), List{""});
  EXPECT_EQ(keys({.last = "", .last_included = false}), List{});
  EXPECT_EQ(keys({.first = "b", .last = std::string(kMaxKeyBytes, '\xff')}), (List{"b", "\xff"}));
}

TEST_P(StoreTest, EntriesOfARangeComeWithHeadsAndSmallValues) {
  std::map<std::string, std::string> model;
  std::mt19937 random(13);
  for (int i = 0; i < 300; ++i) {
    const std::string key = fmt::format("{:03}", i);
    model[key] = Pattern(std::vector<size_t>{0, 100, 4096, 20'000}[random() % 4], random());
    ASSERT_OK(Put(key, model[key], "version of " + key));
  }
  const RangeLimits generous{.entries = 1000,
                             .value_bytes = 4096,
                             .all_value_bytes = 100 << 20,
                             .all_head_bytes = 1 << 20};
  for (const bool reverse : {false, true}) {
    const auto found = store().Items({.first = "010", .last = "200"}, generous, reverse);
    ASSERT_OK(found);
    EXPECT_FALSE(found->more);
    ASSERT_EQ(found->items.size(), 191u);
    EXPECT_EQ(found->items.front().key, reverse ? "200" : "010");
    for (const RangeItem& item : found->items) {
      const std::string& value = model[item.key];
      EXPECT_EQ(item.head.version, "version of " + item.key);
      EXPECT_EQ(item.head.value_bytes, value.size());
      EXPECT_EQ(item.has_value, value.size() <= 4096);
      EXPECT_EQ(item.value.text(), item.has_value ? value : "");
      EXPECT_FALSE(item.damaged);
    }
  }
}

// Whatever a list may hold, going on behind its end gives everything, once.
TEST_P(StoreTest, AListEndsAtAnyOfItsLimitsAndGoesOnBehind) {
  for (int i = 0; i < 50; ++i) ASSERT_OK(Put(fmt::format("{:03}", i), std::string(100, 'v'), "vv"));
  const auto collect = [&](RangeLimits limits) {
    std::vector<size_t> sizes;
    KeyRange range;
    std::string last;
    while (true) {
      const auto found = store().Items(range, limits, false);
      EXPECT_OK(found);
      sizes.push_back(found->items.size());
      for (const RangeItem& item : found->items) {
        EXPECT_LT(last, item.key);
        last = item.key;
      }
      if (!found->more) break;
      range = {.first = last, .first_included = false};
    }
    EXPECT_EQ(last, "049");
    return sizes;
  };
  constexpr size_t kMuch = 1 << 20;
  const uint32_t all = 100;
  EXPECT_EQ(collect({50, all, kMuch, kMuch}), (std::vector<size_t>{50}));
  EXPECT_EQ(collect({49, all, kMuch, kMuch}), (std::vector<size_t>{49, 1}));
  EXPECT_EQ(collect({100, all, 2'000, kMuch}), (std::vector<size_t>{20, 20, 10}));
  EXPECT_EQ(collect({100, all, kMuch, 125}), (std::vector<size_t>{25, 25}));
  EXPECT_EQ(collect({100, all, 99, kMuch}), std::vector<size_t>(50, 1)) << "one always comes";
  EXPECT_EQ(collect({100, 99, 0, kMuch}), (std::vector<size_t>{50})) << "without values";
}

TEST_P(StoreTest, AFullStoreRefusesPutsAndGoesOnOtherwise) {
  if (!GetParam().counts_exactly) GTEST_SKIP() << kCountsLater;
  Make(10 << 20);
  int records = 0;
  Status status;
  while (status.ok()) {
    ASSERT_LT(records, 100);
    status = Put(fmt::format("{}", records), Pattern(kMaxValueBytes, 5));
    if (status.ok()) ++records;
  }
  EXPECT_FAILS(status, ENOSPC);
  EXPECT_GE(records, 9);
  EXPECT_FAILS(Put("one more", Pattern(kMaxValueBytes, 5)), ENOSPC);
  EXPECT_FAILS(store().Get("one more", {}), ENOENT);
  EXPECT_EQ(Value("0"), Pattern(kMaxValueBytes, 5));
  ASSERT_OK(store().Delete("0"));
  EXPECT_OK(Put("one more", Pattern(kMaxValueBytes, 6)));
  EXPECT_EQ(Value("one more"), Pattern(kMaxValueBytes, 6));
}

// How many puts of 64 KiB fit, each under a key of its own.
int Fill(Store& store, std::string_view prefix, Room room) {
  const std::string value = Pattern(64 << 10, 7);
  for (int i = 0;; ++i) {
    const StoredRecord record{{}, SharedBytes(std::string(value))};
    const std::string key = fmt::format("{}{}", prefix, i);
    const StoreChange put{key, &record, nullptr, room};
    const Status status = store.PutEach({&put, 1})[0];
    if (status.ok()) continue;
    EXPECT_FAILS(status, ENOSPC);
    return i;
  }
}

// A megabyte is held back: half of it for names alone, and but for an eighth the rest for what
// frees space.
void ExpectRooms(Store& store) {
  EXPECT_GT(Fill(store, "data", Room::kData), 200);
  EXPECT_THAT(Fill(store, "names", Room::kNames), testing::AllOf(testing::Ge(6), testing::Le(9)));
  EXPECT_EQ(Fill(store, "more data", Room::kData), 0);
  EXPECT_THAT(Fill(store, "freeing", Room::kFreeing),
              testing::AllOf(testing::Ge(4), testing::Le(7)));
  EXPECT_EQ(Fill(store, "more names", Room::kNames), 0);
  // What is together takes what all may take.
  const StoredRecord record{{}, SharedBytes(Pattern(64 << 10, 7))};
  const StoreChange both[] = {{"one", &record, nullptr, Room::kFreeing},
                              {"two", &record, nullptr, Room::kData}};
  EXPECT_FAILS(store.Apply(both), ENOSPC);
  for (int i = 0; i < 100; ++i) ASSERT_OK(store.Delete(fmt::format("data{}", i)));
  EXPECT_GT(Fill(store, "data again", Room::kData), 50);
}

TEST(StoreSpace, WhatIsHeldBackIsForNamesAndForWhatFreesSpace) {
  MemoryStore memory(32 << 20, 1 << 20);
  ExpectRooms(memory);
  const TemporaryDirectory directory;
  StoreResources resources;
  const auto log = LogStore::Open({.path = directory.path(),
                                   .capacity_bytes = 32 << 20,
                                   .segment_bytes = 1 << 20,
                                   .reserve_bytes = 1 << 20},
                                  resources);
  ASSERT_OK(log);
  EXPECT_EQ((*log)->Usage().capacity_bytes, 31u << 20) << "what data may take";
  ExpectRooms(**log);
}

TEST_P(StoreTest, OfPutsThatComeTogetherOnlyThoseFailThatMust) {
  Make(4 << 20);
  ASSERT_OK(Put("replaced", Pattern(5000, 1)));
  const std::vector<std::string> values = {Pattern(10, 2), Pattern(5000, 3), Pattern(8 << 20, 4),
                                           Pattern(70'000, 5), Pattern(4096, 6)};
  const std::vector<std::string> keys = {"small", "replaced", "too large", "larger", "last"};
  std::vector<StoredRecord> records;
  std::vector<StoreChange> puts;
  for (const std::string& value : values) records.push_back({{}, SharedBytes(std::string(value))});
  for (size_t i = 0; i < keys.size(); ++i) puts.push_back({keys[i], &records[i]});
  const std::vector<Status> statuses = store().PutEach(puts);
  ASSERT_EQ(statuses.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == "too large") {
      EXPECT_FAILS(statuses[i], ENOSPC);
      EXPECT_FAILS(store().Get(keys[i], {}), ENOENT);
    } else {
      EXPECT_OK(statuses[i]);
      EXPECT_EQ(Value(keys[i]), values[i]);
    }
  }
  puts.erase(puts.begin() + 2);
  for (StoredRecord& record : records) record.head.version = "again";
  for (const Status& status : store().PutEach(puts)) EXPECT_OK(status);
  ASSERT_OK(store().Flush());
  under_test_->Reopen();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == "too large") continue;
    EXPECT_EQ(Value(keys[i]), values[i]);
    const auto head = store().Head(keys[i]);
    ASSERT_OK(head);
    EXPECT_EQ(head->version, "again");
  }
}

TEST_P(StoreTest, APutThatExpectsSomethingElseChangesNothing) {
  ASSERT_OK(Put("small", "old", "1"));
  ASSERT_OK(Put("large", Pattern(5000, 1), "1"));
  const StoredRecord small{{.version = "2"}, SharedBytes(std::string("new"))};
  const StoredRecord large{{.version = "2"}, SharedBytes(Pattern(6000, 2))};
  const Expected right = Expected::Version("1");
  const Expected wrong = Expected::Version("0");
  const Expected absent = Expected::Absent();
  const StoreChange puts[] = {{"small", &large, &wrong},
                              {"large", &small, &right},
                              {"new", &small, &absent},
                              {"other", &large, &right},
                              {"another", &large}};
  const std::vector<Status> statuses = store().PutEach(puts);
  EXPECT_FAILS(statuses[0], ESTALE);
  EXPECT_OK(statuses[1]);
  EXPECT_OK(statuses[2]);
  EXPECT_FAILS(statuses[3], ESTALE);
  EXPECT_OK(statuses[4]);
  EXPECT_EQ(Value("small"), "old");
  EXPECT_EQ(Value("large"), "new");
  EXPECT_EQ(Value("new"), "new");
  EXPECT_FAILS(store().Head("other"), ENOENT);
  EXPECT_EQ(Value("another"), Pattern(6000, 2));
  const StoreChange again{"new", &large, &absent};
  EXPECT_FAILS(store().PutEach({&again, 1})[0], ESTALE);
}

TEST_P(StoreTest, PutsAtOnceAreAllMadeOrNone) {
  ASSERT_OK(Put("there", "old", "1"));
  const StoredRecord record{{.version = "2"}, SharedBytes(std::string("new"))};
  const Expected right = Expected::Version("1");
  const Expected absent = Expected::Absent();
  const StoreChange good[] = {{"there", &record, &right}, {"new", &record, &absent}};
  const StoreChange bad[] = {{"new", &record, &absent}, {"there", &record, &absent}};
  EXPECT_FALSE(store().PutAllAtOnce(bad));
  EXPECT_EQ(Value("there"), "old");
  EXPECT_FAILS(store().Head("new"), ENOENT);
  if (!store().PutAllAtOnce(good)) {
    EXPECT_EQ(Value("there"), "old");
    EXPECT_FAILS(store().Head("new"), ENOENT);
    return;
  }
  under_test_->Reopen();
  EXPECT_EQ(Value("there"), "new");
  EXPECT_EQ(Value("new"), "new");
}

TEST_P(StoreTest, WhatIsGivenAtOnceIsWhatGetGives) {
  for (const size_t size : {0, 10, 4096, 30'000, 100'000}) {
    const std::string key = fmt::format("{}", size);
    ASSERT_OK(Put(key, Pattern(size, 9), "v"));
    for (const ValueRange range : {ValueRange(), ValueRange{0, 0}, ValueRange{3, 50}}) {
      const auto at_once = store().GetAtOnce(key, range);
      if (!at_once.has_value()) {
        EXPECT_FAILS(at_once, EAGAIN);
        continue;
      }
      EXPECT_EQ(at_once->value.text(), Value(key, range));
      EXPECT_LE(at_once->value.size(), kMaxBytesAtOnce);
      EXPECT_EQ(at_once->head.version, "v");
      EXPECT_EQ(at_once->head.value_bytes, size);
    }
  }
}

TEST_P(StoreTest, UsageIsBackWhereItWasWhenEverythingIsDeleted) {
  if (!GetParam().counts_exactly) GTEST_SKIP() << kCountsLater;
  const uint64_t before = store().Usage().used_bytes;
  for (size_t size : kSizes) ASSERT_OK(Put(fmt::format("{}", size), Pattern(size, 7)));
  for (size_t size : kSizes) ASSERT_OK(Put(fmt::format("{}", size), Pattern(size / 2, 8)));
  EXPECT_GT(store().Usage().used_bytes, kMaxValueBytes / 2);
  for (size_t size : kSizes) ASSERT_OK(store().Delete(fmt::format("{}", size)));
  ASSERT_OK(store().Flush());
  EXPECT_EQ(store().Usage().used_bytes, before);
}

TEST_P(StoreTest, ChangesThatAreAppliedTogetherAgreeWithAMap) {
  std::map<std::string, std::string> model;
  std::mt19937 random(12);
  const auto pick = [&](size_t end) { return random() % end; };
  for (int step = 0; step < 300; ++step) {
    std::map<std::string, std::optional<StoredRecord>> asked;
    for (size_t i = pick(6); i > 0; --i) {
      const std::string key(1, static_cast<char>('a' + pick(10)));
      asked[key] = std::nullopt;
      if (pick(4) == 0) continue;
      const size_t size = pick(std::vector<size_t>{100, 8000, 100'000}[pick(3)]);
      asked[key] = StoredRecord{{}, SharedBytes(Pattern(size, static_cast<unsigned>(random())))};
    }
    std::vector<StoreChange> changes;
    for (const auto& [key, record] : asked) changes.push_back({key, record ? &*record : nullptr});
    ASSERT_OK(store().Apply(changes));
    for (const auto& [key, record] : asked) {
      if (record) model[key] = record->value.text();
      if (!record) model.erase(key);
    }
    if (pick(30) == 0) under_test_->Reopen();
    const auto keys = store().Keys({}, 100, false);
    ASSERT_OK(keys);
    ASSERT_EQ(keys->size(), model.size());
    for (const std::string& key : *keys) ASSERT_EQ(Value(key), model[key]);
  }
  for (const auto& [key, value] : model) ASSERT_OK(store().Delete(key));
  ASSERT_OK(store().Flush());
  if (GetParam().counts_exactly) {
    EXPECT_EQ(store().Usage().used_bytes, 0u) << "the counts have gone astray";
  }
}

TEST_P(StoreTest, ChangesThatDoNotFitTogetherAreNotMadeAtAll) {
  if (!GetParam().counts_exactly) GTEST_SKIP() << kCountsLater;
  Make(4 << 20);
  ASSERT_OK(Put("old", "value"));
  ASSERT_OK(Put("large", Pattern(kMaxValueBytes, 1)));
  const StoredRecord record{{}, SharedBytes(Pattern(kMaxValueBytes, 2))};
  const StoredRecord small{{}, SharedBytes(std::string("other"))};
  const StoreChange too_many[] = {
      {"old", &small}, {"a", &record}, {"b", &record}, {"c", &record}, {"d", &record}};
  EXPECT_FAILS(store().Apply(too_many), ENOSPC);
  EXPECT_EQ(Value("old"), "value");
  EXPECT_EQ(store().Keys({}, 100, false)->size(), 2u);
  EXPECT_OK(store().Apply(std::span(too_many).first(3)));
  EXPECT_EQ(Value("old"), "other");
  EXPECT_EQ(store().Keys({}, 100, false)->size(), 4u);
}

// Random operations on few keys, so that they meet; the map is right by being simple.
TEST_P(StoreTest, AgreesWithAMapAfterRandomOperationsAndReopening) {
  struct Known {
    std::string value;
    std::string version;
  };
  std::map<std::string, Known> model;
  std::mt19937 random(11);
  const auto pick = [&](size_t end) { return random() % end; };
  for (int step = 0; step < 3000; ++step) {
    const std::string key(1 + pick(3), static_cast<char>('a' + pick(8)));
    switch (pick(8)) {
      case 0:
      case 1:
      case 2: {
        const size_t most = std::vector<size_t>{100, 8000, 100'000}[pick(3)];
        Known known{Pattern(pick(most), static_cast<unsigned>(step)), fmt::format("{}", step)};
        ASSERT_OK(Put(key, known.value, known.version));
        model[key] = std::move(known);
        break;
      }
      case 3: {
        const Status deleted = store().Delete(key);
        EXPECT_EQ(deleted.ok(), model.erase(key) == 1);
        break;
      }
      case 4: {
        const bool reverse = pick(2) == 0;
        const auto keys = store().Keys({.first = key}, 5, reverse);
        ASSERT_OK(keys);
        std::vector<std::string> expected;
        for (auto at = model.lower_bound(key); at != model.end(); ++at)
          expected.push_back(at->first);
        if (reverse) std::reverse(expected.begin(), expected.end());
        if (expected.size() > 5) expected.resize(5);
        EXPECT_EQ(*keys, expected);
        break;
      }
      case 5:
        if (pick(20) == 0) {
          ASSERT_OK(store().Flush());
        }
        if (pick(100) == 0) under_test_->Reopen();
        break;
      default: {
        const auto record = store().Get(key, {});
        const auto known = model.find(key);
        ASSERT_EQ(record.has_value(), known != model.end());
        if (!record.has_value()) break;
        ASSERT_EQ(record->value.text(), known->second.value);
        ASSERT_EQ(record->head.version, known->second.version);
      }
    }
  }
  under_test_->Reopen();
  for (const auto& [key, known] : model) EXPECT_EQ(Value(key), known.value);
}

TEST_P(StoreTest, AnErasedStoreIsEmptyAndGoesOn) {
  if (dynamic_cast<LogUnderTest*>(under_test_.get()) != nullptr) {
    EXPECT_FAILS(store().Erase(), ENOTSUP);
    return;
  }
  for (int round = 0; round < 3; ++round) {
    for (const size_t size : kSizes) ASSERT_OK(Put(std::to_string(size), Pattern(size, 1)));
    ASSERT_OK(store().Erase());
    EXPECT_EQ(store().Keys({}, 10, false)->size(), 0u);
    EXPECT_FAILS(store().Get("0", {}), ENOENT);
    EXPECT_LT(store().Usage().used_bytes, 10000u);
    under_test_->Reopen();
    EXPECT_EQ(store().Keys({}, 10, false)->size(), 0u);
    ASSERT_OK(Put("new", "value"));
    ASSERT_OK(store().Flush());
    under_test_->Reopen();
    EXPECT_EQ(Value("new"), "value");
    ASSERT_OK(store().RemoveErased());
  }
}

TEST_P(StoreTest, TellsWhetherItMayHaveForgottenWhatItWasGiven) {
  if (dynamic_cast<MemoryUnderTest*>(under_test_.get()) != nullptr) {
    EXPECT_TRUE(store().Starts().starts.empty()) << "it is forgotten as a whole";
    EXPECT_OK(store().EndCleanly());
    return;
  }
  PretendedMachine machine("boot 1");
  const auto last_was_clean = [&] { return store().Starts().starts.at(0).clean; };
  under_test_->Reopen();
  EXPECT_FALSE(last_was_clean()) << "it was another machine's before";
  ASSERT_OK(Put("key", "value"));
  under_test_->Reopen();
  EXPECT_TRUE(last_was_clean());
  machine.Restart("boot 2");
  under_test_->Reopen();
  EXPECT_FALSE(last_was_clean());
  ASSERT_OK(Put("key", "later"));
  ASSERT_OK(store().EndCleanly());
  machine.Restart("boot 3");
  under_test_->Reopen();
  EXPECT_TRUE(last_was_clean());
  EXPECT_EQ(Value("key"), "later");
  EXPECT_EQ(store().Starts().count, store().Starts().starts.size());
}

#ifdef PINSTRIPE_COMPARE_STORES
TEST(StoreKind, ADirectoryStaysWhatItWasMadeAs) {
  const TemporaryDirectory directory;
  const std::string path = directory / "store";
  ASSERT_OK(DatabaseStore::Open(StoreKind::kRocksDb, {.path = path}));
  EXPECT_FAILS(DatabaseStore::Open(StoreKind::kLevelDb, {.path = path}), ENOTSUP);
  EXPECT_FAILS(CheckStoreKind(path, StoreKind::kLog), ENOTSUP);
  EXPECT_OK(CheckStoreKind(path, StoreKind::kRocksDb));
}
#endif

}  // namespace
}  // namespace pinstripe
