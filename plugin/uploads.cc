#include "plugin/uploads.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace pinstripe {

Status Uploads::Reserve(const std::string& path, std::string_view client, Time now,
                        std::string_view copy_key, Parents parents) {
  const MutexLock lock(mutex_);
  // An upload that was reserved and never opened. There are few entries: one per file that is being
  // written.
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.writers == 0 && entry.second.reserved_until + kForgotten <= now;
  });
  Entry& entry = entries_[path];
  const std::string& copy = entry.uploader.copy_key;
  if (entry.writers > 0 && !copy.empty() && copy == copy_key) {
    entry.parents = parents;
    return {};
  }
  const bool reserved = entry.reserved_until > now && entry.client != client;
  if (entry.writers > 0 || reserved) {
    return Fail(ETXTBSY, "another client is writing it; try again when that has ended");
  }
  entry.client = client;
  entry.parents = parents;
  entry.reserved_until = now + kReservation;
  return {};
}

Uploads::Writer Uploads::Begin(const std::string& path, Uploader uploader) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_[path];
  if (entry.writers++ == 0) entry.number = ++last_number_;
  entry.reserved_until = {};
  entry.uploader = std::move(uploader);
  return {path, entry.number, std::exchange(entry.parents, Parents::kMustExist)};
}

Uploads::Entry* Uploads::FindLocked(const Writer& writer) {
  const auto entry = entries_.find(writer.path);
  const bool is_it = entry != entries_.end() && entry->second.number == writer.upload;
  return is_it ? &entry->second : nullptr;
}

void Uploads::End(const Writer& writer) {
  const MutexLock lock(mutex_);
  Entry* const entry = FindLocked(writer);
  if (entry != nullptr && --entry->writers == 0) entries_.erase(writer.path);
}

void Uploads::Creates(const Writer& writer, InodeId inode, std::string_view client) {
  const MutexLock lock(mutex_);
  if (Entry* const entry = FindLocked(writer)) entry->creates = inode;
  const auto dropped = dropped_.find(writer.path);
  if (dropped == dropped_.end()) return;
  dropped->second.is_removed = true;
  // A client that begins anew does not go on with what was dropped.
  if (dropped->second.claim && dropped->second.claim->client == client) dropped_.erase(dropped);
}

std::optional<InodeId> Uploads::Find(const std::string& path) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(path);
  if (entry == entries_.end() || entry->second.creates == 0) return std::nullopt;
  return entry->second.creates;
}

void Uploads::Remove(const std::string& path, InodeId inode) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(path);
  if (entry != entries_.end() && entry->second.creates == inode) entries_.erase(entry);
}

bool Uploads::WasRemoved(const Writer& writer) {
  const MutexLock lock(mutex_);
  return FindLocked(writer) == nullptr;
}

void Uploads::Drop(const std::string& path, Time now, std::optional<UploadClaim> claim) {
  const MutexLock lock(mutex_);
  std::erase_if(dropped_, [&](const auto& one) { return one.second.at + kDropped <= now; });
  if (dropped_.size() >= kMostDropped) {
    dropped_.erase(
        std::ranges::min_element(dropped_, {}, [](const auto& one) { return one.second.at; }));
  }
  dropped_[path] = {now, false, std::move(claim)};
}

Uploads::Dropped* Uploads::FindDroppedLocked(const std::string& path, Time now) {
  const auto dropped = dropped_.find(path);
  const bool counts = dropped != dropped_.end() && dropped->second.at + kDropped > now;
  return counts ? &dropped->second : nullptr;
}

bool Uploads::RemoveDropped(const std::string& path, Time now) {
  const MutexLock lock(mutex_);
  Dropped* const dropped = FindDroppedLocked(path, now);
  return dropped != nullptr && !std::exchange(dropped->is_removed, true);
}

bool Uploads::IsDropped(const std::string& path, const UploadClaim& claim, Time now) {
  const MutexLock lock(mutex_);
  const Dropped* const dropped = FindDroppedLocked(path, now);
  return dropped != nullptr && dropped->claim == claim;
}

void Uploads::SessionEnds(const void* session) {
  if (session == nullptr) return;
  const MutexLock lock(mutex_);
  for (auto& [path, entry] : entries_) {
    if (entry.uploader.session == session) entry.cut_off = true;
  }
}

bool Uploads::IsCutOff(const Writer& writer) {
  const MutexLock lock(mutex_);
  const Entry* const entry = FindLocked(writer);
  return entry != nullptr && entry->cut_off;
}

std::string UploadClaim::Text() const { return fmt::format("{} {}", client, announced); }

void UploadParts::Add(uint64_t offset, uint64_t length) {
  const MutexLock lock(mutex_);
  written_.Add(offset, offset + length);
}

bool UploadParts::Complete() const {
  const MutexLock lock(mutex_);
  return written_.Covers(0, expected_);
}

std::string ClientProcess(std::string_view server_name) {
  return std::string(server_name.substr(0, server_name.find(':')));
}

std::optional<uint64_t> AnnouncedSize(const char* text) {
  if (text == nullptr) return std::nullopt;
  uint64_t size = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, size);
  if (error != std::errc() || rest != end) return std::nullopt;
  return size;
}

}  // namespace pinstripe
