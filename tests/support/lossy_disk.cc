#include "tests/support/lossy_disk.h"

#include <rocksdb/file_system.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

namespace pinstripe {

namespace fs = std::filesystem;

namespace {

std::string ContentsOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  return std::move(contents).str();
}

// Whether a store makes this file through the disk.
bool IsOfStore(const fs::path& file) {
  const fs::path folder = file.parent_path().filename();
  return folder == "index" || folder == "segments";
}

}  // namespace

// ------------------------------------------------------------------------------ RocksDB's view of
// it

class LossyDisk::WritableFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  WritableFile(LossyDisk& disk, std::shared_ptr<Node> node, uint64_t size,
               std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)),
        disk_(disk),
        node_(std::move(node)),
        size_(size) {}

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto appended = target()->Append(data, options, debug);
    if (appended.ok()) {
      node_->unsafe.push_back(Written{size_, data.ToString()});
      size_ += data.size();
    }
    return appended;
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo&,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto truncated = target()->Truncate(size, options, debug);
    if (truncated.ok()) {
      node_->unsafe.push_back(Cut{size});
      size_ = size;
    }
    return truncated;
  }
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto synced = target()->Flush(options, debug);  // safe is what is known here
    if (synced.ok() && !disk_.lies_) MakeSafe(*node_);
    return synced;
  }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override {
    return Sync(options, debug);
  }

 private:
  LossyDisk& disk_;
  const std::shared_ptr<Node> node_;
  uint64_t size_;
};

class LossyDisk::Directory final : public rocksdb::FSDirectoryWrapper {
 public:
  Directory(LossyDisk& disk, std::unique_ptr<rocksdb::FSDirectory> directory)
      : FSDirectoryWrapper(std::move(directory)), disk_(disk) {}

  rocksdb::IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override {
    const std::lock_guard lock(disk_.mutex_);
    disk_.MakeNamesSafe();
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options,
                                        rocksdb::IODebugContext* debug,
                                        const rocksdb::DirFsyncOptions&) override {
    return Fsync(options, debug);
  }

 private:
  LossyDisk& disk_;
};

class LossyDisk::FileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit FileSystem(LossyDisk& disk)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), disk_(disk) {}
  const char* Name() const override { return "LossyDisk"; }

  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto made = target()->NewWritableFile(path, options, file, debug);
    if (!made.ok()) return made;
    const auto node = std::make_shared<Node>();
    disk_.Rename("", path, node);
    *file = std::make_unique<WritableFile>(disk_, node, 0, std::move(*file));
    return made;
  }
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto opened = target()->ReopenWritableFile(path, options, file, debug);
    if (!opened.ok()) return opened;
    std::shared_ptr<Node>& node = disk_.names_[path];
    if (node == nullptr) disk_.Rename("", path, std::make_shared<Node>());
    *file = std::make_unique<WritableFile>(disk_, disk_.names_[path], fs::file_size(path),
                                           std::move(*file));
    return opened;
  }
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto deleted = target()->DeleteFile(path, options, debug);
    if (deleted.ok()) disk_.Rename(path, "", nullptr);
    return deleted;
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto renamed = target()->RenameFile(from, to, options, debug);
    const auto found = disk_.names_.find(from);
    if (renamed.ok() && found != disk_.names_.end()) disk_.Rename(from, to, found->second);
    return renamed;
  }
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* debug) override {
    const auto opened = target()->NewDirectory(path, options, directory, debug);
    if (opened.ok()) *directory = std::make_unique<Directory>(disk_, std::move(*directory));
    return opened;
  }

 private:
  LossyDisk& disk_;
};

// ---------------------------------------------------------------------------------------- the disk

LossyDisk::LossyDisk(std::string directory, bool lies)
    : directory_(std::move(directory)),
      lies_(lies),
      env_(rocksdb::NewCompositeEnv(std::make_shared<FileSystem>(*this))) {
  if (!fs::exists(directory_)) return;
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    if (!entry.is_regular_file() || !IsOfStore(entry.path())) continue;
    auto node = std::make_shared<Node>();
    node->safe = ContentsOf(entry.path());
    names_[entry.path()] = std::move(node);
  }
  safe_names_ = names_;
}

LossyDisk::~LossyDisk() = default;

void LossyDisk::Apply(const Change& change, std::string& contents) {
  if (const auto* written = std::get_if<Written>(&change)) {
    const size_t end = written->offset + written->bytes.size();
    if (contents.size() < end) contents.resize(end);
    contents.replace(written->offset, written->bytes.size(), written->bytes);
  } else if (const auto* cut = std::get_if<Cut>(&change)) {
    contents.resize(cut->size);
  } else {
    const auto& [begin, end] = std::get<Punched>(change);
    for (size_t i = begin; i < std::min<size_t>(end, contents.size()); ++i) contents[i] = '\0';
  }
}

void LossyDisk::Apply(const NameChange& change, Names& names) {
  if (!change.gone.empty()) names.erase(change.gone);
  if (!change.come.empty()) names[change.come] = change.node;
}

void LossyDisk::MakeSafe(Node& node) {
  for (const Change& change : node.unsafe) Apply(change, node.safe);
  node.unsafe.clear();
}

void LossyDisk::Rename(const std::string& gone, const std::string& come,
                       std::shared_ptr<Node> node) {
  unsafe_names_.push_back({gone, come, std::move(node)});
  Apply(unsafe_names_.back(), names_);
}

void LossyDisk::MakeNamesSafe() {
  if (lies_) return;
  for (const NameChange& change : unsafe_names_) Apply(change, safe_names_);
  unsafe_names_.clear();
}

std::shared_ptr<LossyDisk::Node> LossyDisk::NodeOf(int fd) { return open_.at(fd); }

int LossyDisk::Create(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int fd = FileCalls::Create(path);
  if (fd < 0) return fd;
  open_[fd] = std::make_shared<Node>();
  Rename("", path, open_[fd]);
  return fd;
}

int LossyDisk::Open(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int fd = FileCalls::Open(path);
  if (fd >= 0) open_[fd] = names_.at(path);
  return fd;
}

int LossyDisk::Unlink(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const int failed = FileCalls::Unlink(path);
  if (failed == 0) Rename(path, "", nullptr);
  return failed;
}

ssize_t LossyDisk::Write(int fd, const iovec* pieces, int count, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const ssize_t wrote = FileCalls::Write(fd, pieces, count, offset);
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
  }
  if (wrote > 0) {
    bytes.resize(static_cast<size_t>(wrote));
    NodeOf(fd)->unsafe.push_back(Written{offset, std::move(bytes)});
  }
  return wrote;
}

int LossyDisk::Truncate(int fd, uint64_t size) {
  const std::lock_guard lock(mutex_);
  const int failed = FileCalls::Truncate(fd, size);
  if (failed == 0) NodeOf(fd)->unsafe.push_back(Cut{size});
  return failed;
}

int LossyDisk::Punch(int fd, uint64_t begin, uint64_t end) {
  const std::lock_guard lock(mutex_);
  const int failed = FileCalls::Punch(fd, begin, end);
  if (failed == 0) NodeOf(fd)->unsafe.push_back(Punched{begin, end});
  return failed;
}

int LossyDisk::Sync(int fd) {
  const std::lock_guard lock(mutex_);
  if (!lies_) MakeSafe(*NodeOf(fd));
  return 0;
}

Status LossyDisk::SyncDirectory(const std::string&) {
  const std::lock_guard lock(mutex_);
  MakeNamesSafe();
  return {};
}

int LossyDisk::SyncFileSystem(int) {
  const std::lock_guard lock(mutex_);
  if (lies_) return 0;
  MakeNamesSafe();
  for (const auto& [path, node] : names_) MakeSafe(*node);
  return 0;
}

void LossyDisk::TakeImage(const std::string& target, uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  WriteImage(target, seed);
}

void LossyDisk::FailPower(const std::string& target, uint64_t seed) const {
  std::unique_lock lock(mutex_);
  lock.release();
  WriteImage(target, seed);
  std::vector<fs::path> folders;
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    if (IsOfStore(entry.path() / "file")) folders.push_back(entry.path());
  }
  for (const fs::path& folder : folders) {
    fs::remove_all(folder);
    fs::rename(target / fs::relative(folder, directory_), folder);
  }
  fs::remove_all(target);
}

void LossyDisk::WriteImage(const std::string& target, uint64_t seed) const {
  std::mt19937_64 random(seed);
  const auto chance = [&](double p) {
    return std::uniform_real_distribution<double>()(random) < p;
  };
  fs::create_directories(target);
  for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
    const fs::path copy = target / fs::relative(entry.path(), directory_);
    if (entry.is_directory()) {
      fs::create_directories(copy);
    } else if (!IsOfStore(entry.path())) {
      fs::copy_file(entry.path(), copy);
    }
  }
  Names names = safe_names_;
  const size_t kept_names = random() % (unsafe_names_.size() + 1);
  for (size_t i = 0; i < kept_names; ++i) Apply(unsafe_names_[i], names);
  // Some disks had written nearly everything, others nearly nothing.
  const double luck = std::array{0.0, 0.5, 0.9, 1.0}[random() % 4];
  for (const auto& [path, node] : names) {
    std::string contents = node->safe;
    for (const Change& change : node->unsafe) {
      if (!chance(luck)) continue;
      const auto* written = std::get_if<Written>(&change);
      if (written != nullptr && written->bytes.size() > 1 && chance(0.1)) {
        Apply(Written{written->offset, written->bytes.substr(0, random() % written->bytes.size())},
              contents);
      } else {
        Apply(change, contents);
      }
    }
    std::ofstream(target / fs::relative(path, directory_), std::ios::binary) << contents;
  }
}

}  // namespace pinstripe
