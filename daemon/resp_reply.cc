#include "daemon/resp_reply.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace pinstripe {
namespace {

constexpr size_t kCopiedValue = 4 << 10;  // up to here a value is copied behind what is before it

constexpr size_t kMostPartText = 64 << 10;

}  // namespace

std::string RespErrorOf(const Status& why) {
  switch (why.code()) {
    case EACCES: return fmt::format("NOPERM {}", why.message());
    case EPROTOTYPE: return fmt::format("WRONGTYPE {}", why.message());
    case ENOSPC: return fmt::format("OOM {}", why.message());
    default: return fmt::format("ERR {}", why.message());
  }
}

// The text to which the next answer is added.
std::string& RespWriter::Tail() {
  if (parts_.empty() || !parts_.back().value.empty() ||
      parts_.back().text.size() >= kMostPartText) {
    parts_.emplace_back();
  }
  return parts_.back().text;
}

void RespWriter::Line(char kind, std::string_view text) {
  std::string& tail = Tail();
  const size_t before = tail.size();
  tail += kind;
  std::ranges::transform(text, std::back_inserter(tail),
                         [](char c) { return c == '\r' || c == '\n' ? ' ' : c; });
  tail += "\r\n";
  unsent_bytes_ += tail.size() - before;
}

void RespWriter::Head(char kind, size_t entries) {
  const fmt::format_int number(entries);
  Line(kind, {number.data(), number.size()});
}

void RespWriter::Simple(std::string_view text) { Line('+', text); }

void RespWriter::Error(std::string_view text) { Line('-', text); }

void RespWriter::Failure(const Status& why) { Error(RespErrorOf(why)); }

void RespWriter::Integer(int64_t number) {
  const fmt::format_int text(number);
  Line(':', {text.data(), text.size()});
}

void RespWriter::Text(std::string_view bytes) {
  Head('$', bytes.size());
  std::string& tail = Tail();
  tail += bytes;
  tail += "\r\n";
  unsent_bytes_ += bytes.size() + 2;
}

void RespWriter::Value(SharedBytes bytes) {
  if (bytes.size() <= kCopiedValue) return Text(bytes.text());
  Head('$', bytes.size());
  unsent_bytes_ += bytes.size() + 2;
  parts_.back().value = std::move(bytes);
  Tail() += "\r\n";
}

void RespWriter::Null() { version_ == 3 ? Line('_', "") : Line('$', "-1"); }

void RespWriter::NullList() { version_ == 3 ? Line('_', "") : Line('*', "-1"); }

void RespWriter::Verbatim(std::string_view text) {
  if (version_ != 3) return Text(text);
  Head('=', text.size() + 4);
  std::string& tail = Tail();
  tail += "txt:";
  tail += text;
  tail += "\r\n";
  unsent_bytes_ += text.size() + 6;
}

void RespWriter::Append(RespWriter&& others) {
  assert(others.sent_of_first_ == 0);
  unsent_bytes_ += others.unsent_bytes_;
  for (Part& part : others.parts_) parts_.push_back(std::move(part));
  others.parts_.clear();
  others.unsent_bytes_ = 0;
}

size_t RespWriter::NextParts(std::array<iovec, kMostParts>& parts) const {
  size_t count = 0;
  size_t skip = sent_of_first_;
  const auto add = [&](const void* data, size_t size) {
    const size_t skipped = std::min(skip, size);
    skip -= skipped;
    if (size == skipped) return;
    parts.at(count++) = {const_cast<char*>(static_cast<const char*>(data)) + skipped,
                         size - skipped};
  };
  for (const Part& part : parts_) {
    if (count + 2 > parts.size()) break;
    add(part.text.data(), part.text.size());
    add(part.value.data(), part.value.size());
  }
  return count;
}

void RespWriter::Sent(size_t bytes) {
  assert(bytes <= unsent_bytes_);
  unsent_bytes_ -= bytes;
  sent_bytes_ += bytes;
  bytes += std::exchange(sent_of_first_, 0);
  while (bytes > 0 && bytes >= parts_.front().size()) {
    bytes -= parts_.front().size();
    if (parts_.size() == 1 && parts_.front().value.empty()) {
      assert(bytes == 0);
      if (parts_.front().text.capacity() > kMostPartText) break;
      parts_.front().text.clear();  // its memory is used again
      return;
    }
    parts_.pop_front();
  }
  if (unsent_bytes_ == 0) return parts_.clear();
  sent_of_first_ = bytes;
}

}  // namespace pinstripe
