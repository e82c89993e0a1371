// Stores that are opened after whatever may have happened to them.

#include "base/log.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/inputs.h"

using namespace pinstripe;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  SetLogLevel(LogLevel::kError);
  Recovered recovered;
  Demand(TryRecovery(std::as_bytes(std::span(data, size)), IndexKind::kMap, OpenAgain::kOftenEnough,
                     &recovered));
  return 0;
}
