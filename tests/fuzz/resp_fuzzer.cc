// What a client of the Redis protocol sends to a drive, executed as if it might do everything.

#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/inputs.h"

using namespace pinstripe;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ObedientRespDevice device;
  // The input cuts itself into pieces, differently when it differs.
  size_t at = 0;
  const auto piece = [&](uint64_t most) { return 1 + data[at++ % size] * uint64_t{7} % most; };
  ObedientRespDevice::Count count;
  Demand(device.Execute(std::as_bytes(std::span(data, size)), piece, &count));
  return 0;
}
