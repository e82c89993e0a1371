// A bundle: everything that one host of a site needs, in one file, which `pinstripe init` makes and
// `pinstripe join` puts into place. It is a tar (ustar) whose first members are `manifest.toml` and
// the checksum of that, so that anybody can look into it and damage is noticed. It holds keys.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

struct BundleFile {
  std::string path;   // where it belongs: in one of the directories below
  std::string owner;  // a user; its group has the same name
  unsigned mode = 0644;
  std::string contents;
  friend bool operator==(const BundleFile&, const BundleFile&) = default;
};

struct Bundle {
  std::string site;
  std::string host;
  std::string version;             // of the program that made it
  std::string made;                // when: "2026-11-25 19:30:00 UTC"
  std::vector<std::string> disks;  // directories, one for each drive
  bool gateway = false;
  std::vector<std::string> mounts;
  std::vector<BundleFile> files;
  friend bool operator==(const Bundle&, const Bundle&) = default;
};

// Where drives' and clients' files are on a host.
inline constexpr std::string_view kConfigDirectory = "/etc/pinstripe";
inline constexpr std::string_view kGatewayDirectory = "/etc/xrootd";
// And what the unit of its daemon is told beyond what the package says.
inline constexpr std::string_view kUnitDirectory = "/etc/systemd/system/pinstriped.service.d";

std::string PackBundle(const Bundle& bundle);

// EBADMSG: damaged, or not a bundle. EACCES: it would put a file where none of a site belongs, or
// with a mode or an owner that none has. ENOTSUP: of a newer program.
Result<Bundle> UnpackBundle(std::string_view bytes);

}  // namespace pinstripe
