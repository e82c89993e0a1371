// What brings a process to an engine, as `[metadata]` in cluster.toml says it.

#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/runtime.h"

namespace pinstripe {

struct EngineOptions {
  std::string name = "the engine of names";  // for messages
  std::string cluster;  // the name of the cluster whose names it keeps: IsPlainName()

  // etcd: "http://host:2379", or all of them "https://host:2379".
  std::vector<std::string> endpoints;
  // PostgreSQL: a connection string as libpq takes it, with all its servers; no password in it.
  std::string connection;

  std::string user;      // empty: none is sent to etcd; as the connection string says
  std::string password;  // likewise
  // Files in PEM, empty where there is none. etcd: whose certificates are believed (empty: those
  // that the machine believes), and our own. PostgreSQL has them in its connection string.
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;

  Duration connect_timeout = std::chrono::seconds(5);
  Duration least_backoff = std::chrono::milliseconds(100);
  Duration most_backoff = std::chrono::seconds(1);
  // PostgreSQL: a process has one session, and some more while several requests are under way at a
  // time. These are closed when none were for so long. Zero: never.
  Duration idle_timeout{};
};

}  // namespace pinstripe
