// The directory of a site: what `pinstripe init` has made. It is complete, or not there.
//
//   site.toml drives.toml keys.toml      the description, the drives' numbers, the keys
//   generation.toml                      how often it has changed
//   ca.pem ca.key                        the authority
//   cluster.toml credentials.toml        for commands that are run where the directory is
//   hosts/NAME/tls.crt, tls.key          a host's certificate
//   hosts/NAME/etc/...                   its files, as they are in its bundle
//   NAME.tar                             its bundle
//
// All of it is its owner's alone (mode 0700).

#pragma once

#include <set>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "tools/site_state.h"

namespace pinstripe {

// What a bundle says of its origin.
struct SiteStamp {
  std::string version;
  std::string made;
};

// EEXIST: something has that name.
Status MakeSiteDirectory(const std::string& path, const SiteState& state, const SiteStamp& stamp);

// A site that is to be changed. As long as it lives nobody else changes it.
class SiteDirectory {
 public:
  // ENOENT: there is none. EBUSY: somebody else is at work on it.
  static Result<SiteDirectory> Open(const std::string& path);

  SiteState& state() { return state_; }

  // Puts a complete new directory into the place of this one. ENOTEMPTY: somebody has put something
  // else into it.
  Status Replace(const SiteStamp& stamp);

 private:
  SiteDirectory(std::string path, FileDescriptor lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}
  Status Read();
  Status CheckForForeignFiles() const;

  std::string path_;
  FileDescriptor lock_;
  SiteState state_;
  std::set<std::string> own_;  // the names of all that belongs there, as it was read
};

}  // namespace pinstripe
