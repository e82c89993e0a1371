#!/bin/bash
# A mount with a cache on a local disk: what was read before a restart is not asked of the drives again, and whatever
# happens to the cache's files, readers get the right bytes.
. "$(dirname "$0")/lib.sh"

needs_fuse
fuse=$build/fuse/pinstripe-fuse
cluster_up cache --layout 4+2 --drives 8 --no-gateway
mount=$work/mount
cache=$work/local
mkdir "$mount" "$cache"

counter() { sed -n "s/^pinstripe_mount_$1 //p" "$mount/.pinstripe/stats"; }
is_ready() { [ "$(counter disk_cache_ready)" = 1 ]; }
mount_it() {
  "$fuse" "$config" "$mount" -o "cache_dir=$cache,cache_dir_size=128MiB" && wait_until 20 is_ready
}
mount_again() { fusermount3 -u "$mount" && mount_it; }
has() { cmp "$work/file" "$mount/file"; }
# What was missed, as the disk was slow or had to drop something, is kept when it is read again.
has_without_drives() {
  comes_from_disk && return 0
  mount_again
  return 1
}
comes_from_disk() { has && [ "$(counter cache_misses_total)" = 0 ] && [ "$(counter disk_cache_hits_total)" -gt 0 ]; }
# Segments, without their headers and tables.
ruin() {
  local one
  for one in "$cache"/pinstripe-*/cells-*; do
    dd if=/dev/urandom of="$one" bs=4096 seek=$((RANDOM % 64 + 4)) count=200 conv=notrunc status=none
  done
}

no_directory() { ! "$fuse" "$config" "$mount" -o "cache_dir=$work/none" 2>"$work/said" && grep -q "$work/none" "$work/said"; }
check "a directory that is not there is refused" no_directory
check "with one that is it mounts" mount_it
make_file "$work/file" 30000001
cp "$work/file" "$mount/file" || flunk "copying"
check "it mounts again" mount_again
check "what is read from drives is right" has
check "and kept" [ "$(counter disk_cache_misses_total)" -gt 0 ]
check "it mounts again at once" mount_again
check "what was read is not asked of drives again" wait_until 60 has_without_drives


mount_again || flunk "mounting"
ruin
check "with damaged files the bytes are right" has
check "and the damage was noticed" [ "$(counter disk_cache_damaged_cells_total)" -gt 0 ]
mount_again || flunk "mounting"
check "and is mended" wait_until 60 has_without_drives

mount_again || flunk "mounting"
rm -r "$cache"/*
check "with all files removed while it is mounted the bytes are right" has
kept_again() { [ "$(counter disk_cache_ready)" = 1 ] && ls "$cache"/pinstripe-*/lock; }
check "and it begins anew" wait_until 20 kept_again

second=$work/second
mkdir "$second"
beside() {
  "$fuse" "$config" "$second" -o "cache_dir=$cache" && cmp "$work/file" "$second/file" &&
    grep -q "^pinstripe_mount_disk_cache_ready 0$" "$second/.pinstripe/stats" && fusermount3 -u "$second"
}
check "a second mount with the same directory works without it" beside

# Killed while it writes there.
make_file "$work/big" 60000000
cp "$work/big" "$mount/big" || flunk "copying"
mount_again || flunk "mounting"
cat "$mount/big" "$mount/file" >/dev/null &
reader=$!
holds_cells() { [ "$(counter disk_cache_cells)" -gt 20 ]; }
wait_until 20 holds_cells
kill -KILL "$(pgrep -f -x "$fuse $config $mount -o cache_dir=$cache,cache_dir_size=128MiB")"
wait $reader 2>/dev/null
fusermount3 -u -q -z "$mount"
check "after a kill in the middle of it all it mounts" mount_it
check "and what is found is right" cmp "$work/big" "$mount/big"
check "of all files" has
is_bounded() { [ "$(du -sb "$cache" | cut -f1)" -le $((129 << 20)) ]; }
check "the directory is no larger than it may be" is_bounded
finish
