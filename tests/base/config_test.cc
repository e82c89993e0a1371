#include "base/config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

namespace pinstripe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The file of these tests is always called "pin.toml".
ConfigFile Parsed(std::string_view text) {
  auto file = ConfigFile::Parse(text, "pin.toml");
  if (file) return *std::move(file);
  ADD_FAILURE() << file.error().message();
  return *ConfigFile::Parse("", "pin.toml");
}

// Reads `text` with `read`; the message of the mistake that Finish() reports, "" for none.
template <typename Read>
std::string Mistake(std::string_view text, Read read) {
  const ConfigFile file = Parsed(text);
  read(file.root());
  const Status status = file.Finish();
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), EINVAL);
  return std::string(status.message());
}

TEST(Config, IsReadByStraightLineCodeAndCheckedOnce) {
  const ConfigFile file = Parsed(R"(
    [cluster]
    name = "attic"
    replicas = 5
    durable = true
    cache = "64 MiB"
    timeout = "250 ms"
    [[drive]]
    id = 1
    address = ["a:8123", "b:8123"]
    [[drive]]
    id = 2
    address = "c:8123"
  )");
  ConfigTable cluster = file.root().Table("cluster");
  EXPECT_EQ(cluster.Text("name"), "attic");
  EXPECT_EQ(cluster.Integer("replicas", 3, 1, 63), 5);
  EXPECT_EQ(cluster.Flag("durable"), true);
  EXPECT_EQ(cluster.ByteCount("cache", 0, 0, 1 << 30), 64u << 20);
  EXPECT_EQ(cluster.Time("timeout", seconds(1), Duration(0), seconds(60)), milliseconds(250));
  std::vector<ConfigTable> drives = file.root().Tables("drive");
  ASSERT_EQ(drives.size(), 2u);
  EXPECT_EQ(drives[0].Integer("id", {}, 0, 65535), 1);
  EXPECT_EQ(drives[0].Texts("address"), (std::vector<std::string>{"a:8123", "b:8123"}));
  EXPECT_EQ(drives[1].Integer("id", {}, 0, 65535), 2);
  EXPECT_EQ(drives[1].Texts("address"), std::vector<std::string>{"c:8123"});
  EXPECT_EQ(file.Finish().message(), "success");
}

TEST(Config, TakesTheDefaultWhereNothingIsSaid) {
  const ConfigFile file = Parsed("");
  ConfigTable cluster = file.root().Table("cluster");
  EXPECT_FALSE(cluster.Has("name"));
  EXPECT_EQ(cluster.Text("name", "attic"), "attic");
  EXPECT_EQ(cluster.Integer("replicas", 3, 1, 63), 3);
  EXPECT_EQ(cluster.Flag("durable", true), true);
  EXPECT_EQ(cluster.ByteCount("cache", 100, 0, 1000), 100u);
  EXPECT_EQ(cluster.Time("timeout", seconds(1), Duration(0), seconds(60)), seconds(1));
  EXPECT_TRUE(cluster.Texts("address").empty());
  EXPECT_TRUE(file.root().Tables("drive").empty());
  EXPECT_TRUE(file.Finish().ok());
}

TEST(Config, KnowsTheUsualUnits) {
  const auto bytes = [](std::string_view value) {
    const ConfigFile file = Parsed(fmt::format("x = {}", value));
    const uint64_t read = file.root().ByteCount("x", {}, 0, std::numeric_limits<uint64_t>::max());
    EXPECT_EQ(file.Finish().message(), "success");
    return read;
  };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("9007199254740993"), 9007199254740993u) << "exact where a double is not";
  EXPECT_EQ(bytes("'4096'"), 4096u);
  EXPECT_EQ(bytes("'17 B'"), 17u);
  EXPECT_EQ(bytes("'64KiB'"), 65536u);
  EXPECT_EQ(bytes("'1.5 GB'"), 1500000000u);
  EXPECT_EQ(bytes("'2 TiB'"), uint64_t{2} << 40);

  const auto time = [](std::string_view value) {
    const ConfigFile file = Parsed(fmt::format("x = {}", value));
    const Duration read = file.root().Time("x", {}, Duration(0), Duration::max());
    EXPECT_EQ(file.Finish().message(), "success");
    return read;
  };
  EXPECT_EQ(time("'0.25 s'"), milliseconds(250));
  EXPECT_EQ(time("'250 ms'"), milliseconds(250));
  EXPECT_EQ(time("'5 s'"), seconds(5));
  EXPECT_EQ(time("'2 min'"), seconds(120));
  EXPECT_EQ(time("'1h'"), seconds(3600));
}

TEST(Config, NamesFileAndLineOfAValueOfTheWrongType) {
  const auto integer = [](ConfigTable root) { root.Integer("x", 1, 0, 9); };
  EXPECT_EQ(Mistake("\n\nx = 'one'", integer),
            "pin.toml:3: 'x' must be a whole number from 0 to 9");
  EXPECT_EQ(Mistake("x = 1.5", integer), "pin.toml:1: 'x' must be a whole number from 0 to 9");
  EXPECT_EQ(Mistake("\nx = 3", [](ConfigTable root) { root.Text("x"); }),
            "pin.toml:2: 'x' must be text in quotes");
  EXPECT_EQ(Mistake("\nx = 'yes'", [](ConfigTable root) { root.Flag("x"); }),
            "pin.toml:2: 'x' must be true or false");
  EXPECT_EQ(Mistake("\nx = [1, 'two']", [](ConfigTable root) { root.Texts("x"); }),
            "pin.toml:2: 'x' must be a list of texts");
  EXPECT_EQ(Mistake("\nx = 1", [](ConfigTable root) { root.Table("x"); }),
            "pin.toml:2: 'x' must be a table, [x]");
  EXPECT_EQ(Mistake("\n[x]", [](ConfigTable root) { root.Tables("x"); }),
            "pin.toml:2: 'x' must be a list of tables, [[x]]");
  EXPECT_EQ(Mistake("\nx = [1]", [](ConfigTable root) { root.Tables("x"); }),
            "pin.toml:2: 'x' must be a list of tables, [[x]]");
}

TEST(Config, NamesFileAndLineOfAValueOutOfRange) {
  const auto integer = [](ConfigTable root) { root.Integer("x", 1, -2, 9); };
  EXPECT_EQ(Mistake("x = -2", integer), "");
  EXPECT_EQ(Mistake("x = 9", integer), "");
  EXPECT_EQ(Mistake("\nx = -3", integer), "pin.toml:2: 'x' must be a whole number from -2 to 9");
  EXPECT_EQ(Mistake("\nx = 10", integer), "pin.toml:2: 'x' must be a whole number from -2 to 9");

  const auto bytes = [](ConfigTable root) { root.ByteCount("x", 10, 10, 2000); };
  const std::string bytes_mistake =
      "pin.toml:1: 'x' must be a number of bytes from 10 to 2000, like 65536 or \"64 KiB\"";
  EXPECT_EQ(Mistake("x = 10", bytes), "");
  EXPECT_EQ(Mistake("x = 2000", bytes), "");
  EXPECT_EQ(Mistake("x = '2 kB'", bytes), "");
  for (std::string_view value : {"9", "2001", "-11", "'9'", "'2 KiB'", "'1e300 TiB'"}) {
    EXPECT_EQ(Mistake(fmt::format("x = {}", value), bytes), bytes_mistake);
  }

  const auto time = [](ConfigTable root) {
    root.Time("x", seconds(1), milliseconds(10), seconds(5));
  };
  EXPECT_EQ(Mistake("x = '10 ms'", time), "");
  EXPECT_EQ(Mistake("x = '5 s'", time), "");
  for (std::string_view value : {"'0 s'", "'9 ms'", "'5.001 s'", "'1 min'", "'-1 s'"}) {
    EXPECT_EQ(Mistake(fmt::format("x = {}", value), time),
              "pin.toml:1: 'x' must be a time with its unit, from 10 ms to 5000 ms, like \"250 "
              "ms\" or \"5 s\"")
        << value;
  }
}

TEST(Config, RefusesUnitsItDoesNotKnow) {
  for (std::string_view value :
       {"'5 parsec'", "'ms'", "''", "'5 s 3'", "'nan s'", "true", "[]", "5", "0.25", "'5'"}) {
    EXPECT_EQ(Mistake(fmt::format("\nx = {}", value),
                      [](ConfigTable root) { root.Time("x", {}, Duration(0), seconds(60)); }),
              "pin.toml:2: 'x' must be a time with its unit, from 0 ms to 60000 ms, like \"250 "
              "ms\" or \"5 s\"")
        << value;
  }
  for (std::string_view value : {"'5 gib'", "'MiB'", "''", "1.5", "true", "'inf'", "'0x10'"}) {
    EXPECT_EQ(Mistake(fmt::format("\nx = {}", value),
                      [](ConfigTable root) { root.ByteCount("x", {}, 0, 99); }),
              "pin.toml:2: 'x' must be a number of bytes from 0 to 99, like 65536 or \"64 KiB\"")
        << value;
  }
}

TEST(Config, NamesTheLineOfTheTableThatMissesAKey) {
  EXPECT_EQ(
      Mistake("\n\n[cluster]\n\n", [](ConfigTable root) { root.Table("cluster").Text("name"); }),
      "pin.toml:3: 'name' in [cluster] is required");
  EXPECT_EQ(Mistake("[[drive]]\nid = 1\n[[drive]]\n",
                    [](ConfigTable root) {
                      for (ConfigTable& drive : root.Tables("drive")) drive.Integer("id", {}, 0, 9);
                    }),
            "pin.toml:3: 'id' in [drive] is required");
  EXPECT_EQ(Mistake("", [](ConfigTable root) { root.Table("cluster").Text("name"); }),
            "pin.toml:1: 'name' in [cluster] is required");
}

TEST(Config, RefusesKeysThatNobodyReads) {
  const auto read = [](ConfigTable root) { root.Table("cluster").Text("name"); };
  EXPECT_EQ(Mistake("[cluster]\nname = 'a'\nnmae = 'b'", read),
            "pin.toml:3: 'nmae' in [cluster] is not an option known here");
  EXPECT_EQ(Mistake("[cluster]\nname = 'a'\n[clutter]", read),
            "pin.toml:3: 'clutter' is not an option known here");
  EXPECT_EQ(Mistake("[cluster]\nname = 'a'\n[cluster.inner]\nx = 1",
                    [](ConfigTable root) {
                      root.Table("cluster").Text("name");
                      root.Table("cluster").Table("inner");
                    }),
            "pin.toml:4: 'x' in [cluster.inner] is not an option known here");
}

TEST(Config, MayReadATableInTwoPlaces) {
  EXPECT_EQ(Mistake("[cluster]\nname = 'a'\nsize = 3\n[[drive]]\nid = 1\nport = 2",
                    [](ConfigTable root) {
                      root.Table("cluster").Text("name");
                      root.Table("cluster").Integer("size", {}, 0, 9);
                      root.Tables("drive")[0].Integer("id", {}, 0, 9);
                      root.Tables("drive")[0].Integer("port", {}, 0, 9);
                    }),
            "");
}

TEST(Config, ReportsTheFirstMistakeThatWasMet) {
  EXPECT_EQ(Mistake("x = 'one'\ny = 'two'",
                    [](ConfigTable root) {
                      root.Integer("y", {}, 0, 9);
                      root.Integer("x", {}, 0, 9);
                    }),
            "pin.toml:2: 'y' must be a whole number from 0 to 9");
}

TEST(Config, TellsAllMistakesInTheOrderOfTheirLines) {
  const ConfigFile file = Parsed("a = 1\nunknown = 1\n[t]\nb = \"x\"\nc = 1\n");
  ConfigTable table = file.root().Table("t");
  table.Integer("b", std::nullopt, 0, 9);
  table.Refuse("c", "no");
  table.Refuse("c", "no");
  table.Refuse("c", "never");
  file.root().Text("a");
  EXPECT_EQ(file.Mistakes(),
            (std::vector<std::string>{"pin.toml:1: 'a' must be text in quotes",
                                      "pin.toml:2: 'unknown' is not an option known here",
                                      "pin.toml:4: 'b' in [t] must be a whole number from 0 to 9",
                                      "pin.toml:5: no", "pin.toml:5: never"}));
  EXPECT_FALSE(file.Finish().ok());
  EXPECT_TRUE(Parsed("").Mistakes().empty());
}

TEST(Config, LetsTheReaderRefuseWithItsOwnReason) {
  EXPECT_EQ(Mistake("\nreplicas = 4",
                    [](ConfigTable root) {
                      if (root.Integer("replicas", {}, 1, 9) % 2 == 0) {
                        root.Refuse("replicas", "replicas must be odd");
                      }
                    }),
            "pin.toml:2: replicas must be odd");
  EXPECT_EQ(Mistake("\n[x]\n", [](ConfigTable root) { root.Table("x").Refuse("y", "no y"); }),
            "pin.toml:2: no y");
}

TEST(Config, NamesTheLineThatIsNotToml) {
  const auto file = ConfigFile::Parse("x = 1\ny = = 2\n", "pin.toml");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), EINVAL);
  EXPECT_TRUE(file.error().message().starts_with("pin.toml:2: not valid TOML: "))
      << file.error().message();
  EXPECT_FALSE(ConfigFile::Parse("x = 1\nx = 2\n", "pin.toml").has_value());
  EXPECT_FALSE(ConfigFile::Parse("x = '\xff'", "pin.toml").has_value());
}

TEST(Config, LoadsFiles) {
  const std::string path = testing::TempDir() + "pinstripe_config_test.toml";
  std::ofstream(path) << "x = 5\n" << std::string(10000, '#') << "\n";
  const auto file = ConfigFile::Load(path);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->root().Integer("x", {}, 0, 9), 5);
  EXPECT_TRUE(file->Finish().ok());
  std::remove(path.c_str());
}

TEST(Config, SaysWhyAFileCannotBeRead) {
  const auto absent = ConfigFile::Load("/nonexistent/pin.toml");
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code(), ENOENT);
  EXPECT_EQ(absent.error().message(),
            "cannot read /nonexistent/pin.toml: No such file or directory");
  const auto directory = ConfigFile::Load("/");
  ASSERT_FALSE(directory.has_value()) << "a directory is not an empty file";
  EXPECT_EQ(directory.error().code(), EISDIR);
}

}  // namespace
}  // namespace pinstripe
