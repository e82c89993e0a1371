# Sourced as root, in process, mount and network namespaces of its own, by tests that bring up a site: machines that
# each have a network, a name, disks, and directories of their own. This one is the administrator's. `wait_until` and
# `give_up` are those of checks.sh.

machine_directories="/etc/pinstripe /etc/xrootd /etc/systemd/system /srv /var/spool/xrootd /var/log/xrootd /run/xrootd"
declare -A machines  # process ids: whoever has the namespaces of each

network_up() {  # ADDRESS: of the administrator, in a network of 256
  ip link set lo up
  ip link add net0 type bridge
  ip addr add "$1/24" dev net0
  ip link set net0 up
  echo "127.0.0.1 localhost" >/etc/hosts
}
make_disk() {  # MACHINE NAME SIZE
  mkdir -p "/machines/$1"
  rm -f "/machines/$1/$2.img"
  truncate -s "$3" "/machines/$1/$2.img"
  mkfs.ext4 -q "/machines/$1/$2.img" || give_up "no file system for $1"
}
# Also again, after a machine has gone: its files are as it left them.
boot() {  # NAME ADDRESS
  local directory
  if [ ! -e "/machines/$1/etc" ]; then
    for directory in $machine_directories; do
      mkdir -p "/machines/$1$directory"
      cp -a "$directory/." "/machines/$1$directory/"
      chown --reference "$directory" "/machines/$1$directory"
    done
    echo "$2 $1" >>/etc/hosts
  fi
  rm -f "/machines/$1/booted"
  # What the kernel calls this boot is the machine's own.
  cat /proc/sys/kernel/random/uuid >"/machines/$1/boot_id"
  # shellcheck disable=SC2016
  unshare --net --mount --uts bash -euc '
    mount --make-rprivate /
    hostname "$1"
    for directory in $2; do
      mount --bind "/machines/$1$directory" "$directory"
    done
    mount --bind "/machines/$1/boot_id" /proc/sys/kernel/random/boot_id
    for image in /machines/$1/*.img; do
      [ -e "$image" ] || continue
      mkdir -p "/srv/pinstripe/$(basename "$image" .img)"
      mount -o loop "$image" "/srv/pinstripe/$(basename "$image" .img)"
    done
    touch "/machines/$1/booted"
    exec sleep infinity' _ "$1" "$machine_directories" </dev/null >"/tmp/$1.boot.log" 2>&1 &
  machines[$1]=$!
  wait_until 60 test -e "/machines/$1/booted" || give_up "$1 does not boot: $(cat "/tmp/$1.boot.log")"
  ip link add "to-$1" type veth peer name eth0 netns "${machines[$1]}"
  ip link set "to-$1" master net0 up
  on "$1" ip link set lo up
  on "$1" ip addr add "$2/24" dev eth0
  on "$1" ip link set eth0 up
}
on() {  # NAME COMMAND...
  nsenter -t "${machines[$1]}" --mount --net --uts --root --wd=/ -- "${@:2}"
}
