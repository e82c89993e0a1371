// Oss: a Pinstripe file system as XRootD's storage (XrdOss). Translates paths and flags, calls the
// FileSystem, replies with 0, a count or -errno; everything that decides anything is in fs/.
//
// One object per server process, never destroyed: the server ends without telling its plugins. All
// functions may be called from any thread. Every file and directory belongs, as far as clients are
// told, to the user the server runs as; who may do what is XRootD's own authorization.

#pragma once

#include <XrdOss/XrdOss.hh>
#include <XrdVersion.hh>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/runtime.h"
#include "base/signal_watch.h"
#include "cluster/connect.h"
#include "fs/file_system.h"
#include "metrics/server.h"
#include "plugin/exported_path.h"
#include "plugin/gateway_counters.h"
#include "plugin/uploads.h"
#include "upkeep/slow_operations.h"

namespace pinstripe {

// The server hands on what a client sent as a signed number: a size below 0 arrives as a huge one.
inline bool IsNegative(unsigned long long size) { return static_cast<long long>(size) < 0; }

class Oss final : public XrdOss {
 public:
  // Clients see what is below the directory `root`, as FileSystem::Options::exported. With
  // `light`, the process answers questions about names and space only (cmsd).
  static Result<std::unique_ptr<Oss>> Start(const std::string& config_file, const std::string& root,
                                            bool light);

  // Over a file system that is open already. `runtime` and `cluster` outlive the Oss.
  Oss(Runtime& runtime, Cluster& cluster, std::unique_ptr<FileSystem> file_system);

  FileSystem& file_system() { return *file_system_; }
  GatewayCounters& counters() { return counters_; }
  // Counted while it is there, which `path` outlives.
  CountedRequest Counted(GatewayCounters::Request request, const char* path) {
    return CountedRequest(runtime_, counters_, slow_.get(), request, path);
  }
  // From now on the log and drives are told of what takes so long; 0: of nothing. Called before the
  // first request.
  void TellSlow(Duration after);
  // 0 or -errno, logged and counted.
  int AnswerFor(const Status& status, std::string_view operation, std::string_view subject);
  Uploads& uploads() { return uploads_; }
  Owner owner() const { return owner_; }

  // What Prometheus is told, and where it can ask for it (metrics/address.h); empty: nowhere.
  std::string MetricsText();
  void ServeMetrics(const std::string& address);

  // The path to ask the file system for where a client names this one. EACCES.
  Result<std::string> Inside(const char* path) const { return ExportedPath(path); }

  // The file that is there, or else the one that is being uploaded to that name.
  Result<Attributes> Resolve(const char* path);
  // The file that a change by path goes to: an upload, or else the one that is there.
  Result<InodeId> ResolveForChange(const char* path);
  Time Now() { return runtime_.Now(); }

  // How directories are made that appear because a file below them was wanted.
  FileSystem::MissingParents parents() const { return {.mode = 0775, .owner = owner_}; }

  // What the server is told about a file; `st_dev` names the cluster.
  struct stat StatOf(const Attributes& attributes) const;

  XrdOssDF* newDir(const char* tident) override;
  XrdOssDF* newFile(const char* tident) override;

  int Init(XrdSysLogger* logger, const char* config_file) override;
  void Disc(XrdOucEnv& env) override;  // a client is gone; its files are closed after this
  uint64_t Features() override;

  int Chmod(const char* path, mode_t mode, XrdOucEnv* env) override;
  int Create(const char* tident, const char* path, mode_t mode, XrdOucEnv& env,
             int options) override;
  int Mkdir(const char* path, mode_t mode, int make_path, XrdOucEnv* env) override;
  int Remdir(const char* path, int options, XrdOucEnv* env) override;
  int Rename(const char* source, const char* target, XrdOucEnv* source_env,
             XrdOucEnv* target_env) override;
  int Stat(const char* path, struct stat* out, int options, XrdOucEnv* env) override;
  int Truncate(const char* path, unsigned long long size, XrdOucEnv* env) override;
  int Unlink(const char* path, int options, XrdOucEnv* env) override;

  int Stats(char* out, int length) override;
  int StatFS(const char* path, char* out, int& length, XrdOucEnv* env) override;
  int StatLS(XrdOucEnv& env, const char* path, char* out, int& length) override;
  int StatVS(XrdOssVSInfo* out, const char* space, int update) override;
  int StatXA(const char* path, char* out, int& length, XrdOucEnv* env) override;

 private:
  std::string Statistics();
  Status RenamePath(const char* source, const char* target);
  Status ChangeMode(const char* path, uint32_t mode);
  Status UnlinkPath(const char* path);

  // The objects that Start() has made, in the order in which one stands on the other.
  std::unique_ptr<Runtime> own_runtime_;
  std::unique_ptr<ConnectedCluster> connected_;

  Runtime& runtime_;
  Cluster& cluster_;
  std::unique_ptr<FileSystem> file_system_;
  const Owner owner_;
  const uint32_t device_;
  GatewayCounters counters_;
  std::unique_ptr<SlowOperations> slow_;  // null: nobody is told
  Uploads uploads_;
  // The last members: they use the others.
  std::unique_ptr<SignalWatch> reload_;  // SIGUSR1
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace pinstripe
