// TRY(expression): the value of a Result, or a return of its failure from the function around it.
//
//   const Inode inode = TRY(ReadInode(id));                   // Result<Inode>
//   TRY(drive.Remove(key));                                   // Status
//   TRY_CONTEXT(ReadInode(id), "open {}", path);              // the failure reads "open p: ..."
//
// GCC forgets to destroy the members before it when TRY returns from within the braces of an
// aggregate: write `const int n = TRY(f()); return Pair{text, n};`, not `return Pair{text,
// TRY(f())};`.

#pragma once

#include <utility>

#include "base/status.h"

namespace pinstripe::try_detail {

inline bool Ok(const Status& status) { return status.ok(); }
template <typename T>
bool Ok(const Result<T>& result) {
  return result.has_value();
}

inline Status TakeError(Status&& status) { return std::move(status); }
template <typename T>
Status TakeError(Result<T>&& result) {
  return std::move(result).error();
}

inline void TakeValue(Status&&) {}
template <typename T>
T TakeValue(Result<T>&& result) {
  return *std::move(result);
}

}  // namespace pinstripe::try_detail

// Statement expressions are a GCC and Clang extension; both of our compilers have them.
#define TRY(...)                                                                             \
  __extension__({                                                                            \
    auto try_result = (__VA_ARGS__);                                                         \
    if (!::pinstripe::try_detail::Ok(try_result)) [[unlikely]] {                             \
      return ::pinstripe::Failed(::pinstripe::try_detail::TakeError(std::move(try_result))); \
    }                                                                                        \
    ::pinstripe::try_detail::TakeValue(std::move(try_result));                               \
  })

#define TRY_CONTEXT(expression, ...)                                                       \
  __extension__({                                                                          \
    auto try_result = (expression);                                                        \
    if (!::pinstripe::try_detail::Ok(try_result)) [[unlikely]] {                           \
      return ::pinstripe::Failed(::pinstripe::try_detail::TakeError(std::move(try_result)) \
                                     .Context(fmt::format(__VA_ARGS__)));                  \
    }                                                                                      \
    ::pinstripe::try_detail::TakeValue(std::move(try_result));                             \
  })
