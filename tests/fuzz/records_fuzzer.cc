// Records of drives, stores and file systems. The first byte says which kind, and whether a
// checksum that fits is put behind the rest.

#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/inputs.h"

using namespace pinstripe;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t kinds = RecordKinds().size();
  const size_t which = data[0] % 128 % (kinds + 2);
  const bool seal = data[0] >= 128;
  const Bytes bytes = std::as_bytes(std::span(data + 1, size - 1));
  bool refused = false;
  InodeCount count;
  if (which == kinds) {
    Demand(TryRegister(AsText(bytes), &refused));
  } else if (which == kinds + 1) {
    Demand(TryInode(Buffer::CopyOf(bytes), &count));
  } else {
    const RecordKind& kind = RecordKinds()[which];
    const Buffer input = Buffer::CopyOf(seal ? AsBytes(Sealed(kind, AsText(bytes))) : bytes);
    Demand(TryRecord(kind, input, &refused));
  }
  return 0;
}
