#include "fs/names/directory_parts.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/checksum.h"
#include "cluster/map/placement.h"

namespace pinstripe {

uint32_t PartOf(std::string_view name, uint8_t bits) {
  if (bits == 0) return 0;
  return static_cast<uint32_t>(MixBits(Crc32c(AsBytes(name))) >> (64 - bits));
}

uint32_t GroupOfPart(const DriveMap& map, InodeId directory, uint32_t part) {
  return (GroupOfRegisters(map, directory) + part) % map.groups;
}

uint8_t BitsFor(const DriveMap& map) {
  return std::min<uint8_t>(static_cast<uint8_t>(std::bit_width(map.groups) - 1), kMostPartBits);
}

Status CheckParts(const DriveMap& map, InodeId directory, const DirectoryParts& parts) {
  if (parts.bits <= BitsFor(map)) return {};
  return Fail(EBADMSG, "directory {:016x} is said to have 2^{} parts, and there are {} groups",
              directory, parts.bits, map.groups);
}

std::optional<KnownParts::Known> KnownParts::Find(InodeId directory) const {
  const Time now = runtime_.Now();
  const MutexLock lock(mutex_);
  const Slot& slot = slots_[MixBits(directory) % kSlots];
  if (slot.id != directory || now - slot.known.at > kPartsAreKnown) return std::nullopt;
  return slot.known;
}

void KnownParts::Learn(InodeId id, const Inode& inode, Time at) {
  if (!IsDirectory(inode)) return;
  const MutexLock lock(mutex_);
  Slot& slot = slots_[MixBits(id) % kSlots];
  if (slot.id == id && slot.known.at > at) return;
  slot = {id, {inode.parts, at}};
}

void KnownParts::Forget(InodeId directory) {
  const MutexLock lock(mutex_);
  Slot& slot = slots_[MixBits(directory) % kSlots];
  if (slot.id == directory) slot = {};
}

}  // namespace pinstripe
