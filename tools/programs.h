// Where the other programs of this project are: beside this one in a build tree or in an
// installation, else wherever PATH finds them.

#pragma once

#include <string>

#include "base/status.h"

namespace pinstripe {

// The directory of the running program. EIO when the kernel does not tell.
Result<std::string> OwnDirectory();

// A program built in `folder` of this project ("drive"), or, with an empty folder, one of the
// system. ENOENT lists where it was looked for.
Result<std::string> FindProgram(const std::string& name, const std::string& folder);

// The XRootD plugin, as a path to the file. Its name ends with the major version of the XRootD that
// it is for.
Result<std::string> FindPlugin();

// libPinstripeCrc32c.so, which stands beside the plugin.
Result<std::string> FindCrc32cLibrary();

// As the configuration of a server names it, which inserts its version itself.
std::string PluginWithoutVersion(const std::string& file);

}  // namespace pinstripe
