// What pinstriped does, from its command line to its exit code. docs/man/pinstriped.8 is the
// manual.

#pragma once

#include <memory>

#include "base/status.h"
#include "daemon/config.h"
#include "store/directory.h"
#include "store/file_calls.h"
#include "store/store.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace pinstripe {

// What a program has in other ways than pinstriped. What is pointed to outlives DaemonMain().
struct DaemonDisk {
  // By which calls the stores of kind "log" use their disks: as in LogStoreOptions.
  FileCalls* calls = &FileCalls::Kernel();
  rocksdb::Env* index_env = nullptr;
  // Opens a store of another kind, and says which device's it is. Null: there are none.
  Result<std::unique_ptr<Store>> (*open_other)(const ServedDrive& drive,
                                               DeviceIdentity* identity) = nullptr;
};

// Once in a process. Takes the signals of pinstriped; those that the caller has blocked stay so.
int DaemonMain(int argc, char** argv, const DaemonDisk& disk = {});

}  // namespace pinstripe
