// DriveMark: the file that makes a directory a drive's. A directory where a disk should be mounted
// and is not has none, and so does not become an empty drive on another disk. docs/format.md, "Mark
// of a drive", has the bytes.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/drive_directory.h"
#include "base/status.h"

namespace pinstripe {

struct DriveMark {
  static constexpr const char* kFileName = kDriveMarkName;

  std::string id;       // of the directory, by chance: 32 hexadecimal digits
  std::string made;     // when: "2026-11-25 19:30:00 UTC"
  std::string made_by;  // which version of pinstriped

  friend bool operator==(const DriveMark&, const DriveMark&) = default;
};

std::string EncodeDriveMark(const DriveMark& mark);

// EBADMSG: damaged. ENOTSUP: of a newer format. Both name `file`.
Result<DriveMark> DecodeDriveMark(std::string_view text, const std::string& file);

// Whether InitDrive() can make a drive of a directory. EEXIST: it is one, of any version.
// ENOTEMPTY: something is in it (but for lost+found). ENOENT, ENOTDIR ...: it is not there.
Status CheckCanBecomeDrive(const std::string& directory);

// Of all of them, and whether they are different ones. EINVAL: two names are of one directory.
Status CheckCanBecomeDrives(const std::vector<std::string>& directories);

// Makes an empty directory a drive's, for its owner where root does it: when this has succeeded the
// mark survives power loss. The store is made when the drive is first served. Failures as of
// CheckCanBecomeDrive().
Result<DriveMark> InitDrive(const std::string& directory, std::string_view version);

// The mark of a drive that is to be served. A directory whose store an earlier version has made,
// when there was no mark yet, is given one. ENOENT: nobody has made this directory a drive's; the
// failure does not name it.
Result<DriveMark> RequireDriveMark(const std::string& directory, std::string_view version);

}  // namespace pinstripe
