#!/bin/bash
# What drives, a gateway, a mount and the console tell a real Prometheus while they work: promtool likes it, the reference lists
# all of it, and every panel of the dashboards and every rule finds something. Who uses the drives is told, too.
. "$(dirname "$0")/lib.sh"

needs_fuse
for program in prometheus promtool; do
  command -v $program >/dev/null || { echo "SKIP $script: $program is not installed"; exit 77; }
done
cluster_up metrics --layout 2+1 --drives 4 --groups 2,2
read -r first second gateway mounted console prometheus <<<"$(free_ports 6)"

# --- each serves its metrics ---

ports=("$first" "$second")
for file in "$cluster"/pinstriped-*.toml; do
  sed -i "s/^\[daemon\]/[daemon]\nmetrics = \"127.0.0.1:${ports[0]}\"/" "$file"
  ports=("${ports[@]:1}")
done
dev kill 1 3
dev start 1 3
sed -i "/^ofs.osslib/s/$/ metrics=$gateway/" "$cluster/gateway/xrootd.cfg"
empty_gateway
mount=$work/mount
mkdir "$mount" "$work/cells"
"$build/fuse/pinstripe-fuse" -f -o "metrics=127.0.0.1:$mounted,cache_dir=$work/cells" "$config" "$mount" 2>"$work/mount.log" &
wait_until 30 mountpoint -q "$mount" || give_up "cannot mount: $(cat "$work/mount.log")"

# A second one with the same port goes on without it.
mkdir "$work/second"
"$build/fuse/pinstripe-fuse" -f -o "metrics=$mounted" "$config" "$work/second" 2>"$work/second.log" &
check "a mount whose port is taken works" wait_until 30 mountpoint -q "$work/second"
check "and says so" grep -q "metrics are not served.*127.0.0.1:$mounted" "$work/second.log"

"$build/console/pinstripe-console" --listen 127.0.0.1:0 --metrics "$console" --page "$project/console/page" "$config" >"$work/console.log" 2>&1 &
servers[console]=$!
wait_until 30 grep -q "^ready http" "$work/console.log" || give_up "no console: $(cat "$work/console.log")"

# --- somebody uses them ---

make_file "$work/file" 9000000
work_on() {
  while [ ! -e "$work/enough" ]; do
    upload "$work/file" "/through-gateway" && download "/through-gateway" "$work/back"
    timeout 60 xrdfs "$url" ls / >"$work/listed"
    cp "$work/file" "$mount/through-mount" && cat "$mount/through-mount" >"$work/back2"
    rm -f "$mount/through-mount"
    sleep 0.2
  done
}
work_on &
worker=$!

# --- Prometheus looks ---

targets=(-e "s/\"127.0.0.1:9464\"/\"127.0.0.1:$first\", \"127.0.0.1:$second\"/" -e "s/127.0.0.1:9465/127.0.0.1:$gateway/"
  -e "s/127.0.0.1:9466/127.0.0.1:$mounted/" -e "s/127.0.0.1:9467/127.0.0.1:$console/" -e "s/15s/1s/")
mkdir "$work/prometheus"
sed "${targets[@]}" "$project/etc/prometheus/prometheus.yml" >"$work/prometheus/prometheus.yml"
cp "$project/etc/prometheus/pinstripe-rules.yml" "$work/prometheus"
prometheus --config.file="$work/prometheus/prometheus.yml" --storage.tsdb.path="$work/prometheus/data" \
  --web.listen-address="127.0.0.1:$prometheus" >"$work/prometheus/log" 2>&1 &
servers[prometheus]=$!
check "every panel and rule finds something" /usr/bin/python3 "$(dirname "$0")/metrics.py" panels "$project" "http://127.0.0.1:$prometheus"

for port in $first $second $gateway $mounted $console; do
  curl -sS --max-time 10 "http://127.0.0.1:$port/metrics" >"$work/page-$port" || flunk "no metrics at port $port"
  check "promtool likes port $port" promtool check metrics <"$work/page-$port"
done
cp "$mount/.pinstripe/stats" "$work/stats"
check "the reference lists what is served" /usr/bin/python3 "$(dirname "$0")/metrics.py" reference "$project" "$work/stats" "$work"/page-*
check "nobody else can ask" test "$(ss -Hltn "sport = :$first" | awk '{print $4}')" = "127.0.0.1:$first"

# --- who uses the drives ---

"$pinstripe" clients --json "$config" >"$work/clients.json" || flunk "clients: exit code $?"
"$pinstripe" top --json --interval 3 --count 2 "$config" >"$work/top.json" || flunk "top: exit code $?"
check "gateway and mount are known by their names" /usr/bin/python3 "$(dirname "$0")/metrics.py" clients "$work/clients.json" "$work/top.json" "$mount"
check "for people, too" says 0 "pinstripe-fuse .* $mount" clients "$config"
touch "$work/enough"
wait "$worker"
dev kill 1
check "drives that do not tell are named" says 3 "drive 1 .* does not tell" clients "$config"
finish
