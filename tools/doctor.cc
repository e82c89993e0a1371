#include "tools/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cluster/fullness.h"
#include "kinetic/tls.h"
#include "upkeep/survey.h"

namespace pinstripe {
namespace {

constexpr Duration kSlowAnswer = std::chrono::milliseconds(50);
constexpr Duration kSlowMegabyte = std::chrono::seconds(1);
constexpr Duration kUnremarkable = std::chrono::milliseconds(100);
constexpr int kTimesSlower = 5;
constexpr int kUsualMtu = 1500;
constexpr int kLoopbackMtu = 65535;
// What pinstriped leaves to each drive, and what connections of a site may need besides.
constexpr uint64_t kDescriptorsOfDrive = 336;
constexpr uint64_t kDescriptorsBesides = 1000;
// `smartctl`: it could not ask, the disk is failing, and it was.
constexpr int kSmartNotAsked = 1 | 2 | 4;
constexpr int kSmartFailing = 8;
constexpr int kSmartMarks = 16 | 32 | 64 | 128;

class Judge {
 public:
  void Note(DiagnosisLevel level, std::string subject, std::string text, std::string way_out = "") {
    diagnoses.push_back({level, std::move(subject), std::move(text), std::move(way_out)});
  }
  void Ok(std::string subject, std::string text) {
    Note(DiagnosisLevel::kOk, std::move(subject), std::move(text));
  }
  void Warn(std::string subject, std::string text, std::string way_out) {
    Note(DiagnosisLevel::kWarning, std::move(subject), std::move(text), std::move(way_out));
  }
  void Error(std::string subject, std::string text, std::string way_out) {
    Note(DiagnosisLevel::kError, std::move(subject), std::move(text), std::move(way_out));
  }

  std::vector<Diagnosis> diagnoses;
};

std::string Called(const DriveSight& drive) {
  return fmt::format("drive {} ({})", drive.id, drive.address);
}

// The one in the middle of those that are known.
Duration MiddleOf(std::vector<Duration> times) {
  if (times.empty()) return {};
  std::ranges::nth_element(times, times.begin() + static_cast<ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

class DriveJudge : public Judge {
 public:
  DriveJudge(const std::vector<DriveSight>& drives, const HostSight& host)
      : drives_(drives), host_(host) {
    std::vector<Duration> writes;
    for (const DriveSight& drive : drives) {
      if (drive.write_time && drive.write_time->has_value()) writes.push_back(**drive.write_time);
    }
    usual_write_ = MiddleOf(std::move(writes));
  }

  std::vector<Diagnosis> Run() {
    for (const DriveSight& drive : drives_) OfOne(drive);
    Versions();
    Mtus();
    return std::move(diagnoses);
  }

 private:
  void OfOne(const DriveSight& drive) {
    const std::string name = Called(drive);
    const size_t before = diagnoses.size();
    if (!drive.resolved.ok()) {
      Error(name, std::string(drive.resolved.message()),
            "mend the name server or /etc/hosts, or write an address into cluster.toml");
      return;
    }
    if (!drive.info.has_value()) {
      Error(
          name, fmt::format("does not serve: {}", drive.info.error().WithoutDriveName()),
          "`pinstripe status` and the table of states in docs/operations.md (\"Watch\") tell what "
          "each reason means");
      return;
    }
    if (!drive.info->failure.empty()) {
      Error(name, fmt::format("has failed: {}", drive.info->failure),
            "see to its disk, and start pinstriped again; replace the disk when it comes again");
    }
    if (drive.is_factory_key) {
      Error(name, "has the factory's key, which everybody knows",
            "give it a key of your own (docs/operations.md, \"Who may use a drive\")");
    }
    Fill(name, *drive.info);
    Certificate(name, drive);
    Speed(name, drive);
    if (diagnoses.size() == before) Ok(name, Measured(drive));
  }

  void Fill(const std::string& name, const DriveInfo& info) {
    if (FullnessOf(info.portion_full) == Fullness::kPlenty) return;
    const std::string text = fmt::format("is {:.0f} % full", info.portion_full * 100);
    const char* way_out = "add drives (`pinstripe expand`), or remove files";
    if (FullnessOf(info.portion_full) == Fullness::kFull) {
      Error(name, text, way_out);
    } else {
      Warn(name, text, way_out);
    }
  }

  void Certificate(const std::string& name, const DriveSight& drive) {
    if (!drive.certificate_end) return;
    const std::string end = TextOfEnd(*drive.certificate_end, host_.now);
    if (end.empty()) return;
    const bool is_over = *drive.certificate_end <= host_.now;
    Note(is_over ? DiagnosisLevel::kError : DiagnosisLevel::kWarning, name,
         fmt::format("shows a certificate that {}", end),
         "`pinstripe init SITE.toml --renew-certificates` and `pinstripe join`, or another pair in "
         "tls_certificate and tls_key, and `systemctl reload pinstriped`");
  }

  void Speed(const std::string& name, const DriveSight& drive) {
    if (drive.answer_time && *drive.answer_time > kSlowAnswer) {
      Warn(name, fmt::format("takes {} for a small answer", DelayText(*drive.answer_time)),
           "look at the network between here and there, and at what keeps that host busy");
    }
    if (!drive.write_time) return;
    const Result<Duration>& write = *drive.write_time;
    if (!write.has_value() && write.error().code() == ETIMEDOUT && drive.answer_time) {
      Error(name, "answers small requests, and a value of 1 MiB does not get through",
            "packets of full size are lost on the way: compare the MTU of both ends and of what is "
            "between them (`ping -M do -s 8972 HOST` for 9000 bytes)");
    } else if (!write.has_value()) {
      Warn(name, fmt::format("does not take a value: {}", write.error().WithoutDriveName()),
           "see the reason; files that are written avoid this drive");
    } else if (*write > kSlowMegabyte ||
               (*write > kUnremarkable && *write > kTimesSlower * usual_write_)) {
      Warn(name,
           fmt::format("takes {} to store 1 MiB durably, and the drive in the middle {}",
                       DelayText(*write), DelayText(usual_write_)),
           "look at its disk (`pinstripe doctor` there, `smartctl -a`), and at its network");
    }
    if (drive.read_time && !drive.read_time->has_value()) {
      Warn(name,
           fmt::format("does not give back what it took: {}",
                       drive.read_time->error().WithoutDriveName()),
           "see to its disk");
    }
  }

  static std::string Measured(const DriveSight& drive) {
    std::string text = "serves";
    if (drive.answer_time) text += fmt::format(", answers in {}", DelayText(*drive.answer_time));
    if (drive.write_time && drive.write_time->has_value()) {
      text += fmt::format(", stores 1 MiB durably in {}", DelayText(**drive.write_time));
    }
    if (drive.read_time && drive.read_time->has_value()) {
      text += fmt::format(" and reads it in {}", DelayText(**drive.read_time));
    }
    return text;
  }

  void Versions() {
    std::map<std::string, std::set<DriveId>> versions;
    for (const DriveSight& drive : drives_) {
      if (drive.info.has_value()) versions[drive.info->software_version].insert(drive.id);
    }
    if (versions.size() < 2) return;
    std::vector<std::string> parts;
    for (const auto& [version, ids] : versions) {
      parts.push_back(fmt::format("{} on drives {}", version, fmt::join(ids, ", ")));
    }
    Warn("versions", fmt::format("differ: {}", fmt::join(parts, "; ")),
         "finish the upgrade: install the packages and restart pinstriped, one host after the "
         "other");
  }

  void Mtus() {
    std::map<int, std::set<DriveId>> mtus;
    for (const DriveSight& drive : drives_) {
      if (drive.path_mtu > 0 && drive.path_mtu < kLoopbackMtu) {
        mtus[drive.path_mtu].insert(drive.id);
      }
    }
    if (mtus.empty()) return;
    if (mtus.size() > 1) {
      std::vector<std::string> parts;
      for (const auto& [mtu, ids] : mtus) {
        parts.push_back(fmt::format("{} to drives {}", mtu, fmt::join(ids, ", ")));
      }
      Warn("MTU", fmt::format("differs: {}", fmt::join(parts, "; ")),
           "give all interfaces and switches between the hosts the same one");
    } else if (mtus.begin()->first < kUsualMtu) {
      Warn("MTU", fmt::format("is {} bytes on the way to the drives", mtus.begin()->first),
           "a tunnel or a small MTU makes more packets than needed: see to the network's settings");
    }
  }

  const std::vector<DriveSight>& drives_;
  const HostSight& host_;
  Duration usual_write_{};
};

class HostJudge : public Judge {
 public:
  explicit HostJudge(const HostSight& host) : host_(host) {}

  std::vector<Diagnosis> Run() {
    Clock();
    if (!host_.daemon_file.ok()) {
      Error("drives here", std::string(host_.daemon_file.message()),
            "mend it: pinstriped does not start with it, and nothing was seen of its disks");
    }
    for (const Status& file : host_.private_files) {
      if (file.ok()) continue;
      Error("credentials", std::string(file.message()), "give it the mode 0600 and its owner");
    }
    for (const CertificateSight& certificate : host_.certificates) Certificate(certificate);
    if (!host_.disks.empty()) {
      for (Diagnosis& one : JudgeDisks(host_.disks, /*shared_disks=*/false)) {
        diagnoses.push_back(std::move(one));
      }
      Descriptors();
      Smart();
    }
    Gateways();
    return std::move(diagnoses);
  }

 private:
  void Clock() {
    if (!host_.clock_is_set) return;
    if (*host_.clock_is_set) {
      Ok("clock", "is kept right by a time service");
      return;
    }
    Warn("clock", "is not kept right by anything",
         "run chrony or systemd-timesyncd (`timedatectl set-ntp true`): certificates and the times "
         "of files go by it");
  }

  void Certificate(const CertificateSight& certificate) {
    if (!certificate.readable.ok()) {
      Error(certificate.file, std::string(certificate.readable.message()),
            "give it a certificate in PEM");
      return;
    }
    if (certificate.from > host_.now) {
      Error(certificate.file, "has a certificate that is not valid yet",
            "the clock of this host is behind, or that of the host which made it was ahead");
      return;
    }
    const std::string end = TextOfEnd(certificate.until, host_.now);
    if (end.empty()) {
      Ok(certificate.file, fmt::format("has a certificate for {} days more",
                                       (certificate.until - host_.now) / std::chrono::hours(24)));
      return;
    }
    Note(certificate.until <= host_.now ? DiagnosisLevel::kError : DiagnosisLevel::kWarning,
         certificate.file, fmt::format("has a certificate that {}", end),
         "make another one: docs/operations.md, \"When a site changes\"");
  }

  void Descriptors() {
    if (!host_.descriptors) return;
    const uint64_t needed = kDescriptorsOfDrive * host_.disks.size() + kDescriptorsBesides;
    const std::string text = fmt::format("may have {} descriptors open", *host_.descriptors);
    if (*host_.descriptors >= needed) {
      Ok("pinstriped", text);
      return;
    }
    Warn("pinstriped",
         fmt::format("{}, and {} drives with their clients need {}", text, host_.disks.size(),
                     needed),
         "raise LimitNOFILE of its unit (1048576 in the one of the package)");
  }

  void Smart() {
    if (!host_.has_smartctl) {
      Note(DiagnosisLevel::kOk, "smartctl",
           "is not installed, so disks were not asked how they are", "apt install smartmontools");
      return;
    }
    for (const SmartSight& disk : host_.smart) {
      if ((disk.exit_code & kSmartFailing) != 0) {
        Error(disk.device, "says of itself that it is failing",
              "replace it: docs/operations.md, \"When a drive is away\"");
      } else if ((disk.exit_code & kSmartMarks) != 0) {
        Warn(
            disk.device, "has had errors",
            fmt::format("look at `smartctl -a /dev/{}`, and have another disk ready", disk.device));
      } else if ((disk.exit_code & kSmartNotAsked) != 0) {
        Ok(disk.device, "does not tell smartctl how it is");
      } else {
        Ok(disk.device, "says of itself that it is well");
      }
    }
  }

  void Gateways() {
    if (host_.gateways == 0) return;
    if (host_.gateways_with_slow_checksums == 0) {
      Ok("gateway", "has the fast checksums");
      return;
    }
    Warn("gateway", "runs without libPinstripeCrc32c.so, so uploads take much more of a processor",
         "start it by xrootd@pinstripe.service, or use the drop-in xrootd-pinstripe.conf for its "
         "unit");
  }

  const HostSight& host_;
};

}  // namespace

std::vector<Diagnosis> JudgeDrives(const std::vector<DriveSight>& drives, const HostSight& host) {
  return DriveJudge(drives, host).Run();
}

std::vector<Diagnosis> JudgeHost(const HostSight& host) { return HostJudge(host).Run(); }

}  // namespace pinstripe
