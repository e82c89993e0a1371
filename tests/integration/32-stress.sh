#!/bin/bash
# Several processes do the same to a mount and to a directory on a local disk, for STRESS_SECONDS (20), in the second half
# while drives die: what they see is the same. `./dev stress TIME` does it for longer; SEED=n repeats a run, and ROUND=n
# one round of one process.
. "$(dirname "$0")/lib.sh"

needs_fuse
# What a local disk does: a file system in memory lacks some of it.
if [ "$(stat -f -c %T "$work")" = tmpfs ]; then
  echo "SKIP $script: $work is in memory; set TMPDIR to a directory on a disk"
  exit 77
fi

stress() {  # OPTIONS...
  local options=(--time "${STRESS_SECONDS:-20}" "$@")
  options+=(--seed "$(seed_of "${STRESS_SECONDS:-}")")
  rm -rf "$work/reference"
  mkdir "$work/reference"
  /usr/bin/python3 "$project/tests/crash/stress.py" --build "$build" --cluster "$cluster" --reference "$work/reference" "${options[@]}"
}
cluster_up same --layout 4+2 --drives 8 --no-gateway
if [ -n "${ROUND:-}" ]; then
  check "the round $ROUND finds no difference" stress --round "$ROUND"
  finish
fi
check "a mount does what a local disk does" stress
cluster_down

# A test of the test: a file that only the mount has is noticed.
sabotage() {
  local said
  said=$(stress --time 1 --workers 1 --away 0 --sabotage 2>&1)
  grep -q '^VIOLATION: .*sabotage' <<<"$said" && return 0
  sed 's/^/  /' <<<"$said"
  return 1
}
cluster_up other --layout 4+2 --drives 8 --no-gateway
check "and a difference is noticed" sabotage
finish
