#include "kinetic/message.h"

#include <cassert>

#include "base/utf8.h"
#include "kinetic/frame.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {
namespace {

using Code = kinetic::Status;

struct Meaning {
  int code;
  int error;  // 0: success
  std::string_view name;
  std::string_view sentence;
};

// One line per code of the protocol. Several codes share an errno because nobody acts differently
// on them; the name in the message tells them apart.
constexpr Meaning kMeanings[] = {
    {Code::NOT_ATTEMPTED, EIO, "NOT_ATTEMPTED", "skipped because of an earlier failure"},
    {Code::SUCCESS, 0, "SUCCESS", "done"},
    {Code::HMAC_FAILURE, EACCES, "HMAC_FAILURE", "wrong key, or an identity it does not know"},
    {Code::NOT_AUTHORIZED, EACCES, "NOT_AUTHORIZED", "not allowed for this identity"},
    {Code::VERSION_FAILURE, EHOSTUNREACH, "VERSION_FAILURE", "it has another cluster version"},
    {Code::INTERNAL_ERROR, EIO, "INTERNAL_ERROR", "it failed"},
    {Code::HEADER_REQUIRED, EIO, "HEADER_REQUIRED", "it missed the request's header"},
    {Code::NOT_FOUND, ENOENT, "NOT_FOUND", "no such key"},
    {Code::VERSION_MISMATCH, ESTALE, "VERSION_MISMATCH", "the entry has another version"},
    {Code::SERVICE_BUSY, ETIMEDOUT, "SERVICE_BUSY", "too busy"},
    {Code::EXPIRED, ETIMEDOUT, "EXPIRED", "it took too long"},
    {Code::DATA_ERROR, EBADMSG, "DATA_ERROR", "its record cannot be read now"},
    {Code::PERM_DATA_ERROR, EBADMSG, "PERM_DATA_ERROR", "its record is damaged"},
    {Code::REMOTE_CONNECTION_ERROR, EIO, "REMOTE_CONNECTION_ERROR", "it cannot reach its peer"},
    {Code::NO_SPACE, ENOSPC, "NO_SPACE", "full"},
    {Code::NO_SUCH_HMAC_ALGORITHM, EINVAL, "NO_SUCH_HMAC_ALGORITHM", "unknown HMAC algorithm"},
    {Code::INVALID_REQUEST, EINVAL, "INVALID_REQUEST", "it refuses the request as invalid"},
    {Code::NESTED_OPERATION_ERRORS, EIO, "NESTED_OPERATION_ERRORS", "a part of it failed"},
    {Code::DEVICE_LOCKED, EACCES, "DEVICE_LOCKED", "locked; unlock it with its PIN"},
    {Code::DEVICE_ALREADY_UNLOCKED, EIO, "DEVICE_ALREADY_UNLOCKED", "not locked"},
    {Code::CONNECTION_TERMINATED, EHOSTUNREACH, "CONNECTION_TERMINATED", "it hangs up"},
    {Code::INVALID_BATCH, EINVAL, "INVALID_BATCH", "the batch failed"},
    {Code::HIBERNATE, EHOSTUNREACH, "HIBERNATE", "it hibernates"},
    {Code::SHUTDOWN, EHOSTUNREACH, "SHUTDOWN", "it is shut down"},
    {Code::GUARD_MISMATCH, ECANCELED, "GUARD_MISMATCH", "the entry's guard has another version"},
};

const Meaning* MeaningOf(int code) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.code == code) return &meaning;
  }
  return nullptr;
}

constexpr size_t kMostPeerText = 200;  // bytes of a peer's message in ours

std::string WithFrameHeader(const kinetic::Message& message, size_t value_bytes) {
  const size_t message_bytes = message.ByteSizeLong();
  assert(message_bytes <= kMaxMessageBytes);
  const auto header =
      EncodeFrameHeader({static_cast<uint32_t>(message_bytes), static_cast<uint32_t>(value_bytes)});
  std::string frame;
  frame.reserve(header.size() + message_bytes);
  frame.append(AsText(header));
  message.AppendToString(&frame);
  return frame;
}

}  // namespace

std::string SignedFrame(const kinetic::Command& command, int64_t identity, const HmacKey& key,
                        size_t value_bytes) {
  // Its strings have room already. One that grew large is not kept.
  constexpr size_t kMostKept = 16 << 10;
  thread_local kinetic::Message kept;
  kinetic::Message large;
  kinetic::Message& message = command.ByteSizeLong() > kMostKept ? large : kept;
  message.set_authtype(kinetic::Message::HMACAUTH);
  command.SerializeToString(message.mutable_commandbytes());
  const Hmac hmac = key.Sign(AsBytes(message.commandbytes()));
  message.mutable_hmacauth()->set_identity(identity);
  message.mutable_hmacauth()->set_hmac(hmac.data(), hmac.size());
  return WithFrameHeader(message, value_bytes);
}

std::string UnsignedFrame(Unsigned kind, const kinetic::Command& command) {
  kinetic::Message message;
  switch (kind) {
    case Unsigned::kUnsolicited: message.set_authtype(kinetic::Message::UNSOLICITEDSTATUS); break;
    case Unsigned::kPinAnswer: message.set_authtype(kinetic::Message::PINAUTH); break;
    case Unsigned::kUnknownIdentity: message.set_authtype(kinetic::Message::HMACAUTH); break;
  }
  command.SerializeToString(message.mutable_commandbytes());
  return WithFrameHeader(message, 0);
}

Status ParseMessage(Bytes bytes, kinetic::Message* message) {
  if (message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return {};
  return Fail(EBADMSG, "a message of {} bytes is not Kinetic", bytes.size());
}

Status ParseCommand(const kinetic::Message& message, kinetic::Command* command) {
  if (command->ParseFromString(message.commandbytes())) return {};
  return Fail(EBADMSG, "a command of {} bytes is not Kinetic", message.commandbytes().size());
}

bool Authentic(const kinetic::Message& message, const HmacKey& key) {
  return message.authtype() == kinetic::Message::HMACAUTH &&
         key.Verify(AsBytes(message.commandbytes()), AsBytes(message.hmacauth().hmac()));
}

Status StatusOfAnswer(const kinetic::Status& answer) {
  // Without a code, or with one that this protocol does not have: proto2 leaves it out.
  const int code = answer.has_code() ? answer.code() : Code::INVALID_STATUS_CODE;
  const Meaning* meaning = MeaningOf(code);
  if (meaning == nullptr) return Fail(EIO, "it answered with an unknown status");
  if (meaning->error == 0) return {};
  if (answer.statusmessage().empty()) {
    return Fail(meaning->error, "{} ({})", meaning->sentence, meaning->name);
  }
  return Fail(meaning->error, "{} ({}: {})", meaning->sentence, meaning->name,
              Printable(answer.statusmessage(), kMostPeerText));
}

Status CheckAnsweredKey(const std::string& asked, const kinetic::KeyValue& entry) {
  if (!entry.has_key()) return Fail(EBADMSG, "it answered without the key that was asked for");
  if (entry.key() == asked) return {};
  return Fail(EBADMSG, "it answered with another key than the one that was asked for");
}

int StatusCodeFor(const Status& status) {
  switch (status.code()) {
    case 0: return Code::SUCCESS;
    case ENOENT: return Code::NOT_FOUND;
    case ESTALE: return Code::VERSION_MISMATCH;
    case ECANCELED: return Code::GUARD_MISMATCH;
    case EBADMSG: return Code::PERM_DATA_ERROR;
    case ENOSPC:
    case EDQUOT: return Code::NO_SPACE;
    case EINVAL: return Code::INVALID_REQUEST;
    case EACCES: return Code::NOT_AUTHORIZED;
    case EPROTONOSUPPORT: return Code::NO_SUCH_HMAC_ALGORITHM;
    case EBUSY: return Code::SERVICE_BUSY;
    case EREMCHG: return Code::VERSION_FAILURE;
    case ECONNABORTED: return Code::CONNECTION_TERMINATED;
    case ETIMEDOUT: return Code::EXPIRED;
    default: return Code::INTERNAL_ERROR;
  }
}

void SetStatus(const Status& status, kinetic::Status* said) {
  said->set_code(static_cast<Code::Code>(StatusCodeFor(status)));
  if (!status.ok()) said->set_statusmessage(std::string(status.message()));
}

std::string_view StatusCodeName(int code) {
  const Meaning* meaning = MeaningOf(code);
  return meaning != nullptr ? meaning->name : "unknown status";
}

}  // namespace pinstripe
