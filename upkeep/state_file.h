// StateFile: a file of this host in which a program keeps how far it is, to go on from there when
// it was stopped or killed. It is written as a whole, beside the one before, and takes its place
// when it is durable: so there is always one that is whole.
//
// The bytes are frames, and each begins with its length and its CRC32C; an empty one is the last.
// One function says what is in the file for both directions:
//
//   void Archive(StateFile& file, Thing& thing) {
//     file.Number(thing.id);
//     file.Items(thing.parts, [&](Part& part) { file.Text(part.name); });
//   }
//
// What is read is not trusted. The first thing that does not fit makes the file bad, and all that
// is read afterwards is zeros; Finish() tells. Used by one thread.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace pinstripe {

class StateFile {
 public:
  // ENOENT: there is none. EBADMSG: it is not what Write() has made, or not all of it is there;
  // all of it was looked at.
  static Result<StateFile> Read(const std::string& path);
  // What is at `path` stays until Finish(). One that was killed before that leaves its bytes at
  // `path` + kBeside, where the next one begins anew.
  static constexpr std::string_view kBeside = ".new";
  static Result<StateFile> Write(const std::string& path);
  StateFile(StateFile&&) = default;
  StateFile& operator=(StateFile&&) = default;
  ~StateFile();

  bool reads() const { return reads_; }
  bool ok() const { return failure_.ok() && in_.ok(); }
  void MarkBad() { in_.MarkBad(); }

  // An integer or a bool.
  template <typename T>
  void Number(T& value) {
    if (!reads_) {
      out_.Varint(static_cast<uint64_t>(value));
      return;
    }
    const uint64_t read = in_.Varint();
    value = static_cast<T>(read);
    if (static_cast<uint64_t>(value) != read) MarkBad();
  }
  // An enumeration whose last value is `last`.
  template <typename T>
  void Kind(T& value, T last) {
    auto number = static_cast<uint64_t>(value);
    Number(number);
    if (number > static_cast<uint64_t>(last)) MarkBad();
    if (reads_ && ok()) value = static_cast<T>(number);
  }
  void Text(std::string& text);
  template <size_t kSize>
  void Raw(std::array<uint8_t, kSize>& bytes) {
    for (uint8_t& byte : bytes) Number(byte);
  }

  // Of a vector or deque, one after the other. What is read comes behind what is there.
  template <typename Container, typename Each>
  void Items(Container& items, Each each) {
    uint64_t left = items.size();
    Number(left);
    if (!reads_) {
      for (auto& item : items) {
        Cut();
        each(item);
      }
      return;
    }
    for (; left > 0 && ok(); --left) {
      Cut();
      each(items.emplace_back());
    }
  }
  // Of a set, or a map: `each` takes the key, and of a map the value, too.
  template <typename Key, typename Each>
  void Items(std::set<Key>& items, Each each) {
    std::vector<Key> keys(items.begin(), items.end());
    Items(keys, each);
    if (reads_) items.insert(keys.begin(), keys.end());
  }
  template <typename Key, typename Value, typename Each>
  void Items(std::map<Key, Value>& items, Each each) {
    uint64_t left = items.size();
    Number(left);
    if (!reads_) {
      for (auto& [key, value] : items) {
        Cut();
        Key same = key;
        each(same, value);
      }
      return;
    }
    for (; left > 0 && ok(); --left) {
      Cut();
      std::pair<Key, Value> item{};
      each(item.first, item.second);
      if (ok()) items.insert_or_assign(std::move(item.first), std::move(item.second));
    }
  }

  // Written: it is durable and in its place, or why not. Read: EBADMSG unless all was read, and
  // nothing else was asked for.
  Status Finish();

 private:
  StateFile(bool reads, std::string path) : reads_(reads), path_(std::move(path)) {}
  void Cut();  // between two items: where a frame may end
  void WriteFrame();
  void ReadFrame();
  Status Damaged(std::string_view what) const;

  bool reads_;
  std::string path_;
  std::string beside_;  // that is written
  FileDescriptor file_;
  uint64_t at_ = 0;
  Status failure_;
  Writer out_;
  // On the heap, so that the reader stays right when this moves.
  std::unique_ptr<std::string> frame_ = std::make_unique<std::string>();
  Reader in_{std::string_view()};
};

}  // namespace pinstripe
