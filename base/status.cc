#include "base/status.h"

#include <cassert>
#include <system_error>

namespace pinstripe {

Status::Status(int code, std::string message)
    : failure_(std::make_shared<const Failure>(Failure{code, std::move(message)})) {
  assert(code > 0);
}

Status Status::Context(std::string_view what) const {
  if (ok()) return {};
  Failure failure{code(), fmt::format("{}: {}", what, message()), 0, failure_->drive_bytes};
  if (failure.drive_bytes > 0) {
    failure.drive_at = failure.message.size() - message().size() + failure_->drive_at;
  }
  Status status;
  status.failure_ = std::make_shared<const Failure>(std::move(failure));
  return status;
}

Status Status::OfDrive(std::string_view name) const {
  if (ok()) return {};
  Failure failure{code(), fmt::format("{}: {}", name, message())};
  failure.drive_bytes = failure.message.size() - message().size();
  Status status;
  status.failure_ = std::make_shared<const Failure>(std::move(failure));
  return status;
}

std::string Status::WithoutDriveName() const {
  std::string text(message());
  if (!ok()) text.erase(failure_->drive_at, failure_->drive_bytes);
  return text;
}

int HostErrno(const Status& status) {
  switch (status.code()) {
    case EAGAIN:
    case EBADMSG:
    case EBUSY:
    case EDESTADDRREQ:
    case EHOSTUNREACH:
    case EINPROGRESS:
    case ENOMSG:
    case ESTALE:
    case ETIMEDOUT:
    case ETXTBSY: return EIO;
    default: return status.code();
  }
}

std::string ErrnoText(int code) { return std::generic_category().message(code); }

}  // namespace pinstripe
