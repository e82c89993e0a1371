// RegisterRange: what the replicas of a group hold in a range of keys, as far as all of those that
// answered can tell.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/registers/call.h"
#include "drive/drive.h"

namespace pinstripe {

struct RegisterRange {
  struct Answer {
    size_t replica = 0;
    std::vector<RangeRecord> records;  // ascending; large values are left out
  };
  std::vector<Answer> answers;         // of a majority of replicas or more
  std::optional<std::string> through;  // from this key on some may hold more; null: there is none
  Time asked;

  // All that any of them named, as far as all have answered.
  std::set<std::string> Keys() const;

  struct Question {
    std::string first;
    std::string last;
    uint32_t max = 0;
    bool patient = false;  // waits for every drive that is up, instead of a while for some more
  };
  // EIO when no majority answered in time, naming those that did not. EREMCHG: the replicas are
  // others by now.
  static Result<RegisterRange> Read(const RegisterContext& context, uint32_t group,
                                    const GroupReplicas& replicas, const Question& question);

  // One drive's answer to the question, if it makes sense. EBADMSG.
  static Status Check(const RangeRecords& range, const Question& question);
};

// Larger values are read one by one.
inline constexpr uint32_t kRangeValueBytes = 8192;

// For who goes through all registers of a group: how many one question asks for.
inline constexpr uint32_t kPageRecords = 1024;

inline constexpr size_t kMaxRegisterKeyBytes = 1024;

}  // namespace pinstripe
