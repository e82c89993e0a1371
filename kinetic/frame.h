// Frames: how a Kinetic connection is cut into messages. Nine bytes, then the message, then the
// value.
//
//   'F'   U32 bytes of the message   U32 bytes of the value   message   value
//
// FrameReader cuts a stream. It says where the next bytes belong, so that a value is received where
// it will stay, and only what came along with a header (less than kFrameStageBytes) is copied.
// While small frames come faster than they are read it takes many of them at once:
//
//   iovec space[2];
//   const ssize_t got = readv(socket, space, reader.Space(space));
//   reader.Filled(got);
//   while (std::optional<Frame> frame = TRY(reader.Next())) Handle(*std::move(frame));
//
// Not thread-safe.

#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

inline constexpr size_t kFrameHeaderBytes = 9;
inline constexpr size_t kFrameStageBytes = 8192;
inline constexpr size_t kLargeFrameStageBytes = 64 << 10;  // for many small frames

// What may be sent; 64 KiB more are accepted, for peers that count differently.
inline constexpr uint32_t kMaxMessageBytes = 1 << 20;
inline constexpr uint32_t kMaxAcceptedMessageBytes = kMaxMessageBytes + (64 << 10);

// A longer value than kMaxValueBytes (drive.h) can be refused politely, but only up to here: it has
// to be read to its end first. Beyond, the stream is given up.
inline constexpr uint32_t kMaxDrainedValueBytes = 4 << 20;

struct FrameHeader {
  uint32_t message_bytes = 0;
  uint32_t value_bytes = 0;
};

std::array<std::byte, kFrameHeaderBytes> EncodeFrameHeader(FrameHeader header);

// EBADMSG when the bytes are not a frame's first nine, or announce more than is accepted.
Result<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes);

struct Frame {
  Bytes message;               // until the next call of the reader's Space()
  Buffer value;                // empty when it was too long to keep
  uint32_t value_bytes = 0;    // as announced
  bool value_dropped = false;  // longer than kMaxValueBytes: read and thrown away
};

class FrameReader {
 public:
  FrameReader();

  // Where the next bytes of the stream go, in this order; returns how many of the two places are
  // used, at least one. All complete frames have been taken with Next() before.
  int Space(iovec space[2]);

  // `count` bytes have been put there, first place first.
  void Filled(size_t count);

  // The next complete frame; none when more bytes are needed. EBADMSG: the stream is not Kinetic,
  // and nothing more can be read from it.
  Result<std::optional<Frame>> Next();

  // Gives back the memory that is not needed while nothing comes. No frame's message is looked at
  // any more.
  void Rest();

  // How much will be kept of the frame that is being read; 0 between two frames.
  size_t announced() const;

  // The first byte of what was received and is not part of a frame yet. None: there is nothing.
  std::optional<std::byte> first() const;

  // All of that, where no frame was taken: the stream is none of frames.
  Buffer TakeStaged();

  // Whether the stream is between two frames: where a peer may end it without loss.
  bool idle() const { return !header_ && stage_begin_ == stage_end_; }

 private:
  size_t staged() const { return stage_end_ - stage_begin_; }
  uint32_t value_left() const;
  MutableBytes ValueSpace();
  void MakeRoom(size_t bytes);
  Result<bool> TakeHeader();
  void TakeValue();

  size_t wanted_stage_ = kFrameStageBytes;
  size_t offered_ = 0;  // by Space()
  bool full_ = false;   // all of it was filled
  Buffer stage_;        // headers, messages, and the first bytes of values
  size_t stage_begin_ = 0;
  size_t stage_end_ = 0;
  std::optional<FrameHeader> header_;  // of the frame that is being read
  bool message_taken_ = false;         // the frame's message is complete, and message_ says where
  size_t message_begin_ = 0;           // in stage_
  Buffer value_;
  uint32_t value_filled_ = 0;
  bool value_dropped_ = false;
};

}  // namespace pinstripe
