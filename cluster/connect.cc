#include "cluster/connect.h"

#include <utility>

#include "base/try.h"
#include "cluster/gather.h"
#include "cluster/map/names_place.h"
#include "engines/engine_drive.h"
#include "engines/etcd/etcd_engine.h"
#include "engines/postgres/postgres_engine.h"
#include "kinetic/io.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/tls.h"
#include "redis/redis_drive.h"

namespace pinstripe {

namespace {

// What the configuration says of the way to a drive.
Result<KineticDrive::Options> WayTo(const DriveConfig& config) {
  KineticDrive::Options options;
  options.name = fmt::format("drive {}", config.id);
  options.addresses = config.addresses;
  options.identity = config.credentials.identity;
  options.key = config.credentials.key;
  if (config.tls && !config.tls->ca_file.empty() && config.tls->authorities.empty()) {
    return Fail(EINVAL, "drive {}: {} was not read", config.id, config.tls->ca_file);
  }
  if (config.tls) {
    options.tls = TRY_CONTEXT(TlsClient::Create(config.tls->authorities), "drive {}: {}", config.id,
                              config.tls->ca_file);
  }
  return options;
}

Result<RedisDrive::Options> WayToRedis(const DriveConfig& config) {
  const KineticDrive::Options common = TRY(WayTo(config));
  RedisDrive::Options options;
  options.name = common.name;
  options.addresses = common.addresses;
  options.user = config.credentials.user;
  options.password = config.credentials.password;
  options.tls = common.tls;
  return options;
}

EngineOptions WayToEngine(const EngineConfig& config, Duration connect_timeout,
                          Duration idle_timeout) {
  EngineOptions options;
  options.name = fmt::format("{} ({})", TextOfDrive(kEngineDrive), config.kind);
  options.cluster = config.cluster;
  options.endpoints = config.endpoints;
  options.connection = config.connection;
  options.user = config.user;
  options.password = config.password;
  options.ca_file = config.ca_file;
  options.certificate_file = config.certificate_file;
  options.key_file = config.key_file;
  options.connect_timeout = connect_timeout;
  options.idle_timeout = idle_timeout;
  return options;
}

std::unique_ptr<Drive> NewEngine(Runtime& runtime, const EngineConfig& config,
                                 std::string identity_key, IdentityCheck check,
                                 Duration connect_timeout, Duration idle_timeout) {
  EngineOptions way = WayToEngine(config, connect_timeout, idle_timeout);
  EngineDrive::Options options;
  options.name = way.name;
  options.identity_key = std::move(identity_key);
  options.check_identity = std::move(check);
  auto engine = config.kind == "etcd" ? NewEtcdEngine(runtime, std::move(way))
                                      : NewPostgresEngine(runtime, std::move(way));
  return std::make_unique<EngineDrive>(runtime, std::move(engine), std::move(options));
}

Failed IsARedisStore(DriveId id) {
  return Fail(ENOTSUP, "drive {} is a Redis store, which does not tell", id);
}

// Takes only drives that the factory below has made.
Status Redirect(Drive& drive, const DriveConfig& config) {
  if (config.IsRedis() != (dynamic_cast<RedisDrive*>(&drive) != nullptr)) {
    return Fail(EINVAL,
                "drive {} was a Kinetic device and is a Redis store now, or the other way round: "
                "start again to go by it",
                config.id);
  }
  if (config.IsRedis()) {
    static_cast<RedisDrive&>(drive).Redirect(TRY(WayToRedis(config)));
  } else {
    static_cast<KineticDrive&>(drive).Redirect(TRY(WayTo(config)));
  }
  return {};
}

template <typename AnyDrive, typename Options>
std::unique_ptr<Drive> NewDrive(KineticIo& io, Options options, std::string identity_key,
                                IdentityCheck check, Duration connect_timeout,
                                Duration idle_timeout) {
  options.identity_key = std::move(identity_key);
  options.check_identity = std::move(check);
  options.connect_timeout = connect_timeout;
  options.idle_timeout = idle_timeout;
  return std::make_unique<AnyDrive>(io, std::move(options));
}

}  // namespace

ConnectionUse ConnectionUse::Of(const ClusterConfig& config) {
  return {.idle_timeout = config.idle_timeout, .are_shared = config.share_connections};
}

DriveFactory RealDriveFactory(KineticIo& io, Duration connect_timeout, ConnectionUse use) {
  return [&io, connect_timeout, use](const DriveConfig& config, std::string identity_key,
                                     IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
    if (config.engine) {
      return NewEngine(io.runtime(), *config.engine, std::move(identity_key), std::move(check),
                       connect_timeout, use.idle_timeout);
    }
    if (config.IsRedis()) {
      return NewDrive<RedisDrive>(io, TRY(WayToRedis(config)), std::move(identity_key),
                                  std::move(check), connect_timeout, use.idle_timeout);
    }
    KineticDrive::Options way = TRY(WayTo(config));
    way.shares_connection = use.are_shared;
    return NewDrive<KineticDrive>(io, std::move(way), std::move(identity_key), std::move(check),
                                  connect_timeout, use.idle_timeout);
  };
}

Result<std::unique_ptr<KineticDrive>> ConnectDrive(KineticIo& io, const DriveConfig& config,
                                                   Duration connect_timeout) {
  if (config.IsRedis()) return IsARedisStore(config.id);
  KineticDrive::Options options = TRY(WayTo(config));
  options.connect_timeout = connect_timeout;
  return std::make_unique<KineticDrive>(io, std::move(options));
}

ConnectedCluster::ConnectedCluster(std::unique_ptr<KineticIo> io, std::unique_ptr<Cluster> cluster)
    : io_(std::move(io)), cluster_(std::move(cluster)) {}

ConnectedCluster::~ConnectedCluster() = default;

Result<KineticDrive*> ConnectedCluster::FindKinetic(DriveId id) {
  Drive* const drive = cluster_->FindDrive(id);
  if (drive == nullptr) return Fail(ENODEV, "the configuration lacks it");
  auto* const kinetic = dynamic_cast<KineticDrive*>(drive);
  if (kinetic == nullptr) return IsARedisStore(id);
  return kinetic;
}

Result<EngineState> ConnectedCluster::LookAtEngine(Duration timeout) {
  auto* const engine = dynamic_cast<EngineDrive*>(cluster_->FindDrive(kEngineDrive));
  if (engine == nullptr) return Fail(ENODEV, "names are on the drives");
  Gather<Result<EngineState>> gather(cluster_->runtime());
  engine->LookAt(cluster_->runtime().Now() + timeout, gather.Ask(0));
  return std::move(gather.Next(Time::max())->value);
}

DriveFactory ConnectedCluster::drive_factory() {
  return RealDriveFactory(*io_, cluster_->config().drive_timeout,
                          ConnectionUse::Of(cluster_->config()));
}

Result<std::unique_ptr<ConnectedCluster>> Connect(Runtime& runtime,
                                                  const std::string& config_file) {
  const ClusterConfig config = TRY(ClusterConfig::Load(config_file));
  auto io = std::make_unique<KineticIo>(runtime);
  std::unique_ptr<Cluster> cluster = TRY(Cluster::Open(
      runtime, config, RealDriveFactory(*io, config.drive_timeout, ConnectionUse::Of(config)),
      [config_file] { return ClusterConfig::Load(config_file); }, Redirect));
  return std::make_unique<ConnectedCluster>(std::move(io), std::move(cluster));
}

}  // namespace pinstripe
