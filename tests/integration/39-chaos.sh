#!/bin/bash
# Everything that may happen to a cluster happens to one of real processes, one trial after the other, while files are written, read
# and renamed: slow and bad disks, bad lines, wrong peers, processes that stand still, clocks that jump, two clusters on the same drives,
# floods, kills. No byte is wrong or lost. CHAOS_SECONDS (36), CHAOS_ONLY=TRIAL,... and SEED; `./dev chaos TIME` does it for longer.

# Packets are lost only in a network of its own, where the kernel can do that.
netem='ip link set lo up && tc qdisc add dev lo root netem loss 1% && tc qdisc del dev lo root'
if [ -z "${CHAOS_NETEM:-}" ] && unshare --net sh -c "$netem" 2>/dev/null; then
  CHAOS_NETEM=1 exec unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$0"
fi
. "$(dirname "$0")/lib.sh"

needs_fuse
chaos() {  # OPTIONS...
  /usr/bin/python3 "$project/tests/crash/chaos.py" --build "$build" --cluster "$cluster" "$@"
}
options=(--time "${CHAOS_SECONDS:-36}" --seed "$(seed_of "${CHAOS_SECONDS:-}")")
# Beside other tests, the clients leave something of the machine to them.
[ -n "${CHAOS_SECONDS:-}" ] || options+=(--flood 100000 --rest 0.1)
cluster_up chaos --layout 4+2 --drives 8
check "no byte is wrong or lost" chaos "${options[@]}" ${CHAOS_ONLY:+--only "$CHAOS_ONLY"}
cluster_down
[ -z "${CHAOS_ONLY:-}" ] || finish

# Tests of the test.
lie() {  # WHAT WORDS
  local said
  said=$(chaos --time 0 --seed 1 --only kills --lie "$1" 2>&1)
  grep -q "^VIOLATION: .*$2" <<<"$said" && return 0
  sed 's/^/  /' <<<"$said"
  return 1
}
cluster_up byte --layout 4+2 --drives 8
check "and a wrong byte is noticed" lie byte "byte 0 of .* is .* instead of"
cluster_down
cluster_up file --layout 4+2 --drives 8
check "and a file that is gone" lie file "0 bytes instead of"
finish
