// EtcdLink: how an engine stays in touch with its etcd. It finds an endpoint that serves, logs in,
// makes the store if there is none, tells the listener, and asks each question of one endpoint
// after the other while that is safe.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "engines/engine.h"
#include "engines/etcd/client.h"
#include "engines/etcd/errors.h"
#include "engines/etcd/txn.h"
#include "engines/options.h"

namespace pinstripe {

class EtcdLink {
 public:
  // The answer only counts where the status is success. On the client's thread.
  using Answered = std::function<void(const Status& status, etcdserverpb::TxnResponse& answer)>;

  struct Question {
    etcdserverpb::TxnRequest request;
    bool changes = false;  // it must not be made twice
    Time deadline;
    std::string store;  // that is asked
    Answered done;
  };

  EtcdLink(Runtime& runtime, EngineOptions options);
  ~EtcdLink();

  void Start(NameEngine::Listener& listener);
  void StopTelling();

  // The store that was reached last. EHOSTUNREACH: none, and why.
  Result<std::string> Reached() const;

  void Ask(Question question);

  // Sees to what the fence of `answer` says, which was not let through: `go_on` learns that the
  // store was not the reason, or is not any more; or why nothing can be done. EREMCHG,
  // EHOSTUNREACH. On the client's thread, and perhaps inside the call.
  void MeetFence(const etcdserverpb::TxnResponse& answer, const EtcdFence& fence, Time deadline,
                 StatusCallback go_on);

  // Answers all that is outstanding, then nothing runs any more.
  void End() { client_.End(); }

  EtcdClient& client() { return client_; }
  const EtcdKeys& keys() const { return keys_; }
  std::string token() const;

 private:
  struct Asked;  // a question, and how it goes
  struct Round;  // all endpoints being tried
  using AskedPtr = std::shared_ptr<Asked>;
  using RoundPtr = std::shared_ptr<Round>;

  bool IsOf(uint64_t etcd) const;
  void Send(const AskedPtr& asked);
  void OnAnswer(const AskedPtr& asked, const grpc::Status& status,
                etcdserverpb::TxnResponse& answer);
  void TryNext(const AskedPtr& asked, const EtcdFailure& failure);
  void LogInFor(const AskedPtr& asked, const EtcdFailure& failure);
  static void Finish(const AskedPtr& asked, const Status& why);

  // Of whoever finds that `used`, a token, is not good any more. Success: there may be a better
  // one.
  void LogIn(size_t endpoint, const std::string& used, Time deadline,
             std::function<void(const EtcdFailure*)> done);

  void Reach();
  void Try(const RoundPtr& round, size_t endpoint);
  void OnStore(const RoundPtr& round, size_t endpoint, const grpc::Status& status,
               etcdserverpb::TxnResponse& answer);
  void MakeStore(const RoundPtr& round, size_t endpoint);
  void Take(const RoundPtr& round, size_t endpoint, uint64_t etcd, const std::string& store);
  void OnFailed(const RoundPtr& round, size_t endpoint, const EtcdFailure& failure);
  void TryAgainLater(const Status& why);
  void Lose(const Status& why);
  void Beat();

  void Tell(const std::function<void(NameEngine::Listener&)>& what);

  Runtime& runtime_;
  const EngineOptions options_;
  const EtcdKeys keys_;

  mutable Mutex mutex_;
  Condition told_;
  NameEngine::Listener* listener_ GUARDED_BY(mutex_) = nullptr;
  bool telling_ GUARDED_BY(mutex_) = false;
  bool reached_ GUARDED_BY(mutex_) = false;
  std::string store_ GUARDED_BY(mutex_);
  uint64_t etcd_ GUARDED_BY(mutex_) = 0;  // etcd's id of its cluster
  size_t current_ GUARDED_BY(mutex_) = 0;
  Time served_ GUARDED_BY(mutex_);  // when an endpoint last did
  Status why_ GUARDED_BY(mutex_);   // it is not reached
  std::string token_ GUARDED_BY(mutex_);
  std::vector<std::function<void(const EtcdFailure*)>> logging_in_ GUARDED_BY(mutex_);
  std::string told_why_ GUARDED_BY(mutex_);  // to the listener

  // Only of the client's thread.
  Duration pause_;
  bool beats_ = false;

  EtcdClient client_;  // the last: what it runs uses all of the others
};

}  // namespace pinstripe
