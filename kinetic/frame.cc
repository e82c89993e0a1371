#include "kinetic/frame.h"

#include <algorithm>
#include <cassert>

#include "base/try.h"
#include "drive/drive.h"

namespace pinstripe {
namespace {

constexpr std::byte kMagic{'F'};
constexpr size_t kSmallValueBytes = 16 << 10;  // that may be copied when it came with others
constexpr size_t kDrainBytes = 64 << 10;       // at a time, of values that are thrown away

void StoreU32(std::byte* target, uint32_t value) {
  for (int i = 0; i < 4; ++i) target[i] = static_cast<std::byte>(value >> (24 - 8 * i));
}

uint32_t LoadU32(const std::byte* source) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(source[i]);
  return value;
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(FrameHeader header) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  bytes[0] = kMagic;
  StoreU32(&bytes[1], header.message_bytes);
  StoreU32(&bytes[5], header.value_bytes);
  return bytes;
}

Result<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  if (bytes[0] != kMagic) {
    return Fail(EBADMSG, "not Kinetic: a frame begins with byte {:#04x} instead of 0x46",
                std::to_integer<unsigned>(bytes[0]));
  }
  const FrameHeader header{LoadU32(&bytes[1]), LoadU32(&bytes[5])};
  if (header.message_bytes > kMaxAcceptedMessageBytes) {
    return Fail(EBADMSG, "a frame announces a message of {} bytes; the limit is {}",
                header.message_bytes, kMaxMessageBytes);
  }
  if (header.value_bytes > kMaxDrainedValueBytes) {
    return Fail(EBADMSG, "a frame announces a value of {} bytes; the limit is {}",
                header.value_bytes, kMaxValueBytes);
  }
  return header;
}

FrameReader::FrameReader() = default;

uint32_t FrameReader::value_left() const {
  return message_taken_ ? header_->value_bytes - value_filled_ : 0;
}

size_t FrameReader::announced() const {
  if (!header_) return 0;
  const size_t value =
      header_->value_bytes > kMaxValueBytes ? kDrainBytes : size_t{header_->value_bytes};
  return header_->message_bytes + value;
}

// Where the missing bytes of the value go; of a value nobody wants, into the same place repeatedly.
MutableBytes FrameReader::ValueSpace() {
  if (!value_dropped_) return value_.mutable_bytes().subspan(value_filled_);
  return value_.mutable_bytes().first(std::min<size_t>(value_.size(), value_left()));
}

// Room for `bytes` in all from the first one that is still needed, which moves to the front.
void FrameReader::MakeRoom(size_t bytes) {
  const size_t first = message_taken_ ? message_begin_ : stage_begin_;
  const size_t kept = stage_end_ - first;
  const size_t size = std::max(bytes, wanted_stage_);
  // A stage that a long message made large is not kept: what a value brings along would be copied.
  if (stage_.size() < size || (stage_.size() > wanted_stage_ && kept <= wanted_stage_)) {
    Buffer stage(std::max(size, kept));
    if (kept > 0) CopyBytes(stage, stage_.bytes().subspan(first, kept));  // else it may have none
    stage_ = std::move(stage);
  } else if (first > 0 && kept > 0) {
    std::memmove(stage_.data(), stage_.data() + first, kept);
  }
  stage_begin_ -= first;
  stage_end_ -= first;
  message_begin_ = 0;
}

int FrameReader::Space(iovec space[2]) {
  MakeRoom(header_ && !message_taken_ ? header_->message_bytes : kFrameHeaderBytes);
  int used = 0;
  offered_ = 0;
  const auto offer = [&](std::byte* data, size_t size) {
    space[used++] = {data, size};
    offered_ += size;
  };
  if (value_left() > 0) {
    const MutableBytes value = ValueSpace();
    offer(value.data(), value.size());
    // What follows can be read with the same call only when the value will then be complete.
    if (value.size() < value_left()) return used;
  }
  if (stage_end_ < stage_.size()) offer(stage_.data() + stage_end_, stage_.size() - stage_end_);
  assert(used > 0);
  return used;
}

std::optional<std::byte> FrameReader::first() const {
  if (header_ || staged() == 0) return std::nullopt;
  return stage_.bytes()[stage_begin_];
}

Buffer FrameReader::TakeStaged() {
  Buffer taken(staged());
  CopyBytes(taken, stage_.bytes().subspan(stage_begin_, staged()));
  stage_begin_ = stage_end_ = 0;
  return taken;
}

void FrameReader::Rest() {
  if (idle()) stage_ = Buffer();
}

void FrameReader::Filled(size_t count) {
  full_ = count == offered_;
  const size_t of_value = std::min<size_t>(count, value_left());
  value_filled_ += static_cast<uint32_t>(of_value);
  stage_end_ += count - of_value;
  assert(stage_end_ <= stage_.size());
}

Result<bool> FrameReader::TakeHeader() {
  if (staged() < kFrameHeaderBytes) return false;
  header_ = TRY(DecodeFrameHeader(stage_.bytes().subspan(stage_begin_).first<kFrameHeaderBytes>()));
  stage_begin_ += kFrameHeaderBytes;
  return true;
}

// The message is complete; what is staged behind it is the beginning of the value.
void FrameReader::TakeValue() {
  message_taken_ = true;
  message_begin_ = stage_begin_;
  stage_begin_ += header_->message_bytes;
  value_dropped_ = header_->value_bytes > kMaxValueBytes;
  value_ = Buffer(value_dropped_ ? kDrainBytes : header_->value_bytes);
  value_filled_ = static_cast<uint32_t>(std::min<size_t>(staged(), header_->value_bytes));
  if (!value_dropped_) CopyBytes(value_, stage_.bytes().subspan(stage_begin_, value_filled_));
  stage_begin_ += value_filled_;
}

Result<std::optional<Frame>> FrameReader::Next() {
  if (!header_ && !TRY(TakeHeader())) return std::nullopt;
  if (!message_taken_) {
    if (staged() < header_->message_bytes) return std::nullopt;
    TakeValue();
  }
  if (header_->value_bytes > kSmallValueBytes) wanted_stage_ = kFrameStageBytes;
  if (value_left() > 0) return std::nullopt;
  if (full_ && header_->value_bytes <= kSmallValueBytes) wanted_stage_ = kLargeFrameStageBytes;
  Frame frame;
  frame.message = stage_.bytes().subspan(message_begin_, header_->message_bytes);
  frame.value_bytes = header_->value_bytes;
  frame.value_dropped = value_dropped_;
  if (!value_dropped_) frame.value = std::move(value_);
  value_ = Buffer();
  header_.reset();
  message_taken_ = false;
  value_filled_ = 0;
  value_dropped_ = false;
  return frame;
}

}  // namespace pinstripe
