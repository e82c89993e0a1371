// Seat: lets the processes of one kind on a machine count each other.
//
//   const Seat seat("pinstripe-mounts");
//   seat.CountTaken();  // how many processes have one, with this one
//
// A seat is the name of a socket in the kernel's abstract name space (unix(7)). So it needs neither
// a directory nor permission, and processes of all users count. The kernel gives it back when the
// process ends, however that ends. Processes of one network namespace count each other: a container
// mostly has its own.

#pragma once

#include <cstddef>
#include <string>

#include "base/file_descriptor.h"

namespace pinstripe {

// Thread-safe.
class Seat {
 public:
  static constexpr size_t kSeats = 256;  // of one kind

  // Takes the first that is free. Where all are taken, or sockets cannot be had, it has none.
  explicit Seat(std::string kind);

  // At least 1, which is this one. A seat that cannot be asked for is not counted.
  size_t CountTaken() const;

 private:
  const std::string kind_;
  size_t number_ = kSeats;  // kSeats: none
  FileDescriptor socket_;
};

}  // namespace pinstripe
