// Mutex and its kin: those of the standard, with the annotations by which Clang checks who holds
// what (`./dev tidy`, -Wthread-safety; clang.llvm.org/docs/ThreadSafetyAnalysis.html). To GCC the
// annotations are nothing, and the classes cost what the standard's do.
//
//   Mutex mutex_;
//   std::deque<Item> waiting_ GUARDED_BY(mutex_);
//   void TakeLocked() REQUIRES(mutex_);      // the caller holds it
//   void Take() EXCLUDES(mutex_);            // the caller does not
//
//   const MutexLock lock(mutex_);
//   while (waiting_.empty()) changed_.Wait(lock);
//
// A predicate in a lambda is a function of its own to the analysis, which does not know that the
// lock is held: write the loop.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define PINSTRIPE_ANNOTATION(x) __attribute__((x))
#else
#define PINSTRIPE_ANNOTATION(x)
#endif

#define CAPABILITY(name) PINSTRIPE_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY PINSTRIPE_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) PINSTRIPE_ANNOTATION(guarded_by(x))
#define PT_GUARDED_BY(x) PINSTRIPE_ANNOTATION(pt_guarded_by(x))
#define REQUIRES(...) PINSTRIPE_ANNOTATION(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) PINSTRIPE_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define ACQUIRE(...) PINSTRIPE_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) PINSTRIPE_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) PINSTRIPE_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) PINSTRIPE_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) PINSTRIPE_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) PINSTRIPE_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE_SHARED(...) PINSTRIPE_ANNOTATION(try_acquire_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) PINSTRIPE_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ASSERT_CAPABILITY(x) PINSTRIPE_ANNOTATION(assert_capability(x))
#define ASSERT_SHARED_CAPABILITY(x) PINSTRIPE_ANNOTATION(assert_shared_capability(x))
#define RETURN_CAPABILITY(x) PINSTRIPE_ANNOTATION(lock_returned(x))
// With the reason, why the analysis cannot follow, in a comment.
#define NO_THREAD_SAFETY_ANALYSIS PINSTRIPE_ANNOTATION(no_thread_safety_analysis)

namespace pinstripe {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  bool TryLock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

  // For functions that are only called where it is held, which the analysis cannot see: lambdas.
  void AssertHeld() const ASSERT_CAPABILITY(this) {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a Mutex for its scope, or until it is unlocked before.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() RELEASE() { lock_.unlock(); }
  void Lock() ACQUIRE() { lock_.lock(); }

 private:
  friend class Condition;
  mutable std::unique_lock<std::mutex> lock_;
};

// A condition variable. Wakes up without cause at times: the caller looks again.
class Condition {
 public:
  void Wait(const MutexLock& lock) { condition_.wait(lock.lock_); }
  // False: it was not woken until then.
  template <typename Clock, typename Span>
  bool WaitUntil(const MutexLock& lock, std::chrono::time_point<Clock, Span> until) {
    return condition_.wait_until(lock.lock_, until) == std::cv_status::no_timeout;
  }
  void WakeOne() { condition_.notify_one(); }
  void WakeAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// Held by one that changes, or by many that look.
class CAPABILITY("shared mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  bool TryLock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void LockShared() ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() RELEASE_SHARED() { mutex_.unlock_shared(); }
  bool TryLockShared() TRY_ACQUIRE_SHARED(true) { return mutex_.try_lock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex.Lock(); }
  ~WriterLock() RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex.LockShared();
  }
  ~ReaderLock() RELEASE_GENERIC() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace pinstripe
