// pinstripe doctor: everything that usually is wrong, each with its way out.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/try.h"
#include "tools/commands.h"
#include "tools/doctor_look.h"

namespace pinstripe {
namespace {

struct DoctorOptions {
  std::string config;
  bool quick = false;
  bool json = false;
};

Result<std::vector<Diagnosis>> Examine(Runtime& runtime, const DoctorOptions& options) {
  const Result<ClusterConfig> config = ClusterConfig::Load(options.config);
  if (!config) {
    return std::vector<Diagnosis>{
        {DiagnosisLevel::kError, "configuration", std::string(config.error().message()),
         "mend the file that is named; docs/reference/settings.md has every setting"}};
  }
  const HostSight host = LookAtHost(runtime, *config, PINSTRIPE_VERSION);
  const std::vector<DriveSight> drives = TRY(LookAtDrives(runtime, *config, options.quick));
  std::vector<Diagnosis> diagnoses = JudgeHost(host);
  for (Diagnosis& one : JudgeDrives(drives, host)) diagnoses.push_back(std::move(one));
  return diagnoses;
}

Result<int> Doctor(Runtime& runtime, const DoctorOptions& options) {
  const Result<std::vector<Diagnosis>> examined = Examine(runtime, options);
  if (!examined) {
    fmt::print(stderr, "pinstripe: {}\n", examined.error().message());
    return static_cast<int>(DiagnosisLevel::kError);  // 1 would be warnings alone
  }
  const std::vector<Diagnosis>& diagnoses = *examined;
  fmt::print("{}", options.json ? DiagnosesJson(diagnoses) : DiagnosesText(diagnoses));
  return static_cast<int>(WorstOf(diagnoses));
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      app.add_subcommand("doctor", "Look for what usually is wrong, and say the way out");
  command->add_option("CONFIG", options->config, "cluster.toml")->required();
  command->add_flag("--quick", options->quick, "Store nothing on the drives to measure them");
  command->add_flag("--json", options->json, "Print it as JSON");
  command->footer(
      "Looks at names, certificates, drives and this host. If pinstriped.toml is beside CONFIG, "
      "it\n"
      "looks at the disks of this host, too. Stores 1 MiB on each drive and removes it again.\n"
      "Exit code: 0 all is well; 1 there are warnings; 2 there are errors, or it failed.");
  command->callback([options, &chosen] {
    chosen = [options](Runtime& runtime) { return Doctor(runtime, *options); };
  });
}

}  // namespace pinstripe
