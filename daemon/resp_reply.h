// RespWriter: the answers to one client of the Redis protocol, in the order of its commands, on
// their way to its socket. RESP2 at first; a client that says HELLO 3 gets maps, sets and nulls of
// their own kind. Large values are sent from where they lie.
//
// Not thread-safe: its connection has one thread at a time.

#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

class RespWriter {
 public:
  int version() const { return version_; }
  void SetVersion(int version) { version_ = version; }  // 2 or 3

  void Simple(std::string_view text);  // one line, as "OK"
  // One line that begins with a word in capitals: "ERR syntax error". What would end it is
  // replaced.
  void Error(std::string_view text);
  // The same of a failure.
  void Failure(const Status& why);
  void Integer(int64_t number);
  void Text(std::string_view bytes);
  void Value(SharedBytes bytes);
  void Null();
  void NullList();

  // What follows are its entries, of a map a key and a value in turn.
  void List(size_t entries) { Head('*', entries); }
  void Map(size_t entries) { version_ == 3 ? Head('%', entries) : Head('*', 2 * entries); }
  // A text that is lines to be read.
  void Verbatim(std::string_view text);

  // The answers of another one.
  void Append(RespWriter&& others);

  // What is to be sent next: how many of `parts` are filled.
  static constexpr size_t kMostParts = 64;
  size_t NextParts(std::array<iovec, kMostParts>& parts) const;
  void Sent(size_t bytes);

  size_t unsent_bytes() const { return unsent_bytes_; }
  uint64_t sent_bytes() const { return sent_bytes_; }  // so far

 private:
  struct Part {
    std::string text;
    SharedBytes value;  // after it
    size_t size() const { return text.size() + value.size(); }
  };

  std::string& Tail();
  void Head(char kind, size_t entries);
  void Line(char kind, std::string_view text);

  int version_ = 2;
  std::deque<Part> parts_;
  size_t sent_of_first_ = 0;
  size_t unsent_bytes_ = 0;
  uint64_t sent_bytes_ = 0;
};

// What Redis calls such a failure, and its sentence.
std::string RespErrorOf(const Status& why);

}  // namespace pinstripe
