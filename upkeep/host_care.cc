#include "upkeep/host_care.h"

#include <string>
#include <utility>

#include "base/try.h"
#include "upkeep/host_events.h"
#include "upkeep/mender.h"
#include "upkeep/whereabouts.h"

namespace pinstripe {
namespace {

// An attribute is read by programs that do not expect to wait.
constexpr uint64_t kMostBlocks = 100'000;

class HostCare final : public Caretaker {
 public:
  HostCare(Cluster& cluster, Hooks hooks)
      : cluster_(cluster),
        events_(cluster),
        mender_(cluster, std::move(hooks), [this] { events_.Mended(); }) {}

  void CommittedShort(InodeId file) override {
    events_.WrittenShort();
    mender_.Add(file);
  }

  size_t waiting() override { return mender_.waiting(); }

  Result<std::string> Why(InodeId id, const Inode& inode) override {
    const WhereaboutsOptions options{.most_blocks = kMostBlocks};
    return WhereaboutsText(TRY(FindWhereabouts(cluster_, id, inode, options)));
  }

 private:
  Cluster& cluster_;
  HostEvents events_;
  Mender mender_;
};

}  // namespace

std::unique_ptr<Caretaker> MakeHostCare(Cluster& cluster, Caretaker::Hooks hooks) {
  return std::make_unique<HostCare>(cluster, std::move(hooks));
}

}  // namespace pinstripe
