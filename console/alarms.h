// Alarms: what of a survey somebody has to act on, each with its way out.

#pragma once

#include <string>
#include <vector>

#include "upkeep/survey.h"

namespace pinstripe {

struct Alarm {
  bool is_error = false;  // something cannot be read or written now, or is lost
  std::string what;
  std::string way_out;
};

// The worst first.
std::vector<Alarm> AlarmsOf(const Survey& survey);

}  // namespace pinstripe
