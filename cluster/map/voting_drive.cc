#include "cluster/map/voting_drive.h"

#include <utility>

namespace pinstripe {

std::string VotingDrive::WhyAway() const {
  return drive_.IsUp() ? voter_.electorate->WhyNot(voter_.id) : drive_.WhyAway();
}

// A request that was executed may have been: EHOSTUNREACH says no more than that.
template <typename R>
std::function<void(R)> VotingDrive::IfItHasSay(std::function<void(R)> done) const {
  return [voter = voter_, done = std::move(done)](R answer) {
    if (voter.HasSay()) return done(std::move(answer));
    done(Fail(EHOSTUNREACH, "drive {}: {}", voter.id, voter.electorate->WhyNot(voter.id)));
  };
}

void VotingDrive::Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) {
  drive_.Get(std::move(key), range, terms, IfItHasSay(std::move(done)));
}

void VotingDrive::Head(std::string key, Terms terms, Callback<RecordHead> done) {
  drive_.Head(std::move(key), terms, IfItHasSay(std::move(done)));
}

void VotingDrive::Put(PutRequest request, Terms terms, StatusCallback done) {
  drive_.Put(std::move(request), terms, IfItHasSay(std::move(done)));
}

void VotingDrive::PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                             Callback<Record> read) {
  drive_.PutThenGet(std::move(request), std::move(key), terms, IfItHasSay(std::move(done)),
                    IfItHasSay(std::move(read)));
}

void VotingDrive::Delete(std::string key, Expected expected, Durability durability, Terms terms,
                         StatusCallback done) {
  drive_.Delete(std::move(key), std::move(expected), durability, terms,
                IfItHasSay(std::move(done)));
}

void VotingDrive::Range(std::string first, std::string last, uint32_t max, bool reverse,
                        Terms terms, Callback<std::vector<std::string>> done) {
  drive_.Range(std::move(first), std::move(last), max, reverse, terms, IfItHasSay(std::move(done)));
}

void VotingDrive::ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                              uint32_t value_limit, Terms terms, Callback<RangeRecords> done) {
  drive_.ListRecords(std::move(first), std::move(last), max, reverse, value_limit, terms,
                     IfItHasSay(std::move(done)));
}

void VotingDrive::Flush(Terms terms, StatusCallback done) {
  drive_.Flush(terms, IfItHasSay(std::move(done)));
}

void VotingDrive::Info(Terms terms, Callback<DriveInfo> done) {
  drive_.Info(terms, std::move(done));
}

void VotingDrive::SetClusterVersion(int64_t version, Terms terms, StatusCallback done) {
  drive_.SetClusterVersion(version, terms, std::move(done));
}

}  // namespace pinstripe
