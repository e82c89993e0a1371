#!/bin/bash
# cluster.toml is changed under a gateway and a mount that run: SIGUSR1 has them read it again. Drives that have
# moved are found, the memory is as large as it says, and a file that cannot be used changes nothing.
. "$(dirname "$0")/lib.sh"

needs_fuse
cluster_up reload --layout 4+2 --drives 8
mount=$work/mount
mkdir "$mount"
"$build/fuse/pinstripe-fuse" -f "$config" "$mount" >"$work/mount.log" 2>&1 &
mount_pid=$!
wait_until 30 mountpoint -q "$mount" || give_up "cannot mount: $(cat "$work/mount.log")"
gateway=$(gateway_pid)
make_file "$work/file" 30000001
sum=$(sum_of "$work/file")
upload "$work/file" /file || give_up "upload"

gateway_sees() {  # COUNT drives up
  timeout 20 xrdfs "$url" query stats a >"$work/said" 2>&1 && grep -q "<up>$1</up>" "$work/said"
}
say() { kill -USR1 "$gateway" "$mount_pid"; }
have_said() {  # TIMES WORDS: both logs
  [ "$(grep -c "$2" "$(gateway_log)")" -ge "$1" ] && [ "$(grep -c "$2" "$work/mount.log")" -ge "$1" ]
}
memory_of_mount() { sed -n 's/^pinstripe_mount_memory_limit_bytes //p' "$mount/.pinstripe/stats"; }
has_memory() { [ "$(memory_of_mount)" = "$1" ]; }
mount_holds() { [ "$(sum_of "$mount/$1")" = "$2" ]; }

# Two drives change places: each answers where the other did.
port_of() { sed -n 's/^port = //p' "$cluster/pinstriped-$1.toml"; }
third=$(port_of 3)
fifth=$(port_of 5)
dev kill 3 5
sed -i "s,drives/3,drives/5," "$cluster/pinstriped-3.toml"
sed -i "s,drives/5,drives/3," "$cluster/pinstriped-5.toml"
dev start 3 5
check "drives that have changed places are not used" wait_until 30 gateway_sees 6
sed -i "s/:$third\"/:moving\"/; s/:$fifth\"/:$third\"/; s/:moving\"/:$fifth\"/" "$config"
say
check "until cluster.toml says where they are" wait_until 30 gateway_sees 8
check "and both processes have read it" wait_until 30 have_said 1 "configuration read again"
dev kill 1 2
empty_cache() { echo 1 >/proc/sys/vm/drop_caches; }
[ "$(id -u)" -ne 0 ] || empty_cache
make_file "$work/other" 9000000
other=$(sum_of "$work/other")
check "both can do without two others then" upload "$work/other" /other
check "the gateway reads" holds /file "$sum"
check "and the mount" mount_holds file "$sum"
check "what was just written, too" mount_holds other "$other"
dev start 1 2

# memory, and what needs a restart.
before=$(memory_of_mount)
sed -i 's/^\[layout\]/[limits]\nmemory = "64 MiB"\n[layout]/' "$config"
sed -i 's/^#*close = .*/close = "durable"/' "$config"
grep -q '^close' "$config" || printf '[files]\nclose = "durable"\n' >>"$config"
say
check "the memory is what the file says" wait_until 30 has_memory 67108864
[ "$before" != 67108864 ] || flunk "which it was before"
check "and the log tells what needs a restart" wait_until 30 have_said 1 "after_a_restart=files.close"

# What cannot be used.
cp "$config" "$work/good"
echo 'nonsense = ' >>"$config"
say
check "a file that cannot be used is told" wait_until 30 have_said 1 "configuration not read again.*cluster.toml"
check "and changes nothing" mount_holds other "$other"
cp "$work/good" "$config"
say
check "until it is mended" wait_until 30 have_said 3 "configuration read again"
check "the gateway is the same process" [ "$gateway" = "$(gateway_pid)" ]
check "the mount as well" kill -0 "$mount_pid"
finish
