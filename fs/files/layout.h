// FileLayout: how the contents of a file are stored, and how people write that down. Pure.
//
//   4+2 shard=1MiB copies=3 inline=4KiB replicate=64KiB
//
// Data shards + parity shards of its blocks; the size of a shard of a full block; up to how many
// bytes a file is not cut so, but lies beside its inode or as so many copies; and up to how many it
// lives in its inode. A directory hands it on to what is made in it. People and programs read and
// set it as the extended attribute kLayoutAttribute; docs/operations.md.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/coding.h"
#include "base/status.h"
#include "cluster/config.h"
#include "cluster/stripes/store.h"

namespace pinstripe {

inline constexpr std::string_view kLayoutAttribute = "user.pinstripe.layout";

struct FileLayout {
  StripeLayout striped;
  uint8_t copies = 1;  // at least 1
  uint32_t inline_limit = 0;
  uint32_t replicate_limit = 0;

  static FileLayout Default(const ClusterConfig& config);

  // The first word is k+m; the others may be missing and in any order, separated by blanks or
  // commas. What is missing is as in `config`, but the shard size, unless k is the same, is the
  // usual one for k, and there are m + 1 copies. EINVAL: cannot be read, or is impossible there.
  static Result<FileLayout> Parse(std::string_view text, const ClusterConfig& config);
  std::string Text() const;

  // EINVAL: it is impossible anywhere.
  Status Check() const;
  // EINVAL: so many drives are too few for it.
  Status CheckDrives(size_t drives) const;

  // The layout of the one block of a file that is kept as copies, which has up to SmallLimit()
  // bytes.
  StripeLayout small() const;
  uint32_t SmallLimit() const;
  // How small contents lie beside their inode, coded so (cluster/beside.h). Null: they would
  // survive less than the layout does.
  std::optional<StripeLayout> beside(const Geometry& geometry) const;
  // The parity of the pages of its block map, without which the whole file is lost.
  int PageParity() const { return std::max<int>(copies - 1, striped.parity_shards); }

  void Encode(Writer& writer) const;
  static Result<FileLayout> Decode(std::string_view bytes);  // EBADMSG

  friend bool operator==(const FileLayout&, const FileLayout&) = default;
};

}  // namespace pinstripe
