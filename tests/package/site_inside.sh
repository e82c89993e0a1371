#!/bin/bash
# The part of site_test.sh that runs in the fresh Debian: VERSION.
set -uo pipefail
version=$1
stores="store1 store2 store3 store4"
gates="gate1 gate2"
. /checks.sh site_test
. /machines.sh

if [ "${2:-}" != alone ]; then
  {
    apt-get -q -o Acquire::Retries=5 update &&
      apt-get -qy -o Acquire::Retries=5 install --no-install-recommends /packages/pinstripe_"$version"_*.deb \
        /packages/pinstriped_"$version"_*.deb /packages/pinstripe-fuse_"$version"_*.deb /packages/xrootd-pinstripe_"$version"_*.deb \
        iproute2 e2fsprogs curl
  } >/tmp/apt.log 2>&1 || give_up "the packages cannot be installed"
  pass "the packages are installed"
  exec unshare --net bash "$0" "$version" alone
fi
systemd-tmpfiles --create xrootd.conf pinstriped.conf

# --- Machines ---

network_up 10.77.0.1
number=10
for one in $stores; do
  for disk in disk1 disk2 disk3; do make_disk "$one" "$disk" 4G; done
  boot "$one" 10.77.0.$((number += 1))
done
for one in $gates work1; do boot "$one" 10.77.0.$((number += 1)); done

# No systemd runs here: what it is told is written down, and done from the units.
start_drives() {  # NAME
  # shellcheck disable=SC2046
  on "$1" setpriv --reuid=pinstripe --regid=pinstripe --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
    $(command_of pinstriped.service) >"/tmp/$1.log" 2>&1 &
  wait_until 30 grep -q '^ready' "/tmp/$1.log" || give_up "$1 does not start"
}
start_gateway() {  # NAME
  local settings
  mapfile -t settings < <(sed -n 's/^Environment=//p' "$units/xrootd@pinstripe.service.d/pinstripe.conf")
  # shellcheck disable=SC2046
  on "$1" sh -c 'cd /var/spool/xrootd && exec "$@"' sh setpriv --reuid=xrootd --regid=xrootd --clear-groups env "${settings[@]}" \
    $(command_of xrootd@.service | sed 's/%i/pinstripe/g') >"/tmp/$1.log" 2>&1 &
  wait_until 60 xrdfs "root://$1" stat / || give_up "$1 does not serve: $(xrdfs "root://$1" stat / 2>&1)"
}
start_mount() {  # NAME DIRECTORY
  local settings
  mapfile -t settings < <(sed -n 's/^Environment=//p' "$units/pinstripe-fuse@.service")
  on "$1" env "${settings[@]}" sh -c "exec $(command_of pinstripe-fuse@.service | sed "s,%f,$2,")" >"/tmp/$1.log" 2>&1 || give_up "$1 does not mount"
}

# --- From nothing to a first file ---

mkdir /root/site
cd /root/site || exit 1
began=$SECONDS
# 1: describe it.
pinstripe init --example >SITE.toml
sed -i -e 's/192\.0\.2\.1/10.77.0.1/; s/192\.0\.2\.21/10.77.0.15/; s/192\.0\.2\.31/10.77.0.17/' SITE.toml
printf '\n[[host]]\nname = "gate2"\naddress = "10.77.0.16"\ngateway = ["root", "https"]\n' >>SITE.toml
# 2: make it.
check "a site is made from its description" pinstripe init SITE.toml
# 3: join, on each host.
mkdir -p /stub /run/systemd/system
printf '#!/bin/sh\necho "$*" >>"/machines/$(hostname)/systemctl"\n' >/stub/systemctl
chmod 755 /stub/systemctl
join() { on "$1" env PATH="/stub:$PATH" pinstripe join "/root/site/site-example/$1.tar"; }
tells() { grep -qxF -- "$2" "/machines/$1/systemctl" || { cat "/machines/$1/systemctl"; return 1; }; }
for one in $stores $gates work1; do check "$one joins" join "$one"; done
rm -r /run/systemd
for one in $stores; do check "$one would be started" tells "$one" "restart pinstriped.service"; done
for one in $gates; do check "$one would be started" tells "$one" "restart --no-block xrootd@pinstripe.service"; done
for one in store1 gate1 work1; do check "$one would care for the cluster" tells "$one" "enable --now pinstripe-care.timer"; done
check "work1 would be mounted, also after a boot" eval 'tells work1 "start --no-block pinstripe-fuse@srv-data.service" && tells work1 "enable pinstripe-fuse@srv-data.service"'
for one in $stores; do start_drives "$one"; done
# 4: make the cluster, on a gateway.
check "a gateway makes the cluster" on gate1 pinstripe format /etc/pinstripe/cluster.toml --owner "$(id -u xrootd):$(id -g xrootd)"
for one in $gates; do start_gateway "$one"; done
start_mount work1 /srv/data
check "a first file is stored" xrdcp --nopbar /usr/sbin/pinstriped root://gate1//first
took=$((SECONDS - began))
echo "site_test: from nothing to a first file in $took s"
check "that took no five minutes" test $took -lt 300
check "the other gateway has it" bash -c 'xrdcp --nopbar -f root://gate2//first /tmp/back && cmp /tmp/back /usr/sbin/pinstriped'
check "the mount has it" on work1 cmp /srv/data/first /usr/sbin/pinstriped
check "and by HTTPS who believes the authority" \
  bash -c 'curl --silent --fail --cacert site-example/ca.pem https://gate2:8080/first -o /tmp/fetched && cmp /tmp/fetched /usr/sbin/pinstriped'

# --- As it should be ---

check "the cluster is healthy for the administrator" pinstripe status site-example/cluster.toml
about() { [ "$(on "$1" stat -c '%a %U' "$2")" = "$3" ]; }
check "the gateway's keys are its own" about gate1 /etc/pinstripe/credentials.toml "600 xrootd"
check "the drives' keys are theirs" about store1 /etc/pinstripe/pinstriped-credentials.toml "600 pinstripe"
check "the drives' certificate is theirs" about store1 /etc/pinstripe/tls.key "600 pinstripe"
check "a disk belongs to the daemon" about store1 /srv/pinstripe/disk1 "755 pinstripe"
doctor() {  # NAME
  on "$1" pinstripe doctor /etc/pinstripe/cluster.toml
  [ $? -le 1 ]
}
for one in store1 gate1; do check "the doctor finds no error on $one" doctor "$one"; done
check "joining again changes nothing" bash -c 'grep -q "All files are as they should be" <(nsenter -t '"${machines[store2]}"' --mount --net --uts --root --wd=/ -- pinstripe join /root/site/site-example/store2.tar)'
check "one host may be away" bash -c 'pkill -KILL -o -f "^/usr/sbin/pinstriped" && xrdcp --nopbar -f root://gate1//first /tmp/back2 && cmp /tmp/back2 /usr/sbin/pinstriped'

# --- A machine leaves ---

# shellcheck disable=SC2016
check "a purge leaves nothing that a join has put there" on store4 bash -c '
  touch /etc/pinstripe/left
  apt-get -qy purge pinstripe pinstriped pinstripe-fuse xrootd-pinstripe >/dev/null 2>&1 && ls -A /etc/pinstripe | cmp - <(echo left) &&
    ! ls /etc/xrootd/pinstripe-tls.* 2>/dev/null && test -e /srv/pinstripe/disk1/pinstripe-drive'

finish
