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
  return Status(code(), fmt::format("{}: {}", what, message()));
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
