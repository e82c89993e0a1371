// A directory that is to become a drive. It is held open from when it was looked at until it
// belongs to the user of drives, so that no other directory can take its name in between.

#pragma once

#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "tools/file_writing.h"

namespace pinstripe {

class NewDrive {
 public:
  // `directory` is what messages say, and lies at `path`. ENOTEMPTY: something is in it (but for
  // lost+found). ELOOP: it is a link. ENOENT, ENOTDIR ...: it is not there.
  static Result<NewDrive> Open(const std::string& directory, const std::string& path);

  const std::string& directory() const { return directory_; }
  Status GiveTo(const FileOwner& owner) const;

 private:
  NewDrive(std::string directory, FileDescriptor opened)
      : directory_(std::move(directory)), opened_(std::move(opened)) {}
  std::string directory_;
  FileDescriptor opened_;
};

}  // namespace pinstripe
