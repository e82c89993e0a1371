// PageFiles: the files of the page, read once at start. What is not among them does not exist: no
// path of a request ever becomes the name of a file.

#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

struct PageFile {
  std::string type;
  std::string body;
  std::string tag;  // another one when the body is another one
};

class PageFiles {
 public:
  // All files of the directory whose names end as those of a page do. ENOENT: there is no
  // index.html among them.
  static Result<PageFiles> Load(const std::string& directory);

  // "/" is index.html. Null: there is none.
  const PageFile* Find(std::string_view path) const;
  size_t count() const { return files_.size(); }

 private:
  std::map<std::string, PageFile, std::less<>> files_;  // by path
};

}  // namespace pinstripe
