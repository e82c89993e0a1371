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
constexpr size_t kMostHead = kMostTrunkPiece + (64 << 10);  // of what was not sent yet

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
      case Kind::kWindow: return header.channel > 0 && header.n > 0 && header.n <= kTrunkWindow;
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
    if (peer_ended) GoOnReading();
  }

  void Change(uint32_t epoll_events) override {
    if (ended_) return;
    const uint32_t before = events_.exchange(epoll_events);
    if ((before ^ epoll_events) & EPOLLOUT) trunk_->Wait(*this);
    if (!(before & EPOLLIN) && (epoll_events & EPOLLIN)) GoOnReading();
  }

  void End() override {
    if (ended_.exchange(true)) return;
    handler_ = nullptr;
    trunk_->Remove(*this);
  }

  void Trust() override {
    if (ended_ || allowed == kTrunkWindow) return;
    allowed = kTrunkWindow;
    trunk_->Control({TrunkHeader::Kind::kWindow, id_, kTrunkWindow - kFirstTrunkWindow});
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
  bool ended() const { return ended_; }
  void Tell(uint32_t events) {
    if (const std::shared_ptr<IoLoop::Handler> handler = handler_) handler->OnReady(events);
  }

  // Has it told again that there is something to read. Any thread.
  void GoOnReading() {
    trunk_->loop_.Post([trunk = trunk_, id = id_] { trunk->GoOnReading(id); });
  }

  std::atomic<bool> peer_ended = false;  // set by the loop's thread

  // Of the loop's thread:
  std::string kept;                      // came, and was not taken
  size_t kept_read = 0;                  // and what was taken of that
  uint32_t untaken = 0;                  // bytes that were announced, and not taken yet
  uint32_t taken = 0;                    // and taken, but not granted again
  uint32_t allowed = kFirstTrunkWindow;  // so many may be announced, and not taken

  // By the thread that holds trunk_->mutex_, which the analysis does not see through a Stream:
  uint32_t window = kFirstTrunkWindow;  // bytes that may be sent

 private:
  const std::shared_ptr<Trunk> trunk_;
  const uint32_t id_;
  std::atomic<uint32_t> events_ = 0;
  std::shared_ptr<IoLoop::Handler> handler_;  // of the loop's thread
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
  stream->Trust();
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

// What comes is told to its channel, whose user reads it from where it lies, so that values are
// received where they will stay.
void Trunk::Receive() {
  if (std::exchange(receiving_, true)) return;
  const auto self = shared_from_this();
  drained_ = is_dry_ = false;
  int reads = 0;
  for (; !closed_ && !failed_ && !drained_ && reads < kReadsAtOnce; ++reads) {
    if (left_ > 0) {
      channels_.contains(reading_) ? HandOn() : Skip();
    } else if (staged() >= kTrunkHeaderBytes) {
      failed_ = !TakeHeader().ok();
    } else {
      FillStage();
    }
  }
  receiving_ = false;
  if (closed_) return;
  if (failed_) return Lose();
  if (reads == kReadsAtOnce) ReadAgain();
  const MutexLock lock(mutex_);
  read_wants_write_ = socket_.read_wants_write();
  SetEvents();
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

size_t Trunk::TakeStaged(std::byte* place, size_t most) {
  const size_t bytes = std::min({most, size_t{left_}, staged()});
  if (bytes > 0) std::memcpy(place, stage_.data() + stage_begin_, bytes);
  stage_begin_ += bytes;
  left_ -= static_cast<uint32_t>(bytes);
  return bytes;
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
  if (header.kind == Kind::kBegin) return {};
  if (header.kind == Kind::kOpen) {
    if (user_.opened == nullptr) return Fail(EBADMSG, "it opened a channel to us");
    if (header.channel <= last_id_) return Fail(EBADMSG, "channel {} again", header.channel);
    last_id_ = header.channel;
    auto stream = std::make_shared<Stream>(shared_from_this(), last_id_);
    channels_[last_id_] = stream.get();
    user_.opened(std::move(stream), header.n);
    return {};
  }
  if (header.channel > last_id_) return Fail(EBADMSG, "channel {} is not open", header.channel);
  if (header.kind == Kind::kData) return BeginPiece(header);
  // One that has ended here may still be in use there.
  const auto found = channels_.find(header.channel);
  if (found == channels_.end()) return {};
  Stream& stream = *found->second;
  if (stream.peer_ended) return Fail(EBADMSG, "channel {} had ended", header.channel);
  if (header.kind == Kind::kEnd) {
    stream.peer_ended = true;
    const uint32_t id = stream.id();
    if (stream.wants(EPOLLOUT)) stream.Tell(EPOLLOUT);  // to hear that nobody listens any more
    GoOnReading(id);
    return {};
  }
  {
    const MutexLock lock(mutex_);
    if (header.n > kTrunkWindow - stream.window) {
      return Fail(EBADMSG, "channel {} has taken more than there was", header.channel);
    }
  }
  Grant(stream, header.n);
  return {};
}

Status Trunk::BeginPiece(const TrunkHeader& header) {
  reading_ = header.channel;
  left_ = header.n;
  const auto found = channels_.find(header.channel);
  if (found == channels_.end()) return {};
  Stream& stream = *found->second;
  if (stream.peer_ended) return Fail(EBADMSG, "channel {} had ended", header.channel);
  if (header.n > stream.allowed - std::min(stream.allowed, stream.untaken)) {
    return Fail(EBADMSG, "channel {} has sent more than it may", header.channel);
  }
  stream.untaken += header.n;
  return {};
}

// Lets the channel take what has come for it, and keeps what it does not take.
void Trunk::HandOn() {
  const uint32_t id = reading_;
  Stream& stream = *channels_.at(id);
  const uint32_t left = left_;
  if (stream.kept.empty() && stream.wants(EPOLLIN)) {
    stream.Tell(EPOLLIN);
    if (left_ < left || drained_ || failed_ || closed_) return;
  }
  const auto found = channels_.find(id);
  if (found != channels_.end() && left_ > 0) Keep(*found->second);
}

void Trunk::Keep(Stream& stream) {
  if (staged() == 0 && !FillStage()) return;
  if (stream.kept_read > 0) stream.kept.erase(0, std::exchange(stream.kept_read, 0));
  const size_t before = stream.kept.size();
  const size_t more = std::min<size_t>(staged(), left_);
  stream.kept.resize(before + more);
  TakeStaged(reinterpret_cast<std::byte*>(stream.kept.data()) + before, more);
  if (before == 0 && stream.wants(EPOLLIN)) stream.GoOnReading();
}

// Of a channel that has ended here.
void Trunk::Skip() {
  if (staged() == 0 && !FillStage()) return;
  const size_t skipped = std::min<size_t>(staged(), left_);
  stage_begin_ += skipped;
  left_ -= static_cast<uint32_t>(skipped);
}

// The channel takes again what comes for it, or what was kept for it, or hears that it has ended.
void Trunk::GoOnReading(uint32_t id) {
  const auto self = shared_from_this();
  const auto find = [&]() -> Stream* {
    const auto found = channels_.find(id);
    return found == channels_.end() ? nullptr : found->second;
  };
  Stream* stream = find();
  while (stream != nullptr && !stream->kept.empty() && stream->wants(EPOLLIN)) {
    const size_t before = stream->kept.size() - stream->kept_read;
    stream->Tell(EPOLLIN);
    stream = find();
    const bool took = stream == nullptr || stream->kept.size() - stream->kept_read < before;
    if (!took && stream->wants(EPOLLIN)) return stream->GoOnReading();  // it is not there yet
  }
  // What is kept then, it reads when it reads again.
  if (stream != nullptr && stream->peer_ended && stream->kept.empty()) {
    stream->Tell(EPOLLIN | EPOLLHUP);
  }
}

ssize_t Trunk::ReadFor(Stream& stream, const iovec* places, int count) {
  if (stream.ended()) return 0;
  size_t read = 0;
  if (!stream.kept.empty()) {
    for (int i = 0; i < count; ++i) {
      const size_t bytes = std::min(places[i].iov_len, stream.kept.size() - stream.kept_read);
      if (bytes > 0) std::memcpy(places[i].iov_base, stream.kept.data() + stream.kept_read, bytes);
      stream.kept_read += bytes;
      read += bytes;
    }
    if (stream.kept_read == stream.kept.size()) {
      stream.kept = std::string();
      stream.kept_read = 0;
    }
    Took(stream, read);
    return static_cast<ssize_t>(read);
  }
  if (stream.peer_ended) return 0;
  if (closed_ || reading_ != stream.id() || left_ == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (staged() > 0) {
    for (int i = 0; i < count; ++i) {
      read += TakeStaged(static_cast<std::byte*>(places[i].iov_base), places[i].iov_len);
    }
    Took(stream, read);
    return static_cast<ssize_t>(read);
  }
  // What would be left of a record of TLS nothing tells of: so everything is read by Receive().
  if (!receiving_) {
    ReadAgain();
    errno = EAGAIN;
    return -1;
  }
  Parts clipped;
  clipped.Add(places, count, left_);
  const ssize_t got = ReadSocket(clipped.parts.data(), clipped.count);
  if (got > 0) {
    left_ -= static_cast<uint32_t>(got);
    Took(stream, static_cast<size_t>(got));
    return got;
  }
  errno = EAGAIN;  // all channels hear together of what else there is
  return -1;
}

// So much more may be sent to it, which the peer is told now and then.
void Trunk::Took(Stream& stream, size_t bytes) {
  stream.untaken -= static_cast<uint32_t>(bytes);
  stream.taken += static_cast<uint32_t>(bytes);
  if (stream.taken < stream.allowed / 2 || stream.peer_ended) return;
  Control({TrunkHeader::Kind::kWindow, stream.id(), std::exchange(stream.taken, 0)});
}

ssize_t Trunk::ReadSocket(const iovec* places, int count) {
  ssize_t got = -1;
  if (is_dry_) {  // more is told when it comes
    drained_ = true;
    errno = EAGAIN;
    return -1;
  }
  do {
    got = socket_.Read(places, count);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    is_dry_ = !socket_.reads_ahead() && static_cast<size_t>(got) < SizeOf(places, count);
    return got;
  }
  drained_ = true;
  failed_ = failed_ || got == 0 || errno != EAGAIN;
  return got;
}

// --- Sending

bool Trunk::MaySend(const Stream& stream) const {
  if (full_ || stream.window == 0) return false;
  const bool is_alone =
      waiting_.empty() || (waiting_.size() == 1 && waiting_.front() == stream.id());
  return is_alone || turn_ == stream.id();
}

ssize_t Trunk::WriteSocket(const iovec* parts, int count) {
  ssize_t sent = -1;
  do {
    sent = socket_.Write(parts, count);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return sent;
  if (errno == EAGAIN) {
    full_ = true;
    SetEvents();
  } else {
    LoseSoon();
  }
  return sent;
}

// A piece goes out whole, or is kept as far as the socket does not take it.
ssize_t Trunk::WriteFor(Stream& stream, const iovec* parts, int count) {
  const MutexLock lock(mutex_);
  if (lost_ || stream.ended() || stream.peer_ended) {
    errno = EPIPE;
    return -1;
  }
  count = std::min<int>(count, kMostParts - 1);
  const size_t body =
      std::min({SizeOf(parts, count), size_t{kMostTrunkPiece}, size_t{stream.window}});
  if (!MaySend(stream) || !Flush()) {
    errno = EAGAIN;
    return -1;
  }
  if (body == 0) return 0;
  head_ += AsText(
      EncodeTrunkHeader({TrunkHeader::Kind::kData, stream.id(), static_cast<uint32_t>(body)}));
  Parts all;
  const iovec header{head_.data(), head_.size()};
  all.Add(&header, 1, head_.size());
  all.Add(parts, count, body);
  const ssize_t sent = WriteSocket(all.parts.data(), all.count);
  size_t skip = sent > 0 ? static_cast<size_t>(sent) : 0;
  for (int i = 1; i < all.count; ++i) {
    // What is kept comes behind what is left of the header.
    const size_t of_header = i == 1 ? std::min(skip, head_.size()) : 0;
    if (i == 1) {
      head_sent_ = of_header;
      skip -= of_header;
    }
    const size_t skipped = std::min(skip, all.parts[i].iov_len);
    skip -= skipped;
    head_.append(static_cast<const char*>(all.parts[i].iov_base) + skipped,
                 all.parts[i].iov_len - skipped);
  }
  HeadSent(0);
  stream.window -= static_cast<uint32_t>(body);
  // Others come first now.
  if (stream.window == 0) std::erase(waiting_, stream.id());
  turn_ = 0;
  if (Flush() && !waiting_.empty()) WakeSoon();
  return static_cast<ssize_t>(body);
}

void Trunk::HeadSent(size_t bytes) {
  head_sent_ += bytes;
  if (head_sent_ < head_.size()) {
    // What was sent is not held for ever behind a peer that listens a little.
    if (head_sent_ >= head_.size() / 2) head_.erase(0, std::exchange(head_sent_, 0));
    return;
  }
  head_sent_ = 0;
  if (head_.capacity() > kStageBytes) {
    head_ = std::string();
  } else {
    head_.clear();
  }
}

// False: there is something left that has to go out first.
bool Trunk::Flush() {
  while (!head_.empty()) {
    if (full_) return false;
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
  head_ += AsText(EncodeTrunkHeader(header));
  Flush();
  if (head_.size() - head_sent_ > kMostHead) LoseSoon();  // it has us talk, and does not listen
}

// Goes by what it wants now: others may have changed that since.
void Trunk::Wait(Stream& stream) {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(waiting_, stream.id());
  if (!stream.wants(EPOLLOUT)) {
    if (found != waiting_.end()) waiting_.erase(found);
    if (!waiting_.empty() && !full_) WakeSoon();
    return;
  }
  if (stream.window == 0) return;  // until it has one
  if (found == waiting_.end()) waiting_.push_back(stream.id());
  if (!full_) WakeSoon();
}

// The peer has taken so much.
void Trunk::Grant(Stream& stream, uint32_t bytes) {
  const MutexLock lock(mutex_);
  stream.window += bytes;
  if (!stream.wants(EPOLLOUT)) return;
  if (std::ranges::find(waiting_, stream.id()) == waiting_.end()) waiting_.push_back(stream.id());
  if (!full_) WakeSoon();
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

// Each that waits gets its turn. Loop thread.
void Trunk::WakeWriters() {
  const auto self = shared_from_this();
  size_t turns = 0;
  {
    const MutexLock lock(mutex_);
    if (lost_ || !Flush()) return;
    turns = waiting_.size();
  }
  for (; turns > 0; --turns) {
    uint32_t id = 0;
    Stream* stream = nullptr;
    {
      const MutexLock lock(mutex_);
      if (lost_ || !Flush() || waiting_.empty()) return;
      id = waiting_.front();
      const auto found = channels_.find(id);
      stream = found == channels_.end() ? nullptr : found->second;
      if (stream == nullptr || stream->window == 0) {
        waiting_.pop_front();
        continue;
      }
      turn_ = id;
    }
    stream->Tell(EPOLLOUT);
    const MutexLock lock(mutex_);
    turn_ = 0;
    if (!waiting_.empty() && waiting_.front() == id) {
      waiting_.pop_front();
      waiting_.push_back(id);
    }
  }
  const MutexLock lock(mutex_);
  if (!full_ && !waiting_.empty()) WakeSoon();
}

void Trunk::SetEvents() {
  if (lost_) return;
  const uint32_t events = EPOLLIN | (full_ || read_wants_write_ ? EPOLLOUT : 0u);
  if (events != std::exchange(watched_, events)) socket_.Change(events);
}

// --- The end

void Trunk::Remove(Stream& stream) {
  channels_.erase(stream.id());
  {
    const MutexLock lock(mutex_);
    std::erase(waiting_, stream.id());
    if (!full_ && !waiting_.empty()) WakeSoon();
  }
  if (closed_) return;
  if (!stream.peer_ended) Control({TrunkHeader::Kind::kEnd, stream.id(), 0});
  if (!channels_.empty() || user_.emptied == nullptr) return;
  loop_.Post([self = shared_from_this()] {
    const auto emptied = self->user_.emptied;  // which may close it
    if (self->channels_.empty() && emptied != nullptr) emptied();
  });
}

void Trunk::LoseSoon() {
  loop_.Post([self = shared_from_this()] { self->Lose(); });
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
  const std::map<uint32_t, Stream*> all = channels_;  // hearing of it, they end
  for (const auto& [id, stream] : all) {
    const auto found = channels_.find(id);
    if (found == channels_.end()) continue;
    found->second->peer_ended = true;
    found->second->kept = std::string();
    found->second->kept_read = 0;
    found->second->Tell(EPOLLIN | EPOLLHUP);
  }
  const User user = std::exchange(user_, {});
  if (user.lost != nullptr) user.lost();
}

}  // namespace pinstripe
