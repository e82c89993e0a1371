#include "redis/stored_record.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

TEST(StoredRecord, HasTheValueFirstAndAllElseFoundFromTheEnd) {
  const std::string stored = "value" + StoredEnd("v1", "tag");
  EXPECT_EQ(Hex(AsBytes(stored)),
            "76616c7565"
            "7631"
            "746167"
            "7ba54e5c"
            "0002"
            "03"
            "01");
  const Result<Record> record = ParseStored(SharedBytes(stored));
  ASSERT_OK(record);
  EXPECT_EQ(record->value.text(), "value");
  EXPECT_EQ(record->version, "v1");
  EXPECT_EQ(record->tag, "tag");
}

TEST(StoredRecord, MayBeEmptyInAllItsParts) {
  const Result<Record> record = ParseStored(SharedBytes(StoredEnd("", "")));
  ASSERT_OK(record);
  EXPECT_EQ(record->value.size() + record->version.size() + record->tag.size(), 0u);
}

TEST(StoredRecord, WhoseEndIsDamagedIsNotBelieved) {
  const std::string stored = "value" + StoredEnd("v1", "tag");
  for (size_t at = 5; at < stored.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = stored;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_FAILS(ParseStored(SharedBytes(damaged)), EBADMSG) << at << " " << bit;
    }
  }
  for (size_t size = 0; size < stored.size(); ++size) {
    EXPECT_FAILS(ParseStored(SharedBytes(stored.substr(0, size))), EBADMSG) << size;
  }
}

}  // namespace
}  // namespace pinstripe
