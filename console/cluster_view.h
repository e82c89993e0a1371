// ClusterView: what the console asks of a cluster. The real one is LiveCluster; tests have others.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fs/types.h"
#include "upkeep/cluster_use.h"
#include "upkeep/events.h"
#include "upkeep/survey.h"
#include "upkeep/whereabouts.h"
#include "upkeep/work.h"

namespace pinstripe {

// Thread-safe. Each call may take as long as the cluster's time limits allow.
class ClusterView {
 public:
  virtual ~ClusterView() = default;

  // Fails only when the configuration is no good.
  virtual Result<Survey> Look() = 0;

  // Answers of drives that all questions so far have had. Not those of looks at a cluster that
  // cannot be opened.
  virtual uint64_t Questions() const = 0;

  // What the others need is an open cluster. EIO, with why: there is none now.

  // What each drive of that survey has done so far, and for whom: one question to each.
  virtual Result<ClusterUse> Use(const Survey& survey) = 0;

  // Entries after `after` in byte order, at most `max`. ENOENT, ENOTDIR, ...
  virtual Result<std::vector<DirectoryEntry>> List(std::string_view path, std::string_view after,
                                                   size_t max) = 0;
  virtual Result<Whereabouts> Find(std::string_view path, const WhereaboutsOptions& options) = 0;
  // What is kept the first time, and what has come since afterwards. Called by one thread.
  virtual Result<std::vector<Event>> NewEvents() = 0;
  virtual Result<std::vector<WorkSeen>> Work() = 0;
  // Of the work that people name so. ENOENT: there is none.
  virtual Status AskOfWork(int number, const WorkChange& change, const std::string& by) = 0;
};

}  // namespace pinstripe
