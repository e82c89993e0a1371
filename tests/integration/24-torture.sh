#!/bin/bash
# Files of all sizes and layouts are written, changed and read through several mounts, for TORTURE_SECONDS
# (10), while drives and mounts die, pause, rot and are replaced, and repairs run: no byte is wrong or lost.
# `./dev torture TIME` does it for longer, on three clusters. REDIS of the drives are redis-servers.
# ENGINE: names are on an etcd, or a postgresql, of which members or the server are killed as well.
. "$(dirname "$0")/lib.sh"

needs_fuse
k=${LAYOUT:-4+2}
m=${k#*+} k=${k%+*}
drives=${DRIVES:-$((k + m + 2))}

campaign() {  # OPTIONS...
  local options=(--data "$k" --away "$m" --drives "$drives" --time "${TORTURE_SECONDS:-10}" "$@")
  options+=(--seed "$(seed_of "${TORTURE_SECONDS:-}")")
  /usr/bin/python3 "$project/tests/crash/torture.py" --build "$build" --cluster "$cluster" "${options[@]}"
}
cluster_up whole --layout "$k+$m" --drives "$drives" --redis "${REDIS:-0}" --no-gateway
if [ -n "${ENGINE:-}" ]; then
  . "$(dirname "$0")/engines.sh"
  names_on "$ENGINE"
fi
check "$k+$m on $drives drives: no byte is wrong or lost" campaign --redis "${REDIS:-0}" ${ENGINE:+--engine}
cluster_down
[ -z "${ENGINE:-}" ] || finish

# A test of the test: records that vanish from a drive, and are not written again, are missed.
sabotage() {
  local said
  said=$(campaign --time 1 --sabotage 2>&1)
  grep -q '^VIOLATION: pinstripe verify .*: exit [123]' <<<"$said" && return 0
  sed 's/^/  /' <<<"$said"
  return 1
}
cluster_up ruined --layout "$k+$m" --drives "$drives" --no-gateway
check "and records that vanish are noticed" sabotage
finish
