// Matchers for Status and Result: a failing test prints the sentence.
//
//   ASSERT_OK(store.Write(...));
//   EXPECT_FAILS(store.Read(...), EIO);

#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/status.h"

namespace pinstripe {

inline Status StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.has_value() ? Status() : result.error();
}
// A conditional change (cluster/registers/store.h): success also where something else was there.
template <typename T>
requires requires(const T& changed) { changed.effect; }
Status StatusOf(const T& changed) { return changed.why; }

template <typename T>
testing::AssertionResult IsOk(const char* expression, const T& outcome) {
  const Status status = StatusOf(outcome);
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << expression << " failed with " << ErrnoText(status.code()) << ": " << status.message();
}

template <typename T>
testing::AssertionResult FailsWith(const char* expression, const char*, const T& outcome,
                                   int code) {
  const Status status = StatusOf(outcome);
  if (status.code() == code) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << expression << " should fail with " << ErrnoText(code) << ", and answered "
         << (status.ok() ? "success" : ErrnoText(status.code())) << ": " << status.message();
}

}  // namespace pinstripe

#define EXPECT_OK(expression) EXPECT_PRED_FORMAT1(::pinstripe::IsOk, expression)
#define ASSERT_OK(expression) ASSERT_PRED_FORMAT1(::pinstripe::IsOk, expression)
#define EXPECT_FAILS(expression, code) EXPECT_PRED_FORMAT2(::pinstripe::FailsWith, expression, code)
#define ASSERT_FAILS(expression, code) ASSERT_PRED_FORMAT2(::pinstripe::FailsWith, expression, code)
