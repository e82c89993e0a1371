#include "plugin/uploads.h"

#include <gtest/gtest.h>

#include "tests/support/expect_ok.h"

namespace pinstripe {
namespace {

constexpr Time kNow{std::chrono::seconds(1000)};
constexpr Duration kBlink = std::chrono::milliseconds(1);

TEST(Uploads, OneClientAtATimeWritesAPath) {
  Uploads uploads;
  ASSERT_OK(uploads.Reserve("/file", "first", kNow));
  EXPECT_FAILS(uploads.Reserve("/file", "second", kNow), ETXTBSY);
  EXPECT_OK(uploads.Reserve("/file", "first", kNow)) << "the same client tries again";
  EXPECT_OK(uploads.Reserve("/other", "second", kNow));
  uploads.Begin("/file");
  EXPECT_FAILS(uploads.Reserve("/file", "second", kNow + Uploads::kReservation * 2), ETXTBSY)
      << "it may take as long as it takes";
  EXPECT_FAILS(uploads.Reserve("/file", "first", kNow), ETXTBSY);
  uploads.End("/file");
  EXPECT_OK(uploads.Reserve("/file", "second", kNow));
}

TEST(Uploads, WhoWritesInPlaceIsNotReplacedEither) {
  Uploads uploads;
  uploads.Begin("/file");  // opened for an update: nothing was reserved
  uploads.Begin("/file");
  uploads.End("/file");
  EXPECT_FAILS(uploads.Reserve("/file", "client", kNow), ETXTBSY);
  uploads.End("/file");
  EXPECT_OK(uploads.Reserve("/file", "client", kNow));
}

TEST(Uploads, AReservationThatIsNotUsedEndsByItself) {
  Uploads uploads;
  ASSERT_OK(uploads.Reserve("/file", "vanished", kNow));
  const Time end = kNow + Uploads::kReservation;
  EXPECT_FAILS(uploads.Reserve("/file", "second", end - kBlink), ETXTBSY);
  EXPECT_OK(uploads.Reserve("/file", "second", end));
}

TEST(Uploads, AnOpenIsToldWhetherParentsAreMade) {
  Uploads uploads;
  ASSERT_OK(uploads.Reserve("/file", "client", kNow, {}, Uploads::Parents::kAreMade));
  ASSERT_OK(uploads.Reserve("/other", "client", kNow + Uploads::kReservation * 2));
  EXPECT_EQ(uploads.Begin("/file"), Uploads::Parents::kAreMade) << "late as it is";
  EXPECT_EQ(uploads.Begin("/file"), Uploads::Parents::kMustExist) << "which nobody has asked for";
  ASSERT_OK(uploads.Reserve("/new", "client", kNow, {}, Uploads::Parents::kAreMade));
  ASSERT_OK(uploads.Reserve("/new", "client", kNow));
  EXPECT_EQ(uploads.Begin("/new"), Uploads::Parents::kMustExist) << "the last one counts";
}

TEST(Uploads, AThirdPartyCopyIsWrittenByWhoKnowsItsKey) {
  Uploads uploads;
  ASSERT_OK(uploads.Reserve("/file", "client", kNow));
  uploads.Begin("/file", {.copy_key = "secret"});
  EXPECT_FAILS(uploads.Reserve("/file", "other", kNow), ETXTBSY);
  EXPECT_FAILS(uploads.Reserve("/file", "other", kNow, "wrong"), ETXTBSY);
  EXPECT_OK(uploads.Reserve("/file", "program", kNow, "secret"));
  uploads.End("/file");
  ASSERT_OK(uploads.Reserve("/file", "client", kNow));
  uploads.Begin("/file");
  EXPECT_FAILS(uploads.Reserve("/file", "program", kNow, "secret"), ETXTBSY)
      << "that was another copy";
}

TEST(Uploads, AreCutOffByTheEndOfTheirSessionOnly) {
  Uploads uploads;
  const int one = 0, two = 0;
  uploads.Begin("/one", {.session = &one});
  uploads.Begin("/two", {.session = &two});
  uploads.Begin("/without");
  uploads.SessionEnds(nullptr);
  uploads.SessionEnds(&one);
  EXPECT_TRUE(uploads.IsCutOff("/one"));
  EXPECT_FALSE(uploads.IsCutOff("/two"));
  EXPECT_FALSE(uploads.IsCutOff("/without"));
  uploads.End("/one");
  uploads.Begin("/one", {.session = &one});
  EXPECT_FALSE(uploads.IsCutOff("/one")) << "the next upload is another one";
}

// Several pieces are under way at once, so the last one may come before others.
TEST(UploadParts, CompleteWhenEveryByteWasWritten) {
  UploadParts parts(100);
  EXPECT_FALSE(parts.Complete());
  parts.Add(60, 40);
  EXPECT_FALSE(parts.Complete()) << "the size is there, but not the beginning";
  parts.Add(0, 50);
  parts.Add(0, 50);  // sent again
  EXPECT_FALSE(parts.Complete());
  parts.Add(50, 10);
  EXPECT_TRUE(parts.Complete());
  EXPECT_TRUE(UploadParts(0).Complete());
}

TEST(AnnouncedSize, IsANumberOrNone) {
  EXPECT_EQ(AnnouncedSize("150000000"), 150'000'000u);
  EXPECT_EQ(AnnouncedSize("0"), 0u);
  for (const char* wrong : {"", "-1", "1k", " 1", "99999999999999999999999"}) {
    EXPECT_EQ(AnnouncedSize(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(AnnouncedSize(nullptr), std::nullopt);
}

}  // namespace
}  // namespace pinstripe
