// Two administrators rebuild one drive at once, in every interleaving that the seeds reach. Either
// may die in front of any request. Requests are late, lost and repeated meanwhile.
//
// What must hold (the promises in cluster/membership/rebuild.h):
//   - whoever is told that the drive was rebuilt has a drive that everybody accepts from then on:
//     two that get in each other's way never make an old drive of a good one;
//   - whatever is left behind by those who died, the next rebuild goes on with it;
//   - no register is lost, and the drive counts again: a minority of the others may be away;
//   - where the two bring in different devices, no more than one of these is accepted.
//
//   SEED=42 rebuild_sim_test        one seed, to look at
//   SEEDS=100000 rebuild_sim_test   as many as there is time for

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cluster/gather.h"
#include "cluster/membership/drive_identity.h"
#include "cluster/membership/rebuild.h"
#include "tests/support/expect_ok.h"
#include "tests/support/forwarding_drive.h"
#include "tests/support/seeds.h"
#include "tests/support/sim_runtime.h"
#include "tests/support/test_cluster.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

constexpr DriveId kLost = 3;
constexpr DriveId kOther = 6;  // the place of another empty device, which is none of the cluster
constexpr int kRegisters = 6;

// A way to a drive whose superblock is written whatever is there.
class Careless final : public ForwardingDrive {
 public:
  using ForwardingDrive::ForwardingDrive;
  void Put(PutRequest request, Terms terms, StatusCallback done) override {
    if (request.key == SuperblockKey("test")) request.expected = Expected::Any();
    drive().Put(std::move(request), terms, std::move(done));
  }
};

class TwoRebuilds {
 public:
  struct Rules {
    bool two_devices = false;
    bool claim = false;
    // Tests of the test.
    bool careless = false;
    bool take_numbers = true;
  };

  TwoRebuilds(uint64_t seed, const Rules& rules)
      : sim_(seed),
        rules_(rules),
        machines_(sim_, {.drives = 6, .layout = {1, 0, 64 << 10}, .groups = 2, .replicas = 5}) {
    // The last place is used for a second device only.
    machines_.config().drives.pop_back();
    Check(machines_.Format());
  }

  void Run() {
    Fill();
    machines_.Replace(kLost);
    SetAll({.most_latency = sim_.Chance(0.5) ? Duration(1ms) : Duration(300ms),
            .lose_answer = sim_.Chance(0.3) ? 0.02 : 0,
            .duplicate_request = 0.1});
    for (int number = 0; number < 2; ++number) {
      const Duration begins = sim_.Between(0us, sim_.Chance(0.7) ? Duration(20ms) : Duration(5s));
      sim_.Spawn(fmt::format("administrator {}", number), [this, number, begins] {
        sim_.Sleep(begins);
        Administrate(number);
      });
    }
    sim_.Run();
    SetAll({});
    sim_.Sleep(10s);  // what is on its way arrives
    Inspect();
    graveyard_.clear();
  }

  const std::string& complaint() const { return complaint_; }
  int rebuilt() const { return rebuilt_; }
  int died() const { return died_; }
  int refused() const { return refused_; }

 private:
  void Complain(const std::string& why) {
    if (complaint_.empty()) complaint_ = why;
  }
  void Check(const Status& status) {
    if (!status.ok()) Complain(std::string(status.message()));
  }
  void SetAll(const DriveFaults& faults) {
    for (DriveId id = 1; id <= machines_.size(); ++id) machines_.drive(id).Set(faults);
  }

  std::string KeyOf(int number) { return fmt::format("Register {}", number); }

  void Fill() {
    const auto cluster = machines_.Open();
    if (!cluster.has_value()) return Complain("it cannot be opened to begin with");
    for (int i = 0; i < kRegisters; ++i) {
      const RegisterName name{static_cast<uint32_t>(i) % 2, KeyOf(i)};
      const auto outcome = (*cluster)->registers().Change(name, {}, fmt::format("value {}", i));
      if (!outcome.applied()) Complain("a register cannot be written");
    }
  }

  // ---- Those who rebuild

  struct Process {
    std::shared_ptr<ClientLife> life;
    std::unique_ptr<Cluster> cluster;
  };

  void Administrate(int number) {
    auto life = std::make_shared<ClientLife>();
    if (sim_.Chance(0.6)) life->CrashAfter(sim_.Below(sim_.Chance(0.7) ? 60 : 250));
    auto cluster = machines_.Open(life);
    if (cluster.has_value()) {
      const auto report = Rebuild(**cluster, number, life);
      if (report.has_value()) {
        ++rebuilt_;
        // Whoever comes later meets it. (One that was told of is as good as it ever will be.)
        if (!rules_.two_devices) ExpectAccepted("by whom it was rebuilt", life);
      } else {
        CheckFailure(report.error());
      }
    }
    died_ += life->crashed();
    // Requests of the dead are still on their way.
    graveyard_.push_back({life, cluster.has_value() ? *std::move(cluster) : nullptr});
  }

  Result<RebuildReport> Rebuild(Cluster& cluster, int number,
                                const std::shared_ptr<ClientLife>& life = nullptr) {
    RebuildOptions options;
    options.forgetting = 2s;
    options.claim = rules_.claim;
    options.take_numbers = rules_.take_numbers;
    const DriveFactory plain = machines_.Factory(life);
    const bool brings_other = rules_.two_devices && number == 1;
    const DriveFactory factory = [&](DriveConfig config, std::string key,
                                     IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
      if (brings_other) config.addresses = {fmt::format("memory:{}", kOther)};
      auto drive = plain(config, std::move(key), std::move(check));
      if (!drive.has_value() || !rules_.careless) return drive;
      return std::make_unique<Careless>(*std::move(drive));
    };
    return RebuildDrive(cluster, factory, kLost, options);
  }

  // Faults bring about EIO and its kin; the other one, EEXIST and EBUSY. EINVAL would be an old
  // drive.
  void CheckFailure(const Status& status) {
    for (const int code : {EIO, EHOSTUNREACH, ETIMEDOUT}) {
      if (status.code() == code) return;
    }
    if (status.code() == EEXIST || (rules_.claim && status.code() == EBUSY)) {
      ++refused_;
      return;
    }
    if (rules_.two_devices && status.code() == EINVAL) return;  // the other device has the place
    Complain(std::string(status.message()));
  }

  // ---- What is left

  Result<Superblock> SuperblockOn(DriveId place) {
    Gather<Result<Record>> gather(sim_);
    machines_.memory(place).Get(SuperblockKey("test"), {}, Time::max(), gather.Ask(0));
    return ReadSuperblock(gather.Next(Time::max())->value, "test", kLost);
  }
  bool IsInService(DriveId place) {
    const auto block = SuperblockOn(place);
    return block.has_value() && block->service == DriveService::kInService;
  }

  // How the drive in its place is seen by somebody who has just come. Null: it is accepted.
  std::optional<Status> WhyNot(DriveId place, const std::shared_ptr<ClientLife>& life) {
    ClusterConfig config = machines_.config();
    config.drives[kLost - 1].addresses = {fmt::format("memory:{}", place)};
    const auto cluster = Cluster::Open(sim_, config, machines_.Factory(life));
    if (!cluster.has_value()) return cluster.error();
    Gather<Result<DriveInfo>> gather(sim_);
    (*cluster)->FindDrive(kLost)->Info(sim_.Now() + 5s, gather.Ask(0));
    const auto answer = std::move(gather.Next(Time::max())->value);
    if (answer.has_value()) return std::nullopt;
    return answer.error();
  }

  void ExpectAccepted(std::string_view when, const std::shared_ptr<ClientLife>& life = nullptr) {
    const std::optional<Status> why = WhyNot(kLost, life);
    if (!why.has_value() || (life != nullptr && life->crashed())) return;
    // Answers get lost; that it is an old drive is no accident.
    if (life != nullptr && why->message().find("old drive") == std::string::npos) return;
    Complain(fmt::format("{}: {}", when, why->message()));
  }

  void Inspect() {
    if (rules_.two_devices) {
      const bool first = IsInService(kLost) && !WhyNot(kLost, nullptr).has_value();
      const bool second = IsInService(kOther) && !WhyNot(kOther, nullptr).has_value();
      if (first && second) Complain("two devices are accepted as one drive");
      return;
    }
    if (rebuilt_ > 0) ExpectAccepted("in the calm");
    if (!IsInService(kLost)) {
      if (rebuilt_ > 0) return Complain("somebody was told that it is in service, and it is not");
      const auto cluster = machines_.Open();
      if (!cluster.has_value()) return Check(cluster.error());
      const auto report = Rebuild(**cluster, 0);
      if (!report.has_value()) return Check(report.error().Context("who comes after them"));
    }
    ExpectAccepted("in the end");
    for (const auto& [one, two] : {std::pair<DriveId, DriveId>{1, 2}, {1, 5}, {4, 5}}) {
      machines_.SetDown(one, true);
      machines_.SetDown(two, true);
      ExpectAllIsThere();
      machines_.SetDown(one, false);
      machines_.SetDown(two, false);
    }
  }

  void ExpectAllIsThere() {
    const auto cluster = machines_.Open();
    if (!cluster.has_value()) return Check(cluster.error());
    for (int i = 0; i < kRegisters; ++i) {
      const auto value = (*cluster)->registers().Read({static_cast<uint32_t>(i) % 2, KeyOf(i)});
      if (!value.has_value()) return Check(value.error());
      if (value->value != fmt::format("value {}", i)) Complain(KeyOf(i) + " is lost");
    }
  }

  SimRuntime sim_;
  const Rules rules_;
  TestCluster machines_;
  std::vector<Process> graveyard_;
  int rebuilt_ = 0;
  int died_ = 0;
  int refused_ = 0;
  std::string complaint_;  // the first
};

class RebuildsSim : public testing::Test {
 protected:
  RebuildsSim() { SetLogLevel(LogLevel::kError); }
  ~RebuildsSim() override { SetLogLevel(LogLevel::kInfo); }

  static void Weather(const TwoRebuilds::Rules& rules) {
    const Seeds seeds = SeedsFromEnvironment(200);
    int rebuilt = 0;
    int died = 0;
    int refused = 0;
    for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
      TwoRebuilds storm(seed, rules);
      storm.Run();
      ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " and this filter";
      rebuilt += storm.rebuilt();
      died += storm.died();
      refused += storm.refused();
    }
    const auto storms = static_cast<int>(seeds.end - seeds.first);
    if (storms < 100) return;
    EXPECT_GT(rebuilt, storms / 10);
    EXPECT_GT(died, storms / 10);
    EXPECT_GT(refused, storms / 10);
  }
};

// Safety does not come from claims, so they are left out.
TEST_F(RebuildsSim, TwoAtOnceNeverMakeAnOldDriveOfAGoodOne) { Weather({}); }

TEST_F(RebuildsSim, NorWithClaims) { Weather({.claim = true}); }

TEST_F(RebuildsSim, TwoDevicesAreNeverAcceptedAsOneDrive) {
  const Seeds seeds = SeedsFromEnvironment(200);
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    TwoRebuilds storm(seed, {.two_devices = true});
    storm.Run();
    ASSERT_EQ(storm.complaint(), "") << "reproduce with: SEED=" << seed << " and this filter";
  }
}

// ---- Tests of the test

bool FindsAFault(const TwoRebuilds::Rules& rules) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    TwoRebuilds storm(seed, rules);
    storm.Run();
    if (storm.complaint().empty()) continue;
    testing::Test::RecordProperty("seed", static_cast<int>(seed));
    testing::Test::RecordProperty("complaint", storm.complaint());
    return true;
  }
  return false;
}

TEST_F(RebuildsSim, ASuperblockThatIsWrittenWhateverIsThereIsFound) {
  EXPECT_TRUE(FindsAFault({.careless = true}));
}

TEST_F(RebuildsSim, TwoDevicesWithOneIncarnationAreFound) {
  EXPECT_TRUE(FindsAFault({.two_devices = true, .take_numbers = false}));
}

}  // namespace
}  // namespace pinstripe
