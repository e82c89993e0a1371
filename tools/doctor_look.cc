#include "tools/doctor_look.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>

#include "base/config.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/private_file.h"
#include "base/read_file.h"
#include "base/try.h"
#include "cluster/ask_drives.h"
#include "cluster/connect.h"
#include "cluster/connecting.h"
#include "kinetic/io.h"
#include "kinetic/tls.h"
#include "redis/address.h"
#include "tools/config_text.h"
#include "tools/package_sample.h"
#include "tools/run_program.h"
#include "tools/site_authority.h"

namespace pinstripe {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPatience = std::chrono::seconds(5);
constexpr int kAnswers = 5;
constexpr size_t kDrivesAtOnce = 4;

// --- Drives

struct Addresses {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list{nullptr, &freeaddrinfo};
  Status status;
};

Addresses Resolve(const std::string& address) {
  Addresses found;
  const Result<HostAndPort> host = ParseAnyDriveAddress(address);
  if (!host) {
    found.status = host.error();
    return found;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = getaddrinfo(host->host.c_str(), host->port.c_str(), &hints, &list);
  found.list.reset(list);
  if (failed != 0) {
    found.status =
        Fail(EHOSTUNREACH, "the name {} leads nowhere: {}", host->host, gai_strerror(failed));
  }
  return found;
}

// Until the socket can be read or written. False: the time is over.
bool WaitFor(Runtime& runtime, int socket, short events, const TimeLimit& limit) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(limit.time() - runtime.Now());
  pollfd wait{.fd = socket, .events = events, .revents = 0};
  return poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) > 0;
}

// What a connection of its own tells: the certificate, and how large packets may be.
void LookAtConnection(Runtime& runtime, const DriveConfig& drive, const addrinfo& to,
                      DriveSight& sight) {
  const FileDescriptor socket(
      ::socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return;
  const TimeLimit limit(runtime, kPatience);
  const bool begun = connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0 || errno == EINPROGRESS;
  if (!begun || !WaitFor(runtime, socket.get(), POLLOUT, limit)) return;
  tcp_info about{};
  socklen_t size = sizeof about;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &about, &size) == 0 &&
      about.tcpi_state == TCP_ESTABLISHED) {
    sight.path_mtu = static_cast<int>(about.tcpi_pmtu);
  }
  if (!drive.tls) return;
  // Whoever it is: the drive's own connection has told whether the certificate is believed.
  const auto client = TlsClient::Create("");
  const auto host = ParseAnyDriveAddress(drive.addresses.front());
  if (!client || !host) return;
  const auto stream = (*client)->Connect(socket.get(), host->host);
  if (!stream) return;
  for (;;) {
    const Result<TlsStream::Step> step = (*stream)->Handshake();
    if (!step) return;
    if (*step == TlsStream::Step::kDone) break;
    const short events = *step == TlsStream::Step::kWantsRead ? POLLIN : POLLOUT;
    if (!WaitFor(runtime, socket.get(), events, limit)) return;
  }
  sight.certificate_end = (*stream)->EndOfPeersCertificate();
  (*stream)->SayGoodbye();
}

// Asks all drives once, and remembers how long each answer took.
template <typename T>
class TimedRound {
 public:
  using Ask = std::function<void(Drive&, Time, Callback<T>)>;

  struct Answer {
    Result<T> result;
    Duration time;
  };

  static std::map<DriveId, Answer> Run(Runtime& runtime, const DriveSet& drives, const Ask& ask) {
    struct Times {
      Mutex mutex;
      std::map<const Drive*, Duration> of_drive GUARDED_BY(mutex);
    };
    const auto times = std::make_shared<Times>();
    auto answers = AskDrives<T>::Run(
        runtime, drives,
        {.ask =
             [&](Drive& drive, Time deadline, Callback<T> done) {
               const Time begin = runtime.Now();
               ask(drive, deadline, [&runtime, times, begin, one = &drive, done](Result<T> answer) {
                 {
                   const MutexLock lock(times->mutex);
                   times->of_drive[one] = runtime.Now() - begin;
                 }
                 done(std::move(answer));
               });
             },
         .timeout = kPatience,
         .deadline = runtime.Now() + kPatience});
    std::map<DriveId, Answer> timed;
    const MutexLock lock(times->mutex);
    for (auto& [id, answer] : answers) {
      timed.insert_or_assign(id, Answer{std::move(answer), times->of_drive[drives.at(id).get()]});
    }
    return timed;
  }
};

void MeasureAnswers(Runtime& runtime, const DriveSet& drives, const std::string& key,
                    std::map<DriveId, DriveSight*>& sights) {
  std::map<DriveId, std::vector<Duration>> times;
  for (int i = 0; i < kAnswers; ++i) {
    const auto answers = TimedRound<RecordHead>::Run(
        runtime, drives, [&key](Drive& drive, Time deadline, Callback<RecordHead> done) {
          drive.Head(key, deadline, std::move(done));
        });
    for (const auto& [id, answer] : answers) {
      const bool answered = answer.result.has_value() || answer.result.error().code() == ENOENT;
      if (answered) times[id].push_back(answer.time);
    }
  }
  for (auto& [id, all] : times) {
    std::ranges::nth_element(all, all.begin() + static_cast<ptrdiff_t>(all.size() / 2));
    sights.at(id)->answer_time = all[all.size() / 2];
  }
}

// What a drive does not know of a callback's kind: a Status as a Result.
struct Done {};
StatusCallback Plain(Callback<Done> done) {
  return [done = std::move(done)](const Status& status) {
    if (status.ok()) {
      done(Done());
    } else {
      done(tl::unexpected(status));
    }
  };
}

void RemoveRecords(Runtime& runtime, const DriveSet& drives, const std::string& key) {
  TimedRound<Done>::Run(runtime, drives, [&](Drive& drive, Time deadline, Callback<Done> done) {
    drive.Delete(key, Expected::Any(), Durability::kWriteBack, deadline, Plain(std::move(done)));
  });
}

void MeasureSomeTransfers(Runtime& runtime, const DriveSet& drives, const std::string& key,
                          std::map<DriveId, DriveSight*>& sights) {
  Buffer buffer(kMaxValueBytes);
  for (size_t i = 0; i < buffer.size(); i += sizeof(uint64_t)) {
    const uint64_t chance = runtime.Random();
    std::memcpy(buffer.data() + i, &chance, sizeof chance);
  }
  const SharedBytes value(std::move(buffer));
  const auto time_of = [](const auto& answer) {
    return answer.result.has_value() ? Result<Duration>(answer.time)
                                     : tl::unexpected(answer.result.error());
  };
  const auto written =
      TimedRound<Done>::Run(runtime, drives, [&](Drive& drive, Time deadline, Callback<Done> done) {
        drive.Put(
            {.key = key, .value = value, .version = "1", .durability = Durability::kWriteThrough},
            deadline, Plain(std::move(done)));
      });
  for (const auto& [id, answer] : written) sights.at(id)->write_time = time_of(answer);
  const auto read = TimedRound<Record>::Run(
      runtime, drives, [&](Drive& drive, Time deadline, Callback<Record> done) {
        drive.Get(key, {}, deadline, std::move(done));
      });
  for (const auto& [id, answer] : read) {
    if (written.at(id).result.has_value()) sights.at(id)->read_time = time_of(answer);
  }
  RemoveRecords(runtime, drives, key);
}

// Of a few drives at a time, so that the network of this host is not what is measured.
void MeasureTransfers(Runtime& runtime, DriveSet& drives, const std::string& key,
                      std::map<DriveId, DriveSight*>& sights) {
  DriveSet measured;
  while (!drives.empty()) {
    DriveSet some;
    while (!drives.empty() && some.size() < kDrivesAtOnce) {
      some.insert(drives.extract(drives.begin()));
    }
    MeasureSomeTransfers(runtime, some, key, sights);
    measured.merge(some);
  }
  drives = std::move(measured);
  // What was given up may have been stored after all.
  RemoveRecords(runtime, drives, key);
}

// --- This host

std::optional<bool> ClockIsSet() {
  timex state{};
  const int answer = adjtimex(&state);
  if (answer < 0) return std::nullopt;
  return answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

CertificateSight LookAtCertificate(const std::string& file, const std::string& pem) {
  CertificateSight sight{.file = file};
  const Result<Validity> validity = ValidityOf(pem);
  if (!validity) {
    sight.readable = validity.error();
    return sight;
  }
  sight.from = validity->from;
  sight.until = validity->until;
  return sight;
}

// Each certificate of a file by itself, so that the first that ends is told.
void AddCertificates(const std::string& file, const std::string& text, HostSight& host) {
  const std::vector<std::string> certificates = CertificatesIn(text);
  if (certificates.empty()) host.certificates.push_back(LookAtCertificate(file, text));
  for (size_t i = 0; i < certificates.size(); ++i) {
    const std::string name =
        certificates.size() == 1 ? file : fmt::format("{} (certificate {})", file, i + 1);
    host.certificates.push_back(LookAtCertificate(name, certificates[i]));
  }
}

// The running programs of that name.
std::vector<std::string> ProcessesNamed(std::string_view name) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    std::ifstream file(at->path() / "comm");
    std::string comm;
    if (std::getline(file, comm) && comm == name) found.push_back(at->path());
  }
  return found;
}

std::optional<uint64_t> DescriptorsOf(const std::string& process) {
  std::ifstream limits(process + "/limits");
  for (std::string line; std::getline(limits, line);) {
    uint64_t soft = 0;
    if (std::sscanf(line.c_str(), "Max open files %lu", &soft) == 1) return soft;
  }
  return std::nullopt;
}

void LookAtGateways(HostSight& host) {
  for (const std::string& process : ProcessesNamed("xrootd")) {
    std::ifstream maps(process + "/maps");
    bool is_ours = false;
    bool is_fast = false;
    for (std::string line; std::getline(maps, line);) {
      is_ours = is_ours || line.find("libXrdOssPinstripe") != std::string::npos;
      is_fast = is_fast || line.find("libPinstripeCrc32c") != std::string::npos;
    }
    if (!is_ours) continue;
    ++host.gateways;
    if (!is_fast) ++host.gateways_with_slow_checksums;
  }
}

void LookAtCertificate(const std::string& path, HostSight& host) {
  const Result<std::string> certificate = ReadFile(path);
  if (certificate) {
    AddCertificates(path, *certificate, host);
  } else {
    host.certificates.push_back({.file = path, .readable = certificate.error()});
  }
}

// What `pinstripe join` gives a gateway, beside the directory of the configuration.
void LookAtFilesOfGateway(const std::string& config_file, HostSight& host) {
  const fs::path directory = fs::absolute(config_file).parent_path().parent_path() / "xrootd";
  const auto file = [&](const char* name) {
    const fs::path path = directory / name;
    std::error_code error;
    return fs::exists(path, error) ? path.string() : "";
  };
  if (const std::string path = file("pinstripe-tls.crt"); !path.empty()) {
    LookAtCertificate(path, host);
  }
  if (const std::string path = file("pinstripe-tls.key"); !path.empty()) {
    host.private_files.push_back(CheckPrivateFile(path));
  }
}

void LookAtDaemon(Runtime& runtime, const std::string& config_file, HostSight& host) {
  const fs::path directory = fs::path(config_file).parent_path();
  const std::string daemon_file = (directory / "pinstriped.toml").string();
  const Result<std::string> text = ReadFile(daemon_file);
  if (!text && text.error().code() != ENOENT) host.daemon_file = text.error();
  // No drives here, or none yet.
  if (!text || IsPackageSample("", "pinstriped.toml", *text)) return;
  const Result<ConfigFile> file = ConfigFile::Parse(*text, daemon_file);
  if (!file) {
    host.daemon_file = file.error();
    return;
  }
  ConfigTable daemon = file->root().Table("daemon");
  const auto beside = [&](const char* key) {
    const std::string path = daemon.Text(key, "");
    return path.empty() ? path : (directory / path).string();
  };
  for (const char* key : {"credentials", "tls_key"}) {
    const std::string path = beside(key);
    if (!path.empty()) host.private_files.push_back(CheckPrivateFile(path));
  }
  if (const std::string path = beside("tls_certificate"); !path.empty()) {
    LookAtCertificate(path, host);
  }
  for (ConfigTable& drive : file->root().Tables("drive")) {
    const std::string path = (directory / drive.Text("path")).string();
    host.disks.push_back(ReadDisk(runtime, path, path));
  }
  for (const std::string& process : ProcessesNamed("pinstriped")) {
    const std::optional<uint64_t> descriptors = DescriptorsOf(process);
    if (descriptors)
      host.descriptors = std::min(*descriptors, host.descriptors.value_or(*descriptors));
  }
}

void AskSmart(Runtime& runtime, HostSight& host) {
  std::set<std::string> devices;
  for (const DiskReading& disk : host.disks) {
    for (const std::string& device : disk.disks) {
      std::error_code error;
      if (fs::exists("/dev/" + device, error)) devices.insert(device);
    }
  }
  for (const std::string& device : devices) {
    const Result<ProgramOutcome> outcome =
        RunProgram(runtime, {"smartctl", "-H", "-n", "standby", "/dev/" + device}, kPatience);
    if (!outcome && outcome.error().code() == ENOENT) return;
    host.has_smartctl = true;
    host.smart.push_back({.device = device, .exit_code = outcome ? outcome->exit_code : 2});
  }
}

}  // namespace

Result<std::vector<DriveSight>> LookAtDrives(Runtime& runtime, const ClusterConfig& config,
                                             bool quick) {
  std::vector<DriveSight> sights(config.drives.size());
  std::map<DriveId, DriveSight*> by_id;
  KineticIo io(runtime);
  DriveSet drives = TRY(MakeDrives(config, RealDriveFactory(io, kPatience), AnyDrive));
  const auto infos = TimedRound<DriveInfo>::Run(
      runtime, drives, [](Drive& drive, Time deadline, Callback<DriveInfo> done) {
        drive.Info(deadline, std::move(done));
      });
  for (size_t i = 0; i < sights.size(); ++i) {
    const DriveConfig& drive = config.drives[i];
    DriveSight& sight = sights[i];
    sight.id = drive.id;
    sight.address = drive.addresses.front();
    sight.is_factory_key = HasFactoryKey(drive);
    sight.info = infos.at(drive.id).result;
    by_id[drive.id] = &sight;
    for (const std::string& address : drive.addresses) {
      const Addresses found = Resolve(address);
      if (!found.status.ok()) sight.resolved = found.status;
      const bool is_first = &address == &drive.addresses.front();
      if (is_first && found.list != nullptr && sight.info.has_value()) {
        LookAtConnection(runtime, drive, *found.list, sight);
      }
    }
    if (!sight.info.has_value()) drives.erase(drive.id);  // nothing more is asked of it
  }
  const std::string key = fmt::format("pinstripe-doctor/{:016x}", runtime.Random());
  MeasureAnswers(runtime, drives, key, by_id);
  if (!quick) MeasureTransfers(runtime, drives, key, by_id);
  return sights;
}

HostSight LookAtHost(Runtime& runtime, const ClusterConfig& config, const std::string& version) {
  HostSight host;
  host.now = std::chrono::sys_seconds(
      std::chrono::floor<std::chrono::seconds>(std::chrono::nanoseconds(runtime.WallClock())));
  host.version = version;
  host.clock_is_set = ClockIsSet();
  std::set<std::string> seen;
  for (const DriveConfig& drive : config.drives) {
    if (!drive.tls || drive.tls->ca_file.empty()) continue;
    if (!seen.insert(drive.tls->ca_file).second) continue;
    AddCertificates(drive.tls->ca_file, drive.tls->authorities, host);
  }
  LookAtDaemon(runtime, config.file, host);
  LookAtFilesOfGateway(config.file, host);
  AskSmart(runtime, host);
  LookAtGateways(host);
  return host;
}

}  // namespace pinstripe
