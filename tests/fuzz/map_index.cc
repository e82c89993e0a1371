#include "tests/fuzz/map_index.h"

#include <rocksdb/iterator.h>
#include <rocksdb/write_batch.h>

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace pinstripe {
namespace {

using rocksdb::Slice;

std::string_view View(const Slice& slice) { return {slice.data(), slice.size()}; }

rocksdb::Status Damaged() { return rocksdb::Status::Corruption("counts that cannot be added up"); }

class Cursor final : public rocksdb::Iterator {
 public:
  Cursor(std::shared_ptr<const MapIndex::Entries> entries, const rocksdb::ReadOptions& options)
      : entries_(std::move(entries)), begin_(entries_->begin()), end_(entries_->end()) {
    if (options.iterate_lower_bound != nullptr) {
      begin_ = entries_->lower_bound(View(*options.iterate_lower_bound));
    }
    if (options.iterate_upper_bound != nullptr) {
      end_ = entries_->lower_bound(View(*options.iterate_upper_bound));
    }
    at_ = end_;
  }

  bool Valid() const override { return status_.ok() && at_ != end_; }
  void SeekToFirst() override { StandAt(begin_); }
  void SeekToLast() override { StandBefore(end_); }
  void Seek(const Slice& key) override {
    const auto found = entries_->lower_bound(View(key));
    StandAt(Below(found, begin_) ? begin_ : Below(found, end_) ? found : end_);
  }
  void SeekForPrev(const Slice& key) override {
    const auto above = entries_->upper_bound(View(key));
    StandBefore(Below(above, end_) ? above : end_);
  }
  void Next() override { StandAt(std::next(at_)); }
  void Prev() override { StandBefore(at_); }
  Slice key() const override { return at_->first; }
  Slice value() const override { return *at_->second; }
  rocksdb::Status status() const override { return status_; }

 private:
  using Position = MapIndex::Entries::const_iterator;

  bool Below(Position one, Position other) const {
    if (other == entries_->end()) return one != other;
    return one != entries_->end() && one->first < other->first;
  }
  void StandAt(Position position) {
    status_ = {};
    at_ = position;
    if (at_ != end_ && !at_->second) status_ = Damaged();
  }
  void StandBefore(Position position) {
    StandAt(Below(begin_, position) ? std::prev(position) : end_);
  }

  const std::shared_ptr<const MapIndex::Entries> entries_;
  Position begin_;
  Position end_;  // not below begin_, for the ends of a scan are not either
  Position at_;
  rocksdb::Status status_;
};

// Makes the changes of a batch.
class Writing final : public rocksdb::WriteBatch::Handler {
 public:
  Writing(MapIndex::Entries& entries, const rocksdb::MergeOperator& merge_operator,
          uint64_t& changes)
      : entries_(entries), merge_operator_(merge_operator), changes_(changes) {}

  rocksdb::Status PutCF(uint32_t, const Slice& key, const Slice& value) override {
    ++changes_;
    entries_.insert_or_assign(key.ToString(), value.ToString());
    return {};
  }
  rocksdb::Status DeleteCF(uint32_t, const Slice& key) override {
    ++changes_;
    if (const auto found = entries_.find(View(key)); found != entries_.end()) entries_.erase(found);
    return {};
  }
  rocksdb::Status MergeCF(uint32_t, const Slice& key, const Slice& operand) override {
    ++changes_;
    const auto [entry, made] = entries_.try_emplace(key.ToString(), std::string());
    if (!entry->second) return {};
    const Slice existing = *entry->second;
    std::string merged;
    Slice unused;
    rocksdb::MergeOperator::MergeOperationOutput out(merged, unused);
    const std::vector<Slice> operands = {operand};
    const rocksdb::MergeOperator::MergeOperationInput in(key, made ? nullptr : &existing, operands,
                                                         /*_logger=*/nullptr);
    const bool added = merge_operator_.FullMergeV2(in, &out);
    entry->second = added ? std::optional(merged) : std::nullopt;
    return {};
  }

 private:
  MapIndex::Entries& entries_;
  const rocksdb::MergeOperator& merge_operator_;
  uint64_t& changes_;
};

}  // namespace

MapIndex::MapIndex(Kept& kept, std::shared_ptr<rocksdb::MergeOperator> merge_operator)
    : StackableDB(static_cast<rocksdb::DB*>(nullptr)),
      kept_(kept),
      merge_operator_(std::move(merge_operator)) {}

// Iterators keep what they were made of.
MapIndex::Entries& MapIndex::ToChange() {
  if (kept_.entries.use_count() > 1) kept_.entries = std::make_shared<Entries>(*kept_.entries);
  return *kept_.entries;
}

rocksdb::Status MapIndex::Get(const rocksdb::ReadOptions&, rocksdb::ColumnFamilyHandle*,
                              const Slice& key, rocksdb::PinnableSlice* value) {
  const auto found = kept_.entries->find(View(key));
  if (found == kept_.entries->end()) return rocksdb::Status::NotFound();
  if (!found->second) return Damaged();
  value->PinSelf(*found->second);
  return {};
}

rocksdb::Status MapIndex::Write(const rocksdb::WriteOptions&, rocksdb::WriteBatch* batch) {
  Writing writing(ToChange(), *merge_operator_, kept_.changes);
  return batch->Iterate(&writing);
}

rocksdb::Status MapIndex::Delete(const rocksdb::WriteOptions& options, rocksdb::ColumnFamilyHandle*,
                                 const Slice& key) {
  rocksdb::WriteBatch batch;
  batch.Delete(key);
  return Write(options, &batch);
}

rocksdb::Iterator* MapIndex::NewIterator(const rocksdb::ReadOptions& options,
                                         rocksdb::ColumnFamilyHandle*) {
  return new Cursor(kept_.entries, options);
}

rocksdb::Status MapIndex::Flush(const rocksdb::FlushOptions&, rocksdb::ColumnFamilyHandle*) {
  return {};
}

rocksdb::Status MapIndex::CompactRange(const rocksdb::CompactRangeOptions&,
                                       rocksdb::ColumnFamilyHandle*, const Slice*, const Slice*) {
  return {};
}

}  // namespace pinstripe
