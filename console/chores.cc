#include "console/chores.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "upkeep/actor.h"

namespace pinstripe {
namespace {

constexpr size_t kMostLine = 4096;

std::vector<char*> PointersTo(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Ours, and for whom it works.
std::vector<std::string> EnvironmentFor(const std::string& operator_name) {
  const std::string ours = fmt::format("{}=", kOperatorVariable);
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(ours)) environment.emplace_back(*entry);
  }
  environment.push_back(ours + operator_name);
  return environment;
}

// The child has no descriptor of ours but its output, no signal blocked or ignored, and reads
// nothing.
Result<pid_t> Spawn(const std::vector<std::string>& command, const std::string& by, int output) {
  std::vector<char*> arguments = PointersTo(command);
  const std::vector<std::string> variables = EnvironmentFor(by);
  std::vector<char*> environment = PointersTo(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, command.front().c_str(), &actions, &attributes,
                                 arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return Fail(failed, "{} cannot be started: {}", command.front(), ErrnoText(failed));
  }
  return pid;
}

double NumberIn(const nlohmann::json& json, const char* key, double fallback) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : fallback;
}

// What `--progress=json` prints. False: it is another line. `interrupted`: what it says of how to
// go on, when it was interrupted.
bool NoteProgress(Chore& chore, std::string_view line, std::string& interrupted) {
  if (!line.starts_with('{')) return false;
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("doing") || !json["doing"].is_string()) return false;
  chore.doing = json["doing"].get<std::string>();
  chore.done = std::clamp(NumberIn(json, "done", 0), 0.0, 1.0);
  chore.seconds_left = NumberIn(json, "seconds_left", -1);
  const auto said = json.find("interrupted");
  if (said != json.end() && said->is_string()) interrupted = said->get<std::string>();
  return true;
}

}  // namespace

const std::vector<ChoreKind>& ChoreKinds() {
  static const std::vector<ChoreKind> kinds{
      {"check", 0, 0, "look whether names, inodes and shards fit together"},
      {"verify", 0, 0, "read all shards, and say whether everything is whole"},
      {"scrub", 0, 0, "read all shards, and repair what is damaged"},
      {"repair", 0, 0, "write again the shards that files lack"},
      {"collect", 0, 0, "remove what died clients left behind"},
      {"rebalance", 0, 0, "finish changes of the drive map, and bring all shards home"},
      {"rebuild", 1, 1, "bring an empty drive in, in the place of one that is lost"},
      {"drain", 1, 64, "move everything off drives"},
      {"expand", 0, 64, "add drives, or give them other weights"},
  };
  return kinds;
}

std::string_view NameOf(Chore::State state) {
  switch (state) {
    case Chore::State::kRunning: return "running";
    case Chore::State::kStopping: return "stopping";
    case Chore::State::kEnded: return "ended";
  }
  return "";
}

Chores::Chores(Runtime& runtime, Options options)
    : runtime_(runtime), options_(std::move(options)), ended_(runtime.NewSignal()) {}

Chores::~Chores() {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const Time until = signal == SIGKILL ? Time::max() : runtime_.Now() + options_.patience;
    if (EndAll(signal, until)) return;
  }
}

// False: something runs still.
bool Chores::EndAll(int signal, Time until) {
  {
    const MutexLock lock(mutex_);
    // To be killed: with whatever each has started, which holds its output, too.
    for (const auto& [id, pid] : running_) kill(signal == SIGKILL ? -pid : pid, signal);
  }
  for (bool in_time = true;; in_time = ended_->WaitUntil(until)) {
    const MutexLock lock(mutex_);
    if (running_.empty()) return true;
    if (!in_time) return false;
  }
}

void Chores::ForgetOldLocked() {
  for (auto chore = chores_.begin();
       chore != chores_.end() && chores_.size() > options_.most_kept;) {
    chore = running_.contains(chore->first) ? std::next(chore) : chores_.erase(chore);
  }
}

Result<uint64_t> Chores::Start(std::string_view kind, const std::vector<DriveId>& drives,
                               const std::string& by) {
  const auto known = std::ranges::find(ChoreKinds(), kind, &ChoreKind::name);
  if (known == ChoreKinds().end()) return Fail(EINVAL, "there is no work '{}'", kind);
  if (drives.size() < known->least_drives || drives.size() > known->most_drives) {
    return Fail(EINVAL, "{} takes {} to {} drives, not {}", kind, known->least_drives,
                known->most_drives, drives.size());
  }
  std::vector<std::string> command{options_.program, "--progress=json", std::string(kind),
                                   options_.config};
  for (const DriveId drive : drives) command.push_back(fmt::format("{}", drive));
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Fail(errno, "there is no pipe for it: {}", ErrnoText(errno));
  }
  FileDescriptor output(ends[0]);
  const FileDescriptor input(ends[1]);
  uint64_t id = 0;
  pid_t pid = 0;
  {
    const MutexLock lock(mutex_);
    if (running_.size() >= options_.most_running) {
      return Fail(EBUSY, "{} works run already: wait for one, or stop one", running_.size());
    }
    const Result<pid_t> spawned = Spawn(command, by, input.get());
    if (!spawned.has_value()) return tl::unexpected(spawned.error());
    pid = *spawned;
    id = ++last_id_;
    chores_[id] = {.id = id,
                   .kind = std::string(kind),
                   .drives = drives,
                   .by = by,
                   .started = runtime_.WallClock() / 1'000'000'000};
    running_[id] = pid;
    ForgetOldLocked();
  }
  Log(LogLevel::kInfo, "work begins",
      {{"what", kind}, {"drives", fmt::format("{}", fmt::join(drives, ","))}, {"by", by}});
  const auto shared = std::make_shared<FileDescriptor>(std::move(output));
  try {
    runtime_.Spawn("console chore", [this, id, pid, shared] { Follow(id, pid, shared->get()); });
  } catch (const std::system_error& failed) {
    kill(-pid, SIGKILL);
    NoteEnd(id, pid);
    const MutexLock lock(mutex_);
    chores_.erase(id);
    return Fail(EAGAIN, "there is no thread for it: {}", failed.what());
  }
  return id;
}

void Chores::Follow(uint64_t id, pid_t pid, int output) {
  std::string line;
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t got = read(output, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (const char c : std::string_view(bytes.data(), static_cast<size_t>(got))) {
      if (c != '\n') {
        if (line.size() < kMostLine) line += c;
        continue;
      }
      Note(id, line);
      line.clear();
    }
  }
  if (!line.empty()) Note(id, line);
  // It stays a zombie until nobody can signal its number any more.
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  NoteEnd(id, pid);
}

void Chores::Note(uint64_t id, std::string_view line) {
  const MutexLock lock(mutex_);
  Chore& chore = chores_[id];
  std::string interrupted;
  if (!NoteProgress(chore, line, interrupted)) SayLocked(chore, line);
  if (!interrupted.empty()) SayLocked(chore, "interrupted. " + interrupted);
}

void Chores::SayLocked(Chore& chore, std::string_view line) {
  chore.said.append(line).append("\n");
  if (chore.said.size() <= options_.most_said) return;
  const size_t cut = chore.said.find('\n', chore.said.size() - options_.most_said);
  chore.said.erase(0, cut + 1);
}

void Chores::NoteEnd(uint64_t id, pid_t pid) {
  const MutexLock lock(mutex_);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(pid, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited < 0) {
    Log(LogLevel::kError, "nobody knows how work has ended", {{"why", ErrnoText(errno)}});
  }
  Chore& chore = chores_[id];
  chore.state = Chore::State::kEnded;
  chore.ended = runtime_.WallClock() / 1'000'000'000;
  chore.exit_code = waited == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  Log(LogLevel::kInfo, "work ended", {{"what", chore.kind}, {"exit_code", chore.exit_code}});
  running_.erase(id);
  ended_->Set();
}

Status Chores::Stop(uint64_t id) {
  const MutexLock lock(mutex_);
  const auto chore = chores_.find(id);
  if (chore == chores_.end()) return Fail(ENOENT, "there is no work {}", id);
  const auto running = running_.find(id);
  if (running == running_.end()) return Fail(ESRCH, "work {} has ended", id);
  // Nobody else waits for the process, so its number is not given to another one meanwhile.
  kill(running->second, SIGINT);
  chore->second.state = Chore::State::kStopping;
  return {};
}

std::vector<Chore> Chores::List() const {
  const MutexLock lock(mutex_);
  std::vector<Chore> list;
  for (const auto& [id, chore] : chores_) list.push_back(chore);
  std::ranges::reverse(list);
  return list;
}

}  // namespace pinstripe
