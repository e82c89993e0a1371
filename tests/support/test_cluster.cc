#include "tests/support/test_cluster.h"

#include <algorithm>
#include <utility>

namespace pinstripe {
namespace {

// Refuses to work with a drive that is not the one it should be, as KineticDrive does after
// connecting.
class IdentifiedDrive final : public Drive {
 public:
  IdentifiedDrive(std::unique_ptr<Drive> drive, std::shared_ptr<std::atomic<int>> generation,
                  std::string identity_key, IdentityCheck check)
      : generation_(std::move(generation)),
        core_(std::make_shared<Core>(std::move(identity_key), std::move(check))),
        drive_(std::move(drive)) {}

  std::string_view name() const override { return drive_->name(); }
  DriveCapabilities capabilities() const override { return drive_->capabilities(); }
  bool IsUp() const override { return drive_->IsUp(); }

  void Get(std::string key, ValueRange range, Time deadline, Callback<Record> done) override {
    Checked<Result<Record>>(deadline, std::move(done), [=, this](Callback<Record> then) {
      drive_->Get(key, range, deadline, std::move(then));
    });
  }
  void Head(std::string key, Time deadline, Callback<RecordHead> done) override {
    Checked<Result<RecordHead>>(deadline, std::move(done), [=, this](Callback<RecordHead> then) {
      drive_->Head(key, deadline, std::move(then));
    });
  }
  void Put(PutRequest request, Time deadline, StatusCallback done) override {
    Checked<Status>(deadline, std::move(done), [=, this](StatusCallback then) {
      drive_->Put(request, deadline, std::move(then));
    });
  }
  void Delete(std::string key, Expected expected, Durability durability, Time deadline,
              StatusCallback done) override {
    Checked<Status>(deadline, std::move(done), [=, this](StatusCallback then) {
      drive_->Delete(key, expected, durability, deadline, std::move(then));
    });
  }
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Time deadline,
             Callback<std::vector<std::string>> done) override {
    using Keys = std::vector<std::string>;
    Checked<Result<Keys>>(deadline, std::move(done), [=, this](Callback<Keys> then) {
      drive_->Range(first, last, max, reverse, deadline, std::move(then));
    });
  }
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Time deadline, Callback<RangeRecords> done) override {
    Checked<Result<RangeRecords>>(
        deadline, std::move(done), [=, this](Callback<RangeRecords> then) {
          drive_->ListRecords(first, last, max, reverse, value_limit, deadline, std::move(then));
        });
  }
  void Flush(Time deadline, StatusCallback done) override {
    Checked<Status>(deadline, std::move(done),
                    [=, this](StatusCallback then) { drive_->Flush(deadline, std::move(then)); });
  }
  void Info(Time deadline, Callback<DriveInfo> done) override {
    Checked<Result<DriveInfo>>(deadline, std::move(done), [=, this](Callback<DriveInfo> then) {
      drive_->Info(deadline, std::move(then));
    });
  }

 private:
  struct Core {
    Core(std::string key_in, IdentityCheck check_in)
        : key(std::move(key_in)), check(std::move(check_in)) {}
    const std::string key;
    const IdentityCheck check;
    std::atomic<int> checked = 0;  // the generation that was found to be right
  };

  // Asks the drive who it is, unless that is known, and then `operation`.
  template <typename R>
  void Checked(Time deadline, std::function<void(R)> done,
               std::function<void(std::function<void(R)>)> operation) {
    const int generation = *generation_;
    if (core_->checked == generation) return operation(std::move(done));
    drive_->Get(
        core_->key, {}, deadline,
        [core = core_, generation, done = std::move(done),
         operation = std::move(operation)](Result<Record> record) {
          const bool is_away = !record.has_value() && record.error().code() != ENOENT;
          if (is_away) return done(R(Failed(record.error())));
          const Status status = core->check(std::move(record));
          if (!status.ok()) {
            return done(R(Fail(EHOSTUNREACH, "not the drive it should be: {}", status.message())));
          }
          core->checked = generation;
          operation(done);
        });
  }

  const std::shared_ptr<std::atomic<int>> generation_;
  const std::shared_ptr<Core> core_;
  const std::unique_ptr<Drive> drive_;
};

}  // namespace

TestCluster::TestCluster(Runtime& runtime, const Options& options)
    : runtime_(runtime), options_(options) {
  config_.file = "cluster.toml";
  config_.name = options.name;
  config_.layout = options.layout;
  config_.min_redundancy = std::min<int>(1, options.layout.parity_shards);
  config_.replicas = options.replicas;
  if (config_.replicas == 0) {
    const int largest = static_cast<int>(options.drives) - (options.drives % 2 == 0 ? 1 : 0);
    config_.replicas = std::min(2 * options.layout.parity_shards + 1, largest);
  }
  config_.groups = options.groups;
  config_.memory_bytes = 256 << 20;
  for (size_t i = 1; i <= options.drives; ++i) {
    const auto id = static_cast<DriveId>(i);
    DriveConfig drive;
    drive.id = id;
    drive.addresses = {AddressOf(id)};
    config_.drives.push_back(std::move(drive));
    Machine& machine = machines_[AddressOf(id)];
    machine.memory = std::make_shared<MemoryDrive>(runtime, NameOf(id), options.drive_bytes);
    machine.faulty = std::make_shared<FaultyDrive>(runtime, machine.memory);
  }
}

Status TestCluster::Format(Cluster::FormatOptions options) {
  return Cluster::Format(runtime_, config_, Factory(), options);
}

Result<std::unique_ptr<Cluster>> TestCluster::Open(std::shared_ptr<ClientLife> life) {
  return Cluster::Open(runtime_, config_, Factory(std::move(life)));
}

DriveFactory TestCluster::Factory(std::shared_ptr<ClientLife> life) {
  return [this, life](const DriveConfig& config, std::string identity_key,
                      IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
    const auto machine = machines_.find(config.addresses.front());
    if (machine == machines_.end()) return Fail(EINVAL, "no drive at {}", config.addresses.front());
    return std::make_unique<IdentifiedDrive>(
        std::make_unique<FaultyDrive>(runtime_, machine->second.faulty, life),
        machine->second.generation, std::move(identity_key), std::move(check));
  };
}

void TestCluster::SetDown(DriveId id, bool down) {
  DriveFaults faults = drive(id).faults();
  faults.down = down;
  drive(id).Set(faults);
}

void TestCluster::Replace(DriveId id) {
  Machine& machine = MachineOf(id);
  machine.memory = std::make_shared<MemoryDrive>(runtime_, NameOf(id), options_.drive_bytes);
  machine.faulty->ReplaceBy(machine.memory);
  ++*machine.generation;
}

}  // namespace pinstripe
