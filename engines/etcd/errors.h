// What a failure of a call says: whether the change may have been made, and what to do. Pure.

#pragma once

#include <string_view>

#include "base/status.h"

namespace pinstripe {

struct EtcdFailure {
  enum class Fate {
    kNotDone,  // nothing was done, and another member may do it
    kUnknown,  // it may have been done, or may still be
    kRefused,  // nothing was done, and no member would do it
    kToken,    // nothing was done: it wants us to say again who we are
  };
  Fate fate = Fate::kUnknown;
  bool spoke = false;  // the answer is etcd's own: a member is there
  bool again = true;   // another try may end better
  Status why;          // EHOSTUNREACH, ETIMEDOUT, EACCES, ENOSPC, EINVAL, EMSGSIZE, EIO
};

// `code` and `message` of a grpc::Status that is not OK. Bytes that a terminal would act on, and
// what is too long, are left out.
EtcdFailure MeaningOfFailure(int code, std::string_view message);

// A sentence of somebody else's, for one of ours.
std::string SaidByEtcd(std::string_view sentence);

}  // namespace pinstripe
