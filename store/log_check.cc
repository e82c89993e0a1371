#include "store/log_check.h"

#include <map>
#include <utility>

#include "base/try.h"
#include "store/directory.h"
#include "store/log_index.h"
#include "store/log_reader.h"
#include "store/segment_files.h"

namespace pinstripe {
namespace {

void AddDamage(LogCheckReport& report, std::string sentence) {
  ++report.damaged;
  if (report.sentences.size() < LogCheckReport::kMaxSentences) {
    report.sentences.push_back(std::move(sentence));
  }
}

// Every record has its value, and the counts of bytes in use are right.
Status CheckRecords(const LogIndex& index, LogReader& reader, LogCheckReport& report) {
  const LogLocation durable = TRY(index.LoadDurable());
  std::map<uint32_t, uint64_t> live;
  uint64_t inline_bytes = 0;
  IndexScan scan = index.Records();
  for (scan.SeekToFirst(); scan.Valid(); scan.Next()) {
    const std::string_view key = scan.key();
    ++report.records;
    const Result<IndexRecord> record = DecodeIndexRecord(key, scan.record());
    if (!record.has_value()) {
      AddDamage(report, fmt::format("key {}: {}", ShortKey(key), record.error().message()));
      continue;
    }
    report.value_bytes += record->head.value_bytes;
    const auto* place = std::get_if<LoggedValue>(&record->place);
    if (place == nullptr) {
      inline_bytes += InlineFootprint(key, scan.record().size());
    } else {
      live[place->location.segment] += EntryBytes(*record, *place);
    }
    const Result<StoredRecord> read = reader.Read(key, *record);
    if (read.has_value()) continue;
    if (place != nullptr && place->location >= durable) {
      ++report.unfinished;
    } else {
      AddDamage(report, fmt::format("key {}: {}", ShortKey(key), read.error().message()));
    }
  }
  TRY(scan.status());
  for (const auto& [segment, bytes] : live) {
    const uint64_t counted = TRY(index.LoadSegmentBytes(segment));
    if (counted != bytes) {
      AddDamage(report, fmt::format("segment {:08x}: {} bytes are in use, {} were counted", segment,
                                    bytes, counted));
    }
  }
  const uint64_t counted = TRY(index.LoadInlineBytes());
  if (counted != inline_bytes) {
    AddDamage(report, fmt::format("index: {} bytes are in use by small records, {} were counted",
                                  inline_bytes, counted));
  }
  return {};
}

// Every entry of the log that is kept belongs to the record that its place names.
Status CheckPlaces(const LogIndex& index, LogCheckReport& report) {
  IndexScan scan = index.Places();
  for (scan.SeekToFirst(); scan.Valid(); scan.Next()) {
    const LogLocation location = TRY(scan.location());
    const Result<IndexPlace> place = scan.place();
    if (!place.has_value()) {
      AddDamage(report, fmt::format("{}: {}", Where(location), place.error().message()));
      continue;
    }
    const Result<std::string> bytes = index.Load(place->record.key);
    const Result<IndexRecord> record = bytes.and_then(
        [&](const std::string& found) { return DecodeIndexRecord(place->record.key, found); });
    const auto* logged = record.has_value() ? std::get_if<LoggedValue>(&record->place) : nullptr;
    if (logged == nullptr || logged->location != location ||
        EntryBytes(*record, *logged) != place->record.entry_bytes) {
      AddDamage(report, fmt::format("{}: is kept for key {}, whose record is elsewhere",
                                    Where(location), ShortKey(place->record.key)));
    }
  }
  return scan.status();
}

}  // namespace

Result<LogCheckReport> CheckLogStore(const std::string& path, StoreResources& resources) {
  StoreDirectory directory = TRY(StoreDirectory::OpenExisting(path));
  const uint64_t mark = TRY(directory.ReadMark());
  LogIndex index(resources);
  TRY(index.Open({.path = directory.index_path(), .read_only = true, .least_sequence = mark}));
  SegmentFiles files(FileCalls::Kernel(), directory.segments_path());
  LogReader reader(index, files);
  LogCheckReport report;
  const Status tables = index.VerifyTables();
  if (tables.code() == EBADMSG) AddDamage(report, std::string(tables.message()));
  if (!tables.ok() && tables.code() != EBADMSG) return Failed(tables);
  TRY(CheckRecords(index, reader, report));
  TRY(CheckPlaces(index, report));
  return report;
}

}  // namespace pinstripe
