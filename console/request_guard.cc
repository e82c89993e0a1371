#include "console/request_guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

namespace pinstripe {
namespace {

bool IsNumber(const std::string& host) {
  in6_addr six{};
  in_addr four{};
  return inet_pton(AF_INET, host.c_str(), &four) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &six) == 1;
}

}  // namespace

std::string HostWithoutPort(std::string_view text) {
  const bool is_six = text.starts_with('[');
  const size_t end = is_six ? text.find(']') : text.find(':');
  if (is_six && end == text.npos) return "";
  const std::string_view host =
      is_six ? text.substr(1, end - 1) : text.substr(0, std::min(end, text.size()));
  std::string_view rest = text.substr(std::min(text.size(), is_six ? end + 1 : end));
  if (!rest.empty()) {
    const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    if (rest.size() < 2 || rest[0] != ':' || !std::ranges::all_of(rest.substr(1), is_digit)) {
      return "";
    }
  }
  return LowerCase(host);
}

std::optional<Origin> ParseOrigin(std::string_view url) {
  std::string text = LowerCase(url);
  if (text.ends_with('/')) text.pop_back();
  const std::string_view scheme = text.starts_with("https://")  ? "https://"
                                  : text.starts_with("http://") ? "http://"
                                                                : "";
  if (scheme.empty()) return std::nullopt;
  const std::string host = HostWithoutPort(std::string_view(text).substr(scheme.size()));
  const auto is_of_a_name = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':';
  };
  if (host.empty() || !std::ranges::all_of(host, is_of_a_name)) return std::nullopt;
  // Browsers leave out the port that the scheme has anyway.
  const std::string_view usual = scheme == "https://" ? ":443" : ":80";
  if (text.ends_with(usual)) text.resize(text.size() - usual.size());
  return Origin{.text = text, .host = host};
}

Status CheckRequest(const HttpRequest& request, const HostNames& names,
                    std::string_view public_origin) {
  // An address as a number is no name that others could have lead here.
  const std::string host = HostWithoutPort(request.Header("host"));
  if (host != "localhost" && !IsNumber(host) && !names.contains(host)) {
    return Fail(EPERM,
                "this console is not known as '{}': start it with --host-name to have it "
                "answer to that name",
                host);
  }
  const std::string_view origin = request.Header("origin");
  const std::string ours = fmt::format("{}://{}", request.is_encrypted ? "https" : "http",
                                       LowerCase(request.Header("host")));
  const bool is_public = !public_origin.empty() && LowerCase(origin) == public_origin;
  if (!origin.empty() && LowerCase(origin) != ours && !is_public) {
    return Fail(EPERM, "a page of another site has asked for this");
  }
  // Browsers say who asks; others say nothing. A link from elsewhere may lead to the page, on a
  // window of its own: not in a frame, and not to the data behind it.
  const std::string_view site = request.Header("sec-fetch-site");
  const bool is_visit =
      request.method != "POST" && request.Header("sec-fetch-mode") == "navigate" &&
      request.Header("sec-fetch-dest") == "document" && !request.path.starts_with("/api/");
  const bool is_own = site.empty() || site == "same-origin" || site == "none";
  if (!is_own && !is_visit) return Fail(EPERM, "a page of another site has asked for this");
  return {};
}

void AddSecurityHeaders(HttpResponse& response) {
  const std::pair<const char*, const char*> always[] = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
       "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
       "frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
  };
  for (const auto& [name, value] : always) response.headers.emplace_back(name, value);
  const bool says_how_long = std::ranges::any_of(
      response.headers, [](const auto& header) { return header.first == "Cache-Control"; });
  if (!says_how_long) response.headers.emplace_back("Cache-Control", "no-store");
}

}  // namespace pinstripe
