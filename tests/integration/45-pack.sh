#!/bin/bash
# `pinstripe pack` on real drives: small files go into packs and read as before, by mount and gateway, whatever drives are
# away and whoever dies; what nobody uses comes back.
. "$(dirname "$0")/lib.sh"
needs_fuse

mount=$work/mount
mkdir -p "$mount"
cluster_up packs --layout 4+2 --drives 8 --mount "$mount"
pack() { "$pinstripe" pack "$config" --older-than 0s "$@"; }
field() { /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
same_tree() { diff -r "$work/tree" "${1:-$mount}/tree"; }

/usr/bin/python3 - "$work/tree" <<'END'
import os, random, sys
chance = random.Random(1)
for directory in ("a", "a/below", "b"):
    os.makedirs(f"{sys.argv[1]}/{directory}")
    for i in range(250):
        size = chance.choice([0, 100, 600, 4096, 4097, 30_000, 65_536, 70_000])
        with open(f"{sys.argv[1]}/{directory}/{i:03}", "wb") as file:
            file.write(chance.randbytes(size))
END
cp -r "$work/tree" "$mount/tree" || give_up "the tree cannot be written"
packable=$(find "$work/tree" -type f -size +511c -size -65537c | wc -l)

check "a young file stays as it is" test "$("$pinstripe" pack "$config" --json | field too_young)" -eq "$packable"
check "what would make no pack waits" test "$(pack --least 64MiB --json | field too_few)" -eq "$packable"
check "a dry run says what would be" test "$(pack --dry-run --json | field files)" -eq "$packable"
check "what a path leads to has to be a directory" says 1 "is not a directory" pack "$config" /tree/a/000
times() { (cd "$1/tree" && find . -type f -printf '%p %s %m %T@ %C@\n' | sort); }
times "$mount" >"$work/before"
check "small files are packed" test "$(pack --json | field files)" -eq "$packable"
check "the cluster says that it uses packs" says 0 "^features .*packs" status "$config"
check "their attributes are as before" diff "$work/before" <(times "$mount")
check "and their bytes" same_tree
check "they are packed once" test "$(pack --json | field files)" -eq 0
one=$(cd "$work" && find tree -type f -size 30000c | sort | head -n 1)
check "why tells where one is" says 0 "inode of shared blocks" why "$config" "/$one"

fetched() {
  mkdir -p "$work/fetched"
  xrdcp -s -r -f "$url/tree" "$work/fetched" && same_tree "$work/fetched"
}
check "a gateway reads them" fetched
sums() {
  local file
  for file in "$work"/tree/b/00?; do
    xrdcp -s --cksum adler32:source -f "$url/tree/b/${file##*/}" "$work/one" || return 1
    cmp "$file" "$work/one" || return 1
  done
}
check "and their checksums are right" sums

dev kill 2 5
check "two drives may be away" same_tree
check "and a gateway does not mind" fetched
dev start 2 5
wait_until_healthy

change() {
  local at=$1/tree/b
  printf new >>"$at/001" && printf new | dd of="$at/002" bs=1 seek=300 conv=notrunc status=none && : >"$at/003" &&
    truncate -s 50 "$at/004" && truncate -s 200000 "$at/005" && mv "$at/006" "$1/tree/a/moved" && rm "$at/007" &&
    cp "$at/008" "$at/copy" && chmod 600 "$at/009"
}
change "$work" && change "$mount" || give_up "files cannot be changed"
check "what is changed is changed, and nothing else" same_tree

# Kills the packer at some moment, again and again.
survives_kills() {
  local i pid
  for i in {1..12}; do
    printf again >>"$work/tree/a/$((100 + i))" && printf again >>"$mount/tree/a/$((100 + i))" || return 1
    pack --least 1 --no-wait >/dev/null 2>&1 &
    pid=$!
    /usr/bin/python3 -c "import time; time.sleep(0.04 * $i)"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    same_tree || return 1
  done
}
check "a packer may die at any moment" survives_kills
pack --least 1 --no-wait >/dev/null || flunk "the next one cannot go on"
check "the next one goes on" same_tree
check "a scrub finds nothing wrong" says 0 "in order" scrub "$config"
# A drain leaves to a collection what dead packers wrote and nobody names, and says so.
tidied() {
  "$pinstripe" collect "$config" --older-than 0s >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
  "$pinstripe" check "$config" --json >"$work/said" && grep -q '"unused_shards": 0' "$work/said"
}
check "what the dead ones left is collected" wait_until 90 tidied
check "a drain moves packs, too" says 0 "everything is in order" drain "$config" 3
check "and the files are whole" same_tree

rm -r "$work/tree/a" "$mount/tree/a"
check "half of the files go" same_tree
"$pinstripe" rm -r --no-wait "$config" /tree/b >/dev/null || flunk "the others cannot be removed"
collected() { tidied && grep -q '"shards": 0,' "$work/said"; }
umount "$mount" || fusermount3 -u "$mount"
check "the space of packs comes back" wait_until 60 collected
check "nothing is left over" says 0 "in order" check "$config"
finish
