// How changes with conditions of their own become one transaction of etcd, which has one condition
// for everything. Pure: plain data in, plain data out.
//
// A transaction compares first, all at once, with the records as they were before it; then it puts
// and removes, each key once. So a plan supposes how the records are, and says what becomes of the
// changes then, one after the other: which succeed, which are refused and why, and which record is
// left under each key in the end. What it supposes are the conditions. Where one is not true, the
// transaction does nothing and tells how the records are, and the next plan rests on that.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engines/engine.h"

namespace pinstripe {

// A record as it was seen.
struct EtcdSeen {
  bool exists = false;
  bool damaged = false;
  std::string version;
  int64_t revision = 0;  // of its last change; 0: it does not exist
};
using EtcdSeenRecords = std::map<std::string, EtcdSeen>;

struct EtcdCondition {
  enum class Kind {
    kAbsent,    // there is no such record
    kVersion,   // there is one with this version, which is not empty
    kRevision,  // it is as it was seen
  };
  Kind kind = Kind::kAbsent;
  std::string key;
  std::string version;
  int64_t revision = 0;

  friend bool operator==(const EtcdCondition&, const EtcdCondition&) = default;
};

struct EtcdPlan {
  std::vector<EtcdCondition> conditions;  // at most two of a change, each of another key
  std::vector<Status> answers;            // to the changes, if all conditions are true
  std::map<std::string, size_t> effects;  // by key, the change after which the record stays so
};

// With `seen` it rests on those records, which are all that KeysOf() names. Without it supposes
// that each change finds what it expects.
EtcdPlan PlanChanges(std::span<const EngineChange> changes, const EtcdSeenRecords* seen);

// The records on which the answers may depend, and those that are changed. Each once, in order.
std::vector<std::string> KeysOf(std::span<const EngineChange> changes);

// How many of these changes, from the first on, go into one transaction: etcd limits how much it
// has and how large it is. At least one. `value_bytes` are the sizes of what is put.
size_t CountTogether(std::span<const EngineChange> changes, std::span<const size_t> value_bytes);

}  // namespace pinstripe
