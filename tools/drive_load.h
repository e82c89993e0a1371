// DriveLoad: operations of one kind at a time on one drive, as fast as it answers, and what
// they cost. What `pinstripe bench drive` runs.
//
// All keys begin with "pinstripe-bench/" and are removed before and after; nothing else on the
// drive is touched.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/config.h"
#include "drive/drive.h"

namespace pinstripe {

enum class DriveLoadOp {
  kPut,
  kGet,
  kMissing,  // a get of what is not there
  kHead,
  kNext,      // the record after a key; ENOTSUP: not of a Redis store
  kPrevious,  // the record before one; likewise
  kRange,     // 200 keys from one on
  kDelete,
};
enum class DriveLoadOrder { kSequential, kRandom, kReverse };

// EINVAL, and what there is.
Result<DriveLoadOp> ParseDriveLoadOp(std::string_view name);
Result<DriveLoadOrder> ParseDriveLoadOrder(std::string_view name);
std::string_view NameOf(DriveLoadOp op);
std::string_view NameOf(DriveLoadOrder order);

// "120B", "4KiB", "1MiB", "512": up to kMaxValueBytes.
Result<uint32_t> ParseValueSize(std::string_view text);

struct DriveLoad {
  std::string name;
  DriveConfig drive;
  std::vector<DriveLoadOp> ops;        // in this order
  std::vector<uint32_t> value_bytes;   // all of this for each,
  std::vector<DriveLoadOrder> orders;  // and for each of these
  Durability durability = Durability::kWriteBack;
  int connections = 1;
  int depth = 16;        // operations under way, per connection
  uint32_t records = 0;  // different keys; 0: 1 GiB of values, but 256 to 100 000
  Duration length =
      std::chrono::seconds(3);  // of each measurement; a delete ends with the last record
  pid_t daemon = 0;             // measured too, where it is on this machine; 0: it is not
};

// One measurement.
struct DriveLoadResult {
  DriveLoadOp op{};
  DriveLoadOrder order{};
  uint32_t value_bytes = 0;
  uint64_t operations = 0;
  uint64_t bytes = 0;  // of values that were moved
  double seconds = 0;
  double client_cpu_seconds = 0;
  double daemon_cpu_seconds = 0;  // 0 without a daemon to look at, as the next
  uint64_t daemon_written_bytes = 0;
  // The time between asking and the answer, in microseconds.
  double p50 = 0, p99 = 0, p999 = 0;
};

// Calls `measured` after each measurement, on this thread. Fails with what the drive failed with.
Status RunDriveLoad(Runtime& runtime, const DriveLoad& load,
                    const std::function<void(const DriveLoadResult&)>& measured);

}  // namespace pinstripe
