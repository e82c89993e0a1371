#include "upkeep/host_events.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/time_text.h"
#include "cluster/map/electorate.h"

namespace pinstripe {
namespace {

// So many drives fit into one event.
constexpr size_t kDrivesAtOnce = 200;

std::string Counted(uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}
std::string WereCounted(uint64_t count, std::string_view what) {
  return Counted(count, what) + (count == 1 ? " was" : " were");
}

size_t TellOfDrives(EventLog& log, EventKind kind, int64_t at, std::span<const DriveId> ids,
                    const std::string& text) {
  size_t events = 0;
  for (; !ids.empty(); ids = ids.subspan(std::min(kDrivesAtOnce, ids.size()))) {
    Event event{.kind = kind, .at = at, .actor = {}};
    const auto now = ids.first(std::min(kDrivesAtOnce, ids.size()));
    event.drives.assign(now.begin(), now.end());
    event.text = text;
    log.Add(std::move(event));
    ++events;
  }
  return events;
}

}  // namespace

size_t TellOfComparisons(Cluster& cluster, EventLog& log) {
  std::map<std::string, std::vector<DriveId>> compared;
  for (const auto& [id, was] : cluster.electorate().TakeCompared()) {
    const bool is_copy = was == Say::kStale;
    compared[is_copy ? "their disks went on from a copy or a backup"
                     : "they may have lost changes with their power, or the others went on alone"]
        .push_back(id);
  }
  size_t events = 0;
  for (const auto& [why, ids] : compared) {
    events += TellOfDrives(log, EventKind::kDriveCompared, 0, ids, why);
  }
  return events;
}

struct HostEvents::Watch {
  Watch(Cluster& cluster_in, EventLog& log_in, Options options_in)
      : cluster(&cluster_in),
        runtime(cluster_in.runtime()),
        log(log_in),
        options(std::move(options_in)) {}

  struct Watched {
    std::optional<bool> told_up;  // null: nothing was told yet
    std::optional<Time> away_since;
    int64_t away_at = 0;       // the same by the clock on the wall
    std::optional<Time> came;  // the last time, of one that was told to have gone, or is restless
  };

  void LookAtDrives() REQUIRES(mutex);
  void LookAtDrive(DriveId id, const Drive& drive, Time now, int64_t at) REQUIRES(mutex);
  void Tell(EventKind kind, uint64_t count, std::string text);
  void TellOfFiles() REQUIRES(mutex);
  bool MayTellOfFiles() REQUIRES(mutex);
  void TellOfDamage() REQUIRES(mutex);

  Mutex mutex;
  Cluster* cluster GUARDED_BY(mutex);  // null: the owner is gone
  Runtime& runtime;
  EventLog& log;
  const Options options;
  std::map<DriveId, Watched> drives GUARDED_BY(mutex);
  // As they are found by one look:
  std::map<std::string, std::vector<DriveId>> came GUARDED_BY(mutex);  // by how long they were away
  std::map<std::pair<int64_t, std::string>, std::vector<DriveId>> went GUARDED_BY(mutex);
  uint64_t written_short GUARDED_BY(mutex) = 0;  // not told yet
  std::optional<Time> last_short GUARDED_BY(mutex);
  bool is_writing_short GUARDED_BY(mutex) = false;  // that it began was told, and not that it ended
  int told_early GUARDED_BY(mutex) = 0;             // times since `early_since`
  Time early_since GUARDED_BY(mutex){};
  uint64_t mended GUARDED_BY(mutex) = 0;
  StripeCounters told GUARDED_BY(mutex);       // what was told of what they count
  uint64_t damage_left GUARDED_BY(mutex) = 0;  // shards, of what was told
  Time next_files GUARDED_BY(mutex){};
  Time next_damage GUARDED_BY(mutex){};
};

HostEvents::HostEvents(Cluster& cluster, Options options)
    : log_(cluster, {.actor = options.actor, .spread = options.spread}),
      watch_(std::make_shared<Watch>(cluster, log_, std::move(options))) {
  LookAgain(watch_);
}

HostEvents::~HostEvents() {
  const MutexLock lock(watch_->mutex);
  watch_->cluster = nullptr;
}

void HostEvents::WrittenShort() {
  const MutexLock lock(watch_->mutex);
  ++watch_->written_short;
  watch_->last_short = watch_->runtime.Now();
}

void HostEvents::Mended() {
  const MutexLock lock(watch_->mutex);
  ++watch_->mended;
}

void HostEvents::LookAgain(const std::shared_ptr<Watch>& watch) {
  watch->runtime.RunAt(watch->runtime.Now() + watch->options.every, [watch] {
    {
      const MutexLock lock(watch->mutex);
      if (watch->cluster == nullptr) return;
      watch->LookAtDrives();
      TellOfComparisons(*watch->cluster, watch->log);
      watch->TellOfFiles();
      watch->TellOfDamage();
    }
    LookAgain(watch);
  });
}

void HostEvents::Watch::LookAtDrives() {
  const Time now = runtime.Now();
  const int64_t at = runtime.WallClock();
  for (const MappedDrive& mapped : cluster->map().drives) {
    const Drive* const drive = cluster->FindDrive(mapped.id);
    if (drive != nullptr && !cluster->IsRetired(mapped.id)) LookAtDrive(mapped.id, *drive, now, at);
  }
  for (auto& [why, ids] : came) TellOfDrives(log, EventKind::kDriveCame, 0, ids, why);
  for (auto& [when, ids] : went) {
    TellOfDrives(log, EventKind::kDriveWent, when.first, ids, when.second);
  }
  came.clear();
  went.clear();
}

void HostEvents::Watch::LookAtDrive(DriveId id, const Drive& drive, Time now, int64_t at) {
  Watched& watched = drives[id];
  const bool is_restless = watched.came && now - *watched.came < 2 * options.restless;
  if (drive.IsUp()) {
    if (watched.away_since && (watched.told_up == false || is_restless)) watched.came = now;
    if (watched.told_up != true) {
      std::string after;
      if (watched.told_up == false) {
        const std::chrono::duration<double> away = now - *watched.away_since;
        after = fmt::format("after {}", DurationText(away.count()));
      }
      came[after].push_back(id);
    }
    watched.told_up = true;
    watched.away_since.reset();
    return;
  }
  if (!watched.away_since) {
    watched.away_since = now;
    watched.away_at = at;
  }
  const Duration waits = is_restless ? options.restless : options.settles_in;
  if (watched.told_up == false || now - *watched.away_since < waits) return;
  watched.told_up = false;
  const std::string why = drive.WhyAway();
  went[{watched.away_at, why == "away" ? "" : why}].push_back(id);
}

void HostEvents::Watch::Tell(EventKind kind, uint64_t count, std::string text) {
  Event event{.kind = kind, .actor = {}};
  event.count = count;
  event.text = std::move(text);
  if (count > 0) log.Add(std::move(event));
}

// Whoever asks whether a host may be stopped is to know soon that files were written short.
bool HostEvents::Watch::MayTellOfFiles() {
  const Time now = runtime.Now();
  const bool is_quiet = !last_short || now - *last_short >= options.quiet;
  const bool begins = written_short > 0 && !is_writing_short;
  const bool ends = is_writing_short && is_quiet;
  is_writing_short = !is_quiet;
  if (now >= next_files) return true;
  if (written_short == 0 || !(begins || ends)) return false;
  if (now - early_since >= std::chrono::hours(1)) {
    early_since = now;
    told_early = 0;
  }
  return told_early++ < options.told_early;
}

void HostEvents::Watch::TellOfFiles() {
  if (!MayTellOfFiles() || written_short + mended == 0) return;
  next_files = runtime.Now() + options.files_every;
  const StripeCounters now = cluster->stripes().counters();
  Tell(EventKind::kSparesUsed, std::exchange(written_short, 0),
       fmt::format("{} went to spares, {} stored with fewer shards",
                   Counted(now.spare_writes - told.spare_writes, "shard"),
                   WereCounted(now.short_writes - told.short_writes, "block")));
  Tell(EventKind::kFilesMended, std::exchange(mended, 0), "");
  told.spare_writes = now.spare_writes;
  told.short_writes = now.short_writes;
}

// At times of its own: damage is news while files are written short all the time.
void HostEvents::Watch::TellOfDamage() {
  const StripeCounters now = cluster->stripes().counters();
  const uint64_t damaged = now.damaged_shards - told.damaged_shards;
  // Those that were only missing are no news: whoever wrote them short has told of that.
  const uint64_t rewritten =
      std::min(damage_left + damaged, now.rewritten_shards - told.rewritten_shards);
  if (damaged + rewritten == 0 || runtime.Now() < next_damage) return;
  next_damage = runtime.Now() + options.files_every;
  Tell(EventKind::kDamageFound, damaged, "");
  Tell(EventKind::kDamageMended, rewritten, "");
  damage_left += damaged - rewritten;
  told.damaged_shards = now.damaged_shards;
  told.rewritten_shards = now.rewritten_shards;
}

}  // namespace pinstripe
