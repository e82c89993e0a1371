#include "daemon/trunk_session.h"

#include <utility>

namespace pinstripe {

TrunkSession::TrunkSession(IoLoop& loop, DriveSocket socket, std::unique_ptr<Places::Place> place,
                           Buffer received, Limits limits, Opened opened,
                           std::function<void(std::shared_ptr<Connection>)> closed)
    : loop_(loop),
      socket_(std::move(socket)),
      place_(std::move(place)),
      received_(std::move(received)),
      limits_(limits),
      opened_(std::move(opened)),
      closed_(std::move(closed)),
      timer_(loop, [this] { CloseIfEmpty(); }) {}

TrunkSession::~TrunkSession() = default;

void TrunkSession::Start() {
  const std::weak_ptr<TrunkSession> weak = weak_from_this();
  place_->OnEnd([weak, &loop = loop_] {
    loop.Post([weak] {
      if (const auto self = weak.lock()) self->Close();
    });
  });
  trunk_ = Trunk::Start(loop_, std::move(socket_),
                        {.opened =
                             [this](std::shared_ptr<Channel> channel, uint32_t port) {
                               if (trunk_->CountChannels() > limits_.most_channels) return;
                               opened_(std::move(channel), port, place_);
                             },
                         .emptied =
                             [weak] {
                               if (const auto self = weak.lock()) self->WaitForChannel();
                             },
                         .lost =
                             [weak] {
                               if (const auto self = weak.lock()) self->Close();
                             }},

                        /*is_client=*/false, received_);
  received_ = Buffer();
  WaitForChannel();
}

void TrunkSession::Close() {
  timer_.Cancel();
  if (trunk_ == nullptr) return;
  std::exchange(trunk_, nullptr)->Close();
  closed_(shared_from_this());
}

// Somebody who asks for nothing is not waited for. Who has just ended its last channel may already
// be opening the next one, so it is the one to close.
void TrunkSession::WaitForChannel() { timer_.Arm(loop_.runtime().Now() + limits_.patience); }

void TrunkSession::CloseIfEmpty() {
  if (trunk_->CountChannels() == 0) Close();
}

}  // namespace pinstripe
