// Both ends of a connection, given bytes that no Kinetic peer sends.

#include <gtest/gtest.h>

#include <set>

#include "drive/drive.h"
#include "drive/engine.h"
#include "drive/frame.h"
#include "drive/kinetic.pb.h"
#include "drive/kinetic_service.h"
#include "drive/memory_store.h"
#include "drive/message.h"
#include "tests/fuzz/mutator.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/support/expect_ok.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

const int kInputs = FuzzInputs();

TEST(HostileBytes, AreRefusedByTheFrameReaderOrCutIntoFramesThatFit) {
  std::vector<std::string> streams;
  std::string everything;
  for (const KineticVector& vector : kKineticVectors) {
    streams.push_back(Unhex(vector.request) + Unhex(vector.response));
    everything += Unhex(vector.request);
  }
  streams.push_back(everything);
  Mutator mutator(streams, /*seed=*/1);
  int refused = 0;
  uint64_t frames = 0;
  for (int i = 0; i < kInputs; ++i) {
    const std::string stream = mutator.Next();
    FrameReader reader;
    Bytes rest = AsBytes(stream);
    while (!rest.empty()) {
      iovec space[2];
      const int places = reader.Space(space);
      ASSERT_GE(places, 1);
      size_t room = space[0].iov_len + (places > 1 ? space[1].iov_len : 0);
      ASSERT_GT(room, 0u);
      ASSERT_LE(room, kMaxValueBytes + kMaxAcceptedMessageBytes + kLargeFrameStageBytes);
      const size_t count = std::min<size_t>({rest.size(), room, 1 + mutator.Below(300)});
      const size_t first = std::min(count, space[0].iov_len);
      std::memcpy(space[0].iov_base, rest.data(), first);
      if (count > first) std::memcpy(space[1].iov_base, rest.data() + first, count - first);
      reader.Filled(count);
      rest = rest.subspan(count);

      Result<std::optional<Frame>> frame = reader.Next();
      while (frame.has_value() && frame->has_value()) {
        ++frames;
        ASSERT_LE((*frame)->message.size(), kMaxAcceptedMessageBytes);
        ASSERT_EQ((*frame)->value.size(), (*frame)->value_bytes);
        frame = reader.Next();
      }
      if (frame.has_value()) continue;
      ASSERT_EQ(frame.error().code(), EBADMSG);
      ++refused;
      break;
    }
  }
  EXPECT_GT(refused, kInputs / 10);
  EXPECT_GT(frames, static_cast<uint64_t>(kInputs) / 10);
}

std::string_view MessageOf(std::string_view frame) {
  const Result<FrameHeader> header = DecodeFrameHeader(AsBytes(frame).first<kFrameHeaderBytes>());
  EXPECT_OK(header);
  return frame.substr(kFrameHeaderBytes, header->message_bytes);
}

TEST(HostileBytes, AreNoMessageThatIsSignedRightly) {
  const HmacKey key("asdfasdf");
  std::vector<std::string> messages;
  for (const KineticVector& vector : kKineticVectors) {
    messages.emplace_back(MessageOf(Unhex(vector.request)));
    messages.emplace_back(MessageOf(Unhex(vector.response)));
  }
  const auto command_of = [](const kinetic::Message& message) { return message.commandbytes(); };
  std::set<std::string> signed_commands;
  for (const std::string& bytes : messages) {
    kinetic::Message message;
    ASSERT_OK(ParseMessage(AsBytes(bytes), &message));
    signed_commands.insert(command_of(message));
  }
  Mutator mutator(messages, /*seed=*/1);
  int parsed = 0;
  for (int i = 0; i < kInputs; ++i) {
    const std::string bytes = mutator.Next();
    kinetic::Message message;
    const Status status = ParseMessage(AsBytes(bytes), &message);
    if (!status.ok()) {
      ASSERT_EQ(status.code(), EBADMSG);
      continue;
    }
    ++parsed;
    // Whatever was changed, what passes for signed was signed by somebody who has the key.
    ASSERT_TRUE(!Authentic(message, key) || signed_commands.contains(command_of(message)));
  }
  EXPECT_GT(parsed, kInputs / 10);
}

// Even who has the key cannot harm the daemon: whatever command is executed, there is one answer,
// and it can be sent.
TEST(HostileCommands, AreAnsweredByTheService) {
  std::vector<std::string> commands;
  for (const KineticVector& vector : kKineticVectors) {
    commands.push_back(Unhex(vector.request_command));
    commands.push_back(Unhex(vector.response_command));
  }
  Engine engine(std::make_unique<MemoryStore>());
  DeviceSecurity security({{1, FullAccess("asdfasdf")}});
  KineticService service({"serial", "name"}, security, engine);

  Mutator mutator(commands, /*seed=*/1);
  int executed = 0;
  int succeeded = 0;
  for (int i = 0; i < kInputs; ++i) {
    kinetic::Command request;
    if (!request.ParseFromString(mutator.Next())) continue;
    kinetic::Command answer;
    if (security.has_own_identities()) security.Reset();  // it may have no rights any more
    const KineticService::Caller caller{.identity = security.Find(1), .tls = i % 2 == 0};
    const SharedBytes value =
        service.Execute(caller, request, SharedBytes(std::string(mutator.Below(20), 'v')), &answer)
            .value;
    ASSERT_TRUE(answer.status().has_code());
    ASSERT_LE(answer.ByteSizeLong(), kMaxMessageBytes);
    ASSERT_LE(value.size(), kMaxValueBytes);
    ++executed;
    if (answer.status().code() == kinetic::Status::SUCCESS) ++succeeded;
  }
  EXPECT_GT(executed, kInputs / 10);
  EXPECT_GT(succeeded, kInputs / 100) << "nothing got beyond the checks";
}

}  // namespace
}  // namespace pinstripe
