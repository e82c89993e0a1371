// What drive/drive.h promises, of every kind of drive that there is: in this process, a device of
// ours behind a socket, a real redis-server with and without TLS, and engines of names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <vector>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/real_runtime.h"
#include "daemon/memory_drive.h"
#include "engines/engine_drive.h"
#include "engines/etcd/etcd_engine.h"
#include "engines/postgres/postgres_engine.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/tls.h"
#include "redis/redis_drive.h"
#include "store/memory_store.h"
#include "tests/daemon/served_device.h"
#include "tests/support/etcd_cluster.h"
#include "tests/support/expect_ok.h"
#include "tests/support/memory_engine.h"
#include "tests/support/postgres_server.h"
#include "tests/support/redis_server.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

enum class Kind { kMemory, kServed, kRedis, kRedisTls, kEngine, kEtcd, kPostgres };

class EveryDrive : public testing::TestWithParam<Kind> {
 protected:
  EveryDrive() {
    SetLogLevel(LogLevel::kError);
    switch (GetParam()) {
      case Kind::kMemory: drive_ = std::make_unique<MemoryDrive>(runtime_, "drive"); break;
      case Kind::kServed:
        device_ = std::make_unique<ServedDevice>(runtime_, std::make_unique<MemoryStore>());
        drive_ = std::make_unique<KineticDrive>(
            io_, KineticDrive::Options{.name = "drive",
                                       .addresses = {fmt::format("127.0.0.1:{}", device_->port())},
                                       .key = "asdfasdf"});
        break;
      case Kind::kRedis:
      case Kind::kRedisTls: ConnectRedis(GetParam() == Kind::kRedisTls); break;
      case Kind::kEngine:
        ConnectEngine(std::make_unique<MemoryEngine>(
            runtime_, std::make_shared<MemoryEngineStore>(runtime_)));
        break;
      case Kind::kEtcd:
        if (etcd_ == nullptr) etcd_ = std::make_unique<EtcdCluster>();
        ConnectEngine(
            NewEtcdEngine(runtime_, {.cluster = OwnCluster(), .endpoints = etcd_->urls()}));
        break;
      case Kind::kPostgres:
        if (postgres_ == nullptr) postgres_ = std::make_unique<PostgresServer>();
        ConnectEngine(NewPostgresEngine(
            runtime_, {.cluster = OwnCluster(), .connection = postgres_->connection()}));
        break;
    }
  }
  ~EveryDrive() override {
    drive_.reset();
    SetLogLevel(LogLevel::kInfo);
  }

  static void TearDownTestSuite() {
    etcd_.reset();
    postgres_.reset();
  }
  static std::string OwnCluster() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    return name.substr(0, name.find('/'));
  }

  void ConnectRedis(bool tls) {
    redis_ = std::make_unique<RedisServer>(RedisServer::Settings(), tls);
    RedisDrive::Options options{.name = "drive", .addresses = {redis_->address()}};
    if (tls) {
      const auto client = TlsClient::Create(redis_->certificate());
      EXPECT_OK(client);
      options.tls = client.value_or(nullptr);
    }
    drive_ = std::make_unique<RedisDrive>(io_, std::move(options));
  }

  void ConnectEngine(std::unique_ptr<NameEngine> engine) {
    drive_ = std::make_unique<EngineDrive>(runtime_, std::move(engine),
                                           EngineDrive::Options{.name = "drive"});
  }

  template <typename Answer, typename Ask>
  static Answer Await(Ask ask) {
    std::promise<Answer> answer;
    ask([&](Answer got) { answer.set_value(std::move(got)); });
    return answer.get_future().get();
  }
  Time Soon() { return runtime_.Now() + std::chrono::seconds(60); }
  Terms Under(int64_t version) { return Terms(Soon(), version); }

  static Status PutTo(Drive& drive, Drive::PutRequest request, Terms terms) {
    return Await<Status>(
        [&](StatusCallback done) { drive.Put(std::move(request), terms, std::move(done)); });
  }
  Status Put(Drive::PutRequest request) { return PutTo(*drive_, std::move(request), Soon()); }
  Status Put(std::string key, std::string_view value, std::string version,
             Expected expected = Expected::Any()) {
    return Put({.key = std::move(key),
                .value = SharedBytes(std::string(value)),
                .version = std::move(version),
                .expected = std::move(expected)});
  }
  static Result<Record> GetFrom(Drive& drive, std::string key, ValueRange range, Terms terms) {
    return Await<Result<Record>>(
        [&](Callback<Record> done) { drive.Get(std::move(key), range, terms, std::move(done)); });
  }
  Result<Record> Get(std::string key, ValueRange range = {}) {
    return GetFrom(*drive_, std::move(key), range, Soon());
  }
  static Result<RecordHead> HeadOf(Drive& drive, std::string key, Terms terms) {
    return Await<Result<RecordHead>>(
        [&](Callback<RecordHead> done) { drive.Head(std::move(key), terms, std::move(done)); });
  }
  static Status DeleteFrom(Drive& drive, std::string key, Expected expected, Terms terms) {
    return Await<Status>([&](StatusCallback done) {
      drive.Delete(std::move(key), std::move(expected), Durability::kWriteBack, terms,
                   std::move(done));
    });
  }
  Status Delete(std::string key, Expected expected) {
    return DeleteFrom(*drive_, std::move(key), std::move(expected), Soon());
  }
  static Result<std::vector<std::string>> RangeOf(Drive& drive, std::string first, std::string last,
                                                  uint32_t max, bool reverse, Terms terms) {
    return Await<Result<std::vector<std::string>>>([&](Callback<std::vector<std::string>> done) {
      drive.Range(std::move(first), std::move(last), max, reverse, terms, std::move(done));
    });
  }
  std::vector<std::string> Range(std::string first, std::string last, uint32_t max = 10,
                                 bool reverse = false) {
    const auto keys = RangeOf(*drive_, std::move(first), std::move(last), max, reverse, Soon());
    EXPECT_OK(keys);
    return keys.value_or(std::vector<std::string>());
  }
  static Result<RangeRecords> ListOf(Drive& drive, std::string first, std::string last,
                                     uint32_t max, bool reverse, uint32_t limit, Terms terms) {
    return Await<Result<RangeRecords>>([&](Callback<RangeRecords> done) {
      drive.ListRecords(std::move(first), std::move(last), max, reverse, limit, terms,
                        std::move(done));
    });
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
  std::unique_ptr<ServedDevice> device_;
  std::unique_ptr<RedisServer> redis_;
  // One of each for all tests.
  static inline std::unique_ptr<EtcdCluster> etcd_;
  static inline std::unique_ptr<PostgresServer> postgres_;
  std::unique_ptr<Drive> drive_;
};

std::string NameOf(const testing::TestParamInfo<Kind>& kind) {
  switch (kind.param) {
    case Kind::kMemory: return "Memory";
    case Kind::kServed: return "Served";
    case Kind::kRedis: return "Redis";
    case Kind::kRedisTls: return "RedisTls";
    case Kind::kEngine: return "Engine";
    case Kind::kEtcd: return "Etcd";
    case Kind::kPostgres: return "Postgres";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Drives, EveryDrive,
                         testing::Values(Kind::kMemory, Kind::kServed, Kind::kRedis,
                                         Kind::kRedisTls, Kind::kEngine, Kind::kEtcd,
                                         Kind::kPostgres),
                         NameOf);

std::string AllBytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

std::string TagOf(std::string_view value) { return Writer().U32(Crc32c(AsBytes(value))).Take(); }

TEST_P(EveryDrive, GivesBackWhatWasPut) {
  const std::string large(kMaxValueBytes, 'v');
  for (const std::string& value : {std::string(), std::string("v"), AllBytes(), large}) {
    for (const std::string& version : {std::string(), std::string("1"), AllBytes()}) {
      ASSERT_OK(Put(
          {.key = "key", .value = SharedBytes(value), .version = version, .tag = TagOf(value)}));
      const auto record = Get("key");
      ASSERT_OK(record);
      EXPECT_EQ(record->value.text(), value);
      EXPECT_EQ(record->version, version);
      EXPECT_EQ(record->tag, TagOf(value));
      const auto head = HeadOf(*drive_, "key", Soon());
      ASSERT_OK(head);
      EXPECT_EQ(head->version, version);
      EXPECT_EQ(head->tag, TagOf(value));
    }
  }
}

TEST_P(EveryDrive, TakesAnyBytesForAKeyUpToTheLimit) {
  std::string longest(kMaxKeyBytes, '\xff');
  for (const std::string& key : {AllBytes(), std::string(1, '\0'), longest}) {
    ASSERT_OK(Put(key, "value", "1"));
    EXPECT_EQ(Get(key)->value.text(), "value");
  }
  longest.push_back('\xff');
  EXPECT_FAILS(Put(longest, "", ""), EINVAL);
  EXPECT_FAILS(Get(longest), EINVAL);
}

TEST_P(EveryDrive, RefusesWhatIsOverALimit) {
  ASSERT_OK(Put("key", "v", std::string(kMaxVersionBytes, 'x')));
  EXPECT_EQ(Get("key")->version.size(), kMaxVersionBytes);
  EXPECT_FAILS(Put("key", "v", std::string(kMaxVersionBytes + 1, 'x')), EINVAL);
  EXPECT_FAILS(Put("key", std::string(kMaxValueBytes + 1, 'v'), "1"), EINVAL);
  EXPECT_FAILS(Put({.key = "key", .tag = std::string(kMaxTagBytes + 1, 't')}), EINVAL);
  EXPECT_FAILS(RangeOf(*drive_, "a", "b", 0, false, Soon()), EINVAL);
  EXPECT_FAILS(RangeOf(*drive_, "a", "b", kMaxRangeKeys + 1, false, Soon()), EINVAL);
}

TEST_P(EveryDrive, HasNothingUnderAKeyThatWasNotPut) {
  EXPECT_FAILS(Get("key"), ENOENT);
  EXPECT_FAILS(Get("key", {.offset = 1, .length = 2}), ENOENT);
  EXPECT_FAILS(HeadOf(*drive_, "key", Soon()), ENOENT);
  EXPECT_THAT(Range("", "\xff"), IsEmpty());
}

// An entry that is not there, and one with the empty version, are as expected alike.
TEST_P(EveryDrive, ChangesARecordOnlyWhereItHasTheExpectedVersion) {
  EXPECT_FAILS(Put("key", "v", "1", Expected::Version("0")), ESTALE);
  EXPECT_OK(Put("key", "v", "1", Expected::Absent()));
  EXPECT_FAILS(Put("key", "w", "2", Expected::Absent()), ESTALE);
  EXPECT_FAILS(Put("key", "w", "2", Expected::Version("2")), ESTALE);
  EXPECT_EQ(Get("key")->value.text(), "v");
  EXPECT_OK(Put("key", "w", "", Expected::Version("1")));
  EXPECT_OK(Put("key", "x", "3", Expected::Absent()));
  EXPECT_OK(Put("key", "y", "4"));
  EXPECT_EQ(Get("key")->value.text(), "y");
}

TEST_P(EveryDrive, DeletesByTheSameRules) {
  EXPECT_FAILS(Delete("key", Expected::Version("1")), ENOENT);
  // With Any a drive may not tell whether there was one.
  const Status any = Delete("key", Expected::Any());
  EXPECT_TRUE(any.ok() || any.code() == ENOENT);
  ASSERT_OK(Put("key", "v", "1"));
  EXPECT_FAILS(Delete("key", Expected::Version("2")), ESTALE);
  EXPECT_FAILS(Delete("key", Expected::Absent()), ESTALE);
  EXPECT_EQ(Get("key")->value.text(), "v");
  EXPECT_OK(Delete("key", Expected::Version("1")));
  EXPECT_FAILS(Get("key"), ENOENT);
  EXPECT_THAT(Range("", "\xff"), IsEmpty());
}

TEST_P(EveryDrive, GivesTheAskedPartOfAValueAndOfAVersion) {
  std::string version = "abcdefghij";
  ASSERT_OK(Put("key", "0123456789", version));
  const auto part = [&](ValueRange range) { return *Get("key", range); };
  EXPECT_EQ(part({.offset = 2, .length = 3}).value.text(), "234");
  EXPECT_EQ(part({.offset = 8, .length = 5}).value.text(), "89");
  EXPECT_EQ(part({.offset = 10, .length = 5}).value.text(), "");
  EXPECT_EQ(part({.offset = 1000, .length = 5}).value.text(), "");
  EXPECT_EQ(part({.offset = 3}).value.text(), "3456789");
  EXPECT_EQ(part({.offset = 3}).version, version);
  EXPECT_EQ(part({.offset = 3, .length = 0}).value.text(), "");
  const auto of_version = [&](VersionPart wanted) { return part({.version = wanted}).version; };
  EXPECT_EQ(of_version({.head = 2, .offset = 5, .length = 2}), "abfg");
  EXPECT_EQ(of_version({.head = 2, .offset = 8, .length = 9}), "abij");
  EXPECT_EQ(of_version({.head = 2, .offset = 80, .length = 9}), "ab");
  EXPECT_EQ(of_version({.head = 0, .offset = 0, .length = 0}), "");
}

TEST_P(EveryDrive, ListsKeysInTheOrderOfTheirBytes) {
  const std::string zero("a\0", 2);
  for (const char* key : {"b", "a", "\x80", "ab", "c"}) ASSERT_OK(Put(key, "v", "1"));
  ASSERT_OK(Put(zero, "v", "1"));
  EXPECT_THAT(Range("a", "\xff"), ElementsAre("a", zero, "ab", "b", "c", "\x80"));
  EXPECT_THAT(Range("a", "\xff", 3), ElementsAre("a", zero, "ab"));
  EXPECT_THAT(Range("a", "\xff", 3, true), ElementsAre("\x80", "c", "b"));
  EXPECT_THAT(Range("ab", "b"), ElementsAre("ab", "b"));
  EXPECT_THAT(Range("aa", "aab"), IsEmpty());
  EXPECT_THAT(Range("b", "a"), IsEmpty());
  EXPECT_THAT(Range("", "a"), ElementsAre("a"));
}

TEST_P(EveryDrive, ListsRecordsWithTheirSmallValues) {
  ASSERT_OK(Put("a", "small", "1"));
  ASSERT_OK(Put("b", std::string(100, 'v'), "2"));
  ASSERT_OK(Put("c", "", ""));
  const auto listed = ListOf(*drive_, "", "\xff", 10, false, 50, Soon());
  ASSERT_OK(listed);
  EXPECT_FALSE(listed->more);
  ASSERT_EQ(listed->records.size(), 3u);
  EXPECT_EQ(listed->records[0].key, "a");
  EXPECT_TRUE(listed->records[0].has_value);
  EXPECT_EQ(listed->records[0].record.value.text(), "small");
  EXPECT_EQ(listed->records[1].record.version, "2");
  EXPECT_FALSE(listed->records[1].has_value);
  EXPECT_TRUE(listed->records[2].has_value);
  const auto first = ListOf(*drive_, "", "\xff", 1, true, 50, Soon());
  ASSERT_OK(first);
  EXPECT_TRUE(first->more);
  ASSERT_EQ(first->records.size(), 1u);
  EXPECT_EQ(first->records[0].key, "c");
}

// An answer has a limit, and says that there is more.
TEST_P(EveryDrive, ListsManyLargeRecordsInParts) {
  constexpr int kRecords = 30;
  for (int i = 0; i < kRecords; ++i) {
    ASSERT_OK(Put(fmt::format("{:02}", i), std::string(kMaxValueBytes / 2, 'v'), "1"));
  }
  std::string first;
  std::vector<std::string> found;
  for (bool more = true; more;) {
    const auto listed =
        ListOf(*drive_, first, "\xff", kMaxRangeRecords, false, kMaxValueBytes, Soon());
    ASSERT_OK(listed);
    for (const RangeRecord& each : listed->records) found.push_back(each.key);
    more = listed->more;
    if (more) {
      ASSERT_FALSE(listed->records.empty());
      first = found.back() + std::string(1, '\0');
    }
  }
  EXPECT_EQ(found.size(), static_cast<size_t>(kRecords));
}

TEST_P(EveryDrive, LooksAtTheGuardInTheSameStep) {
  const auto put = [&](Expected expected, Expected guard) {
    return Put({.key = "key",
                .version = "2",
                .expected = std::move(expected),
                .guard = Guard{"guard", std::move(guard)}});
  };
  EXPECT_FAILS(put(Expected::Absent(), Expected::Version("1")), ECANCELED);
  EXPECT_FAILS(Get("key"), ENOENT);
  EXPECT_OK(put(Expected::Absent(), Expected::Absent()));
  EXPECT_FAILS(put(Expected::Absent(), Expected::Version("1")), ESTALE);
  ASSERT_OK(Put("guard", "", "1"));
  EXPECT_FAILS(put(Expected::Version("2"), Expected::Absent()), ECANCELED);
  EXPECT_OK(put(Expected::Version("2"), Expected::Version("1")));
}

TEST_P(EveryDrive, FencesOffWhoKnowsAnEarlierClusterVersion) {
  const auto put = [&](int64_t version) {
    return PutTo(*drive_, {.key = "key", .version = "1"}, Under(version));
  };
  EXPECT_OK(put(0));
  EXPECT_OK(put(7));
  EXPECT_FAILS(put(6), EREMCHG);
  EXPECT_FAILS(GetFrom(*drive_, "key", {}, Under(6)), EREMCHG);
  EXPECT_FAILS(DeleteFrom(*drive_, "key", Expected::Any(), Under(6)), EREMCHG);
  EXPECT_OK(GetFrom(*drive_, "key", {}, Under(7)));
  EXPECT_OK(Get("key"));  // whoever asks for none
  EXPECT_OK(GetFrom(*drive_, "key", {}, Under(1000)));
  EXPECT_FAILS(put(999), EREMCHG);
  EXPECT_OK(Await<Status>(
      [&](StatusCallback done) { drive_->SetClusterVersion(3, Soon(), std::move(done)); }));
  EXPECT_OK(put(3));
  EXPECT_FAILS(put(2), EREMCHG);
}

TEST_P(EveryDrive, FlushesAndTellsOfItself) {
  EXPECT_OK(Await<Status>([&](StatusCallback done) { drive_->Flush(Soon(), std::move(done)); }));
  const auto info = Await<Result<DriveInfo>>(
      [&](Callback<DriveInfo> done) { drive_->Info(Soon(), std::move(done)); });
  ASSERT_OK(info);
  // PostgreSQL has no limit of its own, and etcd does not tell what it was given.
  if (GetParam() != Kind::kEtcd && GetParam() != Kind::kPostgres) {
    EXPECT_GT(info->capacity_bytes, 0u);
  }
  EXPECT_GE(info->portion_full, 0);
  EXPECT_LE(info->portion_full, 1);
  EXPECT_TRUE(drive_->IsUp());
  EXPECT_EQ(drive_->CountLosses(), 0u);
}

TEST_P(EveryDrive, OfChangesThatExpectTheSameVersionOneWins) {
  constexpr int kRounds = 50;
  constexpr int kClients = 8;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::future<Status>> answers;
    for (int i = 0; i < kClients; ++i) {
      const auto promise = std::make_shared<std::promise<Status>>();
      answers.push_back(promise->get_future());
      const std::string before = round == 0 ? "" : std::to_string(round);
      drive_->Put({.key = "key",
                   .value = SharedBytes(std::to_string(i)),
                   .version = std::to_string(round + 1),
                   .expected = Expected::Version(before)},
                  Soon(), [promise](Status status) { promise->set_value(std::move(status)); });
    }
    int won = 0;
    for (auto& each : answers) {
      const Status status = each.get();
      if (status.ok()) {
        ++won;
      } else {
        EXPECT_FAILS(status, ESTALE);
      }
    }
    EXPECT_EQ(won, 1);
  }
}

TEST_P(EveryDrive, AnswersWhatIsOutstandingWhenItIsDestroyed) {
  std::atomic<int> answers = 0;
  constexpr int kOperations = 200;
  for (int i = 0; i < kOperations; ++i) {
    drive_->Put({.key = fmt::format("{}", i), .value = SharedBytes(std::string(10000, 'v'))},
                Soon(), [&](const Status&) { ++answers; });
  }
  drive_.reset();
  EXPECT_EQ(answers, kOperations);
}

// --- Whatever is asked, the answer is that of the drive in memory

class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {}

  size_t UpTo(size_t most) { return std::uniform_int_distribution<size_t>(0, most)(random_); }
  std::string Key() { return std::string(1 + UpTo(1), static_cast<char>('a' + UpTo(3))); }
  std::string Version() { return UpTo(2) == 0 ? "" : std::to_string(UpTo(2)); }
  std::string Value() {
    return std::string(UpTo(2) == 0 ? UpTo(70000) : UpTo(20), static_cast<char>(UpTo(255)));
  }
  Expected SomeExpected() {
    switch (UpTo(3)) {
      case 0: return Expected::Any();
      case 1: return Expected::Absent();
      default: return Expected::Version(Version());
    }
  }

 private:
  std::mt19937_64 random_;
};

std::string TextOf(const Status& status) {
  return status.ok() ? "done" : "failed: " + ErrnoText(status.code());
}
std::string TextOf(const Record& record) {
  return fmt::format("{} {} {}:{:08x}", Hex(AsBytes(record.version)), Hex(AsBytes(record.tag)),
                     record.value.size(), Crc32c(record.value));
}
std::string TextOf(const RecordHead& head) {
  return fmt::format("{} {}", Hex(AsBytes(head.version)), Hex(AsBytes(head.tag)));
}
std::string TextOf(const std::vector<std::string>& keys) {
  return fmt::format("{}", fmt::join(keys, ","));
}
std::string TextOf(const RangeRecords& records) {
  std::string text = records.more ? "more" : "all";
  for (const RangeRecord& each : records.records) {
    text += fmt::format(" {}={}", each.key,
                        each.has_value ? TextOf(each.record)
                                       : TextOf(RecordHead{each.record.version, each.record.tag}));
  }
  return text;
}
template <typename T>
std::string TextOf(const Result<T>& result) {
  return result ? TextOf(*result) : TextOf(result.error());
}

TEST_P(EveryDrive, AnswersAsTheDriveInMemoryDoes) {
  MemoryDrive memory(runtime_, "model");
  Model model(1);
  constexpr int kSteps = 1500;
  for (int step = 0; step < kSteps; ++step) {
    const auto ask = [&](Drive& drive, Model choices) -> std::string {
      Terms terms = Soon();
      if (choices.UpTo(9) == 0) terms.cluster_version = static_cast<int64_t>(choices.UpTo(step));
      const std::string key = choices.Key();
      switch (choices.UpTo(7)) {
        case 0:
        case 1:
        case 2: {
          std::string value = choices.Value();
          std::string tag = TagOf(value);
          const bool is_guard = choices.UpTo(5) == 0;
          std::optional<Guard> guard;
          if (!is_guard && choices.UpTo(3) == 0) {
            guard = Guard{"guard" + key, Expected::Version(choices.Version())};
          }
          return "put " + TextOf(PutTo(drive,
                                       {.key = is_guard ? "guard" + key : key,
                                        .value = SharedBytes(std::move(value)),
                                        .version = choices.Version(),
                                        .tag = std::move(tag),
                                        .expected = choices.SomeExpected(),
                                        .guard = std::move(guard)},
                                       terms));
        }
        case 3: {
          const Expected expected = choices.SomeExpected();
          const Status status = DeleteFrom(drive, key, expected, terms);
          // With Any a drive may not tell whether there was one.
          const bool is_gone = !expected.version() && status.code() == ENOENT;
          return "delete " + (is_gone ? "done" : TextOf(status));
        }
        case 4: {
          ValueRange range;
          if (choices.UpTo(1) == 0) {
            range.offset = static_cast<uint32_t>(choices.UpTo(100));
            range.length = static_cast<uint32_t>(choices.UpTo(100000));
          }
          if (choices.UpTo(2) == 0) range.version = {.head = 1, .offset = 1, .length = 1};
          return "get " + TextOf(GetFrom(drive, key, range, terms));
        }
        case 5: return "head " + TextOf(HeadOf(drive, key, terms));
        case 6:
          return "range " + TextOf(RangeOf(drive, key, key + choices.Key(),
                                           static_cast<uint32_t>(1 + choices.UpTo(5)),
                                           choices.UpTo(1) == 0, terms));
        default:
          return "list " + TextOf(ListOf(drive, "a", choices.Key(),
                                         static_cast<uint32_t>(1 + choices.UpTo(20)),
                                         choices.UpTo(1) == 0, 10, terms));
      }
    };
    const Model choices(static_cast<uint64_t>(step));
    ASSERT_EQ(ask(*drive_, choices), ask(memory, choices)) << "step " << step;
  }
}

}  // namespace
}  // namespace pinstripe
