// The wire of a drive.

#include <algorithm>
#include <set>

#include "base/utf8.h"
#include "daemon/engine.h"
#include "daemon/kinetic_service.h"
#include "drive/drive.h"
#include "kinetic/covering_tag.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/operation.h"
#include "kinetic/slow_messages.h"
#include "store/memory_store.h"
#include "tests/fuzz/inputs.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

constexpr std::string_view kKey = "asdfasdf";

std::string MessageOf(const std::string& frame) {
  const Result<FrameHeader> header = DecodeFrameHeader(AsBytes(frame).first<kFrameHeaderBytes>());
  return header.has_value() ? frame.substr(kFrameHeaderBytes, header->message_bytes) : "";
}

const std::set<std::string>& SignedCommands() {
  static const auto commands = [] {
    std::set<std::string> all;
    for (const std::string& bytes : ExampleMessages()) {
      kinetic::Message message;
      if (ParseMessage(AsBytes(bytes), &message).ok()) all.insert(message.commandbytes());
    }
    return all;
  }();
  return commands;
}

}  // namespace

std::string CutIntoFrames(Bytes stream, const std::function<uint64_t(uint64_t most)>& random,
                          const std::function<std::string(Bytes message, Bytes value)>& take,
                          StreamCount* count) {
  FrameReader reader;
  while (!stream.empty()) {
    iovec space[2];
    const int places = reader.Space(space);
    const size_t room = space[0].iov_len + (places > 1 ? space[1].iov_len : 0);
    if (room == 0) return "there is no room for more";
    if (room > kMaxValueBytes + kMaxAcceptedMessageBytes + kLargeFrameStageBytes) {
      return fmt::format("room for {} bytes", room);
    }
    const size_t piece = std::min<size_t>({stream.size(), room, random(300)});
    const size_t first = std::min(piece, space[0].iov_len);
    std::memcpy(space[0].iov_base, stream.data(), first);
    if (piece > first) std::memcpy(space[1].iov_base, stream.data() + first, piece - first);
    reader.Filled(piece);
    stream = stream.subspan(piece);

    Result<std::optional<Frame>> frame = reader.Next();
    while (frame.has_value() && frame->has_value()) {
      ++count->frames;
      const Frame& got = **frame;
      if (got.message.size() > kMaxAcceptedMessageBytes) return "the message is too long";
      if (!got.value_dropped && got.value.size() != got.value_bytes) return "half a value";
      if (got.value_dropped && got.value_bytes <= kMaxValueBytes) return "a value was dropped";
      if (const std::string wrong = take(got.message, got.value); !wrong.empty()) return wrong;
      frame = reader.Next();
    }
    if (frame.has_value()) continue;
    if (frame.error().code() != EBADMSG) return std::string(frame.error().message());
    count->refused = true;
    break;
  }
  return "";
}

Examples ExampleStreams() {
  Examples streams;
  std::string everything;
  for (const KineticVector& vector : kKineticVectors) {
    streams.push_back(Unhex(vector.request) + Unhex(vector.response));
    everything += Unhex(vector.request);
  }
  streams.push_back(everything);
  return streams;
}

std::string TryMessage(Bytes bytes, bool* parsed) {
  static const HmacKey key(kKey);
  kinetic::Message message;
  const Status status = ParseMessage(bytes, &message);
  *parsed = status.ok();
  if (!status.ok()) {
    return status.code() == EBADMSG ? "" : fmt::format("refused with {}", status.message());
  }
  // Whatever was changed, what passes for signed was signed by somebody who has the key.
  if (!Authentic(message, key) || SignedCommands().contains(message.commandbytes())) return "";
  return "a signature that nobody made";
}

Examples ExampleMessages() {
  Examples messages;
  for (const KineticVector& vector : kKineticVectors) {
    messages.push_back(MessageOf(Unhex(vector.request)));
    messages.push_back(MessageOf(Unhex(vector.response)));
  }
  return messages;
}

namespace {

// What a client tells a device of what took long, told on as it is: by the device in an answer that
// can be sent, and to whoever asks for it as text that can be shown.
std::string TellSlow(SlowLog& slow, const kinetic::GetLog& said) {
  const auto client = std::make_shared<ConnectedClient>("10.0.0.1:50", false, 1, Time());
  slow.Hear(client, said, Time());
  kinetic::Body body;
  *body.mutable_getlog() = said;
  slow.Fill(Time(), body.mutable_getlog());
  if (body.ByteSizeLong() > kMaxMessageBytes) return "a log that is too long to be sent";
  std::string wrong;
  const auto look = [&wrong](const Result<DriveSlow>& told) {
    if (!told.has_value()) wrong = "a log that is not understood";
    for (const ToldOperation& each : told.value_or(DriveSlow()).operations) {
      const SlowOperation& operation = each.operation;
      for (const std::string& text : {operation.operation, operation.subject}) {
        if (Printable(text, text.size()) != text) wrong = "text that cannot be shown";
      }
      if (operation.requests.size() > SlowOperation::kMostRequests) wrong = "too many requests";
      if (operation.took < Duration() || operation.ago < Duration()) wrong = "a time below zero";
    }
  };
  NewAskSlow(Time::max(), look)
      ->Finish(KineticAnswer{
          .body = &body, .value = {}, .capabilities = {.slow = true}, .drive = "drive"});
  return wrong;
}

}  // namespace

namespace {

bool IsSignedFor(const kinetic::KeyValue& entry, std::string_view value) {
  if (value.empty() && entry.tag().empty()) return true;
  return entry.algorithm() == 4 && entry.tag() == CoveringTag(AsBytes(value));
}

// What a device has said of several puts that it took.
std::string LookAtPuts(const kinetic::Command& request, const kinetic::Command& answer,
                       std::string_view values, size_t read_value_bytes,
                       ObedientDevice::Count* count) {
  const kinetic::Puts& asked = request.body().puts();
  const kinetic::Puts& told = answer.body().puts();
  uint64_t read_bytes = 0;
  for (const kinetic::Puts::Record& record : told.records()) {
    read_bytes += record.read().valuebytes();
    if (!record.has_read()) continue;
    if (record.status().code() != kinetic::Status::SUCCESS) return "a read behind no put";
    ++count->then_gets;
  }
  if (read_bytes != read_value_bytes) return "an answer that does not tell whose its value is";
  if (read_bytes > kMostThenGetBytes) return "more is read after puts than may be";
  if (told.records_size() != asked.records_size()) return "not every put has an answer";
  for (int i = 0; i < told.records_size(); ++i) {
    const std::string_view value = values.substr(0, asked.records(i).valuebytes());
    values.remove_prefix(value.size());
    if (value.size() != asked.records(i).valuebytes()) return "a value was taken that did not come";
    if (!told.records(i).status().has_code()) return "a put without a status";
    if (told.records(i).status().code() != kinetic::Status::SUCCESS) continue;
    ++count->puts_together;
    const bool may = !request.header().bound() || IsSignedFor(asked.records(i).keyvalue(), value);
    if (!may) return "a value was stored that nobody has signed for";
  }
  return values.empty() ? "" : "a value came that is nobody's";
}

// And of several gets.
std::string LookAtGets(const kinetic::Command& request, const kinetic::Command& answer,
                       size_t value_bytes, ObedientDevice::Count* count) {
  const kinetic::Gets& told = answer.body().gets();
  if (told.reads_size() != request.body().gets().keys_size()) return "not every get has an answer";
  uint64_t bytes = 0;
  for (const kinetic::Puts::Read& read : told.reads()) {
    if (!read.status().has_code()) return "a get without a status";
    bytes += read.valuebytes();
    ++count->gets_together;
  }
  if (bytes != value_bytes) return "an answer that does not tell whose its value is";
  return bytes > kMostGetBytes ? "more is read in one message than may be" : "";
}

}  // namespace

struct ObedientDevice::Parts {
  Engine engine{std::make_unique<MemoryStore>()};
  DeviceSecurity security{{{1, FullAccess(std::string(kKey))}}};
  KineticService service{{"serial", "name"}, security, engine};
};

ObedientDevice::ObedientDevice() : parts_(std::make_unique<Parts>()) {}
ObedientDevice::~ObedientDevice() = default;

std::string ObedientDevice::Execute(Bytes command, std::string value, bool tls, Count* count) {
  kinetic::Command request;
  if (!request.ParseFromArray(command.data(), static_cast<int>(command.size()))) return "";
  kinetic::Command answer;
  if (parts_->security.has_own_identities()) parts_->security.Reset();  // perhaps without rights
  const KineticService::Caller caller{.identity = parts_->security.Find(1),
                                      .tls = tls,
                                      .cluster_version = parts_->security.cluster_version()};
  const kinetic::GetLog& log = request.body().getlog();
  if (log.slowoperations_size() > 0) {
    ++count->told;
    if (std::string wrong = TellSlow(parts_->service.slow(), log); !wrong.empty()) return wrong;
  }
  const std::string sent = value;
  const SharedBytes out =
      parts_->service.Execute(caller, request, SharedBytes(std::move(value)), &answer).value;
  if (!answer.status().has_code()) return "an answer without a status";
  if (answer.ByteSizeLong() > kMaxMessageBytes) return "an answer that is too long to be sent";
  if (out.size() > kMaxValueBytes) return "a value that is too long to be sent";
  ++count->executed;
  if (answer.status().code() != kinetic::Status::SUCCESS) return "";
  ++count->succeeded;
  const kinetic::Header& header = request.header();
  if (header.messagetype() == kinetic::Header::PUTS)
    return LookAtPuts(request, answer, sent, out.size(), count);
  if (header.messagetype() == kinetic::Header::GETS)
    return LookAtGets(request, answer, out.size(), count);
  if (!header.bound() || header.messagetype() != kinetic::Header::PUT) return "";
  ++count->bound_puts;
  if (IsSignedFor(request.body().keyvalue(), sent)) return "";
  return "a value was stored that nobody has signed for";
}

Examples ExampleCommands() {
  Examples commands;
  for (const KineticVector& vector : kKineticVectors) {
    commands.push_back(Unhex(vector.request_command));
    commands.push_back(Unhex(vector.response_command));
  }
  // As our own client puts it.
  kinetic::Command put;
  put.mutable_header()->set_connectionid(1000);
  put.mutable_header()->set_sequence(uint64_t{1} << 61);
  put.mutable_header()->set_messagetype(kinetic::Header::PUT);
  put.mutable_header()->set_bound(true);
  put.mutable_body()->mutable_keyvalue()->set_key("k");
  put.mutable_body()->mutable_keyvalue()->set_force(true);
  put.mutable_body()->mutable_keyvalue()->set_algorithm(4);
  for (const size_t size : {0, 1, 2, 3}) {
    const std::string value(size, 'v');
    put.mutable_body()->mutable_keyvalue()->set_tag(CoveringTag(AsBytes(value)));
    commands.push_back(put.SerializeAsString());
  }
  for (const std::string guard : {"g", "k", ""}) {
    put.mutable_body()->mutable_keyvalue()->mutable_guard()->set_key(guard);
    commands.push_back(put.SerializeAsString());
    put.mutable_body()->mutable_keyvalue()->mutable_guard()->set_version("v");
    commands.push_back(put.SerializeAsString());
  }
  // Several, for values of different lengths, with tags that are right for some of them.
  for (const size_t size : {0, 1, 5, 9}) {
    kinetic::Command puts;
    puts.mutable_header()->set_messagetype(kinetic::Header::PUTS);
    puts.mutable_header()->set_bound(size % 2 == 1);
    for (const char* key : {"k", "g", "k"}) {
      kinetic::Puts::Record* record = puts.mutable_body()->mutable_puts()->add_records();
      *record->mutable_keyvalue() = put.body().keyvalue();
      record->mutable_keyvalue()->set_key(key);
      record->mutable_keyvalue()->mutable_guard()->set_key("nothing");
      record->mutable_keyvalue()->mutable_guard()->clear_version();
      record->mutable_keyvalue()->set_tag(CoveringTag(AsBytes(std::string(size / 3, 'v'))));
      record->set_valuebytes(static_cast<uint32_t>(size / 3));
    }
    commands.push_back(puts.SerializeAsString());
    puts.mutable_body()->mutable_puts()->mutable_records(0)->set_thenget("k");
    puts.mutable_body()->mutable_puts()->mutable_records(1)->set_thenget("none");
    puts.mutable_body()->mutable_puts()->mutable_records(2)->set_valuebytes(
        static_cast<uint32_t>(size - 2 * (size / 3)));
    commands.push_back(puts.SerializeAsString());
  }
  for (const size_t count : {1, 2, 5}) {
    kinetic::Command gets;
    gets.mutable_header()->set_messagetype(kinetic::Header::GETS);
    for (size_t i = 0; i < count; ++i) {
      gets.mutable_body()->mutable_gets()->add_keys(i % 2 == 0 ? "k" : "none");
    }
    commands.push_back(gets.SerializeAsString());
  }
  kinetic::Command log;
  log.mutable_header()->set_messagetype(kinetic::Header::GETLOG);
  kinetic::GetLog::SlowOperation* slow = log.mutable_body()->mutable_getlog()->add_slowoperations();
  FillSlowOperation({.id = 1,
                     .operation = "read",
                     .subject = "inode 9",
                     .took = std::chrono::seconds(2),
                     .requests = {{.drive = 3, .waited = {.connection = 4, .sequence = 5}}}},
                    slow);
  commands.push_back(log.SerializeAsString());
  return commands;
}

}  // namespace pinstripe
