// FaultyDrive: a Drive that passes requests on to another one and misbehaves on command.
//
//   auto memory = std::make_shared<MemoryDrive>(...);
//   auto drive = std::make_shared<FaultyDrive>(sim, memory);
//   drive->Set({.lose_answer = 0.5});  // may be changed at any time; {} is a quick, healthy drive
//
// What it does to every request is decided when the request is made, except that a drive that goes
// down loses what is on its way. Whatever happens, the caller is answered exactly once and not
// after its deadline; a request may well be executed after its deadline.
//
// A client that may crash has its own FaultyDrives, which share one ClientLife, in front of those
// that all clients share: after the crash nothing of it reaches a drive, except what was on its way
// already.
//
// Thread-safe. The runtime outlives it.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/runtime.h"
#include "drive/drive.h"

namespace pinstripe {

struct DriveFaults {
  // How long a request, and an answer, is on its way.
  Duration least_latency = std::chrono::microseconds(20);
  Duration most_latency = std::chrono::microseconds(200);

  // Probabilities.
  double lose_request = 0;  // never executed; the caller times out
  double lose_answer = 0;   // executed; the caller times out
  double duplicate_request =
      0;                // executed, answered, and executed again up to duplicate_delay later
  double flip_bit = 0;  // of a returned value
  // What is said of a record is another one's of which this drive has heard, or is put together of
  // both: the version and tag of one and the value of the other. The key is the one that was asked
  // for. Reading alone; and nothing is said to be there, or not to be, that is not so.
  double mix_up = 0;

  Duration duplicate_delay = std::chrono::seconds(2);
  bool down = false;  // EHOSTUNREACH at once
  bool full = false;  // puts fail with ENOSPC
  // How many puts still fit before they fail so; several drives may share it. Null: any number.
  std::shared_ptr<std::atomic<int64_t>> room;
};

// Shared by the drives of one client.
class ClientLife {
 public:
  // From now on, or after `requests` more requests.
  void Crash() { CrashAfter(0); }
  void CrashAfter(uint64_t requests);
  bool crashed() const;

  // Counts a request; false when the client is no more.
  bool MaySend();

 private:
  mutable std::mutex mutex_;
  std::optional<uint64_t> left_;  // guarded by mutex_
};

// Requests made, whatever became of them.
struct DriveRequests {
  uint64_t get = 0;
  uint64_t get_messages = 0;  // of these: small ones that are asked for together are in one
  uint64_t head = 0;
  uint64_t put = 0;  // those that are asked for together are one
  uint64_t remove = 0;
  uint64_t range = 0;
  uint64_t flush = 0;
  uint64_t info = 0;
  uint64_t setup = 0;
  uint64_t durable_put = 0;  // of the puts, those that write through
  uint64_t put_bytes = 0;    // of the puts: keys, versions, tags and values
  uint64_t total() const { return get + head + put + remove + range + flush + info + setup; }
};

class FaultyDrive final : public Drive {
 public:
  FaultyDrive(Runtime& runtime, std::shared_ptr<Drive> drive,
              std::shared_ptr<ClientLife> client = nullptr);
  ~FaultyDrive() override;

  void Set(const DriveFaults& faults);
  DriveFaults faults() const;

  // Another drive, usually an empty one, stands in the same place.
  void ReplaceBy(std::shared_ptr<Drive> drive);

  DriveRequests requests() const;
  void ForgetRequests();

  std::string_view name() const override { return name_; }
  DriveCapabilities capabilities() const override;
  bool IsUp() const override;
  uint64_t CountLosses() const override;  // one more whenever it goes down, or is replaced
  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override;
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override;
  void Put(PutRequest request, Terms terms, StatusCallback done) override;
  // One request with the puts that are asked for together, where the drive behind has then_gets.
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

 private:
  class Core;
  const std::string name_;
  const std::shared_ptr<Core> core_;  // shared with what is on its way
};

}  // namespace pinstripe
