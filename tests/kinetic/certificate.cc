#include "tests/kinetic/certificate.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>

namespace pinstripe {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

void AddExtension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  ASSERT_NE(extension, nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

}  // namespace

void MakeCertificate(const std::string& certificate_file, const std::string& key_file,
                     CertificateKind kind, const std::string& name, long lifetime_seconds) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      kind == CertificateKind::kRsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256"), &EVP_PKEY_free);
  ASSERT_NE(key, nullptr);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -7200);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), lifetime_seconds);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  AddExtension(certificate.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);

  const File certificate_out(fopen(certificate_file.c_str(), "w"), &fclose);
  ASSERT_EQ(PEM_write_X509(certificate_out.get(), certificate.get()), 1);
  const File key_out(fopen(key_file.c_str(), "w"), &fclose);
  chmod(key_file.c_str(), 0600);
  ASSERT_EQ(PEM_write_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr),
            1);
}

}  // namespace pinstripe
