#!/bin/bash
# Mounts and drives are killed in the middle of changes of names, and then drives and mounts lose their
# power, for CRASH_SECONDS (40), half of it each: everything acknowledged, or synced, is there, and everything fits together.
# `./dev crash-meta TIME` does it for longer. ENGINE: names are on an etcd, or a postgresql, of which members or the server are
# killed as well; then only the first half is done.
. "$(dirname "$0")/lib.sh"

needs_fuse
each=$((${CRASH_SECONDS:-40} / 2))
seed=$(seed_of "${CRASH_SECONDS:-}")

# Of one that must find something; the words tell whether it has.
finds() {  # WORDS COMMAND...
  local said words=$1
  shift
  said=$("$@" 2>&1)
  grep -q "^VIOLATION: $words" <<<"$said" && return 0
  sed 's/^/  /' <<<"$said"
  return 1
}

# --- kills ---

cluster_up meta --layout 4+2 --drives 8 --no-gateway
if [ -n "${ENGINE:-}" ]; then
  . "$(dirname "$0")/engines.sh"
  names_on "$ENGINE"
fi
campaign=(/usr/bin/python3 "$project/tests/crash/crash_meta.py" --build "$build" --cluster "$cluster"
  --time "$each" --drives 8 --away 2 --seed "$seed")
check "names survive kills of mounts and drives" "${campaign[@]}"

# A test of the test: a file that is removed behind the campaign's back is missed.
check "and a name that vanishes is noticed" finds ".* is absent" "${campaign[@]}" --time 20 --sabotage
cluster_down
[ -z "${ENGINE:-}" ] || finish

# --- losses of power ---

# Hosts with one, one, two and three drives: two drives may forget, and nothing is forgotten. Each cluster is made for
# one campaign, which takes its drives over.
power() {  # NAME OPTION...
  cluster_up "$1" --layout 2+2 --drives 7 --groups 1,1,2,3 --no-gateway
  campaign=(/usr/bin/python3 "$project/tests/crash/cut_power.py" --build "$build" --cluster "$cluster" --seed "$seed" "${@:2}")
}
power power --time "$each"
check "names survive losses of power" "${campaign[@]}"
cluster_down

# Tests of the test. What was not synced is lost; so who takes it for synced must miss something.
power lie --time 60 --lie
check "and what was not synced is missed" finds "[pq]/c" "${campaign[@]}"
cluster_down
power disk-lies --time 60 --disk-lies
check "and so is what disks have lost that they had synced" finds "" "${campaign[@]}"
finish
