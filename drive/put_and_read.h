// PutAndRead: what Drive::PutThenGet() answers, as one thing. For who passes such a request on.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
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

// PutThenGet(), with one answer when both have come, in whatever order.
inline void PutThenGet(Drive& drive, Drive::PutRequest request, std::string key, Terms terms,
                       std::function<void(PutAndRead)> done) {
  struct Both {
    explicit Both(std::function<void(PutAndRead)> done_in) : done(std::move(done_in)) {}
    void Tell(std::optional<Status> put_in, std::optional<Result<Record>> read_in) {
      std::optional<PutAndRead> answer;
      {
        const MutexLock lock(mutex);
        if (put_in) put = std::move(put_in);
        if (read_in) read = std::move(read_in);
        if (put && read) answer.emplace(*std::move(put), *std::move(read));
      }
      if (answer) done(*std::move(answer));
    }
    const std::function<void(PutAndRead)> done;
    Mutex mutex;
    std::optional<Status> put GUARDED_BY(mutex);
    std::optional<Result<Record>> read GUARDED_BY(mutex);
  };
  const auto both = std::make_shared<Both>(std::move(done));
  drive.PutThenGet(
      std::move(request), std::move(key), terms,
      [both](Status put) { both->Tell(std::move(put), std::nullopt); },
      [both](Result<Record> read) { both->Tell(std::nullopt, std::move(read)); });
}

}  // namespace pinstripe
