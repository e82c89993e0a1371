// Writes the examples for the fuzzers, a file each, into DIRECTORY/wire, .../resp, .../records and
// .../recovery.
//
//   fuzz_seeds DIRECTORY

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "tests/fuzz/inputs.h"

using namespace pinstripe;

namespace {

void Write(const std::filesystem::path& directory, const Examples& examples) {
  std::filesystem::create_directories(directory);
  for (size_t i = 0; i < examples.size(); ++i) {
    std::ofstream(directory / fmt::format("example-{}", i), std::ios::binary) << examples[i];
  }
}

// As records_fuzzer.cc reads them.
Examples ExampleRecords() {
  Examples all;
  const auto add = [&](size_t which, bool seal, std::string_view bytes) {
    all.push_back(static_cast<char>(which + (seal ? 128 : 0)) + std::string(bytes));
  };
  const size_t kinds = RecordKinds().size();
  for (size_t i = 0; i < kinds; ++i) {
    const RecordKind& kind = RecordKinds()[i];
    for (const std::string_view example : kind.examples) {
      add(i, false, example);
      if (kind.sealed_with) add(i, true, example.substr(0, example.size() - 4));
    }
  }
  for (const std::string& example : ExampleRegisters()) add(kinds, false, example);
  for (const std::string& example : ExampleInodes()) add(kinds + 1, false, example);
  return all;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path directory = arguments[1];
  Write(directory / "wire", ExampleStreams());
  Write(directory / "resp", ExampleRespStreams());
  Write(directory / "records", ExampleRecords());
  Write(directory / "recovery", ExampleRecoveries());
  return 0;
}
