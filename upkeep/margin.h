// Margin: what of a cluster can be read and written while some of its drives are away, and how much
// more may fail before something cannot. Computed from the drive map alone, group by group, as
// placement gives each its drives. So a host of three drives that is away is told from three drives
// of three hosts.
//
// It knows where things belong. Blocks that lie on spares, because a drive was away when they were
// written, and files that lack shards may survive less, until a repair brings them home.

#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/map/drive_map.h"
#include "cluster/map/placement.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

struct MarginQuestion {
  // Of the epochs under which blocks may lie, the newest last: new blocks and all names go by that.
  std::vector<std::shared_ptr<Placement>> placements;
  // Where the newest epoch's change is not complete: that before it, without which a home of names
  // does not count yet. Otherwise null.
  std::shared_ptr<Placement> unsettled;
  std::vector<Geometry> stripes;    // of the files
  int min_redundancy = 1;           // shards beyond k that a write has to store
  std::vector<DriveId> map_drives;  // the homes of the registers of the map itself
  std::set<DriveId> away;           // they answer nothing
  std::set<DriveId> read_only;      // they take no changes
  std::set<DriveId> full;           // they take changes of names, and no data
  std::set<DriveId> without_say;    // they are up, and do not count in names
  std::set<DriveId> retired;        // nothing is on them
};

// A part of a cluster, and the drives that it has. It goes by as many of them as are `needed`.
struct MarginPart {
  enum class Kind : uint8_t { kData, kNames, kMap };
  Kind kind = Kind::kData;
  Geometry stripes;  // of data
  Epoch epoch = 0;
  uint32_t group = 0;
  std::vector<DriveId> drives;
  size_t needed = 0;

  // "the data (4+2) of group 12, on drives 1, 2, 3, 4, 5, 6"
  std::string Text() const;
};

// How many more may fail, whichever they are; -1: something is out of reach already.
struct MarginCount {
  int drives = 0;
  int domains = 0;
  MarginPart worst_by_drives;   // the part that goes first
  MarginPart worst_by_domains;  // so, too
};

struct Margin {
  MarginCount reading;  // before something cannot be read
  MarginCount writing;  // before something cannot be written or changed
  // Groups of any kind out of reach, of so many.
  size_t unreadable = 0;
  size_t unwritable = 0;
  size_t parts = 0;
  bool names_readable = true;
  bool names_writable = true;
  bool data_readable = true;
  bool data_writable = true;
  // New blocks get fewer shards than they should have.
  bool writes_short = false;
  // Each group of each epoch was looked at. Otherwise a sample, as there are very many.
  bool exact = true;

  // What cannot be read or written now, for people; empty: all can be.
  std::vector<std::string> OutOfReach() const;
};

Margin ComputeMargin(const MarginQuestion& question);

// The name under which people know what fails with the drive: its domain, or "drive 3" where it is
// a domain of its own.
std::string DomainNameOf(const MappedDrive& drive);

}  // namespace pinstripe
