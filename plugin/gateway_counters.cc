#include "plugin/gateway_counters.h"

namespace pinstripe {
namespace {

constexpr std::array<const char*, GatewayCounters::kRequests> kNames = {
    "open", "read", "read_parts", "write", "close", "sync", "stat", "list", "change"};

}  // namespace

const char* GatewayCounters::NameOf(Request request) {
  return kNames.at(static_cast<size_t>(request));
}

void GatewayCounters::AddTo(MetricsPage& page) const {
  for (size_t i = 0; i < kRequests; ++i) {
    page.Histogram("pinstripe_gateway_request_seconds",
                   "How long requests of the server took, by their kind.", took[i].Load(),
                   {{"request", kNames[i]}});
  }
  page.Counter("pinstripe_gateway_opens_total", "Files that were opened.", files_opened.load());
  page.Counter("pinstripe_gateway_read_bytes_total", "Bytes that clients read.", bytes_read.load());
  page.Counter("pinstripe_gateway_written_bytes_total", "Bytes that clients wrote.",
               bytes_written.load());
  page.Counter("pinstripe_gateway_errors_total", "Answers that were EIO.", errors.load());
}

}  // namespace pinstripe
