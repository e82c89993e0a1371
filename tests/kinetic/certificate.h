// Certificates for tests: made on the spot, self-signed, for this machine.

#pragma once

#include <string>

namespace pinstripe {

enum class CertificateKind { kRsa, kEllipticCurve };

// Writes both as PEM, the key with mode 0600. `name` is its common name; it is good for "localhost"
// and 127.0.0.1. `lifetime_seconds` may be negative: expired.
void MakeCertificate(const std::string& certificate_file, const std::string& key_file,
                     CertificateKind kind = CertificateKind::kEllipticCurve,
                     const std::string& name = "test", long lifetime_seconds = 3600);

}  // namespace pinstripe
