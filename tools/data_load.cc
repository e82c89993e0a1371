#include "tools/data_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "base/try.h"
#include "cluster/config.h"
#include "cluster/connect.h"
#include "fs/file_system.h"
#include "tools/process_use.h"

namespace pinstripe {
namespace {

constexpr uint64_t kCell = 64 << 10;
constexpr uint64_t kPiece = 1 << 20;  // of an upload, and of a reading from end to end
// Shards of the last block may have other cells than the file at 64 KiB steps, so random places
// stay clear of its end. No block is larger under the layouts that come by themselves.
constexpr uint64_t kTail = 8 << 20;
constexpr uint64_t kLeastFile = 2 * kTail;
// Like ROOT's TTreeCache: baskets of some branches, in the order of the file, from a stretch of it.
constexpr uint64_t kVectorParts = 100;
constexpr uint64_t kVectorStretch = 8 << 20;
constexpr uint64_t kLeastBasket = 2 << 10;
constexpr uint64_t kMostBasket = 32 << 10;

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

// A fresh host for each pattern, so that no cache knows anything.
struct Host {
  std::unique_ptr<ConnectedCluster> cluster;
  std::unique_ptr<FileSystem> fs;
};
Result<Host> NewHost(Runtime& runtime, const std::string& config) {
  Host host;
  host.cluster = TRY(Connect(runtime, config));
  host.fs = TRY(FileSystem::Open(host.cluster->cluster(), {}));
  return host;
}

class Run {
 public:
  Run(Runtime& runtime, const DataLoad& load, InodeId directory,
      const std::function<void(const DataLoadResult&)>& tell)
      : runtime_(runtime), load_(load), directory_(directory), tell_(tell) {}

  using Pattern = std::function<Status(Run&, const Host&)>;
  static const std::map<std::string, Pattern>& Patterns() {
    static const std::map<std::string, Pattern> patterns = {
        {"read", &Run::ReadAll},
        {"read-1m", [](Run& run, const Host& host) { return run.ReadRandom(host, kPiece); }},
        {"read-64k", [](Run& run, const Host& host) { return run.ReadRandom(host, kCell); }},
        {"read-4k", [](Run& run, const Host& host) { return run.ReadRandom(host, 4096); }},
        {"vector", &Run::ReadVectors},
        {"overwrite-4k", [](Run& run, const Host& host) { return run.Overwrite(host, 4096); }},
        {"small-4k", [](Run& run, const Host& host) { return run.MakeSmallFiles(host, 4096); }}};
    return patterns;
  }

  Status All() {
    piece_.resize(kPiece);
    for (std::byte& byte : piece_) byte = static_cast<std::byte>(random_());
    TRY(Measure("upload", &Run::Upload));
    for (const std::string& pattern : load_.patterns) {
      TRY(Measure(pattern, Patterns().at(pattern)));
    }
    return {};
  }

 private:
  // One operation, timed.
  template <typename Operation>
  Status Timed(uint64_t bytes, Operation operation) {
    const Time begin = runtime_.Now();
    TRY(operation());
    const Duration took = runtime_.Now() - begin;
    microseconds_.push_back(std::chrono::duration<double, std::micro>(took).count());
    result_.bytes += bytes;
    return {};
  }

  Status Upload(const Host& host) {
    const auto file = TRY(host.fs->Create(directory_, "file", {.publish_at_commit = true}));
    for (uint64_t at = 0; at < load_.file_bytes; at += kPiece) {
      const uint64_t length = std::min(kPiece, load_.file_bytes - at);
      TRY(Timed(length, [&] { return file->Write(at, Bytes(piece_).first(length)); }));
    }
    inode_ = file->inode();
    return file->Close();
  }

  Status Read(OpenFile& file, uint64_t at, uint64_t length) {
    Touch(at, length);
    return Timed(length, [&]() -> Status {
      const size_t got = TRY(file.Read(at, MutableBytes(piece_).first(length)));
      if (got == length) return {};
      return Fail(EIO, "{} bytes were read instead of {} at {}", got, length, at);
    });
  }

  Status ReadAll(const Host& host) {
    const auto file = TRY(host.fs->Open(inode_, FileSystem::Access::kRead));
    for (uint64_t at = 0; at < load_.file_bytes; at += kPiece) {
      TRY(Read(*file, at, std::min(kPiece, load_.file_bytes - at)));
    }
    return file->Close();
  }

  // Multiples of `length`, none of them twice, in any order.
  std::vector<uint64_t> Places(uint64_t length) {
    std::vector<uint64_t> places;
    const uint64_t step = std::max(length, kCell);
    for (uint64_t at = 0; at + step + kTail <= load_.file_bytes; at += step) {
      places.push_back(at + random_() % (step / length) * length);
    }
    std::shuffle(places.begin(), places.end(), random_);
    if (places.size() > load_.operations) places.resize(load_.operations);
    return places;
  }

  Status ReadRandom(const Host& host, uint64_t length) {
    const auto file = TRY(host.fs->Open(inode_, FileSystem::Access::kRead));
    for (const uint64_t at : Places(length)) TRY(Read(*file, at, length));
    return file->Close();
  }

  Status ReadVectors(const Host& host) {
    const auto file = TRY(host.fs->Open(inode_, FileSystem::Access::kRead));
    std::vector<std::byte> out(kVectorParts * kMostBasket);
    for (uint64_t start = 0, done = 0;
         start + kVectorStretch + kTail <= load_.file_bytes && done < load_.operations;
         start += kVectorStretch, ++done) {
      std::vector<OpenFile::Part> parts;
      uint64_t bytes = 0;
      constexpr uint64_t kStep = kVectorStretch / kVectorParts;
      for (uint64_t i = 0; i < kVectorParts; ++i) {
        const uint64_t length = kLeastBasket + random_() % (kMostBasket - kLeastBasket);
        const uint64_t at = start + i * kStep + random_() % (kStep - kMostBasket);
        parts.push_back({.offset = at, .out = MutableBytes(out).subspan(bytes, length)});
        Touch(at, length);
        bytes += length;
      }
      TRY(Timed(bytes, [&] { return file->ReadParts(parts); }));
    }
    return file->Close();
  }

  // Each is committed.
  Status Overwrite(const Host& host, uint64_t length) {
    const auto file = TRY(host.fs->Open(inode_, FileSystem::Access::kWrite));
    for (const uint64_t at : Places(length)) {
      TRY(Timed(length, [&]() -> Status {
        TRY(file->Write(at, Bytes(piece_).first(length)));
        return file->Commit();
      }));
    }
    return file->Close();
  }

  Status MakeSmallFiles(const Host& host, uint64_t length) {
    for (uint64_t i = 0; i < load_.operations; ++i) {
      TRY(Timed(length, [&]() -> Status {
        const auto file = TRY(host.fs->Create(directory_, fmt::format("small-{}", i),
                                              {.truncate = true, .publish_at_commit = true}));
        TRY(file->Write(0, Bytes(piece_).first(length)));
        return file->Close();
      }));
    }
    return {};
  }

  void Touch(uint64_t at, uint64_t length) {
    for (uint64_t cell = at / kCell; cell <= (at + length - 1) / kCell; ++cell) {
      if (!cells_.insert(cell).second) continue;
      result_.cell_bytes += std::min(kCell, load_.file_bytes - cell * kCell);
    }
  }

  ProcessUse DaemonsUse() const {
    ProcessUse all;
    for (const pid_t daemon : daemons_) {
      const ProcessUse use = UseOf(daemon).value_or(ProcessUse{});
      all.cpu_seconds += use.cpu_seconds;
      all.written_bytes += use.written_bytes;
    }
    return all;
  }

  Status Measure(const std::string& pattern, const Pattern& body) {
    const Host host = TRY(NewHost(runtime_, load_.config));
    Cluster& cluster = host.cluster->cluster();
    if (daemons_.empty()) {
      for (const DriveConfig& drive : cluster.config().drives) {
        if (const auto daemon = DaemonAt(drive.addresses[0])) daemons_.insert(*daemon);
      }
    }
    result_ = {.pattern = pattern};
    microseconds_.clear();
    cells_.clear();
    const ProcessUse daemons_before = DaemonsUse();
    const StripeCounters stripes_before = cluster.stripes().counters();
    const SocketBytes sockets_before = OwnSocketBytes();
    const double cpu_before = OwnCpuSeconds();
    const Time begin = runtime_.Now();
    TRY(body(*this, host));
    result_.seconds = std::chrono::duration<double>(runtime_.Now() - begin).count();
    result_.client_cpu_seconds = OwnCpuSeconds() - cpu_before;
    const SocketBytes sockets = OwnSocketBytes() - sockets_before;
    const ProcessUse daemons = DaemonsUse() - daemons_before;
    const StripeCounters stripes = cluster.stripes().counters();
    result_.received_bytes = sockets.received;
    result_.sent_bytes = sockets.sent;
    result_.daemons_cpu_seconds = daemons.cpu_seconds;
    result_.daemons_written_bytes = daemons.written_bytes;
    result_.read_requests = stripes.read_requests - stripes_before.read_requests;
    result_.degraded_reads = stripes.degraded_reads - stripes_before.degraded_reads;
    result_.operations = microseconds_.size();
    std::sort(microseconds_.begin(), microseconds_.end());
    result_.p50 = Quantile(microseconds_, 0.5);
    result_.p99 = Quantile(microseconds_, 0.99);
    tell_(result_);
    return {};
  }

  Runtime& runtime_;
  const DataLoad& load_;
  const InodeId directory_;
  const std::function<void(const DataLoadResult&)>& tell_;
  std::mt19937_64 random_{1};  // the same places in every run
  std::vector<std::byte> piece_;
  InodeId inode_ = 0;
  std::set<pid_t> daemons_;  // that run on this machine
  // For the pattern that is measured.
  DataLoadResult result_;
  std::vector<double> microseconds_;
  std::set<uint64_t> cells_;
};

}  // namespace

Status RunDataLoad(Runtime& runtime, const DataLoad& load,
                   const std::function<void(const DataLoadResult&)>& tell) {
  if (load.file_bytes < kLeastFile) {
    return Fail(EINVAL, "a file of {} bytes is too small: {} at least", load.file_bytes,
                kLeastFile);
  }
  for (const std::string& pattern : load.patterns) {
    if (Run::Patterns().contains(pattern)) continue;
    return Fail(EINVAL, "there is no pattern '{}'", pattern);
  }
  const Host host = TRY(NewHost(runtime, load.config));
  FileSystem& fs = *host.fs;
  const std::string name = fmt::format("pinstripe-bench-{:016x}", runtime.Random());
  const InodeId top = TRY(fs.MakeDirectory(kRootInode, name, 0700, {})).inode;
  const Status status = Run(runtime, load, top, tell).All();
  if (!status.ok()) return status.Context(fmt::format("what was made stays in /{}", name));
  while (true) {
    const auto entries = TRY(fs.ReadDirectory(top, "", 1000, /*with_attributes=*/false));
    if (entries.empty()) break;
    for (const DirectoryEntry& entry : entries) TRY(fs.Unlink(top, entry.name));
  }
  return fs.RemoveDirectory(kRootInode, name);
}

}  // namespace pinstripe
