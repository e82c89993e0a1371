#include "tests/support/test_cluster.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <mutex>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map/names_place.h"
#include "tests/support/put_then_get.h"

namespace pinstripe {

class TestCluster::Socket {
 public:
  struct Plugged {
    std::shared_ptr<FaultyDrive> drive;
    int generation = 0;  // raised for each drive
  };
  Plugged Now() const {
    const std::lock_guard lock(mutex_);
    return plugged_;
  }
  void Plug(std::shared_ptr<FaultyDrive> drive) {
    const std::lock_guard lock(mutex_);
    plugged_ = {std::move(drive), plugged_.generation + 1};
  }

 private:
  mutable std::mutex mutex_;
  Plugged plugged_;  // guarded by mutex_
};

namespace {

// One client's way to a drive. Connects at once, and anew when another drive stands there: asks it
// who it is, and refuses to work with one that is not the one it should be, as KineticDrive does.
class IdentifiedDrive final : public Drive {
 public:
  IdentifiedDrive(Runtime& runtime, std::shared_ptr<TestCluster::Socket> socket,
                  std::shared_ptr<ClientLife> life, std::string identity_key, IdentityCheck check)
      : core_(std::make_shared<Core>(runtime, std::move(socket), std::move(life),
                                     std::move(identity_key), std::move(check))),
        name_(core_->Connect()->drive->name()) {}
  ~IdentifiedDrive() override { core_->Close(); }

  void Redirect(std::shared_ptr<TestCluster::Socket> socket) { core_->Redirect(std::move(socket)); }

  std::string_view name() const override { return name_; }
  DriveCapabilities capabilities() const override {
    return core_->Connect()->drive->capabilities();
  }
  bool IsUp() const override { return core_->IsUp(); }
  uint64_t CountLosses() const override {
    const auto connection = core_->Connect();
    return (static_cast<uint64_t>(connection->generation) << 32) + connection->drive->CountLosses();
  }

  void Get(std::string key, ValueRange range, Terms terms, Callback<Record> done) override {
    Checked<Result<Record>>(std::move(done), [=](Drive& drive, Callback<Record> then) {
      drive.Get(key, range, terms, std::move(then));
    });
  }
  void Head(std::string key, Terms terms, Callback<RecordHead> done) override {
    Checked<Result<RecordHead>>(std::move(done), [=](Drive& drive, Callback<RecordHead> then) {
      drive.Head(key, terms, std::move(then));
    });
  }
  void Put(PutRequest request, Terms terms, StatusCallback done) override {
    Checked<Status>(std::move(done), [=](Drive& drive, StatusCallback then) {
      drive.Put(request, terms, std::move(then));
    });
  }
  void PutThenGet(PutRequest request, std::string key, Terms terms, StatusCallback done,
                  Callback<Record> read) override {
    Checked<PutAndRead>(TellEach(std::move(done), std::move(read)),
                        [=](Drive& drive, std::function<void(PutAndRead)> then) {
                          pinstripe::PutThenGet(drive, request, key, terms, std::move(then));
                        });
  }
  void Delete(std::string key, Expected expected, Durability durability, Terms terms,
              StatusCallback done) override {
    Checked<Status>(std::move(done), [=](Drive& drive, StatusCallback then) {
      drive.Delete(key, expected, durability, terms, std::move(then));
    });
  }
  void Range(std::string first, std::string last, uint32_t max, bool reverse, Terms terms,
             Callback<std::vector<std::string>> done) override {
    using Keys = std::vector<std::string>;
    Checked<Result<Keys>>(std::move(done), [=](Drive& drive, Callback<Keys> then) {
      drive.Range(first, last, max, reverse, terms, std::move(then));
    });
  }
  void ListRecords(std::string first, std::string last, uint32_t max, bool reverse,
                   uint32_t value_limit, Terms terms, Callback<RangeRecords> done) override {
    Checked<Result<RangeRecords>>(std::move(done), [=](Drive& drive, Callback<RangeRecords> then) {
      drive.ListRecords(first, last, max, reverse, value_limit, terms, std::move(then));
    });
  }
  void Flush(Terms terms, StatusCallback done) override {
    Checked<Status>(std::move(done), [=](Drive& drive, StatusCallback then) {
      drive.Flush(terms, std::move(then));
    });
  }
  void Info(Terms terms, Callback<DriveInfo> done) override {
    Checked<Result<DriveInfo>>(std::move(done), [=](Drive& drive, Callback<DriveInfo> then) {
      drive.Info(terms, std::move(then));
    });
  }
  void SetClusterVersion(int64_t version, Terms terms, StatusCallback done) override {
    Checked<Status>(std::move(done), [=](Drive& drive, StatusCallback then) {
      drive.SetClusterVersion(version, terms, std::move(then));
    });
  }

 private:
  // To one drive that was found in the socket.
  struct Connection {
    enum class State { kNew, kAsking, kUp, kRefused };
    std::unique_ptr<FaultyDrive> drive;
    int generation = 0;
    State state = State::kNew;  // guarded by the core's mutex, like all below
    Time try_again{};           // when refused, or away
    Status why;                 // it is not the one
    std::vector<std::function<void(const Status&)>> waiting;  // for the answer
  };
  using State = Connection::State;

  class Core : public std::enable_shared_from_this<Core> {
   public:
    Core(Runtime& runtime, std::shared_ptr<TestCluster::Socket> socket,
         std::shared_ptr<ClientLife> life, std::string key, IdentityCheck check)
        : key_(std::move(key)),
          check_(std::move(check)),
          runtime_(runtime),
          life_(std::move(life)),
          socket_(std::move(socket)) {}

    std::shared_ptr<Connection> Connect() {
      const std::lock_guard lock(mutex_);
      return ConnectLocked();
    }

    bool IsUp() {
      const std::shared_ptr<Connection> connection = Connect();
      if (!connection->drive->IsUp()) return false;
      std::unique_lock lock(mutex_);
      if (connection->state == State::kUp) return true;
      const bool asks = MayAsk(*connection);
      if (asks) connection->state = State::kAsking;
      lock.unlock();
      if (asks) Ask(connection);
      return false;
    }

    // Calls `then` with the connection once it is known which drive this is.
    void WhenKnown(std::function<void(const std::shared_ptr<Connection>&, const Status&)> then) {
      const std::shared_ptr<Connection> connection = Connect();
      std::unique_lock lock(mutex_);
      if (connection->state == State::kUp) {
        lock.unlock();
        return then(connection, {});
      }
      if (connection->state == State::kRefused && !MayAsk(*connection)) {
        const Status why = connection->why;
        lock.unlock();
        return runtime_.RunAt(runtime_.Now(), [then, connection, why] { then(connection, why); });
      }
      connection->waiting.push_back(
          [then = std::move(then), connection](const Status& why) { then(connection, why); });
      const bool asks = MayAsk(*connection);
      if (asks) connection->state = State::kAsking;
      lock.unlock();
      if (asks) Ask(connection);
    }

    void Redirect(std::shared_ptr<TestCluster::Socket> socket) {
      const std::lock_guard lock(mutex_);
      former_generations_ += socket_->Now().generation;
      socket_ = std::move(socket);
    }

    void Close() {
      std::vector<std::shared_ptr<Connection>> connections;
      {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        connections.swap(connections_);
      }
      for (const auto& connection : connections) connection->drive.reset();
    }

   private:
    std::shared_ptr<Connection> ConnectLocked() {
      const auto plugged = socket_->Now();
      const int generation = former_generations_ + plugged.generation;
      if (connections_.empty() || connections_.back()->generation != generation) {
        connections_.push_back(std::make_shared<Connection>());
        connections_.back()->drive = std::make_unique<FaultyDrive>(runtime_, plugged.drive, life_);
        connections_.back()->generation = generation;
      }
      return connections_.back();
    }

    bool MayAsk(const Connection& connection) const {
      return connection.state == State::kNew ||
             (connection.state == State::kRefused && runtime_.Now() >= connection.try_again);
    }

    void Ask(const std::shared_ptr<Connection>& connection) {
      const auto weak = std::weak_ptr(connection);
      const Time deadline = runtime_.Now() + kPatience;
      auto info = std::make_shared<std::optional<Result<DriveInfo>>>();
      auto record = std::make_shared<std::optional<Result<Record>>>();
      const auto go_on = [self = shared_from_this(), weak, info, record] {
        const std::shared_ptr<Connection> connection = weak.lock();
        if (connection == nullptr || !info->has_value() || !record->has_value()) return;
        self->Judge(*connection, **record, **info);
      };
      connection->drive->Get(key_, {}, deadline, [record, go_on](Result<Record> answer) {
        *record = std::move(answer);
        go_on();
      });
      connection->drive->Info(deadline, [info, go_on](Result<DriveInfo> answer) {
        *info = std::move(answer);
        go_on();
      });
    }

    void Judge(Connection& connection, const Result<Record>& record,
               const Result<DriveInfo>& info) {
      Status why;
      const bool is_away =
          (!record.has_value() && record.error().code() != ENOENT) || !info.has_value();
      if (is_away) {
        why = record.has_value() ? info.error() : record.error();
      } else if (const Status refused = check_(record, info); !refused.ok()) {
        why = Fail(EHOSTUNREACH, "not the drive it should be: {}", refused.message());
      }
      std::vector<std::function<void(const Status&)>> waiting;
      {
        const std::lock_guard lock(mutex_);
        connection.state = why.ok() ? State::kUp : State::kRefused;
        connection.try_again = runtime_.Now() + (is_away ? Duration() : kBackOff);
        connection.why = why;
        waiting.swap(connection.waiting);
      }
      for (const auto& each : waiting) each(why);
    }

    static constexpr Duration kPatience = std::chrono::seconds(5);
    static constexpr Duration kBackOff = std::chrono::milliseconds(10);

    const std::string key_;
    const IdentityCheck check_;
    Runtime& runtime_;
    const std::shared_ptr<ClientLife> life_;
    std::mutex mutex_;
    std::shared_ptr<TestCluster::Socket> socket_;  // guarded by mutex_
    int former_generations_ = 0;                   // of sockets before it; guarded by mutex_
    bool closed_ = false;                          // guarded by mutex_
    // The last is the present one; answers may be on their way from the others. Guarded by mutex_.
    std::vector<std::shared_ptr<Connection>> connections_;
  };

  template <typename R>
  void Checked(std::function<void(R)> done,
               std::function<void(Drive&, std::function<void(R)>)> operation) {
    core_->WhenKnown([done = std::move(done), operation = std::move(operation)](
                         const std::shared_ptr<Connection>& connection, const Status& why) {
      if (!why.ok()) return done(R(Failed(why)));
      if (connection->drive == nullptr) {
        return done(R(Fail(EHOSTUNREACH, "closed before it answered")));
      }
      operation(*connection->drive, done);
    });
  }

  const std::shared_ptr<Core> core_;
  const std::string name_;
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
    AddMachine(id);
  }
  if (options.engine) {
    config_.engine = EngineConfig{.kind = "etcd", .endpoints = {"http://memory:1"}};
    AddMachine(kEngineDrive);
  }
}

void TestCluster::AddMachine(DriveId id) {
  Machine& machine = machines_[AddressOf(id)];
  machine.memory = std::make_shared<MemoryDrive>(runtime_, NameOf(id), options_.drive_bytes,
                                                 options_.reserve_bytes);
  if (options_.loses_power) {
    machine.memory->RememberUnsynced();
    machine.starts = {{runtime_.Random() | 1, /*clean=*/true}};
    machine.memory->SetStarts(machine.starts);
  }
  machine.faulty = std::make_shared<FaultyDrive>(runtime_, machine.memory);
  machine.socket = std::make_shared<Socket>();
  machine.socket->Plug(machine.faulty);
}

Status TestCluster::Format(Cluster::FormatOptions options) {
  return Cluster::Format(runtime_, config_, Factory(), options);
}

Result<std::unique_ptr<Cluster>> TestCluster::Open(std::shared_ptr<ClientLife> life) {
  return Cluster::Open(
      runtime_, config_, Factory(std::move(life)),
      [this]() -> Result<ClusterConfig> { return config_; },
      [this](Drive& drive, const DriveConfig& config) -> Status {
        const Machine& machine = *TRY(FindMachine(config));
        if (on_redirect) on_redirect();
        static_cast<IdentifiedDrive&>(drive).Redirect(machine.socket);
        return {};
      });
}

DriveFactory TestCluster::Factory(std::shared_ptr<ClientLife> life) {
  return [this, life](const DriveConfig& config, std::string identity_key,
                      IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
    const Machine& machine = *TRY(FindMachine(config));
    return std::make_unique<IdentifiedDrive>(runtime_, machine.socket, life,
                                             std::move(identity_key), std::move(check));
  };
}

Result<TestCluster::Machine*> TestCluster::FindMachine(const DriveConfig& config) {
  const auto machine =
      machines_.find(config.engine ? AddressOf(kEngineDrive) : config.addresses.front());
  if (machine == machines_.end()) return Fail(EINVAL, "no drive at {}", config.addresses.front());
  return &machine->second;
}

void TestCluster::SetDown(DriveId id, bool down) {
  DriveFaults faults = drive(id).faults();
  faults.down = down;
  drive(id).Set(faults);
}

std::shared_ptr<MemoryDrive> TestCluster::Plug(DriveId id, std::shared_ptr<MemoryDrive> drive,
                                               std::vector<DriveStart> starts) {
  Machine& machine = MachineOf(id);
  if (!starts.empty()) machine.starts = std::move(starts);
  const DriveFaults faults = machine.faulty->faults();
  machine.faulty->Set({.down = true});
  machine.memory.swap(drive);
  machine.faulty = std::make_shared<FaultyDrive>(runtime_, machine.memory);
  machine.faulty->Set(faults);
  machine.socket->Plug(machine.faulty);
  return drive;
}

std::shared_ptr<MemoryDrive> TestCluster::Replace(DriveId id) {
  return Plug(id, std::make_shared<MemoryDrive>(runtime_, NameOf(id), options_.drive_bytes,
                                                options_.reserve_bytes));
}

void TestCluster::LosePower(DriveId id, size_t kept) {
  MachineOf(id).memory->LosePower(kept);
  StartAnew(id, /*clean=*/false);
}

void TestCluster::StartAnew(DriveId id, bool clean) {
  Machine& machine = MachineOf(id);
  machine.starts.insert(machine.starts.begin(), {runtime_.Random() | 1, clean});
  if (machine.starts.size() > kMaxDriveStarts) machine.starts.pop_back();
  machine.memory->SetStarts(machine.starts, Duration());
  Plug(id, machine.memory);
}

std::shared_ptr<MemoryDrive> TestCluster::CopyOf(DriveId id) {
  auto copy = std::make_shared<MemoryDrive>(runtime_, NameOf(id), options_.drive_bytes,
                                            options_.reserve_bytes);
  std::string first(1, '\0');
  for (bool more = true; more;) {
    Gather<Result<RangeRecords>> lists(runtime_);
    memory(id).ListRecords(first, std::string(kMaxKeyBytes, '\xff'), kMaxRangeRecords, false,
                           kMaxValueBytes, Time::max(), lists.Ask(0));
    RangeRecords part = lists.Next(Time::max())->value.value();
    for (RangeRecord& each : part.records) {
      first = each.key + '\0';
      Gather<Status> puts(runtime_);
      copy->Put({.key = std::move(each.key),
                 .value = std::move(each.record.value),
                 .version = std::move(each.record.version),
                 .tag = std::move(each.record.tag)},
                Time::max(), puts.Ask(0));
      [[maybe_unused]] const Status status = puts.Next(Time::max())->value;
      assert(each.has_value && status.ok());
    }
    more = part.more;
  }
  return copy;
}

}  // namespace pinstripe
