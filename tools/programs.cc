#include "tools/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "base/try.h"

namespace pinstripe {
namespace {

// Between them is the major version of the XRootD that it is for.
constexpr std::string_view kPlugin = "libXrdOssPinstripe";
constexpr std::string_view kPluginEnd = ".so";

void AddSearchPath(std::vector<std::string>& places) {
  const char* path = std::getenv("PATH");
  std::istringstream directories(path == nullptr ? "" : path);
  for (std::string one; std::getline(directories, one, ':');) {
    if (!one.empty()) places.push_back(one);
  }
  // Folders that an unprivileged user's PATH lacks.
  for (const char* more : {"/usr/bin", "/usr/sbin", "/bin", "/sbin"}) places.push_back(more);
}

Result<std::string> FindIn(const std::vector<std::string>& places, const std::string& file) {
  for (const std::string& place : places) {
    const std::filesystem::path candidate = std::filesystem::path(place) / file;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored) &&
        access(candidate.c_str(), X_OK) == 0) {
      // Without links on the way to it. It may be one itself: a program may go by its name.
      const auto folder = std::filesystem::weakly_canonical(place, ignored);
      return (folder / file).string();
    }
  }
  return Fail(ENOENT, "cannot find {}; looked in {}", file, fmt::join(places, ", "));
}

}  // namespace

Result<std::string> OwnDirectory() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Fail(EIO, "/proc/self/exe: {}", error.message());
  return self.parent_path().string();
}

Result<std::string> FindProgram(const std::string& name, const std::string& folder) {
  std::vector<std::string> places;
  if (!folder.empty()) {
    const std::string own = TRY(OwnDirectory());
    places = {own + "/../" + folder, own, own + "/../sbin"};
  }
  AddSearchPath(places);
  return FindIn(places, name);
}

Result<std::string> FindPlugin() {
  const std::string own = TRY(OwnDirectory());
  const std::vector<std::string> places = {own + "/../plugin", PINSTRIPE_LIBRARY_DIRECTORY,
                                           "/usr/lib", "/usr/local/lib"};
  for (const std::string& place : places) {
    std::error_code ignored;
    for (std::filesystem::directory_iterator at(place, ignored), end; !ignored && at != end;
         at.increment(ignored)) {
      const auto& file = *at;
      const std::string name = file.path().filename();
      if (!name.starts_with(fmt::format("{}-", kPlugin)) || !name.ends_with(kPluginEnd)) continue;
      if (access(file.path().c_str(), R_OK) != 0) continue;
      return std::filesystem::weakly_canonical(file.path(), ignored).string();
    }
  }
  return Fail(ENOENT, "cannot find {}-5{}, or that for another XRootD; looked in {}", kPlugin,
              kPluginEnd, fmt::join(places, ", "));
}

Result<std::string> FindCrc32cLibrary() {
  const auto beside = std::filesystem::path(TRY(FindPlugin())).parent_path();
  const std::string library = beside / "libPinstripeCrc32c.so";
  if (access(library.c_str(), R_OK) == 0) return library;
  return Fail(errno, "{}: {}", library, ErrnoText(errno));
}

std::string PluginWithoutVersion(const std::string& file) {
  const auto directory = std::filesystem::path(file).parent_path();
  return fmt::format("{}/{}{}", directory.string(), kPlugin, kPluginEnd);
}

}  // namespace pinstripe
