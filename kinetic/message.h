// Messages: the signed envelope around a command, and what Kinetic's status codes mean here.
//
// The generated classes stay behind forward declarations: only sources that build or read commands
// include "kinetic/kinetic.pb.h".

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "kinetic/hmac.h"

namespace pinstripe {

namespace kinetic {
class Command;
class KeyValue;
class Message;
class Status;
}  // namespace kinetic

// The vendor's log in which a drive names what it can do beyond the Kinetic core
// (docs/protocol.md).
inline constexpr std::string_view kCapabilitiesLog = "io.pinstripe.capabilities";
inline constexpr std::string_view kRangeGetCapability = "range_get 1";
inline constexpr std::string_view kVersionPartCapability = "version_part 1";
inline constexpr std::string_view kRangeRecordsCapability = "range_records 1";
inline constexpr std::string_view kRoomsCapability = "rooms 1";
inline constexpr std::string_view kUnerasedCapability = "unerased 1";
inline constexpr std::string_view kChecksumScanCapability = "checksum_scan 1";
inline constexpr std::string_view kBoundCapability = "bound 1";
inline constexpr std::string_view kClientsCapability = "clients 1";
inline constexpr std::string_view kSlowCapability = "slow 1";
inline constexpr std::string_view kGuardsCapability = "guards 1";
inline constexpr std::string_view kPutsCapability = "puts 1";
inline constexpr std::string_view kThenGetsCapability = "then_gets 1";
inline constexpr std::string_view kGetsCapability = "gets 1";

// So many puts may be in one message.
inline constexpr size_t kMostPutsTogether = 64;
// So many of them may be followed by a read, and an answer has so many bytes of their values.
inline constexpr size_t kMostThenGetsTogether = 8;
inline constexpr size_t kMostThenGetBytes = 64 << 10;
// So many gets may be in one message, and an answer has so many bytes of their values.
inline constexpr size_t kMostGetsTogether = 64;
inline constexpr size_t kMostGetBytes = 64 << 10;

// The vendor's log of who uses a drive, and of what it did for them.
inline constexpr std::string_view kClientsLog = "io.pinstripe.clients";
// And of what took long.
inline constexpr std::string_view kSlowLog = "io.pinstripe.slow";

// Complete frames except for the value, which is sent after them as it lies. The command's message
// must not be longer than kMaxMessageBytes.
std::string SignedFrame(const kinetic::Command& command, int64_t identity, const HmacKey& key,
                        size_t value_bytes);
// What only a device sends, and nobody can sign or check.
enum class Unsigned {
  kUnsolicited,      // its greeting, and its last words
  kPinAnswer,        // the answer to a PIN operation
  kUnknownIdentity,  // the answer to an identity it has no key for
};
std::string UnsignedFrame(Unsigned kind, const kinetic::Command& command);

// EBADMSG: the bytes are not such a message.
Status ParseMessage(Bytes bytes, kinetic::Message* message);
Status ParseCommand(const kinetic::Message& message, kinetic::Command* command);

// Whether the message carries a signature and it is right.
bool Authentic(const kinetic::Message& message, const HmacKey& key);

// A drive's answer, as drive.h says it: an errno and a sentence. Success when the code is SUCCESS.
pinstripe::Status StatusOfAnswer(const kinetic::Status& answer);

// Whether an answer speaks of the record that was asked for. A device that mixes up its answers
// must not go unnoticed: what it says of a record it says with the key. EBADMSG.
pinstripe::Status CheckAnsweredKey(const std::string& asked, const kinetic::KeyValue& entry);

// The Kinetic code (kinetic::Status::Code) that tells a client about this failure.
int StatusCodeFor(const pinstripe::Status& status);
// Has an answer say it, with its sentence where it is a failure.
void SetStatus(const pinstripe::Status& status, kinetic::Status* said);

std::string_view StatusCodeName(int code);  // "NOT_FOUND"; "unknown status" for other numbers

}  // namespace pinstripe
