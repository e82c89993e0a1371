// Features: what a cluster uses that some version of this program does not know, by name, as its
// drive map lists it (docs/format.md, "Features"). So something new needs no new format: it adds a
// name here, and a section for what it has to say of itself.
// docs/decisions/0042-features.md has the why.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

class Reader;
class Writer;

enum class FeatureKind : uint8_t {
  kMustBeUnderstood = 1,  // a process that does not know it leaves the cluster alone
  kMayBeIgnored = 2,      // a process that does not know it hands it on as it is
};

struct Feature {
  std::string name;  // a plain name
  FeatureKind kind = FeatureKind::kMustBeUnderstood;
  std::string section;  // its own bytes, into which nobody else looks

  friend bool operator==(const Feature&, const Feature&) = default;
};

// Limits of one map. A feature that has more to say has registers of its own.
inline constexpr size_t kMaxFeatures = 64;
inline constexpr size_t kMaxSectionBytes = 4 << 10;
inline constexpr size_t kMaxSectionsBytes = 8 << 10;  // of all together

struct KnownFeature {
  std::string_view name;
  FeatureKind kind;
  std::string_view what;  // a sentence for people
};

// Small files may be parts of packs (docs/format.md, "Packs").
inline constexpr std::string_view kPacksFeature = "packs";
// Contents of small files may lie beside their inodes (docs/format.md, "Contents beside the
// inode").
inline constexpr std::string_view kContentsBesideFeature = "contents-beside";
// Names are on an engine, or on their way there or back (docs/format.md, "Names on an engine").
inline constexpr std::string_view kEngineFeature = "engine";
// Stripes may leave out what is zeros of their block (docs/format.md, "Gaps of a block").
inline constexpr std::string_view kGapsFeature = "gaps";
// Directories may be spread over groups (docs/format.md, "Directories that grow").
inline constexpr std::string_view kGrownDirectoriesFeature = "grown-directories";

// What this version knows, ascending by name. What every version has had is part of the formats,
// and not a feature.
inline constexpr std::array kKnownFeatures{
    KnownFeature{kContentsBesideFeature, FeatureKind::kMustBeUnderstood,
                 "The contents of small files lie in pieces beside their inodes."},
    KnownFeature{kEngineFeature, FeatureKind::kMustBeUnderstood,
                 "Names are kept on etcd or PostgreSQL, or are being moved."},
    KnownFeature{kGapsFeature, FeatureKind::kMustBeUnderstood,
                 "Holes that are smaller than a block take no space."},
    KnownFeature{kGrownDirectoriesFeature, FeatureKind::kMustBeUnderstood,
                 "The names of very large directories may be spread over all drives."},
    KnownFeature{kPacksFeature, FeatureKind::kMustBeUnderstood,
                 "Small files that have not changed for long may be in packs."},
};

// Null: this version does not know it.
const KnownFeature* FindFeature(std::string_view name,
                                std::span<const KnownFeature> known = kKnownFeatures);

bool UsesFeature(const std::vector<Feature>& features, std::string_view name);
// What a new cluster uses from its first epoch on.
std::vector<Feature> FeaturesOfNewCluster(bool names_on_engine);
// What of these it does not use: what clusters have that earlier versions have formatted.
std::vector<Feature> FeaturesToUse(const std::vector<Feature>& used, bool names_on_engine);
// As a new cluster has it that uses what this version knows of that name.
Feature NewFeature(std::string_view name);

// Whether this version may take part in a cluster that uses these. ENOTSUP: it does not know one
// that must be understood; the sentence names all of these, and the way out.
Status CheckFeatures(std::string_view cluster, const std::vector<Feature>& features,
                     std::span<const KnownFeature> known = kKnownFeatures);

// As a part of `what`. EBADMSG: no such list, or names that are not ascending, or over a limit.
void WriteFeatures(const std::vector<Feature>& features, Writer& out);
Result<std::vector<Feature>> ReadFeatures(Reader& in, std::string_view what);

// Names of clusters and features: 1 to 32 characters of a-z 0-9 - _ .
inline constexpr size_t kMaxPlainNameBytes = 32;
bool IsPlainName(std::string_view name);

}  // namespace pinstripe
