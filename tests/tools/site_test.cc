// A site from its description: what cannot be is named, with its line, and what can be becomes
// numbers, keys, certificates and files.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/config.h"
#include "base/read_file.h"
#include "base/real_runtime.h"
#include "cluster/config.h"
#include "kinetic/tls.h"
#include "tests/fuzz/mutator.h"
#include "tests/support/temporary_directory.h"
#include "tools/site_directory.h"
#include "tools/site_file.h"
#include "tools/site_plan.h"
#include "tools/site_state.h"

namespace pinstripe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The sentences about a description, each without "s:" before it.
std::vector<std::string> Mistakes(const std::string& text) {
  const Result<SiteDescription> site = ParseSite(text, "s");
  if (site) return {};
  EXPECT_EQ(site.error().code(), EINVAL);
  std::vector<std::string> lines;
  std::istringstream in{std::string(site.error().message())};
  for (std::string line; std::getline(in, line);) {
    EXPECT_THAT(line, testing::StartsWith("s:"));
    lines.push_back(line.substr(2));
  }
  return lines;
}

// `hosts` with that many disks each.
std::string Site(const std::string& layout, const std::vector<int>& hosts,
                 const std::string& more = "") {
  std::string text = fmt::format("[site]\nname = \"s\"\nlayout = \"{}\"\n{}", layout, more);
  int host = 0;
  for (const int disks : hosts) {
    text += fmt::format("[[host]]\nname = \"h{0}\"\naddress = \"10.0.0.{0}\"\ndisks = [", ++host);
    for (int disk = 1; disk <= disks; ++disk) text += fmt::format("\"/disk{}\",", disk);
    text += "]\n";
  }
  return text;
}

SiteDescription Parsed(const std::string& text) {
  Result<SiteDescription> site = ParseSite(text, "s");
  EXPECT_TRUE(site.has_value()) << site.error().message();
  return site.value_or(SiteDescription());
}

TEST(SiteFile, TheExampleIsGood) {
  const SiteDescription site = Parsed(std::string(ExampleSite()));
  EXPECT_EQ(site.name, "example");
  EXPECT_THAT(site.hosts, SizeIs(6));
  EXPECT_EQ(site.layout, (Geometry{4, 2}));
  EXPECT_TRUE(site.hosts[4].https_gateway);
  EXPECT_THAT(site.hosts[5].mounts, ElementsAre("/srv/data"));
}

TEST(SiteFile, NamesEveryMistakeWithItsLine) {
  EXPECT_THAT(
      Mistakes("[site]\n"
               "name = \"Bad Name\"\n"
               "layout = \"8+2\"\n"
               "domain = \"row\"\n"
               "colour = \"blue\"\n"
               "[[host]]\n"
               "name = \"a\"\n"
               "address = \"10.0.0.1\"\n"
               "disks = [\"/d1\", \"/d1\", \"relative\"]\n"
               "gateway = [\"ftp\"]\n"
               "[[host]]\n"
               "name = \"A\"\n"
               "address = \"10.0.0.1\"\n"
               "disks = [\"/x\"]\n"
               "[[host]]\n"
               "address = \"what ever\"\n"
               "mount = \"/\"\n"),
      ElementsAre(HasSubstr("2: 'Bad Name' cannot be the name of a cluster"),
                  HasSubstr("3: the layout 8+2 needs 10 disks, and all hosts together have 4"),
                  HasSubstr("4: 'row' is not a domain"),
                  HasSubstr("5: 'colour' in [site] is not an option known here"),
                  HasSubstr("9: host a: the disk /d1 is listed twice"),
                  HasSubstr("9: host a: the disk relative is not an absolute path"),
                  HasSubstr("10: host a: a gateway serves root or https, not 'ftp'"),
                  HasSubstr("12: the host A is listed twice"),
                  HasSubstr("13: host A has the address 10.0.0.1 of host a"),
                  HasSubstr("15: 'name' in [host] is required"),
                  HasSubstr("16: host without a name: 'what ever' is neither a name nor an"),
                  HasSubstr("17: host without a name: the mount / is the root directory")));
}

TEST(SiteFile, NamesWhatIsMissingOrNotToml) {
  EXPECT_THAT(Mistakes(""), testing::Contains(HasSubstr("'name' in [site] is required")));
  EXPECT_THAT(Mistakes("[site]\nname = \"s\"\nlayout = \"1+0\"\n"),
              ElementsAre(HasSubstr("no [[host]] is listed")));
  EXPECT_THAT(Mistakes("[site\n"), ElementsAre(HasSubstr("1: not valid TOML")));
}

TEST(SiteFile, RefusesHostNamesThatNoHostHas) {
  for (const char* name : {"-a", "a-", "a..b", ".a", "a.", "a/b", "..", "a b", "a_b", "\\n", ""}) {
    EXPECT_THAT(Mistakes(fmt::format("[site]\nname = \"s\"\nlayout = \"1+0\"\n[[host]]\nname = "
                                     "\"{}\"\naddress = \"10.0.0.1\"\ndisks = \"/d\"\n",
                                     name)),
                testing::Contains(HasSubstr("5: '")))
        << name;
  }
}

TEST(SiteFile, RefusesPathsThatCanBeWrittenInTwoWays) {
  for (const char* path :
       {"/", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/..", "a", "/a b", "/a%n"}) {
    EXPECT_THAT(Mistakes(fmt::format("[site]\nname = \"s\"\nlayout = \"1+0\"\n[[host]]\nname = "
                                     "\"a\"\ndisks = \"{}\"\n",
                                     path)),
                ElementsAre(HasSubstr(fmt::format("6: host a: the disk {} ", path))));
  }
}

TEST(SiteFile, RefusesPortsThatAreUsedTwice) {
  EXPECT_THAT(Mistakes(Site("1+0", {3}, "first_port = 1093\n") + "gateway = \"root\"\n"),
              ElementsAre(HasSubstr("port 1094 is one of the drives of host h1")));
  EXPECT_THAT(Mistakes(Site("1+0", {1}, "root_port = 8080\n")),
              ElementsAre(HasSubstr("port 8080 is used twice")));
  EXPECT_THAT(Mistakes(Site("1+0", {3}, "first_port = 65534\n")),
              ElementsAre(HasSubstr("there are not as many ports")));
  EXPECT_THAT(Mistakes(Site("1+0", {3}, "metrics_port = 8445\n")),
              ElementsAre(HasSubstr("port 8445 is one of the drives of host h1")));
  EXPECT_THAT(Mistakes(Site("1+0", {3}, "metrics_port = 8442\n") + "gateway = \"root\"\n"),
              ElementsAre(HasSubstr("port 8443 is one of the drives of host h1")));
  EXPECT_THAT(Mistakes(Site("1+0", {1}, "metrics_port = 1093\n")),
              ElementsAre(HasSubstr("port 1094 is used twice, by a gateway and for metrics")));
  EXPECT_THAT(Mistakes(Site("1+0", {1}, "metrics_port = 65535\n")), SizeIs(1));
  EXPECT_THAT(Mistakes(Site("1+0", {1}, "metrics_port = 9464\n") + "listen = \"::1\"\n"),
              ElementsAre(HasSubstr("metrics are served at one of IPv4")));
}

TEST(SiteFile, WantsTheSizeOfAllDisksOrOfNone) {
  EXPECT_THAT(Mistakes(Site("1+0", {1, 1}) + "disk_size = \"4 TB\"\n"),
              ElementsAre(HasSubstr("host h1 does not say how large its disks are")));
}

// Whatever is in it: it is a site, or each complaint is a line of its own that names one.
TEST(SiteFile, HasALineForEachComplaint) {
  Mutator mutator({std::string(ExampleSite()), Site("4+2", {3, 3, 3}), Site("1+0", {1})}, 1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    if (!Mistakes(mutator.Next()).empty()) ++refused;
  }
  EXPECT_GT(refused, 500);
}

TEST(SitePlan, RefusesTooFewHostsForTheRuleAndSaysWhatSurvives) {
  EXPECT_THAT(Mistakes(Site("4+2", {4, 4})),
              ElementsAre(AllOf(HasSubstr("does not survive the loss of one host, only that of any "
                                          "2 drives"),
                                HasSubstr("It takes 3 hosts"))));
  EXPECT_THAT(Mistakes(Site("4+2", {6, 1, 1})), SizeIs(1));  // the small hosts cannot take 4 shards
  EXPECT_THAT(Mistakes(Site("4+2", {2, 2, 2})), IsEmpty());
  EXPECT_THAT(Mistakes(Site("4+2", {4, 4}, "domain = \"drive\"\n")), IsEmpty());
  // Stripes would survive with two hosts; most copies of a name would not.
  EXPECT_THAT(Mistakes(Site("1+1", {2, 2})), ElementsAre(HasSubstr("It takes 3 hosts")));
  EXPECT_THAT(Mistakes(Site("8+1", {3, 3, 3})), ElementsAre(HasSubstr("It takes 9 hosts")));
}

TEST(SitePlan, CountsRacksWhereTheseAreTheDomains) {
  EXPECT_THAT(Mistakes(Site("4+2", {2, 2, 2}, "domain = \"rack\"\n")),
              testing::Contains(HasSubstr("host h2 does not say in which rack it is")));
}

TEST(SitePlan, SaysWhatSurvives) {
  EXPECT_EQ(SurvivalText(Parsed(Site("4+2", {3, 3, 3}))),
            "the loss of any 2 drives, or of any one host");
  EXPECT_EQ(SurvivalText(Parsed(Site("4+1", {5, 5}, "domain = \"drive\"\n"))),
            "the loss of any 1 drive");
  EXPECT_THAT(SurvivalText(Parsed(Site("2+0", {2}))), HasSubstr("no loss at all"));
}

SiteChange Without(std::vector<DriveId> drives) {
  return {.without = std::move(drives), .moves = {}};
}
SiteChange Moved(std::vector<SiteMove> moves) { return {.without = {}, .moves = std::move(moves)}; }

TEST(SitePlan, ADriveKeepsItsNumberForEver) {
  const auto before = AssignDrives(Parsed(Site("1+0", {2, 1})), {}, {});
  ASSERT_TRUE(before.has_value());
  EXPECT_THAT(*before,
              ElementsAre(SiteDrive{1, "h1", "/disk1", 8443}, SiteDrive{2, "h1", "/disk2", 8444},
                          SiteDrive{3, "h2", "/disk1", 8443}));
  const SiteDescription grown = Parsed(Site("1+0", {3, 1, 1}));
  const auto after = AssignDrives(grown, *before, {});
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(after->at(1), before->at(1));
  EXPECT_EQ(after->at(3), (SiteDrive{4, "h1", "/disk3", 8445}));
  EXPECT_EQ(after->at(4), (SiteDrive{5, "h3", "/disk1", 8443}));

  const SiteDescription shrunk = Parsed(Site("1+0", {1, 1, 1}));
  const auto refused = AssignDrives(shrunk, *after, Without({2}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()),
              AllOf(HasSubstr("drive 4, /disk3 of host h1, is not described any more"),
                    testing::Not(HasSubstr("drive 2,"))));
  const auto without = AssignDrives(shrunk, *after, Without({2, 4}));
  ASSERT_TRUE(without.has_value()) << without.error().message();
  EXPECT_TRUE(without->at(1).retired);
  EXPECT_FALSE(AssignDrives(shrunk, *after, Without({2, 4, 9})).has_value());
  EXPECT_FALSE(AssignDrives(grown, *after, Without({2})).has_value()) << "it is still described";

  // The directory is used again, by another drive.
  const auto again = AssignDrives(grown, *without, {});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->back(), (SiteDrive{7, "h1", "/disk3", 8445}));
  EXPECT_EQ(again->size(), 7u);
}

// As one has to that keeps a part of the drive map, when its host goes.
TEST(SitePlan, ADriveMovesWithItsNumber) {
  const auto before = AssignDrives(Parsed(Site("1+0", {1, 2, 1})), {}, {});
  ASSERT_TRUE(before.has_value());
  const SiteDescription site =
      Parsed(Site("1+0", {1, 1, 2}));  // h2 gives a disk up, h3 has one more
  const auto moved = AssignDrives(site, *before, Moved({{3, "h3", "/disk2"}}));
  ASSERT_TRUE(moved.has_value()) << moved.error().message();
  EXPECT_THAT(*moved,
              ElementsAre(SiteDrive{1, "h1", "/disk1", 8443}, SiteDrive{2, "h2", "/disk1", 8443},
                          SiteDrive{3, "h3", "/disk2", 8444}, SiteDrive{4, "h3", "/disk1", 8443}));

  const auto refused = [&](const SiteMove& move) {
    const auto drives = AssignDrives(site, *before, Moved({move}));
    return drives.has_value() ? std::string() : std::string(drives.error().message());
  };
  EXPECT_THAT(refused({9, "h3", "/disk2"}), HasSubstr("the site has no drive 9"));
  EXPECT_THAT(refused({1, "h3", "/disk2"}), HasSubstr("host h1 still lists /disk1, where it is"));
  EXPECT_THAT(refused({3, "h3", "/disk1"}), HasSubstr("/disk1 of host h3 is that of drive 4"));
  EXPECT_THAT(refused({3, "h3", "/disk7"}), HasSubstr("no host h3 with the disk /disk7"));
  EXPECT_THAT(refused({3, "h2", "/disk2"}), HasSubstr("no host h2 with the disk /disk2"));
  EXPECT_FALSE(AssignDrives(site, *before, SiteChange{{3}, {{3, "h3", "/disk2"}}}).has_value());
}

TEST(SitePlan, ReadsWhereADriveMoves) {
  const auto move = ParseMove("10=store5:/srv/a:b=c");
  ASSERT_TRUE(move.has_value());
  EXPECT_EQ(move->id, 10);
  EXPECT_EQ(move->host, "store5");
  EXPECT_EQ(move->disk, "/srv/a:b=c");
  for (const char* text : {"", "10", "10=", "10=store5", "=store5:/a", "x=store5:/a", "0=store5:/a",
                           "65536=store5:/a", "1 =store5:/a", "-1=store5:/a", "store5:/a=10"}) {
    EXPECT_EQ(ParseMove(text).error().code(), EINVAL) << text;
  }
}

// Also where the drive has its port since before somebody has chosen another first one.
TEST(SitePlan, NoDriveHasThePortOfAGateway) {
  const SiteDescription before = Parsed(Site("1+0", {1}, "first_port = 1094\n"));
  const auto drives = AssignDrives(before, {}, {});
  ASSERT_TRUE(drives.has_value());
  const SiteDescription site = Parsed(Site("1+0", {2}) + "gateway = \"root\"\n");
  const auto collides = AssignDrives(site, *drives, {});
  ASSERT_FALSE(collides.has_value());
  EXPECT_THAT(std::string(collides.error().message()), HasSubstr("port 1094 of the gateway"));
}

TEST(SitePlan, NamesTheUnitOfAMount) {
  EXPECT_EQ(MountUnit("/srv/data"), "pinstripe-fuse@srv-data.service");
  EXPECT_EQ(MountUnit("/srv/.a-b/c.d_e"), "pinstripe-fuse@srv-.a\\x2db-c.d_e.service");
  EXPECT_EQ(MountUnit("/.x"), "pinstripe-fuse@\\x2ex.service");
}

TEST(SitePlan, WritesIpv6AddressesInBrackets) {
  SiteHost host;
  host.address = "2001:db8::1";
  EXPECT_EQ(DriveAddress(host, 8443), "[2001:db8::1]:8443");
}

// ---- Certificates ----

constexpr std::chrono::sys_seconds kNow(std::chrono::seconds(1'800'000'000));

TEST(SiteAuthority, CertifiesAHostByNameAndAddress) {
  const auto authority = MakeAuthority("s", kNow);
  ASSERT_TRUE(authority.has_value());
  const auto host = IssueCertificate(*authority, "h1", "10.0.0.1", kNow);
  ASSERT_TRUE(host.has_value()) << host.error().message();
  EXPECT_TRUE(CheckCertificate(*authority, host->certificate, "h1", "10.0.0.1").ok());
  EXPECT_THAT(
      std::string(CheckCertificate(*authority, host->certificate, "h1", "10.0.0.2").message()),
      HasSubstr("not for 10.0.0.2"));
  EXPECT_FALSE(CheckCertificate(*authority, host->certificate, "h2", "10.0.0.1").ok());
  const auto other = MakeAuthority("s", kNow);
  EXPECT_THAT(std::string(CheckCertificate(*other, host->certificate, "h1", "10.0.0.1").message()),
              HasSubstr("not of this authority"));
  EXPECT_TRUE(TlsClient::Create(authority->certificate).has_value());
}

TEST(SiteAuthority, ACertificateNeverOutlivesIt) {
  const auto authority = MakeAuthority("s", kNow);
  const auto first = IssueCertificate(*authority, "h", "h", kNow);
  EXPECT_EQ(ValidityOf(first->certificate)->until, kNow + kCertificateLifetime);
  const auto late = kNow + kAuthorityLifetime - std::chrono::hours(24);
  const auto last = IssueCertificate(*authority, "h", "h", late);
  EXPECT_EQ(ValidityOf(last->certificate)->until, kNow + kAuthorityLifetime);
  const auto after = IssueCertificate(*authority, "h", "h", kNow + kAuthorityLifetime);
  ASSERT_FALSE(after.has_value());
  EXPECT_THAT(std::string(after.error().message()), HasSubstr("has expired"));
}

// Hosts show certificates of the old one until all of them believe the new one.
TEST(SiteAuthority, BelievesItsPredecessorUntilThatEnds) {
  const auto first = MakeAuthority("s", kNow);
  const auto old_host = IssueCertificate(*first, "h", "h", kNow);
  const auto later = kNow + kAuthorityLifetime - std::chrono::hours(24 * 100);
  const auto second = RenewAuthority("s", *first, later);
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ(CertificatesIn(second->certificate).size(), 2u);
  EXPECT_TRUE(CheckCertificate(*second, old_host->certificate, "h", "h").ok());
  const auto new_host = IssueCertificate(*second, "h", "h", later);
  ASSERT_TRUE(new_host.has_value()) << new_host.error().message();
  EXPECT_EQ(ValidityOf(new_host->certificate)->until, later + kCertificateLifetime);
  EXPECT_TRUE(CheckCertificate(*second, new_host->certificate, "h", "h").ok());
  EXPECT_FALSE(CheckCertificate(*first, new_host->certificate, "h", "h").ok());
  EXPECT_TRUE(TlsClient::Create(second->certificate).has_value());
  const auto third = RenewAuthority("s", *second, kNow + kAuthorityLifetime);
  EXPECT_EQ(CertificatesIn(third->certificate).size(), 2u) << "the first one has ended";
  EXPECT_FALSE(CheckCertificate(*third, old_host->certificate, "h", "h").ok());
}

TEST(SiteAuthority, KnowsTheSumOfNothing) {
  EXPECT_EQ(Sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// ---- What is made ----

class SiteDirectoryTest : public testing::Test {
 protected:
  SiteState Made(const std::string& text) {
    Result<SiteState> state = NewSite(runtime_, text, Parsed(text));
    EXPECT_TRUE(state.has_value());
    return *std::move(state);
  }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  Status Make(const SiteState& state) {
    return MakeSiteDirectory(Path("site"), state, {.version = "1", .made = "now"});
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::directory_iterator(directory_.path())) {
      names.push_back(one.path().filename());
    }
    return names;
  }

  RealRuntime runtime_;
  TemporaryDirectory directory_;
  const std::string text_ =
      Site("4+2", {2, 2, 2}) + "gateway = [\"root\", \"https\"]\nmount = \"/srv/data\"\n";
};

TEST_F(SiteDirectoryTest, HasAConfigurationThatIsUnderstood) {
  const SiteState state = Made(text_);
  ASSERT_TRUE(Make(state).ok());
  const auto config = ClusterConfig::Load(Path("site/cluster.toml"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_TRUE(config->CheckForFormat().ok());
  ASSERT_EQ(config->drives.size(), 6u);
  EXPECT_EQ(config->drives[2].addresses, std::vector<std::string>{"10.0.0.2:8443"});
  EXPECT_EQ(config->drives[2].domain, "h2");
  EXPECT_EQ(config->drives[2].credentials.key, state.keys.identities[0].key);
  EXPECT_EQ(config->drives[2].tls->authorities, state.authority.certificate);
}

TEST_F(SiteDirectoryTest, ServesMetricsWhereThatIsAskedFor) {
  const auto text_of = [this](const std::string& path) {
    const auto bundle = UnpackBundle(ReadFile(Path("site/h3.tar")).value_or(""));
    EXPECT_TRUE(bundle.has_value());
    std::string text;
    if (bundle) {
      for (const BundleFile& file : bundle->files) text += file.path == path ? file.contents : "";
    }
    EXPECT_NE(text, "") << path;
    return text;
  };
  const std::string daemon = "/etc/pinstripe/pinstriped.toml";
  const std::string gateway = "/etc/xrootd/xrootd-pinstripe.cfg";
  ASSERT_TRUE(Make(Made(text_)).ok());
  EXPECT_THAT(text_of(daemon), testing::Not(HasSubstr("metrics")));
  EXPECT_THAT(text_of(gateway), testing::Not(HasSubstr("metrics")));
  std::filesystem::remove_all(Path("site"));

  const std::string text = Site("4+2", {2, 2, 2}, "metrics_port = 9464\n") + "gateway = \"root\"\n";
  ASSERT_TRUE(Make(Made(text)).ok());
  EXPECT_THAT(text_of(daemon), HasSubstr("metrics = \"10.0.0.3:9464\""));
  EXPECT_THAT(text_of(gateway), HasSubstr("cluster.toml metrics=10.0.0.3:9465\n"));
}

TEST_F(SiteDirectoryTest, SecretsAreTheirOwnersAlone) {
  const mode_t before = umask(0);
  ASSERT_TRUE(Make(Made(text_)).ok());
  umask(before);
  int secrets = 0;
  for (const auto& one : std::filesystem::recursive_directory_iterator(Path("site"))) {
    struct stat about {};
    ASSERT_EQ(stat(one.path().c_str(), &about), 0);
    const std::string name = one.path().filename();
    const bool secret = name.find("key") != std::string::npos || name.ends_with(".tar") ||
                        name.find("credentials") != std::string::npos;
    if (one.is_directory()) {
      EXPECT_EQ(about.st_mode & 07777, 0700u) << one.path();
    } else {
      EXPECT_EQ(about.st_mode & 07777, secret ? 0600u : 0644u) << one.path();
      if (secret) ++secrets;
    }
  }
  EXPECT_GT(secrets, 10);
}

TEST_F(SiteDirectoryTest, IsNeverOverwritten) {
  const SiteState state = Made(text_);
  ASSERT_TRUE(Make(state).ok());
  const auto keys = ReadFile(Path("site/keys.toml"));
  const Status again = Make(Made(text_));
  EXPECT_EQ(again.code(), EEXIST);
  EXPECT_THAT(std::string(again.message()), HasSubstr("--update"));
  EXPECT_EQ(*ReadFile(Path("site/keys.toml")), *keys);
  EXPECT_THAT(Names(), ElementsAre("site"));
}

TEST_F(SiteDirectoryTest, IsCompleteOrNotThere) {
  SiteState state = Made(text_);
  // A host that no directory can be made for.
  SiteHost& last = state.site.hosts.back();
  last.name = std::string(300, 'x');
  state.certificates[last.name] = {"certificate", "key"};
  EXPECT_FALSE(Make(state).ok());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(SiteDirectoryTest, GoesOnFromWhatItHas) {
  const SiteState state = Made(text_);
  ASSERT_TRUE(Make(state).ok());
  const std::string grown = Site("4+2", {2, 2, 2, 2});
  {
    Result<SiteDirectory> directory = SiteDirectory::Open(Path("site"));
    ASSERT_TRUE(directory.has_value()) << directory.error().message();
    EXPECT_EQ(SiteDirectory::Open(Path("site")).error().code(), EBUSY);
    EXPECT_EQ(directory->state().keys, state.keys);
    EXPECT_EQ(directory->state().certificates, state.certificates);
    EXPECT_EQ(directory->state().drives, state.drives);
    ASSERT_TRUE(UpdateSite(runtime_, grown, Parsed(grown), {}, directory->state()).ok());
    ASSERT_TRUE(directory->Replace({.version = "2", .made = "later"}).ok());
  }
  Result<SiteDirectory> directory = SiteDirectory::Open(Path("site"));
  ASSERT_TRUE(directory.has_value()) << directory.error().message();
  const SiteState& now = directory->state();
  EXPECT_EQ(now.description, grown);
  EXPECT_EQ(now.drives.size(), 8u);
  EXPECT_EQ(now.generation, state.generation + 1);
  const auto bundle = UnpackBundle(*ReadFile(Path("site/h4.tar")));
  ASSERT_TRUE(bundle.has_value()) << bundle.error().message();
  EXPECT_EQ(bundle->generation, now.generation);
  EXPECT_EQ(now.authority, state.authority);
  EXPECT_EQ(now.certificates.at("h1"), state.certificates.at("h1"));
  EXPECT_TRUE(now.certificates.contains("h4"));
  EXPECT_THAT(Names(), ElementsAre("site"));
}

TEST_F(SiteDirectoryTest, KeepsWhatSomebodyHasPutThere) {
  ASSERT_TRUE(Make(Made(text_)).ok());
  std::filesystem::create_directory_symlink(Path("site"), Path("link"));
  Result<SiteDirectory> directory = SiteDirectory::Open(Path("link"));
  ASSERT_TRUE(directory.has_value()) << directory.error().message();
  std::ofstream(Path("site/notes.txt")) << "mine";
  const Status refused = directory->Replace({.version = "2", .made = "later"});
  EXPECT_EQ(refused.code(), ENOTEMPTY);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("notes.txt"));
  std::filesystem::remove(Path("site/notes.txt"));
  for (const char* name : {"hosts/h1/notes.txt", "hosts/h1/etc/pinstripe/notes.txt", "hosts/h9"}) {
    if (std::string_view(name).ends_with(".txt")) {
      std::ofstream(Path(std::string("site/") + name)) << "mine";
    } else {
      std::filesystem::create_directory(Path(std::string("site/") + name));
    }
    const Status again = directory->Replace({.version = "2", .made = "later"});
    EXPECT_EQ(again.code(), ENOTEMPTY) << name;
    EXPECT_THAT(std::string(again.message()), HasSubstr(name));
    std::filesystem::remove(Path(std::string("site/") + name));
  }
  ASSERT_TRUE(directory->Replace({.version = "2", .made = "later"}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_THAT(*ReadFile(Path("site/generation.toml")), HasSubstr("generation = 2"));
}

// With secrets in it.
TEST_F(SiteDirectoryTest, WhatAKilledCommandHasLeftGoesWithTheNextOne) {
  for (const char* name : {"site.new-abcdef", "site.new-others", "site.new-abcdefg"}) {
    std::filesystem::create_directories(Path(name) + "/hosts");
    std::ofstream(Path(name) + "/ca.key") << "secret";
  }
  std::ofstream(Path("site.new-afile1")) << "a file of somebody";
  const int used = open(Path("site.new-others").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(used, LOCK_EX), 0);  // by a command that is at work
  ASSERT_TRUE(Make(Made(text_)).ok());
  EXPECT_THAT(Names(), testing::UnorderedElementsAre("site", "site.new-others", "site.new-abcdefg",
                                                     "site.new-afile1"));
  close(used);
  Result<SiteDirectory> directory = SiteDirectory::Open(Path("site"));
  ASSERT_TRUE(directory.has_value()) << directory.error().message();
  ASSERT_TRUE(directory->Replace({.version = "2", .made = "later"}).ok());
  EXPECT_THAT(Names(),
              testing::UnorderedElementsAre("site", "site.new-abcdefg", "site.new-afile1"));
}

TEST_F(SiteDirectoryTest, KeysChangeInTwoSteps) {
  SiteState state = Made(text_);
  const SiteKeys old = state.keys;
  EXPECT_EQ(DropOldKeys(state).code(), ENOENT);
  ASSERT_TRUE(RotateKeys(runtime_, state).ok());
  EXPECT_EQ(RotateKeys(runtime_, state).code(), EBUSY);
  ASSERT_EQ(state.keys.identities.size(), 2u);
  EXPECT_EQ(state.keys.identities[0], old.identities[0]);
  EXPECT_NE(state.keys.identities[1].key, old.identities[0].key);
  EXPECT_THAT(ClientKeysText(state.keys), AllOf(HasSubstr(state.keys.identities[1].key),
                                                testing::Not(HasSubstr(old.identities[0].key))));
  // The site itself goes on with the key that drives believe already.
  ASSERT_TRUE(Make(state).ok());
  EXPECT_EQ(*ReadFile(Path("site/credentials.toml")), ClientKeysText(old));
  ASSERT_TRUE(DropOldKeys(state).ok());
  EXPECT_EQ(state.keys.identities.size(), 1u);
  EXPECT_EQ(state.keys.current, 2);
}

TEST_F(SiteDirectoryTest, AHostThatMovesGetsAnotherCertificate) {
  SiteState state = Made(text_);
  const auto before = state.certificates;
  std::string moved = text_;
  moved.replace(moved.find("10.0.0.2"), 8, "10.0.0.9");
  ASSERT_TRUE(UpdateSite(runtime_, moved, Parsed(moved), {}, state).ok());
  EXPECT_EQ(state.certificates["h1"], before.at("h1"));
  EXPECT_NE(state.certificates["h2"], before.at("h2"));
  std::string renamed = text_;
  renamed.replace(renamed.find("\"s\""), 3, "\"t\"");
  EXPECT_EQ(UpdateSite(runtime_, renamed, Parsed(renamed), {}, state).code(), EINVAL);
}

}  // namespace
}  // namespace pinstripe
