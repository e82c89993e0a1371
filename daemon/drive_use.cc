#include "daemon/drive_use.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "daemon/kinetic_service.h"
#include "kinetic/kinetic.pb.h"

namespace pinstripe {
namespace {

using kinetic::GetLog;
using kinetic::Header;

// The table is a constant without the generated header, which is heavy.
constexpr bool Names(Header::MessageType type, std::string_view name) {
  return std::ranges::any_of(
      kServedTypes, [&](const auto& each) { return each.first == type && each.second == name; });
}
static_assert(Names(Header::GET, "get") && Names(Header::PUT, "put") &&
              Names(Header::DELETE, "delete") && Names(Header::GETNEXT, "get_next") &&
              Names(Header::GETPREVIOUS, "get_previous") &&
              Names(Header::GETKEYRANGE, "get_key_range") &&
              Names(Header::GETVERSION, "get_version") && Names(Header::SETUP, "setup") &&
              Names(Header::GETLOG, "get_log") && Names(Header::SECURITY, "security") &&
              Names(Header::PEER2PEERPUSH, "peer_to_peer_push") && Names(Header::NOOP, "noop") &&
              Names(Header::FLUSHALLDATA, "flush") && Names(Header::PINOP, "pin") &&
              Names(Header::MEDIASCAN, "media_scan") &&
              Names(Header::MEDIAOPTIMIZE, "media_optimize") &&
              Names(Header::START_BATCH, "start_batch") && Names(Header::END_BATCH, "end_batch") &&
              Names(Header::ABORT_BATCH, "abort_batch"));

uint64_t Milliseconds(Duration time) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

void Fill(const ConnectedClient& client, Time now, GetLog::Client* filled) {
  FillName(client, filled);
  filled->set_tls(client.tls());
  if (const auto identity = client.identity()) filled->set_identity(*identity);
  filled->set_connectedmilliseconds(Milliseconds(now - client.since()));
  filled->set_requests(client.requests());
  filled->set_bytesread(client.bytes_read());
  filled->set_byteswritten(client.bytes_written());
}

}  // namespace

void FillName(const ConnectedClient& client, GetLog::Client* filled) {
  ConnectedClient::Introduction said = client.introduction();
  if (!said.program.empty()) filled->set_program(std::move(said.program));
  if (!said.version.empty()) filled->set_version(std::move(said.version));
  if (!said.host.empty()) filled->set_host(std::move(said.host));
  if (!said.detail.empty()) filled->set_detail(std::move(said.detail));
  if (said.process != 0) filled->set_process(said.process);
  filled->set_address(client.address());
  filled->set_connection(static_cast<uint64_t>(client.connection()));
}

void FillUse(KineticService& service, Time now, GetLog* log) {
  log->clear_clients();  // who asks twice is told once: an answer has a bounded size
  log->clear_work();
  for (const auto& client : service.clients().All()) Fill(*client, now, log->add_clients());
  for (const auto& [type, name] : kServedTypes) {
    const OperationStatistics::Count count = service.statistics().Of(type);
    if (count.operations == 0) continue;
    const LatencyCounts took = service.statistics().TookOf(type);
    GetLog::Work* work = log->add_work();
    work->set_messagetype(static_cast<Header::MessageType>(type));
    work->set_requests(count.operations);
    work->set_bytes(count.value_bytes);
    for (const uint64_t each : took.of) work->add_took(each);
    work->set_nanoseconds(took.nanoseconds);
  }
  log->set_workmilliseconds(Milliseconds(now - service.served_since()));
}

}  // namespace pinstripe
