#include "upkeep/whereabouts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "cluster/map/electorate.h"
#include "cluster/map/placement.h"
#include "fs/files/keepers.h"
#include "fs/files/map_pages.h"
#include "fs/names/records.h"

namespace pinstripe {
namespace {

using Json = nlohmann::ordered_json;

std::string_view NameOf(FileKind kind) {
  switch (kind) {
    case FileKind::kRegular: return "file";
    case FileKind::kDirectory: return "directory";
    case FileKind::kSymlink: return "symbolic link";
    default: return "special file";
  }
}

std::string FormOf(const StripeLayout& layout) {
  const Geometry geometry = layout.geometry();
  if (geometry.data_shards == 1) return fmt::format("{} copies", geometry.shards());
  return fmt::format("{}+{}", geometry.data_shards, geometry.parity_shards);
}

// Each may take as long as drives are waited for; of further ones nothing else is to be expected.
constexpr int kMostUnreadPages = 8;

class Finder {
 public:
  Finder(Cluster& cluster, InodeId id, const WhereaboutsOptions& options)
      : cluster_(cluster), id_(id), options_(options), records_(cluster) {}

  Result<Whereabouts> Find(Inode inode) {
    for (const DriveStatus& status : cluster_.Drives(cluster_.config().drive_timeout)) {
      if (!status.info.has_value()) continue;
      up_.insert(status.id);
      if (!status.info->failure.empty()) damaged_.insert(status.id);
    }
    found_.kind = inode.kind;
    found_.size = inode.size;
    found_.inline_bytes = inode.inline_data.size();
    if (const InodeId directory = DirectoryOf(inode); directory != 0) {
      AddRegister("name", GroupOfName(directory, inode));
    }
    AddRegister("inode", cluster_.GroupOfObject(id_));
    for (const InodeId keeper : inode.keepers) {
      AddRegister("inode of shared blocks", cluster_.GroupOfObject(keeper));
    }
    if (inode.map) TRY(AddMap(*inode.map, inode));
    return std::move(found_);
  }

 private:
  // An inode knows its directory if it is one, and else under which name it came to be.
  InodeId DirectoryOf(const Inode& inode) {
    if (options_.directory != 0) return options_.directory;
    if (inode.kind == FileKind::kDirectory) return id_ == kRootInode ? 0 : inode.parent;
    if (!inode.named) return 0;
    const auto entry = records_.FindEntry(inode.named->directory, inode.named->name);
    const bool is_its_name = entry.has_value() && entry->entry && entry->entry->inode == id_;
    return is_its_name ? inode.named->directory : 0;
  }

  // As far as it is known by which name it is in there: in a directory that has grown that tells.
  uint32_t GroupOfName(InodeId directory, const Inode& inode) {
    const bool is_known = records_.FindInode(directory).has_value();
    if (!is_known || !inode.named || inode.named->directory != directory) {
      return cluster_.GroupOfObject(directory);
    }
    return records_.places().GroupFor(directory, inode.named->name);
  }

  Whereabouts::Part& PartOf(std::string_view what, const std::string& form, int shards,
                            int needed) {
    const auto known = std::ranges::find_if(found_.parts, [&](const Whereabouts::Part& part) {
      return part.what == what && part.form == form && part.needed == needed;
    });
    if (known != found_.parts.end()) return *known;
    return found_.parts.emplace_back(Whereabouts::Part{
        .what = std::string(what), .form = form, .shards = shards, .needed = needed});
  }

  // False: what should be there cannot be had.
  bool NoteShard(Whereabouts::Part& part, DriveId drive) {
    ++part.on_drive[drive];
    if (damaged_.contains(drive)) found_.damaged.insert(drive);
    if (up_.contains(drive)) return true;
    found_.away.insert(drive);
    return false;
  }

  // Homes that have no say (yet), or are not known, count as missing: nothing is decided with them.
  void AddRegister(std::string_view what, uint32_t group) {
    const NamesPlace names = cluster_.NewestPlacement()->names();
    if (names.OnEngine()) {
      found_.engine = names.engine;
      return;
    }
    const std::vector<DriveId> homes = cluster_.RegisterHomes(group);
    const std::vector<bool> count = cluster_.HomesThatCount(group);
    const auto replicas = static_cast<int>(homes.size());
    Whereabouts::Part& part =
        PartOf(what, fmt::format("{} copies", replicas), replicas, replicas / 2 + 1);
    int lacking = 0;
    for (size_t i = 0; i < homes.size(); ++i) {
      const bool is_known = count[i] && cluster_.FindDrive(homes[i]) != nullptr;
      const bool is_there = is_known && NoteShard(part, homes[i]);
      if (!is_there || !cluster_.electorate().HasSay(homes[i])) ++lacking;
    }
    ++part.count;
    ++part.lacking[lacking];
  }

  Status GoOn() const {
    if (options_.is_ending == nullptr || !options_.is_ending()) return {};
    return Fail(ECANCELED, "nobody waits for it any more");
  }

  Status AddMap(BlockMap& map, Inode& inode) {
    for (const BlockMap::Part& part : map.parts()) {
      const auto& page = part.stretch->page;
      if (page) TRY(AddStripe("map pages", PageNumber(part.first).number(), *page));
    }
    for (uint64_t block = 0; block < map.blocks();) {
      TRY(GoOn());
      const uint64_t end = map.PartOf(block)->end();
      if (map.PartOf(block)->stretch->stored_bytes > 0) {
        const bool is_known = map.PartOf(block)->stretch->loaded() ||
                              (unread_pages_ < kMostUnreadPages &&
                               LoadPages(cluster_.stripes(), id_, inode, block, block + 1).ok());
        if (is_known) {
          TRY(AddRuns(block, *map.PartOf(block)->stretch, map.block_bytes()));
        } else {
          ++unread_pages_;
          found_.unknown_blocks += end - block;
        }
        map.ForgetPages();
      }
      block = end;
    }
    return {};
  }

  Status AddRuns(uint64_t first, const BlockMap::Stretch& stretch, uint64_t block_bytes) {
    for (const BlockRun& run : stretch.runs) {
      blocks_ += run.hole ? 0 : run.count;
      if (blocks_ > options_.most_blocks) {
        return Fail(EFBIG, "inode {:016x} has more than {} blocks: ask `pinstripe why`", id_,
                    options_.most_blocks);
      }
      for (uint64_t i = 0; i < run.count && !run.hole; ++i) {
        TRY(GoOn());
        const BlockPlace place = PlaceInRun(run, i, block_bytes);
        if (!place.shared) {
          TRY(AddBlock(first + i, place));
          continue;
        }
        if (unread_pages_ < kMostUnreadPages) {
          const auto kept = keepers_.Resolve(place, first + i);
          if (kept.has_value()) {
            BlockPlace part = *kept;
            part.stored = std::min(part.stored, part.valid);  // of a pack, what is this file's
            TRY(AddBlock(first + i, part));
            continue;
          }
          ++unread_pages_;
        }
        ++found_.unknown_blocks;
      }
      first += run.count;
    }
    return {};
  }

  Status AddBlock(uint64_t block, const BlockPlace& place) {
    std::string_view what = "blocks";
    for (const BlockPlace& stripe : place.Stripes()) {
      TRY(AddStripe(std::exchange(what, "patches"), block, stripe));
    }
    return {};
  }

  Status AddStripe(std::string_view what, uint64_t block, const BlockPlace& stripe) {
    const Geometry geometry = stripe.layout.geometry();
    const std::vector<DriveId> drives =
        TRY(cluster_.stripes().PlacesOf(stripe.IdOf(block), stripe.layout, stripe.place));
    Whereabouts::Part& part =
        PartOf(what, FormOf(stripe.layout), geometry.shards(), geometry.data_shards);
    int lacking = 0;
    std::vector<Whereabouts::Stripe::Shard> shards;
    for (size_t shard = 0; shard < drives.size(); ++shard) {
      const auto moved = std::ranges::find(stripe.place.moved, shard, &StripePlace::Moved::shard);
      const bool is_home = moved == stripe.place.moved.end();
      const bool is_nowhere = !is_home && moved->drive == 0;
      if (!is_home && !is_nowhere) ++part.spares;
      const bool is_there = !is_nowhere && NoteShard(part, drives[shard]);
      if (!is_there) ++lacking;
      shards.push_back({.drive = is_nowhere ? DriveId{0} : drives[shard],
                        .is_there = is_there,
                        .is_spare = !is_home && !is_nowhere});
    }
    ++part.count;
    ++part.lacking[lacking];
    part.bytes += stripe.stored;
    if (what == "map pages") return {};
    const uint64_t number = found_.stripe_count++;
    if (number >= options_.skipped_stripes && found_.stripes.size() < options_.listed_stripes) {
      found_.stripes.push_back({.what = std::string(what),
                                .block = block,
                                .data_shards = geometry.data_shards,
                                .bytes = stripe.stored,
                                .shards = std::move(shards)});
    }
    return {};
  }

  Cluster& cluster_;
  const InodeId id_;
  const WhereaboutsOptions& options_;
  Records records_;
  KeeperMaps keepers_{cluster_, records_};
  std::set<DriveId> up_;
  std::set<DriveId> damaged_;
  uint64_t blocks_ = 0;  // that were looked at
  int unread_pages_ = 0;
  Whereabouts found_;
};

std::string StateText(const Whereabouts& whereabouts) {
  const int margin = whereabouts.Margin();
  switch (whereabouts.state()) {
    case Whereabouts::State::kWhole:
      if (whereabouts.parts.empty()) return "whole; no drive has a part of it";
      return fmt::format("whole; any {} of its drives may be lost", margin);
    case Whereabouts::State::kShort:
      return fmt::format("can be read, but not all of it is there; any {} drives more may be lost",
                         margin);
    case Whereabouts::State::kUnreadable: break;
  }
  if (margin >= 0) return "CANNOT BE READ, as its block map cannot";
  return fmt::format("CANNOT BE READ until {} or more of its drives come back", -margin);
}

std::string_view StateName(Whereabouts::State state) {
  switch (state) {
    case Whereabouts::State::kWhole: return "whole";
    case Whereabouts::State::kShort: return "short";
    case Whereabouts::State::kUnreadable: break;
  }
  return "unreadable";
}

Json PartJson(const Whereabouts::Part& part) {
  Json drives = Json::object();
  for (const auto& [drive, shards] : part.on_drive) drives[fmt::format("{}", drive)] = shards;
  Json lacking = Json::object();
  for (const auto& [missing, records] : part.lacking) {
    lacking[fmt::format("{}", missing)] = records;
  }
  return {{"what", part.what},        {"form", part.form},
          {"count", part.count},      {"bytes", part.bytes},
          {"shards", part.shards},    {"needed", part.needed},
          {"spares", part.spares},    {"records_by_lacking_shards", lacking},
          {"shards_by_drive", drives}};
}

Json StripeJson(const Whereabouts::Stripe& stripe) {
  Json json{{"what", stripe.what},       {"block", stripe.block},
            {"bytes", stripe.bytes},     {"data_shards", stripe.data_shards},
            {"margin", stripe.Margin()}, {"shards", Json::array()}};
  for (const Whereabouts::Stripe::Shard& shard : stripe.shards) {
    Json entry{{"drive", shard.drive}, {"there", shard.is_there}};
    if (shard.is_spare) entry["spare"] = true;
    json["shards"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

int Whereabouts::Stripe::Margin() const {
  return static_cast<int>(std::ranges::count(shards, true, &Shard::is_there)) - data_shards;
}

int Whereabouts::Part::Margin() const {
  const int most_lacking = lacking.empty() ? 0 : lacking.rbegin()->first;
  return shards - most_lacking - needed;
}

int Whereabouts::Margin() const {
  int margin = parts.empty() ? 0 : parts.front().Margin();
  for (const Part& part : parts) margin = std::min(margin, part.Margin());
  return margin;
}

Whereabouts::State Whereabouts::state() const {
  if (Margin() < 0 || unknown_blocks > 0) return State::kUnreadable;
  const bool is_whole = damaged.empty() && std::ranges::all_of(parts, [](const Part& part) {
                          return part.lacking.rbegin()->first == 0;
                        });
  return is_whole ? State::kWhole : State::kShort;
}

Result<Whereabouts> FindWhereabouts(Cluster& cluster, InodeId id, Inode inode,
                                    const WhereaboutsOptions& options) {
  return Finder(cluster, id, options).Find(std::move(inode));
}

Result<Whereabouts> FindWhereabouts(Cluster& cluster, InodeId id,
                                    const WhereaboutsOptions& options) {
  std::optional<StoredInode> stored = TRY(Records(cluster).FindInode(id));
  if (!stored) return Fail(ENOENT, "there is no inode {:016x}", id);
  return FindWhereabouts(cluster, id, std::move(stored->inode), options);
}

std::string WhereaboutsText(const Whereabouts& whereabouts) {
  std::string text = fmt::format("{} of {} bytes: {}\n", NameOf(whereabouts.kind), whereabouts.size,
                                 StateText(whereabouts));
  if (whereabouts.inline_bytes > 0) {
    text += fmt::format("{} bytes of contents are in the inode\n", whereabouts.inline_bytes);
  }
  if (!whereabouts.engine.empty()) {
    text += fmt::format("name and inode are on {}\n", whereabouts.engine);
  }
  for (const Whereabouts::Part& part : whereabouts.parts) {
    std::vector<DriveId> drives;
    for (const auto& [drive, shards] : part.on_drive) drives.push_back(drive);
    const std::string count = part.count == 1 ? "" : fmt::format("{} of ", part.count);
    text += fmt::format("{:<9} {}{}, {} needed, on the drives {}\n", part.what, count, part.form,
                        part.needed, fmt::join(drives, ", "));
    for (const auto& [lacking, records] : part.lacking) {
      if (lacking == 0) continue;
      text += fmt::format("{:<9} {} of {} lack {}\n", "", records, part.count, lacking);
    }
    if (part.spares > 0) text += fmt::format("{:<9} {} on spares\n", "", part.spares);
  }
  if (whereabouts.unknown_blocks > 0) {
    text += fmt::format("{} blocks are in pages of the block map that cannot be read\n",
                        whereabouts.unknown_blocks);
  }
  for (const DriveId drive : whereabouts.away) text += fmt::format("drive {} is away\n", drive);
  for (const DriveId drive : whereabouts.damaged) {
    text += fmt::format("drive {} is damaged: count it as lost, and replace it\n", drive);
  }
  return text;
}

std::string WhereaboutsJson(const Whereabouts& whereabouts) {
  Json json{{"state", StateName(whereabouts.state())},
            {"margin", whereabouts.Margin()},
            {"size", whereabouts.size},
            {"inline_bytes", whereabouts.inline_bytes},
            {"engine", whereabouts.engine},
            {"away", whereabouts.away},
            {"damaged", whereabouts.damaged},
            {"unknown_blocks", whereabouts.unknown_blocks},
            {"parts", Json::array()}};
  for (const Whereabouts::Part& part : whereabouts.parts) json["parts"].push_back(PartJson(part));
  if (!whereabouts.stripes.empty()) {
    json["stripe_count"] = whereabouts.stripe_count;
    json["stripes"] = Json::array();
    for (const auto& stripe : whereabouts.stripes) json["stripes"].push_back(StripeJson(stripe));
  }
  return json.dump(2) + "\n";
}

}  // namespace pinstripe
