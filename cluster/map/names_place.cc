#include "cluster/map/names_place.h"

#include <algorithm>
#include <utility>

#include "base/coding.h"

namespace pinstripe {
namespace {

constexpr uint8_t kSectionFormat = 1;

}  // namespace

Result<NamesPlace> ReadNamesPlace(const DriveMap& map) {
  const auto found = std::ranges::find(map.features, kEngineFeature, &Feature::name);
  if (found == map.features.end()) return NamesPlace{};
  Reader in(found->section);
  const uint8_t format = in.U8();
  NamesPlace place;
  place.where = static_cast<NamesPlace::Where>(in.U8());
  place.engine = in.Text();
  place.incarnation = in.U32();
  const bool is_known = format == kSectionFormat && in.Finish("names on an engine").ok() &&
                        place.where >= NamesPlace::Where::kEngine &&
                        place.where <= NamesPlace::Where::kMovingOut && IsPlainName(place.engine);
  if (is_known) return place;
  return Fail(ENOTSUP,
              "the drive map says in a form that this version of pinstripe does not know where "
              "names are kept: use a newer pinstripe");
}

NamesPlace NamesPlaceOf(const DriveMap& map) {
  const Result<NamesPlace> place = ReadNamesPlace(map);
  return place.value_or(NamesPlace{});
}

std::vector<Feature> WithNamesPlace(std::vector<Feature> features, const NamesPlace& place) {
  std::erase_if(features, [](const Feature& each) { return each.name == kEngineFeature; });
  if (!place.NamesEngine()) return features;
  Feature feature = NewFeature(kEngineFeature);
  feature.section = Writer()
                        .U8(kSectionFormat)
                        .U8(static_cast<uint8_t>(place.where))
                        .Text(place.engine)
                        .U32(place.incarnation)
                        .Take();
  features.insert(std::ranges::lower_bound(features, feature.name, {}, &Feature::name), feature);
  return features;
}

std::string TextOfDrive(DriveId id) {
  return id == kEngineDrive ? "the engine of names" : fmt::format("drive {}", id);
}

}  // namespace pinstripe
