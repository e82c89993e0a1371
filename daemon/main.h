// What pinstriped does, from its command line to its exit code. docs/man/pinstriped.8 is the
// manual.

#pragma once

#include "store/file_calls.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace pinstripe {

// By which calls the stores of kind "log" use their disks: as in LogStoreOptions. What is pointed
// to outlives DaemonMain().
struct DaemonDisk {
  FileCalls* calls = &FileCalls::Kernel();
  rocksdb::Env* index_env = nullptr;
};

// Once in a process. Takes the signals of pinstriped; those that the caller has blocked stay so.
int DaemonMain(int argc, char** argv, const DaemonDisk& disk = {});

}  // namespace pinstripe
