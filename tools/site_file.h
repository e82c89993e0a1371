// SITE.toml: the short description of a site, from which `pinstripe init` makes everything else.

#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "tools/site_plan.h"

namespace pinstripe {

// EINVAL: names every mistake in it, each on a line, with file and line.
Result<SiteDescription> ParseSite(std::string_view text, const std::string& name);

// A description to start from, with comments.
std::string_view ExampleSite();

}  // namespace pinstripe
