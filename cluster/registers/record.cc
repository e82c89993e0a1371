#include "cluster/registers/record.h"

#include <utility>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kFormat = 1;
constexpr uint8_t kPresent = 1;  // flags; of the first two a value has at most one
constexpr uint8_t kRemoved = 2;
constexpr uint8_t kTakenOver = 4;
constexpr uint8_t kBound = 8;
constexpr uint8_t kInstead = 16;

void PutBallot(Writer& writer, const Ballot& ballot) {
  writer.U64(ballot.slot).U32(ballot.round).U64(ballot.proposer);
}

Ballot ReadBallot(Reader& reader) {
  Ballot ballot;
  ballot.slot = reader.U64();
  ballot.round = reader.U32();
  ballot.proposer = reader.U64();
  return ballot;
}

// Binds a value to its place, so that one found under another key or version is recognised.
uint32_t PlaceSum(std::string_view key, std::string_view version) {
  return Crc32c(AsBytes(version), Crc32c(AsBytes(key)));
}

std::string EncodeTag(std::string_view value) {
  return Writer().U32(Crc32c(AsBytes(value))).Take();
}

void PutBound(Writer& writer, const Bound& bound) {
  writer.U8(bound.least).U64(static_cast<uint64_t>(bound.proposed_at));
  writer.U8(bound.otherwise ? 1 : 0);
  if (bound.otherwise) writer.Text(*bound.otherwise);
}

Result<Bound> ReadBound(Reader& reader) {
  Bound bound{.least = reader.U8(),
              .otherwise = std::nullopt,
              .proposed_at = static_cast<int64_t>(reader.U64())};
  const uint8_t has_value = reader.U8();
  if (has_value == 1) bound.otherwise = std::string(reader.Text());
  if (reader.ok() && (bound.least == 0 || bound.proposed_at <= 0 || has_value > 1)) {
    return Fail(EBADMSG, "register: impossible contents");
  }
  return bound;
}

std::string EncodeValue(std::string_view key, std::string_view version, const Proposal& proposal) {
  Writer writer;
  const bool removed = !proposal.value.has_value() && proposal.removed_at != 0;
  uint8_t flags = proposal.value.has_value() ? kPresent : removed ? kRemoved : 0;
  if (proposal.former_slot != 0) flags |= kTakenOver;
  if (proposal.bound) flags |= kBound;
  if (proposal.is_instead) flags |= kInstead;
  writer.U8(kFormat).U8(flags);
  writer.U64(proposal.nonce.high).U64(proposal.nonce.low);
  writer.U8(static_cast<uint8_t>(proposal.earlier.size()));
  for (const uint64_t nonce : proposal.earlier) writer.U64(nonce);
  if (proposal.former_slot != 0) writer.U64(proposal.former_slot);
  if (proposal.bound) PutBound(writer, *proposal.bound);
  writer.U32(PlaceSum(key, version));
  if (proposal.value.has_value()) writer.Raw(*proposal.value);
  if (removed) writer.U64(static_cast<uint64_t>(proposal.removed_at));
  return writer.Take();
}

Result<Proposal> DecodeValue(std::string_view key, std::string_view version, Bytes value) {
  Reader reader(value);
  const uint8_t format = reader.U8();
  if (reader.ok() && format != kFormat) {
    return Fail(EBADMSG, "register of unknown format {}", format);
  }
  uint8_t flags = reader.U8();
  const bool taken_over = (flags & kTakenOver) != 0;
  const bool is_bound = (flags & kBound) != 0;
  const bool is_instead = (flags & kInstead) != 0;
  flags &= static_cast<uint8_t>(~(kTakenOver | kBound | kInstead));
  Proposal proposal{.is_instead = is_instead};
  proposal.nonce.high = reader.U64();
  proposal.nonce.low = reader.U64();
  const uint8_t earlier = reader.U8();
  for (int i = 0; i < earlier && reader.ok(); ++i) proposal.earlier.push_back(reader.U64());
  if (taken_over) proposal.former_slot = reader.U64();
  if (is_bound) proposal.bound = TRY(ReadBound(reader));
  const uint32_t place_sum = reader.U32();
  const std::string_view payload = reader.Rest();
  TRY(reader.Finish("register"));
  if (flags > kRemoved || earlier > kEarlierNonces || (flags == 0 && !payload.empty()) ||
      taken_over != (proposal.former_slot != 0) || (is_bound && flags != kPresent) ||
      (is_bound && is_instead)) {
    return Fail(EBADMSG, "register: impossible contents");
  }
  if (place_sum != PlaceSum(key, version)) {
    return Fail(EBADMSG, "register: the value belongs to another key or version");
  }
  if (flags == kPresent) proposal.value = std::string(payload);
  if (flags == kRemoved) {
    Reader time(payload);
    proposal.removed_at = static_cast<int64_t>(time.U64());
    TRY(time.Finish("time of removal"));
    if (proposal.removed_at <= 0) return Fail(EBADMSG, "register: impossible contents");
  }
  return proposal;
}

}  // namespace

const ProposalPtr& NeverWritten() {
  static const ProposalPtr never = std::make_shared<const Proposal>();
  return never;
}

std::string EncodeRegisterVersion(const Ballot& promised, const Ballot& accepted) {
  if (promised == Ballot() && accepted == Ballot()) return {};
  Writer writer;
  PutBallot(writer, promised);
  PutBallot(writer, accepted);
  return writer.Take();
}

Drive::PutRequest EncodeRegisterPut(const std::string& key, std::string expected,
                                    const ReplicaState& next, Durability durability, Room room) {
  std::string version = EncodeRegisterVersion(next.promised, next.accepted);
  std::string value = EncodeValue(key, version, *next.proposal);
  std::string tag = EncodeTag(value);
  return {.key = key,
          .value = SharedBytes(std::move(value)),
          .version = std::move(version),
          .tag = std::move(tag),
          .expected = Expected::Version(std::move(expected)),
          .durability = durability,
          .room = room};
}

Result<ReplicaState> DecodeRegister(std::string_view key, const Record& record) {
  if (record.tag != EncodeTag(record.value.text())) {
    return Fail(EBADMSG, "register: the value does not match its checksum");
  }
  Reader reader(record.version);
  ReplicaState state;
  state.promised = ReadBallot(reader);
  state.accepted = ReadBallot(reader);
  TRY(reader.Finish("register version"));
  if (state.promised < state.accepted || state.promised == Ballot()) {
    return Fail(EBADMSG, "register: impossible version {}", Hex(AsBytes(record.version)));
  }
  state.proposal =
      std::make_shared<const Proposal>(TRY(DecodeValue(key, record.version, record.value)));
  if (state.proposal->former_slot != 0 && state.proposal->former_slot >= state.accepted.slot) {
    return Fail(EBADMSG, "register: it was taken over from slot {} into slot {}",
                state.proposal->former_slot, state.accepted.slot);
  }
  return state;
}

}  // namespace pinstripe
