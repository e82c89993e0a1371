#include "redis/server_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::HasSubstr;

RedisFacts GoodInfo() {
  return ParseRedisInfo(
      "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n"
      "uptime_in_seconds:100\r\n\r\n# Replication\r\nrole:master\r\n# Memory\r\n"
      "used_memory:250\r\nmaxmemory:1000\r\ntotal_system_memory:4000\r\n");
}
RedisFacts GoodSettings() {
  return {{"appendonly", "yes"},
          {"appendfsync", "always"},
          {"no-appendfsync-on-rewrite", "no"},
          {"maxmemory-policy", "noeviction"},
          {"proto-max-bulk-len", "536870912"},
          {"client-query-buffer-limit", "1073741824"},
          {"timeout", "0"}};
}

std::string WhyNot(const RedisFacts& info, const RedisFacts& settings, int64_t sentinels = 0) {
  const Status status = CheckRedisServer(info, settings, sentinels);
  EXPECT_TRUE(status.ok() || status.code() == EHOSTUNREACH);
  return std::string(status.message());
}

TEST(RedisServerCheck, TakesAServerThatLosesNothing) {
  EXPECT_OK(CheckRedisServer(GoodInfo(), GoodSettings(), 0));
  RedisFacts settings = GoodSettings();
  settings["maxmemory-policy"] = "volatile-lru";  // none of our records ever expires
  EXPECT_OK(CheckRedisServer(GoodInfo(), settings, 0));
}

TEST(RedisServerCheck, SaysWhatToSet) {
  const auto with = [](const std::string& name, const std::string& value) {
    RedisFacts settings = GoodSettings();
    settings[name] = value;
    return WhyNot(GoodInfo(), settings);
  };
  EXPECT_THAT(with("appendonly", "no"), HasSubstr("set 'appendonly yes'"));
  EXPECT_THAT(with("appendfsync", "everysec"), HasSubstr("set 'appendfsync always'"));
  EXPECT_THAT(with("no-appendfsync-on-rewrite", "yes"),
              HasSubstr("set 'no-appendfsync-on-rewrite no'"));
  EXPECT_THAT(with("maxmemory-policy", "allkeys-lru"),
              HasSubstr("set 'maxmemory-policy noeviction'"));
  EXPECT_THAT(WhyNot(GoodInfo(), {}), HasSubstr("CONFIG GET"));
}

TEST(RedisServerCheck, RefusesWhatIsNotAStoreOfItsOwn) {
  const auto with = [](const std::string& name, const std::string& value) {
    RedisFacts info = GoodInfo();
    info[name] = value;
    return WhyNot(info, GoodSettings());
  };
  EXPECT_THAT(with("role", "slave"), HasSubstr("replica"));
  EXPECT_THAT(with("redis_mode", "cluster"), HasSubstr("cluster"));
  EXPECT_THAT(with("cluster_enabled", "1"), HasSubstr("cluster"));
  EXPECT_THAT(with("redis_mode", "sentinel"), HasSubstr("it is a Sentinel"));
  EXPECT_THAT(WhyNot(GoodInfo(), GoodSettings(), 2), HasSubstr("Sentinels watch it (2)"));
  EXPECT_THAT(WhyNot({}, GoodSettings()), HasSubstr("INFO"));
}

RedisFacts ValkeyInfo() {
  return ParseRedisInfo(
      "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n"
      "server_mode:standalone\r\nrun_id:abc\r\n# Replication\r\nrole:master\r\n");
}

TEST(RedisServerCheck, KnowsTheModeOfAValkey) {
  EXPECT_EQ(WhyNot(ValkeyInfo(), GoodSettings()), "success");
  RedisFacts info = ValkeyInfo();
  info["server_mode"] = "cluster";
  EXPECT_THAT(WhyNot(info, GoodSettings()), HasSubstr("cluster"));
  info["server_mode"] = "sentinel";
  info.erase("role");  // as theirs
  EXPECT_THAT(WhyNot(info, {}), HasSubstr("it is a Sentinel"));
}

TEST(RedisServerCheck, RefusesWhatWasAReplicaOrIsTooOld) {
  const auto with = [](const std::string& name, const std::string& value) {
    RedisFacts info = GoodInfo();
    info[name] = value;
    return WhyNot(info, GoodSettings());
  };
  EXPECT_EQ(with("second_repl_offset", "-1"), "success");
  EXPECT_THAT(with("second_repl_offset", "196"), HasSubstr("it was a replica"));
  EXPECT_EQ(with("redis_version", "7.2.4"), "success");
  EXPECT_EQ(with("redis_version", "10.0.0"), "success");
  EXPECT_THAT(with("redis_version", "6.2.14"), HasSubstr("it is Redis 6.2.14"));
  EXPECT_THAT(with("redis_version", "x"), HasSubstr("it is Redis x"));
}

TEST(RedisServerCheck, RefusesWhatCannotServeUs) {
  const auto with = [](const std::string& name, const std::string& value) {
    RedisFacts settings = GoodSettings();
    settings[name] = value;
    return WhyNot(GoodInfo(), settings);
  };
  EXPECT_THAT(with("proto-max-bulk-len", "1048576"), HasSubstr("set 'proto-max-bulk-len 2097152'"));
  EXPECT_THAT(with("client-query-buffer-limit", "1048576"),
              HasSubstr("set 'client-query-buffer-limit 8388608'"));
  EXPECT_THAT(with("timeout", "300"), HasSubstr("set 'timeout 0'"));
}

// It first writes what it has, and what it confirms meanwhile its next start does not find.
TEST(RedisServerCheck, RefusesAFileThatDoesNotHaveEverythingYet) {
  const auto check = [](const std::string& base, const std::string& in_progress,
                        const std::string& last) {
    return CheckRedisFile({{"aof_base_size", base},
                           {"aof_rewrite_in_progress", in_progress},
                           {"aof_rewrite_scheduled", "0"},
                           {"aof_last_bgrewrite_status", last}});
  };
  EXPECT_OK(check("0", "0", "ok"));    // a new one
  EXPECT_OK(check("88", "1", "ok"));   // it is only made smaller
  EXPECT_OK(check("88", "0", "err"));  // so it would have been
  EXPECT_FAILS(check("0", "1", "ok"), EHOSTUNREACH);
  EXPECT_FAILS(check("0", "0", "err"), EHOSTUNREACH);
}

// It may be anybody who says it.
TEST(RedisServerCheck, SaysNothingThatATerminalWouldActOn) {
  RedisFacts settings = GoodSettings();
  settings["appendfsync"] = "\x1b[2J\n" + std::string(1000, 'x');
  const std::string why = WhyNot(GoodInfo(), settings);
  EXPECT_LT(why.size(), 400u);
  EXPECT_THAT(why, HasSubstr("?[2J?xxx"));
  const std::string error(StatusOfRedisError("ERR \x1b[2J" + std::string(1000, 'x')).message());
  EXPECT_LT(error.size(), 200u);
  EXPECT_THAT(error, HasSubstr("ERR ?[2Jxxx"));
}

TEST(RedisServerCheck, AsksForWhatItLooksAt) {
  for (const auto& [name, value] : GoodSettings()) {
    EXPECT_THAT(SettingsToCheck(), testing::Contains(name));
  }
  EXPECT_OK(CheckRedisSyncs(GoodSettings()));
  RedisFacts settings = GoodSettings();
  settings["appendfsync"] = "no";
  EXPECT_FAILS(CheckRedisSyncs(settings), EHOSTUNREACH);
}

TEST(RedisServerCheck, MakesADrivesInformationOfIt) {
  const DriveInfo info =
      InfoOfRedis(GoodInfo(), "\x01\x02", {"00000000000000ff77:3", "0000000000000011:2", "x"}, 5);
  EXPECT_EQ(info.capacity_bytes, 1000u);
  EXPECT_DOUBLE_EQ(info.portion_full, 0.25);
  EXPECT_EQ(info.vendor, "Redis");
  EXPECT_EQ(info.software_version, "7.0.15");
  EXPECT_EQ(info.serial_number, "0102");
  ASSERT_EQ(info.starts.size(), 3u);
  EXPECT_EQ(info.starts[0].id, 0xffu + 3);
  EXPECT_FALSE(info.starts[0].clean);
  EXPECT_EQ(info.starts[1].id, 0x11u + 2);
  EXPECT_EQ(info.starts[2].id, 1u) << "never 0";
  EXPECT_EQ(info.start_count, 5u);
  EXPECT_EQ(info.up, std::nullopt);
}

TEST(RedisServerCheck, TellsTheVersionOfAValkey) {
  const DriveInfo info = InfoOfRedis(ValkeyInfo(), "x", {"aa:1"}, 1);
  EXPECT_EQ(info.vendor, "Valkey");
  EXPECT_EQ(info.software_version, "8.1.1");
}

// One run may have been there before another and be there again: an old replica took its place.
TEST(RedisServerCheck, TellsARunThatIsBackFromWhatItWas) {
  const DriveInfo info = InfoOfRedis(GoodInfo(), "x", {"aa:3", "bb:2", "aa:1"}, 3);
  ASSERT_EQ(info.starts.size(), 3u);
  EXPECT_NE(info.starts[0].id, info.starts[2].id);
}

TEST(RedisServerCheck, TellsWhatAnErrorMeans) {
  const auto code = [](std::string_view sentence) { return StatusOfRedisError(sentence).code(); };
  EXPECT_EQ(code("OOM command not allowed when used memory > 'maxmemory'."), ENOSPC);
  EXPECT_EQ(code("MISCONF Errors writing to the AOF file: No space left on device"), ENOSPC);
  EXPECT_EQ(code("NOAUTH Authentication required."), EACCES);
  EXPECT_EQ(code("WRONGPASS invalid username-password pair"), EACCES);
  EXPECT_EQ(code("NOPERM this user has no permissions"), EACCES);
  EXPECT_EQ(code("ERR invalid password"), EACCES);
  EXPECT_EQ(code("ERR The user executing the script can't run this command or subcommand"), EACCES);
  EXPECT_EQ(code("LOADING Redis is loading the dataset in memory"), EHOSTUNREACH);
  EXPECT_EQ(code("READONLY You can't write against a read only replica."), EHOSTUNREACH);
  EXPECT_EQ(code("WRONGTYPE Operation against a key"), EBADMSG);
  EXPECT_EQ(code("ERR something else"), EIO);
  EXPECT_EQ(code(""), EIO);
}

}  // namespace
}  // namespace pinstripe
