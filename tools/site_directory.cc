#include "tools/site_directory.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/private_file.h"
#include "base/read_file.h"
#include "base/try.h"
#include "base/write_file.h"
#include "tools/bundle.h"
#include "tools/draft.h"
#include "tools/file_writing.h"
#include "tools/site_file.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

class Writer {
 public:
  explicit Writer(std::string directory) : directory_(std::move(directory)) {}

  Status Directory(const std::string& name) {
    const std::string path = Path(name);
    if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
    const int code = errno;
    return Fail(code, "cannot make {}: {}", path, ErrnoText(code));
  }
  // With the directories on the way.
  Status File(const std::string& name, std::string_view contents, mode_t mode) {
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      TRY(Directory(name.substr(0, slash)));
    }
    return WriteNewFile(Path(name), contents, mode);
  }
  Status Sync() {
    std::error_code error;
    for (fs::recursive_directory_iterator at(directory_, error), end; !error && at != end;
         at.increment(error)) {
      if (at->is_directory(error)) TRY(MakeNamesDurable(at->path().string()));
    }
    if (error) return Fail(error.value(), "cannot look at {}: {}", directory_, error.message());
    return MakeNamesDurable(directory_);
  }

 private:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  const std::string directory_;
};

Status WriteHost(Writer& writer, const SiteState& state, const SiteHost& host,
                 const SiteStamp& stamp) {
  const std::string own = fmt::format("hosts/{}", host.name);
  const KeyPair& certificate = state.certificates.at(host.name);
  TRY(writer.File(own + "/tls.crt", certificate.certificate, 0644));
  TRY(writer.File(own + "/tls.key", certificate.key, 0600));
  const Bundle bundle = BundleOf(state, host, stamp.version, stamp.made);
  for (const BundleFile& file : bundle.files) {
    TRY(writer.File(own + file.path, file.contents, file.mode));
  }
  return writer.File(fmt::format("{}.tar", host.name), PackBundle(bundle), 0600);
}

Status WriteSite(const std::string& directory, const SiteState& state, const SiteStamp& stamp) {
  Writer writer(directory);
  TRY(writer.File("site.toml", state.description, 0644));
  TRY(writer.File("drives.toml", DrivesText(state.drives), 0644));
  TRY(writer.File("generation.toml", GenerationText(state.generation), 0644));
  TRY(writer.File("keys.toml", KeysText(state.keys), 0600));
  TRY(writer.File("ca.pem", state.authority.certificate, 0644));
  TRY(writer.File("ca.key", state.authority.key, 0600));
  TRY(writer.File("cluster.toml", ClusterText(state.site, state.drives), 0644));
  // Drives believe the new key when their hosts have joined, and the old one until it is dropped.
  TRY(writer.File("credentials.toml", ClientKeysText(KeysUntilDrop(state.keys)), 0600));
  for (const SiteHost& host : state.site.hosts) TRY(WriteHost(writer, state, host, stamp));
  return writer.Sync();
}

// The names of all that `pinstripe init` has made there, directories as well.
std::set<std::string> OwnNames(const std::string& directory, const SiteState& state) {
  std::set<std::string> own = {"site.toml", "drives.toml",  "generation.toml",
                               "keys.toml", "ca.pem",       "ca.key",
                               "hosts",     "cluster.toml", "credentials.toml"};
  for (const SiteHost& host : state.site.hosts) {
    const std::string bundle_name = fmt::format("{}.tar", host.name);
    const std::string place = fmt::format("hosts/{}", host.name);
    own.insert({bundle_name, place + "/tls.crt", place + "/tls.key"});
    const auto add = [&](const Bundle& bundle) {
      for (const BundleFile& file : bundle.files) own.insert(place + file.path);
    };
    add(BundleOf(state, host, "", ""));
    // Another version may have made other files.
    const auto packed = ReadFile(directory + "/" + bundle_name);
    if (!packed.has_value()) continue;
    if (const auto bundle = UnpackBundle(*packed)) add(*bundle);
  }
  for (const std::string& name : std::set<std::string>(own)) {
    for (fs::path above = fs::path(name).parent_path(); !above.empty(); above = above.parent_path())
      own.insert(above.string());
  }
  return own;
}

// The way to the directory without a slash at its end.
std::string Plain(const std::string& path) {
  std::string plain = fs::path(path).lexically_normal().string();
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

Status Rename(const std::string& from, const std::string& to, unsigned how) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), how) != 0) {
    const int code = errno;
    return Fail(code, "cannot put the site into its place, {}: {}", to, ErrnoText(code));
  }
  const std::string parent = fs::path(to).parent_path().string();
  return MakeNamesDurable(parent);
}

}  // namespace

Status MakeSiteDirectory(const std::string& path, const SiteState& state, const SiteStamp& stamp) {
  const std::string place = Plain(path);
  struct stat there {};
  if (lstat(place.c_str(), &there) == 0) {
    return Fail(EEXIST,
                "{} is there already. To go on from a site that was made, say --update; to make "
                "another one, say --directory",
                place);
  }
  Draft draft = TRY(Draft::Make(place + ".new-"));
  TRY(WriteSite(draft.path(), state, stamp));
  TRY(Rename(draft.path(), place, RENAME_NOREPLACE));
  draft.Keep();
  return {};
}

Result<SiteDirectory> SiteDirectory::Open(const std::string& path) {
  // Of a link its target is replaced.
  std::error_code unknown;
  const fs::path real = fs::canonical(path, unknown);
  const std::string place = unknown ? Plain(path) : real.string();
  FileDescriptor lock(open(place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() < 0) {
    const int code = errno;
    return Fail(code, "cannot open the site's directory {}: {} (--directory names another one)",
                place, ErrnoText(code));
  }
  struct stat opened {
  }, named{};
  const bool locked = flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  const bool same = fstat(lock.get(), &opened) == 0 && stat(place.c_str(), &named) == 0 &&
                    opened.st_ino == named.st_ino;
  if (!locked || !same) return Fail(EBUSY, "somebody else is at work on {}", place);
  SiteDirectory directory(place, std::move(lock));
  TRY(directory.Read());
  return directory;
}

Status SiteDirectory::Read() {
  const auto read = [this](const std::string& name) { return ReadFile(path_ + "/" + name); };
  TRY(CheckPrivateFile(path_ + "/keys.toml"));
  TRY(CheckPrivateFile(path_ + "/ca.key"));
  state_.description = TRY(read("site.toml"));
  state_.site = TRY(ParseSite(state_.description, path_ + "/site.toml"));
  state_.drives = TRY(ParseDrives(TRY(read("drives.toml")), path_ + "/drives.toml"));
  state_.keys = TRY(ParseKeys(TRY(read("keys.toml")), path_ + "/keys.toml"));
  state_.generation =
      TRY(ParseGeneration(TRY(read("generation.toml")), path_ + "/generation.toml"));
  state_.authority.certificate = TRY(read("ca.pem"));
  state_.authority.key = TRY(read("ca.key"));
  for (const SiteHost& host : state_.site.hosts) {
    KeyPair pair;
    pair.certificate = TRY(read(fmt::format("hosts/{}/tls.crt", host.name)));
    pair.key = TRY(read(fmt::format("hosts/{}/tls.key", host.name)));
    state_.certificates[host.name] = std::move(pair);
  }
  own_ = OwnNames(path_, state_);
  return {};
}

// What nobody has made here would go with the old directory.
Status SiteDirectory::CheckForForeignFiles() const {
  std::error_code error;
  for (fs::recursive_directory_iterator at(path_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().lexically_relative(path_);
    if (own_.contains(name)) continue;
    return Fail(ENOTEMPTY,
                "{} was not made by `pinstripe init`, and the directory is replaced as a whole: "
                "move it elsewhere first",
                at->path().string());
  }
  if (error) return Fail(error.value(), "cannot look at {}: {}", path_, error.message());
  return {};
}

Status SiteDirectory::Replace(const SiteStamp& stamp) {
  TRY(CheckForForeignFiles());
  ++state_.generation;
  Draft draft = TRY(Draft::Make(path_ + ".new-"));
  TRY(WriteSite(draft.path(), state_, stamp));
  // What was there goes with the draft's name.
  return Rename(draft.path(), path_, RENAME_EXCHANGE);
}

}  // namespace pinstripe
