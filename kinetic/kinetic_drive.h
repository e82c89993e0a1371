// KineticDrive: a Drive behind a socket, kept connected.
//
// It connects at once, and again whenever the connection is lost: with a back-off, at each of its
// addresses in turn. After connecting it takes the greeting, asks what the device can do, and reads
// the identity record, which must satisfy the check: only then the drive is up. A device that is
// not the right one is away, whatever its address.
//
// While the drive is away every operation fails at once with EHOSTUNREACH and the reason. Only the
// operations issued before the very first attempt has ended wait for its end, so that a program can
// start using its drives right after making them.
//
// A connection that is not used for a while is closed. The drive is up nevertheless: the next
// operation waits until it is connected again.
//
// Answers come on the thread of the I/O loop that serves the drive. Operations beyond the device's
// limits wait for their turn, until their deadline.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "drive/drive.h"
#include "kinetic/drive_slow.h"
#include "kinetic/drive_use.h"
#include "kinetic/io.h"
#include "kinetic/waited_requests.h"

namespace pinstripe {

template <typename Link>
class CurrentLink;
class TlsClient;

class KineticDrive final : public Drive {
 public:
  struct Options {
    std::string name;                    // "drive 3"
    std::vector<std::string> addresses;  // as ParseDriveAddress() reads them; at least one
    int64_t identity = 1;                // who we are for the device, and our key, raw bytes
    std::string key;
    std::shared_ptr<const TlsClient> tls;  // null: without TLS

    // Which record tells what drive this is, and whether it is the right one; its failure is the
    // reason that operations then give. The check is called on the I/O loop's thread for each new
    // connection, with what Info() answers; it does not wait. ENOENT: the device has no such
    // record. No check: any device will do.
    std::string identity_key;
    std::function<Status(const Result<Record>& record, const Result<DriveInfo>& info)>
        check_identity;

    // For one address to connect, greet and prove itself.
    Duration connect_timeout = std::chrono::seconds(5);
    // Between two attempts: doubles from one to the other, and is spread by chance.
    Duration least_backoff = std::chrono::milliseconds(100);
    Duration most_backoff = std::chrono::seconds(1);
    // A connection is closed after it was not used for so long, and at the latest after twice that.
    // Not to a device that does not tell its starts. One that cannot be reached for the next
    // operation, or that may have forgotten something by then, is counted as lost. Zero: never.
    Duration idle_timeout{};
    // Drives of one process share a connection to it where it can (shared_connections.h).
    bool shares_connection = false;
    // How long an answer may be missing, after its operation has timed out, before the connection
    // is given up.
    Duration patience = std::chrono::seconds(30);
    // At most so many reads, and as many writes, are in flight; fewer where the device says so.
    uint32_t max_in_flight = 128;

    // Counted here, whichever way the drive goes.
    std::shared_ptr<DriveTimes> times = std::make_shared<DriveTimes>();
    std::shared_ptr<WaitedRequests> waited = std::make_shared<WaitedRequests>();
  };

  // `io` and its runtime outlive the drive.
  KineticDrive(KineticIo& io, Options options);

  // Not inside a callback of a drive.
  ~KineticDrive() override;

  // Goes on with other addresses, credentials and TLS; of `way` nothing else counts. What is under
  // way fails as if the connection was lost, which CountLosses() counts; what comes then waits for
  // the first attempt, as at the beginning. Any thread.
  void Redirect(const Options& way);

  std::string_view name() const override;
  DriveCapabilities capabilities() const override;  // none until it was up once
  bool IsUp() const override;
  uint64_t CountLosses() const override;
  const DriveTimes* times() const override;
  std::vector<WaitedRequest> WaitedFor(std::span<const uint64_t> operations) const override;
  void Tell(std::vector<SlowOperation> operations, Terms terms) override;

  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override;
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override;
  void Put(PutRequest request, Terms terms, StatusCallback done) override;
  void PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                  Callback<Record> read) override;
  void Delete(std::string key, Expected expected, Durability durability, Terms terms,
              StatusCallback done) override;
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
             Callback<std::vector<std::string>> done) override;
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms terms, Callback<RangeRecords> done) override;
  void Flush(Terms terms, StatusCallback done) override;
  void Info(Terms terms, Callback<DriveInfo> done) override;
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override;

  // What a Kinetic device can do beyond a Drive: the record whose key is the first one above `key`,
  // or with `previous` the last one below. ENOENT: there is none.
  void GetNeighbour(std::string key, bool previous, Terms terms, Callback<KeyedRecord> done);

  // Who uses the device, and what it did for them. ENOTSUP: it does not tell.
  void AskUse(Terms terms, Callback<DriveUse> done);

  // What took long at the device, and for those who have told it. ENOTSUP: it does not tell.
  void AskSlow(Terms terms, Callback<DriveSlow> done);

 private:
  class Link;
  std::shared_ptr<Link> link() const;

  KineticIo& io_;
  std::unique_ptr<CurrentLink<Link>> link_;
};

}  // namespace pinstripe
