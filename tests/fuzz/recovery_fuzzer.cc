// Stores that are opened after whatever may have happened to them.

#include "base/log.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/inputs.h"

using namespace pinstripe;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  SetLogLevel(LogLevel::kError);
  bool refused = false;
  Demand(TryRecovery(std::as_bytes(std::span(data, size)), &refused));
  return 0;
}
