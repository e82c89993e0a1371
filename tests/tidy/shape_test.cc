// The rules that hold for the shape of the sources: how long a file is, how many functions a class
// has, and where TRY may not stand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {
namespace {

constexpr size_t kMostLines = 800;
constexpr int kMostFunctions = 50;

// Files that are longer, and why.
const std::map<std::string, std::string> kLongFiles = {};

// Classes with more functions, as "file: class", and why.
const std::map<std::string, std::string> kLargeClasses = {
    {"fs/file_system.cc: ClusterFileSystem", "the facade: each function is a call of hosts"},
    {"fs/names/names.h: Names", "each is one change of names, or a step that several share"},
};

// Comments, strings and characters become blanks; lines stay where they are.
std::string OnlyCode(std::string_view text) {
  std::string code(text);
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, code.size()); ++i) {
      if (code[i] != '\n') code[i] = ' ';
    }
  };
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      const size_t end = std::min(text.find('\n', i), text.size());
      blank(i, end);
      i = end;
    } else if (text.substr(i, 2) == "/*") {
      const size_t end = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
      blank(i, end);
      i = end;
    } else if (text.substr(i, 3) == "R\"(") {
      const size_t end = std::min(text.find(")\"", i), text.size() - 2) + 2;
      blank(i, end);
      i = end;
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !isalnum(text[i - 1])))) {
      size_t end = i + 1;
      while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
      blank(i + 1, end);
      i = end + 1;
    } else {
      ++i;
    }
  }
  return code;
}

size_t LineOf(std::string_view code, size_t at) {
  return 1 + std::count(code.begin(), code.begin() + at, '\n');
}

// Where the bracket is that encloses this place; npos: none does.
size_t Enclosing(std::string_view code, size_t at) {
  int depth = 0;
  while (at-- > 0) {
    const char c = code[at];
    if (c == ')' || c == ']' || c == '}') ++depth;
    if (c == '(' || c == '[' || c == '{') {
      if (depth == 0) return at;
      --depth;
    }
  }
  return std::string_view::npos;
}

// Whether the brace there begins statements or members, and not a value.
bool BeginsBlock(std::string_view code, size_t brace) {
  std::string before(code.substr(brace > 300 ? brace - 300 : 0, std::min<size_t>(brace, 300)));
  before.erase(before.find_last_not_of(" \n") + 1);
  static const std::regex kBlock(
      R"((^|[)\];{}:]|\b(else|do|try|const|override|noexcept|final|mutable)|->\s*[\w:<>,\s*&]+)"
      R"(|\b(namespace|struct|class|union|enum)\b[^;{}()]*)$)");
  return std::regex_search(before, kBlock);
}

// GCC 12 leaks what was made before, when a TRY inside the braces of a value returns.
std::vector<size_t> LinesOfTryInBraces(std::string_view code) {
  static const std::regex kTry(R"(\bTRY(_CONTEXT)?\()");
  std::vector<size_t> lines;
  const std::string text(code);
  for (std::sregex_iterator match(text.begin(), text.end(), kTry), end; match != end; ++match) {
    size_t bracket = Enclosing(code, match->position());
    while (bracket != code.npos && code[bracket] != '{') bracket = Enclosing(code, bracket);
    if (bracket != code.npos && !BeginsBlock(code, bracket)) {
      lines.push_back(LineOf(code, match->position()));
    }
  }
  return lines;
}

size_t EndOf(std::string_view code, size_t brace) {
  int depth = 0;
  for (size_t i = brace; i < code.size(); ++i) {
    if (code[i] == '{') ++depth;
    if (code[i] == '}' && --depth == 0) return i;
  }
  return code.size();
}

// How many functions a class body, without its braces, declares: the members in the bodies of
// functions and of classes within are not its own.
int CountFunctions(std::string body) {
  static const std::regex kAnnotation(
      R"(\b(GUARDED_BY|PT_GUARDED_BY|REQUIRES|REQUIRES_SHARED|ACQUIRE|ACQUIRE_SHARED|RELEASE)"
      R"(|RELEASE_SHARED|RELEASE_GENERIC|TRY_ACQUIRE|TRY_ACQUIRE_SHARED|EXCLUDES|CAPABILITY)"
      R"(|ASSERT_CAPABILITY|ASSERT_SHARED_CAPABILITY|RETURN_CAPABILITY)\([^()]*\))");
  body = std::regex_replace(body, kAnnotation, " ");
  int count = 0;
  std::string member;
  const auto count_member = [&] {
    static const std::regex kOther(R"(^\s*((public|private|protected)\s*:\s*)*\s*)"
                                   R"((using|friend|static_assert|enum|struct|class|union)\b)");
    const size_t paren = member.find('(');
    // A field that is a function, or is initialised by one.
    const bool is_field = member.find("std::function<") < paren || member.find('=') < paren;
    const bool is_operator = member.find("operator") < paren;
    if (paren != member.npos && (!is_field || is_operator) && !std::regex_search(member, kOther)) {
      ++count;
    }
    member.clear();
  };
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] == '{') {
      i = EndOf(body, i);
      count_member();
    } else if (body[i] == ';') {
      count_member();
    } else {
      member += body[i];
    }
  }
  return count;
}

// The classes of a file and how many functions each declares.
std::map<std::string, int> ClassesIn(const std::string& code) {
  static const std::regex kClass(
      R"(\b(class|struct)\s+(?:[A-Z_]+(?:\([^)]*\))?\s+)?([A-Z]\w*)[^;{}()]*\{)");
  std::map<std::string, int> classes;
  for (std::sregex_iterator match(code.begin(), code.end(), kClass), end; match != end; ++match) {
    const size_t brace = match->position() + match->length() - 1;
    classes[(*match)[2].str()] =
        CountFunctions(code.substr(brace + 1, EndOf(code, brace) - brace - 1));
  }
  return classes;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// All files of the product, by their path from its root.
std::map<std::string, std::string> Sources() {
  const std::filesystem::path root = PINSTRIPE_SOURCE_DIR;
  std::map<std::string, std::string> sources;
  for (const auto& folder : std::filesystem::directory_iterator(root)) {
    const std::string name = folder.path().filename();
    if (!folder.is_directory() || name == "tests" || name == "build" || name == ".venv") continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h") continue;
      sources[entry.path().lexically_relative(root)] = ReadAll(entry.path());
    }
  }
  return sources;
}

TEST(Shape, NoFileIsLongerThanAReaderCanHoldInMind) {
  const auto sources = Sources();
  EXPECT_GT(sources.size(), 200u);
  for (const auto& [path, text] : sources) {
    const size_t lines = std::ranges::count(text, '\n');
    if (kLongFiles.contains(path)) {
      EXPECT_GT(lines, kMostLines) << path << " is an exception without need";
    } else {
      EXPECT_LE(lines, kMostLines) << path;
    }
  }
}

TEST(Shape, NoClassHasMoreFunctionsThanAReaderCanHoldInMind) {
  int seen = 0;
  for (const auto& [path, text] : Sources()) {
    for (const auto& [name, functions] : ClassesIn(OnlyCode(text))) {
      ++seen;
      if (kLargeClasses.contains(path + ": " + name)) {
        EXPECT_GT(functions, kMostFunctions)
            << path << ": " << name << " is an exception without need";
      } else {
        EXPECT_LE(functions, kMostFunctions) << path << ": " << name;
      }
    }
  }
  EXPECT_GT(seen, 200);
}

TEST(Shape, NoTryStandsInTheBracesOfAValue) {
  for (const auto& [path, text] : Sources()) {
    for (const size_t line : LinesOfTryInBraces(OnlyCode(text))) {
      ADD_FAILURE() << path << ":" << line << ": take it out of the braces: GCC 12 leaks there";
    }
  }
}

// ---- Tests of the test ----

TEST(Shape, SeesWhereATryStands) {
  const auto lines = [](std::string_view code) { return LinesOfTryInBraces(OnlyCode(code)); };
  EXPECT_THAT(lines("Status F() { TRY(G()); }"), testing::IsEmpty());
  EXPECT_THAT(lines("if (x) { return TRY(G()); } else { TRY(H()); }"), testing::IsEmpty());
  EXPECT_THAT(lines("auto f = [&]() -> Result<int> { return TRY(G()); };"), testing::IsEmpty());
  EXPECT_THAT(lines("auto f = [&] { TRY(G()); };"), testing::IsEmpty());
  EXPECT_THAT(lines("switch (x) { case kA: { TRY(G()); } }"), testing::IsEmpty());
  EXPECT_THAT(lines("F({1}, TRY(G()));"), testing::IsEmpty());
  EXPECT_THAT(lines("// Name{TRY(G())}\n"), testing::IsEmpty());
  EXPECT_THAT(lines("const Name n{1,\n TRY(G())};"), testing::ElementsAre(2u));
  EXPECT_THAT(lines("return {TRY(G())};"), testing::ElementsAre(1u));
  EXPECT_THAT(lines("F(a, {.x = std::move(TRY_CONTEXT(G(), \"g\"))});"), testing::ElementsAre(1u));
}

TEST(Shape, CountsTheFunctionsOfAClass) {
  const auto classes = ClassesIn(OnlyCode(R"(
class A : public B {
 public:
  A() = default;  // and not F();
  int F() const { return G(1); }
  virtual void H(int a, int b) = 0;
  using Hook = std::function<void(int)>;
  std::function<void()> hook_;
  struct Inner { void X(); void Y(); };
 private:
  void L() REQUIRES(mutex_);
  int count_ GUARDED_BY(mutex_) = 0;
  Signal signal_ = Make();
};
class CAPABILITY("x") C { void G(); };
)"));
  EXPECT_THAT(classes, testing::UnorderedElementsAre(testing::Pair("A", 4), testing::Pair("C", 1),
                                                     testing::Pair("Inner", 2)));
}

}  // namespace
}  // namespace pinstripe
