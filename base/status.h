// Status and Result: how every function here says that it failed.
//
// A Status is success, or an errno together with a sentence for the person who has to act on it. A
// Result<T> is a T or a Status. errno is the code because both hosts, XRootD and the kernel, answer
// with errno. Inside, a few codes have one fixed meaning:
//
//   ENOENT                   there is no such key or name
//   ESTALE                   the version you hold is no longer the current one
//   EBADMSG                  a checksum did not match, or a record cannot be decoded
//   EHOSTUNREACH, ETIMEDOUT  a drive is away, or slow
//   EIO                      fewer drives answered well than were needed
//
// Each layer adds what only it knows, once, with Context(); the message then reads from intention
// to cause: "open /d/f: read inode 17: 2 of 3 replicas needed: drive 4 (h:1): connection refused".
// Hosts are told EIO for the codes they would misread: see HostErrno().

#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace pinstripe {

class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  // `code` is an errno, never 0.
  Status(int code, std::string message);

  bool ok() const { return failure_ == nullptr; }
  int code() const { return ok() ? 0 : failure_->code; }
  std::string_view message() const {
    return ok() ? "success" : std::string_view(failure_->message);
  }

  // The same failure with "what: " before its message. Success stays success.
  Status Context(std::string_view what) const;

  // As Context(), where a drive's answer becomes a Status: `name` is the drive's.
  Status OfDrive(std::string_view name) const;
  // message() without the name that OfDrive() gave it: for sentences that have named the drive.
  std::string WithoutDriveName() const;

 private:
  struct Failure {
    int code;
    std::string message;
    // Where the drive's name is in it, with what ends it; no bytes: it is not a drive's.
    size_t drive_at = 0;
    size_t drive_bytes = 0;
  };
  std::shared_ptr<const Failure> failure_;  // null means success, so success costs nothing
};

template <typename T>
using Result = tl::expected<T, Status>;

// What a failing function returns; becomes a Status or any Result<T>.
class [[nodiscard]] Failed {
 public:
  explicit Failed(Status status) : status_(std::move(status)) {}
  operator Status() && { return std::move(status_); }
  template <typename T>
  operator tl::expected<T, Status>() && {
    return tl::unexpected<Status>(std::move(status_));
  }

 private:
  Status status_;
};

// return Fail(ENOENT, "no drive {} in {}", id, file);
template <typename... Args>
Failed Fail(int code, fmt::format_string<Args...> format, Args&&... args) {
  return Failed(Status(code, fmt::format(format, std::forward<Args>(args)...)));
}

// The errno to tell a host (XRootD, the kernel, a shell): internal codes become EIO, the rest stay.
// Codes that XRootD takes for a delay, a byte count or a redirection (EBUSY, ETIMEDOUT,
// EINPROGRESS, ETXTBSY, EDESTADDRREQ, ENOMSG) never leave.
int HostErrno(const Status& status);

// "No such file or directory" and the like, for messages.
std::string ErrnoText(int code);

}  // namespace pinstripe
