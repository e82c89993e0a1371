// The findings of the last looks through a whole cluster, kept on the drives. One is by what the
// drives list: a check, a repair or a drain. The other is by reading everything: a scrub or verify.
// So whoever asks how a cluster is need not look through all of it. A register for each LookKind,
// in the group of the drive map, has it (docs/format.md, "Last looks").
//
// It is what was so at that time, and for people: nothing is safe because of it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/cluster.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

// Part of the format.
enum class LookKind : uint8_t {
  kListed = 1,     // names, inodes and the keys of shards
  kRead = 2,       // and the shards themselves
  kPlaces = 3,     // where shards are, of the last look of kind kListed
  kCollected = 4,  // what dead clients left was removed; `not_looked_at` counts what stays
};

struct LastLook {
  int64_t at = 0;        // by the clock of who looked, nanoseconds since 1970
  uint64_t lost = 0;     // files, inodes, names, blocks: what is lost, damaged or contradictory
  uint64_t lacking = 0;  // files or blocks that can be read, and lack shards or have damaged ones
  uint64_t replicas_behind = 0;  // of names and inodes, that could not be brought up to date
  uint64_t not_looked_at = 0;    // what could not be

  bool AllIsWell() const { return lost + lacking + replicas_behind + not_looked_at == 0; }
  std::string Encode() const;
  static Result<LastLook> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const LastLook&, const LastLook&) = default;
};

// What the last look of kind kListed found of places. In a register of its own, as earlier versions
// of this program know the other record.
struct LastPlaces {
  int64_t at = 0;                 // as LastLook::at, but when the look began
  Epoch epoch = 0;                // of the drive map, the newest when the look began
  uint64_t displaced_blocks = 0;  // with shards that are not at home in that epoch
  uint64_t unused_shards = 0;     // of uploads under way, or left by clients that died
  uint64_t unused_bytes = 0;      // of these, as far as drives have told
  std::vector<Geometry> stripes;  // of which files have any, ascending by k and m

  std::string Encode() const;
  static Result<LastPlaces> Decode(std::string_view bytes);  // EBADMSG
  friend bool operator==(const LastPlaces&, const LastPlaces&) = default;
};

std::string LastLookKey(LookKind kind);  // "C" U8

// Null: nobody has looked, or it cannot be read now.
std::optional<LastLook> FindLastLook(Cluster& cluster, LookKind kind);

// Replaces what is noted there already, unless somebody else does so at this moment.
Status NoteLastLook(Cluster& cluster, LookKind kind, const LastLook& look);

std::optional<LastPlaces> FindLastPlaces(Cluster& cluster);
Status NoteLastPlaces(Cluster& cluster, const LastPlaces& places);

}  // namespace pinstripe
