// Operators: who may start and stop work, by a token in the request. A file has them, one a line:
//
//   # name   token, at least 20 characters (`openssl rand -hex 20` makes one)
//   anna     5f1c...
//
// Only hashes are kept and compared, all of them and in constant time. Whoever guesses is told so,
// and after some wrong ones to wait. A right token is always taken: nobody guesses one of 20
// characters, and whoever guesses must not keep operators out who come from the same address.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

inline constexpr size_t kLeastTokenBytes = 20;

// Thread-safe.
class Operators {
 public:
  struct Limits {
    size_t wrong_per_peer = 5;  // within `window`, of an address, or of a network of IPv6
    size_t wrong_of_all = 100;  // so, too
    Duration window = std::chrono::minutes(1);
  };
  explicit Operators(Runtime& runtime) : Operators(runtime, Limits()) {}
  Operators(Runtime& runtime, Limits limits) : runtime_(runtime), limits_(limits) {}

  // In place of those from before; on failure they stay. EACCES: others can read the file; EINVAL,
  // with the line: something in it is no operator.
  Status Load(const std::string& file);
  size_t count() const;
  uint64_t wrong_tokens() const;  // that were sent so far

  // The operator's name. EACCES: it is no operator's token; EBUSY: nor is it, and `peer` or
  // everybody together has guessed too often, and is to wait.
  Result<std::string> Find(std::string_view token, const std::string& peer);

 private:
  using Hash = std::array<unsigned char, 32>;
  struct Operator {
    std::string name;
    Hash hash;
  };
  static Hash HashOf(std::string_view token);
  void ForgetOldLocked() REQUIRES(mutex_);

  Runtime& runtime_;
  const Limits limits_;
  mutable Mutex mutex_;
  std::vector<Operator> operators_ GUARDED_BY(mutex_);
  // Wrong ones within the window, oldest first; no more than wrong_of_all.
  struct Wrong {
    Time at;
    std::string network;
  };
  std::deque<Wrong> wrong_ GUARDED_BY(mutex_);
  uint64_t wrong_tokens_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinstripe
