#include "base/toml_text.h"

#include <gtest/gtest.h>

#include "base/config.h"

namespace pinstripe {
namespace {

TEST(TomlText, KeepsTheOrderOfItsLines) {
  TomlText text;
  text.Comment("of a test");
  text.Table("cluster");
  text.Set("name", "dev");
  text.Set("count", uint16_t{7});
  text.NewTable("drive");
  text.Set("tls", true);
  text.Set("addresses", std::vector<std::string>{"a:1", "b:2"});
  EXPECT_EQ(text.Take(),
            "# of a test\n\n[cluster]\nname = \"dev\"\ncount = 7\n\n"
            "[[drive]]\ntls = true\naddresses = [ \"a:1\", \"b:2\" ]\n");
}

TEST(TomlText, EveryTextReadsBackAsItWas) {
  for (const std::string& value : {std::string("a\"b\\c\nd"), std::string("'\t\x01\x7f'"),
                                   std::string("caf\xc3\xa9 # no comment"), std::string()}) {
    TomlText text;
    text.Set("key", value);
    const Result<ConfigFile> file = ConfigFile::Parse(text.Take(), "text");
    ASSERT_TRUE(file.has_value()) << file.error().message();
    EXPECT_EQ(file->root().Text("key"), value);
  }
}

}  // namespace
}  // namespace pinstripe
