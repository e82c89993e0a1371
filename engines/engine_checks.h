// What an engine may be asked, and what it answered, as far as that can be believed. Pure
// functions.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "drive/drive.h"
#include "engines/engine.h"

namespace pinstripe {

// EINVAL: sizes over the limits of a drive, a guard that cannot be one, or too many of both. For
// engines.
Status CheckBatch(const EngineBatch& batch);

// The tag of a put that has none: CRC32C of the value, big-endian.
std::string EngineTag(Bytes value);

// EBADMSG: a size is over a limit, or the tag is not the value's. A tag of another size than
// EngineTag() is somebody's own.
Result<Record> CheckedRecord(Result<Record> record);

// EBADMSG: other keys than those that were asked for, or in another order, or more of them, or none
// and more to come. A record that does not match its tag is a damaged one.
Result<RangeRecords> CheckedList(RangeRecords found, const EngineRange& range);

// At most `max` of what comes behind the key `last` of the range. Null: nothing can.
std::optional<EngineRange> RangeBehind(EngineRange range, std::string last, uint32_t max);

DriveInfo InfoOfEngine(const EngineState& state, std::string_view store);

}  // namespace pinstripe
