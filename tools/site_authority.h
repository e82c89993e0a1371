// The authority of a site, and the certificates that it gives its hosts: EC keys on P-256, in PEM.

#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pinstripe {

struct KeyPair {
  std::string certificate;
  std::string key;  // secret
  friend bool operator==(const KeyPair&, const KeyPair&) = default;
};

inline constexpr std::chrono::hours kAuthorityLifetime(24 * 3650);
inline constexpr std::chrono::hours kCertificateLifetime(24 * 730);

// The certificate of an authority may be several, one after the other: that of its key first, and
// those of its predecessors, which are believed as long as hosts may show certificates of them.
Result<KeyPair> MakeAuthority(const std::string& site, std::chrono::sys_seconds now);

// Another key. What the old one has certified is believed until its certificate ends.
Result<KeyPair> RenewAuthority(const std::string& site, const KeyPair& authority,
                               std::chrono::sys_seconds now);

// Predecessors that have ended are believed no more.
Status ForgetEnded(KeyPair& authority, std::chrono::sys_seconds now);

// The certificates of a PEM text, each by itself.
std::vector<std::string> CertificatesIn(const std::string& pem);

// A certificate of a server and a client, for a host's name and for the name or address that others
// know it by. It never outlives the authority's.
Result<KeyPair> IssueCertificate(const KeyPair& authority, const std::string& host,
                                 const std::string& address, std::chrono::sys_seconds now);

// When the first certificate of a PEM text begins and ends to be good. EINVAL: there is none.
struct Validity {
  std::chrono::sys_seconds from;
  std::chrono::sys_seconds until;
};
Result<Validity> ValidityOf(const std::string& certificate);

// EINVAL: it is not of this authority or a predecessor, or not for this host and address.
Status CheckCertificate(const KeyPair& authority, const std::string& certificate,
                        const std::string& host, const std::string& address);

// 64 hexadecimal digits.
std::string Sha256(std::string_view bytes);

}  // namespace pinstripe
