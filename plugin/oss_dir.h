// OssDir: a directory being listed, as XRootD sees it (XrdOssDF). Entries are fetched a few hundred
// at a time, with their attributes when the server wants them. Used by one thread at a time.

#pragma once

#include <XrdOss/XrdOss.hh>
#include <string>
#include <vector>

#include "fs/file_system.h"
#include "plugin/oss.h"

namespace pinstripe {

class OssDir final : public XrdOssDF {
 public:
  OssDir(Oss& oss, const char* tident) : XrdOssDF(tident, DF_isDir), oss_(oss) {}

  int Opendir(const char* path, XrdOucEnv& env) override;
  int Readdir(char* name, int length) override;  // the empty name is the end
  int StatRet(struct stat* out) override;
  int Close(long long* size) override;

 private:
  // Makes batch_[next_] the next entry; false at the end.
  Result<bool> Advance();

  // Its name, or where that does not fit one of which there is no entry.
  Result<std::string> NameToShow(const DirectoryEntry& entry, int length);

  // The attributes of an entry that came without; none when it is gone.
  Result<std::optional<Attributes>> AttributesOf(const DirectoryEntry& entry);

  Oss& oss_;
  std::string path_;       // for messages
  InodeId directory_ = 0;  // 0: not open
  std::string last_name_;  // of the last batch
  std::vector<DirectoryEntry> batch_;
  size_t next_ = 0;              // index into batch_
  struct stat* stat_ = nullptr;  // the server's, to be filled with every name; null: not wanted
};

}  // namespace pinstripe
