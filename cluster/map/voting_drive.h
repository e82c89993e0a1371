// VotingDrive: a drive as the registers see it. It answers for as long as the drive has a say
// (cluster/map/electorate.h), and is away otherwise, also with an answer that was on its way when
// the drive lost its say.
//
// Thread-safe. The drive and the electorate outlive it.

#pragma once

#include <memory>
#include <string>

#include "cluster/map/electorate.h"
#include "drive/drive.h"

namespace pinstripe {

class VotingDrive final : public Drive {
 public:
  // `in_map`: for the registers of the drive map.
  VotingDrive(Drive& drive, DriveId id, std::shared_ptr<const Electorate> electorate, bool in_map)
      : drive_(drive), voter_{id, std::move(electorate), in_map} {}

  std::string_view name() const override { return drive_.name(); }
  DriveCapabilities capabilities() const override { return drive_.capabilities(); }
  bool IsUp() const override { return drive_.IsUp() && voter_.HasSay(); }
  std::string WhyAway() const override;
  uint64_t CountLosses() const override { return drive_.CountLosses(); }
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

 private:
  struct Voter {
    DriveId id;
    std::shared_ptr<const Electorate> electorate;
    bool in_map;
    bool HasSay() const { return in_map ? electorate->HasSayInMap(id) : electorate->HasSay(id); }
  };
  template <typename R>
  std::function<void(R)> IfItHasSay(std::function<void(R)> done) const;

  Drive& drive_;
  const Voter voter_;
};

}  // namespace pinstripe
