// How far it goes: what a cluster of so many drives costs a client, what a name costs the drives,
// and what a check, a collection, a scrub and a rebuild cost for each file. The code is that of
// cluster/, fs/ and upkeep/; the drives are in memory, and the network is a function call. Prints a
// JSON object for each figure, on a line. bench/run-scale.py calls it and puts them together.
//
// The names of what is measured, and what each wants to know (the functions below say more):
//   map DRIVES, fill DRIVES, open DRIVES, names DRIVES FILES, upkeep DRIVES FILES inline|striped,
//   empty DRIVES, bytes DRIVES MIB, records PORT COUNT, connect PORT COUNT plain|tls
//
// CPU is that of this process. "drives" is what passes in the calls of drives, "client" the rest.

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "base/log.h"
#include "base/real_runtime.h"
#include "base/try.h"
#include "bench/counted_drive.h"
#include "cluster/gather.h"
#include "cluster/map/history.h"
#include "cluster/map/placement.h"
#include "cluster/membership/drive_pulls.h"
#include "cluster/membership/epoch_change.h"
#include "cluster/membership/rebuild.h"
#include "fs/file_system.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/tls.h"
#include "tests/support/test_cluster.h"
#include "upkeep/checker.h"
#include "upkeep/collector.h"
#include "upkeep/repairer.h"

// Memory that this process holds -----------------------------------------------------------------

namespace {

std::atomic<int64_t> bytes_now = 0;
std::atomic<int64_t> most_bytes = 0;
constexpr int64_t kOfAllocator = 8;  // glibc's, of each piece

void* Counted(void* piece) {
  if (piece == nullptr) throw std::bad_alloc();
  const auto bytes = static_cast<int64_t>(malloc_usable_size(piece)) + kOfAllocator;
  const int64_t now = bytes_now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = most_bytes.load(std::memory_order_relaxed);
  while (now > most && !most_bytes.compare_exchange_weak(most, now)) {
  }
  return piece;
}

void Uncounted(void* piece) {
  if (piece == nullptr) return;
  bytes_now.fetch_sub(static_cast<int64_t>(malloc_usable_size(piece)) + kOfAllocator,
                      std::memory_order_relaxed);
  std::free(piece);
}

}  // namespace

void* operator new(size_t bytes) { return Counted(std::malloc(bytes)); }
void operator delete(void* piece) noexcept { Uncounted(piece); }
void operator delete(void* piece, size_t) noexcept { Uncounted(piece); }

namespace pinstripe {
namespace {

constexpr Geometry kStripes = {4, 2};
constexpr uint32_t kSmallShardBytes = 64 << 10;
constexpr size_t kDrivesOfHost = 10;
constexpr uint32_t kDriveGiB = 18'000;

// What is said and measured ----------------------------------------------------------------------

void Say(std::string_view what, std::string_view unit, double value) {
  fmt::print("{{\"what\": \"{}\", \"unit\": \"{}\", \"value\": {:.6g}}}\n", what, unit, value);
  std::fflush(stdout);
}

void Require(const Status& status, std::string_view what) {
  if (status.ok()) return;
  fmt::print(stderr, "scale_bench: {}: {}\n", what, status.message());
  std::exit(1);
}
template <typename T>
T Require(Result<T> result, std::string_view what) {
  Require(result.has_value() ? Status() : result.error(), what);
  return *std::move(result);
}

double Cpu() { return CpuOf(CLOCK_PROCESS_CPUTIME_ID); }

// Seconds of CPU for each of `times` calls: the median of five rounds.
double MedianCpu(int times, const std::function<void(int)>& call) {
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    const double began = Cpu();
    for (int i = 0; i < times; ++i) call(i);
    rounds.push_back((Cpu() - began) / times);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[2];
}

struct Cost {
  double client = 0;  // seconds of CPU
  double drives = 0;
  double requests = 0;
  double bytes = 0;
  double busiest = 0;  // requests to one drive
  double kept = 0;     // bytes of memory
  double most = 0;     // at a time, more than before
};

class Meter {
 public:
  explicit Meter(Traffic& traffic) : traffic_(traffic) {
    for (auto& count : traffic_.of_drive) count = 0;
    begin_ = Now();
    memory_ = bytes_now;
    most_bytes = memory_;
  }
  Cost Read() const {
    Cost cost = Now();
    cost.client -= begin_.client;
    cost.drives -= begin_.drives;
    cost.client -= cost.drives;
    cost.requests -= begin_.requests;
    cost.bytes -= begin_.bytes;
    for (const auto& count : traffic_.of_drive) {
      cost.busiest = std::max(cost.busiest, static_cast<double>(count));
    }
    cost.kept = static_cast<double>(bytes_now - memory_);
    cost.most = static_cast<double>(most_bytes - memory_);
    return cost;
  }

 private:
  Cost Now() const {
    return {.client = Cpu(),
            .drives = 1e-9 * static_cast<double>(traffic_.nanoseconds),
            .requests = static_cast<double>(traffic_.requests),
            .bytes = static_cast<double>(traffic_.bytes)};
  }
  Traffic& traffic_;
  Cost begin_;
  int64_t memory_ = 0;
};

// Drives, and clusters of them -------------------------------------------------------------------

std::string DomainOf(size_t drive, size_t drives) {
  return fmt::format("host-{:04}", drives < kDrivesOfHost * 2 ? drive : drive / kDrivesOfHost);
}

// So many drives in memory with a formatted cluster, and clients of it.
class Machines {
 public:
  explicit Machines(size_t drives, uint32_t replicate_limit = kCellBytes,
                    uint32_t shard_bytes = kSmallShardBytes)
      : traffic_(std::make_shared<Traffic>(drives)),
        machines_(runtime_,
                  {.drives = drives,
                   .layout = {kStripes.data_shards, kStripes.parity_shards, shard_bytes},
                   .groups = EnoughGroups(drives, static_cast<size_t>(kStripes.shards()))}) {
    SetLogLevel(LogLevel::kError);
    ClusterConfig& config = machines_.config();
    config.replicate_limit = replicate_limit;
    config.drive_timeout = std::chrono::minutes(5);
    config.open_timeout = std::chrono::minutes(10);
    for (DriveConfig& drive : config.drives) {
      drive.domain = DomainOf(drive.id, drives);
      machines_.memory(drive.id).SetStarts({{runtime_.Random() | 1, /*clean=*/true}});
    }
  }

  void Format() {
    Require(Cluster::Format(runtime_, machines_.config(), Factory(), {}), "format");
    Require(FileSystem::Format(*Open(), {}, 0755), "make the root");
  }
  std::unique_ptr<Cluster> Open() {
    return Require(Cluster::Open(runtime_, machines_.config(), Factory()), "open");
  }
  DriveFactory Factory() {
    return
        [this, way = machines_.Factory()](const DriveConfig& config, std::string key,
                                          IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
          auto drive = TRY(way(config, std::move(key), std::move(check)));
          return std::make_unique<CountedDrive>(std::move(drive), config.id, traffic_);
        };
  }

  RealRuntime& runtime() { return runtime_; }
  Traffic& traffic() { return *traffic_; }
  TestCluster& test() { return machines_; }

 private:
  RealRuntime runtime_;
  const std::shared_ptr<Traffic> traffic_;
  TestCluster machines_;
};

std::unique_ptr<FileSystem> OpenFiles(Cluster& cluster) {
  return Require(FileSystem::Open(cluster, {}), "open the file system");
}

// The map --------------------------------------------------------------------------------------

DriveMap MapOf(size_t drives) {
  DriveMap map;
  map.epoch = 1;
  map.groups = EnoughGroups(drives, static_cast<size_t>(kStripes.shards()));
  map.replicas = static_cast<uint8_t>(2 * kStripes.parity_shards + 1);
  for (size_t i = 0; i < drives; ++i) {
    map.drives.push_back({static_cast<DriveId>(i + 1), kDriveGiB, DomainOf(i, drives)});
  }
  return map;
}

MappedDrive NewDrive(const DriveMap& map) {
  const size_t drive = map.drives.size();
  return {static_cast<DriveId>(map.drives.back().id + 1), kDriveGiB, DomainOf(drive, drive)};
}

DriveMap WithMore(DriveMap map, size_t more) {
  for (size_t i = 0; i < more; ++i) {
    map = Require(NextEpoch(map, NewDrive(map), kStripes), "another epoch");
  }
  return map;
}

std::vector<DriveId> HomesOf(const DriveMap& map, uint32_t group) {
  auto order = OrderDrives(map, group, static_cast<size_t>(kStripes.shards()),
                           static_cast<size_t>(kStripes.parity_shards));
  order.resize(static_cast<size_t>(kStripes.shards()));
  return order;
}

double FullestOf(const std::vector<uint64_t>& pieces) {  // [0] is no drive
  const auto sum = static_cast<double>(std::accumulate(pieces.begin(), pieces.end(), uint64_t{0}));
  const auto most = static_cast<double>(*std::max_element(pieces.begin(), pieces.end()));
  return most * static_cast<double>(pieces.size() - 1) / sum;
}

// How full the fullest drive is, to the mean. Drives of names are the first homes of a group, in
// the same order, as the rule for domains is the same.
void MeasureEvenness(const DriveMap& map) {
  std::vector<std::vector<DriveId>> homes;
  homes.reserve(map.groups);
  std::vector<uint64_t> data(map.drives.size() + 1);
  std::vector<uint64_t> names(map.drives.size() + 1);
  for (uint32_t group = 0; group < map.groups; ++group) {
    homes.push_back(HomesOf(map, group));
    for (const DriveId drive : homes.back()) ++data[drive];
    for (size_t i = 0; i < map.replicas; ++i) ++names[homes.back()[i]];
  }
  Say("fill: fullest drive to the mean, data of very many files", "ratio", FullestOf(data));
  Say("fill: fullest drive to the mean, very many names", "ratio", FullestOf(names));
  std::fill(data.begin(), data.end(), 0);
  std::fill(names.begin(), names.end(), 0);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const uint64_t object = random();
    for (const DriveId drive : homes[GroupOfStripe(map, object, 0)]) ++data[drive];
    const auto& of_names = homes[GroupOfRegisters(map, object)];
    for (size_t j = 0; j < map.replicas; ++j) ++names[of_names[j]];
  }
  Say("fill: fullest drive to the mean, 10^6 files of a block", "ratio", FullestOf(data));
  Say("fill: fullest drive to the mean, names of 10^6 files", "ratio", FullestOf(names));
}

// The part of all pieces whose home is another one afterwards, from some of the groups.
double PartMoved(const DriveMap& before, const DriveMap& after, uint32_t groups) {
  uint64_t moved = 0;
  for (uint32_t group = 0; group < groups; ++group) {
    const auto old = HomesOf(before, group);
    for (const DriveId drive : HomesOf(after, group)) {
      if (std::find(old.begin(), old.end(), drive) == old.end()) ++moved;
    }
  }
  return static_cast<double>(moved) / groups / kStripes.shards();
}

void MeasureChanges(const DriveMap& map) {
  const size_t drives = map.drives.size();
  const uint32_t groups = drives > 1000 ? 4096 : map.groups;
  if (drives <= 1000) {
    const double began = Cpu();
    const DriveMap one_more = WithMore(map, 1);
    const double changing = Cpu() - began;
    if (map.drives.front().pull != 0) {
      Say("change: CPU to make the epoch that adds a drive", "s", changing);
    }
    Say("change: pieces that move to a new drive, to the least possible", "ratio",
        PartMoved(map, one_more, groups) * static_cast<double>(drives + 1));
    DriveMap one_less = map;
    one_less.drives[drives / 2].state = DriveState::kDraining;
    Say("change: pieces that a drained drive has others get, to the least possible", "ratio",
        PartMoved(map, one_less, groups) * static_cast<double>(drives));
  }
  const size_t more = std::max<size_t>(1, drives / 10);
  const DriveMap larger = WithMore(map, more);
  const double least = static_cast<double>(more) / static_cast<double>(drives + more);
  const double moved = PartMoved(map, larger, groups);
  Say("change: part of all pieces that moves for 10 % more drives", "ratio", moved);
  Say("change: the same, to the least possible", "ratio", moved / least);
  if (drives <= 1000) {
    std::vector<uint64_t> data(larger.drives.size() + 1);
    for (uint32_t group = 0; group < larger.groups; ++group) {
      for (const DriveId drive : HomesOf(larger, group)) ++data[drive];
    }
    Say("fill: fullest drive to the mean, after 10 % more drives", "ratio", FullestOf(data));
  }
}

// Epochs that each add a drive.
std::vector<DriveMap> EpochsFrom(const DriveMap& first, size_t count) {
  std::vector<DriveMap> epochs{first};
  while (epochs.size() < count) {
    DriveMap next = epochs.back();
    ++next.epoch;
    MappedDrive drive = NewDrive(next);
    drive.pull = next.drives.back().pull;
    next.drives.push_back(drive);
    epochs.push_back(std::move(next));
  }
  return epochs;
}

void MeasureHistory(const std::vector<DriveMap>& epochs) {
  const std::string bytes = EncodeHistory(epochs);
  Say("map: bytes of a history of 100 epochs", "bytes", static_cast<double>(bytes.size()));
  size_t in_it = 0;
  Say("map: CPU to decode it", "ms",
      1e3 * MedianCpu(1, [&](int) { in_it = Require(DecodeHistory(bytes), "decode").size(); }));
  Say("map: epochs that have room in it, of 100", "", static_cast<double>(in_it));
}

// With the placements of each epoch, as an open cluster has them.
void MeasureOrders(const std::vector<DriveMap>& epochs, std::string_view after) {
  const int64_t before = bytes_now;
  std::shared_ptr<Placement> placement;
  for (const DriveMap& map : epochs) placement = std::make_shared<Placement>(map, placement);
  Say(fmt::format("client: memory of the map{}", after), "MiB",
      static_cast<double>(bytes_now - before) / (1 << 20));
  uint32_t next = 0;
  const int64_t without = bytes_now;
  const double cold = MedianCpu(20, [&](int) { (void)placement->RegisterHomes(next++); });
  const double each = static_cast<double>(bytes_now - without) / next;
  Say(fmt::format("client: CPU to place in a group for the first time{}", after), "us", 1e6 * cold);
  if (epochs.size() > 1) return;
  const double both = 2.0 * epochs.front().groups;  // stripes have other orders than registers
  Say("client: CPU to place again", "us",
      1e6 * MedianCpu(2000, [&](int i) {
        (void)placement->RegisterHomes(static_cast<uint32_t>(i) % next);
      }));
  Say("client: memory of the orders of all groups", "MiB", each * both / (1 << 20));
  Say("client: CPU for the orders of all groups", "s", cold * both);
}

void MeasureMap(size_t drives) {
  DriveMap map = MapOf(drives);
  Say("map: groups", "", map.groups);
  const double began = Cpu();
  BalanceDrives(map, static_cast<size_t>(kStripes.shards()),
                static_cast<size_t>(kStripes.parity_shards));
  const double balancing = Cpu() - began;
  const bool is_balanced = map.drives.front().pull != 0;
  if (is_balanced) Say("map: CPU to balance it when it is formatted", "s", balancing);
  const std::string bytes = map.Encode();
  Say("map: bytes of an epoch", "bytes", static_cast<double>(bytes.size()));
  Say("map: to the largest register", "ratio",
      static_cast<double>(bytes.size()) / static_cast<double>(kMaxRegisterBytes));
  Say("map: CPU to decode an epoch", "us",
      1e6 * MedianCpu(20, [&](int) { (void)Require(DriveMap::Decode(bytes), "decode"); }));
  const auto epochs = EpochsFrom(map, 100);
  MeasureHistory(epochs);
  MeasureOrders({map}, "");
  MeasureOrders(epochs, ", after 100 epochs");
}

void MeasureFill(size_t drives) {
  DriveMap map = MapOf(drives);
  BalanceDrives(map, static_cast<size_t>(kStripes.shards()),
                static_cast<size_t>(kStripes.parity_shards));
  MeasureEvenness(map);
  MeasureChanges(map);
  if (drives < 80 || drives > 1000) return;
  // The number of groups is that of format, however many drives come later.
  DriveMap grown = MapOf(drives);
  grown.groups = EnoughGroups(drives / 10, static_cast<size_t>(kStripes.shards()));
  BalanceDrives(grown, static_cast<size_t>(kStripes.shards()),
                static_cast<size_t>(kStripes.parity_shards));
  std::vector<uint64_t> data(drives + 1);
  for (uint32_t group = 0; group < grown.groups; ++group) {
    for (const DriveId drive : HomesOf(grown, group)) ++data[drive];
  }
  Say("fill: fullest drive to the mean, with the groups of a tenth of the drives", "ratio",
      FullestOf(data));
}

// Opening ----------------------------------------------------------------------------------------

void MeasureOpen(size_t drives) {
  Machines machines(drives);
  const Meter formatting(machines.traffic());
  machines.Format();
  Say("format: requests", "", formatting.Read().requests);
  const Meter opening(machines.traffic());
  const auto cluster = machines.Open();
  const auto fs = OpenFiles(*cluster);
  const Cost cost = opening.Read();
  Say("open: CPU of the client", "ms", 1e3 * cost.client);
  Say("open: CPU of all drives", "ms", 1e3 * cost.drives);
  Say("open: requests to all drives", "", cost.requests);
  Say("open: requests to the busiest drive", "", cost.busiest);
  Say("open: memory that the client keeps, without connections", "MiB", cost.kept / (1 << 20));
}

// Names ------------------------------------------------------------------------------------------

struct Tree {
  size_t files = 0;
  size_t bytes = 0;  // of each
  static constexpr size_t kFilesOfDirectory = 1000;

  static std::string DirectoryOf(size_t file) {
    return fmt::format("directory-{:06}", file / kFilesOfDirectory);
  }
  static std::string NameOf(size_t file) { return fmt::format("file-{:010}.dat", file); }
  static std::string PathOf(size_t file) {
    return fmt::format("/{}/{}", DirectoryOf(file), NameOf(file));
  }
};

// Several at once, as a gateway does.
void ForEachFile(size_t files, const std::function<void(size_t)>& call) {
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (size_t file = next++; file < files; file = next++) call(file);
    });
  }
}

void MakeDirectories(FileSystem& fs, const Tree& tree) {
  for (size_t file = 0; file < tree.files; file += Tree::kFilesOfDirectory) {
    Require(fs.MakePath("/" + Tree::DirectoryOf(file), 0755, {}), "make a directory");
  }
}

void MakeFiles(FileSystem& fs, const Tree& tree) {
  const std::string contents(tree.bytes, 'x');
  ForEachFile(tree.files, [&](size_t file) {
    auto open = Require(fs.OpenPath({.path = Tree::PathOf(file),
                                     .access = FileSystem::Access::kWrite,
                                     .create = true,
                                     .publish_at_commit = true}),
                        "make a file");
    if (!contents.empty()) Require(open->Write(0, AsBytes(contents)), "write");
    Require(open->Close(), "close");
  });
}

uint64_t RecordsBytes(Machines& machines, std::string_view prefix, uint64_t* records) {
  uint64_t bytes = 0;
  *records = 0;
  for (size_t id = 1; id <= machines.test().size(); ++id) {
    std::string first = ClusterPrefix("test") + std::string(prefix);
    const std::string last = first + std::string(64, '\xff');
    for (bool more = true; more;) {
      Gather<Result<RangeRecords>> gather(machines.runtime());
      machines.test()
          .memory(static_cast<DriveId>(id))
          .ListRecords(first, last, 1000, false, 1 << 20, Time::max(), gather.Ask(0));
      const auto range = Require(std::move(gather.Next(Time::max())->value), "list");
      for (const RangeRecord& each : range.records) {
        bytes += each.key.size() + each.record.version.size() + each.record.value.text().size();
        ++*records;
      }
      more = range.more && !range.records.empty();
      if (more) first = range.records.back().key + '\0';
    }
  }
  return bytes;
}

void SayOfFile(std::string_view what, const Cost& cost, size_t files) {
  const auto each = static_cast<double>(files);
  Say(fmt::format("{}: requests to drives", what), "", cost.requests / each);
  Say(fmt::format("{}: CPU of the client", what), "us", 1e6 * cost.client / each);
}

void MeasureNames(size_t drives, size_t files) {
  Machines machines(drives);
  machines.Format();
  const Tree tree{.files = files};
  uint64_t records_before = 0;
  const uint64_t bytes_before = RecordsBytes(machines, "R", &records_before);
  {
    const auto cluster = machines.Open();
    const auto fs = OpenFiles(*cluster);
    MakeDirectories(*fs, tree);
    const Meter making(machines.traffic());
    MakeFiles(*fs, tree);
    SayOfFile("names: make a file", making.Read(), files);
  }
  uint64_t records = 0;
  const uint64_t bytes = RecordsBytes(machines, "R", &records) - bytes_before;
  records -= records_before;
  Say("names: records on drives for each file", "",
      static_cast<double>(records) / static_cast<double>(files));
  Say("names: bytes of a record, key and version included", "bytes",
      static_cast<double>(bytes) / static_cast<double>(records));
  const auto cluster = machines.Open();
  const auto fs = OpenFiles(*cluster);
  const Meter looking(machines.traffic());
  ForEachFile(files, [&](size_t file) {
    (void)Require(fs->Resolve(Tree::PathOf(file)), "look a file up");
  });
  SayOfFile("names: look a file up", looking.Read(), files);
  const Meter removing(machines.traffic());
  ForEachFile(files, [&](size_t file) {
    const auto place = Require(fs->ResolveParent(Tree::PathOf(file)), "find a directory");
    Require(fs->Unlink(place.directory, place.name), "remove a file");
  });
  SayOfFile("names: remove a file", removing.Read(), files);
}

// Upkeep -----------------------------------------------------------------------------------------

void SayOfUpkeep(std::string_view what, const Cost& cost, const Tree& tree) {
  SayOfFile(what, cost, tree.files);
  const auto each = static_cast<double>(tree.files);
  Say(fmt::format("{}: bytes from drives", what), "bytes", cost.bytes / each);
  Say(fmt::format("{}: memory at most", what), "bytes", cost.most / each);
}

void RequireWhole(const CheckReport& report, uint64_t files) {
  if (report.files == files && report.Count(Severity::kError) == 0 && report.not_checked.empty()) {
    return;
  }
  fmt::print(stderr, "scale_bench: a check found {} of {} files, {} findings\n", report.files,
             files, report.findings.size());
  std::exit(1);
}

// Memory is what it takes until the first shard is written, as the new drive grows from then on.
// Few findings are kept: there is a limit.
Cost Rebuild(Machines& machines, RepairReport* report) {
  constexpr DriveId kLost = 4;
  machines.test().Replace(kLost);
  machines.test().memory(kLost).SetStarts({{machines.runtime().Random() | 1, true}});
  const auto cluster = machines.Open();
  const Meter rebuilding(machines.traffic());
  RebuildOptions options;
  options.forgetting = {};
  (void)Require(RebuildDrive(*cluster, machines.Factory(), kLost, options), "rebuild");
  const int64_t before = bytes_now;
  most_bytes = before;
  std::optional<int64_t> most;
  Repairer repairer(*cluster,
                    {.most_told = 1000, .progress = [&](std::string_view phase, double, uint64_t) {
                       if (phase == "repairing" && !most) most = most_bytes;
                     }});
  *report = repairer.Run();
  Cost cost = rebuilding.Read();
  cost.most = static_cast<double>(most.value_or(most_bytes) - before);
  return cost;
}

void MeasureUpkeep(size_t drives, size_t files, bool striped) {
  constexpr size_t kPage = 4096;  // the least that is cut into shards here: pages are small ones
  Machines machines(drives, kPage);
  machines.Format();
  const Tree tree{.files = files, .bytes = striped ? kStripes.data_shards * kPage : 400};
  {
    const auto cluster = machines.Open();
    const auto fs = OpenFiles(*cluster);
    MakeDirectories(*fs, tree);
    MakeFiles(*fs, tree);
  }
  {
    const auto cluster = machines.Open();
    RequireWhole(Checker(*cluster, {}).Run(), files);  // brings what was on its way to the drives
    const Meter checking(machines.traffic());
    Checker checker(*cluster, {});
    RequireWhole(checker.Run(), files);
    SayOfUpkeep("check", checking.Read(), tree);
  }
  {
    const auto cluster = machines.Open();
    const Meter collecting(machines.traffic());
    Collector collector(*cluster, {.older_than = {}});
    (void)collector.Run();
    SayOfUpkeep("collect", collecting.Read(), tree);
  }
  {
    const auto cluster = machines.Open();
    const Meter scrubbing(machines.traffic());
    Repairer repairer(*cluster, {.read_all = true});
    RequireWhole(repairer.Run().check, files);
    SayOfUpkeep("scrub", scrubbing.Read(), tree);
  }
  RepairReport report;
  const Cost rebuild = Rebuild(machines, &report);
  RequireWhole(report.check, files);
  SayOfUpkeep("rebuild a drive", rebuild, tree);
}

void MeasureEmpty(size_t drives) {
  Machines machines(drives);
  machines.Format();
  const auto cluster = machines.Open();
  const Meter checking(machines.traffic());
  Checker checker(*cluster, {});
  RequireWhole(checker.Run(), 0);
  const Cost cost = checking.Read();
  Say("check without files: requests to drives", "", cost.requests);
  Say("check without files: CPU of the client", "s", cost.client);
  Say("check without files: memory at most", "MiB", cost.most / (1 << 20));
}

void MeasureBytes(size_t drives, size_t mib) {
  Machines machines(drives, kCellBytes, DefaultShardBytes(kStripes.data_shards));
  machines.Format();
  const Tree tree{.files = mib / 16, .bytes = 16 << 20};
  {
    const auto cluster = machines.Open();
    const auto fs = OpenFiles(*cluster);
    MakeDirectories(*fs, tree);
    MakeFiles(*fs, tree);
  }
  {
    const auto cluster = machines.Open();
    const Meter scrubbing(machines.traffic());
    Repairer repairer(*cluster, {.read_all = true});
    const RepairReport& report = repairer.Run();
    Say("scrub: CPU of the client", "s", scrubbing.Read().client);
    Say("scrub: bytes read", "bytes", static_cast<double>(report.bytes_read));
  }
  RepairReport report;
  const Cost cost = Rebuild(machines, &report);
  Say("rebuild a drive: CPU of the client", "s", cost.client);
  Say("rebuild a drive: bytes read", "bytes", static_cast<double>(report.bytes_read));
  Say("rebuild a drive: bytes written", "bytes", static_cast<double>(report.bytes_written));
}

// Connections ------------------------------------------------------------------------------------

double ResidentBytes() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

KineticDrive::Options WayTo(const std::string& port) {
  KineticDrive::Options options;
  options.name = "drive";
  options.addresses = {"127.0.0.1:" + port};
  options.key = "asdfasdf";  // that of a drive which nobody has given keys
  return options;
}

// Registers of names, as far as a drive sees them; the caller watches the drive between the lines.
void PutRecords(const std::string& port, size_t count) {
  constexpr size_t kAtOnce = 64;
  constexpr size_t kValueBytes = 96;
  RealRuntime runtime;
  KineticIo io(runtime);
  KineticDrive drive(io, WayTo(port));
  const auto key_of = [](uint64_t number) {
    return fmt::format("R{:016x}{:016x}", MixBits(number), number);
  };
  const auto value_of = [](uint64_t number) {  // that nothing compresses
    Writer value;
    for (size_t i = 0; i < kValueBytes; i += 8) value.U64(MixBits(number + (i << 32)));
    return value.Take();
  };
  {
    Gather<Status> puts(runtime);
    for (size_t i = 0; i < count + kAtOnce; ++i) {
      if (i >= kAtOnce) Require(puts.Next(Time::max())->value, "put");
      if (i >= count) continue;
      drive.Put({.key = key_of(i),
                 .value = SharedBytes(value_of(i)),
                 .version = fmt::format("{:012}", i)},
                Time::max(), puts.Ask(i));
    }
  }
  Say("puts", "", static_cast<double>(count));
  (void)std::getchar();
  Gather<Result<Record>> gets(runtime);
  std::mt19937_64 random(1);
  for (size_t i = 0; i < count + kAtOnce; ++i) {
    if (i >= kAtOnce) (void)Require(gets.Next(Time::max())->value, "get");
    if (i < count) drive.Get(key_of(random() % count), kSmallRecord, Time::max(), gets.Ask(i));
  }
  Say("gets", "", static_cast<double>(count));
  (void)std::getchar();
}

void Connect(const std::string& port, size_t count, bool tls) {
  SetLogLevel(LogLevel::kError);
  RealRuntime runtime;
  KineticIo io(runtime);
  KineticDrive::Options way = WayTo(port);
  if (tls) way.tls = Require(TlsClient::Create(""), "prepare TLS");
  const int64_t held = bytes_now;
  const double resident = ResidentBytes();
  const double began = Cpu();
  std::vector<std::unique_ptr<KineticDrive>> drives;
  for (size_t i = 0; i < count; ++i) {
    drives.push_back(std::make_unique<KineticDrive>(io, way));
  }
  const auto count_up = [&] {
    return std::count_if(drives.begin(), drives.end(),
                         [](const auto& drive) { return drive->IsUp(); });
  };
  // All of them, or those that are taken: the others are refused, and stay away.
  constexpr int kLooksWithoutChange = 20;
  auto connected = count_up();
  for (int same = 0; connected < std::ssize(drives) && same < kLooksWithoutChange; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (const auto now = count_up(); std::exchange(connected, now) != now) same = 0;
  }
  const auto up = static_cast<double>(connected);
  Say("connections that are up", "", up);
  Say("CPU of the client to connect", "us", 1e6 * (Cpu() - began) / up);
  Say("bytes of the client", "bytes", static_cast<double>(bytes_now - held) / up);
  Say("resident bytes of the client", "bytes", (ResidentBytes() - resident) / up);
  const double idle_since = Cpu();
  while (std::getchar() != EOF) {
  }
  Say("CPU of the idle client, all", "s", Cpu() - idle_since);
}

}  // namespace

int Main(const std::vector<std::string>& words) {
  const auto number = [&](size_t i) { return std::stoul(words.at(i)); };
  if (words.at(0) == "map") {
    MeasureMap(number(1));
  } else if (words[0] == "fill") {
    MeasureFill(number(1));
  } else if (words[0] == "open") {
    MeasureOpen(number(1));
  } else if (words[0] == "names") {
    MeasureNames(number(1), number(2));
  } else if (words[0] == "upkeep") {
    MeasureUpkeep(number(1), number(2), words.at(3) == "striped");
  } else if (words[0] == "empty") {
    MeasureEmpty(number(1));
  } else if (words[0] == "bytes") {
    MeasureBytes(number(1), number(2));
  } else if (words[0] == "records") {
    PutRecords(words.at(1), number(2));
  } else if (words[0] == "connect") {
    Connect(words.at(1), number(2), words.at(3) == "tls");
  } else {
    fmt::print(stderr, "scale_bench: no '{}'\n", words[0]);
    return 2;
  }
  return 0;
}

}  // namespace pinstripe

int main(int count, char** words) {
  if (count < 3) {
    std::fputs(
        "usage: scale_bench map|fill|open|names|upkeep|empty|bytes|records|connect NUMBER...\n",
        stderr);
    return 2;
  }
  return pinstripe::Main({words + 1, words + count});
}
