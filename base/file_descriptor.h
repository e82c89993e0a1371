// FileDescriptor: closes what it holds.

#pragma once

#include <utility>

namespace pinstripe {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // negative: none
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }  // who calls this closes it

 private:
  int fd_ = -1;
};

}  // namespace pinstripe
