// pinstriped-compare: pinstriped, which also serves the stores that ours is compared with
// (bench/run-stores.py). Nobody is meant to keep data with it.

#include <utility>

#include "base/try.h"
#include "daemon/main.h"
#include "store/database_store.h"

namespace {

using namespace pinstripe;

Result<std::unique_ptr<Store>> OpenDatabaseStore(const ServedDrive& drive,
                                                 DeviceIdentity* identity) {
  std::unique_ptr<DatabaseStore> store =
      TRY(DatabaseStore::Open(drive.store, {.path = drive.path,
                                            .serial_number = drive.serial_number,
                                            .capacity_bytes = drive.capacity_bytes}));
  *identity = store->identity();
  return store;
}

}  // namespace

int main(int argc, char** argv) {
  return DaemonMain(argc, argv, {.open_other = &OpenDatabaseStore});
}
