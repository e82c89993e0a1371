#!/bin/sh
# Checks the models of tests/model with Spin, in the bounds stated here: ./dev model.
#
# A line per search. `verified`: every state within the bounds was visited, and no assertion fails in any.
# `searched`: as many states as the time allowed, marked in a bit array, so neither all nor all of those
# that were counted; no assertion fails in them. `refuted`: of a weakened protocol, which has to fail.
# Anything else ends with status 1. Needs spin and a C compiler; under 2 GB each for two searches at once.
set -u

models=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# search NAME KIND MODEL OPTIONS WHAT: one search; leaves a line in NAME/line, or in NAME/failure.
search() {
  mkdir "$work/$1" && cd "$work/$1" || return
  case $2 in
    verified | refuted) compile=-DCOLLAPSE run= ;;
    searched) compile=-DBITSTATE run="-w31 -Q1" ;;
  esac
  # A history is as bad whichever way it was found: this one comes late in Spin's usual order.
  case $4 in *-DWEAK_MOVE*) compile="-DBITSTATE -DREVERSE -DT_REVERSE" run=-w30 ;; esac
  # shellcheck disable=SC2086  # several words each
  {
    spin -a $4 "$models/$3" &&
      cc -O2 -w -DSAFETY -DMEMLIM=1900 $compile -o pan pan.c &&
      ./pan -n -E -m50000 $run
  } >log 2>&1
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' log)
  broken=$(sed -n 's/^pan:[0-9]*: \(assertion violated .*\) (at depth.*/\1/p' log)
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' log)
  outcome="could not be searched"
  if [ -n "$broken" ]; then
    outcome=refuted
  elif [ "$errors" = 0 ] && [ -n "$states" ]; then
    outcome=verified
    [ $2 = searched ] && outcome=searched
    # A search that was cut short, by memory, depth or time, proves nothing.
    grep -qE 'out of memory|max search depth too small|search depth limit|truncated' log && outcome=incomplete
    [ $2 = verified ] && grep -qE 'Search not completed' log && outcome=incomplete
  fi
  printf '%-9s %11s states  %s\n' "$outcome" "${states:-?}" "$5" >line
  [ "$outcome" = "$2" ] && return
  {
    printf 'should have been %s: %s (%s)\n' "$2" "$5" "$4"
    tail -n 20 log
  } >failure
}

# Two at a time, as they come.
slots=$work/slots
mkfifo "$slots" && exec 3<>"$slots" && printf '\n\n' >&3
names=
check() {
  read -r _ <&3
  names="$names $1"
  { search "$@"; printf '\n' >&3; } &
}

# Exhaustive. Beyond what registers.pml says: a change is tried in the fast round, by a classic round at once
# (as when drives are away), or after a read.
check v1 verified registers.pml "-DOPS=1 -DTRIES=1 -DLOSSES=2 -DDELAYED=0" \
  "3 replicas, 2 proposers, 1 operation each, 2 losses"
check v2 verified registers.pml "-DOPS=2 -DTRIES=1 -DLOSSES=1 -DDELAYED=0 -DIN_ORDER -DCATCH_UP" \
  "3 replicas, 2 proposers, 2 operations each, 1 loss; puts in the replicas' order"
check v3 verified registers.pml "-DOPS=1 -DTRIES=1 -DLOSSES=1 -DDELAYED=1 -DIN_ORDER" \
  "3 replicas, 2 proposers, 1 operation each, 1 loss, 1 delayed and repeated; in order"

# A change of the epoch. Each starts with a name that is new, in use, or was removed.
epochs="-DTRIES=1 -DIN_ORDER"
check e1 verified epochs.pml "-DSTART=0 -DLOSSES=1 $epochs" \
  "two epochs: a new name, 2 proposers, 1 operation each, 1 loss"
check e2 verified epochs.pml "-DSTART=1 -DLOSSES=0 $epochs" \
  "two epochs: a name in use, 2 proposers, 1 operation each"
check e3 verified epochs.pml "-DSTART=2 -DLOSSES=1 -DDELAYED=1 -DERASING -DCATCH_UP $epochs" \
  "two epochs: a removed name is erased, 2 proposers, 1 operation each, 1 loss, 1 delayed"
check e4 verified epochs.pml "-DSTART=0 -DLOSSES=0 -DTRIES=0 -DOPS=2 -DIN_ORDER -DERASING" \
  "two epochs: made, removed, erased, 2 proposers, 2 operations each, fast rounds alone"

# Directories that are removed and replaced while others put something into them.
check d1 verified directories.pml "-DREMOVERS=1 -DNOTER" "a directory: 2 makers, 1 who removes it, its times noted"
check d2 verified directories.pml "-DRENAMERS=1 -DNOTER" "a directory: 2 makers, 1 who replaces it, its times noted"
check d3 verified directories.pml "-DREMOVERS=1 -DRENAMERS=1" "a directory: 2 makers, 1 who removes and 1 who replaces it"
check d4 verified directories.pml "-DREMOVERS=2 -DMAKERS=1" "a directory: 1 maker, 2 who remove it"
check d5 verified directories.pml "-DREMOVERS=1 -DRENAMERS=1 -DNOTER -DMAKERS=1" \
  "a directory: 1 maker, 1 who removes and 1 who replaces it, its times noted"
check d6 verified directories.pml "-DRENAMERS=2 -DMAKERS=1" "a directory: 1 maker, 2 who replace it"

# Files that are made together with their names.
check c1 verified creation.pml "-DMAKERS=2 -DTRIES=3" "a new name: 2 makers, 3 attempts each"
check c2 verified creation.pml "-DMAKERS=3 -DTRIES=1" "a new name: 3 makers, 1 attempt each"

# Makers that look at the directory, and whoever lists it, replica by replica.
check k1 verified closing.pml "" "a directory's replicas: 3, 1 maker, 1 who removes it"
check k2 verified closing.pml "-DKNOWN_OPEN -DCLASSIC_TELLS -DANY_VALUE" \
  "a directory's replicas: 3, 1 maker, 1 who removes it; rules that ask less"
check k3 verified closing.pml "-DNOTES=1 -DTRIES=0 -DSETTLES=0 -DANY_VALUE -DKNOWN_OPEN" \
  "a directory's replicas: 3, 1 maker, 1 who removes it, its times noted; rules that ask less, no classic rounds"
check k4 verified closing.pml "-DNOTES=1 -DONE_CHANGE" \
  "a directory's replicas: 3, 1 maker, 1 who removes it, its times noted; no votes for what loses"
check k5 verified closing.pml "-DREMOVERS=2 -DTRIES=0 -DONE_CHANGE -DKNOWN_OPEN" \
  "a directory's replicas: 3, 1 maker without classic rounds, 2 who remove it; no votes for what loses"
check k6 verified closing.pml "-DMAKERS=2 -DSETTLES=0 -DONE_CHANGE -DKNOWN_OPEN" \
  "a directory's replicas: 3, 2 makers of one name, 1 who removes it and settles nothing; no votes for what loses"
check k7 verified closing.pml "-DTRIES=2 -DONE_CHANGE -DKNOWN_OPEN" \
  "a directory's replicas: 3, 1 maker with 2 classic rounds, 1 who removes it; no votes for what loses"
check k8 verified closing.pml "-DR=5 -DONE_CHANGE" \
  "a directory's replicas: 5, 1 maker, 1 who removes it; no votes for what loses"
check k9 verified closing.pml "-DR=5 -DONE_CHANGE -DKNOWN_OPEN -DCLASSIC_TELLS" \
  "a directory's replicas: 5, 1 maker, 1 who removes it; rules that ask less, no votes for what loses"

# Values that come with companions.
check p1 verified bound.pml "" "a bound value: 3 replicas, 2 classic rounds, brought to two that are behind"
check p2 verified bound.pml "-DRIVAL -DROUNDS=1" \
  "a bound value, and another one: 3 replicas, a classic round of the other's proposer"
check p3 verified bound.pml "-DR=5 -DROUNDS=1" "a bound value: 5 replicas, 1 classic round"

# As far as a minute goes.
check b1 searched registers.pml "-DOPS=2 -DTRIES=2 -DLOSSES=3 -DDELAYED=2 -DCATCH_UP -DSLOTS=3" \
  "3 replicas, 2 proposers, 2 operations each, 3 losses, 2 delayed"
check b2 searched registers.pml "-DP=3 -DOPS=1 -DTRIES=2 -DLOSSES=2 -DDELAYED=1 -DCATCH_UP" \
  "3 replicas, 3 proposers, 1 operation each, 2 losses, 1 delayed"
check b3 searched registers.pml "-DR=5 -DOPS=2 -DTRIES=2 -DLOSSES=3 -DDELAYED=1 -DCATCH_UP" \
  "5 replicas, 2 proposers, 2 operations each, 3 losses, 1 delayed"
check b4 searched registers.pml "-DR=5 -DP=3 -DOPS=1 -DTRIES=2 -DLOSSES=2 -DDELAYED=1 -DCATCH_UP" \
  "5 replicas, 3 proposers, 1 operation each, 2 losses, 1 delayed"
check b5 searched epochs.pml "-DP=3 -DSTART=0 -DMAKER_AND_USER -DOPS=2 -DTRIES=2 -DLOSSES=1 -DIN_ORDER -DRENEWALS -DERASING" \
  "two epochs: 3 proposers, who make, remove and renew, 1 loss, erased"
check b6 searched epochs.pml "-DR=5 -DSTART=2 -DTRIES=2 -DLOSSES=2 -DDELAYED=2 -DERASING -DCATCH_UP -DRENEWALS" \
  "two epochs: 5 replicas, 2 proposers, 1 operation each, 2 losses, 2 delayed, erased"
check b7 searched closing.pml "-DR=5 -DMAKERS=2 -DREMOVERS=2 -DNOTES=1" \
  "a directory's replicas: 5, 2 makers of one name, 2 who remove it, its times noted"
check b8 searched bound.pml "-DR=5 -DROUNDS=2 -DRIVAL" \
  "a bound value, and another one: 5 replicas, 2 classic rounds, one of them of the other's proposer"

# Weakened protocols, quick to refute.
small="-DLOSSES=2 -DDELAYED=0 -DIN_ORDER -DTRIES=1"
check w1 refuted registers.pml "-DOPS=1 $small -DWEAK_FAST_MAJORITY" \
  "weakened: a mere majority chooses in the fast round"
check w2 refuted registers.pml "-DOPS=2 $small -DWEAK_FAST_EQUAL" \
  "weakened: a replica that promised the fast ballot may accept in it again"
check w3 refuted registers.pml "-DOPS=1 $small -DWEAK_BLIND_ACCEPT" \
  "weakened: a classic round does not look for what may have been chosen"
check w4 refuted registers.pml "-DOPS=1 $small -DWEAK_UNREAD_PREPARE" \
  "weakened: a prepare is sent to replicas whose value was not read"
epochs="-DLOSSES=0 $epochs"
check w5 refuted epochs.pml "-DSTART=0 $epochs -DWEAK_FENCE" \
  "weakened: drives do not refuse the former epoch"
check w6 refuted epochs.pml "-DSTART=2 -DDELAYED=1 -DERASING $epochs -DWEAK_LATE_FENCE" \
  "weakened: drives execute later what came before they knew of the epoch"
check w7 refuted epochs.pml "-DSTART=2 -DERASING -DCATCH_UP $epochs -DWEAK_SLOTS" \
  "weakened: slots go on counting in the new epoch"
check w8 refuted epochs.pml "-DSTART=2 -DOPS=2 -DERASING $epochs -DWEAK_ERASER" \
  "weakened: what was removed in the present epoch is erased"
check w9 refuted epochs.pml "-DSTART=2 -DERASING $epochs -DWEAK_UNHEARD_ERASER" \
  "weakened: a removed name is erased while a replica holds a value"
check w10 refuted epochs.pml "-DSTART=0 -DLOSSES=0 -DTRIES=0 -DOPS=2 -DIN_ORDER -DERASING -DWEAK_REMEMBERED" \
  "weakened: what was remembered from the former epoch counts"
check w11 refuted epochs.pml "-DSTART=0 -DLOSSES=0 -DTRIES=2 -DIN_ORDER -DWEAK_BARRIER" \
  "weakened: a refusal in the new epoch leaves open whether others take effect"
check w12 refuted epochs.pml "-DSTART=1 -DLOSSES=1 -DTRIES=1 -DIN_ORDER -DWEAK_BEYOND" \
  "weakened: promises in the new epoch show what was chosen in the former one"
check w13 refuted epochs.pml "-DSTART=0 -DMAKER_AND_USER -DOPS=2 -DTRIES=2 -DLOSSES=1 -DIN_ORDER -DWEAK_MOVE" \
  "weakened: a change that follows one that was taken over does not name it"
check w14 refuted directories.pml "-DREMOVERS=1 -DWEAK_LOOK" "weakened: makers do not look at the directory afterwards"
check w15 refuted directories.pml "-DREMOVERS=1 -DWEAK_ORDER" "weakened: who removes a directory lists it before the mark"
check w16 refuted directories.pml "-DRENAMERS=1 -DWEAK_REPLACE" "weakened: who replaces a directory lists it before the mark"
check w17 refuted directories.pml "-DRENAMERS=1 -DWEAK_GIVE_WAY" \
  "weakened: makers take a rename's mark off and do not make it impossible"
check w18 refuted directories.pml "-DREMOVERS=1 -DWEAK_MARK" "weakened: makers pass over marks"
check w19 refuted directories.pml "-DRENAMERS=2 -DMAKERS=1 -DWEAK_UNMARK" "weakened: a rename takes another one's mark off"
check w20 refuted creation.pml "-DWEAK_FENCE" "weakened: who wants a name passes over an inode that was never written"
check w21 refuted creation.pml "-DWEAK_INODE" "weakened: a maker does not care whether his inode was written"
check w22 refuted closing.pml "-DWEAK_LISTERS" "weakened: replicas without the mark count for the listing"
check w23 refuted closing.pml "-DWEAK_SETTLE" "weakened: who lists takes for absent what some replica has accepted"
check w24 refuted closing.pml "-DWEAK_CHOSEN" "weakened: who lists begins before the mark is chosen"
check w25 refuted closing.pml "-DWEAK_ORDER" "weakened: replicas tell the directory's inode before they put the entry"
check w26 refuted closing.pml "-DWEAK_QUORUM" "weakened: a maker takes one replica's word that the directory is open"
check w27 refuted closing.pml "-DWEAK_PUT" "weakened: a maker takes a majority of puts for a fast quorum"
check w28 refuted closing.pml "-DREMOVERS=2 -DTRIES=0 -DSETTLES=0 -DWEAK_OPEN" \
  "weakened: a maker believes open directories that are not chosen"
check w29 refuted bound.pml "-DWEAK_GUARD" "weakened: replicas take a bound value without its companion"
check w30 refuted bound.pml "-DWEAK_COUNT" "weakened: a classic round proposes a bound value however few voted for it"
check w31 refuted bound.pml "-DR=5 -DROUNDS=1 -DWEAK_GIVE_UP" \
  "weakened: a classic round proposes what is to be there instead of a bound value that may be chosen"
wait

failed=0
for name in $names; do
  cat "$work/$name/line"
  [ -e "$work/$name/failure" ] || continue
  failed=$((failed + 1))
  cat "$work/$name/failure" >&2
done
[ $failed = 0 ] || echo "$failed of the searches ended otherwise than they must" >&2
[ $failed = 0 ]
