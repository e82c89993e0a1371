// DriveClient: what tests of real drives share, a client that connects, asks, and waits for the
// answer. A fixture derives from it.

#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/real_runtime.h"
#include "kinetic/kinetic_drive.h"

namespace pinstripe {

class DriveClient {
 protected:
  // To a drive of this machine that has the factory's key. It tries again at once where it fails.
  std::unique_ptr<KineticDrive> Connect(uint16_t port, std::string name = "drive") {
    return std::make_unique<KineticDrive>(
        io_, KineticDrive::Options{.name = std::move(name),
                                   .addresses = {fmt::format("127.0.0.1:{}", port)},
                                   .key = "asdfasdf",
                                   .least_backoff = std::chrono::milliseconds(1)});
  }

  // Asks and waits for the answer.
  template <typename Answer, typename Ask>
  static Answer Await(Ask ask) {
    std::promise<Answer> answer;
    ask([&](Answer got) { answer.set_value(std::move(got)); });
    return answer.get_future().get();
  }

  Time Deadline() { return runtime_.Now() + std::chrono::seconds(20); }

  RealRuntime runtime_;
  KineticIo io_{runtime_};
};

}  // namespace pinstripe
