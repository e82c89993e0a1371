#include "tools/bundle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <set>

#include "base/config.h"
#include "base/file_descriptor.h"
#include "base/toml_text.h"
#include "base/try.h"
#include "tools/site_authority.h"
#include "tools/site_plan.h"

namespace pinstripe {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kEndBlocks = 2;
constexpr size_t kMaxMembers = 100;
constexpr size_t kMaxName = 99;
constexpr size_t kMaxBundle = size_t{64} << 20;
constexpr int kFormat = 1;
constexpr std::string_view kManifest = "manifest.toml";
constexpr std::string_view kManifestSum = "manifest.sha256";

// --- tar, as far as bundles need it: small regular files with short names.

struct Field {
  size_t at;
  size_t size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUser{108, 8}, kGroup{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kMagic{257, 8};

void SetText(std::string& header, Field field, std::string_view text) {
  header.replace(field.at, text.size(), text);
}

void SetOctal(std::string& header, Field field, uint64_t number) {
  SetText(header, field, fmt::format("{:0{}o}", number, field.size - 1));
}

// The sum of a header's bytes, in which its own place counts as blanks.
unsigned SumOf(std::string_view header) {
  unsigned sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool own = i >= kSum.at && i < kSum.at + kSum.size;
    sum += own ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

// As a header has it: digits, a zero and a blank.
std::string SumText(std::string_view header) {
  return fmt::format("{:06o}{} ", SumOf(header), '\0');
}

void AddMember(std::string& tar, std::string_view name, unsigned mode, std::string_view contents) {
  std::string header(kBlock, '\0');
  SetText(header, kName, name);
  SetOctal(header, kMode, mode);
  SetOctal(header, kUser, 0);
  SetOctal(header, kGroup, 0);
  SetOctal(header, kSize, contents.size());
  SetOctal(header, kTime, 0);
  SetText(header, kType, "0");
  SetText(header, kMagic, std::string_view("ustar\00000", 8));
  SetText(header, kSum, SumText(header));
  tar += header;
  tar += contents;
  tar.append((kBlock - contents.size() % kBlock) % kBlock, '\0');
}

std::string_view TextIn(std::string_view header, Field field) {
  const std::string_view whole = header.substr(field.at, field.size);
  return whole.substr(0, std::min(whole.find('\0'), whole.size()));
}

std::optional<uint64_t> OctalIn(std::string_view header, Field field) {
  std::string_view text = TextIn(header, field);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, 8);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

bool IsZero(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return c == '\0'; });
}

using Members = std::vector<std::pair<std::string, std::string_view>>;

Result<Members> ReadTar(std::string_view tar) {
  Members members;
  while (true) {
    if (tar.size() < kBlock) return Fail(EBADMSG, "it is cut off");
    const std::string_view header = tar.substr(0, kBlock);
    if (IsZero(header)) break;
    if (!header.substr(kMagic.at).starts_with("ustar")) return Fail(EBADMSG, "it is not a tar");
    if (header.substr(kSum.at, kSum.size) != SumText(header)) {
      return Fail(EBADMSG, "it is damaged");
    }
    const std::optional<uint64_t> size = OctalIn(header, kSize);
    const std::string_view type = TextIn(header, kType);
    if (!size || (type != "0" && !type.empty())) {
      return Fail(EBADMSG, "it holds something that is not a plain file");
    }
    tar.remove_prefix(kBlock);
    if (*size > tar.size()) return Fail(EBADMSG, "it is cut off");
    members.emplace_back(TextIn(header, kName), tar.substr(0, *size));
    const uint64_t padded = (*size + kBlock - 1) / kBlock * kBlock;
    if (padded > tar.size()) return Fail(EBADMSG, "it is cut off");
    if (!IsZero(tar.substr(*size, padded - *size))) return Fail(EBADMSG, "it is damaged");
    tar.remove_prefix(padded);
    if (members.size() > kMaxMembers) return Fail(EBADMSG, "it holds too many files");
  }
  if (!IsZero(tar)) return Fail(EBADMSG, "something follows its end");
  if (tar.size() != kEndBlocks * kBlock) return Fail(EBADMSG, "it is cut off");
  return members;
}

// --- The manifest

std::string ManifestOf(const Bundle& bundle) {
  TomlText text;
  text.Comment("What is in this bundle, and where `pinstripe join` puts it.");
  text.Table("bundle");
  text.Set("format", kFormat);
  text.Set("site", bundle.site);
  text.Set("host", bundle.host);
  text.Set("version", bundle.version);
  text.Set("made", bundle.made);
  text.Set("generation", bundle.generation);
  text.Set("disks", bundle.disks);
  text.Set("gateway", bundle.gateway);
  text.Set("mounts", bundle.mounts);
  for (const BundleFile& file : bundle.files) {
    text.NewTable("file");
    text.Set("path", file.path);
    text.Set("owner", file.owner);
    text.Set("mode", fmt::format("{:04o}", file.mode));
    text.Set("sha256", Sha256(file.contents));
  }
  return text.Take();
}

struct SiteFile {
  std::string_view path;
  std::string_view owner;
  std::string_view mode;
};
constexpr SiteFile kSiteFiles[] = {
    {"/etc/pinstripe/ca.pem", "root", "0644"},
    {"/etc/pinstripe/cluster.toml", "root", "0644"},
    {"/etc/pinstripe/credentials.toml", "root", "0600"},
    {"/etc/pinstripe/credentials.toml", "xrootd", "0600"},  // of a gateway
    {"/etc/pinstripe/pinstriped.toml", "root", "0644"},
    {"/etc/pinstripe/pinstriped-credentials.toml", "pinstripe", "0600"},
    {"/etc/pinstripe/tls.crt", "root", "0644"},
    {"/etc/pinstripe/tls.key", "pinstripe", "0600"},
    {"/etc/xrootd/xrootd-pinstripe.cfg", "root", "0644"},
    {"/etc/xrootd/pinstripe-tls.crt", "root", "0644"},
    {"/etc/xrootd/pinstripe-tls.key", "xrootd", "0600"},
};

// Whoever joins is root, so a bundle cannot choose at all.
Status CheckPlace(const BundleFile& file, const std::string& mode) {
  const auto known = [&](const SiteFile& one) { return one.path == file.path; };
  if (std::ranges::none_of(kSiteFiles, known)) {
    return Fail(EACCES, "it would write {}, which is no file of a site", file.path);
  }
  const auto owned = [&](const SiteFile& one) { return known(one) && one.owner == file.owner; };
  const auto* const found = std::ranges::find_if(kSiteFiles, owned);
  if (found == std::end(kSiteFiles)) {
    return Fail(EACCES, "it would give {} to the user {}", file.path, file.owner);
  }
  if (found->mode != mode) {
    return Fail(EACCES, "it would give {} the mode {}", file.path, mode);
  }
  return {};
}

Result<Bundle> ReadManifest(std::string_view text) {
  const ConfigFile file = TRY(ConfigFile::Parse(text, std::string(kManifest)));
  ConfigTable root = file.root();
  ConfigTable table = root.Table("bundle");
  const int64_t format = table.Integer("format", std::nullopt, 1, INT64_MAX);
  if (format > kFormat) {
    return Fail(ENOTSUP, "its format is {}, and this program knows {}: install a newer pinstripe",
                format, kFormat);
  }
  Bundle bundle;
  bundle.site = table.Text("site");
  bundle.host = table.Text("host");
  bundle.version = table.Text("version");
  bundle.made = table.Text("made");
  bundle.generation = table.Integer("generation", 0, 0, INT64_MAX);
  bundle.disks = table.Texts("disks");
  bundle.gateway = table.Flag("gateway");
  bundle.mounts = table.Texts("mounts");
  std::vector<ConfigTable> files = root.Tables("file");
  std::map<std::string, std::string> modes;
  for (ConfigTable& one : files) {
    BundleFile listed;
    listed.path = one.Text("path");
    listed.owner = one.Text("owner");
    std::string& mode = modes[listed.path];
    mode = one.Text("mode");
    listed.mode = mode == "0600" ? 0600 : 0644;
    listed.contents = one.Text("sha256");  // until the file itself is found
    bundle.files.push_back(std::move(listed));
  }
  TRY(file.Finish());
  std::set<std::string> paths;
  for (const BundleFile& one : bundle.files) {
    TRY(CheckPlace(one, modes[one.path]));
    if (!paths.insert(one.path).second) return Fail(EBADMSG, "it lists {} twice", one.path);
  }
  for (const auto* directories : {&bundle.disks, &bundle.mounts}) {
    for (const std::string& path : *directories) {
      const std::string why = ComplaintAboutPath(path);
      if (!why.empty()) return Fail(EACCES, "it would use the directory '{}', which {}", path, why);
    }
  }
  return bundle;
}

}  // namespace

std::string PackBundle(const Bundle& bundle) {
  std::string tar;
  const std::string manifest = ManifestOf(bundle);
  AddMember(tar, kManifest, 0644, manifest);
  AddMember(tar, kManifestSum, 0644, fmt::format("{}  {}\n", Sha256(manifest), kManifest));
  for (const BundleFile& file : bundle.files) {
    AddMember(tar, file.path.substr(1), file.mode, file.contents);
  }
  tar.append(kEndBlocks * kBlock, '\0');
  return tar;
}

Result<Bundle> UnpackBundle(std::string_view bytes) {
  const Members members = TRY(ReadTar(bytes));
  if (members.size() < 2 || members[0].first != kManifest || members[1].first != kManifestSum) {
    return Fail(EBADMSG, "it does not begin with a manifest and its checksum");
  }
  if (members[1].second != fmt::format("{}  {}\n", Sha256(members[0].second), kManifest)) {
    return Fail(EBADMSG, "its manifest does not have the checksum that belongs to it");
  }
  Bundle bundle = TRY(ReadManifest(members[0].second));
  std::map<std::string, std::string_view> contents;
  for (const auto& [name, bytes_of_it] : members) contents["/" + name] = bytes_of_it;
  if (contents.size() != bundle.files.size() + 2) {
    return Fail(EBADMSG, "it does not hold the files that its manifest lists");
  }
  for (BundleFile& file : bundle.files) {
    const auto found = contents.find(file.path);
    if (found == contents.end()) return Fail(EBADMSG, "it lacks {}", file.path);
    if (Sha256(found->second) != file.contents) {
      return Fail(EBADMSG, "{} in it does not have the checksum that belongs to it", file.path);
    }
    file.contents = std::string(found->second);
  }
  return bundle;
}

Result<std::string> ReadBundleFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (file.get() < 0 || fstat(file.get(), &about) != 0) {
    const int code = errno;
    return Fail(code, "cannot read {}: {}", path, ErrnoText(code));
  }
  if (!S_ISREG(about.st_mode)) return Fail(EINVAL, "{} is not a file", path);
  const char* sudo = std::getenv("SUDO_UID");
  const bool by_sudo = geteuid() == 0 && sudo != nullptr && fmt::to_string(about.st_uid) == sudo;
  if (about.st_uid != 0 && about.st_uid != geteuid() && !by_sudo) {
    return Fail(EACCES,
                "{} belongs to the user with number {}, and root does what a bundle says. If you "
                "know where it is from, run `chown root {}`",
                path, about.st_uid, path);
  }
  const unsigned mode = about.st_mode & 07777;
  if ((mode & 077) != 0) {
    return Fail(EACCES,
                "{} has mode {:04o}, so others can reach the keys in it: run `chmod 0600 {}`", path,
                mode, path);
  }
  std::string bytes;
  char buffer[65536];
  while (bytes.size() <= kMaxBundle) {
    const ssize_t got = read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int code = errno;
      return Fail(code, "cannot read {}: {}", path, ErrnoText(code));
    }
    if (got == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return Fail(EFBIG, "{} is too large for a bundle", path);
}

}  // namespace pinstripe
