// FileAttributes: extended attributes as XRootD asks for them (XrdSysXAttr).
//
// What a client calls "a" arrives as "U.a" and is what the mount calls "user.a"; any other
// attribute of the file system is none of the clients' business. Everything else that XRootD asks
// for is its own, such as "XrdCks.md5", a checksum that it has computed and trusts as long as
// the file's time, in seconds, is the same. A file can change twice in a second, so these are not
// kept: setting one is refused, and the server computes a checksum anew each time it is asked for.
// But "XrdCks.adler32" and "XrdCks.crc32c" are always there, computed when they are asked for out
// of the checksums that the file's stored parts have.
//
// A client that names an open file is taken for one that names its path. So what is set while a
// file is uploaded is set of the upload, and is there when that is closed.

#pragma once

#include <XrdSys/XrdSysXAttr.hh>
#include <functional>

#include "plugin/oss.h"

namespace pinstripe {

class FileAttributes final : public XrdSysXAttr {
 public:
  // `oss` is asked for at each call, and is null before there is one (-EIO).
  explicit FileAttributes(std::function<Oss*()> oss) : oss_(std::move(oss)) {}

  // All as XrdSysXAttr.hh says; `descriptor` is of no file of ours.
  int Get(const char* name, void* value, int size, const char* path, int descriptor) override;
  int Set(const char* name, const void* value, int size, const char* path, int descriptor,
          int is_new) override;
  int Del(const char* name, const char* path, int descriptor) override;
  int List(AList** first, const char* path, int descriptor, int with_sizes) override;
  void Free(AList* first) override;

 private:
  enum class Use { kLook, kChange };
  Result<InodeId> Find(const char* path, Use use) const;
  int GetChecksum(std::string_view algorithm, void* value, int size, const char* path) const;

  const std::function<Oss*()> oss_;
};

}  // namespace pinstripe
