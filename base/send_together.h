// SendTogether: what this thread asks drives for while one of these exists goes out at its end, to
// each drive in one piece: one call of the kernel here and one wake-up there instead of one for
// each request, and small puts or small gets in one message (kinetic/together.h). For callers that
// ask for several things before they wait for any of them.
//
//   {
//     const SendTogether together;
//     for (...) drive->Get(...);
//   }
//   wait for the answers
//
// A thread that waits (Signal::WaitUntil()) sends what it holds first, so nobody waits for a
// question that was not sent.
//
// Used by one thread. They may be nested: the end of the outermost one sends what all of them hold.

#pragma once

#include <memory>
#include <vector>

namespace pinstripe {

class SendTogether {
 public:
  // Has something to send, and can be told to.
  class Sender {
   public:
    virtual ~Sender() = default;
    virtual void SendWaiting() = 0;
  };

  SendTogether();
  ~SendTogether();
  SendTogether(const SendTogether&) = delete;
  SendTogether& operator=(const SendTogether&) = delete;

  // True: it will be told later.
  static bool Defers(const std::shared_ptr<Sender>& sender);

  // Sends what those of this thread hold. Each runtime calls it before a thread waits.
  static void SendBeforeWaiting();

 private:
  SendTogether* const outer_;
  std::vector<std::shared_ptr<Sender>> senders_;
};

}  // namespace pinstripe
