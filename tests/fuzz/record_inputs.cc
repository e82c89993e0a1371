// Records of drives and stores.

#include "base/checksum.h"
#include "base/coding.h"
#include "cluster/kept_layout.h"
#include "cluster/map/drive_map.h"
#include "cluster/map/history.h"
#include "cluster/membership/drive_claim.h"
#include "cluster/registers/record.h"
#include "cluster/stripes/shard.h"
#include "daemon/resp_hash.h"
#include "engines/engine.h"
#include "fs/cache/disk_cache_format.h"
#include "kinetic/trunk.h"
#include "redis/stored_record.h"
#include "store/log_entry.h"
#include "store/starts.h"
#include "tests/fuzz/inputs.h"
#include "upkeep/care_notes.h"
#include "upkeep/events.h"
#include "upkeep/fill_history.h"
#include "upkeep/last_look.h"
#include "upkeep/scrub_note.h"
#include "upkeep/work.h"

namespace pinstripe {
namespace {

template <typename T>
Result<std::string> Again(const Result<T>& decoded) {
  return decoded.map([](const T& value) { return value.Encode(); });
}

// --- Of a cluster

RecordKind Superblocks() {
  const Superblock small{"a", std::string(16, 'u'), 1, {1}, 0};
  const Superblock large{"a-longer.name",
                         std::string(16, '\0'),
                         700,
                         {1, 2, 3, 500, 65535},
                         int64_t{1700000000} * 1000000000};
  return {.name = "superblock",
          .examples = {small.Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(Superblock::Decode(bytes)); }};
}

RecordKind DriveMaps() {
  const DriveMap small{1, 1, 1, {{1, 1, "", DriveState::kActive}}};
  const DriveMap large{300,
                       512,
                       5,
                       {{1, 1000, "rack 1", DriveState::kActive},
                        {2, 1 << 20, "rack 2", DriveState::kDraining},
                        {3, 1, "", DriveState::kActive},
                        {4, 77, "rack 1", DriveState::kActive},
                        {65535, 5, std::string(100, 'd'), DriveState::kActive}}};
  DriveMap with_features = small;
  with_features.drives[0].pull = 300;
  with_features.features = {{"a", FeatureKind::kMustBeUnderstood, "a section"},
                            {"made-up_0.9", FeatureKind::kMayBeIgnored, ""}};
  return {.name = "drive map",
          .examples = {small.Encode(), large.Encode(), with_features.Encode()},
          .again = [](std::string_view bytes) { return Again(DriveMap::Decode(bytes)); }};
}

RecordKind DriveMapHistories() {
  std::vector<DriveMap> epochs(4, DriveMap{1, 8, 1, {{2, 7, "a", DriveState::kActive}}});
  for (size_t i = 1; i < epochs.size(); ++i) {
    epochs[i] = epochs[i - 1];
    ++epochs[i].epoch;
    epochs[i].drives.push_back({static_cast<DriveId>(i + 2), 9, "b", DriveState::kDraining});
    if (i == 2) epochs[i].features = {{"a", FeatureKind::kMayBeIgnored, "a section"}};
  }
  return {.name = "history of the drive map",
          .examples = {EncodeHistory({epochs[0]}), EncodeHistory(epochs)},
          .again = [](std::string_view bytes) { return DecodeHistory(bytes).map(EncodeHistory); }};
}

RecordKind DriveClaims() {
  const DriveClaimRecord small{.host = "h"};
  const DriveClaimRecord large{.work = DriveWork::kScrub,
                               .host = std::string(255, '~'),
                               .process = UINT32_MAX,
                               .run = {1, 2, 3},
                               .since = int64_t{1700000000} * 1000000000,
                               .renewed = -1};
  return {.name = "drive claim",
          .examples = {small.Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(DriveClaimRecord::Decode(bytes)); }};
}

RecordKind WorkRecords() {
  WorkRecord large{.actor = ThisProcess(), .work = "drain", .arguments = "--force"};
  large.drives = {1, 65535};
  large.takes_rate = true;
  large.rate = UINT64_MAX;
  large.doing = "moving";
  large.done = 1'000'000;
  return {.name = "work",
          .examples = {WorkRecord().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(WorkRecord::Decode(bytes)); }};
}

RecordKind WorkOrders() {
  const WorkOrder large{
      .ask = WorkAsk::kStop, .rate = 1 << 20, .actor = ThisProcess(), .at = INT64_MIN};
  return {.name = "work order",
          .examples = {WorkOrder().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(WorkOrder::Decode(bytes)); }};
}

RecordKind Events() {
  Event large{
      .kind = EventKind::kWorkEnded, .at = -1, .actor = ThisProcess(), .drives = {1, 65535}};
  large.count = UINT64_MAX;
  large.work = "scrub";
  large.result = WorkResult::kFailed;
  large.text = std::string(300, 'x');
  large.later = "more";
  return {.name = "event",
          .examples = {Event().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(Event::Decode(bytes)); }};
}

RecordKind FillHistories() {
  const FillHistory large{.samples = {{-1, UINT64_MAX, 1}, {7, 0, 300}}};
  return {.name = "fill history",
          .examples = {FillHistory().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(FillHistory::Decode(bytes)); }};
}

RecordKind AwayNotesKind() {
  const AwayNote large{.failure = "its disk is broken",
                       .moved = -1,
                       .watchers = {{"box1", 7, INT64_MAX}, {"", 0, 0}}};
  return {.name = "away note",
          .examples = {AwayNote().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(AwayNote::Decode(bytes)); }};
}

RecordKind WorkStopsKind() {
  return {
      .name = "work stops",
      .examples = {EncodeWorkStops({}), EncodeWorkStops({{"scrub", -1}, {"check", 300}})},
      .again = [](std::string_view bytes) { return DecodeWorkStops(bytes).map(EncodeWorkStops); }};
}

RecordKind ScrubNotes() {
  ScrubNote large = ScrubNote::Begin({1, 2, 3}, -1, 4096);
  (void)large.Take({4, 5, 6}, {});
  (void)large.Take({7, 8, 9}, {});
  large.ReadAgain({7, 9});
  large.found = {.blocks = UINT64_MAX, .damaged = 1, .unread = 300};
  large.found.not_whole = {{258, 7}, {258, 8}, {UINT64_MAX, 0}};
  large.found.contradicted = {{258, "block 7: shard 2 on drive 3"}, {0, ""}};
  return {.name = "scrub note",
          .examples = {ScrubNote::Begin({}, 0, 1).Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(ScrubNote::Decode(bytes)); }};
}

RecordKind LastLooks() {
  const LastLook large{-1, UINT64_MAX, 1, 1 << 20, 300};
  return {.name = "last look",
          .examples = {LastLook().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(LastLook::Decode(bytes)); }};
}

RecordKind LastPlacesKind() {
  const LastPlaces large{-1, UINT32_MAX, UINT64_MAX, 1, 1 << 20};
  return {.name = "last places",
          .examples = {LastPlaces().Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(LastPlaces::Decode(bytes)); }};
}

RecordKind KeptLayouts() {
  const KeptLayout large{{32, 32, 1 << 20}, UINT32_MAX, UINT32_MAX, 255};
  return {.name = "kept layout",
          .examples = {KeptLayout{{1, 0, 64 << 10}, 0, 0, 0}.Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(KeptLayout::Decode(bytes)); }};
}

RecordKind Retirements() {
  return {.name = "retirement",
          .examples = {Retirement{1}.Encode(), Retirement{UINT32_MAX}.Encode()},
          .again = [](std::string_view bytes) { return Again(Retirement::Decode(bytes)); }};
}

std::vector<ShardDescriptor> ExampleDescriptors() {
  const StripeId id{7, 3, MakeWriteId(1'700'000'000, 0x1234, 5)};
  const StripeLayout coded{4, 2, 1 << 20};
  const StripeLayout copied{1, 2, 64 << 10};
  const Buffer large = Buffer::Zeroed(3 * (64 << 10) + 64);
  const Buffer small = Buffer::Zeroed(64);
  std::vector<ShardDescriptor> examples = {
      DescribeShard({id, coded, 4 * large.size() - 5}, 3, large),
      DescribeShard({id, coded, 200}, 5, small), DescribeShard({id, copied, 60}, 0, small)};
  examples.push_back(examples.front());
  examples.back().copy = 77;
  return examples;
}

RecordKind ShardDescriptors() {
  Examples examples;
  for (const ShardDescriptor& each : ExampleDescriptors()) examples.push_back(each.Encode());
  return {.name = "shard descriptor",
          .examples = std::move(examples),
          .again = [](std::string_view bytes) { return Again(ShardDescriptor::Decode(bytes)); },
          .sealed_with = ""};
}

// As it comes with some pages: the head and their sums, without the sum of all of it.
RecordKind DescriptorParts() {
  const auto encode = [](const ShardDescriptor& descriptor) {
    const std::string all = descriptor.Encode();
    return all.substr(0, all.size() - 4);
  };
  Examples examples;
  for (const ShardDescriptor& each : ExampleDescriptors()) examples.push_back(encode(each));
  return {.name = "part of a shard descriptor",
          .examples = std::move(examples),
          .again = [encode](std::string_view bytes) {
            return ShardDescriptor::DecodePart(bytes, 0).map(encode);
          }};
}

// As a record stands in a Redis store.
RecordKind StoredRecords() {
  return {.name = "record in a Redis store",
          .examples = {StoredEnd("", ""), "value" + StoredEnd("v1", "tag"),
                       std::string(300, 'v') + StoredEnd(std::string(300, 'x'), "\x01\x02")},
          .again = [](std::string_view bytes) {
            return ParseStored(SharedBytes(std::string(bytes))).map([](const Record& record) {
              return std::string(record.value.text()) + StoredEnd(record.version, record.tag);
            });
          }};
}

// As a record stands in an engine of names, without its sum: that is made right again.
RecordKind EngineRecords() {
  constexpr size_t kSumBytes = 4;
  const auto head_bytes = [](std::string_view bytes) {
    Reader reader(bytes);
    reader.U8();
    reader.Text();
    reader.Text();
    return bytes.size() - reader.left();
  };
  const auto without_sum = [head_bytes](std::string bytes) {
    return bytes.erase(head_bytes(bytes), kSumBytes);
  };
  const auto example = [without_sum](const char* version, const char* tag, std::string value) {
    return without_sum(EncodeEngineRecord(
        {.version = version, .tag = tag, .value = SharedBytes(std::move(value))}));
  };
  return {.name = "record in an engine",
          .examples = {example("", "", ""), example("v1", "tag", "value"),
                       example("1234567", "\x01\x02", std::string(300, 'v'))},
          .again = [head_bytes, without_sum](std::string_view bytes) {
            std::string summed(bytes);
            summed.insert(head_bytes(bytes), Writer().U32(Crc32c(AsBytes(bytes))).bytes());
            return DecodeEngineRecord(SharedBytes(std::move(summed)))
                .map(EncodeEngineRecord)
                .map(without_sum);
          }};
}

// A hash of the Redis protocol, as a drive keeps it.
RecordKind RespHashes() {
  return {
      .name = "hash of the Redis protocol",
      .examples = {"", EncodeHash({{"f", "v"}}),
                   EncodeHash({{"", ""}, {"a", std::string(200, 'x')}, {"b", "2"}})},
      .again = [](std::string_view bytes) { return DecodeHash(AsBytes(bytes)).map(EncodeHash); }};
}

// --- Of a drive's store

constexpr std::string_view kKey = "key";
constexpr LogLocation kHere{7, 0x123456789a};

const StoredHead kSmall{.value_bytes = 5};
const StoredHead kLarge{.version = std::string(300, 'v'),
                        .tag = std::string(128, 't'),
                        .algorithm = -1,
                        .value_bytes = 1 << 20};

RecordKind LogHeaders() {
  return {.name = "log header",
          .examples = {EncodeLogHeader("", kSmall, 0),
                       EncodeLogHeader(std::string(500, 'k'), kLarge, 77)},
          .again = [](std::string_view bytes) -> Result<std::string> {
            return DecodeLogHeader(bytes).map([](const LogHeader& header) {
              return EncodeLogHeader(header.key, header.head, header.value_crc);
            });
          },
          .sealed_with = ""};
}

RecordKind IndexRecords() {
  return {
      .name = "index record",
      .examples = {EncodeIndexRecord(
                       kKey, {.head = kSmall, .value_crc = 7, .place = InlineValue{"world"}}),
                   EncodeIndexRecord(
                       kKey, {.head = kLarge, .value_crc = 8, .place = LoggedValue{kHere, 4000}})},
      .again = [](std::string_view bytes) -> Result<std::string> {
        return DecodeIndexRecord(kKey, bytes).map([](const IndexRecord& record) {
          return EncodeIndexRecord(kKey, record);
        });
      },
      .sealed_with = std::string(kKey)};
}

RecordKind PlaceRecords() {
  return {.name = "place",
          .examples = {EncodePlaceRecord(kHere, {1, ""}),
                       EncodePlaceRecord(kHere,
                                         {kMaxLogOffset - kHere.offset, std::string(4096, 'k')})},
          .again = [](std::string_view bytes) -> Result<std::string> {
            return DecodePlaceRecord(kHere, bytes).map([](const PlaceRecord& place) {
              return EncodePlaceRecord(kHere, place);
            });
          },
          .sealed_with = PlaceIndexKey(kHere)};
}

RecordKind Counts() {
  return {.name = "count",
          .examples = {EncodeCount(0), EncodeCount(UINT64_MAX)},
          .again = [](std::string_view bytes) -> Result<std::string> {
            return DecodeCount(bytes).map([](uint64_t count) { return EncodeCount(count); });
          },
          .sealed_with = ""};
}

RecordKind DurableMarks() {
  return {.name = "durable mark",
          .examples = {EncodeDurable({}), EncodeDurable(kHere)},
          .again = [](std::string_view bytes) -> Result<std::string> {
            return DecodeDurable(bytes).map([](LogLocation at) { return EncodeDurable(at); });
          },
          .sealed_with = DurableIndexKey()};
}

// That of a newer program is refused otherwise.
RecordKind ListsOfStarts() {
  Starts starts{.boot_id = "5b1a7c9e-0c57-4f0e-8f3e-0d6a4c3b2a19"};
  const std::string few = EncodeStarts(starts);
  for (uint64_t id = 1; id <= 70; ++id) starts = NextStart(starts, {.new_id = id << 40});
  return {.name = "list of starts",
          .examples = {few, EncodeStarts(starts)},
          .again = [](std::string_view bytes) -> Result<std::string> {
            const Result<Starts> read = DecodeStarts(bytes);
            if (read.has_value()) return EncodeStarts(*read);
            if (read.error().code() != ENOTSUP) return Failed(read.error());
            return Fail(EBADMSG, "{}", read.error().message());
          },
          .sealed_with = ""};
}

// --- Of the cache on a local disk

const CacheSegmentHeader kSegment{
    .cluster = std::string(16, 'u'), .number = 0x123456789, .slots = 64};

RecordKind CacheSegmentHeaders() {
  const CacheSegmentHeader large{.cluster = std::string(16, '\0'),
                                 .number = UINT64_MAX,
                                 .slots = CacheSegmentHeader::kMostSlots};
  return {.name = "cache segment header",
          .examples = {kSegment.Encode(), large.Encode()},
          .again = [](std::string_view bytes) { return Again(CacheSegmentHeader::Decode(bytes)); },
          .sealed_with = ""};
}

RecordKind CacheSlots() {
  const std::string header = kSegment.Encode();
  CellKey key;
  key.stripe = {.object = 7, .block = 1, .write = {1, 2, 3}};
  const CacheSlot small{.key = key, .bytes = 1, .position = 8192, .crc = 5};
  key.offset = 15 << 16;
  const CacheSlot large{
      .key = key, .bytes = kCellBytes, .position = CacheSlot::kMostPosition, .crc = UINT32_MAX};
  return {.name = "cache slot",
          .examples = {small.Encode(header), large.Encode(header)},
          .again = [header](std::string_view bytes) -> Result<std::string> {
            return CacheSlot::Decode(bytes, header).map([&](const CacheSlot& slot) {
              return slot.Encode(header);
            });
          },
          .sealed_with = header};
}

RecordKind TrunkHeaders() {
  const auto example = [](const TrunkHeader& header) {
    return std::string(AsText(EncodeTrunkHeader(header)));
  };
  using Kind = TrunkHeader::Kind;
  return {.name = "trunk header",
          .examples = {example({Kind::kBegin, 1, 0}), example({Kind::kOpen, 2, 8123}),
                       example({Kind::kData, 2, 70000}), example({Kind::kWindow, 2, 9}),
                       example({Kind::kEnd, 2, 0})},
          .again = [](std::string_view bytes) -> Result<std::string> {
            if (bytes.size() != kTrunkHeaderBytes) return Fail(EBADMSG, "another length");
            return DecodeTrunkHeader(AsBytes(bytes).first<kTrunkHeaderBytes>())
                .map([](const TrunkHeader& header) {
                  return std::string(AsText(EncodeTrunkHeader(header)));
                });
          }};
}

}  // namespace

const std::vector<RecordKind>& RecordKinds() {
  static const std::vector<RecordKind> kinds = {
      Superblocks(),     DriveMaps(),     DriveMapHistories(),   DriveClaims(),
      Retirements(),     Events(),        WorkRecords(),         WorkOrders(),
      FillHistories(),   AwayNotesKind(), WorkStopsKind(),       LastLooks(),
      LastPlacesKind(),  KeptLayouts(),   ListsOfStarts(),       ShardDescriptors(),
      DescriptorParts(), LogHeaders(),    IndexRecords(),        PlaceRecords(),
      Counts(),          DurableMarks(),  CacheSegmentHeaders(), CacheSlots(),
      EntryKind(),       StoredRecords(), RespHashes(),          EngineRecords(),
      ScrubNotes(),      TrunkHeaders(),
  };
  return kinds;
}

const RecordKind& KindOfRecord(std::string_view name) {
  for (const RecordKind& kind : RecordKinds()) {
    if (kind.name == name) return kind;
  }
  std::abort();
}

std::string TryRecord(const RecordKind& kind, Bytes bytes, bool* refused) {
  const Result<std::string> again = kind.again(AsText(bytes));
  *refused = !again.has_value();
  if (again.has_value()) {
    if (*again == AsText(bytes)) return "";
    return fmt::format("{}: {} is accepted, but {} would be written", kind.name, Hex(bytes),
                       Hex(AsBytes(*again)));
  }
  if (again.error().code() == EBADMSG) return "";
  return fmt::format("{}: {}: {}", kind.name, Hex(bytes), again.error().message());
}

std::string Sealed(const RecordKind& kind, std::string_view bytes) {
  if (!kind.sealed_with) return std::string(bytes);
  const uint32_t crc = Crc32c(AsBytes(bytes), Crc32c(AsBytes(*kind.sealed_with)));
  return Writer().Raw(bytes).U32(crc).Take();
}

// ------------------------------------------------------------------------------------------
// registers

namespace {

constexpr std::string_view kRegisterKey = "\3atcRkey";

// U8 format, U8 flags, nonce[16], U8 n, n x U64, then the sum of key and version (docs/format.md).
std::string WithRightSum(std::string_view version, std::string value) {
  constexpr size_t kCountAt = 18;
  if (value.size() <= kCountAt) return value;
  const size_t sum_at = kCountAt + 1 + 8 * static_cast<uint8_t>(value[kCountAt]);
  const uint32_t sum = Crc32c(AsBytes(version), Crc32c(AsBytes(kRegisterKey)));
  if (sum_at + 4 <= value.size()) value.replace(sum_at, 4, Writer().U32(sum).Take());
  return value;
}

std::string ExampleRegister(Ballot promised, Ballot accepted, std::optional<std::string> value) {
  auto proposal = std::make_shared<Proposal>();
  proposal->nonce = {1, 2};
  proposal->earlier = {9, 8, 7};
  proposal->value = std::move(value);
  const Drive::PutRequest put = EncodeRegisterPut(
      std::string(kRegisterKey), "", {promised, accepted, proposal}, Durability::kWriteBack);
  return Writer().Text(put.version).Raw(put.value.text()).Take();
}

}  // namespace

std::string TryRegister(std::string_view bytes, bool* refused) {
  const std::string key(kRegisterKey);
  Reader reader(bytes);
  Record record;
  record.version = reader.Text();
  const std::string value = WithRightSum(record.version, std::string(reader.Rest()));
  record.tag = RecordTag(Crc32c(AsBytes(value)));
  record.value = SharedBytes(value);
  const auto state = DecodeRegister(key, record);
  *refused = !state.has_value();
  if (!state.has_value()) {
    return state.error().code() == EBADMSG ? "" : std::string(state.error().message());
  }
  const Drive::PutRequest again = EncodeRegisterPut(key, "", *state, Durability::kWriteBack);
  if (again.version == record.version && again.value.text() == value) return "";
  return fmt::format("register: {} {} is accepted, but {} {} would be written",
                     Hex(AsBytes(record.version)), Hex(AsBytes(value)), Hex(AsBytes(again.version)),
                     Hex(again.value));
}

Examples ExampleRegisters() {
  return {ExampleRegister(Ballot::Fast(1), Ballot::Fast(1), "value"),
          ExampleRegister({7, 3, 0x1234567890}, {7, 2, 0x987654321}, std::string(300, 'v')),
          ExampleRegister({2, 1, 5}, {2, 1, 5}, std::nullopt)};
}

}  // namespace pinstripe
