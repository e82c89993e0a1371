#include "metrics/address.h"

#include <arpa/inet.h>

#include <charconv>

namespace pinstripe {
Result<MetricsAddress> ParseMetricsAddress(std::string_view text) {
  MetricsAddress parsed{.host = "127.0.0.1"};
  const size_t colon = text.rfind(':');
  const bool has_host = colon != std::string_view::npos;
  const std::string_view digits = has_host ? text.substr(colon + 1) : text;
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, parsed.port);
  if (has_host) parsed.host = text.substr(0, colon);
  in_addr address{};
  const bool is_right =
      error == std::errc() && end == last && inet_pton(AF_INET, parsed.host.c_str(), &address) == 1;
  if (is_right) return parsed;
  return Fail(EINVAL,
              "'{}' is not where metrics can be served: write an IPv4 address and a port, like "
              "127.0.0.1:9464, or a port alone for this machine only",
              text);
}

}  // namespace pinstripe
