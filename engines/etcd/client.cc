#include "engines/etcd/client.h"

#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "base/read_file.h"
#include "base/try.h"
#include "engines/etcd/errors.h"

namespace pinstripe {
namespace {

constexpr int kMostAnswerBytes = 80 << 20;
// What etcd lets clients do: it leaves those that ping more often than every five seconds.
constexpr int kPingMilliseconds = 6000;
constexpr int kPingPatienceMilliseconds = 3000;

int Milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

gpr_timespec GrpcTime(Runtime& runtime, Time time) {
  const Duration left = std::max<Duration>(time - runtime.Now(), {});
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

// gRPC would write its complaints to standard error; whoever asked hears of them anyway.
void LogQuietly() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function([](gpr_log_func_args* said) {
      Log(LogLevel::kDebug, "gRPC says", {{"what", SaidByEtcd(said->message)}});
    });
  });
}

grpc::ChannelArguments ArgumentsFor(const EngineOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMostAnswerBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingPatienceMilliseconds);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(options.least_backoff));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(options.most_backoff));
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS,
                   Milliseconds(options.most_backoff));
  return arguments;
}

}  // namespace

Result<EtcdEndpoint> ParseEtcdEndpoint(std::string_view url) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  EtcdEndpoint endpoint{.url = std::string(url), .tls = url.starts_with(kTls)};
  const std::string_view begins = endpoint.tls ? kTls : kPlain;
  std::string_view place = url.starts_with(begins) ? url.substr(begins.size()) : "";
  if (place.ends_with('/')) place.remove_suffix(1);
  const size_t host_end = place.starts_with('[') ? place.find(']') : 0;
  const size_t colon = place.find(':', std::min(host_end, place.size()));
  const std::string_view host = place.substr(0, colon);
  const std::string_view port = colon == place.npos ? "2379" : place.substr(colon + 1);
  const bool is_port =
      !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == port.npos;
  const auto is_bad = [](char c) { return c <= ' ' || c > '~' || c == '/' || c == '@'; };
  if (host.empty() || !is_port || host_end == place.npos || std::ranges::any_of(host, is_bad)) {
    return Fail(EINVAL, "'{}' is no endpoint of etcd: write http://HOST:2379 or https://HOST:2379",
                SaidByEtcd(url));
  }
  endpoint.target = fmt::format("dns:///{}:{}", host, port);
  return endpoint;
}

// What comes out of the queue.
struct EtcdClient::Tag {
  virtual ~Tag() = default;
  virtual void Complete() = 0;
  virtual void Cancel() = 0;
};

struct EtcdClient::Queue {
  grpc::CompletionQueue queue;
  std::unordered_set<Tag*> tags;  // guarded by the client's mutex
  Condition changed;              // there are fewer tags, or the thread has ended
  bool ended = false;             // guarded likewise
};

struct EtcdClient::Channel {
  explicit Channel(std::shared_ptr<grpc::Channel> channel)
      : kv(etcdserverpb::KV::NewStub(channel)),
        cluster(etcdserverpb::Cluster::NewStub(channel)),
        maintenance(etcdserverpb::Maintenance::NewStub(channel)),
        auth(etcdserverpb::Auth::NewStub(channel)) {}

  const std::unique_ptr<etcdserverpb::KV::Stub> kv;
  const std::unique_ptr<etcdserverpb::Cluster::Stub> cluster;
  const std::unique_ptr<etcdserverpb::Maintenance::Stub> maintenance;
  const std::unique_ptr<etcdserverpb::Auth::Stub> auth;
};

template <typename Answer>
struct EtcdClient::Call final : Tag {
  std::shared_ptr<Channel> channel;
  grpc::ClientContext context;
  grpc::Status status;
  Answer answer;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Answer>> reader;
  Done<Answer> done;

  void Complete() override { done(status, answer); }
  void Cancel() override { context.TryCancel(); }
};

struct EtcdClient::Timer final : Tag {
  grpc::Alarm alarm;
  Task task;

  void Complete() override { task(); }
  void Cancel() override { alarm.Cancel(); }
};

EtcdClient::EtcdClient(Runtime& runtime, const EngineOptions& options)
    : runtime_(runtime), options_(options), queue_(std::make_unique<Queue>()) {
  LogQuietly();
  for (const std::string& url : options_.endpoints) {
    Result<EtcdEndpoint> endpoint = ParseEtcdEndpoint(url);
    if (endpoint) {
      endpoints_.push_back(*std::move(endpoint));
    } else {
      wrong_ = endpoint.error();
    }
  }
  const auto is_other = [this](const EtcdEndpoint& endpoint) {
    return endpoint.tls != endpoints_.front().tls;
  };
  if (endpoints_.empty() && wrong_.ok()) wrong_ = Fail(EINVAL, "there is no endpoint of etcd");
  if (wrong_.ok() && std::ranges::any_of(endpoints_, is_other)) {
    wrong_ = Fail(EINVAL, "the endpoints of etcd are either all https:// or all http://");
  }
  runtime_.Spawn("etcd", [this] { Run(); });
}

EtcdClient::~EtcdClient() { End(); }

Status EtcdClient::Open() {
  TRY(wrong_);
  std::vector<std::string> files(3);
  if (endpoints_.front().tls) {
    const auto read = [](const std::string& path, std::string& text) -> Status {
      if (!path.empty()) text = TRY(ReadFile(path));
      return {};
    };
    TRY(read(options_.ca_file, files[0]));
    TRY(read(options_.certificate_file, files[1]));
    TRY(read(options_.key_file, files[2]));
  }
  const MutexLock lock(mutex_);
  if (!channels_.empty() && files == files_) return {};
  files_ = std::move(files);
  channels_.clear();
  for (const EtcdEndpoint& endpoint : endpoints_) {
    channels_.push_back(NewChannel(endpoint));
  }
  return {};
}

std::shared_ptr<EtcdClient::Channel> EtcdClient::NewChannel(const EtcdEndpoint& endpoint) const {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (endpoint.tls) {
    credentials = grpc::SslCredentials(
        {.pem_root_certs = files_[0], .pem_private_key = files_[2], .pem_cert_chain = files_[1]});
  }
  return std::make_shared<Channel>(
      grpc::CreateCustomChannel(endpoint.target, credentials, ArgumentsFor(options_)));
}

std::shared_ptr<EtcdClient::Channel> EtcdClient::ChannelOf(size_t endpoint) const {
  const MutexLock lock(mutex_);
  return endpoint < channels_.size() ? channels_[endpoint] : nullptr;
}

void EtcdClient::Add(Tag* tag) {
  const MutexLock lock(mutex_);
  queue_->tags.insert(tag);
}

template <typename Answer, typename Prepare>
void EtcdClient::Start(std::shared_ptr<Channel> channel, const Whom& whom, Done<Answer> done,
                       Prepare prepare) {
  if (channel == nullptr || ending_) {
    return RunSoon([done = std::move(done)] {
      Answer answer;
      done(grpc::Status(grpc::StatusCode::CANCELLED, "we are ending"), answer);
    });
  }
  auto call = std::make_unique<Call<Answer>>();
  call->done = std::move(done);
  call->context.set_deadline(GrpcTime(runtime_, whom.deadline));
  // A member that has no leader says so at once, and does nothing.
  call->context.AddMetadata("hasleader", "true");
  if (!whom.token.empty()) call->context.AddMetadata("token", whom.token);
  call->reader = prepare(*channel, &call->context, &queue_->queue);
  call->channel = std::move(channel);
  ++calls_;
  Call<Answer>& started = *call.release();  // until it comes out of the queue
  Add(&started);
  if (ending_) started.context.TryCancel();
  started.reader->StartCall();
  started.reader->Finish(&started.answer, &started.status, static_cast<Tag*>(&started));
}

void EtcdClient::Txn(const Whom& whom, const etcdserverpb::TxnRequest& request,
                     Done<etcdserverpb::TxnResponse> done) {
  Start<etcdserverpb::TxnResponse>(ChannelOf(whom.endpoint), whom, std::move(done),
                                   [&](Channel& channel, auto* context, auto* queue) {
                                     return channel.kv->PrepareAsyncTxn(context, request, queue);
                                   });
}

void EtcdClient::Authenticate(const Whom& whom, const std::string& user,
                              const std::string& password,
                              Done<etcdserverpb::AuthenticateResponse> done) {
  etcdserverpb::AuthenticateRequest request;
  request.set_name(user);
  request.set_password(password);
  Start<etcdserverpb::AuthenticateResponse>(ChannelOf(whom.endpoint), whom, std::move(done),
                                            [&](Channel& channel, auto* context, auto* queue) {
                                              return channel.auth->PrepareAsyncAuthenticate(
                                                  context, request, queue);
                                            });
}

void EtcdClient::Members(const Whom& whom, Done<etcdserverpb::MemberListResponse> done) {
  Start<etcdserverpb::MemberListResponse>(ChannelOf(whom.endpoint), whom, std::move(done),
                                          [&](Channel& channel, auto* context, auto* queue) {
                                            return channel.cluster->PrepareAsyncMemberList(
                                                context, {}, queue);
                                          });
}

void EtcdClient::Alarms(const Whom& whom, Done<etcdserverpb::AlarmResponse> done) {
  Start<etcdserverpb::AlarmResponse>(ChannelOf(whom.endpoint), whom, std::move(done),
                                     [&](Channel& channel, auto* context, auto* queue) {
                                       return channel.maintenance->PrepareAsyncAlarm(context, {},
                                                                                     queue);
                                     });
}

void EtcdClient::Look(const Whom& whom, Done<etcdserverpb::StatusResponse> done) {
  Start<etcdserverpb::StatusResponse>(ChannelOf(whom.endpoint), whom, std::move(done),
                                      [&](Channel& channel, auto* context, auto* queue) {
                                        return channel.maintenance->PrepareAsyncStatus(context, {},
                                                                                       queue);
                                      });
}

void EtcdClient::LookAt(const EtcdEndpoint& member, Time deadline,
                        Done<etcdserverpb::StatusResponse> done) {
  std::shared_ptr<Channel> channel;
  {
    const MutexLock lock(mutex_);
    channel = NewChannel(member);
  }
  Start<etcdserverpb::StatusResponse>(
      std::move(channel), {.endpoint = 0, .token = "", .deadline = deadline}, std::move(done),
      [&](Channel& channel, auto* context, auto* queue) {
        return channel.maintenance->PrepareAsyncStatus(context, {}, queue);
      });
}

void EtcdClient::RunAt(Time when, Task task) {
  auto timer = std::make_unique<Timer>();
  timer->task = std::move(task);
  Timer& set = *timer.release();  // until it comes out of the queue
  const MutexLock lock(mutex_);   // or it is cancelled before it is set, and that is in vain
  queue_->tags.insert(&set);
  set.alarm.Set(&queue_->queue, GrpcTime(runtime_, ending_ ? runtime_.Now() : when),
                static_cast<Tag*>(&set));
}

void EtcdClient::Run() {
  void* came = nullptr;
  bool ok = false;
  while (queue_->queue.Next(&came, &ok)) {
    const std::unique_ptr<Tag> tag(static_cast<Tag*>(came));
    tag->Complete();
    const MutexLock lock(mutex_);
    queue_->tags.erase(tag.get());
    if (queue_->tags.empty()) queue_->changed.WakeAll();
  }
  const MutexLock lock(mutex_);
  queue_->ended = true;
  queue_->changed.WakeAll();
}

void EtcdClient::End() {
  ending_ = true;
  MutexLock lock(mutex_);
  if (queue_->ended) return;
  for (Tag* tag : queue_->tags) tag->Cancel();
  while (!queue_->tags.empty()) queue_->changed.Wait(lock);
  lock.Unlock();
  queue_->queue.Shutdown();
  lock.Lock();
  while (!queue_->ended) queue_->changed.Wait(lock);
}

}  // namespace pinstripe
