// Guards: puts that depend on another record of the same drive, on every kind of drive that there
// is, and as a device hears them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/real_runtime.h"
#include "daemon/memory_drive.h"
#include "kinetic/kinetic_drive.h"
#include "store/log_store.h"
#include "store/memory_store.h"
#include "store/store_resources.h"
#include "tests/daemon/served_device.h"
#include "tests/daemon/wire_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/faulty_drive.h"
#include "tests/support/forwarding_drive.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using testing::HasSubstr;
using Code = kinetic::Status;

std::string VersionOf(Engine& engine, std::string_view key) {
  const auto head = engine.Head(key);
  return head.has_value() ? head->version : "(" + ErrnoText(head.error().code()) + ")";
}

// --- Every kind of drive

enum class Kind { kMemory, kForwarding, kFaulty, kServed, kServedLog };

class EveryDrive : public testing::TestWithParam<Kind> {
 protected:
  EveryDrive() { drive_ = Make(); }
  ~EveryDrive() override { drive_.reset(); }

  std::unique_ptr<Drive> Make() {
    switch (GetParam()) {
      case Kind::kMemory: return std::make_unique<MemoryDrive>(runtime_, "drive");
      case Kind::kForwarding:
        return std::make_unique<ForwardingDrive>(std::make_unique<MemoryDrive>(runtime_, "drive"));
      case Kind::kFaulty:
        return std::make_unique<FaultyDrive>(runtime_,
                                             std::make_shared<MemoryDrive>(runtime_, "drive"));
      case Kind::kServed: return Connect(std::make_unique<MemoryStore>());
      case Kind::kServedLog: {
        Result<std::unique_ptr<Store>> store =
            LogStore::Open({.path = directory_.path(), .reserve_bytes = 0}, resources_);
        EXPECT_OK(store);
        return Connect(*std::move(store));
      }
    }
    return nullptr;
  }
  std::unique_ptr<Drive> Connect(std::unique_ptr<Store> store) {
    device_ = std::make_unique<ServedDevice>(runtime_, std::move(store));
    return std::make_unique<KineticDrive>(
        io_, KineticDrive::Options{.name = "drive",
                                   .addresses = {fmt::format("127.0.0.1:{}", device_->port())},
                                   .key = "asdfasdf"});
  }

  template <typename Answer, typename Ask>
  static Answer Await(Ask ask) {
    std::promise<Answer> answer;
    ask([&](Answer got) { answer.set_value(std::move(got)); });
    return answer.get_future().get();
  }
  Time Soon() { return runtime_.Now() + std::chrono::seconds(60); }

  Status Put(std::string key, std::string version, Expected expected,
             std::optional<Guard> guard = std::nullopt, size_t value_bytes = 5) {
    return Await<Status>([&](StatusCallback done) {
      drive_->Put({.key = std::move(key),
                   .value = SharedBytes(std::string(value_bytes, 'v')),
                   .version = std::move(version),
                   .expected = std::move(expected),
                   .guard = std::move(guard)},
                  Soon(), std::move(done));
    });
  }
  std::string VersionOf(const std::string& key) {
    const auto head = Await<Result<RecordHead>>(
        [&](Callback<RecordHead> done) { drive_->Head(key, Soon(), std::move(done)); });
    return head.has_value() ? head->version : "(" + ErrnoText(head.error().code()) + ")";
  }
  std::set<std::string> KeysFrom(const std::string& prefix) {
    std::set<std::string> found;
    std::string first = prefix;
    while (true) {
      const auto keys =
          Await<Result<std::vector<std::string>>>([&](Callback<std::vector<std::string>> done) {
            drive_->Range(first, prefix + "\xff", kMaxRangeKeys, /*reverse=*/false, Soon(),
                          std::move(done));
          });
      EXPECT_OK(keys);
      if (!keys.has_value()) return found;
      found.insert(keys->begin(), keys->end());
      if (keys->size() < kMaxRangeKeys) return found;
      first = keys->back() + std::string(1, '\0');
    }
  }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
  TemporaryDirectory directory_;
  StoreResources resources_;
  std::unique_ptr<ServedDevice> device_;
  std::unique_ptr<Drive> drive_;
};

std::string NameOf(const testing::TestParamInfo<Kind>& kind) {
  switch (kind.param) {
    case Kind::kMemory: return "Memory";
    case Kind::kForwarding: return "Forwarding";
    case Kind::kFaulty: return "Faulty";
    case Kind::kServed: return "Served";
    case Kind::kServedLog: return "ServedLog";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Guards, EveryDrive,
                         testing::Values(Kind::kMemory, Kind::kForwarding, Kind::kFaulty,
                                         Kind::kServed, Kind::kServedLog),
                         NameOf);

TEST_P(EveryDrive, MakesAPutWhoseGuardIsAsItMustBe) {
  ASSERT_OK(Put("dir", "open", Expected::Absent()));
  EXPECT_TRUE(drive_->capabilities().guards);
  EXPECT_OK(Put("file", "1", Expected::Absent(), Guard{"dir", Expected::Version("open")}));
  EXPECT_OK(Put("file", "2", Expected::Version("1"), Guard{"nothing", Expected::Absent()}));
  EXPECT_OK(Put("file", "3", Expected::Any(), Guard{"dir", Expected::Version("open")}));
  EXPECT_EQ(VersionOf("file"), "3");
  EXPECT_EQ(VersionOf("dir"), "open");
  ASSERT_OK(Put("plain", "", Expected::Any()));
  EXPECT_OK(Put("file", "4", Expected::Version("3"), Guard{"plain", Expected::Absent()}))
      << "what has no version and what is not there are the same";
  EXPECT_OK(Put("large", "1", Expected::Absent(), Guard{"dir", Expected::Version("open")}, 100'000))
      << "wherever a store keeps its value";
}

TEST_P(EveryDrive, ChangesNothingWhereTheGuardIsAnotherOne) {
  ASSERT_OK(Put("dir", "closed", Expected::Absent()));
  ASSERT_OK(Put("file", "1", Expected::Absent()));
  const Status missing = Put("new", "1", Expected::Absent(), Guard{"dir", Expected::Absent()});
  EXPECT_FAILS(missing, ECANCELED);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("that it depends on was changed"));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("drive"));
  EXPECT_FAILS(Put("file", "2", Expected::Version("1"), Guard{"dir", Expected::Version("open")}),
               ECANCELED);
  EXPECT_FAILS(Put("file", "2", Expected::Any(), Guard{"nothing", Expected::Version("open")}),
               ECANCELED);
  EXPECT_EQ(VersionOf("file"), "1");
  EXPECT_EQ(VersionOf("new"), "(" + ErrnoText(ENOENT) + ")");
  EXPECT_EQ(VersionOf("dir"), "closed");
}

// Whoever asks again for what was made and not heard of must not hear that it was not made.
TEST_P(EveryDrive, SaysOfTheRecordItselfFirst) {
  ASSERT_OK(Put("dir", "open", Expected::Absent()));
  const Guard open{"dir", Expected::Version("open")};
  ASSERT_OK(Put("file", "mine", Expected::Absent(), open));
  ASSERT_OK(Put("dir", "closed", Expected::Version("open")));
  EXPECT_FAILS(Put("file", "mine", Expected::Absent(), open), ESTALE);
  EXPECT_FAILS(Put("other", "mine", Expected::Absent(), open), ECANCELED);
}

TEST_P(EveryDrive, RefusesAGuardThatCannotBeOne) {
  const auto text = [](size_t size) { return std::string(size, 'x'); };
  const auto put = [&](std::string key, Expected expected) {
    return Put("file", "1", Expected::Any(), Guard{std::move(key), std::move(expected)});
  };
  EXPECT_FAILS(put("", Expected::Absent()), EINVAL);
  EXPECT_FAILS(put("file", Expected::Absent()), EINVAL);
  EXPECT_FAILS(put("dir", Expected::Any()), EINVAL);
  EXPECT_FAILS(put(text(kMaxKeyBytes + 1), Expected::Absent()), EINVAL);
  EXPECT_FAILS(put("dir", Expected::Version(text(kMaxVersionBytes + 1))), EINVAL);
  EXPECT_EQ(VersionOf("file"), "(" + ErrnoText(ENOENT) + ")");
  EXPECT_FAILS(put("dir", Expected::Version(text(kMaxVersionBytes))), ECANCELED);
  EXPECT_OK(put(text(kMaxKeyBytes), Expected::Absent()));
}

// What is put under a generation of the guard is there when that generation has ended, and nothing
// is put under it any more.
TEST_P(EveryDrive, MakesLookAndPutOneStep) {
  constexpr int kGenerations = 40;
  constexpr int kThreads = 3;
  constexpr size_t kPutsOfEach = 10;  // of a generation, at least
  std::mutex mutex;
  std::condition_variable changed;
  int generation = 0;                                     // guarded by mutex, as the next ones
  std::vector<std::set<std::string>> made(kGenerations);  // that were answered
  ASSERT_OK(Put("dir", "0", Expected::Absent()));
  const auto putter = [&](int thread) {
    for (int count = 0;; ++count) {
      int now = 0;
      {
        const std::lock_guard lock(mutex);
        now = generation;
      }
      if (now == kGenerations) return;
      const std::string key = fmt::format("{:02}/{}/{}", now, thread, count);
      const Status status =
          Put(key, "v", Expected::Absent(), Guard{"dir", Expected::Version(std::to_string(now))});
      if (status.code() == ECANCELED) continue;
      EXPECT_OK(status);
      const std::lock_guard lock(mutex);
      made[now].insert(key);
      changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(putter, i);
  std::vector<std::set<std::string>> seen(kGenerations);  // right after the end of each
  for (int ended = 0; ended < kGenerations; ++ended) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return made[ended].size() >= kPutsOfEach; });
    }
    EXPECT_OK(Put("dir", std::to_string(ended + 1), Expected::Version(std::to_string(ended))));
    seen[ended] = KeysFrom(fmt::format("{:02}/", ended));
    const std::lock_guard lock(mutex);
    generation = ended + 1;
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kGenerations; ++i) {
    EXPECT_TRUE(std::ranges::includes(seen[i], made[i])) << i;
    EXPECT_EQ(KeysFrom(fmt::format("{:02}/", i)), seen[i])
        << "put under a generation that was over";
  }
}

// --- The engine

Engine::Change PutOf(std::string key, std::string version, Expected expected,
                     std::optional<Guard> guard = std::nullopt) {
  return {.key = std::move(key),
          .record = StoredRecord{{.version = std::move(version)}, {}},
          .expected = std::move(expected),
          .guard = std::move(guard)};
}
Guard GuardBy(std::string key, std::string version) {
  return {std::move(key), Expected::Version(std::move(version))};
}

// Counts how often it is asked to put something.
class StepCountingStore : public MemoryStore {
 public:
  explicit StepCountingStore(int& steps) : steps_(steps) {}
  std::vector<Status> PutEach(std::span<const StoreChange> puts) override {
    ++steps_;
    return MemoryStore::PutEach(puts);
  }

 private:
  int& steps_;
};

TEST(EngineGuards, OfPutsThatComeTogetherAreLookedAtInTheirOrder) {
  Engine engine(std::make_unique<MemoryStore>());
  ASSERT_OK(engine.Put("dir", {{.version = "1"}, {}}, Expected::Absent()));
  const Engine::Change puts[] = {
      PutOf("a", "v", Expected::Absent(), GuardBy("dir", "1")),
      PutOf("b", "v", Expected::Absent(), GuardBy("dir", "1")),
      PutOf("dir", "2", Expected::Version("1")),
      PutOf("c", "v", Expected::Absent(), GuardBy("dir", "1")),
      PutOf("d", "v", Expected::Absent(), GuardBy("dir", "2")),
      PutOf("e", "v", Expected::Absent(), GuardBy("d", "v")),
      PutOf("a", "v", Expected::Absent(), GuardBy("dir", "1")),
  };
  const std::vector<Status> statuses = engine.PutEach(puts);
  EXPECT_OK(statuses[0]);
  EXPECT_OK(statuses[1]);
  EXPECT_OK(statuses[2]);
  EXPECT_FAILS(statuses[3], ECANCELED);
  EXPECT_OK(statuses[4]);
  EXPECT_OK(statuses[5]);
  EXPECT_FAILS(statuses[6], ESTALE);
  EXPECT_FAILS(engine.Head("c"), ENOENT);
}

// A put and one that has it as its guard are one step. Where the first is not made, the other one
// goes by what is there.
TEST(EngineGuards, OfPutsThatComeTogetherMayBeOneOfThem) {
  int steps = 0;
  Engine engine(std::make_unique<StepCountingStore>(steps));
  const auto put = [&](std::vector<Engine::Change> puts) {
    std::vector<int> codes;
    for (const Status& status : engine.PutEach(puts)) codes.push_back(status.code());
    return codes;
  };
  using Codes = std::vector<int>;
  EXPECT_EQ(put({PutOf("inode", "1", Expected::Absent()),
                 PutOf("entry", "1", Expected::Absent(), GuardBy("inode", "1")),
                 PutOf("inode 2", "1", Expected::Absent()),
                 PutOf("entry 2", "1", Expected::Absent(), GuardBy("inode 2", "1"))}),
            (Codes{0, 0, 0, 0}));
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(put({PutOf("inode", "1", Expected::Absent()),
                 PutOf("entry 3", "1", Expected::Absent(), GuardBy("inode", "1")),
                 PutOf("entry 4", "1", Expected::Absent(), GuardBy("entry 3", "1"))}),
            (Codes{ESTALE, 0, 0}))
      << "made before, as the guard says";
  EXPECT_EQ(put({PutOf("inode", "2", Expected::Version("0")),
                 PutOf("entry 5", "1", Expected::Absent(), GuardBy("inode", "2")),
                 PutOf("entry 6", "1", Expected::Absent(), GuardBy("entry 5", "1"))}),
            (Codes{ESTALE, ECANCELED, ECANCELED}));
  EXPECT_EQ(put({PutOf("inode", "2", Expected::Version("1")),
                 PutOf("entry", "2", Expected::Version("0"), GuardBy("inode", "2"))}),
            (Codes{0, ESTALE}));
  EXPECT_EQ(put({PutOf("inode", "3", Expected::Version("2")),
                 PutOf("entry 5", "1", Expected::Absent(), GuardBy("inode", "2"))}),
            (Codes{0, ECANCELED}));
}

TEST(EngineGuards, OfABatchAreAboutWhatWasThereBefore) {
  Engine engine(std::make_unique<MemoryStore>());
  ASSERT_OK(engine.Put("dir", {{.version = "1"}, {}}, Expected::Absent()));
  const Engine::Change after[] = {
      PutOf("dir", "2", Expected::Version("1")),
      PutOf("a", "v", Expected::Absent(), GuardBy("dir", "2")),
  };
  const auto failure = engine.Apply(after);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->change, 1u);
  EXPECT_FAILS(failure->status, ECANCELED);
  EXPECT_EQ(VersionOf(engine, "dir"), "1");
  const Engine::Change before[] = {
      PutOf("dir", "2", Expected::Version("1")),
      PutOf("a", "v", Expected::Absent(), GuardBy("dir", "1")),
      PutOf("b", "v", Expected::Absent(), GuardBy("nothing", "")),
  };
  EXPECT_FALSE(engine.Apply(before).has_value());
  EXPECT_EQ(VersionOf(engine, "dir") + VersionOf(engine, "a") + VersionOf(engine, "b"), "2vv");
  const Engine::Change own[] = {PutOf("a", "w", Expected::Any(), GuardBy("a", "v"))};
  const auto refused = engine.Apply(own);
  ASSERT_TRUE(refused.has_value());
  EXPECT_FAILS(refused->status, EINVAL);
}

// The thread that may not wait looks at guards, too.
TEST(EngineGuards, AreLookedAtByWhoMustNotWait) {
  const TemporaryDirectory directory;
  StoreResources resources;
  Result<std::unique_ptr<Store>> store =
      LogStore::Open({.path = directory.path(), .reserve_bytes = 0}, resources);
  ASSERT_OK(store);
  Engine engine(*std::move(store));
  ASSERT_OK(engine.Put("dir", {{.version = "1"}, {}}, Expected::Absent()));
  const auto at_once = [&](std::vector<Engine::Change> puts) { return engine.PutAllAtOnce(puts); };
  EXPECT_TRUE(at_once({PutOf("a", "v", Expected::Absent(), GuardBy("dir", "1")),
                       PutOf("b", "v", Expected::Absent(), GuardBy("dir", "1"))}));
  EXPECT_TRUE(at_once({PutOf("c", "v", Expected::Absent(), GuardBy("nothing", ""))}));
  EXPECT_FALSE(at_once({PutOf("d", "v", Expected::Absent(), GuardBy("dir", "2"))}));
  EXPECT_FALSE(at_once({PutOf("d", "v", Expected::Absent(), GuardBy("nothing", "2"))}));
  EXPECT_FALSE(at_once({PutOf("d", "v", Expected::Absent(), GuardBy("d", ""))}));
  EXPECT_FALSE(at_once({PutOf("dir", "2", Expected::Version("1")),
                        PutOf("d", "v", Expected::Absent(), GuardBy("dir", "1"))}));
  EXPECT_FALSE(at_once({PutOf("dir", "2", Expected::Version("0")),
                        PutOf("d", "v", Expected::Absent(), GuardBy("dir", "2"))}));
  EXPECT_FALSE(at_once({PutOf("d", "v", Expected::Absent(), GuardBy("dir", "1")),
                        PutOf("dir", "2", Expected::Version("1"))}));
  EXPECT_FAILS(engine.Head("d"), ENOENT);
  EXPECT_EQ(VersionOf(engine, "dir"), "1");
  EXPECT_TRUE(at_once({PutOf("dir", "2", Expected::Version("1")),
                       PutOf("d", "v", Expected::Absent(), GuardBy("dir", "2"))}));
  EXPECT_EQ(VersionOf(engine, "dir") + VersionOf(engine, "d"), "2v");
}

// A store that has lost the record "damaged".
class DamagedStore final : public Store {
 public:
  Result<StoredRecord> Get(std::string_view key, ValueRange range) override {
    return store_.Get(key, range);
  }
  Result<StoredHead> Head(std::string_view key) override {
    if (key == "damaged") return Fail(EBADMSG, "a wrong checksum");
    return store_.Head(key);
  }
  Result<std::vector<std::string>> Keys(const KeyRange& range, size_t max, bool reverse) override {
    return store_.Keys(range, max, reverse);
  }
  Status Put(std::string_view key, const StoredRecord& record, Room room) override {
    return store_.Put(key, record, room);
  }
  Status Delete(std::string_view key) override { return store_.Delete(key); }
  Status Apply(std::span<const StoreChange> changes) override { return store_.Apply(changes); }
  Status Flush() override { return {}; }
  StoreUsage Usage() override { return store_.Usage(); }

 private:
  MemoryStore store_;
};

// EBADMSG would say that the record itself is damaged, and have it repaired.
TEST(EngineGuards, ThatCannotBeReadSayNothingOfTheRecord) {
  Engine engine(std::make_unique<DamagedStore>());
  EXPECT_FAILS(engine.Put("file", {}, Expected::Absent(), Room::kData, GuardBy("damaged", "1")),
               EIO);
  EXPECT_FAILS(engine.Put("file", {}, Expected::Absent(), Room::kData, GuardBy("damaged", "")),
               EIO);
  EXPECT_FAILS(engine.Head("file"), ENOENT);
}

// --- The device

class GuardedDevice : public testing::Test {
 protected:
  GuardedDevice() {
    EXPECT_OK(device_.engine().Put("dir", {{.version = "open"}, {}}, Expected::Absent()));
    client_.ReceiveAnswer();
  }

  using Fill = std::function<void(kinetic::KeyValue*)>;
  static Command Asking(Header::MessageType type, const Fill& fill) {
    Command command;
    command.mutable_header()->set_messagetype(type);
    kinetic::KeyValue* entry = command.mutable_body()->mutable_keyvalue();
    entry->set_key("file");
    entry->set_newversion("1");
    entry->set_synchronization(kinetic::KeyValue::WRITEBACK);
    fill(entry);
    return command;
  }
  int Ask(Header::MessageType type, const Fill& fill) {
    EXPECT_TRUE(client_.SendCommand(Asking(type, fill)));
    return client_.ReceiveAnswer().code();
  }
  static Fill GuardedBy(std::string key, std::string version) {
    return [=](kinetic::KeyValue* entry) {
      entry->mutable_guard()->set_key(key);
      entry->mutable_guard()->set_version(version);
    };
  }
  std::string File() { return device_.VersionOf("file"); }
  const std::string kNone = "(" + ErrnoText(ENOENT) + ")";

  RealRuntime runtime_;
  ServedDevice device_{runtime_, std::make_unique<MemoryStore>()};
  WireClient client_{device_.port()};
};

TEST_F(GuardedDevice, AnswersWithACodeOfItsOwn) {
  EXPECT_EQ(Ask(Header::PUT, GuardedBy("dir", "closed")), Code::GUARD_MISMATCH);
  EXPECT_EQ(File(), kNone);
  EXPECT_EQ(Ask(Header::PUT, GuardedBy("dir", "open")), Code::SUCCESS);
  EXPECT_EQ(Ask(Header::PUT, GuardedBy("dir", "closed")), Code::VERSION_MISMATCH);
  EXPECT_EQ(device_.service().statistics().FailuresOf(Code::GUARD_MISMATCH), 1u);
}

TEST_F(GuardedDevice, RefusesGuardsThatSayNothing) {
  EXPECT_EQ(Ask(Header::PUT, [](auto* entry) { entry->mutable_guard(); }), Code::INVALID_REQUEST);
  EXPECT_EQ(Ask(Header::PUT, [](auto* entry) { entry->mutable_guard()->set_version("open"); }),
            Code::INVALID_REQUEST);
  EXPECT_EQ(Ask(Header::PUT, GuardedBy("file", "")), Code::INVALID_REQUEST);
  EXPECT_EQ(Ask(Header::PUT, GuardedBy(std::string(kMaxKeyBytes + 1, 'k'), "")),
            Code::INVALID_REQUEST);
  EXPECT_EQ(Ask(Header::PUT, GuardedBy("dir", std::string(kMaxVersionBytes + 1, 'v'))),
            Code::INVALID_REQUEST);
  EXPECT_EQ(File(), kNone);
  EXPECT_EQ(Ask(Header::PUT, [](auto* entry) { entry->mutable_guard()->set_key("dir"); }),
            Code::GUARD_MISMATCH)
      << "no version: it must not be there";
}

TEST_F(GuardedDevice, PassesOverFieldsThatNobodyKnows) {
  Command put = Asking(Header::PUT, GuardedBy("dir", "open"));
  put.mutable_header()->set_sequence(1000);
  std::string guard = put.body().keyvalue().guard().SerializeAsString();
  guard += "\xf8\x07\x01";  // field 127, a number
  ASSERT_TRUE(put.mutable_body()->mutable_keyvalue()->mutable_guard()->ParseFromString(guard));
  const std::string bytes = put.SerializeAsString();
  ASSERT_THAT(bytes, HasSubstr("\xf8\x07\x01"));
  ASSERT_TRUE(client_.Send(SignedFrame(put, 1, HmacKey("asdfasdf"), 0)));
  EXPECT_EQ(client_.ReceiveAnswer().code(), Code::SUCCESS);
}

// A guard that is not looked at would be worse than none.
TEST_F(GuardedDevice, TakesNoGuardWithADeletion) {
  EXPECT_EQ(Ask(Header::PUT, [](auto* entry) { entry->set_force(true); }), Code::SUCCESS);
  const auto forced = [](auto* entry) {
    entry->set_force(true);
    entry->mutable_guard()->set_key("dir");
    entry->mutable_guard()->set_version("open");
  };
  EXPECT_EQ(Ask(Header::DELETE, forced), Code::INVALID_REQUEST);
  EXPECT_EQ(File(), "1");
}

TEST_F(GuardedDevice, LooksAtTheGuardsOfABatchAtItsEnd) {
  for (const auto& [version, code] :
       {std::pair("closed", Code::INVALID_BATCH), std::pair("open", Code::SUCCESS)}) {
    Command batch;
    batch.mutable_header()->set_messagetype(Header::START_BATCH);
    batch.mutable_header()->set_batchid(7);
    ASSERT_TRUE(client_.SendCommand(batch));
    EXPECT_EQ(client_.ReceiveAnswer().code(), Code::SUCCESS);
    Command put = Asking(Header::PUT, GuardedBy("dir", version));
    put.mutable_header()->set_batchid(7);
    ASSERT_TRUE(client_.SendCommand(put));
    batch.mutable_header()->set_messagetype(Header::END_BATCH);
    ASSERT_TRUE(client_.SendCommand(batch));
    const WireClient::Answer ended = client_.ReceiveAnswer();
    EXPECT_EQ(ended.code(), code);
    const bool taken = code == Code::SUCCESS;
    EXPECT_THAT(ended.command.status().statusmessage(), HasSubstr(taken ? "" : "GUARD_MISMATCH: "));
    EXPECT_EQ(File(), taken ? "1" : kNone);
  }
}

}  // namespace
}  // namespace pinstripe
