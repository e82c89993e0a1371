#include "plugin/uploads.h"

#include <fmt/format.h>
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
  const auto writer = uploads.Begin("/file");
  EXPECT_FAILS(uploads.Reserve("/file", "second", kNow + Uploads::kReservation * 2), ETXTBSY)
      << "it may take as long as it takes";
  EXPECT_FAILS(uploads.Reserve("/file", "first", kNow), ETXTBSY);
  uploads.End(writer);
  EXPECT_OK(uploads.Reserve("/file", "second", kNow));
}

TEST(Uploads, WhoWritesInPlaceIsNotReplacedEither) {
  Uploads uploads;
  const auto first = uploads.Begin("/file");  // opened for an update: nothing was reserved
  const auto second = uploads.Begin("/file");
  uploads.End(second);
  EXPECT_FAILS(uploads.Reserve("/file", "client", kNow), ETXTBSY);
  uploads.End(first);
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
  EXPECT_EQ(uploads.Begin("/file").parents, Uploads::Parents::kAreMade) << "late as it is";
  EXPECT_EQ(uploads.Begin("/file").parents, Uploads::Parents::kMustExist)
      << "which nobody has asked for";
  ASSERT_OK(uploads.Reserve("/new", "client", kNow, {}, Uploads::Parents::kAreMade));
  ASSERT_OK(uploads.Reserve("/new", "client", kNow));
  EXPECT_EQ(uploads.Begin("/new").parents, Uploads::Parents::kMustExist) << "the last one counts";
}

TEST(Uploads, AThirdPartyCopyIsWrittenByWhoKnowsItsKey) {
  Uploads uploads;
  ASSERT_OK(uploads.Reserve("/file", "client", kNow));
  const auto copy = uploads.Begin("/file", {.copy_key = "secret"});
  EXPECT_FAILS(uploads.Reserve("/file", "other", kNow), ETXTBSY);
  EXPECT_FAILS(uploads.Reserve("/file", "other", kNow, "wrong"), ETXTBSY);
  EXPECT_OK(uploads.Reserve("/file", "program", kNow, "secret"));
  uploads.End(copy);
  ASSERT_OK(uploads.Reserve("/file", "client", kNow));
  uploads.Begin("/file");
  EXPECT_FAILS(uploads.Reserve("/file", "program", kNow, "secret"), ETXTBSY)
      << "that was another copy";
}

TEST(Uploads, AreCutOffByTheEndOfTheirSessionOnly) {
  Uploads uploads;
  const int one = 0, two = 0;
  const auto first = uploads.Begin("/one", {.session = &one});
  const auto second = uploads.Begin("/two", {.session = &two});
  const auto without = uploads.Begin("/without");
  uploads.SessionEnds(nullptr);
  uploads.SessionEnds(&one);
  EXPECT_TRUE(uploads.IsCutOff(first));
  EXPECT_FALSE(uploads.IsCutOff(second));
  EXPECT_FALSE(uploads.IsCutOff(without));
  uploads.End(first);
  const auto next = uploads.Begin("/one", {.session = &one});
  EXPECT_FALSE(uploads.IsCutOff(next)) << "the next upload is another one";
}

constexpr InodeId kInode = 17;

TEST(Uploads, AreFoundByTheirPathUntilTheyEnd) {
  Uploads uploads;
  const auto writer = uploads.Begin("/file");
  EXPECT_EQ(uploads.Find("/file"), std::nullopt) << "it may update what is there";
  uploads.Creates(writer, kInode);
  EXPECT_EQ(uploads.Find("/file"), kInode);
  EXPECT_EQ(uploads.Find("/other"), std::nullopt);
  uploads.End(writer);
  EXPECT_EQ(uploads.Find("/file"), std::nullopt);
}

TEST(Uploads, ARemovedNameIsFreeWhileItsUploadGoesOn) {
  Uploads uploads;
  const auto removed = uploads.Begin("/file");
  uploads.Creates(removed, kInode);
  uploads.Remove("/file", kInode + 1);
  EXPECT_FALSE(uploads.WasRemoved(removed)) << "that was another one";
  uploads.Remove("/file", kInode);
  EXPECT_TRUE(uploads.WasRemoved(removed));
  EXPECT_EQ(uploads.Find("/file"), std::nullopt);

  ASSERT_OK(uploads.Reserve("/file", "other", kNow));
  const auto next = uploads.Begin("/file");
  uploads.Creates(next, kInode + 1);
  uploads.End(removed);
  EXPECT_EQ(uploads.Find("/file"), kInode + 1) << "the end of the first is not that of the second";
  EXPECT_FALSE(uploads.WasRemoved(next));
}

TEST(Uploads, TheNameOfADroppedOneCanBeRemovedOnce) {
  Uploads uploads;
  EXPECT_FALSE(uploads.RemoveDropped("/file", kNow));
  uploads.Drop("/file", kNow);
  EXPECT_FALSE(uploads.RemoveDropped("/other", kNow));
  EXPECT_TRUE(uploads.RemoveDropped("/file", kNow));
  EXPECT_FALSE(uploads.RemoveDropped("/file", kNow));
  uploads.Drop("/file", kNow);
  uploads.Creates(uploads.Begin("/file"), kInode);
  EXPECT_FALSE(uploads.RemoveDropped("/file", kNow)) << "that one is another one";
  uploads.Drop("/file", kNow);
  EXPECT_FALSE(uploads.RemoveDropped("/file", kNow + Uploads::kDropped)) << "too late";
}

// It would write the rest of its file into whatever is there by now.
TEST(Uploads, WhoComesBackForADroppedOneIsRecognised) {
  Uploads uploads;
  const UploadClaim claim{"root.17", 1000};
  uploads.Drop("/file", kNow, claim);
  EXPECT_TRUE(uploads.IsDropped("/file", claim, kNow));
  EXPECT_FALSE(uploads.IsDropped("/other", claim, kNow));
  EXPECT_FALSE(uploads.IsDropped("/file", {"root.18", 1000}, kNow)) << "another process";
  EXPECT_FALSE(uploads.IsDropped("/file", {"root.17", 1001}, kNow)) << "another file of it";
  EXPECT_FALSE(uploads.IsDropped("/file", claim, kNow + Uploads::kDropped));
  EXPECT_TRUE(uploads.RemoveDropped("/file", kNow));
  uploads.Creates(uploads.Begin("/file"), kInode, "root.18");
  EXPECT_TRUE(uploads.IsDropped("/file", claim, kNow)) << "what others do there is not its own";
  uploads.Creates(uploads.Begin("/file"), kInode, "root.17");
  EXPECT_FALSE(uploads.IsDropped("/file", claim, kNow)) << "it has begun anew";
}

TEST(Uploads, OfDroppedOnesTheLastAreRemembered) {
  Uploads uploads;
  for (size_t i = 0; i <= Uploads::kMostDropped; ++i) {
    uploads.Drop(fmt::format("/{}", i), kNow + kBlink * i);
  }
  const Time now = kNow + kBlink * Uploads::kMostDropped;
  EXPECT_FALSE(uploads.RemoveDropped("/0", now));
  EXPECT_TRUE(uploads.RemoveDropped("/1", now));
  EXPECT_TRUE(uploads.RemoveDropped(fmt::format("/{}", Uploads::kMostDropped), now));
}

TEST(ClientProcess, IsTheSameForAllItsConnections) {
  EXPECT_EQ(ClientProcess("root.17:32@localhost"), "root.17");
  EXPECT_EQ(ClientProcess("root.17:33@host.example.org"), "root.17");
  EXPECT_EQ(ClientProcess("odd"), "odd");
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
