// What is made of what drives tell of their clients.

#include "upkeep/cluster_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

DriveUser User(std::string program, std::string host, std::string address, uint64_t connection,
               uint64_t bytes_read = 0, uint64_t requests = 0) {
  DriveUser user;
  user.program = {.name = std::move(program), .version = "1", .detail = ""};
  user.host = std::move(host);
  user.process = 7;
  user.address = std::move(address);
  user.identity = 1;
  user.connected = 100s;
  user.connection = connection;
  user.bytes_read = bytes_read;
  user.requests = requests;
  return user;
}

DriveUse UseBy(std::vector<DriveUser> users) {
  DriveUse use;
  use.clients = std::move(users);
  return use;
}

ClusterUse At(Duration when, std::vector<ClusterUse::OfDrive> drives) {
  return {.when = Time{} + when, .drives = std::move(drives)};
}

TEST(ClusterUse, ConnectionsOfOneProgramAreOneClient) {
  const auto at = [](Duration when, uint64_t bytes) {
    return At(when, {{1, "a:1", UseBy({User("fuse", "h", "10.0.0.1:50", 11, bytes, bytes)})},
                     {2, "b:1",
                      UseBy({User("fuse", "h", "10.0.0.1:51", 12, bytes, bytes),
                             User("fuse", "other", "10.0.0.2:50", 13)})}});
  };
  const auto clients = ClientsSince(at(0s, 1000), at(2s, 3000));
  ASSERT_THAT(clients, SizeIs(2));
  EXPECT_EQ(clients[0].host, "h") << "busiest first";
  EXPECT_EQ(clients[0].address, "10.0.0.1");
  EXPECT_EQ(clients[0].connections, 2u);
  EXPECT_THAT(clients[0].drives, ElementsAre(1, 2));
  EXPECT_EQ(clients[0].bytes_read, 6000u);
  EXPECT_DOUBLE_EQ(clients[0].rates.bytes_read, 2000);
  EXPECT_DOUBLE_EQ(clients[0].rates.requests, 2000);
  EXPECT_EQ(clients[1].rates.bytes(), 0);
}

TEST(ClusterUse, WhoSaysNothingIsOneForEachAddress) {
  const auto use = At(1s, {{1, "a:1",
                            UseBy({User("", "", "10.0.0.1:50", 1), User("", "", "10.0.0.1:51", 2),
                                   User("", "", "[fe80::1]:51", 3)})}});
  const auto clients = ClientsSince(use, use);
  ASSERT_THAT(clients, SizeIs(2));
  EXPECT_EQ(clients[0].connections + clients[1].connections, 3u);
  EXPECT_THAT(ClientsText(clients, use), HasSubstr("(does not say)"));
  EXPECT_THAT(ClientsText(clients, use), HasSubstr("[fe80::1]"));
}

TEST(ClusterUse, AConnectionThatIsNewCountsFromItsBeginning) {
  const auto before = At(0s, {{1, "a:1", UseBy({})}});
  const auto now = At(2s, {{1, "a:1", UseBy({User("fuse", "h", "10.0.0.1:50", 11, 1000)})}});
  EXPECT_DOUBLE_EQ(ClientsSince(before, now)[0].rates.bytes_read, 10) << "in the 100 s it is there";
}

TEST(ClusterUse, TheOneWhoAsksIsNotShown) {
  SetProgram({.name = "pinstripe", .version = "1", .detail = "clients"});
  DriveUser me = User("pinstripe", HostName(), "10.0.0.1:50", 1);
  me.process = static_cast<uint32_t>(getpid());
  const auto use = At(1s, {{1, "a:1", UseBy({me})}});
  EXPECT_THAT(ClientsSince(use, use), IsEmpty());
  EXPECT_THAT(ClientsText({}, use), HasSubstr("nobody else is connected"));
  SetProgram({});
}

TEST(ClusterUse, WorkIsWhatCameBetween) {
  const auto at = [](Duration when, uint64_t gets, uint64_t puts) {
    DriveUse use;
    RequestsOfType read{.is_read = true, .requests = gets, .bytes = gets * 100};
    read.took.of[5] = gets;
    RequestsOfType write{.is_write = true, .requests = puts, .bytes = puts * 10};
    write.took.of[8] = puts;
    use.work = {read, write, {.requests = 3}};
    return At(when, {{1, "a:1", use}});
  };
  const auto drives = WorkSince(at(0s, 10, 10), at(2s, 30, 10));
  ASSERT_THAT(drives, SizeIs(1));
  EXPECT_DOUBLE_EQ(drives[0].rates.requests, 10);
  EXPECT_DOUBLE_EQ(drives[0].rates.bytes_read, 1000);
  EXPECT_DOUBLE_EQ(drives[0].rates.bytes_written, 0);
  EXPECT_EQ(drives[0].reads.count(), 20u);
  EXPECT_EQ(drives[0].writes.count(), 0u);
  EXPECT_THAT(TopText({}, drives), HasSubstr("all drives: 10 requests/s"));
  // A drive that was started anew has counted from 0 again.
  EXPECT_DOUBLE_EQ(WorkSince(at(0s, 100, 0), at(2s, 30, 0))[0].rates.bytes_read, 1500);
}

TEST(ClusterUse, DrivesThatDoNotTellAreNamed) {
  const Status why = Status(ECONNREFUSED, "Connection refused").OfDrive("drive 2 (b:1)");
  const auto use = At(1s, {{1, "a:1", UseBy({})}, {2, "b:1", tl::unexpected(why)}});
  EXPECT_EQ(use.Silent(), 1u);
  EXPECT_THAT(ClientsText({}, use), HasSubstr("drive 2 (b:1) does not tell: Connection refused\n"));
  const auto work = WorkSince(use, use);
  EXPECT_THAT(TopText({}, work), HasSubstr("drive 2 (b:1) does not tell: Connection refused\n"));
  const auto json = nlohmann::json::parse(ClientsJson({}, use));
  EXPECT_EQ(json["silent_drives"][0]["drive"], 2);
  const auto top = nlohmann::json::parse(TopJson({}, work, 0));
  ASSERT_THAT(top["drives"], SizeIs(2));
  EXPECT_EQ(top["drives"][0]["requests_per_second"], 0);
  EXPECT_FALSE(top["drives"][1].contains("requests_per_second")) << "what nobody knows is not 0";
  EXPECT_EQ(top["all"]["silent"], nullptr);
}

TEST(ClusterUse, ADriveThatBeginsToTellHasNoFiguresYet) {
  const auto silent = At(0s, {{1, "a:1", tl::unexpected(Status(ETIMEDOUT, "no answer"))}});
  DriveUse use;
  use.work = {{.is_read = true, .requests = 70, .bytes = 7000}};
  const auto work = WorkSince(silent, At(2s, {{1, "a:1", use}}));
  ASSERT_THAT(work, SizeIs(1));
  EXPECT_EQ(work[0].silent.message(), "it begins to tell");
  EXPECT_FALSE(WorkOfAll(work).silent.ok());
  const auto top = nlohmann::json::parse(TopJson({}, work, 0));
  EXPECT_EQ(top["all"]["silent"], "it begins to tell");
  EXPECT_FALSE(top["all"].contains("requests_per_second"));
}

TEST(ClusterUse, AllDrivesTogetherAreThoseThatTell) {
  DriveWorkReport one{.id = 1, .connections = 2, .rates = {.requests = 5, .bytes_read = 100}};
  one.reads.of[3] = 1;
  DriveWorkReport other = one;
  other.rates.bytes_written = 7;
  const DriveWorkReport away{.id = 3, .silent = Status(ETIMEDOUT, "no answer")};
  const DriveWorkReport all = WorkOfAll({away, one, other});
  EXPECT_OK(all.silent);
  EXPECT_EQ(all.connections, 4u);
  EXPECT_EQ(all.rates.requests, 10);
  EXPECT_EQ(all.rates.bytes_read, 200);
  EXPECT_EQ(all.rates.bytes_written, 7);
  EXPECT_EQ(all.reads.count(), 2u);
  EXPECT_FALSE(WorkOfAll({away}).silent.ok());
  EXPECT_FALSE(WorkOfAll({}).silent.ok());
}

TEST(ClusterUse, JsonHoldsWhateverAClientSays) {
  DriveUser evil = User("a\x1b\"\\\xff\xfe", "h\n", "10.0.0.1:50", 1);
  const auto use = At(1s, {{1, "a:1", UseBy({evil})}});
  const auto clients = ClientsSince(use, use);
  const std::string text = ClientsJson(clients, use);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["clients"][0]["address"], "10.0.0.1");
  EXPECT_EQ(json["clients"][0]["identities"][0], 1);
  const std::string line = TopJson(clients, {}, 0);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line";
}

}  // namespace
}  // namespace pinstripe
