#include "fs/names/extended.h"

#include <algorithm>
#include <array>

#include "base/try.h"
#include "cluster/registers/store.h"
#include "fs/names/acl.h"

namespace pinstripe {
namespace {

constexpr std::string_view kUser = "user.";

// What an inode has to have left for the intent of a rename, with two long names.
constexpr size_t kIntentBytes = 1024;

Failed NotThere(std::string_view name) {
  return Fail(ENODATA, "there is no extended attribute '{}'", name);
}

auto Find(const ExtendedAttributes& attributes, std::string_view name) {
  return std::ranges::lower_bound(
      attributes, name, {}, [](const auto& entry) -> const std::string& { return entry.first; });
}
auto Find(const Inode& inode, std::string_view name) { return Find(inode.attributes, name); }

bool IsThere(const ExtendedAttributes& attributes, std::string_view name) {
  const auto at = Find(attributes, name);
  return at != attributes.end() && at->first == name;
}
bool IsThere(const Inode& inode, std::string_view name) { return IsThere(inode.attributes, name); }

Status CheckKind(const Inode& inode, std::string_view name) {
  const bool may_have = inode.kind == FileKind::kRegular || inode.kind == FileKind::kDirectory;
  if (may_have || !name.starts_with(kUser)) return {};
  return Fail(EPERM, "'{}': only files and directories have attributes of users", name);
}

void Erase(Inode& inode, std::string_view name) {
  if (IsThere(inode, name)) inode.attributes.erase(Find(inode, name));
}

void Put(Inode& inode, std::string_view name, std::string_view value) {
  Erase(inode, name);
  inode.attributes.emplace(Find(inode, name), name, value);
}

// Puts it, if there is room for it.
Status PutWithinLimits(InodeId id, Inode& inode, std::string_view name, std::string_view value) {
  Inode after = inode;
  Put(after, name, value);
  const size_t bytes = EncodeExtended(after.attributes).size();
  if (bytes > kMaxExtendedBytes) {
    return Fail(
        ENOSPC,
        "with '{}' the extended attributes of inode {:016x} would take {} bytes, at most {} fit",
        name, id, bytes, kMaxExtendedBytes);
  }
  const size_t whole = after.Encode(id).size();
  if (whole > kMaxRegisterBytes - kIntentBytes) {
    return Fail(ENOSPC,
                "with '{}' inode {:016x} would take {} bytes, at most {} fit: the file is in many "
                "pieces; write it anew from its beginning to its end",
                name, id, whole, kMaxRegisterBytes - kIntentBytes);
  }
  inode = std::move(after);
  return {};
}

Status SetAcl(InodeId id, Inode& inode, std::string_view name, const Acl& acl) {
  if (inode.kind == FileKind::kSymlink) return Fail(EOPNOTSUPP, "symbolic links have no ACLs");
  const bool is_default = name == kDefaultAcl;
  if (is_default && !acl.empty() && inode.kind != FileKind::kDirectory) {
    return Fail(EACCES, "only directories have default ACLs");
  }
  if (is_default ? acl.empty() : !SaysMoreThanMode(acl)) {
    Erase(inode, name);
  } else {
    TRY(PutWithinLimits(id, inode, name, EncodeAcl(acl)));
  }
  if (!is_default) inode.mode = ModeOf(acl, inode.mode);
  return {};
}

// How the file is stored as far as it is, and else would be.
FileLayout LayoutOf(const Inode& inode, const ClusterConfig& config) {
  FileLayout layout = inode.layout.value_or(FileLayout::Default(config));
  if (inode.map) layout.striped = inode.map->layout();
  return layout;
}

Failed IsStored() {
  return Fail(ENOTEMPTY,
              "the layout of a file with contents cannot be changed; copy it to a new file in a "
              "directory that has the layout wanted");
}

}  // namespace

Status CheckExtendedName(std::string_view name) {
  constexpr std::array<std::string_view, 3> kSpaces = {kUser, "trusted.", "security."};
  if (name.size() > kMaxExtendedNameBytes) {
    return Fail(ERANGE, "the name of an extended attribute has {} bytes: at most {} are allowed",
                name.size(), kMaxExtendedNameBytes);
  }
  if (name.find('\0') != name.npos) {
    return Fail(EINVAL, "the name of an extended attribute must not have a NUL");
  }
  // A mount's labels are the policy's. To say so, and not that a file has none, spares a question
  // for each file: a program that asks for every file in a listing then stops.
  if (IsAcl(name)) return {};
  if (name == "security.selinux") return Fail(ENOTSUP, "labels of SELinux are not kept");
  for (const std::string_view space : kSpaces) {
    if (!name.starts_with(space)) continue;
    if (name.size() > space.size()) return {};
    return Fail(EINVAL, "the extended attribute '{}' has no name", name);
  }
  return Fail(ENOTSUP, "the extended attribute '{}': its name must begin with {}", name,
              fmt::join(kSpaces, " or "));
}

Result<std::string> GetExtended(const ExtendedAttributes& attributes, std::string_view name) {
  if (!IsThere(attributes, name)) return NotThere(name);
  return Find(attributes, name)->second;
}

Status SetExtended(InodeId id, Inode& inode, std::string_view name, std::string_view value,
                   ExtendedMode mode) {
  using Mode = ExtendedMode;
  if (IsAcl(name)) return SetAcl(id, inode, name, TRY(ParseAcl(value)));
  TRY(CheckKind(inode, name));
  if (value.size() > kMaxExtendedValueBytes) {
    return Fail(E2BIG, "'{}' would have {} bytes: at most {} are allowed", name, value.size(),
                kMaxExtendedValueBytes);
  }
  const bool is_there = IsThere(inode, name);
  if (is_there && mode == Mode::kCreate) {
    return Fail(EEXIST, "there is an extended attribute '{}'", name);
  }
  if (!is_there && mode == Mode::kReplace) return NotThere(name);
  return PutWithinLimits(id, inode, name, value);
}

Status RemoveExtended(InodeId id, Inode& inode, std::string_view name) {
  if (IsAcl(name)) return SetAcl(id, inode, name, {});
  TRY(CheckKind(inode, name));
  if (!IsThere(inode, name)) return NotThere(name);
  Erase(inode, name);
  return {};
}

void InheritAcl(const Inode& directory, uint32_t umask, Inode& inode) {
  if (inode.kind == FileKind::kSymlink) return;
  Acl acl;
  if (IsThere(directory, kDefaultAcl)) {
    acl = ParseAcl(Find(directory, kDefaultAcl)->second).value_or(Acl());
  }
  if (acl.empty()) {
    inode.mode &= ~(umask & 0777);
    return;
  }
  if (inode.kind == FileKind::kDirectory) Put(inode, kDefaultAcl, EncodeAcl(acl));
  acl = InheritAcl(acl, inode.mode);
  inode.mode = ModeOf(acl, inode.mode);
  if (SaysMoreThanMode(acl)) Put(inode, kAccessAcl, EncodeAcl(acl));
}

void TakePermissions(const Inode& from, Inode& inode) {
  inode.mode = from.mode;
  inode.owner = from.owner;
  Erase(inode, kAccessAcl);
  if (IsThere(from, kAccessAcl)) Put(inode, kAccessAcl, Find(from, kAccessAcl)->second);
}

Result<std::string> GetLayout(const Inode& inode, const ClusterConfig& config) {
  if (!CheckKind(inode, kLayoutAttribute).ok()) return NotThere(kLayoutAttribute);
  return LayoutOf(inode, config).Text();
}

Status SetLayout(Inode& inode, std::string_view text, ExtendedMode mode,
                 const ClusterConfig& config) {
  using Mode = ExtendedMode;
  TRY(CheckKind(inode, kLayoutAttribute));
  const FileLayout wanted = TRY(FileLayout::Parse(text, config));
  if (inode.layout && mode == Mode::kCreate) {
    return Fail(EEXIST, "there is an extended attribute '{}'", kLayoutAttribute);
  }
  if (!inode.layout && mode == Mode::kReplace) return NotThere(kLayoutAttribute);
  if (inode.size > 0 && wanted != LayoutOf(inode, config)) return IsStored();
  inode.layout = wanted;
  return {};
}

Status RemoveLayout(Inode& inode) {
  TRY(CheckKind(inode, kLayoutAttribute));
  if (!inode.layout) return NotThere(kLayoutAttribute);
  if (inode.size > 0) return IsStored();
  inode.layout.reset();
  return {};
}

std::vector<std::string> ListExtended(const Inode& inode) {
  std::vector<std::string> names;
  for (const auto& [name, value] : inode.attributes) names.push_back(name);
  if (inode.layout && inode.kind == FileKind::kDirectory) names.emplace_back(kLayoutAttribute);
  return names;
}

}  // namespace pinstripe
