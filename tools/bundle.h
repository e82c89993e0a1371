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
  std::string path;   // where it belongs
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
  int64_t generation = 0;          // counts how often the site has changed
  std::vector<std::string> disks;  // directories, one for each drive
  bool gateway = false;
  std::vector<std::string> mounts;
  std::vector<BundleFile> files;
  friend bool operator==(const Bundle&, const Bundle&) = default;
};

// Where drives' and clients' files are on a host.
inline constexpr std::string_view kConfigDirectory = "/etc/pinstripe";
inline constexpr std::string_view kGatewayDirectory = "/etc/xrootd";

std::string PackBundle(const Bundle& bundle);

// EBADMSG: damaged, or not a bundle. EACCES: it would put a file where none of a site belongs, or
// with a mode or an owner that it has not, or has a disk or a mount where none can be. ENOTSUP: of
// a newer program.
Result<Bundle> UnpackBundle(std::string_view bytes);

// The bytes of a bundle. Root does what is in it, so it has to be root's or the caller's (sudo's),
// and nobody else's to read. EACCES: it is not.
Result<std::string> ReadBundleFile(const std::string& path);

}  // namespace pinstripe
