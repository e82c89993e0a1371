#!/bin/bash
# A drive's directory is gone; an empty one takes its place: names, inodes and shards come back, also
# when the command is killed in the middle of it, and a second one is run meanwhile. And the old disk, plugged in again, is refused.
. "$(dirname "$0")/lib.sh"

cluster_up rebuild --layout 4+2 --drives 8
drive_says() {  # DRIVE WORDS: as `status` shows it
  local status
  status=$("$pinstripe" status "$config" 2>/dev/null)
  grep -Eq "^$1 .*$2" <<<"$status"
}

drive_work() {  # WORDS: of the lines of `status` about who works on a drive
  local status
  status=$("$pinstripe" status "$config" 2>/dev/null)
  grep -q "^work .*$1" <<<"$status"
}

put small 3000
put copies 50000
put large 60000001
check "a drive in service is not rebuilt" says 1 "nothing to rebuild" rebuild "$config" 3

dev kill 3
cp -a "$cluster/drives/3" "$work/old-disk"
new_disk 3
put meanwhile 20000001
check "a drive that does not answer is not rebuilt" says 1 "must answer" rebuild "$config" 3
dev start 3
check "an empty drive has no say" drive_says 3 "no superblock"

# Killed while it waits for the lost drive to be forgotten.
"$pinstripe" rebuild "$config" 3 >"$work/killed" 2>&1 &
rebuild=$!
# What is said of an empty drive names that command, too: so it has to be seen at work.
wait_until 30 drive_work "process $rebuild " || flunk "the rebuild does not begin"
kill -9 $rebuild
wait $rebuild 2>/dev/null
check "half rebuilt it still has none" drive_says 3 "rebuil"
check "and everything can be read" all_hold
told_of_the_killed() {  # or else what is told, and what the killed one had said
  if wait_until 20 drive_work "process $rebuild "; then return 0; fi
  "$pinstripe" status "$config" 2>&1 | sed 's/^/  status: /'
  sed 's/^/  killed: /' "$work/killed"
  return 1
}
check "it is told who was at work" told_of_the_killed

# What was killed counts as at work for half a minute; then the next one goes on.
"$pinstripe" rebuild "$config" 3 >"$work/first" 2>&1 &
first=$!
wait_until 60 drive_work "process $first " || flunk "nobody goes on with the rebuild: $(cat "$work/first")"
check "who comes second is told who is at work" says 4 "drive 3 is being rebuilt by process $first on " rebuild "$config" 3
wait $first
code=$?
check "a rebuild that was killed goes on" test $code -eq 0
check "to its end" grep -q "everything is in order" "$work/first"
wait_until_healthy
wait_until_readable /large
check "a scrub finds nothing" says 0 " 0 shards damaged, 0 missing" scrub "$config"

check "the new drive counts: any two others may be lost" any_two_may_die "1 2" "4 5" "6 7"

dev kill 3
mv "$cluster/drives/3" "$work/new-disk"
mv "$work/old-disk" "$cluster/drives/3"
dev start 3
check "the old disk is refused" wait_until 30 drive_says 3 "DOWN.*(replaced|old)"
dev kill 3
mv "$cluster/drives/3" "$work/old-disk"
mv "$work/new-disk" "$cluster/drives/3"
dev start 3
wait_until_healthy
check "the new one is not" says 0 "everything is in order" check "$config"
check "and everything is there" all_hold
finish
