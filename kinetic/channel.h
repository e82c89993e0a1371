// Channel: one of several streams of bytes that go over one connection. To its user it is a socket
// that does not wait: trunk.h has what makes it one.
//
// One thread may read while another one writes.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>

#include "kinetic/io_loop.h"

namespace pinstripe {

class Channel {
 public:
  virtual ~Channel() = default;

  // Tells `handler` what the channel is ready for, level-triggered, as IoLoop::Add() does. Loop
  // thread.
  virtual void Watch(uint32_t epoll_events, std::shared_ptr<IoLoop::Handler> handler) = 0;
  virtual void Change(uint32_t epoll_events) = 0;  // any thread

  // Nothing more comes or goes, and nobody is told of anything any more. The peer hears of it. Loop
  // thread.
  virtual void End() = 0;

  // The peer has shown who it is: it may have more on its way. Loop thread.
  virtual void Trust() = 0;

  // As readv() and writev(), with EAGAIN where they would wait. Loop thread; any thread.
  virtual ssize_t Read(const iovec* places, int count) = 0;
  virtual ssize_t Write(const iovec* parts, int count) = 0;

  // Of the connection below it.
  virtual bool has_tls() const = 0;
  virtual int fd() const = 0;
};

}  // namespace pinstripe
