// What is done with one input that nobody wrote, whoever made it up: the Mutator of the tests that
// run every day, or a fuzzer that follows coverage (./dev fuzz). Each of these gives back what is
// wrong, "" for nothing; that it neither crashes nor reads beyond the end is for the sanitizers to
// see. The examples are valid inputs, to begin from.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace pinstripe {

using Examples = std::vector<std::string>;

// --- The wire of a drive (wire_inputs.cc)

struct StreamCount {
  uint64_t frames = 0;
  bool refused = false;
};
// What a socket brings, in pieces of 1 to `most` bytes as `random` chooses. Each frame that comes
// out of it is given to `take`.
std::string CutIntoFrames(Bytes stream, const std::function<uint64_t(uint64_t most)>& random,
                          const std::function<std::string(Bytes message, Bytes value)>& take,
                          StreamCount* count);
Examples ExampleStreams();

// A message that is signed with the key of the examples has a command of theirs.
std::string TryMessage(Bytes bytes, bool* parsed);
Examples ExampleMessages();

// A device in memory that executes whatever command it is given, as if somebody had signed it:
// there is one answer, and it can be sent. A bound put is stored with the value of its tag, or not.
class ObedientDevice {
 public:
  ObedientDevice();
  ~ObedientDevice();

  struct Count {
    int executed = 0;
    int succeeded = 0;
    int bound_puts = 0;     // of those
    int puts_together = 0;  // that succeeded, of several in a message
    int then_gets = 0;      // reads that followed them
    int gets_together = 0;  // that were answered, of several in a message
    int told = 0;           // of what took long
  };
  std::string Execute(Bytes command, std::string value, bool tls, Count* count);

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};
Examples ExampleCommands();

// --- The Redis protocol of a drive (resp_inputs.cc)

// A device in memory that executes all commands that a stream brings, in pieces of 1 to `most`
// bytes as `random` chooses, for somebody who may do everything. Each has one whole answer.
class ObedientRespDevice {
 public:
  ObedientRespDevice();
  ~ObedientRespDevice();

  struct Count {
    uint64_t commands = 0;
    uint64_t failures = 0;  // of them, beyond what is looked at before
    uint64_t refused = 0;   // streams
  };
  std::string Execute(Bytes stream, const std::function<uint64_t(uint64_t most)>& random,
                      Count* count);

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};
Examples ExampleRespStreams();

// --- Records of drives, stores and file systems (record_inputs.cc, inode_inputs.cc)

// One kind of record. It is refused with EBADMSG, or what was understood encodes to these very
// bytes: there are no two ways to write one thing.
struct RecordKind {
  std::string name;
  Examples examples;
  std::function<Result<std::string>(std::string_view)> again;  // decodes and encodes
  // What a checksum in the last 4 bytes covers before the record; no value: there is none.
  std::optional<std::string> sealed_with;
};
const std::vector<RecordKind>& RecordKinds();
RecordKind EntryKind();  // one of them, of directories
const RecordKind& KindOfRecord(std::string_view name);
std::string TryRecord(const RecordKind& kind, Bytes bytes, bool* refused);
// The bytes with the checksum that belongs behind them.
std::string Sealed(const RecordKind& kind, std::string_view bytes);

// A register's version and value, the one after the other (Writer::Text, rest), with its sums made
// right again.
std::string TryRegister(std::string_view bytes, bool* refused);
Examples ExampleRegisters();

// Inodes may be written in more than one way: a later version's sections are passed over. What was
// understood is written and read again, and used.
struct InodeCount {
  int refused = 0;
  int with_map = 0;
  int in_pages = 0;
};
std::string TryInode(Bytes bytes, InodeCount* count);
Examples ExampleInodes();

// --- A whole store (recovery_input.cc)

// The input says what is in the index and the segments of a store that is then opened, as after a
// power loss. It is refused, or it serves every key that it lists or says that it is damaged, takes
// changes, and is the same when it is opened again.
enum class IndexKind { kRocksDb, kMap };         // a map does the same, much faster
enum class OpenAgain { kAlways, kOftenEnough };  // one input in four, as its checksum decides
struct Recovered {
  bool refused = false;
  std::map<std::string, std::string> contents;  // "=" and the value, or "!" for a damaged one
};
std::string TryRecovery(Bytes input, IndexKind kind, OpenAgain again, Recovered* recovered);
Examples ExampleRecoveries();
Examples DamagedRecoveries();  // that were found, and must be refused

}  // namespace pinstripe
