#include "cluster/membership/drive_pulls.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/map/placement.h"

namespace pinstripe {
namespace {

constexpr uint64_t kMostLots = 1 << 24;
constexpr int kMostRounds = 30;
constexpr double kCloseEnough = 0.005;
constexpr double kClearlyBetter = 0.95;  // of how far off it was; else luck decides
constexpr double kFarthest = 16;         // from its weight
constexpr double kHeaviest = 1 << 24;    // about the largest pull at first: they are fine enough

uint32_t ToPull(double pull) {
  return static_cast<uint32_t>(std::clamp(std::round(pull), 1.0, double{UINT32_MAX}));
}

// The share of a map's groups that each active drive gets.
class Draw {
 public:
  Draw(const DriveMap& map, size_t shards, size_t per_domain)
      : groups_(map.groups), shards_(shards), per_domain_(per_domain) {
    std::map<std::string, size_t> domains;
    for (const MappedDrive& drive : map.drives) {
      if (drive.state != DriveState::kActive) continue;
      const std::string name =
          drive.domain.empty() ? std::string(1, '\0') + std::to_string(drive.id) : drive.domain;
      domains_.push_back(domains.try_emplace(name, domains.size()).first->second);
      drives_.push_back(&drive);
    }
    shards_ = std::min(shards_, drives_.size());
    taken_.resize(domains.size());
    lots_.reserve(groups_ * drives_.size());
    for (uint32_t group = 0; group < groups_; ++group) {
      for (const MappedDrive* drive : drives_) {
        lots_.push_back(static_cast<float>(DrawLot(group, drive->id)));
      }
    }
  }

  const std::vector<const MappedDrive*>& drives() const { return drives_; }

  // How many groups each is to be in: by its weight, but no more than there are, and no more of a
  // domain than it may have. (Where there are too few domains for that, placement fills up with any
  // drive, and so the domains do not count.)
  std::vector<double> Wanted() const {
    std::vector<std::vector<size_t>> members(taken_.size());
    for (size_t i = 0; i < drives_.size(); ++i) members[domains_[i]].push_back(i);
    const auto at = [this](size_t i, double rate) {
      return std::min<double>(groups_, rate * drives_[i]->weight);
    };
    const auto all_at = [&](const std::vector<size_t>& drives, double rate) {
      double pieces = 0;
      for (const size_t i : drives) pieces += at(i, rate);
      return pieces;
    };
    double most_of_domain = static_cast<double>(groups_) * static_cast<double>(per_domain_);
    const auto all_domains_at = [&](double rate) {
      double pieces = 0;
      for (const auto& drives : members) pieces += std::min(most_of_domain, all_at(drives, rate));
      return pieces;
    };
    const double pieces = static_cast<double>(groups_) * static_cast<double>(shards_);
    if (all_domains_at(groups_) < pieces) most_of_domain = pieces;

    const double rate = RateFor(pieces, all_domains_at);
    std::vector<double> wanted(drives_.size(), 0);
    for (const auto& drives : members) {
      const auto own_at = [&](double own_rate) { return all_at(drives, own_rate); };
      const bool is_full = own_at(rate) > most_of_domain;
      const double own_rate = is_full ? RateFor(most_of_domain, own_at) : rate;
      for (const size_t i : drives) wanted[i] = at(i, own_rate);
    }
    return wanted;
  }

  std::vector<double> Count(const std::vector<double>& pulls) {
    std::vector<double> got(drives_.size(), 0);
    std::vector<std::pair<double, size_t>> order(drives_.size());
    const auto cheapest = std::greater<std::pair<double, size_t>>();
    for (uint32_t group = 0; group < groups_; ++group) {
      const float* lots = &lots_[group * drives_.size()];
      for (size_t i = 0; i < drives_.size(); ++i) order[i] = {lots[i] / pulls[i], i};
      std::ranges::make_heap(order, cheapest);
      std::ranges::fill(taken_, 0);
      passed_over_.clear();
      size_t homes = 0;
      for (auto end = order.end(); homes < shards_ && end != order.begin(); --end) {
        std::ranges::pop_heap(order.begin(), end, cheapest);
        const size_t drive = std::prev(end)->second;
        if (taken_[domains_[drive]]++ < per_domain_) {
          ++got[drive];
          ++homes;
        } else {
          passed_over_.push_back(drive);
        }
      }
      for (size_t i = 0; homes < shards_; ++i, ++homes) ++got[passed_over_[i]];
    }
    return got;
  }

 private:
  // How many pieces for each unit of weight make so many. At one group for each unit every drive is
  // in all groups.
  template <typename PiecesAt>
  double RateFor(double pieces, const PiecesAt& pieces_at) const {
    double low = 0;
    double high = groups_;
    for (int halving = 0; halving < 100; ++halving) {
      const double middle = (low + high) / 2;
      (pieces_at(middle) < pieces ? low : high) = middle;
    }
    return high;
  }

  const uint32_t groups_;
  size_t shards_;
  const size_t per_domain_;
  std::vector<const MappedDrive*> drives_;
  std::vector<size_t> domains_;  // of each
  std::vector<float> lots_;      // of each group, each drive
  std::vector<size_t> taken_;
  std::vector<size_t> passed_over_;
};

// Where there are none yet, or for a new drive: by its weight, as the others pull for theirs.
void SetMissingPulls(DriveMap& map) {
  double pulls = 0;
  double weights = 0;
  uint32_t heaviest = 1;
  for (const MappedDrive& drive : map.drives) {
    heaviest = std::max(heaviest, drive.weight);
    if (drive.pull == 0) continue;
    pulls += drive.pull;
    weights += drive.weight;
  }
  const double each = weights > 0 ? pulls / weights : std::floor(kHeaviest / heaviest);
  for (MappedDrive& drive : map.drives) {
    if (drive.pull == 0) drive.pull = ToPull(drive.weight * each);
  }
}

// Only those of which `moves` says so get others than they have.
void Balance(DriveMap& map, size_t shards, size_t per_domain,
             const std::function<bool(DriveId)>& moves) {
  const bool is_small = uint64_t{map.groups} * map.drives.size() <= kMostLots;
  const bool pulls_already =
      std::ranges::any_of(map.drives, [](const MappedDrive& drive) { return drive.pull != 0; });
  if (!is_small && !pulls_already) return;
  SetMissingPulls(map);
  if (!is_small) return;

  Draw draw(map, shards, per_domain);
  const std::vector<double> wanted = draw.Wanted();
  std::vector<double> pulls;
  for (const MappedDrive* drive : draw.drives()) pulls.push_back(drive->pull);
  const std::vector<double> first = pulls;
  std::vector<double> best = pulls;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kMostRounds && least > kCloseEnough; ++round) {
    const std::vector<double> got = draw.Count(pulls);
    std::vector<double> next = pulls;
    double most = 0;
    for (size_t i = 0; i < pulls.size(); ++i) {
      if (!moves(draw.drives()[i]->id)) continue;
      most = std::max(most, std::abs(got[i] / wanted[i] - 1));
      const double step = std::clamp(wanted[i] / std::max(got[i], 1.0), 0.5, 2.0);
      next[i] = std::clamp(pulls[i] * step, first[i] / kFarthest, first[i] * kFarthest);
    }
    if (most < kClearlyBetter * least) {
      least = most;
      best = pulls;
    }
    pulls = std::move(next);
  }
  for (MappedDrive& drive : map.drives) {
    const auto place = std::ranges::find(draw.drives(), drive.id, &MappedDrive::id);
    if (place == draw.drives().end()) continue;
    drive.pull = ToPull(best[static_cast<size_t>(place - draw.drives().begin())]);
  }
}

}  // namespace

void BalanceDrives(DriveMap& map, size_t shards, size_t per_domain) {
  Balance(map, shards, per_domain, [](DriveId) { return true; });
}

void BalanceDrive(DriveMap& map, DriveId id, size_t shards, size_t per_domain) {
  Balance(map, shards, per_domain, [id](DriveId one) { return one == id; });
}

}  // namespace pinstripe
