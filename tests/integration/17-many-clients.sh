#!/bin/bash
# One gateway serves many clients at once.
. "$(dirname "$0")/lib.sh"

cluster_up clients --layout 4+2 --drives 8 --one-process --share-connections

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

# Each upload is one version. Who comes while another one is writing is refused; who is told of success has
# stored a version as a whole.
many_writers() {
  local pids=() i succeeded=()
  for i in 1 2 3 4; do
    make_file "$work/version$i" $((3000000 + i))
    timeout 120 xrdcp --nopbar -f "$work/version$i" "$url/contested" 2>/dev/null &
    pids[i]=$!
  done
  for i in 1 2 3 4; do wait "${pids[i]}" && succeeded+=("$i"); done
  [ ${#succeeded[@]} -ge 1 ] || { echo "  all four failed"; return 1; }
  download /contested "$work/winner" || return 1
  for i in "${succeeded[@]}"; do cmp -s "$work/winner" "$work/version$i" && return 0; done
  echo "  the file is none of those whose upload succeeded (${succeeded[*]})"
  return 1
}
check "of four uploads to one name at once, one is there as a whole" many_writers

# One is slow, the other one comes in the middle of it: with and without -f, on a name that exists and on a new one.
a_second_one_is_refused() {  # PATH [-f]
  local slow code=0
  timeout 120 xrdcp --nopbar -f -s --xrate 3m "$work/file" "$url$1" &
  slow=$!
  wait_until 60 has_read $slow 3000000 || { echo "  the first upload does not begin"; return 1; }
  # shellcheck disable=SC2086
  timeout 60 xrdcp --nopbar -s ${2:-} "$work/version1" "$url$1" 2>"$work/second.err" || code=$?
  wait $slow || { echo "  the first upload fails"; return 1; }
  [ $code -ne 0 ] || { echo "  the second upload reports success"; return 1; }
  # When the first one is over by then, xrdcp itself refuses.
  grep -q '\[3020\]\|file exists' "$work/second.err" || { echo "  not in progress: $(cat "$work/second.err")"; return 1; }
  holds "$1" "$sum"
}
check "an upload to a new name that is being written is refused" a_second_one_is_refused /busy
check "also with -f, and when the file exists" a_second_one_is_refused /busy -f
check "and later it is not" upload "$work/version1" /busy
check "and then it is there" holds /busy "$(sum_of "$work/version1")"
finish
