#include "tools/package_sample.h"

#include <fmt/format.h>

#include "base/read_file.h"

namespace pinstripe {

bool IsPackageSample(const std::string& root, const std::string& name, std::string_view contents) {
  for (const char* package : {"pinstripe", "xrootd-pinstripe"}) {
    const Result<std::string> sample =
        ReadFile(fmt::format("{}/usr/share/doc/{}/examples/{}", root, package, name));
    if (sample && *sample == contents) return true;
  }
  return false;
}

}  // namespace pinstripe
