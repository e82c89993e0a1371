// RequestGuard: which requests are let in at all, and what every answer tells the browser. Against
// pages of others that have a browser ask us (cross-site requests), and against names of others
// that lead here (DNS rebinding).

#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "console/http_server.h"

namespace pinstripe {

// The names under which the console is reached, besides addresses as numbers and "localhost", in
// lower case and without a port.
using HostNames = std::set<std::string>;

// EPERM: it is refused, with why.
Status CheckRequest(const HttpRequest& request, const HostNames& names);

// The host of "host:port", "[::1]:8070" or "host". Empty: it is none of these.
std::string HostWithoutPort(std::string_view text);

// What has the browser run nothing but the page's own scripts, and show it in no frame.
void AddSecurityHeaders(HttpResponse& response);

}  // namespace pinstripe
