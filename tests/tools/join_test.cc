// Joining a site: bundles that are damaged, or for somebody else; which files are written and which
// of them somebody has edited; what systemd is told; which disks are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/real_runtime.h"
#include "tests/fuzz/mutator.h"
#include "tests/support/temporary_directory.h"
#include "tools/bundle.h"
#include "tools/disk_look.h"
#include "tools/join_plan.h"
#include "tools/new_drive.h"
#include "tools/package_sample.h"
#include "tools/run_program.h"
#include "tools/site_authority.h"

namespace pinstripe {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Bundle SomeBundle() {
  Bundle bundle{.site = "s",
                .host = "h1",
                .version = "0.2.0",
                .made = "2026-11-25 19:30:00 UTC",
                .generation = 3,
                .disks = {"/srv/pinstripe/disk1"},
                .gateway = true,
                .mounts = {"/srv/data"}};
  bundle.files.push_back({"/etc/pinstripe/cluster.toml", "root", 0644, "cluster\n"});
  bundle.files.push_back(
      {"/etc/pinstripe/credentials.toml", "xrootd", 0600, std::string(513, 'k')});
  bundle.files.push_back({"/etc/xrootd/xrootd-pinstripe.cfg", "root", 0644, ""});
  return bundle;
}

std::string WhyNot(std::string_view bytes) {
  const Result<Bundle> bundle = UnpackBundle(bytes);
  return bundle ? "" : std::string(bundle.error().message());
}

TEST(Bundle, ComesBackAsItWas) {
  const auto bundle = UnpackBundle(PackBundle(SomeBundle()));
  ASSERT_TRUE(bundle.has_value()) << bundle.error().message();
  EXPECT_EQ(*bundle, SomeBundle());
}

TEST(Bundle, IsATarThatOthersRead) {
  const TemporaryDirectory directory;
  const std::string file = directory / "h1.tar";
  {
    std::ofstream out(file);
    out << PackBundle(SomeBundle());
  }
  RealRuntime runtime;
  const auto listed = RunProgram(runtime, {"tar", "-tvf", file}, std::chrono::seconds(30));
  ASSERT_TRUE(listed.has_value()) << listed.error().message();
  EXPECT_EQ(listed->exit_code, 0) << listed->output;
  EXPECT_THAT(listed->output, AllOf(HasSubstr("-rw------- 0/0             513"),
                                    HasSubstr("etc/xrootd/xrootd-pinstripe.cfg")));
}

// Whatever bit of it is wrong, and wherever it is cut.
TEST(Bundle, NoticesDamageAnywhere) {
  const std::string good = PackBundle(SomeBundle());
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    const auto bundle = UnpackBundle(bad);
    // What a tar says of owners and times is checked with its header.
    EXPECT_FALSE(bundle.has_value()) << at;
  }
  for (size_t size = 0; size < good.size(); size += 37) {
    EXPECT_THAT(WhyNot(good.substr(0, size)), Not(IsEmpty())) << size;
  }
  EXPECT_THAT(WhyNot("not a bundle at all"), HasSubstr("cut off"));
  EXPECT_THAT(WhyNot(std::string(2048, 'x')), HasSubstr("not a tar"));
  EXPECT_THAT(WhyNot(std::string(1024, '\0')), HasSubstr("manifest"));
  EXPECT_THAT(WhyNot(good + "more"), HasSubstr("follows its end"));
}

TEST(Bundle, IsRefusedHoweverItWasChanged) {
  Bundle small = SomeBundle();
  small.files.pop_back();
  const std::vector<std::string> good = {PackBundle(SomeBundle()), PackBundle(small)};
  Mutator mutator(good, 1);
  for (int i = 0; i < 5000; ++i) {
    const std::string bytes = mutator.Next();
    const auto bundle = UnpackBundle(bytes);
    if (!bundle.has_value()) continue;
    EXPECT_THAT(good, Contains(bytes));  // changed and changed back
  }
}

TEST(Bundle, WritesWhereASiteHasFilesAndNowhereElse) {
  for (const char* path :
       {"/etc/passwd", "/etc/pinstripe/../passwd", "/etc/pinstripe", "/etc/pinstripe/",
        "/etc/pinstripe/.hidden", "/etc/pinstripe/a/b", "/etc/xrootd/../cron.d/x",
        "/etc/xrootd/xrootd-other.cfg", "/etc/pinstripe/joined.toml",
        "/etc/systemd/system/pinstriped.service.d/site.conf"}) {
    Bundle bundle = SomeBundle();
    bundle.files[0].path = path;
    EXPECT_EQ(UnpackBundle(PackBundle(bundle)).error().code(), EACCES) << path;
  }
  Bundle bundle = SomeBundle();
  bundle.files[0].mode = 04755;
  EXPECT_THAT(WhyNot(PackBundle(bundle)), HasSubstr("the mode 4755"));
  bundle = SomeBundle();
  bundle.files[0].owner = "daemon";
  EXPECT_THAT(WhyNot(PackBundle(bundle)), HasSubstr("the user daemon"));
}

TEST(Bundle, HasEachFileWithItsOwnerAndMode) {
  Bundle bundle = SomeBundle();
  bundle.files[0].owner = "pinstripe";
  EXPECT_THAT(WhyNot(PackBundle(bundle)), HasSubstr("cluster.toml to the user pinstripe"));
  bundle = SomeBundle();
  bundle.files[1].mode = 0644;
  EXPECT_THAT(WhyNot(PackBundle(bundle)), HasSubstr("credentials.toml the mode 0644"));
  bundle = SomeBundle();
  bundle.files.push_back(bundle.files[0]);
  EXPECT_THAT(WhyNot(PackBundle(bundle)), Not(IsEmpty()));
}

TEST(Bundle, NamesDirectoriesThatDisksAndMountsCanHave) {
  for (const char* path : {"", "etc", "/", "/srv/../etc", "/srv/a b", "/srv/%n", "/a\nb"}) {
    Bundle bundle = SomeBundle();
    bundle.disks[0] = path;
    EXPECT_EQ(UnpackBundle(PackBundle(bundle)).error().code(), EACCES) << path;
    bundle = SomeBundle();
    bundle.mounts[0] = path;
    EXPECT_EQ(UnpackBundle(PackBundle(bundle)).error().code(), EACCES) << path;
  }
}

TEST(Bundle, IsReadOnlyWhereNobodyElseCanWriteIt) {
  const TemporaryDirectory directory;
  const std::string file = directory / "h1.tar";
  {
    std::ofstream out(file);
    out << PackBundle(SomeBundle());
  }
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  EXPECT_THAT(std::string(ReadBundleFile(file).error().message()), HasSubstr("chmod 0600"));
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  const auto bytes = ReadBundleFile(file);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
  EXPECT_EQ(*bytes, PackBundle(SomeBundle()));
  EXPECT_EQ(ReadBundleFile(directory.path()).error().code(), EINVAL);
  EXPECT_EQ(ReadBundleFile(directory / "none").error().code(), ENOENT);
  if (geteuid() != 0) GTEST_SKIP() << "only root has files of others";
  ASSERT_EQ(chown(file.c_str(), 12345, 12345), 0);
  EXPECT_THAT(std::string(ReadBundleFile(file).error().message()), HasSubstr("chown root"));
  ASSERT_EQ(setenv("SUDO_UID", "12345", 1), 0);
  EXPECT_TRUE(ReadBundleFile(file).has_value());
  unsetenv("SUDO_UID");
}

TEST(Join, IsForOneHost) {
  EXPECT_EQ(WhyNotForHost(SomeBundle(), "h1"), "");
  EXPECT_EQ(WhyNotForHost(SomeBundle(), "h1.example.org"), "");
  EXPECT_THAT(WhyNotForHost(SomeBundle(), "h2"), HasSubstr("for the host h1, and this is h2"));
  EXPECT_THAT(WhyNotForHost(SomeBundle(), "h11"), Not(IsEmpty()));
}

TEST(Join, RemembersWhatItDid) {
  const JoinRecord record{
      .site = "s",
      .host = "h1",
      .version = "0.2.0",
      .generation = 7,
      .drives = {"/disk1", "/disk2"},
      .sha256 = {{"/etc/pinstripe/cluster.toml", "12ab"}, {"/etc/pinstripe/ca.pem", "56ef"}},
      .coming = {{"/etc/pinstripe/cluster.toml", "34cd"}, {"/etc/pinstripe/tls.crt", "78ab"}},
      .pending = {"/etc/pinstripe/ca.pem", "/etc/pinstripe/tls.crt"}};
  const auto back = ParseJoinRecord(JoinRecordText(record), "joined.toml");
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(*back, record);
}

TEST(Join, ReplacesWhatNobodyHasEdited) {
  const Bundle bundle = SomeBundle();
  const std::string cluster = bundle.files[0].path;
  std::map<std::string, PresentFile> present;
  for (const BundleFile& file : bundle.files) present[file.path] = {};
  EXPECT_THAT(PlanFiles(bundle, std::nullopt, present), Each(FileStep::kAdd));

  const auto step = [&](const PresentFile& file, const std::optional<JoinRecord>& record) {
    present[cluster] = file;
    return PlanFiles(bundle, record, present)[0];
  };
  EXPECT_EQ(step({.contents = "cluster\n"}, std::nullopt), FileStep::kKeep);
  EXPECT_EQ(step({.contents = "cluster\n", .right_owner_and_mode = false}, std::nullopt),
            FileStep::kChange);
  EXPECT_EQ(step({.contents = "sample\n", .is_sample = true}, std::nullopt), FileStep::kChange);
  EXPECT_EQ(step({.contents = "by hand\n"}, std::nullopt), FileStep::kEdited);
  JoinRecord record;
  record.sha256[cluster] = Sha256("of the last time\n");
  EXPECT_EQ(step({.contents = "of the last time\n"}, record), FileStep::kChange);
  EXPECT_EQ(step({.contents = "of the last time, edited\n"}, record), FileStep::kEdited);
  // A join that was stopped has written this one, or not yet.
  record.coming[cluster] = Sha256("of a join that was stopped\n");
  EXPECT_EQ(step({.contents = "of a join that was stopped\n"}, record), FileStep::kChange);
  EXPECT_EQ(step({.contents = "of the last time\n"}, record), FileStep::kChange);
}

// An old one may have a key that was dropped since.
TEST(Join, RefusesOldBundles) {
  JoinRecord record{.site = "s", .host = "h1", .version = "0.2.0", .generation = 3};
  EXPECT_EQ(WhyTooOld(SomeBundle(), record), "");
  record.generation = 4;
  EXPECT_THAT(WhyTooOld(SomeBundle(), record), HasSubstr("older than what this host has"));
  record.site = "other";
  EXPECT_EQ(WhyTooOld(SomeBundle(), record), "");
}

TEST(Join, TellsTheUnitOfDisksAtOtherPlaces) {
  Bundle bundle = SomeBundle();
  EXPECT_FALSE(UnitFileOf(bundle).has_value());
  bundle.disks = {"/disk1", "/srv/pinstripe/disk1", "/disk2"};
  const auto file = UnitFileOf(bundle);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->path, "/etc/systemd/system/pinstriped.service.d/site.conf");
  EXPECT_EQ(file->owner, "root");
  EXPECT_THAT(file->contents,
              HasSubstr("[Service]\nReadWritePaths=/disk1\nReadWritePaths=/disk2\n"));
}

TEST(NewDrive, IsAnEmptyDirectoryAndNoLink) {
  const TemporaryDirectory directory;
  const std::string path = directory / "disk";
  std::filesystem::create_directories(path + "/lost+found");
  std::filesystem::create_directory_symlink(path, directory / "link");
  EXPECT_TRUE(NewDrive::Open("/disk", path).has_value());
  // An --init that was killed is begun again.
  std::ofstream(path + "/pinstripe-drive.new") << "half";
  EXPECT_TRUE(NewDrive::Open("/disk", path).has_value());
  EXPECT_EQ(NewDrive::Open("/link", directory / "link").error().code(), ELOOP);
  EXPECT_EQ(NewDrive::Open("/none", directory / "none").error().code(), ENOENT);
  std::filesystem::create_directory(path + "/alice");
  const auto home = NewDrive::Open("/disk", path);
  ASSERT_FALSE(home.has_value());
  EXPECT_EQ(home.error().code(), ENOTEMPTY);
  EXPECT_THAT(std::string(home.error().message()), HasSubstr("\"alice\" is in it"));
}

// Whatever takes its name after it was looked at.
TEST(NewDrive, GivesAwayWhatWasLookedAt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives away";
  const TemporaryDirectory directory;
  const std::string path = directory / "disk";
  std::filesystem::create_directory(path);
  const auto drive = NewDrive::Open("/disk", path);
  ASSERT_TRUE(drive.has_value());
  std::filesystem::rename(path, directory / "aside");
  std::filesystem::create_directory(path);
  ASSERT_TRUE(drive->GiveTo({.user = 12345, .group = 12345}).ok());
  struct stat about {};
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 0u);
  ASSERT_EQ(stat((directory / "aside").c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, 12345u);
}

std::vector<std::string> Units(const std::set<std::string>& written) {
  std::vector<std::string> calls;
  for (const auto& call : PlanUnits(SomeBundle(), written)) {
    calls.push_back(fmt::format("{}", fmt::join(call, " ")));
  }
  return calls;
}

TEST(Join, StartsWhatTheHostRuns) {
  const std::string mount = "pinstripe-fuse@srv-data.service";
  EXPECT_THAT(Units({}),
              ElementsAre("enable pinstriped.service", "start pinstriped.service",
                          "enable xrootd@pinstripe.service",
                          "start --no-block xrootd@pinstripe.service", "enable " + mount,
                          "start --no-block " + mount, "enable --now pinstripe-care.timer"));
}

TEST(Join, TellsProgramsWhatChanged) {
  EXPECT_THAT(Units({"/etc/systemd/system/pinstriped.service.d/site.conf"}),
              AllOf(Contains("daemon-reload"), Contains("restart pinstriped.service")));
  EXPECT_THAT(
      Units({"/etc/pinstripe/pinstriped.toml"}),
      AllOf(Contains("restart pinstriped.service"), Not(Contains("start pinstriped.service"))));
  EXPECT_THAT(Units({"/etc/pinstripe/tls.key"}),
              AllOf(Contains("try-reload-or-restart pinstriped.service"),
                    Not(Contains("restart pinstriped.service"))));
  EXPECT_THAT(Units({"/etc/pinstripe/credentials.toml"}),
              AllOf(Contains("try-reload-or-restart xrootd@pinstripe.service"),
                    Contains("try-reload-or-restart pinstripe-fuse@srv-data.service"),
                    Not(Contains("try-reload-or-restart pinstriped.service"))));
  EXPECT_THAT(Units({"/etc/xrootd/pinstripe-tls.key"}),
              Contains("restart --no-block xrootd@pinstripe.service"));
}

TEST(Join, KnowsWhatAPackageHasInstalled) {
  const TemporaryDirectory root;
  const std::string examples = root / "usr/share/doc/xrootd-pinstripe/examples";
  std::filesystem::create_directories(examples);
  std::ofstream(examples + "/a.cfg") << "sample\n";
  EXPECT_TRUE(IsPackageSample(root.path(), "a.cfg", "sample\n"));
  EXPECT_FALSE(IsPackageSample(root.path(), "a.cfg", "edited\n"));
  EXPECT_FALSE(IsPackageSample(root.path(), "b.cfg", "sample\n"));
}

// ---- Disks ----

DiskReading GoodDisk(int number) {
  DiskReading reading;
  reading.directory = fmt::format("/disk{}", number);
  reading.is_mount_point = true;
  reading.file_system_id = static_cast<uint64_t>(number);
  reading.disks = {fmt::format("sd{}", static_cast<char>('a' + number))};
  reading.file_system = "xfs";
  reading.total_bytes = uint64_t{4} << 40;
  reading.free_bytes = uint64_t{3} << 40;
  reading.sync = Duration(std::chrono::milliseconds(4));
  return reading;
}

DiagnosisLevel LevelOf(const DiskReading& reading, bool shared_disks = false) {
  return WorstOf(JudgeDisks({reading}, shared_disks));
}

TEST(DiskLook, TakesDisks) {
  const auto diagnoses = JudgeDisks({GoodDisk(1), GoodDisk(2)}, false);
  EXPECT_EQ(WorstOf(diagnoses), DiagnosisLevel::kOk);
  ASSERT_EQ(diagnoses.size(), 2u);
  EXPECT_THAT(diagnoses[0].text, HasSubstr("an fsync takes 4.0 ms"));
}

TEST(DiskLook, RefusesWhatIsNoDiskOfItsOwn) {
  DiskReading reading = GoodDisk(1);
  reading.is_mount_point = false;
  EXPECT_EQ(LevelOf(reading), DiagnosisLevel::kError);
  EXPECT_EQ(LevelOf(reading, true), DiagnosisLevel::kWarning);
  reading = GoodDisk(1);
  reading.file_system = "tmpfs";
  EXPECT_EQ(LevelOf(reading), DiagnosisLevel::kError);
  reading = GoodDisk(1);
  reading.looked = Status(ENOENT, "No such file or directory");
  EXPECT_EQ(LevelOf(reading, true), DiagnosisLevel::kError);
}

TEST(DiskLook, RefusesAnFsyncThatIsNone) {
  DiskReading reading = GoodDisk(1);
  reading.sync = Duration(std::chrono::microseconds(2));
  EXPECT_EQ(LevelOf(reading), DiagnosisLevel::kError);
  reading.sync = Duration(std::chrono::milliseconds(400));
  EXPECT_EQ(LevelOf(reading), DiagnosisLevel::kWarning);
  reading.sync = tl::unexpected(Status(EROFS, "it is read only"));
  EXPECT_EQ(LevelOf(reading, true), DiagnosisLevel::kError);
}

TEST(DiskLook, WantsRoom) {
  DiskReading reading = GoodDisk(1);
  reading.free_bytes = 1 << 30;
  EXPECT_EQ(LevelOf(reading, true), DiagnosisLevel::kError);
  reading.is_drive = true;  // it took the room itself
  EXPECT_EQ(LevelOf(reading), DiagnosisLevel::kWarning);
}

TEST(DiskLook, RefusesTwoDrivesOnOneDisk) {
  DiskReading second = GoodDisk(2);
  second.file_system_id = 1;
  EXPECT_THAT(JudgeDisks({GoodDisk(1), second}, false).back().text,
              HasSubstr("is on the same file system as /disk1"));
  second = GoodDisk(2);
  second.disks = {"sdb", "sdx"};
  EXPECT_THAT(JudgeDisks({GoodDisk(1), second}, false).back().text,
              HasSubstr("is on the same disk sdb as /disk1"));
  second.disks.clear();
  DiskReading first = GoodDisk(1);
  first.disks.clear();  // unknown is not the same
  EXPECT_EQ(WorstOf(JudgeDisks({first, second}, false)), DiagnosisLevel::kOk);
}

// LVM on LUKS on a partition, and another volume that lies on that disk and on a second one.
TEST(DiskLook, FollowsLayersToDisks) {
  const TemporaryDirectory directory;
  const std::string devices = directory / "devices/";
  const auto device = [&](const std::string& path, const std::string& number) {
    std::filesystem::create_directories(devices + path + "/slaves");
    std::filesystem::create_directories(directory / "dev/block");
    std::filesystem::create_symlink(devices + path, directory / ("dev/block/" + number));
  };
  const auto lies_on = [&](const std::string& path, const std::string& below) {
    std::filesystem::create_symlink(
        devices + below,
        devices + path + "/slaves/" + std::filesystem::path(below).filename().string());
  };
  device("pci/sda", "8:0");
  device("pci/sda/sda1", "8:1");
  std::ofstream(devices + "pci/sda/sda1/partition") << "1";
  device("pci/sdb", "8:16");
  device("virtual/dm-0", "253:0");
  device("virtual/dm-1", "253:1");
  device("virtual/dm-2", "253:2");
  lies_on("virtual/dm-0", "pci/sda/sda1");
  lies_on("virtual/dm-1", "virtual/dm-0");
  lies_on("virtual/dm-2", "pci/sda/sda1");
  lies_on("virtual/dm-2", "pci/sdb");
  const std::string sys = directory.path();
  EXPECT_THAT(DisksOf(makedev(8, 16), sys), ElementsAre("sdb"));
  EXPECT_THAT(DisksOf(makedev(8, 1), sys), ElementsAre("sda"));
  EXPECT_THAT(DisksOf(makedev(253, 1), sys), ElementsAre("sda"));
  EXPECT_THAT(DisksOf(makedev(253, 2), sys), ElementsAre("sda", "sdb"));
  EXPECT_THAT(DisksOf(makedev(0, 42), sys), IsEmpty());
}

TEST(DiskLook, FindsTheMountOfAPath) {
  const std::string mounts =
      "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "30 21 0:40 /sub /srv/a rw,noatime shared:1 master:2 - btrfs /dev/mapper/x rw,subvol=/sub\n"
      "31 21 0:41 / /srv/a\\040b rw - zfs tank/data rw\n"
      "32 21 8:2 / /srv/a rw - xfs /dev/sda2 rw\n";
  EXPECT_EQ(FindMount(mounts, "/srv/ab")->source, "/dev/sda1");
  EXPECT_EQ(FindMount(mounts, "/srv/a b/c")->source, "tank/data");
  EXPECT_EQ(FindMount(mounts, "/srv/a b/c")->type, "zfs");
  EXPECT_EQ(FindMount(mounts, "/srv/a/c")->source, "/dev/sda2") << "the later one";
  EXPECT_FALSE(FindMount("", "/srv").has_value());
}

TEST(DiskLook, ReadsADirectory) {
  RealRuntime runtime;
  const TemporaryDirectory directory;
  const DiskReading reading = ReadDisk(runtime, "/disk", directory.path());
  EXPECT_TRUE(reading.looked.ok()) << reading.looked.message();
  EXPECT_FALSE(reading.is_mount_point);
  EXPECT_FALSE(reading.file_system.empty());
  EXPECT_GT(reading.free_bytes, 0u);
  ASSERT_TRUE(reading.sync.has_value()) << reading.sync.error().message();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_FALSE(ReadDisk(runtime, "/x", directory / "none").looked.ok());
  EXPECT_FALSE(reading.is_drive);
  // A store of an earlier version, which has no mark yet.
  std::ofstream(directory / "superblock") << "store";
  EXPECT_TRUE(ReadDisk(runtime, "/disk", directory.path()).is_drive);
}

// ---- Programs ----

TEST(RunProgram, TellsHowItEndedAndWhatItSaid) {
  RealRuntime runtime;
  const auto run = [&runtime](const std::string& script) {
    return RunProgram(runtime, {"sh", "-c", script}, std::chrono::seconds(30));
  };
  const auto failed = run("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->exit_code, 3);
  EXPECT_EQ(failed->output, "out\nerr\n");
  EXPECT_EQ(run("kill -KILL $$")->exit_code, 128 + 9);
  EXPECT_EQ(run("cat")->output, "") << "nothing is to be read";
  EXPECT_EQ(RunProgram(runtime, {"no-such-program"}, std::chrono::seconds(1)).error().code(),
            ENOENT);
  EXPECT_EQ(RunProgram(runtime, {"sleep", "100"}, std::chrono::milliseconds(50)).error().code(),
            ETIMEDOUT);
  // It says nothing any more, and goes on.
  const auto silent = RunProgram(runtime, {"sh", "-c", "exec >&- 2>&-; exec sleep 100"},
                                 std::chrono::milliseconds(200));
  ASSERT_FALSE(silent.has_value());
  EXPECT_EQ(silent.error().code(), ETIMEDOUT);
}

}  // namespace
}  // namespace pinstripe
