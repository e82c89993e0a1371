// Handle: an open file for one user. What all handles on a file share is FileState (files/state.h).
// Reads, writes and closes of both hosts come through here: it knows whether it may write, whether
// something was written through it, and what its reader will want next.

#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "base/mutex.h"
#include "fs/files/block_reader.h"
#include "fs/files/read_pattern.h"
#include "fs/files/state.h"
#include "fs/open_file.h"
#include "fs/open_files.h"

namespace pinstripe {

// Thread-safe, but for Close() and the destructor. `files` outlives it.
class Handle final : public OpenFile {
 public:
  Handle(OpenFiles& files, std::shared_ptr<FileState> state, bool writes, bool durable_close)
      : files_(files),
        state_(std::move(state)),
        writes_(writes),
        durable_close_(durable_close),
        ahead_(std::make_unique<BlockReader::Ahead>(files.context().reader)) {}

  ~Handle() override { Release(); }

  void MarkWritten() { wrote_ = true; }
  // The same before the inode was read: that is likely to be where it is.
  void ExpectReadingAt(const BlockPlace& place) { state_->ReadAheadAt(place, *ahead_); }

  Result<size_t> Read(uint64_t offset, MutableBytes out) override;
  Status ReadParts(std::span<Part> parts) override;
  Status Write(uint64_t offset, Bytes data, std::span<const uint32_t> page_sums) override;
  void ExpectReading() override;
  Result<uint64_t> Append(Bytes data) override;
  Status Truncate(uint64_t size) override;
  Status Zero(uint64_t offset, uint64_t length, Size size) override;
  Status Allocate(uint64_t offset, uint64_t length, Size size) override;
  Result<uint64_t> Seek(uint64_t offset, Contents contents) override {
    return state_->Seek(offset, contents);
  }
  Result<uint64_t> ShareBlocks(uint64_t offset, uint64_t length, OpenFile& target,
                               uint64_t target_offset) override;
  Status SetAttributes(const AttributeChange& change) override;
  Result<Attributes> Stat(Duration age) override { return state_->Stat(age); }
  Attributes Known() override { return state_->Describe({}); }
  Status Sync() override { return state_->Commit(true); }
  Status Commit() override { return wrote_ ? state_->Commit(false) : Status(); }
  Status Close() override;
  InodeId inode() const override { return state_->id(); }
  uint64_t Version() override { return state_->Version(); }

 private:
  Status CheckWritable() const;
  void Release();

  bool IsScattered(std::span<const Part> parts);
  void ReadAhead(std::span<const Part> parts);

  OpenFiles& files_;
  const std::shared_ptr<FileState> state_;
  const bool writes_;
  const bool durable_close_;
  std::atomic<bool> wrote_ = false;
  std::atomic<bool> released_ = false;
  Mutex pattern_mutex_;
  ReadPattern pattern_ GUARDED_BY(pattern_mutex_);
  std::unique_ptr<BlockReader::Ahead> ahead_;  // until it is released
};

}  // namespace pinstripe
