// What a drive's socket brings: cut into frames, whose messages are read, and whose commands are
// executed as if they were signed.

#include "base/log.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/inputs.h"

using namespace pinstripe;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ObedientDevice device;
  const Bytes stream = std::as_bytes(std::span(data, size));
  // The input cuts itself into pieces, differently when it differs.
  size_t at = 0;
  const auto piece = [&](uint64_t most) { return 1 + data[at++ % size] * uint64_t{7} % most; };
  const auto take = [](Bytes message, Bytes value) -> std::string {
    bool parsed = false;
    if (const std::string wrong = TryMessage(message, &parsed); !wrong.empty()) return wrong;
    kinetic::Message read;
    if (!parsed || !ParseMessage(message, &read).ok()) return "";
    ObedientDevice::Count count;
    const std::string kept(AsText(value.first(std::min<size_t>(value.size(), 64))));
    return device.Execute(AsBytes(read.commandbytes()), kept, message.size() % 2 == 0, &count);
  };
  StreamCount count;
  Demand(CutIntoFrames(stream, piece, take, &count));
  return 0;
}
