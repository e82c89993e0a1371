// NoAttributes: extended attributes as XRootD asks for them (XrdSysXAttr), of a file system that
// has none. Without it the server would look for them on a local file that happens to have the same
// path, and every checksum query would fail there.
//
// Reading finds nothing; setting is refused. The server also keeps checksums that it has computed
// in an attribute: being told that this is not supported, it computes them anew each time they are
// asked for.

#pragma once

#include <XrdSys/XrdSysXAttr.hh>
#include <cerrno>

namespace pinstripe {

class NoAttributes final : public XrdSysXAttr {
 public:
  int Get(const char*, void*, int, const char*, int) override { return -ENODATA; }
  int Set(const char*, const void*, int, const char*, int, int) override { return -ENOTSUP; }
  int Del(const char*, const char*, int) override { return 0; }  // it is not there
  int List(AList** first, const char*, int, int) override {
    *first = nullptr;
    return 0;
  }
  void Free(AList*) override {}
};

}  // namespace pinstripe
