// A device in this process, on a socket.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/engine.h"
#include "daemon/kinetic_service.h"
#include "daemon/server.h"
#include "tests/support/expect_ok.h"

namespace pinstripe {

class ServedDevice {
 public:
  ServedDevice(Runtime& runtime, std::unique_ptr<Store> store,
               Duration slow_request = SlowLog::kUsually)
      : engine_(std::move(store)),
        service_({.serial_number = "SN1", .slow_request = slow_request}, security_, engine_),
        server_(runtime, Server::Options{}) {
    const Result<uint16_t> port = server_.Listen("127.0.0.1", 0, service_);
    EXPECT_OK(port);
    port_ = *port;
  }

  uint16_t port() const { return port_; }
  Engine& engine() { return engine_; }
  KineticService& service() { return service_; }
  DeviceSecurity& security() { return security_; }

  std::string VersionOf(std::string_view key) {
    const auto head = engine_.Head(key);
    return head.has_value() ? head->version : "(" + ErrnoText(head.error().code()) + ")";
  }

 private:
  Engine engine_;
  DeviceSecurity security_{{{1, FullAccess("asdfasdf")}}};
  KineticService service_;
  Server server_;
  uint16_t port_ = 0;
};

}  // namespace pinstripe
