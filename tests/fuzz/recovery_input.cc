// A whole store. An input is a list of statements, each a byte that says which, and what it needs:
//
//   0  U8 n, n bytes of index key, U16 n, n bytes: anything in the index
//   1  U8 n, n bytes of key, U16 n, n bytes: the index record of a key, sealed
//   2  U32 segment, U64 offset, U16 n, n bytes: the place of an entry, sealed
//   3  the same, U8 n, n bytes of key: the record that an entry has replaced, sealed
//   4  U32 segment, U64 bytes: how much of a segment is in use
//   5  U64 bytes: how much the index has of values
//   6  U32 segment, U64 offset: up to where the log is durable
//   7  U8 segment, U16 n, n bytes: what a segment goes on with
//   8  the same, sealed, as the header of an entry is
//
// Sealed: a checksum that fits follows. So what is tried is what a writer with a bug would leave,
// and not only that checksums are looked at.

#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/checksum.h"
#include "base/coding.h"
#include "store/log_entry.h"
#include "store/log_store.h"
#include "tests/fuzz/inputs.h"
#include "tests/fuzz/map_index.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostKeys = 1000;
constexpr uint8_t kStatements = 9;

std::string SealedWith(std::string_view context, std::string_view bytes) {
  return Writer().Raw(bytes).U32(Crc32c(AsBytes(bytes), Crc32c(AsBytes(context)))).Take();
}

struct Image {
  std::map<std::string, std::string> index;
  std::map<uint32_t, std::string> segments;
};

std::string_view Short(Reader& reader) { return reader.Raw(reader.U8()); }
std::string_view Long(Reader& reader) { return reader.Raw(reader.U16()); }
LogLocation Location(Reader& reader) {
  const uint32_t segment = reader.U32();
  return {segment, reader.U64()};
}

Image ImageOf(Bytes input) {
  Image image;
  Reader reader(AsText(input));
  while (reader.ok() && reader.left() > 0) {
    const uint8_t statement = reader.U8() % kStatements;
    std::string key;
    std::string value;
    switch (statement) {
      case 0:
        key = Short(reader);
        value = Long(reader);
        break;
      case 1: {
        const std::string_view record = Short(reader);
        key = RecordIndexKey(record);
        value = SealedWith(record, Long(reader));
        break;
      }
      case 2:
        key = PlaceIndexKey(Location(reader));
        value = SealedWith(key, Long(reader));
        break;
      case 3: {
        key = PreviousIndexKey(Location(reader));
        const std::string_view bytes = Long(reader);
        value = SealedWith(Short(reader), bytes);
        break;
      }
      case 4:
        key = SegmentIndexKey(reader.U32());
        value = EncodeCount(reader.U64());
        break;
      case 5:
        key = InlineBytesIndexKey();
        value = EncodeCount(reader.U64());
        break;
      case 6:
        key = DurableIndexKey();
        value = EncodeDurable(Location(reader));
        break;
      default: {
        const uint32_t segment = reader.U8();
        const std::string_view bytes = Long(reader);
        if (reader.ok()) {
          image.segments[segment] += statement == 7 ? std::string(bytes) : SealedWith("", bytes);
        }
        continue;
      }
    }
    if (reader.ok()) image.index[key] = value;
  }
  return image;
}

// Nobody cuts the power, and space that is asked for ahead is only zeroed where files are in
// memory.
class HastyDisk final : public FileCalls {
 public:
  int Sync(int) override { return 0; }
  int Allocate(int, uint64_t, uint64_t) override { return 0; }
  Status SyncDirectory(const std::string&) override { return {}; }
  int SyncFileSystem(int) override { return 0; }
};

// The directory of a store that is made anew for each input. Its index is in memory.
class Workshop {
 public:
  explicit Workshop(IndexKind kind) : kind_(kind) {
    ForgetIndex();
    const auto empty = Open();  // makes superblock and directories
    if (!empty.has_value()) std::abort();
  }

  std::string Fill(const Image& image) {
    fs::remove(path_ + "/durable");
    for (const auto& file : fs::directory_iterator(path_ + "/segments")) fs::remove(file);
    for (const auto& [number, bytes] : image.segments) {
      std::ofstream(fmt::format("{}/segments/{:08x}.log", path_, number), std::ios::binary)
          << bytes;
    }
    ForgetIndex();
    if (kind_ == IndexKind::kMap) {
      map_.entries->insert(image.index.begin(), image.index.end());
      map_.changes = image.index.size();
      return "";
    }
    rocksdb::Options options;
    options.env = env_.get();
    options.create_if_missing = true;
    rocksdb::DB* opened = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options, path_ + "/index", &opened);
    if (!status.ok()) return "this test cannot make an index: " + status.ToString();
    const std::unique_ptr<rocksdb::DB> index(opened);
    for (const auto& [key, value] : image.index) index->Put({}, key, value);
    return "";
  }

  Result<std::unique_ptr<LogStore>> Open() {
    LogStoreOptions options{.path = path_,
                            .segment_bytes = 1 << 20,
                            .reserve_bytes = 0,
                            .slack_bytes = 0,
                            .calls = &disk_,
                            .index_env = env_.get()};
    if (kind_ == IndexKind::kMap) {
      options.open_index = [this](std::shared_ptr<rocksdb::MergeOperator> merge_operator) {
        return new MapIndex(map_, std::move(merge_operator));
      };
    }
    return LogStore::Open(options, resources_);
  }

 private:
  void ForgetIndex() {
    map_ = {};
    if (kind_ == IndexKind::kRocksDb) env_.reset(rocksdb::NewMemEnv(rocksdb::Env::Default()));
  }

  const IndexKind kind_;
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "store";
  HastyDisk disk_;
  std::unique_ptr<rocksdb::Env> env_;
  MapIndex::Kept map_;
  StoreResources resources_{1 << 20, 1 << 20};
};

// What is wrong with what the store says of itself.
std::string Look(LogStore& store, std::map<std::string, std::string>* contents) {
  const auto keys = store.Keys({}, kMostKeys, /*reverse=*/false);
  if (!keys.has_value()) {
    return keys.error().code() == EBADMSG ? "" : std::string(keys.error().message());
  }
  for (const std::string& key : *keys) {
    const Result<StoredRecord> record = store.Get(key, {});
    if (!record.has_value() && record.error().code() != EBADMSG) {
      return fmt::format("it lists {}, and then: {}", Hex(AsBytes(key)), record.error().message());
    }
    (*contents)[key] = record.has_value() ? fmt::format("={}", record->value.text()) : "!";
  }
  return "";
}

// Every record in the log has its place in the index, for as long as it is. The segment of one
// without is not known to be used, and may go; and an entry that is not as its place says is taken
// for one that was torn by a loss of power.
bool HasAllPlaces(const Image& image) {
  return std::all_of(image.index.begin(), image.index.end(), [&](const auto& entry) {
    if (!entry.first.starts_with('K')) return true;
    const std::string key = entry.first.substr(1);
    const auto record = DecodeIndexRecord(key, entry.second);
    const auto* logged = record.has_value() ? std::get_if<LoggedValue>(&record->place) : nullptr;
    if (logged == nullptr) return true;
    const auto place = image.index.find(PlaceIndexKey(logged->location));
    if (place == image.index.end()) return false;
    const auto decoded = DecodePlaceRecord(logged->location, place->second);
    return decoded.has_value() && decoded->key == key &&
           decoded->entry_bytes == EntryBytes(*record, *logged);
  });
}

std::string TryRecoveryIn(Workshop& workshop, Bytes input, OpenAgain again, Recovered* recovered) {
  const Image image = ImageOf(input);
  if (std::string wrong = workshop.Fill(image); !wrong.empty()) return wrong;
  {
    auto store = workshop.Open();
    recovered->refused = !store.has_value();
    // Whatever is wrong is a damaged store: nothing else can be, in memory.
    if (!store.has_value()) {
      return store.error().code() == EBADMSG ? "" : std::string(store.error().message());
    }
    if (std::string wrong = Look(**store, &recovered->contents); !wrong.empty()) return wrong;
  }
  // Half of the time goes here.
  if (again == OpenAgain::kAlways || Crc32c(input) % 4 == 0) {
    auto store = workshop.Open();
    if (!store.has_value()) {
      return fmt::format("opened once, and then: {}", store.error().message());
    }
    Recovered later;
    if (std::string wrong = Look(**store, &later.contents); !wrong.empty()) return wrong;
    if (later.contents != recovered->contents && HasAllPlaces(image)) {
      return "opened again, it holds something else";
    }
    const StoredRecord record{{.version = "v"}, SharedBytes(std::string(5000, 'n'))};
    const Status put = (*store)->Put("new", record);
    const Result<bool> tidied = (*store)->Tidy();
    if (put.ok()) {
      const auto read = (*store)->Get("new", {});
      if (!read.has_value()) return fmt::format("put, but: {}", read.error().message());
      if (read->value.text() != record.value.text()) return "what was put is not there";
    }
  }
  return "";
}

}  // namespace

std::string TryRecovery(Bytes input, IndexKind kind, OpenAgain again, Recovered* recovered) {
  static Workshop in_rocksdb(IndexKind::kRocksDb);
  static Workshop in_map(IndexKind::kMap);
  return TryRecoveryIn(kind == IndexKind::kMap ? in_map : in_rocksdb, input, again, recovered);
}

namespace {

// Writes statements.
class Sentences {
 public:
  Sentences& Record(std::string_view key, const IndexRecord& record) {
    writer_.U8(1);
    AddShort(key);
    return AddUnsealed(EncodeIndexRecord(key, record));
  }
  Sentences& Place(LogLocation at, const PlaceRecord& place) {
    writer_.U8(2);
    writer_.U32(at.segment).U64(at.offset);
    return AddUnsealed(EncodePlaceRecord(at, place));
  }
  Sentences& Previous(LogLocation at, std::string_view key, const IndexRecord& record) {
    writer_.U8(3).U32(at.segment).U64(at.offset);
    AddUnsealed(EncodeIndexRecord(key, record));
    AddShort(key);
    return *this;
  }
  Sentences& InUse(uint32_t segment, uint64_t bytes) {
    writer_.U8(4).U32(segment).U64(bytes);
    return *this;
  }
  Sentences& InIndex(uint64_t bytes) {
    writer_.U8(5).U64(bytes);
    return *this;
  }
  Sentences& Durable(LogLocation at) {
    writer_.U8(6).U32(at.segment).U64(at.offset);
    return *this;
  }
  // The entry in the log; how long its header is.
  uint32_t Entry(uint8_t segment, std::string_view key, const StoredHead& head,
                 std::string_view value) {
    const std::string header = EncodeLogHeader(key, head, Crc32c(AsBytes(value)));
    writer_.U8(8).U8(segment);
    AddUnsealed(header);
    writer_.U8(7).U8(segment).U16(static_cast<uint16_t>(value.size())).Raw(value);
    return static_cast<uint32_t>(header.size());
  }
  std::string Take() { return writer_.Take(); }

 private:
  void AddShort(std::string_view text) { writer_.U8(static_cast<uint8_t>(text.size())).Raw(text); }
  Sentences& AddUnsealed(std::string_view sealed) {
    const std::string_view bytes = sealed.substr(0, sealed.size() - 4);
    writer_.U16(static_cast<uint16_t>(bytes.size())).Raw(bytes);
    return *this;
  }

  Writer writer_;
};

// A small value, one in the log, and one in the log that replaces a small one.
std::string ExampleStore(bool durable, bool torn) {
  const std::string value(40, 'v');
  const StoredHead head{.version = "1", .tag = "t", .algorithm = 4, .value_bytes = 40};
  const uint32_t crc = Crc32c(AsBytes(value));
  const IndexRecord small{.head = head, .value_crc = crc, .place = InlineValue{value}};
  Sentences store;
  store.Record("a", small).InIndex(100);
  const uint32_t header = store.Entry(1, "b", head, value);
  const uint64_t entry = header + value.size();
  store.Entry(1, "c", head, torn ? std::string(40, '\0') : value);
  const auto logged = [&](uint64_t offset) {
    return IndexRecord{
        .head = head, .value_crc = crc, .place = LoggedValue{LogLocation{1, offset}, header}};
  };
  store.Record("b", logged(0)).Place({1, 0}, {entry, "b"});
  store.Record("c", logged(entry)).Place({1, entry}, {entry, "c"}).Previous({1, entry}, "c", small);
  store.InUse(1, 2 * entry).Durable({1, durable ? 2 * entry : 0});
  return store.Take();
}

}  // namespace

Examples DamagedRecoveries() {
  Sentences no_record;
  no_record.Entry(1, "k", {.value_bytes = 1}, "v");
  no_record.Place({1, 0}, {30, "k"}).InUse(1, 30).Durable({1, 0});
  Sentences last_segment;
  last_segment.InUse(UINT32_MAX, 5);
  Sentences far_away;
  far_away.Place({1, UINT64_MAX - 1}, {30, "k"}).Durable({1, 0});
  const std::string shorter =
      ExampleStore(/*durable=*/false, /*torn=*/false) + Sentences().Place({1, 0}, {0, "b"}).Take();
  Sentences too_long;
  too_long.Entry(1, "k", {.value_bytes = 1}, "v");
  too_long.Place({1, 8}, {kMaxLogOffset - 7, "k"}).Durable({1, 9});
  return {no_record.Take(), last_segment.Take(), far_away.Take(), shorter, too_long.Take()};
}

Examples ExampleRecoveries() {
  Sentences far_away;
  far_away.Record(
      "k", {.head = {.value_bytes = 1}, .place = LoggedValue{LogLocation{1, UINT64_MAX - 1}, 30}});
  // What is used without having been counted.
  const std::string not_counted =
      ExampleStore(/*durable=*/false, /*torn=*/false) + Sentences().InUse(1, 0).InUse(5, 1).Take();
  return {ExampleStore(/*durable=*/true, /*torn=*/false),
          ExampleStore(/*durable=*/false, /*torn=*/false),
          ExampleStore(/*durable=*/false, /*torn=*/true), far_away.Take(), not_counted};
}

}  // namespace pinstripe
