// What the replicas of a register hold, whatever they decide: RegisterStore::FindTraces().

#pragma once

#include "base/status.h"
#include "cluster/registers/call.h"
#include "cluster/registers/store.h"

namespace pinstripe {

// Asks each of these replicas that is up, and waits for all of them. EIO: none answered; EREMCHG:
// the replicas are others by now.
Result<RegisterTraces> FindRegisterTraces(const RegisterContext& context, const RegisterName& name,
                                          const GroupReplicas& replicas);

}  // namespace pinstripe
