#include "tools/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pinstripe {

DiagnosisLevel WorstOf(const std::vector<Diagnosis>& diagnoses) {
  DiagnosisLevel worst = DiagnosisLevel::kOk;
  for (const Diagnosis& diagnosis : diagnoses) worst = std::max(worst, diagnosis.level);
  return worst;
}

std::string DelayText(Duration time) {
  const double micros = static_cast<double>(time.count()) / 1000;
  return micros < 1000 ? fmt::format("{:.0f} us", micros) : fmt::format("{:.1f} ms", micros / 1000);
}

const char* NameOf(DiagnosisLevel level) {
  switch (level) {
    case DiagnosisLevel::kOk: return "ok";
    case DiagnosisLevel::kWarning: return "warning";
    case DiagnosisLevel::kError: return "error";
  }
  return "";
}

std::string DiagnosesText(const std::vector<Diagnosis>& diagnoses) {
  std::string text;
  for (const Diagnosis& diagnosis : diagnoses) {
    text +=
        fmt::format("{:8} {}: {}\n", NameOf(diagnosis.level), diagnosis.subject, diagnosis.text);
    if (!diagnosis.way_out.empty()) text += fmt::format("{:8} -> {}\n", "", diagnosis.way_out);
  }
  return text;
}

std::string DiagnosesJson(const std::vector<Diagnosis>& diagnoses) {
  nlohmann::json list = nlohmann::json::array();
  for (const Diagnosis& diagnosis : diagnoses) {
    list.push_back({{"level", NameOf(diagnosis.level)},
                    {"subject", diagnosis.subject},
                    {"text", diagnosis.text},
                    {"way_out", diagnosis.way_out}});
  }
  return nlohmann::json{{"worst", NameOf(WorstOf(diagnoses))}, {"diagnoses", list}}.dump(2) + "\n";
}

}  // namespace pinstripe
