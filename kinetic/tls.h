// TLS over a non-blocking socket, version 1.2 and later: OpenSSL, behind calls like readv() and
// writev().
//
// A TlsServer has the certificate that connections show; a TlsClient knows whom to believe. Both
// make TlsStreams. A stream does not own its socket, which outlives it. Nothing here waits.
//
// One thread may read from a stream while another one writes to it. TlsServer and TlsClient are
// thread-safe.

#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"

struct ssl_st;
struct ssl_ctx_st;

namespace pinstripe {

class TlsStream {
 public:
  ~TlsStream();

  // Goes on with the handshake as far as the socket lets it. EPROTO: the peer does not speak TLS,
  // or an unacceptable one, or is not believed; the sentence says which.
  enum class Step { kDone, kWantsRead, kWantsWrite };
  Result<Step> Handshake();

  // As readv() and writev(): how many bytes, 0 when the peer has ended the stream, or -1 and errno.
  // EAGAIN: the socket has to be waited for. A write that was not complete is repeated with the
  // same bytes, and perhaps more behind them.
  ssize_t Read(const iovec* places, int count);
  ssize_t Write(const iovec* pieces, int count);

  // After a Read(), and right after the handshake: whether there may be more to read even if
  // nothing comes over the socket, and whether the next one has to wait until the socket can be
  // written.
  bool may_have_more() const { return may_have_more_; }
  bool read_wants_write() const { return read_wants_write_; }

  // Tells the peer that nothing more comes, if that is possible at once.
  void SayGoodbye();

  // When the peer's certificate ends. Null: it showed none, which only clients do.
  std::optional<std::chrono::sys_seconds> EndOfPeersCertificate();

 private:
  friend class TlsServer;
  friend class TlsClient;
  struct FreeSsl {
    void operator()(ssl_st* ssl) const;
  };
  using Ssl = std::unique_ptr<ssl_st, FreeSsl>;

  explicit TlsStream(Ssl ssl);
  static Result<std::unique_ptr<TlsStream>> Create(ssl_ctx_st* context, int socket);
  int Failure(int result, bool* wants_write) REQUIRES(mutex_);

  // OpenSSL's, which one thread at a time may use. The calls under it do not wait.
  Mutex mutex_;
  const Ssl ssl_ GUARDED_BY(mutex_);
  Buffer stage_ GUARDED_BY(mutex_);  // small pieces make one record
  bool may_have_more_ = false;       // of the reading thread
  bool read_wants_write_ = false;    // of the reading thread
};

struct TlsFiles {
  std::string certificate;  // PEM: the server's, then those that lead to its authority
  std::string key;          // PEM, without a passphrase; nobody else may read it
};

class TlsServer {
 public:
  // Reads the files. Errors name the file and what is wrong with it. EACCES: others can reach the
  // key.
  static Result<std::shared_ptr<TlsServer>> Load(TlsFiles files);

  // Reads the files again. Connections made from now on show what they hold; when it fails, what
  // was good before.
  Status Reload();

  // For a socket that was accepted.
  Result<std::unique_ptr<TlsStream>> Accept(int socket) const;

  const TlsFiles& files() const { return files_; }

 private:
  using Context = std::shared_ptr<ssl_ctx_st>;
  explicit TlsServer(TlsFiles files) : files_(std::move(files)) {}
  static Result<Context> Read(const TlsFiles& files);

  const TlsFiles files_;
  mutable Mutex mutex_;
  Context context_ GUARDED_BY(mutex_);
};

// A certificate that ends within this time is told of, so that somebody makes a new one.
inline constexpr std::chrono::hours kCertificateWarning(24 * 30);

// What is to be said of a certificate that ends at `end`: "has expired" or "ends in 3 days". Empty:
// that is far away.
std::string TextOfEnd(std::chrono::sys_seconds end, std::chrono::sys_seconds now);

class TlsClient {
 public:
  // `authorities`: PEM text, the authorities (or the very certificates) that are believed; the
  // certificate must also be one for the host that was asked for. Empty: any certificate is
  // accepted, so that nobody can listen, but somebody in between can. EINVAL: a certificate in it
  // cannot be read, or there is none.
  static Result<std::shared_ptr<const TlsClient>> Create(const std::string& authorities);

  // Whom it believes, as Create() was told.
  const std::string& authorities() const { return authorities_; }

  // For a socket that has been connected to `host`, a name or an address.
  Result<std::unique_ptr<TlsStream>> Connect(int socket, const std::string& host) const;

 private:
  static Result<std::shared_ptr<const TlsClient>> New(const std::string& authorities);
  TlsClient(std::shared_ptr<ssl_ctx_st> context, std::string authorities)
      : context_(std::move(context)), authorities_(std::move(authorities)) {}

  const std::shared_ptr<ssl_ctx_st> context_;
  const std::string authorities_;  // empty: nobody is asked for
};

}  // namespace pinstripe
