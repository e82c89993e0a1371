#include "daemon/put_entry.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "kinetic/kinetic.pb.h"
#include "kinetic/message.h"
#include "store/tag_check.h"

namespace pinstripe {
namespace {

using kinetic::Command;
using kinetic::Header;
using kinetic::KeyValue;

Expected ExpectedBy(const KeyValue& entry) {
  return entry.force() ? Expected::Any() : Expected::Version(entry.dbversion());
}

StoredRecord RecordOf(const KeyValue& entry, SharedBytes value) {
  StoredRecord record;
  record.head.version = entry.newversion();
  record.head.tag = entry.tag();
  if (entry.has_algorithm()) record.head.algorithm = entry.algorithm();
  record.value = std::move(value);
  return record;
}

Room RoomOf(const KeyValue& entry) {
  switch (entry.room()) {
    case 1: return Room::kRepair;
    case 2: return Room::kNames;
    case 3: return Room::kFreeing;
    default: return Room::kData;
  }
}

std::optional<Guard> GuardOf(const KeyValue& entry) {
  if (!entry.has_guard()) return std::nullopt;
  return Guard{entry.guard().key(), Expected::Version(entry.guard().version())};
}

}  // namespace

Result<bool> WantsFlush(const KeyValue& entry) {
  if (!entry.has_synchronization()) return true;
  switch (entry.synchronization()) {
    case KeyValue::WRITETHROUGH:
    case KeyValue::FLUSH: return true;
    case KeyValue::WRITEBACK: return false;
    default: return Fail(EINVAL, "unknown synchronization {}", entry.synchronization());
  }
}

Status AllowPut(const Rights& rights, const KeyValue& entry, bool tls) {
  TRY(Allow(rights, Permission::kWrite, entry.key(), tls));
  if (!entry.has_guard()) return {};
  if (MayDo(rights, Permission::kRead, entry.guard().key(), tls)) return {};
  return Allow(rights, Permission::kWrite, entry.guard().key(), tls);
}

Result<Engine::Change> PutOf(const KeyValue& entry, bool bound, SharedBytes value) {
  Engine::Change put{.key = entry.key(), .expected = ExpectedBy(entry), .room = RoomOf(entry)};
  put.guard = GuardOf(entry);
  put.record = RecordOf(entry, std::move(value));
  if (bound) TRY(CheckCoveringTag(&*put.record));
  return put;
}

// A guard that nobody looks at would be worse than none.
Result<Engine::Change> DeletionOf(const KeyValue& entry) {
  if (entry.has_guard()) return Fail(EINVAL, "only a PUT can have a guard");
  return Engine::Change{.key = entry.key(), .expected = ExpectedBy(entry), .room = RoomOf(entry)};
}

void DescribeRecord(const std::string& key, const StoredHead& head, VersionPart part,
                    KeyValue* entry) {
  entry->set_key(key);
  entry->set_dbversion(part.CutFrom(head.version));
  entry->set_tag(head.tag);
  if (head.algorithm) entry->set_algorithm(*head.algorithm);
}

SharedBytes Joined(std::span<const SharedBytes> values) {
  if (values.size() == 1) return values[0];
  size_t bytes = 0;
  for (const SharedBytes& value : values) bytes += value.size();
  Buffer all(bytes);
  MutableBytes space = all;
  for (const SharedBytes& value : values) {
    CopyBytes(space, value);
    space = space.subspan(value.size());
  }
  return SharedBytes(std::move(all));
}

Status CheckSinglePut(const Command& request) {
  if (!request.body().has_puts()) return {};
  return Fail(EINVAL, "a put by itself can have no records, and no read after it");
}

size_t CountPuts(const Command& request) {
  if (request.header().messagetype() != Header::PUTS) return 1;
  return std::clamp<size_t>(request.body().puts().records_size(), 1, kMostPutsTogether);
}

// Of several in one message, those have failed that were to be durable.
void SetFlushFailure(const Status& failure, const Command& request, Command* answer,
                     SharedBytes* values) {
  if (request.header().messagetype() != Header::PUTS) {
    return SetStatus(failure, answer->mutable_status());
  }
  auto& told = *answer->mutable_body()->mutable_puts()->mutable_records();
  std::vector<SharedBytes> kept;
  size_t offset = 0;
  for (int i = 0; i < told.size(); ++i) {
    const size_t bytes = told[i].read().valuebytes();
    const bool made = told[i].status().code() == kinetic::Status::SUCCESS;
    const Result<bool> waits = WantsFlush(request.body().puts().records(i).keyvalue());
    if (made && waits.value_or(true)) {
      SetStatus(failure, told[i].mutable_status());
      told[i].clear_read();
    } else if (bytes > 0) {
      kept.push_back(values->Slice(offset, bytes));
    }
    offset += bytes;
  }
  *values = Joined(kept);
}

}  // namespace pinstripe
