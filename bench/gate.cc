// What the gate of a store costs (store/gate.h), against std::shared_mutex: to go in and out, with
// one thread and with two; and how long somebody waits to be alone while four threads are inside
// by turns, at most four seconds.
//
//   cmake -D PINSTRIPE_COMPARE_STORES=ON ... && ninja gate_bench && bench/gate_bench

#include "store/gate.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace pinstripe {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kVisits = 4'000'000;
constexpr int kVisitors = 4;
constexpr auto kInside = 200us;
constexpr auto kPatience = 4s;

// Nanoseconds for one visit.
template <typename Visit>
double MeasureVisits(int threads, Visit visit) {
  const auto began = Clock::now();
  std::vector<std::jthread> visitors;
  for (int i = 0; i < threads; ++i) {
    visitors.emplace_back([&] {
      for (int j = 0; j < kVisits; ++j) visit();
    });
  }
  visitors.clear();
  return std::chrono::duration<double, std::nano>(Clock::now() - began).count() / kVisits;
}

void StayInside() {
  const auto until = Clock::now() + kInside;
  while (Clock::now() < until) {
  }
}

// Milliseconds until somebody is alone.
template <typename Visit, typename Close>
double MeasureClosing(Visit visit, Close close) {
  std::atomic<bool> stop = false;
  std::atomic<int> visited = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kVisitors; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        visit();
        ++visited;
      }
    });
  }
  while (visited < 100) std::this_thread::yield();
  const auto began = Clock::now();
  std::atomic<bool> closed = false;
  threads.emplace_back([&] {
    close();
    closed = true;
    closed.notify_all();
  });
  while (!closed && Clock::now() - began < kPatience) std::this_thread::sleep_for(100us);
  const double waited = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  stop = true;
  return waited;
}

}  // namespace
}  // namespace pinstripe

int main() {
  using namespace pinstripe;
  Gate gate;
  std::shared_mutex mutex;
  for (const int threads : {1, 2}) {
    const double of_gate = MeasureVisits(threads, [&] { const Gate::Visit visit(gate); });
    const double of_mutex = MeasureVisits(threads, [&] { const std::shared_lock lock(mutex); });
    std::printf("in and out, %d threads: gate %.1f ns, shared_mutex %.1f ns\n", threads, of_gate,
                of_mutex);
  }
  const double of_gate = MeasureClosing(
      [&] {
        const Gate::Visit visit(gate);
        StayInside();
      },
      [&] { const Gate::Closure alone(gate); });
  const double of_mutex = MeasureClosing(
      [&] {
        const std::shared_lock lock(mutex);
        StayInside();
      },
      [&] { const std::unique_lock alone(mutex); });
  std::printf("to be alone: gate %.1f ms, shared_mutex %.1f ms\n", of_gate, of_mutex);
}
