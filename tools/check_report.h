// Prints what a Checker, a Collector, a Packer or a recovery has found, for people and for
// programs.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "upkeep/checker.h"
#include "upkeep/collector.h"
#include "upkeep/last_look.h"
#include "upkeep/packer.h"
#include "upkeep/recovery.h"

namespace pinstripe {

// 0 in order; 1 errors; 2 no errors, but not everything could be looked at; 3 everything can be
// read, but shards are missing, or drives that were drained are before they were found to be empty,
// files have shards on drives that are being drained, or drives are full.
inline constexpr int kExitShort = 3;
int ExitCodeOf(const CheckReport& report);

// What it says, for `pinstripe status`, which can do without if it cannot be noted.
LastLook LookOf(const CheckReport& report, int64_t now);
void NoteCheck(Cluster& cluster, const CheckReport& report);
void NotePlaces(Cluster& cluster, const CheckReport& report);

nlohmann::ordered_json CheckReportJson(const CheckReport& report);

// One line for each finding (with `all`, of leftovers, too), each drive that is missing in
// `config_file`, and what could not be looked at.
std::string FindingsText(const CheckReport& report, const std::string& config_file, bool all);

// The last lines: whether everything is in order. `leaves_something`: the command has something to
// do yet that it has said before.
std::string VerdictText(const CheckReport& report, bool leaves_something = false);

// All of it: what `pinstripe check` says. Names only, or data as well.
std::string CheckText(const CheckReport& report, const std::string& config_file, bool all,
                      bool names_only);

// For `pinstripe status`, as NoteCheck; and for the events.
void NoteCollection(Cluster& cluster, const CollectReport& report);
std::string CollectSummary(const CollectReport& report, bool dry_run);

// 0 done; 1 something stays, because it could not be looked at or removed, or as it is lost.
int ExitCodeOf(const CollectReport& report);
nlohmann::ordered_json CollectReportJson(const CollectReport& report, bool dry_run);
std::string CollectText(const CollectReport& report, bool dry_run, const std::string& older_than);

// 0 done; 1 some files could not be packed.
int ExitCodeOf(const PackReport& report);
std::string PackSummary(const PackReport& report, bool dry_run);
std::string PackText(const PackReport& report, bool dry_run, const std::string& older_than);
nlohmann::ordered_json PackReportJson(const PackReport& report, bool dry_run);

std::string RecoverText(const RecoverReport& report, const std::string& path);

// Names may be any bytes.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace pinstripe
