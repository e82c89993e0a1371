#include "kinetic/tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <ctime>
#include <map>

#include "base/log.h"
#include "base/private_file.h"
#include "base/try.h"

namespace pinstripe {
namespace {

constexpr size_t kRecordBytes = 16 << 10;     // the most that TLS sends at a time
constexpr size_t kReadAheadBytes = 64 << 10;  // of the socket, with one call

// Why OpenSSL's last call on this thread failed. The first of several reasons is the cause of the
// others.
std::string LastReason() {
  const unsigned long code = ERR_peek_error();
  if (ERR_SYSTEM_ERROR(code)) return ErrnoText(ERR_GET_REASON(code));
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason != nullptr ? reason : "unknown reason";
}

// --- The socket, as OpenSSL sees it

// OpenSSL's own would raise SIGPIPE in a process that is not ours.
int SocketOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int BioWrite(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      send(SocketOf(bio), bytes, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int BioRead(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(SocketOf(bio), bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long BioControl(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

int BioCreate(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(made, BioWrite);
    BIO_meth_set_read(made, BioRead);
    BIO_meth_set_ctrl(made, BioControl);
    BIO_meth_set_create(made, BioCreate);
    return made;
  }();
  return method;
}

// --- What both ends agree on

using Context = std::shared_ptr<SSL_CTX>;

Result<Context> NewContext(const SSL_METHOD* method) {
  ERR_clear_error();
  const Context context(SSL_CTX_new(method), &SSL_CTX_free);
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return Fail(ENOMEM, "TLS cannot be used: {}", LastReason());
  }
  // Sessions are long: what saves a later handshake is not worth its memory and its secrets.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION |
                                         SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  return context;
}

bool IsAddress(const std::string& host) {
  in6_addr unused;
  return inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &unused) == 1;
}

// In seconds: a certificate that never ends does so in the year 9999, and nanoseconds do not go so
// far.
std::chrono::sys_seconds EndOf(const X509* certificate) {
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return {};
  return std::chrono::sys_seconds(std::chrono::seconds(timegm(&end)));
}

std::chrono::sys_seconds ThisSecond() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

// A process that reads its configuration cannot be asked for a passphrase.
int NoPassphrase(char*, int, int, void*) { return 0; }

// All certificates of a PEM text, of which there must be one.
Status AddAuthorities(const std::string& text, X509_STORE* store) {
  ERR_clear_error();
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free);
  if (bio == nullptr) return Fail(ENOMEM, "TLS cannot be used: {}", LastReason());
  size_t count = 0;
  for (;; ++count) {
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassphrase, nullptr), X509_free);
    if (certificate == nullptr) break;
    if (X509_STORE_add_cert(store, certificate.get()) != 1) {
      return Fail(EINVAL, "certificate {} cannot be used: {}", count + 1, LastReason());
    }
  }
  const unsigned long why = ERR_peek_last_error();
  const bool is_end = ERR_GET_LIB(why) == ERR_LIB_PEM && ERR_GET_REASON(why) == PEM_R_NO_START_LINE;
  if (count == 0 && is_end) return Fail(EINVAL, "there is no certificate in it");
  if (!is_end) return Fail(EINVAL, "certificate {} is damaged: {}", count + 1, LastReason());
  ERR_clear_error();
  return {};
}

}  // namespace

std::string TextOfEnd(std::chrono::sys_seconds end, std::chrono::sys_seconds now) {
  if (end <= now) return "has expired";
  if (end - now > kCertificateWarning) return "";
  const auto hours = std::chrono::duration_cast<std::chrono::hours>(end - now).count();
  return hours < 48 ? fmt::format("ends in {} hours", hours)
                    : fmt::format("ends in {} days", hours / 24);
}

// --- A stream

void TlsStream::FreeSsl::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsStream::TlsStream(Ssl ssl) : ssl_(std::move(ssl)) {}

TlsStream::~TlsStream() = default;

Result<std::unique_ptr<TlsStream>> TlsStream::Create(ssl_ctx_st* context, int socket) {
  ERR_clear_error();
  Ssl ssl(SSL_new(context));
  BIO* bio = ssl == nullptr ? nullptr : BIO_new(SocketMethod());
  if (bio == nullptr) return Fail(ENOMEM, "TLS cannot be started: {}", LastReason());
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  SSL_set_bio(ssl.get(), bio, bio);  // takes it over
  return std::unique_ptr<TlsStream>(new TlsStream(std::move(ssl)));
}

Result<TlsStream::Step> TlsStream::Handshake() {
  const MutexLock lock(mutex_);
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    may_have_more_ = true;  // what came right behind the peer's last word
    return Step::kDone;
  }
  const int error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ: return Step::kWantsRead;
    case SSL_ERROR_WANT_WRITE: return Step::kWantsWrite;
    case SSL_ERROR_ZERO_RETURN: break;
    case SSL_ERROR_SYSCALL:
      if (error != 0) return Fail(EPROTO, "no TLS: {}", ErrnoText(error));
      break;
    default:
      const long verified = SSL_get_verify_result(ssl_.get());
      if (verified != X509_V_OK) {
        return Fail(EPROTO, "its certificate is not believed: {}",
                    X509_verify_cert_error_string(verified));
      }
      return Fail(EPROTO, "no TLS: {}", LastReason());
  }
  return Fail(EPROTO, "no TLS: the peer hung up");
}

// Sets errno for a call that did not succeed. 0: the peer has ended the stream; otherwise -1.
int TlsStream::Failure(int result, bool* wants_write) {
  const int error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_WRITE: *wants_write = true; [[fallthrough]];
    case SSL_ERROR_WANT_READ: errno = EAGAIN; return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL:
      if (error == 0) return 0;
      errno = error;
      return -1;
    default: errno = EPROTO; return -1;
  }
}

ssize_t TlsStream::Read(const iovec* places, int count) {
  const MutexLock lock(mutex_);
  may_have_more_ = false;
  read_wants_write_ = false;
  size_t total = 0;
  for (int i = 0; i < count; ++i) {
    auto* const place = static_cast<std::byte*>(places[i].iov_base);
    for (size_t filled = 0; filled < places[i].iov_len;) {
      ERR_clear_error();
      errno = 0;
      size_t got = 0;
      const int result = SSL_read_ex(ssl_.get(), place + filled, places[i].iov_len - filled, &got);
      if (result != 1) {
        const int failure = Failure(result, &read_wants_write_);
        return total > 0 ? static_cast<ssize_t>(total) : failure;
      }
      filled += got;
      total += got;
    }
  }
  may_have_more_ = true;
  return static_cast<ssize_t>(total);
}

// A piece that fills records is sent from where it lies; smaller ones are brought together. What a
// repeated call begins with is the same either way, which is all that OpenSSL asks.
ssize_t TlsStream::Write(const iovec* pieces, int count) {
  const MutexLock lock(mutex_);
  size_t total = 0;
  size_t skip = 0;  // of pieces[i]
  for (int i = 0; i < count;) {
    const auto* from = static_cast<const std::byte*>(pieces[i].iov_base) + skip;
    size_t size = pieces[i].iov_len - skip;
    if (size < kRecordBytes) {
      if (stage_.empty()) stage_ = Buffer(kRecordBytes);
      size_t staged = 0;
      for (int j = i; j < count && staged < kRecordBytes; ++j) {
        const size_t done = j == i ? skip : 0;
        const size_t part = std::min(pieces[j].iov_len - done, kRecordBytes - staged);
        std::memcpy(stage_.data() + staged,
                    static_cast<const std::byte*>(pieces[j].iov_base) + done, part);
        staged += part;
      }
      from = stage_.data();
      size = staged;
    }
    ERR_clear_error();
    errno = 0;
    size_t sent = 0;
    const int result = SSL_write_ex(ssl_.get(), from, size, &sent);
    if (result != 1) {
      if (total > 0) return static_cast<ssize_t>(total);
      bool wants_write = false;  // as every write that was not complete
      if (Failure(result, &wants_write) == 0) errno = EPIPE;
      return -1;
    }
    total += sent;
    for (skip += sent; i < count && skip >= pieces[i].iov_len; ++i) skip -= pieces[i].iov_len;
  }
  return static_cast<ssize_t>(total);
}

std::optional<std::chrono::sys_seconds> TlsStream::EndOfPeersCertificate() {
  const MutexLock lock(mutex_);
  const X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  return certificate != nullptr ? std::optional(EndOf(certificate)) : std::nullopt;
}

void TlsStream::SayGoodbye() {
  const MutexLock lock(mutex_);
  if (SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

// --- The two ends

Result<TlsServer::Context> TlsServer::Read(const TlsFiles& files) {
  TRY(CheckPrivateFile(files.key));
  Context context = TRY(NewContext(TLS_server_method()));
  SSL_CTX_set_options(context.get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_default_passwd_cb(context.get(), NoPassphrase);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return Fail(EINVAL, "cannot use the certificate {}: {}", files.certificate, LastReason());
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Fail(EINVAL,
                "cannot use the key {}: {} (it must be the certificate's, without a passphrase)",
                files.key, LastReason());
  }
  const std::string end = TextOfEnd(EndOf(SSL_CTX_get0_certificate(context.get())), ThisSecond());
  if (!end.empty()) {
    Log(LogLevel::kWarn, "clients that check a certificate do not connect when it has ended",
        {{"file", files.certificate}, {"certificate", end}});
  }
  return context;
}

Result<std::shared_ptr<TlsServer>> TlsServer::Load(TlsFiles files) {
  std::shared_ptr<TlsServer> server(new TlsServer(std::move(files)));
  TRY(server->Reload());
  return server;
}

Status TlsServer::Reload() {
  Context context = TRY(Read(files_));
  const MutexLock lock(mutex_);
  context_ = std::move(context);
  return {};
}

Result<std::unique_ptr<TlsStream>> TlsServer::Accept(int socket) const {
  Context context;
  {
    const MutexLock lock(mutex_);
    context = context_;
  }
  std::unique_ptr<TlsStream> stream = TRY(TlsStream::Create(context.get(), socket));
  const MutexLock lock(stream->mutex_);
  SSL_set_accept_state(stream->ssl_.get());
  return stream;
}

// What is believed takes as much memory as a connection, so those who believe the same share it.
Result<std::shared_ptr<const TlsClient>> TlsClient::Create(const std::string& authorities) {
  static Mutex mutex;
  static std::map<std::string, std::weak_ptr<const TlsClient>> known;
  const MutexLock lock(mutex);
  std::erase_if(known, [](const auto& each) { return each.second.expired(); });
  if (auto same = known[authorities].lock()) return same;
  std::shared_ptr<const TlsClient> made = TRY(New(authorities));
  known[authorities] = made;
  return made;
}

Result<std::shared_ptr<const TlsClient>> TlsClient::New(const std::string& authorities) {
  const Context context = TRY(NewContext(TLS_client_method()));
  if (!authorities.empty()) {
    TRY(AddAuthorities(authorities, SSL_CTX_get_cert_store(context.get())));
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  return std::shared_ptr<const TlsClient>(new TlsClient(context, authorities));
}

Result<std::unique_ptr<TlsStream>> TlsClient::Connect(int socket, const std::string& host) const {
  std::unique_ptr<TlsStream> stream = TRY(TlsStream::Create(context_.get(), socket));
  const MutexLock lock(stream->mutex_);
  SSL* const ssl = stream->ssl_.get();
  const bool address = IsAddress(host);
  if (!address) SSL_set_tlsext_host_name(ssl, host.c_str());
  if (!authorities_.empty()) {
    const int set = address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str())
                            : SSL_set1_host(ssl, host.c_str());
    if (set != 1) return Fail(EINVAL, "'{}' is not a name that a certificate can have", host);
  }
  SSL_set_connect_state(ssl);
  return stream;
}

}  // namespace pinstripe
