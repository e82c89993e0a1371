// Both ends of a connection, given bytes that no Kinetic peer sends.

#include <gtest/gtest.h>

#include "tests/fuzz/inputs.h"
#include "tests/fuzz/mutator.h"

namespace pinstripe {
namespace {

const int kInputs = FuzzInputs();

TEST(HostileBytes, AreRefusedByTheFrameReaderOrCutIntoFramesThatFit) {
  Mutator mutator(ExampleStreams(), /*seed=*/1);
  int refused = 0;
  uint64_t frames = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Buffer stream = Buffer::CopyOf(AsBytes(mutator.Next()));
    StreamCount count;
    ASSERT_EQ(CutIntoFrames(
                  stream, [&](uint64_t most) { return 1 + mutator.Below(most); },
                  [](Bytes, Bytes) { return std::string(); }, &count),
              "")
        << Hex(stream);
    frames += count.frames;
    refused += count.refused;
  }
  EXPECT_GT(refused, kInputs / 10);
  EXPECT_GT(frames, static_cast<uint64_t>(kInputs) / 10);
}

TEST(HostileBytes, AreNoMessageThatIsSignedRightly) {
  Mutator mutator(ExampleMessages(), /*seed=*/1);
  int count = 0;
  for (int i = 0; i < kInputs; ++i) {
    const Buffer bytes = Buffer::CopyOf(AsBytes(mutator.Next()));
    bool parsed = false;
    ASSERT_EQ(TryMessage(bytes, &parsed), "") << Hex(bytes);
    count += parsed;
  }
  EXPECT_GT(count, kInputs / 10);
}

TEST(HostileCommands, OfTheRedisProtocolAreAnsweredOnceOrRefused) {
  ObedientRespDevice device;
  Mutator mutator(ExampleRespStreams(), /*seed=*/1);
  ObedientRespDevice::Count count;
  for (int i = 0; i < kInputs; ++i) {
    const Buffer stream = Buffer::CopyOf(AsBytes(mutator.Next()));
    ASSERT_EQ(device.Execute(
                  stream, [&](uint64_t most) { return 1 + mutator.Below(most); }, &count),
              "")
        << Hex(stream);
  }
  const auto inputs = static_cast<uint64_t>(kInputs);
  EXPECT_GT(count.commands, inputs / 2);
  EXPECT_GT(count.failures, inputs / 100);
  EXPECT_GT(count.refused, inputs / 10);
}

// Even who has the key cannot harm the daemon.
TEST(HostileCommands, AreAnsweredByTheService) {
  ObedientDevice device;
  Mutator mutator(ExampleCommands(), /*seed=*/1);
  ObedientDevice::Count count;
  for (int i = 0; i < kInputs; ++i) {
    const Buffer command = Buffer::CopyOf(AsBytes(mutator.Next()));
    const std::string value(mutator.Below(20), 'v');
    ASSERT_EQ(device.Execute(command, value, /*tls=*/i % 2 == 0, &count), "") << Hex(command);
  }
  EXPECT_GT(count.executed, kInputs / 10);
  EXPECT_GT(count.succeeded, kInputs / 100) << "nothing got beyond the checks";
  EXPECT_GT(count.bound_puts, 0);
  EXPECT_GT(count.puts_together, 0);
  EXPECT_GT(count.then_gets, 0);
  EXPECT_GT(count.gets_together, 0);
  EXPECT_GT(count.told, 0);
}

}  // namespace
}  // namespace pinstripe
