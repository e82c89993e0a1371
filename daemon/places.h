// Places: how many connections a process has, over all its devices, and who gives way to whom when
// there are enough of them. So descriptors are left for the stores, whoever connects.
//
// A stranger is a connection on which no request had a right signature yet. Strangers have bounds
// of their own, all together and from one address. Where a place is needed a stranger gives it up:
// the oldest of the address from which most strangers come, so that somebody who opens a thousand
// connections stands in the way of nobody but himself. A connection that has signed gives way to
// nobody.
//
// Thread-safe. Outlives the places that it gives.

#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"

namespace pinstripe {

inline constexpr size_t kUsualConnections = 1000;  // of a device

class Places {
 public:
  struct Limits {
    size_t connections = SIZE_MAX;            // of the process
    size_t per_device = kUsualConnections;    // of each device
    size_t per_address = SIZE_MAX;            // from one address, at least 1
    size_t strangers = SIZE_MAX;              // of the process, at least 1
    size_t strangers_per_address = SIZE_MAX;  // at least 1
  };

  // For a process that may have so many descriptors, of which `in_use` are in use before anybody
  // has connected: the stores of its drives may open as many as they ever do, and connections have
  // what is left, or a quarter of all where that is more.
  static Limits LimitsFor(uint64_t descriptors, uint64_t in_use, size_t drives);

  // So many of those that give way may still be about to close, beyond `connections`.
  static constexpr size_t kMostLeaving = 32;

  // What counts as one of an address: IPv6 addresses by their first 64 bits, since a host may have
  // all that begin so.
  static std::string AddressOf(const sockaddr_storage& peer);

  // The place of one connection, until it is gone. Any thread.
  class Place {
   public:
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    // `end` has the connection closed soon. Called once at most, on any thread, perhaps inside
    // this.
    void OnEnd(Task end);

    // It is no stranger any more, and what carries it is none.
    void Welcome();

    // It is no connection to a device any more: it carries channels to several.
    void Carry();

    const std::string& address() const { return address_; }

   private:
    friend class Places;
    Place(Places& places, const void* device, std::string address, std::shared_ptr<Place> carrier)
        : places_(places),
          device_(device),
          address_(std::move(address)),
          carrier_(std::move(carrier)) {}
    // Null: it has a descriptor of its own.
    bool has_descriptor() const { return carrier_ == nullptr; }
    Places& places_;
    const void* const device_;
    const std::string address_;
    const std::shared_ptr<Place> carrier_;
    uint64_t number_ = 0;
    // For the device; and for that and the address: it was not told to end. All three by the thread
    // that holds places_.mutex_, which the analysis does not see through another Place.
    bool of_device_ = true;
    bool counts_ = true;
    Task end_;
  };

  explicit Places(Limits limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  size_t Open();  // connections that there are

  // EBUSY: there is none, and why. `device` tells devices from each other. With a carrier it is a
  // channel of that connection, and counts for its device alone: it is the carrier that has the
  // descriptor, and that is the stranger.
  Result<std::unique_ptr<Place>> Take(const void* device, const std::string& address,
                                      std::shared_ptr<Place> carrier = nullptr);

 private:
  struct Counts {
    size_t places = 0;
    size_t all = 0;  // of them, those that have descriptors
    size_t strangers = 0;
  };
  enum class Of { kAll, kDescriptors };
  Place* Victim(const void* device, const std::string* address, Of of) REQUIRES(mutex_);
  void LeaveDevice(Place& place) REQUIRES(mutex_);
  void Welcome(Place& place) REQUIRES(mutex_);
  void EndOne(Place& victim, std::vector<Task>& ends) REQUIRES(mutex_);
  void Uncount(Place& place) REQUIRES(mutex_);
  void Forget(Place& place);

  const Limits limits_;
  Mutex mutex_;
  size_t open_ GUARDED_BY(mutex_) = 0;
  size_t staying_ GUARDED_BY(mutex_) = 0;  // of them, without those that were told to end
  // In the order they came; channels, too.
  std::map<uint64_t, Place*> strangers_ GUARDED_BY(mutex_);
  size_t counted_strangers_ GUARDED_BY(mutex_) = 0;              // of them, without channels
  std::map<std::string, Counts> addresses_ GUARDED_BY(mutex_);   // of those that stay
  std::map<const void*, size_t> of_devices_ GUARDED_BY(mutex_);  // of those that stay
  uint64_t last_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinstripe
