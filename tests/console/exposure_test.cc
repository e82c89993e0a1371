// What the console is to those who are no operators, and behind a proxy.

#include <gmock/gmock.h>

#include "tests/console/console_fixture.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::Not;

using ExposureTest = ConsoleFixture;

TEST_F(ExposureTest, RefusesBeforeItReadsABody) {
  Start();
  const auto ask = [&](std::string_view host, std::string_view headers) {
    // The body does not come.
    return Ask(
        fmt::format("POST /api/v1/work HTTP/1.1\r\nHost: {}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 100\r\n{}\r\n",
                    host, headers));
  };
  EXPECT_EQ(StatusIn(ask("localhost", "")), 401);
  EXPECT_EQ(StatusIn(ask("localhost", "Authorization: Bearer x\r\n")), 401);
  EXPECT_EQ(StatusIn(ask("evil.example", "")), 403);
  EXPECT_EQ(StatusIn(ask("localhost", "Origin: http://evil.example\r\n")), 403);
  EXPECT_THAT(ask("localhost", ""), HasSubstr("Content-Security-Policy"));
}

TEST_F(ExposureTest, OperatorsWorkThroughAProxyThatSpeaksTls) {
  Start({.names = {"console.example"}, .public_origin = "https://console.example"});
  const auto ask = [&](std::string_view origin) {
    return StatusIn(Ask(PostText("/api/v1/work", "{\"kind\": \"check\"}",
                                 fmt::format("Authorization: Bearer {}\r\nOrigin: {}\r\n"
                                             "Sec-Fetch-Site: same-origin\r\n",
                                             kToken, origin))));
  };
  EXPECT_EQ(ask("https://console.example"), 202);
  EXPECT_EQ(ask("https://Console.Example"), 202);
  EXPECT_EQ(ask("https://console.example:1"), 403);
  EXPECT_EQ(ask("https://evil.example"), 403);
  EXPECT_EQ(ask("http://console.example"), 403);
}

TEST_F(ExposureTest, OnlySomeUpdatesAreForOnePeer) {
  Start({.most_streams = 3, .streams_per_peer = 2});
  HttpClient first(server_->port());
  HttpClient second(server_->port());
  HttpClient other(server_->port(), "127.0.0.2");
  for (HttpClient* client : {&first, &second}) {
    client->Send(GetText("/api/v1/live"));
    client->ReceiveUntil("event: status");
  }
  EXPECT_EQ(StatusIn(Get("/api/v1/live")), 503);
  other.Send(GetText("/api/v1/live"));
  EXPECT_THAT(other.ReceiveUntil("event: status"), HasSubstr("event: status"));
}

TEST_F(ExposureTest, OnlyOperatorsHaveLargeFilesLookedThrough) {
  Start();
  EXPECT_EQ(StatusIn(Get("/api/v1/why?path=/big")), 200);
  EXPECT_EQ(cluster_.most_blocks, 1u << 14);
  Get("/api/v1/why?path=/big", "Authorization: Bearer x\r\n");
  EXPECT_EQ(cluster_.most_blocks, 1u << 14);
  Get("/api/v1/why?path=/big", fmt::format("Authorization: Bearer {}\r\n", kToken));
  EXPECT_EQ(cluster_.most_blocks, 1u << 20);
}

// What drives refuse us has nothing to do with who asks.
TEST_F(ExposureTest, FailuresOfTheClusterAreNotTheClients) {
  Start();
  const std::string answer = Get("/api/v1/files?path=/denied");
  EXPECT_EQ(StatusIn(answer), 503);
  EXPECT_THAT(answer, Not(HasSubstr("WWW-Authenticate")));
  std::filesystem::remove(directory_ / "program");
  EXPECT_EQ(StatusIn(Post("/api/v1/work", "{\"kind\": \"check\"}")), 503);
}

TEST_F(ExposureTest, APathThatIsTooShortIsNone) {
  Start();
  for (const char* path : {"/api/v1/chores/stop", "/api/v1/chores//stop", "/api/v1/chores/",
                           "/api/v1/work/stop", "/api/v1/work/"}) {
    EXPECT_EQ(StatusIn(Post(path, "{}")), 404) << path;
  }
}

}  // namespace
}  // namespace pinstripe
