// What joining a site means for one host, decided before anything is done: which files are written,
// which of them somebody has edited, and what systemd is told. Pure functions over plain data.

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/bundle.h"

namespace pinstripe {

// What the last join has put into place, kept in /etc/pinstripe/joined.toml. It is written before
// the first file, too, so that a join that was stopped is gone on with.
struct JoinRecord {
  std::string site;
  std::string host;
  std::string version;                        // of the program that made the bundle
  int64_t generation = 0;                     // of the bundle
  std::vector<std::string> drives;            // directories that were drives then
  std::map<std::string, std::string> sha256;  // by path
  std::map<std::string, std::string> coming;  // what these files were about to become
  std::set<std::string> pending;              // files of which no program was told yet
  friend bool operator==(const JoinRecord&, const JoinRecord&) = default;
};
std::string JoinRecordText(const JoinRecord& record);
Result<JoinRecord> ParseJoinRecord(std::string_view text, const std::string& name);

// "" when a bundle is for the host that calls itself so, or why not. Either may lack the domain.
std::string WhyNotForHost(const Bundle& bundle, const std::string& hostname);

// A file as it is on the host. Null contents: it is not there.
struct PresentFile {
  std::optional<std::string> contents;
  bool right_owner_and_mode = true;
  bool is_sample = false;  // as the packages have installed it
};

enum class FileStep {
  kKeep,    // it is as it should be
  kAdd,     // there was none
  kChange,  // it is what the last join, or a package, has put there
  kEdited,  // somebody else has written it
};

// For each file of the bundle, in its order. `present` has all of them.
std::vector<FileStep> PlanFiles(const Bundle& bundle, const std::optional<JoinRecord>& record,
                                const std::map<std::string, PresentFile>& present);

// "" when a bundle is at least as new as what the host has, or why it is not taken.
std::string WhyTooOld(const Bundle& bundle, const JoinRecord& record);

// What the unit of the daemon is told beyond what the package says, made here: a bundle cannot say
// what root's units do. Null where all disks lie below /srv/pinstripe.
std::optional<BundleFile> UnitFileOf(const Bundle& bundle);

// The arguments of `systemctl`, one call after the other. `written`: the files that were.
std::vector<std::vector<std::string>> PlanUnits(const Bundle& bundle,
                                                const std::set<std::string>& written);

}  // namespace pinstripe
