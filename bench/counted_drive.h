// CountedDrive: one client's way to a drive, which counts what goes there and how much CPU the
// calls of the drive take. For bench/scale.cc, whose drives are in memory and work inside these
// calls.

#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/map/drive_map.h"
#include "tests/support/forwarding_drive.h"

namespace pinstripe {

inline double CpuOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What clients have asked of drives.
struct Traffic {
  explicit Traffic(size_t drives) : of_drive(drives + 1) {}
  std::atomic<uint64_t> requests = 0;
  std::atomic<uint64_t> bytes = 0;  // of keys and values, there and back
  std::atomic<int64_t> nanoseconds = 0;
  std::vector<std::atomic<uint64_t>> of_drive;
};

// Counts what it passes on.
class CountedDrive final : public ForwardingDrive {
 public:
  CountedDrive(std::unique_ptr<Drive> drive, DriveId id, std::shared_ptr<Traffic> traffic)
      : ForwardingDrive(std::move(drive)), id_(id), traffic_(std::move(traffic)) {}

  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override {
    const Call call(*this, key.size());
    ForwardingDrive::Get(std::move(key), range, terms,
                         [traffic = traffic_, done = std::move(done)](Result<Record> record) {
                           if (record.has_value()) traffic->bytes += record->value.text().size();
                           done(std::move(record));
                         });
  }
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override {
    const Call call(*this, key.size());
    ForwardingDrive::Head(std::move(key), terms, std::move(done));
  }
  void Put(PutRequest request, Terms terms, StatusCallback done) override {
    const Call call(*this, request.key.size() + request.value.text().size());
    ForwardingDrive::Put(std::move(request), terms, std::move(done));
  }
  void PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                  Callback<Record> read) override {
    const Call call(*this, request.key.size() + request.value.text().size());
    ForwardingDrive::PutThenGet(std::move(request), std::move(key), terms, std::move(done),
                                std::move(read));
  }
  void Delete(std::string key, Expected expected, Durability durability, Terms terms,
              StatusCallback done) override {
    const Call call(*this, key.size());
    ForwardingDrive::Delete(std::move(key), std::move(expected), durability, terms,
                            std::move(done));
  }
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
             Callback<std::vector<std::string>> done) override {
    using Keys = std::vector<std::string>;
    const Call call(*this, 0);
    ForwardingDrive::Range(std::move(first), std::move(last), max, reverse, terms,
                           [traffic = traffic_, done = std::move(done)](Result<Keys> keys) {
                             if (keys.has_value()) {
                               for (const auto& key : *keys) traffic->bytes += key.size();
                             }
                             done(std::move(keys));
                           });
  }
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms terms, Callback<RangeRecords> done) override {
    const Call call(*this, 0);
    ForwardingDrive::ListRecords(
        std::move(first), std::move(last), max, reverse, value_limit, terms,
        [traffic = traffic_, done = std::move(done)](Result<RangeRecords> range) {
          if (range.has_value()) {
            for (const auto& each : range->records) {
              traffic->bytes += each.key.size() + each.record.value.text().size();
            }
          }
          done(std::move(range));
        });
  }
  void Flush(Terms terms, StatusCallback done) override {
    const Call call(*this, 0);
    ForwardingDrive::Flush(terms, std::move(done));
  }
  void Info(Terms terms, Callback<DriveInfo> done) override {
    const Call call(*this, 0);
    ForwardingDrive::Info(terms, std::move(done));
  }

 private:
  class Call {
   public:
    Call(CountedDrive& drive, size_t bytes) : traffic_(*drive.traffic_) {
      ++traffic_.requests;
      ++traffic_.of_drive[drive.id_];
      traffic_.bytes += bytes;
    }
    ~Call() {
      traffic_.nanoseconds += static_cast<int64_t>(1e9 * (CpuOf(CLOCK_THREAD_CPUTIME_ID) - began_));
    }

   private:
    Traffic& traffic_;
    const double began_ = CpuOf(CLOCK_THREAD_CPUTIME_ID);
  };
  const DriveId id_;
  const std::shared_ptr<Traffic> traffic_;
};

}  // namespace pinstripe
