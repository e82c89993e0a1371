#include "cluster/map/placement.h"

#include <algorithm>
#include <bit>
#include <numbers>
#include <set>
#include <string_view>
#include <utility>

namespace pinstripe {
namespace {

__extension__ using Wide = unsigned __int128;

// floor(2^32 log2(x)), x >= 1, as docs/format.md defines it. Squaring a number doubles its
// logarithm, so whether the square of a mantissa in [1, 2) reaches 2 is the next binary digit of
// its logarithm.
uint64_t FixedLog2(uint64_t x) {
  const int whole = 63 - std::countl_zero(x);
  uint64_t mantissa = x << (63 - whole);  // 2^63 stands for 1
  uint64_t fraction = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const Wide square = static_cast<Wide>(mantissa) * mantissa;
    const bool two_or_more = static_cast<uint64_t>(square >> 127) != 0;
    fraction = fraction << 1 | static_cast<uint64_t>(two_or_more);
    mantissa = static_cast<uint64_t>(square >> (two_or_more ? 64 : 63));
  }
  return (static_cast<uint64_t>(whole) << 32) + fraction;
}

struct Candidate {
  const MappedDrive* drive;
  uint64_t lot;

  // Cheaper first; lot / pull is compared without dividing.
  bool Before(const Candidate& other) const {
    if (drive->state != other.drive->state) return drive->state == DriveState::kActive;
    const Wide mine = static_cast<Wide>(lot) * other.drive->Pull();
    const Wide theirs = static_cast<Wide>(other.lot) * drive->Pull();
    return mine != theirs ? mine < theirs : drive->id < other.drive->id;
  }
};

// The draws of a map's drives in a group. They draw the same in each epoch.
class Lots {
 public:
  Lots(const DriveMap& map, uint32_t group) : group_(group) {
    lots_.reserve(map.drives.size());
    for (const MappedDrive& drive : map.drives)
      lots_.emplace_back(drive.id, DrawLot(group, drive.id));
  }

  // For this map's drives, or those of an earlier one.
  std::vector<Candidate> Candidates(const DriveMap& map) const {
    std::vector<Candidate> candidates;
    candidates.reserve(map.drives.size());
    auto lot = lots_.begin();  // ascending by id, as the drives are
    for (const MappedDrive& drive : map.drives) {
      while (lot != lots_.end() && lot->first < drive.id) ++lot;
      const bool has_drawn = lot != lots_.end() && lot->first == drive.id;
      candidates.push_back({&drive, has_drawn ? lot->second : DrawLot(group_, drive.id)});
    }
    return candidates;
  }

 private:
  const uint32_t group_;
  std::vector<std::pair<DriveId, uint64_t>> lots_;
};

std::vector<DriveId> Ordered(std::vector<Candidate> candidates, size_t needed, size_t per_domain) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.Before(b); });

  std::vector<DriveId> homes;
  std::vector<DriveId> rest;
  homes.reserve(candidates.size());
  std::map<std::string_view, size_t> taken;  // from each named domain
  for (const Candidate& candidate : candidates) {
    const std::string& domain = candidate.drive->domain;
    size_t none = 0;
    const bool is_full = homes.size() == needed;
    size_t& from_domain = is_full || domain.empty() ? none : taken[domain];
    if (!is_full && from_domain < per_domain) {
      homes.push_back(candidate.drive->id);
      ++from_domain;
    } else {
      rest.push_back(candidate.drive->id);
    }
  }
  // Appending fills the homes up with those that were passed over, in order, where that is needed.
  homes.insert(homes.end(), rest.begin(), rest.end());
  return homes;
}

}  // namespace

uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}

// Each step the other way round; what a number is multiplied by has an inverse modulo 2^64.
uint64_t UnmixBits(uint64_t mixed) {
  uint64_t x = mixed;
  x ^= x >> 31 ^ x >> 62;
  x *= 0x319642b2d24d8ec3u;
  x ^= x >> 27 ^ x >> 54;
  x *= 0x96de1b173f119089u;
  x ^= x >> 30 ^ x >> 60;
  return x;
}

uint64_t DrawLot(uint32_t group, DriveId drive) {
  const uint64_t u =
      MixBits(MixBits(group + 0x9e3779b97f4a7c15u) ^ MixBits(drive + 0x632be59bd9b4e019u));
  return (uint64_t{64} << 32) - FixedLog2(u | 1);
}

uint32_t GroupOfRegisters(const DriveMap& map, uint64_t object) {
  return static_cast<uint32_t>(MixBits(object) % map.groups);
}

uint64_t ObjectInGroup(const DriveMap& map, uint32_t group, uint64_t random) {
  return UnmixBits(random / map.groups * map.groups + group);
}

uint32_t GroupOfStripe(const DriveMap& map, uint64_t object, uint64_t block) {
  constexpr uint64_t kOther = 0xd1b54a32d192ed03;
  return static_cast<uint32_t>((MixBits(object ^ kOther) + block) % map.groups);
}

uint64_t BlockAmongRegisters(const DriveMap& map, uint64_t object) {
  const uint64_t wanted = GroupOfRegisters(map, object);
  return (wanted + map.groups - GroupOfStripe(map, object, 0)) % map.groups;
}

// A drive is in a group's first `shards` with probability p = shards / drives, so it gets p P of P
// groups, with a variance of P p (1 - p).
uint32_t EnoughGroups(size_t drives, size_t shards) {
  constexpr uint32_t kFewest = 512;
  constexpr double kDeviation = 0.025;
  const double others = static_cast<double>(drives) / static_cast<double>(shards) - 1;
  uint32_t groups = kFewest;
  // The nearest power of two, by its logarithm.
  while (groups < kMaxGroups && std::numbers::sqrt2 * groups < others / (kDeviation * kDeviation)) {
    groups *= 2;
  }
  return groups;
}

std::vector<DriveId> OrderDrives(const DriveMap& map, uint32_t group, size_t needed,
                                 size_t per_domain) {
  return Ordered(Lots(map, group).Candidates(map), needed, per_domain);
}

std::vector<DriveId> KeepPlaces(const std::vector<DriveId>& before, std::vector<DriveId> order,
                                size_t needed) {
  needed = std::min(needed, order.size());
  const auto end = order.begin() + static_cast<ptrdiff_t>(needed);
  std::vector<DriveId> homes(needed, 0);
  std::set<DriveId> kept;
  for (size_t i = 0; i < std::min(needed, before.size()); ++i) {
    if (std::find(order.begin(), end, before[i]) == end) continue;
    homes[i] = before[i];
    kept.insert(before[i]);
  }
  auto coming = order.begin();
  for (DriveId& home : homes) {
    if (home != 0) continue;
    while (kept.contains(*coming)) ++coming;
    home = *coming++;
  }
  std::copy(homes.begin(), homes.end(), order.begin());
  return order;
}

Placement::Placement(DriveMap map, std::shared_ptr<Placement> before)
    : map_(std::move(map)),
      names_(NamesPlaceOf(map_)),
      before_(before != nullptr && before->map_.drives == map_.drives ? before->before_
                                                                      : std::move(before)) {}

const std::vector<DriveId>& Placement::Order(uint32_t group, size_t needed, size_t per_domain) {
  const OrderKey key{group, needed, per_domain};
  if (const auto* known = Recall(key)) return *known;
  auto order = std::make_unique<const std::vector<DriveId>>(Compute(key));
  const MutexLock lock(mutex_);
  return *orders_.try_emplace(key, std::move(order)).first->second;  // or who was faster
}

const std::vector<DriveId>* Placement::Recall(const OrderKey& key) const {
  const MutexLock lock(mutex_);
  const auto found = orders_.find(key);
  return found == orders_.end() ? nullptr : found->second.get();
}

size_t Placement::Remembered() const {
  const MutexLock lock(mutex_);
  return orders_.size();
}

// From the latest epoch of which the order is known, or from the first, to this one.
std::vector<DriveId> Placement::Compute(const OrderKey& key) const {
  const auto& [group, needed, per_domain] = key;
  const Lots lots(map_, group);
  std::vector<const Placement*> unknown{this};
  const std::vector<DriveId>* known = nullptr;
  for (const Placement* each = before_.get(); each != nullptr; each = each->before_.get()) {
    known = each->Recall(key);
    if (known != nullptr) break;
    unknown.push_back(each);
  }
  std::vector<DriveId> order;
  if (known != nullptr) order = *known;
  for (auto each = unknown.rbegin(); each != unknown.rend(); ++each) {
    const DriveMap& map = (*each)->map_;
    std::vector<DriveId> drives = Ordered(lots.Candidates(map), needed, per_domain);
    const bool is_first = (*each)->before_ == nullptr;
    order = is_first ? std::move(drives) : KeepPlaces(order, std::move(drives), needed);
  }
  return order;
}

std::vector<DriveId> Placement::RegisterHomes(uint32_t group) {
  if (names_.OnEngine()) return {};
  return HomesOnDrives(group);
}

std::vector<DriveId> Placement::HomesOnDrives(uint32_t group) {
  const size_t replicas = map_.replicas;
  std::vector<DriveId> homes = Order(group, replicas, (replicas - 1) / 2);
  homes.resize(replicas);
  return homes;
}

}  // namespace pinstripe
