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

// What the last join has put into place, kept in /etc/pinstripe/joined.toml.
struct JoinRecord {
  std::string site;
  std::string host;
  std::string version;                        // of the program that made the bundle
  std::map<std::string, std::string> sha256;  // by path
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

// The arguments of `systemctl`, one call after the other. `written`: the files that were.
std::vector<std::vector<std::string>> PlanUnits(const Bundle& bundle,
                                                const std::set<std::string>& written);

}  // namespace pinstripe
