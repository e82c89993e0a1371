// PutThenGet() for drives that pass such a request on: one answer to both.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "drive/drive.h"
#include "drive/put_and_read.h"

namespace pinstripe {

// Answers when both have come, in whatever order.
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
