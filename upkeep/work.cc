#include "upkeep/work.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/byte_text.h"
#include "base/coding.h"
#include "base/log.h"
#include "base/time_text.h"
#include "base/try.h"
#include "cluster/membership/group_work.h"
#include "cluster/registers/store.h"
#include "upkeep/care_notes.h"

namespace pinstripe {
namespace {

constexpr uint8_t kRecordFormat = 1;
constexpr uint8_t kOrderFormat = 1;
constexpr size_t kMaxWorkBytes = 32;
constexpr size_t kMaxArgumentsBytes = 1000;
constexpr size_t kMaxDoingBytes = 100;
constexpr size_t kMaxDrives = 1024;
constexpr uint32_t kAll = 1'000'000;
constexpr int kMostAttempts = 10;
constexpr Duration kPauseLook = std::chrono::milliseconds(250);
constexpr Duration kWatchLook = std::chrono::seconds(1);
constexpr Duration kPatience = std::chrono::seconds(5);  // within which signs of life come

// Those that can be begun anew where one of them died.
constexpr std::string_view kCommands[] = {"repair", "scrub",  "verify",  "check",    "collect",
                                          "drain",  "expand", "rebuild", "rebalance"};

RegisterName NameOf(uint8_t place) { return {kMapGroup, WorkKey(place)}; }
RegisterName OrderNameOf(uint8_t place) { return {kMapGroup, WorkOrderKey(place)}; }

void PutRun(Writer& out, const WorkRun& run) { out.Raw(AsText(std::as_bytes(std::span(run)))); }

WorkRun TakeRun(Reader& in) {
  WorkRun run{};
  const std::string_view bytes = in.Raw(run.size());
  std::copy(bytes.begin(), bytes.end(), run.begin());
  return run;
}

WorkAsk TakeAsk(Reader& in) {
  const auto ask = static_cast<WorkAsk>(in.U8());
  if (ask < WorkAsk::kGoOn || ask > WorkAsk::kStop) in.MarkBad();
  return ask;
}

bool TakeFlag(Reader& in) {
  const uint8_t flag = in.U8();
  if (flag > 1) in.MarkBad();
  return flag == 1;
}

std::string TakePrintable(Reader& in, size_t most) {
  const std::string_view text = in.Text();
  if (text.size() > most || !IsPrintableAscii(text)) in.MarkBad();
  return std::string(text);
}

}  // namespace

// What it is on the drives ------------------------------------------------------------------------

std::string WorkKey(uint8_t place) { return Writer().Raw("P").U8(place).Take(); }
std::string WorkOrderKey(uint8_t place) { return Writer().Raw("Q").U8(place).Take(); }

std::string WorkRecord::Encode() const {
  Writer out;
  out.U8(kRecordFormat);
  PutRun(out, run);
  actor.EncodeInto(out);
  out.Text(PrintableAscii(work, kMaxWorkBytes)).Text(PrintableAscii(arguments, kMaxArgumentsBytes));
  const size_t listed = std::min(drives.size(), kMaxDrives);
  out.Varint(listed);
  for (size_t i = 0; i < listed; ++i) out.U16(drives[i]);
  out.U64(static_cast<uint64_t>(since)).U64(static_cast<uint64_t>(renewed));
  out.U8(static_cast<uint8_t>(state)).U8(takes_rate ? 1 : 0).Varint(rate);
  out.Text(PrintableAscii(doing, kMaxDoingBytes)).Varint(std::min(done, kAll));
  out.Varint(bytes).Varint(bytes_per_second).Varint(seconds_left);
  return out.Take();
}

Result<WorkRecord> WorkRecord::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kRecordFormat) {
    return Fail(EBADMSG, "work: format {} is not known here (known: {})", format, kRecordFormat);
  }
  WorkRecord record;
  record.run = TakeRun(in);
  record.actor = Actor::DecodeFrom(in);
  record.work = TakePrintable(in, kMaxWorkBytes);
  record.arguments = TakePrintable(in, kMaxArgumentsBytes);
  const uint64_t listed = in.Varint();
  if (listed > kMaxDrives) in.MarkBad();
  for (uint64_t i = 0; in.ok() && i < listed; ++i) record.drives.push_back(in.U16());
  record.since = static_cast<int64_t>(in.U64());
  record.renewed = static_cast<int64_t>(in.U64());
  record.state = TakeAsk(in);
  record.takes_rate = TakeFlag(in);
  record.rate = in.Varint();
  record.doing = TakePrintable(in, kMaxDoingBytes);
  const uint64_t done = in.Varint();
  if (done > kAll) in.MarkBad();
  record.done = static_cast<uint32_t>(done);
  record.bytes = in.Varint();
  record.bytes_per_second = in.Varint();
  record.seconds_left = in.Varint();
  TRY(in.Finish("work"));
  return record;
}

std::string WorkOrder::Encode() const {
  Writer out;
  out.U8(kOrderFormat);
  PutRun(out, run);
  out.U8(static_cast<uint8_t>(ask)).U8(rate ? 1 : 0).Varint(rate.value_or(0));
  actor.EncodeInto(out);
  out.U64(static_cast<uint64_t>(at));
  return out.Take();
}

Result<WorkOrder> WorkOrder::Decode(std::string_view bytes) {
  Reader in(bytes);
  const uint8_t format = in.U8();
  if (in.ok() && format != kOrderFormat) {
    return Fail(EBADMSG, "what is asked of work: format {} is not known here (known: {})", format,
                kOrderFormat);
  }
  WorkOrder order;
  order.run = TakeRun(in);
  order.ask = TakeAsk(in);
  const bool has_rate = TakeFlag(in);
  const uint64_t rate = in.Varint();
  if (has_rate) order.rate = rate;
  if (!has_rate && rate != 0) in.MarkBad();
  order.actor = Actor::DecodeFrom(in);
  order.at = static_cast<int64_t>(in.U64());
  TRY(in.Finish("what is asked of work"));
  return order;
}

// Looking, and asking -----------------------------------------------------------------------------

std::string_view WorkSeen::State() const {
  if (!is_alive) return "died";
  const WorkAsk wanted = order ? order->ask : WorkAsk::kGoOn;
  if (record.state == WorkAsk::kStop || wanted == WorkAsk::kStop) return "stopping";
  if (record.state == WorkAsk::kPause) return "paused";
  return wanted == WorkAsk::kPause ? "pausing" : "running";
}

std::string WorkSeen::Name() const {
  if (record.drives.empty()) return record.work;
  return fmt::format("{} {}", record.work, fmt::join(record.drives, " "));
}

Result<std::vector<WorkSeen>> ReadWork(Cluster& cluster) {
  // One question to each replica for all of them: the console asks every two seconds.
  std::map<std::string, RegisterValue> values;
  std::optional<std::string> next = WorkKey(0);
  while (next) {
    auto page = cluster.registers().Scan(kMapGroup, *next, WorkOrderKey(kWorkPlaces - 1),
                                         size_t{2} * kWorkPlaces);
    if (!page.has_value()) {
      return Fail(page.error().code(), "find out who is at work: {}", page.error().message());
    }
    for (auto& entry : page->entries) values[entry.key] = std::move(entry.value);
    next = page->next;
  }
  const int64_t now = cluster.runtime().WallClock();
  std::vector<WorkSeen> all;
  for (uint8_t place = 0; place < kWorkPlaces; ++place) {
    const RegisterValue& value = values[WorkKey(place)];
    const RegisterValue& asked = values[WorkOrderKey(place)];
    if (!value.value.has_value()) continue;
    auto record = WorkRecord::Decode(*value.value);
    if (!record.has_value()) continue;  // garbage: it is replaced when the place is wanted
    WorkSeen seen{.place = place, .record = *std::move(record), .order = {}, .slot = value.slot};
    const Duration silent = TimeBetween(seen.record.renewed, now);
    seen.is_alive = silent < kWorkIsDeadAfter && silent > -kWorkClocksDiffer;
    if (asked.value.has_value()) {
      const auto order = WorkOrder::Decode(*asked.value);
      if (order.has_value() && order->run == seen.record.run) seen.order = *order;
    }
    all.push_back(std::move(seen));
  }
  return all;
}

Result<std::vector<WorkSeen>> WatchWork(
    Cluster& cluster, std::vector<WorkSeen> all,
    const std::function<void(const WorkSeen& silent)>& waiting) {
  Runtime& runtime = cluster.runtime();
  const Time begun = runtime.Now();
  std::map<uint8_t, uint64_t> silent;  // slots, by place
  for (const WorkSeen& seen : all) silent[seen.place] = seen.slot;
  bool told = waiting == nullptr;
  while (!silent.empty()) {
    const Duration watched = runtime.Now() - begun;
    if (watched >= kWorkIsDeadAfter) break;
    if (watched >= kPatience && !std::exchange(told, true)) {
      waiting(*std::ranges::find(all, silent.begin()->first, &WorkSeen::place));
    }
    Sleep(runtime, runtime.Now() + kWatchLook);
    const std::vector<WorkSeen> now = TRY(ReadWork(cluster));
    std::erase_if(all, [&](WorkSeen& seen) {
      if (!silent.contains(seen.place)) return false;
      const auto found = std::ranges::find(now, seen.place, &WorkSeen::place);
      const bool ended = found == now.end() || found->record.run != seen.record.run;
      if (!ended && found->slot == silent.at(seen.place)) return false;
      silent.erase(seen.place);
      if (!ended) seen = *found;
      seen.is_alive = true;
      return ended;
    });
  }
  for (WorkSeen& seen : all) seen.is_alive = !silent.contains(seen.place);
  return all;
}

Status AskOfWork(Cluster& cluster, const WorkSeen& seen, const WorkChange& change,
                 const Actor& actor) {
  if (!seen.is_alive) return Fail(ESRCH, "{} died: nobody is there to ask", seen.Name());
  if (change.rate && !seen.record.takes_rate) {
    return Fail(EINVAL, "{} has no rate that could be set", seen.Name());
  }
  const RegisterName name = OrderNameOf(seen.place);
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const RegisterValue found =
        TRY_CONTEXT(cluster.registers().Read(name), "ask for {}", seen.Name());
    WorkOrder order{.run = seen.record.run, .rate = {}, .actor = actor};
    if (found.value.has_value()) {
      const auto before = WorkOrder::Decode(*found.value);
      if (before.has_value() && before->run == order.run) {
        order.ask = before->ask;
        order.rate = before->rate;
      }
    }
    if (change.ask) order.ask = *change.ask;
    if (change.rate) order.rate = *change.rate;
    order.at = cluster.runtime().WallClock();
    const auto outcome = cluster.registers().Change(name, found, order.Encode());
    TRY_CONTEXT(outcome.why, "ask for {}", seen.Name());
    if (outcome.applied()) return {};
  }
  return Fail(EIO, "others ask for {} at this moment, again and again", seen.Name());
}

std::string TextOf(const WorkChange& change) {
  std::string text;
  if (change.ask == WorkAsk::kPause) text = "pause";
  if (change.ask == WorkAsk::kGoOn) text = "go on";
  if (change.ask == WorkAsk::kStop) text = "stop";
  if (!change.rate) return text;
  if (!text.empty()) text += " and ";
  if (*change.rate == 0) return text + "go as fast as it can";
  return text + fmt::format("take at most {} a second", BytesText(*change.rate));
}

Status SteerWork(Cluster& cluster, const WorkSeen& seen, const WorkChange& change,
                 const Actor& actor) {
  TRY(AskOfWork(cluster, seen, change, actor));
  EventLog events(cluster, {.actor = actor});
  Event asked{.kind = EventKind::kWorkAsked, .actor = {}, .drives = seen.record.drives};
  asked.work = seen.record.work;
  asked.text = TextOf(change);
  events.Add(std::move(asked));
  (void)events.Flush();
  if (change.ask != WorkAsk::kStop) return {};
  return NoteWorkStop(cluster, seen.record.work);
}

Status ForgetWork(Cluster& cluster, const WorkSeen& seen) {
  const RegisterName name = NameOf(seen.place);
  const RegisterValue found = TRY(cluster.registers().Read(name));
  const auto is_gone = [&seen] {
    return Fail(ESRCH, "{} is gone: somebody else has taken it over or forgotten it", seen.Name());
  };
  if (!found.value.has_value()) return is_gone();
  const auto record = WorkRecord::Decode(*found.value);
  const bool is_it = record.has_value() && record->run == seen.record.run;
  if (!is_it) return is_gone();  // other work has its place
  if (found.slot != seen.slot || seen.is_alive) return Fail(EBUSY, "{} is alive", seen.Name());
  const auto outcome = cluster.registers().Change(name, found, std::nullopt);
  TRY(outcome.why);
  if (outcome.applied()) return {};
  // It moved at this moment: it is alive, or somebody else was quicker.
  return outcome.now.value.has_value() ? Fail(EBUSY, "{} is alive", seen.Name()) : is_gone();
}

Status RestoreWork(Cluster& cluster, const WorkSeen& dead) {
  const RegisterName name = NameOf(dead.place);
  const RegisterValue found = TRY(cluster.registers().Read(name));
  const Status taken = Fail(EBUSY, "the place of {} is another's by now", dead.Name());
  if (found.value.has_value()) return taken;
  const auto outcome = cluster.registers().Change(name, found, dead.record.Encode());
  TRY(outcome.why);
  return outcome.applied() ? Status() : taken;
}

void WorkWatch::Judge(std::vector<WorkSeen>& all) {
  const Time now = runtime_.Now();
  std::map<uint8_t, Watched> watched;
  for (WorkSeen& seen : all) {
    const auto before = watched_.find(seen.place);
    const bool stands_still = before != watched_.end() && before->second.run == seen.record.run &&
                              before->second.slot == seen.slot;
    const Time since = stands_still ? before->second.since : now;
    watched[seen.place] = {.run = seen.record.run, .slot = seen.slot, .since = since};
    seen.is_alive = now - since < kWorkIsDeadAfter;
  }
  watched_ = std::move(watched);
}

std::optional<std::vector<std::string>> CommandToTakeOver(const std::string& config,
                                                          const WorkRecord& dead,
                                                          std::optional<uint64_t> rate) {
  if (std::ranges::find(kCommands, dead.work) == std::end(kCommands)) return std::nullopt;
  std::vector<std::string> words{"pinstripe", dead.work, config};
  for (const DriveId drive : dead.drives) words.push_back(fmt::format("{}", drive));
  for (size_t at = 0; at < dead.arguments.size();) {
    const size_t end = std::min(dead.arguments.find(' ', at), dead.arguments.size());
    if (end > at) words.push_back(dead.arguments.substr(at, end - at));
    at = end + 1;
  }
  const uint64_t its_rate = rate.value_or(dead.rate);
  if (dead.takes_rate && its_rate > 0) {
    words.insert(words.end(), {"--rate", fmt::format("{}", its_rate)});
  }
  return words;
}

Event EventOfDeath(const WorkRecord& died, bool goes_on) {
  Event ended{.kind = EventKind::kWorkEnded, .actor = {}, .drives = died.drives};
  ended.work = died.work;
  ended.result = WorkResult::kDied;
  ended.text =
      fmt::format("it was begun by {}, who gave no sign of life since {}{}", died.actor.Text(),
                  TimeText(died.renewed), goes_on ? "; another process goes on with it" : "");
  return ended;
}

std::string WorkText(const std::vector<WorkSeen>& all, int64_t now) {
  if (all.empty()) return "Nothing is being worked on.\n";
  std::string text;
  for (const WorkSeen& seen : all) {
    const WorkRecord& record = seen.record;
    text += fmt::format("{:<3}{:<16} {:<9}", seen.Number(), seen.Name(), seen.State());
    if (!record.doing.empty()) {
      // At its beginning, or as long as nobody knows how much there is to do, there is no number.
      if (record.done > 0) text += fmt::format(" {:.0f} %", record.done / (kAll / 100.0));
      text += fmt::format(" {}", record.doing);
    }
    const bool runs = seen.is_alive && record.state == WorkAsk::kGoOn;
    if (runs && record.bytes_per_second > 0) {
      text += fmt::format(", {}/s", BytesText(record.bytes_per_second));
    }
    if (runs && record.seconds_left > 0) {
      text += fmt::format(", {} left", DurationText(static_cast<double>(record.seconds_left)));
    }
    if (record.rate > 0) text += fmt::format(", at most {}/s", BytesText(record.rate));
    text += fmt::format("\n   since {} by {}\n", TimeText(record.since), record.actor.Text());
    if (!record.arguments.empty()) text += fmt::format("   with {}\n", record.arguments);
    if (!seen.is_alive) {
      const std::chrono::duration<double> silent = TimeBetween(record.renewed, now);
      text += fmt::format(
          "   {}: `pinstripe work CONFIG resume {}` takes it over, `stop {}` forgets it\n",
          silent.count() < 0 ? "its last sign of life is of the future, by our clock"
                             : fmt::format("no sign of life for {}", DurationText(silent.count())),
          seen.Number(), seen.Number());
    } else if (seen.order && seen.order->ask != WorkAsk::kGoOn) {
      text += fmt::format("   as {} asked\n", seen.order->actor.Text());
    }
  }
  return text;
}

std::string WorkJson(const std::vector<WorkSeen>& all) {
  nlohmann::ordered_json json{{"work", nlohmann::ordered_json::array()}};
  for (const WorkSeen& seen : all) {
    const WorkRecord& record = seen.record;
    nlohmann::ordered_json one{{"number", seen.Number()},
                               {"work", record.work},
                               {"arguments", record.arguments},
                               {"drives", record.drives},
                               {"state", seen.State()},
                               {"doing", record.doing},
                               {"done", static_cast<double>(record.done) / kAll},
                               {"bytes", record.bytes},
                               {"bytes_per_second", record.bytes_per_second},
                               {"takes_rate", record.takes_rate},
                               {"rate", record.rate},
                               {"since", record.since / 1'000'000'000},
                               {"last_sign_of_life", record.renewed / 1'000'000'000},
                               {"host", record.actor.host},
                               {"process", record.actor.process},
                               {"program", record.actor.program},
                               {"user", record.actor.user}};
    if (record.seconds_left > 0) one["seconds_left"] = record.seconds_left;
    if (seen.order) one["asked_by"] = seen.order->actor.Text();
    json["work"].push_back(std::move(one));
  }
  return json.dump(2) + "\n";
}

// Working -----------------------------------------------------------------------------------------

RunningWork::RunningWork(Cluster& cluster, EventLog& log, Options options)
    : cluster_(cluster),
      runtime_(cluster.runtime()),
      log_(log),
      options_(std::move(options)),
      thread_(runtime_, "work", [this] { Run(); }) {
  const std::string random = Writer().U64(runtime_.Random()).U64(runtime_.Random()).Take();
  std::copy(random.begin(), random.end(), ours_.run.begin());
  ours_.actor = options_.actor;
  ours_.work = options_.work;
  ours_.arguments = options_.arguments;
  ours_.drives = options_.drives;
  ours_.since = runtime_.WallClock();
  ours_.takes_rate = options_.takes_rate;
  {
    const MutexLock lock(mutex_);
    rate_ = options_.rate;
    doing_since_ = runtime_.Now();
  }
  Event began{.kind = EventKind::kWorkBegan, .actor = {}, .drives = options_.drives};
  began.work = options_.work;
  began.text = options_.arguments;
  log_.Add(std::move(began));
  thread_.Wake();
}

RunningWork::~RunningWork() { End(WorkResult::kFailed, "its process gave up"); }

void RunningWork::Show(std::string_view doing, double done, uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (doing_ != doing) {
    doing_ = doing;
    doing_since_ = runtime_.Now();
    bytes_before_ = bytes;
    done_before_ = std::clamp(done, 0.0, 1.0);
  }
  done_ = std::clamp(done, 0.0, 1.0);
  bytes_ = bytes;
}

bool RunningWork::GoOn() {
  for (;;) {
    const Status may = options_.may_go_on == nullptr ? Status() : options_.may_go_on();
    {
      const MutexLock lock(mutex_);
      if (!may.ok() && asked_ != WorkAsk::kStop) {
        asked_ = WorkAsk::kStop;
        stopped_by_ = may.message();
      }
      if (asked_ != WorkAsk::kPause || ended_) return asked_ != WorkAsk::kStop;
    }
    Sleep(runtime_, runtime_.Now() + kPauseLook);
  }
}

bool RunningWork::IsStopped() const {
  const MutexLock lock(mutex_);
  return asked_ == WorkAsk::kStop;
}

Status RunningWork::Check() const {
  const MutexLock lock(mutex_);
  if (asked_ != WorkAsk::kStop) return {};
  return Fail(ECANCELED, "{}", stopped_by_);
}

uint64_t RunningWork::rate() const {
  const MutexLock lock(mutex_);
  return rate_;
}

void RunningWork::End(WorkResult result, const std::string& text) {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  thread_.End();
  BuryTwins();
  LeavePlace();
  Event ended{.kind = EventKind::kWorkEnded, .actor = {}, .drives = options_.drives};
  ended.work = options_.work;
  ended.result = result;
  ended.text = text;
  log_.Add(std::move(ended));
}

void RunningWork::Run() {
  while (!thread_.IsEnding()) {
    Renew();
    thread_.WaitUntil(runtime_.Now() + options_.every);
  }
}

WorkRecord RunningWork::Now() {
  WorkRecord record = ours_;
  record.renewed = runtime_.WallClock();
  const MutexLock lock(mutex_);
  record.state = asked_;
  record.rate = rate_;
  record.doing = doing_;
  record.done = static_cast<uint32_t>(done_ * kAll);
  const double seconds = std::chrono::duration<double>(runtime_.Now() - doing_since_).count();
  if (bytes_ > bytes_before_ && seconds > 1) {
    record.bytes = bytes_ - bytes_before_;
    record.bytes_per_second = static_cast<uint64_t>(static_cast<double>(record.bytes) / seconds);
  }
  // Others may have done what was done before.
  const double ours = done_ - done_before_;
  if (ours > 0.001 && seconds > 1) {
    record.seconds_left = static_cast<uint64_t>(std::min(seconds * (1 - done_) / ours, 1e9));
  }
  return record;
}

// A sign of life, and a look for orders.
void RunningWork::Renew() {
  if (!place_) return TakeAPlace();
  BuryTwins();
  auto values = cluster_.registers().ReadMany(std::array{NameOf(*place_), OrderNameOf(*place_)});
  Obey(values[1]);
  if (!values[0].has_value()) return;  // others may take it for dead meanwhile
  const auto found = values[0]->value.has_value() ? WorkRecord::Decode(*values[0]->value)
                                                  : Result<WorkRecord>(WorkRecord());
  const bool is_ours = found.has_value() && found->run == ours_.run;
  if (!is_ours) {
    // It stood still for so long that others took the place, or forgot it.
    place_.reset();
    return TakeAPlace();
  }
  const auto outcome = cluster_.registers().Change(NameOf(*place_), *values[0], Now().Encode());
  if (outcome.applied()) seen_ = outcome.now;
}

void RunningWork::Obey(const Result<RegisterValue>& value) {
  if (!value.has_value() || !value->value.has_value()) return;
  const auto order = WorkOrder::Decode(*value->value);
  if (!order.has_value() || order->run != ours_.run) return;
  const MutexLock lock(mutex_);
  if (asked_ == WorkAsk::kStop) return;  // it does not come back
  asked_ = order->ask;
  stopped_by_ = fmt::format("stopped by {}", order->actor.Text());
  if (options_.takes_rate) rate_ = order->rate.value_or(options_.rate);
}

// By our own clock alone: clocks of hosts may differ by anything.
bool RunningWork::StandsStill(uint8_t place, const RegisterValue& value) {
  const std::pair<uint64_t, Time> now(value.slot, runtime_.Now());
  auto& [slot, since] = watched_.try_emplace(place, now).first->second;
  if (slot != value.slot) std::tie(slot, since) = now;
  return runtime_.Now() - since >= kWorkIsDeadAfter;
}

// What is left of the same work that died goes away: we go on with it.
void RunningWork::BuryTwins() {
  if (twins_.empty()) return;
  std::vector<RegisterName> names;
  for (const uint8_t place : twins_) names.push_back(NameOf(place));
  const auto values = cluster_.registers().ReadMany(names);
  auto value = values.begin();
  for (auto at = twins_.begin(); at != twins_.end(); ++value) {
    const uint8_t place = *at++;
    if (!value->has_value()) continue;  // the next time
    const RegisterValue& found = **value;
    const bool moved = watched_.at(place).first != found.slot;
    const auto record = moved || !found.value.has_value()
                            ? Result<WorkRecord>(Fail(ENOENT, "it is gone"))
                            : WorkRecord::Decode(*found.value);
    if (!record.has_value()) {
      twins_.erase(place);
    } else if (StandsStill(place, found)) {
      const auto outcome = cluster_.registers().Change(NameOf(place), found, std::nullopt);
      if (!outcome.why.ok()) continue;
      twins_.erase(place);
      if (outcome.applied()) log_.Add(EventOfDeath(*record, /*goes_on=*/true));
    }
  }
}

// A free one, or that of one that died; best that of the same work.
void RunningWork::TakeAPlace() {
  std::vector<RegisterName> names;
  for (uint8_t place = 0; place < kWorkPlaces; ++place) names.push_back(NameOf(place));
  const auto values = cluster_.registers().ReadMany(names);
  std::optional<uint8_t> best;
  std::optional<WorkRecord> died;
  int best_rank = 0;
  int64_t best_renewed = INT64_MAX;
  for (uint8_t place = 0; place < kWorkPlaces; ++place) {
    if (!values[place].has_value()) return;  // the next time
    int rank = 2;
    int64_t renewed = INT64_MIN + place;
    std::optional<WorkRecord> record;
    if (values[place]->value.has_value()) {
      auto decoded = WorkRecord::Decode(*values[place]->value);
      if (decoded.has_value()) {
        if (decoded->run == ours_.run) {  // an answer was lost
          place_ = place;
          seen_ = *values[place];
          return;
        }
        record = *std::move(decoded);
        const bool is_dead = StandsStill(place, *values[place]);
        const bool is_same = record->work == ours_.work && record->drives == ours_.drives &&
                             record->arguments == ours_.arguments;
        if (is_same) twins_.insert(place);
        rank = !is_dead ? 0 : is_same ? 3 : 1;
        renewed = record->renewed;
      }
    }
    if (rank > best_rank || (rank == best_rank && rank > 0 && renewed < best_renewed)) {
      best = place;
      best_rank = rank;
      best_renewed = renewed;
      died = rank == 3 || rank == 1 ? record : std::nullopt;
    }
  }
  if (!best) return;
  const auto outcome = cluster_.registers().Change(NameOf(*best), *values[*best], Now().Encode());
  if (!outcome.applied()) return;  // somebody else was there first
  place_ = best;
  seen_ = outcome.now;
  twins_.erase(*best);
  if (died) log_.Add(EventOfDeath(*died, /*goes_on=*/best_rank == 3));
}

void RunningWork::LeavePlace() {
  if (!place_) return;
  const RegisterName name = NameOf(*place_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto outcome = cluster_.registers().Change(name, seen_, std::nullopt);
    if (outcome.applied()) return;
    // Our own last sign of life, of which we did not hear, or somebody else's place by now.
    const auto found = cluster_.registers().Read(name);
    if (!found.has_value() || !found->value.has_value()) return;
    const auto record = WorkRecord::Decode(*found->value);
    if (!record.has_value() || record->run != ours_.run) return;
    seen_ = *found;
  }
}

}  // namespace pinstripe
