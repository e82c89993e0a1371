// A directory with secrets in it that is made beside the place where it is to be, or for a moment.

#pragma once

#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace pinstripe {

// Removes itself with all that is in it, unless it is kept. A process that is killed cannot do
// that: the next one that makes a draft of that name removes what is left. A draft that somebody is
// at work on is locked.
class Draft {
 public:
  // A new, empty directory: `name`, and six characters by chance.
  static Result<Draft> Make(const std::string& name);
  Draft(Draft&& other) noexcept;
  ~Draft();

  const std::string& path() const { return path_; }
  void Keep() { path_.clear(); }

 private:
  Draft(std::string path, FileDescriptor lock);

  std::string path_;
  FileDescriptor lock_;
};

}  // namespace pinstripe
