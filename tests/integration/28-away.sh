#!/bin/bash
# The cluster goes away under a gateway that runs, and comes back: what is asked meanwhile fails, with a
# reason, within a bounded time, and afterwards everything works again without a restart of the gateway.
. "$(dirname "$0")/lib.sh"

cluster_up away --layout 4+2 --drives 8 --one-process
make_file "$work/file" 20000001
sum=$(sum_of "$work/file")
upload "$work/file" /file || give_up "upload"
make_file "$work/other" 3000000

ask() { timeout 60 xrdfs "$url" "$@" >"$work/said" 2>&1; }
up_are() {  # COUNT drives, as the server's statistics tell
  ask query stats a && grep -q "<up>$1</up>" "$work/said"
}
tells_why() { grep -q 'pinstripe_error: .*on=/file .*drive' "$(gateway_log)"; }

before=$(gateway_pid)
check "all drives are up" wait_until 30 up_are 8
dev kill 1
check "when they are killed the statistics say so" wait_until 30 up_are 0
# All at once, as each takes its time: within two minutes, and with an answer of the server.
export XRD_REQUESTTIMEOUT=120
declare -A asked
begin() {  # NAME COMMAND...
  timeout 120 "${@:2}" >"$work/$1.said" 2>&1 &
  asked[$1]=$!
}
has_failed() {  # NAME
  local code=0
  wait "${asked[$1]}" || code=$?
  [ $code -ne 0 ] && [ $code -ne 124 ] && grep -qi 'error' "$work/$1.said" && return 0
  echo "  ended with $code: $(tail -n 1 "$work/$1.said")"
  return 1
}
begin stat xrdfs "$url" stat /file
begin listing xrdfs "$url" ls /
begin mkdir xrdfs "$url" mkdir /made
begin download xrdcp --nopbar -f "$url/file" "$work/copy"
begin upload xrdcp --nopbar -f "$work/other" "$url/other"
for one in stat listing mkdir download; do check "a $one fails" has_failed $one; done
check "the log says why" tells_why
check "the server itself answers" ask query config version

dev start 1
check "when they are back they are met again" wait_until 30 up_are 8
check "the file is there" wait_until 30 holds /file "$sum"
wait "${asked[upload]}" && check "the upload that waited is there" holds /other "$(sum_of "$work/other")"
check "uploads work" upload "$work/other" /other
check "as do names" ask mkdir /made
check "and what was uploaded is there" holds /other "$(sum_of "$work/other")"
check "the gateway is the same process" [ "$before" = "$(gateway_pid)" ]
is_in_order() { "$pinstripe" check "$config" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }; }
check "nothing is wrong in the cluster" is_in_order
finish
