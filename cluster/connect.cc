#include "cluster/connect.h"

#include <utility>

#include "base/try.h"
#include "kinetic/io.h"
#include "kinetic/kinetic_drive.h"
#include "kinetic/tls.h"

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

// Takes only drives that the factory below has made.
Status Redirect(Drive& drive, const DriveConfig& config) {
  static_cast<KineticDrive&>(drive).Redirect(TRY(WayTo(config)));
  return {};
}

}  // namespace

DriveFactory KineticDriveFactory(KineticIo& io, Duration connect_timeout) {
  return [&io, connect_timeout](const DriveConfig& config, std::string identity_key,
                                IdentityCheck check) -> Result<std::unique_ptr<Drive>> {
    KineticDrive::Options options = TRY(WayTo(config));
    options.identity_key = std::move(identity_key);
    options.check_identity = std::move(check);
    options.connect_timeout = connect_timeout;
    return std::make_unique<KineticDrive>(io, std::move(options));
  };
}

Result<std::unique_ptr<KineticDrive>> ConnectDrive(KineticIo& io, const DriveConfig& config,
                                                   Duration connect_timeout) {
  KineticDrive::Options options = TRY(WayTo(config));
  options.connect_timeout = connect_timeout;
  return std::make_unique<KineticDrive>(io, std::move(options));
}

ConnectedCluster::ConnectedCluster(std::unique_ptr<KineticIo> io, std::unique_ptr<Cluster> cluster)
    : io_(std::move(io)), cluster_(std::move(cluster)) {}

ConnectedCluster::~ConnectedCluster() = default;

// All drives are those that the factory above has made.
KineticDrive* ConnectedCluster::FindKinetic(DriveId id) {
  return static_cast<KineticDrive*>(cluster_->FindDrive(id));
}

DriveFactory ConnectedCluster::drive_factory() {
  return KineticDriveFactory(*io_, cluster_->config().drive_timeout);
}

Result<std::unique_ptr<ConnectedCluster>> Connect(Runtime& runtime,
                                                  const std::string& config_file) {
  const ClusterConfig config = TRY(ClusterConfig::Load(config_file));
  auto io = std::make_unique<KineticIo>(runtime);
  std::unique_ptr<Cluster> cluster = TRY(Cluster::Open(
      runtime, config, KineticDriveFactory(*io, config.drive_timeout),
      [config_file] { return ClusterConfig::Load(config_file); }, Redirect));
  return std::make_unique<ConnectedCluster>(std::move(io), std::move(cluster));
}

}  // namespace pinstripe
