#include "tests/support/sim_runtime.h"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/send_together.h"

namespace pinstripe {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kWallClockAtStart = 1'700'000'000'000'000'000;  // some day in 2023

// The spawned thread that this one is; a pointer to a Player, which is private to SimRuntime.
thread_local void* this_player = nullptr;

void WaitForTurn(sem_t& turn) {
  while (sem_wait(&turn) != 0) assert(errno == EINTR);
}

}  // namespace

class SimRuntime::SimSignal final : public Signal {
 public:
  explicit SimSignal(SimRuntime& runtime) : runtime_(runtime) {}

  void Set() override {
    set_ = true;
    if (waiter_ != nullptr) runtime_.WakeSoon(*waiter_);
  }
  bool WaitUntil(Time deadline) override {
    SendTogether::SendBeforeWaiting();
    return runtime_.Wait(*this, deadline);
  }

 private:
  friend class SimRuntime;
  SimRuntime& runtime_;
  bool set_ = false;
  Player* waiter_ = nullptr;
};

SimRuntime::OneProcessor::OneProcessor() {
  cpu_set_t now;
  const int current = sched_getcpu();
  if (current < 0 || sched_getaffinity(0, sizeof now, &now) != 0 || CPU_COUNT(&now) <= 1) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(current, &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0) before_ = now;
}

SimRuntime::OneProcessor::~OneProcessor() {
  if (before_) sched_setaffinity(0, sizeof *before_, &*before_);
}

SimRuntime::Player::Player(std::string name_in, uint64_t number_in)
    : name(std::move(name_in)), number(number_in) {
  sem_init(&turn, 0, 0);
}

SimRuntime::Player::~Player() {
  if (thread.joinable()) thread.join();
  sem_destroy(&turn);
}

SimRuntime::SimRuntime(uint64_t seed)
    : seed_(seed), random_(seed), main_("main", 0), main_thread_(std::this_thread::get_id()) {}

SimRuntime::~SimRuntime() { Run(); }

int64_t SimRuntime::WallClock() { return kWallClockAtStart + now_.time_since_epoch().count(); }

void SimRuntime::RunAt(Time when, Task task) {
  assert(task);
  if (when == Time::max()) return;  // never
  Add(std::max(when, now_) + Jitter(), {.task = std::move(task)});
}

void SimRuntime::Spawn(std::string name, Task body) {
  // Those that have ended are joined here, so that a long storm does not run out of threads; not
  // one that is carrying out a last task before it returns.
  std::erase_if(players_, [](const auto& player) {
    return player->done && player->thread.get_id() != std::this_thread::get_id();
  });
  players_.push_back(std::make_unique<Player>(std::move(name), ++players_made_));
  Player& player = *players_.back();
  ++alive_;
  Add(now_ + Jitter(), {.wake = &player});
  player.thread = std::thread(
      [this, &player, body = std::move(body)]() mutable { Play(player, std::move(body)); });
}

void SimRuntime::Play(Player& self, Task body) {
  this_player = &self;
  WaitForTurn(self.turn);
  body();
  body = nullptr;  // what it holds goes while it is this thread's turn
  self.done = true;
  --alive_;
  sem_post(&NextToRun()->turn);
}

std::shared_ptr<Signal> SimRuntime::NewSignal() { return std::make_shared<SimSignal>(*this); }

void SimRuntime::Run() {
  assert(&Current() == &main_);
  while (alive_ > 0) {
    main_runs_ = true;
    HandOver(main_);
    main_runs_ = false;
  }
  players_.clear();  // joins them
}

void SimRuntime::Sleep(Duration duration) { NewSignal()->WaitUntil(now_ + duration); }

bool SimRuntime::Chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

Duration SimRuntime::Between(Duration least, Duration most) {
  assert(least <= most);
  return least + Duration(Below(static_cast<uint64_t>((most - least).count()) + 1));
}

void SimRuntime::Trace(uint64_t bits) {
  uint64_t x = (trace_hash_ ^ bits) + 0x9e3779b97f4a7c15;  // SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  trace_hash_ = x ^ (x >> 31);
}

// Mostly next to nothing; sometimes as long as a thread that lost its processor.
Duration SimRuntime::Jitter() { return Chance(0.02) ? Between(0us, 5ms) : Between(0us, 20us); }

const SimRuntime::EventKey* SimRuntime::Add(Time when, Event event) {
  const EventKey key{when, random_(), ++events_added_};
  return &events_.emplace(key, std::move(event)).first->first;
}

void SimRuntime::WakeSoon(Player& player) {
  if (player.woken) return;
  player.woken = true;
  if (player.deadline != nullptr) events_.erase(EventKey(*player.deadline));
  player.deadline = nullptr;
  Add(now_ + Jitter(), {.wake = &player});
}

bool SimRuntime::Wait(SimSignal& signal, Time deadline) {
  assert(!in_task_ && "a task must not wait");
  if (!signal.set_) {
    assert(signal.waiter_ == nullptr && "a signal has one waiter");
    Player& self = Current();
    self.waits_for = &signal;
    self.woken = false;
    if (deadline != Time::max()) {
      self.deadline = Add(std::max(deadline, now_), {.wake = &self});
    }
    signal.waiter_ = &self;
    HandOver(self);
    signal.waiter_ = nullptr;
    self.waits_for = nullptr;
  }
  return std::exchange(signal.set_, false);
}

// Returns when it is this thread's turn again.
void SimRuntime::HandOver(Player& self) {
  Player* const next = NextToRun();
  if (next == &self) return;
  sem_post(&next->turn);
  WaitForTurn(self.turn);
}

// Runs tasks until an event says whose turn it is.
SimRuntime::Player* SimRuntime::NextToRun() {
  for (;;) {
    if (main_runs_ && alive_ == 0) return &main_;
    if (events_.empty()) Stuck();
    auto first = events_.extract(events_.begin());
    now_ = std::max(now_, std::get<Time>(first.key()));
    Player* const wake = first.mapped().wake;
    Trace(static_cast<uint64_t>(now_.time_since_epoch().count()));
    Trace(wake != nullptr ? wake->number : ~uint64_t{0});
    if (wake != nullptr) {
      wake->deadline = nullptr;
      return wake;
    }
    in_task_ = true;
    first.mapped().task();
    first.mapped().task = nullptr;  // what it holds goes while it may still use the runtime
    in_task_ = false;
  }
}

SimRuntime::Player& SimRuntime::Current() {
  if (this_player != nullptr) return *static_cast<Player*>(this_player);
  assert(std::this_thread::get_id() == main_thread_ && "a thread that the runtime does not know");
  return main_;
}

void SimRuntime::Stuck() const {
  std::fprintf(stderr, "simulation with seed %llu: nothing can happen any more, and these wait:",
               static_cast<unsigned long long>(seed_));
  if (main_.waits_for != nullptr) std::fprintf(stderr, " main");
  for (const auto& player : players_) {
    if (player->waits_for != nullptr) std::fprintf(stderr, " '%s'", player->name.c_str());
  }
  std::fprintf(stderr, "\n");
  std::abort();
}

}  // namespace pinstripe
