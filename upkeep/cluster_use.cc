#include "upkeep/cluster_use.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "cluster/connect.h"
#include "cluster/gather.h"
#include "kinetic/io.h"
#include "kinetic/kinetic_drive.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

std::string WithoutPort(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// What came of a count since it was last seen; where it was not, all of it.
uint64_t Since(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }

UseRates& operator+=(UseRates& sum, const UseRates& other) {
  sum.requests += other.requests;
  sum.bytes_read += other.bytes_read;
  sum.bytes_written += other.bytes_written;
  return sum;
}

// A drive to be asked, or why it cannot be.
using Asked = Result<KineticDrive*>;

// Has all of them answer: `all` lists those drives, in their order.
void AskAll(Runtime& runtime, const std::vector<Asked>& drives, Duration patience,
            ClusterUse& all) {
  Gather<Result<DriveUse>> answers(runtime);
  const Time deadline = runtime.Now() + patience;
  for (size_t i = 0; i < drives.size(); ++i) {
    if (drives[i].has_value()) {
      (*drives[i])->AskUse(deadline, answers.Ask(i));
    } else {
      all.drives[i].use = tl::unexpected(drives[i].error());
    }
  }
  while (auto answer = answers.Next(deadline)) {
    all.drives[answer->index].use = std::move(answer->value);
  }
  all.when = runtime.Now();
}

ClusterUse::OfDrive Unanswered(DriveId id, const std::string& address) {
  return {.id = id, .address = address, .use = tl::unexpected(Status(ETIMEDOUT, "no answer"))};
}

const DriveUse* ToldBy(const ClusterUse& all, DriveId id) {
  for (const ClusterUse::OfDrive& drive : all.drives) {
    if (drive.id == id && drive.use.has_value()) return &*drive.use;
  }
  return nullptr;
}

const DriveUser* ConnectionOf(const DriveUse* use, uint64_t connection) {
  if (use == nullptr) return nullptr;
  const auto found = std::ranges::find(use->clients, connection, &DriveUser::connection);
  return found == use->clients.end() ? nullptr : &*found;
}

// One that was not there before has done everything since it came, or since then.
UseRates RatesOf(const DriveUser* before, const DriveUser& now, double seconds) {
  static const DriveUser kNothing;
  if (before == nullptr) {
    before = &kNothing;
    seconds = std::max(Seconds(now.connected), seconds);
  }
  if (seconds <= 0) return {};
  const auto rate = [seconds](uint64_t then, uint64_t later) {
    return static_cast<double>(Since(then, later)) / seconds;
  };
  return {.requests = rate(before->requests, now.requests),
          .bytes_read = rate(before->bytes_read, now.bytes_read),
          .bytes_written = rate(before->bytes_written, now.bytes_written)};
}

bool IsThisProcess(const DriveUser& user) {
  return user.process == static_cast<uint32_t>(getpid()) && user.host == HostName() &&
         user.program.name == ThisProgram().name;
}

LatencyCounts TookBy(const DriveUse* use, bool RequestsOfType::*kind) {
  LatencyCounts took;
  if (use == nullptr) return took;
  for (const RequestsOfType& work : use->work) {
    if (work.*kind) took.Add(work.took);
  }
  return took;
}

uint64_t BytesBy(const DriveUse* use, bool RequestsOfType::*kind) {
  uint64_t bytes = 0;
  if (use == nullptr) return bytes;
  for (const RequestsOfType& work : use->work) bytes += work.*kind ? work.bytes : 0;
  return bytes;
}

// About records: that somebody asks who uses a drive is no use of it.
uint64_t RequestsOf(const DriveUse* use) {
  uint64_t requests = 0;
  if (use == nullptr) return requests;
  for (const RequestsOfType& work : use->work) {
    requests += work.is_read || work.is_write ? work.requests : 0;
  }
  return requests;
}

}  // namespace

struct UseWatch::One {
  DriveId id = 0;
  std::string address;
  Result<std::unique_ptr<KineticDrive>> drive;  // or why there is no way to it
};

size_t ClusterUse::Silent() const {
  return std::ranges::count_if(drives, [](const OfDrive& each) { return !each.use.has_value(); });
}

UseWatch::UseWatch(Runtime& runtime, const ClusterConfig& config)
    : runtime_(runtime), timeout_(config.drive_timeout), io_(std::make_unique<KineticIo>(runtime)) {
  for (const DriveConfig& each : config.drives) {
    drives_.push_back({.id = each.id,
                       .address = each.addresses.empty() ? "" : each.addresses.front(),
                       .drive = ConnectDrive(*io_, each, config.drive_timeout)});
  }
}

UseWatch::~UseWatch() = default;

ClusterUse UseWatch::Ask() {
  ClusterUse all;
  std::vector<Asked> asked;
  for (const One& one : drives_) {
    all.drives.push_back(Unanswered(one.id, one.address));
    asked.push_back(one.drive.has_value() ? Asked(one.drive->get())
                                          : tl::unexpected(one.drive.error()));
  }
  AskAll(runtime_, asked, timeout_, all);
  return all;
}

ClusterUse UseOf(ConnectedCluster& connected, const Survey& survey, Duration patience) {
  ClusterUse all;
  std::vector<Asked> asked;
  for (const DriveReport& drive : survey.drives) {
    all.drives.push_back(Unanswered(drive.id, drive.address));
    asked.push_back(connected.FindKinetic(drive.id));
  }
  AskAll(connected.cluster().runtime(), asked, patience, all);
  return all;
}

std::vector<ClientReport> ClientsSince(const ClusterUse& before, const ClusterUse& now) {
  using Key = std::tuple<std::string, std::string, std::string, std::string, uint32_t, std::string>;
  std::map<Key, ClientReport> programs;
  const double seconds = Seconds(now.when - before.when);
  for (const ClusterUse::OfDrive& drive : now.drives) {
    if (!drive.use.has_value()) continue;
    const DriveUse* earlier = ToldBy(before, drive.id);
    for (const DriveUser& user : drive.use->clients) {
      if (IsThisProcess(user)) continue;
      const bool is_named = !user.program.name.empty();
      const std::string address = WithoutPort(user.address);
      ClientReport& report = programs[{user.program.name, user.program.version, user.program.detail,
                                       user.host, user.process, is_named ? "" : address}];
      if (report.connections == 0) {
        report.program = user.program;
        report.host = user.host;
        report.process = user.process;
        report.address = address;
      }
      ++report.connections;
      report.tls_connections += user.tls ? 1 : 0;
      if (user.identity) report.identities.insert(*user.identity);
      report.drives.insert(drive.id);
      report.connected = std::max(report.connected, user.connected);
      report.requests += user.requests;
      report.bytes_read += user.bytes_read;
      report.bytes_written += user.bytes_written;
      report.rates += RatesOf(ConnectionOf(earlier, user.connection), user, seconds);
    }
  }
  std::vector<ClientReport> reports;
  for (auto& [key, report] : programs) reports.push_back(std::move(report));
  std::ranges::stable_sort(reports, std::ranges::greater(),
                           [](const ClientReport& each) { return each.rates.bytes(); });
  return reports;
}

ServiceTimes ServiceOf(const DriveUse& use) {
  return {.counted = use.counted,
          .reads = TookBy(&use, &RequestsOfType::is_read),
          .writes = TookBy(&use, &RequestsOfType::is_write)};
}

std::vector<DriveWorkReport> WorkSince(const ClusterUse& before, const ClusterUse& now) {
  std::vector<DriveWorkReport> reports;
  const double seconds = std::max(Seconds(now.when - before.when), 1e-3);
  for (const ClusterUse::OfDrive& drive : now.drives) {
    DriveWorkReport& report = reports.emplace_back();
    report.id = drive.id;
    report.address = drive.address;
    if (!drive.use.has_value()) {
      report.silent = drive.use.error();
      continue;
    }
    const DriveUse* then = ToldBy(before, drive.id);
    if (then == nullptr) {
      report.silent = Status(EAGAIN, "it begins to tell");
      continue;
    }
    const DriveUse* later = &*drive.use;
    report.connections = std::ranges::count_if(
        later->clients, [](const DriveUser& user) { return !IsThisProcess(user); });
    const auto rate = [seconds](uint64_t from, uint64_t to) {
      return static_cast<double>(Since(from, to)) / seconds;
    };
    report.rates = {.requests = rate(RequestsOf(then), RequestsOf(later)),
                    .bytes_read = rate(BytesBy(then, &RequestsOfType::is_read),
                                       BytesBy(later, &RequestsOfType::is_read)),
                    .bytes_written = rate(BytesBy(then, &RequestsOfType::is_write),
                                          BytesBy(later, &RequestsOfType::is_write))};
    report.reads =
        TookBy(later, &RequestsOfType::is_read).Since(TookBy(then, &RequestsOfType::is_read));
    report.writes =
        TookBy(later, &RequestsOfType::is_write).Since(TookBy(then, &RequestsOfType::is_write));
  }
  return reports;
}

DriveWorkReport WorkOfAll(const std::vector<DriveWorkReport>& drives) {
  DriveWorkReport all;
  all.silent = drives.empty() ? Status(ENODEV, "there are no drives") : drives.front().silent;
  for (const DriveWorkReport& each : drives) {
    if (!each.silent.ok()) continue;
    all.silent = Status();
    all.connections += each.connections;
    all.rates += each.rates;
    all.reads.Add(each.reads);
    all.writes.Add(each.writes);
  }
  return all;
}

}  // namespace pinstripe
