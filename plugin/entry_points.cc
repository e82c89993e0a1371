// What XRootD's plugin loader calls:
//
//   ofs.osslib +cksio +xattr libXrdOssPinstripe.so /etc/pinstripe/cluster.toml
//
// A cluster that cannot be opened is one line in the server's log, and the server does not start.

#include <XrdSys/XrdSysError.hh>
#include <XrdVersion.hh>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/try.h"
#include "plugin/file_attributes.h"
#include "plugin/oss.h"

namespace pinstripe {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kError: break;
  }
  return "error";
}

// The rest of the configuration line, without the spaces around it.
Result<std::string> ConfigFileOf(const char* parameters) {
  std::string_view text = parameters == nullptr ? "" : parameters;
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) {
    return Fail(EINVAL,
                "ofs.osslib names no configuration file: write `ofs.osslib +cksio +xattr "
                "libXrdOssPinstripe.so /etc/pinstripe/cluster.toml`");
  }
  text = text.substr(first, text.find_last_not_of(" \t") + 1 - first);
  if (text.find_first_of(" \t") != text.npos) {
    return Fail(EINVAL, "ofs.osslib takes one parameter, the path of cluster.toml, and not `{}`",
                text);
  }
  return std::string(text);
}

// The one of this process, which the server keeps for ever; null before it has started.
std::atomic<Oss*> the_oss = nullptr;

Result<std::unique_ptr<Oss>> StartOss(const char* parameters) {
  const std::string file = TRY(ConfigFileOf(parameters));
  const char* program = getenv("XRDPROG");
  return Oss::Start(file, program != nullptr && std::string_view(program) == "cmsd");
}

XrdOss* GetStorageSystem(XrdSysLogger* logger, const char* parameters) {
  // Lives as long as the process, like the server's logger.
  static XrdSysError* const messages = new XrdSysError(logger, "pinstripe_");
  SetLogSink([](LogLevel level, std::string_view line) {
    messages->Emsg(LevelName(level), std::string(line).c_str());
  });

  // A file appears with its last byte, at Close: the server's own scheme for that would only leave
  // marks on files and refuse to start when one cannot be removed.
  setenv("XRDXROOTD_NOPOSC", "1", 1);

  Result<std::unique_ptr<Oss>> oss = StartOss(parameters);
  if (!oss.has_value()) {
    messages->Emsg("start", std::string(oss.error().message()).c_str());
    return nullptr;
  }
  the_oss = oss->get();
  return oss->release();
}

XrdSysXAttr* GetAttributes() {
  return new FileAttributes([]() -> FileSystem* {
    Oss* const oss = the_oss;
    return oss == nullptr ? nullptr : &oss->file_system();
  });
}

}  // namespace
}  // namespace pinstripe

#pragma GCC visibility push(default)

XrdVERSIONINFO(XrdOssGetStorageSystem2, pinstripe);
XrdVERSIONINFO(XrdOssGetStorageSystem, pinstripe);
XrdVERSIONINFO(XrdSysGetXAttrObject, pinstripe);

extern "C" {

XrdOss* XrdOssGetStorageSystem2(XrdOss*, XrdSysLogger* logger, const char*, const char* parameters,
                                XrdOucEnv*) {
  return pinstripe::GetStorageSystem(logger, parameters);
}

XrdOss* XrdOssGetStorageSystem(XrdOss*, XrdSysLogger* logger, const char*, const char* parameters) {
  return pinstripe::GetStorageSystem(logger, parameters);
}

XrdSysXAttr* XrdSysGetXAttrObject(XrdSysError*, const char*, const char*) {
  return pinstripe::GetAttributes();
}

}  // extern "C"

#pragma GCC visibility pop
