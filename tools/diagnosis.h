// Diagnosis: one thing that a look at a host, a disk or a drive has found, and the way out.

#pragma once

#include <string>
#include <vector>

#include "base/runtime.h"

namespace pinstripe {

enum class DiagnosisLevel { kOk, kWarning, kError };

struct Diagnosis {
  DiagnosisLevel level = DiagnosisLevel::kOk;
  std::string subject;  // "drive 3", "/srv/pinstripe/disk1"
  std::string text;     // a sentence without its subject: "answers in 1.4 ms"
  std::string way_out;  // what to do; empty where nothing is to be done
  friend bool operator==(const Diagnosis&, const Diagnosis&) = default;
};

DiagnosisLevel WorstOf(const std::vector<Diagnosis>& diagnoses);

// "ok", "warning" and "error".
const char* NameOf(DiagnosisLevel level);

// "800 us", "1.0 ms": how long an answer takes.
std::string DelayText(Duration time);

// For people: a line for each, and its way out below it.
std::string DiagnosesText(const std::vector<Diagnosis>& diagnoses);
std::string DiagnosesJson(const std::vector<Diagnosis>& diagnoses);

}  // namespace pinstripe
