#include "kinetic/trunk.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kStageBytes = 16 << 10;
constexpr int kReadsAtOnce = 32;  // before the loop looks after other connections
constexpr size_t kMostParts = 160;

size_t SizeOf(const iovec* parts, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

// What one call reads or writes.
struct Parts {
  std::array<iovec, kMostParts> parts;
  int count = 0;

  // The first `most` bytes of `more`.
  void Add(const iovec* more, int those, size_t most) {
    for (int i = 0; i < those && most > 0 && count < static_cast<int>(kMostParts); ++i) {
      const size_t bytes = std::min(more[i].iov_len, most);
      if (bytes > 0) parts[count++] = {more[i].iov_base, bytes};
      most -= bytes;
    }
  }
};

}  // namespace

std::array<std::byte, kTrunkHeaderBytes> EncodeTrunkHeader(const TrunkHeader& header) {
  std::array<std::byte, kTrunkHeaderBytes> bytes;
  const auto put = [&](size_t at, uint32_t number) {
    for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(number >> (24 - 8 * i));
  };
  bytes[0] = static_cast<std::byte>(header.kind);
  put(1, header.channel);
  put(5, header.n);
  return bytes;
}

Result<TrunkHeader> DecodeTrunkHeader(std::span<const std::byte, kTrunkHeaderBytes> bytes) {
  const auto get = [&](size_t at) {
    uint32_t number = 0;
    for (int i = 0; i < 4; ++i) number = number << 8 | std::to_integer<uint32_t>(bytes[at + i]);
    return number;
  };
  TrunkHeader header{static_cast<TrunkHeader::Kind>(bytes[0]), get(1), get(5)};
  using Kind = TrunkHeader::Kind;
  const auto fits = [&] {
    switch (header.kind) {
      case Kind::kBegin: return header.channel == kTrunkVersion && header.n == 0;
      case Kind::kOpen: return header.channel > 0 && header.n > 0 && header.n <= 65535;
      case Kind::kData: return header.channel > 0 && header.n > 0 && header.n <= kMostTrunkPiece;
      case Kind::kEnd: return header.channel > 0 && header.n == 0;
    }
    return false;
  };
  if (fits()) return header;
  return Fail(EBADMSG, "it is not the header of a trunk's piece: kind {}, channel {}, number {}",
              std::to_integer<int>(bytes[0]), header.channel, header.n);
}

class Trunk::Stream final : public Channel {
 public:
  Stream(std::shared_ptr<Trunk> trunk, uint32_t id) : trunk_(std::move(trunk)), id_(id) {}
  ~Stream() override { End(); }

  uint32_t id() const { return id_; }

  void Watch(uint32_t epoll_events, std::shared_ptr<IoLoop::Handler> handler) override {
    handler_ = std::move(handler);
    Change(epoll_events);
  }

  void Change(uint32_t epoll_events) override {
    if (ended_) return;
    const uint32_t before = events_.exchange(epoll_events);
    if ((before ^ epoll_events) & EPOLLOUT) trunk_->Wait(id_, (epoll_events & EPOLLOUT) != 0);
    // It may have been waited for.
    if (!(before & EPOLLIN) && (epoll_events & EPOLLIN)) {
      trunk_->loop_.Post([trunk = trunk_, id = id_] { trunk->GoOnReading(id); });
    }
  }

  void End() override {
    if (ended_.exchange(true)) return;
    handler_ = nullptr;
    trunk_->Remove(*this);
  }

  ssize_t Read(const iovec* places, int count) override {
    return trunk_->ReadFor(*this, places, count);
  }
  ssize_t Write(const iovec* parts, int count) override {
    return trunk_->WriteFor(*this, parts, count);
  }
  bool has_tls() const override { return trunk_->socket_.has_tls(); }
  int fd() const override { return trunk_->socket_.fd(); }

  bool wants(uint32_t events) const { return (events_ & events) != 0; }
  void Tell(uint32_t events) {
    if (const std::shared_ptr<IoLoop::Handler> handler = handler_) handler->OnReady(events);
  }
  void PeerEnded() {
    peer_ended_ = true;
    Tell(EPOLLIN | EPOLLHUP);
  }
  bool peer_ended() const { return peer_ended_; }
  bool ended() const { return ended_; }

 private:
  const std::shared_ptr<Trunk> trunk_;
  const uint32_t id_;
  std::atomic<uint32_t> events_ = 0;
  std::shared_ptr<IoLoop::Handler> handler_;  // of the loop's thread
  bool peer_ended_ = false;                   // likewise
  std::atomic<bool> ended_ = false;
};

std::shared_ptr<Trunk> Trunk::Start(IoLoop& loop, DriveSocket socket, User user, bool is_client,
                                    Bytes received) {
  std::shared_ptr<Trunk> trunk(new Trunk(loop, std::move(socket), std::move(user), is_client));
  trunk->stage_ = Buffer(std::max(kStageBytes, received.size()));
  CopyBytes(trunk->stage_, received);
  trunk->stage_end_ = received.size();
  {
    const MutexLock lock(trunk->mutex_);
    trunk->watched_ = EPOLLIN;
  }
  trunk->socket_.Watch(loop, EPOLLIN, trunk);
  if (is_client) {
    trunk->begun_ = true;
    trunk->Control({TrunkHeader::Kind::kBegin, kTrunkVersion, 0});
  }
  if (!received.empty() || trunk->socket_.has_tls()) trunk->ReadAgain();
  return trunk;
}

Trunk::Trunk(IoLoop& loop, DriveSocket socket, User user, bool is_client)
    : loop_(loop), socket_(std::move(socket)), user_(std::move(user)), is_client_(is_client) {}

Trunk::~Trunk() = default;

std::shared_ptr<Channel> Trunk::Open(uint32_t port) {
  assert(is_client_ && !closed_);
  auto stream = std::make_shared<Stream>(shared_from_this(), ++last_id_);
  channels_[last_id_] = stream.get();
  Control({TrunkHeader::Kind::kOpen, last_id_, port});
  return stream;
}

void Trunk::Close() {
  if (closed_) return;
  user_ = {};
  Lose();
}

void Trunk::OnReady(uint32_t epoll_events) {
  const auto self = shared_from_this();
  if (closed_) return;
  bool writable = false;
  if (epoll_events & EPOLLOUT) {
    const MutexLock lock(mutex_);
    writable = std::exchange(full_, false);
    SetEvents();
  }
  Receive();
  if (writable && !closed_) WakeWriters();
}

// --- Reading

// What a socket says is told to the channels as it comes: who reads what is its own reads it from
// where it lies, so that values are received where they will stay.
void Trunk::Receive() {
  if (std::exchange(receiving_, true)) return;
  const auto self = shared_from_this();
  drained_ = false;
  bool pauses = false;
  int reads = 0;
  while (!closed_ && !failed_ && !pauses && reads < kReadsAtOnce) {
    ++reads;
    if (left_ > 0) {
      const uint32_t left = left_;
      pauses = channels_.contains(reading_) ? !HandOn() : !Skip();
      if (left_ > 0 && drained_) break;
      if (left_ == left && !pauses) {  // as one that is still connecting
        ReadAgain();
        break;
      }
    } else if (staged() >= kTrunkHeaderBytes) {
      failed_ = !TakeHeader().ok();
    } else if (!FillStage()) {
      break;
    }
  }
  receiving_ = false;
  if (closed_) return;
  if (failed_) return Lose();
  if (reads == kReadsAtOnce && !pauses) ReadAgain();
  if (staged() == 0) stage_begin_ = stage_end_ = 0;
  const MutexLock lock(mutex_);
  reads_ = !pauses;
  read_wants_write_ = socket_.read_wants_write();
  SetEvents();
}

// The channel takes again what comes for it.
void Trunk::GoOnReading(uint32_t id) {
  const auto found = channels_.find(id);
  if (found != channels_.end() && found->second->peer_ended()) found->second->PeerEnded();
  if (!closed_ && reading_ == id && left_ > 0) Receive();
}

void Trunk::ReadAgain() {
  if (std::exchange(again_, true)) return;
  loop_.Post([self = shared_from_this()] {
    self->again_ = false;
    if (!self->closed_) self->Receive();
  });
}

// False: there is nothing to read now.
bool Trunk::FillStage() {
  if (stage_begin_ > 0) {
    std::memmove(stage_.data(), stage_.data() + stage_begin_, staged());
    stage_end_ -= std::exchange(stage_begin_, 0);
  }
  const iovec place{stage_.data() + stage_end_, stage_.size() - stage_end_};
  const ssize_t got = ReadSocket(&place, 1);
  if (got > 0) stage_end_ += static_cast<size_t>(got);
  return got > 0;
}

Status Trunk::TakeHeader() {
  const TrunkHeader header =
      TRY(DecodeTrunkHeader(stage_.bytes().subspan(stage_begin_).first<kTrunkHeaderBytes>()));
  stage_begin_ += kTrunkHeaderBytes;
  return Follow(header);
}

Status Trunk::Follow(const TrunkHeader& header) {
  using Kind = TrunkHeader::Kind;
  if (begun_ == (header.kind == Kind::kBegin)) return Fail(EBADMSG, "a trunk begins once");
  begun_ = true;
  switch (header.kind) {
    case Kind::kBegin: return {};
    case Kind::kOpen: {
      if (user_.opened == nullptr) return Fail(EBADMSG, "it opened a channel to us");
      if (header.channel <= last_id_) return Fail(EBADMSG, "channel {} again", header.channel);
      last_id_ = header.channel;
      auto stream = std::make_shared<Stream>(shared_from_this(), last_id_);
      channels_[last_id_] = stream.get();
      user_.opened(std::move(stream), header.n);
      return {};
    }
    case Kind::kData: break;
    case Kind::kEnd: {
      const auto found = channels_.find(header.channel);
      if (found != channels_.end()) found->second->PeerEnded();
      break;
    }
  }
  // One that has ended here may still be in use there.
  if (header.channel > last_id_) return Fail(EBADMSG, "channel {} is not open", header.channel);
  if (header.kind != Kind::kData) return {};
  const auto found = channels_.find(header.channel);
  if (found != channels_.end() && found->second->peer_ended()) {
    return Fail(EBADMSG, "channel {} had ended", header.channel);
  }
  reading_ = header.channel;
  left_ = header.n;
  return {};
}

// Lets the channel take what has come for it. False: it takes nothing more now.
bool Trunk::HandOn() {
  const uint32_t id = reading_;
  if (!channels_.at(id)->wants(EPOLLIN)) return false;
  channels_.at(id)->Tell(EPOLLIN);
  const auto found = channels_.find(id);
  return left_ == 0 || found == channels_.end() || found->second->wants(EPOLLIN);
}

// Of a channel that has ended here.
bool Trunk::Skip() {
  if (staged() == 0 && !FillStage()) return true;
  const size_t skipped = std::min<size_t>(staged(), left_);
  stage_begin_ += skipped;
  left_ -= static_cast<uint32_t>(skipped);
  return true;
}

ssize_t Trunk::ReadFor(const Stream& stream, const iovec* places, int count) {
  if (stream.ended() || stream.peer_ended() || closed_) return 0;
  if (reading_ != stream.id() || left_ == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (staged() > 0) {
    size_t read = 0;
    for (int i = 0; i < count && left_ > 0 && staged() > 0; ++i) {
      const size_t bytes = std::min({places[i].iov_len, size_t{left_}, staged()});
      if (bytes > 0) std::memcpy(places[i].iov_base, stage_.data() + stage_begin_, bytes);
      stage_begin_ += bytes;
      left_ -= static_cast<uint32_t>(bytes);
      read += bytes;
    }
    return static_cast<ssize_t>(read);
  }
  Parts clipped;
  clipped.Add(places, count, left_);
  const ssize_t got = ReadSocket(clipped.parts.data(), clipped.count);
  if (got > 0) left_ -= static_cast<uint32_t>(got);
  if (got > 0) return got;
  errno = EAGAIN;  // all channels hear together of what else there is
  return -1;
}

ssize_t Trunk::ReadSocket(const iovec* places, int count) {
  ssize_t got = -1;
  do {
    got = socket_.Read(places, count);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return got;
  drained_ = true;
  failed_ = failed_ || got == 0 || errno != EAGAIN;
  return got;
}

// --- Sending

bool Trunk::MaySend(uint32_t id) const {
  if (full_) return false;
  if (owner_ != 0) return owner_ == id;
  return waiting_.empty() || turn_ == id || waiting_.front() == id;
}

ssize_t Trunk::WriteSocket(const iovec* parts, int count) {
  ssize_t sent = -1;
  do {
    sent = socket_.Write(parts, count);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno == EAGAIN) {
    full_ = true;
    SetEvents();
    errno = EAGAIN;
  } else if (sent < 0) {
    const int error = errno;
    loop_.Post([self = shared_from_this()] { self->Lose(); });
    errno = error;
  }
  return sent;
}

ssize_t Trunk::WriteFor(const Stream& stream, const iovec* parts, int count) {
  const MutexLock lock(mutex_);
  if (lost_ || stream.ended()) {
    errno = EPIPE;
    return -1;
  }
  if (!MaySend(stream.id())) {
    errno = EAGAIN;
    return -1;
  }
  if (owner_ == 0) {
    const size_t bytes =
        std::min<size_t>(SizeOf(parts, std::min<int>(count, kMostParts - 1)), kMostTrunkPiece);
    if (bytes == 0) return 0;
    owner_ = stream.id();
    owner_left_ = static_cast<uint32_t>(bytes);
    const auto header = EncodeTrunkHeader({TrunkHeader::Kind::kData, owner_, owner_left_});
    head_ += std::exchange(control_, {});
    head_ += AsText(header);
  }
  size_t of_body = 0;
  while (of_body == 0) {
    Parts clipped;
    const size_t head = head_.size() - head_sent_;
    const iovec first{head_.data() + head_sent_, head};
    clipped.Add(&first, 1, head);
    clipped.Add(parts, count, owner_left_);
    const ssize_t sent = WriteSocket(clipped.parts.data(), clipped.count);
    if (sent < 0) return sent;
    const size_t of_head = std::min<size_t>(static_cast<size_t>(sent), head);
    HeadSent(of_head);
    of_body = static_cast<size_t>(sent) - of_head;
  }
  owner_left_ -= static_cast<uint32_t>(of_body);
  if (owner_left_ == 0) EndPiece();
  return static_cast<ssize_t>(of_body);
}

void Trunk::HeadSent(size_t bytes) {
  head_sent_ += bytes;
  if (head_sent_ < head_.size()) return;
  head_.clear();
  head_sent_ = 0;
}

// Others may send now, and what was to be said between two pieces.
void Trunk::EndPiece() {
  owner_ = 0;
  WriteHead();
  if (!waiting_.empty() && !full_) WakeSoon();
}

// False: there is something left of it.
bool Trunk::WriteHead() {
  if (owner_ == 0) head_ += std::exchange(control_, {});
  while (!head_.empty()) {
    if (full_ || owner_ != 0) return false;
    const iovec part{head_.data() + head_sent_, head_.size() - head_sent_};
    const ssize_t sent = WriteSocket(&part, 1);
    if (sent < 0) return false;
    HeadSent(static_cast<size_t>(sent));
  }
  return true;
}

void Trunk::Control(const TrunkHeader& header) {
  const MutexLock lock(mutex_);
  if (lost_) return;
  control_ += AsText(EncodeTrunkHeader(header));
  if (owner_ == 0) WriteHead();
}

void Trunk::Wait(uint32_t id, bool waits) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(waiting_, id);
  if (!waits) {
    if (found != waiting_.end()) waiting_.erase(found);
    return;
  }
  if (found == waiting_.end()) waiting_.push_back(id);
  if (!full_ && (owner_ == 0 || owner_ == id)) WakeSoon();
}

void Trunk::WakeSoon() {
  if (lost_ || std::exchange(waking_, true)) return;
  loop_.Post([self = shared_from_this()] {
    {
      const MutexLock lock(self->mutex_);
      self->waking_ = false;
    }
    self->WakeWriters();
  });
}

// Each that waits gets its turn, the one first that has begun. Loop thread.
void Trunk::WakeWriters() {
  size_t turns = 0;
  {
    const MutexLock lock(mutex_);
    if (owner_ == 0 && !WriteHead()) return;
    turns = waiting_.size();
  }
  while (turns-- > 0) {
    uint32_t id = 0;
    {
      const MutexLock lock(mutex_);
      if (lost_ || full_ || waiting_.empty()) return;
      if (owner_ != 0 && std::ranges::find(waiting_, owner_) == waiting_.end()) return;
      id = owner_ != 0 ? owner_ : waiting_.front();
      turn_ = id;
    }
    const auto found = channels_.find(id);
    if (found != channels_.end()) found->second->Tell(EPOLLOUT);
    const MutexLock lock(mutex_);
    turn_ = 0;
    if (owner_ == id) return;  // the socket is full, or another thread is at it
    const auto place = std::ranges::find(waiting_, id);
    if (place == waiting_.end()) continue;
    waiting_.erase(place);
    if (channels_.contains(id)) waiting_.push_back(id);
  }
  const MutexLock lock(mutex_);
  if (!full_ && owner_ == 0 && !waiting_.empty()) WakeSoon();
}

void Trunk::SetEvents() {
  if (lost_) return;
  const uint32_t events = (reads_ ? EPOLLIN : 0u) | (full_ || read_wants_write_ ? EPOLLOUT : 0u);
  if (events != std::exchange(watched_, events)) socket_.Change(events);
}

// --- The end

void Trunk::Remove(Stream& stream) {
  channels_.erase(stream.id());
  bool is_broken = false;
  {
    const MutexLock lock(mutex_);
    std::erase(waiting_, stream.id());
    is_broken = !lost_ && owner_ == stream.id();
  }
  if (closed_) return;
  if (is_broken) {
    failed_ = true;
    loop_.Post([self = shared_from_this()] { self->Lose(); });
    return;
  }
  if (!stream.peer_ended()) Control({TrunkHeader::Kind::kEnd, stream.id(), 0});
  if (reading_ == stream.id() && left_ > 0) ReadAgain();
  if (!channels_.empty() || user_.emptied == nullptr) return;
  loop_.Post([self = shared_from_this()] {
    const auto emptied = self->user_.emptied;  // which may close it
    if (self->channels_.empty() && emptied != nullptr) emptied();
  });
}

void Trunk::Lose() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();
  {
    const MutexLock lock(mutex_);
    lost_ = true;
  }
  socket_.Unwatch();
  socket_.End();
  TellAll();
  const User user = std::exchange(user_, {});
  if (user.lost != nullptr) user.lost();
}

void Trunk::TellAll() {
  const std::map<uint32_t, Stream*> all = channels_;  // hearing of it, they end
  for (const auto& [id, stream] : all) {
    const auto found = channels_.find(id);
    if (found != channels_.end()) found->second->PeerEnded();
  }
}

}  // namespace pinstripe
