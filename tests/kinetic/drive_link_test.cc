// The way of a drive to its server, with a connection that is made at once and answers nothing.

#include "kinetic/drive_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/real_runtime.h"

namespace pinstripe {
namespace {

class Question {
 public:
  explicit Question(std::function<void()> done) : done_(std::move(done)) {}

  Time deadline() const { return Time::max(); }
  void Finish(const Result<int>&) { std::exchange(done_, {})(); }

 private:
  std::function<void()> done_;
};

// Takes what is asked on the loop's thread, as a connection may.
class SilentConnection : public std::enable_shared_from_this<SilentConnection> {
 public:
  using OperationPtr = std::shared_ptr<Question>;
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnGreeting() = 0;
    virtual void OnLost(const Status& why) = 0;
  };

  explicit SilentConnection(IoLoop& loop) : loop_(loop) {}

  void Submit(OperationPtr operation) {
    loop_.Post([self = shared_from_this(), operation = std::move(operation)] {
      self->asked_.push_back(operation);
      if (self->closed_) self->FinishAll();
    });
  }
  void Close(const Status&) {
    closed_ = true;
    FinishAll();
  }
  bool IsIdle() const { return asked_.empty(); }

 private:
  void FinishAll() {
    for (const OperationPtr& each : std::exchange(asked_, {})) {
      each->Finish(Fail(EHOSTUNREACH, "it is closed"));
    }
  }

  IoLoop& loop_;
  std::vector<OperationPtr> asked_;
  bool closed_ = false;
};

class SilentLink final : public DriveLink<SilentConnection> {
 public:
  explicit SilentLink(KineticIo& io)
      : DriveLink(io, {.name = "drive",
                       .addresses = {"127.0.0.1"},
                       .connect_timeout = std::chrono::seconds(60)}) {}

  // Whoever waits for this has a little time before it is up.
  void OnGreeting() override {
    greeted_ = true;
    for (int i = 0; i < 20; ++i) std::this_thread::yield();
    Up("");
  }
  bool is_greeted() const { return greeted_; }

 private:
  Result<std::shared_ptr<SilentConnection>> NewConnection(const std::string&,
                                                          const SocketAddress&) override {
    loop().Post([self = shared_from_this()] { self->OnGreeting(); });
    return std::make_shared<SilentConnection>(loop());
  }

  std::atomic<bool> greeted_ = false;
};

// What waited for the connection is on its way to it, or with it, when the drive goes.
TEST(DriveLink, AnswersEverythingBeforeItEnds) {
  RealRuntime runtime;
  KineticIo io(runtime);
  constexpr int kRounds = 500;
  constexpr int kQuestions = 20;
  for (int round = 0; round < kRounds; ++round) {
    // Not of the round: what is answered too late is to be seen, and not to do harm.
    const auto answers = std::make_shared<std::atomic<int>>(0);
    {
      const auto link = std::make_shared<SilentLink>(io);
      const CurrentLink<SilentLink> current(link);
      for (int i = 0; i < kQuestions; ++i) {
        link->Submit(Status(), std::make_shared<Question>([answers] { ++*answers; }));
      }
      while (!link->is_greeted()) std::this_thread::yield();
    }
    ASSERT_EQ(*answers, kQuestions) << "round " << round;
  }
}

}  // namespace
}  // namespace pinstripe
