#!/bin/bash
# The part of drills.sh that runs in a system of its own: [DRILL...].
set -uo pipefail
. /checks.sh drills
. /machines.sh
chapter=/checkout/docs/drills.md
output=/drills/output
helper=/checkout/tests/drills/drills.py
stores="store1 store2 store3 store4"
others="gate1 gate2 work1"
declare -A addresses=([store1]=192.0.2.11 [store2]=192.0.2.12 [store3]=192.0.2.13 [store4]=192.0.2.14 [store5]=192.0.2.15
  [gate1]=192.0.2.21 [gate2]=192.0.2.22 [work1]=192.0.2.31)
site=/root/site/site-example
config=site-example/cluster.toml
# Alerts wait that much shorter here than in the rules, and the chapter gets the time that they would have waited.
faster=20
console=http://127.0.0.1:8070
prometheus=http://127.0.0.1:9090
rules=/checkout/etc/prometheus/pinstripe-rules.yml
# As docs/operations.md advises, so that a gateway that is away for a moment stalls nobody.
export XRD_CONNECTIONWINDOW=10 XRD_CONNECTIONRETRY=60 XRD_STREAMERRORWINDOW=10

keep_logs() {
  local file
  cp /tmp/*.log /drills/logs/
  for file in /machines/*/units/*.log /machines/*/var/log/xrootd/*/xrootd.log; do
    [ ! -e "$file" ] || cp "$file" "/drills/logs/$(cut -d / -f 3 <<<"$file").$(basename "$file")"
  done
}
trap keep_logs EXIT

# --- The site ---

install -D -m 755 /checkout/tests/drills/systemctl /stub/systemctl
export PATH=/stub:$PATH
hostname admin
systemd-sysusers pinstriped.conf pinstripe-console.conf >/tmp/sysusers.log 2>&1
systemd-tmpfiles --create xrootd.conf pinstriped.conf
chown xrootd: /etc/pinstripe/credentials.toml
rm -f /etc/systemd/system/*.service  # what this system has of its own is not the machines'
network_up 192.0.2.1

join() { on "$1" sh -c "cd $site && PATH=$PATH pinstripe join $1.tar" >"/tmp/$1.join.log" 2>&1; }
gateway_answers() { timeout 20 xrdfs "root://$1" stat /; }
mount_is_there() { on work1 mountpoint -q /srv/data; }
health() { pinstripe status "$config" | sed -n 's/^health *//p'; }
is_healthy() { [ "$(health)" = healthy ]; }

give_console_keys() {  # as docs/operations.md says it
  cp site-example/{cluster.toml,credentials.toml,ca.pem} /etc/pinstripe/console/
  chown pinstripe-console: /etc/pinstripe/console/credentials.toml
}
build_site() {
  local one disk
  for one in $stores; do
    for disk in disk1 disk2 disk3; do make_disk "$one" "$disk" 3G; done
  done
  for one in $stores $others; do boot "$one" "${addresses[$one]}"; done
  mkdir -p /run/systemd/system /root/site
  cd /root/site || exit 1
  pinstripe init --example | sed 's/^#metrics_port/metrics_port/' >SITE.toml
  printf '\n[[host]]\nname = "gate2"\naddress = "192.0.2.22"\ngateway = ["root", "https"]\n' >>SITE.toml
  echo "PINSTRIPE_FUSE_OPTIONS=allow_other,metrics=192.0.2.31:9466" >/etc/default/pinstripe-fuse
  pinstripe init SITE.toml >/tmp/init.log 2>&1 || give_up "no site"
  for one in $stores; do join "$one" || give_up "$one does not join"; done
  pinstripe format "$config" --owner "$(id -u xrootd):$(id -g xrootd)" >/tmp/format.log 2>&1 || give_up "no cluster"
  for one in $others; do join "$one" || give_up "$one does not join"; done
  for one in gate1 gate2; do wait_until 60 gateway_answers "$one" || give_up "$one does not serve"; done
  wait_until 60 mount_is_there || give_up "work1 does not mount"
  give_console_keys
  systemctl start pinstripe-console
  wait_until 30 curl -sf $console/api/v1/status || give_up "the console does not start"
  # What nobody has done yet is nothing to complain of later.
  pinstripe check "$config" >/tmp/check.log 2>&1 || give_up "the new cluster is not in order"
}

mkdir /tmp/prometheus
"$helper" rules $rules $faster >/tmp/prometheus/pinstripe-rules.yml
start_prometheus() {  # afresh: without what the last drill has left in its memory
  local one drives=
  [ -z "${prometheus_pid:-}" ] || { kill "$prometheus_pid"; wait "$prometheus_pid"; } 2>/dev/null
  rm -rf /tmp/prometheus/data
  for one in $stores; do drives="$drives, \"${addresses[$one]}:9464\""; done
  sed -e "s/\"127.0.0.1:9464\"/${drives#, }/" -e 's/"127.0.0.1:9465"/"192.0.2.21:9465", "192.0.2.22:9465"/' \
    -e 's/127.0.0.1:9466/192.0.2.31:9466/' -e 's/15s/1s/' /checkout/etc/prometheus/prometheus.yml >/tmp/prometheus/prometheus.yml
  prometheus --config.file=/tmp/prometheus/prometheus.yml --storage.tsdb.path=/tmp/prometheus/data --web.listen-address=127.0.0.1:9090 \
    >/tmp/prometheus.log 2>&1 &
  prometheus_pid=$!
  wait_until 60 sees_all || give_up "Prometheus does not see all of the site"
}
sees_all() {
  [ "$(curl -s "$prometheus/api/v1/query" --data-urlencode 'query=sum(up)' | grep -o '"[0-9]*"\]' | tr -dc 0-9)" -eq $(($(wc -w <<<"$stores") + 3)) ]
}

# --- Clients, which read and write all the while ---

mkdir -p /tmp/samples
for size in 900 70000 1500000 12000000; do head -c $size /dev/urandom >/tmp/samples/$size; done
client() {  # NAME COMMAND: with a file and a name; on whom it fails or how long it took at most is written down
  local round=0 sample began took said
  local sizes=(900 70000 1500000)
  while [ -e /tmp/working ]; do
    sample=/tmp/samples/${sizes[round % 3]}
    began=${EPOCHREALTIME/./}
    if ! said=$("$2" "$sample" "busy$((round % 7))" 2>&1); then
      echo "$(date -u +%T) round $round, begun $(((${EPOCHREALTIME/./} - began) / 1000)) ms before: $said" >>"/tmp/$1.failed"
    fi
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
    [ $took -le "$(cat "/tmp/$1.longest")" ] || echo $took >"/tmp/$1.longest"
    echo $((round += 1)) >"/tmp/$1.rounds"
    sleep 0.3
  done
}
by_mount() { on work1 sh -c 'cp "$1" "/srv/data/mount-$2" && cmp "$1" "/srv/data/mount-$2" && rm "/srv/data/mount-$2"' _ "$1" "$2"; }
by_gateway() {  # writes by one, reads by another
  local writer reader
  read -r writer reader </tmp/gates
  timeout 300 xrdcp --nopbar -f "$1" "root://$writer//$2" && timeout 300 xrdcp --nopbar -f "root://$reader//$2" /tmp/back && cmp "$1" /tmp/back
}
use_gates() {  # WRITER READER
  echo "$*" >/tmp/gates
  go_on
}
start_clients() {
  local one
  rm -f /tmp/{mount,gateway}.failed
  touch /tmp/working
  echo gate1 gate2 >/tmp/gates
  for one in mount gateway; do echo 0 | tee "/tmp/$one.longest" >"/tmp/$one.rounds"; done
  client mount by_mount &
  clients=$!
  client gateway by_gateway &
  clients="$clients $!"
  go_on
}
go_on() {  # clients do
  local one before
  for one in mount gateway; do
    before=$(cat /tmp/$one.rounds)
    wait_until 120 eval '[ "$(cat /tmp/'$one'.rounds)" -ge '$((before + 2))' ]' || flunk "the client of the $one does not go on"
  done
}
stop_clients() {
  rm -f /tmp/working
  # shellcheck disable=SC2086
  wait $clients
}
no_request_failed() { ! cat /tmp/{mount,gateway}.failed 2>/dev/null; }

declare -A kept
keep_files() {
  local one
  for one in 900 70000 1500000 12000000; do
    timeout 60 xrdcp --nopbar -f "/tmp/samples/$one" "root://gate1//kept$one" 2>/tmp/xrdcp.log || give_up "no file is kept"
    kept[kept$one]=$(b2sum <"/tmp/samples/$one")
  done
}
all_is_kept() {
  local name
  for name in "${!kept[@]}"; do
    for gate in gate1 gate2; do
      timeout 60 xrdcp --nopbar -f "root://$gate//$name" /tmp/kept && [ "$(b2sum </tmp/kept)" = "${kept[$name]}" ] || { echo "$name at $gate"; return 1; }
    done
    [ "$(on work1 cat "/srv/data/$name" | b2sum)" = "${kept[$name]}" ] || { echo "$name on the mount"; return 1; }
  done
}

# --- What is seen ---

# A row of the drill's table, when somebody has said it. They all are asked beside each other.
say_status() { pinstripe status "$config" 2>&1; }
say_console() { "$helper" console $console $((${happened:-0} / 1000000)); }
say_events() { pinstripe events "$config" --since "$((SECONDS - drill_began + 2))s" 2>&1; }
alerts() { "$helper" alerts $prometheus $rules $faster; }
say_alerts() { alerts | cut -f 2; }
rows=0
expect() {  # WHO WITHIN-SECONDS EXPRESSION: status, console, events or alert
  local who=$1 within=$2 expression=$3 row
  [ "$who" != alert ] || alerts_expected="$alerts_expected|$expression"
  rows=$((rows + 1))
  row=$output/row.$(printf %03d $rows)
  (
    deadline=$((SECONDS + within)) said=
    while true; do
      case $who in
        alert) said=$(alerts | grep -E -- "$expression" | sed '1!d') ;;
        no-alert) alerts >"/tmp/said.$rows" && ! grep -qE -- "$expression" "/tmp/said.$rows" && said="$expression is over" ;;
        *) said=$(say_"$who" | grep -E -- "$expression" | sed '1!d') ;;
      esac
      took=$(((${EPOCHREALTIME/./} - happened) / 1000000))
      [ -z "$said" ] || break
      if [ $SECONDS -ge $deadline ]; then
        echo "$who: /$expression/" >>/tmp/unseen
        exit
      fi
      sleep 0.3
    done
    if [ "$who" = alert ]; then
      took=$((took + ${said%%$'\t'*}))
      said=${said#*$'\t'}
    fi
    # Time, level and health stand in other columns.
    said=$(sed -E 's/^health +//; s/^[0-9:]{8} +//; s/\|/\\|/g; s/ +/ /g; s/^(.{150}[^ ]*) .*/\1 .../' <<<"$said")
    echo "| ${who#no-} | $said | $(time_of $took) |" >"$row"
  ) &
  watchers+=($!)
}
time_of() {
  if [ "$1" -lt 120 ]; then echo "$1 s"; else echo "$((($1 + 30) / 60)) min"; fi
}
happens() {  # WHAT: what comes is timed from here
  rows=$((rows + 1))
  echo "| | **$1** | |" >"$output/row.$(printf %03d $rows)"
  happened=${EPOCHREALTIME/./} watchers=()
}
observed() {
  wait "${watchers[@]}"
  watchers=()
  [ ! -e /tmp/unseen ] || {
    while read -r line; do flunk "$drill: nobody saw $line"; done </tmp/unseen
    rm /tmp/unseen
    say_status
    say_console
    say_events
    say_alerts
  }
}

# Types what the chapter says at that step, and keeps what was printed: lines that match, or all. `hosts#` are all
# machines, `stores#` those with disks; what the first of them prints is shown.
type_in() {  # STEP [EXPRESSION]
  local step=$drill-$1 expression=${2:-} host command code file=$output/typed.$drill-$1 line
  "$helper" commands "$chapter" "$step" >/tmp/commands
  [ -s /tmp/commands ] || flunk "the chapter says nothing to type for $step"
  : >"$file"
  while read -r host command <&3; do
    host=${host%#}
    line=${command//\/dev\/sdb/\/machines\/$host\/disk2.img}
    case $host in
      admin) bash -c "$line" ;;
      hosts | stores)
        for one in $stores $([ "$host" = stores ] || echo "$others"); do
          PATH=$PATH on "$one" bash -c "cd $site; $line" >"/tmp/typed.$one" 2>&1
          code=$?
          # 3: not all drives believe a new key yet.
          [ $code -eq 0 ] || [ $code -eq 3 ] || echo "$one: exit code $code" >>/tmp/typed_failed
        done
        cat /tmp/typed.store1
        ;;
      *) PATH=$PATH on "$host" bash -c "cd $site; $line" ;;
    esac >/tmp/typed 2>&1 3<&-
    code=$?
    if [ -e /tmp/typed_failed ]; then
      flunk "$drill: \`$command\` of the chapter fails: $(cat /tmp/typed_failed)"
      tail -n 20 /tmp/typed.*
    fi
    rm -f /tmp/typed_failed
    case $command in
      *"pinstripe status"*) ;;
      # 2 and 3: not everything is at home, or could be looked at. 1 is what never may be.
      *"pinstripe check"*) [ $code -ne 1 ] || flunk "$drill: \`$command\` finds something lost: $(cat /tmp/typed)" ;;
      *"pinstripe join"*) ;;  # of each host: see above
      *"pinstripe drain"*) [ $code -eq 0 ] || [ $code -eq 3 ] || flunk "$drill: \`$command\` ends with $code: $(cat /tmp/typed)" ;;
      *)
        [ $code -eq 0 ] || {
          flunk "$drill: \`$command\` of the chapter ends with $code"
          tail -n 20 /tmp/typed
        }
        ;;
    esac
    echo "    $host# $command" >>"$file"
    shown /tmp/typed "$expression" >>"$file"
  done 3</tmp/commands
}
shown() {  # FILE EXPRESSION
  /usr/bin/python3 - "$1" "$2" <<'END'
import re, sys, textwrap
name, expression = sys.argv[1:]
left_out = False
for line in open(name, errors="replace"):
    line = re.sub(r"/machines/\w+/disk2.img", "/dev/sdb", line.rstrip())
    if line and re.search(expression, line):
        indent = " " * (4 + len(re.match(r"[\d:]{8} (?:warning|error  |       ) |\w* *", line)[0]))
        print(*textwrap.wrap(line, 100, initial_indent="    ", subsequent_indent=indent, break_long_words=False), sep="\n")
        left_out = False
    elif line and not left_out:
        print("    ...")
        left_out = True
END
}
over() {  # WITHIN-SECONDS: everybody says so, and every byte is there
  expect status "$1" '^health +healthy'
  expect console "$1" '^healthy'
  observed
  go_on
}
# 3: some may be on other drives than their own, as after a time in which a drive was full.
has_all_shards() {
  pinstripe verify "$config" >/tmp/verified 2>&1
  local code=$?
  grep -q ": 0 shards damaged, 0 missing" /tmp/verified && { [ $code -eq 0 ] || [ $code -eq 3 ]; } && return 0
  sed "s/^/  exit code $code: /" /tmp/verified
  return 1
}
whole() {
  check "$drill: all files are whole, by each way" all_is_kept
  check "$drill: not one shard is missing" has_all_shards
}
table() {
  {
    echo "| who | says | after |"
    echo "|---|---|---|"
    cat "$output"/row.*
  } >"$output/seen.$drill"
  rm -f "$output"/row.*
}
# Who gets up for nothing does not get up the next time.
nobody_was_woken() {
  local names
  names=$("$helper" woken $prometheus $rules $faster) || return 1
  ! grep -vE "nothing$alerts_expected" <<<"$names" | grep .
}
run_drill() {
  drill=$1 drill_began=$SECONDS
  rows=0 alerts_expected=
  start_prometheus
  start_clients
  drill_"$drill"
  if [ -e /tmp/working ]; then
    stop_clients
    check "$drill: not one of $(cat /tmp/mount.rounds) rounds of the mount and $(cat /tmp/gateway.rounds) of the gateways failed" no_request_failed
  fi
  check "$drill: all files are whole, by each way" all_is_kept
  check "$drill: not one shard is missing" has_all_shards
  check "$drill: no critical alert but those of the chapter" nobody_was_woken
  table
  echo "drills: $drill took $((SECONDS - drill_began)) s; the longest round of the mount $(cat /tmp/mount.longest) ms, of the gateways $(cat /tmp/gateway.longest) ms"
}

# --- The drills ---

drill_host() {
  check "host: it may be stopped" pinstripe ok-to-stop "$config" store2
  happens "the network of store2 is cut"
  ip link set to-store2 down
  expect status 30 '^health .*store2'
  expect console 30 '^degraded: .*store2'
  expect events 60 'drives? [456].* cannot be reached'
  expect alert 60 PinstripeDaemonDown
  expect alert 60 PinstripeRedundancyUsed
  observed
  type_in see '^(health|survives|writes|4|5|6) '
  go_on
  ip link set to-store2 up
  happens "it is back"
  expect events 60 'drives? [456].* can be reached again'
  over 60
  type_in after
}

# From then on the disk answers nothing but errors.
lose_disk() {  # MACHINE DISK
  on "$1" /usr/bin/python3 -c 'import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))' "/srv/pinstripe/$2"
}
drill_disk() {
  happens "a disk of store1 fails"
  lose_disk store1 disk2
  expect status 60 '^health .*drive'
  expect status 60 '^2 .*FAILED'
  expect console 60 '^(error|warning): drive 2 '
  expect alert 60 'PinstripeDriveReadOnly'
  observed
  happens "the timer of gate1 cares for the cluster, as it does each hour"
  on gate1 pinstripe care /etc/pinstripe/cluster.toml >/tmp/care.log 2>&1
  expect events 60 'drive 2 '
  observed
  type_in see '^(health|survives|writes|2) '
  type_in out
  rm /machines/store1/disk2.img
  truncate -s 3G /machines/store1/disk2.img  # the new one
  type_in in '^(health|2 |/srv|drive 2|[0-9]+ (registers|blocks|shards)|everything)'
  happens "the rebuild is done"
  expect events 60 'rebuild of drive 2 ended'
  over 60
}

drill_bits() {
  local one
  for one in 1 2 3 4 5 6 7 8; do xrdcp --nopbar -f /tmp/samples/12000000 "root://gate1//old$one" || flunk "no old file"; done
  happens "bits of a disk of store3 flip"
  on store3 /usr/bin/python3 - /srv/pinstripe/disk1/segments <<'END'
import os, sys
for name in os.scandir(sys.argv[1]):
    with open(name, "r+b") as file:
        for at in range(50000, name.stat().st_size, 100000):
            file.seek(at)
            byte = file.read(1)
            if byte.strip(b"\0"):  # not where nothing was written
                file.seek(at)
                file.write(bytes([byte[0] ^ 16]))
END
  for one in 1 2 3 4 5 6 7 8; do
    xrdcp --nopbar -f "root://gate2//old$one" /tmp/old && cmp /tmp/old /tmp/samples/12000000 || flunk "a reader gets other bytes"
  done
  expect alert 30 PinstripeDamage
  observed
  type_in scrub
  happens "the scrub is done"
  expect events 30 'met [0-9]+ damaged shard'
  over 60
}

drill_full() {
  happens "somebody puts a backup on a disk of store2"
  on store2 sh -c 'cd /srv/pinstripe/disk3 && fallocate -l $(df --output=avail -B1 . | tail -n 1) backup.tar'
  expect status 60 '^health .*full'
  expect console 60 'full'
  expect alert 90 PinstripeDriveFull
  observed
  go_on
  type_in see '^(health|6) '
  type_in room
  happens "there is room again"
  expect no-alert 60 PinstripeDriveFull
  over 90
}

drill_grow() {
  local disk
  stores="$stores store5"
  for disk in disk1 disk2 disk3; do make_disk store5 "$disk" 3G; done
  boot store5 ${addresses[store5]}
  printf '#!/bin/sh\nprintf "\\n[[host]]\\nname = \\"store5\\"\\naddress = \\"192.0.2.15\\"\\ndisks = [\\"/srv/pinstripe/disk1\\", \\"/srv/pinstripe/disk2\\", \\"/srv/pinstripe/disk3\\"]\\n" >>"$1"\n' >/stub/editor
  chmod +x /stub/editor
  happens "a host is added"
  type_in add '^(The site|As root|  *(store|gate|work)|When all|  pinstripe|store|ok|             drive|/srv|epoch|[0-9]+ (registers|blocks|shards)|everything)'
  over 60
  start_prometheus
  happens "another is drained"
  type_in drain '^(drive|all|      )'
  # What clients have removed is there for a minute yet.
  wait_until 300 eval 'pinstripe rebalance "$config"' || flunk "grow: the drives do not become empty"
  type_in rebalance '^(drive|all|everything|health|1[012] |           )'
  printf '#!/bin/sh\nsed -i "/\\"store4\\"/,/^disks/s,^disks.*,disks = [\\"/srv/pinstripe/disk1\\"]," "$1"\n' >/stub/editor
  happens "two of its drives go"
  type_in without '^(The site|As root|  *(store|gate|work)|/etc|health|survives|10 |           |  systemctl)'
  over 60
}

drill_keys() {
  happens "keys change"
  type_in rotate '^(The drives|A host|says|As root|  *(store|gate|work)|  pinstripe|.*key|.*identit)'
  over 60
  happens "certificates change"
  type_in certificates '^(As root|/etc|  systemctl)'
  over 60
  happens "the authority changes"
  type_in authority '^(As root|When every|  pinstripe|/etc|  systemctl)'
  over 60
}

drill_upgrade() {
  local one
  for one in /usr/sbin/pinstriped /usr/sbin/pinstripe /usr/bin/pinstripe-fuse /usr/lib/*/libXrdOssPinstripe-5.so; do
    cp "$one" "$one.new" && mv "$one.new" "$one"  # as dpkg does it; package_test.sh has really another version
  done
  happens "new packages are installed, and the drives of a host restart"
  type_in host '^(health|yes|while)'
  expect status 60 '^health +healthy'
  observed
  for one in ${stores#store1 }; do
    go_on
    PATH=$PATH on "$one" systemctl restart pinstriped
    wait_until 60 is_healthy || flunk "$one does not come back"
  done
  use_gates gate2 gate2
  happens "a gateway restarts"
  type_in gateway
  wait_until 60 gateway_answers gate1 || flunk "gate1 does not come back"
  use_gates gate1 gate1
  PATH=$PATH on gate2 systemctl restart xrootd@pinstripe
  wait_until 60 gateway_answers gate2 || flunk "gate2 does not come back"
  use_gates gate1 gate2
  # Whoever uses a mount has to let go of it.
  stop_clients
  check "upgrade: not one of $(cat /tmp/mount.rounds) rounds of the mount and $(cat /tmp/gateway.rounds) of the gateways failed" no_request_failed
  happens "a mount restarts"
  type_in mount
  wait_until 60 mount_is_there || flunk "the mount does not come back"
  start_clients
  over 60
  for one in $stores; do
    check "upgrade: $one runs what was installed" test "/proc/$(cat "/machines/$one/units/pinstriped.service.pid")/exe" -ef /usr/sbin/pinstriped
  done
}

# Nothing is told that the power goes, and what was not flushed is lost.
cut_power() {  # MACHINE...
  local one disk pid
  for one in "$@"; do
    for disk in disk1 disk2 disk3; do [ ! -e "/machines/$one/$disk.img" ] || lose_disk "$one" "$disk"; done
    local network
    network=$(readlink "/proc/${machines[$one]}/ns/net")
    for pid in /proc/[0-9]*; do
      [ "$(readlink "$pid/ns/net")" != "$network" ] || kill -KILL "${pid#/proc/}"
    done
    wait "${machines[$one]}"
    wait_until 30 eval "! ip link show to-$one" || ip link del "to-$one"
  done 2>/dev/null
}
drill_power() {
  local one
  # Where this is the first drill, the files that are kept are seconds old. Only what was synced is promised to stay.
  on work1 sh -c 'cp /tmp/samples/1500000 /srv/data/synced && sync /srv/data/synced /srv/data/kept*'
  kept[synced]=$(b2sum </tmp/samples/1500000)
  stop_clients
  check "power: not one of $(cat /tmp/mount.rounds) rounds of the mount and $(cat /tmp/gateway.rounds) of the gateways failed" no_request_failed
  # shellcheck disable=SC2086
  cut_power $stores $others
  happens "the power of all machines is gone"
  expect status 60 '^health +unavailable'
  expect console 60 '^unavailable'
  expect alert 120 PinstripeDaemonDown
  expect alert 120 PinstripeClientDown
  alerts_expected="$alerts_expected|PinstripeUnavailable|PinstripeRedundancyExhausted"  # while drive after drive comes
  observed
  type_in see '^health '
  # Gateways and mount come first, when no drive is there yet.
  for one in gate1 gate2 work1 $(tr ' ' '\n' <<<"$stores" | tac); do
    boot "$one" "${addresses[$one]}"
    PATH=$PATH on "$one" systemctl boot
  done
  happens "all machines have power again"
  expect status 180 '^health +healthy'
  expect no-alert 120 PinstripeDaemonDown
  expect no-alert 120 PinstripeClientDown
  expect events 120 'were compared with the others'
  observed
  for one in gate1 gate2; do wait_until 120 gateway_answers "$one" || flunk "$one does not come back"; done
  wait_until 60 mount_is_there || flunk "the mount does not come back"
  start_clients
  type_in after '^(health|[0-9]+ (directories|blocks|registers|shards)|everything)'
  over 180
}

mapfile -t all < <(sed -n 's/^drill_\([a-z]*\)() {$/\1/p' "$0")
[ $# -gt 0 ] || set -- "${all[@]}"
for drill; do case " ${all[*]} " in *" $drill "*) ;; *) echo "drills: there is no drill $drill: one of ${all[*]}" >&2; exit 2 ;; esac; done
build_site
keep_files
for drill; do run_drill "$drill"; done
finish
