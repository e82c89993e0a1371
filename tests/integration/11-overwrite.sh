#!/bin/bash
# xrdcp -f over an existing file: afterwards exactly the new contents are there, whatever kind of storage
# (inline, replicated, striped) the old and the new size lead to. Without -f nothing changes.
. "$(dirname "$0")/lib.sh"

cluster_up overwrite --layout 4+2 --drives 8 --one-process
sizes=(0 1 4096 4097 65536 65537 1048576 4194304 4194305 20000001)
for size in "${sizes[@]}"; do make_file "$work/$size" "$size"; done

becomes() {  # SIZE
  upload "$work/$1" /file && holds /file "$(sum_of "$work/$1")" &&
    [ "$(xrdfs "$url" stat /file | sed -n 's/^Size: *//p')" = "$1" ]
}
# Up, down, and across: every size after every kind of size.
for size in "${sizes[@]}" 65537 4097 20000001 4096 4194305 0 1048576 1; do
  check "overwritten with $size bytes" becomes "$size"
done

refused_without_f() {
  ! timeout 60 xrdcp --nopbar "$work/4096" "$url/file" 2>/dev/null && holds /file "$(sum_of "$work/1")"
}
check "an upload without -f over an existing file is refused and changes nothing" refused_without_f

checksum_follows() {
  local ours theirs size
  for size in 20000001 4096 4194305; do
    upload "$work/$size" /sum || return 1
    ours=$(xrdadler32 "$work/$size" | cut -d' ' -f1)
    theirs=$(timeout 60 xrdfs "$url" query checksum /sum | cut -d' ' -f2)
    if [ "$ours" != "$theirs" ]; then
      echo "  $size bytes: adler32 is $theirs instead of $ours"
      return 1
    fi
  done
}
check "the server's adler32 is that of the file, also right after an overwrite" checksum_follows
check "xrdcp verifies an upload end to end" \
  timeout 60 xrdcp --nopbar -f --cksum adler32 "$work/20000001" "$url/verified"
finish
