#include "cluster/registers/traces.h"

#include <vector>

#include "cluster/gather.h"
#include "cluster/registers/record.h"

namespace pinstripe {

Result<RegisterTraces> FindRegisterTraces(const RegisterContext& context, const RegisterName& name,
                                          const GroupReplicas& replicas) {
  const std::string key = RegisterRecordKey(context.options.prefix, name);
  const std::vector<Drive*>& drives = replicas.drives;
  RegisterTraces traces{.replicas = drives.size()};
  Gather<Result<Record>> gather(context.runtime);
  const Terms terms{context.runtime.Now() + context.options.drive_timeout,
                    replicas.cluster_version};
  for (size_t i = 0; i < drives.size(); ++i) {
    if (drives[i] != nullptr && drives[i]->IsUp()) drives[i]->Get(key, {}, terms, gather.Ask(i));
  }
  Ballot newest;
  Status why = Fail(EIO, "a register of group {}: none of its drives is up", name.group);
  while (const auto answer = gather.Next(Time::max())) {
    const Result<ReplicaState> state = StateFrom(key, *drives[answer->index], answer->value);
    if (!state.has_value() && state.error().code() == EREMCHG) return Failed(state.error());
    if (!state.has_value()) {
      why = state.error();
      continue;
    }
    ++traces.answered;
    if (state->accepted.slot == 0) continue;
    ++traces.accepted;
    // A fence and what it came too late for may have the same ballot: the value counts.
    const bool is_value = state->proposal->value.has_value();
    const bool is_newer = newest < state->accepted ||
                          (newest == state->accepted && is_value && !traces.value.has_value());
    if (!is_newer) continue;
    newest = state->accepted;
    traces.slot = newest.slot;
    traces.value = state->proposal->value;
    traces.removed = !state->proposal->value.has_value();
  }
  if (traces.answered == 0) return Failed(why);
  return traces;
}

}  // namespace pinstripe
