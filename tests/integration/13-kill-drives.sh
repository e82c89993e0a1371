#!/bin/bash
# kill -9 of every drive at once, right after uploads that were answered: after a restart all of it is
# there.
. "$(dirname "$0")/lib.sh"

cluster_up drives --layout 4+2 --drives 8
all=$(seq 1 8)
declare -A sums
sizes=(1 5000 70000 1000000 50000001)

round() {  # NUMBER
  local size
  for size in "${sizes[@]}"; do
    make_file "$work/$size" "$size"
    sums[$1-$size]=$(sum_of "$work/$size")
    xrdfs "$url" mkdir -p "/round-$1" || return 1
    upload "$work/$size" "/round-$1/$size" || return 1
  done
}
everything_is_there() {  # on the drives
  local key
  empty_gateway
  for key in "${!sums[@]}"; do holds "/round-${key%-*}/${key#*-}" "${sums[$key]}" || return 1; done
}

for number in 1 2 3; do
  round $number || give_up "round $number: $(tail -n 1 "$work/xrdcp.err")"
  dev kill $all
  dev start $all
  wait_until_healthy
  wait_until_readable /round-1/50000001
  check "round $number: everything that was uploaded is there" everything_is_there
done

names_are_listed() { [ "$(xrdfs "$url" ls /round-3 | wc -l)" -eq ${#sizes[@]} ]; }
check "and every name is listed" names_are_listed
check "uploads go on" upload "$work/5000" /after
finish
