#include "cluster/log_setting.h"

#include "base/config.h"
#include "base/try.h"

namespace pinstripe {

Result<LogFormat> LogFormatOf(const std::string& cluster_file) {
  const ConfigFile file = TRY(ConfigFile::Load(cluster_file));
  return ParseLogFormat(file.root().Table("cluster").Text("log_format", "text"));
}

}  // namespace pinstripe
