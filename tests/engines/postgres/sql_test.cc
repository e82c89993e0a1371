// The names and locks of a cluster's schema.

#include "engines/postgres/sql.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engines/postgres/pg_values.h"

namespace pinstripe {
namespace {

TEST(PgSql, ASchemaIsNamedByItsClusterAlone) {
  EXPECT_EQ(PgSchemaOf("lab1"), "pinstripe_lab1");
  EXPECT_EQ(PgSchemaOf("a-b_c.d"), "pinstripe_a_2db__c_2ed");
  const std::vector<std::string> clusters = {"a",
                                             "a_",
                                             "_a",
                                             "a-",
                                             "a_2d",
                                             "a__",
                                             "a.",
                                             std::string(32, '.'),
                                             std::string(31, '.') + "-",
                                             std::string(32, '_'),
                                             std::string(32, 'a'),
                                             "_h0000000000000000_"};
  std::set<std::string> schemas;
  for (const std::string& cluster : clusters) {
    const std::string schema = PgSchemaOf(cluster);
    EXPECT_LE(schema.size(), 63u) << cluster;
    EXPECT_EQ(schema.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), schema.npos);
    schemas.insert(schema);
  }
  EXPECT_EQ(schemas.size(), clusters.size());
}

TEST(PgSql, NothingIsLeftToFillIn) {
  const PgSql sql("lab");
  for (const PgStatement statement : kPgStatements) {
    const std::string text = sql.Text(statement);
    for (size_t at = text.find('$'); at != text.npos; at = text.find('$', at + 1)) {
      EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(text[at + 1]))) << text.substr(at, 20);
    }
  }
  for (const char* name : {"$schema", "$change", "$fence", "$making", "$id", "$body ", "$head"}) {
    EXPECT_EQ(sql.Make(std::string(16, 'x')).find(name), std::string::npos) << name;
    EXPECT_EQ(sql.Greeting().find(name), std::string::npos) << name;
  }
}

TEST(PgSql, LocksDifferByKeyAndCluster) {
  const PgSql one("one");
  const PgSql two("two");
  EXPECT_EQ(one.LockOf("key"), PgSql("one").LockOf("key"));
  EXPECT_NE(one.LockOf("key"), two.LockOf("key"));
  std::set<int64_t> locks;
  for (int i = 0; i < 10000; ++i) locks.insert(one.LockOf(std::to_string(i)));
  EXPECT_EQ(locks.size(), 10000u);
}

TEST(PgArray, IsAsPostgresSendsIt) {
  EXPECT_EQ(PgArray(PgType::kBytea).Take(), std::string("\0\0\0\0\0\0\0\0\0\0\0\x11", 12));
  EXPECT_EQ(PgArray(PgType::kBytea).Add("ab").AddNull().Take(),
            std::string("\0\0\0\1\0\0\0\1\0\0\0\x11\0\0\0\2\0\0\0\1"
                        "\0\0\0\2ab\xff\xff\xff\xff",
                        30));
}

}  // namespace
}  // namespace pinstripe
