// What the doctor says of what was seen: each mistake has a sentence and a way out, and what is
// well is said to be.

#include "tools/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/real_runtime.h"
#include "tests/support/temporary_directory.h"
#include "tools/doctor_look.h"
#include "tools/site_authority.h"

namespace pinstripe {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr std::chrono::sys_seconds kNow(std::chrono::seconds(1'800'000'000));

HostSight GoodHost() {
  HostSight host;
  host.now = kNow;
  host.clock_is_set = true;
  return host;
}

DriveSight GoodDrive(DriveId id) {
  DriveSight drive;
  drive.id = id;
  drive.address = fmt::format("h{}:8443", id);
  drive.info = DriveInfo{.portion_full = 0.3, .software_version = "0.2.0"};
  drive.answer_time = milliseconds(1);
  drive.write_time = Result<Duration>(milliseconds(20));
  drive.read_time = Result<Duration>(milliseconds(5));
  drive.certificate_end = kNow + hours(24 * 400);
  drive.path_mtu = 1500;
  return drive;
}

// What is said of a drive among others that are well, but for what is well.
std::vector<Diagnosis> Complaints(const DriveSight& drive) {
  std::vector<Diagnosis> diagnoses = JudgeDrives({GoodDrive(1), GoodDrive(2), drive}, GoodHost());
  std::erase_if(diagnoses, [](const auto& one) { return one.level == DiagnosisLevel::kOk; });
  EXPECT_THAT(diagnoses, Each(Field(&Diagnosis::way_out, Not(IsEmpty()))));
  return diagnoses;
}

void ExpectComplaint(const DriveSight& drive, DiagnosisLevel level, const std::string& text) {
  const auto diagnoses = Complaints(drive);
  ASSERT_THAT(diagnoses, SizeIs(1)) << text;
  EXPECT_EQ(diagnoses[0].level, level) << diagnoses[0].text;
  EXPECT_THAT(diagnoses[0].text, HasSubstr(text));
}

TEST(Doctor, FindsDrivesWell) {
  const auto diagnoses = JudgeDrives({GoodDrive(1), GoodDrive(2)}, GoodHost());
  ASSERT_THAT(diagnoses, SizeIs(2));
  EXPECT_EQ(WorstOf(diagnoses), DiagnosisLevel::kOk);
  EXPECT_EQ(diagnoses[0].text,
            "serves, answers in 1.0 ms, stores 1 MiB durably in 20.0 ms and reads it in 5.0 ms");
}

TEST(Doctor, NamesWhatKeepsADriveAway) {
  DriveSight drive = GoodDrive(3);
  drive.resolved = Status(EHOSTUNREACH, "the name h3 leads nowhere");
  ExpectComplaint(drive, DiagnosisLevel::kError, "leads nowhere");
  drive = GoodDrive(3);
  drive.info = tl::unexpected(Status(EHOSTUNREACH, "Connection refused"));
  ExpectComplaint(drive, DiagnosisLevel::kError, "does not serve: Connection refused");
  drive = GoodDrive(3);
  drive.info->failure = "a sync has failed";
  ExpectComplaint(drive, DiagnosisLevel::kError, "has failed: a sync has failed");
  drive = GoodDrive(3);
  drive.is_factory_key = true;
  ExpectComplaint(drive, DiagnosisLevel::kError, "the factory's key");
}

TEST(Doctor, WarnsBeforeADriveIsFull) {
  DriveSight drive = GoodDrive(3);
  drive.info->portion_full = 0.86;
  ExpectComplaint(drive, DiagnosisLevel::kWarning, "is 86 % full");
  drive.info->portion_full = 0.96;
  ExpectComplaint(drive, DiagnosisLevel::kError, "is 96 % full");
}

TEST(Doctor, WarnsBeforeACertificateEnds) {
  DriveSight drive = GoodDrive(3);
  drive.certificate_end = kNow + hours(24 * 10);
  ExpectComplaint(drive, DiagnosisLevel::kWarning, "shows a certificate that ends in 10 days");
  drive.certificate_end = kNow - hours(1);
  ExpectComplaint(drive, DiagnosisLevel::kError, "has expired");
}

TEST(Doctor, NamesWhatIsSlow) {
  DriveSight drive = GoodDrive(3);
  drive.answer_time = milliseconds(80);
  ExpectComplaint(drive, DiagnosisLevel::kWarning, "takes 80.0 ms for a small answer");
  drive = GoodDrive(3);
  drive.write_time = Result<Duration>(milliseconds(150));  // the others take 20
  ExpectComplaint(drive, DiagnosisLevel::kWarning,
                  "150.0 ms to store 1 MiB durably, and the drive");
  drive.write_time = Result<Duration>(milliseconds(90));  // five times as long, and still fast
  EXPECT_THAT(Complaints(drive), SizeIs(0));
  drive.write_time = Result<Duration>(tl::unexpected(Status(ETIMEDOUT, "no answer")));
  ExpectComplaint(drive, DiagnosisLevel::kError, "a value of 1 MiB does not get through");
  drive.write_time = Result<Duration>(tl::unexpected(Status(ENOSPC, "it is full")));
  ExpectComplaint(drive, DiagnosisLevel::kWarning, "does not take a value: it is full");
}

TEST(Doctor, ComparesVersionsAndPackets) {
  DriveSight drive = GoodDrive(3);
  drive.info->software_version = "0.1.0";
  ExpectComplaint(drive, DiagnosisLevel::kWarning,
                  "differ: 0.1.0 on drives 3; 0.2.0 on drives 1, 2");
  drive = GoodDrive(3);
  drive.path_mtu = 9000;
  ExpectComplaint(drive, DiagnosisLevel::kWarning, "1500 to drives 1, 2; 9000 to drives 3");
  drive.path_mtu = 65535;  // it is on this host
  EXPECT_THAT(Complaints(drive), SizeIs(0));
  DriveSight small = GoodDrive(1);
  small.path_mtu = 1400;
  EXPECT_THAT(JudgeDrives({small}, GoodHost()).back().text, HasSubstr("is 1400 bytes"));
}

std::vector<Diagnosis> ComplaintsAbout(const HostSight& host) {
  std::vector<Diagnosis> diagnoses = JudgeHost(host);
  std::erase_if(diagnoses, [](const auto& one) { return one.level == DiagnosisLevel::kOk; });
  EXPECT_THAT(diagnoses, Each(Field(&Diagnosis::way_out, Not(IsEmpty()))));
  return diagnoses;
}

DiskReading GoodDisk() {
  DiskReading disk;
  disk.directory = "/disk";
  disk.is_mount_point = true;
  disk.file_system = "xfs";
  disk.total_bytes = uint64_t{4} << 40;
  disk.free_bytes = uint64_t{3} << 40;
  disk.sync = Duration(milliseconds(4));
  disk.is_drive = true;
  return disk;
}

TEST(Doctor, LooksAtTheHost) {
  EXPECT_THAT(ComplaintsAbout(GoodHost()), IsEmpty());
  HostSight host = GoodHost();
  host.clock_is_set = false;
  EXPECT_THAT(ComplaintsAbout(host)[0].text, HasSubstr("not kept right"));
  host = GoodHost();
  host.private_files.push_back(Status(EACCES, "k has mode 0644"));
  EXPECT_EQ(WorstOf(ComplaintsAbout(host)), DiagnosisLevel::kError);
  host = GoodHost();
  host.daemon_file = Status(EINVAL, "pinstriped.toml:3: not valid TOML");
  EXPECT_EQ(WorstOf(ComplaintsAbout(host)), DiagnosisLevel::kError);
  host = GoodHost();
  host.gateways = 2;
  EXPECT_THAT(ComplaintsAbout(host), IsEmpty());
  host.gateways_with_slow_checksums = 1;
  EXPECT_THAT(ComplaintsAbout(host)[0].text, HasSubstr("libPinstripeCrc32c"));
}

TEST(Doctor, LooksAtCertificatesOfTheHost) {
  HostSight host = GoodHost();
  host.certificates.push_back({.file = "ca.pem", .from = kNow, .until = kNow + hours(24 * 100)});
  EXPECT_THAT(ComplaintsAbout(host), IsEmpty());
  host.certificates[0].until = kNow + hours(24 * 3);
  EXPECT_THAT(ComplaintsAbout(host)[0].text, HasSubstr("ends in 3 days"));
  host.certificates[0].until = kNow;
  EXPECT_EQ(WorstOf(ComplaintsAbout(host)), DiagnosisLevel::kError);
  host.certificates[0].from = kNow + hours(1);
  EXPECT_THAT(ComplaintsAbout(host)[0].text, HasSubstr("not valid yet"));
  host.certificates[0].readable = Status(EINVAL, "there is no certificate in it");
  EXPECT_THAT(ComplaintsAbout(host)[0].text, HasSubstr("no certificate in it"));
}

// Which a host without drives has, too.
TEST(Doctor, LooksAtTheFilesOfAGateway) {
  RealRuntime runtime;
  const TemporaryDirectory root;
  const std::string gateway = root / "etc/xrootd";
  std::filesystem::create_directories(gateway);
  std::filesystem::create_directories(root / "etc/pinstripe");
  ClusterConfig config;
  config.file = root / "etc/pinstripe/cluster.toml";
  HostSight none = LookAtHost(runtime, config, "1");
  EXPECT_THAT(none.certificates, IsEmpty());
  EXPECT_THAT(none.private_files, IsEmpty());
  const std::chrono::sys_seconds now(
      std::chrono::floor<std::chrono::seconds>(std::chrono::nanoseconds(runtime.WallClock())));
  // Two years less three days ago.
  const auto authority = MakeAuthority("s", now - hours(24 * 727));
  ASSERT_TRUE(authority.has_value());
  const auto pair = IssueCertificate(*authority, "h1", "10.0.0.1", now - hours(24 * 727));
  ASSERT_TRUE(pair.has_value());
  std::ofstream(gateway + "/pinstripe-tls.crt") << pair->certificate;
  std::ofstream(gateway + "/pinstripe-tls.key") << pair->key;
  chmod((gateway + "/pinstripe-tls.key").c_str(), 0600);
  HostSight host = LookAtHost(runtime, config, "1");
  ASSERT_THAT(host.certificates, SizeIs(1));
  EXPECT_EQ(host.certificates[0].file, gateway + "/pinstripe-tls.crt");
  EXPECT_TRUE(host.certificates[0].readable.ok());
  EXPECT_GT(host.certificates[0].until, now);
  EXPECT_LT(host.certificates[0].until, now + hours(24 * 30));
  ASSERT_THAT(host.private_files, SizeIs(1));
  EXPECT_TRUE(host.private_files[0].ok());
  chmod((gateway + "/pinstripe-tls.key").c_str(), 0640);
  std::ofstream(gateway + "/pinstripe-tls.crt") << "garbage";
  host = LookAtHost(runtime, config, "1");
  EXPECT_EQ(host.private_files.at(0).code(), EACCES);
  EXPECT_FALSE(host.certificates.at(0).readable.ok());
}

TEST(Doctor, LooksAtDisksOfTheHost) {
  HostSight host = GoodHost();
  host.disks.push_back(GoodDisk());
  host.descriptors = 1024;
  EXPECT_THAT(ComplaintsAbout(host)[0].text, AllOf(HasSubstr("1024"), HasSubstr("need 1336")));
  host.descriptors = 1'048'576;
  EXPECT_THAT(ComplaintsAbout(host), IsEmpty()) << "without smartctl";
  host.has_smartctl = true;
  host.smart.push_back({.device = "sda", .exit_code = 0});
  EXPECT_THAT(ComplaintsAbout(host), IsEmpty());
  host.smart[0].exit_code = 2;  // a disk of a virtual machine
  EXPECT_THAT(ComplaintsAbout(host), IsEmpty());
  host.smart[0].exit_code = 64;
  EXPECT_EQ(WorstOf(ComplaintsAbout(host)), DiagnosisLevel::kWarning);
  host.smart[0].exit_code = 8;
  EXPECT_EQ(WorstOf(ComplaintsAbout(host)), DiagnosisLevel::kError);
}

TEST(Doctor, SpeaksToPeopleAndToPrograms) {
  const std::vector<Diagnosis> diagnoses = {
      {DiagnosisLevel::kOk, "clock", "is right", ""},
      {DiagnosisLevel::kWarning, "drive 1 (h:1)", "is \"slow\"", "look at it"}};
  EXPECT_EQ(DiagnosesText(diagnoses),
            "ok       clock: is right\n"
            "warning  drive 1 (h:1): is \"slow\"\n"
            "         -> look at it\n");
  const auto json = nlohmann::json::parse(DiagnosesJson(diagnoses));
  EXPECT_EQ(json["worst"], "warning");
  ASSERT_EQ(json["diagnoses"].size(), 2u);
  EXPECT_EQ(json["diagnoses"][1]["subject"], "drive 1 (h:1)");
  EXPECT_EQ(json["diagnoses"][1]["level"], "warning");
  EXPECT_EQ(json["diagnoses"][1]["text"], "is \"slow\"");
  EXPECT_EQ(json["diagnoses"][1]["way_out"], "look at it");
}

}  // namespace
}  // namespace pinstripe
