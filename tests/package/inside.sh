#!/bin/bash
# The part of package_test.sh that runs in the fresh Debian: OLD-VERSION NEW-VERSION.
set -uo pipefail
old=$1 new=$2
drives="1 2 3 4 5 6"
. /checks.sh package_test

about() { [ "$(stat -c '%a %U %G' "$1")" = "$2" ] || { stat -c '%n has %a %U %G' "$1"; return 1; }; }
install() {  # VERSION: what apt says is in /tmp/apt.log
  apt-get -qy -o Acquire::Retries=5 install --no-install-recommends /packages/pinstripe_"$1"_*.deb \
    /packages/pinstriped_"$1"_*.deb /packages/pinstripe-fuse_"$1"_*.deb /packages/xrootd-pinstripe_"$1"_*.deb \
    /packages/pinstripe-console_"$1"_*.deb >/tmp/apt.log 2>&1
}

# No systemd keeps the programs from the system calls that their units leave out. So one of each is watched, and what
# it calls is compared with its unit's filter when it has ended.
watched() { echo "strace -D -f -qq -c -U name -o /tmp/calls/$1"; }
calls_of() {  # SystemCallFilter's words
  local word
  for word in "$@"; do
    case $word in
      @*)
        # shellcheck disable=SC2046
        calls_of $(systemd-analyze syscall-filter --no-pager "$word" 2>/dev/null | sed -n 's/^ \{1,\}\([@a-z0-9_-]*\)$/\1/p')
        ;;
      *) echo "$word" ;;
    esac
  done
}
keeps_to_its_unit() {  # NAME UNIT-FILE
  local allowed=() denied=() line called
  while read -r line; do
    case $line in
      ~*) denied+=(${line#\~}) ;;
      *) allowed+=($line) ;;
    esac
  done < <(sed -n 's/^SystemCallFilter=//p' "$2")
  wait_until 30 test -s "/tmp/calls/$1" || { echo "nothing is known of its calls"; return 1; }
  called=$(sed '1,2d; /^-/d; /^total$/d; s/ *$//' "/tmp/calls/$1" | sort -u)
  [ "$(wc -l <<<"$called")" -ge 20 ] && grep -qx 'futex' <<<"$called" || { echo "that cannot be all: $called"; return 1; }
  comm -23 <(calls_of "${allowed[@]}" | sort -u) <(calls_of "${denied[@]}" | sort -u) | sort -u >/tmp/allowed
  called=$(comm -23 <(echo "$called") /tmp/allowed)
  [ -z "$called" ] || { echo "the filter of $2 leaves out:" $called; return 1; }
}
mkdir -p -m 1777 /tmp/calls

# --- Install ---

# What follows needs no network but one of its own.
if [ "${3:-}" != alone ]; then
  apt-get -q -o Acquire::Retries=5 update >/tmp/apt.log 2>&1
  install "$old" || give_up "the packages cannot be installed: $(tail -n 5 /tmp/apt.log)"
  pass "the packages are installed by apt in a fresh Debian"
  apt-get -qy install --no-install-recommends iproute2 strace >/tmp/apt.log 2>&1 || give_up "no ip and strace: $(tail -n 5 /tmp/apt.log)"
  exec unshare --net bash -c 'ip link set lo up && exec bash "$@"' _ "$0" "$old" "$new" alone
fi
systemd-tmpfiles --create xrootd.conf pinstriped.conf

check "the daemon has a user" getent passwd pinstripe
check "keys of the cluster are the gateway's alone" about /etc/pinstripe/credentials.toml "600 xrootd xrootd"
check "keys of the drives are the daemon's alone" about /etc/pinstripe/pinstriped-credentials.toml "600 pinstripe pinstripe"
check "anybody may read how the cluster is made" about /etc/pinstripe/cluster.toml "644 root root"
check "disks have a place" about /srv/pinstripe "755 root root"
for package in pinstripe pinstriped xrootd-pinstripe pinstripe-console; do
  for file in $(dpkg-query -W -f '${Conffiles}' "$package" | awk '{print $1}'); do
    check "$file is a conffile that is there" test -f "$file"
  done
done
check "credentials are conffiles" grep -q credentials.toml <(dpkg-query -W -f '${Conffiles}' pinstripe)
check "the units are right" /tests/units
exposure() { systemd-analyze security --offline=true --no-pager "$1" | sed -n 's/.*exposure level for [^:]*: \([0-9]*\)\..*/\1/p'; }
check "pinstriped can do little else" test "$(exposure pinstriped.service)" -lt 3
check "the console can do little else" test "$(exposure pinstripe-console.service)" -lt 3
check "the console has a user, and a place for its keys" about /etc/pinstripe/console "750 root pinstripe-console"
check "a gateway can do little else" test "$(exposure xrootd@pinstripe.service)" -lt 3
# Whoever mounts for the whole machine cannot have file systems of his own.
check "a mount can do less than others" test "$(exposure pinstripe-fuse@srv-data.service)" -lt 5
check "nothing is started before it has disks" test ! -e /etc/systemd/system/multi-user.target.wants/pinstriped.service
check "the command is completed" bash -c '. /usr/share/bash-completion/completions/pinstripe && complete -p pinstripe'

# --- A first file ---

echo "127.0.0.1 localhost" >/etc/hosts  # of a machine with a network the resolver knows the name
check "the packages make a cluster to try" /tests/first-file

# Each drive is on a host of its own, which has its own files in /etc/pinstripe.
key=$(od -An -tx1 -N 24 /dev/urandom | tr -d ' \n')
sed -n '1,/^\[\[drive\]\]/p' /etc/pinstripe/cluster.toml | sed '$d' >/tmp/cluster.toml
for one in $drives; do
  printf '[[drive]]\nid = %d\naddress = "127.0.0.1:%d"\ndomain = "host%d"\n\n' "$one" $((8122 + one)) "$one" >>/tmp/cluster.toml
done
cat /tmp/cluster.toml >/etc/pinstripe/cluster.toml
printf '[default]\nidentity = 1\nkey = "%s"\n' "$key" >/tmp/keys
cat /tmp/keys >/etc/pinstripe/credentials.toml
printf '[[identity]]\nid = 1\nkey = "%s"\n' "$key" >/tmp/keys
cat /tmp/keys >/etc/pinstripe/pinstriped-credentials.toml
rm /tmp/keys
for one in $drives; do
  mkdir -p "/srv/pinstripe/disk$one" "/hosts/$one"
  chown pinstripe:pinstripe "/srv/pinstripe/disk$one"
  check "disk $one becomes a drive" pinstriped --init "/srv/pinstripe/disk$one"
  check "which is the daemon's" about "/srv/pinstripe/disk$one/pinstripe-drive" "640 pinstripe pinstripe"
  cp -a /etc/pinstripe/. "/hosts/$one/"
  sed -i -e 's/^#credentials = /credentials = /' -e "s,^path = .*,path = \"/srv/pinstripe/disk$one\"," \
    -e "s/^port = .*/port = $((8122 + one))/" "/hosts/$one/pinstriped.toml"
done
cp /hosts/1/pinstriped.toml /etc/pinstripe/pinstriped.toml

declare -A daemons
start_drive() {  # ID [WATCHER]
  local log=/tmp/drive$1.log
  : >"$log"
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount --bind "/hosts/$1" /etc/pinstripe && exec setpriv --reuid=pinstripe --regid=pinstripe --clear-groups \
    --no-new-privs --inh-caps=-all --bounding-set=-all $2' _ "$1" "${2:-} $(command_of pinstriped.service)" >>"$log" 2>&1 &
  daemons[$1]=$!
  wait_until 30 grep -q '^ready' "$log" || give_up "drive $1 does not start"
}
start_drive 1 "$(watched drive)"
for one in ${drives#1 }; do start_drive "$one"; done
check "the cluster is formatted" pinstripe format /etc/pinstripe/cluster.toml --owner "$(id -u xrootd):$(id -g xrootd)"
check "the cluster is healthy" pinstripe status /etc/pinstripe/cluster.toml

start_gateway() {  # [WATCHER]
  local settings
  mapfile -t settings < <(sed -n 's/^Environment=//p' "$units/xrootd@pinstripe.service.d/pinstripe.conf")
  (cd /var/spool/xrootd && exec setpriv --reuid=xrootd --regid=xrootd --clear-groups env "${settings[@]}" ${1:-} \
    $(command_of xrootd@.service | sed 's/%i/pinstripe/g')) >/tmp/gateway.log 2>&1 &
  gateway=$!
  wait_until 60 xrdfs root://127.0.0.1 stat / || give_up "the gateway does not start: $(xrdfs root://127.0.0.1 stat / 2>&1)"
}
start_gateway "$(watched gateway)"
check "a first file goes through the gateway" xrdcp --nopbar /usr/sbin/pinstriped root://127.0.0.1//first
check "it comes back" bash -c 'xrdcp --nopbar -f root://127.0.0.1//first /tmp/back && cmp /tmp/back /usr/sbin/pinstriped'
check "the gateway has the fast checksums" grep -q libPinstripeCrc32c "/proc/$gateway/maps"

mkdir /srv/data /srv/listed "/srv/by-unit"
check "mount -t pinstripe" mount -t pinstripe -o allow_other /etc/pinstripe/cluster.toml /srv/data
check "the mount has the gateway's file" cmp /srv/data/first /usr/sbin/pinstriped
echo "/etc/pinstripe/cluster.toml /srv/listed pinstripe allow_other,ro,_netdev,nofail 0 0" >>/etc/fstab
check "a line in fstab mounts" mount /srv/listed
check "it has the file" cmp /srv/listed/first /usr/sbin/pinstriped
check "and is read only" bash -c '! touch /srv/listed/more'
check "it is unmounted" umount /srv/listed
# systemd puts what the unit's Environment says into the line.
unit=$(sed -n 's/^Environment=//p' "$units/pinstripe-fuse@.service" | tr '\n' ' ')
check "the unit's line mounts" env $unit bash -c "exec $(watched mount) $(command_of pinstripe-fuse@.service | sed 's,%f,/srv/by-unit,')"
check "it has the file, too" cmp /srv/by-unit/first /usr/sbin/pinstriped
check "a file goes through it" bash -c 'cp /usr/bin/apt-get /srv/by-unit/unit && mv /srv/by-unit/unit /srv/by-unit/moved && rm /srv/by-unit/moved'
check "it is unmounted, too" umount /srv/by-unit
check "the mount keeps to its unit's system calls" keeps_to_its_unit mount "$units/pinstripe-fuse@.service"

# --- Upgrade, while clients write ---

# Each writes a file, reads it, removes it, and counts.
touch /tmp/writing
by_mount() { cp /usr/bin/apt-get /srv/data/m && cmp /usr/bin/apt-get /srv/data/m && rm /srv/data/m; }
by_gateway() { xrdcp --nopbar -f /usr/bin/apt-get root://127.0.0.1//g && xrdcp --nopbar -f root://127.0.0.1//g /tmp/g && cmp /usr/bin/apt-get /tmp/g; }
write() {  # NAME
  while [ -e /tmp/writing ]; do
    if "by_$1" >>"/tmp/$1.log" 2>&1; then echo >>"/tmp/$1.done"; else echo >>"/tmp/$1.failed"; fi
  done
}
write mount &
writers=$!
write gateway &
writers="$writers $!"
count() { cat "/tmp/$1" 2>/dev/null | wc -l; }
has_gone_on() { [ "$(count mount.done)" -ge $((mount_done + 2)) ] && [ "$(count gateway.done)" -ge $((gateway_done + 2)) ]; }
go_on() {
  mount_done=$(count mount.done) gateway_done=$(count gateway.done)
  wait_until 120 has_gone_on || give_up "clients do not go on: $1"
}
go_on "before the upgrade"
pids=${daemons[*]}
install "$new" || give_up "the upgrade fails"
check "the new version is installed" test "$(dpkg-query -W -f '${Version}' pinstriped)" = "$new"
# shellcheck disable=SC2086
check "no daemon was stopped by that" kill -0 $pids
check "and goes on as what it was" test ! "/proc/${daemons[1]}/exe" -ef /usr/sbin/pinstriped
check "the administrator's configuration stays" cmp /tmp/cluster.toml /etc/pinstripe/cluster.toml
check "keys are the gateway's alone, still" about /etc/pinstripe/credentials.toml "600 xrootd xrootd"
all_up() { pinstripe status --json /etc/pinstripe/cluster.toml | grep -q '"drives_down": 0,'; }
for one in $drives; do
  kill "${daemons[$one]}"
  wait "${daemons[$one]}" || flunk "drive $one does not end well"
  go_on "drive $one is away"
  start_drive "$one"
  wait_until 60 all_up || give_up "drive $one does not come back: $(pinstripe status /etc/pinstripe/cluster.toml)"
  go_on "drive $one is back"
done
rm /tmp/writing
# shellcheck disable=SC2086
wait $writers
check "not one of $(count mount.done) files of the mount failed" test ! -e /tmp/mount.failed
check "not one of $(count gateway.done) files of the gateway failed" test ! -e /tmp/gateway.failed
for one in $drives; do
  check "drive $one runs what was installed" test "/proc/${daemons[$one]}/exe" -ef /usr/sbin/pinstriped
done
kill "$gateway"
wait "$gateway" 2>/dev/null
start_gateway
check "the new gateway has the first file" bash -c 'xrdcp --nopbar -f root://127.0.0.1//first /tmp/back2 && cmp /tmp/back /tmp/back2'
umount /srv/data
check "the new version mounts" mount -t pinstripe /etc/pinstripe/cluster.toml /srv/data
check "and has the first file" cmp /srv/data/first /tmp/back
umount /srv/data
check "a drive keeps to its unit's system calls" keeps_to_its_unit drive "$units/pinstriped.service"
check "a gateway keeps to its unit's system calls" keeps_to_its_unit gateway "$units/xrootd@pinstripe.service.d/pinstripe.conf"
check "pinstripe check finds everything in order" pinstripe check /etc/pinstripe/cluster.toml

# --- Remove and purge ---

kill "$gateway" "${daemons[@]}"
wait
all="pinstripe pinstriped pinstripe-fuse xrootd-pinstripe pinstripe-console"
# shellcheck disable=SC2086
check "the packages are removed" bash -c 'apt-get -qy remove "$@" >/tmp/removed 2>&1 || { cat /tmp/removed; exit 1; }' _ $all
check "that names the data" grep -q '^  /srv/pinstripe/disk1\>' /tmp/removed
check "the configuration stays" test -s /etc/pinstripe/cluster.toml
check "the programs are gone" test ! -e /usr/sbin/pinstriped
# shellcheck disable=SC2086
check "the packages are purged" bash -c 'apt-get -qy purge "$@" >/tmp/purged 2>&1 || { cat /tmp/purged; exit 1; }' _ $all
check "that names the data, too" grep -q '^  /srv/pinstripe/disk1\>' /tmp/purged
check "the configuration is gone" test ! -e /etc/pinstripe/credentials.toml
for one in /etc/pinstripe /var/lib/pinstripe /etc/default/pinstripe-fuse /usr/share/doc/*pinstripe*; do
  check "nothing is left at $one" test ! -e "$one"
done
for one in $drives; do check "the data of drive $one is kept" test -n "$(ls "/srv/pinstripe/disk$one")"; done
check "data has an owner with a name" getent passwd pinstripe

finish
