#!/bin/bash
# Files that were written while drives were away, and files whose shards rot on the disks, are made whole:
# afterwards any m drives may be lost. Real drives, real disks' files, a real gateway.
. "$(dirname "$0")/lib.sh"

cluster_up repair --layout 4+2 --drives 8

put small 3000
put copies 50000
put large 60000001
check "what is whole is left alone" says 0 "^0 blocks looked into" repair "$config"

check "each file is told to be whole, and where it is" says 0 "whole; any 2 of its drives may be lost" why "$config" /large
check "for programs, too" says 0 '"state": "whole"' why "$config" /small --json
check "what is not there is not found" says 1 "no 'none'" why "$config" /none

# Two spares for two drives that are away; the third drive's shards have no place.
dev kill 1 2 3 4
if upload "$work/file" /refused; then flunk "an upload with too few drives was accepted"; fi
dev start 3 4
wait_until 30 eval '! "$pinstripe" status "$config" | grep -q "^ *[34] .*DOWN"'
put spare-small 3000
put spare-large 30000001
check "a repair says what is away" says 2 "drive 1" repair "$config"
dev start 1 2
wait_until_healthy
wait_until_readable /large
check "shards come home from the spares" says 0 "everything is in order" repair "$config"
check "and all of it did" says 0 "^0 blocks looked into" repair "$config"
check "any two drives may be lost" any_two_may_die "1 2" "4 7"

# Bits turn over on two disks, under the running drives.
rot() {  # DRIVE
  python3 - "$cluster/drives/$1/segments" <<'PY'
import glob, os, random, sys
random.seed(1)
for name in glob.glob(sys.argv[1] + "/*.log"):
    size = int(os.popen(f"du -b {name}").read().split()[0])
    with open(name, "r+b") as file:
        for _ in range(10):
            at = random.randrange(size // 2)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 4]))
PY
}
rot 4
rot 6
check "verify finds it, too" says 3 "^found .*damaged" verify "$config"
check "a dry scrub finds damage, says where, and leaves it" says 3 "^found .*damaged" scrub --dry-run "$config"
scrub_slowly() { "$pinstripe" scrub "$config" --rate 10MB >"$work/slow" 2>&1 & slow=$!; }
has_read_something() { "$pinstripe" work "$config" | grep -q 'running *[1-9][0-9]* % scrubbing'; }
scrub_slowly
wait_until 60 has_read_something || flunk "the scrub reads nothing"
kill -9 $slow
wait $slow 2>/dev/null || true
check "the next one goes on when its process was killed" says 0 "going on with the scrub of" scrub "$config"
check "and ends it" grep -q "everything is in order" "$work/said"
scrub_slowly
wait_until 60 has_read_something || flunk "the scrub reads nothing"
check "another process reads a part" says 0 "going on with the scrub of" scrub "$config"
one_says_how_everything_is() {  # whichever comes last
  wait $slow || return 1
  for words in "^Others read the rest" "^everything is in order"; do
    [ "$(cat "$work/slow" "$work/said" | grep -c "$words")" = 1 ] || return 1
  done
}
check "and the one that comes last says how everything is" one_says_how_everything_is
check "one may be begun anew" says 0 "everything is in order" scrub "$config" --anew
check "all of it" says 0 " 0 shards damaged, 0 missing" verify "$config"
check "and any two drives may be lost again" any_two_may_die "3 8" "5 6"

# A drive is given up: what it had goes to the others, and it may be taken away.
dev kill 5
why_away() {  # a part of it may have been on the dead drive alone, or none
  local code=0
  "$pinstripe" why "$config" /large >"$work/said" 2>&1 || code=$?
  if grep -q "drive 5 is away" "$work/said"; then [ $code = 3 ]; else [ $code = 0 ]; fi
}
check "it is told what is on a drive that is away" why_away
check "what a dead drive had goes to others" says 2 "shards written again" repair "$config" --without 5
dev kill 7  # names are on five drives each, of which three must answer
check "and then another one may be lost" all_hold
dev start 5 7
wait_until_healthy
check "a drive that comes back gets its shards" says 0 "everything is in order" repair "$config"

# What looks at everything goes on where it was. Where it is when the signal comes depends on the machine.
state=$work/state
is_interrupted() {
  local pid try
  for ((try = 0; try < 50; try++)); do
    "$pinstripe" check "$config" --state "$state" >"$work/said" 2>&1 & pid=$!
    wait_until 30 test -d "$state" && kill -TERM $pid
    wait $pid
    [ $? -eq 143 ] && [ -s "$state/names" ] && grep -q "interrupted .* Run it again with --state" "$work/said" && return 0
    rm -rf "$state"
  done
  return 1
}
check "a check that is interrupted keeps how far it is" is_interrupted
check "and a repair goes on there" says 0 "^goes on with the look at everything that began at" repair "$config" --state "$state"
check "and removes what was kept" test ! -e "$state"
mkdir "$state" && echo "what is this" >"$state/names"
check "what is none of it is refused" says 2 "names is damaged: .*; remove it to begin anew" check "$config" --state "$state"

check "an unknown drive cannot be given up" says 1 "no such drive" repair "$config" --without 99
finish
