#include "upkeep/margin.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "cluster/registers/store.h"

namespace pinstripe {
namespace {

// Draws of drives that a process takes its time for: some tenths of a second per kind of stripe.
constexpr size_t kMostDraws = 1 << 20;

class Count {
 public:
  explicit Count(const MarginQuestion& question)
      : question_(question), newest_(question.placements.back()->map()) {
    std::map<std::string, int> numbers;
    for (const MappedDrive& drive : newest_.drives) {
      const auto [at, is_new] =
          numbers.emplace(DomainNameOf(drive), static_cast<int>(numbers.size()));
      domains_[drive.id] = at->second;
      if (drive.state == DriveState::kDraining) draining_.insert(drive.id);
    }
  }

  Margin Run() {
    for (const auto& placement : question_.placements) {
      for (const Geometry& stripes : question_.stripes) CountData(*placement, stripes);
    }
    CountNames();
    CountMap();
    return margin_;
  }

 private:
  using Kind = MarginPart::Kind;
  using IsUp = std::function<bool(DriveId)>;

  bool Answers(DriveId id) const { return !question_.away.contains(id) && domains_.contains(id); }
  bool TakesChanges(DriveId id) const { return Answers(id) && !question_.read_only.contains(id); }
  bool TakesData(DriveId id) const { return TakesChanges(id) && !question_.full.contains(id); }

  template <typename Each>
  void ForGroups(const DriveMap& map, const Each& each) {
    const size_t most = std::max<size_t>(1, kMostDraws / std::max<size_t>(1, map.drives.size()));
    uint32_t step = 1;
    while (map.groups / step > most) step *= 2;
    if (step > 1) margin_.exact = false;
    for (uint32_t group = 0; group < map.groups; group += step) each(group);
  }

  void CountData(Placement& placement, Geometry stripes) {
    const DriveMap& map = placement.map();
    const bool is_newest = map.epoch == newest_.epoch;
    const auto shards = static_cast<size_t>(stripes.shards());
    const auto parity = static_cast<size_t>(stripes.parity_shards);
    const auto data = static_cast<size_t>(stripes.data_shards);
    const size_t to_store = data + std::min<size_t>(parity, question_.min_redundancy);
    std::optional<size_t> usual_up;
    ForGroups(map, [&](uint32_t group) {
      const std::vector<DriveId>& order = placement.Order(group, shards, parity);
      const auto end = order.begin() + static_cast<ptrdiff_t>(std::min(shards, order.size()));
      MarginPart part{Kind::kData, stripes, map.epoch, group, {order.begin(), end}, data};
      // Everything has left these drives, so all blocks of the group have other homes by now.
      const bool has_moved = std::ranges::any_of(
          part.drives, [&](DriveId id) { return question_.retired.contains(id); });
      if (is_newest || !has_moved) AddReading(part, [&](DriveId id) { return Answers(id); });
      if (!is_newest) return;
      // What a home does not take a spare does, unless that is to become empty. So most groups have
      // the same drives to write to, and are as one.
      const bool is_usual =
          std::ranges::none_of(part.drives, [&](DriveId id) { return draining_.contains(id); });
      if (is_usual && usual_up) {
        if (*usual_up < to_store) ++margin_.unwritable;
        return;
      }
      for (auto spare = end; spare != order.end(); ++spare) {
        if (!draining_.contains(*spare)) part.drives.push_back(*spare);
      }
      part.needed = to_store;
      const size_t up = AddWriting(part, [&](DriveId id) { return TakesData(id); });
      if (up < shards) margin_.writes_short = true;
      if (is_usual) usual_up = up;
    });
  }

  void CountNames() {
    Placement& placement = *question_.placements.back();
    if (placement.names().OnEngine()) return;  // no drive has a part of them
    ForGroups(newest_, [&](uint32_t group) {
      std::vector<DriveId> homes = placement.RegisterHomes(group);
      const size_t majority = homes.size() / 2 + 1;
      if (question_.unsettled != nullptr) {
        const std::vector<DriveId> before = question_.unsettled->RegisterHomes(group);
        std::erase_if(homes, [&](DriveId id) { return std::ranges::count(before, id) == 0; });
      }
      AddRegisters({Kind::kNames, {}, newest_.epoch, group, std::move(homes), majority}, true);
    });
  }

  void CountMap() {
    AddRegisters({Kind::kMap,
                  {},
                  newest_.epoch,
                  kMapGroup,
                  question_.map_drives,
                  question_.map_drives.size() / 2 + 1},
                 false);
  }

  // `needs_say`: those of the map are written through, so that nothing of them is forgotten.
  void AddRegisters(const MarginPart& part, bool needs_say) {
    const auto has_say = [&](DriveId id) {
      return !needs_say || !question_.without_say.contains(id);
    };
    AddReading(part, [&](DriveId id) { return Answers(id) && has_say(id); });
    AddWriting(part, [&](DriveId id) { return TakesChanges(id) && has_say(id); });
  }

  void AddReading(const MarginPart& part, const IsUp& is_up) {
    ++margin_.parts;
    if (Add(part, is_up, margin_.reading, is_first_reading_) >= part.needed) return;
    ++margin_.unreadable;
    (part.kind == Kind::kData ? margin_.data_readable : margin_.names_readable) = false;
  }

  size_t AddWriting(const MarginPart& part, const IsUp& is_up) {
    const size_t up = Add(part, is_up, margin_.writing, is_first_writing_);
    if (up >= part.needed) return up;
    ++margin_.unwritable;
    (part.kind == Kind::kData ? margin_.data_writable : margin_.names_writable) = false;
    return up;
  }

  // The drives of it that are up.
  size_t Add(const MarginPart& part, const IsUp& is_up, MarginCount& count, bool& is_first) {
    std::map<int, int> by_domain;
    size_t up = 0;
    for (const DriveId id : part.drives) {
      if (!is_up(id)) continue;
      ++up;
      ++by_domain[domains_.at(id)];
    }
    const int spare = std::max(-1, static_cast<int>(up) - static_cast<int>(part.needed));
    // The largest domains first are the worst choice.
    std::vector<int> sizes;
    for (const auto& [domain, size] : by_domain) sizes.push_back(size);
    std::ranges::sort(sizes, std::greater());
    int domains = spare < 0 ? -1 : 0;
    int left = spare;
    for (const int size : sizes) {
      left -= size;
      if (left < 0) break;
      ++domains;
    }
    if (is_first || spare < count.drives) {
      count.drives = spare;
      count.worst_by_drives = part;
    }
    if (is_first || domains < count.domains) {
      count.domains = domains;
      count.worst_by_domains = part;
    }
    is_first = false;
    return up;
  }

  const MarginQuestion& question_;
  const DriveMap& newest_;
  std::map<DriveId, int> domains_;
  std::set<DriveId> draining_;
  bool is_first_reading_ = true;
  bool is_first_writing_ = true;
  Margin margin_;
};

}  // namespace

std::string MarginPart::Text() const {
  const std::string on = fmt::format("drives {}", fmt::join(drives, ", "));
  switch (kind) {
    case Kind::kData:
      return fmt::format("the data ({}+{}) of group {} on {}", stripes.data_shards,
                         stripes.parity_shards, group, on);
    case Kind::kNames: return fmt::format("the names of group {} on {}", group, on);
    case Kind::kMap: return fmt::format("the drive map on {}", on);
  }
  return "";
}

std::vector<std::string> Margin::OutOfReach() const {
  std::vector<std::string> all;
  if (!data_readable) all.emplace_back("some files cannot be read");
  if (!names_readable) all.emplace_back("some names can be neither read nor changed");
  if (unreadable > 0) {
    all.push_back(fmt::format("{} of {} groups{} have too few drives that are up", unreadable,
                              parts, exact ? "" : " that were looked at"));
  }
  if (data_readable && !data_writable) {
    all.emplace_back("nothing new can be written, as too few drives are up and have room");
  }
  if (names_readable && !names_writable) {
    all.emplace_back("some names cannot be changed, as too few of their drives take changes");
  }
  return all;
}

Margin ComputeMargin(const MarginQuestion& question) { return Count(question).Run(); }

std::string DomainNameOf(const MappedDrive& drive) {
  return drive.domain.empty() ? fmt::format("drive {}", drive.id) : drive.domain;
}

}  // namespace pinstripe
