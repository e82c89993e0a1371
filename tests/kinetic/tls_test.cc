// TLS on the daemon's ports and in our own client, over real sockets.

#include "kinetic/tls.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/log.h"
#include "base/read_file.h"
#include "daemon/server.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/kinetic_drive.h"
#include "store/memory_store.h"
#include "tests/daemon/tls_wire_client.h"
#include "tests/daemon/vector_runtime.h"
#include "tests/golden/kinetic_vectors.h"
#include "tests/kinetic/certificate.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/unhex.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;
using kinetic::Command;
using kinetic::Header;

// --- Certificates

class Certificates : public testing::Test {
 protected:
  Certificates() { Make("one"); }

  void Make(const std::string& name, CertificateKind kind = CertificateKind::kEllipticCurve,
            long lifetime_seconds = 3600) {
    MakeCertificate(files_.certificate, files_.key, kind, name, lifetime_seconds);
  }

  TemporaryDirectory directory_;
  const TlsFiles files_{directory_ / "tls.crt", directory_ / "tls.key"};
};

TEST_F(Certificates, ThatAreMissingOrWrongAreNamed) {
  ASSERT_OK(TlsServer::Load(files_));
  const auto refusal = [](const TlsFiles& files) {
    const auto server = TlsServer::Load(files);
    EXPECT_FALSE(server.has_value());
    return server.has_value() ? std::string() : std::string(server.error().message());
  };
  EXPECT_NE(refusal({directory_ / "none.crt", files_.key}).find("none.crt"), std::string::npos);
  EXPECT_NE(refusal({files_.certificate, directory_ / "none.key"}).find("none.key"),
            std::string::npos);
  MakeCertificate(directory_ / "other.crt", directory_ / "other.key");
  EXPECT_NE(refusal({files_.certificate, directory_ / "other.key"}).find("other.key"),
            std::string::npos);
  std::ofstream(directory_ / "junk.crt") << "not a certificate";
  EXPECT_NE(refusal({directory_ / "junk.crt", files_.key}).find("junk.crt"), std::string::npos);
  chmod(files_.key.c_str(), 0644);
  EXPECT_FAILS(TlsServer::Load(files_), EACCES);
}

// --- The server

class TlsServerTest : public Certificates {
 protected:
  TlsServerTest() {
    tls_ = *TlsServer::Load(files_);
    Start({});
  }

  void Start(Server::Options options) {
    server_ = std::make_unique<Server>(runtime_, options);
    plain_port_ = *server_->Listen("127.0.0.1", 0, service_);
    port_ = *server_->Listen("127.0.0.1", 0, service_, tls_);
  }

  VectorRuntime runtime_;
  Engine engine_{std::make_unique<MemoryStore>()};
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_{{.serial_number = "SN1"}, security_, engine_};
  std::shared_ptr<TlsServer> tls_;
  std::unique_ptr<Server> server_;
  uint16_t plain_port_ = 0;
  uint16_t port_ = 0;
};

TEST_F(TlsServerTest, GreetsAfterTheHandshakeAndNamesBothPorts) {
  TlsWireClient client(port_);
  ASSERT_TRUE(client.connected());
  const WireClient::Answer hello = client.ReceiveAnswer();
  EXPECT_EQ(hello.message.authtype(), kinetic::Message::UNSOLICITEDSTATUS);
  const auto& configuration = hello.command.body().getlog().configuration();
  EXPECT_EQ(configuration.port(), plain_port_);
  EXPECT_EQ(configuration.tlsport(), port_);
}

// What other devices' clients speak: RSA and elliptic curves, 1.2 and 1.3; and not what is broken.
TEST_F(TlsServerTest, SpeaksTls12AndLaterWithEitherKindOfCertificate) {
  for (const CertificateKind kind : {CertificateKind::kRsa, CertificateKind::kEllipticCurve}) {
    Make("any", kind);
    ASSERT_OK(tls_->Reload());
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      TlsWireClient client(port_, version);
      ASSERT_TRUE(client.connected());
      client.ReceiveFrame();
      client.Request(Header::NOOP);
      EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS) << client.version();
    }
    for (const int version : {TLS1_1_VERSION, TLS1_VERSION}) {
      EXPECT_FALSE(TlsWireClient(port_, version).connected());
    }
  }
  Make("any", CertificateKind::kRsa);
  ASSERT_OK(tls_->Reload());
  for (const char* ciphers : {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"}) {
    EXPECT_TRUE(TlsWireClient(port_, TLS1_2_VERSION, ciphers).connected()) << ciphers;
  }
  for (const char* ciphers : {"aNULL", "eNULL"}) {
    EXPECT_FALSE(TlsWireClient(port_, TLS1_2_VERSION, ciphers).connected()) << ciphers;
  }
}

TEST_F(TlsServerTest, CarriesRequestsOfEverySize) {
  TlsWireClient client(port_);
  client.ReceiveFrame();
  for (const size_t size : {0, 1, 16383, 16384, 16385, 100000, 1 << 20}) {
    const std::string value(size, 'v');
    const auto about = [&](kinetic::Body* body) { body->mutable_keyvalue()->set_key("k"); };
    client.Request(Header::PUT, about, value);
    ASSERT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS) << size;
    client.Request(Header::GET, about);
    ASSERT_EQ(client.ReceiveAnswer().value, value);
  }
}

// More than the sockets hold, in both directions at once: writes that wait, reads out of what TLS
// holds.
TEST_F(TlsServerTest, AnswersManyRequestsThatComeTogether) {
  ASSERT_OK(engine_.Put("v", {{}, SharedBytes(Buffer::Zeroed(kMaxValueBytes))}, Expected::Any()));
  TlsWireClient client(port_);
  client.ReceiveFrame();
  const auto about = [](kinetic::Body* body) { body->mutable_keyvalue()->set_key("v"); };
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(client.Request(Header::GET, about));
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(client.ReceiveAnswer().value.size(), kMaxValueBytes) << i;
  }
}

TEST_F(TlsServerTest, HandshakesThatStopHalfwayHoldUpNobodyAndEnd) {
  Start({.handshake_timeout = 300ms});
  std::vector<WireClient> silent;
  for (int i = 0; i < 50; ++i) silent.emplace_back(port_);
  for (size_t i = 0; i < silent.size(); i += 2)
    silent[i].Send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  TlsWireClient client(port_);
  ASSERT_TRUE(client.connected());
  client.ReceiveFrame();
  client.Request(Header::NOOP);
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
  for (WireClient& each : silent) EXPECT_TRUE(each.SeesTheEnd());
  client.Request(Header::NOOP);
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS) << "it has shaken hands";
}

TEST_F(TlsServerTest, WhatIsNotTlsIsHungUpOn) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("F\0\0\0\5\0\0\0\0hello", 14),
        std::string(10000, '\x16')}) {
    WireClient client(port_);
    client.Send(bytes);
    EXPECT_TRUE(client.SeesTheEnd());
  }
  TlsWireClient client(port_);
  client.ReceiveFrame();
  client.Request(Header::NOOP);
  EXPECT_EQ(client.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(TlsServerTest, ANewCertificateIsShownAndABadOneIsNot) {
  TlsWireClient before(port_);
  EXPECT_EQ(before.server_name(), "one");
  Make("two");
  ASSERT_OK(tls_->Reload());
  EXPECT_EQ(TlsWireClient(port_).server_name(), "two");
  std::ofstream(files_.certificate) << "damaged";
  EXPECT_FAILS(tls_->Reload(), EINVAL);
  EXPECT_EQ(TlsWireClient(port_).server_name(), "two");
  std::filesystem::remove(files_.key);
  EXPECT_FAILS(tls_->Reload(), ENOENT);
  EXPECT_EQ(TlsWireClient(port_).server_name(), "two");
  before.ReceiveFrame();
  before.Request(Header::NOOP);
  EXPECT_EQ(before.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(TlsServerTest, SecurityMessagesAreAnsweredAsByOtherDevices) {
  for (const KineticVector& vector : kKineticVectors) {
    if (vector.name != "SECURITY one ACL") continue;
    TlsWireClient client(port_);
    client.ReceiveFrame();
    ASSERT_TRUE(client.Send(Unhex(vector.request)));
    EXPECT_EQ(Hex(AsBytes(client.ReceiveFrame())), vector.response);
    EXPECT_TRUE(security_.has_own_identities());
    EXPECT_EQ(security_.Find(1)->rights.scopes[0].permissions.bits(), 0b110111111);
    return;
  }
  FAIL() << "the vector is gone";
}

TEST_F(TlsServerTest, AScopeForTlsIsServedOverTls) {
  Scope scope{.tls_required = true};
  scope.permissions.Add(Permission::kWrite);
  ASSERT_OK(security_.MergeIdentities({{2, {.key = "asdfasdf", .scopes = {scope}}}}));
  const auto about = [](kinetic::Body* body) {
    body->mutable_keyvalue()->set_key("k");
    body->mutable_keyvalue()->set_force(true);
  };
  WireClient plain(plain_port_);
  TlsWireClient secured(port_);
  for (WireClient* client : {&plain, static_cast<WireClient*>(&secured)}) {
    client->ReceiveFrame();
    client->SetIdentity(2);
    client->Request(Header::PUT, about, "v");
  }
  EXPECT_EQ(plain.ReceiveAnswer().code(), kinetic::Status::NOT_AUTHORIZED);
  EXPECT_EQ(secured.ReceiveAnswer().code(), kinetic::Status::SUCCESS);
}

TEST_F(TlsServerTest, StopsWithHandshakesAndRequestsUnderWay) {
  WireClient halfway(port_);
  TlsWireClient client(port_);
  client.ReceiveFrame();
  for (int i = 0; i < 50; ++i) client.Request(Header::NOOP);
  server_.reset();
  EXPECT_TRUE(client.SeesTheEnd());
  EXPECT_TRUE(halfway.SeesTheEnd());
}

// --- The client

class TlsDriveTest : public TlsServerTest {
 protected:
  void Connect(const std::string& ca_file, const std::string& host = "127.0.0.1",
               uint16_t port = 0) {
    const auto authorities = ca_file.empty() ? Result<std::string>("") : ReadFile(ca_file);
    ASSERT_OK(authorities);
    Result<std::shared_ptr<const TlsClient>> tls = TlsClient::Create(*authorities);
    ASSERT_OK(tls);
    drive_.reset();
    drive_ = std::make_unique<KineticDrive>(
        io_, KineticDrive::Options{.name = "drive 1",
                                   .addresses = {fmt::format("{}:{}", host, port ? port : port_)},
                                   .key = "asdfasdf",
                                   .tls = *tls});
  }
  Status Put(const std::string& key, SharedBytes value) {
    std::promise<Status> promise;
    drive_->Put({.key = key, .value = std::move(value)}, runtime_.Now() + 10s,
                [&](Status status) { promise.set_value(std::move(status)); });
    return promise.get_future().get();
  }
  Result<Record> Get(const std::string& key) {
    std::promise<Result<Record>> promise;
    drive_->Get(key, {}, runtime_.Now() + 10s,
                [&](Result<Record> record) { promise.set_value(std::move(record)); });
    return promise.get_future().get();
  }

  KineticIo io_{runtime_};
  std::unique_ptr<KineticDrive> drive_;
};

TEST_F(TlsDriveTest, ADriveBehindTlsIsADrive) {
  Connect("");
  for (const size_t size : {0, 1, 16384, 1 << 20}) {
    ASSERT_OK(Put("k", SharedBytes(std::string(size, 'v'))));
    const Result<Record> record = Get("k");
    ASSERT_OK(record);
    EXPECT_EQ(record->value.size(), size);
  }
  EXPECT_FAILS(Get("nothing"), ENOENT);
}

TEST_F(TlsDriveTest, ManyRequestsAtOnceInBothDirections) {
  Connect("");
  ASSERT_OK(Put("v", SharedBytes(Buffer::Zeroed(kMaxValueBytes))));
  constexpr int kCount = 200;
  std::atomic<int> left = 2 * kCount;
  std::atomic<int> failed = 0;
  std::promise<void> finished;
  const auto done = [&](bool ok) {
    if (!ok) ++failed;
    if (--left == 0) finished.set_value();
  };
  const SharedBytes value(Buffer::Zeroed(kMaxValueBytes));
  for (int i = 0; i < kCount; ++i) {
    drive_->Get("v", {}, runtime_.Now() + 60s, [&](Result<Record> record) {
      done(record.has_value() && record->value.size() == kMaxValueBytes);
    });
    drive_->Put({.key = fmt::format("{}", i % 8), .value = value}, runtime_.Now() + 60s,
                [&](const Status& status) { done(status.ok()); });
  }
  finished.get_future().wait();
  EXPECT_EQ(failed, 0);
}

TEST_F(TlsDriveTest, BelievesOnlyTheCertificatesItWasGiven) {
  Connect(files_.certificate);
  EXPECT_OK(Put("k", {}));
  Connect(files_.certificate, "localhost");
  EXPECT_OK(Put("k", {}));
  MakeCertificate(directory_ / "other.crt", directory_ / "other.key");
  Connect(directory_ / "other.crt");
  const Status refused = Put("k", {});
  EXPECT_FAILS(refused, EHOSTUNREACH);
  EXPECT_NE(refused.message().find("certificate is not believed"), std::string_view::npos)
      << refused.message();
  Make("expired", CertificateKind::kEllipticCurve, -3600);
  ASSERT_OK(tls_->Reload());
  Connect(files_.certificate);
  EXPECT_NE(Put("k", {}).message().find("expired"), std::string_view::npos);
}

TEST_F(TlsDriveTest, AuthoritiesAreCertificatesOneAfterTheOther) {
  MakeCertificate(directory_ / "other.crt", directory_ / "other.key");
  const std::string first = *ReadFile(directory_ / "other.crt");
  const std::string second = *ReadFile(files_.certificate);
  for (const std::string& text :
       {first + second, second + first, "Some words.\n" + second + "\n"}) {
    std::ofstream(directory_ / "all.crt") << text;
    Connect(directory_ / "all.crt");
    EXPECT_OK(Put("k", {}));
  }
  EXPECT_OK(TlsClient::Create(first));
  EXPECT_FAILS(TlsClient::Create("no certificate"), EINVAL);
  EXPECT_FAILS(TlsClient::Create(first + second.substr(0, second.size() / 2)), EINVAL);
  std::string damaged = first;
  damaged[damaged.size() / 2] = '!';
  EXPECT_FAILS(TlsClient::Create(second + damaged), EINVAL);
}

TEST(TlsCertificateTest, ItsEndIsToldAMonthBefore) {
  using std::chrono::hours;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const std::chrono::sys_seconds never(std::chrono::seconds(253402300799));  // in the year 9999
  EXPECT_EQ(TextOfEnd(never, now), "");
  EXPECT_EQ(TextOfEnd(now + hours(24 * 31), now), "");
  EXPECT_EQ(TextOfEnd(now + hours(24 * 29), now), "ends in 29 days");
  EXPECT_EQ(TextOfEnd(now + hours(20), now), "ends in 20 hours");
  EXPECT_EQ(TextOfEnd(now, now), "has expired");
}

TEST_F(TlsDriveTest, AnotherMachinesCertificateIsNotBelieved) {
  // The certificate names localhost and 127.0.0.1; 127.0.0.2 is this machine, too.
  port_ = *server_->Listen("127.0.0.2", 0, service_, tls_);
  Connect(files_.certificate, "127.0.0.2");
  EXPECT_NE(Put("k", {}).message().find("certificate is not believed"), std::string_view::npos);
  Connect("", "127.0.0.2");
  EXPECT_OK(Put("k", {}));
}

TEST_F(TlsDriveTest, APlainPortIsNoTlsPort) {
  Connect("", "127.0.0.1", plain_port_);
  const Status refused = Put("k", {});
  EXPECT_FAILS(refused, EHOSTUNREACH);
  EXPECT_NE(refused.message().find("no TLS"), std::string_view::npos) << refused.message();
}

}  // namespace
}  // namespace pinstripe
