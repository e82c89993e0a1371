// RespReader: finds the commands in the bytes that a client of the Redis protocol (RESP2, RESP3)
// sends: lists of words, or lines as somebody types them into telnet. The client may be anybody.
//
//   while (...) {
//     iovec space[2];
//     const int spaces = reader.Space(space);      // where the next bytes go
//     reader.Filled(readv(socket, space, spaces));
//     while (std::optional<RespRequest> request = TRY(reader.Next())) ...
//   }
//
// Words share the memory into which they were read, so that a value is not copied on its way to the
// store. A long word has memory of its own, which is there when its bytes come.
//
// Source: "Redis serialization protocol specification". Not thread-safe.

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

// One command: its name and arguments. Never empty.
struct RespRequest {
  std::vector<SharedBytes> words;
  std::string_view text(size_t i) const { return words[i].text(); }
  size_t size() const { return words.size(); }
};

class RespReader {
 public:
  struct Limits {
    size_t words = 0;       // of one command
    size_t word_bytes = 0;  // of one of its words
    size_t bytes = 0;       // of all of them, with what is around them
  };
  // Who has not said who he is has little to say: as much as Redis takes from such a one.
  static constexpr Limits kOfStrangers{.words = 10, .word_bytes = 16 << 10, .bytes = 32 << 10};
  // Longer words than a value can be are taken, so that their command can be answered.
  static constexpr Limits kOfClients{.words = 64 << 10, .word_bytes = 16 << 20, .bytes = 16 << 20};

  explicit RespReader(Limits limits) : limits_(limits) {}

  // From the next command on.
  void SetLimits(Limits limits) { limits_ = limits; }

  // Where the bytes that come next belong: one or two places, which stay until Filled().
  int Space(iovec space[2]);
  void Filled(size_t bytes);

  // The next command that is complete. EBADMSG, in the words that Redis has for it: what came is
  // not the protocol, or over a limit. The stream is worthless after that.
  Result<std::optional<RespRequest>> Next();

  // Gives back memory that nothing is in. To be called when no more is to be read for now.
  void Rest();

  // Whether no command has begun.
  bool idle() const { return begin_ == end_ && words_left_ == 0; }
  // Bytes that the command that has begun has come to, with those that it has announced.
  size_t announced() const { return request_bytes_; }

 private:
  // A word of the command that is being read: in block_, counted from where the command begins, or
  // by itself.
  struct Word {
    size_t offset = 0;
    size_t length = 0;
    SharedBytes own;
  };

  std::string_view Unread() const;
  std::optional<std::string_view> TakeLine();
  Result<std::optional<std::string_view>> TakeLineWithin(size_t most, std::string_view too_long);
  Status CountBytes(size_t bytes);
  Result<bool> Begin();
  Result<bool> TakeTypedLine();
  Result<bool> BeginWord();
  bool TakeWord();
  Status EndLongWord();
  RespRequest Complete();
  void MakeRoom();

  Limits limits_;

  // Bytes that came and were not taken lie from begin_ to end_ in block_. Those of the command that
  // is being read begin at start_.
  std::shared_ptr<Buffer> block_;
  size_t start_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;

  std::vector<Word> words_;
  size_t words_left_ = 0;         // that the command has announced
  std::optional<size_t> length_;  // of the word that is being read, once that is known
  size_t request_bytes_ = 0;      // of the command
  std::optional<Buffer> long_;    // memory of the word that is being read, if it is a long one
  size_t long_filled_ = 0;        // bytes of it
};

}  // namespace pinstripe
