#!/bin/bash
# kill -9 of the gateway or of the client in the middle of an upload: afterwards the old contents are there, or
# no file if there was none, or, when it was over already, the new contents. Never a mixture.
. "$(dirname "$0")/lib.sh"
export XRD_CONNECTIONRETRY=0 XRD_STREAMERRORWINDOW=0

cluster_up gateway --layout 4+2 --drives 8 --one-process --share-connections
make_file "$work/old" 30000000
make_file "$work/new" 200000000
old=$(sum_of "$work/old")
new=$(sum_of "$work/new")

upload "$work/new" /untouched || give_up "upload: $(tail -n 1 "$work/xrdcp.err")"

has_read_or_ended() { has_read "$1" "$2" || ! kill -0 "$1"; }
kill_in_mid_upload() {  # PATH PERCENT of its bytes, as the client has read them
  timeout 300 xrdcp --nopbar -f -s --xrate 80m "$work/new" "$url$1" 2>"$work/xrdcp.err" &
  local client=$!
  wait_until 120 has_read_or_ended $client $((200000000 / 100 * $2)) || flunk "the upload to $1 does not go on"
  dev kill gateway
  wait "$client" && return 0  # the upload was over: then its contents must be there
  return 1
}
old_or_new() {  # PATH FINISHED
  local got
  rm -f "$work/copy"
  if ! download "$1" "$work/copy"; then
    echo "  $1: $(tail -n 1 "$work/xrdcp.err")"
    return 1
  fi
  got=$(sum_of "$work/copy")
  if [ "$got" = "$new" ]; then echo "  (the new contents)"; return 0; fi
  if [ "$got" = "$old" ] && [ "$2" = no ]; then echo "  (the old contents)"; return 0; fi
  echo "  $1: $(stat -c %s "$work/copy") bytes that are neither"
  return 1
}
none_or_new() {  # PATH FINISHED
  if ! exists "$1"; then
    [ "$2" = no ] || { echo "  $1 is gone after a finished upload"; return 1; }
    echo "  (no file)"
    return 0
  fi
  holds "$1" "$new"
}

killed=0
for percent in 15 45 75 95; do
  upload "$work/old" /existing || give_up "upload of the old contents"
  finished=no
  kill_in_mid_upload /existing $percent && finished=yes
  [ $finished = no ] && killed=$((killed + 1))
  dev start gateway
  check "at $percent % of an overwrite: the old or the new contents, never a mixture" \
    old_or_new /existing $finished
done
for percent in 20 60 90; do
  finished=no
  kill_in_mid_upload /new-$percent $percent && finished=yes
  [ $finished = no ] && killed=$((killed + 1))
  dev start gateway
  check "at $percent % of a new file: no file, or all of it" none_or_new /new-$percent $finished
  check "and its name can be used" upload "$work/old" /new-$percent
  check "for other contents" holds /new-$percent "$old"
done
check "most of the uploads were really cut off ($killed of 7)" [ $killed -ge 4 ]
check "what was not touched is untouched" holds /untouched "$new"

# The client vanishes: the server closes its file as if it had finished.
upload "$work/old" /left || give_up "upload of the old contents"
tells_of_dropped() { [ "$(grep -c 'the upload ended before all' "$(gateway_log)")" -ge "$1" ]; }
dropped=0
for path in /left /left-new; do
  for signal in KILL TERM; do
    xrdcp --nopbar -f -s --xrate 20m "$work/new" "$url$path" 2>/dev/null &
    client=$!
    wait_until 60 has_read $client 20000000 || flunk "the upload to $path does not begin"
    kill -$signal $client
    wait $client 2>/dev/null
    dropped=$((dropped + 1))
    wait_until 20 tells_of_dropped $dropped || flunk "the log does not tell that the upload to $path was dropped"
  done
done
check "a client that vanishes in mid-upload leaves the old contents" holds /left "$old"
check "or no file" eval '! exists /left-new'
check "and the name can be used" upload "$work/old" /left-new

# A client that is patient opens the file again when the gateway is back, and would go on where it was. What it
# sent before is gone with the gateway: so it fails, and the old contents stay. They are as large as the new ones
# here, so that nothing but refusing it can keep the two apart.
make_file "$work/same-size" 200000000
upload "$work/same-size" /recovered || give_up "upload of the old contents"
XRD_CONNECTIONRETRY=5 XRD_CONNECTIONWINDOW=2 XRD_STREAMERRORWINDOW=2 \
  timeout 120 xrdcp --nopbar -f -s --xrate 40m "$work/new" "$url/recovered" 2>"$work/recovering.err" &
client=$!
wait_until 60 has_read $client 60000000 || flunk "the upload does not begin"
dev kill gateway
dev start gateway
if wait $client; then flunk "a client that lost half of its upload reports success"; else
  pass "a client that lost half of its upload fails: $(tail -n 1 "$work/recovering.err")"; fi
check "because it was recognised" grep -q 'an upload that was cut off cannot be continued' "$(gateway_log)"
check "and the old contents are there" holds /recovered "$(sum_of "$work/same-size")"
finish
