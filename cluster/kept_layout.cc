#include "cluster/kept_layout.h"

#include <algorithm>

#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr uint8_t kLayoutFormat = 1;

}  // namespace

std::string LayoutKey() { return "L"; }

KeptLayout KeptLayout::Of(const ClusterConfig& config) {
  return {.layout = config.layout,
          .inline_limit = config.inline_limit,
          .replicate_limit = config.replicate_limit,
          .min_redundancy = static_cast<uint8_t>(config.min_redundancy)};
}

std::string KeptLayout::Encode() const {
  Writer out;
  out.U8(kLayoutFormat).U8(layout.data_shards).U8(layout.parity_shards).U32(layout.shard_bytes);
  out.U32(inline_limit).U32(replicate_limit).U8(min_redundancy);
  return out.Take();
}

Result<KeptLayout> KeptLayout::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kLayoutFormat) {
    return Fail(EBADMSG,
                "the layout that the cluster keeps: format {} is not known here (known: "
                "{})",
                format, kLayoutFormat);
  }
  KeptLayout kept;
  kept.layout.data_shards = in.U8();
  kept.layout.parity_shards = in.U8();
  kept.layout.shard_bytes = in.U32();
  kept.inline_limit = in.U32();
  kept.replicate_limit = in.U32();
  kept.min_redundancy = in.U8();
  TRY(in.Finish("the layout that the cluster keeps"));
  if (const Status sound = kept.layout.Check(); !sound.ok()) {
    return Fail(EBADMSG, "the layout that the cluster keeps: {}", sound.message());
  }
  return kept;
}

Result<std::optional<KeptLayout>> KeepLayout(RegisterStore& registers,
                                             const ClusterConfig& config) {
  const RegisterName name{kMapGroup, LayoutKey()};
  const RegisterValue seen = TRY(registers.Read(name));
  std::optional<KeptLayout> before;
  if (seen.value) before = TRY(KeptLayout::Decode(*seen.value));
  const KeptLayout wanted = KeptLayout::Of(config);
  if (before == wanted) return before;
  const ChangeOutcome outcome =
      registers.Change(name, seen, wanted.Encode(), Durability::kWriteThrough);
  TRY_CONTEXT(outcome.why, "keep the layout in the cluster");
  if (!outcome.applied() && outcome.now.value != wanted.Encode()) {
    return Fail(EBUSY, "somebody else has changed the layout that the cluster keeps just now");
  }
  return before;
}

std::string ConfigDifference::Text() const {
  return fmt::format("{} is {} in the file and {} in the cluster: {}", what, in_file, in_cluster,
                     advice);
}

std::vector<ConfigDifference> CompareConfig(const ClusterConfig& config, const DriveMap& map,
                                            const std::optional<KeptLayout>& kept) {
  std::vector<ConfigDifference> all;
  const auto compare = [&](std::string what, const auto& in_file, const auto& in_cluster,
                           std::string_view advice) {
    if (in_file == in_cluster) return;
    const auto text = [](const auto& value) {
      auto words = fmt::format("{}", value);
      return words.empty() ? std::string("not given") : words;
    };
    all.push_back({std::move(what), text(in_file), text(in_cluster), std::string(advice)});
  };
  if (kept) {
    constexpr std::string_view kAdvice =
        "correct the file, or `pinstripe config --apply` if the file is right";
    const KeptLayout mine = KeptLayout::Of(config);
    compare("layout.data_shards", mine.layout.data_shards, kept->layout.data_shards, kAdvice);
    compare("layout.parity_shards", mine.layout.parity_shards, kept->layout.parity_shards, kAdvice);
    compare("layout.shard_size", mine.layout.shard_bytes, kept->layout.shard_bytes, kAdvice);
    compare("layout.inline_limit", mine.inline_limit, kept->inline_limit, kAdvice);
    compare("layout.replicate_limit", mine.replicate_limit, kept->replicate_limit, kAdvice);
    compare("layout.min_redundancy", mine.min_redundancy, kept->min_redundancy, kAdvice);
  }
  for (const MappedDrive& drive : map.drives) {
    const auto mine = std::ranges::find(config.drives, drive.id, &DriveConfig::id);
    if (mine == config.drives.end() || drive.state == DriveState::kDraining) continue;
    constexpr std::string_view kAdvice =
        "correct the file, or `pinstripe expand` if the file is right";
    compare(fmt::format("domain of drive {}", drive.id), mine->domain, drive.domain, kAdvice);
    compare(fmt::format("weight of drive {}", drive.id), mine->weight, drive.weight, kAdvice);
  }
  return all;
}

}  // namespace pinstripe
