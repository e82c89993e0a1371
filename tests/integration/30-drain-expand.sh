#!/bin/bash
# A drive is drained, and taken back, while clients write and read through a gateway: none of them
# notices, also when the command is killed in the middle of it. One that is taken out before its drain has come to its end is missed.
. "$(dirname "$0")/lib.sh"

cluster_up drain --layout 4+2 --drives 9

put small 3000
put copies 50000
put large 60000001

# Writes and reads until it is told that this is enough. What goes wrong is noted.
traffic() {
  local round=0 sum name
  while [ ! -e "$work/enough" ]; do
    round=$((round + 1))
    name=/traffic-$((round % 5))
    make_file "$work/sent" $((RANDOM * 30 + 5000))
    sum=$(sum_of "$work/sent")
    rm -f "$work/got"
    upload "$work/sent" $name || echo "upload in round $round" >>"$work/wrong"
    download $name "$work/got" || echo "download in round $round" >>"$work/wrong"
    [ "$(sum_of "$work/got")" = "$sum" ] || echo "other bytes in round $round" >>"$work/wrong"
    echo $round >"$work/rounds"
  done
}
epoch_is() { { "$pinstripe" status "$config" 2>/dev/null || true; } | grep -q "^epoch  *$1, not complete"; }

check "a drive that is not there is not drained" says 1 "has no drive 77" drain "$config" 77
epoch() { "$pinstripe" status "$config" 2>/dev/null | sed -n 's/^epoch  *//p'; }
check "of too many drives none is drained" says 1 "5 drives would be left.*Nothing was changed" drain "$config" 1 2 3 4
check "nor where one is none" says 1 "has no drive 77" drain "$config" 1 77
check "and nothing has begun" test "$(epoch)" = 1
traffic &
traffic=$!

# Killed while it waits for the former homes to be forgotten.
"$pinstripe" drain "$config" 3 >"$work/killed" 2>&1 &
drain=$!
wait_until 30 epoch_is 2 || flunk "the drain does not begin"
kill -9 $drain
wait $drain 2>/dev/null
check "half drained, a file can be read" holds /large "${sums[large]}"
"$pinstripe" drain "$config" 3 >"$work/drained" 2>&1
code=$?  # 3: it holds shards of uploads under way, or of files that were just replaced
[ $code -eq 0 ] || [ $code -eq 3 ] || flunk "a drain that was killed goes on: $(cat "$work/drained")"
check "a file can be read" holds /large "${sums[large]}"
touch "$work/enough"
wait $traffic
is_empty() { "$pinstripe" drain "$config" 3 2>/dev/null | grep -q "^drive 3 is empty"; }
check "when nobody writes the drive becomes empty" wait_until 150 is_empty
check "the clients had something to do" test "$(cat "$work/rounds")" -gt 3
check "and noticed nothing" test ! -e "$work/wrong"
[ -e "$work/wrong" ] && sed 's/^/  /' "$work/wrong"
check "all is whole and at home" says 0 "everything is in order" verify "$config"
check "any two others may be lost" any_two_may_die "1 2" "4 5"

# Drive 8 keeps nothing of the drive map. Its drain is killed when it has begun, it is lost, and its lines go from cluster.toml.
"$pinstripe" drain "$config" 8 >"$work/killed" 2>&1 &
drain=$!
wait_until 30 epoch_is 3 || flunk "the drain does not begin"
kill -9 $drain
wait $drain 2>/dev/null
check "it is told what is left on a drive" says 1 "^8 .*up, draining: .* are left" status "$config"
dev kill 8
cp "$config" "$work/all-drives"
unlist 8
check "a drive that was taken out too early is missed" says 1 "^8 .*MISSING" status "$config"
check "by a check, too" says 3 "^missing  drive 8" check "$config"
check "and by who verifies" says 3 "1 drive of the drive map is missing\|blocks are not whole" verify "$config"
check "a repair writes what it held to others" says 0 "everything is in order" repair "$config"
check "and nobody misses it any more" says 0 "health  *healthy" status "$config"
check "all is whole and at home again" says 0 "everything is in order" verify "$config"
check "and any two others may be lost" any_two_may_die "1 2" "4 5"
cp "$work/all-drives" "$config"
dev start 8
check "when it is back it may be taken back" says 0 "everything is in order" expand "$config" 8
check "and is a drive like others" says 0 "everything is in order" verify "$config"
finish
