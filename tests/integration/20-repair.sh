#!/bin/bash
# Files that were written while drives were away, and files whose shards rot on the disks, are made whole:
# afterwards any m drives may be lost. Real drives, real disks' files, a real gateway.
. "$(dirname "$0")/lib.sh"

cluster_up repair --layout 4+2 --drives 8
declare -A sums
put() {  # NAME BYTES
  make_file "$work/file" "$2"
  sums[$1]=$(sum_of "$work/file")
  upload "$work/file" "/$1" || give_up "upload of /$1: $(tail -n 1 "$work/xrdcp.err")"
}
all_hold() {
  local name
  for name in "${!sums[@]}"; do holds "/$name" "${sums[$name]}" || return 1; done
}
# Everything, with each of these pairs of drives dead.
any_two_may_die() {
  local pair
  for pair in "1 2" "3 8" "4 7" "5 6"; do
    dev kill $pair
    all_hold || return 1
    dev start $pair
    wait_until_healthy
    wait_until_readable /large
  done
}
run() {  # EXIT-CODE WORDS COMMAND...: what it says is kept in $work/said
  local expected=$1 words=$2
  shift 2
  "$pinstripe" "$@" >"$work/said" 2>&1
  local code=$?
  if [ $code -eq "$expected" ] && grep -q "$words" "$work/said"; then return 0; fi
  sed "s/^/  exit code $code: /" "$work/said"
  return 1
}

put small 3000
put copies 50000
put large 60000001
check "what is whole is left alone" run 0 "^0 blocks looked into" repair "$config"

# Two spares for two drives that are away; the third drive's shards have no place.
dev kill 1 2 3
if upload "$work/file" /refused; then flunk "an upload with too few drives was accepted"; fi
dev start 3
wait_until 30 eval '! "$pinstripe" status "$config" | grep -q "drive *3.*down"'
put spare-small 3000
put spare-large 30000001
check "a repair says what is away" run 2 "drive 1" repair "$config"
dev start 1 2
wait_until_healthy
wait_until_readable /large
check "shards come home from the spares" run 0 "everything is in order" repair "$config"
check "and all of it did" run 0 "^0 blocks looked into" repair "$config"
check "any two drives may be lost" any_two_may_die

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
check "a dry scrub finds damage, says where, and leaves it" run 3 "^found .*damaged" scrub --dry-run "$config"
check "a scrub repairs it" run 0 "everything is in order" scrub "$config"
check "all of it" run 0 " 0 shards damaged, 0 missing" scrub "$config"
check "and any two drives may be lost again" any_two_may_die

# A drive is given up: what it had goes to the others, and it may be taken away.
dev kill 5
check "what a dead drive had goes to others" run 2 "shards written again" repair "$config" --without 5
dev kill 7  # names are on five drives each, of which three must answer
check "and then another one may be lost" all_hold
dev start 5 7
wait_until_healthy
check "a drive that comes back gets its shards" run 0 "everything is in order" repair "$config"
check "an unknown drive cannot be given up" run 1 "no such drive" repair "$config" --without 99
finish
