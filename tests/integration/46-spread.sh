#!/bin/bash
# `pinstripe spread` on real drives: a directory grows while a mount, a gateway and commands use it, drives are away, and
# whoever spreads it is killed. What takes minutes, as all stages do, is left to the simulations.
. "$(dirname "$0")/lib.sh"
needs_fuse

mount=$work/mount
mkdir -p "$mount"
cluster_up spread --layout 4+2 --drives 8 --mount "$mount"
names=1500

check "a new cluster says that directories may grow" says 0 "^features .*grown-directories" status "$config"
check "and uses all that new clusters do" says 0 "^the cluster uses all that new clusters do" upgrade "$config"
check "what is not there is not spread" says 1 "/flat" spread "$config" /flat
mkdir "$mount/flat" || give_up "the directory cannot be made"
for ((i = 0; i < names; i++)); do echo "$i" >"$mount/flat/$i"; done || give_up "the files cannot be written"
check "what is not a directory is not spread" says 1 "is not a directory" spread "$config" /flat/0

listed() { diff <(seq 0 $((names - 1)) | sort) <(ls "$1" | sort); }
contents() { diff <(seq 0 $((names - 1)) | sort) <(cat "$mount"/flat/* | sort); }
listed_by_gateway() {
  local host=${url#root://}
  diff <(seq 0 $((names - 1)) | sort) <(xrdfs "${host%%/*}" ls /flat | sed 's#.*/##' | sort)
}
in_parts() { "$pinstripe" work "$config" | grep -q "waiting until everybody has heard of it"; }

"$pinstripe" spread "$config" /flat >"$work/spread.out" 2>&1 &
spreader=$!
check "whoever wants to know sees it at work" wait_until 60 "$pinstripe" work "$config"
# While names are moving, and for the minutes after that.
use() {  # NAME
  echo new >"$mount/flat/$1" && [ "$(cat "$mount/flat/$1")" = new ] &&
    mv "$mount/flat/$1" "$mount/flat/$1.moved" && [ ! -e "$mount/flat/$1" ] &&
    ln "$mount/flat/$1.moved" "$mount/flat/$1.link" && rm "$mount/flat/$1.moved" &&
    mv "$mount/flat/$1.link" "$mount/$1" && rm "$mount/$1" &&
    xrdcp --nopbar -f "$work/uploaded" "$url/flat/$1" && cmp "$work/uploaded" "$mount/flat/$1" && rm "$mount/flat/$1" &&
    (set -C; ! echo again >"$mount/flat/0") 2>/dev/null
}
use_often() {
  local i
  for ((i = 0; i < 30; i++)); do use "x$i" || return 1; done
}
make_file "$work/uploaded" 100000
check "files come and go while it grows" use_often
check "every name is listed meanwhile" listed "$mount/flat"
check "by a gateway, too" listed_by_gateway
not_removed() { ! rmdir "$mount/flat" 2>/dev/null; }
check "it is not removed while there are names in it" not_removed
check "its names have moved" wait_until 120 in_parts
kill -9 $spreader
check "whoever spreads it may die" listed "$mount/flat"
check "every file is what it was" contents
dev kill 3 6
check "two drives may be away" use_often
check "and every name is listed" listed "$mount/flat"
dev start 3 6
wait_until_healthy
in_order() { "$pinstripe" check "$config" --names-only; }
check "check sees each name once" in_order
"$pinstripe" spread "$config" /flat >"$work/spread.again" 2>&1 &
spreader=$!
check "another one goes on" wait_until 120 grep -q "waiting until everybody" "$work/spread.again"
kill -TERM $spreader
wait $spreader
check "it can be interrupted" grep -q "run it again to go on" "$work/spread.again"
for ((i = 0; i < names; i++)); do echo "$mount/flat/$i"; done | xargs rm || give_up "the files cannot be removed"
check "it is removed when it is empty" rmdir "$mount/flat"
check "nothing is left" in_order
finish
