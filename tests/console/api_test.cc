// What the console answers, to whom, and to whom not: over sockets, as a browser asks.

#include "console/api.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/console/console_fixture.h"
#include "tests/console/schema.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using namespace std::chrono_literals;

class ConsoleTest : public ConsoleFixture {
 protected:
  // Of an answer that keeps to the document.
  Json Checked(const std::string& answer, const std::string& path, const std::string& method) {
    static const Schema schema(Json::parse(
        PageFiles::Load(PINSTRIPE_SOURCE_DIR "/console/page")->Find("/openapi.json")->body));
    const Json json = Json::parse(BodyIn(answer), nullptr, false);
    EXPECT_EQ(schema.Complaint(path, method, StatusIn(answer), json), "") << answer;
    return json;
  }
  Json GetChecked(const std::string& path, const std::string& query = "") {
    return Checked(Get("/api/v1/" + path + query), "/api/v1/" + path, "get");
  }

  // Waits until the page would know what the cluster is now.
  void WaitForLook() {
    const uint64_t number = watch_->Newest()->number;
    while (watch_->WaitForOther(number, 10s)->number == number) {
    }
  }
  Json WaitForEnd(uint64_t chore) {
    for (;;) {
      const Json work = GetChecked("work");
      for (const Json& one : work["chores"]) {
        if (one["id"] == chore && one["state"] == "ended") return one;
      }
      runtime_.NewSignal()->WaitUntil(runtime_.Now() + 5ms);
    }
  }
};

TEST_F(ConsoleTest, TellsHowTheClusterIs) {
  Survey survey = SurveyOfDrives(16);
  LoseDrive(survey, 4);
  cluster_.Set(survey);
  Start();
  const Json status = GetChecked("status");
  EXPECT_EQ(status["survey"]["health"]["state"], "degraded");
  EXPECT_EQ(status["survey"]["drives"][4]["sign"], "down");
  EXPECT_EQ(status["survey"]["drives"][5]["sign"], "up");
  EXPECT_EQ(status["has_operators"], true);
  ASSERT_EQ(status["alarms"].size(), 1u);
  EXPECT_EQ(status["alarms"][0]["what"], "drive 5 (box0.example:8127) is down: connection refused");
  EXPECT_THAT(std::string(status["alarms"][0]["way_out"]),
              HasSubstr("pinstripe rebuild /etc/pinstripe/cluster.toml 5"));
  // The page has what `pinstripe status --json` prints.
  Json survey_json = status["survey"];
  for (Json& drive : survey_json["drives"]) drive.erase("sign");
  EXPECT_EQ(survey_json, Json::parse(SurveyJson(*cluster_.Look())));
}

TEST_F(ConsoleTest, TellsWhatDrivesDoAsTopDoes) {
  const Survey survey = SurveyOfDrives(16);
  std::atomic<uint64_t> done = 0;
  cluster_.SetUse([&]() -> Result<ClusterUse> {
    ClusterUse use = UseOfDrives(survey, runtime_.Now(), done, 2 * done);
    use.drives[3].use = Fail(ETIMEDOUT, "no answer \xff");
    done += 1000;
    return use;
  });
  watch_options_.every = watch_options_.use_every = 500ms;
  Start();
  EXPECT_EQ(GetChecked("status")["activity"]["error"], "the drives were not asked twice yet");
  HttpClient live(server_->port());
  live.Send(GetText("/api/v1/live"));
  live.ReceiveUntil("over_seconds");
  const Json activity = GetChecked("status")["activity"];
  const Json& all = activity["all"];
  const double seconds = activity["over_seconds"];
  EXPECT_GE(seconds, 0.5);
  EXPECT_NEAR(all["read_bytes_per_second"].get<double>() * seconds, 15e6, 1e5);
  EXPECT_NEAR(all["written_bytes_per_second"].get<double>() * seconds, 15e6, 1e5);
  EXPECT_NEAR(all["requests_per_second"].get<double>() * seconds, 45'000, 100);
  EXPECT_EQ(all["reads"]["count"], 15'000);
  EXPECT_NEAR(all["reads"]["p50_seconds"], 0.0015, 1e-4);
  EXPECT_NEAR(all["changes"]["p99_seconds"], 0.002, 1e-4);
  ASSERT_EQ(activity["drives"].size(), 16u);
  EXPECT_EQ(activity["drives"][2]["silent"], nullptr);
  EXPECT_EQ(activity["drives"][2]["reads"]["count"], 1000);
  // Who does not tell is no drive that does nothing.
  EXPECT_EQ(activity["drives"][3]["silent"], "no answer \ufffd");
  EXPECT_FALSE(activity["drives"][3].contains("read_bytes_per_second"));
  ASSERT_EQ(activity["clients"].size(), 2u);
  EXPECT_EQ(activity["clients"][0]["detail"], "/data");
  EXPECT_EQ(activity["client_count"], 2);
}

TEST_F(ConsoleTest, WhoClientsAreIsToldToWhomFilesAre) {
  const Survey survey = SurveyOfDrives(16);
  cluster_.SetUse(
      [&]() -> Result<ClusterUse> { return UseOfDrives(survey, runtime_.Now(), 10, 10); });
  watch_options_.every = watch_options_.use_every = 500ms;
  Start({.files_for_all = false});
  HttpClient live(server_->port());
  live.Send(GetText("/api/v1/live"));
  EXPECT_THAT(live.ReceiveUntil("client_count"), Not(HasSubstr("desk.example")));
  const Json activity = GetChecked("status")["activity"];
  EXPECT_EQ(activity["client_count"], 2);
  EXPECT_FALSE(activity.contains("clients"));
  // Where nothing came, no time is made up.
  EXPECT_EQ(activity["all"]["reads"]["p50_seconds"], nullptr);
}

TEST_F(ConsoleTest, SaysThatTheClusterIsAwayAndGoesOnTrying) {
  cluster_.Break(Status(EINVAL, "cluster.toml:3: what is this?"));
  Start();
  Json status = GetChecked("status");
  EXPECT_EQ(status["error"], "cluster.toml:3: what is this?");
  EXPECT_FALSE(status.contains("survey"));
  EXPECT_EQ(status["alarms"].size(), 1u);
  EXPECT_EQ(StatusIn(Get("/")), 200);
  cluster_.Set(SurveyOfDrives(8));
  WaitForLook();
  EXPECT_EQ(GetChecked("status")["survey"]["health"]["state"], "healthy");
}

TEST_F(ConsoleTest, ShowsFilesInPages) {
  for (const char* name : {"a", "b<script>", "c\xff", "d"}) {
    cluster_.entries.push_back({.name = name,
                                .inode = 7,
                                .kind = FileKind::kRegular,
                                .attributes = Attributes{.size = 5, .modified = 3'000'000'000}});
  }
  Start();
  const Json first = GetChecked("files", "?path=/&max=3");
  EXPECT_EQ(first["more"], true);
  ASSERT_EQ(first["entries"].size(), 3u);
  EXPECT_EQ(first["entries"][0]["size"], 5);
  EXPECT_EQ(first["entries"][0]["modified"], 3);
  EXPECT_EQ(first["entries"][1]["name"], "b<script>");
  EXPECT_EQ(first["entries"][1]["encoded"], "b%3Cscript%3E");
  EXPECT_EQ(first["entries"][2]["encoded"], "c%FF");
  const Json second = GetChecked("files", "?path=/&max=3&after=c%FF");
  EXPECT_EQ(second["more"], false);
  ASSERT_EQ(second["entries"].size(), 1u);
  EXPECT_EQ(second["entries"][0]["name"], "d");
  EXPECT_EQ(GetChecked("files", "?path=/big")["is_directory"], false);
  for (const char* query :
       {"", "?path=", "?path=a", "?path=/&max=0", "?path=/&max=501", "?path=/&max=-1",
        "?path=/&max=x", "?path=/&max=99999999999999999999"}) {
    EXPECT_EQ(StatusIn(Get(fmt::format("/api/v1/files{}", query))), 400) << query;
    GetChecked("files", query);
  }
  EXPECT_EQ(StatusIn(Get("/api/v1/files?path=/none")), 404);
}

TEST_F(ConsoleTest, ShowsWhereAFileIsAsTheCommandDoes) {
  Start();
  const WhereaboutsOptions options{.skipped_stripes = 1, .listed_stripes = 5};
  EXPECT_EQ(GetChecked("why", "?path=/big&skip=1&stripes=5"),
            Json::parse(WhereaboutsJson(*cluster_.Find("/big", options))));
  EXPECT_EQ(StatusIn(Get("/api/v1/why?path=/none")), 404);
  EXPECT_EQ(StatusIn(Get("/api/v1/why?path=/big&stripes=257")), 400);
}

TEST_F(ConsoleTest, RemembersHowDrivesWere) {
  Start();
  Survey survey = SurveyOfDrives(16);
  LoseDrive(survey, 2);
  cluster_.Set(survey);
  WaitForLook();
  const Json third =
      Checked(Get("/api/v1/drives/3/history"), "/api/v1/drives/{drive}/history", "get");
  ASSERT_EQ(third["samples"].size(), 2u);
  EXPECT_EQ(third["samples"][0]["state"], "up");
  EXPECT_EQ(third["samples"][1]["state"], "down");
  EXPECT_EQ(GetChecked("history")["samples"].size(), 1u);
  for (const char* path : {"drives/17/history", "drives/0/history", "drives/3", "drives//history",
                           "drives/x/history", "drives/99999/history", "nothing", ""}) {
    const std::string answer = Get(fmt::format("/api/v1/{}", path));
    EXPECT_GE(StatusIn(answer), 400) << path;
    EXPECT_FALSE(Json::parse(BodyIn(answer))["error"].empty()) << path;
  }
}

TEST_F(ConsoleTest, TellsWhatChangesWhileItIsWatched) {
  Start();
  HttpClient client(server_->port());
  client.Send(GetText("/api/v1/live"));
  client.ReceiveUntil("event: work");
  Survey survey = SurveyOfDrives(16);
  LoseDrive(survey, 9, "it has gone");
  const Time began = runtime_.Now();
  cluster_.Set(survey);
  EXPECT_THAT(client.ReceiveUntil("it has gone"), HasSubstr("event: status"));
  EXPECT_LT(runtime_.Now() - began, 5s);
}

TEST_F(ConsoleTest, OnlySoManyAreToldLive) {
  Start({.most_streams = 2});
  HttpClient first(server_->port());
  HttpClient second(server_->port());
  for (HttpClient* client : {&first, &second}) {
    client->Send(GetText("/api/v1/live"));
    client->ReceiveUntil("event: status");
  }
  EXPECT_EQ(StatusIn(Get("/api/v1/live")), 503);
  EXPECT_EQ(StatusIn(Get("/api/v1/status")), 200);
}

// Before there is something new that one of them could be told. A busy machine may be too slow for
// that now and then.
TEST_F(ConsoleTest, WhoeverWasToldLiveAndHasGoneMakesRoom) {
  Start({.most_streams = 1});
  bool in_time = false;
  for (int tries = 0; tries < 5 && !in_time; ++tries) {
    auto client = std::make_unique<HttpClient>(server_->port());
    client->Send(GetText("/api/v1/live"));
    client->ReceiveUntil("event: work");
    const uint64_t number = watch_->Newest()->number;
    client.reset();
    while (api_->CountStreams() > 0) std::this_thread::yield();
    in_time = watch_->Newest()->number == number;
  }
  EXPECT_TRUE(in_time);
}

TEST_F(ConsoleTest, ServesThePageAndNothingBesideIt) {
  Start();
  const std::string index = Get("/");
  EXPECT_THAT(index, HasSubstr("<!doctype html>"));
  const size_t at = index.find("ETag: ") + 6;
  const std::string tag = index.substr(at, index.find('\r', at) - at);
  EXPECT_EQ(StatusIn(Get("/", fmt::format("If-None-Match: {}\r\n", tag))), 304);
  EXPECT_THAT(Get("/console.js"), HasSubstr("text/javascript"));
  for (const char* path :
       {"/../api.cc", "/%2e%2e/api.cc", "/..%2fapi.cc", "//etc/passwd", "/etc/passwd", "/page/",
        "/console.js/", "/.", "/%00", "/console.js%00.html", "/\\..\\api.cc", "/index.html/.."}) {
    EXPECT_EQ(StatusIn(Get(path)), 404) << path;
  }
}

TEST_F(ConsoleTest, EveryAnswerKeepsTheBrowserToTheRules) {
  Start();
  for (const char* path :
       {"/", "/none", "/api/v1/status", "/api/v1/none", "/api/v1/files?path=x"}) {
    const std::string answer = Get(path);
    EXPECT_THAT(answer,
                HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
    EXPECT_THAT(answer, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
    EXPECT_THAT(answer, HasSubstr("Cross-Origin-Resource-Policy: same-origin"));
    EXPECT_THAT(answer, HasSubstr("Cache-Control: no-"));
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control-Allow")));
  }
}

TEST_F(ConsoleTest, IsReachedByItsOwnNamesOnly) {
  Start({.names = {"console.example"}});
  const auto status_for = [&](std::string_view host) {
    return StatusIn(Ask(fmt::format("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", host)));
  };
  for (const char* host : {"localhost", "LOCALHOST:8070", "127.0.0.1:8070", "[::1]:8070",
                           "10.1.2.3", "console.example", "Console.Example:443"}) {
    EXPECT_EQ(status_for(host), 200) << host;
  }
  for (const char* host :
       {"evil.example", "", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:8070:1",
        "localhost:x", "[::1", "console.example@evil.example"}) {
    EXPECT_EQ(status_for(host), 403) << host;
  }
  EXPECT_EQ(StatusIn(Ask("GET / HTTP/1.1\r\n\r\n")), 403);
}

TEST_F(ConsoleTest, PagesOfOthersGetNothing) {
  Start();
  for (const char* header :
       {"Origin: http://evil.example", "Origin: null", "Origin: https://localhost",
        "Origin: http://localhost:99", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"}) {
    EXPECT_EQ(StatusIn(Get("/api/v1/status", fmt::format("{}\r\n", header))), 403) << header;
    EXPECT_EQ(
        StatusIn(Ask(PostText("/api/v1/work", "{\"kind\": \"check\"}",
                              fmt::format("Authorization: Bearer {}\r\n{}\r\n", kToken, header)))),
        403)
        << header;
  }
  EXPECT_EQ(StatusIn(Get("/api/v1/status",
                         "Origin: http://localhost\r\n"
                         "Sec-Fetch-Site: same-origin\r\n")),
            200);
  // A link from elsewhere may lead here.
  const std::string visit = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
  EXPECT_EQ(StatusIn(Get("/", visit + "Sec-Fetch-Dest: document\r\n")), 200);
  // But not into a frame, and not to what is behind the page.
  EXPECT_EQ(StatusIn(Get("/", visit + "Sec-Fetch-Dest: iframe\r\n")), 403);
  EXPECT_EQ(StatusIn(Get("/api/v1/status", visit + "Sec-Fetch-Dest: document\r\n")), 403);
  // What a form of another site could send.
  EXPECT_EQ(StatusIn(Ask(fmt::format("POST /api/v1/work HTTP/1.1\r\nHost: localhost\r\n"
                                     "Content-Type: text/plain\r\nAuthorization: Bearer {}\r\n"
                                     "Content-Length: 2\r\n\r\n{{}}",
                                     kToken))),
            415);
  EXPECT_TRUE(chores_->List().empty());
}

TEST_F(ConsoleTest, OperatorsStartAndStopWork) {
  Start();
  const Json accepted = Checked(Post("/api/v1/work", "{\"kind\": \"drain\", \"drives\": [3, 7]}"),
                                "/api/v1/work", "post");
  const Json drain = WaitForEnd(accepted["id"]);
  EXPECT_EQ(drain["said"], "<--progress=json>\n<drain>\n<cluster.toml>\n<3>\n<7>\n");
  EXPECT_EQ(drain["exit_code"], 0);
  EXPECT_EQ(drain["by"], "anna");
  EXPECT_EQ(drain["doing"], "looking");
  EXPECT_EQ(drain["done"], 0.25);
  EXPECT_EQ(drain["seconds_left"], 7);
  const Json scrub = Json::parse(BodyIn(Post("/api/v1/work", "{\"kind\": \"scrub\"}")));
  EXPECT_EQ(WaitForEnd(scrub["id"])["exit_code"], 3);

  const Json repair = Json::parse(BodyIn(Post("/api/v1/work", "{\"kind\": \"repair\"}")));
  const std::string stop = fmt::format("/api/v1/chores/{}/stop", repair["id"].get<int>());
  // It can be interrupted as soon as it has said something.
  while (!std::string(GetChecked("work")["chores"][0]["said"]).ends_with("waiting\n")) {
    runtime_.NewSignal()->WaitUntil(runtime_.Now() + 5ms);
  }
  Checked(Post(stop, "{}"), "/api/v1/chores/{id}/stop", "post");
  EXPECT_THAT(std::string(WaitForEnd(repair["id"])["said"]), HasSubstr("interrupted"));
  EXPECT_EQ(StatusIn(Post(stop, "{}")), 409);
  EXPECT_EQ(StatusIn(Post("/api/v1/chores/99/stop", "{}")), 404);
}

TEST_F(ConsoleTest, ShowsWorkOfAllHostsAndAsksItForOperators) {
  WorkSeen seen{.place = 2, .is_alive = true};
  seen.record.actor = {.host = "box7", .process = 5, .program = "pinstripe", .user = "ben"};
  seen.record.work = "scrub";
  seen.record.doing = "reading";
  seen.record.done = 250'000;
  cluster_.SetWork({seen});
  Start();
  WaitForLook();
  const Json work = GetChecked("work")["work"];
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0], Json::parse(WorkJson({seen}))["work"][0]);
  for (const char* what : {"pause", "resume", "stop"}) {
    EXPECT_EQ(StatusIn(Post(fmt::format("/api/v1/work/3/{}", what), "{}", "")), 401);
    const std::string answer = Post(fmt::format("/api/v1/work/3/{}", what), "{}");
    Checked(answer, "/api/v1/work/{number}/{what}", "post");
    EXPECT_EQ(StatusIn(answer), 202);
  }
  EXPECT_EQ(cluster_.asked(), "anna 2;anna 1;anna 3;");
  for (const char* path :
       {"3", "3/", "3/burn", "x/stop", "-1/stop", "4/stop", "99/stop", "/stop"}) {
    EXPECT_EQ(StatusIn(Post(fmt::format("/api/v1/work/{}", path), "{}")), 404) << path;
  }
}

TEST_F(ConsoleTest, TellsWhatHappened) {
  Event event{.kind = EventKind::kDriveWent, .at = 5'000'000'000, .drives = {3}};
  event.actor = {.host = "box7", .process = 5, .program = "xrootd", .user = "xrootd"};
  cluster_.Tell(event);
  Start();
  const Json events = GetChecked("events")["events"];
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0], Json::parse(EventJson(event)));
  HttpClient client(server_->port());
  client.Send(GetText("/api/v1/live"));
  client.ReceiveUntil("event: events");
  event.kind = EventKind::kWorkBegan;
  event.work = "scrub";
  cluster_.Tell(event);
  EXPECT_THAT(client.ReceiveUntil("work-began"), HasSubstr("work-began"));
  EXPECT_EQ(GetChecked("events")["events"].size(), 2u);
}

TEST_F(ConsoleTest, EverybodyElseOnlyLooks) {
  Start();
  const std::string check = "{\"kind\": \"check\"}";
  for (const std::string_view token : {"", "x", "0123456789abcdef0123456789abcdee"}) {
    const std::string answer = Post("/api/v1/work", check, token);
    EXPECT_EQ(StatusIn(answer), 401) << token;
    Checked(answer, "/api/v1/work", "post");
    EXPECT_EQ(StatusIn(Post("/api/v1/chores/1/stop", "{}", token)), 401);
  }
  EXPECT_EQ(StatusIn(Get("/api/v1/operator")), 401);
  EXPECT_TRUE(chores_->List().empty());
  const std::string mine = fmt::format("Authorization: Bearer {}\r\n", kToken);
  const std::string answer = Get("/api/v1/operator", mine);
  EXPECT_EQ(Checked(answer, "/api/v1/operator", "get")["name"], "anna");
}

TEST_F(ConsoleTest, WhoGuessesTokensWaits) {
  Start();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(StatusIn(Post("/api/v1/work", "{}", fmt::format("guess-{}", i))), 401);
  }
  const std::string answer = Post("/api/v1/work", "{}", "another guess");
  EXPECT_EQ(StatusIn(answer), 429);
  EXPECT_THAT(answer, HasSubstr("Retry-After: 60"));
  // Who guesses keeps nobody out who comes the same way.
  EXPECT_EQ(StatusIn(Post("/api/v1/work", "{}", kToken)), 400);
  EXPECT_EQ(StatusIn(Get("/api/v1/status")), 200);
}

TEST_F(ConsoleTest, RefusesBodiesThatMeanNothing) {
  Start();
  for (const char* body :
       {"", "[]", "{", "{\"kind\": 3}", "{\"kind\": \"check\", \"more\": 1}",
        "{\"kind\": \"check\", \"drives\": [1]}", "{\"kind\": \"rebuild\"}",
        "{\"kind\": \"rebuild\", \"drives\": [1, 2]}", "{\"kind\": \"rebuild\", \"drives\": [0]}",
        "{\"kind\": \"rebuild\", \"drives\": [-1]}", "{\"kind\": \"rebuild\", \"drives\": [65536]}",
        "{\"kind\": \"rebuild\", \"drives\": [1.5]}",
        "{\"kind\": \"rebuild\", \"drives\": [\"--force\"]}", "{\"kind\": \"check; rm -rf /\"}",
        "{\"kind\": \"--help\"}", "{\"kind\": \"dev\"}"}) {
    const std::string answer = Post("/api/v1/work", body);
    EXPECT_EQ(StatusIn(answer), 400) << body;
    Checked(answer, "/api/v1/work", "post");
  }
  EXPECT_TRUE(chores_->List().empty());
}

TEST_F(ConsoleTest, FilesCanBeForOperatorsOnly) {
  Start({.files_for_all = false});
  EXPECT_EQ(StatusIn(Get("/api/v1/files?path=/")), 401);
  EXPECT_EQ(StatusIn(Get("/api/v1/why?path=/big")), 401);
  const std::string mine = fmt::format("Authorization: Bearer {}\r\n", kToken);
  EXPECT_EQ(StatusIn(Get("/api/v1/files?path=/", mine)), 200);
  EXPECT_EQ(GetChecked("status")["files_for_all"], false);
}

TEST_F(ConsoleTest, OutlivesDamagedRequests) {
  Start();
  const std::string mine = fmt::format("Authorization: Bearer {}\r\n", kToken);
  const std::vector<std::string> whole{
      GetText("/api/v1/files?path=%2Fa%FF&max=3&after=b", mine),
      GetText("/api/v1/why?path=/big&skip=1&stripes=2", "Origin: http://localhost\r\n"),
      GetText("/api/v1/drives/3/history", "If-None-Match: x\r\n"),
      PostText("/api/v1/work", "{\"kind\": \"rebuild\", \"drives\": [3]}", mine),
      PostText("/api/v1/chores/1/stop", "{}", mine),
      PostText("/api/v1/work/3/pause", "{}", mine)};
  std::mt19937_64 random(2);
  for (int round = 0; round < 400; ++round) {
    HttpClient client(server_->port());
    client.Send(Damaged(whole[random() % whole.size()], random));
    shutdown(client.fd(), SHUT_WR);
    client.ReceiveAll();
    ASSERT_FALSE(client.timed_out()) << round;
  }
  EXPECT_EQ(StatusIn(Get("/api/v1/status")), 200);
}

TEST_F(ConsoleTest, TheDocumentIsServed) {
  Start();
  EXPECT_EQ(GetChecked("openapi.json")["openapi"], "3.0.3");
}

TEST_F(ConsoleTest, TwoHundredDrivesAreQuick) {
  cluster_.Set(SurveyOfDrives(200));
  Start();
  Get("/api/v1/status");
  const Time began = runtime_.Now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(StatusIn(Get("/api/v1/status")), 200);
  EXPECT_LT((runtime_.Now() - began) / 20, 50ms);
}

}  // namespace
}  // namespace pinstripe
