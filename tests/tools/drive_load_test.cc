// What `pinstripe bench drive` runs, against a daemon in this process.

#include "tools/drive_load.h"

#include <gtest/gtest.h>

#include <set>

#include "base/real_runtime.h"
#include "daemon/server.h"
#include "store/memory_store.h"
#include "tests/support/expect_ok.h"
#include "tools/process_use.h"

namespace pinstripe {
namespace {

class DriveLoadTest : public testing::Test {
 protected:
  DriveLoadTest() {
    const Result<uint16_t> port = server_->Listen("127.0.0.1", 0, service_);
    EXPECT_OK(port);
    load_.drive = {.id = 1, .addresses = {fmt::format("127.0.0.1:{}", *port)}};
    load_.length = std::chrono::milliseconds(10);
    load_.records = 40;
    port_ = *port;
  }

  std::vector<std::string> KeysOnTheDrive() { return *engine_.Keys({}, kMaxRangeKeys, false); }

  RealRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>()};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1", .world_wide_name = "WWN1"}, security_, engine_};
  std::unique_ptr<Server> server_ = std::make_unique<Server>(runtime_, Server::Options{});
  uint16_t port_ = 0;
  DriveLoad load_;
};

TEST_F(DriveLoadTest, EveryOperationIsMeasuredInEveryOrderAndSize) {
  for (const char* name :
       {"put", "get", "missing", "head", "next", "previous", "range", "delete"}) {
    load_.ops.push_back(*ParseDriveLoadOp(name));
  }
  for (const char* name : {"seq", "rand", "reverse"}) {
    load_.orders.push_back(*ParseDriveLoadOrder(name));
  }
  load_.value_bytes = {0, 120, 70'000};
  load_.connections = 2;
  load_.depth = 3;
  ASSERT_OK(engine_.Put("somebody's", {}, Expected::Any()));
  ASSERT_OK(engine_.Put("pinstripe-bench/left by one who was interrupted", {}, Expected::Any()));
  std::set<std::string> measured;
  ASSERT_OK(RunDriveLoad(runtime_, load_, [&](const DriveLoadResult& result) {
    measured.insert(
        fmt::format("{} {} {}", NameOf(result.op), NameOf(result.order), result.value_bytes));
    EXPECT_GT(result.operations, 0u);
    const bool moves = result.op == DriveLoadOp::kPut || result.op == DriveLoadOp::kGet ||
                       result.op == DriveLoadOp::kNext || result.op == DriveLoadOp::kPrevious;
    EXPECT_EQ(result.bytes, moves ? result.operations * result.value_bytes : 0);
    EXPECT_GT(result.seconds, 0);
    EXPECT_GT(result.p50, 0);
    EXPECT_LE(result.p50, result.p99);
    EXPECT_LE(result.p99, result.p999);
  }));
  EXPECT_EQ(measured.size(), 8u * 3 * 3);
  EXPECT_EQ(KeysOnTheDrive(), std::vector<std::string>{"somebody's"});
}

TEST_F(DriveLoadTest, AFailureEndsItAndIsTold) {
  load_.drive.credentials.key = "wrong";
  load_.ops = {DriveLoadOp::kPut};
  load_.orders = {DriveLoadOrder::kSequential};
  load_.value_bytes = {1};
  const Status refused = RunDriveLoad(runtime_, load_, [](const DriveLoadResult&) { FAIL(); });
  EXPECT_FAILS(refused, EHOSTUNREACH);
}

TEST_F(DriveLoadTest, AListenerOfThisMachineIsFound) {
  EXPECT_EQ(ListenerOn(port_), getpid());
  EXPECT_EQ(ListenerOn(1), std::nullopt);
  const auto before = UseOf(getpid());
  ASSERT_TRUE(before);
  EXPECT_EQ(UseOf(0), std::nullopt);
  while ((*UseOf(getpid()) - *before).cpu_seconds <= 0) {
  }  // or the test never ends
}

TEST(DriveLoadNames, SizesAndNamesAreReadAndMistakesNamed) {
  EXPECT_EQ(*ParseValueSize("120B"), 120u);
  EXPECT_EQ(*ParseValueSize("0"), 0u);
  EXPECT_EQ(*ParseValueSize("4KiB"), 4096u);
  EXPECT_EQ(*ParseValueSize("1MiB"), kMaxValueBytes);
  for (const char* wrong :
       {"", "B", "-1", "1.5KiB", "2MiB", "1048577", "1GiB", "99999999999999999999"}) {
    EXPECT_FAILS(ParseValueSize(wrong), EINVAL) << wrong;
  }
  const auto unknown = ParseDriveLoadOp("putt");
  ASSERT_FAILS(unknown, EINVAL);
  EXPECT_EQ(unknown.error().message(),
            "there is no operation 'putt'; there are put, get, missing, head, next, previous, "
            "range, delete");
}

}  // namespace
}  // namespace pinstripe
