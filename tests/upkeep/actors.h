// Who tells of events and works, in the tests of both.

#pragma once

#include <string>

#include "upkeep/actor.h"

namespace pinstripe {

inline Actor On(const std::string& host) {
  return {.host = host, .process = 258, .program = "pinstripe", .user = "alice"};
}

}  // namespace pinstripe
