// ForwardingDrive: a Drive that passes every request on to another one. A test derives from it what
// is to be otherwise.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drive/drive.h"

namespace pinstripe {

class ForwardingDrive : public Drive {
 public:
  explicit ForwardingDrive(std::unique_ptr<Drive> drive) : drive_(std::move(drive)) {}

  std::string_view name() const override { return drive_->name(); }
  DriveCapabilities capabilities() const override { return drive_->capabilities(); }
  bool IsUp() const override { return drive_->IsUp(); }
  uint64_t CountLosses() const override { return drive_->CountLosses(); }
  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override {
    drive_->Get(std::move(key), range, terms, std::move(done));
  }
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override {
    drive_->Head(std::move(key), terms, std::move(done));
  }
  void Put(PutRequest request, Terms terms, StatusCallback done) override {
    drive_->Put(std::move(request), terms, std::move(done));
  }
  void PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                  Callback<Record> read) override {
    drive_->PutThenGet(std::move(request), std::move(key), terms, std::move(done), std::move(read));
  }
  void Delete(std::string key, Expected expected, Durability durability, Terms terms,
              StatusCallback done) override {
    drive_->Delete(std::move(key), std::move(expected), durability, terms, std::move(done));
  }
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
             Callback<std::vector<std::string>> done) override {
    drive_->Range(std::move(first), std::move(last), max, reverse, terms, std::move(done));
  }
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms terms, Callback<RangeRecords> done) override {
    drive_->ListRecords(std::move(first), std::move(last), max, reverse, value_limit, terms,
                        std::move(done));
  }
  void Flush(Terms terms, StatusCallback done) override { drive_->Flush(terms, std::move(done)); }
  void Info(Terms terms, Callback<DriveInfo> done) override {
    drive_->Info(terms, std::move(done));
  }
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override {
    drive_->SetClusterVersion(version, terms, std::move(done));
  }

 protected:
  Drive& drive() { return *drive_; }

 private:
  const std::unique_ptr<Drive> drive_;
};

}  // namespace pinstripe
