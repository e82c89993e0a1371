// Gate: many may be inside at once, and do not notice each other. A thread that closes it waits
// until all have left, and is alone until it opens it again; those who come meanwhile wait outside,
// so that nobody who closes waits for ever.
//
//   const Gate::Visit visit(gate_);          // shared
//   const Gate::QuickVisit quick(gate_);     // shared, if quick.inside()
//   const Gate::Closure alone(gate_);        // alone; not by a thread that is inside
//
// Thread-safe. Going in and out costs one atomic operation each.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pinstripe {

class Gate {
 public:
  class Visit {
   public:
    explicit Visit(Gate& gate) : gate_(gate) { gate_.Enter(); }
    ~Visit() { gate_.Leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Gate& gate_;
  };

  // For who cannot wait: inside only if the gate is open.
  class QuickVisit {
   public:
    explicit QuickVisit(Gate& gate) : gate_(gate), inside_(gate.EnterIfOpen()) {}
    ~QuickVisit() {
      if (inside_) gate_.Leave();
    }
    QuickVisit(const QuickVisit&) = delete;
    QuickVisit& operator=(const QuickVisit&) = delete;
    bool inside() const { return inside_; }

   private:
    Gate& gate_;
    const bool inside_;
  };

  class Closure {
   public:
    explicit Closure(Gate& gate) : gate_(gate) { gate_.Close(); }
    ~Closure() { gate_.Open(); }
    Closure(const Closure&) = delete;
    Closure& operator=(const Closure&) = delete;

   private:
    Gate& gate_;
  };

 private:
  static constexpr uint64_t kClosed = uint64_t{1} << 32;

  void Enter() {
    while (inside_.fetch_add(1, std::memory_order_acquire) >= kClosed) {
      Leave();
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return inside_.load() < kClosed; });
    }
  }
  bool EnterIfOpen() {
    if (inside_.fetch_add(1, std::memory_order_acquire) < kClosed) return true;
    Leave();
    return false;
  }
  void Leave() {
    if (inside_.fetch_sub(1, std::memory_order_release) != kClosed + 1) return;
    const std::lock_guard lock(mutex_);  // who closes is either waiting, or has not looked yet
    changed_.notify_all();
  }
  void Close() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return inside_.load() < kClosed; });
    inside_.fetch_add(kClosed);
    changed_.wait(lock, [this] { return inside_.load(std::memory_order_acquire) == kClosed; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    inside_.fetch_sub(kClosed, std::memory_order_release);
    changed_.notify_all();
  }

  std::atomic<uint64_t> inside_ = 0;  // how many; and kClosed, changed under mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace pinstripe
