#include "kinetic/waited_requests.h"

#include <algorithm>

namespace pinstripe {

// Multiplied by 2^64 over the golden ratio: numbers that follow one another lie far apart, and
// those of threads as well.
size_t WaitedRequests::PlaceOf(uint64_t operation) {
  static_assert(kOperations == 256);
  return static_cast<size_t>((operation * 0x9E3779B97F4A7C15u) >> 56);
}

void WaitedRequests::Note(uint64_t operation, const WaitedRequest& request) {
  const MutexLock lock(mutex_);
  if (places_.empty()) places_.resize(kOperations);
  Place& place = places_[PlaceOf(operation)];
  if (place.operation != operation) place = {.operation = operation};
  if (place.count < kOfEach) {
    place.slowest[place.count++] = request;
    return;
  }
  const auto quickest = std::ranges::min_element(place.slowest, {}, &WaitedRequest::took);
  if (quickest->took < request.took) *quickest = request;
}

std::vector<WaitedRequest> WaitedRequests::Of(std::span<const uint64_t> operations) const {
  std::vector<WaitedRequest> found;
  const MutexLock lock(mutex_);
  if (places_.empty()) return found;
  for (const uint64_t operation : operations) {
    const Place& place = places_[PlaceOf(operation)];
    if (place.operation != operation) continue;
    found.insert(found.end(), place.slowest.begin(),
                 place.slowest.begin() + static_cast<ptrdiff_t>(place.count));
  }
  return found;
}

}  // namespace pinstripe
