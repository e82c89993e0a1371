// Placement: which drives hold what, computed and never looked up.
//
// Weighted rendezvous hashing. For each placement group every drive draws a score from (group,
// drive id, pull); the drives in descending order of score are the group's list. Adding a drive
// moves to it only what it wins; nothing moves between the others: homes that an epoch leaves in
// place keep their piece. All arithmetic is on integers, so every machine computes the same list.
// docs/format.md, "Placement", has the definition and golden values.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "cluster/map/drive_map.h"
#include "cluster/map/names_place.h"

namespace pinstripe {

// Avalanche of 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014). Part of the format.
uint64_t MixBits(uint64_t x);
// The number that is mixed to this one.
uint64_t UnmixBits(uint64_t mixed);

// The group of the registers of an object: MixBits(object) mod P.
uint32_t GroupOfRegisters(const DriveMap& map, uint64_t object);
// A number of an object whose registers are in this group. `random` says which of them.
uint64_t ObjectInGroup(const DriveMap& map, uint32_t group, uint64_t random);

// The group of the stripe of block `block` of object `object`. Objects whose registers are together
// have their stripes everywhere.
uint32_t GroupOfStripe(const DriveMap& map, uint64_t object, uint64_t block);
// The first block of the object whose stripe is in the group of its registers: less than
// map.groups. A stripe there of as many shards as a register has replicas, (r-1)/2 of them parity,
// has the same homes in the same order.
uint64_t BlockAmongRegisters(const DriveMap& map, uint64_t object);

// The lot a drive draws in a group: 1..2^38. The smaller it is for the pull of the drive, the
// earlier it comes.
uint64_t DrawLot(uint32_t group, DriveId drive);

// As many placement groups as `drives` need for stripes of `shards` each, so that what each of them
// gets differs by about 2.5 % (one standard deviation) from its part: a power of two, 512 to 65536.
uint32_t EnoughGroups(size_t drives, size_t shards);
inline constexpr uint32_t kMaxGroups = 1 << 16;

// The drives of `map` in the order in which `group` wants them for `needed` pieces of which no more
// than `per_domain` should share a failure domain. The first `needed` are the homes; the rest, in
// order, are the spares. Draining drives come last. Where the domains are too few for the rule, the
// homes are filled up in order of score. Every drive appears exactly once.
std::vector<DriveId> OrderDrives(const DriveMap& map, uint32_t group, size_t needed,
                                 size_t per_domain);

// The homes of an epoch that were homes in the one before it, in their places of `before`: a piece
// stays where it is as long as its drive is a home. Those that come take the places of those that
// go, in the order of `order`, which is that of the epoch alone. The spares are as there.
std::vector<DriveId> KeepPlaces(const std::vector<DriveId>& before, std::vector<DriveId> order,
                                size_t needed);

// The homes and spares of an epoch, remembered. Those of the epochs before, from which they are
// computed, are not, unless somebody asked for them: there may be hundreds. Thread-safe.
class Placement {
 public:
  // `before`: of the epoch before; null for the first one.
  explicit Placement(DriveMap map, std::shared_ptr<Placement> before = nullptr);

  const DriveMap& map() const { return map_; }
  const NamesPlace& names() const { return names_; }
  // Of the latest epoch before that has other drives; null: there is none.
  const std::shared_ptr<Placement>& before() const { return before_; }

  // The reference stays good as long as this object.
  const std::vector<DriveId>& Order(uint32_t group, size_t needed, size_t per_domain);

  // The homes of a group's registers: as many as these have replicas. None while the registers are
  // on an engine (cluster/map/names_place.h).
  std::vector<DriveId> RegisterHomes(uint32_t group);
  // Those that they have, or would have, on the drives.
  std::vector<DriveId> HomesOnDrives(uint32_t group);

  // How many orders take memory here: those that were asked for.
  size_t Remembered() const;

 private:
  using OrderKey = std::tuple<uint32_t, size_t, size_t>;  // as Order() is asked
  const std::vector<DriveId>* Recall(const OrderKey& key) const;
  std::vector<DriveId> Compute(const OrderKey& key) const;

  const DriveMap map_;
  const NamesPlace names_;
  const std::shared_ptr<Placement> before_;
  mutable Mutex mutex_;
  std::map<OrderKey, std::unique_ptr<const std::vector<DriveId>>> orders_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
