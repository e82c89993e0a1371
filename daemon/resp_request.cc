#include "daemon/resp_request.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kBlockBytes = 64 << 10;
constexpr size_t kMostLine = 64 << 10;     // of a line that somebody types
constexpr size_t kMostNumber = 32;         // of a line that announces something
constexpr size_t kLongWord = 16 << 10;     // from here on a word has memory of its own
constexpr size_t kLeastToRead = 16 << 10;  // for less a block is not read into
constexpr std::string_view kEnd = "\r\n";

Failed Broken(std::string_view why) { return Fail(EBADMSG, "Protocol error: {}", why); }

// The number that `line` is, all of it.
std::optional<int64_t> NumberIn(std::string_view line) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  return number;
}

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Takes what follows a backslash between double quotes.
char TakeEscaped(std::string_view* line) {
  const char c = line->front();
  if (c == 'x' && line->size() >= 3 && HexDigit((*line)[1]) >= 0 && HexDigit((*line)[2]) >= 0) {
    const int byte = HexDigit((*line)[1]) * 16 + HexDigit((*line)[2]);
    line->remove_prefix(3);
    return static_cast<char>(byte);
  }
  line->remove_prefix(1);
  switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return c;
  }
}

// The next word of a line that somebody has typed; bytes may be in quotes. None: the quotes do not
// end, or something follows right behind them.
std::optional<std::string> TakeTypedWord(std::string_view* line) {
  std::string word;
  while (!line->empty() && !IsSpace(line->front())) {
    const char quote = line->front();
    if (quote != '"' && quote != '\'') {
      word += quote;
      line->remove_prefix(1);
      continue;
    }
    line->remove_prefix(1);
    while (!line->empty() && line->front() != quote) {
      const char c = line->front();
      line->remove_prefix(1);
      if (c != '\\' || line->empty()) {
        word += c;
      } else if (quote == '"') {
        word += TakeEscaped(line);
      } else if (line->front() == '\'') {  // the one thing to escape between single quotes
        word += '\'';
        line->remove_prefix(1);
      } else {
        word += c;
      }
    }
    if (line->empty()) return std::nullopt;
    line->remove_prefix(1);
    if (!line->empty() && !IsSpace(line->front())) return std::nullopt;
  }
  return word;
}

}  // namespace

std::string_view RespReader::Unread() const {
  if (block_ == nullptr) return {};
  return AsText(block_->bytes().subspan(begin_, end_ - begin_));
}

int RespReader::Space(iovec space[2]) {
  int count = 0;
  if (long_ && long_filled_ < long_->size()) {
    space[count++] = {long_->data() + long_filled_, long_->size() - long_filled_};
  }
  MakeRoom();
  space[count++] = {block_->data() + end_, block_->size() - end_};
  return count;
}

// The words that were handed out look into the block, which nobody writes to any more then. What
// has begun moves to the next one.
void RespReader::MakeRoom() {
  if (block_ == nullptr) block_ = std::make_shared<Buffer>(kBlockBytes);
  const bool is_shared = block_.use_count() > 1;
  if (begin_ == end_ && start_ == end_ && !is_shared) start_ = begin_ = end_ = 0;
  if (!is_shared && block_->size() - end_ >= kLeastToRead) return;
  const size_t kept = end_ - start_;
  const size_t wanted = std::max(kBlockBytes, 2 * kept + kLeastToRead);
  auto next = std::make_shared<Buffer>(wanted);
  CopyBytes(*next, block_->bytes().subspan(start_, kept));
  block_ = std::move(next);
  begin_ -= start_;
  end_ -= start_;
  start_ = 0;
}

void RespReader::Filled(size_t bytes) {
  if (long_) {
    const size_t taken = std::min(bytes, long_->size() - long_filled_);
    long_filled_ += taken;
    bytes -= taken;
  }
  end_ += bytes;
}

// Without what ends it. None: it is not there yet.
std::optional<std::string_view> RespReader::TakeLine() {
  const std::string_view unread = Unread();
  const size_t end = unread.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  begin_ += end + 1;
  std::string_view line = unread.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

Result<std::optional<std::string_view>> RespReader::TakeLineWithin(size_t most,
                                                                   std::string_view too_long) {
  const std::optional<std::string_view> line = TakeLine();
  const size_t bytes = line ? line->size() : Unread().size();
  if (bytes > most) return Broken(too_long);
  return line;
}

Status RespReader::CountBytes(size_t bytes) {
  request_bytes_ += bytes;
  if (request_bytes_ <= limits_.bytes) return {};
  return Broken(fmt::format("a command of more than {} bytes", limits_.bytes));
}

void RespReader::Rest() {
  if (idle()) {
    block_ = nullptr;
    start_ = begin_ = end_ = 0;
  }
}

Result<std::optional<RespRequest>> RespReader::Next() {
  while (true) {
    if (words_left_ == 0) {
      if (!TRY(Begin())) return std::nullopt;
    } else if (!length_) {
      if (!TRY(BeginWord())) return std::nullopt;
    } else if (long_) {
      if (long_filled_ < long_->size() || Unread().size() < kEnd.size()) return std::nullopt;
      TRY(EndLongWord());
    } else if (Unread().size() < *length_ + kEnd.size()) {
      return std::nullopt;
    } else if (!TakeWord()) {
      return Broken("a word is longer than was announced");
    }
    if (words_left_ == 0 && !words_.empty()) return Complete();
  }
}

// False: more has to come.
Result<bool> RespReader::Begin() {
  start_ = begin_;
  request_bytes_ = 0;
  if (begin_ == end_) return false;
  if (Unread().front() != '*') return TakeTypedLine();
  const std::optional<std::string_view> line =
      TRY(TakeLineWithin(kMostNumber, "too big mbulk count string"));
  if (!line) return false;
  const std::optional<int64_t> count = NumberIn(line->substr(1));
  if (!count || *count > static_cast<int64_t>(limits_.words)) {
    return Broken("invalid multibulk length");
  }
  words_left_ = static_cast<size_t>(std::max<int64_t>(*count, 0));
  return true;
}

Result<bool> RespReader::TakeTypedLine() {
  const std::optional<std::string_view> line =
      TRY(TakeLineWithin(std::min(kMostLine, limits_.bytes), "too big inline request"));
  if (!line) return false;
  std::string_view rest = *line;
  while (true) {
    while (!rest.empty() && IsSpace(rest.front())) rest.remove_prefix(1);
    if (rest.empty()) return true;
    std::optional<std::string> word = TakeTypedWord(&rest);
    if (!word) return Broken("unbalanced quotes in request");
    if (words_.size() == limits_.words) return Broken("too big inline request");
    words_.push_back({.own = SharedBytes(*std::move(word))});
  }
}

// False: more has to come.
Result<bool> RespReader::BeginWord() {
  const std::optional<std::string_view> line =
      TRY(TakeLineWithin(kMostNumber, "too big bulk count string"));
  if (!line) return false;
  if (!line->starts_with('$')) {
    const char got = line->empty() ? ' ' : line->front();
    return Broken(fmt::format("expected '$', got '{}'", got >= ' ' && got <= '~' ? got : '?'));
  }
  const std::optional<int64_t> length = NumberIn(line->substr(1));
  if (!length || *length < 0 || *length > static_cast<int64_t>(limits_.word_bytes)) {
    return Broken("invalid bulk length");
  }
  length_ = static_cast<size_t>(*length);
  TRY(CountBytes(line->size() + *length_ + 2 * kEnd.size()));
  if (*length_ < kLongWord) return true;
  long_.emplace(*length_);
  long_filled_ = std::min(*length_, end_ - begin_);
  CopyBytes(*long_, block_->bytes().subspan(begin_, long_filled_));
  begin_ += long_filled_;
  return true;
}

// False: it does not end where it was to.
bool RespReader::TakeWord() {
  if (Unread().substr(*length_, kEnd.size()) != kEnd) return false;
  words_.push_back({.offset = begin_ - start_, .length = *length_});
  begin_ += *length_ + kEnd.size();
  length_.reset();
  --words_left_;
  return true;
}

Status RespReader::EndLongWord() {
  if (!Unread().starts_with(kEnd)) return Broken("a word is longer than was announced");
  begin_ += kEnd.size();
  words_.push_back({.own = SharedBytes(*std::move(long_))});
  long_.reset();
  length_.reset();
  --words_left_;
  return {};
}

RespRequest RespReader::Complete() {
  RespRequest request;
  request.words.reserve(words_.size());
  for (Word& word : words_) {
    if (word.own.data() != nullptr) {
      request.words.push_back(std::move(word.own));
      continue;
    }
    request.words.emplace_back(block_, block_->bytes().subspan(start_ + word.offset, word.length));
  }
  words_.clear();
  start_ = begin_;
  request_bytes_ = 0;
  return request;
}

}  // namespace pinstripe
