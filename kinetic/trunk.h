// Trunk: one connection that carries several streams, one to each drive that a process serves.
//
// A client that has one connection for each drive of a host needs as many descriptors, and as much
// memory for TLS, at both ends. Over a trunk each drive has a channel instead (channel.h), and what
// goes over that is what would go over a connection of its own. docs/protocol.md ("Several drives
// over one connection") has the bytes:
//
//   U8 kind   U32 channel   U32 n
//   'T'  the connection is a trunk from now on; channel: the version, 1; n: 0. Once, by the client
//   'O'  the client opens the channel to the drive at port n
//   'D'  n bytes of the channel follow
//   'W'  n bytes more may be sent on the channel: so many were taken from it
//   'E'  the channel has ended; n: 0
//
// No channel holds up another one. It has a window: so many bytes may be on their way that its user
// has not taken yet. What he does not take is kept here, so that what comes for others can be read.
// The window is small until its user trusts the peer.
// Whoever sends waits for his turn after each piece. What the socket does not take of a piece is
// kept, so that a channel can end at any time.
//
// Bytes that are no such stream end the trunk, and with it all its channels; so does a peer that
// sends more than it may, or has us say much and does not listen.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "kinetic/channel.h"
#include "kinetic/drive_socket.h"
#include "kinetic/io_loop.h"

namespace pinstripe {

inline constexpr size_t kTrunkHeaderBytes = 9;
inline constexpr std::byte kTrunkBegins{'T'};
inline constexpr uint32_t kTrunkVersion = 1;
inline constexpr uint32_t kTrunkWindow = 512 << 10;      // of a channel, each way
inline constexpr uint32_t kFirstTrunkWindow = 64 << 10;  // to begin with
inline constexpr uint32_t kMostTrunkPiece = 256 << 10;   // that one channel sends before others may

struct TrunkHeader {
  enum class Kind : uint8_t { kBegin = 'T', kOpen = 'O', kData = 'D', kWindow = 'W', kEnd = 'E' };
  Kind kind = Kind::kData;
  uint32_t channel = 0;
  uint32_t n = 0;

  friend bool operator==(const TrunkHeader&, const TrunkHeader&) = default;
};

std::array<std::byte, kTrunkHeaderBytes> EncodeTrunkHeader(const TrunkHeader& header);

// EBADMSG: no such kind, or a number that its kind cannot have.
Result<TrunkHeader> DecodeTrunkHeader(std::span<const std::byte, kTrunkHeaderBytes> bytes);

class Trunk final : public IoLoop::Handler, public std::enable_shared_from_this<Trunk> {
 public:
  // Called on the loop's thread.
  struct User {
    // The peer has opened a channel; one that is let go of has been refused. Empty: it may not.
    std::function<void(std::shared_ptr<Channel> channel, uint32_t port)> opened;
    // The last channel has ended.
    std::function<void()> emptied;
    // Once, unless it was closed: the connection is lost, and each channel has heard of it.
    std::function<void()> lost;
  };

  // Over a connection that is established, and that nobody watches. `received`: what has come
  // already, and is still to be read. All but Channel's own is of the loop's thread.
  static std::shared_ptr<Trunk> Start(IoLoop& loop, DriveSocket socket, User user, bool is_client,
                                      Bytes received = {});
  ~Trunk() override;

  // A channel to the drive at this port of the peer. The trunk is not closed.
  std::shared_ptr<Channel> Open(uint32_t port);

  bool is_closed() const { return closed_; }
  size_t CountChannels() const { return channels_.size(); }

  // Ends it, and has its channels hear of it.
  void Close();

  void OnReady(uint32_t epoll_events) override;

 private:
  class Stream;
  friend class Stream;

  Trunk(IoLoop& loop, DriveSocket socket, User user, bool is_client);

  // Reading; loop thread.
  void Receive();
  bool FillStage();
  Status TakeHeader();
  Status Follow(const TrunkHeader& header);
  Status BeginPiece(const TrunkHeader& header);
  void HandOn();
  void Keep(Stream& stream);
  void Skip();
  size_t staged() const { return stage_end_ - stage_begin_; }
  size_t TakeStaged(std::byte* place, size_t most);
  ssize_t ReadFor(Stream& stream, const iovec* places, int count);
  ssize_t ReadSocket(const iovec* places, int count);
  void Took(Stream& stream, size_t bytes);
  void GoOnReading(uint32_t id);
  void ReadAgain();
  void Lose();

  // Sending.
  ssize_t WriteFor(Stream& stream, const iovec* parts, int count) EXCLUDES(mutex_);
  bool MaySend(const Stream& stream) const REQUIRES(mutex_);
  bool Flush() REQUIRES(mutex_);
  void HeadSent(size_t bytes) REQUIRES(mutex_);
  ssize_t WriteSocket(const iovec* parts, int count) REQUIRES(mutex_);
  void Control(const TrunkHeader& header) EXCLUDES(mutex_);
  void Wait(Stream& stream) EXCLUDES(mutex_);
  void Grant(Stream& stream, uint32_t bytes) EXCLUDES(mutex_);
  void WakeSoon() REQUIRES(mutex_);
  void WakeWriters() EXCLUDES(mutex_);
  void SetEvents() REQUIRES(mutex_);
  void LoseSoon();
  void Remove(Stream& stream);

  IoLoop& loop_;
  DriveSocket socket_;
  User user_;
  const bool is_client_;

  // Of the loop's thread:
  std::map<uint32_t, Stream*> channels_;  // those that have not ended here
  uint32_t last_id_ = 0;                  // of all that were opened
  bool begun_ = false;                    // the first header was read
  bool closed_ = false;
  bool receiving_ = false;
  bool again_ = false;  // a task will receive
  Buffer stage_;
  size_t stage_begin_ = 0;
  size_t stage_end_ = 0;
  uint32_t reading_ = 0;  // the channel whose bytes come
  uint32_t left_ = 0;     // and how many
  bool is_dry_ = false;   // the socket has had less than was asked for, in this Receive()
  bool drained_ = false;  // it has nothing more now
  bool failed_ = false;   // or never will

  Mutex mutex_;
  bool lost_ GUARDED_BY(mutex_) = false;
  bool read_wants_write_ GUARDED_BY(mutex_) = false;
  bool full_ GUARDED_BY(mutex_) = false;  // the socket takes nothing more
  uint32_t watched_ GUARDED_BY(mutex_) = 0;
  std::string head_ GUARDED_BY(mutex_);  // goes out before anything else
  size_t head_sent_ GUARDED_BY(mutex_) = 0;
  std::deque<uint32_t> waiting_ GUARDED_BY(mutex_);  // channels that could send
  uint32_t turn_ GUARDED_BY(mutex_) = 0;             // the one of them that may, though others wait
  bool waking_ GUARDED_BY(mutex_) = false;           // a task will wake writers
};

}  // namespace pinstripe
