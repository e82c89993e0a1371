// Drives of one process over one connection: what uses them sees no difference.

#include "kinetic/shared_connections.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "daemon/server.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "kinetic/trunk.h"
#include "store/memory_store.h"
#include "tests/daemon/wire_client.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/drive_client.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

constexpr size_t kDevices = 6;

struct SharingDevice {
  Engine engine{std::make_unique<MemoryStore>()};
  DeviceSecurity security{{{1, FullAccess("asdfasdf")}}};
  KineticService service{{.serial_number = "SN"}, security, engine};
  uint16_t port = 0;
};

class SharedConnectionsTest : public testing::Test, protected DriveClient {
 protected:
  SharedConnectionsTest() { SetLogLevel(LogLevel::kError); }
  ~SharedConnectionsTest() override {
    drives_.clear();
    SetLogLevel(LogLevel::kInfo);
  }

  void Serve(std::shared_ptr<const TlsServer> tls = nullptr, Server::Options options = {}) {
    server_ = std::make_unique<Server>(runtime_, options);
    for (SharingDevice& device : devices_) {
      device.port = *server_->Listen("127.0.0.1", device.port, device.service, tls);
    }
  }

  KineticDrive::Options OptionsFor(uint16_t port) {
    KineticDrive::Options options;
    options.name = fmt::format("drive at {}", port);
    options.addresses = {fmt::format("127.0.0.1:{}", port)};
    options.key = "asdfasdf";
    options.least_backoff = 1ms;
    options.most_backoff = 10ms;
    options.shares_connection = true;
    return options;
  }

  void ConnectAll() {
    for (const SharingDevice& device : devices_) {
      KineticDrive::Options options = OptionsFor(device.port);
      options.tls = tls_;
      drives_.push_back(std::make_unique<KineticDrive>(io_, std::move(options)));
    }
  }

  Status Put(Drive& drive, const std::string& key, const std::string& value) {
    Drive::PutRequest put;
    put.key = key;
    put.value = Buffer::CopyOf(AsBytes(value));
    put.version = "v";
    return Await<Status>(
        [&](StatusCallback done) { drive.Put(std::move(put), Deadline(), std::move(done)); });
  }

  Result<std::string> Get(Drive& drive, const std::string& key) {
    auto record = Await<Result<Record>>(
        [&](Callback<Record> done) { drive.Get(key, {}, Deadline(), std::move(done)); });
    if (!record) return tl::unexpected(record.error());
    return std::string(AsText(record->value));
  }

  // Each holds what it was told, and nothing that others were.
  void ExpectAllToServe(const std::string& what) {
    for (size_t i = 0; i < drives_.size(); ++i) {
      const std::string value = fmt::format("{} of {}", what, i);
      ASSERT_OK(Put(*drives_[i], what, value));
    }
    for (size_t i = 0; i < drives_.size(); ++i) {
      EXPECT_EQ(*Get(*drives_[i], what), fmt::format("{} of {}", what, i));
    }
  }

  size_t CountConnections() { return server_->CountLoad().connections; }

  std::deque<SharingDevice> devices_{kDevices};
  std::unique_ptr<Server> server_;
  std::shared_ptr<const TlsClient> tls_;
  std::vector<std::unique_ptr<KineticDrive>> drives_;
};

TEST_F(SharedConnectionsTest, AllDrivesOfAProcessHaveOne) {
  Serve();
  ConnectAll();
  ExpectAllToServe("a");
  EXPECT_EQ(CountConnections(), 1u);
  for (SharingDevice& device : devices_) EXPECT_EQ(device.service.clients().Count(), 1u);
}

TEST_F(SharedConnectionsTest, ADriveMayStillHaveOneOfItsOwn) {
  Serve();
  ConnectAll();
  drives_.push_back(Connect(devices_[0].port));
  ASSERT_OK(Put(*drives_.back(), "k", "own"));
  EXPECT_EQ(*Get(*drives_[0], "k"), "own");
  EXPECT_EQ(CountConnections(), 2u);
}

TEST_F(SharedConnectionsTest, SecondLoopsHaveSecondOnes) {
  Serve();
  KineticIo io(runtime_, {.threads = 2});
  for (const SharingDevice& device : devices_) {
    drives_.push_back(std::make_unique<KineticDrive>(io, OptionsFor(device.port)));
  }
  ExpectAllToServe("a");
  EXPECT_EQ(CountConnections(), 2u);
  drives_.clear();
}

TEST_F(SharedConnectionsTest, ItIsEncryptedWhereTheDrivesWantThat) {
  TemporaryDirectory directory;
  const TlsFiles files{directory / "tls.crt", directory / "tls.key"};
  MakeCertificate(files.certificate, files.key);
  Serve(*TlsServer::Load(files));
  tls_ = *TlsClient::Create("");
  ConnectAll();
  ExpectAllToServe("a");
  const std::string large(1 << 20, 'x');
  for (auto& drive : drives_) ASSERT_OK(Put(*drive, "large", large));
  for (auto& drive : drives_) EXPECT_EQ(*Get(*drive, "large"), large);
  EXPECT_EQ(CountConnections(), 1u);
}

// All drives at once, many requests each, from one thread and from several.
TEST_F(SharedConnectionsTest, ItCarriesMuch) {
  Serve();
  ConnectAll();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t i = 0; i < drives_.size(); ++i) {
    threads.emplace_back([this, i, &wrong] {
      Drive& drive = *drives_[i];
      for (int round = 0; round < 30; ++round) {
        const std::string key = fmt::format("k{}", round);
        const std::string value(size_t{1} << (round % 21), static_cast<char>('a' + i));
        if (!Put(drive, key, value).ok()) ++wrong;
        const Result<std::string> read = Get(drive, key);
        if (!read || *read != value) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (auto& drive : drives_) EXPECT_EQ(drive->CountLosses(), 0u);
}

TEST_F(SharedConnectionsTest, ItComesBackWithTheProcess) {
  Serve();
  ConnectAll();
  ExpectAllToServe("before");
  server_.reset();
  for (auto& drive : drives_) {
    while (drive->IsUp()) std::this_thread::yield();
    EXPECT_EQ(drive->CountLosses(), 1u);
  }
  Serve();
  for (auto& drive : drives_) {
    while (!drive->IsUp()) std::this_thread::yield();
  }
  ExpectAllToServe("after");
  EXPECT_LE(CountConnections(), kDevices) << "those that came when nobody listened yet are alone";
}

TEST_F(SharedConnectionsTest, ItEndsWithTheLastDrive) {
  Serve();
  ConnectAll();
  ExpectAllToServe("a");
  while (drives_.size() > 1) {
    drives_.pop_back();
    ExpectAllToServe(fmt::format("{} left", drives_.size()));
    EXPECT_EQ(CountConnections(), 1u);
  }
  drives_.clear();
  while (CountConnections() > 0) std::this_thread::yield();
}

// Processes of one drive each share nothing, and nobody waits for one of them who wants another.
TEST_F(SharedConnectionsTest, OtherProcessesHaveTheirOwn) {
  Serve();
  Server other(runtime_, {});
  SharingDevice alone;
  alone.port = *other.Listen("127.0.0.1", 0, alone.service);
  ConnectAll();
  drives_.push_back(std::make_unique<KineticDrive>(io_, OptionsFor(alone.port)));
  ExpectAllToServe("a");
  EXPECT_LE(CountConnections(), 2u);
  EXPECT_EQ(other.CountLoad().connections, 1u);
  drives_.clear();
  while (other.CountLoad().connections > 0) std::this_thread::yield();
}

// The key is each drive's own, whatever others of its process were told.
TEST_F(SharedConnectionsTest, EachDriveAsksForItsKey) {
  Serve();
  ConnectAll();
  ExpectAllToServe("a");
  KineticDrive::Options options = OptionsFor(devices_[3].port);
  options.key = "another key";
  KineticDrive stranger(io_, options);
  EXPECT_FAILS(Put(stranger, "k", "v"), EHOSTUNREACH);
  ExpectAllToServe("b");
}

// Who comes through a public address reaches no device that listens at another one alone.
TEST_F(SharedConnectionsTest, OtherAddressesAreNotReached) {
  Serve();
  SharingDevice hidden;
  const uint16_t port = *server_->Listen("127.0.0.2", 0, hidden.service);
  WireClient client(devices_[0].port);
  const WireClient::Answer hello = client.ReceiveAnswer();
  const auto& ports = hello.command.body().getlog().configuration().sharedports();
  EXPECT_EQ(static_cast<size_t>(ports.size()), kDevices);
  EXPECT_EQ(std::count(ports.begin(), ports.end(), port), 0);
}

std::string Said(TrunkHeader::Kind kind, uint32_t channel, uint32_t n) {
  return std::string(AsText(EncodeTrunkHeader({kind, channel, n})));
}

TEST_F(SharedConnectionsTest, AChannelToWhatIsNotSharedIsRefused) {
  Serve();
  SharingDevice hidden;
  const uint16_t port = *server_->Listen("127.0.0.2", 0, hidden.service);
  WireClient client(devices_[0].port);
  client.ReceiveFrame();
  client.Send(Said(TrunkHeader::Kind::kBegin, 1, 0) + Said(TrunkHeader::Kind::kOpen, 1, port) +
              Said(TrunkHeader::Kind::kOpen, 2, devices_[1].port));
  EXPECT_EQ(client.Receive(kTrunkHeaderBytes), Said(TrunkHeader::Kind::kEnd, 1, 0));
  const std::string piece = client.Receive(kTrunkHeaderBytes);
  EXPECT_EQ(piece.substr(0, 5), Said(TrunkHeader::Kind::kData, 2, 1).substr(0, 5)) << "it greets";
  EXPECT_EQ(hidden.service.clients().Count(), 0u);
}

TEST_F(SharedConnectionsTest, ATrunkHasTwoChannelsForEachDrive) {
  Serve();
  WireClient client(devices_[0].port);
  client.ReceiveFrame();
  client.Send(Said(TrunkHeader::Kind::kBegin, 1, 0));
  for (uint32_t channel = 1; channel <= 2 * kDevices + 1; ++channel) {
    client.Send(Said(TrunkHeader::Kind::kOpen, channel, devices_[0].port));
    const std::string header = client.Receive(kTrunkHeaderBytes);
    if (channel > 2 * kDevices) {
      EXPECT_EQ(header, Said(TrunkHeader::Kind::kEnd, channel, 0));
      continue;
    }
    const Result<TrunkHeader> piece = DecodeTrunkHeader(AsBytes(header).first<kTrunkHeaderBytes>());
    ASSERT_OK(piece);
    ASSERT_EQ(piece->kind, TrunkHeader::Kind::kData);
    client.Receive(piece->n);
  }
}

TEST_F(SharedConnectionsTest, ATrunkWithoutAChannelIsClosed) {
  Server::Options options;
  options.handshake_timeout = 50ms;
  Serve(nullptr, options);
  WireClient client(devices_[0].port);
  client.ReceiveFrame();
  client.Send(Said(TrunkHeader::Kind::kBegin, 1, 0));
  EXPECT_TRUE(client.SeesTheEnd());
  while (CountConnections() > 0) std::this_thread::yield();
}

// The limit is one of descriptors, of which channels have none.
TEST_F(SharedConnectionsTest, AProcessHasNoMoreOfThemThanItMay) {
  Server::Options options;
  options.places.connections = 2;
  Serve(nullptr, options);
  ConnectAll();
  ExpectAllToServe("a");
  auto other = Connect(devices_[1].port);
  ASSERT_OK(Put(*other, "k", "v"));
  WireClient third(devices_[2].port);
  const WireClient::Answer declined = third.ReceiveAnswer();
  EXPECT_EQ(declined.command.status().code(), kinetic::Status::SERVICE_BUSY);
  ExpectAllToServe("b");
}

}  // namespace
}  // namespace pinstripe
