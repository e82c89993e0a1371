#!/bin/bash
# From mounting to unmounting: the mount works when the command returns, nothing that was accepted is
# lost when it ends, and a mount that died or a cluster that is away is said, not waited for.
. "$(dirname "$0")/lib.sh"

if [ ! -e /dev/fuse ]; then give_up "/dev/fuse is missing: this machine cannot mount"; fi
fuse=$build/fuse/pinstripe-fuse
cluster_up life --layout 4+2 --drives 8 --no-gateway
mount=$work/mount
mkdir "$mount"
unmount_at_exit() {
  fusermount3 -u -q -z "$mount"
  clean_up
}
trap unmount_at_exit EXIT

is_mounted() { mountpoint -q "$mount"; }
is_unmounted() { ! is_mounted; }
fails_saying() {  # WORD COMMAND...: soon, and with a reason
  local word=$1 said code=0
  shift
  said=$(timeout 30 "$@" 2>&1) || code=$?
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
