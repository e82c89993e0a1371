// The transactions that etcd is asked for, and what its answers to them say. Pure.
//
// What etcd keeps for the cluster NAME:
//
//   pinstripe/NAME/store   which store this is: 16 bytes by chance, then the cluster version, so
//                          that later ones come after earlier ones (8 bytes)
//   pinstripe/NAME/rKEY    a record, as EncodeEngineRecord() has it
//
// Each transaction first compares the store: its id, and its cluster version if one is asked for.
// A record begins with its version, so that this can be compared, too: what is between the
// beginning and the beginning followed by 0xff. No tag is as long as 0xff would say.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engines/engine.h"
#include "engines/etcd/etcd.pb.h"
#include "engines/etcd/plan.h"

namespace pinstripe {

// The keys of a cluster's names.
class EtcdKeys {
 public:
  explicit EtcdKeys(std::string_view cluster);

  const std::string& store() const { return store_; }
  std::string Of(std::string_view key) const { return records_ + std::string(key); }
  // Null: no key of a record.
  std::optional<std::string_view> KeyIn(std::string_view etcd_key) const;

 private:
  const std::string store_;
  const std::string records_;
};

// The value of the key `store`.
struct EtcdStore {
  std::string id;
  int64_t version = 0;

  friend bool operator==(const EtcdStore&, const EtcdStore&) = default;
};
inline constexpr size_t kEtcdStoreIdBytes = 16;
std::string EncodeEtcdStore(const EtcdStore& store);
Result<EtcdStore> DecodeEtcdStore(std::string_view value);  // EBADMSG

// Everything is asked of one store, of one cluster version if it is said.
struct EtcdFence {
  std::string id;
  std::optional<int64_t> version;
};

// Whatever fails answers with the store, then with the records named as `involved`.
etcdserverpb::TxnRequest AskPlan(const EtcdKeys& keys, const EtcdFence& fence, const EtcdPlan& plan,
                                 std::span<const EngineChange> changes,
                                 std::span<const std::string> encoded,
                                 std::span<const std::string> reads);
etcdserverpb::TxnRequest AskList(const EtcdKeys& keys, const EtcdFence& fence,
                                 const EngineRange& range, uint32_t max);
// Only the store.
etcdserverpb::TxnRequest AskStore(const EtcdKeys& keys);
// Puts `next` where the store is `now`; null: where there is none. Otherwise answers with it.
etcdserverpb::TxnRequest AskToSetStore(const EtcdKeys& keys, const EtcdStore* now,
                                       const EtcdStore& next);

// What a transaction answered whose conditions were not true, of the store: null if there is none.
Result<std::optional<EtcdStore>> StoreIn(const EtcdKeys& keys,
                                         const etcdserverpb::TxnResponse& answer);
// The same, of the records that KeysOf() names.
Result<EtcdSeenRecords> SeenIn(const EtcdKeys& keys, std::span<const EngineChange> changes,
                               etcdserverpb::TxnResponse& answer);
// What AskPlan() answered whose conditions were true: the reads after `effects` changes.
std::vector<Result<Record>> ReadsIn(const EtcdKeys& keys, size_t effects,
                                    std::span<const std::string> reads,
                                    etcdserverpb::TxnResponse& answer);
struct EtcdPage {
  RangeRecords records;
  size_t bytes = 0;  // that etcd sent
};
// Whether they are those of the range, CheckedList() looks (engines/engine_checks.h).
Result<EtcdPage> PageIn(const EtcdKeys& keys, const EngineRange& range, uint32_t max,
                        etcdserverpb::TxnResponse& answer);

}  // namespace pinstripe
