#!/bin/bash
# A cluster that is full: it refuses data with a word that says so, and all else goes on; what is removed
# makes room for others.
. "$(dirname "$0")/lib.sh"
needs_fuse

cluster_up full --layout 4+2 --drives 8 --one-process
# Little enough to be filled in seconds.
dev kill 1
sed -i 's/^capacity = .*/capacity = 64000000/' "$cluster"/pinstriped-*.toml
dev start 1
wait_until_healthy
mnt=$work/mnt
mkdir "$mnt"
"$build/fuse/pinstripe-fuse" "$config" "$mnt" || give_up "mount"
check "it is mounted" wait_until 20 mountpoint -q "$mnt"

make_file "$work/piece" 5000000
sum=$(sum_of "$work/piece")
copy() { cp "$work/piece" "$mnt/$1" 2>"$work/said"; }
fill() {  # until one does not fit
  count=0
  while copy "$1$count"; do
    count=$((count + 1))
    [ $count -lt 500 ] || return 1
  done
  rm -f "$mnt/$1$count"
  grep -q 'No space left on device' "$work/said" || { cat "$work/said"; return 1; }
}
check "it can be filled, and says so" fill piece
first=$count
check "a good part of what there is was data" [ "$first" -gt 30 ]
refused_by_gateway() { ! upload "$work/piece" /uploaded && grep -qi 'space' "$work/xrdcp.err"; }
check "an upload is refused for the same reason" refused_by_gateway
check "a directory is made" mkdir "$mnt/directory"
check "a file is moved" mv "$mnt/piece0" "$mnt/directory/moved"
check "another over one that is there" mv "$mnt/piece1" "$mnt/piece2"
check "one gets a second name" ln "$mnt/piece3" "$mnt/directory/linked"
check "a time is set" touch "$mnt/piece4"
check "one is cut" truncate -s 1000000 "$mnt/piece4"
is_whole() { [ "$(sum_of "$mnt/$1")" = "$sum" ]; }
check "what was moved is whole" is_whole directory/moved
# What was written when the first drive was full may lack a shard: then the code is 3.
in_order() {
  local code=0
  "$pinstripe" "$1" "$config" >"$work/said" 2>&1 || code=$?
  [ $code -eq 0 ] || [ $code -eq 3 ] || { cat "$work/said"; return 1; }
}
check "a repair works" in_order repair
check "a collection works" in_order collect
check "all can be removed" rm -r "$mnt"/piece* "$mnt/directory"
fits_again() { copy again && is_whole again; }
check "and makes room" wait_until 150 fits_again
all_fits_again() { fill again && [ "$count" -ge $((first - 4)) ]; }
check "for as much as before" wait_until 150 all_fits_again
check "nothing is wrong in the cluster" in_order check
finish
