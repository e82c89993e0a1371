#include "upkeep/last_look.h"

#include "base/coding.h"
#include "base/try.h"
#include "cluster/registers/store.h"

namespace pinstripe {
namespace {

constexpr uint8_t kLookFormat = 1;
constexpr uint8_t kPlacesFormat = 1;

RegisterName NameOf(LookKind kind) { return {kMapGroup, LastLookKey(kind)}; }

}  // namespace

std::string LastLookKey(LookKind kind) {
  return Writer().Raw("C").U8(static_cast<uint8_t>(kind)).Take();
}

std::string LastLook::Encode() const {
  Writer out;
  out.U8(kLookFormat).U64(static_cast<uint64_t>(at));
  out.Varint(lost).Varint(lacking).Varint(replicas_behind).Varint(not_looked_at);
  return out.Take();
}

Result<LastLook> LastLook::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kLookFormat) {
    return Fail(EBADMSG, "what was found last: format {} is not known here (known: {})", format,
                kLookFormat);
  }
  LastLook look;
  look.at = static_cast<int64_t>(in.U64());
  look.lost = in.Varint();
  look.lacking = in.Varint();
  look.replicas_behind = in.Varint();
  look.not_looked_at = in.Varint();
  TRY(in.Finish("what was found last"));
  return look;
}

std::string LastPlaces::Encode() const {
  Writer out;
  out.U8(kPlacesFormat).U64(static_cast<uint64_t>(at)).U32(epoch);
  out.Varint(displaced_blocks).Varint(unused_shards).Varint(unused_bytes).Varint(stripes.size());
  for (const Geometry& each : stripes) {
    out.U8(static_cast<uint8_t>(each.data_shards)).U8(static_cast<uint8_t>(each.parity_shards));
  }
  return out.Take();
}

Result<LastPlaces> LastPlaces::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kPlacesFormat) {
    return Fail(EBADMSG, "where shards were found last: format {} is not known here (known: {})",
                format, kPlacesFormat);
  }
  LastPlaces places;
  places.at = static_cast<int64_t>(in.U64());
  places.epoch = in.U32();
  places.displaced_blocks = in.Varint();
  places.unused_shards = in.Varint();
  places.unused_bytes = in.Varint();
  const uint64_t geometries = in.Varint();
  for (uint64_t i = 0; i < geometries && in.ok(); ++i) {
    const int data = in.U8();
    const Geometry stripes{data, in.U8()};
    if (data == 0 || stripes.shards() > kMaxShards) {
      return Fail(EBADMSG, "where shards were found last: there are no stripes of {}+{}", data,
                  stripes.parity_shards);
    }
    places.stripes.push_back(stripes);
  }
  TRY(in.Finish("where shards were found last"));
  return places;
}

namespace {

template <typename Look>
std::optional<Look> Find(Cluster& cluster, LookKind kind) {
  const auto value = cluster.registers().Read(NameOf(kind));
  if (!value.has_value() || !value->value) return std::nullopt;
  const auto look = Look::Decode(*value->value);
  return look.has_value() ? std::optional(*look) : std::nullopt;
}

Status Note(Cluster& cluster, LookKind kind, const std::string& look) {
  const RegisterValue seen = TRY(cluster.registers().Read(NameOf(kind)));
  return cluster.registers().Change(NameOf(kind), seen, look).why;
}

}  // namespace

std::optional<LastLook> FindLastLook(Cluster& cluster, LookKind kind) {
  return Find<LastLook>(cluster, kind);
}

Status NoteLastLook(Cluster& cluster, LookKind kind, const LastLook& look) {
  return Note(cluster, kind, look.Encode());
}

std::optional<LastPlaces> FindLastPlaces(Cluster& cluster) {
  return Find<LastPlaces>(cluster, LookKind::kPlaces);
}

Status NoteLastPlaces(Cluster& cluster, const LastPlaces& places) {
  return Note(cluster, LookKind::kPlaces, places.Encode());
}

}  // namespace pinstripe
