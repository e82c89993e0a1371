// MessageReads: records that are read for one message and go into its answer together
// (docs/protocol.md, "Our extension: several gets in one message", "a read after a put").
//
// Used by one thread, inside the visit of who executes the message.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "daemon/engine.h"
#include "daemon/rights.h"

namespace pinstripe {

namespace kinetic {
class Puts_Read;
}  // namespace kinetic

class MessageReads {
 public:
  struct Reader {
    const Rights& rights;
    bool tls = false;
    Status admitted;  // a failure is that of each read
  };
  // The values may have so many bytes together. `at_once`: for a thread that must not wait.
  MessageReads(Engine& engine, Reader reader, size_t most_bytes, bool at_once);

  // Reads one, and says in `told` what became of it. A value for which no room is left makes it
  // SERVICE_BUSY. False: it would have to wait; nothing is told.
  bool Add(const std::string& key, kinetic::Puts_Read* told);

  // Of all that were read, in their order.
  SharedBytes TakeValues();

 private:
  Result<StoredRecord> Find(const std::string& key);

  Engine& engine_;
  const Reader reader_;
  const bool at_once_;
  uint32_t left_;
  std::vector<SharedBytes> values_;
};

}  // namespace pinstripe
