// StoreKind: what keeps a drive's records. A directory stays what it was made as.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pinstripe {

enum class StoreKind {
  kLog,      // LogStore: what drives are meant to use
  kLevelDb,  // DatabaseStore, for comparison: only pinstriped-compare opens it, like the next
  kRocksDb,
};

// By the words of the daemon's configuration: "log", "leveldb", "rocksdb".
std::optional<StoreKind> StoreKindNamed(std::string_view name);

// What is there once the directory holds such a store, and not before.
std::string PlaceOfStore(const std::string& directory, StoreKind kind);

// ENOTSUP when the directory holds a store of another kind.
Status CheckStoreKind(const std::string& directory, StoreKind kind);

}  // namespace pinstripe
