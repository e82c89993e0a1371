// EngineDrive: a Drive on an engine (engines/engine.h), so that registers are kept there as on any
// drive.
//
// It is up while the engine's store is reached and its identity is accepted. Whenever the store is
// reached again, or is another one, the identity is looked at again. What is asked before the first
// attempt has ended waits for its end; after that it fails at once while the store is away.
//
// What is asked together goes as one batch of the engine: what a thread asks for within a
// SendTogether (base/send_together.h), and what waits while as many batches as may be are under
// way. A batch takes what has the same cluster version and similar deadlines. If it fails, all that
// is in it fails with that.
//
// What was answered is safe (engines/engine.h), so nothing waits for a Flush(), and nothing can be
// forgotten: CountLosses() stays 0, and Info() tells of no starts.
//
// Thread-safe. Answers come on a thread of the engine or of the runtime.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "drive/drive.h"
#include "engines/engine.h"

namespace pinstripe {

class EngineLine;

class EngineDrive final : public Drive {
 public:
  struct Options {
    std::string name = "the engine of names";  // with what it is: "the engine of names (etcd)"

    // The record that says which drive this is, and who judges it. None: any store will do. The
    // check is given what is known of the store without asking its members, one of which may be
    // down: `info` has its id as serial number.
    std::string identity_key;
    std::function<Status(const Result<Record>& record, const Result<DriveInfo>& info)>
        check_identity;
    Duration check_timeout = std::chrono::seconds(5);
    Duration check_again = std::chrono::seconds(1);  // after a store was refused

    // Batches. What comes meanwhile goes together: a batch costs etcd and PostgreSQL about as much
    // whatever is in it, and both were fastest with 2 to 4 of them.
    uint32_t max_in_flight = 4;
    std::shared_ptr<DriveTimes> times = std::make_shared<DriveTimes>();
  };

  // Starts the engine. The runtime outlives the drive.
  EngineDrive(Runtime& runtime, std::unique_ptr<NameEngine> engine, Options options);

  // Not inside a callback of a drive.
  ~EngineDrive() override;

  std::string_view name() const override;
  DriveCapabilities capabilities() const override;
  bool IsUp() const override;
  std::string WhyAway() const override;
  uint64_t CountLosses() const override { return 0; }
  const DriveTimes* times() const override;

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

  // What the engine says of itself and its members (NameEngine::LookAt()). Also of one that is
  // refused or not reached, as far as it can tell.
  void LookAt(Terms terms, Callback<EngineState> done);

 private:
  const std::shared_ptr<EngineLine> line_;
};

}  // namespace pinstripe
