#include "tools/site_authority.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/try.h"
#include "tools/site_plan.h"

namespace pinstripe {
namespace {

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Memory = std::unique_ptr<BIO, Freer<BIO_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;

// Clocks of hosts may be behind.
constexpr std::chrono::hours kBefore(24);

Failed Refused(std::string_view what) {
  const unsigned long code = ERR_peek_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return Fail(EINVAL, "{}: {}", what, reason != nullptr ? reason : "unknown reason");
}

std::string TextOf(const Memory& memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

Result<std::string> PemOf(EVP_PKEY* key) {
  const Memory memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr || PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr, nullptr, 0,
                                                         nullptr, nullptr) != 1) {
    return Refused("the key cannot be written");
  }
  return TextOf(memory);
}

Result<std::string> PemOf(X509* certificate) {
  const Memory memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr || PEM_write_bio_X509(memory.get(), certificate) != 1) {
    return Refused("the certificate cannot be written");
  }
  return TextOf(memory);
}

Result<Certificate> ReadCertificate(const std::string& pem) {
  ERR_clear_error();
  const Memory memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Certificate certificate(
      memory == nullptr ? nullptr : PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) return Refused("there is no certificate in it");
  return certificate;
}

int NoPassphrase(char*, int, int, void*) { return 0; }

Result<Key> ReadKey(const std::string& pem) {
  ERR_clear_error();
  const Memory memory(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(memory == nullptr
              ? nullptr
              : PEM_read_bio_PrivateKey(memory.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) return Refused("there is no key in it");
  return key;
}

std::chrono::sys_seconds TimeOf(const ASN1_TIME* time) {
  std::tm fields{};
  if (ASN1_TIME_to_tm(time, &fields) != 1) return {};
  return std::chrono::sys_seconds(std::chrono::seconds(timegm(&fields)));
}

bool SetTime(ASN1_TIME* place, std::chrono::sys_seconds time) {
  return ASN1_TIME_set(place, static_cast<time_t>(time.time_since_epoch().count())) != nullptr;
}

bool SetName(X509_NAME* name, const char* field, const std::string& text) {
  return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0) == 1;
}

// 20 bytes at most, positive, by chance.
bool SetSerial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return false;
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);
  const std::unique_ptr<BIGNUM, Freer<BN_free>> number(BN_bin2bn(bytes, sizeof bytes, nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

struct Contents {
  std::string organization;
  std::string name;
  std::chrono::sys_seconds from;
  std::chrono::sys_seconds until;
  std::vector<std::pair<int, std::string>> extensions;  // in OpenSSL's text form
};

// By `issuer_key`, whose certificate is `issuer`; null: of the certificate itself.
Result<Certificate> Sign(const Contents& contents, EVP_PKEY* key, X509* issuer,
                         EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  if (certificate == nullptr) return Refused("no memory for a certificate");
  X509* const made = certificate.get();
  X509_NAME* const subject = X509_get_subject_name(made);
  const bool filled =
      X509_set_version(made, 2) == 1 && SetSerial(made) &&
      SetName(subject, "O", contents.organization) && SetName(subject, "CN", contents.name) &&
      SetTime(X509_getm_notBefore(made), contents.from) &&
      SetTime(X509_getm_notAfter(made), contents.until) && X509_set_pubkey(made, key) == 1;
  if (!filled) return Refused("the certificate cannot be made");
  X509* const by = issuer != nullptr ? issuer : made;
  if (X509_set_issuer_name(made, X509_get_subject_name(by)) != 1) {
    return Refused("the certificate cannot be given its issuer");
  }
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, by, made, nullptr, nullptr, 0);
  for (const auto& [kind, text] : contents.extensions) {
    const Extension extension(X509V3_EXT_nconf_nid(nullptr, &context, kind, text.c_str()));
    if (extension == nullptr || X509_add_ext(made, extension.get(), -1) != 1) {
      return Refused(fmt::format("the certificate cannot say \"{}\"", text));
    }
  }
  if (X509_sign(made, issuer_key, EVP_sha256()) == 0) return Refused("it cannot be signed");
  return certificate;
}

Result<Key> NewKey() {
  ERR_clear_error();
  Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Refused("no key can be made");
  return key;
}

}  // namespace

Result<KeyPair> MakeAuthority(const std::string& site, std::chrono::sys_seconds now) {
  const Key key = TRY(NewKey());
  const Contents contents{.organization = fmt::format("Pinstripe {}", site),
                          .name = fmt::format("Authority of {}", site),
                          .from = now - kBefore,
                          .until = now + kAuthorityLifetime,
                          .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                         {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                         {NID_subject_key_identifier, "hash"}}};
  const Certificate certificate = TRY(Sign(contents, key.get(), nullptr, key.get()));
  KeyPair pair;
  pair.certificate = TRY(PemOf(certificate.get()));
  pair.key = TRY(PemOf(key.get()));
  return pair;
}

std::vector<std::string> CertificatesIn(const std::string& pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE";
  std::vector<std::string> certificates;
  for (size_t at = pem.find(kBegin); at != std::string::npos;) {
    const size_t next = pem.find(kBegin, at + 1);
    certificates.push_back(pem.substr(at, next == std::string::npos ? next : next - at));
    at = next;
  }
  return certificates;
}

Result<KeyPair> RenewAuthority(const std::string& site, const KeyPair& authority,
                               std::chrono::sys_seconds now) {
  KeyPair renewed = TRY(MakeAuthority(site, now));
  renewed.certificate += authority.certificate;
  TRY(ForgetEnded(renewed, now));
  return renewed;
}

Status ForgetEnded(KeyPair& authority, std::chrono::sys_seconds now) {
  std::string believed;
  for (const std::string& one : CertificatesIn(authority.certificate)) {
    // Its own stays, for messages.
    if (believed.empty() || TRY(ValidityOf(one)).until > now) believed += one;
  }
  authority.certificate = std::move(believed);
  return {};
}

Result<KeyPair> IssueCertificate(const KeyPair& authority, const std::string& host,
                                 const std::string& address, std::chrono::sys_seconds now) {
  const Certificate issuer =
      TRY_CONTEXT(ReadCertificate(authority.certificate), "the authority's certificate");
  const Key issuer_key = TRY_CONTEXT(ReadKey(authority.key), "the authority's key");
  if (X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    return Fail(EINVAL, "the authority's key is not the one of its certificate");
  }
  const std::chrono::sys_seconds end = TimeOf(X509_get0_notAfter(issuer.get()));
  if (end <= now) return Fail(EINVAL, "the authority's certificate has expired");

  // Names that a server may be asked for. A name that is an address is one of the other kind.
  std::string names = fmt::format("{}:{}", IsIp(host) ? "IP" : "DNS", host);
  if (address != host) names += fmt::format(",{}:{}", IsIp(address) ? "IP" : "DNS", address);
  const Key key = TRY(NewKey());
  const Contents contents{.organization = "Pinstripe",
                          .name = host,
                          .from = now - kBefore,
                          .until = std::min(end, now + kCertificateLifetime),
                          .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                                         {NID_key_usage, "critical,digitalSignature"},
                                         {NID_ext_key_usage, "serverAuth,clientAuth"},
                                         {NID_subject_alt_name, names},
                                         {NID_subject_key_identifier, "hash"},
                                         {NID_authority_key_identifier, "keyid"}}};
  const Certificate certificate =
      TRY_CONTEXT(Sign(contents, key.get(), issuer.get(), issuer_key.get()), "host {}", host);
  KeyPair pair;
  pair.certificate = TRY(PemOf(certificate.get()));
  pair.key = TRY(PemOf(key.get()));
  return pair;
}

Result<Validity> ValidityOf(const std::string& pem) {
  const Certificate certificate = TRY(ReadCertificate(pem));
  return Validity{.from = TimeOf(X509_get0_notBefore(certificate.get())),
                  .until = TimeOf(X509_get0_notAfter(certificate.get()))};
}

Status CheckCertificate(const KeyPair& authority, const std::string& pem, const std::string& host,
                        const std::string& address) {
  const Certificate certificate = TRY(ReadCertificate(pem));
  bool is_known = false;
  for (const std::string& one : CertificatesIn(authority.certificate)) {
    const Certificate issuer = TRY(ReadCertificate(one));
    const Key key(X509_get_pubkey(issuer.get()));
    is_known = is_known || (key != nullptr && X509_verify(certificate.get(), key.get()) == 1);
  }
  if (!is_known) return Fail(EINVAL, "the certificate is not of this authority");
  for (const std::string& name : {host, address}) {
    const int good = IsIp(name)
                         ? X509_check_ip_asc(certificate.get(), name.c_str(), 0)
                         : X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr);
    if (good != 1) return Fail(EINVAL, "the certificate is not for {}", name);
  }
  return {};
}

std::string Sha256(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace pinstripe
