#include "fs/names/growth_register.h"

#include <string>

#include "base/attempts.h"
#include "base/coding.h"
#include "base/try.h"
#include "fs/types.h"

namespace pinstripe {
namespace {

const std::string kGrowthKey = "Y";
constexpr uint8_t kGrowthFormat = 1;

Result<uint64_t> DecodeGrowth(const RegisterValue& value) {
  if (!value.value) return 0;
  Reader reader(*value.value);
  const uint8_t format = reader.U8();
  const uint64_t count = reader.U64();
  TRY(reader.Finish("growth register"));
  if (format != kGrowthFormat) {
    return Fail(EBADMSG, "the growth register has format {}; this version knows {}", format,
                kGrowthFormat);
  }
  return count;
}

}  // namespace

Result<uint64_t> FindGrowth(Cluster& cluster) {
  const RegisterName name{cluster.GroupOfObject(kRootInode), kGrowthKey};
  return DecodeGrowth(TRY_CONTEXT(cluster.registers().Read(name), "growth register"));
}

Status CountGrowth(Cluster& cluster) {
  const RegisterName name{cluster.GroupOfObject(kRootInode), kGrowthKey};
  for (Attempts attempts; attempts.Next(); attempts.Pause(cluster.runtime())) {
    const RegisterValue seen = TRY_CONTEXT(cluster.registers().Read(name), "growth register");
    const uint64_t count = TRY(DecodeGrowth(seen));
    const ChangeOutcome outcome = cluster.registers().Change(
        name, seen, Writer().U8(kGrowthFormat).U64(count + 1).Take(), Durability::kWriteThrough);
    TRY_CONTEXT(outcome.why, "change the growth register");
    if (outcome.applied()) return {};
  }
  return Fail(EIO, "others have changed the growth register {} times in between", Attempts::kMost);
}

}  // namespace pinstripe
