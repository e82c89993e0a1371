#!/bin/bash
# Drives that are redis-servers, among drives of ours: round trips, degraded reads, kill -9 under load, servers that would
# lose what they confirm, that are emptied or moved, and rebuilds of a Redis drive and onto one.
. "$(dirname "$0")/lib.sh"
needs_fuse

mount=$work/mount
mkdir -p "$mount"
cluster_up redis --layout 4+2 --drives 8 --redis 3 --mount "$mount"
port_of() { sed -n 's/^port //p' "$cluster/redis-$1.conf"; }
redis() {  # DRIVE WORDS...
  local drive=$1
  shift
  redis-cli -p "$(port_of "$drive")" "$@" >"$work/redis.out" 2>&1
}
drive_says() {  # DRIVE WORDS: as `status` shows it
  local status
  status=$("$pinstripe" status "$config" 2>/dev/null)
  grep -Eq "^$1 .*$2" <<<"$status"
}
emptied() {  # DRIVE: its server begins with nothing
  dev kill "$1"
  rm -rf "$cluster/drives/$1"
  mkdir "$cluster/drives/$1"
  dev start "$1"
}

check "status shows them by their addresses" drive_says 6 "redis://127.0.0.1:$(port_of 6) .* up"
check "a configuration with them is printed as it is" says 0 "redis://127.0.0.1" config "$config"
put small 3000
put beside 40000
put large 30000001
check "what was uploaded comes back" all_hold
for ((i = 0; i < 100; i++)); do echo "$i" >"$mount/$i"; done || give_up "the mount takes no files"
names() { cat "$mount"/[0-9]*; }
check "so does what a mount wrote" diff <(names | sort) <(seq 0 99 | sort)
on_each() {
  local drive
  for drive in 6 7 8; do
    redis $drive zcard pinstripe:keys && [ "$(cat "$work/redis.out")" -gt 1 ] || return 1
  done
}
check "each of them keeps some of it" on_each
check "everything is in order" says 0 "everything is in order" check "$config"
check "any two drives may be lost" any_two_may_die "7 8" "1 6"

# --- kill -9 while files are made

load() {
  local i
  for ((i = 0; ; i++)); do
    head -c $((RANDOM * 3)) /dev/urandom >"$mount/load-$i" && echo "$i $(sum_of "$mount/load-$i")" >>"$work/loaded" || return
  done
}
: >"$work/loaded"
load 2>/dev/null &
loader=$!
loaded() { [ "$(wc -l <"$work/loaded")" -ge "$1" ]; }
check "files are made" wait_until 60 loaded 50
dev kill 6 7
check "and go on being made with two of them killed" wait_until 60 loaded 100
dev start 6 7
check "and when they are back" wait_until 60 loaded 150
kill $loader
wait $loader 2>/dev/null
wait_until_healthy
as_loaded() {
  local i sum
  while read -r i sum; do
    [ "$(sum_of "$mount/load-$i")" = "$sum" ] || { echo "  load-$i is something else"; return 1; }
  done <"$work/loaded"
}
check "every file is what it was when its close had returned" as_loaded
check "everything is in order" says 0 "everything is in order" repair "$config"

# --- servers that are not to be relied on

dev kill 6
sed -i 's/^appendfsync .*/appendfsync everysec/' "$cluster/redis-6.conf"
dev start 6
check "one that may lose what it confirmed is refused" wait_until 30 drive_says 6 "DOWN.*set 'appendfsync always'"
check "files are read without it" all_hold
redis 6 config set appendfsync always
check "and it is taken once that is set" wait_until 30 drive_says 6 " up"
redis 6 config set requirepass secret
redis 6 client kill type normal
check "one that wants a password says so" wait_until 30 drive_says 6 "DOWN.*NOAUTH"
printf '[[drive]]\nid = 6\npassword = "secret"\n' >>"$cluster/credentials.toml"
check "and is taken with it" wait_until 30 drive_says 6 " up"
redis 6 -a secret config set requirepass ""
check "a password that is not wanted is refused" wait_until 30 drive_says 6 "DOWN.*refuses user and password"
sed -i '/^password = /d' "$cluster/credentials.toml"
check "and then it is taken without" wait_until 30 drive_says 6 " up"
printf '[[drive]]\nid = 1\npassword = "secret"\n' >"$work/wrong.toml"
cat "$cluster/credentials.toml" "$work/wrong.toml" >"$work/credentials.toml"
chmod 600 "$work/credentials.toml"
cp "$config" "$work/cluster.toml"
check "a password of a Kinetic device is refused" says 1 "is a Kinetic device" config "$work/cluster.toml"
wait_until_healthy

# --- rebuilds

redis 7 flushall
check "one that was emptied under its users is refused" wait_until 30 drive_says 7 "DOWN.*empty"
check "everything is read without it" all_hold
check "and it is rebuilt" says 0 "everything is in order" rebuild "$config" 7
dev kill 3
/usr/bin/python3 - "$config" "$(port_of 8)" <<'END'
import re, sys
name, port = sys.argv[1:]
text = open(name).read()
text = re.sub(r'(id = 3\naddress = )"[^"]*"', rf'\1"redis://127.0.0.1:{port}/1"', text)
open(name, "w").write(text)
END
emptied 8
check "of two lost ones the first is rebuilt as far as that goes" says 2 "is in service" rebuild "$config" 8
check "and the second, which was a drive of ours, on another database of the same server" says 0 "everything is in order" rebuild "$config" 3
wait_until_healthy
wait_until_readable /large
check "a scrub finds nothing" says 0 " 0 shards damaged, 0 missing" scrub "$config"
check "what was there is there" all_hold
umount_and_again() { diff <(names | sort) <(seq 0 99 | sort); }
check "on the mount, too" umount_and_again
finish
