#include "daemon/clients.h"

#include <utility>

namespace pinstripe {
namespace {

// How many bytes the sequence of UTF-8 has that the text begins with; 0: it is none that can be
// printed.
size_t SequenceAt(std::string_view text) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                        : first >= 0xe0 && first <= 0xef ? 3
                        : first >= 0xf0 && first <= 0xf4 ? 4
                                                         : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool is_control = first == 0xc2 && second < 0xa0;
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_no_character =
      (first == 0xed && second >= 0xa0) || (first == 0xf4 && second > 0x8f);
  // Marks that turn the direction of writing, or end lines, would have a terminal lie.
  const bool is_mark = first == 0xe2 && (second == 0x80 || second == 0x81);
  return is_control || is_overlong || is_no_character || is_mark ? 0 : length;
}

}  // namespace

std::string Printable(std::string_view text, size_t most) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = SequenceAt(text);
    const std::string_view next = length == 0 ? "?" : text.substr(0, length);
    if (printable.size() + next.size() > most) break;
    printable += next;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return printable;
}

void ConnectedClient::Introduce(Introduction introduction) {
  Introduction bounded{.program = Printable(introduction.program, kMostProgramBytes),
                       .version = Printable(introduction.version, kMostVersionBytes),
                       .host = Printable(introduction.host, kMostHostBytes),
                       .detail = Printable(introduction.detail, kMostDetailBytes),
                       .process = introduction.process};
  const MutexLock lock(mutex_);
  introduction_ = std::move(bounded);
}

ConnectedClient::Introduction ConnectedClient::introduction() const {
  const MutexLock lock(mutex_);
  return introduction_;
}

void Clients::Add(std::shared_ptr<ConnectedClient> client) {
  const MutexLock lock(mutex_);
  all_.insert(std::move(client));
}

void Clients::Remove(const std::shared_ptr<ConnectedClient>& client) {
  const MutexLock lock(mutex_);
  all_.erase(client);
}

size_t Clients::Count() const {
  const MutexLock lock(mutex_);
  return all_.size();
}

std::vector<std::shared_ptr<ConnectedClient>> Clients::All() const {
  const MutexLock lock(mutex_);
  return {all_.begin(), all_.end()};
}

}  // namespace pinstripe
