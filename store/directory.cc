#include "store/directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <filesystem>
#include <vector>

#include "base/checksum.h"
#include "base/coding.h"
#include "base/drive_directory.h"
#include "base/try.h"
#include "base/write_file.h"
#include "store/descriptor_reserve.h"
#include "store/drive_mark.h"

namespace pinstripe {
namespace {

constexpr std::string_view kMagic = "pinstripe store\n";
constexpr uint32_t kFormat = 2;
constexpr std::string_view kMarkMagic = "PsDm";
constexpr size_t kMarkBytes = 4 + 8 + 4;  // magic, number, checksum
constexpr char kSuperblockName[] = "/superblock";
constexpr char kLockName[] = "/lock";
constexpr char kErasingName[] = "/erasing";
constexpr char kErasedName[] = "/erased";
constexpr char kMarkName[] = "/durable";
constexpr size_t kMaxSuperblockBytes = 4096;

Failed FailWithErrno(const char* what, const std::string& path) {
  const int error = errno;
  return Fail(error, "{} {}: {}", what, path, ErrnoText(error));
}

// Format and checksum stand where every later format will have them too.
std::string EncodeSuperblock(const DeviceIdentity& identity) {
  Writer writer;
  writer.Raw(kMagic).U32(kFormat).Text(identity.serial_number).Text(identity.world_wide_name);
  writer.U32(Crc32c(AsBytes(writer.bytes())));
  return writer.Take();
}

Result<DeviceIdentity> DecodeSuperblock(std::string_view bytes, const std::string& path) {
  Reader reader(bytes);
  if (reader.Raw(kMagic.size()) != kMagic) {
    return Fail(EBADMSG, "{} is not the superblock of a pinstriped store, or damaged", path);
  }
  const uint32_t format = reader.U32();
  if (format > kFormat) {
    return Fail(
        ENOTSUP,
        "{}: the store has format {}, this program knows up to {}; use the newer pinstriped", path,
        format, kFormat);
  }
  if (format < kFormat) {
    return Fail(
        ENOTSUP,
        "{}: the store has format {}, of a version before the first release; give the drive an "
        "empty directory",
        path, format);
  }
  DeviceIdentity identity;
  identity.serial_number = reader.Text();
  identity.world_wide_name = reader.Text();
  const uint32_t crc = reader.U32();
  TRY_CONTEXT(reader.Finish("superblock"), "{}", path);
  if (crc != Crc32c(AsBytes(bytes.substr(0, bytes.size() - 4)))) {
    return Fail(EBADMSG, "{}: the superblock has a wrong checksum", path);
  }
  return identity;
}

std::string EncodeMark(uint64_t mark) {
  Writer writer;
  writer.Raw(kMarkMagic).U64(mark);
  writer.U32(Crc32c(AsBytes(writer.bytes())));
  return writer.Take();
}

Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0750) == 0 || errno == EEXIST) return {};
  return FailWithErrno("cannot create directory", path);
}

// The first name in a directory that a new store may not be beside.
Result<std::string> StrangeName(const std::string& path) {
  for (std::string& name : TRY(NamesIn(path))) {
    // What a creation that was interrupted has left is ours.
    const bool expected =
        name == "lock" || name == "superblock.new" || name == "durable.new" || name == "index" ||
        name == "segments" || name == "durable" || name == "starts" || name == "starts.new" ||
        name == DriveMark::kFileName || name == std::string(DriveMark::kFileName) + ".new";
    if (!expected) return std::move(name);
  }
  return std::string();
}

// What stays when a store is erased: the device is the same one, and what was erased is being
// removed.
bool OutlivesErase(std::string_view name) {
  return name == "lock" || name == "superblock" || name == "erasing" || name == "erased" ||
         name == DriveMark::kFileName;
}

}  // namespace

std::string RandomHex(size_t bytes) {
  std::array<std::byte, 32> random;
  // Never fails nor falls short up to 256 bytes.
  const ssize_t got = getrandom(random.data(), bytes, 0);
  assert(got == static_cast<ssize_t>(bytes));
  return Hex(Bytes(random).first(static_cast<size_t>(got)));
}

Status SyncDirectory(const std::string& path) {
  const FileDescriptor directory(OpenFile(path, O_RDONLY | O_DIRECTORY));
  if (directory.get() < 0) return FailWithErrno("cannot open", path);
  if (fsync(directory.get()) != 0) return FailWithErrno("cannot sync", path);
  return {};
}

Status ReplaceFileDurably(const std::string& path, std::string_view bytes, mode_t mode) {
  return ReplaceFileDurably(
      path, [&](int) -> Result<std::string> { return std::string(bytes); }, mode);
}

Status ReplaceFileDurably(const std::string& path,
                          const std::function<Result<std::string>(int fd)>& bytes, mode_t mode) {
  const std::string temporary = path + ".new";
  // One that a kill has left may have another mode.
  unlink(temporary.c_str());
  const FileDescriptor file(OpenFile(temporary, O_WRONLY | O_CREAT | O_EXCL, mode));
  if (file.get() < 0) return FailWithErrno("cannot create", temporary);
  const std::string all = TRY(bytes(file.get()));
  TRY(WriteAll(file.get(), temporary, all));
  if (fsync(file.get()) != 0) return FailWithErrno("cannot sync", temporary);
  if (rename(temporary.c_str(), path.c_str()) != 0) return FailWithErrno("cannot create", path);
  const std::string directory = std::filesystem::path(path).parent_path();
  return SyncDirectory(directory.empty() ? "." : directory);
}

Result<StoreDirectory> StoreDirectory::Lock(const std::string& path) {
  const std::string name = path + kLockName;
  FileDescriptor lock(OpenFile(name, O_RDWR | O_CREAT, 0640));
  if (lock.get() < 0) return FailWithErrno("cannot open", name);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FailWithErrno("cannot lock", name);
    return Fail(EBUSY, "another process uses the store in {}", path);
  }
  return StoreDirectory(path, std::move(lock));
}

Result<StoreDirectory> StoreDirectory::Open(const std::string& path,
                                            const std::string& serial_number) {
  TRY(MakeDirectory(path));
  StoreDirectory directory = TRY(Lock(path));
  if (!TRY(directory.ReadSuperblock())) {
    TRY(directory.Create(serial_number));
  } else if (TRY(directory.IsMarkedErased())) {
    TRY(directory.FinishErase());
  }
  if (!serial_number.empty() && directory.identity_.serial_number != serial_number) {
    return Fail(EINVAL, "{} holds the device with serial number \"{}\", not \"{}\"", path,
                directory.identity_.serial_number, serial_number);
  }
  directory.starts_ = TRY(StartsFile::Open(path));
  return directory;
}

Result<bool> StoreDirectory::HasStore(const std::string& path) {
  struct stat unused;
  const std::string name = path + kSuperblockName;
  if (stat(name.c_str(), &unused) == 0) return true;
  if (errno != ENOENT) return FailWithErrno("cannot look at", name);
  return false;
}

Result<StoreDirectory> StoreDirectory::OpenExisting(const std::string& path) {
  struct stat unused;
  const std::string name = path + kSuperblockName;
  if (stat(name.c_str(), &unused) != 0) return FailWithErrno("no store: cannot find", name);
  StoreDirectory directory = TRY(Lock(path));
  if (!TRY(directory.ReadSuperblock())) return Fail(ENOENT, "there is no {}", name);
  if (TRY(directory.IsMarkedErased())) {
    return Fail(EBUSY, "{} was being erased; pinstriped finishes that when it serves it", path);
  }
  return directory;
}

// False when there is none.
Result<bool> StoreDirectory::ReadSuperblock() {
  const std::string name = path_ + kSuperblockName;
  const FileDescriptor file(OpenFile(name, O_RDONLY));
  if (file.get() < 0 && errno == ENOENT) return false;
  if (file.get() < 0) return FailWithErrno("cannot open", name);
  std::array<char, kMaxSuperblockBytes> bytes;
  const ssize_t got = read(file.get(), bytes.data(), bytes.size());
  if (got < 0) return FailWithErrno("cannot read", name);
  identity_ = TRY(DecodeSuperblock({bytes.data(), static_cast<size_t>(got)}, name));
  return true;
}

Result<uint64_t> StoreDirectory::ReadMark() const {
  const std::string name = path_ + kMarkName;
  const FileDescriptor file(OpenFile(name, O_RDONLY));
  if (file.get() < 0 && errno == ENOENT) return 0;
  if (file.get() < 0) return FailWithErrno("cannot open", name);
  std::array<char, kMarkBytes + 1> bytes;
  const ssize_t got = read(file.get(), bytes.data(), bytes.size());
  if (got < 0) return FailWithErrno("cannot read", name);
  const std::string_view text(bytes.data(), static_cast<size_t>(got));
  Reader reader(text);
  const bool right_magic = reader.Raw(kMarkMagic.size()) == kMarkMagic;
  const uint64_t mark = reader.U64();
  const uint32_t crc = reader.U32();
  if (!reader.Finish("mark").ok() || !right_magic ||
      crc != Crc32c(AsBytes(text.substr(0, kMarkBytes - 4)))) {
    return Fail(
        EBADMSG,
        "{} is damaged; it tells whether the index has lost anything. Without it the store can "
        "be opened, and nobody can tell",
        name);
  }
  return mark;
}

Status StoreDirectory::WriteMark(uint64_t mark) {
  const std::string name = path_ + kMarkName;
  if (mark_.get() < 0) {
    // It was removed where it was damaged: see ReadMark().
    mark_ = FileDescriptor(OpenFile(name, O_WRONLY | O_CREAT, 0640));
    if (mark_.get() < 0) return FailWithErrno("cannot open", name);
  }
  const ssize_t written = pwrite(mark_.get(), EncodeMark(mark).data(), kMarkBytes, 0);
  if (written == static_cast<ssize_t>(kMarkBytes)) return {};
  if (written < 0) return FailWithErrno("cannot write", name);
  return Fail(ENOSPC, "cannot write {}: no space", name);
}

// The superblock comes last: a store is whole or not there.
Status StoreDirectory::Create(const std::string& serial_number) {
  const std::string strange = TRY(StrangeName(path_));
  if (!strange.empty()) {
    return Fail(ENOTEMPTY,
                "{} holds no store but \"{}\"; give a drive an empty directory of its own", path_,
                strange);
  }
  identity_.serial_number = serial_number.empty() ? "PS" + RandomHex(8) : serial_number;
  identity_.world_wide_name = "5" + RandomHex(8).substr(1);  // NAA 5, as disks have it
  TRY(MakeLayout());
  return ReplaceFileDurably(path_ + kSuperblockName, EncodeSuperblock(identity_), 0640);
}

Status StoreDirectory::MakeLayout() {
  TRY(MakeDirectory(index_path()));
  TRY(MakeDirectory(segments_path()));
  TRY(StartsFile::Create(path_));
  return ReplaceFileDurably(path_ + kMarkName, EncodeMark(0), 0640);
}

// --- Erasing ------------------------------------------------------------------------------------

Status StoreDirectory::MarkErased(const std::string& path) {
  return ReplaceFileDurably(path + kErasingName, "", 0640);
}

Result<bool> StoreDirectory::IsMarkedErased() const {
  struct stat unused;
  const std::string name = path_ + kErasingName;
  if (stat(name.c_str(), &unused) == 0) return true;
  if (errno != ENOENT) return FailWithErrno("cannot look at", name);
  return false;
}

// The mark goes last. Interrupted anywhere, this is done again: what it has made until then is
// empty, and is put aside as well.
Status StoreDirectory::FinishErase() {
  const std::string erased = path_ + kErasedName;
  TRY(MakeDirectory(erased));
  std::string aside;
  for (int number = 1; aside.empty(); ++number) {
    const std::string name = fmt::format("{}/{}", erased, number);
    if (mkdir(name.c_str(), 0750) == 0) {
      aside = name;
    } else if (errno != EEXIST) {
      return FailWithErrno("cannot create directory", name);
    }
  }
  for (const std::string& name : TRY(NamesIn(path_))) {
    if (OutlivesErase(name)) continue;
    const std::string from = path_ + "/" + name;
    if (rename(from.c_str(), (aside + "/" + name).c_str()) != 0) {
      return FailWithErrno("cannot put aside", from);
    }
  }
  TRY(MakeLayout());
  TRY(SyncDirectory(aside));
  TRY(SyncDirectory(erased));
  TRY(SyncDirectory(path_));
  const std::string mark = path_ + kErasingName;
  if (unlink(mark.c_str()) != 0) return FailWithErrno("cannot remove", mark);
  return SyncDirectory(path_);
}

Result<bool> RemoveErasedFiles(const std::string& path, size_t most) {
  namespace fs = std::filesystem;
  const fs::path erased = path + kErasedName;
  const auto fail = [&](const std::error_code& error) {
    return Fail(error.value(), "cannot remove {}: {}", erased.string(), error.message());
  };
  std::error_code error;
  if (!fs::exists(erased, error)) return false;
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator at(erased, error), end; !error && at != end;
       at.increment(error)) {
    const bool directory = at->is_directory(error) && !at->is_symlink(error);
    if (!directory) files.push_back(at->path());
    if (files.size() == most) break;
  }
  if (error && error != std::errc::no_such_file_or_directory) return fail(error);
  for (const fs::path& file : files) {
    // Another thread may remove the same.
    if (!fs::remove(file, error) && error) return fail(error);
  }
  if (files.size() == most) return true;
  // What another thread removes first is reported as missing, and the rest is left: as long as
  // there is a rest, somebody has removed something, and this ends.
  do {
    fs::remove_all(erased, error);
  } while (error == std::errc::no_such_file_or_directory);
  if (error) return fail(error);
  TRY(SyncDirectory(path));
  return false;
}

}  // namespace pinstripe
