#!/bin/bash
# run-first-light.sh [BUILD]: xrdcp of 1 GB up and down, Pinstripe (4+2 on 8 drives, all on this machine)
# against the same xrootd on a plain directory of the same disk. The two alternate, several times; the
# table has medians, and CPU seconds per GB from /proc. See bench/README.md.
#
#   REPETITIONS=5 BYTES=1073741824 CLOSE=durable bench/run-first-light.sh build/release
set -euo pipefail

project=$(realpath "$(dirname "$0")/..")
build=$(realpath "${1:-$project/build/release}")
pinstripe=$build/tools/pinstripe
repetitions=${REPETITIONS:-5}
bytes=${BYTES:-1073741824}
close=${CLOSE:-commit}
layout=${LAYOUT:-4+2}
drives=${DRIVES:-8}
tick=$(getconf CLK_TCK)
plain_pid=

work=$(mktemp -d "${TMPDIR:-/tmp}/pinstripe-bench.XXXXXX")
chmod 755 "$work"
clean_up() {
  trap - EXIT
  if [ -n "$plain_pid" ]; then kill "$plain_pid" 2>/dev/null || true; fi
  if [ -e "$work/cluster/dev.json" ]; then
    "$pinstripe" dev down --delete "$work/cluster" >/dev/null || true
  fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# --- the two servers ---

"$pinstripe" dev up "$work/cluster" --layout "$layout" --drives "$drives" --close "$close" >"$work/up" ||
  { cat "$work/up" >&2; exit 1; }
url=$(sed -n 's/^ *gateway  *\(root:.*\)/\1/p' "$work/up")
"$pinstripe" dev status --json "$work/cluster" >"$work/status"
gateway_pid=$(sed -n '/"gateway"/,/}/s/.*"pid": \([0-9]*\).*/\1/p' "$work/status")
drive_pids=$(sed -n '/"daemons"/,/^  \]/s/.*"pid": \([0-9]*\).*/\1/p' "$work/status")

# The same xrootd, user and settings; only the storage differs.
plain=$work/plain
user=$(sed -n 's/.*"user": "\(.*\)".*/\1/p' "$work/status")
mkdir -p "$plain"/{data,admin,run}
port=$((20000 + RANDOM % 10000))
grep -v -E '^(ofs.osslib|xrd.port|all.adminpath|all.pidpath|#)' "$work/cluster/gateway/xrootd.cfg" >"$plain/cfg"
cat >>"$plain/cfg" <<CONFIG
xrd.port $port
oss.localroot $plain/data
all.adminpath $plain/admin
all.pidpath $plain/run
CONFIG
as_user=()
if [ "$(id -u)" = 0 ]; then
  chown -R "$user:" "$plain"
  as_user=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
fi
(cd "$plain" && exec "${as_user[@]}" xrootd -c "$plain/cfg" -I v4) >"$plain/log" 2>&1 &
plain_pid=$!
for _ in $(seq 100); do
  if grep -q 'initialization completed' "$plain/log"; then break; fi
  kill -0 "$plain_pid" 2>/dev/null || { cat "$plain/log" >&2; exit 1; }
  sleep 0.1
done
plain_url=root://127.0.0.1:$port/

# --- measuring ---

cpu() {  # PID...: ticks of user and system time
  local pid sum=0 rest
  for pid in "$@"; do
    rest=$(sed 's/.*) //' "/proc/$pid/stat")
    # shellcheck disable=SC2086  # words on purpose
    set -- $rest
    sum=$((sum + ${12} + ${13}))
  done
  echo $sum
}
copy() {  # NAME FROM TO "PID..." ["PID..."]: appends "seconds server-cpu drives-cpu" to NAME
  local name=$1 from=$2 to=$3 server=$4 others=${5:-} begin end before after drives_before=0 drives_after=0
  # shellcheck disable=SC2086
  before=$(cpu $server)
  # shellcheck disable=SC2086
  if [ -n "$others" ]; then drives_before=$(cpu $others); fi
  begin=$(date +%s%N)
  xrdcp --nopbar -f "$from" "$to" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
  end=$(date +%s%N)
  # shellcheck disable=SC2086
  after=$(cpu $server)
  # shellcheck disable=SC2086
  if [ -n "$others" ]; then drives_after=$(cpu $others); fi
  awk "BEGIN { print ($end - $begin) / 1e9, ($after - $before) / $tick, ($drives_after - $drives_before) / $tick }" \
    >>"$work/$name"
}
median() {  # FILE COLUMN
  awk "{ print \$$2 }" "$1" | sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

head -c "$bytes" /dev/urandom >"$work/file"
cat "$work/file" >/dev/null
for i in $(seq "$repetitions"); do
  copy plain-up "$work/file" "$plain_url/file" "$plain_pid"
  copy pinstripe-up "$work/file" "$url/file" "$gateway_pid" "$drive_pids"
  copy plain-down "$plain_url/file" /dev/null "$plain_pid"
  copy pinstripe-down "$url/file" /dev/null "$gateway_pid" "$drive_pids"
  echo "repetition $i of $repetitions" >&2
done
xrdcp --nopbar -f "$url/file" "$work/copy"
cmp "$work/file" "$work/copy" || { echo "what came back is not what was stored" >&2; exit 1; }

# --- the table ---

row() {  # WHAT FILE BASELINE
  local seconds base
  seconds=$(median "$work/$2" 1)
  base=$(median "$work/$3" 1)
  awk "BEGIN { gb = $bytes / 1e9; printf \"| %s | %.0f | %.2f | %.2f | %.2f |\n\", \"$1\", gb * 1000 / $seconds, \
    $base / $seconds, $(median "$work/$2" 2) / gb, $(median "$work/$2" 3) / gb }"
}
echo "$(nproc) cores, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1); layout $layout on $drives drives,"
echo "close = \"$close\"; $bytes bytes, medians of $repetitions; commit $(git -C "$project" rev-parse --short HEAD 2>/dev/null || echo unknown)."
echo
echo "| | MB/s | of plain | server CPU s/GB | drives CPU s/GB |"
echo "|---|---|---|---|---|"
row "upload, xrootd on a directory" plain-up plain-up
row "upload, Pinstripe" pinstripe-up plain-up
row "download, xrootd on a directory" plain-down plain-down
row "download, Pinstripe" pinstripe-down plain-down
