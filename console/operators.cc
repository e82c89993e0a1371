#include "console/operators.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <sstream>

#include "base/private_file.h"
#include "base/read_file.h"
#include "base/try.h"
#include "console/peer_network.h"

namespace pinstripe {
namespace {

constexpr size_t kMostNameBytes = 64;

bool IsWord(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

// What is left of it in a header, where the library takes % for the beginning of another character.
bool IsToken(std::string_view text) { return IsWord(text) && text.find('%') == text.npos; }

}  // namespace

Operators::Hash Operators::HashOf(std::string_view token) {
  Hash hash{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

Status Operators::Load(const std::string& file) {
  TRY(CheckPrivateFile(file));
  std::istringstream lines(TRY(ReadFile(file)));
  std::vector<Operator> operators;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string name, token, more;
    if (!(words >> name) || name.starts_with('#')) continue;
    const bool is_complete = (words >> token) && !(words >> more);
    if (!is_complete || !IsWord(name) || !IsToken(token) || name.size() > kMostNameBytes) {
      return Fail(EINVAL,
                  "{}:{}: an operator is a name and a token, which has no %, with a space between",
                  file, number);
    }
    if (token.size() < kLeastTokenBytes) {
      return Fail(EINVAL,
                  "{}:{}: the token of {} has {} characters, and can be guessed: take {} or more, "
                  "as `openssl rand -hex 20` makes them",
                  file, number, name, token.size(), kLeastTokenBytes);
    }
    const auto has_name = [&](const Operator& one) { return one.name == name; };
    if (std::ranges::any_of(operators, has_name)) {
      return Fail(EINVAL, "{}:{}: {} is there twice", file, number, name);
    }
    operators.push_back({name, HashOf(token)});
  }
  if (operators.empty()) return Fail(EINVAL, "{}: there is no operator in it", file);
  const MutexLock lock(mutex_);
  operators_ = std::move(operators);
  return {};
}

size_t Operators::count() const {
  const MutexLock lock(mutex_);
  return operators_.size();
}

uint64_t Operators::wrong_tokens() const {
  const MutexLock lock(mutex_);
  return wrong_tokens_;
}

void Operators::ForgetOldLocked() {
  const Time since = runtime_.Now() - limits_.window;
  while (!wrong_.empty() && wrong_.front().at <= since) wrong_.pop_front();
}

Result<std::string> Operators::Find(std::string_view token, const std::string& peer) {
  const Hash hash = HashOf(token);
  const MutexLock lock(mutex_);
  const Operator* found = nullptr;
  for (const Operator& one : operators_) {
    if (CRYPTO_memcmp(one.hash.data(), hash.data(), hash.size()) == 0) found = &one;
  }
  if (found != nullptr) return found->name;
  if (!token.empty()) {
    ++wrong_tokens_;
    ForgetOldLocked();
    std::string network = NetworkOf(peer);
    const auto of_it = std::ranges::count(wrong_, network, &Wrong::network);
    if (static_cast<size_t>(of_it) >= limits_.wrong_per_peer ||
        wrong_.size() >= limits_.wrong_of_all) {
      return Fail(EBUSY, "there were too many wrong tokens: try again in a minute");
    }
    wrong_.push_back({runtime_.Now(), std::move(network)});
  }
  const char* why = operators_.empty() ? "this console has no operators: start it with --token-file"
                    : token.empty()    ? "this takes the token of an operator"
                                       : "this is no operator's token";
  return Fail(EACCES, "{}", why);
}

}  // namespace pinstripe
