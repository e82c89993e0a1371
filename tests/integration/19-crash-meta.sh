#!/bin/bash
# Mounts and drives are killed in the middle of changes of names, for CRASH_SECONDS (30): everything
# acknowledged is there, and everything fits together. `./dev crash-meta TIME` does it for longer.
. "$(dirname "$0")/lib.sh"

needs_fuse
cluster_up meta --layout 4+2 --drives 8 --no-gateway

campaign=(/usr/bin/python3 "$project/tests/crash/crash_meta.py" --build "$build" --cluster "$cluster"
  --time "${CRASH_SECONDS:-30}" --drives 8 --away 2)
campaign+=(--seed "$(seed_of "${CRASH_SECONDS:-}")")
check "names survive kills of mounts and drives" "${campaign[@]}"

# A test of the test: a file that is removed behind the campaign's back is missed.
sabotage() {
  local said
  said=$("${campaign[@]}" --time 20 --sabotage 2>&1)
  grep -q '^VIOLATION: .* is absent' <<<"$said" && return 0
  sed 's/^/  /' <<<"$said"
  return 1
}
check "and a name that vanishes is noticed" sabotage
finish
