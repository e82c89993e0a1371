// Caretaker: looks after the files of a FileSystem from above it. The FileSystem owns one and tells
// it of files that were committed short; it answers on which drives a file is. upkeep/ has the real
// one (upkeep/host_care.h): fs/ itself never learns what a shard is.
//
// All calls may be made from any thread.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "fs/types.h"

namespace pinstripe {

class Cluster;
struct Inode;

class Caretaker {
 public:
  // The questions that it may ask its FileSystem, from any thread, until its destructor returns.
  struct Hooks {
    // Whether it has uncommitted changes here: then it is left until it has none, since a repair
    // and a commit would make each other try again.
    std::function<bool(InodeId)> is_changing;
    std::function<void(InodeId)> mended;  // the places of its shards have changed
  };

  virtual ~Caretaker() = default;

  // The file was committed while not all of its shards are where they belong.
  virtual void CommittedShort(InodeId file) = 0;

  // How many files wait to be made whole.
  virtual size_t waiting() = 0;

  // For people: on which drives what has this inode is. The value of kWhyAttribute. EFBIG.
  virtual Result<std::string> Why(InodeId id, const Inode& inode) = 0;
};

using MakeCaretaker = std::unique_ptr<Caretaker>(Cluster& cluster, Caretaker::Hooks hooks);

// Can be read, never set, and is not listed. ENODATA where nobody looks after the files.
inline constexpr std::string_view kWhyAttribute = "user.pinstripe.why";

}  // namespace pinstripe
