#include "daemon/message_reads.h"

#include <utility>

#include "base/try.h"
#include "daemon/put_entry.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"

namespace pinstripe {

MessageReads::MessageReads(Engine& engine, Reader reader, size_t most_bytes, bool at_once)
    : engine_(engine),
      reader_(std::move(reader)),
      at_once_(at_once),
      left_(static_cast<uint32_t>(most_bytes)) {}

bool MessageReads::Add(const std::string& key, kinetic::Puts::Read* told) {
  Result<StoredRecord> record = Find(key);
  if (at_once_ && !record.has_value() && record.error().code() == EAGAIN) return false;
  SetStatus(record.has_value() ? Status() : record.error(), told->mutable_status());
  if (!record.has_value()) return true;
  DescribeRecord(key, record->head, {}, told->mutable_keyvalue());
  if (record->value.empty()) return true;
  told->set_valuebytes(static_cast<uint32_t>(record->value.size()));
  left_ -= static_cast<uint32_t>(record->value.size());
  values_.push_back(std::move(record->value));
  return true;
}

Result<StoredRecord> MessageReads::Find(const std::string& key) {
  TRY(reader_.admitted);
  TRY(Allow(reader_.rights, Permission::kRead, key, reader_.tls));
  const ValueRange range{0, left_};
  StoredRecord found = TRY(at_once_ ? engine_.GetAtOnce(key, range) : engine_.Get(key, range));
  if (found.head.value_bytes <= left_) return found;
  return Fail(EBUSY, "the answer has no room for {} bytes more", found.head.value_bytes);
}

SharedBytes MessageReads::TakeValues() { return Joined(values_); }

}  // namespace pinstripe
