// What a PostgreSQL server says, and what is made of it.

#include "engines/postgres/server_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engines/postgres/way.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const PgFacts kSafe = {
    {"standby", "f"}, {"read_only", "off"}, {"fsync", "on"}, {"full_page_writes", "on"}};

TEST(PgServerFacts, AServerThatCouldLoseWhatItConfirmedIsRefused) {
  EXPECT_OK(CheckPgServer(kSafe));
  const std::vector<std::array<std::string, 3>> cases = {
      {"standby", "t", "it is a standby"},
      {"read_only", "on", "default_transaction_read_only = off"},
      {"fsync", "off", "set 'fsync = on'"},
      {"full_page_writes", "off", "set 'full_page_writes = on'"},
      {"full_page_writes", "", "set 'full_page_writes = on'"}};
  for (const auto& [name, value, why] : cases) {
    PgFacts facts = kSafe;
    facts[name] = value;
    const Status status = CheckPgServer(facts);
    EXPECT_FAILS(status, EHOSTUNREACH);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
  EXPECT_FAILS(CheckPgServer({}), EHOSTUNREACH);
}

TEST(PgServerFacts, WarnsOfWhatShouldBeSetOtherwise) {
  EXPECT_THAT(PgWarnings("on", "", 0), IsEmpty());
  EXPECT_THAT(PgWarnings("on", "a", 1), IsEmpty());
  EXPECT_THAT(PgWarnings("on", "", 1),
              testing::ElementsAre(HasSubstr("synchronous_standby_names")));
  EXPECT_THAT(PgWarnings("off", "a", 1), testing::ElementsAre(HasSubstr("autovacuum")));
}

TEST(PgServerFacts, ErrorsHaveTheCodesOfADrive) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"53100", ENOSPC},       {"53200", EIO},          {"53300", EHOSTUNREACH},
      {"28P01", EACCES},       {"28000", EACCES},       {"42501", EACCES},
      {"57P01", EHOSTUNREACH}, {"57P03", EHOSTUNREACH}, {"25006", EHOSTUNREACH},
      {"08006", EHOSTUNREACH}, {"3D000", EHOSTUNREACH}, {"57014", ETIMEDOUT},
      {"42P01", EHOSTUNREACH}, {"XX000", EIO},          {"", EIO}};
  for (const auto& [state, code] : cases) {
    EXPECT_FAILS(StatusOf(PgError{.state = state, .message = "why"}), code) << state;
  }
  EXPECT_EQ(MeaningOf("40P01"), PgMeaning::kAgain);
  EXPECT_EQ(MeaningOf("25006"), PgMeaning::kLost);
  EXPECT_EQ(MeaningOf("42P01"), PgMeaning::kOther);
  EXPECT_EQ(MeaningOf("53100"), PgMeaning::kFailed);
  const Status said = StatusOf(PgError{.state = "XX000", .message = "a\x1b[31m\nb"});
  EXPECT_EQ(said.message().find('\x1b'), std::string::npos);
}

TEST(PgServerFacts, FindsTheStateInASentence) {
  const PgError wrong = ConnectErrorOf(
      "connection to server at \"127.0.0.1\", port 5432 failed: FATAL:  28P01: password "
      "authentication failed for user \"x\"\nLOCATION:  auth_failed, auth.c:326\n");
  EXPECT_EQ(wrong.state, "28P01");
  EXPECT_EQ(wrong.message, "password authentication failed for user \"x\"");
  const PgError refused = ConnectErrorOf(
      "connection to server at \"db1\" (127.0.0.1), port 5432 failed: Connection refused\n\tIs the "
      "server running?\n");
  EXPECT_EQ(refused.state, "");
  EXPECT_EQ(refused.message, "Connection refused");
  EXPECT_EQ(ConnectErrorOf("").message, "");
  EXPECT_EQ(ConnectErrorOf(": ").state, "");
}

EngineOptions Connecting(std::string text) {
  EngineOptions options;
  options.connection = std::move(text);
  return options;
}

TEST(PgWay, NamesEachServerOfAConnectionString) {
  const Result<PgWay> way =
      ParsePgWay(Connecting("host=db1,10.0.0.2,/run/pg port=5432,5433,5434 dbname=names "
                            "target_session_attrs=any connect_timeout=3"));
  ASSERT_OK(way);
  ASSERT_EQ(way->servers.size(), 3u);
  EXPECT_EQ(way->servers[0].name, "db1:5432");
  EXPECT_TRUE(way->servers[0].needs_lookup());
  EXPECT_EQ(way->servers[1].address, "10.0.0.2");
  EXPECT_FALSE(way->servers[1].needs_lookup());
  EXPECT_FALSE(way->servers[2].needs_lookup());
  EXPECT_THAT(way->To(way->servers[1], "10.0.0.2"),
              testing::AllOf(testing::Contains(testing::Pair("host", "10.0.0.2")),
                             testing::Contains(testing::Pair("port", "5433")),
                             testing::Contains(testing::Pair("dbname", "names")),
                             testing::Contains(testing::Pair("tcp_user_timeout", "10000")),
                             testing::Not(testing::Contains(testing::Key("connect_timeout")))));
  const Result<PgWay> uri = ParsePgWay(Connecting("postgresql://u@[::1]:77,db2/names"));
  ASSERT_OK(uri);
  EXPECT_EQ(uri->servers[0].name, "[::1]:77");
  EXPECT_EQ(ParsePgWay(Connecting("host=a,b port=7"))->servers[1].port, "7");
  EXPECT_EQ(ParsePgWay(Connecting(""))->servers.size(), 1u);
}

TEST(PgWay, RefusesWhatIsNoConnectionString) {
  for (const char* text : {"host", "nonsense=1", "host=a,b hostaddr=1.2.3.4", "host=a port=1,2"}) {
    EXPECT_FAILS(ParsePgWay(Connecting(text)), EINVAL) << text;
  }
  const Result<PgWay> secret = ParsePgWay(Connecting("password=abc' x"));
  EXPECT_EQ(secret.error().message().find("abc"), std::string::npos);
}

TEST(PgWay, UserAndPasswordComeFromElsewhere) {
  EngineOptions options = Connecting("host=a user=x");
  options.user = "u";
  options.password = "p";
  const Result<PgWay> way = ParsePgWay(options);
  EXPECT_THAT(way->parameters, testing::Contains(testing::Pair("user", "u")));
  EXPECT_THAT(way->parameters, testing::Contains(testing::Pair("password", "p")));
}

}  // namespace
}  // namespace pinstripe
