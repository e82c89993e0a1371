// The rules that hold for documents: lines that fit, links that lead somewhere, settings and
// options that the sources know. Documents() lists the documents that keep them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

constexpr size_t kColumns = 100;

std::filesystem::path Root() { return PINSTRIPE_SOURCE_DIR; }

std::vector<std::string> Documents() {
  std::vector<std::string> documents = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md",
                                        "SECURITY.md", "bench/template.md"};
  for (const char* folder : {"docs", "docs/decisions", "docs/reference"}) {
    for (const auto& entry : std::filesystem::directory_iterator(Root() / folder)) {
      if (entry.path().extension() != ".md") continue;
      documents.push_back(entry.path().lexically_relative(Root()));
    }
  }
  return documents;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// All that the expression's first group matches.
std::vector<std::string> Matches(const std::string& text, const std::regex& expression) {
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.push_back((*match)[1].str());
  return found;
}

// Lines that are wider than they may be, as "line: columns". Tables, code and links may be wide.
std::vector<std::string> WideLines(const std::string& text) {
  std::vector<std::string> wide;
  bool in_code = false;
  int number = 0;
  for (const std::string& line : Lines(text)) {
    ++number;
    if (line.starts_with("```")) in_code = !in_code;
    if (in_code || line.starts_with("|") || line.starts_with("    ")) continue;
    if (line.find("](") != std::string::npos || line.size() <= kColumns) continue;
    wide.push_back(fmt::format("{}: {} columns", number, line.size()));
  }
  return wide;
}

// What a heading is called in a link: lower case, without punctuation, with dashes for spaces.
std::string Anchor(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ') {
      anchor += '-';
    } else if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_') {
      anchor += static_cast<char>(std::tolower(c));
    }
  }
  return anchor;
}

std::set<std::string> Anchors(const std::string& text) {
  std::set<std::string> anchors;
  for (const std::string& line : Lines(text)) {
    const size_t hashes = line.find_first_not_of('#');
    if (hashes == 0 || hashes == std::string::npos || line[hashes] != ' ') continue;
    anchors.insert(Anchor(line.substr(hashes + 1)));
  }
  return anchors;
}

// Relative links of a document that lead nowhere.
std::vector<std::string> DeadLinks(const std::filesystem::path& document, const std::string& text) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> dead;
  for (const std::string& link : Matches(text, kLink)) {
    if (link.find("://") != std::string::npos) continue;
    const size_t hash = std::min(link.find('#'), link.size());
    const std::filesystem::path target =
        hash == 0 ? document : document.parent_path() / link.substr(0, hash);
    const bool there = std::filesystem::exists(target);
    const bool found =
        there && (hash == link.size() || Anchors(ReadAll(target)).contains(link.substr(hash + 1)));
    if (!found) dead.push_back(link);
  }
  return dead;
}

// The names in the first column of the tables below those headings, up to the next heading of `##`.
std::set<std::string> NamesInTables(const std::string& text,
                                    const std::set<std::string>& sections) {
  static const std::regex kName(R"(^\| `([a-z_]+)` \|.*)");
  std::set<std::string> names;
  bool inside = false;
  for (const std::string& line : Lines(text)) {
    if (line.starts_with("## ")) inside = sections.contains(line.substr(3));
    std::smatch match;
    if (inside && std::regex_match(line, match, kName)) names.insert(match[1].str());
  }
  return names;
}

// The keys that a source reads from a ConfigTable. Those of tables themselves do not count.
std::set<std::string> KeysRead(const std::string& source) {
  static const std::regex kRead(
      R"((?:\.(?:Integer|Text|Texts|Flag|ByteCount|Time|Has)|ReadPort|read_limit)\((?:table, )?\s*"([a-z_]+)\")");
  const std::vector<std::string> keys = Matches(source, kRead);
  return {keys.begin(), keys.end()};
}

std::set<std::string> MountOptionsRead(const std::string& source) {
  static const std::regex kRead(R"((?:name|option) == "([a-z_]+)\")");
  const std::vector<std::string> names = Matches(source, kRead);
  return {names.begin(), names.end()};
}

// `--options` that a text gives to one of the programs, on one line and in one piece of code.
std::set<std::string> OptionsNamed(const std::string& text, const std::string& program) {
  static const std::regex kOption(R"((--[a-z][a-z-]*))");
  const std::regex call(fmt::format(R"((?:^|[`\n /]){}(?= )([^`\n#|]*))", program));
  std::set<std::string> options;
  for (const std::string& arguments : Matches(text, call)) {
    for (const std::string& option : Matches(arguments, kOption)) options.insert(option);
  }
  return options;
}

std::string SourcesOf(const std::vector<std::string>& folders) {
  std::string text;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(Root() / folder)) {
      if (entry.path().extension() == ".cc") text += ReadAll(entry.path());
    }
  }
  return text;
}

TEST(Documents, HaveLinesThatFit) {
  for (const std::string& document : Documents()) {
    EXPECT_THAT(WideLines(ReadAll(Root() / document)), testing::IsEmpty()) << document;
  }
}

TEST(Documents, LinkToWhatIsThere) {
  for (const std::string& document : Documents()) {
    const std::string text = ReadAll(Root() / document);
    ASSERT_FALSE(text.empty()) << document;
    EXPECT_THAT(DeadLinks(Root() / document, text), testing::IsEmpty()) << document;
  }
}

TEST(Documents, LinkToWhatIsThereAsInstalled) {
  const TemporaryDirectory place;
  const std::string install =
      fmt::format("DESTDIR= '{}' -D 'CMAKE_INSTALL_PREFIX={}' -P '{}/docs/cmake_install.cmake' >&2",
                  PINSTRIPE_CMAKE, place.path(), PINSTRIPE_BINARY_DIR);
  ASSERT_EQ(std::system(install.c_str()), 0) << install;
  int looked_at = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place.path())) {
    if (entry.path().extension() != ".md") continue;
    ++looked_at;
    EXPECT_THAT(DeadLinks(entry.path(), ReadAll(entry.path())), testing::IsEmpty()) << entry.path();
  }
  EXPECT_GT(looked_at, 40);
}

TEST(Documents, ListTheSettingsThatTheSourcesRead) {
  const std::string page = ReadAll(Root() / "docs/reference/settings.md");
  EXPECT_EQ(NamesInTables(page, {"cluster.toml", "credentials.toml"}),
            KeysRead(ReadAll(Root() / "cluster/config.cc")));
  EXPECT_EQ(NamesInTables(page, {"pinstriped.toml", "The credentials of pinstriped"}),
            KeysRead(ReadAll(Root() / "daemon/config.cc")));
  EXPECT_EQ(NamesInTables(page, {"SITE.toml"}), KeysRead(ReadAll(Root() / "tools/site_file.cc")));
  EXPECT_EQ(NamesInTables(page, {"Mount options"}),
            MountOptionsRead(ReadAll(Root() / "fuse/mount_options.cc")));
}

TEST(Documents, NameOptionsThatTheProgramsKnow) {
  const std::string tools = SourcesOf({"tools"});
  const std::string daemon = SourcesOf({"daemon"});
  for (const std::string& document : Documents()) {
    const std::string text = ReadAll(Root() / document);
    for (const std::string& option : OptionsNamed(text, "pinstripe")) {
      EXPECT_THAT(tools + "--help --version", testing::HasSubstr(option)) << document;
    }
    for (const std::string& option : OptionsNamed(text, "pinstriped")) {
      EXPECT_THAT(daemon, testing::HasSubstr(option)) << document;
    }
  }
}

// ---- Tests of the test ----

TEST(Documents, FindsALineThatIsTooWide) {
  const std::string wide(101, 'x');
  EXPECT_THAT(WideLines("short\n" + wide + "\n"), testing::ElementsAre("2: 101 columns"));
  EXPECT_THAT(WideLines("| " + wide + "\n    " + wide + "\n```\n" + wide + "\n```\n"),
              testing::IsEmpty());
}

TEST(Documents, FindsALinkThatLeadsNowhere) {
  const std::filesystem::path document = Root() / "README.md";
  EXPECT_THAT(DeadLinks(document, "[a](LICENSE) [b](no/such.md) [c](#none) [d](https://x.org/y)"),
              testing::ElementsAre("no/such.md", "#none"));
  EXPECT_EQ(Anchor("`[[drive]]` of cluster.toml"), "drive-of-clustertoml");
}

TEST(Documents, FindsKeysInSourcesAndTables) {
  EXPECT_THAT(KeysRead("t.Text(\"name\"); ReadPort(table, \"port\"); root.Table(\"limits\")"),
              testing::ElementsAre("name", "port"));
  EXPECT_THAT(NamesInTables("## A\n| `x` | text |\n## B\n| `y` | text |\n", {"B"}),
              testing::ElementsAre("y"));
}

TEST(Documents, FindsOptionsInCalls) {
  EXPECT_THAT(OptionsNamed("use `pinstripe repair CONFIG --without ID`, not `--that`", "pinstripe"),
              testing::ElementsAre("--without"));
  EXPECT_THAT(OptionsNamed("    pinstriped --check DIR", "pinstripe"), testing::IsEmpty());
}

}  // namespace
}  // namespace pinstripe
