// Trunks: several streams over one connection, in order, each at its own pace.

#include "kinetic/trunk.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/real_runtime.h"
#include "kinetic/tls.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/expect_ok.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using Kind = TrunkHeader::Kind;

std::string FromHex(std::string hex) {
  std::erase(hex, ' ');
  return Unhex(hex);
}

std::string Said(Kind kind, uint32_t channel, uint32_t n) {
  return std::string(AsText(EncodeTrunkHeader({kind, channel, n})));
}

std::string SaidPiece(uint32_t channel, const std::string& bytes) {
  return Said(Kind::kData, channel, static_cast<uint32_t>(bytes.size())) + bytes;
}

std::span<const std::byte, kTrunkHeaderBytes> HeaderIn(std::string_view bytes) {
  return AsBytes(bytes).first<kTrunkHeaderBytes>();
}

TEST(TrunkHeader, HasNineBytes) {
  const auto expect = [](const TrunkHeader& header, const std::string& hex) {
    const auto bytes = EncodeTrunkHeader(header);
    EXPECT_EQ(AsText(bytes), FromHex(hex));
    EXPECT_EQ(*DecodeTrunkHeader(bytes), header);
  };
  expect({Kind::kBegin, 1, 0}, "54 00000001 00000000");
  expect({Kind::kOpen, 2, 8123}, "4f 00000002 00001fbb");
  expect({Kind::kData, 0x01020304, 256 << 10}, "44 01020304 00040000");
  expect({Kind::kWindow, 3, 512 << 10}, "57 00000003 00080000");
  expect({Kind::kEnd, 0xffffffff, 0}, "45 ffffffff 00000000");
}

TEST(TrunkHeader, IsOfAKnownKindAndSize) {
  for (const std::string hex : {
           "46 00000001 00000001",  // a Kinetic frame
           "54 00000002 00000000",  // another version
           "54 00000001 00000001",  //
           "4f 00000000 00001fbb",  // no channel
           "4f 00000001 00000000",  // no port
           "4f 00000001 00010000",  //
           "44 00000000 00000001",  //
           "44 00000001 00000000",  // an empty piece
           "44 00000001 00040001",  // a long one
           "57 00000001 00000000",  //
           "57 00000001 00080001",  // more than a whole window
           "45 00000001 00000001",  //
           "45 00000000 00000000",  //
       }) {
    const std::string bytes = FromHex(hex);
    EXPECT_FAILS(DecodeTrunkHeader(HeaderIn(bytes)), EBADMSG);
  }
}

// What uses a channel as a connection does: it sends on any thread, and what is not taken later.
class ChannelUser final : public IoLoop::Handler, public std::enable_shared_from_this<ChannelUser> {
 public:
  ChannelUser(IoLoop& loop, std::shared_ptr<Channel> channel, size_t most_at_once = 64 << 10)
      : loop_(loop), socket_(std::move(channel)), buffer_(most_at_once) {}

  void Start() { socket_.Watch(loop_, EPOLLIN, shared_from_this()); }  // loop thread

  void Send(std::string bytes) {
    {
      const MutexLock lock(mutex_);
      to_send_ += std::move(bytes);
      if (sending_ || blocked_) return;
      sending_ = true;
    }
    SendAll();
  }

  // Does not take what comes, or takes it again.
  void Pause(bool pauses) {
    const MutexLock lock(mutex_);
    reads_ = !pauses;
    socket_.Change(Events());
  }

  void End() {  // loop thread
    socket_.Unwatch();
    has_ended_ = true;
  }

  std::string received() {
    const MutexLock lock(mutex_);
    return received_;
  }
  size_t received_bytes() {
    const MutexLock lock(mutex_);
    return received_.size();
  }
  bool has_ended() const { return has_ended_; }  // or the peer has

  void OnReady(uint32_t events) override {
    const auto self = shared_from_this();
    if (events & EPOLLOUT) {
      {
        const MutexLock lock(mutex_);
        if (blocked_) sending_ = true;
        if (!std::exchange(blocked_, false)) return socket_.Change(Events());
        socket_.Change(Events());
      }
      SendAll();
    }
    if (events & EPOLLIN) Receive();
  }

 private:
  uint32_t Events() REQUIRES(mutex_) {
    return (reads_ ? EPOLLIN : 0u) | (blocked_ ? EPOLLOUT : 0u);
  }

  void Receive() {
    for (;;) {
      const iovec place{buffer_.data(), buffer_.size()};
      const ssize_t got = socket_.Read(&place, 1);
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return End();
      const MutexLock lock(mutex_);
      received_.append(reinterpret_cast<const char*>(buffer_.data()), static_cast<size_t>(got));
      if (!reads_) return;
    }
  }

  void SendAll() {
    for (;;) {
      std::string bytes;
      {
        const MutexLock lock(mutex_);
        if (to_send_.empty()) {
          sending_ = false;
          return;
        }
        bytes = to_send_;
      }
      // In several parts, as messages and their values are.
      const size_t half = bytes.size() / 3;
      const std::array parts = {iovec{bytes.data(), half},
                                iovec{bytes.data() + half, bytes.size() - half}};
      const ssize_t sent = socket_.Write(parts.data(), 2);
      const MutexLock lock(mutex_);
      if (sent >= 0) {
        to_send_.erase(0, static_cast<size_t>(sent));
        continue;
      }
      sending_ = false;
      if (errno != EAGAIN) return;
      blocked_ = true;
      return socket_.Change(Events());
    }
  }

  IoLoop& loop_;
  DriveSocket socket_;
  std::vector<std::byte> buffer_;
  std::atomic<bool> has_ended_ = false;
  Mutex mutex_;
  std::string to_send_ GUARDED_BY(mutex_);
  std::string received_ GUARDED_BY(mutex_);
  bool sending_ GUARDED_BY(mutex_) = false;
  bool blocked_ GUARDED_BY(mutex_) = false;
  bool reads_ GUARDED_BY(mutex_) = true;
};

class TrunkTest : public testing::Test {
 protected:
  TrunkTest() {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
    const int small = 16 << 10;  // so that it is full often
    for (const int each : sockets) setsockopt(each, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    ends_[0] = FileDescriptor(sockets[0]);
    ends_[1] = FileDescriptor(sockets[1]);
  }

  ~TrunkTest() override {
    client_loop_.PostAndWait([this] {
      if (client_ != nullptr) client_->Close();
    });
    server_loop_.PostAndWait([this] {
      if (server_ != nullptr) server_->Close();
    });
    client_loop_.PostAndWait([] {});
    server_loop_.PostAndWait([] {});
  }

  // The server's side, which refuses port 9, and lets nobody watch a channel to port 7000.
  void StartServer(std::unique_ptr<TlsStream> tls = nullptr) {
    server_loop_.PostAndWait([this, &tls] {
      server_ = Trunk::Start(server_loop_, DriveSocket(std::move(ends_[1]), std::move(tls)),
                             {.opened =
                                  [this](std::shared_ptr<Channel> channel, uint32_t port) {
                                    if (port == 9) return;
                                    if (port == 7000) {
                                      unwatched_ = std::move(channel);
                                      return;
                                    }
                                    auto user = std::make_shared<ChannelUser>(
                                        server_loop_, std::move(channel), 1 + port * 997 % 70000);
                                    user->Start();
                                    const MutexLock lock(mutex_);
                                    served_[port] = std::move(user);
                                  },
                              .emptied = [this] { is_empty_ = true; },
                              .lost = [this] { is_lost_ = true; }},
                             /*is_client=*/false);
    });
  }

  void StartClient() {
    client_loop_.PostAndWait([this] {
      client_ = Trunk::Start(client_loop_, DriveSocket(std::move(ends_[0]), nullptr), {},
                             /*is_client=*/true);
    });
  }

  std::shared_ptr<ChannelUser> Open(uint32_t port) {
    std::shared_ptr<ChannelUser> user;
    client_loop_.PostAndWait([&] {
      user = std::make_shared<ChannelUser>(client_loop_, client_->Open(port));
      user->Start();
    });
    return user;
  }

  std::shared_ptr<ChannelUser> Served(uint32_t port) {
    std::shared_ptr<ChannelUser> user;
    Await([&] {
      const MutexLock lock(mutex_);
      user = served_[port];
      return user != nullptr;
    });
    return user;
  }

  template <typename Condition>
  static void Await(Condition condition) {
    while (!condition()) std::this_thread::yield();
  }

  // Says something to the server that a client of ours would not.
  void Say(std::string_view bytes) {
    ASSERT_EQ(write(ends_[0].get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  void SayMuch(std::string_view bytes) {
    while (!bytes.empty() && !is_lost_) {
      const ssize_t taken = send(ends_[0].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (taken > 0) bytes.remove_prefix(static_cast<size_t>(taken));
      if (taken < 0) std::this_thread::yield();
    }
  }

  RealRuntime runtime_;
  IoLoop client_loop_{runtime_, "client"};
  IoLoop server_loop_{runtime_, "server"};
  FileDescriptor ends_[2];
  std::shared_ptr<Trunk> client_;
  std::shared_ptr<Trunk> server_;
  std::atomic<bool> is_empty_ = false;
  std::atomic<bool> is_lost_ = false;
  std::shared_ptr<Channel> unwatched_;  // of the server's loop
  Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<ChannelUser>> served_ GUARDED_BY(mutex_);
};

TEST_F(TrunkTest, CarriesAChannelBothWays) {
  StartServer();
  StartClient();
  const auto asks = Open(8);
  asks->Send("a question");
  const auto answers = Served(8);
  Await([&] { return answers->received() == "a question"; });
  answers->Send("an answer");
  Await([&] { return asks->received() == "an answer"; });
}

TEST_F(TrunkTest, AChannelThatIsRefusedEnds) {
  StartServer();
  StartClient();
  const auto refused = Open(9);
  Await([&] { return refused->has_ended(); });
  const auto other = Open(8);
  other->Send("goes on");
  Await([&] { return Served(8)->received() == "goes on"; });
}

TEST_F(TrunkTest, TheEndOfOneChannelIsNoneOfOthers) {
  StartServer();
  StartClient();
  const auto first = Open(1);
  const auto second = Open(2);
  first->Send("first");
  Await([&] { return Served(1)->received() == "first"; });
  client_loop_.PostAndWait([&] { first->End(); });
  Await([&] { return Served(1)->has_ended(); });
  second->Send("second");
  Await([&] { return Served(2)->received() == "second"; });
  EXPECT_FALSE(is_empty_);
  client_loop_.PostAndWait([&] { second->End(); });
  Await([&] { return is_empty_.load(); });
  EXPECT_FALSE(is_lost_);
}

TEST_F(TrunkTest, TheEndOfTheConnectionIsThatOfAllChannels) {
  StartServer();
  StartClient();
  const auto first = Open(1);
  const auto second = Open(2);
  const auto served = Served(2);
  client_loop_.PostAndWait([&] { client_->Close(); });
  Await([&] { return first->has_ended() && second->has_ended() && served->has_ended(); });
  Await([&] { return is_lost_.load(); });
}

// One that does not take what comes holds up nobody, and loses nothing.
TEST_F(TrunkTest, OneMayTakeNothingForAWhile) {
  StartServer();
  StartClient();
  const auto slow = Open(1);
  const auto other = Open(2);
  Served(1)->Pause(true);
  const std::string much(3 << 20, 'x');
  slow->Send(much);
  const std::string more(2 << 20, 'y');
  other->Send(more);
  Await([&] { return Served(2)->received_bytes() == more.size(); });
  EXPECT_LE(Served(1)->received_bytes(), 1u) << "what it read before it paused";
  Served(1)->Pause(false);
  Await([&] { return Served(1)->received_bytes() == much.size(); });
}

// Not even one that nobody reads any more, when it ends.
TEST_F(TrunkTest, OneMayEndInTheMiddleOfWhatItSends) {
  StartServer();
  StartClient();
  const auto ends = Open(1);
  const auto other = Open(2);
  ends->Send(std::string(4 << 20, 'x'));
  client_loop_.PostAndWait([&] { ends->End(); });
  other->Send("goes on");
  Await([&] { return Served(2)->received() == "goes on"; });
  Await([&] { return Served(1)->has_ended(); });
  EXPECT_FALSE(is_lost_);
}

// One that always has something to send leaves their turns to others.
TEST_F(TrunkTest, NobodyIsStarved) {
  StartServer();
  StartClient();
  const auto busy = Open(1);
  const auto other = Open(2);
  const auto asked = Served(2);
  std::atomic<bool> ends = false;
  std::thread thread([&] {
    const std::string much(1 << 20, 'x');
    for (size_t sent = 0; !ends; sent += much.size()) {
      busy->Send(much);
      Await([&] { return ends || Served(1)->received_bytes() + (4 << 20) > sent; });
    }
  });
  Await([&] { return Served(1)->received_bytes() > 1 << 20; });
  for (size_t round = 1; round <= 200; ++round) {
    other->Send("?");
    Await([&] { return asked->received_bytes() == round; });
  }
  ends = true;
  thread.join();
}

// A peer that has us speak and does not listen is given up before it costs much.
TEST_F(TrunkTest, OneThatDoesNotListenIsGivenUp) {
  StartServer();
  Say(FromHex("54 00000001 00000000 4f 00000001 00000008"));
  for (uint32_t channel = 2; !is_lost_; ++channel) {
    const auto open = EncodeTrunkHeader({Kind::kOpen, channel, 9});
    const ssize_t sent = send(ends_[0].get(), open.data(), open.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) std::this_thread::yield();
    if (sent > 0 && sent < static_cast<ssize_t>(open.size())) break;
    ASSERT_LT(channel, 1'000'000u);
  }
  Await([&] { return is_lost_.load(); });
}

// Several threads, channels and directions at once, pieces of all sizes, and pauses now and then.
TEST_F(TrunkTest, EachStreamArrivesInOrder) {
  constexpr uint32_t kChannels = 12;
  constexpr size_t kBytes = 3 << 20;
  StartServer();
  StartClient();
  struct Way {
    std::shared_ptr<ChannelUser> from;
    std::shared_ptr<ChannelUser> to;
    std::string sent;
  };
  std::deque<Way> ways;
  for (uint32_t port = 10; port < 10 + kChannels; ++port) {
    const auto client = Open(port);
    const auto server = Served(port);
    ways.push_back({client, server, {}});
    ways.push_back({server, client, {}});
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ways.size(); ++i) {
    threads.emplace_back([&way = ways[i], i] {
      std::mt19937_64 random(i);
      while (way.sent.size() < kBytes) {
        const size_t most = size_t{1} << random() % 19;
        std::string bytes(1 + random() % most, '\0');
        for (char& each : bytes) each = static_cast<char>(random());
        way.sent += bytes;
        way.from->Send(std::move(bytes));
        if (random() % 16 == 0) way.to->Pause(true);
        if (random() % 8 == 0) way.to->Pause(false);
      }
      way.to->Pause(false);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Way& way : ways) {
    Await([&] { return way.to->received_bytes() == way.sent.size(); });
    EXPECT_TRUE(way.to->received() == way.sent) << "a stream arrived otherwise than it was sent";
  }
  EXPECT_FALSE(is_lost_);
}

TEST_F(TrunkTest, WhatIsNoTrunkEndsIt) {
  const std::string begin = FromHex("54 00000001 00000000");
  const std::string open = FromHex("4f 00000005 00000008");
  for (const std::string& said : {
           std::string("GET / HTTP/1.1\r\n\r\n"),
           open + begin,                                         // the beginning comes first
           begin + begin,                                        // and once
           begin + FromHex("44 00000001 00000001 00"),           // a channel that is not open
           begin + open + open,                                  // one that is
           begin + open + FromHex("4f 00000004 00000008"),       // one that was, perhaps
           begin + open + FromHex("44 00000006 00000001 00"),    //
           begin + open + FromHex("57 00000005 00070001"),       // more than there may be
           begin + open + FromHex("46 00000000 00000000 00 00")  // a Kinetic frame
       }) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
    ends_[0] = FileDescriptor(sockets[0]);
    ends_[1] = FileDescriptor(sockets[1]);
    is_lost_ = false;
    StartServer();
    Say(said);
    Await([&] { return is_lost_.load(); });
  }
}

// Whatever comes, in whatever pieces: it is followed or refused, and ends with the connection.
TEST_F(TrunkTest, SurvivesWhatNobodyOfUsSends) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string stream = Said(Kind::kBegin, 1, 0);
    for (uint32_t step = 1, opened = 0; step < 30; ++step) {
      const uint32_t channel = opened == 0 ? 1 : 1 + static_cast<uint32_t>(random() % opened);
      switch (random() % 4) {
        case 0: stream += Said(Kind::kOpen, ++opened, 8 + random() % 3); break;
        case 1: stream += opened > 0 ? Said(Kind::kEnd, channel, 0) : ""; break;
        default: {
          if (opened == 0) break;
          stream += SaidPiece(channel, std::string(1 + random() % 3000, 'x'));
        }
      }
    }
    if (round % 3 > 0) {  // damaged, where headers are, too
      stream[random() % stream.size()] = static_cast<char>(random());
      stream[random() % std::min<size_t>(stream.size(), 60)] ^=
          static_cast<char>(1 << random() % 8);
    }
    if (round % 3 == 2) stream.resize(random() % stream.size());
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets), 0);
    ends_[0] = FileDescriptor(sockets[0]);
    ends_[1] = FileDescriptor(sockets[1]);
    is_lost_ = false;
    StartServer();
    for (size_t sent = 0; sent < stream.size();) {
      const size_t piece = std::min<size_t>(1 + random() % 5000, stream.size() - sent);
      const ssize_t taken = send(ends_[0].get(), stream.data() + sent, piece, MSG_NOSIGNAL);
      if (taken < 0 && errno != EAGAIN) break;
      if (taken > 0) sent += static_cast<size_t>(taken);
    }
    ends_[0] = FileDescriptor();
    Await([&] { return is_lost_.load(); });
  }
}

// A channel whose window is used up gets nothing more, whatever its peer says.
TEST_F(TrunkTest, MoreThanTheWindowEndsIt) {
  StartServer();
  Say(FromHex("54 00000001 00000000 4f 00000001 00000008"));
  Served(8)->Pause(true);
  const std::string piece = SaidPiece(1, std::string(kMostTrunkPiece, 'x'));
  for (int i = 0; i < 4 && !is_lost_; ++i) SayMuch(piece);
  Await([&] { return is_lost_.load(); });
}

TEST_F(TrunkTest, WhatComesForAChannelThatHasEndedIsDropped) {
  StartServer();
  Say(FromHex("54 00000001 00000000 4f 00000001 00000008 4f 00000002 00000007"));
  Served(7);
  const auto ended = Served(8);
  server_loop_.PostAndWait([&] { ended->End(); });
  const std::string long_piece(20000, 'x');
  Say(FromHex("44 00000001 00004e20") + long_piece + FromHex("44 00000002 00000002") + "on");
  Await([&] { return Served(7)->received() == "on"; });
}

// A peer that has heard the end of a channel takes what follows for a mistake of the whole trunk.
TEST_F(TrunkTest, NothingIsGrantedToAChannelThatHasEnded) {
  StartServer();
  Say(Said(Kind::kBegin, 1, 0) + Said(Kind::kOpen, 1, 7000) + Said(Kind::kOpen, 2, 8));
  Served(8);
  server_loop_.PostAndWait([this] {
    unwatched_->End();
    unwatched_->Trust();
  });
  server_loop_.PostAndWait([] {});  // it was sent
  std::array<char, 100> heard;
  const ssize_t got = read(ends_[0].get(), heard.data(), heard.size());
  ASSERT_GT(got, 0);
  EXPECT_EQ(std::string(heard.data(), static_cast<size_t>(got)), Said(Kind::kEnd, 1, 0));
}

// Of a channel that always has something left to take, only that is kept.
TEST_F(TrunkTest, WhatWasTakenIsNotKept) {
  constexpr uint32_t kPiece = 128 << 10;
  constexpr int kPieces = 192;
  const int large = 2 * kPiece;  // each goes out at once
  setsockopt(ends_[0].get(), SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
  StartServer();
  Say(Said(Kind::kBegin, 1, 0) + Said(Kind::kOpen, 1, 7000) + Said(Kind::kOpen, 2, 8));
  const auto other = Served(8);
  server_loop_.PostAndWait([this] { unwatched_->Trust(); });
  // Made once, as what is freed may still be counted.
  std::string sent = SaidPiece(1, std::string(kPiece, '\0')) + SaidPiece(2, "!");
  std::string taken(kPiece, '\0');
  std::string expected = taken;
  const size_t before = ResidentBytes();
  for (int i = 1; i <= kPieces; ++i) {
    std::fill_n(sent.begin() + kTrunkHeaderBytes, kPiece, static_cast<char>(i));
    SayMuch(sent);
    Await([&] { return other->received_bytes() == static_cast<size_t>(i); });
    if (i == 1) continue;
    ssize_t got = 0;
    server_loop_.PostAndWait([&] {
      const iovec place{taken.data(), taken.size()};
      got = unwatched_->Read(&place, 1);
    });
    ASSERT_EQ(got, kPiece);
    std::ranges::fill(expected, static_cast<char>(i - 1));
    ASSERT_TRUE(taken == expected) << i;
  }
  EXPECT_LT(ResidentBytes(), before + (8 << 20)) << "24 MiB have been taken";
}

// More small pieces than one round follows, and nothing behind them that would tell of them.
TEST_F(TrunkTest, ManyPiecesMayComeAtOnce) {
  StartServer();
  std::string said = Said(Kind::kBegin, 1, 0) + Said(Kind::kOpen, 1, 8);
  std::string expected;
  for (char each = ' '; each < '~'; ++each) {
    said += SaidPiece(1, std::string(1, each));
    expected += each;
  }
  Say(said);
  Await([&] { return Served(8)->received() == expected; });
}

// A peer that follows a script, behind TLS. What TLS has taken from the socket and holds back is
// told of by nobody.
class EncryptedTrunkTest : public TrunkTest {
 protected:
  EncryptedTrunkTest() {
    const TlsFiles files{directory_ / "tls.crt", directory_ / "tls.key"};
    MakeCertificate(files.certificate, files.key, CertificateKind::kEllipticCurve, "test",
                    365L * 24 * 3600);
    accepted_ = *(*TlsServer::Load(files))->Accept(ends_[1].get());
    peer_ = *(*TlsClient::Create(""))->Connect(ends_[0].get(), "localhost");
  }

  // `behind` comes with the peer's last word of the handshake.
  void Start(const std::string& behind) {
    using Step = TlsStream::Step;
    while (*peer_->Handshake() != Step::kDone) ASSERT_OK(accepted_->Handshake());
    SayEncrypted(behind);
    ASSERT_EQ(*accepted_->Handshake(), Step::kDone);
    StartServer(std::move(accepted_));
    Settle();
  }

  // One record.
  void SayEncrypted(std::string bytes) {
    const iovec piece{bytes.data(), bytes.size()};
    ASSERT_EQ(peer_->Write(&piece, 1), static_cast<ssize_t>(bytes.size()));
  }

  // All that had come before, and what that had posted, is done.
  void Settle() {
    server_loop_.PostAndWait([] {});
    server_loop_.PostAndWait([] {});
  }

  TemporaryDirectory directory_;
  std::unique_ptr<TlsStream> accepted_;
  std::unique_ptr<TlsStream> peer_;
};

TEST_F(EncryptedTrunkTest, WhatComesWithTheHandshakeIsRead) {
  Start(Said(Kind::kBegin, 1, 0) + Said(Kind::kOpen, 1, 8) + SaidPiece(1, "at once"));
  const MutexLock lock(mutex_);
  ASSERT_TRUE(served_.contains(8));
  EXPECT_EQ(served_[8]->received(), "at once");
}

// Whoever has taken what was kept for it reads on, perhaps before the trunk itself does. Behind the
// piece there is one for another channel, in the same record or in one that has come with it.
TEST_F(EncryptedTrunkTest, WhatComesBehindAPieceIsRead) {
  Start(Said(Kind::kBegin, 1, 0) + Said(Kind::kOpen, 1, 8) + Said(Kind::kOpen, 2, 5));
  const auto user = Served(8);
  const auto other = Served(5);
  for (const bool in_one_record : {true, false}) {
    const size_t before = user->received_bytes();
    server_loop_.PostAndWait([&] {
      user->Pause(true);
      SayEncrypted(SaidPiece(1, "a begun piece").substr(0, kTrunkHeaderBytes + 7));
    });
    Settle();
    server_loop_.PostAndWait([&] {
      user->Pause(false);
      user->OnReady(EPOLLIN);
      EXPECT_EQ(user->received().substr(before), "a begun") << "it was kept";
      const std::string behind = SaidPiece(2, "other");
      SayEncrypted(in_one_record ? " piece" + behind : " piece");
      if (!in_one_record) SayEncrypted(behind);
      user->OnReady(EPOLLIN);
    });
    Settle();
    EXPECT_EQ(user->received().substr(before), "a begun piece");
    EXPECT_EQ(other->received(), in_one_record ? "other" : "otherother");
  }
}

// The last word of TLS may come with the last piece, on a connection that stays open.
TEST_F(EncryptedTrunkTest, TheEndIsHeardBehindAPiece) {
  Start(Said(Kind::kBegin, 1, 0) + Said(Kind::kOpen, 1, 8));
  const auto user = Served(8);
  server_loop_.PostAndWait([&] {
    SayEncrypted(SaidPiece(1, "the last"));
    peer_->SayGoodbye();
  });
  Settle();
  EXPECT_EQ(user->received(), "the last");
  EXPECT_TRUE(is_lost_);
}

}  // namespace
}  // namespace pinstripe
