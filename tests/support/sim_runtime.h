// SimRuntime: a Runtime under which a whole cluster with its clients runs deterministically from
// one seed, and faster than real time.
//
// Spawned threads are real threads that take turns: exactly one runs at a time, until it waits on a
// Signal or ends. Whoever waits takes the next event from a queue ordered by simulated time and
// runs it, if it is a task, or hands the turn to the thread it wakes. Chance adds a little to every
// time and decides between equal ones, so each seed is another interleaving; now and then a thread
// is kept from running for a while, as on a busy machine. Time passes only while everybody waits.
//
//   SimRuntime sim(seed);
//   sim.Spawn("client", [&] { ... store.Read(name) ... });
//   sim.Run();                                   // until all spawned threads are done
//
// All of them run on one processor, that on which the runtime was made: to wake another one takes
// longer than most turns.
//
// The thread that made the runtime takes part as well: it may wait, and everything else goes on
// while it does. No other thread may touch the runtime. A thread that waits for what can no longer
// happen (nothing is in the queue) ends the program with its name and the seed. Nobody may wait
// while holding a mutex that others want: the others would hold the turn for ever.

#pragma once

#include <sched.h>
#include <semaphore.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "base/runtime.h"

namespace pinstripe {

class SimRuntime final : public Runtime {
 public:
  explicit SimRuntime(uint64_t seed);

  // Runs what was spawned to its end; tasks that are not due by then are dropped.
  ~SimRuntime() override;

  Time Now() override { return now_; }
  Duration TimeLost() override { return time_lost_; }
  int64_t WallClock() override;
  void RunAt(Time when, Task task) override;
  void Spawn(std::string name, Task body) override;
  std::shared_ptr<Signal> NewSignal() override;
  uint64_t Random() override { return random_(); }

  // Returns when all spawned threads have ended. Only on the thread that made the runtime.
  void Run();

  // Waits for this long.
  void Sleep(Duration duration);

  // The process is stopped, and goes on after this long: whatever was due meanwhile is late.
  void StandStill(Duration duration) {
    now_ += duration;
    time_lost_ += duration;
  }

  // Chance for the test itself.
  uint64_t Below(uint64_t end) { return random_() % end; }
  bool Chance(double probability);
  Duration Between(Duration least, Duration most);

  uint64_t seed() const { return seed_; }

  // Equal for equal runs: depends on every event, its time and its order.
  uint64_t trace_hash() const { return trace_hash_; }
  void Trace(uint64_t bits);

 private:
  class SimSignal;
  // Threads that are made meanwhile stay on the processor that this one runs on now.
  class OneProcessor {
   public:
    OneProcessor();
    ~OneProcessor();
    OneProcessor(const OneProcessor&) = delete;
    OneProcessor& operator=(const OneProcessor&) = delete;

   private:
    std::optional<cpu_set_t> before_;  // if it had the choice
  };
  using EventKey = std::tuple<Time, uint64_t, uint64_t>;  // when, chance, number

  // A thread that takes turns.
  struct Player {
    explicit Player(std::string name_in, uint64_t number_in);
    ~Player();
    const std::string name;
    const uint64_t number;
    sem_t turn;
    std::thread thread;  // none for the thread that made the runtime
    SimSignal* waits_for = nullptr;
    const EventKey* deadline = nullptr;  // of its wait, while that can still come first
    bool woken = false;                  // its wake-up is in the queue
    bool done = false;
  };
  struct Event {
    Task task;  // or, when empty:
    Player* wake = nullptr;
  };

  const EventKey* Add(Time when, Event event);
  void WakeSoon(Player& player);
  bool Wait(SimSignal& signal, Time deadline);
  void HandOver(Player& self);
  Player* NextToRun();
  void Play(Player& self, Task body);
  Player& Current();
  Duration Jitter();
  [[noreturn]] void Stuck() const;

  const OneProcessor one_processor_;
  const uint64_t seed_;
  std::mt19937_64 random_;
  Time now_{};
  Duration time_lost_{};
  uint64_t trace_hash_ = 0;
  uint64_t events_added_ = 0;
  std::map<EventKey, Event> events_;
  bool in_task_ = false;
  bool main_runs_ = false;  // the main thread waits in Run()
  size_t alive_ = 0;        // spawned threads that have not ended
  Player main_;
  const std::thread::id main_thread_;
  std::vector<std::unique_ptr<Player>> players_;  // that have not ended, and some that have
  uint64_t players_made_ = 0;
};

}  // namespace pinstripe
