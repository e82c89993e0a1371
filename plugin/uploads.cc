#include "plugin/uploads.h"

#include <charconv>
#include <cstring>
#include <utility>

namespace pinstripe {

Status Uploads::Reserve(const std::string& path, std::string_view client, Time now,
                        std::string_view copy_key, Parents parents) {
  const std::lock_guard lock(mutex_);
  // What was reserved and never opened. There are few entries: one per file that is being written.
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

Uploads::Parents Uploads::Begin(const std::string& path, Uploader uploader) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[path];
  ++entry.writers;
  entry.reserved_until = {};
  entry.uploader = std::move(uploader);
  return std::exchange(entry.parents, Parents::kMustExist);
}

void Uploads::End(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(path);
  if (entry != entries_.end() && --entry->second.writers == 0) entries_.erase(entry);
}

void Uploads::SessionEnds(const void* session) {
  if (session == nullptr) return;
  const std::lock_guard lock(mutex_);
  for (auto& [path, entry] : entries_) {
    if (entry.uploader.session == session) entry.cut_off = true;
  }
}

bool Uploads::IsCutOff(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(path);
  return entry != entries_.end() && entry->second.cut_off;
}

void UploadParts::Add(uint64_t offset, uint64_t length) {
  const std::lock_guard lock(mutex_);
  written_.Add(offset, offset + length);
}

bool UploadParts::Complete() const {
  const std::lock_guard lock(mutex_);
  return written_.Covers(0, expected_);
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
