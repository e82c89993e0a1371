// Api: every request of the console, from its guard to its answer. console/openapi.json describes
// it. What takes a request and gives an answer is here; HTTP itself is elsewhere (http_server.h).

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/runtime.h"
#include "console/chores.h"
#include "console/cluster_view.h"
#include "console/http_server.h"
#include "console/operators.h"
#include "console/page_files.h"
#include "console/request_guard.h"
#include "console/watch.h"

namespace pinstripe {

// What it answers from; all of it outlives the Api.
struct ApiParts {
  Runtime& runtime;
  ClusterView& view;
  Watch& watch;
  Chores& chores;
  Operators& operators;
  const PageFiles& page;
};

struct ApiOptions {
  HostNames names;
  std::string public_origin;  // of a proxy that speaks TLS for us; empty: there is none
  std::string version;
  size_t most_streams = 24;  // of live updates; each takes a connection for as long as it lasts
  size_t streams_per_peer = 12;
  size_t most_searches = 4;   // of the tree, and of a file's shards, at once
  bool files_for_all = true;  // or for operators only
};

class Api {
 public:
  Api(const ApiParts& parts, ApiOptions options);

  // Thread-safe.
  HttpResponse Answer(const HttpRequest& request);
  // An answer refuses a request that is to have a body, before that is read.
  std::optional<HttpResponse> BeforeTheBody(const HttpRequest& request);

  // Streams end with what they have.
  void End() { ending_ = true; }

  size_t CountStreams() const;  // live updates that somebody follows

 private:
  // One of a bounded number, for as long as it lives.
  class Place;
  using PlacePtr = std::shared_ptr<Place>;
  static PlacePtr TakePlace(std::atomic<size_t>& taken, size_t most);
  class Stream;
  using StreamPtr = std::shared_ptr<Stream>;
  StreamPtr TakeStream(const std::string& peer);
  size_t CountStreamsLocked() const REQUIRES(mutex_);

  HttpResponse Route(const HttpRequest& request);
  HttpResponse Get(const HttpRequest& request);
  HttpResponse Post(const HttpRequest& request);
  HttpResponse Page(const HttpRequest& request) const;
  HttpResponse DriveHistory(const HttpRequest& request) const;
  HttpResponse Files(const HttpRequest& request);
  HttpResponse Why(const HttpRequest& request);
  HttpResponse Search(const HttpRequest& request,
                      const std::function<Result<std::string>()>& search);
  HttpResponse Live(const HttpRequest& request);
  HttpResponse AskOfWork(const HttpRequest& request, const std::string& by);
  HttpResponse StartChore(const HttpRequest& request, const std::string& by);
  HttpResponse StopChore(const HttpRequest& request, const std::string& by);

  std::string StatusJson(const PicturePtr& picture);
  std::string WorkTold(const PicturePtr& picture) const;
  std::string EventsTold() const;
  // The name of the operator whose token it has.
  Result<std::string> OperatorOf(const HttpRequest& request);

  const ApiParts parts_;
  const ApiOptions options_;
  std::atomic<bool> ending_ = false;
  std::atomic<size_t> searches_ = 0;
  // All viewers get the same text.
  mutable Mutex mutex_;
  std::map<std::string, size_t> streams_ GUARDED_BY(mutex_);  // of each network
  PicturePtr told_ GUARDED_BY(mutex_);
  std::string told_status_ GUARDED_BY(mutex_);
};

}  // namespace pinstripe
