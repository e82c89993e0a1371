// RegisterEraser: erases what removed registers of a group have left on their drives. Behind
// RegisterStore::Erase(); docs/format.md, "Erasing", says when that is safe.
//
// One thread. Holds a page of registers at a time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cluster/registers/call.h"
#include "cluster/registers/range.h"
#include "cluster/registers/store.h"
#include "drive/drive.h"

namespace pinstripe {

class RegisterEraser {
 public:
  RegisterEraser(const RegisterContext& context, uint32_t group, GroupReplicas replicas);

  Result<EraseReport> Run(const RegisterStore::MayErase& may_erase);

  RegisterEraser(const RegisterEraser&) = delete;

 private:
  struct Grave {
    Tombstone tombstone;
    std::vector<std::string> versions;  // of its record, by drive; empty: there is none
  };
  Result<RegisterRange> ReadPage(const std::string& first);
  std::vector<Grave> GravesOn(const RegisterRange& range) const;
  std::optional<Grave> GraveOf(const std::string& key,
                               const std::vector<const RangeRecord*>& records) const;
  Status FlushAll();
  void EraseAll(const std::vector<Grave>& graves, EraseReport& report);

  const RegisterContext& context_;
  const uint32_t group_;
  const std::string prefix_;  // of the records' keys
  const GroupReplicas replicas_;
  const std::vector<Drive*>& drives_;  // of these
};

}  // namespace pinstripe
