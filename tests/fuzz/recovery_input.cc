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

#include <filesystem>
#include <fstream>
#include <map>

#include "base/checksum.h"
#include "base/coding.h"
#include "drive/log_entry.h"
#include "drive/log_store.h"
#include "tests/drive/temporary_directory.h"
#include "tests/fuzz/inputs.h"

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

// The directory of a store that is made anew for each input; its index is in memory.
class Workshop {
 public:
  Workshop() {
    const auto empty = LogStore::Open(Options(), resources_);  // superblock and directories
    if (!empty.has_value()) std::abort();
  }

  std::string Fill(const Image& image) {
    env_.reset(rocksdb::NewMemEnv(rocksdb::Env::Default()));
    fs::remove_all(path_ + "/durable");
    for (const auto& file : fs::directory_iterator(path_ + "/segments")) fs::remove(file);
    for (const auto& [number, bytes] : image.segments) {
      std::ofstream(fmt::format("{}/segments/{:08x}.log", path_, number), std::ios::binary)
          << bytes;
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

  Result<std::unique_ptr<LogStore>> Open() { return LogStore::Open(Options(), resources_); }

 private:
  LogStoreOptions Options() const {
    return {.path = path_,
            .segment_bytes = 1 << 20,
            .reserve_bytes = 0,
            .slack_bytes = 0,
            .index_env = env_.get()};
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "store";
  std::unique_ptr<rocksdb::Env> env_{rocksdb::NewMemEnv(rocksdb::Env::Default())};
  StoreResources resources_{1 << 20, 1 << 20};
};

using Contents = std::map<std::string, std::string>;  // of a store; damaged: "!"

std::string Look(LogStore& store, Contents* contents) {
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

}  // namespace

std::string TryRecovery(Bytes input, bool* refused) {
  static Workshop workshop;
  if (std::string wrong = workshop.Fill(ImageOf(input)); !wrong.empty()) return wrong;
  Contents contents;
  {
    auto store = workshop.Open();
    *refused = !store.has_value();
    // Whatever is wrong is a damaged store: nothing else can be, in memory.
    if (!store.has_value()) {
      return store.error().code() == EBADMSG ? "" : std::string(store.error().message());
    }
    if (std::string wrong = Look(**store, &contents); !wrong.empty()) return wrong;
  }
  {
    auto store = workshop.Open();
    if (!store.has_value()) {
      return fmt::format("opened once, and then: {}", store.error().message());
    }
    Contents again;
    if (std::string wrong = Look(**store, &again); !wrong.empty()) return wrong;
    if (again != contents) return "opened again, it holds something else";
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
  return {no_record.Take()};
}

Examples ExampleRecoveries() {
  return {ExampleStore(/*durable=*/true, /*torn=*/false),
          ExampleStore(/*durable=*/false, /*torn=*/false),
          ExampleStore(/*durable=*/false, /*torn=*/true)};
}

}  // namespace pinstripe
