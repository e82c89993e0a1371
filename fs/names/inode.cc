#include "fs/names/inode.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "base/coding.h"
#include "base/try.h"
#include "fs/names/acl.h"
#include "fs/names/path.h"

namespace pinstripe {
namespace {

constexpr uint8_t kInodeFormat = 1;
constexpr uint8_t kEntryFormat = 1;

// Sections in ascending order. From kOptional on a reader may pass over what it does not know.
enum Section : uint8_t {
  kParent = 1,
  kMark = 2,
  kIntent = 3,
  kSymlinkTarget = 4,
  kExtended = 5,
  kInline = 6,
  kBlockMap = 7,
  kDevice = 8,
  kCollected = 9,
  kExchange = 10,
  kKeepers = 11,
  kKeeping = 12,
  kParts = 13,
  kOptional = 128,
  kLastRename = 128,
  kNamed = 129,
  kLayout = 130,
  kCounted = 131,
};

// Flags of an entry.
constexpr uint8_t kHasNonce = 1;
constexpr uint8_t kIsMoving = 2;
constexpr uint8_t kIsMoved = 4;

void PutRenameNonce(Writer& writer, const RenameNonce& nonce) {
  writer.Raw(Bytes(std::as_bytes(std::span(nonce))));
}

RenameNonce GetRenameNonce(Reader& reader) {
  RenameNonce nonce{};
  const std::string_view bytes = reader.Raw(nonce.size());
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  return nonce;
}

std::string EncodeIntent(const RenameIntent& intent) {
  Writer writer;
  PutRenameNonce(writer, intent.nonce);
  writer.U64(intent.source).Text(intent.source_name).U64(intent.source_slot);
  writer.U64(intent.target).Text(intent.target_name).U64(intent.target_slot);
  writer.U64(intent.replaced).U64(intent.replaced_slot);
  if (intent.exchange) writer.U8(static_cast<uint8_t>(*intent.exchange));
  return writer.Take();
}

bool KnownKind(uint8_t kind) { return kind >= 1 && kind <= 7; }

Result<RenameIntent> DecodeIntent(std::string_view bytes, bool exchange) {
  Reader reader(bytes);
  RenameIntent intent;
  intent.nonce = GetRenameNonce(reader);
  intent.source = reader.U64();
  intent.source_name = reader.Text();
  intent.source_slot = reader.U64();
  intent.target = reader.U64();
  intent.target_name = reader.Text();
  intent.target_slot = reader.U64();
  intent.replaced = reader.U64();
  intent.replaced_slot = reader.U64();
  const uint8_t kind = exchange ? reader.U8() : 0;
  TRY(reader.Finish("rename intent"));
  if (!exchange) return intent;
  if (!KnownKind(kind) || intent.replaced == 0 || intent.replaced_slot == 0) {
    return Fail(EBADMSG, "an exchange with nothing");
  }
  intent.exchange = static_cast<FileKind>(kind);
  return intent;
}

void EncodeIds(Writer& writer, const std::vector<InodeId>& ids) {
  writer.Varint(ids.size());
  for (const InodeId id : ids) writer.U64(id);
}

Result<std::vector<InodeId>> DecodeIds(Reader& reader, size_t most) {
  const uint64_t count = reader.Varint();
  if (count > most) return Fail(EBADMSG, "{} inodes share stripes; {} may", count, most);
  std::vector<InodeId> ids;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) ids.push_back(reader.U64());
  if (std::ranges::adjacent_find(ids, std::greater_equal()) != ids.end()) {
    return Fail(EBADMSG, "inodes that share stripes are out of order");
  }
  return ids;
}

Status DecodeExtended(std::string_view bytes, Inode& inode) {
  Reader reader(bytes);
  const uint64_t count = reader.Varint();
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    std::string name(reader.Text());
    inode.attributes.emplace_back(std::move(name), reader.Text());
  }
  TRY(reader.Finish("extended attributes"));
  const auto by_name = [](const auto& a, const auto& b) { return a.first >= b.first; };
  if (std::adjacent_find(inode.attributes.begin(), inode.attributes.end(), by_name) !=
      inode.attributes.end()) {
    return Fail(EBADMSG, "extended attributes are out of order");
  }
  return {};
}

Status DecodeSection(uint8_t tag, std::string_view body, InodeId id, Inode& inode) {
  Reader reader(body);
  switch (tag) {
    case kParent: inode.parent = reader.U64(); return reader.Finish("parent");
    case kMark:
      inode.mark = ReplacementMark{reader.U64(), GetRenameNonce(reader), {}};
      if (reader.left() > 0) {
        inode.mark->place.directory = reader.U64();
        inode.mark->place.name = reader.Text();
      }
      return reader.Finish("replacement mark");
    case kIntent: inode.intent = TRY(DecodeIntent(body, false)); return {};
    case kExchange:
      if (inode.intent) return Fail(EBADMSG, "two renames at once");
      inode.intent = TRY(DecodeIntent(body, true));
      return {};
    case kSymlinkTarget: inode.symlink = body; return {};
    case kExtended: return DecodeExtended(body, inode);
    case kInline: inode.inline_data = body; return {};
    case kBlockMap: inode.map = TRY(BlockMap::Decode(body, id, inode.size)); return {};
    case kDevice:
      inode.device = DeviceNumber{reader.U32(), reader.U32()};
      return reader.Finish("device");
    case kCollected: inode.collected = reader.U32(); return reader.Finish("collected");
    case kNamed:
      inode.named = GivenName{reader.U64(), std::string(reader.Text())};
      return reader.Finish("named");
    case kKeepers:
      inode.keepers = TRY(DecodeIds(reader, kMostKeepersOfFile));
      return reader.Finish("keepers");
    case kKeeping: {
      Keeping& keeping = inode.keeping.emplace();
      const uint8_t settled = reader.U8();
      if (settled > 1) reader.MarkBad();
      keeping.settled = settled == 1;
      keeping.object = reader.U64();
      keeping.files = TRY(DecodeIds(reader, kMostFilesOfKeeper));
      if (keeping.object == 0 || (keeping.object == id && !keeping.settled)) {
        return Fail(EBADMSG, "a keeper of nothing, or of itself before it is settled");
      }
      return reader.Finish("keeping");
    }
    case kParts: {
      inode.parts.bits = reader.U8();
      const uint8_t stage = reader.U8();
      if (inode.parts.bits < 1 || inode.parts.bits > kMostPartBits || stage > 2) reader.MarkBad();
      inode.parts.stage = static_cast<DirectoryParts::Stage>(stage);
      return reader.Finish("parts");
    }
    case kLayout: inode.layout = TRY(FileLayout::Decode(body)); return {};
    case kCounted: inode.counted = reader.U64(); return reader.Finish("counted");
    case kLastRename:
      while (reader.ok() && inode.renames.size() < kMostRenameOutcomes &&
             (inode.renames.empty() || reader.left() > 0)) {
        const RenameNonce nonce = GetRenameNonce(reader);
        inode.renames.push_back({nonce, reader.U8() != 0});
      }
      return reader.Finish("last renames");
    default:
      if (tag < kOptional) {
        return Fail(EBADMSG, "a section {} that this version does not know", tag);
      }
      inode.unknown.emplace_back(tag, body);
      return {};
  }
}

void ChangeMode(Inode& inode, uint32_t mode) {
  inode.mode = mode;
  for (auto& [name, value] : inode.attributes) {
    if (name != kAccessAcl) continue;
    const Result<Acl> acl = ParseAcl(value);
    if (acl.has_value()) value = EncodeAcl(Chmod(*acl, mode));
  }
}

bool IsDevice(FileKind kind) {
  return kind == FileKind::kCharacterDevice || kind == FileKind::kBlockDevice;
}

Status CheckContents(const Inode& inode) {
  const bool is_file = inode.kind == FileKind::kRegular;
  if (!is_file && (inode.map || !inode.inline_data.empty() || inode.size != 0)) {
    return Fail(EBADMSG, "contents in an inode that is not a file");
  }
  if ((inode.kind == FileKind::kDirectory) != (inode.parent != 0)) {
    return Fail(EBADMSG, "a parent where there should be none, or none where there should be one");
  }
  if (inode.kind != FileKind::kDirectory && inode.parts.bits != 0) {
    return Fail(EBADMSG, "parts of what is not a directory");
  }
  const bool is_symlink = inode.kind == FileKind::kSymlink;
  if (is_symlink != !inode.symlink.empty() ||
      (is_symlink && !CheckSymlinkTarget(inode.symlink).ok())) {
    return Fail(EBADMSG, "a target where there should be none, or none where there should be one");
  }
  if (IsDevice(inode.kind) != inode.device.has_value()) {
    return Fail(EBADMSG,
                "a device number where there should be none, or none where there should be one");
  }
  if (inode.layout && !is_file && inode.kind != FileKind::kDirectory) {
    return Fail(EBADMSG, "a layout in an inode that is neither file nor directory");
  }
  if (!is_file && (!inode.keepers.empty() || inode.keeping)) {
    return Fail(EBADMSG, "shared stripes in an inode that is not a file");
  }
  const bool shares = !inode.keepers.empty() || (inode.map && !inode.map->Keepers().empty());
  if (inode.keeping && (!inode.map || shares)) {
    return Fail(EBADMSG, "a keeper without a map, or with keepers of its own");
  }
  if (!is_file) return {};
  if (inode.size > kMaxKeptFileBytes) return Fail(EBADMSG, "a file of {} bytes", inode.size);
  const bool covered =
      inode.map ? inode.inline_data.empty() : inode.inline_data.size() == inode.size;
  if (!covered) {
    return Fail(EBADMSG, "{} bytes inline for a file of {} bytes", inode.inline_data.size(),
                inode.size);
  }
  return {};
}

Result<Inode> DecodeInode(std::string_view bytes, InodeId id) {
  Reader reader(bytes);
  const uint8_t format = reader.U8();
  if (reader.ok() && format != kInodeFormat) {
    return Fail(EBADMSG, "format {}; this version knows {}", format, kInodeFormat);
  }
  Inode inode;
  const uint8_t kind = reader.U8();
  inode.mode = reader.U16();
  inode.owner.user = reader.U32();
  inode.owner.group = reader.U32();
  inode.links = reader.U32();
  inode.size = reader.U64();
  inode.accessed = static_cast<int64_t>(reader.U64());
  inode.modified = static_cast<int64_t>(reader.U64());
  inode.changed = static_cast<int64_t>(reader.U64());
  if (!reader.ok() || !KnownKind(kind) || inode.mode > 07777) {
    return Fail(EBADMSG, "its head is damaged");
  }
  inode.kind = static_cast<FileKind>(kind);
  for (int last = 0; reader.left() > 0;) {
    const uint8_t tag = reader.U8();
    const std::string_view body = reader.Text();
    if (!reader.ok() || tag <= last) return Fail(EBADMSG, "its sections are damaged");
    last = tag;
    TRY(DecodeSection(tag, body, id, inode));
  }
  TRY(CheckContents(inode));
  return inode;
}

}  // namespace

std::string EncodeExtended(const ExtendedAttributes& attributes) {
  Writer writer;
  writer.Varint(attributes.size());
  for (const auto& [name, value] : attributes) writer.Text(name).Text(value);
  return writer.Take();
}

uint32_t SecondsOf(int64_t wall_clock) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(wall_clock / 1'000'000'000, 1, std::numeric_limits<uint32_t>::max()));
}

Attributes Inode::Describe(InodeId id) const {
  Attributes attributes{.inode = id,
                        .kind = kind,
                        .mode = mode,
                        .owner = owner,
                        .links = links,
                        .size = size,
                        .stored_bytes = map ? map->StoredBytes() : inline_data.size(),
                        .accessed = accessed,
                        .modified = modified,
                        .changed = changed};
  if (kind == FileKind::kSymlink) attributes.size = symlink.size();
  if (device) attributes.device = *device;
  attributes.has_acl = std::ranges::any_of(
      this->attributes, [](const auto& attribute) { return attribute.first == kAccessAcl; });
  return attributes;
}

void Inode::Note(const RenameOutcome& outcome) {
  if (renames.size() == kMostRenameOutcomes) renames.erase(renames.begin());
  renames.push_back(outcome);
}

void Inode::Count(Subdirectories change) {
  if (change == Subdirectories::kSame || IsUncounted()) return;
  if (change == Subdirectories::kOneMore && links < std::numeric_limits<uint32_t>::max()) {
    ++links;
  } else if (change == Subdirectories::kOneLess && links > kLinksOfEmptyDirectory) {
    --links;
  } else {
    links = 1;
  }
}

void Inode::Apply(const AttributeChange& change, int64_t now) {
  if (change.mode) ChangeMode(*this, *change.mode & 07777);
  if (change.user) owner.user = *change.user;
  if (change.group) owner.group = *change.group;
  if (change.accessed) accessed = *change.accessed;
  if (change.modified) modified = *change.modified;
  changed = now;
}

std::string Inode::Encode(InodeId id) const {
  Writer writer;
  writer.U8(kInodeFormat).U8(static_cast<uint8_t>(kind)).U16(static_cast<uint16_t>(mode));
  writer.U32(owner.user).U32(owner.group).U32(links).U64(size);
  writer.U64(static_cast<uint64_t>(accessed)).U64(static_cast<uint64_t>(modified));
  writer.U64(static_cast<uint64_t>(changed));
  const auto section = [&](uint8_t tag, std::string_view body) { writer.U8(tag).Text(body); };
  if (parent != 0) section(kParent, Writer().U64(parent).bytes());
  if (mark) {
    Writer body;
    body.U64(mark->mover);
    PutRenameNonce(body, mark->nonce);
    if (mark->place.directory != 0) body.U64(mark->place.directory).Text(mark->place.name);
    section(kMark, body.bytes());
  }
  if (intent && !intent->exchange) section(kIntent, EncodeIntent(*intent));
  if (!symlink.empty()) section(kSymlinkTarget, symlink);
  if (!attributes.empty()) section(kExtended, EncodeExtended(attributes));
  if (!inline_data.empty()) section(kInline, inline_data);
  if (map) {
    Writer body;
    map->Encode(body, id);
    section(kBlockMap, body.bytes());
  }
  if (device) {
    section(kDevice, Writer().U32(device->major_number).U32(device->minor_number).bytes());
  }
  if (collected != 0) section(kCollected, Writer().U32(collected).bytes());
  if (intent && intent->exchange) section(kExchange, EncodeIntent(*intent));
  if (!keepers.empty()) {
    Writer body;
    EncodeIds(body, keepers);
    section(kKeepers, body.bytes());
  }
  if (keeping) {
    Writer body;
    body.U8(keeping->settled ? 1 : 0).U64(keeping->object);
    EncodeIds(body, keeping->files);
    section(kKeeping, body.bytes());
  }
  if (parts.bits != 0) {
    section(kParts, Writer().U8(parts.bits).U8(static_cast<uint8_t>(parts.stage)).bytes());
  }
  if (!renames.empty()) {
    Writer body;
    for (const auto& [nonce, done] : renames) {
      PutRenameNonce(body, nonce);
      body.U8(done ? 1 : 0);
    }
    section(kLastRename, body.bytes());
  }
  if (named) section(kNamed, Writer().U64(named->directory).Text(named->name).bytes());
  if (layout) {
    Writer body;
    layout->Encode(body);
    section(kLayout, body.bytes());
  }
  if (counted != 0) section(kCounted, Writer().U64(counted).bytes());
  for (const auto& [tag, body] : unknown) section(tag, body);
  return writer.Take();
}

Result<Inode> Inode::Decode(std::string_view bytes, InodeId id) {
  return TRY_CONTEXT(DecodeInode(bytes, id), "inode {:016x}", id);
}

std::string Entry::Encode() const {
  Writer writer;
  writer.U8(kEntryFormat);
  if (move == Move::kMoved) return writer.U64(0).U8(0).U8(kIsMoved).Take();
  const int flags = (nonce ? kHasNonce : 0) | (move == Move::kMoving ? kIsMoving : 0);
  writer.U64(inode).U8(static_cast<uint8_t>(kind)).U8(static_cast<uint8_t>(flags));
  if (nonce) PutRenameNonce(writer, *nonce);
  return writer.Take();
}

Result<Entry> Entry::Decode(std::string_view bytes) {
  Reader reader(bytes);
  const uint8_t format = reader.U8();
  if (reader.ok() && format != kEntryFormat) {
    return Fail(EBADMSG, "a directory entry of format {}; this version knows {}", format,
                kEntryFormat);
  }
  Entry entry;
  entry.inode = reader.U64();
  const uint8_t kind = reader.U8();
  const uint8_t flags = reader.U8();
  if ((flags & kHasNonce) != 0) entry.nonce = GetRenameNonce(reader);
  TRY(reader.Finish("directory entry"));
  if (flags == kIsMoved && kind == 0 && entry.inode == 0) {
    entry.move = Entry::Move::kMoved;
    return entry;
  }
  if (!KnownKind(kind) || (flags & ~(kHasNonce | kIsMoving)) != 0 || entry.inode == 0) {
    return Fail(EBADMSG, "a directory entry is damaged");
  }
  entry.kind = static_cast<FileKind>(kind);
  if ((flags & kIsMoving) != 0) entry.move = Entry::Move::kMoving;
  return entry;
}

}  // namespace pinstripe
