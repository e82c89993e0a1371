# Sourced by the tests of packages: a fresh Debian 12, and running a script in it.

# Makes DIRECTORY a Debian 12 with PACKAGES in /packages, SCRIPT as /inside.sh, and what it may source.
make_fresh_root() {  # DIRECTORY PACKAGES SCRIPT
  if [ -n "${DEBIAN_TAR:-}" ]; then  # one that was made before, for who works on these tests
    mkdir "$1"
    tar -C "$1" --exclude='./dev/*' -xf "$DEBIAN_TAR"
  else
    mmdebstrap --quiet --variant=apt bookworm "$1"
  fi
  mkdir "$1/packages"
  cp "$2"/*.deb "$1/packages/"
  cp "$3" "$1/inside.sh"
  cp "$(dirname "${BASH_SOURCE[0]}")"/{checks,machines}.sh "$1/"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
}

# Runs /inside.sh there, in process and mount namespaces of its own, which take all that was started with them. No
# systemd runs in it: daemons are started by the lines of their units.
run_in_fresh_root() {  # DIRECTORY [ARGUMENT...]
  unshare --mount --pid --fork --uts --kill-child bash -euc '
    root=$1
    shift
    mount --make-rprivate /
    mount --rbind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    hostname localhost
    exec chroot "$root" env -u LD_PRELOAD PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 bash /inside.sh "$@"
  ' _ "$@"
}
