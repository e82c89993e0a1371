#!/bin/bash
# A drive's directory is gone; an empty one takes its place: names, inodes and shards come back, also
# when the command is killed in the middle of it. And the old disk, plugged in again, is refused.
. "$(dirname "$0")/lib.sh"

cluster_up rebuild --layout 4+2 --drives 8
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
says() {  # EXIT-CODE WORDS COMMAND...
  local expected=$1 words=$2
  shift 2
  "$pinstripe" "$@" >"$work/said" 2>&1
  local code=$?
  if [ $code -eq "$expected" ] && grep -q "$words" "$work/said"; then return 0; fi
  sed "s/^/  exit code $code: /" "$work/said"
  return 1
}
drive_says() {  # DRIVE WORDS: as `status` shows it
  local status
  status=$("$pinstripe" status "$config" 2>/dev/null)
  grep -Eq "^$1 .*$2" <<<"$status"
}

put small 3000
put copies 50000
put large 60000001
check "a drive in service is not rebuilt" says 1 "nothing to rebuild" rebuild "$config" 3

dev kill 3
cp -a "$cluster/drives/3" "$work/old-disk"
rm -rf "$cluster/drives/3"
mkdir "$cluster/drives/3"
chown --reference="$work/old-disk" "$cluster/drives/3"
put meanwhile 20000001
check "a drive that does not answer is not rebuilt" says 1 "must answer" rebuild "$config" 3
dev start 3
check "an empty drive has no say" drive_says 3 "no superblock"

# Killed while it waits for the lost drive to be forgotten.
"$pinstripe" rebuild "$config" 3 >"$work/said" 2>&1 &
rebuild=$!
wait_until 30 drive_says 3 "rebuil" || flunk "the rebuild does not begin"
kill -9 $rebuild
wait $rebuild 2>/dev/null
check "half rebuilt it still has none" drive_says 3 "rebuil"
check "and everything can be read" all_hold
check "a rebuild that was killed goes on" says 0 "everything is in order" rebuild "$config" 3
wait_until_healthy
wait_until_readable /large
check "a scrub finds nothing" says 0 " 0 shards damaged, 0 missing" scrub "$config"

any_two_may_die() {
  local pair
  for pair in "1 2" "4 5" "6 7"; do
    dev kill $pair
    all_hold || return 1
    dev start $pair
    wait_until_healthy
    wait_until_readable /large
  done
}
check "the new drive counts: any two others may be lost" any_two_may_die

dev kill 3
mv "$cluster/drives/3" "$work/new-disk"
mv "$work/old-disk" "$cluster/drives/3"
dev start 3
check "the old disk is refused" drive_says 3 "DOWN.*(replaced|old)"
dev kill 3
mv "$cluster/drives/3" "$work/old-disk"
mv "$work/new-disk" "$cluster/drives/3"
dev start 3
wait_until_healthy
check "the new one is not" says 0 "everything is in order" check "$config"
check "and everything is there" all_hold
finish
