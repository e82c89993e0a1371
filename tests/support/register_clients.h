// RegisterClients: processes that read and change a few registers of a real cluster, and write down
// what they begin and what they are answered, until they are killed.
//
//   RegisterClients clients(config, 4);
//   clients.Format();
//   while (...) { make_trouble(); clients.StartThoseThatEnded(); }
//   clients.KillAll();
//   clients.ExpectLinearizable();
//
// Whoever uses it must have no threads, because it forks.

#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cluster/config.h"
#include "tests/support/linearizability.h"
#include "tests/support/temporary_directory.h"

namespace pinstripe {

// For processes that a test does not wait for: kills and reaps it, if it is one.
void EndProcess(pid_t pid);

class RegisterClients {
 public:
  // `begin` is called by the ith client's process before it does anything.
  RegisterClients(ClusterConfig config, size_t count, std::function<void(size_t)> begin = {});
  ~RegisterClients() { KillAll(); }
  RegisterClients(const RegisterClients&) = delete;
  RegisterClients& operator=(const RegisterClients&) = delete;

  size_t size() const { return processes_.size(); }

  void Format();  // makes the cluster
  void Start(size_t client);
  void Restart(size_t client);  // another one in its place
  // Those could not open the cluster, when too much was away.
  void StartThoseThatEnded();
  void KillAll();

  // How many were answered so far; and how many are needed.
  size_t CountAnswers() const;
  static constexpr size_t kEnoughAnswers = 100;

  // Fails unless the answers have an order, and there are enough of them; prints how many there
  // were, and the words.
  void ExpectLinearizable(const std::string& words) const;

 private:
  using Histories = std::map<std::string, std::vector<RegisterOperation>>;
  Histories Read() const;

  const ClusterConfig config_;
  const std::function<void(size_t)> begin_;
  TemporaryDirectory directory_;
  std::vector<pid_t> processes_;
  int last_ = 0;
};

}  // namespace pinstripe
