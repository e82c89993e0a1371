#include "daemon/places.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace pinstripe {
namespace {

// What a store needs beyond what it has when it was opened: segments, tables of the index, its
// journals.
constexpr uint64_t kOfAStore = 64 + 256 + 16;

// What the process needs: certificates, connections to peers, the listeners of a moment.
constexpr uint64_t kOfTheProcess = 32;

constexpr size_t kMostStrangers = 1024;

}  // namespace

Places::Limits Places::LimitsFor(uint64_t descriptors, uint64_t in_use, size_t drives) {
  const uint64_t reserved = in_use + kOfTheProcess + kMostLeaving + drives * kOfAStore;
  const uint64_t left = descriptors > reserved ? descriptors - reserved : 0;
  Limits limits;
  limits.connections = std::max<uint64_t>({left, descriptors / 4, 4});
  limits.per_address = std::max<size_t>(limits.connections * 3 / 4, 1);
  limits.strangers = std::clamp<size_t>(limits.connections / 4, 1, kMostStrangers);
  limits.strangers_per_address = std::max<size_t>(limits.strangers / 2, 1);
  return limits;
}

std::string Places::AddressOf(const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  const auto* bytes = reinterpret_cast<const char*>(&address);
  if (IN6_IS_ADDR_V4MAPPED(&address)) return std::string(bytes + 12, 4);
  return std::string(bytes, 8);
}

Places::Place::~Place() { places_.Forget(*this); }

void Places::Place::OnEnd(Task end) {
  {
    const MutexLock lock(places_.mutex_);
    if (counts_) {
      end_ = std::move(end);
      return;
    }
  }
  end();
}

void Places::Place::Welcome() {
  {
    const MutexLock lock(places_.mutex_);
    places_.Welcome(*this);
  }
  if (carrier_ != nullptr) carrier_->Welcome();
}

void Places::Place::Carry() {
  const MutexLock lock(places_.mutex_);
  places_.LeaveDevice(*this);
}

void Places::Welcome(Place& place) {
  if (strangers_.erase(place.number_) == 0 || !place.has_descriptor()) return;
  --counted_strangers_;
  --addresses_.at(place.address_).strangers;
}

void Places::LeaveDevice(Place& place) {
  if (!std::exchange(place.of_device_, false)) return;
  if (--of_devices_[place.device_] == 0) of_devices_.erase(place.device_);
}

// The oldest stranger of the address from which most of them come; with a device or an address, of
// that.
Places::Place* Places::Victim(const void* device, const std::string* address, Of of) {
  Place* victim = nullptr;
  size_t most = 0;
  for (const auto& [number, place] : strangers_) {
    if (of == Of::kDescriptors && !place->has_descriptor()) continue;
    if (device != nullptr && place->device_ != device) continue;
    if (address != nullptr && place->address_ != *address) continue;
    const size_t strangers = 1 + addresses_.at(place->address_).strangers;
    if (strangers <= most) continue;
    most = strangers;
    victim = place;
  }
  return victim;
}

void Places::Uncount(Place& place) {
  if (!std::exchange(place.counts_, false)) return;
  LeaveDevice(place);
  Welcome(place);
  const auto counts = addresses_.find(place.address_);
  if (place.has_descriptor()) {
    --staying_;
    --counts->second.all;
  }
  if (--counts->second.places == 0) addresses_.erase(counts);
}

void Places::EndOne(Place& victim, std::vector<Task>& ends) {
  Uncount(victim);
  if (victim.end_) ends.push_back(std::exchange(victim.end_, nullptr));
}

void Places::Forget(Place& place) {
  const MutexLock lock(mutex_);
  Uncount(place);
  if (place.has_descriptor()) --open_;
}

size_t Places::Open() {
  const MutexLock lock(mutex_);
  return open_;
}

Result<std::unique_ptr<Places::Place>> Places::Take(const void* device, const std::string& address,
                                                    std::shared_ptr<Place> carrier) {
  const bool has_descriptor = carrier == nullptr;
  std::vector<Task> ends;  // called without the lock
  Result<std::unique_ptr<Place>> taken = [&]() -> Result<std::unique_ptr<Place>> {
    const MutexLock lock(mutex_);
    if (has_descriptor && limits_.connections != SIZE_MAX &&
        open_ >= limits_.connections + kMostLeaving) {
      return Fail(EBUSY, "connections that are to end are not closed yet");
    }
    const auto make_room = [&](bool full, const void* of_device, const std::string* of_address,
                               Of of) {
      if (!full) return true;
      mutex_.AssertHeld();
      Place* const victim = Victim(of_device, of_address, of);
      if (victim != nullptr) EndOne(*victim, ends);
      return victim != nullptr;
    };
    const auto of_address = [&] {
      mutex_.AssertHeld();
      const auto found = addresses_.find(address);
      return found == addresses_.end() ? Counts() : found->second;
    };
    if (has_descriptor &&
        !make_room(of_address().all >= limits_.per_address, nullptr, &address, Of::kDescriptors)) {
      return Fail(EBUSY, "there are {} connections from this address, as many as there may be",
                  limits_.per_address);
    }
    const auto found = of_devices_.find(device);
    const size_t of_device = found == of_devices_.end() ? 0 : found->second;
    if (!make_room(of_device >= limits_.per_device, device, nullptr, Of::kAll)) {
      return Fail(EBUSY, "this device has {} connections, as many as it may", limits_.per_device);
    }
    if (has_descriptor &&
        !make_room(staying_ >= limits_.connections, nullptr, nullptr, Of::kDescriptors)) {
      return Fail(EBUSY, "this process has {} connections, as many as it may", limits_.connections);
    }
    if (has_descriptor) {
      make_room(of_address().strangers >= limits_.strangers_per_address, nullptr, &address,
                Of::kDescriptors);
      make_room(counted_strangers_ >= limits_.strangers, nullptr, nullptr, Of::kDescriptors);
    }
    std::unique_ptr<Place> place(new Place(*this, device, address, std::move(carrier)));
    place->number_ = ++last_;
    strangers_.emplace(place->number_, place.get());
    Counts& counts = addresses_[address];
    ++counts.places;
    ++of_devices_[device];
    if (!has_descriptor) return place;
    ++counts.strangers;
    ++counted_strangers_;
    ++counts.all;
    ++staying_;
    ++open_;
    return place;
  }();
  for (const Task& end : ends) end();
  return taken;
}

}  // namespace pinstripe
