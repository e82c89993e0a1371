// What usually is wrong with a cluster and with the host that asks, each with its way out. Pure
// judgements over what was seen; tools/doctor_look.h looks.

#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "base/status.h"
#include "cluster/config.h"
#include "drive/drive.h"
#include "tools/diagnosis.h"
#include "tools/disk_look.h"

namespace pinstripe {

// A drive, as this host sees it.
struct DriveSight {
  DriveId id = 0;
  std::string address;  // the first one
  Status resolved;      // whether its names lead to addresses
  Result<DriveInfo> info = DriveInfo();
  // How long an answer to a small request takes, in the middle.
  std::optional<Duration> answer_time;
  // 1 MiB, written durably and read back. Null: it was not tried.
  std::optional<Result<Duration>> write_time;
  std::optional<Result<Duration>> read_time;
  std::optional<std::chrono::sys_seconds> certificate_end;
  int path_mtu = 0;  // bytes; 0: not known
  bool is_factory_key = false;
};

// A certificate in a file of this host.
struct CertificateSight {
  std::string file;
  Status readable;
  std::chrono::sys_seconds from;
  std::chrono::sys_seconds until;
};

struct SmartSight {
  std::string device;
  int exit_code = 0;  // of `smartctl -H`: a set of bits
};

struct HostSight {
  std::chrono::sys_seconds now;
  std::string version;                // of this program
  std::optional<bool> clock_is_set;   // whether something keeps this host's clock right
  Status daemon_config;               // why pinstriped.toml cannot be read, if so
  std::vector<DiskReading> disks;     // of the drives here
  std::vector<Status> private_files;  // those with secrets, each as CheckPrivateFile() says
  std::vector<CertificateSight> certificates;
  std::optional<uint64_t> descriptors;  // that pinstriped may have, where it runs
  bool has_smartctl = false;
  std::vector<SmartSight> smart;
  size_t gateways = 0;  // that run here
  size_t gateways_with_slow_checksums = 0;
};

std::vector<Diagnosis> JudgeDrives(const std::vector<DriveSight>& drives, const HostSight& host);
std::vector<Diagnosis> JudgeHost(const HostSight& host);

}  // namespace pinstripe
