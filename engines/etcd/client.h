// EtcdClient: calls to the endpoints of one etcd, one at a time or many at once, and nothing of
// what they mean.
//
// gRPC's completion queue is emptied by one thread of ours, and not by gRPC's own threads through
// its callbacks. So everything that follows an answer happens in one order, a Runtime makes the
// thread, and we know when the last answer has come. One thread is enough: it only looks at
// answers, while those who ask write their requests themselves.
//
// gRPC sends nothing twice: its retries are off. (It does send again what it has not sent at all.)

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/status.h"
#include "engines/etcd/etcd.grpc.pb.h"
#include "engines/options.h"

namespace pinstripe {

// "http://HOST:PORT" or "https://HOST:PORT".
struct EtcdEndpoint {
  std::string url;
  std::string target;  // as gRPC wants to have it
  bool tls = false;
};
Result<EtcdEndpoint> ParseEtcdEndpoint(std::string_view url);  // EINVAL

class EtcdClient {
 public:
  // On the client's thread, once. The answer may be taken apart.
  template <typename Answer>
  using Done = std::function<void(const grpc::Status& status, Answer& answer)>;

  // Whom to ask, as whom, and until when.
  struct Whom {
    size_t endpoint = 0;
    std::string token;  // empty: none
    Time deadline;
  };

  // `runtime` outlives it.
  EtcdClient(Runtime& runtime, const EngineOptions& options);
  ~EtcdClient();

  // Reads the files of TLS, anew each time. EINVAL, EIO: what is wrong with the options or files.
  Status Open();
  size_t size() const { return endpoints_.size(); }
  const std::string& NameOf(size_t endpoint) const { return endpoints_[endpoint].url; }

  void Txn(const Whom& whom, const etcdserverpb::TxnRequest& request,
           Done<etcdserverpb::TxnResponse> done);
  void Authenticate(const Whom& whom, const std::string& user, const std::string& password,
                    Done<etcdserverpb::AuthenticateResponse> done);
  void Members(const Whom& whom, Done<etcdserverpb::MemberListResponse> done);
  void Alarms(const Whom& whom, Done<etcdserverpb::AlarmResponse> done);
  void Look(const Whom& whom, Done<etcdserverpb::StatusResponse> done);
  // Of a member that is no endpoint. It gets no token.
  void LookAt(const EtcdEndpoint& member, Time deadline, Done<etcdserverpb::StatusResponse> done);

  // Runs it on the client's thread, at that time or when the client ends.
  void RunAt(Time when, Task task);
  void RunSoon(Task task) { RunAt(runtime_.Now(), std::move(task)); }

  // Has all that is outstanding answered, and returns when it is. Then nothing runs any more. Not
  // on its own thread.
  void End();
  bool IsEnding() const { return ending_; }

  uint64_t CountCalls() const { return calls_; }

 private:
  struct Queue;
  struct Channel;
  struct Tag;
  template <typename Answer>
  struct Call;
  struct Timer;

  std::shared_ptr<Channel> NewChannel(const EtcdEndpoint& endpoint) const REQUIRES(mutex_);
  std::shared_ptr<Channel> ChannelOf(size_t endpoint) const;
  template <typename Answer, typename Prepare>
  void Start(std::shared_ptr<Channel> channel, const Whom& whom, Done<Answer> done,
             Prepare prepare);
  void Run();
  void Add(Tag* tag);

  Runtime& runtime_;
  const EngineOptions options_;
  std::vector<EtcdEndpoint> endpoints_;
  Status wrong_;  // with the endpoints
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<bool> ending_ = false;

  mutable Mutex mutex_;
  std::vector<std::string> files_ GUARDED_BY(mutex_) =
      std::vector<std::string>(3);  // of TLS: CA, certificate, key
  std::vector<std::shared_ptr<Channel>> channels_ GUARDED_BY(mutex_);
  const std::unique_ptr<Queue> queue_;
};

}  // namespace pinstripe
