// EngineLine: where everything that an EngineDrive is asked for waits for its turn, until the
// engine is reached and its store is accepted. What may go together goes to the engine in one
// batch.
//
// Shared by the drive and by what is on its way. Thread-safe.

#pragma once

#include <cassert>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/runtime.h"
#include "base/send_together.h"
#include "base/status.h"
#include "drive/put_and_read.h"
#include "engines/engine.h"
#include "engines/engine_drive.h"

namespace pinstripe {

// What somebody asks for. Either a part of a batch, which changes or reads something or both; or
// something else, which asks the engine itself.
struct AskedOfEngine {
  Terms terms;
  std::optional<EngineChange> change = {};
  std::optional<std::string> read = {};  // a key
  size_t likely_bytes = 0;               // of what is put and read
  bool is_flush = false;
  std::function<void(NameEngine&)> alone = {};
  std::function<void(PutAndRead)> done = {};  // of something else: why it was not asked

  size_t places() const { return (change ? 1 : 0) + (read ? 1 : 0); }
};

// Those that go to the engine in one piece; or one that goes alone.
class EngineCompany {
 public:
  // The first one, and those behind it that may go with it.
  void TakeFrom(std::deque<AskedOfEngine>& waiting);

  bool is_alone() const { return asked_[0].alone != nullptr; }
  std::vector<AskedOfEngine>& asked() { return asked_; }
  Terms terms() const { return {latest_, asked_[0].terms.cluster_version}; }

  // Changes in the order in which they were asked for, then the reads.
  EngineBatch ToBatch() const;

  Time sent_at{};

 private:
  bool MayJoin(const AskedOfEngine& next) const;
  void Add(AskedOfEngine next);

  std::vector<AskedOfEngine> asked_;
  size_t places_ = 0;
  size_t bytes_ = 0;
  Time earliest_ = Time::max();
  Time latest_ = Time::min();
};

class EngineLine final : public SendTogether::Sender,
                         public NameEngine::Listener,
                         public std::enable_shared_from_this<EngineLine> {
 public:
  using Options = EngineDrive::Options;
  enum class Kind { kRead, kWrite };

  EngineLine(Runtime& runtime, std::unique_ptr<NameEngine> engine, Options options)
      : runtime_(runtime), options_(std::move(options)), engine_(std::move(engine)) {
    assert(options_.max_in_flight > 0);
  }

  void Start() { engine_->Start(*this); }
  // Returns when everything is answered.
  void Stop();

  const Options& options() const { return options_; }
  bool IsUp() const {
    const MutexLock lock(mutex_);
    return state_ == State::kUp;
  }
  std::string WhyAway() const {
    const MutexLock lock(mutex_);
    return state_ == State::kDown || state_ == State::kStopped ? away_.WithoutDriveName() : "";
  }
  std::string store() const {
    const MutexLock lock(mutex_);
    return store_;
  }

  // `valid`: a failure is answered instead.
  void Submit(const Status& valid, AskedOfEngine asked) EXCLUDES(mutex_);
  // As Submit(), of something that is no part of a batch: `ask` asks the engine for it.
  template <typename T>
  void SubmitAlone(const Status& valid, Kind kind, const Terms& terms, Callback<T> done,
                   std::function<void(NameEngine&, Callback<T>)> ask);
  // Asks the engine though it may not be reached.
  void AskAnyway(Terms terms, Callback<EngineState> done) EXCLUDES(mutex_);

  void SendWaiting() override EXCLUDES(mutex_);
  void OnReached(const std::string& store) override EXCLUDES(mutex_);
  void OnLost(const Status& why) override EXCLUDES(mutex_);

 private:
  enum class State { kStarting, kUp, kDown, kStopped };

  // While one exists, the engine does.
  class Use {
   public:
    explicit Use(EngineLine& line) : line_(line) {}
    ~Use() {
      const MutexLock lock(line_.mutex_);
      if (--line_.uses_ == 0) line_.unused_.WakeAll();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    NameEngine* operator->() const { return line_.engine_.get(); }
    NameEngine& operator*() const { return *line_.engine_; }

   private:
    EngineLine& line_;
  };
  // Null once the drive is being destroyed.
  std::unique_ptr<Use> UseLocked() REQUIRES(mutex_) {
    if (state_ == State::kStopped) return nullptr;
    ++uses_;
    return std::make_unique<Use>(*this);
  }

  Status Named(const Status& status) const {
    if (status.ok()) return status;
    return Status(status.code(), status.WithoutDriveName()).OfDrive(options_.name);
  }
  template <typename T>
  Result<T> Named(Result<T> result) const {
    if (!result) result = tl::unexpected(Named(result.error()));
    return result;
  }

  // Sends what may be sent now.
  void Pump() EXCLUDES(mutex_);
  void Send(NameEngine& engine, std::shared_ptr<EngineCompany> batch);
  void OnAnswer(EngineCompany& batch, Result<EngineAnswer> answer) EXCLUDES(mutex_);
  void AnswerEach(EngineCompany& batch, Result<EngineAnswer> answer);

  // Answers with a failure, on another thread.
  void AnswerLater(std::function<void()> answer) EXCLUDES(mutex_);
  void GiveAnswers() EXCLUDES(mutex_);

  void ArmLocked(Time when) REQUIRES(mutex_);
  void Expire(Time armed) EXCLUDES(mutex_);

  void CheckIdentity(uint64_t reached) EXCLUDES(mutex_);
  void OnIdentity(uint64_t reached, Result<Record> record);
  void Accept(uint64_t reached) EXCLUDES(mutex_);
  void Refuse(uint64_t reached, const Status& why) EXCLUDES(mutex_);
  bool IsNewsLocked(const Status& away) REQUIRES(mutex_);
  // Away from now on; gives back what waits, and has to be told.
  std::deque<AskedOfEngine> FallLocked(const Status& why) REQUIRES(mutex_);

  void Count(Kind kind, Time sent_at, const Status& status, size_t bytes) const;

  Runtime& runtime_;
  const Options options_;
  std::unique_ptr<NameEngine> engine_;  // null when stopped and unused

  mutable Mutex mutex_;
  Condition unused_;
  State state_ GUARDED_BY(mutex_) = State::kStarting;
  Status away_ GUARDED_BY(mutex_);  // why, while down or stopped
  std::string logged_failure_ GUARDED_BY(mutex_);
  std::string store_ GUARDED_BY(mutex_);     // that was reached last
  uint64_t reached_ GUARDED_BY(mutex_) = 0;  // raised whenever it is reached or lost
  std::deque<AskedOfEngine> waiting_ GUARDED_BY(mutex_);
  // By threads (ThisThread()) that will send it with what they ask for next.
  std::map<const void*, std::deque<AskedOfEngine>> held_ GUARDED_BY(mutex_);
  std::optional<Time> armed_ GUARDED_BY(mutex_);  // when the first of what waits expires, or before
  uint32_t in_flight_ GUARDED_BY(mutex_) = 0;     // batches
  int uses_ GUARDED_BY(mutex_) = 0;               // of the engine, or answers being given
  std::vector<std::function<void()>> answers_ GUARDED_BY(mutex_);  // to be given soon
};

template <typename T>
void EngineLine::SubmitAlone(const Status& valid, Kind kind, const Terms& terms, Callback<T> done,
                             std::function<void(NameEngine&, Callback<T>)> ask) {
  AskedOfEngine asked{.terms = terms};
  asked.done = [done](const PutAndRead& why) { done(tl::unexpected(why.put)); };
  asked.alone = [self = shared_from_this(), kind, done = std::move(done),
                 ask = std::move(ask)](NameEngine& engine) {
    ask(engine, [self, kind, done, sent_at = self->runtime_.Now()](Result<T> answer) {
      self->Count(kind, sent_at, answer ? Status() : answer.error(), 0);
      done(self->Named(std::move(answer)));
    });
  };
  Submit(valid, std::move(asked));
}

}  // namespace pinstripe
