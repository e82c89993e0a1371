#include "cluster/map/features.h"

#include <algorithm>
#include <cassert>

#include "base/coding.h"

namespace pinstripe {
namespace {

// "'quotas' and 'trash'"
std::string QuotedNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += fmt::format("'{}'", names[i]);
  }
  return text;
}

}  // namespace

const KnownFeature* FindFeature(std::string_view name, std::span<const KnownFeature> known) {
  const auto found = std::ranges::find(known, name, &KnownFeature::name);
  return found == known.end() ? nullptr : &*found;
}

bool UsesFeature(const std::vector<Feature>& features, std::string_view name) {
  return std::ranges::find(features, name, &Feature::name) != features.end();
}

Feature NewFeature(std::string_view name) {
  const KnownFeature* const known = FindFeature(name);
  assert(known != nullptr);
  return {.name = std::string(name), .kind = known->kind, .section = ""};
}

std::vector<Feature> FeaturesOfNewCluster(bool names_on_engine) {
  std::vector<Feature> features{NewFeature(kGapsFeature), NewFeature(kGrownDirectoriesFeature)};
  // Pieces of small files lie with their names, and an engine is no place for them.
  if (!names_on_engine) features.insert(features.begin(), NewFeature(kContentsBesideFeature));
  return features;
}

std::vector<Feature> FeaturesToUse(const std::vector<Feature>& used, bool names_on_engine) {
  std::vector<Feature> features = FeaturesOfNewCluster(names_on_engine);
  std::erase_if(features, [&](const Feature& one) { return UsesFeature(used, one.name); });
  return features;
}

Status CheckFeatures(std::string_view cluster, const std::vector<Feature>& features,
                     std::span<const KnownFeature> known) {
  std::vector<std::string> unknown;
  for (const Feature& feature : features) {
    const bool matters = feature.kind == FeatureKind::kMustBeUnderstood;
    if (matters && FindFeature(feature.name, known) == nullptr) unknown.push_back(feature.name);
  }
  if (unknown.empty()) return {};
  return Fail(ENOTSUP,
              "the cluster '{}' uses the feature{} {}, which must be understood, and which this "
              "version of pinstripe does not know: use a newer pinstripe",
              cluster, unknown.size() == 1 ? "" : "s", QuotedNames(unknown));
}

void WriteFeatures(const std::vector<Feature>& features, Writer& out) {
  out.Varint(features.size());
  for (const Feature& feature : features) {
    out.Text(feature.name).U8(static_cast<uint8_t>(feature.kind)).Text(feature.section);
  }
}

Result<std::vector<Feature>> ReadFeatures(Reader& in, std::string_view what) {
  const auto bad = [&](std::string_view reason) { return Fail(EBADMSG, "{}: {}", what, reason); };
  std::vector<Feature> features;
  const uint64_t count = in.Varint();
  if (count > kMaxFeatures) return bad("it names too many features");
  size_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Feature feature;
    feature.name = in.Text();
    feature.kind = static_cast<FeatureKind>(in.U8());
    const std::string_view section = in.Text();
    if (!in.ok()) break;  // the caller says so
    bytes += section.size();
    if (!IsPlainName(feature.name)) return bad("the name of a feature is malformed");
    if (!features.empty() && feature.name <= features.back().name) {
      return bad("the names of its features are not ascending");
    }
    if (feature.kind != FeatureKind::kMustBeUnderstood &&
        feature.kind != FeatureKind::kMayBeIgnored) {
      return bad("whether a feature must be understood is not known here");
    }
    if (section.size() > kMaxSectionBytes || bytes > kMaxSectionsBytes) {
      return bad("the section of a feature is too long");
    }
    feature.section = section;
    features.push_back(std::move(feature));
  }
  return features;
}

bool IsPlainName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxPlainNameBytes && std::ranges::all_of(name, allowed);
}

}  // namespace pinstripe
