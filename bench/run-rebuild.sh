#!/bin/bash
# run-rebuild.sh [BUILD]: one of twelve drives (10+2, all on this machine) is replaced by an empty one and
# rebuilt. How fast its shards are written again, beside what the disk takes from a plain writer of as much.
#
#   PER_DRIVE=536870912 bench/run-rebuild.sh build/release
set -euo pipefail

project=$(realpath "$(dirname "$0")/..")
build=$(realpath "${1:-$project/build/release}")
pinstripe=$build/tools/pinstripe
per_drive=${PER_DRIVE:-$((512 << 20))}
data_shards=10

work=$(mktemp -d "${TMPDIR:-/tmp}/pinstripe-bench.XXXXXX")
chmod 755 "$work"
clean_up() {
  trap - EXIT
  if [ -e "$work/cluster/dev.json" ]; then
    "$pinstripe" dev down --delete "$work/cluster" >/dev/null || true
  fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

"$pinstripe" dev up "$work/cluster" --layout $data_shards+2 --drives 12 >"$work/up" ||
  { cat "$work/up" >&2; exit 1; }
url=$(sed -n 's/^ *gateway  *\(root:.*\)/\1/p' "$work/up")
config=$work/cluster/cluster.toml

files=8
head -c $((per_drive * data_shards / files)) /dev/urandom >"$work/file"
for number in $(seq $files); do xrdcp --nopbar "$work/file" "$url/file-$number"; done

"$pinstripe" dev kill "$work/cluster" 5 >/dev/null
rm -rf "$work/cluster/drives/5"/*
"$pinstripe" dev start "$work/cluster" 5 >/dev/null

# What the disk takes: as much as the drive held, written and synced.
sync
began=$(date +%s.%N)
head -c "$per_drive" "$work/file" | dd of="$work/plain" bs=1M iflag=fullblock conv=fsync status=none
ended=$(date +%s.%N)
disk=$(awk "BEGIN { print $per_drive / ($ended - $began) / 1e6 }")
rm "$work/plain"

cpu() { awk '{ total += $14 + $15 } END { print total / '"$(getconf CLK_TCK)"' }' $(sed 's|.*|/proc/&/stat|' <<<"$pids"); }
"$pinstripe" dev status --json "$work/cluster" >"$work/status"
pids=$(sed -n '/"daemons"/,/^  \]/s/.*"pid": \([0-9]*\).*/\1/p' "$work/status")
{ "$pinstripe" rebuild --json "$config" 5 2>&1 >"$work/report" || true; } | while read -r line; do
  if grep -q 'is in service' <<<"$line"; then
    date +%s.%N >"$work/joined"
    cpu >"$work/cpu"
  fi
done
ended=$(date +%s.%N)
after=$(cpu)
field() { sed -n "s/^  \"$1\": \([0-9]*\).*/\1/p" "$work/report"; }
written=$(field bytes_written)
missing=$(field missing_shards)
awk -v written="$written" -v shards="$missing" -v read="$(field bytes_read)" -v disk="$disk" \
  -v seconds="$(awk "BEGIN { print $ended - $(cat "$work/joined") }")" \
  -v cpu="$(awk "BEGIN { print $after - $(cat "$work/cpu") }")" 'BEGIN {
    printf "shards written again           %d, %.0f MB (%.1f MB read for each of these)\n", shards, written / 1e6, read / written
    printf "seconds, checks included       %.1f\n", seconds
    printf "rate                           %.0f MB/s\n", written / seconds / 1e6
    printf "the disk, plainly              %.0f MB/s\n", disk
    printf "share of that                  %.2f\n", written / seconds / 1e6 / disk
    printf "CPU of the drives              %.2f s per GB rebuilt\n", cpu / written * 1e9
  }'
