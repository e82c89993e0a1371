#!/bin/bash
# Files of all sizes survive the round trip through xrootd on every geometry; again with m drives dead;
# with m+1 dead there is an error and no wrong byte; and when the drives return everything is there.
. "$(dirname "$0")/lib.sh"

names=(small medium odd big)
sizes=(4096 1048576 67108865 1073741824)
for i in "${!names[@]}"; do
  make_file "$work/${names[i]}" "${sizes[i]}"
  sums[${names[i]}]=$(sum_of "$work/${names[i]}")
done

all_hold() {
  local name
  for name in "${names[@]}"; do holds "/$name" "${sums[$name]}" || return 1; done
}

# Without a drive more than may be lost: nothing comes back that is wrong, and the log says whom we miss.
fails_clearly() {  # DRIVE...
  local before code=0 drive
  before=$(wc -c <"$(gateway_log)")
  download /big "$work/none" || code=$?
  rm -f "$work/none"
  if [ $code -eq 0 ] || [ $code -eq 124 ]; then
    echo "  xrdcp ended with $code"
    return 1
  fi
  for drive in "$@"; do
    tail -c +$((before + 1)) "$(gateway_log)" | grep -q "drive $drive\b" && return 0
  done
  echo "  the gateway's log names none of the drives $*"
  return 1
}

geometry() {  # LAYOUT DRIVES GROUPS "DEAD..." ONE_MORE "ALL DEAD DRIVES..."
  local layout=$1 drives=$2 groups=$3 dead=$4 more=$5 all=$6 name
  cluster_up "$layout" --layout "$layout" --drives "$drives" --groups "$groups"
  for name in "${names[@]}"; do
    upload "$work/$name" "/$name" || flunk "$layout: upload of $name: $(tail -n 1 "$work/xrdcp.err")"
  done
  check "$layout: files come back as they were" all_hold
  dev kill $dead
  empty_gateway
  check "$layout: and with m drives dead" all_hold
  empty_gateway
  dev kill "$more"
  check "$layout: with one more dead there is an error that names drives" fails_clearly $all
  dev start $dead "$more"
  wait_until_healthy
  wait_until_readable /odd
  check "$layout: when the drives return, everything is there" all_hold
  cluster_down
}

geometry 4+2 8 1,1,1,1,1,1,1,1 "2 5" 7 "2 5 7"
# A GiB has been through it; blocks of the others are no larger.
make_file "$work/big" 268435456
sums[big]=$(sum_of "$work/big")
geometry 10+2 12 2,1,9 1 3 "1 2 3"
make_file "$work/big" 67108865
sums[big]=$(sum_of "$work/big")
geometry 32+4 36 4,1,31 1 5 "1 2 3 4 5"

# All drives of the widest geometry in one process, which dies and comes back.
names=(small medium odd)
cluster_up one-process --layout 32+4 --drives 36 --one-process --share-connections
for name in "${names[@]}"; do upload "$work/$name" "/$name" || flunk "one process: upload of $name"; done
check "32+4 in one process: files come back as they were" all_hold
dev kill 1
dev start 1
wait_until_healthy
wait_until_readable /odd
check "32+4 in one process: and after it was killed and started" all_hold
cluster_down
finish
