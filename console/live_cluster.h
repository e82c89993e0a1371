// LiveCluster: the cluster of a configuration file, opened once and kept. While it cannot be opened
// each look tries again.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "console/cluster_view.h"

namespace pinstripe {

class LiveCluster final : public ClusterView {
 public:
  // Asks nobody yet. `runtime` outlives it.
  LiveCluster(Runtime& runtime, std::string config_file);
  ~LiveCluster() override;

  Result<Survey> Look() override;
  uint64_t Questions() const override;
  Result<ClusterUse> Use(const Survey& survey) override;
  Result<std::vector<DirectoryEntry>> List(std::string_view path, std::string_view after,
                                           size_t max) override;
  Result<Whereabouts> Find(std::string_view path, const WhereaboutsOptions& options) override;
  Result<std::vector<Event>> NewEvents() override;
  Result<std::vector<WorkSeen>> Work() override;
  Status AskOfWork(int number, const WorkChange& change, const std::string& by) override;

  // Reads the configuration again: the ways to the drives. An open cluster goes on where it cannot
  // be used.
  Status Reload();

 private:
  struct Opened;
  std::shared_ptr<Opened> Known() const;
  Result<std::shared_ptr<Opened>> NeedOpen() const;
  Status Open();

  Runtime& runtime_;
  const std::string config_file_;
  mutable Mutex mutex_;
  std::shared_ptr<Opened> opened_ GUARDED_BY(mutex_);
  Status why_not_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
