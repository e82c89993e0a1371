#!/bin/bash
# `cp` on a mount shares blocks: a copy takes no space, each goes its own way, drives may die under both, and what
# nobody names any more comes back.
. "$(dirname "$0")/lib.sh"
needs_fuse

mount=$work/mount
mkdir -p "$mount"
cluster_up clones --layout 4+2 --drives 8 --no-gateway --mount "$mount"
used() { du -sm "$cluster/drives" | cut -f1; }  # MiB on the local disk
same() { cmp "$1" "$2" || return 1; }

make_file "$work/file" 100000000
make_file "$work/piece" 5000
cp "$work/file" "$mount/a" || give_up "the file cannot be written"
sync "$mount/a"
before=$(used)
cp "$mount/a" "$mount/b"
cp --reflink=auto "$mount/b" "$mount/c"
check "copies take no space" test "$(used)" -le $((before + 10))
check "and have the same bytes" same "$work/file" "$mount/b"
check "du counts each" test "$(stat -c %b "$mount/c")" -eq "$(stat -c %b "$mount/a")"

overwrite() { dd if="$work/piece" of="$1" bs=5000 seek=7 conv=notrunc,fsync status=none; }
cp "$work/file" "$work/changed"
overwrite "$work/changed"
overwrite "$mount/b"
check "what is changed in one" same "$work/changed" "$mount/b"
check "is not changed in the other" same "$work/file" "$mount/a"
check "and takes some space" test "$(used)" -le $((before + 30))
check "why tells of what is shared" says 0 "inode of shared blocks" why "$config" /c

rm "$mount/a"
dev kill 2 5
check "two drives may die" same "$work/changed" "$mount/b"
check "whoever removed the first one" same "$work/file" "$mount/c"
dev start 2 5
wait_until_healthy
check "a drain moves shared blocks, too" says 0 "everything is in order" drain "$config" 3
check "and the files are whole" same "$work/file" "$mount/c"
check "all of it is in order" says 0 "0 shards damaged, 0 missing" verify "$config"

rm "$mount/b" "$mount/c"
umount "$mount" || fusermount3 -u "$mount"
collected() {
  "$pinstripe" collect "$config" --older-than 0s >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
  "$pinstripe" check "$config" --json >"$work/said" && grep -q '"shards": 0,' "$work/said" &&
    grep -q '"unused_shards": 0' "$work/said"
}
check "the space comes back" wait_until 60 collected
check "nothing is left over" says 0 "in order" check "$config"
finish
