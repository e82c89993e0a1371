#include "console/api.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/log.h"
#include "base/try.h"
#include "console/alarms.h"
#include "console/peer_network.h"

namespace pinstripe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kApi = "/api/v1/";
constexpr uint64_t kMostEntries = 500;
constexpr uint64_t kUsualEntries = 200;
constexpr uint64_t kMostStripes = 256;
constexpr uint64_t kUsualStripes = 64;
constexpr uint64_t kMostBlocks = 1 << 20;       // of a file that an operator asks about
constexpr uint64_t kMostBlocksOfAll = 1 << 14;  // or whoever
constexpr Duration kBetweenSigns = std::chrono::seconds(10);
// Whoever follows live may have gone: somebody who goes from page to page leaves one behind each
// time.
constexpr Duration kBetweenLooks = std::chrono::milliseconds(250);

// On one line. A reason or a name may be any bytes.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse Answer(const Json& json, int status = 200) {
  return {.status = status, .body = Dump(json) + "\n"};
}

HttpResponse Refuse(int status, std::string_view why) { return Answer({{"error", why}}, status); }

// Of a failure of our own. Those of the cluster have other meanings; see RefuseByCluster().
int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case ENOENT: return 404;
    case EINVAL:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG: return 400;
    case EACCES: return 401;
    case EPERM: return 403;
    case ESRCH: return 409;
    case EFBIG: return 413;
    case EBUSY: return 429;
    default: return 503;
  }
}

HttpResponse Refuse(const Status& status) {
  HttpResponse response = Refuse(HttpStatusOf(status), status.message());
  if (response.status == 429 || response.status == 503) {
    response.headers.emplace_back("Retry-After", response.status == 429 ? "60" : "5");
  }
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

// What the cluster says of a name or of work is about the request; all else is about the cluster.
HttpResponse RefuseByCluster(const Status& status) {
  switch (status.code()) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ESRCH:
    case EFBIG: return Refuse(status);
    default: return Refuse(Status(EIO, std::string(status.message())));
  }
}

// A number from 0 to `most`; what is absent is `usual`.
Result<uint64_t> NumberIn(std::string_view text, std::string_view name, uint64_t usual,
                          uint64_t most) {
  if (text.empty()) return usual;
  uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number > most) {
    return Fail(EINVAL, "{} is a number up to {}", name, most);
  }
  return number;
}

// Of names that are no text, too: as a part of a link.
std::string Encoded(std::string_view name) {
  std::string encoded;
  for (const unsigned char c : name) {
    if (std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += static_cast<char>(c);
    } else {
      encoded += fmt::format("%{:02X}", c);
    }
  }
  return encoded;
}

std::string_view NameOf(FileKind kind) {
  switch (kind) {
    case FileKind::kRegular: return "file";
    case FileKind::kDirectory: return "directory";
    case FileKind::kSymlink: return "link";
    default: return "special";
  }
}

Json EntryJson(const DirectoryEntry& entry) {
  Json json{{"name", entry.name}, {"encoded", Encoded(entry.name)}, {"kind", NameOf(entry.kind)}};
  if (entry.attributes) {
    json["size"] = entry.attributes->size;
    json["modified"] = entry.attributes->modified / 1'000'000'000;
  }
  return json;
}

Json ChoreJson(const Chore& chore) {
  Json json{{"id", chore.id},       {"kind", chore.kind},       {"drives", chore.drives},
            {"by", chore.by},       {"started", chore.started}, {"state", NameOf(chore.state)},
            {"doing", chore.doing}, {"done", chore.done},       {"said", chore.said}};
  if (chore.seconds_left >= 0) json["seconds_left"] = chore.seconds_left;
  if (chore.state == Chore::State::kEnded) {
    json["ended"] = chore.ended;
    json["exit_code"] = chore.exit_code;
  }
  return json;
}

// As `pinstripe top --json` prints it, of the busiest clients. Where they work is for whom files
// are.
Json ActivityJson(const Activity& activity, bool with_clients) {
  if (!activity.unknown.ok()) return {{"error", activity.unknown.message()}};
  Json json = Json::parse(TopJson(activity.clients, activity.drives, 0));
  json.erase("time");
  if (!with_clients) json.erase("clients");
  json["taken_at"] = activity.taken_at;
  json["over_seconds"] = std::chrono::duration<double>(activity.over).count();
  json["client_count"] = activity.client_count;
  return json;
}

Json SampleJson(const History::Sample& sample) {
  Json json{{"at", sample.at}, {"used_bytes", sample.used_bytes}, {"state", NameOf(sample.state)}};
  if (!sample.work) return json;
  const auto rounded = [](double number, double steps) {
    return std::round(number * steps) / steps;
  };
  const History::Work& work = *sample.work;
  json["read_bytes_per_second"] = rounded(work.bytes_read, 1);
  json["written_bytes_per_second"] = rounded(work.bytes_written, 1);
  if (work.reads_p99 > 0) json["reads_p99_seconds"] = rounded(work.reads_p99, 1e7);
  if (work.writes_p99 > 0) json["changes_p99_seconds"] = rounded(work.writes_p99, 1e7);
  return json;
}

// Bodies are small, and objects.
Result<Json> BodyOf(const HttpRequest& request) {
  Json json = Json::parse(request.body, nullptr, false);
  if (!json.is_object()) return Fail(EINVAL, "the body is not a JSON object");
  return json;
}

struct WantedChore {
  std::string kind;
  std::vector<DriveId> drives;
};

Result<WantedChore> WantedChoreIn(const HttpRequest& request) {
  const Json body = TRY(BodyOf(request));
  WantedChore wanted;
  for (const auto& [key, value] : body.items()) {
    if (key == "kind" && value.is_string()) {
      wanted.kind = value.get<std::string>();
    } else if (key == "drives" && value.is_array()) {
      for (const Json& drive : value) {
        const bool is_id = drive.is_number_unsigned() && drive.get<uint64_t>() >= 1 &&
                           drive.get<uint64_t>() <= UINT16_MAX;
        if (!is_id) return Fail(EINVAL, "drives are numbers from 1 to {}", UINT16_MAX);
        wanted.drives.push_back(drive.get<DriveId>());
      }
    } else {
      return Fail(EINVAL, "the body has a text `kind` and a list `drives`, and nothing else");
    }
  }
  return wanted;
}

}  // namespace

class Api::Place {
 public:
  explicit Place(std::atomic<size_t>& taken) : taken_(taken) {}
  ~Place() { --taken_; }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  std::atomic<size_t>& taken_;
};

Api::PlacePtr Api::TakePlace(std::atomic<size_t>& taken, size_t most) {
  if (taken.fetch_add(1) < most) return std::make_shared<Place>(taken);
  --taken;
  return nullptr;
}

// The place of a live update, and the network that it counts for.
class Api::Stream {
 public:
  Stream(Api& api, std::string network) : api_(api), network_(std::move(network)) {}
  ~Stream() {
    const MutexLock lock(api_.mutex_);
    const auto taken = api_.streams_.find(network_);
    if (--taken->second == 0) api_.streams_.erase(taken);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

 private:
  Api& api_;
  const std::string network_;
};

Api::StreamPtr Api::TakeStream(const std::string& peer) {
  const std::string network = NetworkOf(peer);
  {
    const MutexLock lock(mutex_);
    const size_t all = CountStreamsLocked();
    const auto own = streams_.find(network);
    const bool has_many = own != streams_.end() && own->second >= options_.streams_per_peer;
    if (all >= options_.most_streams || has_many) return nullptr;
    ++streams_[network];
  }
  return std::make_shared<Stream>(*this, network);
}

size_t Api::CountStreamsLocked() const {
  size_t all = 0;
  for (const auto& [network, count] : streams_) all += count;
  return all;
}

size_t Api::CountStreams() const {
  const MutexLock lock(mutex_);
  return CountStreamsLocked();
}

Api::Api(const ApiParts& parts, ApiOptions options) : parts_(parts), options_(std::move(options)) {}

HttpResponse Api::Answer(const HttpRequest& request) {
  const Status allowed = CheckRequest(request, options_.names, options_.public_origin);
  HttpResponse response = allowed.ok() ? Route(request) : Refuse(allowed);
  AddSecurityHeaders(response);
  return response;
}

std::optional<HttpResponse> Api::BeforeTheBody(const HttpRequest& request) {
  const Status allowed = CheckRequest(request, options_.names, options_.public_origin);
  std::optional<HttpResponse> refusal;
  if (!allowed.ok()) {
    refusal = Refuse(allowed);
  } else if (const auto name = OperatorOf(request); !name.has_value()) {
    if (!request.Header("authorization").empty()) {
      Log(LogLevel::kWarn, "an operation was refused",
          {{"peer", request.peer}, {"path", request.path}, {"why", name.error()}});
    }
    refusal = Refuse(name.error());
  }
  if (refusal) AddSecurityHeaders(*refusal);
  return refusal;
}

HttpResponse Api::Route(const HttpRequest& request) {
  if (request.method == "POST") return Post(request);
  return request.path.starts_with(kApi) ? Get(request) : Page(request);
}

HttpResponse Api::Get(const HttpRequest& request) {
  const std::string_view what = std::string_view(request.path).substr(kApi.size());
  if (what == "status") return {.body = StatusJson(parts_.watch.Newest()) + "\n"};
  if (what == "history" || what.starts_with("drives/")) return DriveHistory(request);
  if (what == "files") return Files(request);
  if (what == "why") return Why(request);
  if (what == "work") return {.body = WorkTold(parts_.watch.Newest()) + "\n"};
  if (what == "events") {
    parts_.watch.Newest();  // somebody looks
    return {.body = EventsTold() + "\n"};
  }
  if (what == "live") return Live(request);
  if (what == "operator") {
    const auto name = OperatorOf(request);
    return name.has_value() ? pinstripe::Answer({{"name", *name}}) : Refuse(name.error());
  }
  if (what == "openapi.json") {
    const PageFile* file = parts_.page.Find("/openapi.json");
    if (file != nullptr) return {.body = file->body};
  }
  return Refuse(404, "there is nothing of that name");
}

HttpResponse Api::Page(const HttpRequest& request) const {
  const PageFile* file = parts_.page.Find(request.path);
  if (file == nullptr) return Refuse(404, "there is nothing of that name");
  HttpResponse response{.type = file->type};
  // A browser keeps it, and asks each time whether it is still that.
  response.headers = {{"Cache-Control", "no-cache"}, {"ETag", file->tag}};
  if (request.Header("if-none-match") == file->tag) {
    response.status = 304;
  } else {
    response.body = file->body;
  }
  return response;
}

// --- Looking ---

std::string Api::StatusJson(const PicturePtr& picture) {
  {
    const MutexLock lock(mutex_);
    if (told_ == picture && !told_status_.empty()) return told_status_;
  }
  Json json{{"number", picture->number},
            {"taken_at", picture->taken_at},
            {"took", picture->took},
            {"version", options_.version},
            {"has_operators", parts_.operators.count() > 0},
            {"files_for_all", options_.files_for_all},
            {"alarms", Json::array()},
            {"activity", ActivityJson(*picture->activity, options_.files_for_all)}};
  if (!picture->survey.has_value()) {
    const std::string why(picture->survey.error().message());
    json["error"] = why;
    if (picture->number > 0) {
      json["alarms"].push_back({{"severity", "error"},
                                {"what", fmt::format("The configuration cannot be used: {}", why)},
                                {"way_out", "Mend it; the console reads it again by itself."}});
    }
  } else {
    const Survey& survey = *picture->survey;
    json["survey"] = Json::parse(SurveyJson(survey));
    for (size_t i = 0; i < survey.drives.size(); ++i) {
      json["survey"]["drives"][i]["sign"] = NameOf(StateOf(survey.drives[i]));
    }
    for (const Alarm& alarm : AlarmsOf(survey)) {
      json["alarms"].push_back({{"severity", alarm.is_error ? "error" : "warning"},
                                {"what", alarm.what},
                                {"way_out", alarm.way_out}});
    }
  }
  std::string text = Dump(json);
  const MutexLock lock(mutex_);
  told_ = picture;
  told_status_ = text;
  return text;
}

std::string Api::WorkTold(const PicturePtr& picture) const {
  Json json{{"kinds", Json::array()}, {"chores", Json::array()}};
  for (const ChoreKind& kind : ChoreKinds()) {
    json["kinds"].push_back({{"name", kind.name},
                             {"what", kind.what},
                             {"least_drives", kind.least_drives},
                             {"most_drives", kind.most_drives}});
  }
  for (const Chore& chore : parts_.chores.List()) json["chores"].push_back(ChoreJson(chore));
  json["work"] = Json::parse(WorkJson(picture->work)).at("work");
  return Dump(json);
}

std::string Api::EventsTold() const {
  Json json{{"events", Json::array()}};
  for (const Event& event : parts_.watch.Events()) {
    json["events"].push_back(Json::parse(EventJson(event)));
  }
  return Dump(json);
}

HttpResponse Api::DriveHistory(const HttpRequest& request) const {
  constexpr std::string_view kDrives = "drives/";
  constexpr std::string_view kEnd = "/history";
  std::string_view what = std::string_view(request.path).substr(kApi.size());
  uint64_t drive = 0;  // all of them
  if (what.starts_with(kDrives)) {
    what.remove_prefix(kDrives.size());
    if (!what.ends_with(kEnd)) return Refuse(404, "there is nothing of that name");
    what.remove_suffix(kEnd.size());
    const auto id = NumberIn(what, "a drive", 0, UINT16_MAX);
    if (!id.has_value()) return Refuse(id.error());
    drive = *id;
    if (drive == 0) return Refuse(404, "drives are numbered from 1");
  }
  const auto samples = parts_.watch.history().Of(static_cast<DriveId>(drive));
  if (samples.empty() && drive != 0) return Refuse(404, "nothing is known of such a drive");
  Json json{{"samples", Json::array()}};
  if (drive != 0) json["drive"] = drive;
  for (const History::Sample& sample : samples) {
    json["samples"].push_back(SampleJson(sample));
  }
  return pinstripe::Answer(json);
}

HttpResponse Api::Search(const HttpRequest& request,
                         const std::function<Result<std::string>()>& search) {
  if (!options_.files_for_all) {
    const auto name = OperatorOf(request);
    if (!name.has_value()) return Refuse(name.error());
  }
  const PlacePtr place = TakePlace(searches_, options_.most_searches);
  if (place == nullptr) return Refuse(503, "too many look for files now: try again");
  Result<std::string> found = search();
  if (!found.has_value()) return RefuseByCluster(found.error());
  return {.body = *std::move(found)};
}

HttpResponse Api::Files(const HttpRequest& request) {
  const std::string_view path = request.Query("path");
  if (!path.starts_with('/')) return Refuse(400, "path begins with a slash");
  const auto wanted = NumberIn(request.Query("max"), "max", kUsualEntries, kMostEntries);
  if (!wanted.has_value()) return Refuse(wanted.error());
  if (*wanted == 0) return Refuse(400, "max is 1 or more");
  return Search(request, [&, max = *wanted]() -> Result<std::string> {
    // One more than is told, to see whether there are more.
    auto listed = parts_.view.List(path, request.Query("after"), max + 1);
    const bool is_directory = listed.has_value() || listed.error().code() != ENOTDIR;
    Json json{{"path", path}, {"is_directory", is_directory}, {"more", false}};
    json["entries"] = Json::array();
    if (!is_directory) return Dump(json) + "\n";
    std::vector<DirectoryEntry> entries = TRY(std::move(listed));
    json["more"] = entries.size() > max;
    if (entries.size() > max) entries.resize(max);
    for (const DirectoryEntry& entry : entries) json["entries"].push_back(EntryJson(entry));
    return Dump(json) + "\n";
  });
}

HttpResponse Api::Why(const HttpRequest& request) {
  const std::string_view path = request.Query("path");
  if (!path.starts_with('/')) return Refuse(400, "path begins with a slash");
  const auto skipped = NumberIn(request.Query("skip"), "skip", 0, UINT32_MAX);
  if (!skipped.has_value()) return Refuse(skipped.error());
  const auto listed = NumberIn(request.Query("stripes"), "stripes", kUsualStripes, kMostStripes);
  if (!listed.has_value()) return Refuse(listed.error());
  // Where files are for operators only, Search() looks whether it is one.
  const bool has_token = !request.Header("authorization").empty();
  const bool is_operator =
      !options_.files_for_all || (has_token && OperatorOf(request).has_value());
  const WhereaboutsOptions options{.most_blocks = is_operator ? kMostBlocks : kMostBlocksOfAll,
                                   .skipped_stripes = *skipped,
                                   .listed_stripes = *listed,
                                   .is_ending = [this] { return ending_.load(); }};
  return Search(request, [&]() -> Result<std::string> {
    return WhereaboutsJson(TRY(parts_.view.Find(path, options)));
  });
}

HttpResponse Api::Live(const HttpRequest& request) {
  const StreamPtr place = TakeStream(request.peer);
  if (place == nullptr) return Refuse(Fail(EAGAIN, "too many follow live already: ask for status"));
  HttpResponse response{.type = "text/event-stream"};
  struct Told {
    uint64_t number = UINT64_MAX;
    uint64_t events = UINT64_MAX;
    std::string work;
    Time at{};
  };
  response.stream = [this, place, told = std::make_shared<Told>()]() -> std::optional<std::string> {
    if (ending_) return std::nullopt;
    const PicturePtr picture = told->number == UINT64_MAX
                                   ? parts_.watch.Newest()
                                   : parts_.watch.WaitForOther(told->number, kBetweenLooks);
    if (ending_) return std::nullopt;
    std::string text;
    if (picture->number != told->number) {
      text += fmt::format("event: status\ndata: {}\n\n", StatusJson(picture));
      told->number = picture->number;
    }
    if (picture->events != told->events) {
      text += fmt::format("event: events\ndata: {}\n\n", EventsTold());
      told->events = picture->events;
    }
    if (std::string work = WorkTold(picture); work != told->work) {
      text += fmt::format("event: work\ndata: {}\n\n", work);
      told->work = std::move(work);
    }
    const Time now = parts_.runtime.Now();
    if (text.empty() && now >= told->at + kBetweenSigns) text = ": still here\n\n";
    if (!text.empty()) told->at = now;
    return text;
  };
  return response;
}

// --- Acting ---

Result<std::string> Api::OperatorOf(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view token = request.Header("authorization");
  token = token.starts_with(kBearer) ? token.substr(kBearer.size()) : std::string_view();
  return parts_.operators.Find(token, request.peer);
}

HttpResponse Api::Post(const HttpRequest& request) {
  const auto name = OperatorOf(request);
  if (!name.has_value()) return Refuse(name.error());
  if (request.path == "/api/v1/work") return StartChore(request, *name);
  if (request.path.starts_with("/api/v1/work/")) return AskOfWork(request, *name);
  if (request.path.starts_with("/api/v1/chores/") && request.path.ends_with("/stop")) {
    return StopChore(request, *name);
  }
  return Refuse(404, "there is nothing of that name");
}

// "/api/v1/work/NUMBER/pause", "resume" or "stop": of work wherever it was started.
HttpResponse Api::AskOfWork(const HttpRequest& request, const std::string& by) {
  const std::string_view rest =
      std::string_view(request.path).substr(std::string_view("/api/v1/work/").size());
  const size_t slash = rest.find('/');
  const std::string_view what = slash == rest.npos ? "" : rest.substr(slash + 1);
  WorkChange change;
  if (what == "pause") change.ask = WorkAsk::kPause;
  if (what == "resume") change.ask = WorkAsk::kGoOn;
  if (what == "stop") change.ask = WorkAsk::kStop;
  const auto number = NumberIn(rest.substr(0, slash), "work", 0, kWorkPlaces);
  if (!change.ask || !number.has_value()) return Refuse(404, "there is nothing of that name");
  const Status asked = parts_.view.AskOfWork(static_cast<int>(*number), change, by);
  if (!asked.ok()) return RefuseByCluster(asked);
  Log(LogLevel::kInfo, "work was asked", {{"number", *number}, {"to", what}, {"by", by}});
  return pinstripe::Answer({{"id", *number}}, 202);
}

HttpResponse Api::StartChore(const HttpRequest& request, const std::string& by) {
  const auto wanted = WantedChoreIn(request);
  if (!wanted.has_value()) return Refuse(wanted.error());
  const auto id = parts_.chores.Start(wanted->kind, wanted->drives, by);
  if (!id.has_value()) {
    const int code = id.error().code();
    if (code == EINVAL || code == EBUSY) return Refuse(id.error());
    return Refuse(503, id.error().message());
  }
  return pinstripe::Answer({{"id", *id}}, 202);
}

HttpResponse Api::StopChore(const HttpRequest& request, const std::string& by) {
  constexpr std::string_view kChores = "/api/v1/chores/";
  constexpr std::string_view kStop = "/stop";
  std::string_view number = request.path;
  // In "/api/v1/chores/stop" the two overlap.
  if (number.size() <= kChores.size() + kStop.size()) {
    return Refuse(404, "there is nothing of that name");
  }
  number.remove_prefix(kChores.size());
  number.remove_suffix(kStop.size());
  const auto id = NumberIn(number, "a chore", 0, UINT32_MAX);
  if (!id.has_value()) return Refuse(id.error());
  const Status stopped = parts_.chores.Stop(*id);
  if (!stopped.ok()) return Refuse(stopped);
  Log(LogLevel::kInfo, "work is stopped", {{"id", *id}, {"by", by}});
  return pinstripe::Answer({{"id", *id}}, 202);
}

}  // namespace pinstripe
