// A WireClient over TLS, by OpenSSL's plain blocking functions: nothing of what it tests.

#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "tests/daemon/wire_client.h"

namespace pinstripe {

class TlsWireClient final : public WireClient {
 public:
  // Up to `version` (TLS1_3_VERSION), with one of `ciphers` of TLS 1.2 where they are given.
  explicit TlsWireClient(uint16_t port, int version = 0, const char* ciphers = nullptr)
      : WireClient(port), context_(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free) {
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_max_proto_version(context_.get(), version);
    SSL_CTX_set_min_proto_version(context_.get(), version == 0 ? TLS1_2_VERSION : version);
    if (ciphers != nullptr) SSL_CTX_set_cipher_list(context_.get(), ciphers);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), socket());
    connected_ = SSL_connect(ssl_.get()) == 1;
  }

  bool connected() const { return connected_; }
  std::string version() const { return SSL_get_version(ssl_.get()); }

  // The common name of the certificate that the server showed.
  std::string server_name() const {
    X509* certificate = SSL_get0_peer_certificate(ssl_.get());
    char name[100] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof name);
    return name;
  }

 private:
  ssize_t SendSome(std::string_view bytes) override {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  ssize_t ReceiveSome(char* bytes, size_t size) override {
    const int got = SSL_read(ssl_.get(), bytes, static_cast<int>(size));
    return got > 0 ? got : SSL_get_error(ssl_.get(), got) == SSL_ERROR_ZERO_RETURN ? 0 : -1;
  }

  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, &SSL_free};
  bool connected_ = false;
};

}  // namespace pinstripe
