#include "store/kind.h"

#include <sys/stat.h>

namespace pinstripe {
namespace {

struct Kind {
  StoreKind kind;
  std::string_view name;
  std::string_view place;
};
constexpr Kind kKinds[] = {
    {StoreKind::kLog, "log", "/index/CURRENT"},
    {StoreKind::kLevelDb, "leveldb", "/leveldb"},
    {StoreKind::kRocksDb, "rocksdb", "/rocksdb"},
};

}  // namespace

std::optional<StoreKind> StoreKindNamed(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.kind;
  }
  return std::nullopt;
}

std::string PlaceOfStore(const std::string& directory, StoreKind kind) {
  return directory + std::string(kKinds[static_cast<size_t>(kind)].place);
}

Status CheckStoreKind(const std::string& directory, StoreKind kind) {
  for (const Kind& other : kKinds) {
    struct stat about;
    if (other.kind != kind && stat(PlaceOfStore(directory, other.kind).c_str(), &about) == 0) {
      return Fail(ENOTSUP,
                  "{} holds a store of kind \"{}\", not \"{}\": see store in the configuration",
                  directory, other.name, kKinds[static_cast<size_t>(kind)].name);
    }
  }
  return {};
}

}  // namespace pinstripe
