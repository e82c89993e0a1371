// RequestGuard: which requests are let in at all, and what every answer tells the browser. Against
// pages of others that have a browser ask us (cross-site requests), and against names of others
// that lead here (DNS rebinding).

#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "console/http_server.h"

namespace pinstripe {

// The names under which the console is reached, besides addresses as numbers and "localhost", in
// lower case and without a port.
using HostNames = std::set<std::string>;

// An origin as browsers say it: "https://console.example.org", with a port if that is another.
struct Origin {
  std::string text;
  std::string host;
};
// Of a URL of http or https with nothing but a slash behind the host. Null: it is none.
std::optional<Origin> ParseOrigin(std::string_view url);

// EPERM: it is refused, with why. `public_origin`: what browsers see instead of us, where a proxy
// speaks TLS for us; empty: they see us.
Status CheckRequest(const HttpRequest& request, const HostNames& names,
                    std::string_view public_origin = "");

// The host of "host:port", "[::1]:8070" or "host". Empty: it is none of these.
std::string HostWithoutPort(std::string_view text);

// What has the browser run nothing but the page's own scripts, and show it in no frame.
void AddSecurityHeaders(HttpResponse& response);

}  // namespace pinstripe
