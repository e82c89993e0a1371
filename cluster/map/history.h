// DriveMapHistory: the epochs of a drive map from the first to some later one, in one record. So a
// process that opens a cluster reads one register and the few epochs behind it, however many there
// were. Each epoch's homes are computed from those of the epoch before. A block that was written
// long ago, or by a client that was away, may name any of them. So no epoch is ever forgotten. Most
// of them differ from the one before in a single drive, and that is what is stored. Features are
// stored where they change.
//
// docs/format.md, "Drive map", has the bytes.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cluster/map/drive_map.h"

namespace pinstripe {

// The register of the history, in the group of the map. Absent: all epochs have to be read.
std::string HistoryKey();  // "H"

// Bytes that a history has at most, and drives of all its epochs together, which bound the memory
// that a reader spends on bytes it does not trust. Features count as drives, by what they take.
// Later epochs stay outside of it.
inline constexpr size_t kMaxHistoryBytes = 60 << 10;
inline constexpr size_t kMaxHistoryDrives = 1 << 20;

// As many of these epochs as have room in one record; the first is epoch 1, and none is left out.
std::string EncodeHistory(const std::vector<DriveMap>& epochs);

// Epoch 1 and those that follow it, one after the other; at least one. EBADMSG.
Result<std::vector<DriveMap>> DecodeHistory(std::string_view bytes);

}  // namespace pinstripe
