// PutAndRead: what Drive::PutThenGet() answers, as one thing. For drives that answer both at once.

#pragma once

#include <functional>
#include <utility>

#include "base/status.h"
#include "drive/drive.h"

namespace pinstripe {

struct PutAndRead {
  PutAndRead(Status put_in, Result<Record> read_in)
      : put(std::move(put_in)), read(std::move(read_in)) {}
  // Neither was made.
  explicit PutAndRead(const Status& failure) : put(failure), read(tl::unexpected(failure)) {}
  PutAndRead(Failed failure) : PutAndRead(Status(std::move(failure))) {}  // NOLINT: as Result

  Status put;
  Result<Record> read;
};

// Gives both to those who wait for them, in their order.
inline std::function<void(PutAndRead)> TellEach(StatusCallback done, Callback<Record> read) {
  return [done = std::move(done), read = std::move(read)](PutAndRead answer) {
    read(std::move(answer.read));
    done(std::move(answer.put));
  };
}

}  // namespace pinstripe
