#include "fs/names/listed_inodes.h"

#include <algorithm>

#include "fs/names/acl.h"
#include "fs/names/extended.h"

namespace pinstripe {
namespace {

constexpr uint64_t kSmall = kCellBytes;  // it is read in one go

std::optional<BlockPlace> SmallContents(const Inode& inode) {
  if (!inode.map || inode.size == 0 || inode.size > kSmall) return std::nullopt;
  if (inode.map->FirstMissing(0, 1)) return std::nullopt;
  std::optional<BlockPlace> place = inode.map->Find(0);
  return place && !place->shared && place->patches.empty() ? place : std::nullopt;
}

}  // namespace

bool ListedInodes::Has(std::string_view name) { return IsAcl(name) || name == kCapability; }

void ListedInodes::Keep(Duration age) {
  const MutexLock lock(mutex_);
  age_ = age;
  forgotten_at_.fill(Time::min());
}

void ListedInodes::Learn(InodeId id, const StoredInode& stored, Time at) {
  constexpr size_t kBytesOfOne = 160 + sizeof(BlockPlace);  // with its places in both containers
  const MutexLock lock(mutex_);
  if (age_ == Duration::zero() || at <= ForgottenAt(id)) return;
  const auto known = listed_.find(id);
  if (known != listed_.end()) {
    const bool is_newer = known->second.slot > stored.slot && at - known->second.at < age_;
    if (is_newer) return;
  }
  Listed listed{at, stored.slot, {}, SmallContents(stored.inode)};
  size_t bytes = kBytesOfOne;
  for (const auto& attribute : stored.inode.attributes) {
    if (!Has(attribute.first)) continue;
    bytes += sizeof attribute + attribute.first.size() + attribute.second.size();
    listed.attributes.push_back(attribute);
  }
  listed_[id] = std::move(listed);
  learned_.push_back({id, at, bytes});
  bytes_ += bytes;
  while (IsTooMuch(runtime_.Now())) DropFirst();
}

void ListedInodes::Forget(InodeId id) {
  const Time now = runtime_.Now();
  const MutexLock lock(mutex_);
  if (age_ == Duration::zero()) return;
  ForgottenAt(id) = std::max(ForgottenAt(id), now);
  listed_.erase(id);
}

std::optional<ExtendedAttributes> ListedInodes::Find(InodeId id) {
  const MutexLock lock(mutex_);
  const auto known = listed_.find(id);
  if (known == listed_.end() || runtime_.Now() - known->second.at >= age_) return {};
  return known->second.attributes;
}

std::optional<BlockPlace> ListedInodes::FindSmall(InodeId id) {
  const MutexLock lock(mutex_);
  const auto known = listed_.find(id);
  if (known == listed_.end() || runtime_.Now() - known->second.at >= age_) return {};
  return known->second.small;
}

bool ListedInodes::IsTooMuch(Time now) const {
  if (learned_.empty()) return false;
  return bytes_ > most_bytes_ || now - learned_.front().at >= age_;
}

void ListedInodes::DropFirst() {
  const Learned& first = learned_.front();
  const auto known = listed_.find(first.id);
  if (known != listed_.end() && known->second.at == first.at) listed_.erase(known);
  bytes_ -= first.bytes;
  learned_.pop_front();
}

}  // namespace pinstripe
