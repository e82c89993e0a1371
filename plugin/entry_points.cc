// What XRootD's plugin loader calls:
//
//   ofs.osslib +cksio +xattr libXrdOssPinstripe.so /etc/pinstripe/cluster.toml [/DIRECTORY]
//              [metrics=127.0.0.1:9465] [slow_request=2]
//
// With a directory, clients see what is below it in the cluster as if it were everything.
// A cluster that cannot be opened is one line in the server's log, and the server does not start.

#include <XrdSys/XrdSysError.hh>
#include <XrdVersion.hh>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/log.h"
#include "base/program.h"
#include "base/try.h"
#include "metrics/address.h"
#include "plugin/file_attributes.h"
#include "plugin/oss.h"
#include "upkeep/slow_operations.h"

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

struct Parameters {
  std::string config_file;
  std::string root = "/";  // the directory that is exported
  std::string metrics;     // where they are served; empty: nowhere
  Duration slow_request = SlowOperations::kUsually;
};

// The rest of the configuration line.
Result<Parameters> Parse(const char* parameters) {
  constexpr std::string_view kMetrics = "metrics=";
  constexpr std::string_view kSlowRequest = "slow_request=";
  Parameters parsed;
  std::vector<std::string> words;
  std::istringstream text(parameters == nullptr ? "" : parameters);
  for (std::string word; text >> word;) {
    if (word.starts_with(kMetrics)) {
      parsed.metrics = word.substr(kMetrics.size());
      TRY(ParseMetricsAddress(parsed.metrics));
    } else if (word.starts_with(kSlowRequest)) {
      parsed.slow_request = TRY(SlowOperations::ParseAfter(word.substr(kSlowRequest.size())));
    } else {
      words.push_back(word);
    }
  }
  if (words.empty()) {
    return Fail(EINVAL,
                "ofs.osslib names no configuration file: write `ofs.osslib +cksio +xattr "
                "libXrdOssPinstripe.so /etc/pinstripe/cluster.toml`");
  }
  if (words.size() > 2) {
    return Fail(EINVAL,
                "ofs.osslib takes the path of cluster.toml and, at most, the directory to be "
                "exported, metrics=ADDRESS:PORT and slow_request=SECONDS, and not `{}`",
                parameters);
  }
  parsed.config_file = words[0];
  if (words.size() == 2) parsed.root = words[1];
  if (parsed.root[0] != '/') {
    return Fail(EINVAL, "the directory to be exported is to begin with '/': `{}`", parsed.root);
  }
  return parsed;
}

// The one of this process, which the server keeps for ever; null before it has started.
std::atomic<Oss*> the_oss = nullptr;

Result<std::unique_ptr<Oss>> StartOss(const char* parameters) {
  const Parameters parsed = TRY(Parse(parameters));
  const char* program = getenv("XRDPROG");
  const char* instance = getenv("XRDNAME");
  const bool is_manager = program != nullptr && std::string_view(program) == "cmsd";
  SetProgram({.name = is_manager ? "cmsd-pinstripe" : "xrootd-pinstripe",
              .version = PINSTRIPE_VERSION,
              .detail = instance == nullptr ? "" : instance});
  auto oss = TRY(Oss::Start(parsed.config_file, parsed.root, is_manager));
  // The manager beside a server reads the same line, and has no requests to tell of.
  if (!is_manager) {
    oss->ServeMetrics(parsed.metrics);
    oss->TellSlow(parsed.slow_request);
  }
  return oss;
}

XrdOss* GetStorageSystem(XrdSysLogger* logger, const char* parameters) {
  // Lives as long as the process, like the server's logger.
  static XrdSysError* const messages = new XrdSysError(logger, "pinstripe_");
  SetLogSink([](LogLevel level, std::string_view line) {
    messages->Emsg(LevelName(level), std::string(line).c_str());
  });

  TuneGlibcAllocator();

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
  return new FileAttributes([]() -> Oss* { return the_oss; });
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
