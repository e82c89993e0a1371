// Mutator: changes valid bytes the way decoders fear, the same way for the same seed. Bits flip,
// lengths become 0 or enormous, ends are cut off, pieces are doubled, dropped, or come from another
// record.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace pinstripe {

// How many inputs each test tries: FUZZ_INPUTS in the environment, as ./dev fuzz sets it, or few
// enough for every day.
inline int FuzzInputs() {
  const char* text = std::getenv("FUZZ_INPUTS");
  return text == nullptr ? 100'000 : std::atoi(text);
}

class Mutator {
 public:
  // At least one valid example.
  Mutator(std::vector<std::string> examples, uint64_t seed)
      : examples_(std::move(examples)), random_(seed) {}

  // An example after one to four changes.
  std::string Next() {
    std::string bytes = AnyExample();
    for (uint64_t changes = 1 + Below(4); changes > 0; --changes) Change(bytes);
    return bytes;
  }

  uint64_t Below(uint64_t end) { return random_() % end; }

 private:
  const std::string& AnyExample() { return examples_[Below(examples_.size())]; }

  void Change(std::string& bytes) {
    static constexpr uint8_t kExtremes[] = {0x00, 0x01, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xfe, 0xff};
    const size_t at = Below(bytes.size() + 1);
    const size_t count = std::min<size_t>(bytes.size() - at, 1 + Below(16));
    switch (Below(7)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << Below(8));
        break;
      case 1:
        if (at < bytes.size())
          bytes[at] = static_cast<char>(kExtremes[Below(std::size(kExtremes))]);
        break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(at, count); break;
      case 4: bytes.insert(at, bytes.substr(at, count)); break;
      case 5: std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), count, '\xff'); break;
      case 6: {
        const std::string& other = AnyExample();
        const size_t from = Below(other.size() + 1);
        bytes.insert(at, other, from, Below(32));
        break;
      }
    }
  }

  std::vector<std::string> examples_;
  std::mt19937_64 random_;
};

}  // namespace pinstripe
