// RegisterSweep: looks at every register of a group and brings replicas that are behind up to date;
// or restores what a lost replica was to the drive that takes its place. Behind
// RegisterStore::Sweep() and Restore(); docs/format.md, "Rebuilding a drive", says why it is safe.
//
// One thread. Holds a page of registers at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/registers/call.h"
#include "cluster/registers/range.h"
#include "cluster/registers/store.h"
#include "drive/drive.h"

namespace pinstripe {

// The drive that takes the place of a lost replica, or is that replica and may have forgotten
// something. It has no say yet.
struct Successor {
  std::optional<size_t> replica;  // null: it is to be one of others than these
  Drive& drive;
  bool remembers = false;  // what it has it was told when it had a say
  bool is_copy = false;    // so that it may have what was erased since
};

class RegisterSweep {
 public:
  // `successor`: null where replicas are brought up to date that take part.
  RegisterSweep(const RegisterContext& context, uint32_t group, GroupReplicas replicas,
                const Successor* successor);

  Result<SweepReport> Run(const RegisterStore::SweepProgress& progress);

 private:
  struct Register;  // one that is looked at
  struct Step;      // a put that brings one replica up to date
  using Registers = std::vector<std::unique_ptr<Register>>;

  Result<RegisterRange> ReadPage(const std::string& first, RangeRecords* theirs);
  void LearnFrom(const RegisterRange& range, const RangeRecords& theirs, Registers& registers);
  void AskOneByOne(Registers& registers);
  Status Settle(Register& each);
  void PlanSteps(Register& each, std::vector<Step>& steps);
  void Send(std::vector<Step>& steps);
  Status LookAt(Registers& registers, bool last_time, SweepReport& report);

  const RegisterContext& context_;
  const uint32_t group_;
  const std::string prefix_;  // of the records' keys
  Terms RequestTerms() const;
  Status DropErased(const RegisterRange& range, const RangeRecords& theirs);

  GroupReplicas replicas_;             // null in the place of the successor
  const std::vector<Drive*>& drives_;  // of these
  const Successor* const successor_;
};

}  // namespace pinstripe
