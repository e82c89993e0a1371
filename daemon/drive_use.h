// Who uses a device, and what it did for them, as it tells in the log of its clients
// (docs/protocol.md, "Our extension: who uses a drive"), and which requests it serves.

#pragma once

#include <array>
#include <utility>

#include "base/runtime.h"

namespace pinstripe {

namespace kinetic {
class GetLog;
class GetLog_Client;
}  // namespace kinetic

class ConnectedClient;
class KineticService;

// The types of messages of kinetic.proto, and their names for people and metrics.
inline constexpr std::array<std::pair<int, const char*>, 19> kServedTypes = {{
    {2, "get"},
    {4, "put"},
    {6, "delete"},
    {8, "get_next"},
    {10, "get_previous"},
    {12, "get_key_range"},
    {16, "get_version"},
    {22, "setup"},
    {24, "get_log"},
    {26, "security"},
    {28, "peer_to_peer_push"},
    {30, "noop"},
    {32, "flush"},
    {36, "pin"},
    {38, "media_scan"},
    {40, "media_optimize"},
    {42, "start_batch"},
    {44, "end_batch"},
    {46, "abort_batch"},
}};

// Who it is: its name as it says, its address and its connection.
void FillName(const ConnectedClient& client, kinetic::GetLog_Client* filled);

void FillUse(KineticService& service, Time now, kinetic::GetLog* log);

}  // namespace pinstripe
