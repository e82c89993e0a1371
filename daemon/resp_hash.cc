#include "daemon/resp_hash.h"

#include "base/coding.h"
#include "base/try.h"

namespace pinstripe {

std::string EncodeHash(const RespHash& hash) {
  Writer writer;
  for (const auto& [name, value] : hash) writer.Text(name).Text(value);
  return writer.Take();
}

Result<RespHash> DecodeHash(Bytes bytes) {
  RespHash hash;
  Reader reader(bytes);
  while (reader.ok() && reader.left() > 0) {
    const std::string_view name = reader.Text();
    const std::string_view value = reader.Text();
    if (!reader.ok()) break;
    if (!hash.empty() && name <= hash.rbegin()->first) reader.MarkBad();
    hash.emplace_hint(hash.end(), name, value);
  }
  TRY(reader.Finish("a hash"));
  return hash;
}

}  // namespace pinstripe
