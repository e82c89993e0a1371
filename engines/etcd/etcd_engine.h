// EtcdEngine: a NameEngine on an etcd of version 3.4 or later, kept reachable by any of its
// endpoints.
//
// A batch is one transaction, with all conditions compared by etcd (engines/etcd/plan.h). A change
// whose condition is not true is told so from the records that the same transaction answers with.
// So a conditional change is one request, however it ends, unless others change the same records at
// that moment.
//
// Each request goes to one endpoint. What has certainly not been done is asked of the next one:
// everything that changes nothing, and changes that a member refused as it has no leader, or that
// could not be sent. Any other change that fails is of unknown fate: EHOSTUNREACH or ETIMEDOUT.
// Where no endpoint answers at all the engine is lost, and tries all of them until one does.
//
// etcd answers a change once a majority of its members have it on their disks, so there is nothing
// to check. One that is restored from a backup has another cluster id, and the same store.

#pragma once

#include <cstdint>
#include <memory>

#include "base/runtime.h"
#include "engines/engine.h"
#include "engines/options.h"

namespace pinstripe {

class EtcdEngine final : public NameEngine {
 public:
  // `runtime` outlives it. What is wrong with the options the listener is told.
  EtcdEngine(Runtime& runtime, EngineOptions options);

  // Not on a thread of the engine.
  ~EtcdEngine() override;

  void Start(Listener& listener) override;
  void StopTelling() override;
  void Do(EngineBatch batch, Terms terms, Callback<EngineAnswer> done) override;
  void List(EngineRange range, Terms terms, Callback<RangeRecords> done) override;
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override;
  void LookAt(Terms terms, Callback<EngineState> done) override;

  // Requests so far, to any endpoint.
  uint64_t CountRequests() const;

 private:
  class Link;
  class Batch;
  class Listing;
  const std::unique_ptr<Link> link_;
};

std::unique_ptr<NameEngine> NewEtcdEngine(Runtime& runtime, EngineOptions options);

}  // namespace pinstripe
