#include "kinetic/together.h"

#include <optional>
#include <utility>
#include <vector>

#include "kinetic/get_operation.h"
#include "kinetic/message.h"
#include "kinetic/put_operation.h"

namespace pinstripe {
namespace {

// What is asked with deadlines that are no farther apart may go together, and times out with the
// last of it.
constexpr Duration kDeadlinesApart = std::chrono::milliseconds(20);

// Those that share one message.
class Company {
 public:
  explicit Company(DriveCapabilities capabilities) : capabilities_(capabilities) {}

  bool MayJoin(const KineticOperation& next) const {
    if (operations_.empty()) return IsPut(next) || IsGet(next);
    const KineticOperation& first = *operations_[0];
    if (!MayShareVersion(next)) return false;
    if (std::max(latest_, next.deadline()) - std::min(earliest_, next.deadline()) >
        kDeadlinesApart) {
      return false;
    }
    return IsGet(first) ? IsGet(next) && GetMayJoin(next) : IsPut(next) && PutMayJoin(next);
  }

  void Add(KineticOperationPtr next) {
    bytes_ += next->put() != nullptr ? next->put()->value.size() : next->likely_bytes();
    if (next->then_get() != nullptr) ++then_gets_;
    if (!version_) version_ = next->terms().cluster_version;
    earliest_ = std::min(earliest_, next->deadline());
    latest_ = std::max(latest_, next->deadline());
    operations_.push_back(std::move(next));
  }

  size_t size() const { return operations_.size(); }

  // As one operation.
  KineticOperationPtr Take() {
    Terms terms = operations_[0]->terms();
    terms.deadline = latest_;
    terms.cluster_version = version_;
    const bool reads_then = capabilities_.then_gets && operations_[0]->then_get() != nullptr;
    if (operations_.size() == 1 && !reads_then) return std::move(operations_[0]);
    return IsGet(*operations_[0]) ? NewGetsTogether(std::move(operations_), terms)
                                  : NewPutsTogether(std::move(operations_), terms);
  }

 private:
  // A get that takes any version goes with those that want one. Where the drive has another one,
  // it is asked for alone.
  bool MayShareVersion(const KineticOperation& next) const {
    const std::optional<int64_t>& version = next.terms().cluster_version;
    return version == version_ || (IsGet(next) && (!version || !version_));
  }
  // A device that can do either is one that looks itself whether it was erased.
  bool IsPut(const KineticOperation& operation) const {
    return operation.put() != nullptr && capabilities_.puts && capabilities_.unerased &&
           operation.put()->value.size() <= kMostBytesTogether;
  }
  bool IsGet(const KineticOperation& operation) const {
    return operation.small_get() != nullptr && capabilities_.gets;
  }
  // What the device has no room for in its answer is asked for once more.
  bool GetMayJoin(const KineticOperation& next) const {
    return operations_.size() < kMostGetsTogether && bytes_ + next.likely_bytes() <= kMostGetBytes;
  }
  bool PutMayJoin(const KineticOperation& next) const {
    if (operations_.size() == kMostPutsTogether) return false;
    if (bytes_ + next.put()->value.size() > kMostBytesTogether) return false;
    if (next.then_get() != nullptr && then_gets_ == kMostThenGetsTogether) return false;
    // What need not be durable does not wait for the flush of what must.
    return operations_[0]->put()->durability == next.put()->durability;
  }

  const DriveCapabilities capabilities_;
  std::vector<KineticOperationPtr> operations_;
  std::optional<int64_t> version_;  // that one of them wants
  size_t bytes_ = 0;                // of their values, or likely
  size_t then_gets_ = 0;
  Time earliest_ = Time::max();
  Time latest_ = Time::min();
};

}  // namespace

KineticOperationPtr TakeNext(std::deque<KineticOperationPtr>& waiting,
                             DriveCapabilities capabilities, uint32_t room) {
  Company company(capabilities);
  while (!waiting.empty() && company.size() < room && company.MayJoin(*waiting.front())) {
    company.Add(std::move(waiting.front()));
    waiting.pop_front();
  }
  if (company.size() == 0) {  // something else, or a large one
    company.Add(std::move(waiting.front()));
    waiting.pop_front();
  }
  return company.Take();
}

}  // namespace pinstripe
