#!/bin/bash
# One gateway serves many clients at once.
. "$(dirname "$0")/lib.sh"

cluster_up clients --layout 4+2 --drives 8 --one-process

make_file "$work/file" 30000001
sum=$(sum_of "$work/file")
upload "$work/file" /shared || flunk "upload"
many_readers() {
  local pids=() i failed=0
  for i in 1 2 3 4 5 6; do
    timeout 120 xrdcp --nopbar -f "$url/shared" "$work/reader$i" 2>/dev/null &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || failed=1; done
  for i in 1 2 3 4 5 6; do [ "$(sum_of "$work/reader$i")" = "$sum" ] || failed=1; done
  return $failed
}
check "six clients read one file at once" many_readers

# Each upload is one version; whichever was closed last is there as a whole.
many_writers() {
  local pids=() i
  for i in 1 2 3 4; do
    make_file "$work/version$i" $((3000000 + i))
    timeout 120 xrdcp --nopbar -f "$work/version$i" "$url/contested" 2>/dev/null &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || return 1; done
  download /contested "$work/winner" || return 1
  for i in 1 2 3 4; do cmp -s "$work/winner" "$work/version$i" && return 0; done
  echo "  the file is none of the four that were uploaded"
  return 1
}
check "of four uploads to one name at once, one is there as a whole" many_writers
finish
