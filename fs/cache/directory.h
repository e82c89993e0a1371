// The files of a DiskCache: those in a directory of this machine, or what a test puts in their
// place. Nothing here keeps anything that the directory does not: it may be emptied or removed by
// anybody at any time.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

// Written by one thread, read by any.
class CacheFile {
 public:
  virtual ~CacheFile() = default;
  virtual Status Write(uint64_t position, Bytes bytes) = 0;
  virtual Result<size_t> Read(uint64_t position, MutableBytes out) = 0;  // less: it ends there
  // All of it, if the kernel has it in memory: never waits for the disk.
  virtual bool ReadFromMemory(uint64_t position, MutableBytes out) = 0;
  virtual Result<uint64_t> Size() = 0;
  virtual bool IsRemoved() = 0;  // from its directory, by anybody
};

// One thread at a time.
class CacheDirectory {
 public:
  virtual ~CacheDirectory() = default;

  // Makes it, if need be, and keeps other processes from using it. EBUSY: one does.
  virtual Status Claim() = 0;
  // Whether it still is the one that was claimed.
  virtual bool IsClaimed() = 0;

  virtual Result<std::vector<std::string>> List() = 0;
  virtual Result<std::unique_ptr<CacheFile>> Open(const std::string& name) = 0;
  virtual Result<std::unique_ptr<CacheFile>> Create(const std::string& name) = 0;  // EEXIST
  virtual Status Remove(const std::string& name) = 0;

  virtual const std::string& path() const = 0;
};

// The directory `name` in the directory `parent`, for its owner alone. Nothing is done before
// Claim(), which says what is wrong with it.
std::unique_ptr<CacheDirectory> LocalCacheDirectory(const std::string& parent,
                                                    const std::string& name);

}  // namespace pinstripe
