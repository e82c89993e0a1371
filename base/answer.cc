#include "base/answer.h"

#include "base/log.h"

namespace pinstripe {
namespace {

// What users meet every day, and are told by their programs.
bool IsEveryday(int code) {
  switch (code) {
    case EACCES:
    case EBADF:
    case EEXIST:
    case EFBIG:
    case EINVAL:
    case EISDIR:
    case ENODATA:
    case ELOOP:
    case EMLINK:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENOTSUP:
    case ENXIO:
    case EPERM:
    case ERANGE:
    case ESPIPE: return true;
    default: return false;
  }
}

}  // namespace

int Answer(const Status& status, std::string_view operation, std::string_view subject) {
  if (status.ok()) return 0;
  const int code = HostErrno(status);
  Log(IsEveryday(code) ? LogLevel::kDebug : LogLevel::kError, operation,
      {{"on", subject}, {"answer", ErrnoText(code)}, {"why", status}});
  return code;
}

}  // namespace pinstripe
