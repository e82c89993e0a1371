// RedisDrive: a Drive on a database of a Redis-protocol store (Redis 7, Valkey), kept connected as
// KineticDrive is.
//
// After connecting it logs in, chooses the database, and refuses a server that could lose what it
// has confirmed (redis/server_check.h). Then it loads the scripts (redis/scripts.h) and has the
// identity record checked: only then the drive is up. A server answers a change only when that is
// on its disk. What is written through asks behind each change whether it still does so, and
// Flush() asks whether it is still the same store on a server that is to be relied on. Otherwise
// the server is left. One that was started again may have forgotten something (DriveInfo::starts).
//
// Each operation is one script in one message. Answers come on the thread of the I/O loop that
// serves the drive.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "drive/drive.h"
#include "kinetic/io.h"

namespace pinstripe {

template <typename Link>
class CurrentLink;
class TlsClient;
class RedisOperation;

class RedisDrive final : public Drive {
 public:
  struct Options {
    std::string name;                      // "drive 3"
    std::vector<std::string> addresses;    // as ParseRedisAddress() reads them, of one database
    std::string user;                      // empty: the server's default one
    std::string password;                  // empty: none is asked for
    std::shared_ptr<const TlsClient> tls;  // for "rediss://"

    // As in KineticDrive::Options.
    std::string identity_key;
    std::function<Status(const Result<Record>& record, const Result<DriveInfo>& info)>
        check_identity;
    Duration connect_timeout = std::chrono::seconds(5);
    Duration least_backoff = std::chrono::milliseconds(100);
    Duration most_backoff = std::chrono::seconds(1);
    Duration idle_timeout{};
    Duration patience = std::chrono::seconds(30);
    uint32_t max_in_flight = 128;
    std::shared_ptr<DriveTimes> times = std::make_shared<DriveTimes>();
  };

  // `io` and its runtime outlive the drive.
  RedisDrive(KineticIo& io, Options options);

  // Not inside a callback of a drive.
  ~RedisDrive() override;

  // As KineticDrive::Redirect().
  void Redirect(const Options& way);

  std::string_view name() const override;
  DriveCapabilities capabilities() const override;
  bool IsUp() const override;
  std::string WhyAway() const override;
  uint64_t CountLosses() const override;
  const DriveTimes* times() const override;

  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override;
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override;
  void Put(PutRequest request, Terms terms, StatusCallback done) override;
  void Delete(std::string key, Expected expected, Durability durability, Terms terms,
              StatusCallback done) override;
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
             Callback<std::vector<std::string>> done) override;
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms terms, Callback<RangeRecords> done) override;
  void Flush(Terms terms, StatusCallback done) override;
  void Info(Terms terms, Callback<DriveInfo> done) override;
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override;

 private:
  class Link;
  std::shared_ptr<Link> link() const;

  KineticIo& io_;
  std::unique_ptr<CurrentLink<Link>> link_;
};

}  // namespace pinstripe
