#!/bin/bash
# From mounting to unmounting: the mount works when the command returns, nothing that was accepted is
# lost when it ends, and a mount that died or a cluster that is away is said, not waited for.
. "$(dirname "$0")/lib.sh"

needs_fuse
fuse=$build/fuse/pinstripe-fuse
cluster_up life --layout 4+2 --drives 8 --no-gateway
mount=$work/mount
mkdir "$mount"

is_mounted() { mountpoint -q "$mount"; }
is_unmounted() { ! is_mounted; }
fails_saying() {  # WORD COMMAND...: soon, and with a reason
  local word=$1 said code=0
  shift
  said=$(timeout 90 "$@" 2>&1) || code=$?
  if [ $code -eq 0 ] || [ $code -ge 124 ]; then
    echo "  $* ended with $code: $said"
    return 1
  fi
  case $said in *"$word"*) ;; *) echo "  it does not say \"$word\": $said"; return 1 ;; esac
}

# --- mounting ---

check "a mount point that is not there is refused" fails_saying "$work/nothing" "$fuse" "$config" "$work/nothing"
check "a mount point that is a file is refused" fails_saying "not a directory" "$fuse" "$config" "$config"
check "a configuration that is not there is refused" fails_saying nothing.toml "$fuse" "$work/nothing.toml" "$mount"
check "options that nobody knows are refused" fails_saying no_such_option "$fuse" "$config" "$mount" -o no_such_option
check "arguments that are missing are refused, with the usage" fails_saying Usage "$fuse" "$config"
check "none of that mounted anything" is_unmounted

# No waiting here: it works when the command returns.
check "the command mounts" "$fuse" "$config" "$mount" -o noatime,_netdev
check "and the mount works at once" touch "$mount/first"

# --- options ---

fusermount3 -u "$mount" || flunk "unmounting"
ln -s "$fuse" "$work/mount.fuse.pinstripe"
helper=$work/mount.fuse.pinstripe
check "a helper of mount(8) that is only to pretend mounts nothing" "$helper" "$config" "$mount" -sfnv -o rw,nofail -t fuse.pinstripe
check "really nothing" is_unmounted
check "an option that cannot be meant is refused with what it takes" fails_saying "like 512MiB" "$helper" "$config" "$mount" -o cache_size=much
check "and one that would show old sizes with the reason" fails_saying "other hosts" "$helper" "$config" "$mount" -o writeback
check "a directory that is not there is refused" fails_saying "none" "$helper" "$config" "$mount" -o subdir=none
check "a file cannot be mounted" fails_saying "not a directory" "$helper" "$config" "$mount" -o subdir=first
check "a helper that is not mounts" "$helper" "$config" "$mount" -n -o rw,_netdev,cache_size=64MiB,entry_timeout=0,attr_timeout=0.5
mkdir -p "$mount/part/below" && echo "in part" >"$mount/part/file" || flunk "making directories"
tells_about_itself() {
  local before after
  ! ls -A "$mount" | grep -q pinstripe && [ "$(ls "$mount/.pinstripe" | tr '\n' ' ')" = "config stats " ] || return 1
  ls -l "$mount/.pinstripe" >/dev/null || return 1
  grep -q "^config *$config$" "$mount/.pinstripe/config" && grep -q "^options.*cache_size=64MiB" "$mount/.pinstripe/config" || return 1
  grep -q "^pinstripe_mount_memory_limit_bytes 67108864$" "$mount/.pinstripe/stats" || return 1
  before=$(sed -n 's/^pinstripe_mount_requests_total{request="make"} //p' "$mount/.pinstripe/stats")
  mkdir "$mount/part/one" "$mount/part/two" && rmdir "$mount/part/one" "$mount/part/two" || return 1
  after=$(sed -n 's/^pinstripe_mount_requests_total{request="make"} //p' "$mount/.pinstripe/stats")
  [ "$after" -eq $((before + 2)) ] && ! touch "$mount/.pinstripe/stats" 2>/dev/null &&
    ! echo x 2>/dev/null >"$mount/.pinstripe/config" && ! mkdir "$mount/.pinstripe/new" 2>/dev/null
}
check "it tells what it is and does in .pinstripe" tells_about_itself
check "what is mounted is named as in fstab" grep -q "^$config $mount fuse.pinstripe " /proc/mounts
fusermount3 -u "$mount" || flunk "unmounting"

check "it can be mounted without locks" "$fuse" "$config" "$mount" -o locks=none
locks_are_refused() {
  fails_saying "No locks available" flock -n "$mount/first" true &&
    fails_saying "No locks available" /usr/bin/python3 -c 'import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_UN)
fcntl.lockf(file, fcntl.LOCK_EX)' "$mount/first" && echo "still works" >"$mount/first"
}
check "then they are refused" locks_are_refused
fusermount3 -u "$mount" || flunk "unmounting"
check "a directory of the file system can be mounted" "$fuse" "$config" "$mount" -o subdir=part,uid=4321,gid=1234
is_part_of_it() {
  [ "$(ls -A "$mount")" = "below
file" ] &&
    mv "$mount/file" "$mount/below/" && ln -s below/file "$mount/link" && grep -q "in part" "$mount/link" &&
    ln "$mount/below/file" "$mount/second" && rm "$mount/link" && mv "$mount/second" "$mount/file" &&
    cd "$mount/below/.." && [ "$(pwd -P)" = "$mount" ] && cd /
}
check "which is a root like another" is_part_of_it
belongs_to_one() {
  mkdir "$mount/made" && echo x >"$mount/made/x" && chown 4321:1234 "$mount/made/x" &&
    [ "$(stat -c %u:%g "$mount/made/x" "$mount/made" "$mount/file" | uniq)" = 4321:1234 ] &&
    fails_saying "not permitted" chown 5 "$mount/file"
}
check "and in which everything belongs to whom it is to seem to" belongs_to_one
fusermount3 -u "$mount" || flunk "unmounting"
"$fuse" "$config" "$mount" || flunk "mounting"
check "what was made there does" [ "$(stat -c %u:%g "$mount/part/made/x")" = 4321:1234 ]
check "and what was there before does not" [ "$(stat -c %u:%g "$mount/part/below")" = "$(id -u):$(id -g)" ]
rm -r "$mount/part"

# As root, with the helper where mount(8) looks for it, in a namespace of our own.
mounted_from_fstab() {
  mkdir "$work/sbin" "$work/other" && ln -s "$fuse" "$work/sbin/mount.fuse.pinstripe" &&
    echo "$config $work/other fuse.pinstripe allow_other,_netdev,nofail 0 0" >"$work/fstab" &&
    unshare --mount sh -eu -c '
      mount -t overlay overlay -o "lowerdir=$1/sbin:/usr/sbin" /usr/sbin
      mount -a -T "$1/fstab"
      mount -a -T "$1/fstab"
      [ "$(grep -c " $1/other fuse.pinstripe " /proc/mounts)" -eq 1 ]
      [ -e "$1/other/first" ]
      umount "$1/other"
      mount -t fuse.pinstripe -o ro "$2" "$1/other"
      ! touch "$1/other/second" 2>/dev/null
      mount -o remount,rw "$1/other"
      touch "$1/other/second"
      exec 6>"$1/other/second"
      ! mount -o remount,ro "$1/other" 2>"$1/busy"
      grep -q "open for writing" "$1/busy"
      exec 6>&-
      mount -o remount,ro,noexec,noatime "$1/other"
      ! rm "$1/other/second" 2>/dev/null
      grep -q " $1/other fuse.pinstripe ro,[a-z,]*noexec,noatime" /proc/mounts
      mount -o remount,exec "$1/other"
      grep -q " $1/other fuse.pinstripe ro,nosuid,nodev,noatime" /proc/mounts
      ! mount -o remount,rw,cache_size=64MiB "$1/other" 2>"$1/refused"
      grep -q "options cache_size=64MiB: a remount cannot change" "$1/refused"
      umount "$1/other"
      echo "$2 $1/other fuse.pinstripe allow_other,cache_size=64MiB,_netdev,nofail 0 0" >"$1/fstab"
      mount -T "$1/fstab" "$1/other"
      mount -T "$1/fstab" -o remount,ro "$1/other"
      ! rm "$1/other/second" 2>/dev/null
      mount -T "$1/fstab" -o remount,rw "$1/other"
      rm "$1/other/second"
      umount "$1/other"' sh "$work" "$config"
}
if [ "$(id -u)" -eq 0 ]; then check "mount(8) mounts it, and what is in fstab once, and remounts it" mounted_from_fstab; fi

# --- unmounting ---

make_file "$work/file" 9000001
cp -r "$project/base" "$mount/base" && cp "$work/file" "$mount/file" || flunk "copying onto the mount"
check "the mount can be unmounted" fusermount3 -u "$mount"
check "and mounted again" "$fuse" "$config" "$mount"
check "with every file in it" diff -r "$project/base" "$mount/base"
check "and every byte" cmp "$work/file" "$mount/file"

# A program has a file open and has written to it when the mount is told to end.
process_of_mount() { pgrep -f -x "$fuse $config $mount"; }
ends() { wait_until 30 is_unmounted && wait_until 30 has_ended; }
has_ended() { ! process_of_mount >/dev/null || [ "$(ps -o stat= -p "$(process_of_mount)")" = Z ]; }
exec 5>"$mount/held"
echo "written, not closed" >&5
kill -TERM "$(process_of_mount)"
check "SIGTERM ends a mount that is in use" ends
exec 5>&-
check "it can be mounted again after that" "$fuse" "$config" "$mount"
check "and what was written to the open file was committed" grep -q "written, not closed" "$mount/held"

kill -KILL "$(process_of_mount)"
check "a dead mount is recognised, with what to do" fails_saying "fusermount3 -u" "$fuse" "$config" "$mount"
check "which works" fusermount3 -u -z "$mount"
check "and then it can be mounted" "$fuse" "$config" "$mount"
check "read-only mounts are that" fusermount3 -u "$mount"
check "when asked for" "$fuse" "$config" "$mount" -o ro
check "and refuse changes" fails_saying "Read-only" touch "$mount/second"
fusermount3 -u "$mount" || flunk "unmounting"
"$fuse" "$config" "$mount" || flunk "mounting"

# --- a mount that does nothing ---

idle=$cluster/idle.toml
grep -v '^idle_timeout' "$config" | sed 's/^\[limits\]$/&\nidle_timeout = "2 s"/' >"$idle"
grep -q '^idle_timeout' "$idle" || printf '\n[limits]\nidle_timeout = "2 s"\n' >>"$idle"
mkdir "$work/idle"
check "a mount may be told to close connections soon" "$fuse" "$idle" "$work/idle"
has_connections() {  # COUNT OR MORE
  [ "$(ss -Htnp state established | grep -c "pid=$(pgrep -f -x "$fuse $idle $work/idle"),")" -ge "$1" ]
}
has_none() { ! has_connections 1; }
check "it has none when nobody uses it" wait_until 30 has_none
can_be_read_there() { cmp "$work/file" "$work/idle/file"; }
check "a file can be read nevertheless" can_be_read_there
check "over connections that were made for it" has_connections 6
check "which are closed again" wait_until 30 has_none
dev kill 1 2
dev start 1 2
check "with drives killed and started meanwhile it can be written to" cp "$work/file" "$work/idle/again"
check "and what it wrote is safe" sync -f "$work/idle/again"
check "and whole" cmp "$work/file" "$work/idle/again"
check "and it rests again" wait_until 30 has_none
dev kill 1 2
check "with drives killed it can be read" cmp "$work/file" "$work/idle/again"
dev start 1 2
fusermount3 -u "$work/idle" || flunk "unmounting"

# --- a cluster that is away ---

dev kill 1 2 3
check "with too few drives a read fails, and does not hang" fails_saying "Input/output error" cat "$mount/file"
dev start 1 2 3
can_be_read() { cmp -s "$work/file" "$mount/file"; }
check "and succeeds when they are back" wait_until 30 can_be_read

dev kill $(seq 1 8)
check "with no drive at all names are not found out, and nothing hangs" fails_saying "Input/output error" ls "$mount/base"
fusermount3 -u "$mount" || flunk "unmounting"
check "and mounting fails with a reason" fails_saying drive "$fuse" "$config" "$mount"
finish
