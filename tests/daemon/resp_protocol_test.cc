// The Redis protocol, as a device reads and writes it: commands in bytes, answers, patterns,
// hashes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "daemon/resp_device.h"
#include "daemon/resp_glob.h"
#include "daemon/resp_hash.h"
#include "daemon/resp_reply.h"
#include "daemon/resp_request.h"
#include "daemon/resp_turns.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Words = std::vector<std::string>;

std::string Command(const Words& words) {
  std::string bytes = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) bytes += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return bytes;
}

class RespReaderTest : public testing::Test {
 protected:
  // Feeds bytes as a socket would give them, and keeps the commands that come out.
  Status Feed(std::string_view bytes) {
    while (!bytes.empty()) {
      iovec space[2];
      const int spaces = reader_.Space(space);
      size_t filled = 0;
      for (int i = 0; i < spaces; ++i) {
        const size_t part = std::min(space[i].iov_len, bytes.size());
        std::memcpy(space[i].iov_base, bytes.data(), part);
        bytes.remove_prefix(part);
        filled += part;
      }
      reader_.Filled(filled);
      while (true) {
        Result<std::optional<RespRequest>> next = reader_.Next();
        if (!next.has_value()) return next.error();
        if (!*next) break;
        requests_.push_back(**std::move(next));
      }
    }
    return {};
  }

  std::vector<Words> All() const {
    std::vector<Words> all;
    for (const RespRequest& request : requests_) {
      Words& words = all.emplace_back();
      for (const SharedBytes& word : request.words) words.emplace_back(word.text());
    }
    return all;
  }

  RespReader reader_{RespReader::kOfClients};
  std::vector<RespRequest> requests_;
};

TEST_F(RespReaderTest, ACommandIsAListOfWords) {
  EXPECT_OK(Feed("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n"));
  EXPECT_THAT(All(), ElementsAre(Words{"SET", "k", "a\r\nb"}));
  EXPECT_TRUE(reader_.idle());
}

TEST_F(RespReaderTest, OrALineThatSomebodyTypes) {
  EXPECT_OK(Feed("PING\r\n\r\n  get  \"a b\\x00\\n\\\"\" 'it\\'s \\n' \nset k \"\"\r\n"));
  EXPECT_THAT(All(),
              ElementsAre(Words{"PING"}, Words{"get", std::string("a b\0\n\"", 6), "it's \\n"},
                          Words{"set", "k", ""}));
}

TEST_F(RespReaderTest, AListOfNothingIsNone) {
  EXPECT_OK(Feed("*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n"));
  EXPECT_THAT(All(), ElementsAre(Words{"PING"}));
}

// Wherever the bytes are cut on their way, the same commands come out.
TEST_F(RespReaderTest, ItDoesNotMatterInWhichPiecesTheyCome) {
  const std::vector<Words> commands = {
      {"SET", "k", "v"}, {"GET", ""},      {"SET", "long", std::string(20'000, 'x')},
      {"PING"},          {"DEL", "a\r\n"}, {"SET", "longer", std::string(70'000, 'y'), "NX"},
      {"ECHO", "end"}};
  std::string bytes;
  for (const Words& words : commands) bytes += Command(words);
  bytes += "typed line\r\n";
  std::vector<Words> expected = commands;
  expected.push_back({"typed", "line"});
  for (size_t cut = 0; cut <= bytes.size(); cut += cut % 1000 < 100 ? 1 : 97) {
    SCOPED_TRACE(cut);
    reader_ = RespReader(RespReader::kOfClients);
    requests_.clear();
    ASSERT_OK(Feed(bytes.substr(0, cut)));
    ASSERT_OK(Feed(bytes.substr(cut)));
    ASSERT_EQ(All(), expected);
    ASSERT_TRUE(reader_.idle());
  }
  reader_ = RespReader(RespReader::kOfClients);
  requests_.clear();
  for (const char byte : bytes) ASSERT_OK(Feed({&byte, 1}));
  EXPECT_EQ(All(), expected);
}

// What was handed out is not written over by what comes later.
TEST_F(RespReaderTest, WordsStayAsTheyWere) {
  std::vector<Words> expected;
  for (int i = 0; i < 20'000; ++i) {
    expected.push_back({"SET", fmt::format("key{}", i), std::string(i % 100, 'a' + i % 26)});
    ASSERT_OK(Feed(Command(expected.back())));
  }
  EXPECT_EQ(All(), expected);
}

TEST_F(RespReaderTest, AnythingElseIsRefusedInTheWordsOfRedis) {
  const std::pair<std::string, std::string> kCases[] = {
      {"*abc\r\n", "invalid multibulk length"},
      {"*99999999\r\n", "invalid multibulk length"},
      {"*1\r\nPING\r\n", "expected '$', got 'P'"},
      {"*1\r\n$-1\r\n", "invalid bulk length"},
      {"*1\r\n$x\r\n", "invalid bulk length"},
      {"*1\r\n$16777217\r\n", "invalid bulk length"},
      {"*1\r\n$" + std::string(33, '0') + "1\r\n", "too big bulk count string"},
      {"*1\r\n$4\r\nPINGPONG", "longer than was announced"},
      {"*1\r\n$20000\r\n" + std::string(20'010, 'x'), "longer than was announced"},
      {"get \"a\r\n", "unbalanced quotes"},
      {"get \"a\"b\r\n", "unbalanced quotes"},
      {std::string(70'000, 'x'), "too big inline request"},
      {"*1\r\n$" + std::string(70'000, '1'), "too big bulk count string"},
      {"*" + std::string(70'000, '1'), "too big mbulk count string"},
  };
  for (const auto& [bytes, why] : kCases) {
    SCOPED_TRACE(bytes.substr(0, 40));
    reader_ = RespReader(RespReader::kOfClients);
    const Status refused = Feed(bytes);
    EXPECT_EQ(refused.code(), EBADMSG);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("Protocol error: "));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(why));
  }
}

TEST_F(RespReaderTest, ACommandHasABoundedLength) {
  std::string bytes = "*20\r\n";
  for (int i = 0; i < 17; ++i) bytes += "$1000000\r\n" + std::string(1'000'000, 'x') + "\r\n";
  EXPECT_EQ(Feed(bytes).code(), EBADMSG);
}

// What is around the words counts, too.
TEST_F(RespReaderTest, ManyShortWordsAreNotMoreThanTheirBytes) {
  reader_ = RespReader({.words = 100, .word_bytes = 100, .bytes = 200});
  std::string bytes = "*100\r\n";
  for (int i = 0; i < 40; ++i) bytes += "$0\r\n\r\n";
  EXPECT_EQ(Feed(bytes).code(), EBADMSG);
  EXPECT_GT(reader_.announced(), 200u);
}

TEST_F(RespReaderTest, NothingIsKeptWhereNothingIs) {
  EXPECT_OK(Feed(Command({"SET", "k", std::string(10'000, 'v')})));
  reader_.Rest();
  EXPECT_OK(Feed("*1\r\n$4\r\nPI"));
  reader_.Rest();
  EXPECT_OK(Feed("NG\r\n"));
  EXPECT_EQ(All().size(), 2u);
  EXPECT_EQ(All()[0][2], std::string(10'000, 'v')) << "what was handed out stays";
  EXPECT_EQ(All()[1], Words{"PING"});
}

TEST_F(RespReaderTest, StrangersHaveLittleToSay) {
  reader_ = RespReader(RespReader::kOfStrangers);
  EXPECT_OK(Feed(Command({"AUTH", "1", std::string(1024, 'k')})));
  EXPECT_EQ(Feed("*11\r\n").code(), EBADMSG);
  reader_ = RespReader(RespReader::kOfStrangers);
  EXPECT_EQ(Feed("*2\r\n$3\r\nGET\r\n$16385\r\n").code(), EBADMSG);
}

std::string Sent(RespWriter& writer, size_t at_once = SIZE_MAX) {
  std::string all;
  while (writer.unsent_bytes() > 0) {
    std::array<iovec, RespWriter::kMostParts> parts;
    const size_t count = writer.NextParts(parts);
    size_t room = at_once;
    size_t sent = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t part = std::min(room, parts.at(i).iov_len);
      all.append(static_cast<const char*>(parts.at(i).iov_base), part);
      room -= part;
      sent += part;
    }
    EXPECT_GT(sent, 0u);
    writer.Sent(sent);
  }
  return all;
}

void WriteOneOfEach(RespWriter& writer) {
  writer.Simple("OK");
  writer.Error("ERR two\r\nlines");
  writer.Integer(-7);
  writer.Text("a\r\nb");
  writer.Null();
  writer.NullList();
  writer.List(2);
  writer.Integer(1);
  writer.Value(SharedBytes(std::string("v")));
  writer.Map(1);
  writer.Text("k");
  writer.Verbatim("text");
}

TEST(RespWriterTest, AnswersAreThoseOfTheVersionThatTheClientSpeaks) {
  RespWriter writer;
  WriteOneOfEach(writer);
  EXPECT_EQ(Sent(writer),
            "+OK\r\n-ERR two  lines\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n$1\r\nv\r\n"
            "*2\r\n$1\r\nk\r\n$4\r\ntext\r\n");
  writer.SetVersion(3);
  WriteOneOfEach(writer);
  EXPECT_EQ(Sent(writer),
            "+OK\r\n-ERR two  lines\r\n:-7\r\n$4\r\na\r\nb\r\n_\r\n_\r\n*2\r\n:1\r\n$1\r\nv\r\n"
            "%1\r\n$1\r\nk\r\n=8\r\ntxt:text\r\n");
}

TEST(RespWriterTest, TheyComeWholeInWhateverPiecesTheSocketTakesThem) {
  for (const size_t at_once : {1, 3, 1000, 70'000}) {
    SCOPED_TRACE(at_once);
    RespWriter writer;
    std::string expected;
    for (const size_t size : {0, 1, 4096, 4097, 100'000}) {
      const std::string value(size, 'v');
      writer.Value(SharedBytes(value));
      writer.Simple("OK");
      expected += fmt::format("${}\r\n{}\r\n+OK\r\n", size, value);
    }
    EXPECT_EQ(writer.unsent_bytes(), expected.size());
    EXPECT_EQ(Sent(writer, at_once), expected);
    EXPECT_EQ(writer.sent_bytes(), expected.size());
    writer.Integer(1);
    EXPECT_EQ(Sent(writer), ":1\r\n");
  }
}

TEST(RespWriterTest, AFailureHasTheWordThatClientsLookFor) {
  EXPECT_EQ(RespErrorOf(Status(EACCES, "no")), "NOPERM no");
  EXPECT_EQ(RespErrorOf(Status(ENOSPC, "full")), "OOM full");
  EXPECT_EQ(RespErrorOf(Status(EPROTOTYPE, "kind")), "WRONGTYPE kind");
  EXPECT_EQ(RespErrorOf(Status(EIO, "disk")), "ERR disk");
}

// The same, said simply: it takes exponential time.
bool Matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t skip = 0; skip <= text.size(); ++skip) {
      if (Matches(pattern.substr(1), text.substr(skip))) return true;
    }
    return false;
  }
  if (text.empty()) return false;
  if (pattern[0] == '?') return Matches(pattern.substr(1), text.substr(1));
  return pattern[0] == text[0] && Matches(pattern.substr(1), text.substr(1));
}

// All texts of up to `length` of these bytes.
std::vector<std::string> AllTexts(std::string_view bytes, size_t length) {
  std::vector<std::string> all = {""};
  for (size_t begin = 0, round = 0; round < length; ++round) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const char byte : bytes) all.push_back(all[begin] + byte);
    }
  }
  return all;
}

TEST(RespGlobTest, StarsAndQuestionMarksMeanWhatTheyMean) {
  const auto texts = AllTexts("ab", 5);
  for (const std::string& pattern : AllTexts("a*?", 5)) {
    const std::string prefix = GlobPrefix(pattern);
    for (const std::string& text : texts) {
      ASSERT_EQ(GlobMatches(pattern, text), Matches(pattern, text)) << pattern << " " << text;
      ASSERT_TRUE(!GlobMatches(pattern, text) || text.starts_with(prefix)) << pattern;
    }
  }
}

TEST(RespGlobTest, AClassIsOneByteOfSome) {
  EXPECT_TRUE(GlobMatches("h[ae]llo", "hello"));
  EXPECT_FALSE(GlobMatches("h[ae]llo", "hillo"));
  EXPECT_TRUE(GlobMatches("h[^e]llo", "hallo"));
  EXPECT_FALSE(GlobMatches("h[^e]llo", "hello"));
  EXPECT_TRUE(GlobMatches("[a-c][c-a]", "bb"));
  EXPECT_FALSE(GlobMatches("[a-c]", "d"));
  EXPECT_TRUE(GlobMatches("[\\]a]*", "]"));
  EXPECT_TRUE(GlobMatches("[a-]", "-"));
  EXPECT_TRUE(GlobMatches("[a", "a"));
  EXPECT_TRUE(GlobMatches("\\*\\", "*\\"));
  EXPECT_FALSE(GlobMatches("\\*", "a"));
  EXPECT_TRUE(GlobMatches("[\x80-\xff]", "\xe9"));
  EXPECT_EQ(GlobPrefix("user:\\*[a]"), "user:*");
}

TEST(RespGlobTest, NoPatternTakesLong) {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  EXPECT_FALSE(GlobMatches(pattern + "b", std::string(4000, 'a')));
}

using Kind = RespTurns::Kind;

TEST(RespTurnsTest, ManyAreBesideEachOtherOrOneAlone) {
  RespTurns turns;
  std::string order;
  const auto note = [&order](char who) { return [&order, who] { order += who; }; };
  EXPECT_TRUE(turns.Enter(Kind::kBeside, note('x')));
  EXPECT_TRUE(turns.Enter(Kind::kBeside, note('x')));
  EXPECT_TRUE(RespTurns::Quick(turns).inside());
  EXPECT_FALSE(turns.Enter(Kind::kAlone, note('A')));
  EXPECT_FALSE(turns.Enter(Kind::kBeside, note('b'))) << "who comes later waits, too";
  EXPECT_FALSE(RespTurns::Quick(turns).inside());
  EXPECT_TRUE(turns.Enter(Kind::kNone, note('x'))) << "who needs none has it";
  EXPECT_FALSE(turns.Enter(Kind::kAlone, note('B')));
  turns.Leave(Kind::kBeside);
  EXPECT_EQ(order, "");
  turns.Leave(Kind::kBeside);
  EXPECT_EQ(order, "A");
  EXPECT_FALSE(turns.Enter(Kind::kBeside, note('c')));
  turns.Leave(Kind::kAlone);
  EXPECT_EQ(order, "Abc") << "all who waited beside each other";
  turns.Leave(Kind::kBeside);
  turns.Leave(Kind::kBeside);
  EXPECT_EQ(order, "AbcB");
  turns.Leave(Kind::kAlone);
  EXPECT_TRUE(turns.Enter(Kind::kAlone, note('x')));
  turns.Leave(Kind::kNone);
  EXPECT_FALSE(RespTurns::Quick(turns).inside());
  turns.Leave(Kind::kAlone);
  EXPECT_TRUE(RespTurns::Quick(turns).inside());
  turns.EnterAndWait(Kind::kBeside);
  std::thread waiting([&] { turns.EnterAndWait(Kind::kAlone); });
  turns.Leave(Kind::kBeside);
  waiting.join();
  turns.Leave(Kind::kAlone);
  EXPECT_EQ(order, "AbcB");
}

TEST(RespHashTest, AHashIsItsFieldsInTheirOrder) {
  const RespHash hash = {{"b", "2"}, {"a", ""}, {"", "x"}};
  const std::string bytes = EncodeHash(hash);
  EXPECT_EQ(bytes, std::string("\0\1x\1a\0\1b\0012", 10));
  const auto decoded = DecodeHash(AsBytes(bytes));
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, hash);
  for (size_t length = 1; length < bytes.size(); ++length) {
    const auto part = DecodeHash(AsBytes(bytes).first(length));
    EXPECT_TRUE(!part.has_value() || EncodeHash(*part) == bytes.substr(0, length)) << length;
  }
  EXPECT_EQ(DecodeHash(AsBytes(std::string_view("\1b\0\1a\0", 6))).error().code(), EBADMSG)
      << "not in order";
  EXPECT_EQ(DecodeHash(AsBytes(std::string_view("\1a\0\1a\0", 6))).error().code(), EBADMSG)
      << "twice";
}

TEST(RespCursorsTest, NumbersStandForKeysForAWhile) {
  RespCursors cursors;
  const uint64_t first = cursors.Add("first", 0);
  const uint64_t same_chance = cursors.Add("second", 0);
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, same_chance);
  EXPECT_EQ(cursors.Find(first), "first");
  EXPECT_EQ(cursors.Find(same_chance), "second");
  EXPECT_EQ(cursors.Find(0), std::nullopt);
  EXPECT_LT(cursors.Add("third", UINT64_MAX), uint64_t{1} << 53) << "exact as a double";
  uint64_t last = 0;
  for (uint64_t i = 0; i < 100'000; ++i) last = cursors.Add("later", i << 8);
  EXPECT_EQ(cursors.Find(first), std::nullopt) << "the oldest go";
  EXPECT_EQ(cursors.Find(last), "later");
}

}  // namespace
}  // namespace pinstripe
