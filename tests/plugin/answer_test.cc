#include "base/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"

namespace pinstripe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Collects the lines of the log instead of printing them.
class Answers : public testing::Test {
 protected:
  Answers() {
    SetLogSink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~Answers() override { SetLogSink(nullptr); }

  std::vector<std::string> lines_;
};

TEST_F(Answers, SuccessIsZeroAndSilent) {
  EXPECT_EQ(Answer(Status(), "answers-success", "/d/f"), 0);
  EXPECT_THAT(lines_, IsEmpty());
}

// XRootD takes these for delays, byte counts or redirections: data would be lost without an error.
TEST_F(Answers, CodesThatTheServerWouldMisreadNeverLeave) {
  for (int code : {EBUSY, ETIMEDOUT, EHOSTUNREACH, ESTALE, EBADMSG, EINPROGRESS, ETXTBSY, EAGAIN,
                   EDESTADDRREQ, ENOMSG}) {
    EXPECT_EQ(Answer(Status(code, "no drive answers"), "answers-misread", "/d/f"), EIO)
        << ErrnoText(code);
  }
}

TEST_F(Answers, EveryFailureHasACode) {
  for (int code = 1; code < 134; ++code) {
    EXPECT_GT(Answer(Status(code, "why"), "answers-any", "/d/f"), 0) << code;
  }
}

TEST_F(Answers, WhatClientsCanActOnArrivesAsItIs) {
  for (int code : {ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, ENOSPC, EDQUOT, EACCES, EROFS,
                   EINVAL, ENAMETOOLONG, EFBIG}) {
    EXPECT_EQ(Answer(Status(code, "why"), "answers-plain", "/d/f"), code) << ErrnoText(code);
  }
}

TEST_F(Answers, AFailureIsLoggedOnceWithOperationPathAndReason) {
  EXPECT_EQ(
      Answer(Status(EHOSTUNREACH, "drive 4 (h:1): connection refused"), "answers-logged", "/d/f"),
      EIO);

  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("answers-logged"), HasSubstr("/d/f"),
                                        HasSubstr("drive 4 (h:1): connection refused"))));
}

TEST_F(Answers, EverydayAnswersAreNotLogged) {
  EXPECT_EQ(Answer(Status(ENOENT, "no name f"), "answers-everyday", "/d/f"), ENOENT);
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace pinstripe
