#include "fs/names/listed_places.h"

#include <utility>

#include "base/coding.h"

namespace pinstripe {
namespace {

// In memory, about.
size_t SizeOf(const Inode& inode) {
  size_t bytes = inode.inline_data.size() + inode.symlink.size();
  for (const auto& [name, value] : inode.attributes) bytes += name.size() + value.size();
  if (!inode.map) return bytes;
  for (const BlockMap::Part& part : inode.map->parts()) {
    bytes += sizeof part + sizeof *part.stretch + part.stretch->runs.size() * sizeof(BlockRun);
  }
  return bytes;
}

}  // namespace

std::string ListedPlaces::KeyOf(InodeId directory, std::string_view name) {
  return Writer().U64(directory).Take().append(name);
}

void ListedPlaces::Learn(InodeId directory, std::string_view name, Listed listed) {
  const Inode& inode = listed.inode.inode;
  if (inode.intent || inode.mark) return;
  constexpr size_t kBytesOfOne = 128;  // its places in both containers
  const size_t bytes = kBytesOfOne + 2 * name.size() + sizeof(Known) + SizeOf(inode);
  std::string key = KeyOf(directory, name);
  const Time now = runtime_.Now();
  const MutexLock lock(mutex_);
  learned_.push_back({key, now, bytes});
  known_[std::move(key)] = {now, std::move(listed)};
  bytes_ += bytes;
  while (!learned_.empty() && (bytes_ > most_bytes_ || now - learned_.front().at >= kKept)) {
    DropFirst();
  }
}

std::optional<ListedPlaces::Listed> ListedPlaces::Take(InodeId directory, std::string_view name) {
  const MutexLock lock(mutex_);
  if (known_.empty()) return std::nullopt;
  const auto known = known_.find(KeyOf(directory, name));
  if (known == known_.end()) return std::nullopt;
  const Known found = std::move(known->second);
  known_.erase(known);
  if (runtime_.Now() - found.at >= kKept) return std::nullopt;
  return found.listed;
}

void ListedPlaces::DropFirst() {
  const Learned& first = learned_.front();
  const auto known = known_.find(first.key);
  if (known != known_.end() && known->second.at == first.at) known_.erase(known);
  bytes_ -= first.bytes;
  learned_.pop_front();
}

}  // namespace pinstripe
