#include "store/erasable_store.h"

#include <utility>

#include "base/try.h"
#include "store/directory.h"

namespace pinstripe {
namespace {

// Files that one round of tidying removes at most, so that it does not hold up others for long.
constexpr size_t kFilesAtOnce = 4;

}  // namespace

ErasableStore::ErasableStore(std::string path, std::unique_ptr<Store> store, Opener open)
    : path_(std::move(path)), open_(std::move(open)), store_(std::move(store)) {}

ErasableStore::ErasableStore(std::string path, Status why)
    : path_(std::move(path)), lost_(std::move(why)) {}

template <typename Call>
auto ErasableStore::With(Call call) -> decltype(call(std::declval<Store&>())) {
  const Gate::Visit visit(gate_);
  if (store_ == nullptr) return Failed(lost_);
  return call(*store_);
}

Result<StoredRecord> ErasableStore::Get(std::string_view key, ValueRange range) {
  return With([&](Store& store) { return store.Get(key, range); });
}

Result<StoredRecord> ErasableStore::GetAtOnce(std::string_view key, ValueRange range) {
  const Gate::QuickVisit visit(gate_);
  if (!visit.inside()) return WouldWait();
  gate_.AssertVisited();
  if (store_ == nullptr) return WouldWait();
  return store_->GetAtOnce(key, range);
}

Result<StoredHead> ErasableStore::Head(std::string_view key) {
  return With([&](Store& store) { return store.Head(key); });
}

Result<std::vector<std::string>> ErasableStore::Keys(const KeyRange& range, size_t max,
                                                     bool reverse) {
  return With([&](Store& store) { return store.Keys(range, max, reverse); });
}

Result<RangeItems> ErasableStore::Items(const KeyRange& range, const RangeLimits& limits,
                                        bool reverse) {
  return With([&](Store& store) { return store.Items(range, limits, reverse); });
}

Status ErasableStore::Put(std::string_view key, const StoredRecord& record, Room room) {
  return With([&](Store& store) { return store.Put(key, record, room); });
}

std::vector<Status> ErasableStore::PutEach(std::span<const StoreChange> puts) {
  const Gate::Visit visit(gate_);
  if (store_ == nullptr) return std::vector<Status>(puts.size(), lost_);
  return store_->PutEach(puts);
}

bool ErasableStore::PutAllAtOnce(std::span<const StoreChange> puts) {
  const Gate::QuickVisit visit(gate_);
  if (!visit.inside()) return false;
  gate_.AssertVisited();
  return store_ != nullptr && store_->PutAllAtOnce(puts);
}

Status ErasableStore::Delete(std::string_view key) {
  return With([&](Store& store) { return store.Delete(key); });
}

Status ErasableStore::Apply(std::span<const StoreChange> changes) {
  return With([&](Store& store) { return store.Apply(changes); });
}

Status ErasableStore::Flush() {
  return With([&](Store& store) { return store.Flush(); });
}

StoreUsage ErasableStore::Usage() {
  const Gate::Visit visit(gate_);
  if (store_ != nullptr) return store_->Usage();
  StoreUsage usage;
  usage.failure = lost_;
  return usage;
}

StoreStarts ErasableStore::Starts() {
  const Gate::Visit visit(gate_);
  return store_ == nullptr ? StoreStarts() : store_->Starts();
}

Status ErasableStore::EndCleanly() {
  return With([&](Store& store) { return store.EndCleanly(); });
}

Result<bool> ErasableStore::Tidy() {
  return With([&](Store& store) -> Result<bool> {
    const bool erased_remain = TRY(RemoveErasedFiles(path_, kFilesAtOnce));
    return TRY(store.Tidy()) || erased_remain;
  });
}

// Everybody would have to wait until a compaction ends: an erase cancels it.
Status ErasableStore::CompactRange(const KeyRange& range, std::atomic<bool>& cancelled) {
  return With([&](Store& store) {
    {
      const MutexLock lock(mutex_);
      if (erasing_) return Status(ECANCELED, "the drive is being erased");
      compactions_.insert(&cancelled);
    }
    const Status compacted = store.CompactRange(range, cancelled);
    const MutexLock lock(mutex_);
    compactions_.erase(&cancelled);
    return compacted;
  });
}

Status ErasableStore::Erase() {
  {
    const MutexLock lock(mutex_);
    erasing_ = true;
    for (std::atomic<bool>* cancelled : compactions_) *cancelled = true;
  }
  const Gate::Closure alone(gate_);
  {
    const MutexLock lock(mutex_);
    erasing_ = false;  // who comes now waits outside
  }
  if (store_ == nullptr) return lost_;
  TRY(StoreDirectory::MarkErased(path_));
  store_.reset();  // whatever it still writes is in vain
  Result<std::unique_ptr<Store>> empty = open_();
  if (!empty.has_value()) {
    lost_ = Fail(EIO, "the drive is being erased; start pinstriped again to finish that: {}",
                 empty.error().message());
    return lost_;
  }
  store_ = *std::move(empty);
  return {};
}

Status ErasableStore::RemoveErased() {
  const Gate::Visit visit(gate_);  // an erase would put more there
  TRY(RemoveErasedFiles(path_, SIZE_MAX));
  return {};
}

}  // namespace pinstripe
